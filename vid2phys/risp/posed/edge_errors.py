"""What postures fitted to edges are worth, measured on held-out clips, as `pixels.contour_errors` for rigid bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.risp.calibration.error_model import Calibration
from vid2phys.risp.pixels.align_errors import AlignErrors
from vid2phys.risp.posed.body import PosedBody
from vid2phys.risp.posed.heldout import clips
from vid2phys.risp.posed.outlined import outlined
from vid2phys.risp.posed.sight import look
from vid2phys.risp.renders.dataset import RenderSet

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_MOST_LOOKS = 60


def measure(
    model: Model,
    body: PosedBody,
    calibration: Calibration,
    renders: RenderSet,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> AlignErrors:
    """Reads at most 60 clips, each frame by itself, and fits their edges. Errors are shares of `Outlined.columns`."""
    parts = []
    for known in clips(renders, body, model.view_size, _MOST_LOOKS, seed, progress):
        clip, window = known.clip, known.window
        seen = look(model, body, window, clip.frames, calibration)
        sighted = np.flatnonzero(seen.quality >= calibration.min_quality)
        better = outlined(clip.frames, body, window, seen.postures, seen.quality, calibration, sighted)
        off = np.linalg.solve(better.columns, (better.posture - known.postures)[..., None])[..., 0]
        parts.append((off[better.moved], clip.times_s[better.moved], np.full(better.moved.sum(), known.sequence)))
    error, times_s, look_of = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return AlignErrors(error, np.ones_like(error), look_of, times_s)
