"""The body's shadow in training images: on a wall behind it, or on a floor below it.

Limits: the shadow has the silhouette that the camera sees, not the one that the light sees.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Linear = NDArray[Any]  # float32 light
_LARGEST_BLUR_PX = 6.0


def cast_shadow(rng: np.random.Generator, background: Linear, coverage: Linear) -> Linear:
    """Darken the background [s, s, 3] by the shadow of a body with coverage [s, s].

    The shadow is the body's silhouette, blurred as by a wide light. On a wall it is shifted and sheared, on a floor it
    is laid flat below the body.
    """
    rows = np.flatnonzero(coverage.max(axis=1) > 0.5)
    if len(rows) < 2:
        return background
    height, columns = float(len(rows)), np.flatnonzero(coverage.max(axis=0) > 0.5)
    middle, bottom = 0.5 * float(columns[0] + columns[-1]), float(rows[-1])
    size = max(height, float(len(columns)))
    if rng.random() < 0.5:
        grow, lean = rng.uniform(0.9, 1.25), rng.normal(0.0, 0.2)
        linear = np.array([[grow, lean], [0.0, grow * rng.uniform(0.8, 1.2)]])
        anchor = np.array([middle, bottom - 0.5 * height])
        moved = anchor + size * rng.normal(0.0, 0.22, 2) + [0.0, 0.05 * size]
    else:
        flat = rng.uniform(0.12, 0.6) * (1.0 if rng.random() < 0.5 else -1.0)  # towards the camera, or away from it
        linear = np.array([[rng.uniform(0.9, 1.2), rng.normal(0.0, 0.6)], [0.0, flat]])
        anchor = np.array([middle, bottom])
        gap = 0.0 if rng.random() < 0.6 else float(rng.exponential(0.25))
        moved = anchor + np.array([0.0, gap * size])
    matrix = np.concatenate([linear, (moved - linear @ anchor)[:, None]], axis=1)
    shadow = cv2.warpAffine(coverage, matrix, coverage.shape[::-1], flags=cv2.INTER_LINEAR)
    blur = min(size * rng.uniform(0.005, 0.1), _LARGEST_BLUR_PX)
    if blur > 0.3:
        shadow = cv2.GaussianBlur(shadow, (0, 0), blur)
    depth = rng.uniform(0.25, 0.85) * np.exp(rng.normal(0.0, 0.06, 3)).astype(np.float32)
    return np.asarray(background * (1.0 - np.minimum(depth, 0.95).astype(np.float32) * shadow[..., None]))
