"""Temporal outliers: frames that contradict the adjacent frames, corrected by them.

In single images of plain bodies a network may detect a pose that looks alike, take a shadow for a face, or leave out a
side, and contours that are fitted from there stay wrong. The adjacent frames help. Where a frame is explained much
worse than they are, or is not rotated as they predict, edges are fitted again from the predicted poses. The Viterbi
path (`viterbi`) goes through all poses that were found, by their evidence and by how steadily the body rotates: the
depth reversal of a small body explains a frame about as well as its pose does. Corrected frames predict the others in
the next round. A frame without adjacent ones is fitted from its ambiguous poses (`ambiguous_poses`).

Limits: a run of wrong frames that agree with each other stays.
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
from vid2phys.tracking.ambiguous_poses import PoseScorer
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.contour import Contour
from vid2phys.tracking.detectors.network import Image
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.tracking.viterbi import viterbi_path
from vid2phys.types import Array

_NOTHING_SHOWN = 1e6  # cost of a pose that cannot be drawn, nats


@dataclass(frozen=True, kw_only=True)
class OutlierConfig:
    """Settings of `TemporalOutliers`."""

    worse_share: float = 0.3
    """Loss of evidence against the adjacent frames with which a frame is in doubt, as a share of theirs."""
    worse_nats: float = 10.0
    """Least such loss, nats."""
    beside: int = 2
    """Number of adjacent frames on each side."""
    rotated_rad: float = 0.2
    """Rotation from the predicted pose with which a frame is in doubt, rad."""
    better_nats: float = 10.0
    """Evidence that another pose needs in addition, without support by adjacent frames, nats. A pose that explains
    less by so much is not a candidate."""
    temperature: float = TEMPERATURES.temporal
    """Factor by which a frame states too much evidence."""
    rounds: int = 4
    """Largest number of rounds."""
    same: tuple[float, ...] = (0.05, 0.05, 0.05, 0.005, 0.005, 0.01)
    """Largest distance [6] of starts that lead to the same fit, in local coordinates of the pose."""


DEFAULTS = OutlierConfig()


@dataclass(frozen=True)
class Candidate:
    """A candidate pose of one frame.

    Attributes:
        pose: camera_from_body.
        explained: evidence of the frame (`PoseScorer.nats`).
        contour: the fit; None for the pose before.
    """

    pose: Pose
    explained: float
    contour: Contour | None


@dataclass
class Doubt:
    """A frame in doubt.

    Attributes:
        found: its candidates; the first one is the pose before.
        taken: index of the one in use.
        tried: starts from which edges were fitted.
    """

    found: list[Candidate]
    taken: int = 0
    tried: list[Pose] = field(default_factory=list)


@dataclass
class TemporalOutliers:
    """Find and correct the temporal outliers of a clip of T frames. `correct` changes `pose` and `nats`.

    Attributes:
        frames: images by index.
        times_s: [T], s.
        scorer: gives the scorer of a frame, from its index and its image.
        known: [T], whether a body was detected.
        pose: [T] camera_from_body, fitted to contours.
        nats: [T] evidence of their edges (`PoseScorer.edge_nats`).
        also: [T] further poses that the frames may have, NaN for none.
        config: settings.
    """

    frames: Indexed
    times_s: Array
    scorer: Callable[[int, Image], PoseScorer]
    known: NDArray[np.bool_]
    pose: Pose
    nats: Array
    also: PoseEstimate | None = None
    config: OutlierConfig = DEFAULTS

    def correct(self) -> dict[int, Contour]:
        """Correct the outliers, and return their new poses by frame."""
        doubts: dict[int, Doubt] = {}
        changed = set(np.flatnonzero(self.known).tolist())
        for _ in range(self.config.rounds):
            near = sorted({i for each in changed for i in (each, *self._beside(each))})
            doubted = [i for i in near if self._is_in_doubt(i)]
            extended = side_by_side(
                lambda item: self._with_candidates(*item), ((i, self.frames[i], doubts.get(i)) for i in doubted)
            )
            doubts.update(zip(doubted, list(extended), strict=True))
            changed = set(self._take_best(doubts))
            if not changed:
                break
        taken = {i: doubt.found[doubt.taken].contour for i, doubt in doubts.items()}
        return {i: contour for i, contour in taken.items() if contour is not None}

    def _is_in_doubt(self, i: int) -> bool:
        """Return whether a frame is in doubt.

        It is without adjacent frames, where most of their motions predict another rotation, or with little evidence.
        Without two adjacent frames the pose of the single one is the prediction.
        """
        expected = self._moving(i)
        if not len(expected):
            expected = self.pose[self._beside(i)]
        off = self.pose[i].step_to(expected)
        far = np.linalg.norm(off[:, :3], axis=-1) > self.config.rotated_rad
        return bool(not len(far) or far.mean() > 0.5 or self._explains_little(i))

    def _with_candidates(self, i: int, image: Image, doubt: Doubt | None) -> Doubt:
        """Return a frame in doubt with fits from predicted poses, or without adjacent frames from ambiguous poses."""
        expected = self._expected(i)
        scorer, own, single = self.scorer(i, image), expected[0], not self._beside(i)
        if doubt is None:
            doubt = Doubt([Candidate(own, scorer.nats(own), None)], tried=[own] if single else [])
        same = np.array(self.config.same)
        starts = [start for k in range(len(expected)) if _is_new(start := expected[k], doubt.tried, same)]
        fits = chain((scorer.fitted_from(start) for start in starts), scorer.fitted_about(own) if single else ())
        least = doubt.found[0].explained - self.config.better_nats
        for explained, contour in (fit for fit in fits if fit is not None and fit[0] > least):
            doubt.found.append(Candidate(contour.pose, explained, contour))
        return doubt

    def _take_best(self, doubts: dict[int, Doubt]) -> Iterator[int]:
        """Move frames to their poses on the Viterbi path, and yield the moved ones."""
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
            cost[row, :count] = [min(-each.explained / self.config.temperature, _NOTHING_SHOWN) for each in doubt.found]
            cost[row, 0] -= self.config.better_nats / self.config.temperature
        path = viterbi_path(cost, rotation, self.times_s[indices])
        for i, k in zip(indices.tolist(), path.tolist(), strict=True):
            if i in doubts and doubts[i].taken != k < len(doubts[i].found):
                doubts[i].taken, pose = k, doubts[i].found[k].pose
                self.pose[i] = pose
                self.nats[i] = self.scorer(i, self.frames[i]).edge_nats(pose)
                yield i

    def _explains_little(self, i: int) -> bool:
        """Return whether the edges of a frame have clearly less evidence than those of the adjacent frames."""
        best = np.max(self.nats[max(0, i - self.config.beside) : i + self.config.beside + 1])
        loss = max(self.config.worse_share * abs(best), self.config.worse_nats)
        return bool(self.nats[i] < best - loss)

    def _beside(self, i: int) -> list[int]:
        """Return the adjacent frames in which the body was detected."""
        beside = self.config.beside
        near = range(max(0, i - beside), min(len(self.known), i + beside + 1))
        return [k for k in near if k != i and self.known[k]]

    def _expected(self, i: int) -> Pose:
        """Return a frame's pose [0], the poses that the adjacent frames predict, and the further one (`also`): [N].

        A prediction lies between two frames, goes on from two of them, or takes the rotation of one of them.
        """
        moved = self._moving(i)
        before, after = self._on_both_sides(i)
        nearest = [*before[-1:], *after[:1]]
        there = Pose(self.pose.rotation[nearest], self.pose.translation[[i] * len(nearest)])
        expected = [self.pose[[i]], moved, there]
        if self.also is not None and self.also.pose.is_finite[i]:
            expected.append(self.also.pose[[i]])
        return Pose.join(expected)

    def _moving(self, i: int) -> Pose:
        """Return poses between adjacent frames, and beyond two of them; none where there are not two."""
        before, after = self._on_both_sides(i)
        pairs = [(before[-1:], after[:1]), (before[-2:-1], before[-1:]), (after[1:2], after[:1])]
        ends = np.array([(*first, *second) for first, second in pairs if first and second], int).reshape(-1, 2)
        return self._along(ends[:, 0], ends[:, 1], i)

    def _on_both_sides(self, i: int) -> tuple[list[int], list[int]]:
        beside = self._beside(i)
        return [k for k in beside if k < i], [k for k in beside if k > i]

    def _along(self, first: NDArray[np.int64], second: NDArray[np.int64], i: int) -> Pose:
        """Return the poses [N] at frame i of steady motions from those of frames first [N] to those of second [N]."""
        times = self.times_s
        share = (times[i] - times[first]) / (times[second] - times[first])
        start, end = quat_from_matrix(self.pose.rotation[np.stack([first, second])])
        places = self.pose.translation
        place = places[first] + share[:, None] * (places[second] - places[first])
        return Pose(matrix_from_quat(slerp(start, end, share)), place)


def _is_new(start: Pose, tried: list[Pose], same: Array) -> bool:
    """Return whether a start differs from those that were tried by more than `same` [6], and add it to them."""
    new = all(np.any(np.abs(start.step_to(other)) > same) for other in tried)
    if new:
        tried.append(start)
    return new
