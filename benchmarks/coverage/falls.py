"""Random bodies in free flight: g, from poses with a tracker's errors. The truth is a parabola and a steady fall."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import Case, box
from benchmarks.coverage.free_fall import Fall
from vid2phys.commands.system_choice import filmed_system
from vid2phys.geometry import quat_normalize
from vid2phys.types import Array, Camera

FIT = ("gravity",)
_FPS = 60.0


def case(seed: int) -> Case:
    """Return the fit of a random fall: of a cube, which rotates steadily."""
    return fallen(np.random.default_rng([seed, 73]), np.array([0.3, -0.9, 0.25]), lambda camera: camera)


def fallen(rng: np.random.Generator, towards: Array, file_of: Callable[[Camera], Camera]) -> Case:
    """Return the fit of a random fall.

    towards: direction [3] of the camera. file_of: returns what the camera file states of the camera that films.
    """
    side, count = float(rng.uniform(0.04, 0.15)), int(rng.integers(20, 50))
    mesh = box(np.full(3, side))
    gravity, times = float(rng.uniform(9.7, 9.9)), np.arange(count) / _FPS
    velocity, spin = rng.normal(0.0, 0.7, 3), rng.normal(0.0, 4.0, 3)
    velocity[2] += 1.5
    place = np.array([0.0, 0.0, 1.0]), quat_normalize(rng.normal(size=4))
    states = Fall(place, velocity, spin, gravity).states(times)
    camera = rigid.camera_beside(states, float(rng.uniform(9.0, 22.0)) * side, towards)
    system = filmed_system("rigid_contact", mesh, None, FIT)
    result = rigid.identified(rng, system, mesh, file_of(camera), times, states, FIT, {}, None, camera)
    return Case.of(result, {"gravity": gravity})
