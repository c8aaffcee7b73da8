"""The course of a fit to recordings: horizons, starts from pieces, and when it is given up, with stand-ins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_recorded_model import STARTS, STD, SYSTEM
from tests.unit.test_recorded_model import point as point
from tests.unit.test_recorded_model import setup as setup
from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import recorded_descent as descent
from vid2phys.solvers.recorded_descent import Descent, Limits
from vid2phys.solvers.recorded_model import Point, Setup, cost_of, residuals_of, scale_of, substeps_of

UNLIMITED: Any = SimpleNamespace(over=False, substeps=10_000)
LARGE = 10.0  # a misfit that is more than noise


def failing(*_: Any) -> Any:
    raise SimulationError("it diverges", "a motion", "less")


def ended(misfit: float, unexplained: float, iterations: int, converged: bool = True) -> Descent:
    return Descent(Point(np.zeros(0), np.zeros((0, 0))), misfit, unexplained, iterations, converged)


def test_a_limit_is_on_time_and_on_what_is_too_stiff(setup: Setup) -> None:
    """30 000 steps of a rollout, and four times those of the first parameters in any case."""
    assert Limits(setup, 0.0).over
    free = Limits(setup, np.inf)
    assert not free.over
    assert free.substeps == 30_000 // 24
    fine = replace(setup, max_step_s=1e-5)
    assert Limits(fine, np.inf).substeps == 4 * substeps_of(fine, [fine.first_point], 24) == 8000


def searched(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, ends: Sequence[Descent], limits: Any = UNLIMITED
) -> tuple[Descent, list[int]]:
    """The end of a search whose descents end one by one as given, and which guesses were tried."""
    rest, tried = iter(ends), list[int]()

    def growing(_: Setup, point: Any, iterations: int, __: Any) -> Descent:
        assert iterations == 7
        tried.append(0 if point is setup_point else point)
        return next(rest)

    setup_point = setup.first_point
    monkeypatch.setattr(type(setup), "first_point", setup_point)
    monkeypatch.setattr(descent, "_growing", growing)
    monkeypatch.setattr(descent, "_guesses", lambda *_: [1, 2, 3])
    return descent.search(setup, 7, limits), tried


def test_a_search_that_explains_the_motion_ends(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    good = ended(1.0, 0.5, 3)
    assert searched(setup, monkeypatch, [good]) == (good, [0])


def test_the_best_of_the_starts_counts_with_all_iterations(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    poor = [ended(LARGE + off, 0.5, count) for off, count in ((2.0, 3), (1.0, 4), (3.0, 5), (4.0, 6))]
    found, tried = searched(setup, monkeypatch, poor)
    assert tried == [0, 1, 2, 3]
    assert (found.misfit, found.iterations) == (LARGE + 1.0, 18)
    found, tried = searched(setup, monkeypatch, [poor[0], ended(1.0, 0.5, 4)])
    assert tried == [0, 1], "the second explains the motion"
    assert (found.misfit, found.iterations) == (1.0, 7)


def test_a_search_ends_when_its_time_is_over(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    over: Any = SimpleNamespace(over=True, substeps=1)
    poor = [ended(LARGE, 0.5, 3), ended(LARGE + 1.0, 0.5, 4)]
    found, tried = searched(setup, monkeypatch, poor, over)
    assert tried == [0, 1]
    assert (found.misfit, found.iterations) == (LARGE, 7)


def grown(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, unexplained: float, fails_at: int = -1
) -> tuple[Descent, list[tuple[int, float, int]]]:
    """The end of a growing descent, and frames, tolerance and iterations of each of its parts."""
    stages = list[tuple[int, float, int]]()

    def descend(_: Setup, at: Any, frames: int, tolerance: float, most: int, __: Any) -> Any:
        assert at == len(stages), "each begins where the last one ended"
        if len(stages) == fails_at:
            failing()
        stages.append((frames, tolerance, most))
        return SimpleNamespace(point=at + 1, iterations=2, converged=True)

    monkeypatch.setattr(descent, "_descend", descend)
    monkeypatch.setattr(descent, "_left", lambda _, at: (LARGE + at, unexplained))
    start: Any = 0
    return descent._growing(setup, start, 9, UNLIMITED), stages


def test_the_horizon_grows_to_all_frames(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth, a quarter and half of 24 frames, five at least; the last descent is longer and finer."""
    found, stages = grown(setup, monkeypatch, 0.5)
    assert [frames for frames, *_ in stages] == [5, 6, 12, 24, 24]
    assert [most for *_, most in stages[:4]] == [9] * 4
    assert stages[4][2] > 9
    assert len({tolerance for _, tolerance, _ in stages[:4]}) == 1
    assert stages[4][1] < stages[0][1]
    assert (found.point, found.misfit, found.iterations, found.converged) == (5, LARGE + 5, 10, True)


def test_a_start_that_explains_the_motion_takes_all_frames_at_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, stages = grown(setup, monkeypatch, 0.0)
    assert [frames for frames, *_ in stages] == [24]
    assert found.iterations == 2


def test_a_horizon_that_cannot_be_computed_ends_the_descent(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    found, stages = grown(setup, monkeypatch, 0.5, fails_at=2)
    assert len(stages) == 2
    assert (found.point, found.iterations, found.converged) == (2, 4, False)
    assert found.misfit == LARGE + 2


def test_the_two_best_of_the_pieces_are_guesses(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each factor of the parameters has its own misfit; offsets begin at zero."""
    misfits = dict(zip(descent._FACTORS, (4.0, 2.0, 5.0, 1.0, 3.0), strict=True))
    monkeypatch.setattr(descent, "_scaled", lambda parameters, factor: (parameters, factor))
    monkeypatch.setattr(
        descent,
        "_of_pieces",
        lambda setup, scaled, *_: (misfits[scaled[1]], scaled[0].with_values({"length": 0.5 + misfits[scaled[1]]})),
    )
    found = descent._guesses(setup, 5, UNLIMITED)
    assert [setup.values(each.theta)["length"].value for each in found] == pytest.approx([1.5, 2.5])
    assert all(each.theta[2] == 0.0 for each in found)
    np.testing.assert_array_equal(found[0].starts, setup.first_point.starts)
    marked = replace(setup, recordings=(replace(setup.recordings[0], points_body=np.zeros((1, 3))),))
    assert descent._guesses(marked, 5, UNLIMITED) == [], "markers are not cut to pieces"


def test_pieces_hand_their_parameters_on_to_longer_ones(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each descent adds a tenth to the length; the last misfit counts."""
    asked = list[tuple[float, float, int]]()

    def descend(pieces: Setup, at: Point, frames: int, tolerance: float, most: int, __: Any) -> Any:
        asked.append((pieces.parameters["length"].value, frames, most))
        return SimpleNamespace(point=replace(at, theta=pieces.parameters.with_values(
            {"length": pieces.parameters["length"].value + 0.1}).free_vector()))  # fmt: skip

    monkeypatch.setattr(descent, "_descend", descend)
    monkeypatch.setattr(descent, "_left", lambda pieces, at: (pieces.values(at.theta)["length"].value, 0.0))
    begun = setup.parameters.with_values({"length": 0.7})
    misfit, found = descent._of_pieces(setup, begun, 5, UNLIMITED)
    assert [length for length, *_ in asked] == pytest.approx([0.7, 0.8])
    assert {frames for _, frames, _ in asked} == {12}, "as few as a piece may have"
    assert {most for *_, most in asked} == {5}
    assert found["length"].value == misfit == pytest.approx(0.9)
    monkeypatch.setattr(descent, "_descend", failing)
    assert descent._of_pieces(setup, begun, 5, UNLIMITED) == (np.inf, begun)


def test_a_piece_begins_where_the_body_was(setup: Setup) -> None:
    """In the middle of a recording: the angle by its parabola, within the noise."""
    for recording, start, piece in zip(
        setup.recordings, STARTS, descent._pieces(setup, 0.5, setup.parameters).recordings[::2], strict=True
    ):
        part = descent._piece(setup, recording, start, 3, 15)
        np.testing.assert_array_equal(part.times_s, recording.times_s[3:15])
        np.testing.assert_array_equal(part.seen, recording.seen[3:15])
        np.testing.assert_array_equal(part.controls, recording.controls[3:14] if recording.controls is not None else 0)
        vector = SYSTEM.parameters().vector
        controls = recording.controls
        assert controls is not None
        true = simulate(SYSTEM, start[None], controls[None], vector, np.diff(recording.times_s)[None], substeps=4)[0, 3]
        assert part.start is not None
        assert (np.abs(part.start - true) < 4.0 * STD).all()
        np.testing.assert_array_equal(piece.times_s, recording.times_s[:12])


def test_nothing_is_left_to_judge_where_there_is_no_rollout(
    setup: Setup, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descent, "residuals_of", failing)
    assert descent._left(setup, point) == (np.inf, np.inf)


def test_what_is_too_stiff_or_diverges_costs_infinitely_much(
    setup: Setup, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = replace(setup, max_step_s=1e-3)  # 20 steps an interval
    expected = cost_of(fine, point, residuals_of(fine, [point], 15)[1], 1.2)
    assert descent._Recordings(fine, 15, 1.2, 20).cost(point) == pytest.approx(expected)
    assert descent._Recordings(fine, 15, 1.2, 19).cost(point) == np.inf
    assert descent._Recordings(fine, 15, 1.2, 20).linearize(point).cost == pytest.approx(expected)
    monkeypatch.setattr(descent, "cost_of", lambda *_: np.nan)
    assert descent._Recordings(fine, 15, 1.2, 20).cost(point) == np.inf

    def refused(*_: Any) -> Any:
        raise UsageError("too long", "less", "less")

    for raising in (failing, refused):
        monkeypatch.setattr(descent, "residuals_of", raising)
        assert descent._Recordings(fine, 15, 1.2, 20).cost(point) == np.inf


def test_a_descent_has_errors_of_the_size_that_they_begin_with(
    setup: Setup, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Any]()

    def minimize(problem: Any, at: Point, settings: Any, stop: Any) -> Any:
        given.extend([problem, at, settings, stop()])

    monkeypatch.setattr(descent, "minimize", minimize)
    descent._descend(setup, point, 15, 1e-4, 8, UNLIMITED)
    problem, at, settings, stopped = given
    assert problem.scale == pytest.approx(scale_of(residuals_of(setup, [point], 15)[1]))
    assert (problem.frames, problem.substeps) == (15, 10_000)
    assert at is point
    assert (settings.iterations, settings.tolerance) == (8, 1e-4)
    assert stopped is False


def test_parameters_step_within_their_bounds(setup: Setup, point: Point) -> None:
    """A length that would become negative stays in its domain."""
    normal = descent._Recordings(setup, 24, 1.0, 10_000).linearize(point).normal
    pulled = replace(normal, gradient=normal.gradient + np.array([1e12, 0.0, 0.0]))
    found, _ = descent._Linear(setup, point, pulled, pulled.cost).step(0.0)
    low, high = setup.parameters.free_bounds
    assert (found.theta[:2] >= low).all()
    assert (found.theta[:2] <= high).all()
