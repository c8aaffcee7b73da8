"""A fit of a body's vertices to its motion, with distances from its true places in the part of lines.

The body's free vertices slow down by drag, x' = v, v' = -d v, for which there is a closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from vid2phys.errors import SimulationError
from vid2phys.solvers import vertex_fit
from vid2phys.solvers.vertex_fit import START_VELOCITY, Started, fit, robust_covariance
from vid2phys.types import Array, Parameter, Parameters

TRUTH = {"drag": 3.0, "start_velocity_x": 0.1, "start_velocity_y": 0.8, "start_velocity_z": -0.2}
STD_M, FRAMES, FPS = 1e-3, 10, 60.0


class Sliding:
    """Four vertices, of which one is clamped. A state is all places, then all velocities."""

    rest_m = np.array([[0.0, 0.0, 0.1], [0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.1, 0.0]])
    free = np.array([0.0, 1.0, 1.0, 1.0])
    control_names = ()
    step_share = 0.8

    def longest_step_s(self, vector: Array) -> float:
        return 1.0

    def state(self, positions: Array, velocities: Array) -> Array:
        return np.concatenate([each.reshape(*each.shape[:-2], -1) for each in (positions, velocities)], axis=-1)

    def positions(self, states: Array) -> Array:
        return states[..., :12].reshape(*states.shape[:-1], 4, 3)

    def velocities(self, states: Array) -> Array:
        return states[..., 12:].reshape(*states.shape[:-1], 4, 3)


def simulate(system: Any, start: Array, controls: Array, vector: Array, dt_s: Array, *, substeps: int) -> Array:
    """Return states [B, T + 1, 24] by the closed form."""
    drag, time_s = vector[:, :1, None, None], np.concatenate([[0.0], np.cumsum(dt_s)])[None, :, None, None]
    place, velocity = system.positions(start)[:, None], system.velocities(start)[:, None]
    gone = np.exp(-drag * time_s)
    return system.state(place + velocity * (1.0 - gone) / drag, velocity * gone)


@pytest.fixture(autouse=True)
def closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vertex_fit, "simulate", simulate)


@dataclass
class Places:
    """Distances of all vertices from their true places, in the part of lines across contours."""

    truth: Array

    def __post_init__(self) -> None:
        self.frame = np.repeat(np.arange(len(self.truth)), self.truth[0].size)
        self.std = np.full(self.truth.size, STD_M)

    def residuals(self, positions: Array) -> Array:
        return (positions - self.truth).reshape(len(positions), -1) / STD_M


@dataclass
class Known:
    """Frames whose lines are the true places, and whose overlap falls with the distance from them."""

    truth: Array
    learned: list[int] = field(default_factory=list)

    def lines(self, positions: Array, reach_share: float) -> Any:
        return Places(self.truth[: len(positions)])

    def overlaps(self, positions: Array) -> Array:
        return np.exp(-np.abs(positions - self.truth[: len(positions)]).mean(axis=(1, 2)) / 0.01)

    def learn(self, positions: Array, rows: Sequence[int]) -> None:
        self.learned.append(len(rows))


def started(**values: float) -> Started:
    parameters = Parameters((Parameter("drag", "1/s", 1.0, 1e-3, 100.0, "log"), *START_VELOCITY))
    system: Any = Sliding()
    return Started(system, parameters.with_values(values).with_free(tuple(TRUTH)), np.arange(FRAMES) / FPS)


def true_places() -> Array:
    true = started(**TRUTH)
    return true.positions(true.parameters.free_vector(), FRAMES)


def test_drag_and_velocity_of_a_sheet_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the starts cannot be simulated."""
    begin, frames, whole = started(drag=10.0), Known(true_places()), vertex_fit._round

    def fails(started: Started, frames: Any, values: Array, *rest: Any) -> Array:
        if started.parameters.fitted_at(values)["drag"].value > 29.0:
            raise SimulationError("not finite")
        return whole(started, frames, values, *rest)

    monkeypatch.setattr(vertex_fit, "_round", fails)
    found = fit(begin, begin, frames)
    values = begin.parameters.fitted_at(found.values)
    assert {name: values[name].value for name in TRUTH} == pytest.approx(TRUTH, rel=1e-4)
    assert found.converged
    assert found.misfit < 1e-3
    assert np.abs(found.moved).max() < 1e-3  # the finer mesh is the same one
    np.testing.assert_allclose(begin.system.positions(found.states), frames.truth, atol=1e-6)
    assert frames.learned == [3, 4, 6, FRAMES]


def test_without_a_start_that_can_be_simulated_there_is_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vertex_fit, "_starts", lambda _: [])
    with pytest.raises(SimulationError, match="no start follows the clip"):
        fit(started(), started(), Known(true_places()))


def test_all_vertices_but_clamped_ones_start_with_the_velocity() -> None:
    places = true_places()
    gone = (1.0 - np.exp(-3.0 * np.arange(FRAMES) / FPS)) / 3.0
    way = gone[:, None, None] * np.array([0.1, 0.8, -0.2]) * Sliding.free[:, None]
    np.testing.assert_allclose(places, Sliding.rest_m + way, atol=1e-12)


@pytest.mark.parametrize(("count", "horizons"), [(3, [3]), (4, [3, 4]), (10, [3, 4, 6, 10]), (12, [3, 4, 6, 10, 12])])
def test_horizons_grow_by_half_to_all_frames(count: int, horizons: list[int]) -> None:
    assert vertex_fit._horizons(count) == horizons


def test_starts_vary_one_parameter_at_a_time() -> None:
    parameters = started(drag=0.3, start_velocity_x=0.5).parameters
    starts = [parameters.fitted_at(each) for each in vertex_fit._starts(parameters)]
    assert [each["drag"].value for each in starts] == pytest.approx([0.3, 0.9, 0.1])
    assert [each["start_velocity_x"].value for each in starts] == pytest.approx([0.5] * 3)


def test_errors_that_frames_share_widen_the_covariance() -> None:
    """Of the mean of 40 frames with 50 lines each: frames of one block have one error, of standard deviation 2."""
    rng, frame = np.random.default_rng(0), np.repeat(np.arange(40), 50)
    ones, deviations = np.ones((len(frame), 1)), []
    for _ in range(200):
        shared = 2.0 * rng.normal(size=20)[frame // 2]
        null, degrees = robust_covariance(shared, ones, frame, 40)
        deviations.append(null.covariance[0, 0])
    assert degrees == 11.0  # 12 blocks, one unknown
    assert np.mean(deviations) == pytest.approx(4.0 / 20.0, rel=0.15)
    white, _ = robust_covariance(rng.choice([-1.0, 1.0], len(frame)), ones, frame, 40)
    assert white.covariance[0, 0] >= 1.0 / len(frame) - 1e-12


def noisy_places(std_m: float) -> Array:
    """True places with errors, of which one is gross."""
    places = true_places() + std_m * np.random.default_rng(1).normal(size=(FRAMES, 4, 3))
    places[4, 1, 0] += 0.02
    return places


def loss_of(begin: Started, values: Array, places: Array) -> vertex_fit._Loss:
    lines: Any = Places(places)
    return vertex_fit._Loss(begin.system, lines, begin.positions(values, FRAMES))


def test_residuals_count_by_students_t_and_slopes_are_those_of_differences() -> None:
    begin, places = started(drag=2.5, start_velocity_y=0.7), noisy_places(1e-3)
    values = begin.parameters.free_vector()
    loss = loss_of(begin, values, places)
    off = (begin.positions(values, FRAMES) - places).ravel() / STD_M
    weight = np.sqrt(6.0 / (5.0 + off**2))
    np.testing.assert_allclose(loss.scale, weight)
    residuals, slopes = vertex_fit._linear(begin, loss, values, FRAMES)
    np.testing.assert_allclose(residuals, weight * off)
    for k, step in enumerate(1e-6 * np.eye(4)):
        ahead, back = (begin.positions(values + s * step, FRAMES).ravel() for s in (1.0, -1.0))
        expected = weight * (ahead - back) / 2e-6 / STD_M
        np.testing.assert_allclose(slopes[:, k], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    at_bound = started(drag=100.0)
    limit = at_bound.parameters.free_vector()
    _, one_sided = vertex_fit._linear(at_bound, loss, limit, FRAMES)
    _, beside = vertex_fit._linear(at_bound, loss, limit - [1e-3, 0.0, 0.0, 0.0], FRAMES)
    np.testing.assert_allclose(one_sided, beside, rtol=0.02, atol=1e-2)


def test_the_last_rounds_end_where_nothing_changes_and_say_what_is_left() -> None:
    begin, places = started(**TRUTH), noisy_places(1e-3)
    found = vertex_fit._finished(begin, begin, Known(places), begin.parameters.free_vector())
    assert 2 <= found.rounds <= 4
    assert found.converged
    values = found.values - found.moved
    off = (begin.positions(found.values, FRAMES) - places).ravel() / STD_M
    weight = loss_of(begin, values, places).scale
    assert found.misfit == pytest.approx(np.sqrt(((weight * off) ** 2).mean()), rel=1e-3)
    assert found.distance_px == pytest.approx(np.sqrt((off**2).mean()) * STD_M, rel=1e-3)
    residuals, slopes = vertex_fit._linear(begin, loss_of(begin, values, places), values, FRAMES)
    null, degrees = robust_covariance(residuals, slopes, np.repeat(np.arange(FRAMES), 12), FRAMES)
    np.testing.assert_allclose(found.covariance, null.covariance + np.diag((found.moved / 3.0) ** 2), rtol=1e-6)
    assert found.degrees == degrees == 6.0
    far = vertex_fit._finished(started(drag=30.0), begin, Known(places), started(drag=30.0).parameters.free_vector())
    assert far.rounds == 4


def test_a_finer_mesh_moves_the_optimum_by_what_it_changes() -> None:
    """The finer mesh slows down twice as much, so that it explains the places with half of the drag."""

    class Slower(Sliding):
        rest_m = np.concatenate([Sliding.rest_m, [[0.05, 0.05, 0.0]]])
        free = np.append(Sliding.free, 1.0)

        def state(self, positions: Array, velocities: Array) -> Array:
            return np.concatenate([each.reshape(*each.shape[:-2], -1) for each in (positions, velocities)], axis=-1)

        def positions(self, states: Array) -> Array:
            return states[..., :15].reshape(*states.shape[:-1], 5, 3)

        def velocities(self, states: Array) -> Array:
            return states[..., 15:].reshape(*states.shape[:-1], 5, 3)

    begin, system = started(**TRUTH), Slower()
    finer: Any = Started(system, begin.parameters, begin.times_s)  # type: ignore[arg-type]
    values = begin.parameters.free_vector()
    loss = loss_of(begin, values, true_places())
    jacobian = vertex_fit._linear(begin, loss, values, FRAMES)[1]
    states, moved = vertex_fit._on_finer_mesh(begin, finer, loss, values, jacobian)
    np.testing.assert_allclose(moved, 0.0, atol=1e-6)
    np.testing.assert_allclose(begin.system.positions(states), true_places(), atol=1e-9)
    other = begin.parameters.with_values({"drag": 1.5})
    half: Any = Started(system, other, begin.times_s)  # type: ignore[arg-type]
    start = other.free_vector()
    states, moved = vertex_fit._on_finer_mesh(begin, half, loss, start, jacobian)
    np.testing.assert_allclose((start + moved)[1:], values[1:], atol=0.02)
    assert (start + moved)[0] == pytest.approx(values[0], abs=0.15)
    np.testing.assert_allclose(begin.system.positions(states), true_places(), atol=2e-3)


def test_without_a_finer_mesh_nothing_is_corrected() -> None:
    begin, frames = started(drag=2.0, start_velocity_y=0.7), Known(true_places())
    found = vertex_fit._finished(begin, None, frames, begin.parameters.free_vector())
    np.testing.assert_array_equal(found.moved, 0.0)
    np.testing.assert_allclose(begin.system.positions(found.states), frames.truth, atol=1e-4)
    same = vertex_fit._finished(begin, begin, frames, begin.parameters.free_vector())
    np.testing.assert_allclose(found.values, same.values, atol=1e-4)


def test_steps_that_would_take_hours_are_refused() -> None:
    class Stiff(Sliding):
        def longest_step_s(self, vector: Array) -> float:
            return 0.01 / vector[0]

    def substeps_of(drag: float) -> Started:
        return Started(Stiff(), started(drag=drag).parameters, np.arange(FRAMES) / FPS)  # type: ignore[arg-type]

    begin = substeps_of(1.0)
    near, far = (substeps_of(drag).parameters.free_vector() for drag in (20.0, 50.0))
    assert begin.positions(near, FRAMES).shape == (FRAMES, 4, 3)
    with pytest.raises(SimulationError, match="steps between two frames; expected at most 64"):
        begin.positions(far, FRAMES)
    assert substeps_of(50.0).positions(far, FRAMES).shape == (FRAMES, 4, 3)  # a start is as it is given
    assert vertex_fit._MOST_SUBSTEPS < 1e5


def test_an_unknown_near_zero_may_move_by_less_than_its_standard_deviation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit is its own small value, of which edges that move by a thirtieth of their error are a large share."""
    still = started(**{**TRUTH, "start_velocity_z": 0.0})
    places = still.positions(still.parameters.free_vector(), FRAMES)

    class Moved(Known):
        def lines(self, positions: Array, reach_share: float) -> Any:
            self.learned.append(0)
            rng = np.random.default_rng(len(self.learned))
            return Places(self.truth + STD_M / 30.0 * rng.normal(size=self.truth.shape))

    def converged() -> bool:
        begin = still.parameters.with_values({"start_velocity_z": 1e-6})
        return vertex_fit._finished(still, None, Moved(places), begin.free_vector()).converged

    assert converged()
    monkeypatch.setattr(vertex_fit, "_TOLERATED", 0.0)
    assert not converged()


def test_rounds_lead_to_the_truth_and_need_the_body_in_the_frame() -> None:
    begin = started(**TRUTH)
    start = begin.parameters.free_vector()
    places = true_places()
    free = vertex_fit._round(begin, Known(places), start + 0.05, FRAMES, 0.1, None)
    np.testing.assert_allclose(free, start, atol=1e-4)
    kept = vertex_fit._round(begin, Known(places), start, 3, 0.1, start)
    np.testing.assert_allclose(kept, start, atol=1e-6)
    np.testing.assert_allclose(vertex_fit._units(begin.parameters, start), begin.parameters.fitted_at(start).free_units)
    assert [p.value for p in START_VELOCITY] == [0.0, 0.0, 0.0]

    class Hidden(Known):
        def lines(self, positions: Array, reach_share: float) -> Any:
            return None

    with pytest.raises(SimulationError, match="leaves the frame"):
        vertex_fit._round(begin, Hidden(places), start, FRAMES, 0.1, None)
