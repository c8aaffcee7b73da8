"""Random boxes that are dropped and pushed along the ground by a known force: mass, springs of contact and friction.

Sizes, masses, springs and pushes are as in gradSim's table 2: a box falls by a few centimetres and is pushed for 50 ms.
The truth rolls on the springs that the fit has, in steps of 0.08 ms. `identify --actions push.csv --fit
mass,k_e,k_d,k_f,mu` is given nothing but the push.
"""

from __future__ import annotations

import numpy as np

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import Case, box
from benchmarks.coverage.springs import known_of, rolled
from vid2phys.commands.system_choice import filmed_system
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.errors import Vid2PhysError
from vid2phys.geometry import quat_from_rotvec
from vid2phys.types import Actions, Status

FIT = ("mass", "k_e", "k_d", "k_f", "mu")
_RANGES = {"mass": (0.12, 0.36), "k_d": (0.4, 1.6), "k_e": (150.0, 600.0), "k_f": (0.2, 0.8), "mu": (0.2, 0.8)}
_FPS, _STEPS, _FRAMES, _FIRST, _PUSHED = 60.0, 200, 48, 10, 3  # steps of the truth in a frame; frames before the push
_SIDES_M, _SPEED_M_S = (0.07, 0.13), (0.8, 1.6)  # of the box; that the push would give a box of 200 g


def case(seed: int) -> Case:
    """Return the fit of a random push."""
    rng = np.random.default_rng([seed, 82])
    mesh = box(rng.uniform(*_SIDES_M, 3))
    truth = {name: float(np.exp(rng.uniform(*np.log(ends)))) for name, ends in _RANGES.items()}
    times = np.arange(_FRAMES) / _FPS
    way, speed = rng.uniform(-np.pi, np.pi), rng.uniform(*_SPEED_M_S)
    forces = np.zeros((_FRAMES - 1, 3))
    forces[_FIRST : _FIRST + _PUSHED, :2] = 0.2 * speed * _FPS / _PUSHED * np.array([np.cos(way), np.sin(way)])
    system = filmed_system("rigid_contact", mesh, None, FIT)
    assert isinstance(system, ThrownBody)
    pushes = np.hstack([forces, np.zeros_like(forces)])  # no torques
    actions = Actions(times[:-1], pushes, "push", system.action_names, system.action_units)
    known = known_of(system, mesh, truth)
    start = system.rest_state()
    start[2] = -float(mesh.vertices[:, 2].min()) + rng.uniform(0.01, 0.03)
    start[3:7] = quat_from_rotvec(np.array([*rng.uniform(-0.03, 0.03, 2), rng.uniform(-3.0, 3.0)]))
    states = rolled(system, known, start, times, _STEPS, forces)
    camera = rigid.camera_beside(states, float(rng.uniform(9.0, 18.0)) * mesh.radius_m, np.array([0.3, -0.9, 0.45]))
    try:
        return Case.of(rigid.identified(rng, system, mesh, camera, times, states, FIT, {}, actions), truth)
    except Vid2PhysError:
        return Case(truth, {}, Status.NOT_CONVERGED)
