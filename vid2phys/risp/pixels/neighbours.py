"""Frames that were misread, put right by the frames about them.

A network reads single pictures of plain bodies as a pose that looks alike, with a shadow for a face, or with a side
left out, and outlines fitted from there stay there. In a clip the frames beside it tell: where a frame is explained
much worse than they are, or not turned as they say, edges are fitted again from where they say that the body is, and
the pose that explains most is taken. What is put right helps the next frame, forwards and back. A frame that has none
beside it is fitted from poses that its own may be taken for (`twins`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.networks.threads import side_by_side
from vid2phys.risp.pixels.align_errors import difference
from vid2phys.risp.pixels.contour import Contour
from vid2phys.risp.pixels.twins import Reading
from vid2phys.risp.tracking.motion import Indexed
from vid2phys.risp.tracking.sight import Image
from vid2phys.rotations import matrix_from_quat, quat_from_matrix, slerp
from vid2phys.types import Array

_WORSE = 0.3  # than its neighbours, as a share of what they explain: a frame in doubt
_CLEARLY = 10.0  # nats, and by so much at least
_BESIDE = 2  # frames to both sides
_TURNED_RAD = 0.2  # from what they say
_NATS = 10.0  # that another pose has to explain more
_SAME = np.array([0.05, 0.05, 0.05, 0.005, 0.005, 0.01])  # modes: a start so near to another leads where that does


@dataclass
class Neighbours:
    """Poses of the T frames of a clip at times_s [T].

    reading: what was read in a frame, from its index and its picture. known: [T], whether anything was. rotation,
    translation: [T] camera_from_body as outlines have it, and nats [T], how well that explains their edges
    (`Reading.edge_nats`); `settle` changes all three.
    """

    frames: Indexed
    times_s: Array
    reading: Callable[[int, Image], Reading]
    known: NDArray[np.bool_]
    rotation: Array
    translation: Array
    nats: Array

    def settle(self) -> dict[int, Contour]:
        """New poses of the frames that were put right."""
        found: dict[int, Contour] = {}
        indices = np.flatnonzero(self.known).tolist()
        unseen = set(indices)  # frames whose neighbours have changed since they were looked at
        for order in (indices, indices[::-1]):
            for i in (i for i in order if i in unseen):
                unseen.remove(i)
                better = self._better(i)
                if better is not None:
                    self.nats[i], found[i] = better
                    self.rotation[i], self.translation[i] = found[i].rotation, found[i].translation
                    unseen.update(self._beside(i))
        return found

    def _better(self, i: int) -> tuple[float, Contour] | None:
        """What explains a frame in doubt clearly better than its pose does, and its nats of edges: from where its
        neighbours say that the body is; without neighbours from what the pose may be taken for."""
        rotation, translation = self._expected(i)
        off = difference(rotation[:, None], translation[:, None], rotation, translation)  # the first is the pose itself
        far = np.linalg.norm(off[0, 1:, :3], axis=-1) > _TURNED_RAD
        if far.size and not far.any() and not self._explains_little(i):
            return None
        new: NDArray[np.bool_] = np.any(np.abs(off) > _SAME, axis=-1)
        starts = [k for k in range(1, len(rotation)) if np.all(new[k, :k])]
        read = self.reading(i, self.frames[i])
        least = read.nats(rotation[0], translation[0]) + _NATS
        if far.size:
            fits = side_by_side(lambda k: read.fitted_from(rotation[k], translation[k]), starts)
        else:
            fits = read.fitted_about(rotation[0], translation[0])
        better = [fit for fit in fits if fit is not None and fit[0] > least]
        if not better:
            return None
        best = max(better, key=lambda fit: fit[0])[1]
        return read.edge_nats(best.rotation, best.translation), best

    def _explains_little(self, i: int) -> bool:
        """Whether a frame's pose explains clearly fewer of its edges than poses of its neighbours explain of theirs."""
        best = np.max(self.nats[max(0, i - _BESIDE) : i + _BESIDE + 1])
        return bool(self.nats[i] < best - max(_WORSE * abs(best), _CLEARLY))

    def _beside(self, i: int) -> list[int]:
        """Frames near a frame in which the body was read, without itself."""
        near = range(max(0, i - _BESIDE), min(len(self.known), i + _BESIDE + 1))
        return [k for k in near if k != i and self.known[k]]

    def _expected(self, i: int) -> tuple[Array, Array]:
        """A frame's pose, and where the frames beside it say that the body is: between them, going on from two of
        them, or turned as one of them. Rotations [N, 3, 3], translations [N, 3]."""
        beside = self._beside(i)
        before, after = [k for k in beside if k < i], [k for k in beside if k > i]
        pairs = [(before[-1:], after[:1]), (before[-2:-1], before[-1:]), (after[1:2], after[:1])]
        ends = np.array([(*first, *second) for first, second in pairs if first and second], int).reshape(-1, 2)
        moved, place = self._along(ends[:, 0], ends[:, 1], i)
        turned = [*before[-1:], *after[:1]]
        rotation = np.concatenate([self.rotation[[i]], moved, self.rotation[turned]])
        return rotation, np.concatenate([self.translation[[i]], place, self.translation[[i] * len(turned)]])

    def _along(self, first: NDArray[np.int64], second: NDArray[np.int64], i: int) -> tuple[Array, Array]:
        """Where bodies are at frame i that move evenly from their poses in frames first [N] to those in second [N]."""
        times = self.times_s
        share = (times[i] - times[first]) / (times[second] - times[first])
        start, end = quat_from_matrix(self.rotation[np.stack([first, second])])
        place = self.translation[first] + share[:, None] * (self.translation[second] - self.translation[first])
        return matrix_from_quat(slerp(start, end, share)), place
