"""Imitate a motion of RISP's table 3 by one method: from a video and the first state to actions.

The papers' methods move actions by RMSProp, from the best of the starts that our method has. Our method detects
keypoints and descends by Levenberg and Marquardt with a prior of actions whose level and bandwidth follow from the
video (`solvers.input_estimation`).

Limits: parameters, the first state and the camera are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from experiments.constants import RISP_FARTHEST, RISP_LENGTH_M
from experiments.control_parametrisation import Parametrisation
from experiments.experiments import Experiment
from experiments.identification import (
    LOSSES,
    Case,
    Network,
    Outcome,
    attempt,
    images_of,
    pose_of,
    seen_in,
    true_states,
)
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.errors import SimulationError
from vid2phys.risp.networks.model import Model
from vid2phys.solvers import input_estimation, losses
from vid2phys.solvers.clip_residuals import ClipResiduals
from vid2phys.solvers.input_estimation import InputProblem
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array

_EXACT = 1e-3  # of the body's radius: how well true states are known to our fit, which ends when it gains little


def imitate(case: Case, parametrisation: Parametrisation, method: str, network: Network) -> Outcome:
    """Return the numbers [U] that a method finds behind a motion; `case.start`: those that it begins with."""
    return attempt(lambda: _numbers(case, parametrisation, method, network), case.start)


def _numbers(case: Case, parametrisation: Parametrisation, method: str, network: Network) -> Array:
    experiment = case.experiment
    if method in LOSSES:
        problem = experiment.plan.problem(experiment.truth, experiment.no_observation, pose_of(case))
        loss = LOSSES[method]
        evidence = true_states(experiment) if loss == "state" else images_of(case, network)
        sought, judge = input_problem(problem, case, parametrisation), losses.get(loss, problem, evidence)
        starts = starts_of(case, parametrisation)
        return input_estimation.descend(sought, judge, starts, iterations=case.iterations)
    seen = seen_in(case, network)
    if len(experiment.shown) == 2:  # what is read wrongly of the start, which is known, is read so of the target
        seen = replace(seen, error_clock_s=np.zeros_like(seen.error_clock_s))
    problem = experiment.plan.problem(experiment.truth, seen, pose_of(case))
    sought, starts = input_problem(problem, case, parametrisation), starts_of(case, parametrisation)
    if not isinstance(network, Model):  # what it sees is exact, and needs no prior
        truth = true_states(experiment)
        assert truth.std is not None
        exact = losses.get("state", problem, replace(truth, std=_EXACT * truth.std))
        return input_estimation.fit(sought, exact, starts, None).values

    def again(states: Array) -> ClipResiduals:
        return ClipResiduals.about(problem, states)

    read = losses.get("keypoint", problem)
    if parametrisation.channels is None:
        return input_estimation.fit_profile(sought, read, starts, again).values
    return input_estimation.fit(sought, read, starts, parametrisation.channels, again).values


def input_problem(problem: Problem, case: Case, parametrisation: Parametrisation) -> InputProblem:
    """Return the motion whose actions are sought, from the case's start."""
    plan = case.experiment.plan
    return InputProblem(problem, plan.initial, plan.step_s, replace(parametrisation.numbers, start=case.start))


def starts_of(case: Case, parametrisation: Parametrisation) -> Array:
    """Return the starts of all fits, [B, U]: the given start, rest, unless numbers are those of a profile, and some by
    chance.
    """
    known = [case.start] if parametrisation.channels is None else [case.start, parametrisation.numbers.middle]
    rng = np.random.default_rng([case.seed, len(case.start)])
    return np.stack([*known, *(parametrisation.draw(rng) for _ in range(parametrisation.tried - len(known)))])


@dataclass(frozen=True)
class Followed:
    """What comes of numbers. states: [F, N] at the frames. reason: why a motion does not count, or None."""

    states: Array
    reason: str | None = None


def followed(experiment: Experiment, parametrisation: Parametrisation, numbers: Array) -> Followed:
    """Return the motion by numbers [U], which stays where it begins if it cannot be computed.

    RISP's rule: a quadrotor that is 1000 away has failed.
    """
    plan = experiment.plan
    sought = InputProblem(
        plan.problem(experiment.truth, experiment.no_observation, np.eye(4)),
        plan.initial,
        plan.step_s,
        parametrisation.numbers,
    )
    try:
        states = sought.roll(np.asarray(numbers, dtype=float)[None])[0]
    except SimulationError as error:
        return Followed(np.tile(plan.initial, (len(plan.times_s), 1)), str(error))
    if isinstance(plan.system, Quadrotor):
        gone = float(np.linalg.norm(states[:, :3] - plan.initial[:3], axis=1).max()) / RISP_LENGTH_M
        if gone > RISP_FARTHEST:
            return Followed(states, f"it is {RISP_FARTHEST:g} away")
    return Followed(states)


def state_discrepancy(experiment: Experiment, states: Array) -> float:
    """Return the root mean square distance of the mesh's vertices from where they were, over all frames after the
    first, as a share of the body's radius (of what it moves in, for a body on a known base).
    """
    moved = np.stack([experiment.plan.system.vertices(state, experiment.mesh.vertices) for state in states[1:]])
    off = np.square(moved - experiment.vertices[1:]).sum(axis=-1)
    return float(np.sqrt(off.mean())) / experiment.radius_m
