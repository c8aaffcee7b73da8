"""Draw the silhouette and the depth of a mesh: a compiled z-buffer for small images that are drawn often.

Limits: faces that reach behind the camera are dropped; lens distortion is left to the reader of the drawing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class SilhouetteConfig:
    """Settings of `draw`."""

    size_px: float = 150.0
    """Longer side of a drawn body, px."""
    margin_px: float = 16.0
    """Margin of the drawing around the body, px."""
    min_depth_m: float = 1e-6
    """Least depth of a vertex before the camera, m."""


DEFAULTS = SilhouetteConfig()
_compiled = numba.njit(cache=True, fastmath=True, error_model="numpy", nogil=True)
_Edges = tuple[float, float, float, float, float, float, float]


@dataclass(frozen=True)
class Drawing:
    """A mesh at a pose, drawn by a pinhole camera that is zoomed until the body is large.

    So a drawing is as fine for a body of 20 pixels in the frame as for one of 200. A drawn pixel is
    focal * bearing - corner.

    Attributes:
        nearness: [h, w] 1 / depth, zero beside the body, 1/m.
        focal: focal length of the drawing, px.
        corner: [2], px.
    """

    nearness: NDArray[np.float32]
    focal: float
    corner: Array

    def to_frame(self, camera: Camera) -> Array:
        """Return the affine map [2, 3] from pixels of the drawing to pixels of the frame; the lens is linear here."""
        height, width = self.nearness.shape
        middle = np.array([0.5 * width, 0.5 * height])
        bearing = (middle + self.corner) / self.focal
        slope = bearing_jacobian_to_pixels(camera, bearing) / self.focal
        return np.column_stack([slope, bearings_to_pixels(camera, bearing) - slope @ middle])

    def in_frame(self, camera: Camera) -> tuple[slice, slice, NDArray[np.bool_]] | None:
        """Return rows and columns of the frame that hold the body, and which of their pixels show it; None for none."""
        import cv2

        mask, to_frame = (self.nearness > 0.0).astype(np.uint8), self.to_frame(camera)
        slope, offset = to_frame[:, :2], to_frame[:, 2]
        height, width = mask.shape
        corners = np.array([[0, 0], [width, 0], [0, height], [width, height]]) @ slope.T + offset
        low = np.clip(np.floor(corners.min(axis=0)), 0, [camera.width, camera.height]).astype(int)
        high = np.clip(np.ceil(corners.max(axis=0)), 0, [camera.width, camera.height]).astype(int)
        if (high - low).min() < 2:
            return None
        affine = np.column_stack([slope, offset - low])
        shown = cv2.warpAffine(mask, affine, tuple((high - low).tolist()), flags=cv2.INTER_NEAREST)
        return slice(low[1], high[1]), slice(low[0], high[0]), shown > 0


def silhouette_of(
    vertices: Array, faces: NDArray[np.int64], camera: Camera
) -> tuple[slice, slice, NDArray[np.bool_]] | None:
    """Return rows and columns of the frame that hold a mesh, and which of their pixels show it; None for none.

    vertices: [V, 3] in camera axes, m. faces: [F, 3].
    """
    drawing = draw(vertices, faces)
    return None if drawing is None else drawing.in_frame(camera)


def draw(
    vertices: Array,
    faces: NDArray[np.int64],
    one_sided: NDArray[np.bool_] | None = None,
    config: SilhouetteConfig = DEFAULTS,
) -> Drawing | None:
    """Draw a mesh; return None where it reaches behind the camera.

    Args:
        vertices: [V, 3] in camera axes, m.
        faces: [F, 3] indices of vertices.
        one_sided: [F] faces that are never seen from behind (`engine.closed_surfaces`), which saves time; None
            for none.
        config: settings.
    """
    if not vertices[:, 2].min() > config.min_depth_m:
        return None
    z = vertices[:, 2].copy()
    bearings = np.ascontiguousarray(vertices.T[:2]) / z  # [2, V]
    low, high = bearings.min(axis=1), bearings.max(axis=1)
    focal = config.size_px / float((high - low).max() + 1e-9)
    corner = focal * low - config.margin_px
    width, height = (int(side) for side in np.ceil(focal * (high - low) + 2.0 * config.margin_px) + 1)
    x, y = focal * bearings - corner[:, None]
    sides = np.zeros(len(faces), dtype=bool) if one_sided is None else one_sided
    return Drawing(draw_nearness(x, y, z, faces, sides, width, height), focal, corner)


@_compiled
def draw_nearness(
    x: Array,
    y: Array,
    z: Array,
    faces: NDArray[np.int64],
    one_sided: NDArray[np.bool_],
    width: int,
    height: int,
) -> NDArray[np.float32]:
    """Return 1 / depth [height, width] of the nearest face at each pixel centre, zero where there is none.

    Faces that reach behind the camera are dropped. Edges between vertices are straight in the image.

    Args:
        x: [V] columns of the vertices, px; pixel centres are integers.
        y: [V] rows of the vertices, px.
        z: [V] depths of the vertices, m.
        faces: [F, 3] indices of vertices.
        one_sided: [F] faces that are never seen from behind.
        width: columns of the image.
        height: rows of the image.
    """
    out = np.zeros((height, width), np.float32)
    for f in range(faces.shape[0]):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        za, zb, zc = z[a], z[b], z[c]
        if not (za > 0.0 and zb > 0.0 and zc > 0.0):
            continue
        xa, ya, xb, yb, xc, yc = x[a], y[a], x[b], y[b], x[c], y[c]
        ux, uy, vx, vy = xb - xa, yb - ya, xc - xa, yc - ya
        area = ux * vy - uy * vx  # positive from behind, as rows run downwards
        top = max(0, math.ceil(ya + min(0.0, uy, vy)))
        bottom = min(height - 1, math.floor(ya + max(0.0, uy, vy)))
        if area == 0.0 or top > bottom or (area > 0.0 and one_sided[f]):
            continue
        base = 1.0 / za  # which is linear in the image
        du, dv = 1.0 / zb - base, 1.0 / zc - base
        by_x, by_y = (du * vy - dv * uy) / area, (dv * ux - du * vx) / area
        base -= by_x * xa + by_y * ya
        edges = edges_by_row(xa, ya, xb, yb, xc, yc)
        for row in range(top, bottom + 1):
            first, last = columns_within(edges, row)
            start = base + by_y * row
            for column in range(max(0, first), min(width - 1, last) + 1):
                near = np.float32(start + by_x * column)
                if near > out[row, column]:
                    out[row, column] = near
    return out


@_compiled
def edges_by_row(xa: float, ya: float, xb: float, yb: float, xc: float, yc: float) -> _Edges:
    """Return the upper two corners (x, y) of a triangle, and by how many columns its edges run in a row.

    The edges are the one from the first to the last row, and the upper and the lower one beside it.
    """
    if yb < ya:
        xa, ya, xb, yb = xb, yb, xa, ya
    if yc < ya:
        xa, ya, xc, yc = xc, yc, xa, ya
    if yc < yb:
        xb, yb, xc, yc = xc, yc, xb, yb
    return xa, ya, xb, yb, _run(xa, ya, xc, yc), _run(xa, ya, xb, yb), _run(xb, yb, xc, yc)


@_compiled
def _run(xa: float, ya: float, xb: float, yb: float) -> float:
    """Return by how many columns an edge runs in a row, from a place to one below it; zero within one row."""
    return (xb - xa) / (yb - ya) if yb > ya else 0.0


@_compiled
def columns_within(edges: _Edges, row: int) -> tuple[int, int]:
    """Return the first and the last column of a triangle in one of its rows. edges: of `edges_by_row`."""
    xa, ya, xb, yb, whole, upper, lower = edges
    one = xa + whole * (row - ya)
    other = xa + upper * (row - ya) if row < yb else xb + lower * (row - yb)
    return math.ceil(min(one, other)), math.floor(max(one, other))
