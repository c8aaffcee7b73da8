"""Frames that were misread, put right by the frames about them.

A network reads single pictures of plain bodies as a pose that looks alike, with a shadow for a face, or with a side
left out, and outlines fitted from there stay there. In a clip the frames beside it tell: where a frame's edges are
explained much worse than theirs, edges are fitted again from where they say that the body is, and the pose that
explains most is taken. What is put right helps the next frame, forwards and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vid2phys.risp.networks.threads import side_by_side
from vid2phys.risp.pixels.align_errors import difference
from vid2phys.risp.pixels.contour import Contour, fit_contour
from vid2phys.risp.pixels.creases import Solid
from vid2phys.risp.pixels.evidence import edge_evidence
from vid2phys.risp.pixels.twins import ROUGH_STD, unlikely
from vid2phys.risp.tracking.motion import Indexed
from vid2phys.risp.tracking.pose import Pose
from vid2phys.risp.tracking.sight import Image
from vid2phys.rotations import matrix_from_quat, quat_from_matrix, slerp
from vid2phys.types import Array, Camera

_WORSE = 0.3  # than its neighbours, as a share of what they explain: a frame in doubt
_CLEARLY = 10.0  # nats, and by so much at least
_BESIDE = 2  # frames to both sides
_TURNED_RAD = 0.2  # from what they say
_NATS = 3.0  # that another pose has to explain more
_SAME = np.array([0.05, 0.05, 0.05, 0.005, 0.005, 0.01])  # modes: a start so near to another leads where that does


@dataclass
class Neighbours:
    """Poses of the T frames of a clip at times_s [T].

    read: [T] what the network says, with prior [T, 6, 6], information about it in its modes. rotation, translation:
    [T] camera_from_body as outlines have it, which `settle` changes. known: the frames that were read, in their order.
    """

    frames: Indexed
    camera: Camera
    solid: Solid
    times_s: Array
    read: Pose
    prior: Array
    rotation: Array
    translation: Array
    known: Sequence[int]

    def settle(self) -> dict[int, Contour]:
        """New poses of the frames that were put right."""
        found: dict[int, Contour] = {}
        nats = np.full(len(self.times_s), -np.inf)
        shown = ((i, self.frames[i]) for i in self.known)
        nats[list(self.known)] = list(side_by_side(lambda frame: self._nats(*frame, *self._pose(frame[0])), shown))
        unseen = set(self.known)  # frames whose neighbours have changed since they were looked at
        for order in (self.known, self.known[::-1]):
            for i in (i for i in order if i in unseen):
                unseen.remove(i)
                best = np.max(nats[max(0, i - _BESIDE) : i + _BESIDE + 1])
                starts = list(self._starts(i))
                if nats[i] >= best - max(_WORSE * abs(best), _CLEARLY) and not self._stands_out(i, starts):
                    continue
                for better, fit in self._fits(i, starts):
                    if better > nats[i] + _NATS:
                        nats[i], found[i] = better, fit
                        self.rotation[i], self.translation[i] = fit.rotation, fit.translation
                        unseen |= {k for k in self.known if 0 < abs(k - i) <= _BESIDE}
        return found

    def _fits(self, i: int, starts: list[tuple[Array, Array]]) -> Iterator[tuple[float, Contour]]:
        """Edges fitted from several poses, and how well they are explained."""
        picture, rough = self.frames[i], np.diag(ROUGH_STD**-2.0)

        def fit(start: tuple[Array, Array]) -> tuple[float, Contour] | None:
            found = fit_contour(picture, self.camera, self.solid, *start, prior=rough)
            return None if found is None else (self._nats(i, picture, found.rotation, found.translation), found)

        yield from (found for found in side_by_side(fit, starts) if found is not None)

    def _stands_out(self, i: int, starts: list[tuple[Array, Array]]) -> bool:
        """Whether a frame's orientation is far from all that its neighbours say."""
        off = [difference(*self._pose(i), *start)[:3] for start in starts]
        return bool(off) and min(float(np.linalg.norm(each)) for each in off) > _TURNED_RAD

    def _pose(self, i: int) -> tuple[Array, Array]:
        return self.rotation[i], self.translation[i]

    def _nats(self, i: int, picture: Image, rotation: Array, translation: Array) -> float:
        off = difference(self.read.rotation[i], self.read.translation[i], rotation, translation)
        posed = self.solid.mesh.vertices @ rotation.T + translation
        return edge_evidence(picture, self.camera, self.solid, posed) - unlikely(off, self.prior[i])

    def _starts(self, i: int) -> Iterator[tuple[Array, Array]]:
        """Where the frames beside a frame say that the body is: between them, going on from
        two of them, or turned as one of them."""
        before = [k for k in self.known if i - _BESIDE <= k < i]
        after = [k for k in self.known if i < k <= i + _BESIDE]
        pairs = [(before[-1:], after[:1]), (before[-2:-1], before[-1:]), (after[1:2], after[:1])]
        starts = [self._along(first[0], second[0], i) for first, second in pairs if first and second]
        starts += [(self.rotation[k], self.translation[i]) for k in (*before[-1:], *after[:1])]
        tried = [self._pose(i)]
        for start in starts:
            if all((np.abs(difference(*other, *start)) > _SAME).any() for other in tried):
                tried.append(start)
                yield start

    def _along(self, first: int, second: int, i: int) -> tuple[Array, Array]:
        """Where a body is at frame i that moves evenly from its pose in one frame to that in another."""
        times = self.times_s
        share = (times[i] - times[first]) / (times[second] - times[first])
        start, end = (quat_from_matrix(self.rotation[k]) for k in (first, second))
        place = self.translation[first] + share * (self.translation[second] - self.translation[first])
        return matrix_from_quat(slerp(start, end, np.asarray(share))), place
