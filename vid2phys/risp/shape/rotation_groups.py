"""The finite groups of rotations: cyclic, dihedral, and those of the tetrahedron, the cube and the icosahedron.

Limits: reflections are not part of the groups, since no motion of a body is one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.types import Array

_SAME = 1e-6


def cyclic(order: int) -> Array:
    """Return the rotations about z by g / order of a full circle, [order, 3, 3], in the order of g."""
    return _clean(matrix_from_rotvec(np.arange(order)[:, None] * (2.0 * np.pi / order) * np.array([0.0, 0.0, 1.0])))


def dihedral(order: int) -> Array:
    """Return `cyclic(order)` and 180 degree rotations about axes across z, x among them, [2 order, 3, 3]."""
    return np.concatenate([cyclic(order), cyclic(order) @ np.diag([1.0, -1.0, -1.0])])


@lru_cache(maxsize=1)
def tetrahedral() -> Array:
    """Return the 12 rotations of a tetrahedron whose twofold axes are x, y, z."""
    return generated(np.stack([np.diag([-1.0, -1.0, 1.0]), _THIRD]))


@lru_cache(maxsize=1)
def octahedral() -> Array:
    """Return the 24 rotations of a cube with edges along x, y, z."""
    return generated(np.stack([cyclic(4)[1], _THIRD]))


@lru_cache(maxsize=1)
def icosahedral() -> Array:
    """Return the 60 rotations of an icosahedron with corners (0, +-1, +-golden ratio), cyclically permuted."""
    corner = np.array([0.0, 1.0, 0.5 * (1.0 + np.sqrt(5.0))])
    fifth = matrix_from_rotvec(2.0 * np.pi / 5.0 * corner / np.linalg.norm(corner))
    return generated(np.stack([_THIRD, fifth]))


def generated(generators: Array) -> Array:
    """Return all products of rotations [N, 3, 3], the identity first; they must generate a finite group."""
    group = np.eye(3)[None]
    fresh = group
    while len(fresh):
        products = (fresh[:, None] @ generators[None]).reshape(-1, 3, 3)
        new: list[Array] = []
        for product in products:
            known = np.concatenate([group, np.array(new).reshape(-1, 3, 3)])
            if np.abs(known - product).max(axis=(1, 2)).min() > _SAME:
                new.append(product)
        fresh = np.array(new).reshape(-1, 3, 3)
        group = np.concatenate([group, fresh])
    return _clean(group)


def in_frame(group: Array, frame: Array) -> Array:
    """Return the group with its x, y, z axes along the columns of `frame` [3, 3]."""
    return _clean(frame @ group @ frame.T)


def composition(rotations: Array) -> NDArray[np.int64]:
    """Return the table [G, G] of a group: rotations[a] @ rotations[b] = rotations[table[a, b]]."""
    products = rotations[:, None] @ rotations[None]
    distance = np.linalg.norm(products[:, :, None] - rotations[None, None], axis=(-1, -2))
    return np.argmin(distance, axis=-1)


def _clean(rotations: Array) -> Array:
    """Replace rounding errors in rotations by multiples of 90 degrees with exact zeros and ones."""
    rounded = np.round(rotations)
    return np.asarray(np.where(np.abs(rotations - rounded) < 1e-9, rounded, rotations))


_THIRD = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # x to y to z


def under_element(pose: Pose, rotation: Array, center: Array) -> Pose:
    """Return the pose in which a body looks the same, by a symmetry element [3, 3] about `center` [3] m."""
    oriented = pose.rotation @ rotation.T
    return Pose(oriented, pose.translation - oriented @ offsets(rotation, center))


def nearest_element(pose: Pose, other: Pose, rotations: Array) -> int:
    """Return which symmetry element of rotations [G, 3, 3] brings `pose` nearest to the rotation of the other one."""
    return int(np.argmax(np.einsum("ij,gij->g", other.rotation.T @ pose.rotation, rotations)))


def offsets(rotations: Array, center: Array) -> Array:
    """Return the offsets [..., 3] of rotations [..., 3, 3] about `center` [3]: x -> rotation @ x + offset."""
    return np.asarray(center - rotations @ center)
