"""Detect the configuration of a body on a known base: one virtual camera per clip, keypoints, kinematic fit, quality.

The tracker and the calibration both detect by `detect`, so that the error model describes what the tracker does.

Limits: the pose of the camera before the base is given and does not change in a clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import FILL, ArticulatedBody
from vid2phys.engine.pose_geometry import project_points
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
from vid2phys.errors import InputError
from vid2phys.geometry import Pose, invert_transform
from vid2phys.notes import warning
from vid2phys.tracking.articulated.config import DEFAULTS, ArticulatedConfig
from vid2phys.tracking.articulated.kinematic_fit import Configurations, find_minima
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.types import Array, Camera

if TYPE_CHECKING:  # a network needs torch, geometry does not
    from vid2phys.risp.networks.model import Model


@dataclass(frozen=True)
class Window:
    """The camera of a clip and the virtual camera that shows the body's workspace.

    Attributes:
        camera: The camera.
        camera_from_base: [4, 4] pose of the base, m.
        view: The virtual camera, the same for all frames.
        diameter_px: Diameter of the workspace in the frame, px.
        from_behind: Whether the camera is on the other side than in training. The body then looks the same but for the
            names of its keypoints.
    """

    camera: Camera
    camera_from_base: Array
    view: View
    diameter_px: float
    from_behind: bool = False

    @staticmethod
    def of(camera: Camera, body: ArticulatedBody, size: int) -> Window:
        """Return the window of a camera with a pose.

        Args:
            camera: The camera; its pose is in the world of the body's base.
            body: The body.
            size: Width and height of the virtual camera's image, px.

        Raises:
            InputError: The camera looks away from the workspace, or is inside of it.
        """
        assert camera.camera_to_world is not None
        pose = invert_transform(np.asarray(camera.camera_to_world, dtype=float))
        center = pose[:3, :3] @ body.center_m + pose[:3, 3]
        distance = float(np.linalg.norm(center))
        if center[2] <= 0.0 or distance <= body.radius_m:
            raise InputError(
                f"a camera {distance:.3g} m from the middle of the body's workspace, looking "
                + ("away from it" if center[2] <= 0.0 else "from inside of it"),
                f"one that looks at it from more than {body.radius_m:.3g} m; the base stands at the world's origin",
                "check camera_to_world",
            )
        bearing, angular_radius = direction_and_size(center, body.radius_m)
        view = make_view(camera, bearing, float(angular_radius), size, fill=FILL)
        diameter = float(in_frame_diameter(camera, bearing[None], np.array([angular_radius]))[0])
        towards = np.asarray(camera.camera_to_world)[:3, 3] - body.center_m
        behind = towards * [-1.0, -1.0, 1.0]
        trained, trained_behind = body.cameras.contains(towards), body.cameras.contains(behind)
        from_behind = body.half_turn is not None and not trained and trained_behind
        return Window(camera, pose, view, diameter, from_behind)

    def notes(self, body: ArticulatedBody) -> tuple[str, ...]:
        """Return warnings about this camera for the result."""
        towards = -self.camera_from_base[:3, :3].T @ self.camera_from_base[:3, 3] - body.center_m
        if self.from_behind or body.cameras.contains(towards):
            return ()
        known = body.cameras
        return (
            warning(
                f"the camera stands where the model was not trained: it knows azimuths {known.azimuth[0]:g} +- "
                f"{known.azimuth[1]:g} degrees and elevations {known.elevation[0]:g} to {known.elevation[1]:g}"
            ),
        )

    def in_camera(self, points: Array) -> Array:
        """Transform points [..., 3] m from the axes of the base to those of the camera."""
        return np.asarray(points @ self.camera_from_base[:3, :3].T + self.camera_from_base[:3, 3])

    def project(self, points: Array) -> Array:
        """Return the bearings of points in the axes of the base, [..., K, 3] m -> [..., K, 2]."""
        return project_points(Pose(self.camera_from_base[:3, :3], self.camera_from_base[:3, 3]), points)


@dataclass(frozen=True)
class ConfigurationDetections:
    """Detections in N frames.

    Attributes:
        bearings: [N, K, 2] of the keypoints.
        peak: [N, K] heights of the heat maps' peaks, 0 to 1.
        raw_px: [N, K, 2, 2] the network's own covariances, px^2 of the virtual camera.
        covariance: [N, K, 2, 2] covariances by the error model, bearings.
        inside: [N, K], whether the keypoint lies within the frame.
        minima: [N, S] configurations of the kinematic fit from S starts.
        configurations: [N] best of them.
        quality: [N] how sure the network is of points that agree with the configuration, 0 to 1.
    """

    bearings: Array
    peak: Array
    raw_px: Array
    covariance: Array
    inside: NDArray[np.bool_]
    minima: Configurations
    configurations: Configurations
    quality: Array

    @staticmethod
    def join(parts: Sequence[ConfigurationDetections]) -> ConfigurationDetections:
        """Concatenate batches."""
        arrays = [f.name for f in fields(ConfigurationDetections) if f.name not in ("minima", "configurations")]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays}
        minima = Configurations.join([part.minima for part in parts])
        return ConfigurationDetections(
            minima=minima, configurations=Configurations.join([part.configurations for part in parts]), **joined
        )


def detect(
    model: Model,
    body: ArticulatedBody,
    window: Window,
    frames: Sequence[NDArray[np.uint8]],
    calibration: Calibration,
    config: ArticulatedConfig = DEFAULTS,
) -> ConfigurationDetections:
    """Detect the body's configuration in N frames [H, W, 3], each on its own."""
    view, camera = window.view, window.camera
    keypoints = model.predict(np.stack([resample(frame, camera, view) for frame in frames]))
    if window.from_behind:
        assert body.half_turn is not None
        keypoints = keypoints.renamed(body.half_turn)
    bearings, jacobian = view_to_bearings(view, keypoints.points_px)
    diameter = np.full(len(frames), window.diameter_px)
    covariance = map_covariance(jacobian, calibration.point_covariance(keypoints.covariance_px, diameter))
    inside = in_frame(camera, bearings)
    minima = find_minima(body, window.camera_from_base, bearings, covariance, visible=inside, config=config)
    found = minima.best()
    quality = agreement(body, window, found, bearings, keypoints.peak * inside, config)
    return ConfigurationDetections(
        bearings, keypoints.peak, keypoints.covariance_px, covariance, inside, minima, found, quality
    )


def agreement(
    body: ArticulatedBody,
    window: Window,
    found: Configurations,
    bearings: Array,
    peak: Array,
    config: ArticulatedConfig = DEFAULTS,
) -> Array:
    """Return the quality [N] of configurations, 0 to 1.

    It is the mean over the keypoints of the peak [N, K] times the agreement of the detected bearings [N, K, 2] with
    those of the configuration.
    """
    predicted = bearings_to_view(window.view, window.project(body.points(found.configuration)))
    squared = ((predicted - bearings_to_view(window.view, bearings)) ** 2).sum(axis=-1)
    return np.asarray((peak * np.exp(-0.5 * squared / (config.agreement_share * window.view.size) ** 2)).mean(axis=-1))


def configuration_modes(body: ArticulatedBody, window: Window, configurations: Array) -> Array:
    """Return the derivatives of the bearings by the errors that a frame's keypoints share, [N, K, 2, D + 2].

    These errors are the D coordinates of the configuration, and shifts along camera x and y, in bearings at the
    workspace's middle.
    """
    rotation = window.camera_from_base[:3, :3]
    x = window.in_camera(body.points(configurations))
    slope = np.zeros((*x.shape[:-1], 2, 3))
    slope[..., 0, 0] = slope[..., 1, 1] = 1.0
    slope[..., 2] = -x[..., :2] / x[..., 2:]
    slope /= x[..., 2, None, None]
    depth = float((rotation @ body.center_m + window.camera_from_base[:3, 3])[2])
    return np.concatenate([slope @ rotation @ body.points_jacobian(configurations), depth * slope[..., :2]], axis=-1)
