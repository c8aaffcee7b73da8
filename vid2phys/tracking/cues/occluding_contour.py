"""The occluding contour of a mesh at a pose: points on the surface whose images lie on the edge of its silhouette.

The contour comes from a drawing (`silhouette.draw`), holes and concave bodies included. The lens is linear about each
point. Between drawn pixels the edge lies where the blurred silhouette crosses one half.

Limits: parts that are thinner than a drawn pixel have no contour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.tracking.cues.contour_config import DEFAULTS, ContourConfig
from vid2phys.tracking.cues.exposure import averaged
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.types import Array, Camera

_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@dataclass(frozen=True)
class OccludingContour:
    """N points of a contour.

    Attributes:
        points: [N, 3] on the body, camera axes, m.
        pixels: [N, 2] in the frame.
        normals: [N, 2] unit, outward in the frame.
        along: [N, 2] derivative of a pixel along the normal by the bearing.
        silhouette: the drawing, float32 [h, w], 0 or 1.
        lens_px: blur of the lens, standard deviation, px of the drawing.
        drawn: [N, 2] the points in the drawing.
        across: [N, 2] one frame pixel along a normal, in pixels of the drawing.
        path: [2] of the body in the exposure of the frame, px of the drawing.
    """

    points: Array
    pixels: Array
    normals: Array
    along: Array
    silhouette: NDArray[np.float32]
    lens_px: float
    drawn: Array
    across: Array
    path: Array

    @cached_property
    def coverage(self) -> NDArray[np.float32]:
        """The drawing through the lens, along the path of an exposure, float32 [h, w] in 0..1."""
        import cv2

        lit = np.asarray(cv2.GaussianBlur(self.silhouette, (0, 0), self.lens_px), dtype=np.float32)
        return averaged(lit, self.path)

    @property
    def blur_px(self) -> Array:
        """The widths [N] that the body's motion gives to the edges, px of the frame."""
        return np.asarray(np.abs(self.across @ self.path) / (self.across**2).sum(axis=1))

    def still(self) -> OccludingContour:
        """Return the contour of a body that does not move in the exposure."""
        return replace(self, path=np.zeros(2))

    @property
    def size_px(self) -> float:
        """The size of the body in the frame: the longer side of the rectangle around the contour."""
        return float((self.pixels.max(axis=0) - self.pixels.min(axis=0)).max())


def occluding_contour(drawing: Drawing, camera: Camera, config: ContourConfig = DEFAULTS) -> OccludingContour | None:
    """Return the contour of a drawn mesh; None where its edge has too few pixels."""
    import cv2

    nearness, focal, corner = drawing.nearness, drawing.focal, drawing.corner
    mask = (nearness > 0.0).astype(np.uint8)
    edges, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    if sum(map(len, edges)) < config.min_contour_points:
        return None
    on_edge = np.concatenate(edges)[:, 0].astype(np.int64)  # covered pixels, (x, y), in order along each edge
    stride = max(1.0, len(on_edge) / config.max_contour_points)
    on_edge = on_edge[np.arange(0.0, len(on_edge) - 0.5, stride).astype(int)]
    silhouette = mask.astype(np.float32)
    drawn, outward = _edge(silhouette, on_edge, config)
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
    lens_px = config.lens_px * zoom
    path = focal * np.linalg.solve(to_pixels.mean(axis=0), np.array(config.path_px))
    return OccludingContour(points, pixels[sound], normals, along, silhouette, lens_px, drawn[sound], across, path)


@_compiled
def lines_across(to_pixels: Array, outward: Array) -> tuple[Array, Array, Array]:
    """Return lines across edges whose normals among bearings are outward [N, 2], of any length.

    Args:
        to_pixels: [N, 2, 2] derivative of pixels by bearings.
        outward: [N, 2] normals among bearings.

    Returns:
        Unit normals [N, 2] in the frame, a pixel along each of them in bearings [N, 2], and the derivative of a pixel
        along the normal by the bearing [N, 2].
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


def _edge(silhouette: NDArray[np.float32], on_edge: NDArray[np.int64], config: ContourConfig) -> tuple[Array, Array]:
    """Return places [N, 2] and outward normals [N, 2] of the edge near covered pixels [N, 2].

    Both are NaN where the edge has no direction. The result is exact for a straight edge, whose blurred silhouette is
    the normal distribution of the distance.
    """
    import cv2
    from scipy.special import ndtri

    soft = np.asarray(cv2.GaussianBlur(silhouette, (0, 0), config.edge_sigma_px), dtype=np.float32)
    normal, height = _slope(soft, on_edge, config.min_slope)
    return on_edge + config.edge_sigma_px * ndtri(height)[:, None] * normal, normal


@_compiled
def _slope(soft: NDArray[np.float32], at: NDArray[np.int64], min_slope: float) -> tuple[Array, Array]:
    """Return unit vectors [N, 2] down a blurred silhouette at pixels [N, 2], and its height [N] there in 0.5..0.8."""
    normal, height = np.empty((len(at), 2)), np.empty(len(at))
    for i in range(len(at)):
        column, row = at[i]
        x = 0.5 * (soft[row, column - 1] - soft[row, column + 1])
        y = 0.5 * (soft[row - 1, column] - soft[row + 1, column])
        length = math.hypot(x, y)
        normal[i] = np.nan
        if length > min_slope:
            normal[i, 0], normal[i, 1] = x / length, y / length
        height[i] = min(max(soft[row, column], 0.5), 0.8)
    return normal, height
