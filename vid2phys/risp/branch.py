"""Which of its look-alike orientations a symmetric body has: continuity over the clip, then appearance.

The keypoints of a nearly symmetric body are read up to an element g of its symmetry group, chosen anew by the network
in every frame, and a flat body has a second pose that projects almost alike. A path of least cost through all
(pose hypothesis, group element) pairs (Viterbi, 1967) makes the motion continuous; the front map, summed over the clip,
says in which branch the whole path lies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.geometry import project_points
from vid2phys.risp.groups import composition
from vid2phys.risp.pose import Pose
from vid2phys.risp.view import View, bearings_to_view
from vid2phys.types import Array, Observation

_READING_RAD = np.radians(6.0)  # spread of a frame's orientation
_TURN_RATE_RAD_S = np.radians(200.0)  # how fast bodies turn between frames
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


def join(
    poses: Pose, times_s: Array, rotations: Array, evidence: Array, tilt_nats: Array, *, evidence_divisor: float
) -> Branches:
    """The most probable path through a clip.

    poses: [N, H] hypotheses of the N frames that were read, at times_s [N]. rotations: [G, 3, 3], the identity first.
    evidence: [N, H, G] log-probability of the front map (`front_evidence`). tilt_nats: [N, H, G] cost of the
    orientation under what the system is trained for.
    """
    count = len(poses.cost)
    oriented = poses.rotation[:, :, None] @ np.swapaxes(rotations, -1, -2)
    unary = poses.cost[..., None] - evidence / evidence_divisor + tilt_nats / evidence_divisor
    path = _viterbi(unary.reshape(count, -1), oriented.reshape(count, -1, 3, 3), np.asarray(times_s, dtype=float))
    hypothesis, element = np.divmod(path, len(rotations))
    table = composition(rotations)
    frames = np.arange(count)
    support = (evidence - tilt_nats) / evidence_divisor
    totals = support[frames, hypothesis, table[:, element]].sum(axis=1)  # of the path turned by each element
    element = table[int(np.argmax(totals)), element]
    return Branches(hypothesis, element, support[frames, hypothesis, table[:, element]].sum(axis=1))


def _viterbi(unary: Array, rotation: Array, times_s: Array) -> NDArray[np.int64]:
    """Path of least total cost, unary [N, S] and orientations [N, S, 3, 3] -> [N]."""
    count, states = unary.shape
    total = unary[0].copy()
    back = np.zeros((count, states), dtype=np.int64)
    for t in range(1, count):
        relative = rotation[t - 1].reshape(states, 9) @ rotation[t].reshape(states, 9).T
        angle = np.arccos(np.clip(0.5 * (relative - 1.0), -1.0, 1.0))
        spread = 2.0 * _READING_RAD**2 + (_TURN_RATE_RAD_S * (times_s[t] - times_s[t - 1])) ** 2
        through = total[:, None] + np.minimum(0.5 * angle**2 / spread, _JUMP_NATS)
        back[t] = np.argmin(through, axis=0)
        total = through[back[t], np.arange(states)] + unary[t]
    path = np.zeros(count, dtype=np.int64)
    path[-1] = np.argmin(total)
    for t in range(count - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path


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
    inverse = np.argsort(order)
    changed = {n: getattr(observation, n)[:, inverse] for n in ("bearings", "covariance", "shared_basis", "visible")}
    return replace(observation, **changed)
