"""Creases of a mesh: edges at which faces meet at an angle, and lines across those inside the silhouette.

Light makes the two sides of a crease differ. So creases show the orientation where the contour does not, most of all
for boxes: their contour hardly moves with small rotations of a face seen head on.

Limits: creases between faces of equal brightness are not seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.engine.render.rasterizer import face_normals
from vid2phys.io.faces import first_alike
from vid2phys.tracking.cues import Cue
from vid2phys.tracking.cues.occluding_contour import lines_across
from vid2phys.tracking.cues.silhouette import Drawing, draw
from vid2phys.types import Array, Camera, Mesh

CUE = Cue("edges inside the silhouette, where faces meet at an angle; a part of the contour cue")

_SAME = 1e-6  # distance of vertices that are one, body radii


@dataclass(frozen=True, kw_only=True)
class CreaseConfig:
    """Settings of `Solid.of` and `crease_lines`."""

    sharp_deg: float = 25.0
    """Least angle between the normals of two faces that meet at a crease, deg."""
    min_length: float = 0.1
    """Least length of a crease, body radii; shorter ones have too narrow faces beside them."""
    max_lines: int = 100
    """Largest number of lines across all creases."""
    clear_px: float = 1.5
    """Distance from a crease from which on a drawn side counts as that side, px."""
    probes: int = 5
    """Places on each side of a line at which the drawing must show one of the two faces."""
    plane_share: float = 0.01
    """Largest distance from the plane of a face, as a share of 1 / depth."""


DEFAULTS = CreaseConfig()


@dataclass(frozen=True)
class Solid:
    """A mesh and its E creases.

    Attributes:
        mesh: the mesh.
        edges: [E, 2] indices of vertices.
        sides: [E, 2] indices of the faces on both sides.
        one_sided: [F] faces that are never seen from behind.
        config: settings.
    """

    mesh: Mesh
    edges: NDArray[np.int64]
    sides: NDArray[np.int64]
    one_sided: NDArray[np.bool_]
    config: CreaseConfig = DEFAULTS

    @staticmethod
    def of(mesh: Mesh, config: CreaseConfig = DEFAULTS) -> Solid:
        """Find the creases between faces that share vertices or have them at the same places."""
        sides, edges, sharp = _meeting(mesh, config)
        along = mesh.vertices[edges[:, 1]] - mesh.vertices[edges[:, 0]]
        radius = mesh.radius_m
        kept = sharp & (np.linalg.norm(along, axis=-1) > config.min_length * radius)
        return Solid(mesh, edges[kept], sides[kept], one_sided(mesh.vertices, mesh.faces), config)

    def without_creases(self) -> Solid:
        """Return the body without creases."""
        return replace(self, edges=self.edges[:0], sides=self.sides[:0])

    def draw(self, vertices: Array) -> Drawing | None:
        """Draw the mesh with vertices [V, 3] in camera axes, m; return None where it reaches behind the camera."""
        return draw(vertices, self.mesh.faces, self.one_sided)

    @cached_property
    def smooth_parts(self) -> NDArray[np.int64]:
        """Index [F] of each face's smooth part; parts end at creases of any length and where the mesh's parts end."""
        from trimesh.graph import connected_component_labels

        sides, _, sharp = _meeting(self.mesh, self.config)
        joined = ~sharp & (self.mesh.part[sides[:, 0]] == self.mesh.part[sides[:, 1]])
        return np.asarray(connected_component_labels(sides[joined], len(self.mesh.faces)), dtype=np.int64)


def _meeting(mesh: Mesh, config: CreaseConfig) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return pairs of faces [N, 2] that meet, the edges [N, 2] between them, and whether they meet at an angle [N]."""
    from trimesh.graph import face_adjacency

    radius = mesh.radius_m
    welded = first_alike(mesh.vertices, _SAME * radius)[mesh.faces]
    sides, edges = face_adjacency(faces=welded, return_edges=True)
    sides, edges = np.asarray(sides).reshape(-1, 2), np.asarray(edges).reshape(-1, 2)
    normals = face_normals(mesh.vertices, mesh.faces)[sides]
    sharp = np.einsum("ej,ej->e", normals[:, 0], normals[:, 1]) < np.cos(np.deg2rad(config.sharp_deg))
    return sides, edges, sharp


@dataclass(frozen=True)
class CreaseLines:
    """N lines across creases.

    Attributes:
        points: [N, 3] on the body, camera axes, m.
        pixels: [N, 2] in the frame.
        normals: [N, 2] unit, across the crease in the frame.
        along: [N, 2] derivative of a pixel along the normal by the bearing.
    """

    points: Array
    pixels: Array
    normals: Array
    along: Array


def crease_lines(
    solid: Solid, vertices: Array, drawing: Drawing, camera: Camera, reach_px: float
) -> CreaseLines | None:
    """Return lines that show one face of a crease on each side, up to `reach_px` of the frame.

    Args:
        solid: mesh and creases.
        vertices: [V, 3] of the mesh in camera axes, m.
        drawing: of the mesh.
        camera: of the frame.
        reach_px: length of each side, px.

    Returns:
        The lines; None where no crease shows as much.
    """
    config, corners = solid.config, solid.mesh.faces[solid.sides]
    at, run, points, normals = _along_creases(vertices, solid.edges, corners, drawing.focal, config.max_lines)
    if not len(at):
        return None
    pixels, to_pixels = bearings_to_pixels(camera, at), bearing_jacobian_to_pixels(camera, at)
    across, step, along = lines_across(to_pixels, np.stack([-run[:, 1], run[:, 0]], axis=-1))
    drawn = drawing.nearness, drawing.focal, drawing.corner
    probed = config.clear_px, reach_px, config.probes, config.plane_share
    shown = _on_faces(at, step, points, normals, drawn, probed)
    shown &= np.isfinite(pixels).all(axis=-1) & np.isfinite(across).all(axis=-1)
    if not shown.any():
        return None
    return CreaseLines(points[shown], pixels[shown], across[shown], along[shown])


_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@_compiled
def _along_creases(
    vertices: Array, edges: NDArray[np.int64], faces: NDArray[np.int64], focal: float, most: int
) -> tuple[Array, Array, Array, Array]:
    """Return places along creases whose two faces are turned to the camera, a drawn pixel or more apart.

    Args:
        vertices: [V, 3], m.
        edges: [E, 2] indices of vertices.
        faces: [E, 2, 3] indices of vertices.
        focal: of the drawing, px.
        most: largest number of places.

    Returns:
        Bearings [N, 2], the vectors [N, 2] from end to end of their creases, points [N, 3] in m, and normals of the
        faces [N, 2, 3] of any length.
    """
    count = len(edges)
    length = np.zeros(count)
    for e in range(count):
        a, b = edges[e]
        if _faces_camera(vertices, faces[e, 0], a) and _faces_camera(vertices, faces[e, 1], a):
            z, far = vertices[a, 2], vertices[b, 2]
            across = vertices[b, 0] / far - vertices[a, 0] / z, vertices[b, 1] / far - vertices[a, 1] / z
            length[e] = focal * math.hypot(*across)
    total = length.sum()
    spacing = max(total / most, 1.0)
    number = math.ceil(min(most, total) - 0.5) if total >= 1.0 else 0
    at, run = np.empty((number, 2)), np.empty((number, 2))
    points, of_faces = np.empty((number, 3)), np.empty((number, 2, 3))
    e, passed = 0, 0.0
    for i in range(number):
        place = (i + 0.5) * spacing
        while passed + length[e] < place and e < count - 1:
            passed += length[e]
            e += 1
        share = (place - passed) / length[e]
        a, b = vertices[edges[e, 0]], vertices[edges[e, 1]]
        for k in range(2):
            run[i, k] = b[k] / b[2] - a[k] / a[2]
            at[i, k] = a[k] / a[2] + share * run[i, k]
        depth = 1.0 / (1.0 / a[2] + share * (1.0 / b[2] - 1.0 / a[2]))  # its inverse is linear in the image
        points[i, 0], points[i, 1], points[i, 2] = at[i, 0] * depth, at[i, 1] * depth, depth
        for f in range(2):
            of_faces[i, f] = _normal(vertices, faces[e, f])
    return at, run, points, of_faces


@_compiled
def _normal(vertices: Array, face: NDArray[np.int64]) -> tuple[float, float, float]:
    """Return the normal of a face, of any length."""
    a, b, c = face
    x, y, z = vertices[a, 0], vertices[a, 1], vertices[a, 2]
    p, q, r = vertices[b, 0] - x, vertices[b, 1] - y, vertices[b, 2] - z
    u, v, w = vertices[c, 0] - x, vertices[c, 1] - y, vertices[c, 2] - z
    return q * w - r * v, r * u - p * w, p * v - q * u


@_compiled
def _faces_camera(vertices: Array, face: NDArray[np.int64], corner: int) -> bool:
    """Return whether a face is turned to the camera; corner: index of a vertex in its plane."""
    x, y, z = _normal(vertices, face)
    return x * vertices[corner, 0] + y * vertices[corner, 1] + z * vertices[corner, 2] < 0.0


@_compiled
def _on_faces(
    at: Array,
    step: Array,
    points: Array,
    normals: Array,
    drawing: tuple[NDArray[np.float32], float, Array],
    probed: tuple[float, float, int, float],
) -> NDArray[np.bool_]:
    """Return whether N lines lie on their faces in a drawing, on both sides.

    Args:
        at: [N, 2] bearings on creases.
        step: [N, 2] bearing of a step.
        points: [N, 3], m.
        normals: [N, 2, 3] of both faces.
        drawing: 1 / depth, focal length and corner.
        probed: first and last distance in steps, number of places, largest distance from a face's plane.
    """
    drawn, focal, corner = drawing
    clear, reach, probes, flat = probed
    height, width = drawn.shape
    out = np.ones(len(at), np.bool_)
    for i in range(len(at)):
        for side in (-1.0, 1.0):
            on_first, on_second = True, True
            for k in range(probes):
                far = side * (clear + (reach - clear) * k / (probes - 1))
                x, y = at[i, 0] + far * step[i, 0], at[i, 1] + far * step[i, 1]
                column, row = round(focal * x - corner[0]), round(focal * y - corner[1])
                near = 0.0
                if 0 <= column < width and 0 <= row < height:
                    near = drawn[row, column]
                for f in range(2):
                    n, p = normals[i, f], points[i]
                    plane = (n[0] * x + n[1] * y + n[2]) / (n[0] * p[0] + n[1] * p[1] + n[2] * p[2])
                    if not abs(near - plane) < flat * abs(plane):
                        if f == 0:
                            on_first = False
                        else:
                            on_second = False
            if not (on_first or on_second):
                out[i] = False
    return out
