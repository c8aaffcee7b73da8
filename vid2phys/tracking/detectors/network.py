"""Detect the keypoints of a body in a frame with the trained network, and fit poses to them.

A virtual camera shows the network the place where the body is expected. Tracking and the calibration of error models
both use `detect`, so that the error model describes the tracker.

Limits: the network detects a body only near the middle of its virtual camera and near the expected size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels
from vid2phys.engine.pnp import PoseEstimate, solve_poses
from vid2phys.engine.pose_geometry import covariance_in_modes, project_points
from vid2phys.engine.virtual_camera import (
    View,
    bearings_to_view,
    in_frame,
    make_view,
    map_covariance,
    resample,
    view_to_bearings,
)
from vid2phys.error_model import Calibration
from vid2phys.types import Array, Camera

if TYPE_CHECKING:  # the model needs torch
    from vid2phys.risp.networks.model import Model

Image = NDArray[np.uint8]
_AGREEMENT = 0.03  # distance at which a point's agreement has dropped to 0.6, as a share of the virtual image


@dataclass(frozen=True)
class Detections:
    """Detections of a body in N frames, or at N places of a frame.

    Attributes:
        views: the N virtual cameras.
        angular_radius: [N] expected, of the bounding sphere, rad.
        diameter_px: [N] expected, of the bounding sphere in the frame, px.
        bearings: [N, K, 2] of the keypoints, as labelled by the network.
        raw_px: [N, K, 2, 2] the network's own covariance, px^2 of the virtual image.
        covariance: [N, K, 2, 2] calibrated, bearings.
        peak: [N, K] of the heat maps.
        inside: [N, K], whether a keypoint is in the frame.
        front_logprob: [N, h, w] of the front map.
        poses: [N, H] pose hypotheses.
        quality: [N, H] confidence of the network in keypoints that agree with the pose, 0..1.
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
    poses: PoseEstimate
    quality: Array

    def select(self, mask: NDArray[np.bool_]) -> Detections:
        """Return the detections where mask [N] is True."""
        kept = [view for view, keep in zip(self.views, mask, strict=True) if keep]
        return Detections(
            views=kept, **{f.name: getattr(self, f.name)[mask] for f in fields(self) if f.name != "views"}
        )

    def pose_covariance(self, calibration: Calibration) -> Array:
        """Return the covariance [N, 6, 6] of the best poses, in the modes of `pose_modes`: own and shared errors."""
        best = self.poses[:, 0]
        std = calibration.mode_scale(self.diameter_px, self.quality[:, 0])
        std[:, 3:5] *= self.angular_radius[:, None]
        each = [covariance_in_modes(own, place) for own, place in zip(best.covariance, best.translation, strict=True)]
        return np.stack(each) + std[:, None] ** 2 * np.eye(std.shape[1])

    @staticmethod
    def join(parts: Sequence[Detections]) -> Detections:
        """Return several batches as one."""
        views = [view for part in parts for view in part.views]
        arrays = [f.name for f in fields(Detections) if f.name not in ("views", "poses")]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays}
        return Detections(views=views, poses=PoseEstimate.join([part.poses for part in parts]), **joined)


def detect(
    model: Model,
    camera: Camera,
    frames: Sequence[Image],
    centers: Array,
    angular_radius: Array,
    calibration: Calibration,
    *,
    hypotheses: int = 1,
    expected: PoseEstimate | None = None,
) -> Detections:
    """Detect the body in N frames, each where it is expected.

    Args:
        model: the trained network.
        camera: of the frames; of one that moves, with their N poses.
        frames: N images [H, W, 3].
        centers: [N, 2] expected bearings.
        angular_radius: [N] expected, of the bounding sphere, rad.
        calibration: error model.
        hypotheses: number H of pose hypotheses of a frame.
        expected: [N] poses near which, and under whose labels, keypoints are detected.

    Returns:
        The detections. Each frame has one virtual camera: averages over rotated, zoomed and shifted ones were no
        better.
    """
    angular_radius = np.asarray(angular_radius, dtype=float)
    views = [
        make_view(camera.at(n), c, float(r), model.view_size)
        for n, (c, r) in enumerate(zip(centers, angular_radius, strict=True))
    ]
    images = [resample(frame, camera, view) for frame, view in zip(frames, views, strict=True)]
    places = None
    if expected is not None:
        bearings = project_points(expected.pose, model.points_body)
        places = np.stack([bearings_to_view(view, b) for view, b in zip(views, bearings, strict=True)])
    keypoints = model.predict(np.stack(images), places)
    pairs = [view_to_bearings(view, points) for view, points in zip(views, keypoints.points_px, strict=True)]
    bearings, jacobian = np.stack([b for b, _ in pairs]), np.stack([j for _, j in pairs])
    diameter = in_frame_diameter(camera, centers, angular_radius)
    covariance = map_covariance(jacobian, calibration.point_covariance(keypoints.covariance_px, diameter))
    inside = in_frame(camera, bearings)
    poses = solve_poses(
        bearings, covariance, model.points_body, visible=inside, initial=expected, hypotheses=hypotheses
    )
    return Detections(
        views,
        angular_radius,
        diameter,
        bearings,
        keypoints.covariance_px,
        covariance,
        keypoints.peak,
        inside,
        keypoints.front_logprob,
        poses,
        _quality(views, poses, bearings, keypoints.peak * inside, model.points_body),
    )


def in_frame_diameter(camera: Camera, centers: Array, angular_radius: Array) -> Array:
    """Return the diameter [...] in the frame of spheres at bearings [..., 2] with angular radii [...], px."""
    scale = np.sqrt(np.abs(np.linalg.det(bearing_jacobian_to_pixels(camera, centers))))
    stretch = (1.0 + np.sum(np.asarray(centers) ** 2, axis=-1)) ** 0.75  # bearings per radian, mean of both directions
    return np.nan_to_num(2.0 * np.tan(angular_radius) * scale * stretch, nan=8.0)


def _quality(views: list[View], poses: PoseEstimate, bearings: Array, peak: Array, points_body: Array) -> Array:
    """Return the quality [N, H]; peak: [N, K], zero off the frame."""
    predicted = project_points(poses.pose, points_body)  # [N, H, K, 2]
    quality = np.zeros(predicted.shape[:2])
    for n, view in enumerate(views):
        distance = bearings_to_view(view, predicted[n]) - bearings_to_view(view, bearings[n])
        squared = (distance**2).sum(axis=-1) / (_AGREEMENT * view.size) ** 2
        quality[n] = (peak[n] * np.exp(-0.5 * squared)).mean(axis=-1)
    return np.where(np.isfinite(poses.cost), quality, 0.0)


def direction_and_size(translation: Array, radius_m: float) -> tuple[Array, Array]:
    """Return bearings [..., 2] and angular radii [...] of spheres of radius_m at translations [..., 3], camera axes."""
    distance = np.maximum(np.linalg.norm(translation, axis=-1), 1.05 * radius_m)
    return translation[..., :2] / translation[..., 2:], np.arcsin(radius_m / distance)
