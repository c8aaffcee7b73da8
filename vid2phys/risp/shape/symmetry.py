"""Find the symmetry group of a body, exact or near: rotations that an image cannot tell, or hardly tells.

A quadrotor looks almost the same after 90 degrees, and a plain cube the same in 24 poses. A small network learns
rotations only if training compares with the nearest of the symmetric answers in place of one label
(`docs/decisions/011-symmetries.md`).

Rotations about the body's origin and about its surface's centroid are tried, since every exact axis contains the
centroid. The origin stays where the body is as symmetric about it. Axes come from a search over all rotations with
iterated closest points (Besl and McKay 1992); pairs of axes give the finite groups that are tried.

Limits: a body of revolution gets 12 rotations, a ball the 60 of the icosahedron. No image shows the difference.
`visible_freedoms` tells such bodies from others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vid2phys.engine.pose_geometry import rotation_grid
from vid2phys.geometry import matrix_from_rotvec, quat_from_matrix, rotvec_from_quat, skew
from vid2phys.io.faces import face_areas
from vid2phys.risp.shape import rotation_groups
from vid2phys.risp.shape.surface import RotatedSurface, SurfaceColor, part_color, surface_points, texture_color
from vid2phys.types import Array, Mesh

TOLERANCE = 0.04
EXACT = 2e-3  # body radii; samples cannot measure less, and images do not show it
AXIAL_ORDER = 12
_AXIAL = 0.01  # a third of a pixel of the virtual camera
# Angles that are multiples of no simple fraction of a circle.
_GENERIC_ANGLES = 2.0 * np.pi * np.array([0.0827, 0.1931, 0.3779, 0.4566])
_ORDERS = (12, 10, 9, 8, 7, 6, 5, 4, 3, 2)
_MOST_NEAR = 6  # largest order of rotations that are not exact
_CLOSE = 0.006  # mismatch of an exact rotation about a slightly wrong axis
_ROUGH = 0.01  # error of the distance field
_PARALLEL = np.deg2rad(3.0)
_APART = np.deg2rad(20.0)  # axes of revolution closer than this are one axis, found inexactly
_GRID, _STARTS, _STEPS, _PROBES = 4096, 96, 10, 250
_MOST_AXES = 24


@dataclass(frozen=True)
class Symmetry:
    """A finite group of rotations about a point of the body.

    Attributes:
        rotations: [G, 3, 3], the identity first. In a cyclic group rotations[g] rotates by g / G of a full circle.
        exactness: [G] mean distance of the rotated surface from the surface, in body radii; 0 is exact.
        center: [3] fixed point, m: x -> rotations[g] @ (x - center) + center.
    """

    rotations: Array
    exactness: Array
    center: Array = field(default_factory=lambda: np.zeros(3))

    @property
    def order(self) -> int:
        """Return G, 1 for a body without symmetry."""
        return len(self.rotations)

    def rotated(self, points: Array) -> Array:
        """Return points [..., N, 3] m rotated by every element, [..., G, N, 3]."""
        about = np.asarray(points)[..., None, :, :] - self.center
        return about @ np.swapaxes(self.rotations, -1, -2) + self.center

    @property
    def exact(self) -> bool:
        """Return whether no image can tell the elements apart."""
        return bool(self.exactness.max() < EXACT)

    @property
    def axis(self) -> Array | None:
        """Return the axis [3] of a cyclic group, None for other groups and without symmetry."""
        if self.order == 1:
            return None
        rotvecs = rotvec_from_quat(quat_from_matrix(self.rotations[1:]))
        axes = rotvecs / np.linalg.norm(rotvecs, axis=1, keepdims=True)
        return axes[0] if np.abs(axes @ axes[0]).min() > 1.0 - 1e-9 else None


def find_symmetry(mesh: Mesh, tolerance: float = TOLERANCE, *, color: SurfaceColor | None = None) -> Symmetry:
    """Return the largest symmetry group of a mesh; of groups of one size the most exact one.

    Args:
        mesh: The mesh, m.
        tolerance: Largest mean distance of the rotated surface from the surface, in body radii. It is half as large for
            groups with several axes: a flat body nearly matches itself upside down, but looks different from below.
        color: Colour of the surface, which has to agree as well; None takes the mesh's texture, if there is one.
    """
    if color is None and mesh.texture is not None:
        color = texture_color(mesh)
    origin = np.zeros(3)
    best = _about(mesh, origin, tolerance, color)
    centroid = _centroid(mesh)
    if np.linalg.norm(centroid) > EXACT * mesh.radius_m:
        other = _about(mesh, centroid, tolerance, color)
        if other.order > best.order:
            return other
    return best


def visible_freedoms(mesh: Mesh) -> int:
    """Return how many of the six degrees of freedom of its pose an image of a mesh shows.

    A ball shows its position: 3. A body of revolution hides the rotation about its axis: 5. All others show 6, up to
    the elements of `find_symmetry`. A texture, and parts that may differ in colour, make a rotation visible. A ball
    whose colours alone have an axis counts as 6 where that axis is none of the body's.
    """
    return {0: 6, 1: 5}.get(len(axes_of_revolution(mesh)), 3)


def axes_of_revolution(mesh: Mesh) -> list[Array]:
    """Return the axes [3] about which any rotation leaves a mesh as it is: none, one, or for a ball two of all.

    They pass through the centroid of the surface.
    """
    color = texture_color(mesh) if mesh.texture is not None else part_color(mesh) if len(mesh.part_names) > 1 else None
    axes = _Search(RotatedSurface(mesh, _centroid(mesh), color), TOLERANCE).axes_of_revolution()
    others = [axis for axis in axes if abs(float(axis @ axes[0])) <= np.cos(_APART)]
    return [*axes[:1], *others[:1]]


def _centroid(mesh: Mesh) -> Array:
    area = face_areas(mesh.vertices, mesh.faces)
    return np.asarray(area @ mesh.vertices[mesh.faces].mean(axis=1) / area.sum())


def _about(mesh: Mesh, center: Array, tolerance: float, color: SurfaceColor | None) -> Symmetry:
    """Return the largest group about a point [3] that contains the largest exact group."""
    surface = RotatedSurface(mesh, center, color)
    found = [Symmetry(r, e, center) for r, e in _Search(surface, tolerance).groups()]
    exact = max((s for s in found if s.exact), key=_rank, default=Symmetry(np.eye(3)[None], np.zeros(1), center))
    return max((s for s in found if _contains(s.rotations, exact.rotations)), key=_rank, default=exact)


def _rank(symmetry: Symmetry) -> tuple[int, float]:
    return symmetry.order, -round(float(symmetry.exactness.max()), 3)


def _contains(group: Array, part: Array) -> bool:
    """Return whether all rotations [P, 3, 3] are in the group, to within two degrees."""
    apart = np.linalg.norm(part[:, None] - group[None], axis=(-1, -2)).min(axis=1)
    return bool(apart.max() < 0.05)


@dataclass(frozen=True)
class _Spin:
    """An axis [3] with a symmetry by 1 / order of a full circle; axial: by any angle."""

    axis: Array
    order: int
    axial: bool


class _Search:
    """The search for the groups of one surface about one point."""

    def __init__(self, surface: RotatedSurface, tolerance: float) -> None:
        self.surface, self.tolerance = surface, tolerance

    def groups(self) -> list[tuple[Array, Array]]:
        """Return rotations and exactness of the groups: the cyclic ones, and the largest of the others."""
        spins = [spin for axis in self._axes() for spin in self._spins(axis)]
        found = [self._checked(rotation_groups.cyclic(s.order), _frame(s.axis), self.tolerance) for s in spins]
        shapes = [shape for a in spins for b in spins if abs(float(a.axis @ b.axis)) < np.sin(_PARALLEL)
                  for shape in _shapes(a, b)]  # fmt: skip
        largest = 0
        for group, frame in sorted(shapes, key=lambda shape: -len(shape[0])):
            if len(group) < largest:
                break
            several = self._checked(group, frame, 0.5 * self.tolerance)
            if several is not None:
                found.append(several)
                largest = len(group) + (several[1].max() < EXACT)
        return [each for each in found if each is not None]

    def _checked(self, group: Array, frame: Array, tolerance: float) -> tuple[Array, Array] | None:
        """Return the group in the frame and its exactness; None if an element is worse than `tolerance`."""
        if self.surface.roughly(rotation_groups.in_frame(group, frame)).max() > tolerance + _ROUGH:
            return None
        rotations = rotation_groups.in_frame(group, self._polished(group, frame))
        exactness = np.zeros(len(rotations))
        inverse = np.linalg.norm(rotations[:, None] - np.swapaxes(rotations, -1, -2), axis=(-1, -2)).argmin(axis=1)
        for g in range(1, len(rotations)):
            # the inverse fits exactly as well
            exactness[g] = exactness[inverse[g]] if inverse[g] < g else self.surface.mismatch(rotations[g])
            if exactness[g] >= tolerance:
                return None
        return rotations, exactness

    def _spins(self, axis: Array) -> list[_Spin]:
        """Return the largest orders of an axis: by the tolerance, and by the accuracy of the axis."""
        if self._is_axial(axis):
            return [_Spin(axis, AXIAL_ORDER, True)]
        angles = 2.0 * np.pi / np.array(_ORDERS)
        rough = self.surface.roughly(matrix_from_rotvec(angles[:, None] * axis))
        possible = [(n, a) for n, a, r in zip(_ORDERS, angles, rough, strict=True) if r < self.tolerance + _ROUGH]
        mismatch = {n: self._mismatch(axis, angle) for n, angle in possible}
        close = [n for n, m in mismatch.items() if m < _CLOSE]
        near = [n for n, m in mismatch.items() if m < self.tolerance and n <= _MOST_NEAR]
        return [_Spin(axis, n, False) for n in sorted({*close[:1], *near[:1]})]

    def axes_of_revolution(self) -> list[Array]:
        """Return the axes [3] about which any rotation fits."""
        return [axis for axis in self._axes() if self._is_axial(axis)]

    def _is_axial(self, axis: Array) -> bool:
        """Return whether rotations by any angle about an axis fit."""
        rough = self.surface.roughly(matrix_from_rotvec(_GENERIC_ANGLES[:, None] * axis))
        if rough.max() >= _AXIAL + _ROUGH:
            return False
        return all(self._mismatch(axis, angle) < _AXIAL for angle in _GENERIC_ANGLES)

    def _mismatch(self, axis: Array, angle: float) -> float:
        return self.surface.mismatch(matrix_from_rotvec(angle * axis))

    def _axes(self) -> list[Array]:
        """Return the body axes (z first), the principal axes, and the axes that a search over all rotations finds."""
        axes = [np.array(a) for a in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0])]
        _, vectors = np.linalg.eigh(np.cov(self.surface.samples.T))
        for axis in (*vectors.T, *self._searched_axes()):
            if max(abs(float(axis @ known)) for known in axes) < np.cos(_PARALLEL) and len(axes) < _MOST_AXES:
                axes.append(axis)
        return axes

    def _searched_axes(self) -> list[Array]:
        """Return the axes of rotations that fit, best first: the best of a grid, refined by iterated closest points."""
        probes = self.surface.probes[:: len(self.surface.probes) // _PROBES]
        grid = rotation_grid(_GRID)
        grid = grid[np.trace(grid, axis1=1, axis2=2) < 1.0 + 2.0 * np.cos(np.deg2rad(25.0))]
        rotation = grid[np.argsort(self.surface.roughly(grid), kind="stable")[:_STARTS]]
        for _ in range(_STEPS):
            rotated = probes @ np.swapaxes(rotation, -1, -2)
            near, _ = self.surface.nearest(rotated)
            u, _, vt = np.linalg.svd(np.swapaxes(near, -1, -2) @ probes)
            u[..., -1] *= np.sign(np.linalg.det(u @ vt))[:, None]
            rotation = u @ vt
        rotated = probes @ np.swapaxes(rotation, -1, -2)
        distance = np.linalg.norm(rotated - self.surface.nearest(rotated)[0], axis=-1).mean(axis=-1)
        rotvecs = rotvec_from_quat(quat_from_matrix(rotation))
        angle = np.linalg.norm(rotvecs, axis=-1)
        good = [i for i in np.argsort(distance) if angle[i] > np.deg2rad(20.0) and distance[i] < 2.0 * self.tolerance]
        return [rotvecs[i] / angle[i] for i in good]

    def _polished(self, group: Array, frame: Array) -> Array:
        """Return the frame near `frame` in which the group fits best; the body's own axes stay unchanged."""
        if np.abs(frame - np.round(frame)).max() < 1e-9:
            return frame
        probes = self.surface.probes[:: len(self.surface.probes) // _PROBES]
        for _ in range(4):
            rotations = rotation_groups.in_frame(group, frame)[1:25]
            rotated = probes @ np.swapaxes(rotations, -1, -2)
            near, normal = self.surface.nearest(rotated)
            # rotating the frame by d changes R p to R p + d x (R p) - R (d x p)
            motion = np.einsum("gij,njk->gnik", rotations, skew(probes)) - skew(rotated)
            rows = np.einsum("gni,gnik->gnk", normal, motion).reshape(-1, 3)
            gap = ((near - rotated) * normal).sum(axis=-1).ravel()
            keep = np.abs(gap) < max(0.02, float(np.quantile(np.abs(gap), 0.8)))
            rows, gap = rows[keep], gap[keep]
            normal_matrix = rows.T @ rows
            normal_matrix += 1e-4 * (np.trace(normal_matrix) + 1e-9) * np.eye(3)
            step = np.linalg.solve(normal_matrix, rows.T @ gap)
            u, _, vt = np.linalg.svd((np.eye(3) + skew(step)) @ frame)
            frame = u @ vt
        return frame


def _frame(axis: Array, across: Array | None = None) -> Array:
    """Return a right-handed frame [3, 3] with columns x (towards `across`), y and z = axis."""
    if across is None:
        across = np.eye(3)[int(np.argmin(np.abs(axis)))]
    x = across - axis * (across @ axis)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(axis, x), axis], axis=1)


def _shapes(a: _Spin, b: _Spin) -> list[tuple[Array, Array]]:
    """Return the groups with several axes that may contain two perpendicular axes, each with its frame."""
    if a.axial and b.axial:
        return [(rotation_groups.icosahedral(), np.eye(3))]
    frame = _frame(a.axis, b.axis)
    if a.axial or b.axial:
        return [(rotation_groups.dihedral(a.order), frame)] if a.axial and b.order % 2 == 0 else []
    shapes = []
    if b.order % 2 == 0:
        shapes.append((rotation_groups.dihedral(a.order), frame))
    if a.order == b.order == 4:
        shapes.append((rotation_groups.octahedral(), frame))
    if a.order == b.order == 2:
        quarter = rotation_groups.in_frame(rotation_groups.icosahedral(), rotation_groups.cyclic(4)[1])
        shapes += [(rotation_groups.icosahedral(), frame), (quarter, frame), (rotation_groups.tetrahedral(), frame)]
    return shapes


__all__ = [
    "AXIAL_ORDER",
    "EXACT",
    "TOLERANCE",
    "SurfaceColor",
    "Symmetry",
    "find_symmetry",
    "surface_points",
    "visible_freedoms",
]
