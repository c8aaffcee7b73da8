"""A body on a base whose pose is not known: the base's shift and rotation come before the body's own coordinates.

The base is shifted along the world's axes, and rotates about the middle of the robot's first joint axis, so that both
are told apart as well as can be.

Limits: rotations are small, a few degrees; their derivatives are those of the left Jacobian to second order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.geometry import matrix_from_rotvec, skew
from vid2phys.types import Array

AXES = ("x", "y", "z")


class MovedBase(ArticulatedBody):
    """An articulated body on a base that may stand elsewhere.

    A configuration [B + D] holds the base's shift (m), its rotation vector (rad, left out where `angle_rad` is 0), and
    the configuration of the body.
    """

    def __init__(self, body: ArticulatedBody, pivot: Array, shift_m: float, angle_rad: float = 0.0) -> None:
        """Set up the body.

        Args:
            body: the body on its base as it was given.
            pivot: [3] place about which the base rotates, m.
            shift_m: largest shift along each axis.
            angle_rad: largest rotation about each axis; 0 for a base that does not rotate.
        """
        names = [f"base_move_{axis}" for axis in AXES]
        largest = [shift_m] * 3
        if angle_rad:
            names += [f"base_turn_{axis}" for axis in AXES]
            largest += [angle_rad] * 3
        self.body, self.pivot, self.base = body, np.asarray(pivot, dtype=float), len(names)
        most, zero = np.array(largest), np.zeros(len(names))
        self.system, self.mesh, self.points_body = body.system, body.mesh, body.points_body
        self.names = (*names, *body.names)
        self.rest, self.prior_mean = np.concatenate([zero, body.rest]), np.concatenate([zero, body.prior_mean])
        self.lower, self.upper = np.concatenate([-most, body.lower]), np.concatenate([most, body.upper])
        self.prior_std = np.concatenate([most / np.sqrt(3.0), body.prior_std])
        self.center_m, self.radius_m, self.cameras = body.center_m, body.radius_m, body.cameras

    @property
    def recipe(self) -> str:
        """See `ArticulatedBody.recipe`."""
        return f"moved base/1 {self.base} {self.body.recipe}"

    @property
    def is_angle(self) -> NDArray[np.bool_]:
        """See `ArticulatedBody.is_angle`."""
        return np.concatenate([np.arange(self.base) >= len(AXES), self.body.is_angle])

    def pose(self, base: Array) -> tuple[Array, Array]:
        """Return the rotation [3, 3] and the shift [3] m that move the given base by its coordinates [B]."""
        rotation = matrix_from_rotvec(base[3:]) if self.base > len(AXES) else np.eye(3)
        return rotation, self.pivot + base[:3] - rotation @ self.pivot

    def vertices(self, configuration: Array) -> Array:
        """See `ArticulatedBody.vertices`."""
        return self._placed(configuration, self.body.vertices(configuration[self.base :]))

    def all_vertices(self, configurations: Array) -> Array:
        """See `ArticulatedBody.all_vertices`."""
        placed = self.body.all_vertices(configurations[:, self.base :])
        return np.stack([self._placed(q, each) for q, each in zip(configurations, placed, strict=True)])

    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """See `ArticulatedBody.jacobian`."""
        own = configuration[self.base :]
        return self._slopes(configuration, self.body.vertices(own)[vertices], self.body.jacobian(own, vertices))

    def surface(self, configuration: Array) -> Array:
        """See `ArticulatedBody.surface`."""
        return self._placed(configuration, self.body.surface(configuration[self.base :]))

    def surface_jacobian(self, configuration: Array, places: NDArray[np.int64]) -> Array:
        """See `ArticulatedBody.surface_jacobian`."""
        own = configuration[self.base :]
        return self._slopes(configuration, self.body.surface(own)[places], self.body.surface_jacobian(own, places))

    def points(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points`."""
        return self._placed(configurations, self.body.points(configurations[self.base :]))

    def points_jacobian(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points_jacobian`."""
        own = configurations[self.base :]
        return self._slopes(configurations, self.body.points(own), self.body.points_jacobian(own))

    def sample(self, rng: np.random.Generator) -> Array:
        """See `ArticulatedBody.sample`."""
        base = rng.uniform(self.lower[: self.base], self.upper[: self.base])
        return np.concatenate([base, self.body.sample(rng)])

    def sample_motion(self, rng: np.random.Generator, times_s: Array) -> Array:
        """See `ArticulatedBody.sample_motion`: the base does not move."""
        base = np.tile(self.sample(rng)[: self.base], (len(times_s), 1))
        return np.concatenate([base, self.body.sample_motion(rng, times_s)], axis=1)

    def states(self, configurations: Array, rates: Array) -> Array:
        """See `ArticulatedBody.states`: those of the body on its base."""
        return self.body.states(configurations[..., self.base :], rates[..., self.base :])

    def configurations(self, states: Array) -> Array:
        """See `ArticulatedBody.configurations`: on the base as it was given."""
        own = self.body.configurations(states)
        return np.concatenate([np.zeros((*own.shape[:-1], self.base)), own], axis=-1)

    def _placed(self, configuration: Array, points: Array) -> Array:
        """Return points [K, 3] of the body on the given base where the moved base has them."""
        rotation, shift = self.pose(configuration[: self.base])
        return np.asarray(points @ rotation.T + shift)

    def _slopes(self, configuration: Array, points: Array, own: Array) -> Array:
        """Return the derivatives [K, 3, B + D] of `_placed`, from those of the body on its base [K, 3, D]."""
        rotation, _ = self.pose(configuration[: self.base])
        slopes = [np.broadcast_to(np.eye(3), (len(points), 3, 3))]
        if self.base > len(AXES):
            across = skew(configuration[3:6])
            left = np.eye(3) + 0.5 * across + across @ across / 6.0
            slopes.append(-skew((points - self.pivot) @ rotation.T) @ left)
        return np.concatenate([*slopes, rotation @ own], axis=-1)
