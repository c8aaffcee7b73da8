"""Measure how wide the edges of a body are in a frame, against the background of a static camera.

Edges across which a body moves are as wide as its path in one exposure.

Limits: edges beside which something else changes are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array


@dataclass(frozen=True, kw_only=True)
class EdgeWidthConfig:
    """Settings of `edge_widths`."""

    reach: float = 0.5
    """Reach of a line across an edge, as a share of the body's size."""
    reach_px: tuple[float, float] = (6.0, 40.0)
    """Least and largest reach, px."""
    step_px: float = 0.5
    """Step along a line, px."""
    shares: tuple[float, float] = (0.75, 0.25)
    """Shares of the change inside, between which the width of an edge is measured."""


DEFAULTS = EdgeWidthConfig()


@dataclass(frozen=True)
class EdgeWidths:
    """N edges of a body in a frame.

    Attributes:
        width: [N], px.
        place: [N] distance of the middle of an edge from where it was looked for, outward, px.
        normals: [N, 2] unit, outward.
    """

    width: Array
    place: Array
    normals: Array


def change_of(frame: NDArray[np.uint8], behind: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return how far the pixels of a frame differ from the background, the largest of the colours, [H, W]."""
    import cv2

    return np.asarray(cv2.absdiff(frame, behind).max(axis=-1), np.uint8)


def edge_widths(
    change: NDArray[np.uint8],
    pixels: Array,
    normals: Array,
    size_px: float,
    least: float,
    config: EdgeWidthConfig = DEFAULTS,
) -> EdgeWidths:
    """Return the edges that stand out and have nothing else beside them.

    Args:
        change: [H, W] difference of the frame from its background, grey levels.
        pixels: [N, 2] places on the contour of the body.
        normals: [N, 2] unit, outward.
        size_px: size of the body in the frame.
        least: change inside of an edge from which on it stands out, grey levels.
        config: settings.
    """
    import cv2

    reach = float(np.clip(config.reach * size_px, *config.reach_px))
    steps = np.arange(-reach, reach + 1e-9, config.step_px)
    at = pixels[:, None] + steps[:, None] * normals[:, None]
    if not len(at):
        return EdgeWidths(np.zeros(0), np.zeros(0), normals)
    seen = cv2.remap(change, at[..., 0].astype(np.float32), at[..., 1].astype(np.float32), cv2.INTER_LINEAR)
    seen = seen.astype(float)
    inside = np.median(seen[:, : len(steps) // 3], axis=1)
    last = lambda share: len(steps) - 1 - (seen > share * inside[:, None])[:, ::-1].argmax(axis=1)  # noqa: E731
    high, half, low = last(config.shares[0]), last(0.5), last(config.shares[1])
    quiet = seen[:, -(len(steps) // 3) :].max(axis=1) < config.shares[1] * inside  # no noise, and nothing else beside
    sure = (inside > least) & quiet & (high > 0)
    width = config.step_px * (low - high) / (config.shares[0] - config.shares[1])
    return EdgeWidths(width[sure], steps[half[sure]], normals[sure])
