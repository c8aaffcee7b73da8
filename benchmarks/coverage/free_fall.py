"""A free fall in closed form: a parabola, and a rotation that is steady, as that of a cube is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.geometry import quat_from_rotvec, quat_multiply
from vid2phys.types import Array


@dataclass(frozen=True)
class Fall:
    """A free fall. start: position [3] m and quaternion [4] wxyz. velocity: [3] at first, m/s. spin: [3] in body axes,
    rad/s. gravity: m/s^2."""

    start: tuple[Array, Array]
    velocity: Array
    spin: Array
    gravity: float

    def states(self, times_s: Array) -> Array:
        """Return the states [..., 13] at times [...]."""
        times, weight = times_s[..., None], np.array([0.0, 0.0, self.gravity])
        place, quat = self.start
        spin = np.broadcast_to(self.spin, (*times_s.shape, 3))
        return np.concatenate(
            [
                place + times * self.velocity - 0.5 * times**2 * weight,
                quat_multiply(quat, quat_from_rotvec(times * spin)),
                self.velocity - times * weight,
                spin,
            ],
            axis=-1,
        )
