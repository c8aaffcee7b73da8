"""Frames that were misread, put right by the frames about them.

A network reads single images of plain bodies as a pose that looks alike, with a shadow for a face, or with a side
left out, and outlines fitted from there stay there. In a clip the frames beside it tell: where a frame is explained
much worse than they are, or not turned as they say, edges are fitted again from where they say that the body is. The
likeliest path is taken through all that is found (`path.likeliest_path`), by what it explains and by how steadily the
body turns: the twin of a small body explains a frame about as well as its pose does. What is put right says more of
the frames about it, in the next round. A frame that has none beside it is fitted from poses that its own may be taken
for (`ambiguous_poses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import side_by_side
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.geometry import Pose, matrix_from_quat, quat_from_matrix, slerp
from vid2phys.tracking.ambiguous_poses import Reading
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.contour import Contour
from vid2phys.tracking.detectors.network import Image
from vid2phys.tracking.viterbi import likeliest_path
from vid2phys.types import Array

_WORSE = 0.3  # than its neighbours, as a share of what they explain: a frame in doubt
_CLEARLY = 10.0  # nats, and by so much at least
_BESIDE = 2  # frames to both sides
_TURNED_RAD = 0.2  # from what they say
_NATS = 10.0  # that another pose has to explain more, unless frames about it say so; by so much it may explain less
_OVERCONFIDENT = 5.0  # by how much nats are too many, as in `symmetry_evidence`
_NOTHING_SHOWN = 1e6  # cost of a pose that cannot be drawn
_ROUNDS = 4
_SAME = np.array([0.05, 0.05, 0.05, 0.005, 0.005, 0.01])  # modes: a start so near to another leads where that does


@dataclass(frozen=True)
class Found:
    """A pose of one frame. explained: nats of all that the frame shows (`Reading.nats`). contour: None for the pose
    that it had."""

    pose: Pose
    explained: float
    contour: Contour | None


@dataclass
class Doubt:
    """A frame in doubt. found: its poses, the one that it had first. taken: which of them it has. tried: from where
    edges were fitted."""

    found: list[Found]
    taken: int = 0
    tried: list[Pose] = field(default_factory=list)


@dataclass
class Neighbours:
    """Poses of the T frames of a clip at times_s [T].

    reading: what was read in a frame, from its index and its image. known: [T], whether anything was. rotation,
    translation: [T] camera_from_body as outlines have it, and nats [T], how well that explains their edges
    (`Reading.edge_nats`); `settle` changes all three. also: poses [T] that the frames may have as well, NaN for none.
    """

    frames: Indexed
    times_s: Array
    reading: Callable[[int, Image], Reading]
    known: NDArray[np.bool_]
    pose: Pose
    nats: Array
    also: PoseEstimate | None = None

    def settle(self) -> dict[int, Contour]:
        """New poses of the frames that were put right."""
        doubts: dict[int, Doubt] = {}
        changed = set(np.flatnonzero(self.known).tolist())
        for _ in range(_ROUNDS):
            near = sorted({i for each in changed for i in (each, *self._beside(each))})
            asked = [i for i in near if self._is_in_doubt(i)]
            looked = side_by_side(
                lambda item: self._looked_about(*item), ((i, self.frames[i], doubts.get(i)) for i in asked)
            )
            doubts.update(zip(asked, list(looked), strict=True))
            changed = set(self._take_likeliest(doubts))
            if not changed:
                break
        taken = {i: doubt.found[doubt.taken].contour for i, doubt in doubts.items()}
        return {i: contour for i, contour in taken.items() if contour is not None}

    def _is_in_doubt(self, i: int) -> bool:
        """Whether a frame has no other beside it, is not turned as most of their motions say (as the only one of them,
        where they are none), or explains much less than they do."""
        expected = self._moving(i)
        if not len(expected):
            expected = self.pose[self._beside(i)]
        off = self.pose[i].step_to(expected)
        far = np.linalg.norm(off[:, :3], axis=-1) > _TURNED_RAD
        return bool(not len(far) or far.mean() > 0.5 or self._explains_little(i))

    def _looked_about(self, i: int, image: Image, doubt: Doubt | None) -> Doubt:
        """A frame in doubt with what is found from where its neighbours say that the body is, or without them from what
        its pose may be taken for."""
        expected = self._expected(i)
        read, own, alone = self.reading(i, image), expected[0], not self._beside(i)
        if doubt is None:
            doubt = Doubt([Found(own, read.nats(own), None)], tried=[own] if alone else [])
        starts = [start for k in range(len(expected)) if _is_new(start := expected[k], doubt.tried)]
        fits = chain((read.fitted_from(start) for start in starts), read.fitted_about(own) if alone else ())
        least = doubt.found[0].explained - _NATS
        for explained, contour in (fit for fit in fits if fit is not None and fit[0] > least):
            doubt.found.append(Found(contour.pose, explained, contour))
        return doubt

    def _take_likeliest(self, doubts: dict[int, Doubt]) -> Iterator[int]:
        """Moves frames to their poses of the likeliest path; which ones were moved."""
        if not doubts:
            return
        indices = np.flatnonzero(self.known)
        most = max(len(doubt.found) for doubt in doubts.values())
        rotation = np.repeat(self.pose.rotation[indices, None], most, axis=1)
        cost = np.full((len(indices), most), np.inf)
        cost[:, 0] = 0.0
        for row, doubt in ((row, doubts[i]) for row, i in enumerate(indices.tolist()) if i in doubts):
            count = len(doubt.found)
            rotation[row, :count] = [each.pose.rotation for each in doubt.found]
            cost[row, :count] = [min(-each.explained / _OVERCONFIDENT, _NOTHING_SHOWN) for each in doubt.found]
            cost[row, 0] -= _NATS / _OVERCONFIDENT
        path = likeliest_path(cost, rotation, self.times_s[indices])
        for i, k in zip(indices.tolist(), path.tolist(), strict=True):
            if i in doubts and doubts[i].taken != k < len(doubts[i].found):
                doubts[i].taken, pose = k, doubts[i].found[k].pose
                self.pose[i] = pose
                self.nats[i] = self.reading(i, self.frames[i]).edge_nats(pose)
                yield i

    def _explains_little(self, i: int) -> bool:
        """Whether a frame's pose explains clearly fewer of its edges than poses of its neighbours explain of theirs."""
        best = np.max(self.nats[max(0, i - _BESIDE) : i + _BESIDE + 1])
        return bool(self.nats[i] < best - max(_WORSE * abs(best), _CLEARLY))

    def _beside(self, i: int) -> list[int]:
        """Frames near a frame in which the body was read, without itself."""
        near = range(max(0, i - _BESIDE), min(len(self.known), i + _BESIDE + 1))
        return [k for k in near if k != i and self.known[k]]

    def _expected(self, i: int) -> Pose:
        """A frame's pose, and where the frames beside it say that the body is: between them, going on from two of
        them, or turned as one of them; and what else it may have: poses [N]."""
        moved = self._moving(i)
        before, after = self._on_both_sides(i)
        turned = [*before[-1:], *after[:1]]
        there = Pose(self.pose.rotation[turned], self.pose.translation[[i] * len(turned)])
        expected = [self.pose[[i]], moved, there]
        if self.also is not None and self.also.pose.is_finite[i]:
            expected.append(self.also.pose[[i]])
        return Pose.join(expected)

    def _moving(self, i: int) -> Pose:
        """Poses of a frame between those beside it, and going on from two of them: none, where there are not two."""
        before, after = self._on_both_sides(i)
        pairs = [(before[-1:], after[:1]), (before[-2:-1], before[-1:]), (after[1:2], after[:1])]
        ends = np.array([(*first, *second) for first, second in pairs if first and second], int).reshape(-1, 2)
        return self._along(ends[:, 0], ends[:, 1], i)

    def _on_both_sides(self, i: int) -> tuple[list[int], list[int]]:
        beside = self._beside(i)
        return [k for k in beside if k < i], [k for k in beside if k > i]

    def _along(self, first: NDArray[np.int64], second: NDArray[np.int64], i: int) -> Pose:
        """Where bodies are at frame i that move evenly from their poses in frames first [N] to those in second [N]."""
        times = self.times_s
        share = (times[i] - times[first]) / (times[second] - times[first])
        start, end = quat_from_matrix(self.pose.rotation[np.stack([first, second])])
        places = self.pose.translation
        place = places[first] + share[:, None] * (places[second] - places[first])
        return Pose(matrix_from_quat(slerp(start, end, share)), place)


def _is_new(start: Pose, tried: list[Pose]) -> bool:
    """Whether a start, a pose, would not lead where one does that was tried; then it is tried as well."""
    new = all(np.any(np.abs(start.step_to(other)) > _SAME) for other in tried)
    if new:
        tried.append(start)
    return new
