"""Features that a training starts from: those of another body's networks, which represent edges, blur and clutter.

Layers are copied by name and shape. The heads, which know a body, are learnt anew.

Limits: the networks must have the same width.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vid2phys.errors import InputError

_PREFIX = "pyramid."


@dataclass(frozen=True)
class Features:
    """Weights of feature layers, by name.

    Attributes:
        fine: Those of the fine network.
        coarse: Those of the coarse network; empty for a model without one.
    """

    fine: dict[str, Tensor]
    coarse: dict[str, Tensor]

    @staticmethod
    def load(folder: str | Path) -> Features:
        """Read the features of a model folder. Raises InputError for a folder without a fine network."""
        folder = Path(folder)
        fine, coarse = _features(folder / "fine.safetensors"), _features(folder / "coarse.safetensors")
        if not fine:
            raise InputError(f"'{folder}' holds no features", "a model folder", "give one, or --start none")
        return Features(fine, coarse)


def copy_features(given: dict[str, Tensor], network: nn.Module) -> None:
    """Copy those features into a network that have the name and the shape of its own."""
    own = network.state_dict()
    same = {name: value for name, value in given.items() if name in own and own[name].shape == value.shape}
    network.load_state_dict({**own, **same})


def _features(path: Path) -> dict[str, Tensor]:
    """Return the feature layers of a weights file in single precision, none for a missing file. Raises InputError."""
    if not path.is_file():
        return {}
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"'{path}' is not a safetensors file", "the weights of a model", "give another --start"
        ) from error
    return {name: value.float() for name, value in weights.items() if name.startswith(_PREFIX)}
