"""Draw random meshes on which the general network is trained: hulls, prisms, turned and bent shapes, and assemblies.

All have a bounding box about the origin and fit into a sphere of 1 m, so that their size teaches nothing.

Limits: parts of an assembly may overlap; their surfaces then cross.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Array, Mesh

Surface = tuple[Array, NDArray[np.int64]]  # vertices and faces


def random_body(rng: np.random.Generator) -> Mesh:
    """Draw a mesh with 12 to about 2,000 faces."""
    kind = int(rng.choice(len(_KINDS), p=_WEIGHTS))
    parts = _KINDS[kind](rng)
    stretch = np.exp(rng.normal(0.0, 0.35, 3)) if rng.random() < 0.6 else np.ones(3)
    offsets = np.cumsum([0] + [len(vertices) for vertices, _ in parts])
    vertices = np.concatenate([vertices for vertices, _ in parts]) * stretch
    faces = np.concatenate([faces + offset for (_, faces), offset in zip(parts, offsets, strict=False)])
    part = np.repeat(np.arange(len(parts)), [len(faces) for _, faces in parts])
    vertices = vertices - 0.5 * (vertices.min(axis=0) + vertices.max(axis=0))
    vertices = vertices / np.linalg.norm(vertices, axis=1).max()
    names = tuple(f"part{i}" for i in range(len(parts)))
    return Mesh(vertices, np.asarray(faces, np.int64), np.asarray(part, np.int64), names, "random")


def grid_faces(rows: int, columns: int, *, closed: bool = True) -> NDArray[np.int64]:
    """Return the faces of a grid of vertices whose last column joins the first; closed: so do the rows."""
    i, j = (index.ravel() for index in np.meshgrid(np.arange(rows if closed else rows - 1), np.arange(columns)))
    below, after = (i + 1) % rows, (j + 1) % columns
    a, b, c, d = i * columns + j, i * columns + after, below * columns + after, below * columns + j
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def _hull(rng: np.random.Generator) -> list[Surface]:
    """Draw the convex hull of a few random points."""
    from scipy.spatial import ConvexHull

    points = rng.normal(size=(int(rng.integers(5, 28)), 3)) * np.exp(rng.normal(0.0, 0.4, 3))
    if rng.random() < 0.5:
        points /= np.linalg.norm(points, axis=1, keepdims=True) ** rng.uniform(0.3, 1.0)
    hull = ConvexHull(points)
    faces = hull.simplices.astype(np.int64)
    corners = points[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    inward = (normals * hull.equations[:, :3]).sum(axis=1) < 0.0
    return [(points, np.where(inward[:, None], faces[:, ::-1], faces))]


def _prism_of(polygon: Array, height: float, taper: float = 1.0) -> Surface:
    """Return a prism over a polygon [N, 2] that is star-shaped about the origin."""
    count = len(polygon)
    low = np.c_[polygon, np.full(count, -0.5 * height)]
    high = np.c_[taper * polygon, np.full(count, 0.5 * height)]
    vertices = np.concatenate([low, high, [[0.0, 0.0, -0.5 * height], [0.0, 0.0, 0.5 * height]]])
    i = np.arange(count)
    j = (i + 1) % count
    faces = [
        np.c_[i, j, j + count],
        np.c_[i, j + count, i + count],
        np.c_[j, i, np.full(count, 2 * count)],
        np.c_[i + count, j + count, np.full(count, 2 * count + 1)],
    ]
    return vertices, np.concatenate(faces)


def _prism(rng: np.random.Generator) -> list[Surface]:
    """Draw a prism or a pyramid over a polygon, which may be a star or a gear."""
    count = int(rng.integers(3, 9)) if rng.random() < 0.5 else 2 * int(rng.integers(3, 13))
    angle = 2.0 * np.pi * np.arange(count) / count
    radius = np.ones(count)
    if rng.random() < 0.5:
        radius[1::2] = rng.uniform(0.35, 0.95)
    if rng.random() < 0.5:
        radius *= np.exp(rng.normal(0.0, 0.25, count))
    polygon = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    taper = 1.0 if rng.random() < 0.6 else float(rng.uniform(0.05, 1.0))
    return [_prism_of(polygon, float(np.exp(rng.uniform(np.log(0.1), np.log(2.5)))), taper)]


def _letter(rng: np.random.Generator) -> list[Surface]:
    """Draw a body of boxes in a plane, as an L, a T, a U, a cross or a chain."""
    cells = [(0, 0)]
    for _ in range(int(rng.integers(2, 7))):
        x, y = cells[int(rng.integers(len(cells)))]
        dx, dy = ((1, 0), (-1, 0), (0, 1), (0, -1))[int(rng.integers(4))]
        if (x + dx, y + dy) not in cells:
            cells.append((x + dx, y + dy))
    thick = rng.uniform(0.2, 1.5)
    boxes = [_box(np.array([1.0, 1.0, thick]), np.array([x, y, 0.0])) for x, y in cells]
    if rng.random() < 0.3:
        x, y = cells[int(rng.integers(len(cells)))]
        boxes.append(_box(np.array([1.0, 1.0, thick]), np.array([x, y, thick])))
    return boxes


def _box(size: Array, center: Array) -> Surface:
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([triangle for a, b, c, d in quads for triangle in ((a, b, c), (a, c, d))], np.int64)
    return corners * size + center, faces


def _turned(rng: np.random.Generator) -> list[Surface]:
    """Draw a turned body: a vase, a bowl, a plate, a spindle; some with a handle."""
    rows, columns = int(rng.integers(4, 12)), 40
    if rng.random() < 0.5:  # hollow: a wall of some thickness
        height = float(np.exp(rng.uniform(np.log(0.1), np.log(2.5))))
        t = np.linspace(0.0, 1.0, rows)
        outer = np.clip(0.4 + 0.6 * t ** rng.uniform(0.2, 2.0) + 0.15 * np.sin(rng.uniform(2, 7) * t), 0.15, None)
        wall = rng.uniform(0.04, 0.15)
        profile = np.concatenate(
            [[[0.0, 0.0]], np.c_[outer, height * t], np.c_[outer - wall, height * t + wall][::-1], [[0.0, wall]]]
        )
    else:
        radius = np.abs(np.cumsum(rng.normal(0.0, 0.3, rows)) + 0.7) + 0.05
        heights = np.linspace(0.0, float(np.exp(rng.uniform(np.log(0.3), np.log(4.0)))), rows)
        profile = np.concatenate([[[0.0, 0.0]], np.c_[radius, heights], [[0.0, heights[-1]]]])
    angle = 2.0 * np.pi * np.arange(columns) / columns
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    vertices = np.concatenate([np.c_[r * ring, np.full(columns, z)] for r, z in profile])
    faces = grid_faces(len(profile), columns, closed=False)
    parts = [_outward((vertices, faces))]
    if rng.random() < 0.4:
        at = rng.uniform(0.3, 0.7) * profile[:, 1].max()
        reach, half = rng.uniform(0.2, 0.6), rng.uniform(0.15, 0.4) * profile[:, 1].max() + 0.05
        around = np.linspace(-0.5 * np.pi, 0.5 * np.pi, 14)
        line = np.c_[0.95 * profile[:, 0].max() + reach * np.cos(around), 0.0 * around, at + half * np.sin(around)]
        parts.append(_tube_of(line, float(rng.uniform(0.04, 0.12)), 10, ends=True))
    return parts


def _tube_of(line: Array, radius: float, sides: int, *, ends: bool) -> Surface:
    """Return a tube about a line [N, 3]; ends: open lines end in a point, closed ones join."""
    forward = np.gradient(line, axis=0) if ends else np.roll(line, -1, axis=0) - np.roll(line, 1, axis=0)
    forward /= np.linalg.norm(forward, axis=1, keepdims=True) + 1e-12
    across = np.cross(forward, np.roll(forward, 1, axis=0) + np.array([0.31, 0.83, 0.46]))
    # a normal that is carried along the line, so that the tube does not twist
    normal = across[0] / np.linalg.norm(across[0])
    rings, angle = [], 2.0 * np.pi * np.arange(sides) / sides
    for point, along in zip(line, forward, strict=True):
        normal = normal - along * (normal @ along)
        normal /= np.linalg.norm(normal) + 1e-12
        other = np.cross(along, normal)
        rings.append(point + radius * (np.cos(angle)[:, None] * normal + np.sin(angle)[:, None] * other))
    if ends:
        rings = [np.tile(line[0], (sides, 1)), *rings, np.tile(line[-1], (sides, 1))]
    return _outward((np.concatenate(rings), grid_faces(len(rings), sides, closed=not ends)))


def _tube(rng: np.random.Generator) -> list[Surface]:
    """Draw a bent or knotted tube, or a ring."""
    t = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    if rng.random() < 0.4:
        line = np.stack([np.cos(t), np.sin(t), 0.0 * t], axis=1)
    elif rng.random() < 0.5:
        p, q = int(rng.integers(2, 4)), int(rng.integers(2, 6))
        line = np.stack([(2 + np.cos(q * t)) * np.cos(p * t), (2 + np.cos(q * t)) * np.sin(p * t), np.sin(q * t)], 1)
        line /= 3.0
    else:
        waves = rng.normal(size=(2, 3, 3)) / np.arange(1, 4)[None, :, None]
        k = np.arange(1, 4)
        line = np.cos(np.outer(t, k)) @ waves[0] + np.sin(np.outer(t, k)) @ waves[1]
        line /= np.abs(line).max()
    return [_tube_of(line, float(np.exp(rng.uniform(np.log(0.06), np.log(0.35)))), 14, ends=False)]


def _lump(rng: np.random.Generator) -> list[Surface]:
    """Draw a sphere that waves displace: from an egg to a rough stone."""
    vertices, faces = _sphere(24, 36)
    height = np.zeros(len(vertices))
    for frequency, share in ((1.5, 1.0), (3.0, 0.5), (6.0, 0.2)):
        for _ in range(5):
            wave = rng.normal(size=3)
            wave *= frequency * np.exp(rng.normal(0.0, 0.2)) / np.linalg.norm(wave)
            height += share * np.sin(vertices @ wave + rng.uniform(0.0, 2.0 * np.pi)) / 2.2
    return [(vertices * (1.0 + rng.uniform(0.0, 0.4) * height[:, None]), faces)]


def _sphere(rows: int, columns: int) -> Surface:
    polar, azimuth = np.linspace(0.0, np.pi, rows), 2.0 * np.pi * np.arange(columns) / columns
    circle = np.stack([np.cos(azimuth), np.sin(azimuth)], axis=1)
    rings = [np.c_[np.sin(p) * circle, np.full(columns, np.cos(p))] for p in polar]
    return _outward((np.concatenate(rings), grid_faces(rows, columns, closed=False)))


def _primitive(rng: np.random.Generator) -> Surface:
    """Draw a box, prism, cylinder, cone, ball, or ring."""
    kind = int(rng.integers(6))
    if kind < 2:
        return _box(np.exp(rng.normal(0.0, 0.6, 3)), np.zeros(3))
    if kind == 2:
        return _sphere(12, 18)
    if kind == 3:
        angle = np.linspace(0.0, 2.0 * np.pi, 24, endpoint=False)
        line = np.stack([np.cos(angle), np.sin(angle), 0.0 * angle], axis=1)
        return _tube_of(line, float(rng.uniform(0.1, 0.4)), 8, ends=False)
    count = 24 if kind == 4 else int(rng.integers(3, 9))
    angle = 2.0 * np.pi * np.arange(count) / count
    polygon = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _prism_of(polygon, float(np.exp(rng.uniform(np.log(0.2), np.log(5.0)))), float(rng.choice([1.0, 0.1, 0.6])))


def _assembly(rng: np.random.Generator) -> list[Surface]:
    """Draw an assembly of primitives about a first one; some repeat around an axis, or are mirrored."""
    parts = [_primitive(rng)]
    for _ in range(int(rng.integers(1, 5))):
        vertices, faces = _primitive(rng)
        size = float(np.exp(rng.uniform(np.log(0.15), np.log(0.8))))
        attitude = matrix_from_rotvec(rng.normal(0.0, 1.5, 3) * (rng.random() < 0.5))
        place = rng.normal(0.0, 0.8, 3)
        moved = size * vertices @ attitude.T + place
        copies = int(rng.choice([1, 1, 2, 3, 4, 6]))
        if copies == 1 and rng.random() < 0.3:
            parts += [(moved, faces), (moved * np.array([-1.0, 1.0, 1.0]), faces[:, ::-1])]
            continue
        for k in range(copies):
            around = matrix_from_rotvec(np.array([0.0, 0.0, 2.0 * np.pi * k / copies]))
            parts.append((moved @ around.T, faces))
    return parts


def _outward(surface: Surface) -> Surface:
    """Return a closed surface whose faces are counter-clockwise seen from outside."""
    vertices, faces = surface
    corners = vertices[faces]
    volume = np.einsum("fi,fi->", corners[:, 0], np.cross(corners[:, 1], corners[:, 2]))
    return (vertices, faces[:, ::-1]) if volume < 0.0 else surface


_KINDS: tuple[Callable[[np.random.Generator], list[Surface]], ...] = (
    _hull,
    _prism,
    _letter,
    _turned,
    _tube,
    _lump,
    _assembly,
    lambda rng: [_primitive(rng)],
)
_WEIGHTS = np.array([0.1, 0.12, 0.12, 0.14, 0.08, 0.12, 0.27, 0.05])
