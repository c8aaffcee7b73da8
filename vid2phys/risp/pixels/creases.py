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
from vid2phys.risp.pixels.outline import inverse, unit
from vid2phys.risp.pixels.silhouette import Drawing
from vid2phys.types import Array, Camera, Mesh

_SHARP = np.deg2rad(25.0)
_LEAST_LENGTH = 0.15  # of a crease, body radii: shorter ones have no faces beside them to speak of
_MOST = 100  # lines of all creases
_CLEAR_PX = 1.5  # from a crease on, drawn sides are sides
_PROBES = 5  # places on each side of a line at which the drawing must show one of the two faces
_FLAT = 0.01  # of the nearness: what lies in a face's plane


@dataclass(frozen=True)
class Solid:
    """A mesh and its E creases. ends: [E, 2, 3] m. normals: [E, 2, 3] unit, of the faces on both sides; body axes."""

    mesh: Mesh
    ends: Array
    normals: Array

    @staticmethod
    def of(mesh: Mesh) -> Solid:
        """Finds the creases, of faces that share vertices or have them at the same places."""
        import trimesh

        welded = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
        welded.merge_vertices(merge_tex=True, merge_norm=True)
        ends = welded.vertices[welded.face_adjacency_edges]
        length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=-1)
        long = length > _LEAST_LENGTH * np.linalg.norm(mesh.vertices, axis=1).max()
        sharp = np.flatnonzero(long & (welded.face_adjacency_angles > _SHARP))
        ends = ends[sharp]
        normals = welded.face_normals[welded.face_adjacency[sharp]]
        return Solid(mesh, np.array(ends).reshape(-1, 2, 3), np.array(normals).reshape(-1, 2, 3))


@dataclass(frozen=True)
class CreaseLines:
    """N lines across creases. points: [N, 3] m on the body, camera axes. pixels: [N, 2] of the frame. normals: [N, 2]
    unit, across the crease in the frame. along: [N, 2] d (pixel along the normal) / d bearing."""

    points: Array
    pixels: Array
    normals: Array
    along: Array


def crease_lines(
    solid: Solid, drawing: Drawing, camera: Camera, rotation: Array, translation: Array, reach_px: float
) -> CreaseLines | None:
    """Lines that show one face of a crease on one side and the other on the other, `reach_px` of the frame far each.

    drawing: of the mesh at the pose. None where no crease shows as much.
    """
    ends, normals = solid.ends @ rotation.T + translation, solid.normals @ rotation.T
    facing = (np.einsum("ekj,ej->ek", normals, ends.mean(axis=1)) < 0.0).all(axis=1)
    ends, normals = ends[facing], normals[facing]
    bearings = ends[..., :2] / ends[..., 2:]
    length = drawing.focal * np.linalg.norm(bearings[:, 1] - bearings[:, 0], axis=-1)
    counts = (length / max(length.sum() / _MOST, 1.0)).astype(int)
    if counts.sum() == 0:
        return None
    crease = np.repeat(np.arange(len(ends)), counts)
    share = (np.arange(len(crease)) - np.repeat(np.cumsum(counts) - counts, counts) + 0.5) / counts[crease]
    first, run = bearings[crease, 0], (bearings[:, 1] - bearings[:, 0])[crease]
    near = 1.0 / ends[..., 2]  # linear in the picture
    at = first + share[:, None] * run
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
