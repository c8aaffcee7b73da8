"""Pieces of a long clip: which frames and knots each has, and the whole that they make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.test_smoothing_parts import RECORDED, problem_of
from vid2phys.solvers import segments
from vid2phys.solvers.smoothing_model import Layout, Unknowns
from vid2phys.types import Array


@pytest.fixture(scope="module")
def whole() -> tuple[Layout, Array]:
    """A clip with knots between its frames, relevance of its own about each, and states at the knots."""
    problem, _ = problem_of(RECORDED)
    problem = replace(problem, max_step_s=0.02, priors={"mass": (0.0, 1.0)})
    layout = Layout.of(problem)
    knots = len(layout.knots.times_s)
    return replace(layout, relevance=np.random.default_rng(0).random((knots, len(layout.channels)))), np.arange(knots)


def test_a_clip_of_twice_a_piece_is_one(whole: tuple[Layout, Array]) -> None:
    layout, _ = whole
    frames = len(layout.problem.observation.times_s)
    half = -(-frames // 2)
    (piece,) = segments.cut(layout, half, 2)
    assert piece.share == 1.0
    assert piece.knots == slice(0, len(layout.knots.times_s))
    assert len(segments.cut(layout, half - 1, 2)) == 3


@pytest.mark.parametrize("overlap", [1, 2])
def test_pieces_overlap_and_each_frame_counts_once(whole: tuple[Layout, Array], overlap: int) -> None:
    layout, knots = whole
    seen, count = layout.problem.observation, len(layout.problem.observation.times_s)
    pieces = segments.cut(layout, 4, overlap)
    assert len(pieces) == -(-count // 4)
    times = [piece.layout.problem.observation.times_s for piece in pieces]
    np.testing.assert_array_equal(segments.at_frames(pieces, times), seen.times_s)
    at_knots = [knots[piece.knots] for piece in pieces]
    np.testing.assert_array_equal(segments.at_knots(pieces, at_knots), knots)
    sizes = [piece.own_frames.stop - piece.own_frames.start for piece in pieces]
    assert max(sizes) - min(sizes) <= 1, "of equal length"
    for k, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
        assert piece.own_frames.start == (overlap if k else 0)
        assert len(times[k]) - piece.own_frames.stop == (overlap if k + 1 < len(pieces) else 0)
        assert piece.share == size / len(times[k])
        own = piece.layout.knots
        np.testing.assert_array_equal(own.times_s[own.frame_knot], times[k])
        np.testing.assert_array_equal(own.times_s, layout.knots.times_s[piece.knots])
        np.testing.assert_allclose(own.step_s, np.diff(own.times_s))
        np.testing.assert_array_equal(piece.layout.relevance, layout.relevance[piece.knots])
        assert piece.layout.problem.priors == (layout.problem.priors if k == 0 else {})


def test_the_whole_has_the_unknowns_of_the_pieces(whole: tuple[Layout, Array]) -> None:
    layout, knots = whole
    pieces = segments.cut(layout, 4, 2)
    rng = np.random.default_rng(1)
    states, inputs, shared = (rng.normal(size=(len(knots), size)) for size in (13, 4, 6))
    points = [
        Unknowns(states[p.knots], inputs[p.knots], shared[p.knots], np.full(3, float(k))) for k, p in enumerate(pieces)
    ]
    found = segments.whole_point(pieces, points)
    np.testing.assert_array_equal(found.states, states)
    np.testing.assert_array_equal(found.inputs, inputs)
    np.testing.assert_array_equal(found.shared, shared)
    np.testing.assert_array_equal(found.theta, 0.0)
