"""Refine corners to where the pattern around them fits best.

The pattern is drawn, carried into the image and shifted by little. A saddle-point search is biased by what is beside a
corner (a ChArUco board's markers) and by noise: 0.066 px RMS, and 0.078 on chessboards, in rendered images where this
method leaves 0.019 and 0.014 (`benchmarks.calibration`). The whole surroundings of a corner are compared (Lucas and
Kanade 1981; the known pattern as template is the idea of Datta, Kim and Kanade, 2009). To first order the image shows
the pattern through an affine map, which the adjacent corners give; each corner has its own gain and offset of
brightness.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vid2phys.camera_calibration.detect import Grey, View
from vid2phys.camera_calibration.target import Target, black_areas
from vid2phys.types import Array

_CELLS_A_SIDE = 48  # of the drawn pattern, a square (or a tag)
_MARGIN = 0.5  # of a side: white around the pattern
_BLURS_PX = (0.5, 0.8, 1.2, 1.8)
_REACH = 0.4  # of the distance to the next corner
_REACH_TAG = 0.15  # of a tag's side: the white around it may be one of its cells wide
_MOST_REACH_PX = 12
_STEPS, _TRIES = 6, 2
_FARTHEST_PX = 1.5  # a corner that moves more was detected badly, and is left out
_LEAST_LIKENESS = 0.8  # correlation of pattern and image
_ADJACENT = 1.6  # squares


def refine(target: Target, view: View, image: Grey) -> View:
    """Return the view with its corners refined; corners that do not look like the pattern are left out."""
    points = target.points_m()[view.ids][:, :2]
    affine = _affine(target, points, view.pixels)
    good = np.isfinite(affine).all(axis=(1, 2))
    if good.sum() < 4:
        return view
    points, start, ids, affine = points[good], view.pixels[good], view.ids[good], affine[good]
    tried = {blur: _fit(target, points, start, affine, image, blur, _TRIES)[1] for blur in _BLURS_PX}
    blur = max(tried, key=lambda blur: float(np.median(tried[blur])))
    pixels, likeness = _fit(target, points, start, affine, image, blur, _STEPS)
    keep = (np.linalg.norm(pixels - start, axis=1) < _FARTHEST_PX) & (likeness > _LEAST_LIKENESS)
    if keep.sum() < min(4, len(view.ids)):
        return view
    return replace(view, ids=ids[keep], pixels=pixels[keep])


@lru_cache(maxsize=4)
def draw_pattern(target: Target) -> tuple[Array, float]:
    """Return the target as an image, black 0 and white 1, row 0 at the bottom, and its pixels a metre."""
    scale = _CELLS_A_SIDE / target.side_m
    border = _MARGIN * target.side_m
    wide, high = (round((side + 2.0 * border) * scale) for side in target.size_m)
    paper = np.ones((high, wide))
    for x, y, w, h in black_areas(target):
        along_y, along_x = _cover(y + border, h, scale, high), _cover(x + border, w, scale, wide)
        paper -= along_y[:, None] * along_x[None]
    return paper, scale


def _cover(start: float, size: float, scale: float, count: int) -> Array:
    """Return the shares of `count` cells that lie between start and start + size."""
    edges = np.arange(count + 1)
    return np.diff(np.clip(edges, start * scale, (start + size) * scale))


def _affine(target: Target, points: Array, pixels: Array) -> Array:
    """Return d pixel / d page [px/m] at each corner, [N, 2, 2], from adjacent corners; NaN where they are too few."""
    if target.kind == "tag":
        return _perspective(points, pixels)
    near = _ADJACENT * target.side_m
    out = np.full((len(points), 2, 2), np.nan)
    for i, point in enumerate(points):
        beside = np.linalg.norm(points - point, axis=1) < near
        offsets = np.column_stack([points[beside] - point, np.ones(beside.sum())])
        if beside.sum() >= 4 and np.linalg.matrix_rank(offsets, tol=0.1 * target.side_m) == 3:
            out[i] = np.linalg.lstsq(offsets, pixels[beside], rcond=None)[0][:2].T
    return out


def _perspective(points: Array, pixels: Array) -> Array:
    """Return d pixel / d page for the four corners of a tag, from the perspective map to their pixels."""
    import cv2

    homography = cv2.getPerspectiveTransform(points.astype(np.float32), pixels.astype(np.float32))
    depth = points @ homography[2, :2] + homography[2, 2]
    return (homography[None, :2, :2] - pixels[:, :, None] * homography[2, :2]) / depth[:, None, None]


def _fit(
    target: Target, points: Array, start: Array, affine: Array, image: Grey, blur_px: float, steps: int
) -> tuple[Array, Array]:
    """Return the corners [N, 2] px of best fit, and how well each fits (correlation) [N]."""
    from scipy.ndimage import gaussian_filter, map_coordinates

    paper, scale = draw_pattern(target)
    side_px = np.sqrt(np.abs(np.linalg.det(affine))) * target.side_m
    paper = gaussian_filter(paper, blur_px * _CELLS_A_SIDE / float(np.median(side_px)), mode="nearest")
    slope_y, slope_x = np.gradient(paper)
    narrow_px = target.side_m * float(np.median(np.linalg.svd(affine, compute_uv=False)[:, 1]))
    reach = int(np.clip((_REACH if target.kind != "tag" else _REACH_TAG) * narrow_px, 2, _MOST_REACH_PX))
    columns, rows = np.meshgrid(np.arange(-reach, reach + 1), np.arange(-reach, reach + 1))
    window = np.stack([columns.ravel(), rows.ravel()], axis=1)
    places = np.round(start)[:, None] + window  # [N, W, 2] whole pixels
    inside = ((places >= 0) & (places < image.shape[::-1])).all(axis=2)
    whole = places.clip(0, np.array(image.shape[::-1]) - 1).astype(int)
    seen = image[whole[..., 1], whole[..., 0]].astype(float)
    weight = inside * np.exp(-0.5 * (window**2).sum(axis=1) / (0.6 * reach) ** 2)
    back = np.linalg.inv(affine)
    pixels, likeness = start.copy(), np.zeros(len(start))
    for _ in range(steps):
        page = points[:, None] + (places - pixels[:, None]) @ np.swapaxes(back, 1, 2)
        cells = (page + _MARGIN * target.side_m)[..., ::-1] * scale - 0.5
        shown, by_y, by_x = (
            map_coordinates(each, cells.reshape(-1, 2).T, order=1, mode="nearest").reshape(seen.shape)
            for each in (paper, slope_y, slope_x)
        )
        by_pixel = -scale * np.stack([by_x, by_y], axis=-1) @ back
        gain, level, likeness = _brightness(shown, seen, weight)
        columns_of = np.concatenate(
            [gain[:, None, None] * by_pixel, shown[..., None], np.ones((*shown.shape, 1))], axis=2
        )
        error = seen - gain[:, None] * shown - level[:, None]
        weighted = np.swapaxes(columns_of * weight[..., None], 1, 2)
        step = np.linalg.solve(weighted @ columns_of + 1e-9 * np.eye(4), weighted @ error[..., None])[:, :2, 0]
        pixels = pixels + step.clip(-0.5, 0.5)
    return pixels, likeness


def _brightness(shown: Array, seen: Array, weight: Array) -> tuple[Array, Array, NDArray[np.float64]]:
    """Return gain and offset by which the pattern is as bright as the image at each corner, and their correlation."""
    total = weight.sum(axis=1) + 1e-12
    mean_shown, mean_seen = (weight * shown).sum(axis=1) / total, (weight * seen).sum(axis=1) / total
    off_shown, off_seen = shown - mean_shown[:, None], seen - mean_seen[:, None]
    cross = (weight * off_shown * off_seen).sum(axis=1)
    own, other = (weight * off_shown**2).sum(axis=1) + 1e-12, (weight * off_seen**2).sum(axis=1) + 1e-12
    gain = cross / own
    return gain, mean_seen - gain * mean_shown, cross / np.sqrt(own * other)
