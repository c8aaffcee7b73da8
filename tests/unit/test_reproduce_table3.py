"""Actions as unknowns, and the protocol of RISP's table 3 that is made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import driving, imitation, reproduce
from experiments.aiming import final_distance_mm
from experiments.bodies import entries
from experiments.constants import RISP_QUADROTOR
from experiments.control_parametrisation import Parametrisation, parametrisation_of
from experiments.experiments import Experiment, nothing_seen
from experiments.identification import Case
from experiments.imitation import followed, imitate, starts_of, state_discrepancy
from experiments.method_inputs import places
from experiments.table import Setting
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.constants import RISP_HAND
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.errors import InputError
from vid2phys.risp.networks.model import Model
from vid2phys.solvers import input_estimation, losses, rollout_fit
from vid2phys.solvers.input_estimation import InputProblem, Numbers
from vid2phys.solvers.prediction import bearings
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Observation

SIGMA, STEP_S = 1e-3, 0.05
CAMERA = np.array([[0.0, 0.0, 1.0, -2.0], [-1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])


def rising(steps: int = 6) -> InputProblem:
    """A quadrotor of 1 kg that rises before a camera; its thrust in each interval is sought, in units of 2 N."""
    system, times = Quadrotor(), np.arange(steps + 1) * STEP_S
    seen = Observation(
        *(times, np.zeros((steps + 1, 1, 2)), np.broadcast_to(SIGMA**2 * np.eye(2), (steps + 1, 1, 2, 2))),
        *(np.zeros((steps + 1, 1, 2, 1)), np.ones(1), np.ones((steps + 1, 1), dtype=bool), np.zeros((1, 3))),
    )
    problem = Problem(system, system.parameters().with_values({"mass": 1.0}), seen, CAMERA)

    def actions(numbers: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(2.0 * numbers[..., None], (0, 3))

    hold = np.full(steps, 4.905)
    numbers = Numbers(hold, hold, np.ones(steps), 0.0 * hold, hold + 3.0, actions)
    return InputProblem(problem, system.rest_state(), STEP_S, numbers)


def filmed(sought: InputProblem, numbers: Array) -> InputProblem:
    """With the bearings that these numbers give."""
    problem = sought.problem
    at = bearings(problem, problem.parameters, sought.roll(numbers[None])[0])
    return replace(sought, problem=replace(problem, observation=replace(problem.observation, bearings=at)))


def test_motions_are_those_of_the_engine_and_have_its_gradient() -> None:
    sought = rising()
    numbers = 4.905 + 0.3 * np.random.default_rng(0).normal(size=6)
    controls = np.zeros((1, 6, 10))
    controls[0, :, 0] = 2.0 * numbers
    system, parameters = sought.problem.system, sought.problem.parameters.vector
    states = simulate(system, sought.state[None], controls, parameters, STEP_S, substeps=20)[0]
    assert sought.roll(numbers[None])[0] == pytest.approx(states, abs=2e-3)  # actions are filtered over a millisecond
    at = torch.from_numpy(numbers).requires_grad_()
    moved = sought.states(at)
    assert moved.detach().numpy() == pytest.approx(sought.roll(numbers[None])[0], abs=1e-12)
    (slope,) = torch.autograd.grad(moved[-1, 2], at)
    step = 1e-4 * np.eye(6)
    ends = sought.roll(np.concatenate([numbers + step, numbers - step]))[:, -1, 2]
    assert slope.numpy() == pytest.approx((ends[:6] - ends[6:]) / 2e-4, rel=1e-6)


def test_what_is_beyond_the_limits_is_put_back() -> None:
    sought = rising()
    assert sought.roll(np.full((1, 6), 99.0)) == pytest.approx(sought.roll(np.full((1, 6), 7.905)))
    wanted = filmed(sought, np.full(6, 7.0))
    tight = replace(wanted, numbers=replace(wanted.numbers, upper=np.full(6, 6.0)))
    found = input_estimation.fit(tight, losses.get("keypoint", tight.problem), tight.numbers.start[None], None)
    assert found.values.max() <= 6.0
    assert found.values[0] == 6.0


def test_both_optimisers_find_the_thrust_that_was_filmed() -> None:
    truth = np.array([5.5, 5.3, 5.0, 4.8, 5.1, 5.4])
    sought = filmed(rising(), truth)
    loss = losses.get("keypoint", sought.problem)
    found = input_estimation.fit(sought, loss, sought.numbers.start[None], None)
    assert found.values[:-1] == pytest.approx(truth[:-1], abs=0.02)
    less = input_estimation.descend(sought, loss, iterations=60)
    costs = [float(loss.value(torch.from_numpy(sought.roll(each[None])[0]))) for each in (sought.numbers.start, less)]
    assert costs[1] < 0.05 * costs[0]


def test_the_papers_optimiser_begins_at_the_best_of_starts() -> None:
    """Two iterations move a number by little, so that the end tells the start."""
    sought = filmed(rising(), np.full(6, 7.0))
    starts = np.stack([np.full(6, each) for each in (4.905, 6.8, 7.9)])
    found = input_estimation.descend(sought, losses.get("keypoint", sought.problem), starts, iterations=2)
    assert found == pytest.approx(6.8, abs=0.1)


def test_the_papers_optimiser_steps_in_units_of_the_numbers() -> None:
    """RMSProp's first step is its rate over the root of 0.01, whatever the gradient."""
    sought = filmed(rising(), np.full(6, 5.5))
    wide = replace(sought, numbers=replace(sought.numbers, units=np.full(6, 3.0)))
    found = input_estimation.descend(wide, losses.get("keypoint", wide.problem), iterations=2)
    assert found == pytest.approx(4.905 + 3.0 * 3e-3 / np.sqrt(0.01), rel=1e-5)


def test_the_likeliest_prior_is_that_of_the_largest_evidence() -> None:
    """Against the density of the readings themselves, N(J mean, 1 + J K J'), for a motion that is linear."""
    rng = np.random.default_rng(3)
    sought, size = rising(8), 8
    slope = rng.normal(size=(12, size))
    truth = sought.numbers.middle + 0.2 * np.cos(0.7 * np.arange(size))
    read = slope @ truth + rng.normal(size=12)
    before = input_estimation._prior(sought, 1, 1.0, 30.0)
    total = slope.T @ slope + before.root.T @ before.root
    mean = before.mean
    best = mean + np.linalg.solve(total, slope.T @ (read - slope @ mean))
    found = rollout_fit.RolloutFit(best, np.zeros((1, 13)), total, 0.0, 1, True)
    chosen = input_estimation.most_likely_prior(sought, 1, before, found)

    def density(prior: rollout_fit.Prior) -> float:
        covariance = np.eye(12) + slope @ np.linalg.inv(prior.root.T @ prior.root) @ slope.T
        off = read - slope @ prior.mean
        return float(-0.5 * off @ np.linalg.solve(covariance, off) - 0.5 * np.linalg.slogdet(covariance)[1])

    everything = [
        input_estimation._prior(sought, 1, s, b)
        for s in input_estimation._DEVIATIONS
        for b in input_estimation._BANDWIDTHS
    ]
    assert density(chosen) == pytest.approx(max(map(density, everything)), abs=1e-6)
    assert len({round(density(prior), 3) for prior in everything}) > 20


def test_a_prior_is_a_process_of_each_channel_by_itself() -> None:
    sought = replace(rising(), numbers=parametrisation_of("quadrotor", 3).numbers)
    prior = input_estimation._prior(sought, 4, 0.5, 10.0)
    covariance = np.linalg.inv(prior.root.T @ prior.root).reshape(3, 4, 3, 4)
    x, variance = 10.0 * STEP_S, (0.5 * 200.0) ** 2
    assert covariance[0, 2, 1, 2] == pytest.approx(variance * (1.0 + x) * np.exp(-x), rel=1e-4)
    assert covariance[1, 1, 1, 1] == pytest.approx(variance, rel=1e-4)
    assert np.abs(covariance[0, 2, 1, 3]) < 1e-6 * variance


def test_of_noisy_readings_the_prior_makes_the_better_actions() -> None:
    rng = np.random.default_rng(1)
    truth = 4.905 + 0.5 * np.sin(0.5 * np.arange(16))
    sought = filmed(rising(16), truth)
    seen = sought.problem.observation
    noisy = replace(seen, bearings=seen.bearings + SIGMA * rng.normal(size=seen.bearings.shape))
    sought = replace(sought, problem=replace(sought.problem, observation=noisy))
    loss = losses.get("keypoint", sought.problem)
    with_prior, without = (
        np.abs(input_estimation.fit(sought, loss, sought.numbers.start[None], channels).values - truth).mean()
        for channels in (1, None)
    )
    assert with_prior < 0.3
    assert without > 2.0 * with_prior


def parametrisation(name: str, frames: int) -> tuple[Parametrisation, Experiment, Array]:
    """A drive, with a motion of it."""
    (entry,) = entries((name,))
    it = parametrisation_of(name, frames)
    numbers = it.draw(np.random.default_rng(0))
    return it, it.experiment(entry, Path(), numbers), numbers


@pytest.mark.parametrize("name", ["quadrotor", "cube-plain", "rod", "hand"])
def test_numbers_are_the_papers_and_actions_si(name: str) -> None:
    it = parametrisation_of(name, 4)
    actions = it.actions(it.numbers.upper)
    if name == "hand":
        assert np.abs(actions).max() <= RISP_HAND.torque
        assert it.numbers.upper.tolist() == [1.0] * 5 + [40.0] * 5
        assert not it.numbers.lower.any()
        return
    assert it.numbers.upper.tolist() == (-it.numbers.lower).tolist() == [500.0] * len(it.numbers.upper)
    wanted = {"quadrotor": [25.0] * 4, "cube-plain": [0.5] * 3 + [0.005] * 3, "rod": [250.0] * 3}[name]
    assert actions == pytest.approx(np.tile(wanted, (4, 1)))


def test_a_quadrotor_in_the_middle_of_its_numbers_hovers() -> None:
    it, experiment, _ = parametrisation("quadrotor", 3)
    weight = RISP_QUADROTOR.mass_kg * RISP_QUADROTOR.gravity_m_s2
    assert it.actions(it.numbers.middle).sum(axis=1) == pytest.approx(weight)
    level = replace(experiment.plan, initial=experiment.plan.system.rest_state())
    still = followed(replace(experiment, plan=level), it, it.numbers.middle).states
    assert still[-1] == pytest.approx(level.initial, abs=1e-9)


def test_motions_and_what_follows_from_their_numbers_agree() -> None:
    it, experiment, numbers = parametrisation("quadrotor", 6)
    assert followed(experiment, it, numbers).states == pytest.approx(experiment.states, abs=1e-9)
    assert state_discrepancy(experiment, experiment.states) == 0.0
    aside = experiment.states.copy()
    aside[:, 1] += 0.1
    assert state_discrepancy(experiment, aside) == pytest.approx(0.1 / experiment.radius_m)
    assert it.draw(np.random.default_rng(1)) != pytest.approx(numbers)


def test_a_quadrotor_that_is_1000_away_has_failed() -> None:
    it, experiment, _ = parametrisation("quadrotor", 30)
    end = followed(experiment, it, it.numbers.upper)
    assert end.reason == "it is 1000 away"
    assert end.states[-1, 2] > 10.0
    assert followed(experiment, it, it.numbers.middle).reason is None


def test_oracles_find_actions_and_see_no_frame_that_is_not_shown() -> None:
    it, experiment, _ = parametrisation("quadrotor", 6)
    start = it.draw(np.random.default_rng(5))
    found = imitate(Case(experiment, None, start, 0), it, "oracle-newton", None)
    assert found.failure is None
    before, after = (state_discrepancy(experiment, followed(experiment, it, u).states) for u in (start, found.values))
    assert after < 0.02 * before
    ends = replace(experiment, only=(0, 6))
    assert ends.shown.tolist() == [0, 6]
    everywhere, there = places(experiment, 3), places(ends, 3)
    assert there[0] == pytest.approx(everywhere[0][[0, 6]])
    assert there[1] == pytest.approx(everywhere[1][[0, 6]])


def test_ours_begins_at_rest_too_and_with_profiles_in_many_places() -> None:
    it, experiment, numbers = parametrisation("quadrotor", 3)
    starts = starts_of(Case(experiment, None, numbers, 0), it)
    assert starts[0] == pytest.approx(numbers)
    assert starts[1] == pytest.approx(it.numbers.middle)
    cube = parametrisation_of("cube-plain", 3)
    starts = starts_of(Case(experiment, None, numbers, 0), replace(it, tried=cube.tried))
    assert len(np.unique(starts, axis=0)) == cube.tried == 16  # bounces
    assert starts[1] == pytest.approx(it.numbers.middle)
    hand = parametrisation_of("hand", 3)
    assert len(starts_of(Case(experiment, None, hand.numbers.middle, 0), hand)) == 128


@pytest.mark.slow
def test_what_is_read_wrongly_of_a_known_start_is_not_believed_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    it, whole, _ = parametrisation("hand", 40)
    experiment = replace(whole, only=(0, 40))
    camera = np.asarray(experiment.camera.camera_to_world)
    assert experiment.articulated is not None
    nothing = nothing_seen(experiment.plan.times_s, experiment.articulated.points_body)
    problem = experiment.plan.problem(experiment.truth, nothing, camera)
    at = bearings(problem, problem.parameters, experiment.states)
    frames, points = at.shape[:2]
    bend = np.random.default_rng(3).normal(size=(points, 2)) * 0.01  # of one mode, the same in both images
    shown = np.zeros((frames, points), dtype=bool)
    shown[experiment.shown] = True
    seen = replace(
        nothing,
        bearings=at + bend,
        covariance=np.broadcast_to(1e-8 * np.eye(2), (frames, points, 2, 2)),
        shared_basis=np.broadcast_to(bend[..., None], (frames, points, 2, 1)),
        correlation_time_s=np.array([0.1]),
        visible=shown,
    )
    monkeypatch.setattr(imitation, "seen_in", lambda *_: seen)
    found = imitate(Case(experiment, None, it.numbers.middle, 0), it, "ours", Model.__new__(Model))
    assert found.failure is None
    found_mm, moved_mm = (
        final_distance_mm(experiment, followed(experiment, it, numbers).states)
        for numbers in (found.values, np.zeros(10))
    )
    assert found_mm < 0.1 * moved_mm  # 0.17 where the error is believed; rounding decides which of 128 starts wins


def test_cells_are_filled_resumed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"quick": True, "bodies": ("quadrotor",), "out": tmp_path, "work": tmp_path / "work", "quiet": True}
    methods = ("average", "random", "oracle-newton")
    files = reproduce("risp-table3", methods=methods, **arguments)  # type: ignore[arg-type]
    rows = json.loads(files[0].read_text())["rows"]
    monkeypatch.setattr(driving.Bench, "rows", lambda *_: pytest.fail("it is there already"))
    again = reproduce("risp-table3", methods=methods, **arguments)  # type: ignore[arg-type]
    assert json.loads(again[0].read_text())["rows"] == rows
    mine = {(row["method"], row["metric"]): row for row in rows if row["system"] == "quadrotor"}
    assert mine["oracle-newton", "state_discrepancy"]["value"] < 0.1 * mine["average", "state_discrepancy"]["value"]
    assert mine["random", "state_discrepancy"]["n"] == 100
    assert mine["ours", "state_discrepancy"]["value"] is None
    assert {row["paper"] for row in rows} == {None}
    assert "quadrotor, ours" in files[1].read_text()
    assert files[2].stat().st_size > 5000


def test_a_cell_whose_network_is_not_there_says_that_it_is_trained_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments import risp_table3

    monkeypatch.setattr(driving.Bench, "rows", lambda *_: [])
    setting = Setting(False, tmp_path, tmp_path / "work", TrainingProgress(quiet=True), ("quadrotor",), ("average",))
    (row,) = (r for r in risp_table3.run(setting).rows if (r["system"], r["method"]) == ("quadrotor", "paper"))
    assert row["value"] is None
    assert row["reason"].startswith("not run yet (its network is trained first, about ")


def test_a_refused_cell_keeps_its_reason_in_later_sittings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments import risp_table3

    def refused(*_: object) -> list[dict[str, Any]]:
        raise InputError("the clip has 4 frames", "at least 8", "film longer")

    monkeypatch.setattr(driving.Bench, "rows", refused)
    for method in ("average", "random"):
        here = Setting(True, tmp_path, tmp_path / "work", TrainingProgress(quiet=True), ("rod",), (method,))
        table = risp_table3.run(here)
        table.draw = None
        table.write(here)
    reasons = {row["method"]: row["reason"] for row in table.rows if row["system"] == "rod"}
    assert reasons["average"] == reasons["random"] == "the clip has 4 frames; expected at least 8; film longer"
    assert reasons["oracle"] == "not run yet"
