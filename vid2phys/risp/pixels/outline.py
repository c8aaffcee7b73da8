"""The outline of a posed mesh: points on the surface whose pictures lie on the edge of its silhouette.

It is read from a drawing (`silhouette.draw`), holes and concave bodies included; the lens is what it is to first order
about each point. Between drawn pixels the edge is where the blurred silhouette crosses one half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.risp.pixels.silhouette import Drawing
from vid2phys.types import Array, Camera

LENS_PX = 0.85  # blur of lens, codec, pixel and reading between pixels
_EDGE_SIGMA = 1.5  # blur of the drawn silhouette in which edge and normal are measured, drawn pixels
_LEAST_SLOPE = 0.04  # of that a pixel: less has no direction
_LEAST_POINTS = 12


@dataclass(frozen=True)
class Outline:
    """N points. points: [N, 3] m on the body, camera axes. pixels: [N, 2] of the frame. normals: [N, 2] unit, outward
    in the frame. along: [N, 2] d (pixel along the normal) / d bearing. coverage: the drawing through the lens,
    float32 in [0, 1], with the points at `drawn` [N, 2] and one frame pixel along a normal being `across` [N, 2] of its
    pixels."""

    points: Array
    pixels: Array
    normals: Array
    along: Array
    coverage: NDArray[np.float32]
    drawn: Array
    across: Array

    @property
    def size_px(self) -> float:
        """Of the body in the frame: the longer side of the rectangle around the outline."""
        return float((self.pixels.max(axis=0) - self.pixels.min(axis=0)).max())


def outline_of(drawing: Drawing, camera: Camera, *, most: int = 160) -> Outline | None:
    """The outline of a mesh as drawn; None where there is none to speak of.

    most: points, evenly spread over all edges.
    """
    import cv2

    nearness, focal, corner = drawing.nearness, drawing.focal, drawing.corner
    mask = (nearness > 0.0).astype(np.uint8)
    edges, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    if sum(map(len, edges)) < _LEAST_POINTS:
        return None
    on_edge = np.concatenate(edges)[:, 0].astype(np.int64)  # covered pixels, (x, y), in order along each edge
    stride = max(1.0, len(on_edge) / most)
    on_edge = on_edge[np.arange(0.0, len(on_edge) - 0.5, stride).astype(int)]
    silhouette = mask.astype(np.float32)
    drawn, outward = _edge(silhouette, on_edge)
    at = (drawn + corner) / focal
    pixels, to_pixels = bearings_to_pixels(camera, at), bearing_jacobian_to_pixels(camera, at)
    sound = np.isfinite(outward + pixels).all(axis=-1)
    if not sound.any():
        return None
    to_pixels, outward, (column, row) = to_pixels[sound], outward[sound], on_edge[sound].T
    points = np.concatenate([at[sound], np.ones((len(row), 1))], axis=-1) / nearness[row, column, None].astype(float)
    to_bearings = inverse(to_pixels)
    normals = unit((outward[:, None] @ to_bearings)[:, 0])
    across = focal * (to_bearings @ normals[..., None])[..., 0]
    zoom = float(np.hypot(across[:, 0], across[:, 1]).mean())
    coverage = np.asarray(cv2.GaussianBlur(silhouette, (0, 0), LENS_PX * zoom), dtype=np.float32)
    along = (normals[:, None] @ to_pixels)[:, 0]
    return Outline(points, pixels[sound], normals, along, coverage, drawn[sound], across)


def unit(vectors: Array) -> Array:
    """Vectors [N, 2] at length one."""
    return np.asarray(vectors / np.hypot(vectors[:, 0], vectors[:, 1])[:, None])


def inverse(matrices: Array) -> Array:
    """Of [N, 2, 2]."""
    a, b, c, d = matrices.reshape(-1, 4).T
    return np.asarray((np.stack([d, -b, -c, a]) / (a * d - b * c)).T.reshape(-1, 2, 2))


def _edge(silhouette: NDArray[np.float32], on_edge: NDArray[np.int64]) -> tuple[Array, Array]:
    """Places [N, 2] and outward normals [N, 2] of the edge near covered pixels [N, 2]; NaN where it has no direction.

    For a straight edge the blurred silhouette is the normal distribution of the distance, and this is exact.
    """
    import cv2
    from scipy.special import ndtri

    soft = cv2.GaussianBlur(silhouette, (0, 0), _EDGE_SIGMA)
    column, row = on_edge.T
    across = soft[row, column + 1] - soft[row, column - 1], soft[row + 1, column] - soft[row - 1, column]
    slope = 0.5 * np.stack(across, axis=-1).astype(float)
    length = np.linalg.norm(slope, axis=-1, keepdims=True)
    normal = np.where(length > _LEAST_SLOPE, -slope / np.maximum(length, 1e-9), np.nan)
    inside = _EDGE_SIGMA * ndtri(np.clip(soft[row, column].astype(float), 0.5, 0.8))
    return on_edge + inside[:, None] * normal, normal
