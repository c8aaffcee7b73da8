"""A rigid body as a movable body: its configuration is its pose before a camera.

A step has the six modes of `geometry.Pose.retract`: rotations [rad] about the camera's x, y and z axes through the
body's origin, shifts along the camera's x and y axes as fractions of the distance, and the logarithm of the distance. A
camera measures them about independently, whatever the distance. `pose_geometry.pose_modes` has the same modes for
bearings.

Limits: a pose with the body's origin at the camera has no modes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose, make_transform, skew
from vid2phys.types import Array, Mesh

POSE_DOF = 6


@dataclass(frozen=True)
class RigidBody:
    """A mesh that moves as a whole. See `Movable`; a configuration is a transform camera_from_body [4, 4], m."""

    mesh: Mesh

    @property
    def limits(self) -> tuple[Array, Array]:
        """See `Movable.limits`: a pose has none."""
        return np.full(POSE_DOF, -np.inf), np.full(POSE_DOF, np.inf)

    def vertices(self, configuration: Array) -> Array:
        """See `Movable.vertices`; in the axes of the camera."""
        return np.asarray(self.mesh.vertices @ configuration[:3, :3].T + configuration[:3, 3])

    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """See `Movable.jacobian`."""
        translation = configuration[:3, 3]
        arms = self.mesh.vertices[vertices] @ configuration[:3, :3].T
        sideways = np.linalg.norm(translation) * np.eye(3)[:, :2]
        shifts = np.concatenate([sideways, translation[:, None]], axis=1)
        return np.concatenate([-skew(arms), np.broadcast_to(shifts, (len(arms), 3, 3))], axis=-1)

    def retract(self, configuration: Array, step: Array) -> Array:
        """See `Movable.retract`."""
        pose = Pose(configuration[:3, :3], configuration[:3, 3]).retract(step)
        return make_transform(pose.rotation, pose.translation)
