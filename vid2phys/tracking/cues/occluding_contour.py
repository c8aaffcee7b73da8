"""The outline of a posed mesh: points on the surface whose images lie on the edge of its silhouette.

It is read from a drawing (`silhouette.draw`), holes and concave bodies included; the lens is what it is to first order
about each point. Between drawn pixels the edge is where the blurred silhouette crosses one half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.types import Array, Camera

LENS_PX = 0.85  # blur of lens, codec, pixel and reading between pixels
_EDGE_SIGMA = 1.5  # blur of the drawn silhouette in which edge and normal are measured, drawn pixels
_LEAST_SLOPE = 0.04  # of that a pixel: less has no direction
_LEAST_POINTS = 12
_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


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
    normals, steps, along = lines_across(to_pixels, outward)
    across = focal * steps
    zoom = float(np.hypot(across[:, 0], across[:, 1]).mean())
    coverage = np.asarray(cv2.GaussianBlur(silhouette, (0, 0), LENS_PX * zoom), dtype=np.float32)
    return Outline(points, pixels[sound], normals, along, coverage, drawn[sound], across)


@_compiled
def lines_across(to_pixels: Array, outward: Array) -> tuple[Array, Array, Array]:
    """Across edges whose normals among bearings are outward [N, 2] of any length; to_pixels: [N, 2, 2].

    Returns unit normals [N, 2] in the frame, what a pixel along them is in bearings [N, 2], and d (pixel along the
    normal) / d bearing [N, 2].
    """
    normals, steps, along = np.empty_like(outward), np.empty_like(outward), np.empty_like(outward)
    for i in range(len(outward)):
        (a, b), (c, d) = to_pixels[i]
        x, y = outward[i, 0] * d - outward[i, 1] * c, outward[i, 1] * a - outward[i, 0] * b
        length = math.hypot(x, y)
        x, y, det = x / length, y / length, a * d - b * c
        normals[i, 0], normals[i, 1] = x, y
        steps[i, 0], steps[i, 1] = (d * x - b * y) / det, (a * y - c * x) / det
        along[i, 0], along[i, 1] = x * a + y * c, x * b + y * d
    return normals, steps, along


def _edge(silhouette: NDArray[np.float32], on_edge: NDArray[np.int64]) -> tuple[Array, Array]:
    """Places [N, 2] and outward normals [N, 2] of the edge near covered pixels [N, 2]; NaN where it has no direction.

    For a straight edge the blurred silhouette is the normal distribution of the distance, and this is exact.
    """
    import cv2
    from scipy.special import ndtri

    soft = np.asarray(cv2.GaussianBlur(silhouette, (0, 0), _EDGE_SIGMA), dtype=np.float32)
    normal, height = _slope(soft, on_edge)
    return on_edge + _EDGE_SIGMA * ndtri(height)[:, None] * normal, normal


@_compiled
def _slope(soft: NDArray[np.float32], at: NDArray[np.int64]) -> tuple[Array, Array]:
    """Unit vectors [N, 2] down a blurred silhouette at pixels [N, 2], and its height there between a half and what is
    far from an edge."""
    normal, height = np.empty((len(at), 2)), np.empty(len(at))
    for i in range(len(at)):
        column, row = at[i]
        x = 0.5 * (soft[row, column - 1] - soft[row, column + 1])
        y = 0.5 * (soft[row - 1, column] - soft[row + 1, column])
        length = math.hypot(x, y)
        normal[i] = np.nan
        if length > _LEAST_SLOPE:
            normal[i, 0], normal[i, 1] = x / length, y / length
        height[i] = min(max(soft[row, column], 0.5), 0.8)
    return normal, height
