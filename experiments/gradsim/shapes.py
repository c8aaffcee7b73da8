"""Fourteen solid shapes of our own making for gradSim's rigid bodies: closed, at most 250 vertices, 0.2 m in radius."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vid2phys.types import Array, Mesh

RADIUS_M = 0.2  # of the ball about the centre of the box that bounds a shape


def _prism(contour: Array, height: float, kernel: tuple[float, float] = (0.0, 0.0)) -> tuple[Array, Array]:
    """Return a prism over a contour [n, 2], counter-clockwise and visible from `kernel`, as thick as `height`."""
    count = len(contour)
    flat = np.vstack([contour, kernel])
    low, high = (np.column_stack([flat, np.full(count + 1, z)]) for z in (-0.5 * height, 0.5 * height))
    faces = []
    for i in range(count):
        j, top = (i + 1) % count, count + 1
        faces += [(count, j, i), (top + count, top + i, top + j), (i, j, top + j), (i, top + j, top + i)]
    return np.vstack([low, high]), np.array(faces)


def _turned(profile: list[tuple[float, float]], sections: int) -> tuple[Array, Array]:
    """Return a profile of (radius, height) rotated about z: closed, or from axis to axis, outside to its right."""
    import trimesh

    solid = trimesh.creation.revolve(np.array(profile), sections=sections)
    return np.asarray(solid.vertices), np.asarray(solid.faces)


def _circle(radius: float, count: int, x: float = 0.0, z: float = 0.0) -> list[tuple[float, float]]:
    angles = np.linspace(0.0, 2.0 * np.pi, count + 1)
    return [(x + radius * float(np.cos(a)), z + radius * float(np.sin(a))) for a in angles]


def _star(points: int, inner: float) -> Array:
    angles = np.pi * np.arange(2 * points) / points
    radii = np.where(np.arange(2 * points) % 2 == 0, 1.0, inner)
    return np.column_stack([radii * np.cos(angles), radii * np.sin(angles)])


def _half_circle(radius: float, z: float, first: float, last: float, count: int) -> list[tuple[float, float]]:
    angles = np.linspace(first, last, count)
    return [(max(radius * float(np.cos(a)), 0.0), z + radius * float(np.sin(a))) for a in angles]


def _rounded(first: float, last: float) -> list[tuple[float, float]]:
    """Return a capsule's profile whose ends are half balls about two heights."""
    quarter = 0.5 * np.pi
    return [(0.0, first - 0.4), *_half_circle(0.4, first, -quarter, 0.0, 6)[1:],
            *_half_circle(0.4, last, 0.0, quarter, 6)[:-1], (0.0, last + 0.4)]  # fmt: skip


_SQUARE = np.array([(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
_CROSS = np.array([(1, -0.35), (1, 0.35), (0.35, 0.35), (0.35, 1), (-0.35, 1), (-0.35, 0.35), (-1, 0.35), (-1, -0.35),
                   (-0.35, -0.35), (-0.35, -1), (0.35, -1), (0.35, -0.35)])  # fmt: skip
_ANGLE = np.array([(-1.0, -1.0), (1.0, -1.0), (1.0, -0.4), (-0.3, -0.4), (-0.3, 1.0), (-1.0, 1.0)])
_MAKERS: dict[str, Callable[[], tuple[Array, Array]]] = {
    "box": lambda: _prism(_SQUARE * (1.0, 0.7), 1.1),
    "plank": lambda: _prism(_SQUARE * (1.0, 0.4), 0.25),
    "wedge": lambda: _prism(np.array([(-1.0, -0.5), (1.0, -0.5), (-1.0, 0.7)]), 0.9, (-0.4, -0.2)),
    "cone": lambda: _turned([(0.0, -0.8), (0.9, -0.8), (0.0, 1.0)], 24),
    "frustum": lambda: _turned([(0.0, -0.7), (1.0, -0.7), (0.5, 0.6), (0.0, 0.6)], 24),
    "cylinder": lambda: _turned([(0.0, -0.9), (0.5, -0.9), (0.5, 0.9), (0.0, 0.9)], 24),
    "disc": lambda: _turned([(0.0, -0.15), (1.0, -0.15), (1.0, 0.15), (0.0, 0.15)], 32),
    "capsule": lambda: _turned(_rounded(-0.6, 0.6), 18),
    "ball": lambda: _turned(_half_circle(1.0, 0.0, -0.5 * np.pi, 0.5 * np.pi, 12), 20),
    "torus": lambda: _turned(_circle(0.35, 10, x=0.7), 20),
    "ring": lambda: _turned([(0.75, -0.2), (1.0, -0.2), (1.0, 0.2), (0.75, 0.2), (0.75, -0.2)], 32),
    "cross": lambda: _prism(_CROSS, 0.6),
    "angle": lambda: _prism(_ANGLE, 0.8, (-0.6, -0.7)),
    "star": lambda: _prism(_star(5, 0.45), 0.5),
}
NAMES = tuple(_MAKERS)
"""Convex and not, with and without symmetries."""


def shape(name: str, radius_m: float = RADIUS_M) -> Mesh:
    """Return the shape called `name`, its bounding box centred. Raises KeyError for another name."""
    vertices, faces = _MAKERS[name]()
    vertices = vertices - 0.5 * (vertices.max(axis=0) + vertices.min(axis=0))
    vertices = vertices * (radius_m / np.linalg.norm(vertices, axis=1).max())
    return Mesh(vertices, faces.astype(np.int64), np.zeros(len(faces), dtype=np.int64), name=name)
