"""The likeliest path of a body through what it may be turned like in each frame of a clip (Viterbi, 1967).

A body turns little from frame to frame, or goes on turning as it did. Compiled: the tracker takes such paths again and
again, through frames that mostly have one orientation each.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import quat_from_matrix
from vid2phys.types import Array

_READING_RAD = np.radians(6.0)  # spread of a frame's orientation
_TURN_RATE_RAD_S = np.radians(400.0)  # how fast bodies turn of which nothing is known
_TURN_CHANGE_RAD2_S3 = 6.0**2  # growth of the variance of a rate, save at impacts
_HIT_NATS = 4.0  # an impact, after which nothing is known of the rate
_MOST_PASSED = 2  # frames
_PASS_NATS = 6.0  # a frame
_JUMP_NATS = 20.0  # cost of a discontinuity: no single frame's evidence buys one
_compiled = numba.njit(cache=True, error_model="numpy", nogil=True)


def likeliest_path(unary: Array, rotation: Array, times_s: Array) -> NDArray[np.int64]:
    """Path of least total cost, unary [N, S] and orientations [N, S, 3, 3] -> [N].

    Each state carries the rate of turning of the best path to it, filtered (Kalman, 1960, with scalar variances), so
    that a turn going on is judged without searching all pairs of states. A path may pass by a few frames that were
    misread, for a price: from a wrong orientation all labels of the next frame are about as far. Such frames get the
    label nearest to the one before them.
    """
    times = np.asarray(times_s, dtype=float)
    total, origin = _paths(np.ascontiguousarray(unary, dtype=float), quat_from_matrix(rotation), times)
    return _traced(total, origin, rotation)


@_compiled
def _paths(unary: Array, quat: Array, times_s: Array) -> tuple[Array, NDArray[np.int64]]:
    """Costs [S] of the best paths to the last frame's states, and which frame and state each state [N, S, 2] of the
    clip is reached from. quat: [N, S, 4]."""
    count, states = unary.shape
    total = np.full(unary.shape, np.inf)
    rate, variance = np.zeros((count, states, 3)), np.full(unary.shape, _TURN_RATE_RAD_S**2)
    origin = np.zeros((count, states, 2), dtype=np.int64)
    total[0] = unary[0]
    ahead = np.empty((states, 4))
    for t in range(1, count):
        passed = 0.0
        for last in range(t - 1, max(-1, t - 2 - _MOST_PASSED), -1):
            step = times_s[t] - times_s[last]
            for s in range(states):
                ahead[s] = _product(_quat_of(rate[last, s] * step), quat[last, s])
            for k in range(states):
                best, least, steady = 0, np.inf, True
                for s in range(states):
                    if not total[last, s] < np.inf:
                        continue
                    spread = (variance[last, s] + _TURN_CHANGE_RAD2_S3 * step) * step**2
                    cost = _turn_cost(ahead[s], quat[t, k], spread)
                    hit = _turn_cost(quat[last, s], quat[t, k], (_TURN_RATE_RAD_S * step) ** 2) + _HIT_NATS
                    through = total[last, s] + min(cost, hit, _JUMP_NATS) + passed
                    if through < least:
                        best, least, steady = s, through, cost <= hit
                reached = least + unary[t, k]
                if not reached < total[t, k]:
                    continue
                total[t, k], origin[t, k, 0], origin[t, k, 1] = reached, last, best
                known = variance[last, best] + _TURN_CHANGE_RAD2_S3 * step if steady else _TURN_RATE_RAD_S**2
                gain = known / (known + 2.0 * _READING_RAD**2 / step**2)
                seen = _turn(quat[last, best], quat[t, k]) / step
                rate[t, k] = (1.0 - gain) * rate[last, best] + gain * seen if steady else gain * seen
                variance[t, k] = (1.0 - gain) * known
            passed += _PASS_NATS + unary[last].min()
    return total[-1], origin


@_compiled
def _turn_cost(before: Array, after: Array, spread: float) -> float:
    """Cost of reading the orientation `after` where `before` was expected, to `spread` rad^2."""
    dot = abs((before * after).sum())
    angle = 2.0 * np.arccos(min(dot, 1.0))
    widened = 1.0 + spread / (2.0 * _READING_RAD**2)
    return 0.5 * angle**2 / (2.0 * _READING_RAD**2 * widened) + 1.5 * np.log(widened)


@_compiled
def _turn(before: Array, after: Array) -> Array:
    """The rotation vector [3] from one orientation to another, the shorter way round."""
    turn = _product(after, before * np.array([1.0, -1.0, -1.0, -1.0]))
    size = np.sqrt((turn[1:] ** 2).sum())
    if size < 1e-12:
        return 2.0 * turn[1:]
    sign = 1.0 if turn[0] >= 0.0 else -1.0
    return sign * 2.0 * np.arctan2(size, abs(turn[0])) / size * turn[1:]


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


def _traced(total: Array, origin: NDArray[np.int64], rotation: Array) -> NDArray[np.int64]:
    """The path that ends in the cheapest state, [N]; frames passed by are labelled as near to it as can be."""
    frame, state = len(origin) - 1, int(np.argmin(total))
    path = np.full(len(origin), -1, dtype=np.int64)
    path[frame] = state
    while frame > 0:
        frame, state = origin[frame, state].tolist()
        path[frame] = state
    for passed in np.flatnonzero(path < 0):
        before = rotation[passed - 1, path[passed - 1]]
        path[passed] = np.argmax(np.einsum("ij,sij->s", before, rotation[passed]))
    return path
