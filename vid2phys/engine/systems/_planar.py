"""What planar pendulums share: links that turn about the world's y axis."""

from __future__ import annotations

import numpy as np

from vid2phys.engine.systems._flat import FlatSystem
from vid2phys.types import Array

NOT_SEEN = "the tracker does not know where the pivot of a pendulum is"
GRAVITY_NEEDS = "swings of a pendulum whose length is known"


class PlanarPendulum(FlatSystem):
    """Links that swing in the world's x-z plane about y, the pivot at the world's origin; no torque holds them.

    The state is angles [rad, 0 = hanging straight down, never wrapped], one a link, then their rates. An angle is a
    right-handed turn about +y: a little of it takes what hangs below the pivot towards -x. Angles are not wrapped, so a
    whole turn is a distance of 2 pi.
    """

    integrators = ("rk4", "semi_implicit_euler")
    state_frames = dict.fromkeys(("angle", "angular_velocity"), "about +y of the world, from hanging")

    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """See `System.body_pose`: the link that hangs from the pivot."""
        half = 0.5 * np.asarray(states, dtype=float)[..., 0]
        zero = np.zeros_like(half)
        return np.zeros((*half.shape, 3)), np.stack([np.cos(half), zero, np.sin(half), zero], axis=-1)

    def rest_state(self) -> Array:
        """See `System.rest_state`: hanging."""
        return np.zeros(len(self.state_names))

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
