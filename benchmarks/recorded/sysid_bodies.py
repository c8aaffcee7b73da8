"""MuJoCo models of the bodies of clips with known states, and what is unknown of them.

A thrown body: friction, and the spring of the contact as MuJoCo states it, by time constant and damping ratio (solref).
The cone is elliptic, and friction 100 times as stiff as the normal (impratio), so that a body at rest hardly creeps.
MuJoCo has no restitution: `restitution` measures that of a fitted model in a head-on drop.

A bar on a hinge: length and damping. A robot: damping of each joint and the payload's mass.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from benchmarks.recorded.sysid_fit import Unknown
from vid2phys import geometry
from vid2phys.types import Array

DROP_M_S = 2.0  # about the speed of the clips' first impacts
_GAP_M, _LONGEST_S = 1e-3, 0.2  # of the drop: where it begins, and how long a contact may last
_GEOMS = ("ground", "body")
_THROWN = """<mujoco><option cone="elliptic" impratio="100" integrator="implicitfast"/><worldbody>
  <geom name="ground" type="plane" size="5 5 1"/>
  <body><freejoint/><inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia}"/>
  <geom name="body" type="{shape}" size="{size}"/></body></worldbody></mujoco>"""
_HINGE = """<mujoco><option integrator="RK4"/><worldbody><body name="bar"><joint name="hinge" axis="0 1 0"/>
  <inertial pos="0 0 -{length}" mass="{mass}" diaginertia="{inertia}"/></body></worldbody></mujoco>"""


def thrown(shape: str, half: Array, mass: float, inertia: Array) -> tuple[mujoco.MjSpec, list[Unknown]]:
    """Return a box or a sphere over the plane z = 0, and the unknowns of its contact. half: sides [3] or the radius."""
    scene = _THROWN.format(mass=mass, inertia=_text(inertia), shape=shape, size=_text(half))
    unknowns = [
        Unknown("mu", "1", 0.01, 2.0, 0.3, _of_geoms("friction", 0)),
        Unknown("time_constant", "s", 5e-4, 0.05, 4e-3, _of_geoms("solref", 0)),
        Unknown("damping_ratio", "1", 0.01, 2.0, 0.3, _of_geoms("solref", 1)),
    ]
    return mujoco.MjSpec.from_string(scene), unknowns


def hinge(mass: float, inertia: Array, begin_m: float) -> tuple[mujoco.MjSpec, list[Unknown]]:
    """Return a bar on a hinge along y. begin_m: the first guess of the length from hinge to centre of mass."""
    scene = _HINGE.format(length=begin_m, mass=mass, inertia=_text(inertia))
    unknowns = [Unknown("length", "m", 0.01, 1.0, begin_m, _length), _damping("hinge", "damping")]
    return mujoco.MjSpec.from_string(scene), unknowns


def arm(urdf: Path) -> tuple[mujoco.MjSpec, list[Unknown]]:
    """Return a robot whose last body is its payload, and the damping of its joints and the payload's mass."""
    spec = mujoco.MjSpec.from_file(str(urdf))
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.compiler.fusestatic = False  # so that the payload stays a body
    payload = spec.bodies[-1]
    unknowns = [_damping(joint.name, f"damping_{joint.name}") for joint in spec.joints]
    write = _payload(payload.name, payload.mass, payload.fullinertia.copy())
    return spec, [*unknowns, Unknown("payload_mass", "kg", 1e-3, 10.0, payload.mass, write)]


def restitution(model: mujoco.MjModel) -> float:
    """Return the speed after over that before a head-on impact of a body that falls onto a corner straight below."""
    data, size = mujoco.MjData(model), model.geom("body").size
    data.qpos[2] = np.linalg.norm(size) + _GAP_M
    data.qpos[3:7] = geometry.quat_conjugate(geometry.quat_from_matrix(geometry.shortest_rotation(size)))
    data.qvel[2] = -DROP_M_S
    before, touched = DROP_M_S, False
    for _ in range(int(_LONGEST_S / model.opt.timestep)):
        before = before if touched else -float(data.qvel[2])
        mujoco.mj_step(model, data)
        touched = touched or data.ncon > 0
        if touched and data.ncon == 0 and data.qvel[2] > 0.0:
            return float(data.qvel[2]) / before
    return 0.0


def _of_geoms(field: str, index: int) -> Callable[[mujoco.MjSpec, float], None]:
    def write(spec: mujoco.MjSpec, value: float) -> None:
        for name in _GEOMS:
            getattr(spec.geom(name), field)[index] = value

    return write


def _length(spec: mujoco.MjSpec, value: float) -> None:
    spec.body("bar").ipos[2] = -value


def _damping(joint: str, name: str) -> Unknown:
    def write(spec: mujoco.MjSpec, value: float) -> None:
        spec.joint(joint).damping[0] = value

    return Unknown(name, "N m s/rad", 1e-6, 1.0, 0.01, write)


def _payload(name: str, mass: float, inertia: Array) -> Callable[[mujoco.MjSpec, float], None]:
    """Return what sets the payload's mass; its inertia grows with it, since its size is known."""

    def write(spec: mujoco.MjSpec, value: float) -> None:
        spec.body(name).mass = value
        spec.body(name).fullinertia = inertia * (value / mass)

    return write


def _text(values: Any) -> str:
    return " ".join(f"{value:.9g}" for value in values)
