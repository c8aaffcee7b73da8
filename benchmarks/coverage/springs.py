"""Random boxes that bounce on springs: stiffness of contact, from poses with a tracker's errors.

A mass on one spring would touch it for 15 to 40 ms. The truth rolls on the springs that the fit has, in steps of 0.08
ms, and lands as it is thrown. `identify --fit k_e` is given mass, friction and damping, but not the first state.
"""

from __future__ import annotations

import numpy as np

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import Case, box
from vid2phys.commands.fit_parameters import INERTIA
from vid2phys.commands.system_choice import filmed_system
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.errors import Vid2PhysError
from vid2phys.geometry import quat_normalize
from vid2phys.io.mesh import mass_properties
from vid2phys.types import Array, Mesh, Parameters, Status

FIT = ("k_e",)
_FPS, _STEPS = 60.0, 200  # steps of the truth in a frame interval
_CONTACT_S, _STIFFNESS = (0.015, 0.040), (300.0, 4000.0)


def case(seed: int) -> Case:
    """Return the fit of a random bounce."""
    rng = np.random.default_rng([seed, 87])
    mesh = box(rng.uniform(0.05, 0.11, 3))
    stiffness = float(np.exp(rng.uniform(*np.log(_STIFFNESS))))
    mass = stiffness * (float(rng.uniform(*_CONTACT_S)) / np.pi) ** 2
    damping = 0.05 * float(np.sqrt(mass * stiffness))
    given = {"mass": mass, "mu": float(rng.uniform(0.2, 0.7)), "k_d": damping, "k_f": damping, "gravity": 9.81}
    system = filmed_system("rigid_contact", mesh, None, FIT)
    assert isinstance(system, ThrownBody)
    truth, times = {"k_e": stiffness}, np.arange(int(rng.integers(20, 32))) / _FPS
    states = _bounce(rng, system, mesh, given | truth, times)
    far_m = float(rng.uniform(9.0, 18.0)) * mesh.radius_m
    camera = rigid.camera_beside(states, far_m, np.array([0.3, -0.9, 0.25]))
    try:
        return Case.of(rigid.identified(rng, system, mesh, camera, times, states, FIT, given, None), truth)
    except Vid2PhysError:
        return Case(truth, {}, Status.NOT_CONVERGED)


def _bounce(rng: np.random.Generator, system: ThrownBody, mesh: Mesh, given: dict[str, float], times_s: Array) -> Array:
    """Return states [T, 13] of the body, which is thrown onto the ground."""
    known = known_of(system, mesh, given)
    start = system.rest_state()
    start[2], start[3:7] = mesh.radius_m + rng.uniform(0.03, 0.08), quat_normalize(rng.normal(size=4))
    start[7:10] = *rng.uniform(-0.4, 0.4, 2), rng.uniform(-1.0, -0.3)
    start[10:13] = rng.normal(0.0, 3.0, 3)
    return rolled(system, known, start, times_s, _STEPS)


def known_of(system: ThrownBody, mesh: Mesh, given: dict[str, float]) -> Parameters:
    """Return the parameters of a body of uniform density. given: values, with the mass."""
    inertia = given["mass"] * np.diagonal(mass_properties(mesh).inertia_per_mass)
    return system.parameters().with_values(given | dict(zip(INERTIA, inertia.tolist(), strict=True)))


def rolled(
    system: ThrownBody, known: Parameters, start: Array, times_s: Array, steps: int, forces: Array | None = None
) -> Array:
    """Return states [T, 13] at even times [T] of a body on springs, from its first one.

    known: parameters of the body. steps: of the rollout, from one time to the next. forces: [T - 1, 3] along the
    world's axes, N.
    """
    on_springs = system.on_springs(known.vector, has_actions=forces is not None)
    vector = np.array([known[name].value for name in on_springs.parameters().names])
    step_s = np.full(steps * (len(times_s) - 1), (times_s[1] - times_s[0]) / steps)
    controls = np.zeros((1, len(step_s), len(on_springs.control_names)))
    if forces is not None:
        controls[0, :, :3] = np.repeat(forces, steps, axis=0)
    states = simulate(on_springs, system.to_principal(start)[None], controls, vector, step_s)[0]
    return np.asarray(system.from_principal(states[::steps]))
