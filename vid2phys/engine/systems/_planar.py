"""What planar pendulums share: links that turn about one axis, by default the world's y axis.

Limits: `placed` does not change gravity; the parameter `axis_tilt` of a system states what an axis that is not level
does to it.
"""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np

from vid2phys.engine.systems._flat import FlatSystem
from vid2phys.geometry import Pose, matrix_from_quat, quat_from_matrix
from vid2phys.types import Array

GRAVITY_NEEDS = "swings of a pendulum whose length is known"


class PlanarPendulum(FlatSystem):
    """Links that swing in the x-z plane about y, the pivot at the origin; no torque holds them.

    The axes are those of the world, unless the system is `placed` in others.

    The state is angles [rad, 0 = hanging straight down, never wrapped], one a link, then their rates. An angle is a
    right-handed turn about +y: a little of it takes what hangs below the pivot towards -x. Angles are not wrapped, so a
    whole turn is a distance of 2 pi.
    """

    integrators = ("rk4", "semi_implicit_euler")
    world_from_swing: Pose | None = None  # where the axes in which it swings about +y are; None: those of the world
    state_frames = dict.fromkeys(("angle", "angular_velocity"), "about +y of the world, from hanging")

    def placed(self, world_from_swing: Pose) -> Self:
        """Return the system with its pivot at the origin of other axes, about whose +y it swings."""
        moved = copy(self)
        moved.world_from_swing = world_from_swing
        return moved

    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """See `System.body_pose`: the link that hangs from the pivot."""
        half = 0.5 * np.asarray(states, dtype=float)[..., 0]
        zero = np.zeros_like(half)
        position, quat = np.zeros((*half.shape, 3)), np.stack([np.cos(half), zero, np.sin(half), zero], axis=-1)
        if self.world_from_swing is None:
            return position, quat
        rotation = self.world_from_swing.rotation @ matrix_from_quat(quat)
        return position + self.world_from_swing.translation, quat_from_matrix(rotation)

    def rest_state(self) -> Array:
        """See `System.rest_state`: hanging."""
        return np.zeros(len(self.state_names))

    def in_world(self, points: Array) -> Array:
        """Return points [..., 3] of the axes in which it swings in the world."""
        at = self.world_from_swing
        return points if at is None else np.asarray(points @ at.rotation.T + at.translation)

    def velocity_in_world(self, velocities: Array) -> Array:
        """Return velocities [..., 3] of the axes in which it swings in the world's axes."""
        at = self.world_from_swing
        return velocities if at is None else np.asarray(velocities @ at.rotation.T)

    def vertices(self, state: Array, mesh_vertices: Array) -> Array:
        """See `System.vertices`."""
        return self.keypoints(state, mesh_vertices)

    def hover_controls(self, parameters: Array) -> Array:
        """See `System.hover_controls`."""
        return np.zeros(len(self.control_names))


def turned_about_y(angles: Array, points: Array) -> Array:
    """Return the points [K, 3] rotated about +y by each of the angles [...], [..., K, 3]."""
    cos, sin = np.cos(angles)[..., None], np.sin(angles)[..., None]
    x, y, z = np.moveaxis(np.asarray(points, dtype=float), -1, 0)
    return np.stack([cos * x + sin * z, np.broadcast_to(y, np.shape(cos * x)), cos * z - sin * x], axis=-1)


def turning_velocity(arms: Array) -> Array:
    """Return the velocity [..., 3] of arms [..., 3] m that turn about +y at 1 rad/s: e_y x arm."""
    return np.stack([arms[..., 2], np.zeros_like(arms[..., 1]), -arms[..., 0]], axis=-1)
