"""The named points of a body that the network learns to see."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.symmetry import Symmetry, surface_points
from vid2phys.types import Array, Mesh

_CANDIDATES = 6000
_SPINNING = re.compile(r"prop(?!ert)|rotor(?!_?mount)|blade|wheel", re.IGNORECASE)


@dataclass(frozen=True)
class Keypoints:
    """points_body: [K, 3] m. permutation: [G, K], rotations[g] @ points[k] == points[permutation[g, k]]."""

    points_body: Array
    permutation: NDArray[np.int64]


def choose_keypoints(mesh: Mesh, symmetry: Symmetry, count: int = 12) -> Keypoints:
    """`count` well spread points on the surface, closed under the symmetry's turns.

    Whole orbits of G points are chosen one after another, each as far as possible from all points before it and
    its own points apart; a remainder is filled with points on the axis. Parts named as propellers and the like are
    avoided where the rest is large enough: their points would spin. Raises ValueError when `count` < G.
    """
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
    return Keypoints(chosen, np.concatenate(permutation, axis=1).astype(np.int64))


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
