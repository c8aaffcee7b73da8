"""Do given keypoints belong to this body and this image? If not, which mistake explains them?

The common mistakes in files of other trackers are tried, one after another: the points are read in that way, and the
best poses are found anew for some frames of the clip. A reading that fits several times better than the plain one names
the mistake. Without such a reading, points are doubtful where they miss every pose by far more than they jitter.

Limit: what fits a body as well as the true one stays unseen, such as points of a scaled image seen from far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from vid2phys.commands.identify.external_errors import CHI2_MEDIAN
from vid2phys.engine.observe import bearing_jacobian_to_pixels, pixels_to_bearings
from vid2phys.engine.pnp import solve_poses
from vid2phys.engine.pose_geometry import project_points
from vid2phys.errors import InputError
from vid2phys.indices import evenly
from vid2phys.notes import doubt, warning
from vid2phys.types import Array, Camera, Observation

_FRAMES = 40  # of the clip, that are tried
_LEAST_POINTS = 4  # of a frame with a pose
_REFUSED = 2.5  # times as good: the reading is the right one
_DOUBTED = 1.35  # times as good: the reading may be the right one
_OF_SCALE = 1.25  # times the misfit of a scaled image: its scale is one more number to fit with
_ALIKE = 1.1  # times the best misfit: readings that explain the points as well
_MOST_NAMED = 5  # readings in a message
_JITTERS = 3.0  # times the points' jitter: misses beyond it are no noise
_WRONG = 0.15  # of the points' spread in the image: misses beyond it are of another body
_INACCURATE = 0.03  # of that spread: misses beyond it are of places or a lens that are not accurate
_MOTION = 4.0  # times their error: points that the fitted motion misses by more do not fit it
_OUTSIDE = 0.25  # of the points: more of them outside the image are of another image
_MOST_PERMUTED = 7  # points of which all orders are compared
_ORDERS = 24  # of them, that are tried
_MIRROR = np.array([1.0, -1.0, 1.0])  # along any axis: the others follow by a rotation
_SCALES = (0.25, 1.0 / 3.0, 0.5, 2.0 / 3.0, 0.75, 4.0 / 3.0, 1.5, 2.0, 3.0, 4.0)  # of images


@dataclass(frozen=True)
class Points:
    """Pixels [T, K, 2] of visible [T, K] points of a body, places [K, 3] m and names [K]."""

    pixels: Array
    visible: NDArray[np.bool_]
    places: Array
    names: tuple[str, ...]


def doubts(points: Points, camera: Camera, what: str) -> tuple[str, ...]:
    """Return notes for a reader about points that do not fit their body.

    what: names the points in messages. Raises InputError where a common mistake explains them clearly.
    """
    some = _some(points)
    missed, noise = misfit_px(some, camera), _JITTERS * jitter_px(points)
    spread = _spread_px(some)
    tried = []
    for how, other, scale in _interpretations(some, camera):
        found = misfit_px(other, camera) / scale
        tried.append((found if scale == 1.0 else _OF_SCALE * found, found, how))
    best, fits, _ = min(tried)
    misses = f"they miss by {missed:.2g} px" if np.isfinite(missed) else "most frames have none"
    got = f"no pose of the body explains {what}: {misses}"
    notes = _outside(points, camera, what)
    if best * _DOUBTED < missed and best < max(noise, _INACCURATE * spread):
        alike = [how for judged, _, how in tried if judged < _ALIKE * best][:_MOST_NAMED]
        fit = f"they fit to {fits:.2g} px with {', or with '.join(alike)}"
        if best * _REFUSED < missed:
            raise InputError(got, "pixels with x to the right and y down, each point under its name", fit)
        return (doubt(f"{got}; {fit}"), *notes)
    if missed > noise and missed > _WRONG * spread:
        others = "flipped image axes, left-handed body axes, other image sizes and the names that were exchanged"
        check = "check that they are points of this body, and the camera"
        notes = (doubt(f"{got}; {others} explain them no better: {check}"), *notes)
    elif missed > noise and missed > _INACCURATE * spread:
        miss = f"{what} miss the best poses of the body by {missed:.2g} px, though they jitter by far less"
        notes = (warning(f"{miss}: check the places of the body's points, and the lens"), *notes)
    return notes


def _outside(points: Points, camera: Camera, what: str) -> tuple[str, ...]:
    """Return a note where many points lie outside the image."""
    size = np.array([camera.width, camera.height])
    beyond = np.asarray(((points.pixels < -0.5) | (points.pixels > size - 0.5)).any(axis=-1))
    share = float(beyond[points.visible].mean())
    if share < _OUTSIDE:
        return ()
    image = f"the image of {camera.width}x{camera.height}"
    return (doubt(f"{100.0 * share:.0f} % of {what} lie outside {image}: are these pixels of a larger image?"),)


def doubts_of_motion(seen: Observation, residual: Array) -> tuple[str, ...]:
    """Return notes for a reader about points that the fitted motion misses by far more than their error.

    residual: [T, K, 2] in bearings, NaN where not visible. Outliers do not count. An observation of poses alone has no
    points.
    """
    if not seen.visible.any():
        return ()
    total = seen.covariance + seen.shared_basis @ np.swapaxes(seen.shared_basis, -1, -2)
    squared = (residual * np.linalg.solve(total, residual[..., None])[..., 0]).sum(axis=-1)[seen.visible]
    times = float(np.sqrt(np.median(squared) / CHI2_MEDIAN))
    if times < _MOTION:
        return ()
    got = f"the fitted motion misses the given points by {times:.1f} times their error"
    return (doubt(f"{got}: they do not fit this body, their errors are larger than stated, or the system is another"),)


def misfit_px(points: Points, camera: Camera) -> float:
    """Return by how much points are off the best pose of their frame, px a coordinate; infinite where most have none.

    Of each point the median over the frames: outliers do not count, a point that is wrong throughout does.
    """
    bearings = pixels_to_bearings(camera, points.pixels)
    visible = points.visible & np.isfinite(bearings).all(axis=-1)
    if (visible.sum(axis=1) < _LEAST_POINTS).any():
        return np.inf
    bearings = np.where(visible[..., None], bearings, 0.0)
    to_pixels = bearing_jacobian_to_pixels(camera, bearings)
    from_pixels = np.linalg.inv(to_pixels)
    covariance = np.asarray(from_pixels @ np.swapaxes(from_pixels, -1, -2), dtype=np.float64)
    poses = solve_poses(bearings, covariance, points.places, visible=visible)[:, 0]
    off = bearings - project_points(poses.pose, points.places)
    squared = np.where(visible, ((to_pixels @ off[..., None])[..., 0] ** 2).sum(axis=-1), np.nan)
    squared[~np.isfinite(poses.cost)] = np.inf
    of_point = np.nanmedian(squared[:, visible.any(axis=0)], axis=0) / CHI2_MEDIAN
    count = 2.0 * float(visible.sum(axis=1).mean())
    return float(np.sqrt(of_point.mean() / max(1.0 - 6.0 / count, 0.1)))


def jitter_px(points: Points) -> float:
    """Return how much a point jitters from frame to frame, px a coordinate.

    By third differences, which a smooth motion hardly has; infinite where no point is seen in four frames on end.
    """
    thirds = np.diff(points.pixels, n=3, axis=0)
    seen = np.stack([points.visible[i : len(points.visible) - 3 + i] for i in range(4)]).all(axis=0)
    return float(1.4826 * np.median(np.abs(thirds[seen])) / np.sqrt(20.0)) if seen.any() else np.inf


def _some(points: Points) -> Points:
    """Return some frames with enough points."""
    frames = np.flatnonzero(points.visible.sum(axis=1) >= _LEAST_POINTS)
    frames = frames[evenly(len(frames), _FRAMES)]
    return replace(points, pixels=points.pixels[frames], visible=points.visible[frames])


def _spread_px(points: Points) -> float:
    """Return the points' spread about their middle, px a coordinate, of a usual frame."""
    seen = np.where(points.visible[..., None], points.pixels, np.nan)
    return float(np.median(np.sqrt(np.nanvar(seen, axis=1).mean(axis=-1))))


def _interpretations(points: Points, camera: Camera) -> Iterator[tuple[str, Points, float]]:
    """Yield other ways to read the points, each with words for it and the size of its pixels in those of the file."""
    for how, change in _of_pixels(camera):
        yield how, replace(points, pixels=change(points.pixels)), 1.0
    for scale in _SCALES:
        size = f"{round(camera.width / scale)}x{round(camera.height / scale)}"
        yield f"pixels of an image of {size}", replace(points, pixels=scale * points.pixels), scale
    for order in _orders(points):
        moved = ", ".join(f"'{points.names[k]}' for '{points.names[i]}'" for i, k in enumerate(order) if i != k)
        yield f"names exchanged ({moved})", replace(points, places=points.places[list(order)]), 1.0
    yield "the y axis of the body reversed (left-handed axes)", replace(points, places=points.places * _MIRROR), 1.0


def _of_pixels(camera: Camera) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    width, height = camera.width - 1.0, camera.height - 1.0
    yield f"y counted from the bottom ({height:g} - y)", lambda pixels: pixels * [1.0, -1.0] + [0.0, height]
    yield f"x counted from the right ({width:g} - x)", lambda pixels: pixels * [-1.0, 1.0] + [width, 0.0]
    yield "x and y exchanged", lambda pixels: pixels[..., ::-1]


def _orders(points: Points) -> list[tuple[int, ...]]:
    """Return orders of the points that fit best under a scaled orthographic view, but for the one given.

    Under such a view the points' tracks are linear in the places. So what an order leaves over is one product of
    matrices for each set of points that are visible together.
    """
    count = len(points.places)
    pixels = np.where(points.visible[..., None], points.pixels, 0.0)
    together, of_frame = np.unique(points.visible, axis=0, return_inverse=True)  # [M, K], [F]
    spread = np.zeros((len(together), count, count))
    np.add.at(spread, of_frame.reshape(-1), np.einsum("fkx,flx->fkl", pixels, pixels))
    places = np.column_stack([np.ones(count), points.places])
    total = float(np.einsum("mkk->", spread))

    def left_over(order: tuple[int, ...]) -> float:
        basis = np.linalg.qr(together[..., None] * places[list(order)])[0]
        return total - float((basis * (spread @ basis)).sum())

    given = tuple(range(count))
    tried = list(permutations(given)) if count <= _MOST_PERMUTED else _by_exchange(given, left_over)
    return [order for order in sorted(tried, key=left_over) if order != given][:_ORDERS]


def _by_exchange(order: tuple[int, ...], left_over: Callable[[tuple[int, ...]], float]) -> list[tuple[int, ...]]:
    """Return orders by exchange of two points after another, each time the best pair."""
    found: list[tuple[int, ...]] = []
    while True:
        pairs = [_exchanged(order, i, k) for i in range(len(order)) for k in range(i)]
        best = min(pairs, key=left_over)
        if left_over(best) >= left_over(order):
            return found
        order = best
        found.append(order)


def _exchanged(order: tuple[int, ...], i: int, k: int) -> tuple[int, ...]:
    swapped = list(order)
    swapped[i], swapped[k] = order[k], order[i]
    return tuple(swapped)
