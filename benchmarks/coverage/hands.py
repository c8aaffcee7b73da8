"""The hand with random joint stiffnesses, driven by known torques: how often intervals of stiffness hold the truth.

Torques are random processes that last 0.3 s. The motion is that of the fitted system with finer steps; joint angles are
measured with the errors of `arms`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.coverage.arms import FPS, FRAMES, estimates
from benchmarks.coverage.cases import Case
from vid2phys.commands.fit_parameters import named
from vid2phys.engine.constants import RISP_HAND
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.hand import Hand, finger_joints
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.types import Actions

_STIFFNESS, _DEFLECTION_RAD, _LASTING_S = (0.1, 1.6), 0.25, 0.3  # N m/rad; standard deviation at rest; of a torque
_SUBSTEPS = 64


def case(seed: int) -> Case:
    """Return the fit of the stiffnesses of a hand."""
    rng = np.random.default_rng([seed, 81])
    system, fit = named(Hand(), ("joint_stiffness",))
    assert isinstance(system, Hand)
    body, times = JointBody(system), np.arange(FRAMES) / FPS
    truth = {name: float(np.exp(rng.uniform(*np.log(_STIFFNESS)))) for name in fit}
    values = system.parameters().with_values(truth)
    stiffness = {joint: truth[name] for i, name in enumerate(fit) for joint in finger_joints(RISP_HAND, i)}
    of_joints = np.array([stiffness[joint] for joint in body.names])
    count = len(system.action_names)
    torques = _DEFLECTION_RAD * of_joints * draw_first_order(rng, times, np.full(count, _LASTING_S))
    rest = body.states(np.asarray(body.rest)[None], np.zeros((1, count)))
    controls = np.hstack([torques, np.zeros_like(torques)])[None, :-1]  # torques, then disturbances
    states = simulate(system, rest, controls, values.vector, 1.0 / FPS, substeps=_SUBSTEPS)
    actions = Actions(times, torques, system.input, system.action_names, system.action_units)
    return Case(truth, *estimates(system, states[0][:, :count], actions, fit, rng))
