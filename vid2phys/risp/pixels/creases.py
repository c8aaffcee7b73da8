"""Creases of a mesh: edges at which faces meet at an angle; lines across those that a pose shows inside its outline.

Light makes the two sides of a crease differ, so that it says how a body is turned where its outline does not: most of
all of boxes, whose outline hardly moves with small turns of a face seen head on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.engine.render.rasterizer import face_normals
from vid2phys.io.faces import first_alike
from vid2phys.risp.pixels.outline import inverse, unit
from vid2phys.risp.pixels.silhouette import Drawing
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
        from trimesh.graph import face_adjacency

        radius = np.linalg.norm(mesh.vertices, axis=1).max()
        welded = first_alike(mesh.vertices, _SAME * radius)[mesh.faces]
        sides, edges = face_adjacency(faces=welded, return_edges=True)
        sides, edges = np.asarray(sides).reshape(-1, 2), np.asarray(edges).reshape(-1, 2)
        normals = face_normals(mesh.vertices, mesh.faces)[sides]
        sharp = np.einsum("ej,ej->e", normals[:, 0], normals[:, 1]) < np.cos(_SHARP)
        along = mesh.vertices[edges[:, 1]] - mesh.vertices[edges[:, 0]]
        kept = sharp & (np.linalg.norm(along, axis=-1) > _LEAST_LENGTH * radius)
        return Solid(mesh, edges[kept], sides[kept])


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
    ends, faces = posed[solid.edges], solid.mesh.faces[solid.sides]
    normals = face_normals(posed, faces.reshape(-1, 3)).reshape(-1, 2, 3)
    facing = (np.einsum("ekj,ej->ek", normals, ends[:, 0]) < 0.0).all(axis=1)
    ends, normals = ends[facing], normals[facing]
    bearings = ends[..., :2] / ends[..., 2:]
    length = drawing.focal * np.linalg.norm(bearings[:, 1] - bearings[:, 0], axis=-1)
    total = float(length.sum())
    if total < 1.0:
        return None
    place = np.arange(0.5, min(_MOST, total)) * max(total / _MOST, 1.0)  # along all creases, one after the other
    crease = np.searchsorted(np.cumsum(length), place)
    share = (place - (np.cumsum(length) - length)[crease]) / length[crease]
    run = (bearings[:, 1] - bearings[:, 0])[crease]
    near = 1.0 / ends[..., 2]  # linear in the picture
    at = bearings[crease, 0] + share[:, None] * run
    nearness = near[crease, 0] + share * (near[:, 1] - near[:, 0])[crease]
    points = np.concatenate([at, np.ones((len(at), 1))], axis=-1) / nearness[:, None]
    pixels, to_pixels = bearings_to_pixels(camera, at), bearing_jacobian_to_pixels(camera, at)
    tangent = (to_pixels @ run[..., None])[..., 0]
    across = unit(np.stack([-tangent[:, 1], tangent[:, 0]], axis=-1))
    step = (inverse(to_pixels) @ across[..., None])[..., 0]
    shown = _on_faces(
        at, step, points, normals[crease], drawing.nearness, drawing.focal, drawing.corner, _CLEAR_PX, reach_px
    )
    shown &= np.isfinite(pixels).all(axis=-1) & np.isfinite(across).all(axis=-1)
    if not shown.any():
        return None
    along = (across[:, None] @ to_pixels)[:, 0]
    return CreaseLines(points[shown], pixels[shown], across[shown], along[shown])


@numba.njit(cache=True, error_model="numpy", nogil=True)
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
