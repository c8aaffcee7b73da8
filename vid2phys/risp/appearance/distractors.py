"""Distractors in training images: copies of the body, smaller or squeezed, mirrored and recoloured, behind it.

Limits: a copy has the pose of the body.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Linear = NDArray[Any]  # float32 light
_NEAREST, _FARTHEST = 0.36, 0.62  # of the image's side, from its middle: the body itself is in the middle


def add_lookalikes(rng: np.random.Generator, background: Linear, body: Linear) -> Linear:
    """Return the background [s, s, 3] with one or two distorted copies of the body [s, s, 4] near the border.

    The body's light is premultiplied. Copies are smaller or squeezed, since no network could tell two equal bodies
    apart.
    """
    side = len(background)
    middle = np.full(2, 0.5 * (side - 1))
    for _ in range(1 + int(rng.random() < 0.3)):
        angle, squeeze = rng.uniform(-np.pi, np.pi), rng.uniform(0.4, 1.0)
        scale = rng.uniform(0.3, 0.75 if squeeze > 0.7 else 1.0)
        c, s = np.cos(angle), np.sin(angle)
        linear = scale * np.array([[c, -s], [s, c]]) @ np.diag([rng.choice([-1.0, 1.0]), squeeze])
        away = rng.uniform(0.0, 2.0 * np.pi)
        place = middle + side * rng.uniform(_NEAREST, _FARTHEST) * np.array([np.cos(away), np.sin(away)])
        matrix = np.concatenate([linear, (place - linear @ middle)[:, None]], axis=1)
        copy = cv2.warpAffine(body, matrix, (side, side), flags=cv2.INTER_AREA)
        tint = np.exp(rng.normal(0.0, 0.6) + rng.normal(0.0, 0.35, 3)).astype(np.float32)
        background = copy[..., :3] * tint[rng.permutation(3)] + (1.0 - copy[..., 3:]) * background
    return background
