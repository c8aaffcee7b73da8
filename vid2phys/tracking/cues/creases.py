"""Creases of a mesh: edges at which faces meet at an angle; lines across those that a pose shows inside its outline.

Light makes the two sides of a crease differ, so that it says how a body is turned where its outline does not: most of
all of boxes, whose outline hardly moves with small turns of a face seen head on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.engine.render.rasterizer import face_normals
from vid2phys.io.faces import first_alike
from vid2phys.tracking.cues.occluding_contour import lines_across
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.types import Array, Camera, Mesh

_SHARP = np.deg2rad(25.0)
_LEAST_LENGTH = 0.1  # of a crease, body radii: shorter ones have no faces beside them to speak of
_SAME = 1e-6  # body radii between vertices that are one
_MOST = 100  # lines of all creases
_CLEAR_PX = 1.5  # from a crease on, drawn sides are sides
_PROBES = 5  # places on each side of a line at which the drawing must show one of the two faces
_FLAT = 0.01  # of the nearness: what lies in a face's plane


@dataclass(frozen=True)
class Solid:
    """A mesh and its E creases. edges: [E, 2] indices of vertices. sides: [E, 2] of the faces on both sides."""

    mesh: Mesh
    edges: NDArray[np.int64]
    sides: NDArray[np.int64]

    @staticmethod
    def of(mesh: Mesh) -> Solid:
        """Finds the creases, of faces that share vertices or have them at the same places."""
        sides, edges, sharp = _meeting(mesh)
        along = mesh.vertices[edges[:, 1]] - mesh.vertices[edges[:, 0]]
        radius = mesh.radius_m
        kept = sharp & (np.linalg.norm(along, axis=-1) > _LEAST_LENGTH * radius)
        return Solid(mesh, edges[kept], sides[kept])

    def without_creases(self) -> Solid:
        """Return the body without creases."""
        return replace(self, edges=self.edges[:0], sides=self.sides[:0])

    @cached_property
    def smooth_parts(self) -> NDArray[np.int64]:
        """Which part of the surface each face [F] is of: parts end where faces meet at an angle, and where the mesh's
        own parts do."""
        from trimesh.graph import connected_component_labels

        sides, _, sharp = _meeting(self.mesh)
        joined = ~sharp & (self.mesh.part[sides[:, 0]] == self.mesh.part[sides[:, 1]])
        return np.asarray(connected_component_labels(sides[joined], len(self.mesh.faces)), dtype=np.int64)


def _meeting(mesh: Mesh) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Pairs of faces [N, 2] that meet, the edges [N, 2] where they do, and whether at an angle [N]."""
    from trimesh.graph import face_adjacency

    radius = mesh.radius_m
    welded = first_alike(mesh.vertices, _SAME * radius)[mesh.faces]
    sides, edges = face_adjacency(faces=welded, return_edges=True)
    sides, edges = np.asarray(sides).reshape(-1, 2), np.asarray(edges).reshape(-1, 2)
    normals = face_normals(mesh.vertices, mesh.faces)[sides]
    sharp = np.einsum("ej,ej->e", normals[:, 0], normals[:, 1]) < np.cos(_SHARP)
    return sides, edges, sharp


@dataclass(frozen=True)
class CreaseLines:
    """N lines across creases. points: [N, 3] m on the body, camera axes. pixels: [N, 2] of the frame. normals: [N, 2]
    unit, across the crease in the frame. along: [N, 2] d (pixel along the normal) / d bearing."""

    points: Array
    pixels: Array
    normals: Array
    along: Array


def crease_lines(solid: Solid, posed: Array, drawing: Drawing, camera: Camera, reach_px: float) -> CreaseLines | None:
    """Lines that show one face of a crease on one side and the other on the other, `reach_px` of the frame far each.

    posed: [V, 3] m, the mesh's vertices in camera axes. drawing: of them. None where no crease shows as much.
    """
    at, run, points, normals = _along_creases(posed, solid.edges, solid.mesh.faces[solid.sides], drawing.focal, _MOST)
    if not len(at):
        return None
    pixels, to_pixels = bearings_to_pixels(camera, at), bearing_jacobian_to_pixels(camera, at)
    across, step, along = lines_across(to_pixels, np.stack([-run[:, 1], run[:, 0]], axis=-1))
    shown = _on_faces(at, step, points, normals, drawing.nearness, drawing.focal, drawing.corner, _CLEAR_PX, reach_px)
    shown &= np.isfinite(pixels).all(axis=-1) & np.isfinite(across).all(axis=-1)
    if not shown.any():
        return None
    return CreaseLines(points[shown], pixels[shown], across[shown], along[shown])


_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@_compiled
def _along_creases(
    posed: Array, edges: NDArray[np.int64], faces: NDArray[np.int64], focal: float, most: int
) -> tuple[Array, Array, Array, Array]:
    """At most so many places, a drawn pixel or more apart, along creases whose two faces are turned to the camera.

    posed: [V, 3] m. edges: [E, 2], faces: [E, 2, 3] of vertices. Returns bearings [N, 2], what leads from end to end
    of their creases [N, 2], points [N, 3] m and normals of the faces [N, 2, 3] of any length.
    """
    count = len(edges)
    normals, length = np.empty((count, 2, 3)), np.zeros(count)
    for e in range(count):
        a, b = posed[edges[e, 0]], posed[edges[e, 1]]
        facing = True
        for f in range(2):
            corner = posed[faces[e, f, 0]]
            normals[e, f] = np.cross(posed[faces[e, f, 1]] - corner, posed[faces[e, f, 2]] - corner)
            facing &= (normals[e, f] * a).sum() < 0.0
        if facing:
            length[e] = focal * math.hypot(b[0] / b[2] - a[0] / a[2], b[1] / b[2] - a[1] / a[2])
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
        a, b = posed[edges[e, 0]], posed[edges[e, 1]]
        for k in range(2):
            run[i, k] = b[k] / b[2] - a[k] / a[2]
            at[i, k] = a[k] / a[2] + share * run[i, k]
        depth = 1.0 / (1.0 / a[2] + share * (1.0 / b[2] - 1.0 / a[2]))  # its inverse is linear in the image
        points[i, 0], points[i, 1], points[i, 2] = at[i, 0] * depth, at[i, 1] * depth, depth
        of_faces[i] = normals[e]
    return at, run, points, of_faces


@_compiled
def _on_faces(
    at: Array,
    step: Array,
    points: Array,
    normals: Array,
    drawn: NDArray[np.float32],
    focal: float,
    corner: Array,
    clear: float,
    reach: float,
) -> NDArray[np.bool_]:
    """Whether N lines lie on their faces in a drawing, from `clear` to `reach` steps to both sides.

    at: [N, 2] bearings on creases. step: [N, 2] bearing of a step. points: [N, 3] m. normals: [N, 2, 3] of both faces.
    """
    height, width = drawn.shape
    out = np.ones(len(at), np.bool_)
    for i in range(len(at)):
        for side in (-1.0, 1.0):
            on_first, on_second = True, True
            for k in range(_PROBES):
                far = side * (clear + (reach - clear) * k / (_PROBES - 1))
                x, y = at[i, 0] + far * step[i, 0], at[i, 1] + far * step[i, 1]
                column, row = round(focal * x - corner[0]), round(focal * y - corner[1])
                near = 0.0
                if 0 <= column < width and 0 <= row < height:
                    near = drawn[row, column]
                for f in range(2):
                    n, p = normals[i, f], points[i]
                    plane = (n[0] * x + n[1] * y + n[2]) / (n[0] * p[0] + n[1] * p[1] + n[2] * p[2])
                    if not abs(near - plane) < _FLAT * abs(plane):
                        if f == 0:
                            on_first = False
                        else:
                            on_second = False
            if not (on_first or on_second):
                out[i] = False
    return out
