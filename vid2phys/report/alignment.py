"""Align two pose logs of one body: time offset, marker-to-body transform, world alignment.

Conventions: mocap time = video time + offset. `marker_in_body` X is the pose of the tracked marker frame in body axes.
`mocap_to_world` W takes mocap coordinates to the camera's world, so world_from_body(t) = W mocap(t + offset) X^-1. To
estimate X and W together is the hand-eye problem A X = Y B (Horaud and Dornaika 1995), here solved by least squares.
Limit: the motion has to vary in speed, and for X in rotation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.geometry import (
    Array,
    angle_between,
    quat_conjugate,
    quat_from_matrix,
    quat_from_rotvec,
    quat_multiply,
    quat_normalize,
    rotate,
    rotvec_from_quat,
    slerp,
)
from vid2phys.indices import evenly
from vid2phys.types import PoseLog

MIN_ROTATION_VARIETY_DEG = 20.0
MIN_OVERLAP_S = 0.5
_SHORT_SHARE = 0.8  # of the shorter log that the other one covers, where the log is shorter than that overlap
_LONGEST_GAP_S = 0.1
_LONGEST_S = 86_400.0  # a day: times of a longer log are probably in another unit
_GRID_S = 0.01
_SMOOTHING_S = 0.05
_LARGEST_REFINEMENT_S = 0.1
_MARKER_PRIOR_M = 0.1


@dataclass(frozen=True)
class Alignment:
    """How a mocap log is brought onto a video's clock, body and world.

    time_offset_s: mocap time = video time + offset. marker_in_body, mocap_to_world: tangent vectors [6] = rotation
    vector [rad] then translation [m]. marker_covariance: [6, 6] in the same order, None when it was not fitted.
    """

    time_offset_s: float
    marker_in_body: Array = field(default_factory=lambda: np.zeros(6))
    mocap_to_world: Array = field(default_factory=lambda: np.zeros(6))
    marker_covariance: Array | None = None


def interpolate(log: PoseLog, times_s: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the poses of a log at other times.

    Positions are interpolated linearly, rotations on the sphere. Gaps of more than 0.1 s are not bridged.

    Args:
        log: poses with NaN in gaps.
        times_s: [T] s, on the log's clock.

    Returns:
        Positions [T, 3] m, quaternions wxyz [T, 4], and where the log has data [T].

    Raises:
        InputError: the log has fewer than two poses.
    """
    seen = np.isfinite(log.positions_m).all(axis=1) & np.isfinite(log.orientation_quat_wxyz).all(axis=1)
    times, positions, quats = log.times_s[seen], log.positions_m[seen], log.orientation_quat_wxyz[seen]
    if len(times) < 2:
        raise InputError(f"the log of '{log.name}' has {len(times)} poses", "at least 2", "check --body and the file")
    after = np.clip(np.searchsorted(times, times_s), 1, len(times) - 1)
    before = after - 1
    gap = times[after] - times[before]
    share = np.clip((times_s - times[before]) / gap, 0.0, 1.0)
    inside = (times_s >= times[0]) & (times_s <= times[-1]) & (gap <= max(_LONGEST_GAP_S, 1.5 * np.median(gap)))
    mixed = slerp(quats[before], quats[after], share)
    place = positions[before] * (1.0 - share[:, None]) + positions[after] * share[:, None]
    return place, quat_normalize(mixed), inside


def apply(alignment: Alignment, mocap: PoseLog, times_s: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the world poses of the body that a mocap log gives at video times [T].

    They are positions [T, 3] m, quaternions wxyz [T, 4], and where the log has data [T].
    """
    positions, quats, seen = interpolate(mocap, times_s + alignment.time_offset_s)
    positions, quats = _to_world(alignment.mocap_to_world, positions, quats)
    body_quats = quat_multiply(quats, quat_conjugate(quat_from_rotvec(alignment.marker_in_body[:3])))
    return positions - rotate(body_quats, alignment.marker_in_body[3:]), body_quats, seen


def rotation_variety_deg(quats_wxyz: Array) -> float:
    """Return the largest angle between two of these orientations, [T, 4] -> deg."""
    some = quats_wxyz[evenly(len(quats_wxyz), 200)]
    return float(np.rad2deg(angle_between(some[:, None], some[None, :]).max()))


def find_time_offset(estimate: PoseLog, mocap: PoseLog, *, world: bool = False) -> float:
    """Return the offset [s] with mocap time = video time + offset.

    First, masked cross-correlation of angular speed and of speed, which do not depend on the frames of body and world,
    gives peaks. Then the best peaks and zero are compared by how well the poses agree. Least squares with the other
    transforms as nuisances refine the winner.

    Args:
        estimate: the poses from the video.
        mocap: the log.
        world: whether the two worlds differ.

    Raises:
        InputError: the logs do not overlap, or nothing moves.
    """
    lags, score = _correlate_speeds(estimate, mocap)
    peaks = [0.0, *_best_peaks(lags, score)]  # clocks that agree already
    costs = [_pose_cost(estimate, mocap, lag, world) for lag in peaks]
    start = peaks[int(np.argmin(costs))]
    free = ("time", "marker", "world") if world else ("time", "marker")
    return _fit(estimate, mocap, start, free).time_offset_s


def fit_transforms(estimate: PoseLog, mocap: PoseLog, time_offset_s: float, *, marker: bool, world: bool) -> Alignment:
    """Fit the marker transform, the world transform, or both, at a given time offset.

    Raises InputError when `marker` is set and the body rotated by less than 20 degrees.
    """
    free = (("marker",) if marker else ()) + (("world",) if world else ())
    if marker:
        variety = rotation_variety_deg(estimate.orientation_quat_wxyz)
        if variety < MIN_ROTATION_VARIETY_DEG:
            raise InputError(
                f"the body rotated by {variety:.0f} deg in all",
                f"at least {MIN_ROTATION_VARIETY_DEG:.0f} deg to find the marker-to-body transform",
                "evaluate with --align time",
            )
    return _fit(estimate, mocap, time_offset_s, free) if free else Alignment(time_offset_s)


def _to_world(mocap_to_world: Array, positions: Array, quats: Array) -> tuple[Array, Array]:
    quat = quat_from_rotvec(mocap_to_world[:3])
    return rotate(quat, positions) + mocap_to_world[3:], quat_multiply(quat, quats)


def _fit(estimate: PoseLog, mocap: PoseLog, offset_s: float, free: tuple[str, ...]) -> Alignment:
    """Fit the free transforms by robust least squares; a weak prior keeps near zero what no motion determines."""
    from scipy.optimize import least_squares

    sizes = {"time": 1, "marker": 6, "world": 6}
    slices, count = {}, 0
    for name in free:
        slices[name] = slice(count, count + sizes[name])
        count += sizes[name]
    x = np.zeros(count)
    world, marker_rotvec = _rigid(estimate, mocap, offset_s, "world" in free)
    if "world" in free:
        x[slices["world"]] = world
    if "marker" in free:
        x[slices["marker"]][:3] = marker_rotvec
    prior = np.full(count, 1e-3)
    limit = np.full(count, np.inf)
    if "time" in free:
        limit[slices["time"]] = _LARGEST_REFINEMENT_S
    if "marker" in free:
        prior[slices["marker"]][3:] = 1.0 / _MARKER_PRIOR_M

    def build(x: Array) -> Alignment:
        parts = {name: x[part] for name, part in slices.items()}
        shift = float(parts["time"][0]) if "time" in free else 0.0
        return Alignment(offset_s + shift, parts.get("marker", np.zeros(6)), parts.get("world", np.zeros(6)))

    def errors(x: Array) -> Array:
        positions, quats, seen = apply(build(x), mocap, estimate.times_s)
        rotvecs = rotvec_from_quat(quat_multiply(quat_conjugate(quats), estimate.orientation_quat_wxyz))
        return np.where(seen[:, None], np.concatenate([rotvecs, estimate.positions_m - positions], axis=1), 0.0)

    for _ in range(3):
        start = errors(x)
        scale = np.repeat([max(_spread(start[:, :3]), 1e-5), max(_spread(start[:, 3:]), 1e-6)], 3)

        def residual(x: Array, scale: Array = scale) -> Array:
            return np.concatenate([(errors(x) / scale).ravel(), prior * x])

        solved = least_squares(residual, x, bounds=(-limit, limit), loss="soft_l1", x_scale="jac", max_nfev=30)
        x = solved.x
    fitted = build(x)
    if "marker" not in free:
        return fitted
    inverse = np.linalg.pinv(solved.jac.T @ solved.jac) * _correlation_factor(errors(x) / scale)
    return replace(fitted, marker_covariance=inverse[slices["marker"], slices["marker"]])


def _rigid(estimate: PoseLog, mocap: PoseLog, offset_s: float, world: bool) -> tuple[Array, Array]:
    """Return the world transform [6] and the marker rotation vector [3].

    The world transform is from positions (Umeyama 1991, no scale), and zero unless `world` is set.
    """
    positions, quats, seen = interpolate(mocap, estimate.times_s + offset_s)
    transform = np.zeros(6)
    if world:
        source, target = positions[seen], estimate.positions_m[seen]
        source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
        u, _, vt = np.linalg.svd((target - target_mean).T @ (source - source_mean))
        rotation = u @ np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt))]) @ vt
        transform[:3] = rotvec_from_quat(quat_from_matrix(rotation))
        transform[3:] = target_mean - rotation @ source_mean
    _, quats = _to_world(transform, positions[seen], quats[seen])
    offsets = quat_multiply(quat_conjugate(estimate.orientation_quat_wxyz[seen]), quats)
    mean = np.linalg.eigh(offsets.T @ offsets)[1][:, -1]  # the quaternion mean of Markley et al. 2007
    return transform, rotvec_from_quat(mean)


def _pose_cost(estimate: PoseLog, mocap: PoseLog, offset_s: float, world: bool) -> float:
    """Return the misfit of poses at an offset, without constant shifts of world and marker; inf for little overlap."""
    seen = interpolate(mocap, estimate.times_s + offset_s)[2]
    if seen.mean() < 0.5:
        return np.inf
    transform, marker_rotvec = _rigid(estimate, mocap, offset_s, world)
    alignment = Alignment(offset_s, np.concatenate([marker_rotvec, np.zeros(3)]), transform)
    positions, quats, _ = apply(alignment, mocap, estimate.times_s)
    away = (estimate.positions_m - positions)[seen]
    angles = angle_between(estimate.orientation_quat_wxyz, quats)[seen]
    distance, angle = np.sqrt(away.var(axis=0).sum()), np.sqrt(np.mean(angles**2))
    return float(np.log(distance + 1e-6) + np.log(angle + 1e-6) - np.log(seen.mean()))


def _best_peaks(lags: Array, score: Array, count: int = 60, apart_s: float = 0.05) -> list[float]:
    """Return the lags of the highest scores, at least `apart_s` apart."""
    peaks: list[float] = []
    for index in np.argsort(-score):
        if len(peaks) == count or not np.isfinite(score[index]):
            break
        if all(abs(lags[index] - peak) >= apart_s for peak in peaks):
            peaks.append(float(lags[index]))
    return peaks


def _spread(errors: Array) -> float:
    """Return the robust standard deviation about zero."""
    return float(1.4826 * np.median(np.abs(errors)))


def _correlation_factor(residuals: Array) -> float:
    """Return by how much common errors of adjacent frames raise a covariance: the integrated autocorrelation, >= 1."""
    centred = residuals - residuals.mean(axis=0)
    power = (centred**2).sum() + 1e-300
    factor = 1.0
    for lag in range(1, len(centred) // 3):
        correlation = float((centred[lag:] * centred[:-lag]).sum() / power)
        if correlation < 0.05:
            break
        factor += 2.0 * correlation
    return factor


def _correlate_speeds(estimate: PoseLog, mocap: PoseLog) -> tuple[Array, Array]:
    """Return candidate offsets [s] and how well the two logs' speeds agree there; -inf where they hardly overlap."""
    start_e, signals_e, mask_e = _speeds(estimate)
    start_m, signals_m, mask_m = _speeds(mocap)
    shorter = min(len(mask_e), len(mask_m))
    enough = max(shorter // 2, min(int(MIN_OVERLAP_S / _GRID_S), int(_SHORT_SHARE * shorter)))
    score = np.zeros(len(mask_e) + len(mask_m) - 1)
    for x, y in zip(signals_e, signals_m, strict=True):
        if _moves(x, mask_e) and _moves(y, mask_m):  # a body that only rotates, or only travels, has one of the two
            score += _masked_correlation(x, mask_e, y, mask_m, enough)
    if not score.any() or not np.isfinite(score).any():
        raise InputError(
            f"'{estimate.name}' lasts {len(mask_e) * _GRID_S:.2f} s and the log {len(mask_m) * _GRID_S:.2f} s",
            f"at least {enough * _GRID_S:.2f} s of both to overlap, and motion in both",
            "check that the log belongs to this clip",
        )
    shifts = np.arange(len(score), dtype=float) - (len(mask_e) - 1)
    return start_m - start_e + shifts * _GRID_S, score


def _speeds(log: PoseLog) -> tuple[float, list[Array], Array]:
    """Return the start time, [angular speed, speed] on a common grid, smoothed, and where the log has data."""
    from scipy.ndimage import gaussian_filter1d

    lasts_s = float(log.times_s[-1] - log.times_s[0])
    if lasts_s > _LONGEST_S:
        got = f"'{log.name}' lasts {lasts_s:.3g} s"
        raise InputError(got, f"at most {_LONGEST_S:.0f} s", "check that its times are in seconds, or cut it")
    times = np.arange(log.times_s[0], log.times_s[-1], _GRID_S)
    positions, quats, seen = interpolate(log, times)
    if len(times) < 3:
        raise InputError(f"'{log.name}' lasts {len(times) * _GRID_S:.2f} s", f"at least {MIN_OVERLAP_S} s")
    rates = rotvec_from_quat(quat_multiply(quat_conjugate(quats[:-1]), quats[1:])) / _GRID_S
    speeds = np.diff(positions, axis=0) / _GRID_S
    width = _SMOOTHING_S / _GRID_S
    signals = [np.linalg.norm(gaussian_filter1d(value, width, axis=0), axis=1) for value in (rates, speeds)]
    return float(times[0]), signals, (seen[:-1] & seen[1:]).astype(float)


def _moves(signal: Array, mask: Array) -> bool:
    """Return whether a speed varies by more than rounding."""
    return bool(mask.sum() > 2 and signal[mask > 0].std() > 1e-4)


def _masked_correlation(x: Array, x_mask: Array, y: Array, y_mask: Array, enough: int) -> Array:
    """Return the Pearson correlation of y shifted against x for every shift, where both have data (Padfield 2012)."""
    from scipy.signal import correlate

    x, y = (x - x[x_mask > 0].mean()) * x_mask, (y - y[y_mask > 0].mean()) * y_mask
    count = correlate(y_mask, x_mask, method="fft")
    usable = count >= enough - 0.5
    count = np.maximum(count, 1.0)
    sum_x, sum_y = correlate(y_mask, x, method="fft"), correlate(y, x_mask, method="fft")
    power_x = correlate(y_mask, x * x, method="fft") - sum_x**2 / count
    power_y = correlate(y * y, x_mask, method="fft") - sum_y**2 / count
    product = correlate(y, x, method="fft") - sum_x * sum_y / count
    floor_x, floor_y = 1e-6 * (x * x).sum(), 1e-6 * (y * y).sum()
    usable &= (power_x > floor_x) & (power_y > floor_y)
    return np.where(usable, product / np.sqrt(np.maximum(power_x * power_y, 1e-300)), -np.inf)
