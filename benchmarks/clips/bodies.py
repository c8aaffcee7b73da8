"""Meshes of the bodies of the clips, each from a few sizes, with mass properties of uniform density.

Every mesh is in metres, with its centre of mass at the origin. A mesh may consist of closed parts that overlap, as the
handle and the wall of a mug. Limit: where parts overlap, the inertia counts their matter twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import trimesh
from numpy.typing import NDArray

from benchmarks.clips import fields
from benchmarks.clips.appearance import Surface

Array = NDArray[np.float64]
Part = tuple[trimesh.Trimesh, int]  # a closed mesh, and the index of its surface


@dataclass(frozen=True)
class Body:
    """shape: a key of `SHAPES`. size_m: what that shape needs. surfaces: one for each part index, taken cyclically."""

    shape: str
    size_m: tuple[float, ...]
    surfaces: tuple[Surface, ...]
    mass_kg: float = 0.2


@dataclass(frozen=True)
class Solid:
    """vertices: [V, 3] m. faces: [F, 3]. slot: [F] index of the surface. inertia: [3, 3] kg m^2 about the origin.

    radius_m: of a ball, and 0 for other shapes. hull: [H, 3] m, vertices of the convex hull.
    """

    vertices: Array
    faces: NDArray[np.int64]
    slot: NDArray[np.int64]
    mass_kg: float
    inertia: Array
    radius_m: float
    hull: Array


def build(body: Body) -> Solid:
    """Return the mesh and the mass properties of a body. Raises KeyError for an unknown shape."""
    parts = SHAPES[body.shape](*body.size_m)
    slot = np.concatenate([np.full(len(part.faces), index % len(body.surfaces)) for part, index in parts])
    mesh = trimesh.util.concatenate([part for part, _ in parts])
    mesh.density = body.mass_kg / mesh.volume
    mesh.apply_translation(-mesh.center_mass)
    vertices = np.asarray(mesh.vertices)
    radius = 0.5 * body.size_m[0] if body.shape == "ball" else 0.0
    hull = np.asarray(mesh.convex_hull.vertices)
    faces = np.asarray(mesh.faces, np.int64)
    return Solid(vertices, faces, slot, body.mass_kg, np.asarray(mesh.moment_inertia), radius, hull)


def revolve(profile: Array, segments: int) -> trimesh.Trimesh:
    """Return the solid that a closed profile [N, 2] of radius and height [m] sweeps about the z axis."""
    angle = np.linspace(0.0, 2.0 * np.pi, segments, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rings = [np.c_[r * circle, np.full(segments, z)] for r, z in profile]
    count, column = len(profile), np.arange(segments)
    after = (column + 1) % segments
    faces = []
    for i in range(count):
        a, b = i * segments, (i + 1) % count * segments
        faces += [np.c_[a + column, a + after, b + after], np.c_[a + column, b + after, b + column]]
    mesh = trimesh.Trimesh(np.concatenate(rings), np.concatenate(faces))
    mesh.merge_vertices()
    mesh.update_faces(mesh.nondegenerate_faces())
    mesh.remove_unreferenced_vertices()
    return _outward(mesh)


def tube(line: Array, radius_m: float, sides: int = 16) -> trimesh.Trimesh:
    """Return a closed tube about a line [N, 3] that lies in a plane of constant y."""
    forward = np.gradient(line, axis=0)
    forward /= np.linalg.norm(forward, axis=1, keepdims=True)
    across = np.array([0.0, 1.0, 0.0])
    up = np.cross(forward, across)
    angle = np.linspace(0.0, 2.0 * np.pi, sides, endpoint=False)
    rings = line[:, None] + radius_m * (np.cos(angle)[:, None] * across + np.sin(angle)[:, None] * up[:, None])
    ends = np.stack([line[0], line[-1]])
    vertices = np.concatenate([rings.reshape(-1, 3), ends])
    column, last = np.arange(sides), (len(line) - 1) * sides
    after = (column + 1) % sides
    faces = []
    for a in range(0, last, sides):
        faces += [
            np.c_[a + column, a + after, a + sides + after],
            np.c_[a + column, a + sides + after, a + sides + column],
        ]
    first_end, last_end = np.full(sides, len(vertices) - 2), np.full(sides, len(vertices) - 1)
    faces += [np.c_[first_end, after, column], np.c_[last_end, last + column, last + after]]
    return _outward(trimesh.Trimesh(vertices, np.concatenate(faces)))


def capsule(start_m: Array, end_m: Array, radius_m: float) -> trimesh.Trimesh:
    """Return a capsule between two points [3]."""
    axis = np.asarray(end_m, float) - np.asarray(start_m, float)
    length = float(np.linalg.norm(axis))
    mesh = trimesh.creation.capsule(height=length, radius=radius_m, count=[24, 24])
    if mesh.bounds[0, 2] < -1.5 * radius_m:  # some releases centre a capsule, others start it at the origin
        mesh.apply_translation([0.0, 0.0, 0.5 * length])
    mesh.apply_transform(trimesh.geometry.align_vectors([0.0, 0.0, 1.0], axis / length))
    mesh.apply_translation(np.asarray(start_m, float))
    return mesh


def _outward(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    if mesh.volume < 0.0:
        mesh.invert()
    return mesh


def _box(x: float, y: float, z: float) -> list[Part]:
    return [(trimesh.creation.box((x, y, z)), 0)]


def _ball(diameter: float) -> list[Part]:
    return [(trimesh.creation.icosphere(subdivisions=4, radius=0.5 * diameter), 0)]


def _cylinder(diameter: float, height: float) -> list[Part]:
    return [(trimesh.creation.cylinder(radius=0.5 * diameter, height=height, sections=64), 0)]


def _l_shape(long: float, short: float, thick: float, height: float) -> list[Part]:
    """Return an L of two legs, `long` along x and `short` along y, both `thick` wide."""
    corner = [(0, 0), (long, 0), (long, thick), (thick, thick), (thick, short), (0, short)]
    low = np.array([(x, y, 0.0) for x, y in corner])
    top = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    faces = [(a + 6, b + 6, c + 6) for a, b, c in top] + [(a, c, b) for a, b, c in top]
    for i in range(6):
        j = (i + 1) % 6
        faces += [(i, j, j + 6), (i, j + 6, i + 6)]
    return [(trimesh.Trimesh(np.concatenate([low, low + np.array([0.0, 0.0, height])]), faces), 0)]


def _fine_l_shape(long: float, short: float, thick: float, height: float, rounds: float) -> list[Part]:
    """Return an L with every face divided in four, in so many rounds."""
    mesh = _l_shape(long, short, thick, height)[0][0]
    for _ in range(int(rounds)):
        mesh = mesh.subdivide()
    return [(mesh, 0)]


def _mug(diameter: float, height: float, wall: float) -> list[Part]:
    r = 0.5 * diameter
    profile = [(0, 0), (0.9 * r, 0), (r, 0.08 * r), (r, height), (r - wall, height), (r - wall, wall), (0, wall)]
    angle = np.linspace(-0.5 * np.pi, 0.5 * np.pi, 24)
    reach, half = 0.62 * r, 0.3 * height
    line = np.c_[r - 0.5 * wall + reach * np.cos(angle), 0.0 * angle, 0.52 * height + half * np.sin(angle)]
    return [(revolve(np.array(profile, float), 64), 0), (tube(line, 0.13 * r), 1)]


def _ring(diameter: float, thick: float) -> list[Part]:
    return [(trimesh.creation.torus(0.5 * (diameter - thick), 0.5 * thick, 64, 24), 0)]


def _plate(diameter: float, height: float, wall: float, segments: float = 72.0) -> list[Part]:
    r = 0.5 * diameter
    below = [(0.0, 0.0), (0.55 * r, 0.0), (0.7 * r, 0.35 * height), (r, height)]
    above = [(r - 0.3 * wall, height + wall), (0.68 * r, 0.35 * height + wall), (0.54 * r, wall), (0.0, wall)]
    return [(revolve(np.array(below + above), int(segments)), 0)]


def _statue(diameter: float, roughness: float, seed: float, rounds: float = 5.0) -> list[Part]:
    """Return a lump of 20 * 4^rounds faces: a sphere displaced by smooth random waves of four sizes."""
    mesh = trimesh.creation.icosphere(subdivisions=int(rounds), radius=1.0)
    rng = np.random.default_rng(int(seed))
    points = np.asarray(mesh.vertices) * np.array([0.75, 0.62, 1.0])
    height = np.zeros(len(points))
    for frequency, share in ((1.6, 1.0), (3.1, 0.55), (6.0, 0.25), (12.0, 0.08)):
        for _ in range(6):
            wave = rng.normal(size=3)
            wave *= frequency / np.linalg.norm(wave)
            height += share * np.sin(points @ wave + rng.uniform(0.0, 2.0 * np.pi)) / 2.4
    points *= 1.0 + roughness * height[:, None]
    mesh.vertices = points * diameter / np.ptp(points, axis=0).max()
    return [(mesh, 0)]


def _of_field(shape: Callable[..., trimesh.Trimesh]) -> Callable[..., list[Part]]:
    return lambda *size: [(shape(*size), 0)]


def _quadrotor(span: float) -> list[Part]:
    """Return a quadrotor: x forward, z up; two crossed arms, four motors with rotor discs, a battery, two skids."""
    parts: list[Part] = []
    for angle in (0.25 * np.pi, -0.25 * np.pi):
        arm = trimesh.creation.box((span, 0.07 * span, 0.05 * span))
        arm.apply_transform(trimesh.transformations.rotation_matrix(angle, [0, 0, 1]))
        parts.append((arm, 0))
    hull = trimesh.creation.box((0.42 * span, 0.26 * span, 0.12 * span))
    battery = trimesh.creation.box((0.3 * span, 0.16 * span, 0.08 * span))
    battery.apply_translation([-0.02 * span, 0.0, 0.09 * span])
    nose = trimesh.creation.box((0.06 * span, 0.1 * span, 0.07 * span))
    nose.apply_translation([0.23 * span, 0.0, 0.0])
    parts += [(hull, 0), (battery, 1), (nose, 1)]
    for i in range(4):
        angle = 0.25 * np.pi + 0.5 * np.pi * i
        place = 0.48 * span * np.array([np.cos(angle), np.sin(angle), 0.0])
        motor = trimesh.creation.cylinder(radius=0.05 * span, height=0.12 * span, sections=24)
        motor.apply_translation(place + np.array([0.0, 0.0, 0.05 * span]))
        disc = trimesh.creation.cylinder(radius=0.21 * span, height=0.012 * span, sections=48)
        disc.apply_translation(place + np.array([0.0, 0.0, 0.115 * span]))
        parts += [(motor, 0), (disc, 2)]
    for side in (-1.0, 1.0):
        skid = trimesh.creation.box((0.4 * span, 0.03 * span, 0.03 * span))
        skid.apply_translation([0.0, 0.13 * span * side, -0.16 * span])
        leg = trimesh.creation.box((0.03 * span, 0.03 * span, 0.14 * span))
        leg.apply_translation([0.0, 0.13 * span * side, -0.1 * span])
        parts += [(skid, 0), (leg, 0)]
    return parts


SHAPES: dict[str, Callable[..., list[Part]]] = {
    "box": _box,
    "ball": _ball,
    "cylinder": _cylinder,
    "l_shape": _l_shape,
    "mug": _mug,
    "ring": _ring,
    "plate": _plate,
    "statue": _statue,
    "quadrotor": _quadrotor,
    "fine_l_shape": _fine_l_shape,
    **{shape.__name__: _of_field(shape) for shape in (fields.gear, fields.bracket, fields.shoe, fields.knot)},
    "figure": _of_field(fields.figure),
}
