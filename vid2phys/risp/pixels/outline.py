"""The outline of a posed mesh: points on the surface whose pictures lie on the edge of its silhouette.

The mesh is drawn in a crop of the camera that is zoomed until the body is large, so outlines are as fine for a body of
20 pixels as for one of 200, holes and concave bodies included, and through the lens. Between drawn pixels the edge is
where the blurred silhouette crosses one half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import pixels_to_bearings, project
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.types import Array, Camera, Mesh

_DRAWN_PX = 180.0  # size at which bodies are drawn
_MARGIN = 0.15  # of the body around it
_EDGE_SIGMA = 1.5  # blur of the drawn silhouette in which edge and normal are measured, drawn pixels
_LEAST_POINTS = 12


@dataclass(frozen=True)
class Outline:
    """N points. points: [N, 3] m on the body, camera axes. pixels: [N, 2] of the frame. normals: [N, 2] unit, outward
    in the frame. spacing_px: along the outline, frame pixels. silhouette: the drawing, float32 in [0, 1], whose pixel
    centres are at zoom * (frame pixel + 0.5 - corner) - 0.5."""

    points: Array
    pixels: Array
    normals: Array
    spacing_px: float
    silhouette: NDArray[np.float32]
    zoom: float
    corner: Array

    def select(self, mask: NDArray[np.bool_]) -> Outline:
        """The points where mask [N] is True."""
        return replace(self, points=self.points[mask], pixels=self.pixels[mask], normals=self.normals[mask])

    def to_drawing(self, pixels: Array) -> Array:
        """Pixels of the drawing under pixels of the frame, [..., 2] each."""
        return self.zoom * (pixels + 0.5 - self.corner) - 0.5

    def to_frame(self, drawn: Array) -> Array:
        """The inverse of `to_drawing`."""
        return (drawn + 0.5) / self.zoom - 0.5 + self.corner


def outline_of(mesh: Mesh, camera: Camera, rotation: Array, translation: Array, *, most: int = 240) -> Outline | None:
    """The outline of a mesh at a pose camera_from_body; None where there is none to speak of (behind the camera).

    most: points, evenly spread over all edges.
    """
    import cv2

    posed = mesh.vertices @ rotation.T + translation
    pixels = project(camera, posed)
    if not np.isfinite(pixels).all():
        return None
    low, high = pixels.min(axis=0), pixels.max(axis=0)
    size = float((high - low).max()) + 1e-6
    zoom, corner = _DRAWN_PX / size, low + 0.5 - _MARGIN * size
    shape = np.ceil((high - low + 2.0 * _MARGIN * size) * zoom).astype(int) + 1
    raster = rasterize_camera(posed, mesh.faces, _crop(camera, zoom, corner, shape))
    mask = raster.mask.astype(np.uint8)
    edges, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    if sum(map(len, edges)) < _LEAST_POINTS:
        return None
    on_edge = np.concatenate(edges)[:, 0].astype(np.int64)  # covered pixels, (x, y), in order along each edge
    stride = max(1.0, len(on_edge) / most)
    on_edge = on_edge[np.arange(0.0, len(on_edge) - 0.5, stride).astype(int)]
    silhouette = mask.astype(np.float32)
    column, row = on_edge.T
    place, normal = _edge(silhouette, on_edge)
    sound = np.isfinite(normal).all(axis=-1)
    here = Outline(np.zeros(0), np.zeros(0), normal[sound], stride / zoom, silhouette, zoom, corner)
    at = here.to_frame(place[sound])
    depth = 1.0 / raster.nearness[row - raster.window[0].start, column - raster.window[1].start][sound]
    bearings = pixels_to_bearings(camera, at)
    points = np.concatenate([bearings, np.ones_like(depth[:, None])], axis=-1) * depth[:, None]
    return replace(here, points=points, pixels=at)


def _crop(camera: Camera, zoom: float, corner: Array, shape: NDArray[np.int64]) -> Camera:
    """The camera of the picture of size (width, height) that `Outline.to_drawing` maps to."""
    scale = np.diag([zoom, zoom, 1.0])
    scale[:2, 2] = zoom * (0.5 - corner) - 0.5
    return replace(camera, K=scale @ np.asarray(camera.K, dtype=float), width=int(shape[0]), height=int(shape[1]))


def _edge(silhouette: NDArray[np.float32], on_edge: NDArray[np.int64]) -> tuple[Array, Array]:
    """Places [N, 2] and outward normals [N, 2] of the edge near covered pixels [N, 2]; NaN where it has no direction.

    For a straight edge the blurred silhouette is the normal distribution of the distance, and this is exact.
    """
    import cv2
    from scipy.special import ndtri

    soft = cv2.GaussianBlur(silhouette, (0, 0), _EDGE_SIGMA)
    gradient = np.stack([np.gradient(soft, axis=1), np.gradient(soft, axis=0)], axis=-1)
    column, row = on_edge.T
    slope = gradient[row, column].astype(float)
    length = np.linalg.norm(slope, axis=-1, keepdims=True)
    normal = np.where(length > 0.04, -slope / np.maximum(length, 1e-9), np.nan)
    inside = _EDGE_SIGMA * ndtri(np.clip(soft[row, column].astype(float), 0.5, 0.8))
    return on_edge + inside[:, None] * normal, normal
