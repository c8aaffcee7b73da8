"""Choose the keypoints of a body: farthest points on its surface (Gonzalez 1985), closed under its symmetry.

Limits: points lie on the surface or on a symmetry axis; parts that spin are recognised by their names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import quat_from_matrix, rotvec_from_quat
from vid2phys.risp.shape.surface import surface_points
from vid2phys.risp.shape.symmetry import Symmetry
from vid2phys.types import Array, Mesh

COUNT, MOST = 12, 24  # default number of points, and the most that a small network has maps for
_CANDIDATES = 6000
_FEW = 600  # candidates for groups with several axes
_LEAST_APART = 0.12  # of the body's radius: points closer than this do not add to a pose
_SPINNING = re.compile(r"prop(?!ert)|rotor(?!_?mount)|blade|wheel", re.IGNORECASE)


@dataclass(frozen=True)
class Keypoints:
    """Keypoints of a body.

    Attributes:
        points_body: [K, 3], m.
        permutation: [G, K]; rotations[g] takes points[k] to points[permutation[g, k]].
    """

    points_body: Array
    permutation: NDArray[np.int64]


def choose_keypoints(mesh: Mesh, symmetry: Symmetry, count: int | None = None) -> Keypoints:
    """Choose well spread points on the surface, closed under the symmetry group of order G.

    A group with one axis, or none, gets whole orbits of G points. Each orbit is as far as possible from all points
    before it, and its own points are apart. Points on the axis fill the remainder. A group with several axes gets whole
    orbits too, small ones on the axes among them, such as a cube's 8 corners and 12 edges. Parts with the name of a
    propeller or wheel are avoided where the rest is large enough, since their points would spin.

    Args:
        mesh: The mesh, m.
        symmetry: Its symmetry group.
        count: Number of points with one axis (default: 12, or what the group needs); the most with several axes
            (default: 24).

    Raises:
        ValueError: `count` < G under a single axis.
    """
    about = replace(mesh, vertices=mesh.vertices - symmetry.center)
    if symmetry.order > 1 and symmetry.axis is None:
        points = _orbits(about, symmetry, count or MOST)
        permutation = permutation_of(points, symmetry.rotations)
    else:
        points, permutation = _about_one_axis(about, symmetry, count or _count(symmetry))
    return Keypoints(points + symmetry.center, permutation)


def permutation_of(points: Array, rotations: Array) -> NDArray[np.int64]:
    """Return [G, K] with rotations[g] @ points[k] = points[permutation[g, k]], for points closed under the group."""
    from scipy.spatial import cKDTree

    _, index = cKDTree(points).query(points @ np.swapaxes(rotations, -1, -2))
    return np.asarray(index, dtype=np.int64)


def _count(symmetry: Symmetry) -> int:
    """Return 12 points, or one orbit with both ends of the axis."""
    return COUNT if symmetry.order < COUNT else symmetry.order + 2


def _about_one_axis(mesh: Mesh, symmetry: Symmetry, count: int) -> tuple[Array, NDArray[np.int64]]:
    """Choose points [K, 3] and their permutation [G, K] under a group with one axis, or none."""
    order = symmetry.order
    if count < order:
        raise ValueError(f"{count} keypoints cannot be closed under {order} rotations")
    candidates = _candidates(mesh)
    orbits = np.einsum("gij,nj->ngi", symmetry.rotations, candidates)
    chosen = np.zeros((0, 3))
    for _ in range(count // order):
        chosen = np.concatenate([chosen, orbits[_best(orbits, chosen)]])
    permutation = [_orbit_permutation(order, count // order)]
    remainder = count - len(chosen)
    if remainder:
        chosen = np.concatenate([chosen, _on_axis(candidates, symmetry, remainder)])
        fixed = np.arange(count - remainder, count)
        permutation.append(np.broadcast_to(fixed, (order, remainder)))
    return chosen, np.concatenate(permutation, axis=1).astype(np.int64)


def _orbits(mesh: Mesh, symmetry: Symmetry, most: int) -> Array:
    """Choose orbits under a group with several axes: far out, and apart from each other."""
    candidates = _special(mesh, symmetry)
    candidates = candidates[np.argsort(-np.round(np.linalg.norm(candidates, axis=1), 6), kind="stable")]
    reach = np.linalg.norm(candidates, axis=1).max()
    orbits = [_distinct(symmetry.rotations @ point, 1e-6 * reach) for point in candidates]
    chosen = np.zeros((0, 3))
    while True:
        spread = np.array([_spread(orbit, chosen) if len(chosen) + len(orbit) <= most else 0.0 for orbit in orbits])
        # Samples are random: of almost equally good points take the one farthest out.
        best = int(np.argmax(spread > 0.97 * spread.max()))
        if (spread[best] < _LEAST_APART * reach and len(chosen) >= COUNT // 2) or spread[best] == 0.0:
            return chosen
        chosen = np.concatenate([chosen, orbits[best]])


def _special(mesh: Mesh, symmetry: Symmetry) -> Array:
    """Return candidates [N, 3]: points of the surface, corners of the mesh, and the ends of the group's axes."""
    points = _candidates(mesh)
    corners = mesh.vertices[np.unique(mesh.faces)]
    corners = corners[np.argsort(-np.linalg.norm(corners, axis=1), kind="stable")[:_FEW]]
    spread = points[:: max(1, len(points) // _FEW)]
    rotvecs = rotvec_from_quat(quat_from_matrix(symmetry.rotations[1:]))
    axes = _distinct(rotvecs / np.linalg.norm(rotvecs, axis=1, keepdims=True), 1e-6)
    ends = []
    for axis in np.concatenate([axes, -axes]):
        along = points @ axis
        aside = np.linalg.norm(points - along[:, None] * axis, axis=1)
        near = along[(along > 0.0) & (aside < 0.05 * np.linalg.norm(points, axis=1).max())]
        # no sample hits a tip of the surface on the axis
        ends.append(axis * max(near.max(initial=0.0), _hit(mesh, axis)))
    near_axis = np.array(ends)
    return np.concatenate([near_axis[np.linalg.norm(near_axis, axis=1) > 0.0], corners, spread])


def _hit(mesh: Mesh, axis: Array) -> float:
    """Return the distance to the farthest triangle on a ray from the origin, else 0 (Moeller and Trumbore 1997)."""
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces], 1, 0)
    p = np.cross(axis, c - a)
    determinant = ((b - a) * p).sum(axis=1)
    flat = np.abs(determinant) < 1e-15
    inverse = 1.0 / np.where(flat, 1.0, determinant)
    u = (-a * p).sum(axis=1) * inverse
    q = np.cross(-a, b - a)
    v, distance = (q @ axis) * inverse, ((c - a) * q).sum(axis=1) * inverse
    inside = ~flat & (u > -1e-6) & (v > -1e-6) & (u + v < 1.0 + 1e-6) & (distance > 0.0)
    return float(distance[inside].max(initial=0.0))


def _distinct(points: Array, apart: float) -> Array:
    """Return points [N, 3] without repetitions, in order."""
    gap = np.linalg.norm(points[:, None] - points[None], axis=-1)
    first = (gap < apart).argmax(axis=1)
    return np.asarray(points[np.unique(first)])


def _spread(orbit: Array, chosen: Array) -> float:
    """Return the least distance of an orbit's point from the centre, the orbit's others, and chosen points."""
    gap = np.linalg.norm(orbit[0] - np.concatenate([orbit[1:], chosen, np.zeros((1, 3))]), axis=1)
    return float(gap.min())


def _candidates(mesh: Mesh) -> Array:
    """Return points [N, 3] on the surface, without spinning parts where the rest is large enough."""
    points, faces = surface_points(mesh, _CANDIDATES, seed=3)
    spinning = np.array([bool(_SPINNING.search(name)) for name in mesh.part_names])[mesh.part[faces]]
    still = points[~spinning]
    reach = np.linalg.norm(still, axis=1).max() if len(still) else 0.0
    return still if reach > 0.5 * np.linalg.norm(points, axis=1).max() else points


def _best(orbits: Array, chosen: Array) -> int:
    """Return the index of the orbit that is farthest from the centre, the chosen points, and itself."""
    first = orbits[:, 0]
    spread = np.linalg.norm(first, axis=1)
    for rotated in np.moveaxis(orbits, 1, 0)[1:]:
        spread = np.minimum(spread, np.linalg.norm(rotated - first, axis=1))
    for point in chosen:
        spread = np.minimum(spread, np.linalg.norm(first - point, axis=1))
    return int(np.argmax(spread))


def _orbit_permutation(order: int, orbits: int) -> NDArray[np.int64]:
    """Return the permutation of cyclic orbits: point g is rotations[g] @ point 0, so element h takes g to g + h."""
    inside = (np.arange(order)[:, None] + np.arange(order)[None, :]) % order
    return np.concatenate([inside + order * i for i in range(orbits)], axis=1)


def _on_axis(candidates: Array, symmetry: Symmetry, count: int) -> Array:
    """Return `count` points of the axis between the body's two ends."""
    axis = symmetry.axis
    assert axis is not None  # with G = 1 there is no remainder
    along = candidates @ axis
    ends = np.linspace(along.max(), along.min(), count) if count > 1 else np.array([along.max()])
    return np.asarray(ends[:, None] * axis)
