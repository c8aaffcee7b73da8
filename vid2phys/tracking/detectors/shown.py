"""The place where the user shows the object in a single image: no other place is searched.

Limits: a box; of clips with more frames the motion shows the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys.tracking.detectors import Places

if TYPE_CHECKING:
    from vid2phys.tracking.hint import Hint
    from vid2phys.types import Clip

_BOX_TO_SPHERE = 1.15  # diameter of the bounding sphere over the larger side of a box close around the body
_SIZES = (1.0, 0.8, 1.25)  # that are tried, over that of the box


def place_of(hint: Hint, clip: Clip) -> Places | None:
    """Return the place of a box in a clip of a single image, in several sizes; None in other clips, and for a click."""
    if len(clip.times_s) > 1 or hint.is_click:
        return None
    x0, y0, x1, y1 = hint.corners
    center, size = np.array([0.5 * (x0 + x1), 0.5 * (y0 + y1)]), max(x1 - x0, y1 - y0)
    return Places(np.tile(center, (len(_SIZES), 1)), _BOX_TO_SPHERE * size * np.array(_SIZES))
