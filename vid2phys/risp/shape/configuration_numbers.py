"""A posture as RISP counts it (Ma, Du et al., ICLR 2022), and as the numbers that its network regresses.

Links on joints: the joints' coordinates, angles told by their sines and cosines. A rod: the heights of its ten sensors,
over half the range that its motions pass through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vid2phys.engine.movable.body import PosedBody
from vid2phys.engine.movable.joints import PosedJoints
from vid2phys.engine.movable.modes import PosedModes
from vid2phys.types import Array


@dataclass(frozen=True)
class PostureNumbers:
    """The code of a vector [S]. turning: which of its coordinates are angles, rad. scale: by which the others [m] are
    divided; 1 for angles."""

    turning: tuple[bool, ...]
    scale: tuple[float, ...]

    @property
    def size(self) -> int:
        """How many numbers tell a vector."""
        return len(self.turning) + sum(self.turning)

    def encode(self, vectors: Array) -> Array:
        """[..., S] -> [..., size]: sines and what is no angle, then the cosines."""
        turning = np.array(self.turning)
        first = np.where(turning, np.sin(vectors), vectors / np.array(self.scale))
        return np.concatenate([first, np.cos(vectors[..., turning])], axis=-1)

    def decode(self, numbers: Array) -> Array:
        """Back; sines and cosines need not be normalised."""
        turning, count = np.array(self.turning), len(self.turning)
        vectors = numbers[..., :count] * np.array(self.scale)
        vectors[..., turning] = np.arctan2(numbers[..., :count][..., turning], numbers[..., count:])
        return vectors

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {"turning": list(self.turning), "scale": list(self.scale)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> PostureNumbers:
        """Back from `to_json`. Raises KeyError, TypeError, ValueError."""
        turning = tuple(bool(each) for each in data["turning"])
        return PostureNumbers(turning, tuple(float(each) for each in data["scale"]))


def posture_vectors(body: PosedBody, postures: Array) -> Array:
    """What RISP's errors are counted in, [..., D] -> [..., S]: joints' coordinates, or heights [m] of sensors."""
    if isinstance(body, PosedModes):
        return body.points(postures)[..., : _sensors(body), 2]
    return postures


def posture_numbers(body: PosedBody) -> PostureNumbers:
    """The code of a body's vectors."""
    if isinstance(body, PosedJoints):
        turning = tuple(kind == "revolute" for kind in body.system.robot.joint_types)
        return PostureNumbers(
            turning, tuple(1.0 if turns else float(size) for turns, size in zip(turning, body.spread, strict=True))
        )
    assert isinstance(body, PosedModes)
    heights = posture_vectors(body, body.motions.amplitudes)
    return PostureNumbers((False,) * _sensors(body), (0.5 * float(np.ptp(heights)),) * _sensors(body))


def _sensors(body: PosedModes) -> int:
    """The keypoints begin with them (`modes.spine_points`)."""
    return len(body.system.spine_m)  # type: ignore[attr-defined]
