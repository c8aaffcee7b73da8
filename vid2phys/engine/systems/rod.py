"""A rod of rubber, clamped at both ends and pushed in the middle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vid2phys.engine.constants import RISP_ROD
from vid2phys.engine.system import Capabilities
from vid2phys.engine.systems._tets import Elements, Locking, TetBody
from vid2phys.engine.tets import box_tets
from vid2phys.errors import UsageError
from vid2phys.types import Array

_SENSORS = 10
_FINE = 1000  # vertices
_COARSE = (
    "the rod is made of few linear tets, which bend too stiffly: its young_modulus is comparable with that of other "
    "clips and of `simulate`, but several times too small for the material"
)


class Rod(TetBody):
    """A bar of stable neo-Hookean tets along x, both of its end faces clamped, a force on its middle cross-section.

    State [6 V], equations, viscosity and options are those of `SoftBody`. Controls: the force (world, N) on the middle,
    shared equally by the vertices of the cross-section there. At rest the bar is centred at the origin.

    `spine_m` [10, 3] are ten places along the centre line, evenly between the clamps: the sensors of RISP's rod (Ma et
    al., ICLR 2022), from which E is to be found over 1e4 to 1e7 Pa. At rest, the bar's shape under a given force F
    depends on F / E only: `load_n` gives the force that moves the middle by about an eighth of the length, so that one
    that swings between plus and minus that moves it over a fifth of an image the rod just fits in, whatever E.

    Limits: those of `SoftBody`. With `elements="linear"` one or two cells across bend several times too stiffly; RISP's
    tables are made with these. Below E = 3e4 Pa the bar's weight bends it more than the load.
    """

    name = "rod"
    integrators = ("implicit_euler", "semi_implicit_euler", "implicit_midpoint")

    def __init__(
        self,
        cells: tuple[int, int, int] = (8, 2, 2),
        *,
        size_m: tuple[float, float, float] = RISP_ROD.size_m,
        elements: Elements = "quadratic",
        locking: Locking = "none",
        values: dict[str, float] | None = None,
    ) -> None:
        """cells: along the rod (an even number) and across. values: defaults of the parameters, by name."""
        if cells[0] % 2:
            raise UsageError(f"{cells[0]} cells along the rod", "an even number", "so that vertices lie in its middle")
        vertices, tets = box_tets(size_m, cells)
        vertices = vertices - 0.5 * np.array(size_m)
        place = np.rint((vertices[:, 0] / size_m[0] + 0.5) * cells[0])
        self.size_m = size_m
        self.spine_m: Array = np.zeros((_SENSORS, 3))
        self.spine_m[:, 0] = np.linspace(-0.5, 0.5, _SENSORS + 2)[1:-1] * size_m[0]
        super().__init__(
            vertices,
            tets,
            pinned=np.flatnonzero((place == 0) | (place == cells[0])),
            load_vertices=np.flatnonzero(place == cells[0] // 2),
            muscles=None,
            moduli="young",
            elements=elements,
            locking=locking,
            ground=False,
            per_vertex_mass=False,
            values={**RISP_ROD.values, **(values or {})},
        )

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`: the clamps stand in known places, between which modes are seen."""
        return replace(
            super().capabilities,
            purpose="a bar of rubber clamped at both ends and pushed in the middle: its Young's modulus",
            observed_as="modes",
            caution=_COARSE if not self.quadratic and len(self.rest_m) < _FINE else "",
        )

    def load_n(self, young_modulus: float) -> float:
        """Return force [N] that moves the middle across by about an eighth of the rod's length, but for its weight."""
        return RISP_ROD.load_share * young_modulus * self.size_m[1] * self.size_m[2]

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: bent to all sides, by a tenth of the length or so; vertices off by little."""
        count, spread = len(self.rest_m), np.array([0.01, 0.07, 0.07]) * self.size_m[0]
        bow = np.cos(np.pi * self.rest_m[:, :1] / self.size_m[0]) ** 2
        edge = np.linalg.norm(self.rest_m[self.elements[:, 1]] - self.rest_m[self.elements[:, 0]], axis=1).min()
        x = self.rest_m + bow * rng.normal(0.0, spread, (n, 1, 3))
        x += rng.normal(0.0, 0.02 * float(edge), (n, count, 3))
        v = bow * rng.normal(0.0, 10.0 * spread, (n, 1, 3)) + rng.normal(0.0, 0.05, (n, count, 3))
        x[:, self.pinned], v[:, self.pinned] = self.rest_m[self.pinned], 0.0
        return self.state(x, v)
