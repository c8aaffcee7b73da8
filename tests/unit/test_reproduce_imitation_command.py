"""The user's command in table 3: its motion and its actions beside those of the paper's units and axes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import driving, reproduce, risp_table3
from experiments.alike import alike_states
from experiments.bodies import entries
from experiments.by_identify import Clip
from experiments.control_parametrisation import Parametrisation, parametrisation_of
from experiments.experiments import Experiment
from experiments.footage import Footage
from experiments.identification import COMMAND, Case, Outcome
from experiments.imitation import state_discrepancy
from experiments.imitation_by_command import imitate_by_command
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.types import Actions, Array, Result, Status, Trajectory

FRAMES = 8


def case(name: str) -> tuple[Case, Parametrisation, Array]:
    """A case with black frames, and the numbers of its motion."""
    (entry,) = entries((name,))
    it = parametrisation_of(name, FRAMES)
    numbers = it.draw(np.random.default_rng(0))
    experiment = it.experiment(entry, Path(), numbers)
    camera = experiment.camera
    black = np.zeros((len(experiment.shown), camera.height, camera.width, 3), np.uint8)
    return Case(experiment, Footage(black, black[0]), it.numbers.middle, 0), it, numbers


def found(states: Array, actions: Array | None, std: float = 0.1) -> Result:
    """A result with a motion and actions, whose covariances are those of `std`."""
    times, tangent = np.arange(len(states), dtype=float), min(states.shape[1], 26)
    stated = None if actions is None else Actions(times[:-1], actions, "other", (), ())
    covariance = np.broadcast_to(std**2 * np.eye(tangent), (len(states), tangent, tangent))
    trajectory = Trajectory(times, states, (), None, covariance)
    of_actions = None if actions is None else np.full(actions.shape, std)
    return Result(Status.CONVERGED, "", "", (), trajectory, stated, of_actions, None, {})  # type: ignore[arg-type]


def by_command(told: Case, it: Parametrisation, result: Result, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setattr(Clip, "solved", lambda self: result)
    return imitate_by_command(told, it, None)


def test_actions_are_not_given_and_parameters_are() -> None:
    told, _, _ = case("cube-plain")
    assert told.footage is not None
    clip = Clip.of(told.experiment, told.footage, None, with_actions=False)
    assert clip.inputs.actions is None
    assert clip.asked == ()
    mass = told.experiment.plan.parameters["mass"].value
    assert clip.inputs.known.parameters["mass"].value == mass
    assert not clip.inputs.known.per_kilogram
    assert Clip.of(told.experiment, told.footage, None).inputs.actions is not None


def test_the_wrench_of_a_quadrotor_is_its_rotors(monkeypatch: pytest.MonkeyPatch) -> None:
    told, it, numbers = case("quadrotor")
    plan = told.experiment.plan
    assert plan.actions is not None
    assert isinstance(plan.system, Quadrotor)
    wrench = plan.actions @ plan.system.allocation(plan.parameters.vector).T
    outcome = by_command(told, it, found(told.experiment.states, wrench), monkeypatch)
    assert outcome.values == pytest.approx(numbers)
    assert outcome.shares == {"poses_held_share": 1.0, "held_share": 1.0}
    stronger = wrench + np.eye(4)[0]
    off = by_command(told, it, found(told.experiment.states, stronger), monkeypatch)
    assert off.shares["held_share"] == pytest.approx(0.75)
    assert off.values - numbers == pytest.approx(0.25 / 0.05)


def test_a_cube_that_is_seen_in_other_axes_is_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    told, it, numbers = case("cube-plain")
    experiment, element = told.experiment, 7
    assert experiment.plan.actions is not None
    states, rotation = alike_states(experiment, experiment.states), experiment.alike[element, :3, :3]
    assert state_discrepancy(experiment, states[element]) > 0.5
    seen_so = experiment.plan.actions.copy()
    seen_so[:, 3:] = seen_so[:, 3:] @ rotation  # torques in the axes of the body
    outcome = by_command(told, it, found(states[element], seen_so), monkeypatch)
    assert outcome.states is not None
    assert state_discrepancy(experiment, outcome.states) == pytest.approx(0.0, abs=1e-9)
    assert outcome.values == pytest.approx(numbers)


def test_a_hand_without_actions_has_no_error_of_actions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told, it, _ = case("hand")
    outcome = by_command(told, it, found(told.experiment.states, None), monkeypatch)
    assert np.isnan(outcome.values).all()
    assert outcome.shares == {"poses_held_share": 1.0}
    off = by_command(told, it, found(told.experiment.states + 0.3, None), monkeypatch)
    assert off.shares == {"poses_held_share": 0.0}
    monkeypatch.setattr(driving.weights, "load", lambda *_: None)
    rows = rows_of("hand", lambda *_: outcome, tmp_path, monkeypatch)
    assert set(rows) == {"state_discrepancy", "imitation_s", "converged_share", "poses_held_share"}
    assert rows["state_discrepancy"]["value"] == pytest.approx(0.0, abs=1e-9)


def rows_of(name: str, act: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The rows of the command in a quick table, by metric, where `act` finds what it does."""
    monkeypatch.setattr(risp_table3, "_TASK", replace(risp_table3._TASK, act=act))
    monkeypatch.setattr(Experiment, "footage", lambda *_: None)
    monkeypatch.setattr(driving.Bench, "_rng", lambda self, *stream: np.random.default_rng(0))
    arguments: dict[str, Any] = {"quick": True, "bodies": (name,), "methods": (COMMAND,), "quiet": True}
    (path, *_) = reproduce("risp-table3", out=tmp_path, work=tmp_path / "work", **arguments)
    rows = json.loads(path.read_text())["rows"]
    return {row["metric"]: row for row in rows if row["method"] == COMMAND}


def test_shares_and_statuses_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, _, numbers = case("quadrotor")
    states = told.experiment.states.copy()
    states[:, 1] += 0.1
    outcome = Outcome(numbers, 2.0, status="doubtful", states=states, shares={"held_share": 0.5})
    rows = rows_of("quadrotor", lambda *_: outcome, tmp_path, monkeypatch)
    assert rows["state_discrepancy"]["value"] == pytest.approx(0.1 / told.experiment.radius_m, rel=1e-4)
    assert rows["action_error"]["value"] == pytest.approx(0.0, abs=1e-9)
    assert rows["held_share"]["value"] == 0.5
    assert (rows["converged_share"]["value"], rows["converged_share"]["statuses"]) == (0.0, ["doubtful"])
    assert rows["imitation_s"]["value"] == 2.0
