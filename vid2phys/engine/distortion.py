"""Lens distortion on normalised image coordinates: plumb_bob, rational_polynomial, equidistant, omni, as in OpenCV.

Brown-Conrady with OpenCV's order k1 k2 p1 p2 k3 k4 k5 k6, Kannala and Brandt (2006) with four coefficients, and the
unified model of Mei and Rives (2007) with xi k1 k2 p1 p2: a point on the unit sphere, seen from xi behind its centre,
then Brown-Conrady. The inverse is Newton's iteration to rounding (OpenCV's own takes five steps of a fixed-point one).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vid2phys.errors import InputError
from vid2phys.types import Array, Camera

_COUNTS = {"plumb_bob": (0, 4, 5), "rational_polynomial": (0, 4, 5, 8), "equidistant": (0, 4), "omni": (5,)}
_NEWTON_STEPS = 50
_TOLERANCE = 1e-13


def distort(camera: Camera, bearings: Array) -> Array:
    """Return the distorted coordinates of bearings, [..., 2] -> [..., 2]; NaN beyond the model's one-to-one field.

    Raises InputError for a model or number of coefficients that is not supported.
    """
    bearings = np.asarray(bearings, dtype=float)
    coefficients = _coefficients(camera)
    if _none(camera, coefficients):
        return bearings.copy()
    radius = np.hypot(bearings[..., 0], bearings[..., 1])
    inside = (radius < valid_radius(camera))[..., None]
    return np.where(inside, _distort(camera.model, coefficients, bearings), np.nan)


def distortion_jacobian(camera: Camera, bearings: Array) -> Array:
    """Return d distorted / d bearing, [..., 2] -> [..., 2, 2]."""
    bearings, coefficients = np.asarray(bearings, dtype=float), _coefficients(camera)
    if _none(camera, coefficients):
        return np.broadcast_to(np.eye(2), (*bearings.shape, 2)).copy()
    return _jacobian(camera.model, coefficients, bearings)


def undistort(camera: Camera, distorted: Array) -> Array:
    """Return the bearings of distorted coordinates, [..., 2] -> [..., 2]; NaN where no bearing of the field leads
    there.
    """
    distorted = np.asarray(distorted, dtype=float)
    coefficients = _coefficients(camera)
    if camera.model == "equidistant":
        return _fisheye_inverse(coefficients, distorted)
    if _none(camera, coefficients):
        return distorted.copy()
    if camera.model == "omni":
        brown = _brown_of(coefficients)
        return _from_sphere(coefficients[0], _brown_inverse(brown, distorted, _valid_radius("plumb_bob", tuple(brown))))
    return _brown_inverse(coefficients, distorted, valid_radius(camera))


def _none(camera: Camera, coefficients: Array) -> bool:
    return camera.model in ("plumb_bob", "rational_polynomial") and not coefficients.any()


def valid_radius(camera: Camera) -> float:
    """Return the largest length of a bearing up to which distorted radius grows with radius (infinite when it always
    does).
    """
    return _valid_radius(camera.model, tuple(_coefficients(camera)))


def _coefficients(camera: Camera) -> Array:
    """Return the camera's coefficients padded to eight (four for equidistant, five for omni)."""
    return _padded(camera.model, tuple(np.ravel(camera.distortion).tolist()))


@lru_cache
def _padded(model: str, given: tuple[float, ...]) -> Array:
    if model not in _COUNTS:
        raise InputError(f"camera model '{model}'", f"one of {', '.join(sorted(_COUNTS))}", "convert the calibration")
    # trailing zeros say nothing: files pad to what their writer likes
    used = np.trim_zeros(given, "b")
    allowed = max(_COUNTS[model])
    if len(used) > allowed:
        raise InputError(
            f"{len(used)} distortion coefficients for model '{model}'",
            f"at most {allowed}",
            "check the camera file",
        )
    padded = np.zeros({"equidistant": 4, "omni": 5}.get(model, 8))
    padded[: len(used)] = used
    padded.setflags(write=False)
    return padded


def _radial(coefficients: Array, square: Array) -> tuple[Array, Array]:
    """Return the radial factor of the Brown-Conrady model and its derivative by the squared radius."""
    k1, k2, _, _, k3, k4, k5, k6 = coefficients
    above = 1.0 + square * (k1 + square * (k2 + square * k3))
    below = 1.0 + square * (k4 + square * (k5 + square * k6))
    above_slope = k1 + square * (2.0 * k2 + square * 3.0 * k3)
    below_slope = k4 + square * (2.0 * k5 + square * 3.0 * k6)
    factor = above / below
    return factor, (above_slope - factor * below_slope) / below


def _fisheye_scale(coefficients: Array, radius: Array) -> tuple[Array, Array]:
    """Return the scale of Kannala-Brandt: theta_d / r and d theta_d / dr for r = tan theta."""
    theta = np.arctan(radius)
    square = theta * theta
    k1, k2, k3, k4 = coefficients
    factor = 1.0 + square * (k1 + square * (k2 + square * (k3 + square * k4)))
    slope = 1.0 + square * (3.0 * k1 + square * (5.0 * k2 + square * (7.0 * k3 + square * 9.0 * k4)))
    per_radius = np.where(radius > 1e-8, theta / np.maximum(radius, 1e-8), 1.0)
    return per_radius * factor, slope / (1.0 + radius * radius)


def _brown_of(coefficients: Array) -> Array:
    """Return the Brown-Conrady part of the omni model, padded to eight."""
    return np.concatenate([coefficients[1:], np.zeros(4)])


def _onto_sphere(xi: float, bearings: Array) -> tuple[Array, Array]:
    """Return the bearings seen from xi behind the unit sphere's centre, [..., 2], and the derivative, [..., 2, 2]."""
    norm = np.sqrt(1.0 + (bearings**2).sum(axis=-1))[..., None]
    scale = 1.0 / (1.0 + xi * norm)
    outer = bearings[..., :, None] * bearings[..., None, :]
    return bearings * scale, scale[..., None] * np.eye(2) - (xi * scale**2 / norm)[..., None] * outer


def _from_sphere(xi: float, seen: Array) -> Array:
    """Return the inverse of `_onto_sphere`; NaN for what lies beside or behind the camera."""
    square = (seen**2).sum(axis=-1, keepdims=True)
    under = 1.0 + (1.0 - xi**2) * square
    lift = (xi + np.sqrt(np.maximum(under, 0.0))) / (1.0 + square)
    ahead = (under >= 0.0) & (lift > xi)
    return np.where(ahead, seen * lift / np.where(ahead, lift - xi, 1.0), np.nan)


def _distort(model: str, coefficients: Array, bearings: Array) -> Array:
    if model == "omni":
        return _distort("plumb_bob", _brown_of(coefficients), _onto_sphere(coefficients[0], bearings)[0])
    if model == "equidistant":
        return bearings * _fisheye_scale(coefficients, np.linalg.norm(bearings, axis=-1))[0][..., None]
    x, y = bearings[..., 0], bearings[..., 1]
    square = x * x + y * y
    factor, p1, p2 = _radial(coefficients, square)[0], coefficients[2], coefficients[3]
    distorted_x = x * factor + 2.0 * p1 * x * y + p2 * (square + 2.0 * x * x)
    distorted_y = y * factor + p1 * (square + 2.0 * y * y) + 2.0 * p2 * x * y
    return np.stack([distorted_x, distorted_y], axis=-1)


def _jacobian(model: str, coefficients: Array, bearings: Array) -> Array:
    x, y = bearings[..., 0], bearings[..., 1]
    outer = bearings[..., :, None] * bearings[..., None, :]
    if model == "omni":
        seen, lift = _onto_sphere(coefficients[0], bearings)
        return _jacobian("plumb_bob", _brown_of(coefficients), seen) @ lift
    if model == "equidistant":
        radius = np.hypot(x, y)
        scale, slope = _fisheye_scale(coefficients, radius)
        unit = outer / np.maximum(radius, 1e-12)[..., None, None] ** 2
        return scale[..., None, None] * np.eye(2) + (slope - scale)[..., None, None] * unit
    factor, slope = _radial(coefficients, x * x + y * y)
    p1, p2 = coefficients[2], coefficients[3]
    cross = 2.0 * p1 * x + 2.0 * p2 * y
    tangential = [[2.0 * p1 * y + 6.0 * p2 * x, cross], [cross, 6.0 * p1 * y + 2.0 * p2 * x]]
    tangential_matrix = np.stack([np.stack(row, axis=-1) for row in tangential], axis=-2)
    return factor[..., None, None] * np.eye(2) + 2.0 * slope[..., None, None] * outer + tangential_matrix


@lru_cache(maxsize=64)
def _valid_radius(model: str, coefficients: tuple[float, ...]) -> float:
    if model == "equidistant":
        slope = np.poly1d(
            [9.0 * coefficients[3], 7.0 * coefficients[2], 5.0 * coefficients[1], 3.0 * coefficients[0], 1.0]
        )
        theta = np.sqrt(_first_positive_root(slope))
        return float(np.tan(theta)) if theta < np.pi / 2 else np.inf
    if model == "omni":
        limit = _valid_radius("plumb_bob", tuple(_brown_of(np.array(coefficients))))
        if not np.isfinite(limit) or limit * coefficients[0] >= 1.0:  # what is in front of it is seen within 1 / xi
            return np.inf
        return float(np.nan_to_num(_from_sphere(coefficients[0], np.array([limit, 0.0]))[0], nan=np.inf))
    k1, k2, _, _, k3, k4, k5, k6 = coefficients
    above, below = np.poly1d([k3, k2, k1, 1.0]), np.poly1d([k6, k5, k4, 1.0])
    slope = above * below + np.poly1d([2.0, 0.0]) * (above.deriv() * below - above * below.deriv())
    return float(np.sqrt(min(_first_positive_root(slope), _first_positive_root(below))))


def _first_positive_root(polynomial: np.poly1d) -> float:
    roots = np.asarray(polynomial.roots)
    real = roots[(np.abs(roots.imag) < 1e-9 * np.maximum(1.0, np.abs(roots))) & (roots.real > 0.0)].real
    return float(real.min()) if real.size else np.inf


def _fisheye_inverse(coefficients: Array, distorted: Array) -> Array:
    """Iterate Newton's method on the angle from the axis, kept inside the field by bisection."""
    target = np.linalg.norm(distorted, axis=-1)
    limit = np.arctan(_valid_radius("equidistant", tuple(coefficients)))
    k1, k2, k3, k4 = coefficients
    low, high = np.zeros_like(target), np.full_like(target, limit)
    theta = np.minimum(target, 0.999 * limit)
    for _ in range(_NEWTON_STEPS):
        square = theta * theta
        excess = theta * (1.0 + square * (k1 + square * (k2 + square * (k3 + square * k4)))) - target
        slope = 1.0 + square * (3.0 * k1 + square * (5.0 * k2 + square * (7.0 * k3 + square * 9.0 * k4)))
        low, high = np.where(excess < 0.0, theta, low), np.where(excess > 0.0, theta, high)
        stepped = theta - excess / np.where(np.abs(slope) > 1e-12, slope, 1e-12)
        theta = np.where((stepped > low) & (stepped < high) | (excess == 0.0), stepped, 0.5 * (low + high))
        if np.all(np.abs(excess) <= _TOLERANCE):
            break
    theta = np.where(np.abs(excess) <= 1e-9, theta, np.nan)
    scale = np.where(target > 1e-12, np.tan(theta) / np.maximum(target, 1e-12), 1.0)
    return distorted * scale[..., None]


def _brown_inverse(coefficients: Array, distorted: Array, limit: float) -> Array:
    """Iterate a damped Newton method in two dimensions from the distorted point, which every iterate keeps inside the
    field.
    """
    points = distorted.reshape(-1, 2)
    current = _inside(points, limit)
    error = _distort("plumb_bob", coefficients, current) - points
    for _ in range(_NEWTON_STEPS):
        norm = np.linalg.norm(error, axis=-1)
        active = norm > _TOLERANCE
        if not active.any():
            break
        step = np.linalg.solve(_regular(_jacobian("plumb_bob", coefficients, current)), error[..., None])[..., 0]
        damping = np.where(active, 1.0, 0.0)
        for _ in range(12):
            trial = _inside(current - damping[:, None] * step, limit)
            trial_error = _distort("plumb_bob", coefficients, trial) - points
            worse = active & ~(np.linalg.norm(trial_error, axis=-1) < norm)
            if not worse.any():
                break
            damping = np.where(worse, 0.5 * damping, damping)
        better = (np.linalg.norm(trial_error, axis=-1) < norm)[:, None]
        if not better.any():
            break
        current, error = np.where(better, trial, current), np.where(better, trial_error, error)
    solved = np.linalg.norm(error, axis=-1, keepdims=True) < 1e-9
    return np.where(solved, current, np.nan).reshape(distorted.shape)


def _inside(points: Array, limit: float) -> Array:
    """Return the points pulled back along their radius into the field."""
    if not np.isfinite(limit):
        return points
    radius = np.linalg.norm(points, axis=-1, keepdims=True)
    return points * np.minimum(1.0, 0.9999 * limit / np.maximum(radius, 1e-12))


def _regular(matrices: Array) -> Array:
    """Return the matrices with singular ones (the rim of the field) nudged so that they can be solved."""
    singular = np.abs(np.linalg.det(matrices)) < 1e-9
    return matrices + 1e-6 * singular[..., None, None] * np.eye(2)
