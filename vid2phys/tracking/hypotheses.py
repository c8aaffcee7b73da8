"""Which of its look-alike orientations a symmetric body has: continuity over the clip, then appearance.

The keypoints of a nearly symmetric body are read up to an element g of its symmetry group, chosen anew by the network
in every frame, and a flat body has a second pose that projects almost alike. The likeliest path through all (pose
hypothesis, group element) pairs (`path`) makes the motion continuous. The front map, summed over the clip, says in
which branch the whole path lies.

An exact symmetry has no branch to settle: a clip of a plain cube has 24 right answers, and the one is taken in which
the first frame is labelled as the network read it. What turns by more than half the group's smallest turn between
frames from the start (45 deg for a cube) cannot be told from what turns the other way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import View, bearings_to_view
from vid2phys.risp.shape.rotation_groups import composition
from vid2phys.tracking.viterbi import likeliest_path
from vid2phys.types import Array, Observation

_SAME_NATS = 1e-6
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


def join(poses: PoseEstimate, times_s: Array, rotations: Array, support: Array) -> Branches:
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


def front_evidence(
    front_logprob: Array,
    views: list[View],
    poses: PoseEstimate,
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
    bearings = project_points(poses.pose, points)
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
