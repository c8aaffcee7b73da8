"""Random experiments: the truth, the motion and the camera's place are drawn at random.

Intervals have to hold for all of them (`risp_coverage`). Limits: motions are of the kinds of tables 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.articulated import ArticulatedAdapter
from experiments.bodies import Entry
from experiments.control_parametrisation import Parametrisation, parametrisation_of
from experiments.experiments import Experiment, Plan, Viewpoint, plan_of, unknown_of
from vid2phys.engine.systems.rod import Rod
from vid2phys.geometry import quat_from_rotvec
from vid2phys.types import Array

FRAMES = 36  # after the first
_FARTHER = 1.6  # at most, than the cameras of table 2


def random_experiment(entry: Entry, folder: Path, rng: np.random.Generator) -> Experiment:
    """Return a random experiment of a body of the tables. folder: keeps the modes of one that bends."""
    truth = unknown_of(entry.name).draw(rng)
    plan, parametrisation = plan_of(entry.name, truth, FRAMES), parametrisation_of(entry.name, FRAMES)
    experiment = Experiment.planned(entry, folder, _RANDOM[entry.name](plan, parametrisation, truth, rng), truth)
    return replace(experiment, viewpoint=_viewpoint(experiment, rng))


def _viewpoint(experiment: Experiment, rng: np.random.Generator) -> Viewpoint:
    far = float(rng.uniform(1.0, _FARTHER))
    if not isinstance(experiment.adapter, ArticulatedAdapter):
        return Viewpoint(far=far)
    cameras = experiment.adapter.body.cameras
    azimuth = cameras.azimuth[1] * rng.uniform(-1.0, 1.0)
    return Viewpoint(float(np.deg2rad(azimuth)), float(np.deg2rad(rng.uniform(*cameras.elevation))), far)


def _with_actions(plan: Plan, parametrisation: Parametrisation, actions: Array) -> Plan:
    """Return the plan with the parametrisation's steps and these actions [S, A]."""
    steps = parametrisation.plan
    return replace(plan, actions=actions, step_s=steps.step_s, steps=steps.steps, every=steps.every)


def _quadrotor(plan: Plan, parametrisation: Parametrisation, _: Array, rng: np.random.Generator) -> Plan:
    """Fly with any heading, thrusts and torques as in table 3."""
    initial = plan.initial.copy()
    initial[3:7] = quat_from_rotvec(np.array([*rng.normal(scale=0.05, size=2), rng.uniform(-np.pi, np.pi)]))
    return replace(
        _with_actions(plan, parametrisation, parametrisation.actions(parametrisation.draw(rng))), initial=initial
    )


def _cube(plan: Plan, _: Parametrisation, __: Array, rng: np.random.Generator) -> Plan:
    """Throw the cube as in table 2 in any orientation, with any spin."""
    initial = plan.initial.copy()
    axis, spin = rng.normal(size=3), rng.normal(size=3)
    initial[3:7] = quat_from_rotvec(rng.uniform(0.0, np.pi) * axis / np.linalg.norm(axis))
    initial[8:10] *= rng.uniform(0.5, 1.5, 2)
    initial[10:13] = rng.uniform(1.0, 6.0) * spin / np.linalg.norm(spin)
    return replace(plan, initial=initial)


def _hand(plan: Plan, parametrisation: Parametrisation, _: Array, rng: np.random.Generator) -> Plan:
    """Move the hand by torques as in table 3, none of them too small to move a finger."""
    numbers = parametrisation.draw(rng)
    fingers = len(numbers) // 2
    numbers[:fingers] = rng.uniform(0.5, 1.0, fingers)
    return _with_actions(plan, parametrisation, parametrisation.actions(numbers))


def _rod(plan: Plan, parametrisation: Parametrisation, truth: Array, rng: np.random.Generator) -> Plan:
    """Push the rod as in table 3, by what moves a rod of this stiffness."""
    assert isinstance(plan.system, Rod)
    young, known = plan.unknown.to_si(np.array([truth[0], plan.unknown.truth]))
    harder = plan.system.load_n(float(young)) / plan.system.load_n(float(known))
    return _with_actions(plan, parametrisation, harder * parametrisation.actions(parametrisation.draw(rng)))


_RANDOM: dict[str, Callable[[Plan, Parametrisation, Array, np.random.Generator], Plan]] = {
    "quadrotor": _quadrotor,
    "cube-plain": _cube,
    "hand": _hand,
    "rod": _rod,
}
BODIES = tuple(_RANDOM)
