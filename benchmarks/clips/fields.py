"""Shapes of the bodies of the clips that are the zero level of a function of space, by marching cubes.

Such a mesh is closed and has as many faces as its grid gives. Reference: Lorensen and Cline, "Marching cubes", SIGGRAPH
1987. Limit: sharp edges are cut by one cell of the grid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Array = NDArray[np.float64]
Field = Callable[[Array], Array]  # points [..., 3] -> values [...], negative inside


def surface(field: Field, low: Array, high: Array, cells: float) -> trimesh.Trimesh:
    """Return the zero level of a field between two corners [3], with so many cells along the longest side."""
    from skimage.measure import marching_cubes

    step = float(np.max(np.subtract(high, low))) / cells
    axes = [np.arange(a - 2.37 * step, b + 3.0 * step, step) for a, b in zip(low, high, strict=True)]
    values = field(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1))
    vertices, faces, _, _ = marching_cubes(values, 0.0, spacing=(step, step, step))
    mesh = trimesh.Trimesh(vertices + [axis[0] for axis in axes], faces)
    if mesh.volume < 0.0:
        mesh.invert()
    return mesh


def gear(diameter: float, height: float, teeth: float, cells: float) -> trimesh.Trimesh:
    """Return a gear about the z axis, with a bore."""
    outer = 0.5 * diameter

    def field(p: Array) -> Array:
        radius, angle = np.hypot(p[..., 0], p[..., 1]), np.arctan2(p[..., 1], p[..., 0])
        rim = outer * (0.9 + 0.1 * np.tanh(3.0 * np.sin(teeth * angle)))
        return _most(radius - rim, 0.3 * outer - radius, np.abs(p[..., 2]) - 0.5 * height)

    return surface(field, np.array([-outer, -outer, -0.5 * height]), np.array([outer, outer, 0.5 * height]), cells)


def bracket(length: float, cells: float) -> trimesh.Trimesh:
    """Return two plates at a right angle with a rib between them, two holes in one plate and one in the other."""

    def field(p: Array) -> Array:
        q = p / length
        base = _box(q, (0.0, -0.3, 0.0), (1.0, 0.3, 0.1))
        wall = _box(q, (0.0, -0.3, 0.0), (0.1, 0.3, 0.75))
        rib = _most(np.abs(q[..., 1]) - 0.04, q[..., 0] + 1.3 * q[..., 2] - 0.75, -q[..., 0], -q[..., 2])
        holes = [np.hypot(q[..., 0] - 0.75, q[..., 1] - side) - 0.08 for side in (-0.16, 0.16)]
        holes += [np.hypot(q[..., 1], q[..., 2] - 0.55) - 0.12]
        holes[-1] = np.maximum(holes[-1], q[..., 0] - 0.2)
        solid = np.minimum(np.minimum(base, wall), rib)
        return length * _most(solid, *(-hole for hole in holes))

    return surface(field, length * np.array([0.0, -0.3, 0.0]), length * np.array([1.0, 0.3, 0.75]), cells)


def shoe(length: float, cells: float) -> trimesh.Trimesh:
    """Return a blob like a shoe: a sole, a toe, a heel, and an opening. x: forward; z: up."""

    def field(p: Array) -> Array:
        q = p / length
        bend = 0.06 * np.cos(np.pi * q[..., 0])
        sole = _ellipsoid(q - _xyz(bend, (0.0, 0.0, 0.03)), (0.5, 0.16, 0.06))
        toe = _ellipsoid(q - _xyz(bend, (0.22, 0.0, 0.08)), (0.26, 0.14, 0.12))
        heel = _ellipsoid(q - _xyz(bend, (-0.25, 0.0, 0.17)), (0.22, 0.13, 0.2))
        opening = _ellipsoid(q - _xyz(bend, (-0.22, 0.0, 0.33)), (0.15, 0.085, 0.22))
        body = _smooth(_smooth(sole, toe, 0.04), heel, 0.08)
        return length * _most(body, -opening, -q[..., 2])

    return surface(field, length * np.array([-0.52, -0.25, 0.0]), length * np.array([0.52, 0.25, 0.42]), cells)


def knot(diameter: float, thick: float, cells: float) -> trimesh.Trimesh:
    """Return a trefoil knot of a round rope."""
    t = np.linspace(0.0, 2.0 * np.pi, 3000, endpoint=False)
    line = np.stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)], axis=1)
    line *= 0.5 * (diameter - thick) / 3.0
    tree = cKDTree(line)
    reach = 0.5 * thick
    return surface(lambda p: tree.query(p)[0] - reach, line.min(axis=0) - reach, line.max(axis=0) + reach, cells)


def figure(height: float, cells: float) -> trimesh.Trimesh:
    """Return a statue of a person on a round base, one arm raised, with folds."""
    limbs = (  # ends and radius, as shares of the height
        ((0.0, 0.0, 0.42), (0.02, 0.0, 0.68), 0.1),
        ((0.0, 0.07, 0.05), (0.0, 0.05, 0.42), 0.055),
        ((0.09, -0.07, 0.05), (0.0, -0.05, 0.42), 0.055),
        ((0.02, 0.1, 0.72), (0.06, 0.25, 0.95), 0.035),
        ((0.02, -0.1, 0.7), (0.17, -0.16, 0.5), 0.038),
        ((0.03, 0.0, 0.88), (0.04, 0.0, 0.9), 0.075),
        ((0.02, 0.0, 0.7), (0.03, 0.0, 0.85), 0.04),
    )

    def field(p: Array) -> Array:
        q = p / height
        body = _capsule(q, *limbs[0])
        for limb in limbs[1:]:
            body = _smooth(body, _capsule(q, *limb), 0.04)
        folds = 0.006 * np.sin(60.0 * q[..., 2] + 25.0 * q[..., 1]) * np.sin(45.0 * q[..., 0])
        base = _most(np.hypot(q[..., 0], q[..., 1]) - 0.19, np.abs(q[..., 2] - 0.03) - 0.03)
        return height * np.minimum(body + folds, base)

    return surface(field, height * np.array([-0.2, -0.25, 0.0]), height * np.array([0.25, 0.32, 1.0]), cells)


def _most(first: Array, *others: Array) -> Array:
    for other in others:
        first = np.maximum(first, other)
    return first


def _smooth(a: Array, b: Array, width: float) -> Array:
    """Return a union of two fields with a fillet."""
    share = np.clip(0.5 + 0.5 * (b - a) / width, 0.0, 1.0)
    return np.asarray(b + share * (a - b) - width * share * (1.0 - share))


def _box(p: Array, low: tuple[float, float, float], high: tuple[float, float, float]) -> Array:
    return np.asarray(np.maximum(low - p, p - high).max(axis=-1))


def _ellipsoid(p: Array, radii: tuple[float, float, float]) -> Array:
    return np.asarray((np.linalg.norm(p / radii, axis=-1) - 1.0) * min(radii))


def _capsule(p: Array, start: tuple[float, float, float], end: tuple[float, float, float], radius: float) -> Array:
    along = np.subtract(end, start)
    share = np.clip((p - start) @ along / (along @ along), 0.0, 1.0)
    return np.asarray(np.linalg.norm(p - start - share[..., None] * along, axis=-1) - radius)


def _xyz(bend: Array, place: tuple[float, float, float]) -> Array:
    """Return a place [..., 3] that is moved along y by a bend [...]."""
    return np.stack([0.0 * bend, bend, 0.0 * bend], axis=-1) + place
