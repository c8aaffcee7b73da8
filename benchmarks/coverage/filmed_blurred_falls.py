"""Random bodies in free flight that blur, from pixels: g, by `identify --model none --fit gravity`.

Falls are those of `filmed_falls`, at 24 to 60 frames a second. In the mean, a body moves by 8 to 30 % of its size in an
exposure, or by 0.85 of its path in a frame where that is less.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.coverage.cases import Case
from benchmarks.coverage.filmed_falls import filmed_fall, random_fall
from benchmarks.sweep_clips import frame_path_px

_BLUR_SHARE = 0.08, 0.3  # of the body's size
_MOST_SHUTTER = 0.85


def case(seed: int, folder: Path) -> Case:
    """Return the fit of a random fall, whose clip and run are written into a folder."""
    rng = np.random.default_rng([seed, 82])
    cell, body = random_fall(rng, float(rng.uniform(24.0, 60.0)), int(rng.integers(20, 36)))
    blur_px = min(float(rng.uniform(*_BLUR_SHARE)) * cell.size_px, _MOST_SHUTTER * frame_path_px(cell, body, seed))
    return filmed_fall(replace(cell, blur_px=blur_px), body, seed, folder)
