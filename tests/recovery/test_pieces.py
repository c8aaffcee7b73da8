"""A long clip fitted in pieces says what a fit of the whole says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.flight import Flight, fly, watch
from tests.recovery.test_smoothing import start
from vid2phys.solvers import smoothing
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.segments import at_frames, at_knots, cut
from vid2phys.solvers.smoothing_model import Layout

GAP = slice(70, 76)  # frames that the camera dropped: knots lie between


def long_problem(*, recorded: bool) -> tuple[Flight, Problem]:
    flight = fly(6.0)
    kept = np.delete(np.arange(len(flight.times_s)), np.r_[GAP])
    flight = replace(flight, times_s=flight.times_s[kept], states=flight.states[kept])
    parameters = flight.parameters.with_values({"mass": 0.8}).with_free(("mass",)) if recorded else flight.parameters
    actions = flight.actions if recorded else None
    return flight, Problem(flight.system, parameters, watch(flight), flight.camera_to_world, actions)


def test_pieces_cover_a_clip_once() -> None:
    _, problem = long_problem(recorded=True)
    whole = Layout.of(replace(problem, priors={"mass": (0.0, 1.0)}))
    pieces = cut(whole, frames=40, overlap=10)
    seen, times = problem.observation, whole.knots.times_s
    assert len(pieces) > 3
    assert len(times) > len(seen.times_s)
    np.testing.assert_array_equal(at_knots(pieces, [times[piece.knots] for piece in pieces]), times)
    np.testing.assert_array_equal(at_knots(pieces, [piece.layout.knots.times_s for piece in pieces]), times)
    frames = [piece.layout.problem.observation.times_s for piece in pieces]
    np.testing.assert_array_equal(at_frames(pieces, frames), seen.times_s)
    for piece, own in zip(pieces, frames, strict=True):
        knots = piece.layout.knots
        np.testing.assert_array_equal(knots.times_s[knots.frame_knot], own)
        np.testing.assert_allclose(knots.step_s, np.diff(knots.times_s))
        assert len(piece.layout.relevance) == len(knots.times_s)
        assert piece.share < 1.0
    assert sum(len(piece.layout.problem.priors) > 0 for piece in pieces) == 1
    assert len(cut(whole)) == 1


PIECES_APART = "overlaps are short beside the memory of a flight with little noise: states 0.5 deviations off"


@pytest.mark.parametrize(
    "recorded", [pytest.param(True, marks=pytest.mark.xfail(strict=True, reason=PIECES_APART)), False]
)
def test_pieces_say_what_the_whole_says(recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    _, problem = long_problem(recorded=recorded)
    states = start(problem)
    whole = smoothing.fit(problem, states)
    monkeypatch.setattr(smoothing, "cut", partial(cut, frames=60, overlap=20))
    monkeypatch.setattr(smoothing, "_CACHED_KNOTS", 0)
    found = smoothing.fit(problem, states, hyperparameters=whole.hyperparameters * 3, rounds=0)
    std = np.sqrt(np.einsum("tii->ti", whole.covariance))
    off = problem.system.local(whole.point.states, found.point.states) / std
    assert found.converged
    assert np.sqrt((off**2).mean()) < 0.2
    assert np.abs(off).max() < 1.0
    ratio = np.sqrt(np.einsum("tii->ti", found.covariance)) / std
    assert ratio.min() > 0.98
    assert ratio.max() < 1.4
    one, other = smoothing.solution(whole), smoothing.solution(found)
    np.testing.assert_allclose(other.weights, one.weights, atol=0.02)
    np.testing.assert_allclose(other.controls, one.controls, atol=0.02)
    if recorded:
        assert other.theta_names == one.theta_names
        spread = np.sqrt(np.diagonal(one.theta_covariance))
        np.testing.assert_allclose(np.sqrt(np.diagonal(other.theta_covariance)), spread, rtol=0.1)
        assert np.abs((found.point.theta - whole.point.theta) / spread).max() < 0.5


def test_levels_are_of_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    _, problem = long_problem(recorded=True)
    monkeypatch.setattr(smoothing, "cut", partial(cut, frames=60, overlap=20))
    found = smoothing.fit(problem, start(problem))
    assert len(found.hyperparameters) == 3
    assert found.hyperparameters[0] != found.hyperparameters[1]
    assert np.exp(found.point.theta[0]) == pytest.approx(0.72, rel=0.01)
    assert found.theta_covariance[0, 0] ** 0.5 == pytest.approx(1e-3, rel=0.4)


def test_a_piece_may_begin_at_its_own_levels() -> None:
    """A second fit of a clip starts where the first ended, each piece under its own levels."""
    _, problem = long_problem(recorded=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smoothing, "cut", partial(cut, frames=60, overlap=20))
        first = smoothing.fit(problem, start(problem), rounds=1)
        again = smoothing.fit(
            problem, first.point.states, first.point.inputs[:, :7], hyperparameters=first.hyperparameters, rounds=0
        )
    assert again.hyperparameters == first.hyperparameters
