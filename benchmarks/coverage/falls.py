"""Random bodies in free flight: g, from poses with a tracker's errors. The truth is a parabola and a steady fall."""

from __future__ import annotations

import numpy as np

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import Case, box
from vid2phys.commands.system_choice import filmed_system
from vid2phys.geometry import quat_from_rotvec, quat_multiply, quat_normalize
from vid2phys.types import Array

FIT = ("gravity",)
_FPS = 60.0


def case(seed: int) -> Case:
    """Return the fit of a random fall: of a cube, which rotates steadily."""
    rng = np.random.default_rng([seed, 73])
    side, count = float(rng.uniform(0.04, 0.15)), int(rng.integers(20, 50))
    mesh = box(np.full(3, side))
    gravity, times = float(rng.uniform(9.7, 9.9)), np.arange(count) / _FPS
    velocity, spin = rng.normal(0.0, 0.7, 3), rng.normal(0.0, 4.0, 3)
    velocity[2] += 1.5
    states = _states(rng, times, velocity, spin, gravity)
    middle = states[:, :3].mean(axis=0)
    far = float(rng.uniform(9.0, 22.0)) * side + np.linalg.norm(states[:, :3] - middle, axis=1).max()
    camera = rigid.camera_at(middle + far * np.array([0.3, -0.9, 0.25]), middle)
    system = filmed_system("rigid_contact", mesh, None, FIT)
    result = rigid.identified(rng, system, mesh, camera, times, states, FIT, {}, None)
    return Case.of(result, {"gravity": gravity})


def _states(rng: np.random.Generator, times: Array, velocity: Array, spin: Array, gravity: float) -> Array:
    """Return the states [T, 13] of a fall that begins at random, with angular velocity in body axes."""
    states = np.zeros((len(times), 13))
    states[:, :3] = np.array([0.0, 0.0, 1.0]) + times[:, None] * velocity
    states[:, 2] -= 0.5 * gravity * times**2
    states[:, 7:10] = velocity - times[:, None] * [0.0, 0.0, gravity]
    start = quat_normalize(rng.normal(size=4))
    states[:, 3:7] = quat_multiply(start, quat_from_rotvec(times[:, None] * spin))
    states[:, 10:13] = spin
    return states
