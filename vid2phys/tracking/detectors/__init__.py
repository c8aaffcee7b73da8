"""Detectors: from a frame to candidate poses with evidence, one file each.

`search` asks every detector of this folder where the object may be in a frame, and the network detects keypoints at
these places (`network`). A module is such a detector if it has a function

    propose(frame, search) -> Places

where `search` is the `ObjectDetector` of the clip, with model, camera and background. A new file needs no edit
elsewhere.

Limits: a frame is searched at the start of a clip and where the object was lost; other frames continue the motion.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vid2phys import plugins
from vid2phys.types import Array


@dataclass(frozen=True)
class Places:
    """N places in a frame where the object may be, the most likely first.

    Attributes:
        center_px: [N, 2] middle of the bounding sphere, px.
        diameter_px: [N] its diameter, px.
    """

    center_px: Array
    diameter_px: Array


def proposers() -> Iterator[Callable[..., Places]]:
    """Yield the function `propose` of each detector of this folder, in the order of their names."""
    for name in plugins.names(__path__):
        module: Any = importlib.import_module(f"{__name__}.{name}")
        if hasattr(module, "propose"):
            yield module.propose
