"""Control parametrisation of RISP's tables 3 and 4 (Ma, Du et al., ICLR 2022): actions of known bodies, in its units.

Quadrotor, cube and rod have an action for each frame, clamped to [-500, 500]; a finger of the hand is moved by
m sin(2 pi clip((t - d) / 40, 0, 1)) with an m in [0, 1] and a d in [0, 40]. What these are in SI: `constants`.
The paper publishes no motions: those to imitate are drawn here, and so are the starts of searches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.bodies import Entry
from experiments.constants import RISP_ACTION_LIMIT, RISP_ACTIONS, RISP_LENGTH_M, RISP_QUADROTOR
from experiments.experiments import (
    FINGER_STEPS,
    Experiment,
    Plan,
    finger_of_joints,
    finger_torques,
    plan_of,
    unknown_of,
)
from experiments.unknowns import NOTHING
from vid2phys.engine.constants import RISP_CUBE
from vid2phys.engine.systems.hand import Hand
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.engine.systems.rigid_contact import Box, RigidContact
from vid2phys.solvers.input_estimation import Numbers
from vid2phys.types import Array

_FINGERS = 5


@dataclass(frozen=True)
class Parametrisation:
    """Numbers that stand for the actions on a body. plan: how it moves under actions that are yet to be given.

    numbers: what stands for the actions, the paper's. channels: actions of an interval, None for a profile. draw: a
    motion's numbers [U], by chance. tried: starts of our fit: bounces, and waves out of step, make minima of their own.
    """

    plan: Plan
    numbers: Numbers
    channels: int | None
    draw: Callable[[np.random.Generator], Array]
    tried: int = 2

    def actions(self, numbers: Array) -> Array:
        """Return actions [S, A] in SI of numbers [U]."""
        return np.asarray(self.numbers.actions(torch.from_numpy(np.asarray(numbers, dtype=float))).numpy())

    def numbers_of(self, actions: Array) -> Array:
        """Return the numbers of `actions`, of a parametrisation that has channels."""
        return np.asarray((actions / self.actions(np.ones(actions.size))).ravel())

    def experiment(self, entry: Entry, folder: Path, numbers: Array) -> Experiment:
        """Return the motion by these numbers [U]. folder: keeps the modes of a body that bends."""
        plan = replace(self.plan, actions=self.actions(numbers))
        return Experiment.planned(entry, folder, plan, np.zeros(0))


def parametrisation_of(name: str, frames: int | None = None) -> Parametrisation:
    """Return the parametrisation of the body called `name`. frames: after the first, if not as many as in table 2."""
    unknown = unknown_of(name)
    truth = np.full(len(unknown.names), unknown.truth)
    plan = plan_of(name, truth, frames)
    known = plan.with_values(truth).with_free(())
    return _PARAMETRISATIONS[name](replace(plan, parameters=known, unknown=NOTHING))


def _a_frame(plan: Plan) -> Plan:
    """Return the plan with one action a frame."""
    return replace(plan, step_s=plan.step_s * plan.every, steps=plan.steps // plan.every, every=1)


def _by_frame(
    plan: Plan, hold: Array, si: Array, step: Array, draw: Callable[[np.random.Generator], Array]
) -> Parametrisation:
    """Return a parametrisation by numbers of all frames. hold, si, step: [A], at rest in SI, what 1 is in SI, and the
    unit of a search.
    """
    channels, steps = len(si), plan.steps

    def actions(numbers: Tensor) -> Tensor:
        return numbers.unflatten(-1, (steps, channels)) * torch.from_numpy(si)

    def numbers(rng: np.random.Generator) -> Array:
        return np.clip(((hold + draw(rng)) / si).ravel(), -RISP_ACTION_LIMIT, RISP_ACTION_LIMIT)

    middle, edge = np.tile(hold / si, steps), np.full(steps * channels, RISP_ACTION_LIMIT)
    return Parametrisation(plan, Numbers(middle, middle, np.tile(step, steps), -edge, edge, actions), channels, numbers)


def _waves(rng: np.random.Generator, plan: Plan, amplitude: Array, cycles: tuple[float, float]) -> Array:
    """Return a swing of each channel through the clip, [S, A]: amplitude [A] at most, a number of cycles, any phase."""
    channels = len(amplitude)
    count, phase = rng.uniform(*cycles, channels), rng.uniform(0.0, 2.0 * np.pi, channels)
    share = (np.arange(plan.steps)[:, None] + 0.5) / plan.steps
    return np.asarray(rng.uniform(-1.0, 1.0, channels) * amplitude * np.cos(2.0 * np.pi * count * share + phase))


def _quadrotor(plan: Plan) -> Parametrisation:
    """Parametrise thrusts that swell by up to 8 %, torques that tilt by some degrees."""
    plan, body = _a_frame(plan), RISP_QUADROTOR
    assert isinstance(plan.system, Quadrotor)
    weight = body.mass_kg * body.gravity_m_s2
    size = np.array([0.08 * weight, *(np.array(body.inertia_kg_m2) * [4.0, 4.0, 2.0])])
    to_rotors = np.linalg.inv(plan.system.allocation(plan.parameters.vector))

    def draw(rng: np.random.Generator) -> Array:
        return _waves(rng, plan, size, (1.0, 2.0)) @ to_rotors.T

    si = np.full(4, RISP_ACTIONS["quadrotor"])
    return _by_frame(plan, np.full(4, 0.25 * weight), si, np.full(4, 200.0), draw)


def _cube(plan: Plan) -> Parametrisation:
    """Throw the cube as in table 2, pushed and rotated while it flies and when it lands."""
    system = RigidContact((Box((0.5 * RISP_CUBE.side_m,) * 3),))
    plan = _a_frame(replace(plan, system=system))
    force = RISP_ACTIONS["cube"]
    si = np.repeat([force, force * RISP_LENGTH_M], 3)
    size = np.repeat([100.0, 30.0], 3) * si
    step = np.repeat([500.0, 150.0], 3)
    parametrisation = _by_frame(plan, np.zeros(6), si, step, lambda rng: _waves(rng, plan, size, (0.5, 2.0)))
    return replace(parametrisation, tried=16)


def _rod(plan: Plan) -> Parametrisation:
    """Push the rod to all sides in its middle, along it hardly."""
    si = np.full(3, RISP_ACTIONS["rod"])
    size = np.array([20.0, 150.0, 150.0]) * si
    plan = _a_frame(plan)
    return _by_frame(plan, np.zeros(3), si, np.full(3, 300.0), lambda rng: _waves(rng, plan, size, (0.5, 2.0)))


def _hand(plan: Plan) -> Parametrisation:
    """Parametrise torques by five m, then five d."""
    assert isinstance(plan.system, Hand)
    fingers = finger_of_joints(plan.system)
    upper = np.repeat([1.0, float(FINGER_STEPS)], _FINGERS)

    def actions(numbers: Tensor) -> Tensor:
        return finger_torques(numbers[..., :_FINGERS], numbers[..., _FINGERS:], plan.steps, fingers)

    def draw(rng: np.random.Generator) -> Array:
        return np.asarray(rng.uniform(0.0, upper))

    middle = 0.5 * upper
    return Parametrisation(
        plan, Numbers(middle, middle, upper, np.zeros(2 * _FINGERS), upper, actions), None, draw, tried=128
    )


_PARAMETRISATIONS: dict[str, Callable[[Plan], Parametrisation]] = {
    "quadrotor": _quadrotor,
    "cube": _cube,
    "cube-plain": _cube,
    "hand": _hand,
    "rod": _rod,
}
