"""The named points of a body that the network learns to see."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import quat_from_matrix, rotvec_from_quat
from vid2phys.risp.shape.surface import surface_points
from vid2phys.risp.shape.symmetry import Symmetry
from vid2phys.types import Array, Mesh

COUNT, MOST = 12, 24  # points where the group allows any number, and about as many as a small network has maps for
_CANDIDATES = 6000
_FEW = 600  # candidates for groups of many turns
_LEAST_APART = 0.12  # of the body's radius: points closer than this do not add to a pose
_SPINNING = re.compile(r"prop(?!ert)|rotor(?!_?mount)|blade|wheel", re.IGNORECASE)


@dataclass(frozen=True)
class Keypoints:
    """points_body: [K, 3] m. permutation: [G, K], rotations[g] turns points[k] to points[permutation[g, k]]."""

    points_body: Array
    permutation: NDArray[np.int64]


def choose_keypoints(mesh: Mesh, symmetry: Symmetry, count: int | None = None) -> Keypoints:
    """Well spread points on the surface, closed under the symmetry's turns.

    Under turns about one axis (or none): `count` points (default: 12, or what the group needs). Whole orbits of G
    points are chosen one after another, each as far as possible from all points before it and its own points apart; a
    remainder is filled with points on the axis. Under a group of several axes: whole orbits, as many as fit in 24
    points (`count` is the most there may be), those on the axes, which are small, among them: a cube's 8 corners and 12
    edges. Parts named as propellers and the like are avoided where the rest is large enough: their points would spin.
    Raises ValueError when `count` < G under a single axis.
    """
    about = replace(mesh, vertices=mesh.vertices - symmetry.center)
    if symmetry.order > 1 and symmetry.axis is None:
        points = _orbits(about, symmetry, count or MOST)
        permutation = permutation_of(points, symmetry.rotations)
    else:
        points, permutation = _about_one_axis(about, symmetry, count or _count(symmetry))
    return Keypoints(points + symmetry.center, permutation)


def permutation_of(points: Array, rotations: Array) -> NDArray[np.int64]:
    """[G, K] with rotations[g] @ points[k] = points[permutation[g, k]], for points [K, 3] closed under [G, 3, 3]."""
    from scipy.spatial import cKDTree

    _, index = cKDTree(points).query(points @ np.swapaxes(rotations, -1, -2))
    return np.asarray(index, dtype=np.int64)


def _count(symmetry: Symmetry) -> int:
    """12 points, or one orbit with both ends of the axis."""
    return COUNT if symmetry.order < COUNT else symmetry.order + 2


def _about_one_axis(mesh: Mesh, symmetry: Symmetry, count: int) -> tuple[Array, NDArray[np.int64]]:
    order = symmetry.order
    if count < order:
        raise ValueError(f"{count} keypoints cannot be closed under {order} turns")
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
    """Orbits under a group of several axes: points that are far out, apart from each other and from those before."""
    candidates = _special(mesh, symmetry)
    candidates = candidates[np.argsort(-np.round(np.linalg.norm(candidates, axis=1), 6), kind="stable")]
    reach = np.linalg.norm(candidates, axis=1).max()
    orbits = [_distinct(symmetry.rotations @ point, 1e-6 * reach) for point in candidates]
    chosen = np.zeros((0, 3))
    while True:
        spread = np.array([_spread(orbit, chosen) if len(chosen) + len(orbit) <= most else 0.0 for orbit in orbits])
        # Points differ by what samples leave to chance: of those about as good, the one farthest out.
        best = int(np.argmax(spread > 0.97 * spread.max()))
        if (spread[best] < _LEAST_APART * reach and len(chosen) >= COUNT // 2) or spread[best] == 0.0:
            return chosen
        chosen = np.concatenate([chosen, orbits[best]])


def _special(mesh: Mesh, symmetry: Symmetry) -> Array:
    """Candidates [N, 3]: points of the surface and corners of the mesh, and where the group's axes leave the body."""
    points = _candidates(mesh)
    corners = mesh.vertices[np.unique(mesh.faces)]
    corners = corners[np.argsort(-np.linalg.norm(corners, axis=1), kind="stable")[:_FEW]]
    spread = points[:: max(1, len(points) // _FEW)]
    turns = rotvec_from_quat(quat_from_matrix(symmetry.rotations[1:]))
    axes = _distinct(turns / np.linalg.norm(turns, axis=1, keepdims=True), 1e-6)
    ends = []
    for axis in np.concatenate([axes, -axes]):
        along = points @ axis
        aside = np.linalg.norm(points - along[:, None] * axis, axis=1)
        near = along[(along > 0.0) & (aside < 0.05 * np.linalg.norm(points, axis=1).max())]
        # the surface may end in a point there, which no sample hits
        ends.append(axis * max(near.max(initial=0.0), _hit(mesh, axis)))
    near_axis = np.array(ends)
    return np.concatenate([near_axis[np.linalg.norm(near_axis, axis=1) > 0.0], corners, spread])


def _hit(mesh: Mesh, axis: Array) -> float:
    """Distance to the farthest triangle that a ray from the origin meets, else 0 (Moeller and Trumbore 1997)."""
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
    """Points [N, 3] without repetitions, in order."""
    gap = np.linalg.norm(points[:, None] - points[None], axis=-1)
    first = (gap < apart).argmax(axis=1)
    return np.asarray(points[np.unique(first)])


def _spread(orbit: Array, chosen: Array) -> float:
    """The least of the distances from the middle, between the orbit's points, and to the points chosen before."""
    gap = np.linalg.norm(orbit[0] - np.concatenate([orbit[1:], chosen, np.zeros((1, 3))]), axis=1)
    return float(gap.min())


def _candidates(mesh: Mesh) -> Array:
    points, faces = surface_points(mesh, _CANDIDATES, seed=3)
    spinning = np.array([bool(_SPINNING.search(name)) for name in mesh.part_names])[mesh.part[faces]]
    still = points[~spinning]
    reach = np.linalg.norm(still, axis=1).max() if len(still) else 0.0
    return still if reach > 0.5 * np.linalg.norm(points, axis=1).max() else points


def _best(orbits: Array, chosen: Array) -> int:
    """The orbit [G, 3] whose points are farthest from those chosen and from each other; the first: from the middle."""
    first = orbits[:, 0]
    spread = np.linalg.norm(first, axis=1)
    for turned in np.moveaxis(orbits, 1, 0)[1:]:
        spread = np.minimum(spread, np.linalg.norm(turned - first, axis=1))
    for point in chosen:
        spread = np.minimum(spread, np.linalg.norm(first - point, axis=1))
    return int(np.argmax(spread))


def _orbit_permutation(order: int, orbits: int) -> NDArray[np.int64]:
    """Point g of an orbit is rotations[g] @ point 0, so turn h takes g to g + h."""
    inside = (np.arange(order)[:, None] + np.arange(order)[None, :]) % order
    return np.concatenate([inside + order * i for i in range(orbits)], axis=1)


def _on_axis(candidates: Array, symmetry: Symmetry, count: int) -> Array:
    """`count` points of the axis between the body's two ends."""
    axis = symmetry.axis
    assert axis is not None  # with G = 1 there is no remainder
    along = candidates @ axis
    ends = np.linspace(along.max(), along.min(), count) if count > 1 else np.array([along.max()])
    return np.asarray(ends[:, None] * axis)
