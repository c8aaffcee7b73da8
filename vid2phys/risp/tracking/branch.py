"""Which of its look-alike orientations a symmetric body has: continuity over the clip, then appearance.

The keypoints of a nearly symmetric body are read up to an element g of its symmetry group, chosen anew by the network
in every frame, and a flat body has a second pose that projects almost alike. A path of least cost through all
(pose hypothesis, group element) pairs (Viterbi, 1967) makes the motion continuous: a body turns little from frame to
frame, or goes on turning as it did. The front map, summed over the clip, says in which branch the whole path lies.

An exact symmetry has no branch to settle: a clip of a plain cube has 24 right answers, and the one is taken in which
the first frame is labelled as the network read it. What turns by more than half the group's smallest turn between
frames from the start (45 deg for a cube) cannot be told from what turns the other way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.shape.groups import composition
from vid2phys.risp.tracking.geometry import project_points
from vid2phys.risp.tracking.pose import Pose
from vid2phys.risp.tracking.view import View, bearings_to_view
from vid2phys.rotations import matrix_from_rotvec, quat_from_matrix, rotvec_from_quat
from vid2phys.types import Array, Observation

_READING_RAD = np.radians(6.0)  # spread of a frame's orientation
_TURN_RATE_RAD_S = np.radians(400.0)  # how fast bodies turn of which nothing is known
_TURN_CHANGE_RAD2_S3 = 6.0**2  # growth of the variance of a rate, save at impacts
_HIT_NATS = 4.0  # an impact, after which nothing is known of the rate
_MOST_PASSED = 2  # frames
_PASS_NATS = 6.0  # a frame
_SAME_NATS = 1e-6
_JUMP_NATS = 20.0  # cost of a discontinuity: no single frame's evidence buys one
_NOISE_SHARE = 0.02  # no element's probability in one frame is below this share, so that no frame decides alone
_BLOB_CELLS = 1.1  # width of the front map's blobs: that of its training targets, and a little for errors of place
_FLOOR = 0.1  # share of the map that no element explains
_MIXTURE_STEPS = 6


@dataclass(frozen=True)
class Branches:
    """The path through a clip's hypotheses. N frames that were read, G group elements.

    hypothesis: [N] index of the pose hypothesis. element: [N] group element g with body orientation
    R_read @ rotations[g]^T. log_likelihood: [G] nats of the clip with every orientation R of the path turned to
    R @ rotations[g]^T, calibrated; the identity comes first: the first is that of the path itself, and the largest.
    """

    hypothesis: NDArray[np.int64]
    element: NDArray[np.int64]
    log_likelihood: Array


def join(poses: Pose, times_s: Array, rotations: Array, support: Array) -> Branches:
    """The most probable path through a clip.

    poses: [N, H] hypotheses of the N frames that were read, at times_s [N]. rotations: [G, 3, 3], the identity first.
    support: [N, H, G] calibrated log-probability, by all that a frame shows, of the orientation R @ rotations[g]^T.
    """
    count = len(poses.cost)
    oriented = poses.rotation[:, :, None] @ np.swapaxes(rotations, -1, -2)
    unary = poses.cost[..., None] - support
    path = likeliest_path(unary.reshape(count, -1), oriented.reshape(count, -1, 3, 3), np.asarray(times_s, dtype=float))
    hypothesis, element = np.divmod(path, len(rotations))
    table = composition(rotations)
    frames = np.arange(count)
    totals = support[frames, hypothesis, table[:, element]].sum(axis=1)  # of the path turned by each element
    best = np.flatnonzero(totals > totals.max() - _SAME_NATS)
    as_read = best[table[best, element[0]] == 0]
    element = table[int(as_read[0] if len(as_read) else best[0]), element]
    return Branches(hypothesis, element, support[frames, hypothesis, table[:, element]].sum(axis=1))


def likeliest_path(unary: Array, rotation: Array, times_s: Array) -> NDArray[np.int64]:
    """Path of least total cost, unary [N, S] and orientations [N, S, 3, 3] -> [N].

    Each state carries the rate of turning of the best path to it, filtered (Kalman, 1960, with scalar variances), so
    that a turn going on is judged without searching all pairs of states. A path may pass by a few frames that were
    misread, for a price: from a wrong orientation all labels of the next frame are about as far. Such frames get the
    label nearest to the one before them.
    """
    count, states = unary.shape
    total = np.full(unary.shape, np.inf)
    rate, variance = np.zeros((count, states, 3)), np.full(unary.shape, _TURN_RATE_RAD_S**2)
    origin = np.zeros((count, states, 2), dtype=np.int64)  # frame and state that a state was reached from
    total[0] = unary[0]
    for t in range(1, count):
        passed = 0.0
        for last in range(t - 1, max(-1, t - 2 - _MOST_PASSED), -1):
            step = float(times_s[t] - times_s[last])
            spread = variance[last] + _TURN_CHANGE_RAD2_S3 * step
            ahead = matrix_from_rotvec(rate[last] * step) @ rotation[last]
            cost = _turn_cost(ahead, rotation[t], spread * step**2)
            hit = _turn_cost(rotation[last], rotation[t], np.full(states, (_TURN_RATE_RAD_S * step) ** 2)) + _HIT_NATS
            through = total[last][:, None] + np.minimum(np.minimum(cost, hit), _JUMP_NATS) + passed
            best = np.argmin(through, axis=0)
            reached = through[best, np.arange(states)] + unary[t]
            better = reached < total[t]
            came, to = best[better], np.flatnonzero(better)
            total[t, to], origin[t, to, 0], origin[t, to, 1] = reached[better], last, came
            steady = cost[came, to] <= hit[came, to]
            before = np.where(steady[:, None], rate[last][came], 0.0)
            known = np.where(steady, spread[came], _TURN_RATE_RAD_S**2)
            turn = rotation[t, to] @ np.swapaxes(rotation[last, came], -1, -2)
            seen = rotvec_from_quat(quat_from_matrix(turn)) / step
            gain = known / (known + 2.0 * _READING_RAD**2 / step**2)
            rate[t, to], variance[t, to] = before + gain[:, None] * (seen - before), (1.0 - gain) * known
            passed += _PASS_NATS + float(unary[last].min())
    return _traced(total[-1], origin, rotation)


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


def _turn_cost(before: Array, after: Array, spread: Array) -> Array:
    """Cost [S, S] of reading orientations `after` where `before` [S, 3, 3] were expected, to `spread` [S] rad^2."""
    states = len(before)
    trace = before.reshape(states, 9) @ after.reshape(states, 9).T
    angle = np.arccos(np.clip(0.5 * (trace - 1.0), -1.0, 1.0))
    widened = 1.0 + spread[:, None] / (2.0 * _READING_RAD**2)
    return np.asarray(0.5 * angle**2 / (2.0 * _READING_RAD**2 * widened) + 1.5 * np.log(widened))


def front_evidence(
    front_logprob: Array,
    views: list[View],
    poses: Pose,
    rotations: Array,
    front_body: Array | None,
    center: Array | None = None,
) -> Array:
    """Log-probability, by the front map, that the body is as each hypothesis and group element say, [N, H, G] nats.

    front_logprob: [N, h, w] over the cells of each view. poses: [N, H]. front_body: [3] m, the point of the body that
    the map was trained to find, None if there is no such: then all are as probable. center: [3] m, of the group's
    turns, the body's origin by default. The map is explained as a mixture of blobs at the places of the point under the
    G elements and of an even floor (expectation maximisation over the weights); a blob's weight is its element's
    probability, however sharp the blob is.
    """
    cells = front_logprob.shape[-1]
    if front_body is None:
        return np.zeros((*poses.cost.shape, len(rotations)))
    center = np.zeros(3) if center is None else center
    # rotations[g]^T @ front: where it is on the body as read
    points = np.einsum("gji,j->gi", rotations, front_body - center) + center
    bearings = project_points(poses.rotation, poses.translation, points)
    evidence = np.zeros(bearings.shape[:-1])
    for n, view in enumerate(views):
        place = (bearings_to_view(view, bearings[n]) + 0.5) * (cells / view.size) - 0.5
        evidence[n] = np.log(_mixture_weights(np.exp(front_logprob[n]), place))
    return evidence


def _mixture_weights(probability: Array, place: Array) -> Array:
    """Weights [H, G] of blobs at place [H, G, 2] cells as (x, y) in a map [h, w] that sums to 1."""
    grid = [np.arange(extent, dtype=float) for extent in probability.shape]
    place = np.nan_to_num(place, nan=-99.0)
    along_x = np.exp(-0.5 * ((grid[1] - place[..., :1]) / _BLOB_CELLS) ** 2)
    along_y = np.exp(-0.5 * ((grid[0] - place[..., 1:]) / _BLOB_CELLS) ** 2)
    blobs = along_y[..., :, None] * along_x[..., None, :] / (2.0 * np.pi * _BLOB_CELLS**2)
    count = place.shape[1]
    weights = np.full(place.shape[:2], 1.0 / count)
    for _ in range(_MIXTURE_STEPS):
        parts = weights[..., None, None] * blobs
        total = parts.sum(axis=1, keepdims=True) + _FLOOR / probability.size
        weights = (parts * (probability / total)).sum(axis=(-1, -2)) + 1e-9
        weights /= weights.sum(axis=1, keepdims=True)
    return (1.0 - _NOISE_SHARE) * weights + _NOISE_SHARE / count


def relabelled(observation: Observation, order: NDArray[np.int64]) -> Observation:
    """The observation in another branch: what was point k is now point order[k] = permutation[g, k].

    It belongs to the orientations R @ rotations[g]^T.
    """
    return named(observation, np.broadcast_to(np.argsort(order), observation.visible.shape))


def named(observation: Observation, names: NDArray[np.int64]) -> Observation:
    """The observation with point names[t, k] of frame t as its point k. names: [T, K]."""

    def ordered(values: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(values, names.reshape(*names.shape, *(1,) * (values.ndim - 2)), axis=1)

    changed = {n: ordered(getattr(observation, n)) for n in ("bearings", "covariance", "shared_basis", "visible")}
    return replace(observation, **changed)
