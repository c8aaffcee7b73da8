"""A configuration as RISP counts it (Ma, Du et al., ICLR 2022), and as the numbers that its network regresses.

Links on joints: the joints' coordinates, angles told by their sines and cosines. A rod: the heights of its ten sensors,
over half the range that its motions pass through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.modes import ModalBody
from vid2phys.types import Array


@dataclass(frozen=True)
class ConfigurationEncoding:
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
    def from_json(data: dict[str, Any]) -> ConfigurationEncoding:
        """Back from `to_json`. Raises KeyError, TypeError, ValueError."""
        turning = tuple(bool(each) for each in data["turning"])
        return ConfigurationEncoding(turning, tuple(float(each) for each in data["scale"]))


def configuration_vectors(body: ArticulatedBody, configurations: Array) -> Array:
    """What RISP's errors are counted in, [..., D] -> [..., S]: joints' coordinates, or heights [m] of sensors."""
    if isinstance(body, ModalBody):
        return body.points(configurations)[..., : _sensors(body), 2]
    return configurations


def configuration_encoding(body: ArticulatedBody) -> ConfigurationEncoding:
    """The code of a body's vectors."""
    if isinstance(body, JointBody):
        turning = tuple(kind == "revolute" for kind in body.system.robot.joint_types)
        return ConfigurationEncoding(
            turning, tuple(1.0 if turns else float(size) for turns, size in zip(turning, body.prior_std, strict=True))
        )
    assert isinstance(body, ModalBody)
    heights = configuration_vectors(body, body.motions.amplitudes)
    return ConfigurationEncoding((False,) * _sensors(body), (0.5 * float(np.ptp(heights)),) * _sensors(body))


def _sensors(body: ModalBody) -> int:
    """The keypoints begin with them (`modes.spine_points`)."""
    return len(body.system.spine_m)  # type: ignore[attr-defined]
