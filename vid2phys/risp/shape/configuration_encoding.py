"""Configurations as RISP measures them (Ma, Du et al., ICLR 2022), and as numbers that its network regresses.

Of an articulated body these are the joint coordinates, angles encoded as sines and cosines. Of a rod they are the
heights of its ten sensors over half the range of its motions.

Limits: other elastic bodies than the rod have no such vector.
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
    """An encoding of vectors [S] as numbers.

    Attributes:
        turning: Which coordinates are angles, rad.
        scale: Divisors of the other coordinates, m; 1 for angles.
    """

    turning: tuple[bool, ...]
    scale: tuple[float, ...]

    @property
    def size(self) -> int:
        """Return how many numbers encode a vector."""
        return len(self.turning) + sum(self.turning)

    def encode(self, vectors: Array) -> Array:
        """Encode [..., S] as [..., size]: sines and lengths, then cosines."""
        turning = np.array(self.turning)
        first = np.where(turning, np.sin(vectors), vectors / np.array(self.scale))
        return np.concatenate([first, np.cos(vectors[..., turning])], axis=-1)

    def decode(self, numbers: Array) -> Array:
        """Decode [..., size] to [..., S]; sines and cosines need not be normalised."""
        turning, count = np.array(self.turning), len(self.turning)
        vectors = numbers[..., :count] * np.array(self.scale)
        vectors[..., turning] = np.arctan2(numbers[..., :count][..., turning], numbers[..., count:])
        return vectors

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as plain lists."""
        return {"turning": list(self.turning), "scale": list(self.scale)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> ConfigurationEncoding:
        """Return the encoding of `to_json`. Raises KeyError, TypeError, ValueError."""
        turning = tuple(bool(each) for each in data["turning"])
        return ConfigurationEncoding(turning, tuple(float(each) for each in data["scale"]))


def configuration_vectors(body: ArticulatedBody, configurations: Array) -> Array:
    """Return the vectors of RISP's errors, [..., D] -> [..., S]: joint coordinates, or heights of sensors, m."""
    if isinstance(body, ModalBody):
        return body.points(configurations)[..., : _sensors(body), 2]
    return configurations


def configuration_encoding(body: ArticulatedBody) -> ConfigurationEncoding:
    """Return the encoding of a body's vectors."""
    if isinstance(body, JointBody):
        turning = tuple(kind == "revolute" for kind in body.system.robot.joint_types)
        return ConfigurationEncoding(
            turning,
            tuple(1.0 if revolute else float(size) for revolute, size in zip(turning, body.prior_std, strict=True)),
        )
    assert isinstance(body, ModalBody)
    heights = configuration_vectors(body, body.motions.amplitudes)
    return ConfigurationEncoding((False,) * _sensors(body), (0.5 * float(np.ptp(heights)),) * _sensors(body))


def _sensors(body: ModalBody) -> int:
    """Return the number of sensors, which are the first keypoints (`modes.spine_points`)."""
    return len(body.system.spine_m)  # type: ignore[attr-defined]
