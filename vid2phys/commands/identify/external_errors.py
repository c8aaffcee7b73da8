"""The errors of given keypoints, estimated from the points: of each by itself, and of all points of a frame together.

What a point errs by itself shows in how badly a frame's points fit a rigid body. What they share shows only over time:
a body moves smoothly, so what its poses do beyond that is error. How far a pose errs through the independent errors of
its points is known (its covariance); a shared error explains the rest. A pose can be wrong in six ways. In each, the
frames' values are the sum of three Gaussian processes: a motion with white jerk (of any strength), a shared error that
is forgotten exponentially (Gauss-Markov), and the known independent error. The strength of the motion is integrated
out, block by block, so that a collision spoils one block alone. Size and correlation time of the shared error follow by
Bayes' rule on a grid.

Limit: an error that lasts for seconds looks like motion. Only the file can state such an error (`shared_px`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import (
    Pose,
    matrix_from_quat,
    quat_conjugate,
    quat_from_matrix,
    quat_from_rotvec,
    quat_multiply,
    rotvec_from_quat,
)
from vid2phys.indices import evenly
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.tracking.track import Track

LASTS_S = 0.2  # correlation time of a stated shared error, by the clock of a body that turns
_LEAST_PX = 0.05  # of an estimated standard deviation
CHI2_MEDIAN = 1.386  # of two degrees of freedom
_CORRELATION_S = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
_SIZES = np.append(0.0, 0.03 * 1.5 ** np.arange(17))  # of the shared error, in errors of one point: up to 20
_USUAL = 5.0  # errors of one point: scale of the half-normal prior of the shared error
_LASTS_SPREAD = 0.7  # of the logarithm of its correlation time, about `LASTS_S`, before the points speak
_BLOCK = 60  # frames
_MOST_BLOCKS = 10  # of a clip, that are used: more take time and tell little more
_LEAST_FRAMES = 12  # of a block
_GAP = 8.0  # steps between frames: a block ends there
_ROUNDING = 1e-13  # of a covariance's trace, that keeps it positive definite
_STEP_S = 1.0 / 40.0  # frames closer than this are thinned out, so that a block lasts
_SMOOTH_S = 0.2  # over which poses are smoothed: much of a shared error is gone, and the body has turned little
_JERKS = np.logspace(-6.0, 4.0, 11)  # of the motion, relative to what would move a frame by its independent error


def point_error(track: Track) -> float:
    """Return by how much points are off their frame's pose, in standard deviations of their covariance.

    By the median, so that outliers do not count; a pose took up six numbers of each frame.
    """
    from vid2phys.engine.pose_geometry import project_points

    seen, frames = track.observation, np.flatnonzero(track.tracked)
    predicted = project_points(track.poses.pose[frames], seen.points_body)
    whitener = np.linalg.inv(np.linalg.cholesky(seen.covariance[frames]))
    residual = (whitener @ (seen.bearings[frames] - predicted)[..., None])[..., 0]
    squared = (residual**2).sum(axis=-1)
    count = 2.0 * seen.visible[frames].sum(axis=1)
    freedom = np.maximum((count - 6.0) / count, 0.1)[:, None]
    visible = seen.visible[frames]
    return max(_LEAST_PX, float(np.sqrt(np.median((squared / freedom)[visible]) / CHI2_MEDIAN)))


def with_shared_error(track: Track, shared: Array | None) -> Track:
    """Return the track with the error that all points of a frame share.

    shared: [T] by how much each mode moves the points (root mean square, in bearings), forgotten within `LASTS_S` by
    the clock of turning; None to estimate size and correlation time of each mode.
    """
    seen = track.observation
    size = _point_size(seen.covariance, seen.visible) if shared is None else shared
    unit, modes = _mode_units(track, size)
    basis = np.asarray(modes * unit[:, None, None, :])
    found = None if shared is not None else _estimated(track, unit)
    if found is None:
        return replace(track, observation=replace(seen, shared_basis=basis))
    sizes, correlation_s = found
    observation = replace(
        seen, shared_basis=basis * sizes, correlation_time_s=correlation_s, error_clock_s=seen.times_s
    )
    return replace(track, observation=observation)


def _point_size(covariance: Array, visible: NDArray[np.bool_]) -> Array:
    """Return the standard deviation of one point of each frame, a coordinate, [T]; the clip's where none is seen."""
    variance = 0.5 * np.trace(covariance, axis1=-2, axis2=-1)
    overall = float(np.median(variance[visible]))
    count = visible.sum(axis=1)
    mean = (variance * visible).sum(axis=1) / np.maximum(count, 1)
    return np.sqrt(np.where(count > 0, mean, overall))


def _mode_units(track: Track, size: Array) -> tuple[Array, Array]:
    """Return what each mode is when it moves the points by `size` [T] (root mean square), [T, 6], and the modes.

    Frames with too few points for a pose have those of the nearest one that has it.
    """
    from vid2phys.engine.pose_geometry import pose_modes
    from vid2phys.indices import nearest

    frames = np.flatnonzero(track.tracked)
    rotation, translation = _smooth_poses(track)
    near = nearest(len(track.tracked), frames)
    modes = pose_modes(Pose(rotation[near], translation[near]), track.observation.points_body)
    moved = np.sqrt((modes**2).sum(axis=2).mean(axis=1) / 2.0)  # a coordinate, [T, 6]
    return size[:, None] / np.maximum(moved, 1e-12), modes


def _smooth_poses(track: Track) -> tuple[Array, Array]:
    """Return the poses of the tracked frames, smoothed over time: rotations [N, 3, 3], translations [N, 3].

    Modes at the frames' own poses would depend on the frames' errors, and a fit with them puts the body too far away.
    """
    from scipy.interpolate import make_smoothing_spline

    frames = np.flatnonzero(track.tracked)
    values, _, _ = _series(track)
    times_s, values = track.observation.times_s[frames], values[frames]
    if len(frames) < _LEAST_FRAMES:
        return track.poses.rotation[frames], track.poses.translation[frames]
    strength = _SMOOTH_S**4 / float(np.median(np.diff(times_s)))
    smooth = np.column_stack([make_smoothing_spline(times_s, value, lam=strength)(times_s) for value in values.T])
    rotation = matrix_from_quat(quat_from_rotvec(smooth[:, :3] - values[:, :3]))
    depth = np.exp(smooth[:, 5])
    return rotation @ track.poses.rotation[frames], np.column_stack([smooth[:, 3:5] * depth[:, None], depth])


def _estimated(track: Track, unit: Array) -> tuple[Array, Array] | None:
    """Return the size of each mode's shared error in units [T, 6] of the mode, and its correlation time, [6] each.

    None where too few frames have a pose.
    """
    blocks, times_s = _blocks(track), track.observation.times_s
    if not blocks:
        return None
    values, variance, to_values = _series(track)
    lasting = np.log(_CORRELATION_S / LASTS_S) / _LASTS_SPREAD
    log_prior = -0.5 * (lasting[:, None] ** 2 + (_SIZES / _USUAL) ** 2)
    size, correlation_s = np.zeros(6), np.zeros(6)
    for mode in range(6):
        log_likelihood = sum(
            _log_likelihood(
                times_s[block],
                values[block, mode],
                variance[block, mode],
                unit[block, mode] * to_values[block, mode],
            )
            for block in blocks
        )
        log_posterior = log_likelihood + log_prior
        posterior = np.exp(log_posterior - log_posterior.max())
        likeliest = int(np.argmax(posterior.sum(axis=1)))
        correlation_s[mode] = _CORRELATION_S[likeliest]
        size[mode] = np.sqrt((posterior[likeliest] @ _SIZES**2) / posterior[likeliest].sum())
    return size, correlation_s


def _blocks(track: Track) -> list[NDArray[np.int64]]:
    """Return frames with a pose, in blocks without long gaps."""
    frames, times_s = np.flatnonzero(track.tracked), track.observation.times_s
    if len(frames) < _LEAST_FRAMES:
        return []
    step_s = float(np.median(np.diff(times_s[frames])))
    frames = frames[:: max(1, int(_STEP_S / step_s))]
    gaps = np.flatnonzero(np.diff(times_s[frames]) > _GAP * max(step_s, _STEP_S)) + 1
    parts = np.split(frames, gaps)
    blocks = [block for part in parts for block in np.array_split(part, max(1, round(len(part) / _BLOCK)))]
    blocks = [block for block in blocks if len(block) >= _LEAST_FRAMES]
    return [blocks[i] for i in evenly(len(blocks), _MOST_BLOCKS)]


def _series(track: Track) -> tuple[Array, Array, Array]:
    """Return what the modes of `pose_modes` change, over time, [T, 6]; its variance by independent errors; its slope.

    Three accumulated turns about the camera's axes, two coordinates of the bearing, the logarithm of the depth. NaN in
    frames without a pose.
    """
    frames = np.flatnonzero(track.tracked)
    place, quats = track.poses.translation[frames], quat_from_matrix(track.poses.rotation[frames])
    steps = rotvec_from_quat(quat_multiply(quats[1:], quat_conjugate(quats[:-1])))
    turned = np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)])
    depth = place[:, 2]
    bearing = place[:, :2] / depth[:, None]
    to_bearing = np.zeros((len(frames), 3, 3))
    to_bearing[:, range(3), range(3)] = 1.0 / depth[:, None]
    to_bearing[:, :2, 2] = -bearing / depth[:, None]
    covariance = track.poses.covariance[frames]
    of_bearing = to_bearing @ covariance[:, 3:, 3:] @ np.swapaxes(to_bearing, 1, 2)
    slope = np.ones((len(frames), 6))
    slope[:, 3:5] = (np.linalg.norm(place, axis=1) / depth)[:, None]

    def spread(found: Array) -> Array:
        out = np.full((len(track.tracked), 6), np.nan)
        out[frames] = found
        return out

    variances = [np.diagonal(part, axis1=1, axis2=2) for part in (covariance[:, :3, :3], of_bearing)]
    return (
        spread(np.column_stack([turned, bearing, np.log(depth)])),
        spread(np.column_stack(variances)),
        spread(slope),
    )


def _log_likelihood(times_s: Array, values: Array, variance: Array, unit: Array) -> Array:
    """Return the log likelihood of correlation times and sizes of the shared error, [len(_CORRELATION_S), len(_SIZES)].

    values, variance, unit: [N] of one mode in a block of frames. Any parabola over time is left out as motion.
    """
    elapsed = times_s - times_s[0]
    parabola = np.vander(elapsed / elapsed[-1], 3)
    rest = np.linalg.svd(parabola)[0][:, 3:]  # [N, N - 3]
    seen = rest.T @ values
    noise = rest.T @ (variance[:, None] * rest)
    jerks = _JERKS * np.median(variance) / np.median(np.diff(times_s)) ** 5
    wandering = rest.T @ _white_jerk(elapsed) @ rest
    wandering += _ROUNDING * np.trace(wandering) * np.eye(len(seen))
    motion = jerks[:, None, None, None] * wandering
    apart = np.abs(elapsed[:, None] - elapsed)
    bordered = np.zeros((len(_JERKS), len(_SIZES), len(seen) + 1, len(seen) + 1))
    bordered[..., -1, :-1] = seen  # so the factor's last row holds the whitened values
    bordered[..., -1, -1] = 1.0 + (seen @ seen) / variance.min()
    out = np.zeros((len(_CORRELATION_S), len(_SIZES)))
    for i, correlation_s in enumerate(_CORRELATION_S):
        shared = rest.T @ (unit[:, None] * unit * np.exp(-apart / correlation_s)) @ rest
        bordered[..., :-1, :-1] = motion + (_SIZES**2)[:, None, None] * shared + noise
        root = np.linalg.cholesky(bordered)
        scales = np.diagonal(root, axis1=-2, axis2=-1)[..., :-1]
        log_density = -0.5 * (root[..., -1, :-1] ** 2).sum(axis=-1) - np.log(scales).sum(axis=-1)
        out[i] = np.logaddexp.reduce(log_density, axis=0)
    return out


def _white_jerk(elapsed_s: Array) -> Array:
    """Return the covariance [N, N] of a coordinate at rest at 0 whose jerk is white noise of unit density."""
    first, apart = np.minimum.outer(elapsed_s, elapsed_s), np.abs(np.subtract.outer(elapsed_s, elapsed_s))
    return np.asarray((first**5 / 5.0 + apart * first**4 / 2.0 + apart**2 * first**3 / 3.0) / 4.0)
