"""Measure how far an estimated trajectory is from the true one: the numbers of metrics.json."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
    """Return errors frame by frame, [T] each: position_m, lateral_m and depth_m, rotation_deg.

    Args:
        estimate: T poses.
        true_positions: [T, 3] m.
        true_quats: [T, 4] wxyz.
        camera_position: [3] m. Depth is along the ray from the camera. Without a camera, lateral and depth are NaN.
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
class SymmetryGroup:
    """The rotations that leave the appearance of a body as it is: x -> R x + offset in body axes.

    quats: [G, 4], the identity first. offsets: [G, 3] m. exact: whether no image distinguishes them, so that the
    element by which a clip was labelled is arbitrary. axes: [A, 3] of revolution: none, one, or for a ball two of all.
    center: [3] m, a point on these.
    """

    quats: Array
    offsets: Array
    exact: bool
    axes: Array = field(default_factory=lambda: np.zeros((0, 3)))
    center: Array = field(default_factory=lambda: np.zeros(3))

    def best_for_clip(self, quats: Array, true_quats: Array) -> int:
        """Return the one element that brings the estimate [T, 4] of a whole clip nearest to the truth (mean angle)."""
        turned = quat_multiply(quats[:, None], self.quats[None])
        if len(self.axes) == 1:  # the angle between axes
            pointed, true = (rotate(q, np.broadcast_to(self.axes[0], (*q.shape[:-1], 3))) for q in (turned, true_quats))
            return int(np.argmax((pointed * true[:, None]).sum(axis=-1).mean(axis=0)))
        return int(np.argmin(angle_between(turned, true_quats[:, None]).mean(axis=0)))

    def applied(self, index: int, poses: PoseLog) -> PoseLog:
        """Return the poses of the body after the element with this index."""
        quats = poses.orientation_quat_wxyz
        positions = poses.positions_m + rotate(quats, np.broadcast_to(self.offsets[index], poses.positions_m.shape))
        return replace(poses, positions_m=positions, orientation_quat_wxyz=quat_multiply(quats, self.quats[index]))

    def of_true_spin(self, poses: PoseLog, true_quats: Array) -> PoseLog:
        """Return the poses with the rotation that no image shows taken from the truth [T, 4], frame by frame."""
        if not len(self.axes):
            return poses
        quats = poses.orientation_quat_wxyz
        spin = quat_multiply(quat_conjugate(quats), true_quats)
        if len(self.axes) == 1:  # of a body of revolution: the part of the rotation about its axis
            spin = np.concatenate([spin[:, :1], (spin[:, 1:] @ self.axes[0])[:, None] * self.axes[0]], axis=1)
            norm = np.linalg.norm(spin, axis=1, keepdims=True)
            spin = np.where(norm > 1e-9, spin / np.maximum(norm, 1e-9), [1.0, 0.0, 0.0, 0.0])
        spun = quat_multiply(quats, spin)
        center = np.broadcast_to(self.center, poses.positions_m.shape)
        moved = poses.positions_m + rotate(quats, center) - rotate(spun, center)
        return replace(poses, positions_m=moved, orientation_quat_wxyz=spun)

    def applied_to_std(self, index: int, std: Array) -> Array:
        """Return standard deviations [T, >= 6] with the rotation's, [3:6], along the axes of the rotated body."""
        rotation = matrix_from_quat(self.quats[index])
        turned = std.copy()
        turned[:, 3:6] = np.sqrt(std[:, 3:6] ** 2 @ rotation**2)  # errors along body axes are independent
        return turned


def symmetry_of(mesh: Mesh) -> SymmetryGroup:
    """Return the symmetry group of a mesh's appearance."""
    from vid2phys.risp.shape.rotation_groups import offsets
    from vid2phys.risp.shape.symmetry import axes_of_revolution, find_symmetry

    found, axes = find_symmetry(mesh), axes_of_revolution(mesh)
    quats, moved = quat_from_matrix(found.rotations), offsets(found.rotations, found.center)
    return SymmetryGroup(quats, moved, found.exact, np.array(axes).reshape(-1, 3), found.center)


def relative_errors(estimate: PoseLog, true_positions: Array, true_quats: Array, seconds: float) -> tuple[Array, Array]:
    """Return the relative pose error (Sturm et al. 2012, eq. 2).

    Returns:
        Start times [N] s, and the translation error [N] m after `seconds`.
    """
    times = estimate.times_s
    later = np.searchsorted(times, times + seconds - 0.5 * np.median(np.diff(times)))
    first = np.flatnonzero(later < len(times))
    last = later[first]
    moved = _relative(estimate.positions_m, estimate.orientation_quat_wxyz, first, last)
    moved_true = _relative(true_positions, true_quats, first, last)
    return times[first], np.linalg.norm(moved - moved_true, axis=1)


def coverage(estimate: PoseLog, std: Array | None, true_positions: Array, true_quats: Array) -> float | None:
    """Return the share of pose coordinates inside their 95 % interval; None without intervals.

    std: [T, >= 6], position in the world, then rotation in the body.
    """
    if std is None:
        return None
    rotvec = rotvec_from_quat(quat_multiply(quat_conjugate(estimate.orientation_quat_wxyz), true_quats))
    error = np.concatenate([true_positions - estimate.positions_m, rotvec], axis=1)
    known = np.isfinite(std[:, :6])
    return float((np.abs(error) <= 1.96 * std[:, :6])[known].mean()) if known.any() else None


def summarize(
    estimate: PoseLog,
    truth: tuple[Array, Array, NDArray[np.bool_]],
    *,
    std: Array | None = None,
    camera_position: Array | None = None,
    symmetry: SymmetryGroup | None = None,
) -> dict[str, float | None]:
    """Return the numbers of one alignment, None where one is undefined (no camera, no mesh, a clip under a second).

    Numbers up to symmetry use one element of the body's group for the whole clip. An exactly symmetric body is judged
    up to symmetry in all but `rotation_median_deg` and `rotation_rmse_deg`, which depend on the labels. The rotation
    of a body of revolution about its axis, and all rotation of a ball, is not seen and not judged.

    Args:
        estimate: T poses.
        truth: positions [T, 3] m, quaternions wxyz [T, 4], and where the truth has data [T].
        std: [T, >= 6] of the estimate.
        camera_position: [3] m.
        symmetry: the body's group.
    """
    positions, quats, seen = truth
    kept = PoseLog(estimate.times_s[seen], estimate.positions_m[seen], estimate.orientation_quat_wxyz[seen])
    positions, quats = positions[seen], quats[seen]
    labelled = pose_errors(kept, positions, quats, camera_position)["rotation_deg"]
    turned, index = kept, 0
    if symmetry is not None:
        index = symmetry.best_for_clip(kept.orientation_quat_wxyz, quats)
        turned = symmetry.of_true_spin(symmetry.applied(index, kept), quats)
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
        "within_5cm_5deg_fraction": _close(errors["position_m"], up_to_symmetry),
        "rpe_1s_m": _rms(relative_errors(kept, positions, quats, 1.0)[1]),
        "interval_coverage": coverage(kept, std, positions, quats),
    }


def _relative(positions: Array, quats: Array, first: NDArray[np.int64], last: NDArray[np.int64]) -> Array:
    """Return the position of the body at `last` in its own axes at `first`."""
    return rotate(quat_conjugate(quats[first]), positions[last] - positions[first])


def _close(position_m: Array, rotation_deg: Array) -> float | None:
    """Return the share of frames within 5 cm and 5 deg (Shotton et al., CVPR 2013)."""
    return float(((position_m < 0.05) & (rotation_deg < 5.0)).mean()) if len(position_m) else None


def _rms(values: Array) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) and np.isfinite(values).all() else None
