"""Near-symmetries of a body: turns that a picture can hardly tell from no turn.

Every quadrotor looks almost the same after a quarter turn. Training against the nearest of the symmetric answers,
instead of the one label, decides whether a small network learns rotation at all (`docs/design.md`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.rotations import matrix_from_rotvec
from vid2phys.types import Array, Mesh

TOLERANCE = 0.04
_ORDERS = (6, 5, 4, 3, 2)
_PROBES, _SURFACE = 1000, 20_000


@dataclass(frozen=True)
class Symmetry:
    """A cyclic group of turns about one axis through the body origin.

    rotations: [G, 3, 3], rotations[0] is the identity, rotations[g] turns by g / G of a full turn.
    exactness: [G], mean distance between the turned surface and the surface, in body radii; 0 is exact.
    """

    rotations: Array
    exactness: Array

    @property
    def order(self) -> int:
        """G, 1 when the body has no symmetry."""
        return len(self.rotations)

    @property
    def axis(self) -> Array | None:
        """[3] unit vector, None without symmetry."""
        from vid2phys.rotations import quat_from_matrix, rotvec_from_quat

        if self.order == 1:
            return None
        turn = rotvec_from_quat(quat_from_matrix(self.rotations[1]))
        return np.asarray(turn / np.linalg.norm(turn))


def find_symmetry(mesh: Mesh, tolerance: float = TOLERANCE) -> Symmetry:
    """The largest cyclic group, about a body axis or principal axis, whose turns move the surface by less than
    `tolerance` body radii in the mean; of groups of one size the most exact. The identity alone when there is none.
    """
    surface = _Surface(mesh)
    good = [
        group
        for axis in _axes(mesh)
        for order in _ORDERS
        if surface.mismatch(matrix_from_rotvec(2.0 * np.pi / order * axis)) < tolerance
        if (group := _group(axis, order, surface)).exactness.max() < tolerance
    ]
    none = Symmetry(np.eye(3)[None], np.zeros(1))
    return max(good, key=lambda g: (g.order, -round(float(g.exactness.max()), 3)), default=none)


def surface_points(mesh: Mesh, count: int, seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Points spread over the surface by area, [count, 3] m, and the faces they lie on, [count]."""
    rng = np.random.default_rng(seed)
    corners = mesh.vertices[mesh.faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    # Stratified: the same share of points as of area, whatever the seed.
    at = (np.arange(count) + rng.random(count)) / count
    faces = np.searchsorted(np.cumsum(area) / area.sum(), at).clip(max=len(area) - 1)
    u, v = rng.random((2, count, 1))
    flip = u + v > 1.0
    u, v = np.where(flip, 1.0 - u, u), np.where(flip, 1.0 - v, v)
    a, b, c = np.moveaxis(corners[faces], 1, 0)
    return a + u * (b - a) + v * (c - a), faces.astype(np.int64)


class _Surface:
    """Distance from points to the surface, in radii."""

    def __init__(self, mesh: Mesh) -> None:
        from scipy.spatial import cKDTree

        self.radius = float(np.linalg.norm(mesh.vertices, axis=1).max())
        self.probes, _ = surface_points(mesh, _PROBES, seed=1)
        self._tree = cKDTree(surface_points(mesh, _SURFACE, seed=2)[0])
        self._floor = self._distance(self.probes)  # of the samples, not of the body

    def mismatch(self, rotation: Array) -> float:
        """Mean distance between the turned surface and the surface."""
        both = 0.5 * (self._distance(self.probes @ rotation.T) + self._distance(self.probes @ rotation))
        return max(0.0, both - self._floor) / self.radius

    def _distance(self, points: Array) -> float:
        return float(self._tree.query(points)[0].mean())


def _group(axis: Array, order: int, surface: _Surface) -> Symmetry:
    rotations = matrix_from_rotvec(np.arange(order)[:, None] * (2.0 * np.pi / order) * axis)
    half = order // 2  # the turn by -a fits exactly as well as that by a
    mismatch = [0.0] + [surface.mismatch(rotations[g]) for g in range(1, half + 1)]
    exactness = np.array([mismatch[min(g, order - g)] for g in range(order)])
    return Symmetry(_clean(rotations), exactness)


def _clean(rotations: Array) -> Array:
    """Quarter and half turns about body axes get exact zeros and ones."""
    rounded = np.round(rotations)
    return np.where(np.abs(rotations - rounded) < 1e-12, rounded, rotations)


def _axes(mesh: Mesh) -> list[Array]:
    """Body axes (z first), then the principal axes that are not among them."""
    axes = [np.array(a) for a in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0])]
    points, _ = surface_points(mesh, _SURFACE, seed=2)
    _, vectors = np.linalg.eigh(np.cov(points.T))
    for axis in vectors.T:
        if max(abs(float(axis @ known)) for known in axes) < np.cos(np.deg2rad(3.0)):
            axes.append(axis)
    return axes
