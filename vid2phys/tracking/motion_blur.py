"""Measure the path of a moving body in each exposure of a clip, before any pose is known.

The edges across which a body moves are as wide as its path in one exposure, beside what lens and codec add. From frame
to frame it moves by the path of a whole frame. The ratio of both is the share of a frame in which the shutter is open.
A pixel that shows the body for a part of the exposure mostly counts as foreground, so that the foreground is longer
than the body along the motion. By how much is measured where edges are half as strong as the body.

Limits: a static camera, and one path for the whole body: rotation in one exposure is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes
from vid2phys.indices import evenly
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.detectors.silhouette import regions
from vid2phys.tracking.edge_widths import EdgeWidths, change_of, edge_widths
from vid2phys.tracking.foreground import Foreground
from vid2phys.types import Array


@dataclass(frozen=True, kw_only=True)
class MotionBlurConfig:
    """Settings of `MotionBlur`."""

    frames: int = 10
    """Number of frames whose edges are measured."""
    alike: float = 1.2
    """Largest ratio of the sizes of one body in adjacent frames."""
    least_motion_px: float = 2.0
    """Least motion from frame to frame at which edges are measured, px."""
    along: float = 0.7
    """Least cosine of an edge's normal and the motion, for an edge across which the body moves."""
    least_change: float = 40.0
    """Change inside of an edge from which on its width is measured, grey levels."""
    min_edges: int = 100
    """Least number of edges from which a blur is measured."""
    beside: float = 0.35
    """Largest cosine of an edge's normal and the motion, for an edge that the motion does not blur."""
    least_path_px: float = 5.0
    """Least path in one exposure that counts, px."""
    gap_px: int = 5
    """Width of gaps in a region that are filled, px."""
    smooth_px: float = 2.0
    """Blur of a region in which the normals of its contour are measured, px."""
    median_frames: int = 5
    """Number of frames of whose motions the median is taken, and over which motions are continued."""


DEFAULTS = MotionBlurConfig()


@dataclass(frozen=True)
class MotionBlur:
    """The motion blur of a clip.

    Attributes:
        paths_px: [T, 2] path of the body in the exposure of each frame (x, y).
        excess: length by which the foreground is longer than the body, as a share of the path. It is negative where
            pixels that show the body for a part of the exposure look like shadow.
        config: settings.
    """

    paths_px: Array
    excess: float
    config: MotionBlurConfig = DEFAULTS

    @staticmethod
    def measured(frames: Indexed, foreground: Foreground, config: MotionBlurConfig = DEFAULTS) -> MotionBlur | None:
        """Return the motion blur of a clip; None where there is little, or where it cannot be measured."""
        edges = _moving_edges(frames, foreground, config)
        if edges is None:
            return None
        if edges.share > 1.0 or edges.path_px(edges.motion_px) < config.least_path_px:  # soft edges, or sharp ones
            return None
        found = list(in_processes(lambda i: _region(frames, foreground, i), range(len(frames))))
        motions = _motions(np.array([place for place, _ in found]), np.array([side for _, side in found]), config)
        speeds = np.linalg.norm(motions, axis=1)
        moving = speeds > config.least_motion_px
        if not moving.any() or edges.path_px(float(np.median(speeds[moving]))) < config.least_path_px:
            return None
        return MotionBlur(edges.share * motions, edges.excess, config)

    def path(self, i: int) -> tuple[float, float]:
        """Return the path of the body in the exposure of frame i, px."""
        x, y = self.paths_px[i].tolist()
        return x, y

    def enlarged(self, by: int) -> MotionBlur:
        """Return the motion blur of frames that are `by` times as large."""
        return replace(self, paths_px=by * self.paths_px)

    def with_foreground(self, frames: Indexed, foreground: Foreground) -> MotionBlur:
        """Return the same blur with the excess of another foreground of the clip."""
        edges = _moving_edges(frames, foreground, self.config)
        return self if edges is None else replace(self, excess=edges.excess)


@dataclass(frozen=True)
class _MovingEdges:
    """Edges across which the body moves, in several frames.

    Attributes:
        width: [N] as a share of the motion across the edge from frame to frame.
        beyond: [N] length by which the foreground reaches beyond the middle of the edge, likewise.
        motion_px: median motion from frame to frame.
        still_px: median width of edges along which the body moves; zero where there are none.
    """

    width: Array
    beyond: Array
    motion_px: float
    still_px: float

    @property
    def share(self) -> float:
        """The share of a frame in which the shutter is open; lens and codec soften only the ends of a wide ramp."""
        return float(np.median(self.width))

    def path_px(self, motion_px: float) -> float:
        """Return the path in an exposure at a motion from frame to frame, px, without what lens and codec add."""
        return float(np.sqrt(max((self.share * motion_px) ** 2 - self.still_px**2, 0.0)))

    @property
    def excess(self) -> float:
        """By how much the foreground is longer than the body, as a share of the path."""
        return 2.0 * float(np.median(self.beyond)) / self.share


def _moving_edges(frames: Indexed, foreground: Foreground, config: MotionBlurConfig) -> _MovingEdges | None:
    """Return the edges of a clip across which the body moves; None for too few."""
    if len(frames) < 3:
        return None
    rows = np.unique(1 + evenly(len(frames) - 2, config.frames)).tolist()
    found = [each for each in in_processes(lambda i: _edges_in(frames, foreground, i, config), rows) if each]
    if not found:
        return None
    speeds = [float(np.linalg.norm(motion)) for motion, _ in found]
    across = [np.abs(edges.normals @ motion) for motion, edges in found]
    moves, still = list[Array](), list[Array]()
    for (_, edges), moved, speed in zip(found, across, speeds, strict=True):
        fast = moved > config.along * speed
        moves.append(np.stack([edges.width[fast], -edges.place[fast]], axis=-1) / moved[fast, None])
        still.append(edges.width[moved < config.beside * speed])
    together, slow = np.concatenate(moves), np.concatenate(still)
    if len(together) < config.min_edges:
        return None
    still_px = float(np.median(slow)) if len(slow) else 0.0
    return _MovingEdges(together[:, 0], together[:, 1], float(np.median(speeds)), still_px)


def _edges_in(
    frames: Indexed, foreground: Foreground, i: int, config: MotionBlurConfig
) -> tuple[Array, EdgeWidths] | None:
    """Return the motion [2] px of the most likely region from frame to frame, and its edges; None where it differs."""
    ratios = [foreground.log_ratio(frames[k]) for k in (i - 1, i, i + 1)]
    found = [each[0] for ratio in ratios if (each := regions(ratio))]
    sizes = [side for _, side in found]
    if len(found) < len(ratios) or max(sizes) > config.alike * min(sizes):
        return None
    motion = 0.5 * (found[2][0] - found[0][0])
    if not np.linalg.norm(motion) > config.least_motion_px:
        return None
    pixels, normals = _contour_of(ratios[1] > 0.0, *found[1], config)
    change = change_of(frames[i], foreground.background)
    return motion, edge_widths(change, pixels, normals, sizes[1], config.least_change)


def _contour_of(shown: NDArray[np.bool_], middle: Array, side: float, config: MotionBlurConfig) -> tuple[Array, Array]:
    """Return pixels [N, 2] on the contour of a region, and unit normals [N, 2], outward.

    Args:
        shown: [H, W] foreground.
        middle: [2] of the region, px.
        side: square root of the region's area, px.
        config: settings.
    """
    import cv2

    filled = cv2.morphologyEx(shown.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((config.gap_px, config.gap_px)))
    _, labels, stats, middles = cv2.connectedComponentsWithStats(filled)
    off = np.linalg.norm(middles[1:] - middle, axis=1) + np.abs(np.sqrt(stats[1:, cv2.CC_STAT_AREA]) - side)
    region = (labels == 1 + int(np.argmin(off))).astype(np.uint8)
    contours: Sequence[NDArray[np.int32]] = cv2.findContours(region, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0]
    pixels = max(contours, key=len)[:, 0]
    soft = cv2.GaussianBlur(region.astype(np.float32), (0, 0), config.smooth_px)
    slope = np.stack([cv2.Sobel(soft, cv2.CV_32F, *axis) for axis in ((1, 0), (0, 1))], axis=-1)
    inward = slope[pixels[:, 1], pixels[:, 0]].astype(float)
    return pixels.astype(float), -inward / np.maximum(np.linalg.norm(inward, axis=1, keepdims=True), 1e-9)


def _region(frames: Indexed, foreground: Foreground, i: int) -> tuple[Array, float]:
    """Return the middle [2] and the size of the most likely region of a frame, px; NaN where there is none."""
    found = regions(foreground.log_ratio(frames[i]))
    return found[0] if found else (np.full(2, np.nan), np.nan)


def _motions(middles: Array, sides: Array, config: MotionBlurConfig) -> Array:
    """Return the motions [T, 2] of a body from frame to frame, no longer than the body is.

    Args:
        middles: [T, 2] of the most likely regions, px.
        sides: [T] their sizes. Where these are not alike, regions are not the same body. The motions of frames nearby
            count there; far from them the body is taken to rest.
        config: settings.
    """
    from scipy.ndimage import distance_transform_edt, median_filter

    at, steps = np.arange(len(middles)), np.gradient(middles, axis=0)
    beside = np.stack([sides[:-2], sides[1:-1], sides[2:]])
    alike = np.zeros(len(sides), dtype=bool)
    alike[1:-1] = np.ptp(np.log(beside), axis=0) < np.log(config.alike)
    filled = np.stack([np.interp(at, at[alike], steps[alike, k]) for k in (0, 1)], axis=-1)
    filled[distance_transform_edt(~alike) > config.median_frames] = 0.0
    motions = np.asarray(median_filter(filled, size=(config.median_frames, 1), mode="nearest"))
    length = np.linalg.norm(motions, axis=1, keepdims=True)
    return motions * np.minimum(1.0, float(np.median(sides[alike])) / np.maximum(length, 1e-9))
