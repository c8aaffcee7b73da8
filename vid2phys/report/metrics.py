"""How far an estimated trajectory is from the true one: the numbers of metrics.json (design, section 7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.rotations import Array, angle_between, quat_conjugate, quat_multiply, rotate, rotvec_from_quat
from vid2phys.types import PoseLog


def pose_errors(
    estimate: PoseLog, true_positions: Array, true_quats: Array, camera_position: Array | None
) -> dict[str, Array]:
    """Errors frame by frame, [T] each: position_m, lateral_m and depth_m (along the ray from the camera), rotation_deg.

    Without a camera, lateral and depth are NaN.
    """
    error = estimate.positions_m - true_positions
    depth = np.full(len(error), np.nan)
    if camera_position is not None:
        rays = true_positions - camera_position
        depth = np.einsum("ti,ti->t", error, rays / np.linalg.norm(rays, axis=1, keepdims=True))
    square = np.einsum("ti,ti->t", error, error)
    return {
        "position_m": np.sqrt(square),
        "lateral_m": np.sqrt(np.maximum(square - depth**2, 0.0)),
        "depth_m": depth,
        "rotation_deg": np.rad2deg(angle_between(estimate.orientation_quat_wxyz, true_quats)),
    }


def symmetric_rotation_deg(quats: Array, true_quats: Array, symmetry_quats: Array) -> Array:
    """Smallest rotation error over the turns that leave the body as it looks, [T, 4], [T, 4], [G, 4] -> [T] deg."""
    turned = quat_multiply(quats[:, None], symmetry_quats[None])
    return np.rad2deg(angle_between(turned, true_quats[:, None])).min(axis=1)


def relative_errors(estimate: PoseLog, true_positions: Array, true_quats: Array, seconds: float) -> tuple[Array, Array]:
    """Relative pose error (Sturm et al. 2012, eq. 2): start times [N] and translation error [N] m after `seconds`."""
    times = estimate.times_s
    later = np.searchsorted(times, times + seconds - 0.5 * np.median(np.diff(times)))
    first = np.flatnonzero(later < len(times))
    last = later[first]
    moved = _relative(estimate.positions_m, estimate.orientation_quat_wxyz, first, last)
    moved_true = _relative(true_positions, true_quats, first, last)
    return times[first], np.linalg.norm(moved - moved_true, axis=1)


def coverage(estimate: PoseLog, std: Array | None, true_positions: Array, true_quats: Array) -> float | None:
    """Share of pose coordinates in their 95 % interval; std [T, >= 6]: position in the world, rotation in the body."""
    if std is None:
        return None
    turn = rotvec_from_quat(quat_multiply(quat_conjugate(estimate.orientation_quat_wxyz), true_quats))
    error = np.concatenate([true_positions - estimate.positions_m, turn], axis=1)
    known = np.isfinite(std[:, :6])
    return float((np.abs(error) <= 1.96 * std[:, :6])[known].mean()) if known.any() else None


def summarize(
    estimate: PoseLog,
    truth: tuple[Array, Array, NDArray[np.bool_]],
    *,
    std: Array | None = None,
    camera_position: Array | None = None,
    symmetry_quats: Array | None = None,
) -> dict[str, float | None]:
    """The numbers of one alignment; None where they cannot be had (no camera, no mesh, a clip under a second)."""
    positions, quats, seen = truth
    kept = PoseLog(estimate.times_s[seen], estimate.positions_m[seen], estimate.orientation_quat_wxyz[seen])
    positions, quats = positions[seen], quats[seen]
    errors = pose_errors(kept, positions, quats, camera_position)
    symmetric = None
    if symmetry_quats is not None:
        symmetric = float(np.median(symmetric_rotation_deg(kept.orientation_quat_wxyz, quats, symmetry_quats)))
    return {
        "position_rmse_m": _rms(errors["position_m"]),
        "lateral_rmse_m": _rms(errors["lateral_m"]),
        "depth_rmse_m": _rms(errors["depth_m"]),
        "rotation_median_deg": float(np.median(errors["rotation_deg"])),
        "rotation_median_deg_up_to_symmetry": symmetric,
        "rotation_rmse_deg": _rms(errors["rotation_deg"]),
        "rpe_1s_m": _rms(relative_errors(kept, positions, quats, 1.0)[1]),
        "interval_coverage": coverage(kept, None if std is None else std[seen], positions, quats),
    }


def _relative(positions: Array, quats: Array, first: NDArray[np.int64], last: NDArray[np.int64]) -> Array:
    """Position of the body at `last` in its own axes at `first`."""
    return rotate(quat_conjugate(quats[first]), positions[last] - positions[first])


def _rms(values: Array) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) and np.isfinite(values).all() else None
