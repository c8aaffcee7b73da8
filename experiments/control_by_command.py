"""Control by the user's command: `vid2phys control --target` with the image of the goal.

The command has the image, the camera, the mesh, all parameters, the first state and the limits of the table. Of a rigid
body it has a `--hint-box` where the other methods look. The experiment's system carries its actions out.

Limits: the command sets the wrench of a quadrotor, whose rotors have no limits of their own there, and a torque of each
joint of a hand in each step.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from experiments.by_identify import inputs_of
from experiments.control_parametrisation import Parametrisation
from experiments.experiments import Experiment
from experiments.identification import Case, Outcome
from experiments.imitation import followed
from experiments.imitation_by_command import to_plan_actions
from experiments.method_inputs import places
from experiments.state_by_command import hint_about
from vid2phys.commands.configs import ControlConfig
from vid2phys.commands.control import FPS, solve
from vid2phys.engine.constants import RISP_HAND
from vid2phys.errors import Vid2PhysError
from vid2phys.io.array_clip import image_clip
from vid2phys.risp.networks.model import Model
from vid2phys.solvers.input_estimation import Numbers
from vid2phys.tracking.hint import Hint
from vid2phys.types import Array


def control_by_command(case: Case, parametrisation: Parametrisation, model: Model | None) -> Outcome:
    """Return the motion by the actions that the command finds, with its status."""
    experiment = case.experiment
    assert case.footage is not None
    began = time.monotonic()
    inputs = inputs_of(experiment, image_clip(case.footage.frames[-1], 1, FPS, "footage"), model, None)
    if inputs.body is None:
        inputs = replace(inputs, hint=_shown(case))
    config = _config(experiment, _limits(parametrisation, inputs.system.action_names))
    try:
        found = solve(inputs, config)
    except Vid2PhysError as error:
        return Outcome(case.start, time.monotonic() - began, str(error))
    seconds = time.monotonic() - began
    end = followed(*_carried_out(experiment, parametrisation, found.actions.values @ to_plan_actions(experiment).T))
    return Outcome(np.full(len(case.start), np.nan), seconds, end.reason, None, found.status, end.states)


def _shown(case: Case) -> Hint:
    """Return the `--hint-box` about where all methods look for a rigid body in the image of the goal."""
    centers, radii = places(case.experiment, case.seed)
    return hint_about(case.experiment.camera, centers[-1], float(radii[-1]))


def _config(experiment: Experiment, limits: dict[str, tuple[float, float]]) -> ControlConfig:
    """Return the options of the command: the first state, so far as it is not at rest at the origin, and the time."""
    plan = experiment.plan
    each = zip(plan.system.state_names, plan.initial.tolist(), plan.system.rest_state().tolist(), strict=True)
    return ControlConfig(
        target=Path("footage"),
        camera=Path("camera.yaml"),
        initial={name: value for name, value, rest in each if value != rest},
        limits=limits,
        seconds=plan.steps * plan.step_s,
        rate=1.0 / plan.step_s,
        moving=True,
    )


def _limits(parametrisation: Parametrisation, names: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Return the table's limits of the command's actions, so far as these are those of the table."""
    if names != parametrisation.plan.system.action_names:
        return {}
    if parametrisation.channels is None:
        return dict.fromkeys(names, (-RISP_HAND.torque, RISP_HAND.torque))
    numbers = parametrisation.numbers
    ends = (parametrisation.actions(end)[0].tolist() for end in (numbers.lower, numbers.upper))
    return dict(zip(names, zip(*ends, strict=True), strict=True))


def _carried_out(
    experiment: Experiment, parametrisation: Parametrisation, actions: Array
) -> tuple[Experiment, Parametrisation, Array]:
    """Return what `followed` takes to carry out actions [S, A] in SI."""
    numbers, anything = actions.ravel(), np.full(actions.size, np.inf)

    def unflattened(values: Tensor) -> Tensor:
        return values.unflatten(-1, actions.shape)

    free = Numbers(numbers, numbers, np.ones(actions.size), -anything, anything, unflattened)
    return experiment, replace(parametrisation, numbers=free, channels=actions.shape[1]), numbers
