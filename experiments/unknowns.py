"""The unknown parameters of RISP's table 2 (Ma, Du et al., ICLR 2022), in its units and in SI.

The ranges only give where searches begin. A fit may find whatever the system can simulate: a clamp at the middle or an
edge of a range would hand out the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.constants import DYN_PER_CM
from vid2phys.engine.constants import RISP_HAND
from vid2phys.types import Array, Parameter, Parameters


@dataclass(frozen=True)
class Unknown:
    """Parameters of one kind. names: of the system's. metric: what rows call its error, in `unit`, the paper's.

    truth: the paper's. starts: from where to where searches begin. si: what 1 is in SI, or of a logarithm (to the base
    of ten) what 0 is.
    """

    metric: str
    unit: str
    names: tuple[str, ...]
    truth: float
    starts: tuple[float, float]
    si: float
    logarithm: bool = False

    @property
    def label(self) -> str:
        """Return the label of an axis."""
        return self.metric.replace("_", " ") + (f" [{self.unit}]" if self.unit != "1" else "")

    def to_si(self, values: Array) -> Array:
        """Convert the paper's numbers to the system's."""
        return np.asarray(self.si * (10.0**values if self.logarithm else values))

    def from_si(self, values: Array) -> Array:
        """Convert the system's numbers to the paper's."""
        shares = np.asarray(values, dtype=float) / self.si
        return np.log10(shares) if self.logarithm else shares

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw numbers evenly over the range of starts, one for each name."""
        return np.asarray(rng.uniform(*self.starts, len(self.names)), dtype=float)

    def units(self, parameters: Parameters) -> Array:
        """Return what a step of one in the paper's numbers is in solver coordinates, one for each name."""
        items = [parameters[name] for name in self.names]
        return np.array([self._slope(item) for item in items])

    def _slope(self, item: Parameter) -> float:
        if self.logarithm:
            assert item.transform == "log"
            return float(np.log(10.0))
        return self.si / self.to_si(np.array(self.truth)).item() if item.transform == "log" else self.si


MASS = Unknown("mass_error", "kg", ("mass",), 3.0, (2.8, 3.2), 1.0)
CONTACT = Unknown("log10_k_n_error", "log10(dyn/cm)", ("k_e",), 6.0, (5.5, 6.5), DYN_PER_CM, logarithm=True)
JOINTS = Unknown(
    "stiffness_error", "1", tuple(f"stiffness_{finger}" for finger in range(5)), 1.0, (0.0, 1.0), RISP_HAND.stiffness
)
YOUNG = Unknown("log10_E_error", "log10(Pa)", ("young_modulus",), 5.0, (4.0, 7.0), 1.0, logarithm=True)
NOTHING = Unknown("", "1", (), 0.0, (0.0, 0.0), 1.0)
"""Of a motion whose parameters are all known."""
