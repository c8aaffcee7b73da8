"""The user's command in table 4: what it is given, and how its actions are carried out and judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments import control_by_command
from experiments.aiming import bring, final_l1
from experiments.bodies import entries
from experiments.control_parametrisation import Parametrisation, parametrisation_of
from experiments.experiments import Experiment
from experiments.footage import Footage
from experiments.identification import COMMAND, Case
from vid2phys.commands.configs import ControlConfig
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.engine.constants import RISP_HAND
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.errors import InputError

FRAMES = 8


def case(name: str) -> tuple[Case, Parametrisation]:
    """A case with black frames of the start and of the goal."""
    (entry,) = entries((name,))
    it = parametrisation_of(name, FRAMES)
    whole = it.experiment(entry, Path(), it.draw(np.random.default_rng(0)))
    experiment: Experiment = replace(whole, only=(0, FRAMES))
    camera = experiment.camera
    black = np.zeros((2, camera.height, camera.width, 3), np.uint8)
    return Case(experiment, Footage(black, black[0]), it.numbers.middle, 0), it


@pytest.mark.parametrize("name", ["quadrotor", "cube-plain", "hand"])
def test_the_actions_behind_the_target_bring_the_body_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told, it = case(name)
    plan, given = told.experiment.plan, dict[str, Any]()
    assert plan.actions is not None
    actions = plan.actions
    if isinstance(plan.system, Quadrotor):
        actions = actions @ plan.system.allocation(plan.parameters.vector).T

    def solve(inputs: Inputs, config: ControlConfig) -> Any:
        given.update(inputs=inputs, config=config)
        return SimpleNamespace(actions=SimpleNamespace(values=actions), status="reached")

    monkeypatch.setattr(control_by_command, "solve", solve)
    outcome = bring(told, it, COMMAND, None)
    assert (outcome.status, outcome.failure) == ("reached", None)
    assert outcome.states is not None
    assert final_l1(told.experiment, outcome.states) < 1e-6
    inputs, config = given["inputs"], given["config"]
    assert len(inputs.clip.times_s) == 1
    assert inputs.actions is None
    assert round(config.seconds * config.rate) == len(plan.actions)
    assert config.moving
    _check(name, told.experiment, inputs, config)


def _check(name: str, experiment: Experiment, inputs: Inputs, config: ControlConfig) -> None:
    """Check limits, first state and hint of a body."""
    plan = experiment.plan
    if name == "hand":
        assert (config.initial, inputs.hint) == ({}, None)
        assert config.limits["torque_finger2_1"] == (-RISP_HAND.torque, RISP_HAND.torque)
        return
    begin = dict(zip(plan.system.state_names, plan.initial, strict=True))
    assert all(begin[each] == value for each, value in config.initial.items())
    assert "orientation_quat_w" in config.initial
    assert config.limits == ({} if name == "quadrotor" else config.limits | {"force_x": (-0.5, 0.5)})
    assert inputs.hint is not None
    x0, y0, x1, y1 = inputs.hint.corners
    at = np.linalg.inv(np.asarray(experiment.camera.camera_to_world)) @ [*experiment.states[-1, :3], 1.0]
    x, y, z = experiment.camera.K @ at[:3]
    assert x0 < x / z < x1
    assert y0 < y / z < y1
    half = experiment.camera.K[0, 0] * experiment.radius_m / z
    assert 0.5 * (x1 - x0) == pytest.approx(half, rel=0.3)


def test_an_image_without_the_body_counts_with_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    told, it = case("quadrotor")

    def refuse(*_: object) -> Any:
        raise InputError("the body is not seen")

    monkeypatch.setattr(control_by_command, "solve", refuse)
    outcome = bring(told, it, COMMAND, None)
    assert outcome.failure is not None
    assert "not seen" in outcome.failure
    assert outcome.values == pytest.approx(told.start)
    assert outcome.states is None
