"""Draw the lines of a mesh in an image: its silhouette's edge, and borders between its parts, smooth at any zoom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import rasterize
from vid2phys.geometry import Array, invert_transform, transform_points
from vid2phys.types import Camera, Mesh

Image = NDArray[np.uint8]
Box = tuple[float, float, float, float]  # left, top, right, bottom [px]
_SUPERSAMPLE = 2
_PARTS_FROM_PX = 80  # a smaller object has too many lines when its parts have borders too


@dataclass(frozen=True)
class Window:
    """A rectangle of the frame, magnified: left, top [px] of its first pixel's corner, size [px] and scale.

    The frame's pixel u, with centres at integers, is at (u - left + 0.5) * scale - 0.5 in the window.
    """

    left: float
    top: float
    width: int
    height: int
    scale: float = 1.0

    def place(self, pixels: Array) -> Array:
        """Return frame pixels as window pixels, [..., 2]."""
        return (pixels - np.array([self.left, self.top]) + 0.5) * self.scale - 0.5


@dataclass(frozen=True)
class Projected:
    """A mesh seen by a camera: pixels [..., V, 2] through the whole distortion model, depths [..., V] m."""

    pixels: Array
    depths: Array


def project_vertices(camera: Camera, vertices_world: Array) -> Projected:
    """Return vertices [V, 3] m of the world in the image; pixels are NaN outside of the camera's view.

    Vertices [T, V, 3] are those of T frames.
    """
    assert camera.camera_to_world is not None
    points = transform_points(invert_transform(camera.camera_to_world), vertices_world)
    return Projected(project(camera, points), points[..., 2])


def bounds(projected: Projected) -> Box | None:
    """Return the box around the visible vertices; None when no vertex is visible."""
    seen = projected.pixels[np.isfinite(projected.pixels).all(axis=1)]
    return (*seen.min(axis=0), *seen.max(axis=0)) if len(seen) else None


def mesh_lines(projected: Projected, mesh: Mesh, window: Window, thickness_px: float = 1.6) -> Array:
    """Return the share of each pixel of a window that the mesh's lines cover, [height, width] in [0, 1].

    The contour is drawn full; where there is room, borders between parts are drawn at half strength.
    """
    import cv2

    fine = _SUPERSAMPLE
    part = _part_map(projected, mesh, window, fine)
    inside = (part >= 0).astype(np.uint8)
    lines = np.zeros(part.shape, dtype=np.float32)
    if min(part.shape) > _PARTS_FROM_PX * fine:
        lines[cv2.dilate(_part_edges(part), np.ones((2, 2), np.uint8)) > 0] = 0.45
    contours, _ = cv2.findContours(inside, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    silhouette = np.zeros(part.shape, dtype=np.uint8)
    cv2.drawContours(silhouette, contours, -1, 255, max(1, round(fine * thickness_px)))
    lines[silhouette > 0] = 1.0
    small = cv2.resize(lines, (window.width, window.height), interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=float)


def blend(image: Image, cover: Array, color: tuple[int, int, int]) -> None:
    """Mix a colour into an image in place, by coverage [H, W]."""
    rows, columns = np.nonzero(cover > 0.01)
    share = cover[rows, columns][:, None]
    image[rows, columns] = np.round(image[rows, columns] * (1 - share) + np.array(color) * share).astype(np.uint8)


def _part_map(projected: Projected, mesh: Mesh, window: Window, fine: int) -> NDArray[np.int64]:
    """Return the part of the mesh at each fine pixel of a window, -1 where there is none."""
    seen = np.asarray(np.isfinite(projected.pixels).all(axis=1))
    kept = np.flatnonzero(seen[mesh.faces].all(axis=1))
    scaled = (window.place(projected.pixels) + 0.5) * fine - 0.5
    depths = np.where(seen, projected.depths, 1.0)
    # a pinhole with K = 1 puts these points on the pixels that the real camera, distortion included, sees them at
    flat = np.where(seen[:, None], scaled, 0.0) * depths[:, None]
    vertices = np.concatenate([flat, depths[:, None]], axis=1)
    raster = rasterize(vertices, mesh.faces[kept], np.eye(3), window.width * fine, window.height * fine)
    face = np.asarray(raster.face_id)
    return np.where(face >= 0, mesh.part[kept][np.maximum(face, 0)], -1) if len(kept) else np.full(face.shape, -1)


def _part_edges(part: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the pixels whose right or lower neighbour is another part."""
    edges = np.zeros(part.shape, dtype=np.uint8)
    edges[:, :-1] |= (part[:, :-1] != part[:, 1:]).astype(np.uint8)
    edges[:-1] |= (part[:-1] != part[1:]).astype(np.uint8)
    return edges
