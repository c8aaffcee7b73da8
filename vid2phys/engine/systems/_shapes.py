"""Shapes of rigid bodies in contact: what touches, and the mass properties of uniform density."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import numpy as np

from vid2phys.errors import UsageError
from vid2phys.types import Array, Mesh

_FLAT = 1e-6  # points this near to a face, as a share of the body's reach, lie in it
_ROUND = 1e-6  # of the reach squared: products of inertia per mass below this are rounding
_SHARP = 1e-4  # rad that the angles about a corner are short of 2 pi: less is a point of a face or edge, rounded
_NO_VOLUME = 1e-9  # of the cube of the size
_BALL = 5e-3  # of the radius: facets of a ball lie this deep
_STIFFEST = 24  # faces of a hull that are kept for the longest step


class Shape(ABC):
    """A body's shape about its centre of mass, along its principal axes of inertia.

    points: [K, 3] m, what touches surfaces. radius: of a ball about each of them, m. volume: m^3. inertia_per_mass: [3]
    m^2, principal moments at uniform density. origin: [3] m, axes: [3, 3], the centre of mass and (columns) the
    principal axes in the axes in which the user gives points and meshes; `mesh` is the body's own one, in those too.
    """

    origin: Array = np.zeros(3)
    axes: Array = np.eye(3)
    mesh: Mesh | None = None

    points: Array
    radius: float
    volume: float
    inertia_per_mass: Array

    @abstractmethod
    def faces(self) -> list[tuple[Array, Array]]:
        """Return faces that the body can lie on: the outward normal [3] of each and the points [k, 3] m that touch."""

    @property
    def reach(self) -> float:
        """Return the largest distance of any part from the centre [m]."""
        return float(np.linalg.norm(self.points, axis=1).max()) + self.radius


class Sphere(Shape):
    """A ball. Raises UsageError for a radius that is not positive."""

    def __init__(self, radius: float) -> None:
        _require_positive("sphere's radius", [radius])
        self.points, self.radius = np.zeros((1, 3)), float(radius)
        self.volume = 4.0 / 3.0 * np.pi * self.radius**3
        self.inertia_per_mass = np.full(3, 0.4 * self.radius**2)

    @classmethod
    def of_mesh(cls, mesh: Mesh) -> Sphere | None:
        """Return a ball of a mesh's volume, None for a mesh that is no solid ball to within `_BALL` of its radius."""
        from vid2phys.io.mesh import mass_properties

        hull = _convex_hull(mesh.vertices)
        center, corners = np.asarray(hull.center_mass), np.asarray(hull.vertices)
        depth = (hull.face_normals * (hull.triangles_center - center)).sum(axis=1).min()
        if depth < (1.0 - _BALL) * np.linalg.norm(corners - center, axis=1).max():
            return None
        if mass_properties(mesh).volume < (1.0 - _BALL) * hull.volume:
            return None
        body = cls(float(np.cbrt(0.75 * hull.volume / np.pi)))
        body.origin, body.mesh = center, mesh
        return body

    def faces(self) -> list[tuple[Array, Array]]:
        """See `Shape.faces`: one along each axis, since moments of inertia may differ."""
        return [(axis, self.radius * axis[None]) for axis in np.eye(3)]


class Box(Shape):
    """A box with half its sides along x, y and z [m]; points of its surface touch, `points_per_edge` squared a face.

    Two are its corners, which is all that planes, balls and larger boxes need. Boxes of about the same size on top of
    each other need more (4): a corner beyond the other's side finds nothing, one right at it is pushed sideways.
    Raises UsageError for sides that are not positive and less than two points.
    """

    def __init__(self, half_extents: Sequence[float], points_per_edge: int = 2) -> None:
        _require_positive("box's half extents", half_extents, count=3)
        if points_per_edge < 2:
            raise UsageError(f"{points_per_edge} points an edge", "2 or more", "leave points_per_edge out")
        self.half_extents = np.asarray(half_extents, dtype=float)
        grid = np.array(list(product(np.linspace(-1.0, 1.0, points_per_edge), repeat=3)))
        self.points = grid[np.abs(grid).max(axis=1) == 1.0] * self.half_extents
        self.radius, self.volume = 0.0, float(8.0 * np.prod(self.half_extents))
        self.inertia_per_mass = (np.square(self.half_extents).sum() - np.square(self.half_extents)) / 3.0

    def faces(self) -> list[tuple[Array, Array]]:
        """See `Shape.faces`."""
        axes = (*np.eye(3), *-np.eye(3))
        return [(axis, self.points[self.points @ axis == np.abs(axis) @ self.half_extents]) for axis in axes]


class Points(Shape):
    """Any body by its points of contact [K, 3] m, its origin being its centre of mass.

    Volume [m^3] and inertia per mass [3] m^2 are those of the points' convex hull unless given; `of_mesh` takes all of
    them from a mesh. Raises UsageError for points that span no volume.
    """

    def __init__(self, points: Array, *, volume: float | None = None, inertia_per_mass: Array | None = None) -> None:
        self.points, self.radius = np.asarray(points, dtype=float).reshape(-1, 3), 0.0
        self._hull = _convex_hull(self.points)
        self.volume = float(self._hull.volume) if volume is None else volume
        own = self._hull.moment_inertia.diagonal() / self._hull.volume if inertia_per_mass is None else inertia_per_mass
        self.inertia_per_mass = np.asarray(own, dtype=float)

    @classmethod
    def of_mesh(cls, mesh: Mesh, most: int | None = None) -> Points:
        """Return a body by the vertices of its mesh, wherever the mesh has its origin and however it is turned.

        The body's frame is the mesh's, moved to the centre of mass and turned by as little as makes its axes principal
        ones; keypoints and meshes stay in the axes of the mesh. most: touch with the corners of the convex hull only
        (all that a plane can meet), `most` of them at most, spread evenly: a ball of 256 is flattened by 1 % of its
        radius. Mass properties are those of `io.mesh.mass_properties`.
        """
        from vid2phys.io.mesh import mass_properties

        points = mesh.vertices if most is None else _outermost(mesh.vertices, most)
        properties = mass_properties(mesh)
        reach = float(np.linalg.norm(mesh.vertices - properties.center_of_mass, axis=1).max())
        axes = _principal_axes(properties.inertia_per_mass, _ROUND * reach**2)
        body = cls(
            (points - properties.center_of_mass) @ axes,
            volume=properties.volume,
            inertia_per_mass=np.diagonal(axes.T @ properties.inertia_per_mass @ axes).copy(),
        )
        body.origin, body.axes, body.mesh = properties.center_of_mass, axes, mesh
        return body

    def faces(self) -> list[tuple[Array, Array]]:
        """See `Shape.faces`: those of the hull with the most points, which are the stiffest."""
        normals = np.unique(np.round(self._hull.face_normals, 9), axis=0)
        heights = self.points @ normals.T
        lying = heights > heights.max(axis=0) - _FLAT * self.reach
        order = np.argsort(-lying.sum(axis=0), kind="stable")[:_STIFFEST]
        return [(normals[i], self.points[lying[:, i]]) for i in order]


def _convex_hull(points: Array) -> Any:
    """Return the hull as a trimesh."""
    import trimesh
    from scipy.spatial import QhullError

    try:
        if not np.isfinite(points).all():
            raise ValueError("not finite")
        hull = trimesh.convex.convex_hull(points)
        if hull.volume <= _NO_VOLUME * np.ptp(points, axis=0).max() ** 3:
            raise ValueError("flat")
        return hull
    except (QhullError, ValueError, IndexError) as error:
        raise UsageError(
            f"{len(points)} points of contact that span no volume",
            "finite points that are not in one plane",
            "give the vertices of a solid body",
        ) from error


def _principal_axes(inertia: Array, rounding: float) -> Array:
    """Return the principal axes [3, 3] (columns, right-handed), turned by as little as can be."""
    if np.abs(inertia - np.diag(np.diagonal(inertia))).max() <= rounding:
        return np.eye(3)
    found = np.linalg.eigh(inertia)[1]
    signed = [found[:, order] * signs for order in permutations(range(3)) for signs in product((1.0, -1.0), repeat=3)]
    return max((axes for axes in map(np.asarray, signed) if np.linalg.det(axes) > 0.0), key=np.trace)


def _outermost(points: Array, most: int) -> Array:
    """Return the corners of the convex hull, `most` at most: each the farthest from those before it."""
    hull = _convex_hull(points)
    sharp = hull.vertex_defects > min(_SHARP, 0.4 * np.pi / len(hull.vertices))  # 4 pi is what all share
    corners = np.asarray(hull.vertices[sharp], dtype=float)
    if len(corners) <= most:
        return corners
    kept = [int(np.linalg.norm(corners - corners.mean(axis=0), axis=1).argmax())]
    distance = np.full(len(corners), np.inf)
    while len(kept) < most:
        distance = np.minimum(distance, np.linalg.norm(corners - corners[kept[-1]], axis=1))
        kept.append(int(distance.argmax()))
    return corners[kept]


def _require_positive(what: str, values: Sequence[float], count: int = 1) -> None:
    if len(values) != count or not all(np.isfinite(v) and v > 0.0 for v in values):
        given = ", ".join(f"{v:g}" for v in values)
        raise UsageError(f"a {what} of {given} m", f"{count} positive number(s)", "correct it")
