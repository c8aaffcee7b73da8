"""How far an estimated trajectory is from the true one: the numbers of metrics.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import (
    Array,
    angle_between,
    matrix_from_quat,
    quat_conjugate,
    quat_from_matrix,
    quat_multiply,
    rotate,
    rotvec_from_quat,
)
from vid2phys.types import Mesh, PoseLog


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


@dataclass(frozen=True)
class Turns:
    """The turns that leave a body as it looks: x -> R x + offset in body axes.

    quats: [G, 4], the identity first. offsets: [G, 3] m. exact: whether nothing tells them apart, so that which of them
    a clip was labelled by is no error.
    """

    quats: Array
    offsets: Array
    exact: bool

    def best_for_clip(self, quats: Array, true_quats: Array) -> int:
        """The one turn of the whole clip that brings the estimate [T, 4] nearest to the truth (mean angle)."""
        turned = quat_multiply(quats[:, None], self.quats[None])
        return int(np.argmin(angle_between(turned, true_quats[:, None]).mean(axis=0)))

    def best_for_frames(self, quats: Array, true_quats: Array) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Turns that bring some frames of the estimate [T, 4] nearest to the truth, and which frames."""
        turned = quat_multiply(quats[:, None], self.quats[None])
        nearest = np.argmin(angle_between(turned, true_quats[:, None]), axis=1)
        for index in np.unique(nearest).tolist():
            yield index, np.flatnonzero(nearest == index)

    def applied(self, index: int, poses: PoseLog) -> PoseLog:
        """The poses of the turned body."""
        quats = poses.orientation_quat_wxyz
        positions = poses.positions_m + rotate(quats, np.broadcast_to(self.offsets[index], poses.positions_m.shape))
        return replace(poses, positions_m=positions, orientation_quat_wxyz=quat_multiply(quats, self.quats[index]))

    def applied_to_std(self, index: int, std: Array) -> Array:
        """Standard deviations [T, >= 6] with the rotation's, [3:6], along the turned body's axes."""
        turn = matrix_from_quat(self.quats[index])
        turned = std.copy()
        turned[:, 3:6] = np.sqrt(std[:, 3:6] ** 2 @ turn**2)  # body axes' errors taken for independent
        return turned


def turns_of(mesh: Mesh) -> Turns:
    """Those of a mesh as it looks."""
    from vid2phys.risp.shape.rotation_groups import offsets
    from vid2phys.risp.shape.symmetry import find_symmetry

    found = find_symmetry(mesh)
    return Turns(quat_from_matrix(found.rotations), offsets(found.rotations, found.center), found.exact)


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
    symmetry: Turns | None = None,
) -> dict[str, float | None]:
    """The numbers of one alignment; None where they cannot be had (no camera, no mesh, a clip under a second).

    Up to symmetry: one turn of the body's group for the whole clip. A body that is exactly symmetric is judged turned
    in all but `rotation_median_deg` and `rotation_rmse_deg`, which say how the labels happened to fall.
    """
    positions, quats, seen = truth
    kept = PoseLog(estimate.times_s[seen], estimate.positions_m[seen], estimate.orientation_quat_wxyz[seen])
    positions, quats = positions[seen], quats[seen]
    labelled = pose_errors(kept, positions, quats, camera_position)["rotation_deg"]
    turned, index = kept, 0
    if symmetry is not None:
        index = symmetry.best_for_clip(kept.orientation_quat_wxyz, quats)
        turned = symmetry.applied(index, kept)
    std = None if std is None else std[seen]
    if symmetry is not None and symmetry.exact:
        kept, std = turned, None if std is None else symmetry.applied_to_std(index, std)
    errors = pose_errors(kept, positions, quats, camera_position)
    up_to_symmetry = pose_errors(turned, positions, quats, camera_position)["rotation_deg"]
    return {
        "position_rmse_m": _rms(errors["position_m"]),
        "lateral_rmse_m": _rms(errors["lateral_m"]),
        "depth_rmse_m": _rms(errors["depth_m"]),
        "rotation_median_deg": float(np.median(labelled)),
        "rotation_median_deg_up_to_symmetry": None if symmetry is None else float(np.median(up_to_symmetry)),
        "rotation_rmse_deg": _rms(labelled),
        "rotation_rmse_deg_up_to_symmetry": None if symmetry is None else _rms(up_to_symmetry),
        "symmetry_turns": None if symmetry is None else len(symmetry.quats),
        "rpe_1s_m": _rms(relative_errors(kept, positions, quats, 1.0)[1]),
        "interval_coverage": coverage(kept, std, positions, quats),
    }


def _relative(positions: Array, quats: Array, first: NDArray[np.int64], last: NDArray[np.int64]) -> Array:
    """Position of the body at `last` in its own axes at `first`."""
    return rotate(quat_conjugate(quats[first]), positions[last] - positions[first])


def _rms(values: Array) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) and np.isfinite(values).all() else None
