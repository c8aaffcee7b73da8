"""Looking at a frame: make views of where the object is thought to be, read them, fit poses, judge them.

Everything that reads a picture goes through `look`, in tracking as in calibration, so that the error model describes
exactly what the tracker does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels
from vid2phys.risp.error_model import Calibration
from vid2phys.risp.geometry import project_points
from vid2phys.risp.pose import Pose, solve_poses
from vid2phys.risp.view import View, bearings_to_view, in_frame, make_view, map_covariance, resample, view_to_bearings
from vid2phys.types import Array, Camera

if TYPE_CHECKING:  # reading pictures needs torch, placing them does not
    from vid2phys.risp.model import Model, Reading

Image = NDArray[np.uint8]
_AGREEMENT = 0.03  # distance, as a share of the view, at which a point's agreement with the pose has dropped to 0.6
# turn [rad], zoom and shift [share of the view] of the views that are averaged
ONE_VIEW = ((0.0, 1.0, 0.0, 0.0),)
READING_VIEWS = ONE_VIEW  # of the second pass


@dataclass(frozen=True)
class Sightings:
    """What N looks showed.

    views: the N views. angular_radius: [N] rad and diameter_px: [N], in the frame, of the bounding sphere as expected.
    bearings: [N, K, 2] of the points as labelled by the network. raw_px, covariance: [N, K, 2, 2], the network's own in
    view px^2, and the calibrated one in bearings. peak: [N, K]. inside: [N, K], on the frame. front_logprob: [N, h, w].
    poses: [N, H] hypotheses. quality: [N, H] in 0..1, how sure the network is of points that agree with the pose.
    """

    views: list[View]
    angular_radius: Array
    diameter_px: Array
    bearings: Array
    raw_px: Array
    covariance: Array
    peak: Array
    inside: NDArray[np.bool_]
    front_logprob: Array
    poses: Pose
    quality: Array

    def select(self, mask: NDArray[np.bool_]) -> Sightings:
        """Those where mask [N] is True."""
        kept = [view for view, keep in zip(self.views, mask, strict=True) if keep]
        return Sightings(views=kept, **{f.name: getattr(self, f.name)[mask] for f in fields(self) if f.name != "views"})

    @staticmethod
    def join(parts: Sequence[Sightings]) -> Sightings:
        """Several batches as one."""
        views = [view for part in parts for view in part.views]
        arrays = [f.name for f in fields(Sightings) if f.name not in ("views", "poses")]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays}
        names = [f.name for f in fields(Pose)]
        poses = Pose(**{n: np.concatenate([getattr(part.poses, n) for part in parts]) for n in names})
        return Sightings(views=views, poses=poses, **joined)


def look(
    model: Model,
    camera: Camera,
    frames: Sequence[Image],
    centers: Array,
    angular_radius: Array,
    calibration: Calibration,
    *,
    hypotheses: int = 1,
    jitters: Sequence[tuple[float, float, float, float]] = ONE_VIEW,
) -> Sightings:
    """Read N frames, each where the object is thought to be.

    frames: N pictures [H, W, 3]. centers: [N, 2] bearings. angular_radius: [N] of the bounding sphere, rad. jitters:
    views a frame whose readings are averaged, each (turn, zoom, shift x, shift y).
    """
    pairs = [
        (frame, _jittered(camera, center, radius, model.view_size, jitter))
        for frame, center, radius in zip(frames, centers, angular_radius, strict=True)
        for jitter in jitters
    ]
    reading = model.read(np.stack([resample(frame, camera, view) for frame, view in pairs]))
    count, views = len(frames), [view for _, view in pairs]
    bearings, jacobian = _to_bearings(views, np.asarray(reading.points_px, dtype=float))
    merged = _merge(reading, bearings, model.permutation, count)
    main, jacobian = views[:: len(jitters)], jacobian[:: len(jitters)]
    diameter = in_frame_diameter(camera, centers, angular_radius)
    covariance = map_covariance(jacobian, calibration.point_covariance(merged.raw_px, diameter))
    inside = in_frame(camera, merged.bearings)
    poses = solve_poses(merged.bearings, covariance, model.points_body, visible=inside, hypotheses=hypotheses)
    quality = _quality(main, poses, merged.bearings, merged.peak * inside, model.points_body)
    front = np.asarray(reading.front_logprob, dtype=float)[:: len(jitters)]
    return Sightings(
        main,
        np.asarray(angular_radius, dtype=float),
        diameter,
        merged.bearings,
        merged.raw_px,
        covariance,
        merged.peak,
        inside,
        front,
        poses,
        quality,
    )


def _jittered(
    camera: Camera, center: Array, angular_radius: float, size: int, jitter: tuple[float, float, float, float]
) -> View:
    turn, zoom, shift_x, shift_y = jitter
    view = make_view(camera, center, float(angular_radius) / zoom, size, roll_rad=turn)
    if shift_x == 0.0 and shift_y == 0.0:
        return view
    moved, _ = view_to_bearings(view, view.K[:2, 2] + size * np.array([shift_x, shift_y]))
    return make_view(camera, moved, float(angular_radius) / zoom, size, roll_rad=turn)


def _to_bearings(views: list[View], points_px: Array) -> tuple[Array, Array]:
    pairs = [view_to_bearings(view, points) for view, points in zip(views, points_px, strict=True)]
    return np.stack([b for b, _ in pairs]), np.stack([j for _, j in pairs])


@dataclass(frozen=True)
class _Merged:
    """Readings of several views a frame as one: bearings [N, K, 2], raw_px [N, K, 2, 2], peak [N, K]."""

    bearings: Array
    raw_px: Array
    peak: Array


def _merge(reading: Reading, bearings: Array, permutation: NDArray[np.int64], count: int) -> _Merged:
    """Average the views of each frame, weighted by what the network says; each is labelled as the first one is."""
    raw, peak = np.asarray(reading.covariance_px, dtype=float), np.asarray(reading.peak, dtype=float)
    views = len(bearings) // count
    if views == 1:
        return _Merged(bearings, raw, peak)
    bearings = bearings.reshape(count, views, *bearings.shape[1:])
    raw, peak = raw.reshape(count, views, *raw.shape[1:]), peak.reshape(count, views, *peak.shape[1:])
    relabelled = bearings[:, :, permutation]  # [N, views, G, K, 2]
    distance = np.linalg.norm(relabelled - bearings[:, :1, None], axis=-1)
    element = np.argmin(np.median(distance, axis=-1), axis=-1)
    order = permutation[element]  # [N, views, K]
    bearings = np.take_along_axis(bearings, order[..., None], axis=2)
    raw = np.take_along_axis(raw, order[..., None, None], axis=2)
    peak = np.take_along_axis(peak, order, axis=2)
    weight = peak / np.trace(raw, axis1=-2, axis2=-1).clip(1e-9)
    weight = weight / weight.sum(axis=1, keepdims=True).clip(1e-12)
    return _Merged(
        (bearings * weight[..., None]).sum(axis=1), (raw * weight[..., None, None]).sum(axis=1), peak.mean(axis=1)
    )


def in_frame_diameter(camera: Camera, centers: Array, angular_radius: Array) -> Array:
    """Diameter in frame pixels of spheres at bearings [..., 2] with angular radii [...]."""
    scale = np.sqrt(np.abs(np.linalg.det(bearing_jacobian_to_pixels(camera, centers))))
    stretch = (1.0 + np.sum(np.asarray(centers) ** 2, axis=-1)) ** 0.75  # bearings per radian, mean of both directions
    return np.nan_to_num(2.0 * np.tan(angular_radius) * scale * stretch, nan=8.0)


def _quality(views: list[View], poses: Pose, bearings: Array, peak: Array, points_body: Array) -> Array:
    predicted = project_points(poses.rotation, poses.translation, points_body)  # [N, H, K, 2]
    quality = np.zeros(predicted.shape[:2])
    for n, view in enumerate(views):
        distance = bearings_to_view(view, predicted[n]) - bearings_to_view(view, bearings[n])
        squared = (distance**2).sum(axis=-1) / (_AGREEMENT * view.size) ** 2
        quality[n] = (peak[n] * np.exp(-0.5 * squared)).mean(axis=-1)
    return np.where(np.isfinite(poses.cost), quality, 0.0)


def direction_and_size(translation: Array, radius_m: float) -> tuple[Array, Array]:
    """Bearings [..., 2] and angular radius [...] of a sphere of radius_m at translations [..., 3] in camera axes."""
    distance = np.maximum(np.linalg.norm(translation, axis=-1), 1.05 * radius_m)
    return translation[..., :2] / translation[..., 2:], np.arcsin(radius_m / distance)
