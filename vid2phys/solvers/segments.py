"""Long clips in pieces: the memory of a fit is that of one piece, however long the clip.

Method: pieces of a clip share all parameters, as several clips do (`multi_clip`); each has its own states and
hyperparameters. Pieces overlap, because the ends of a chain are known less well than its middle. Each knot is taken
from the piece in which it lies deeper.

Limits: memory falls, time does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.geometry import of_frames
from vid2phys.solvers.problem import Knots
from vid2phys.solvers.smoothing_model import Layout, Unknowns
from vid2phys.types import Array

FRAMES = 1500  # of a piece at most, its overlaps left out
OVERLAP = 60  # frames on either side of a cut: 2 s of a usual clip, some ten correlation times of its inputs


@dataclass(frozen=True)
class Piece:
    """Part of a clip: its layout, its knots of the whole clip, and the part of it that counts for the whole.

    knots: of the whole clip. own_knots, own_frames: of the piece. share: of its frames, those of overlaps being in two.
    """

    layout: Layout
    knots: slice
    own_knots: slice
    own_frames: slice
    share: float


def cut(whole: Layout, frames: int = FRAMES, overlap: int = OVERLAP) -> list[Piece]:
    """Return pieces of a clip, of equal length; one for a clip of up to twice as many frames. Priors are of the
    first."""
    problem, grid = whole.problem, whole.knots
    total = len(problem.observation.times_s)
    count = 1 if total <= 2 * frames else -(-total // frames)
    bounds = np.linspace(0, total, count + 1).round().astype(int)
    at = np.append(grid.frame_knot, len(grid.times_s))  # first knot of each frame, and the end
    pieces = []
    for begin, end in itertools.pairwise(bounds):
        first, last = max(0, begin - overlap), min(total, end + overlap)
        start, stop = int(at[first]), int(grid.frame_knot[last - 1]) + 1
        part = replace(
            problem,
            observation=problem.observation[first:last],
            camera_to_world=of_frames(problem.camera_to_world, slice(first, last)),
            priors=problem.priors if begin == 0 else {},
        )
        knots = Knots(grid.times_s[start:stop], grid.step_s[start : stop - 1], grid.frame_knot[first:last] - start)
        layout = replace(whole, problem=part, knots=knots, relevance=whole.relevance[start:stop])
        own = slice(int(at[begin]) - start, int(at[end]) - start)
        share = (end - begin) / (last - first)
        pieces.append(Piece(layout, slice(start, stop), own, slice(begin - first, end - first), share))
    return pieces


def whole_point(pieces: Sequence[Piece], points: Sequence[Unknowns]) -> Unknowns:
    """Return the unknowns of the whole clip."""

    def joined(name: str) -> Array:
        return at_knots(pieces, [getattr(point, name) for point in points])

    return Unknowns(joined("states"), joined("inputs"), joined("shared"), points[0].theta)


def at_knots(pieces: Sequence[Piece], parts: Sequence[Array]) -> Array:
    """Return values [T, ...] at the knots of the whole clip, from those of each piece."""
    return np.concatenate([part[piece.own_knots] for piece, part in zip(pieces, parts, strict=True)])


def at_frames(pieces: Sequence[Piece], parts: Sequence[Array]) -> Array:
    """Return values [F, ...] at the frames of the whole clip, from those of each piece."""
    return np.concatenate([part[piece.own_frames] for piece, part in zip(pieces, parts, strict=True)])
