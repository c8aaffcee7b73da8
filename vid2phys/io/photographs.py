"""Load photographs that come with scikit-image, without a download.

Training uses them as backgrounds, textures and surroundings.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import MissingDependencyError

# Those that look like what a camera sees; diagrams, microscopy, text and test patterns are left out.
_NAMES = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "grass.png",
    "gravel.png",
    "hubble_deep_field.jpg",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "rocket.jpg",
)


def photograph_names() -> tuple[str, ...]:
    """Return the file names of the photographs that are there, in a fixed order."""
    return tuple(path.name for path in _paths())


def photographs() -> list[NDArray[np.uint8]]:
    """Return the photographs, RGB uint8 [H, W, 3] each. Raises MissingDependencyError when scikit-image has none."""
    from PIL import Image

    paths = _paths()
    if not paths:
        raise MissingDependencyError(
            "scikit-image has no photographs", "those of its wheel", "`pip install --force-reinstall scikit-image`"
        )
    return [np.asarray(Image.open(path).convert("RGB"), dtype=np.uint8) for path in paths]


def _paths() -> list[Path]:
    spec = find_spec("skimage")
    folders = spec.submodule_search_locations if spec else None
    found = [Path(folder) / "data" / name for folder in folders or () for name in _NAMES]
    return [path for path in found if path.is_file()]
