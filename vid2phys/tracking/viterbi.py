"""The Viterbi path through the states that a body may have in each frame of a clip (Viterbi, 1967).

Two models of motion share one dynamic program. A rotating body turns little from frame to frame, or goes on turning as
before. A point in coordinates moves little. The program is compiled: the tracker asks for many such paths.

Limits: a path may pass over at most two wrong frames in a row, and only under the model of rotations.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import quat_from_matrix
from vid2phys.types import Array

_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


@dataclass(frozen=True, kw_only=True)
class RotationMotion:
    """A body whose states are orientations, and which goes on turning as before."""

    orientation_std_rad: float = float(np.radians(6.0))
    """Standard deviation of a frame's orientation, rad."""
    rate_rad_s: float = float(np.radians(400.0))
    """Standard deviation of the rate of turning of an unknown body, rad/s."""
    large_step_rad: float = float(np.radians(60.0))
    """Rotation between two frames that costs a nat: a turn by a symmetry element in each frame looks steady, too."""
    rate_growth: float = 6.0**2
    """Growth of the variance of a rate without impacts, rad^2/s^3."""
    impact_nats: float = 4.0
    """Cost of an impact, after which the rate is unknown, nats."""
    max_skipped: int = 2
    """Largest number of frames in a row that a path may pass over."""
    skip_nats: float = 6.0
    """Cost of a frame that is passed over, nats."""
    max_jump_nats: float = 20.0
    """Largest cost of a step, nats; the evidence of a single frame is worth less."""
    log_distance_std: float = 0.04
    """Standard deviation of the step of a distance's logarithm, where distances are given."""


@dataclass(frozen=True, kw_only=True)
class SteadyMotion:
    """A body whose states are points in coordinates of unit scale, which go on moving as before."""

    std: float = 0.03
    """Standard deviation of a frame's coordinates."""
    max_rate: float = 10.0
    """Standard deviation of an unknown rate, per s."""
    rate_growth: float = 30.0**2
    """Growth of the variance of a rate, per s^3."""
    max_jump_nats: float = 25.0
    """Largest cost of a step, nats."""
    periods: tuple[float, ...] = ()
    """Period of each coordinate, zero without one; empty where none has one."""


DEFAULTS = RotationMotion()


@dataclass(frozen=True, kw_only=True)
class CoordinateMotion:
    """A body whose states are points in coordinates of unit scale, which move little."""

    max_rate: float
    """Standard deviation of a coordinate's rate, per s."""
    max_jump_nats: float
    """Largest cost of a step, nats."""


def viterbi_path(
    cost: Array,
    states: Array,
    times_s: Array,
    motion: RotationMotion | CoordinateMotion | SteadyMotion = DEFAULTS,
    log_distance: Array | None = None,
) -> NDArray[np.int64]:
    """Return the states [N] of the path with the least total cost.

    Under `RotationMotion` each state carries the rate of turning of the best path to it, filtered (Kalman, 1960, with
    scalar variances). So a steady rotation is judged without a search over pairs of states. The path may pass over a
    few wrong frames, at a cost: all labels of the next frame are about as far from a wrong orientation. A frame that
    was passed over gets the label nearest to the one before it.

    Args:
        cost: [N, S] of the states, nats; infinite for a state that does not exist.
        states: [N, S, 3, 3] rotations, or [N, S, D] coordinates.
        times_s: [N], s.
        motion: model of the motion between frames.
        log_distance: [N, S] logarithm of the body's distance in each state, which changes little as well; only with
            rotations.
    """
    cost, times = np.ascontiguousarray(cost, dtype=float), np.asarray(times_s, dtype=float)
    if isinstance(motion, CoordinateMotion):
        points = np.ascontiguousarray(states, dtype=float)
        return _backtracked(*_coordinate_paths(cost, points, times, motion.max_rate, motion.max_jump_nats), points)
    if isinstance(motion, SteadyMotion):
        points = np.ascontiguousarray(states, dtype=float)
        periods = np.zeros(points.shape[-1]) if not motion.periods else np.array(motion.periods)
        settings = motion.std, motion.max_rate, motion.rate_growth, motion.max_jump_nats
        return _backtracked(*_steady_paths(cost, points, times, periods, settings), points)
    away = np.zeros_like(cost) if log_distance is None else np.ascontiguousarray(log_distance, dtype=float)
    return _backtracked(*_rotation_paths(cost, quat_from_matrix(states), away, times, astuple(motion)), states)


@_compiled
def _advance(
    total: Array, step: Array, skipped: float, cost: Array, reached: Array, origin: NDArray[np.int64], last: int
) -> NDArray[np.bool_]:
    """Extend the best paths to frame `last` by one step each; return which states [K] are reached at less cost.

    Args:
        total: [S] costs of the best paths to the states of frame `last`; infinite without a path.
        step: [S, K] costs of the steps.
        skipped: cost of the frames that the step passes over.
        cost: [K] of the new states.
        reached: [K] least costs so far, which are updated.
        origin: [K, 2] frame and state before, which are updated.
        last: index of the frame.
    """
    better = np.zeros(len(cost), np.bool_)
    for k in range(len(cost)):
        best, least = 0, np.inf
        for s in range(len(total)):
            if total[s] < np.inf and total[s] + step[s, k] + skipped < least:
                best, least = s, total[s] + step[s, k] + skipped
        if least + cost[k] < reached[k]:
            reached[k], origin[k, 0], origin[k, 1], better[k] = least + cost[k], last, best, True
    return better


@_compiled
def _coordinate_paths(
    cost: Array, points: Array, times_s: Array, rate: float, most: float
) -> tuple[Array, NDArray[np.int64]]:
    """Return costs [S] of the best paths to the last frame's states, and the frame and state before each, [N, S, 2]."""
    count, states = cost.shape
    total, origin = np.full(cost.shape, np.inf), np.zeros((count, states, 2), dtype=np.int64)
    total[0] = cost[0]
    step = np.empty((states, states))
    for t in range(1, count):
        for s in range(states):
            for k in range(states):
                square = ((points[t, k] - points[t - 1, s]) ** 2).sum()
                step[s, k] = min(0.5 * square / (rate * (times_s[t] - times_s[t - 1])) ** 2, most)
        _advance(total[t - 1], step, 0.0, cost[t], total[t], origin[t], t - 1)
    return total[-1], origin


@_compiled
def _steady_paths(
    cost: Array, points: Array, times_s: Array, periods: Array, motion: tuple[float, float, float, float]
) -> tuple[Array, NDArray[np.int64]]:
    """Return the same for points that go on moving; each state carries the filtered rate of the best path to it."""
    std, rate_std, growth, most = motion
    count, states, size = points.shape
    total, origin = np.full(cost.shape, np.inf), np.zeros((count, states, 2), dtype=np.int64)
    rate, variance = np.zeros(points.shape), np.full(cost.shape, rate_std**2)
    total[0] = cost[0]
    step, moved = np.empty((states, states)), np.zeros(size)
    for t in range(1, count):
        span = times_s[t] - times_s[t - 1]
        for s in range(states):
            spread = (variance[t - 1, s] + growth * span) * span**2 + 2.0 * std**2
            for k in range(states):
                square = 0.0
                for d in range(size):
                    ahead = _shortest(points[t, k, d] - points[t - 1, s, d], periods[d]) - rate[t - 1, s, d] * span
                    square += ahead**2
                widened = 0.5 * size * np.log(spread / (2.0 * std**2))
                step[s, k] = min(0.5 * square / spread + widened, most)
        better = _advance(total[t - 1], step, 0.0, cost[t], total[t], origin[t], t - 1)
        for k in range(states):
            s = origin[t, k, 1]
            known = variance[t - 1, s] + growth * span
            if not better[k] or step[s, k] >= most:
                continue  # after a jump the rate is unknown
            gain = known / (known + 2.0 * std**2 / span**2)
            for d in range(size):
                moved[d] = _shortest(points[t, k, d] - points[t - 1, s, d], periods[d])
                rate[t, k, d] = (1.0 - gain) * rate[t - 1, s, d] + gain * moved[d] / span
            variance[t, k] = (1.0 - gain) * known
    return total[-1], origin


@_compiled
def _shortest(step: float, period: float) -> float:
    """Return a step the shorter way round; period: zero without one."""
    return step if period == 0.0 else step - period * np.round(step / period)


@_compiled
def _rotation_paths(
    cost: Array,
    quat: Array,
    log_distance: Array,
    times_s: Array,
    motion: tuple[float, float, float, float, float, int, float, float, float],
) -> tuple[Array, NDArray[np.int64]]:
    """Return the same for orientations quat [N, S, 4]; motion: the fields of `RotationMotion`."""
    std, rate_std, large, growth, impact, max_skipped, skip, most, away_std = motion
    count, states = cost.shape
    total, origin = np.full(cost.shape, np.inf), np.zeros((count, states, 2), dtype=np.int64)
    rate, variance = np.zeros((count, states, 3)), np.full(cost.shape, rate_std**2)
    total[0] = cost[0]
    step, steady = np.empty((states, states)), np.empty((states, states), np.bool_)
    for t in range(1, count):
        skipped = 0.0
        for last in range(t - 1, max(-1, t - 2 - max_skipped), -1):
            span = times_s[t] - times_s[last]
            for s in range(states):
                if not total[last, s] < np.inf:
                    continue
                ahead = _product(_quat_of(rate[last, s] * span), quat[last, s])
                spread = (variance[last, s] + growth * span) * span**2
                for k in range(states):
                    going_on = _rotation_cost(ahead, quat[t, k], spread, std)
                    hit = _rotation_cost(quat[last, s], quat[t, k], (rate_std * span) ** 2, std) + impact
                    apart = 0.5 * ((log_distance[t, k] - log_distance[last, s]) / away_std) ** 2
                    swing = (_angle(quat[last, s], quat[t, k]) / large) ** 2
                    step[s, k], steady[s, k] = min(min(going_on, hit) + swing + apart, most), going_on <= hit
            better = _advance(total[last], step, skipped, cost[t], total[t], origin[t], last)
            for k in range(states):
                if not better[k]:
                    continue
                s = origin[t, k, 1]
                known = variance[last, s] + growth * span if steady[s, k] else rate_std**2
                gain = known / (known + 2.0 * std**2 / span**2)
                seen = _rotvec(quat[last, s], quat[t, k]) / span
                rate[t, k] = (1.0 - gain) * rate[last, s] + gain * seen if steady[s, k] else gain * seen
                variance[t, k] = (1.0 - gain) * known
            skipped += skip + cost[last].min()
    return total[-1], origin


@_compiled
def _rotation_cost(before: Array, after: Array, spread: float, std: float) -> float:
    """Return the cost of the orientation `after` where `before` is expected, with a variance `spread`, rad^2."""
    angle = _angle(before, after)
    widened = 1.0 + spread / (2.0 * std**2)
    return 0.5 * angle**2 / (2.0 * std**2 * widened) + 1.5 * np.log(widened)


@_compiled
def _angle(before: Array, after: Array) -> float:
    return 2.0 * np.arccos(min(abs((before * after).sum()), 1.0))


@_compiled
def _rotvec(before: Array, after: Array) -> Array:
    """Return the rotation vector [3] from one orientation to another, the shorter way round."""
    apart = _product(after, before * np.array([1.0, -1.0, -1.0, -1.0]))
    size = np.sqrt((apart[1:] ** 2).sum())
    if size < 1e-12:
        return 2.0 * apart[1:]
    sign = 1.0 if apart[0] >= 0.0 else -1.0
    return sign * 2.0 * np.arctan2(size, abs(apart[0])) / size * apart[1:]


@_compiled
def _quat_of(rotvec: Array) -> Array:
    angle = np.sqrt((rotvec**2).sum())
    quat = np.empty(4)
    quat[0] = np.cos(0.5 * angle)
    quat[1:] = rotvec * (0.5 if angle < 1e-12 else np.sin(0.5 * angle) / angle)
    return quat


@_compiled
def _product(a: Array, b: Array) -> Array:
    product = np.empty(4)
    product[0] = a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3]
    product[1] = a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2]
    product[2] = a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1]
    product[3] = a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0]
    return product


def _backtracked(total: Array, origin: NDArray[np.int64], states: Array) -> NDArray[np.int64]:
    """Return the path [N] that ends in the cheapest state; a frame that it passes over gets the nearest rotation."""
    frame, state = len(origin) - 1, int(np.argmin(total))
    path = np.full(len(origin), -1, dtype=np.int64)
    path[frame] = state
    while frame > 0:
        frame, state = origin[frame, state].tolist()
        path[frame] = state
    for skipped in np.flatnonzero(path < 0):
        before = states[skipped - 1, path[skipped - 1]]
        path[skipped] = np.argmax(np.einsum("ij,sij->s", before, states[skipped]))
    return path
