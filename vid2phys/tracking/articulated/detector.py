"""Looking at a body on a known base: one view for the whole clip, configurations by the kinematic fit, how well they
agree.

Tracking and calibration both read images by `look`, so that the error model describes what the tracker does.
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
from vid2phys.geometry import invert_transform
from vid2phys.notes import warning
from vid2phys.tracking.articulated.kinematic_fit import Configurations, find_minima
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.types import Array, Camera

if TYPE_CHECKING:  # reading images needs torch, placing them does not
    from vid2phys.risp.networks.model import Model

_AGREEMENT = (
    0.03  # distance, as a share of the view, at which a point's agreement with the configuration has dropped to 0.6
)


@dataclass(frozen=True)
class Window:
    """Where the body is looked at.

    camera, and its pose: camera_from_base [4, 4] m. view: the same for all frames. diameter_px: of the workspace, in
    the frame. from_behind: the body is seen from the other side than in training, and looks the same but for the names
    of its points.
    """

    camera: Camera
    camera_from_base: Array
    view: View
    diameter_px: float
    from_behind: bool = False

    @staticmethod
    def of(camera: Camera, body: ArticulatedBody, size: int) -> Window:
        """The window of a camera that has a pose. Raises InputError when the body is behind it or around it."""
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
        from_behind = body.half_turn is not None and not body.cameras.holds(towards) and body.cameras.holds(behind)
        return Window(camera, pose, view, diameter, from_behind)

    def notes(self, body: ArticulatedBody) -> tuple[str, ...]:
        """What a reader of the result should know about this camera."""
        towards = -self.camera_from_base[:3, :3].T @ self.camera_from_base[:3, 3] - body.center_m
        if self.from_behind or body.cameras.holds(towards):
            return ()
        known = body.cameras
        return (
            warning(
                f"the camera stands where the model was not trained: it knows azimuths {known.azimuth[0]:g} +- "
                f"{known.azimuth[1]:g} degrees and elevations {known.elevation[0]:g} to {known.elevation[1]:g}"
            ),
        )

    def in_camera(self, points: Array) -> Array:
        """Points in the base's axes [..., 3] m in those of the camera."""
        return np.asarray(points @ self.camera_from_base[:3, :3].T + self.camera_from_base[:3, 3])

    def project(self, points: Array) -> Array:
        """Bearings of points in the base's axes, [..., K, 3] -> [..., K, 2]."""
        return project_points(self.camera_from_base[:3, :3], self.camera_from_base[:3, 3], points)


@dataclass(frozen=True)
class ConfigurationDetections:
    """What N frames showed through a window.

    bearings: [N, K, 2]. peak: [N, K]. raw_px: [N, K, 2, 2], the network's covariance in view px^2, and covariance: the
    calibrated one in bearings. inside: [N, K], on the frame. quality: [N] in 0..1, how sure the network is of points
    that agree with the configuration.
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
        """Several batches as one."""
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
) -> ConfigurationDetections:
    """Read N frames [H, W, 3]."""
    view, camera = window.view, window.camera
    reading = model.predict(np.stack([resample(frame, camera, view) for frame in frames]))
    if window.from_behind:
        assert body.half_turn is not None
        reading = reading.renamed(body.half_turn)
    bearings, jacobian = view_to_bearings(view, reading.points_px)
    diameter = np.full(len(frames), window.diameter_px)
    covariance = map_covariance(jacobian, calibration.point_covariance(reading.covariance_px, diameter))
    inside = in_frame(camera, bearings)
    minima = find_minima(body, window.camera_from_base, bearings, covariance, visible=inside)
    found = minima.best()
    quality = agreement(body, window, found, bearings, reading.peak * inside)
    return ConfigurationDetections(
        bearings, reading.peak, reading.covariance_px, covariance, inside, minima, found, quality
    )


def agreement(body: ArticulatedBody, window: Window, found: Configurations, bearings: Array, peak: Array) -> Array:
    """Mean over the points of the network's certainty times how near they lie to the configuration's, [N] in 0..1."""
    predicted = bearings_to_view(window.view, window.project(body.points(found.configuration)))
    squared = ((predicted - bearings_to_view(window.view, bearings)) ** 2).sum(axis=-1)
    return np.asarray((peak * np.exp(-0.5 * squared / (_AGREEMENT * window.view.size) ** 2)).mean(axis=-1))


def configuration_modes(body: ArticulatedBody, window: Window, configurations: Array) -> Array:
    """How the bearings move when a whole frame is read a little wrong, [N, K, 2, D + 2].

    By each coordinate of the configuration, and sideways along camera x and y, in bearings at the workspace's middle.
    """
    turn = window.camera_from_base[:3, :3]
    x = window.in_camera(body.points(configurations))
    slope = np.zeros((*x.shape[:-1], 2, 3))
    slope[..., 0, 0] = slope[..., 1, 1] = 1.0
    slope[..., 2] = -x[..., :2] / x[..., 2:]
    slope /= x[..., 2, None, None]
    depth = float((turn @ body.center_m + window.camera_from_base[:3, 3])[2])
    return np.concatenate([slope @ turn @ body.jacobian(configurations), depth * slope[..., :2]], axis=-1)
