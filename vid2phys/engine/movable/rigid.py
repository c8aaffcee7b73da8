"""A rigid body as a movable body: its configuration is its pose before a camera.

A step has six modes: rotations [rad] about the camera's x, y and z axes through the body's origin, shifts along the
camera's x and y axes as fractions of the range, and the logarithm of the distance. A camera measures them about
independently, whatever the range. `pose_geometry.pose_modes` has the same modes for bearings.

Limits: a pose with the body's origin at the camera has no modes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import make_transform, matrix_from_rotvec, quat_from_matrix, rotvec_from_quat, skew
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
        return make_transform(*retract_pose(configuration[:3, :3], configuration[:3, 3], step))


def retract_pose(rotation: Array, translation: Array, step: Array) -> tuple[Array, Array]:
    """Return the pose that a step [6] leads to from a rotation [3, 3] and a translation [3] m."""
    distance = float(np.linalg.norm(translation))
    sideways = np.array([step[3], step[4], 0.0]) * distance
    return matrix_from_rotvec(step[:3]) @ rotation, (translation + sideways) * np.exp(step[5])


def pose_difference(rotation: Array, translation: Array, other_rotation: Array, other_translation: Array) -> Array:
    """Return the steps [..., 6] that lead from poses to other poses, to first order in their shifts.

    Args:
        rotation: [..., 3, 3] of the first poses.
        translation: [..., 3] of the first poses, m.
        other_rotation: [..., 3, 3] of the other poses.
        other_translation: [..., 3] of the other poses, m.
    """
    growth = np.log(other_translation[..., 2:] / translation[..., 2:])
    sideways = (other_translation / np.exp(growth) - translation)[..., :2]
    turn = rotvec_from_quat(quat_from_matrix(other_rotation @ np.swapaxes(rotation, -1, -2)))
    away = sideways / np.linalg.norm(translation, axis=-1, keepdims=True)
    return np.concatenate([turn, away, np.broadcast_to(growth, (*turn.shape[:-1], 1))], axis=-1)
