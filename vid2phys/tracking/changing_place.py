"""Find the place where a clip changes: a hint for a body that moves by less than its own width.

Most of such a body counts for the background, and only its edges for what moves. Half way, it is between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.indices import evenly
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.hint import Hint
from vid2phys.types import Array


@dataclass(frozen=True, kw_only=True)
class ChangingPlaceConfig:
    """Settings of `changing_place`."""

    frames: int = 31
    """Number of frames that are compared."""
    min_change: float = 25.0
    """Least range of a pixel in the clip, grey levels."""
    min_noises: float = 3.0
    """The same, in usual ranges."""
    open_px: int = 3
    """Least width of what changes, px."""
    close_share: float = 0.04
    """Width of gaps that are bridged, as a share of the frame's height."""


DEFAULTS = ChangingPlaceConfig()


def changing_place(frames: Indexed, times_s: Array, config: ChangingPlaceConfig = DEFAULTS) -> Hint | None:
    """Return the middle of the largest region that changes, as a click half way; None where nothing changes.

    frames: T frames [H, W, 3] of a static camera. times_s: [T].
    """
    import cv2

    shown = np.stack([frames[int(i)] for i in evenly(len(frames), config.frames)])
    extent = (shown.max(axis=0) - shown.min(axis=0)).max(axis=-1)
    changed = extent > max(config.min_change, config.min_noises * float(np.median(extent)))
    gap = max(3, round(config.close_share * extent.shape[0]))
    opened = cv2.morphologyEx(changed.astype(np.uint8), cv2.MORPH_OPEN, np.ones((config.open_px,) * 2, np.uint8))
    closed = cv2.morphologyEx(opened, cv2.MORPH_CLOSE, np.ones((gap, gap), np.uint8))
    count, _, stats, _ = cv2.connectedComponentsWithStats(closed)
    if count < 2:
        return None
    x0, y0, width, height = stats[1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA])), :4].tolist()
    x, y, time_s = x0 + 0.5 * (width - 1), y0 + 0.5 * (height - 1), float(times_s[len(times_s) // 2])
    return Hint(f"{time_s:.3f}s:{x:.0f},{y:.0f}", (x, y, x, y), time_s)
