"""Rigid pose from keypoint bearings with covariances: robust PnP with several hypotheses a frame, batched.

Starting poses are a fixed grid over all rotations, each with its best translation in closed form; the best few are
refined by Levenberg-Marquardt under a Student-t cost, together with the two-fold flip that a nearly planar body has
under weak perspective (Oberkampf, DeMenthon, Davis 1996; Schweighofer and Pinz 2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import distinct_rotations, rotation_grid
from vid2phys.geometry import Pose, skew
from vid2phys.types import Array

STUDENT_NU = 4.0  # degrees of freedom of the robust cost
OUTLIER_SIGMA = 5.0
_GRID = 192  # rotations of the starting grid: no rotation is further than about 30 degrees from one of them
_STARTS = 5  # of which this many are refined
_SAME_RAD = 0.12  # hypotheses closer than this are one
_ANNEAL = (6.0, 6.0, 3.0, 3.0, 1.5, 1.5, 1.0, 1.0, 1.0, 1.0)  # standard deviations are inflated by this at first
_MIN_POINTS = 4
_AT_ONCE = 512  # frames: each takes a quarter of a megabyte


@dataclass(frozen=True)
class PoseEstimate:
    """A pose with what its fit says of it, or many with the same leading axes [...].

    Attributes:
        pose: camera_from_body, [...].
        covariance: of (rotation in camera axes about the body origin [rad], translation [m]), [..., 6, 6], as if the
            errors of the points were independent.
        chi2: sum of squared normalised residuals of the inliers, [...].
        cost: robust cost of all visible points, [...] nats; infinite where there is no pose.
        inliers: points within the robust cost's limit, [..., K] bool.
    """

    pose: Pose
    covariance: Array
    chi2: Array
    cost: Array
    inliers: NDArray[np.bool_]

    @property
    def rotation(self) -> Array:
        """Return the rotation of the pose, [..., 3, 3]."""
        return self.pose.rotation

    @property
    def translation(self) -> Array:
        """Return the translation of the pose, [..., 3] m."""
        return self.pose.translation

    def __getitem__(self, index: object) -> PoseEstimate:
        return PoseEstimate(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def with_rows(self, indices: NDArray[np.int64], other: PoseEstimate) -> PoseEstimate:
        """Return a copy that holds the estimates of `other` [N, ...] at indices [N] of the first axis."""
        out = PoseEstimate(**{f.name: getattr(self, f.name).copy() for f in fields(self)})
        for f in fields(self):
            getattr(out, f.name)[indices] = getattr(other, f.name)
        return out

    @staticmethod
    def join(parts: Sequence[PoseEstimate]) -> PoseEstimate:
        """Return several batches as one, along the first axis."""
        names = [f.name for f in fields(PoseEstimate) if f.name != "pose"]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return PoseEstimate(Pose.join([part.pose for part in parts]), **arrays)


def known_pose(pose: Pose) -> PoseEstimate:
    """Return a pose [...] that is known beforehand, as an estimate without covariance and points."""
    shape = pose.translation.shape[:-1]
    zero = np.zeros(shape)
    return PoseEstimate(pose, np.zeros((*shape, 6, 6)), zero, zero, np.zeros((*shape, 0), dtype=bool))


def solve_poses(
    bearings: Array,
    covariance: Array,
    points_body: Array,
    *,
    visible: NDArray[np.bool_] | None = None,
    initial: PoseEstimate | None = None,
    hypotheses: int = 1,
) -> PoseEstimate:
    """Return the best distinct poses of N frames at once, sorted by cost, [N, hypotheses].

    bearings: [N, K, 2]. covariance: [N, K, 2, 2]. visible: [N, K]. initial: leading axis [N]. Where there are fewer
    distinct poses the best is repeated with infinite cost.
    """
    bearings = np.asarray(bearings, dtype=float)
    if visible is None:
        visible = np.ones(bearings.shape[:2], dtype=bool)
    if len(bearings) > _AT_ONCE:
        parts = [slice(first, first + _AT_ONCE) for first in range(0, len(bearings), _AT_ONCE)]
        return PoseEstimate.join(
            [
                solve_poses(
                    *(bearings[part], covariance[part], points_body),
                    visible=visible[part],
                    initial=None if initial is None else initial[part],
                    hypotheses=hypotheses,
                )
                for part in parts
            ]
        )
    visible = visible & np.isfinite(bearings).all(axis=-1) & np.isfinite(covariance).all(axis=(-1, -2))
    bearings = np.where(visible[..., None], bearings, 0.0)
    data = _Data(bearings, _whitener(covariance, visible), visible, points_body)
    pose = _grid_starts(data)
    if initial is not None:
        pose = _beside(initial.pose[:, None], pose)
    pose, cost = _refine(data, pose)
    if hypotheses > 1:  # a single best pose needs no flip; the flip may be a minimum that no start led to
        best = np.argmin(cost, axis=1)[:, None]
        flipped, flipped_cost = _refine(data, _flip(_take_pose(pose, best), points_body))
        pose, cost = _beside(pose, flipped), np.concatenate([cost, flipped_cost], axis=1)
    index, repeated = distinct_rotations(pose.rotation, cost, hypotheses, _SAME_RAD)
    return _finish(data, _take_pose(pose, index), repeated)


@dataclass(frozen=True)
class _Data:
    """Data of a batch of fits: bearings [N, K, 2], their whitener [N, K, 2, 2], seen [N, K], points [K, 3]."""

    bearings: Array
    whitener: Array
    seen: NDArray[np.bool_]
    points: Array


def _take(array: Array, index: NDArray[np.int64]) -> Array:
    return np.take_along_axis(array, index.reshape(*index.shape, *([1] * (array.ndim - 2))), axis=1)


def _take_pose(pose: Pose, index: NDArray[np.int64]) -> Pose:
    return pose.map(lambda values: _take(values, index))


def _beside(one: Pose, other: Pose) -> Pose:
    """Return poses [N, A] and [N, B] as [N, A + B]."""
    return Pose(
        np.concatenate([one.rotation, other.rotation], axis=1),
        np.concatenate([one.translation, other.translation], axis=1),
    )


def _whitener(covariance: Array, visible: NDArray[np.bool_]) -> Array:
    """Return W [N, K, 2, 2] with W^T W = inverse covariance, zero for points that are not seen."""
    factor = np.linalg.cholesky(np.where(visible[..., None, None], covariance, np.eye(2)))
    return np.asarray(np.linalg.inv(factor) * visible[..., None, None])


def _grid_starts(data: _Data) -> Pose:
    """Return the best few of the grid's rotations with the translation that fits each, [N, _STARTS].

    For a given rotation the collinearity equations t_xy - b t_z = b y_z - y_xy, y = R p, are linear in t.
    """
    bearings, whitener, points = data.bearings, data.whitener, data.points
    n, k = bearings.shape[:2]
    turned = points @ np.swapaxes(rotation_grid(_GRID), -1, -2)
    a = np.concatenate([whitener, -whitener @ bearings[..., None]], axis=-1)  # [N, K, 2, 3]
    stacked = a.reshape(n, 2 * k, 3)
    normal = np.swapaxes(stacked, -1, -2) @ stacked
    normal += np.eye(3) * (1e-12 * np.trace(normal, axis1=-2, axis2=-1) + 1e-300)[:, None, None]
    # right side: sum_k a_k^T W_k (b_k y_z - y_xy) = -sum_k (a_k^T a_k) y_k, linear in the turned points
    outer = (np.swapaxes(a, -1, -2) @ a).transpose(0, 1, 3, 2).reshape(n, 3 * k, 3)
    right = -turned.reshape(1, _GRID, 3 * k) @ outer
    translation = np.swapaxes(np.linalg.solve(normal, np.swapaxes(right, -1, -2)), -1, -2)
    radius = float(np.linalg.norm(points, axis=-1).max())
    translation[..., 2] = np.maximum(translation[..., 2], 1.5 * radius)
    predicted = turned[None] + translation[:, :, None]
    difference = predicted[..., :2] / predicted[..., 2:] - bearings[:, None]
    residual = np.empty_like(difference)
    _whiten(data, difference, residual)
    cost = _student((residual**2).sum(axis=-1) / _ANNEAL[0] ** 2).sum(axis=-1)
    order = np.argpartition(cost, _STARTS, axis=1)[:, :_STARTS]
    return Pose(rotation_grid(_GRID)[order], _take(translation, order))


def _student(squared: Array) -> Array:
    """Return the negative log of a two-dimensional Student t, up to a constant, of squared normalised residuals."""
    return 0.5 * (STUDENT_NU + 2.0) * np.log1p(squared / STUDENT_NU)


def _residuals(data: _Data, pose: Pose) -> tuple[Array, Array]:
    """Return normalised residuals [N, M, K, 2] and their squares [N, M, K], infinite behind the camera."""
    x = pose.apply(data.points)
    front = x[..., 2] > 1e-6
    depth = np.where(front, x[..., 2], 1.0)
    difference = data.bearings[:, None] - x[..., :2] / depth[..., None]
    residual = np.empty_like(difference)
    _whiten(data, difference, residual)
    squared = residual[..., 0] ** 2 + residual[..., 1] ** 2
    return residual, np.where(front | ~data.seen[:, None], squared, np.inf)


def _whiten(data: _Data, values: Array, out: Array) -> None:
    """Write whitener @ values into out, for values [N, M, K, 2, ...]; the whitener is lower triangular."""
    shape = (len(values), 1, values.shape[2], *([1] * (values.ndim - 4)))
    w = data.whitener
    out[:, :, :, 0] = w[..., 0, 0].reshape(shape) * values[:, :, :, 0]
    out[:, :, :, 1] = (
        w[..., 1, 0].reshape(shape) * values[:, :, :, 0] + w[..., 1, 1].reshape(shape) * values[:, :, :, 1]
    )


def _jacobian(data: _Data, pose: Pose) -> Array:
    """Return the derivative of the normalised predictions wrt (rotation, translation), [N, M, K, 2, 6]."""
    turned = data.points @ np.swapaxes(pose.rotation, -1, -2)
    x = turned + pose.translation[..., None, :]
    inverse = 1.0 / np.where(x[..., 2] > 1e-6, x[..., 2], 1.0)
    a, b, c = (turned[..., i] * inverse for i in range(3))
    u, v = x[..., 0] * inverse, x[..., 1] * inverse
    zero = np.zeros_like(u)
    rows = np.empty((*u.shape, 2, 6))
    for i, column in enumerate((-u * b, c + u * a, -b, inverse, zero, -u * inverse)):
        rows[..., 0, i] = column
    for i, column in enumerate((-c - v * b, v * a, a, zero, inverse, -v * inverse)):
        rows[..., 1, i] = column
    out = np.empty_like(rows)
    _whiten(data, rows, out)
    return out


def _rotation_of(delta: Array) -> Array:
    """Return the rotation by about `delta` [..., 3] rad: Cayley's transform, exact to second order."""
    half = 0.5 * delta
    cross = skew(half)
    return np.asarray(np.eye(3) + 2.0 / (1.0 + (half**2).sum(axis=-1))[..., None, None] * (cross + cross @ cross))


def _refine(data: _Data, pose: Pose) -> tuple[Pose, Array]:
    """Refine [N, M] poses by Levenberg-Marquardt; the first steps inflate the errors, so that outliers trap none."""
    damping = np.full(pose.translation.shape[:2], 1e-3)
    residual, squared = _residuals(data, pose)
    for inflation in _ANNEAL:
        weight = (STUDENT_NU + 2.0) / (STUDENT_NU + squared / inflation**2)
        jacobian = _jacobian(data, pose)
        moved = _step(pose, residual, jacobian, weight, damping)
        new_residual, new_squared = _residuals(data, moved)
        better = _student(new_squared / inflation**2).sum(-1) < _student(squared / inflation**2).sum(-1)
        pose = _chosen(better, moved, pose)
        residual = np.where(better[..., None, None], new_residual, residual)
        squared = np.where(better[..., None], new_squared, squared)
        damping = np.where(better, damping * 0.2, np.minimum(damping * 10.0, 1e3))
    return pose, _student(squared).sum(axis=-1)


def _normal(jacobian: Array, weight: Array) -> tuple[Array, Array]:
    """Return the weighted Jacobian transposed [N, M, 6, 2K] and normal matrix [N, M, 6, 6]."""
    flat = jacobian.reshape(*jacobian.shape[:2], -1, 6)
    weighted = np.swapaxes(flat * np.repeat(weight, 2, axis=-1)[..., None], -1, -2)
    return weighted, weighted @ flat


def _chosen(better: NDArray[np.bool_], one: Pose, other: Pose) -> Pose:
    """Return one pose where it is better, else the other, [N, M]."""
    return Pose(
        np.where(better[..., None, None], one.rotation, other.rotation),
        np.where(better[..., None], one.translation, other.translation),
    )


def _step(pose: Pose, residual: Array, jacobian: Array, weight: Array, damping: Array) -> Pose:
    weighted, normal = _normal(jacobian, weight)
    right = weighted @ residual.reshape(*residual.shape[:2], -1, 1)
    diagonal = np.einsum("nmaa->nma", normal)
    ridge = damping[..., None] * diagonal + 1e-12 * diagonal.max(axis=-1, keepdims=True) + 1e-300
    delta = np.linalg.solve(normal + np.eye(6) * ridge[..., None], right)[..., 0]
    return Pose(_rotation_of(delta[..., :3]) @ pose.rotation, pose.translation + delta[..., 3:])


def _flip(pose: Pose, points: Array) -> Pose:
    """Return the ambiguous pose of a nearly planar body: mirrored along the line of sight and in its plane."""
    center = points.mean(axis=0)
    normal = np.linalg.svd(points - center, full_matrices=False)[2][-1]
    bearing = pose.translation / np.linalg.norm(pose.translation, axis=-1, keepdims=True)
    mirror_bearing = np.eye(3) - 2.0 * bearing[..., :, None] * bearing[..., None, :]
    mirror_plane = np.eye(3) - 2.0 * np.outer(normal, normal)
    flipped = mirror_bearing @ pose.rotation @ mirror_plane
    return Pose(flipped, pose.translation + (pose.rotation - flipped) @ center)


def _finish(data: _Data, pose: Pose, repeated: NDArray[np.bool_]) -> PoseEstimate:
    """Drop the outliers of each robust pose and fit the rest by least squares."""
    residual, squared = _residuals(data, pose)
    cost = _student(squared).sum(axis=-1)
    inliers = data.seen[:, None] & (squared < OUTLIER_SIGMA**2)
    possible = (inliers.sum(axis=-1) >= _MIN_POINTS) & ~repeated
    weight = inliers * possible[..., None] * 1.0
    for _ in range(2):
        jacobian = _jacobian(data, pose)
        moved = _step(pose, residual, jacobian, weight, np.full(cost.shape, 1e-9))
        new_residual, new_squared = _residuals(data, moved)
        better = _weighted_sum(new_squared, weight) < _weighted_sum(squared, weight)
        pose = _chosen(better, moved, pose)
        residual = np.where(better[..., None, None], new_residual, residual)
        squared = np.where(better[..., None], new_squared, squared)
    _, normal = _normal(_jacobian(data, pose), weight)
    covariance = _invert(np.where(possible[..., None, None], normal, np.eye(6)))
    chi2 = _weighted_sum(squared, weight)
    return PoseEstimate(pose, covariance, chi2, np.where(possible, cost, np.inf), inliers)


def _weighted_sum(squared: Array, weight: Array) -> Array:
    return (np.where(weight > 0.0, squared, 0.0) * weight).sum(axis=-1)


def _invert(normal: Array) -> Array:
    """Return the inverse of normal matrices whose rows differ in units."""
    scale = np.sqrt(np.einsum("nmaa->nma", normal))
    units = scale[..., :, None] * scale[..., None, :]
    return np.asarray(np.linalg.inv(normal / units + 1e-10 * np.eye(6)) / units)
