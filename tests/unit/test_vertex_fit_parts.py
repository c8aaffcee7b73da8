"""The parts of a fit of vertices beside sums: steps of rollouts, starts, horizons, priors and the robust covariance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit import test_vertex_fit as sliding
from tests.unit.test_vertex_fit import Sliding
from vid2phys.errors import SimulationError
from vid2phys.solvers import vertex_fit
from vid2phys.solvers.vertex_fit import START_VELOCITY, Started, fit, robust_covariance
from vid2phys.types import Array, Parameter, Parameters

UNUSED: Any = None
VELOCITY = {"start_velocity_x": 0.1, "start_velocity_y": 0.8, "start_velocity_z": -0.2}


class Stiff(Sliding):
    """Needs steps of 8 ms over the drag, of which 0.8 are taken."""

    control_names = ("a", "b")  # type: ignore[assignment]

    def longest_step_s(self, vector: Array) -> float:
        return float(0.008 / vector[0])


def started(drag: float, times_s: Sequence[float] | Array, system: Any = None) -> Started:
    parameters = Parameters((Parameter("drag", "1/s", 1.0, 1e-3, 1e5, "log"), *START_VELOCITY))
    given = parameters.with_values({"drag": drag, **VELOCITY}).with_free(("drag", *VELOCITY))
    stiff: Any = Stiff()
    return Started(system if system is not None else stiff, given, np.array(times_s))


class Calls:
    """The closed form, and with what it is asked for."""

    def __init__(self) -> None:
        self.steps, self.substeps, self.shapes = list[list[float]](), list[int](), list[tuple[int, ...]]()

    def simulate(self, system: Any, start: Array, controls: Array, vector: Array, dt_s: Array, *, substeps: int) -> Any:
        self.steps.append(dt_s.tolist())
        self.substeps.append(substeps)
        self.shapes.append(controls.shape)
        return sliding.simulate(system, start, controls, vector, dt_s, substeps=substeps)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    one = Calls()
    monkeypatch.setattr(vertex_fit, "simulate", one.simulate)
    return one


@pytest.mark.parametrize(("longest", "substeps"), [
    (0.5, 3), (1.9, 3), (2.5, 3), (2.9, 5), (3.9, 5), (4.1, 6), (5.6, 6), (5.7, 9), (7.9, 9), (8.1, 12), (11.4, 17)
])  # fmt: skip
def test_substeps_are_enough_and_few_different_numbers(longest: float, substeps: int, calls: Calls) -> None:
    """One more than powers of the root of two, at least two; by the longest interval and by the stiffest candidate."""
    begin = started(2.0, [0.0, 0.01, 0.04, 0.06])
    drag = longest * 0.8 * 0.008 / 0.03
    values = np.stack([started(each, [0.0, 1.0]).parameters.free_vector() for each in (0.5 * drag, drag, 0.2 * drag)])
    begin.states(values, 4)
    assert calls.substeps == [substeps]
    assert substeps > longest


@pytest.mark.parametrize(("given", "most"), [(0.5, 64), (5.6, 64), (7.9, 72), (15.9, 136), (1000.0, 4096)])
def test_eight_times_the_steps_of_the_given_values_may_be_tried(given: float, most: int, calls: Calls) -> None:
    """And 64 in any case, but never more than 4096."""
    unit = 0.8 * 0.008 / 0.03
    begin = started(given * unit, [0.0, 0.03, 0.06])
    for longest in (0.7 * most, 0.98 * most, 1.01 * most, 1.5 * most):
        values = started(longest * unit, [0.0, 1.0]).parameters.free_vector()[None]
        needed = int(2.0 ** (np.ceil(2.0 * np.log2(longest)) / 2.0)) + 1
        if needed <= most:
            assert begin.states(values, 3).shape == (1, 3, 24)
            assert calls.substeps[-1] == needed
        else:
            with pytest.raises(SimulationError, match=f"at most {most}"):
                begin.states(values, 3)
    assert needed > most


@pytest.mark.parametrize(("room", "chunk"), [(1, 1), (3, 1), (4, 1), (8, 2), (1000, 8)])
def test_intervals_are_rolled_out_some_at_once_to_the_closed_form(
    room: int, chunk: int, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there is room for, at most eight; parts are filled up, and what is too much is cut."""
    monkeypatch.setattr(vertex_fit, "MOST_NUMBERS", room * 2 * 24 * 3 // 4)
    times = [0.0, 0.003, 0.006, 0.01, 0.012, 0.013, 0.02, 0.024, 0.03, 0.031, 0.033, 0.04]
    begin = started(1.0, times)
    drags = (0.5, 0.7)
    values = np.stack([started(drag, times).parameters.free_vector() for drag in drags])
    values[1, 1] += 0.3
    states = begin.states(values, 11)
    assert states.shape == (2, 11, 24)
    for b, drag in enumerate(drags):
        velocity = np.array([0.1 + 0.3 * b, 0.8, -0.2])
        for f in range(11):
            gone = np.exp(-drag * times[f])
            place = Sliding.rest_m + (1.0 - gone) / drag * velocity * Sliding.free[:, None]
            np.testing.assert_allclose(states[b, f, :12], place.ravel(), atol=1e-12)
            np.testing.assert_allclose(states[b, f, 12:], (gone * velocity * Sliding.free[:, None]).ravel())
    assert {len(steps) for steps in calls.steps} == {chunk}
    assert len(calls.steps) == -(-10 // chunk)
    assert set(calls.shapes) == {(2, chunk, 2)}
    given = [step for steps in calls.steps for step in steps]
    np.testing.assert_allclose(given[:10], np.diff(times)[:10])
    np.testing.assert_allclose(begin.positions(values[1], 11), states[1, :, :12].reshape(11, 4, 3))


def slow_covariance(residuals: Array, jacobian: Array, frame: NDArray[np.int64], frames: int, blocks: int) -> Array:
    """The covariance by plain sums over the blocks of frames."""
    size = jacobian.shape[1]
    inverse = np.linalg.inv(jacobian.T @ jacobian)
    scatter = np.zeros((size, size))
    for b in range(blocks):
        score = np.zeros(size)
        for residual, row, f in zip(residuals, jacobian, frame, strict=True):
            if f * blocks // frames == b:
                score += residual * row
        scatter += np.outer(score, score)
    covariance = inverse @ (scatter * blocks / max(1, blocks - size)) @ inverse
    floor = max(1.0, float(np.mean(residuals**2))) * np.diagonal(inverse)
    wider = np.sqrt(np.maximum(1.0, floor / np.diagonal(covariance)))
    return np.asarray(covariance * np.outer(wider, wider))


@pytest.mark.parametrize(("frames", "size", "blocks"), [
    (40, 2, 12), (72, 2, 12), (85, 2, 13), (200, 3, 20), (8, 2, 8), (60, 10, 14), (60, 9, 13), (4, 4, 4),
])  # fmt: skip
@pytest.mark.parametrize("shared", [0.2, 3.0])
def test_the_covariance_is_that_of_the_scores_of_blocks(frames: int, size: int, blocks: int, shared: float) -> None:
    """As many blocks as the root of twice the frames, at least twelve and four more than unknowns, at most all."""
    rng = np.random.default_rng(frames + size)
    frame = np.repeat(np.arange(frames), 7)
    jacobian = 900.0 * rng.normal(size=(len(frame), size)) * np.linspace(0.5, 2.0, size)
    residuals = shared * rng.normal(size=frames)[frame] + 0.7 * rng.normal(size=len(frame))
    null, degrees = robust_covariance(residuals, jacobian, frame, frames)
    assert degrees == max(1, blocks - size)
    np.testing.assert_allclose(
        null.covariance, slow_covariance(residuals, jacobian, frame, frames, blocks), rtol=1e-6, atol=1e-12
    )
    assert len(null.directions) == 0


def test_lines_are_no_better_than_by_themselves() -> None:
    """Errors that cancel in each block: the variance is that of independent lines, and never below one."""
    frame = np.repeat(np.arange(12), 2)
    ones, alternating = 1e3 * np.ones((24, 1)), np.tile([1.0, -1.0], 12)
    for size in (0.3, 5.0):
        null, _ = robust_covariance(size * alternating, ones, frame, 12)
        assert null.covariance[0, 0] == pytest.approx(max(1.0, size**2) / (24 * 1e6))


def test_starts_are_thrice_and_a_third_of_what_is_free_and_positive() -> None:
    parameters = Parameters((
        Parameter("mass", "kg", 2.0, 0.0, 100.0),
        Parameter("drag", "1/s", 40.0, 1e-3, 100.0, "log"),
        Parameter("shift", "m", -0.4, -1.0, 1.0),
        Parameter("none", "m", 0.0, -1.0, 1.0),
        Parameter("length", "m", 0.3, 0.2, 5.0),
        *START_VELOCITY,
    ))  # fmt: skip
    names = ("drag", "shift", "none", "length", "start_velocity_y")
    parameters = parameters.with_values({"start_velocity_y": 0.5}).with_free(names)
    found = list[list[float]]()
    for each in vertex_fit._starts(parameters):
        values = parameters.fitted_at(each)
        found.append([values[name].value for name in names])
        assert values["mass"].value == 2.0
    np.testing.assert_allclose(np.array(found), [
        [40.0, -0.4, 0.0, 0.3, 0.5],
        [100.0, -0.4, 0.0, 0.3, 0.5],  # at the bound
        [40.0 / 3.0, -0.4, 0.0, 0.3, 0.5],
        [40.0, -0.4, 0.0, 0.9, 0.5],
        [40.0, -0.4, 0.0, 0.2, 0.5],
    ])  # fmt: skip


class Overlapping:
    """Frames whose overlaps are known numbers of the values, by the number of frames."""

    def __init__(self, overlap: dict[float, float]) -> None:
        self._overlap, self.learned = overlap, list[tuple[float, int, list[int]]]()

    def overlaps(self, positions: tuple[float, int]) -> Array:
        value, frames = positions
        mean = self._overlap[round(value, 6)]
        return np.linspace(mean - 0.1, mean + 0.1, frames)

    def learn(self, positions: tuple[float, int], rows: Sequence[int]) -> None:
        self.learned.append((*positions, list(rows)))


def test_half_of_the_starts_go_on_where_the_horizon_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose silhouettes overlap best; each is moved with two sets of lines and is drawn to where it was."""
    overlap = {1.0: 0.5, 2.0: 0.9, 3.0: 0.7, 4.0: 0.8, 5.0: 0.2, 6.0: 0.1}
    rounds, shown = list[tuple[float, int, float, float]](), list[tuple[int, int]]()

    def moved(started: Any, frames: Any, values: Array, horizon: int, reach: float, start: Array) -> Array:
        rounds.append((float(values[0]), horizon, reach, float(start[0])))
        if start[0] == 5.0:
            raise SimulationError("it is torn")
        if start[0] == 6.0:
            raise SimulationError("it explodes")
        return values + (1e-9 if reach == 0.15 else 0.0)

    monkeypatch.setattr(vertex_fit, "_starts", lambda parameters: [np.array([each]) for each in overlap])
    monkeypatch.setattr(vertex_fit, "_round", moved)
    finished: Any = lambda started, finer, frames, values: (finer, float(values[0]))  # noqa: E731
    monkeypatch.setattr(vertex_fit, "_finished", finished)
    begin: Any = SimpleNamespace(
        times_s=np.arange(28.0), parameters=None, positions=lambda values, horizon: (float(values[0]), horizon)
    )
    frames: Any = Overlapping(overlap)
    found: Any = fit(begin, UNUSED, frames, lambda done, total: shown.append((done, total)))
    assert found == (UNUSED, pytest.approx(2.0))
    horizons = [3, 4, 6, 10, 15, 22, 28]
    assert [horizon for _, horizon, _ in frames.learned] == horizons
    assert all(rows == list(range(horizon)) for _, horizon, rows in frames.learned)
    assert [round(best) for best, *_ in frames.learned] == [2] * 7
    assert shown == [(n, 8) for n in range(7)]
    tried = [[round(v) for v, h, reach, _ in rounds if h == horizon and reach == 0.15] for horizon in horizons]
    assert tried == [[1, 2, 3, 4, 5, 6], [2, 4, 3, 1], [2, 4, 3, 1], [2, 4, 3, 1], [2, 4, 3, 1], [2, 4], [2]]
    for first, second in pairwise(rounds):
        if second[2] == 0.08:
            assert first[2] == 0.15
            assert second[0] == first[0] + 1e-9
            assert second[3] == first[3] == first[0]
    assert {reach for *_, reach, _ in rounds} == {0.15, 0.08}
    monkeypatch.setattr(vertex_fit, "_starts", lambda parameters: [np.array([5.0]), np.array([6.0])])
    with pytest.raises(SimulationError, match="no start follows the clip: it is torn"):
        fit(begin, UNUSED, frames)


def test_a_round_has_three_steps_about_a_prior_of_one_and_a_half_units(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = started(2.0, np.arange(4) / 60.0, Sliding())
    values, asked = begin.parameters.free_vector(), list[Any]()
    start = values + np.array([0.1, 0.3, -0.2, 0.4])

    class Lines:
        def lines(self, positions: Array, reach: float) -> Any:
            asked.append((positions, reach))
            return sliding.Places(positions + 1e-3)

    def solve(roll: Any, loss: Any, starts: Array, units: Array, **given: Any) -> Any:
        np.testing.assert_allclose(roll(starts), begin.states(starts, 3))
        np.testing.assert_allclose(loss.scale, 1.0)  # all are off by one deviation
        np.testing.assert_array_equal(starts, values[None])
        np.testing.assert_allclose(units, [1.0, 0.1, 0.8, 0.2])
        asked.append(given)
        return SimpleNamespace(values="found")

    monkeypatch.setattr(vertex_fit, "solve", solve)
    frames: Any = Lines()
    for prior in (start, None):
        assert vertex_fit._round(begin, frames, values, 3, 0.07, prior) == "found"  # type: ignore[comparison-overlap]
        (positions, reach), given = asked[-2:]
        np.testing.assert_allclose(positions, begin.positions(values, 3))
        assert reach == 0.07
        assert given["iterations"] == 3
        np.testing.assert_array_equal(given["limits"], begin.parameters.free_bounds)
        if prior is None:
            assert given["prior"] is None
        else:
            np.testing.assert_array_equal(given["prior"].mean, start)
            np.testing.assert_allclose(given["prior"].root, np.diag(1.0 / (1.5 * np.array([1.0, 0.4, 0.6, 0.2]))))


@pytest.mark.parametrize(("steps", "rounds"), [
    ([0.0009], 1), ([0.0011, 0.0009], 2), ([0.1, 0.1, 0.1, 0.04], 4), ([0.1, 0.1, 0.1, 0.06], 4),
])  # fmt: skip
def test_last_rounds_end_with_changes_of_a_thousandth_of_a_unit(
    steps: list[float], rounds: int, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are those of a fit where the last change is below a twentieth of one: here of a logarithm."""
    begin = started(2.0, np.arange(6) / 60.0, Sliding())
    truth, reaches = begin.positions(begin.parameters.free_vector(), 6), list[Any]()

    def moved(started: Any, frames: Any, values: Array, horizon: int, reach: float, start: Any) -> Array:
        assert (horizon, start) == (6, None)
        reaches.append(reach)
        return np.asarray(values + steps[len(reaches) - 1] * np.eye(4)[0])

    class Lines(sliding.Known):
        def lines(self, positions: Array, reach_share: float) -> Any:
            assert reach_share == 0.04
            return sliding.Places(truth)

    monkeypatch.setattr(vertex_fit, "_round", moved)
    monkeypatch.setattr(vertex_fit, "_TOLERATED", 0.0)
    values = begin.parameters.free_vector()
    found = vertex_fit._finished(begin, None, Lines(truth), values)
    assert found.rounds == rounds
    assert reaches == [0.06, 0.04, 0.04, 0.04][:rounds]
    np.testing.assert_allclose(found.values, values + sum(steps) * np.eye(4)[0])
    assert found.converged is (steps[-1] < 0.05)
    np.testing.assert_allclose(found.overlaps, Lines(truth).overlaps(begin.positions(found.values, 6)))
