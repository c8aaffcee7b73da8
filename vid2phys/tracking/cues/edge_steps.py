"""The compiled Newton steps of the contour cue: move a pose to edges that were found on N lines across its contour.

The energy is a robust (Cauchy) sum of (J step - mean)^2 / (variance level) over lines, divided by the number of
adjacent lines that err alike, plus the prior of the whole motion. J is linear about the pose of the drawn contour.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from vid2phys.tracking.cues.edge_likelihood import correlated_count
from vid2phys.types import Array

_CHI2_MEDIAN = 0.455  # median of chi-square with one degree of freedom


class DescentSettings(NamedTuple):
    """Settings of `descend`, in a form that compiled code takes.

    Attributes:
        steps: Newton steps.
        overconfidence: factor by which edges state too much information beside the prior.
        robust_sigma: standard deviations beyond which a line counts less.
        min_level: least factor of the stated variances.
        max_correlated: largest number of lines in a row that count as one.
    """

    steps: int
    overconfidence: float
    robust_sigma: float
    min_level: float
    max_correlated: int


_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@_compiled
def slopes(points: Array, along: Array, translation: Array) -> Array:
    """Return the derivative [N, 6] of points along their normals by a step of the pose (`Pose.retract`), px.

    Args:
        points: [N, 3] points of the body in camera axes, m.
        along: [N, 2] derivative of a pixel along the normal by the bearing.
        translation: [3] of the body, m.
    """
    out = np.empty((len(points), 6))
    distance = np.sqrt((translation**2).sum())
    for i in range(len(points)):
        x, y, z = points[i]
        u, v = along[i, 0] / z, along[i, 1] / z  # by the point, px / m
        w = -(u * x + v * y) / z
        x, y, z = x - translation[0], y - translation[1], z - translation[2]
        out[i, 0], out[i, 1], out[i, 2] = y * w - z * v, z * u - x * w, x * v - y * u
        out[i, 3], out[i, 4] = u * distance, v * distance
        out[i, 5] = u * translation[0] + v * translation[1] + w * translation[2]
    return out


def point_slopes(points: Array, along: Array) -> Array:
    """Return the derivative [N, 3] of the places of points along their normals by the points themselves, px / m.

    points, along: see `slopes`.
    """
    x, y, z = points.T
    u, v = along.T / z
    return np.stack([u, v, -(u * x + v * y) / z], axis=-1)


@_compiled
def variance_level(residual: Array, variance: Array, min_level: float, max_correlated: int) -> tuple[float, float]:
    """Return by which factor variances [N] are too small, and how many adjacent lines count as one.

    Half of the residuals [N] lie within 0.67 standard deviations.
    """
    normal = residual / np.sqrt(variance)
    level = max(np.median(normal**2) / _CHI2_MEDIAN, min_level)
    return level, correlated_count(normal / np.sqrt(level), max_correlated)


@_compiled
def normal_equations(residual: Array, jacobian: Array, variance: Array, robust_sigma: float) -> tuple[Array, Array]:
    """Return gradient [D] and Hessian [D, D], without second derivatives, of the robust sum over lines.

    Args:
        residual: [N], px.
        jacobian: [N, D], px.
        variance: [N], px^2.
        robust_sigma: standard deviations beyond which a line counts less.
    """
    size = jacobian.shape[1]
    gradient, hessian = np.zeros(size), np.zeros((size, size))
    for i in range(len(residual)):
        weight = 1.0 / (variance[i] + residual[i] ** 2 / robust_sigma**2)
        for j in range(size):
            weighted = weight * jacobian[i, j]
            gradient[j] += weighted * residual[i]
            for k in range(j + 1):
                hessian[j, k] += weighted * jacobian[i, k]
    for j in range(size):
        for k in range(j):
            hessian[k, j] = hessian[j, k]
    return gradient, hessian


@_compiled
def descend(
    jacobian: Array,
    mean: Array,
    variance: Array,
    prior: Array,
    before: Array,
    most: Array,
    settings: DescentSettings,
) -> tuple[Array, Array]:
    """Return a motion [D] of the pose, and the information [D, D] of the edges there.

    Args:
        jacobian: [N, D] derivative of the lines' residuals, px.
        mean: [N] places of the edges, px.
        variance: [N] of these, px^2.
        prior: [D, D] information about a pose that lies the motion `before` back.
        before: [D] motion so far.
        most: [D] largest step.
        settings: of `ContourConfig`.
    """
    robust_sigma, overconfidence = settings.robust_sigma, settings.overconfidence
    step = np.zeros(len(prior))
    gradient, hessian = normal_equations(-mean, jacobian, variance, robust_sigma)  # a wrong pose has no level
    for _ in range(settings.steps):
        gradient = gradient / overconfidence + prior @ (before + step)
        newton = np.linalg.solve(hessian / overconfidence + prior, -gradient)
        step = step + np.minimum(np.maximum(newton, -most), most)
        residual = jacobian @ step - mean
        level, same = variance_level(residual, variance, settings.min_level, settings.max_correlated)
        gradient, hessian = normal_equations(residual, jacobian, variance * level, robust_sigma)
        gradient, hessian = gradient / same, hessian / same
    return step, hessian
