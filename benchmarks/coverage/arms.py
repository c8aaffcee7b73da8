"""Random arms, moved by MuJoCo and measured with the tracker's error model: how often intervals hold the truth.

Serial arms of two or three links with random sizes, masses, joint axes, damping and payload swing from a random start
for 1.4 s. Joint angles get errors of 0.3 deg: half of their variance is independent, half a Gauss-Markov process of
0.3 s. The fit is that of `identify --fit joint_damping,payload`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from benchmarks.coverage.cases import Case
from vid2phys.commands.fit_parameters import named
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.systems.articulated import Articulated
from vid2phys.engine.systems.hand import Hand
from vid2phys.errors import SimulationError, UsageError
from vid2phys.io.robot import parse_robot
from vid2phys.solvers import configuration_shooting, intervals
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.solvers.initialise import local_fit, tricube, window
from vid2phys.solvers.problem import Problem
from vid2phys.tracking.articulated.silhouette_tracker import observation_of_nothing
from vid2phys.types import Actions, Array, ConfigurationMeasurement, Estimate, Status

FPS, FRAMES, STD_RAD, CORRELATION_S = 60.0, 84, np.radians(0.3), 0.3
STEPS = 60  # of MuJoCo in a frame interval


@dataclass(frozen=True)
class Arm:
    """A random arm. given: as its file states it; true: as it moved. start: joint angles [D], rad."""

    given: str
    true: str
    values: dict[str, float]
    start: Array


def random_arm(rng: np.random.Generator, *, sprung: bool = False) -> Arm:
    """Return a random arm; the file states no damping and another payload.

    sprung: a spring holds each joint near zero, of 0.3 to 3 times the stiffness that the weight has. The file states
    another one, and the right payload.
    """
    count, values = int(rng.integers(2, 4)), dict[str, float]()
    payload = rng.uniform(0.05, 0.4)
    given_payload = payload if sprung else 0.1
    radius, inner = rng.uniform(0.02, 0.035), {"given": "", "true": ""}
    lengths = rng.uniform(0.12, 0.3, count)
    for which, mass in (("given", given_payload), ("true", payload)):
        place = f'pos="0 0 {-lengths[-1]:.5f}"'
        inner[which] = (
            f'<body name="payload" {place}><geom type="sphere" size="{radius:.5f}" mass="{mass:.6f}"/></body>'
        )
    for i in reversed(range(count)):
        name, length, mass = f"joint{i + 1}", lengths[i], rng.uniform(0.1, 0.5)
        tilt, rate = rng.uniform(-0.3, 0.3) * (i > 0), rng.uniform(0.2, 1.0)
        beyond = float(lengths[i:].sum())
        damping = rate * (mass + payload) * beyond**2 / 3.0
        values[f"damping_{name}"] = damping
        place = f'pos="0 0 {-lengths[i - 1]:.5f}"' if i else 'pos="0 0 0.6"'
        link = (
            f'<geom type="box" size="0.014 0.014 {0.5 * length:.5f}" pos="0 0 {-0.5 * length:.5f}" mass="{mass:.6f}"/>'
        )
        stiffness = {"given": 0.0, "true": 0.0}
        if sprung:
            weight = 9.81 * (0.5 * mass + payload) * beyond
            stiffness = {which: weight * float(np.exp(rng.uniform(*np.log([0.3, 3.0])))) for which in stiffness}
            values[f"stiffness_{name}"] = stiffness["true"]
        for which, friction in (("given", 0.0), ("true", damping)):
            spring = f' stiffness="{stiffness[which]:.9f}"' if sprung else ""
            joint = f'<joint name="{name}" axis="{tilt:.4f} 1 0" damping="{friction:.9f}"{spring}/>'
            inner[which] = f'<body name="link{i + 1}" {place}>{joint}{link}{inner[which]}</body>'
    head = '<mujoco><compiler angle="radian"/><option gravity="0 0 -9.81"/><worldbody>'
    texts = {which: f"{head}{body}</worldbody></mujoco>" for which, body in inner.items()}
    start = rng.choice([-1.0, 1.0], count) * rng.uniform(0.4, 1.4, count)
    return Arm(texts["given"], texts["true"], values if sprung else values | {"payload_mass": payload}, start)


def simulator(arm: Arm) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Return the arm in MuJoCo at its start, without contacts."""
    spec = mujoco.MjSpec.from_string(arm.true)
    model = spec.compile()
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    model.opt.timestep, model.opt.integrator = 1.0 / (STEPS * FPS), mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    data.qpos[:] = arm.start
    return model, data


def motion(arm: Arm) -> Array:
    """Return the joint angles [FRAMES, D] by MuJoCo."""
    model, data = simulator(arm)
    found = []
    for _ in range(FRAMES):
        found.append(data.qpos.copy())
        mujoco.mj_step(model, data, STEPS)
    return np.array(found)


def measured(true: Array, body: JointBody, rng: np.random.Generator) -> tuple[Array, ConfigurationMeasurement]:
    """Return the times [T] and the measured angles, with errors as their error model states them."""
    count, size = true.shape
    times, correlation_s = np.arange(count) / FPS, np.full(size, CORRELATION_S)
    std = np.sqrt(0.5) * STD_RAD
    at = true + std * (draw_first_order(rng, times, correlation_s) + rng.normal(size=true.shape))
    own, basis = np.tile(std**2 * np.eye(size), (count, 1, 1)), np.tile(std * np.eye(size), (count, 1, 1))
    return times, ConfigurationMeasurement(at, own, basis, correlation_s, np.ones(count, dtype=bool), "silhouette")


def case(seed: int) -> Case:
    """Return the fit of a random arm."""
    return fitted(random_arm(np.random.default_rng(1000 + seed)), ("joint_damping", "payload"), seed)


def fitted(arm: Arm, fit: tuple[str, ...], seed: int) -> Case:
    """Return the fit of some parameters of an arm, whose joint angles are measured with errors of a seed."""
    system, names = named(Articulated(parse_robot(arm.given, Path("arm.xml"))), fit)
    assert isinstance(system, Articulated)
    still = Actions(np.zeros(1), np.zeros((1, len(system.action_names))), system.input, system.action_names,
                    system.action_units)  # fmt: skip
    return Case(arm.values, *estimates(system, motion(arm), still, names, np.random.default_rng(seed)))


def estimates(
    system: Articulated | Hand, true: Array, actions: Actions, fit: tuple[str, ...], rng: np.random.Generator
) -> tuple[dict[str, Estimate], Status]:
    """Return the estimates of parameters by name, none where the fit did not converge, and the status.

    true: joint angles [T, D] of the frames, which are measured with errors.
    """
    body = JointBody(system)
    times, configuration = measured(true, body, rng)
    nothing = observation_of_nothing(times, body, np.full(len(body.names), CORRELATION_S))
    observation = nothing.with_configurations(np.arange(len(times)), configuration)
    parameters = system.parameters().with_free(fit)
    problem = Problem(system, parameters, observation, np.eye(4), actions=actions, priors={}, body=body)
    near, at = window(times, 0.0), np.asarray(configuration.configuration)
    start, rates = local_fit(times[near], at[near], tricube(times[near], 0.0))
    try:
        solution = configuration_shooting.solve(problem, body, start, rates)
    except (SimulationError, UsageError):
        return {}, Status.NOT_CONVERGED
    if not solution.converged:
        return {}, Status.NOT_CONVERGED
    freedom = float(at.size - 2 * len(start) - len(fit))
    covariance, null = solution.theta_covariance, solution.null_directions
    found = intervals.estimates(solution.parameters, fit, covariance, null, freedom)
    return {each.name: each for each in found if each.name in fit}, Status.CONVERGED
