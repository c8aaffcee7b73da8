"""Compute rotations and rigid transforms in NumPy, batched over leading axes.

Quaternions are wxyz, unit, active: `rotate(q, v)` takes a body vector to the world when q is body-to-world. Rotation
vectors are in radians. Formulas: Sola, Deray, Atchuthan, "A micro Lie theory" (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_SMALL_ANGLE = 1e-6


def quat_multiply(a_wxyz: Array, b_wxyz: Array) -> Array:
    """Return the Hamilton product a * b, shapes [..., 4] -> [..., 4]."""
    aw, ax, ay, az = _components(a_wxyz)
    bw, bx, by, bz = _components(b_wxyz)
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=-1,
    )


def quat_conjugate(quat_wxyz: Array) -> Array:
    """Return the inverse of a unit quaternion, [..., 4] -> [..., 4]."""
    return np.asarray(quat_wxyz, dtype=float) * np.array([1.0, -1.0, -1.0, -1.0])


def quat_normalize(quat_wxyz: Array) -> Array:
    """Return the unit quaternion with the same direction, [..., 4] -> [..., 4]."""
    quat = np.asarray(quat_wxyz, dtype=float)
    return quat / np.linalg.norm(quat, axis=-1, keepdims=True)


def quat_from_rotvec(rotvec: Array) -> Array:
    """Return the exponential map, rad, [..., 3] -> [..., 4]."""
    rotvec = np.asarray(rotvec, dtype=float)
    angle = np.linalg.norm(rotvec, axis=-1, keepdims=True)
    small = angle < _SMALL_ANGLE
    safe = np.where(small, 1.0, angle)
    scale = np.where(small, 0.5 - angle**2 / 48.0, np.sin(0.5 * safe) / safe)
    return np.concatenate([np.cos(0.5 * angle), scale * rotvec], axis=-1)


def rotvec_from_quat(quat_wxyz: Array) -> Array:
    """Return the logarithm of the shorter rotation, [..., 4] -> [..., 3] rad."""
    quat = np.asarray(quat_wxyz, dtype=float)
    quat = np.where(quat[..., :1] < 0.0, -quat, quat)
    norm = np.linalg.norm(quat[..., 1:], axis=-1, keepdims=True)
    small = norm < _SMALL_ANGLE
    safe = np.where(small, 1.0, norm)
    scale = np.where(small, 2.0 / np.maximum(quat[..., :1], 0.5), 2.0 * np.arctan2(safe, quat[..., :1]) / safe)
    return scale * quat[..., 1:]


def matrix_from_quat(quat_wxyz: Array) -> Array:
    """Return the rotation matrix, [..., 4] -> [..., 3, 3]."""
    w, x, y, z = _components(quat_normalize(quat_wxyz))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def quat_from_matrix(matrix: Array) -> Array:
    """Return the unit quaternion with w >= 0, [..., 3, 3] -> [..., 4]."""
    from scipy.spatial.transform import Rotation

    matrix = np.asarray(matrix, dtype=float)
    xyzw = Rotation.from_matrix(matrix.reshape(-1, 3, 3)).as_quat(canonical=True)
    return np.roll(xyzw, 1, axis=-1).reshape(*matrix.shape[:-2], 4)


def matrix_from_rotvec(rotvec: Array) -> Array:
    """Return the rotation matrix, rad, [..., 3] -> [..., 3, 3]."""
    return matrix_from_quat(quat_from_rotvec(rotvec))


def rotate(quat_wxyz: Array, vectors: Array) -> Array:
    """Return vectors rotated by quaternions, [..., 4] and [..., 3] -> [..., 3]."""
    w, x, y, z = _components(quat_normalize(quat_wxyz))
    a, b, c = _components(vectors)
    p, q, r = 2.0 * (y * c - z * b), 2.0 * (z * a - x * c), 2.0 * (x * b - y * a)
    return np.stack([a + w * p + y * r - z * q, b + w * q + z * p - x * r, c + w * r + x * q - y * p], axis=-1)


def _components(vectors: Array) -> tuple[Array, ...]:
    """Return the components [...] of vectors [..., N]."""
    vectors = np.asarray(vectors, dtype=float)
    return tuple(vectors[..., i] for i in range(vectors.shape[-1]))


def angle_between(a_wxyz: Array, b_wxyz: Array) -> Array:
    """Return the angle of a^-1 b, [..., 4] and [..., 4] -> [...] rad in [0, pi]."""
    return np.linalg.norm(rotvec_from_quat(quat_multiply(quat_conjugate(a_wxyz), b_wxyz)), axis=-1)


def slerp(a_wxyz: Array, b_wxyz: Array, share: Array) -> Array:
    """Return quaternions [..., 4] from a (share [...] 0) to b (1) by the shorter rotation (Shoemake 1985)."""
    rotvec = rotvec_from_quat(quat_multiply(quat_conjugate(a_wxyz), b_wxyz))
    return quat_multiply(a_wxyz, quat_from_rotvec(np.asarray(share)[..., None] * rotvec))


def skew(vector: Array) -> Array:
    """Return the cross-product matrix, [..., 3] -> [..., 3, 3]."""
    x, y, z = np.moveaxis(np.asarray(vector, dtype=float), -1, 0)
    o = np.zeros_like(x)
    return np.stack([np.stack([o, -z, y], -1), np.stack([z, o, -x], -1), np.stack([-y, x, o], -1)], axis=-2)


def shortest_rotation(direction: Array) -> Array:
    """Return the smallest rotation [3, 3] that takes the axis z to `direction` [3], which does not point along -z."""
    x, y, z = direction / np.linalg.norm(direction)
    return np.array(
        [
            [1.0 - x * x / (1.0 + z), -x * y / (1.0 + z), x],
            [-x * y / (1.0 + z), 1.0 - y * y / (1.0 + z), y],
            [-x, -y, z],
        ]
    )


def looking(forward: Array) -> Array:
    """Return camera to world [3, 3] of a level camera that looks along the unit vector `forward` [3], not vertical."""
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(forward, right), forward], axis=1)


def look_at(place: Array, target: Array) -> Array:
    """Return camera to world [4, 4] of a level camera at `place` [3] m that looks at `target` [3] m.

    The target must not be straight above or below the camera.
    """
    way = np.asarray(target, dtype=float) - place
    return make_transform(looking(way / np.linalg.norm(way)), place)


def invert_transform(transform: Array) -> Array:
    """Return the inverse of a rigid transform, [..., 4, 4] -> [..., 4, 4]."""
    transform = np.asarray(transform, dtype=float)
    rotation_t = np.swapaxes(transform[..., :3, :3], -1, -2)
    inverse = np.zeros_like(transform)
    inverse[..., :3, :3] = rotation_t
    inverse[..., :3, 3] = -np.einsum("...ij,...j->...i", rotation_t, transform[..., :3, 3])
    inverse[..., 3, 3] = 1.0
    return inverse


def make_transform(rotation: Array, translation: Array) -> Array:
    """Return the rigid transform of [..., 3, 3] and [..., 3] -> [..., 4, 4]."""
    rotation, translation = np.asarray(rotation, dtype=float), np.asarray(translation, dtype=float)
    transform = np.zeros((*rotation.shape[:-2], 4, 4))
    transform[..., :3, :3], transform[..., :3, 3], transform[..., 3, 3] = rotation, translation, 1.0
    return transform


def transform_points(transform: Array, points: Array) -> Array:
    """Return points [..., K, 3] moved by one rigid transform [4, 4], or each group by its own [..., 4, 4]."""
    return np.asarray(points @ np.swapaxes(transform[..., :3, :3], -1, -2) + transform[..., None, :3, 3])


def of_frames(transform: Array, frames: Any) -> Array:
    """Return what holds in some frames: rows `frames` of transforms [T, 4, 4], or a transform [4, 4] of all frames."""
    return transform if transform.ndim == 2 else transform[frames]


@dataclass(frozen=True)
class Pose:
    """A rigid transform, an element of SE(3), or a batch of them with leading axes [...].

    The transform maps a point x of one frame of axes to `rotation @ x + translation` in another. A name such as
    camera_from_body states both. Poses of bodies are camera_from_body unless a docstring says otherwise.

    Attributes:
        rotation: rotation matrices, [..., 3, 3].
        translation: the origin of the first axes in the second ones, [..., 3] m.
    """

    rotation: Array
    translation: Array

    def __getitem__(self, index: Any) -> Pose:
        """Return the poses at an index of the leading axes."""
        return self.map(lambda values: values[index])

    def __len__(self) -> int:
        """Return the length of the first leading axis."""
        return len(self.translation)

    def map(self, function: Callable[[Array], Array]) -> Pose:
        """Return the pose with a function applied to both arrays; the function treats leading axes alone."""
        return Pose(function(self.rotation), function(self.translation))

    def copy(self) -> Pose:
        """Return a pose with arrays of its own."""
        return self.map(np.copy)

    def __setitem__(self, index: Any, pose: Pose) -> None:
        """Write poses into the arrays at an index of the leading axes."""
        self.rotation[index], self.translation[index] = pose.rotation, pose.translation

    @property
    def is_finite(self) -> NDArray[np.bool_]:
        """Whether the translation is a number, [...]: lost frames hold NaN."""
        return np.asarray(np.isfinite(self.translation).all(axis=-1))

    def apply(self, points: Array) -> Array:
        """Return points [K, 3] or [..., K, 3] in the second axes, [..., K, 3]."""
        return np.asarray(points @ np.swapaxes(self.rotation, -1, -2) + self.translation[..., None, :])

    def compose(self, other: Pose) -> Pose:
        """Return the transform that applies `other` first and this one second."""
        moved = (self.rotation @ other.translation[..., None])[..., 0] + self.translation
        return Pose(self.rotation @ other.rotation, moved)

    def inverse(self) -> Pose:
        """Return the transform from the second axes to the first."""
        rotation = np.swapaxes(self.rotation, -1, -2)
        return Pose(rotation, -(rotation @ self.translation[..., None])[..., 0])

    def retract(self, step: Array) -> Pose:
        """Return the pose moved by local coordinates, as a tracker's errors have them.

        Args:
            step: [..., 6]: rotation about the x, y and z axes of the camera through the body's origin [rad]; sideways
                motion along x and y as a fraction of the distance; change of the distance's logarithm.
        """
        distance = np.linalg.norm(self.translation, axis=-1)[..., None]
        sideways = np.concatenate([step[..., 3:5], np.zeros_like(step[..., :1])], axis=-1) * distance
        translation = (self.translation + sideways) * np.exp(step[..., 5:])
        return Pose(matrix_from_rotvec(step[..., :3]) @ self.rotation, translation)

    def step_to(self, other: Pose) -> Array:
        """Return the step [..., 6] of `retract` that leads to another pose, to first order in its sideways part."""
        growth = np.log(other.translation[..., 2:] / self.translation[..., 2:])
        sideways = (other.translation / np.exp(growth) - self.translation)[..., :2]
        rotation = rotvec_from_quat(quat_from_matrix(other.rotation @ np.swapaxes(self.rotation, -1, -2)))
        away = sideways / np.linalg.norm(self.translation, axis=-1, keepdims=True)
        return np.concatenate([rotation, away, np.broadcast_to(growth, (*rotation.shape[:-1], 1))], axis=-1)

    def is_near(self, other: Pose, reach: Sequence[float]) -> bool:
        """Return whether the step to another pose is below `reach` [6] in each local coordinate."""
        return bool((np.abs(self.step_to(other)) < np.array(reach)).all())

    def predictions(self, before: Pose | None) -> list[Pose]:
        """Return poses of the next frame: the motion from the frame before goes on, or the body stays.

        before: pose of the frame before; None where it is unknown, so that the body stays.
        """
        return [self] if before is None else [self.retract(before.step_to(self)), self]

    def moved_along_sight(self, factors: Array) -> Pose:
        """Return the pose with its translation times `factors` [3], seen from the same side.

        The rotation against the line from the origin to the body stays.
        """
        translation = self.translation * factors
        a, b = (v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (self.translation, translation))
        across = skew(np.cross(a, b))
        smallest = np.eye(3) + across + across @ across / (1.0 + (a * b).sum(axis=-1))[..., None, None]
        return Pose(smallest @ self.rotation, translation)

    @staticmethod
    def join(parts: Sequence[Pose]) -> Pose:
        """Return batches as one, along the first axis."""
        return Pose(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("rotation", "translation")))

    @staticmethod
    def stack(poses: Sequence[Pose]) -> Pose:
        """Return N poses as one batch with a new first axis [N]."""
        return Pose(*(np.stack([getattr(pose, name) for pose in poses]) for name in ("rotation", "translation")))
