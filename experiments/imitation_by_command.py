"""Imitate by the user's command: `vid2phys identify` without `--actions`, on the film of a motion.

The command has frames, camera, mesh and all parameters, but neither the first state nor the place of the body. What it
finds is its own motion, which is compared as it is, and actions, as far as it states any.

Limits: actions of a body that touches something are all forces on it, those of the contact included.
"""

from __future__ import annotations

import numpy as np

from experiments.alike import alike_states
from experiments.by_identify import Clip
from experiments.control_parametrisation import Parametrisation
from experiments.experiments import Experiment
from experiments.identification import Case, Outcome, outcome_of
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.geometry import matrix_from_quat
from vid2phys.risp.networks.model import Model
from vid2phys.types import Array, Result

_STATED = 1.96  # standard deviations of a 95 % interval


def imitate_by_command(case: Case, parametrisation: Parametrisation, model: Model | None) -> Outcome:
    """Return the motion that the command finds, the numbers [U] of its actions, and how many of its intervals hold.

    The numbers are NaN where the command states no actions.
    """
    assert case.footage is not None
    clip = Clip.of(case.experiment, case.footage, model, with_actions=False)
    return outcome_of(clip, case.start, lambda result: _compared(clip, parametrisation, result))


def _compared(clip: Clip, parametrisation: Parametrisation, result: Result) -> Outcome:
    experiment = clip.experiment
    states = alike_states(experiment, result.trajectory.states)
    element = _nearest(experiment, states)
    numbers, shares = np.full(len(parametrisation.numbers.middle), np.nan), {}
    poses = clip.pose_coverage(result) if clip.inputs.body is None else _configurations_held(clip, result)
    if poses is not None:
        shares["poses_held_share"] = poses
    if result.actions is not None:
        found, to_plan = result.actions.values, to_plan_actions(experiment, element)
        numbers = parametrisation.numbers_of(found @ to_plan.T)
        if result.actions_std is not None:
            assert experiment.plan.actions is not None
            truth = np.linalg.solve(to_plan, experiment.plan.actions.T).T
            shares["held_share"] = float((np.abs(found - truth) <= _STATED * result.actions_std).mean())
    return Outcome(numbers, 0.0, status=result.status.key, states=states[element], shares=shares)


def _configurations_held(clip: Clip, result: Result) -> float | None:
    """Return the share of the coordinates of a body on a known base in their 95 % intervals, None without intervals."""
    body, covariance = clip.inputs.body, result.trajectory.covariance
    if body is None or covariance is None:
        return None
    truth = body.configurations(clip.experiment.states[clip.experiment.shown])
    off = body.difference(truth, body.configurations(result.trajectory.states))
    std = np.sqrt(np.einsum("tii->ti", covariance))[:, : len(body.names)]
    return float((np.abs(off) <= _STATED * std).mean())


def _nearest(experiment: Experiment, states: Array) -> int:
    """Return which of the states [G, F, N] that look alike are oriented as the truth is."""
    if len(states) == 1:
        return 0
    system = experiment.plan.system
    truth = matrix_from_quat(system.body_pose(experiment.states)[1])
    found = matrix_from_quat(system.body_pose(states)[1])
    return int(np.einsum("gfij,fij->g", found, truth).argmax())


def to_plan_actions(experiment: Experiment, element: int = 0) -> Array:
    """Return the matrix [A, A] from actions of the command to those of the experiment's plan.

    The command finds the wrench of a quadrotor, and torques in the axes in which it sees the body. element: of the
    symmetry, to whose axes torques go.
    """
    system = experiment.plan.system
    if isinstance(system, Quadrotor):
        return np.asarray(np.linalg.inv(system.allocation(experiment.plan.parameters.vector)))
    matrix = np.eye(len(system.action_names))
    if experiment.articulated is None:
        matrix[3:, 3:] = experiment.alike[element, :3, :3].T
    return matrix
