"""The compiled Newton steps of `contour`: a pose moved to edges that were found on N lines across its outline.

The energy is a robust (Cauchy) sum of (J step - mean)^2 / (variance level) over lines, divided by how many neighbours
err alike, plus the prior of the whole motion. J is linear about the pose at which the outline was drawn.
"""

from __future__ import annotations

import numba
import numpy as np

from vid2phys.tracking.cues.edge_likelihood import alike
from vid2phys.types import Array

_ROBUST_SIGMA = 3.0  # lines beyond count less
_CHI2_MEDIAN = 0.455  # of one degree of freedom
_LEAST_LEVEL = 0.02
_MOST_ALIKE = 30  # lines in a row
_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@_compiled
def slopes(points: Array, along: Array, translation: Array) -> Array:
    """What a step [6] of the pose, in the modes of `align.moved`, moves points by along their normals, [N, 6].

    points: [N, 3] m of the body in camera axes. along: [N, 2] of a normal's pixels by the bearing. translation: [3] m.
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


@_compiled
def levels(residual: Array, variance: Array) -> tuple[float, float]:
    """What variances [N] are too small by, half of the residuals [N] being within 0.67 sigma, and how many
    neighbouring lines err alike."""
    normal = residual / np.sqrt(variance)
    level = max(np.median(normal**2) / _CHI2_MEDIAN, _LEAST_LEVEL)
    return level, alike(normal / np.sqrt(level), _MOST_ALIKE)


@_compiled
def normal_equations(residual: Array, jacobian: Array, variance: Array) -> tuple[Array, Array]:
    """Gradient [D] and Hessian [D, D] (without second derivatives) of the robust sum over lines, jacobian: [N, D]."""
    size = jacobian.shape[1]
    gradient, hessian = np.zeros(size), np.zeros((size, size))
    for i in range(len(residual)):
        weight = 1.0 / (variance[i] + residual[i] ** 2 / _ROBUST_SIGMA**2)
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
    steps: int,
    overconfident: float,
) -> tuple[Array, Array]:
    """A motion [D] of the pose, and the information [D, D] of the edges there.

    mean, variance: [N] px of the edges. prior: [D, D] about a pose that lies the motion `before` [D] back. most: [D] of
    one step. overconfident: what edges say is divided by this against the prior.
    """
    step = np.zeros(len(prior))
    gradient, hessian = normal_equations(-mean, jacobian, variance)  # of a wrong pose residuals say no level
    for _ in range(steps):
        gradient = gradient / overconfident + prior @ (before + step)
        newton = np.linalg.solve(hessian / overconfident + prior, -gradient)
        step = step + np.minimum(np.maximum(newton, -most), most)
        residual = jacobian @ step - mean
        level, same = levels(residual, variance)
        gradient, hessian = normal_equations(residual, jacobian, variance * level)
        gradient, hessian = gradient / same, hessian / same
    return step, hessian
