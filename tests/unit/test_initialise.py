"""First states across a gap in what was seen, and the first mass of a body that recorded forces push."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trimesh

from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.geometry import angle_between, quat_from_rotvec
from vid2phys.solvers.initialise import bridged, with_mass_by_pushes
from vid2phys.solvers.problem import Problem
from vid2phys.types import Actions, Array, Mesh


def test_a_long_gap_is_bridged_on_the_straight_way() -> None:
    times = np.arange(40) / 30.0
    axis = np.array([0.3, -0.5, 0.8])
    true = np.zeros((40, 13))
    true[:, :3] = np.array([1.0, 2.0, 3.0]) + times[:, None] * np.array([0.5, -0.2, 0.1])
    true[:, 3:7] = quat_from_rotvec(times[:, None] * axis)
    true[:, 7:10], true[:, 10:13] = [0.5, -0.2, 0.1], axis
    known = np.ones(40, dtype=bool)
    known[12:31] = False
    wild = true.copy()
    wild[~known] = 1e3
    found = bridged(wild, times, known)
    np.testing.assert_allclose(
        found[:, [0, 1, 2, 7, 8, 9, 10, 11, 12]], true[:, [0, 1, 2, 7, 8, 9, 10, 11, 12]], atol=1e-9
    )
    assert angle_between(found[:, 3:7], true[:, 3:7]).max() < 1e-6
    known[:5] = known[-3:] = False
    found = bridged(wild, times, known)
    np.testing.assert_allclose(found[:5, :7], np.repeat(true[5:6, :7], 5, axis=0))
    assert not found[-3:, 7:].any()


def pushed_problem(force: Array, times_s: Array) -> Problem:
    """A box whose mass is free and begins at 1 kg, and forces [T - 1, 3] along the world's axes."""
    sides = trimesh.creation.box((0.1, 0.06, 0.04))
    system = ThrownBody(Mesh(np.array(sides.vertices), np.array(sides.faces), np.zeros(12, dtype=np.int64)))
    parameters = system.parameters().with_values({"mass": 1.0, "inertia_xx": 3e-3, "inertia_yy": 2e-3})
    parameters = parameters.with_values({"inertia_zz": 1e-3}, source="mesh").with_free(("mass", "inertia_zz"))
    values = np.hstack([force, np.zeros_like(force)])
    actions = Actions(times_s[:-1], values, "push", system.action_names, system.action_units)
    seen: Any = SimpleNamespace(times_s=times_s, configuration=None)
    priors = {"inertia_zz": (float(np.log(1e-3)), 0.5), "inertia_xx": (float(np.log(3e-3)), 0.5)}
    return Problem(system, parameters, seen, np.eye(4), actions, priors)


def test_a_mass_begins_where_pushes_explain_the_motion() -> None:
    times, rng = np.arange(61) / 60.0, np.random.default_rng(2)
    force = np.where((times[:-1, None] > 0.2) & (times[:-1, None] < 0.4), [3.0, -1.0, 2.0], 0.0)
    velocity = np.array([0.1, 0.2, -0.3]) + np.vstack([np.zeros(3), np.cumsum(force / 0.4, axis=0) / 60.0])
    velocity[:, 2] -= 9.81 * times
    states = np.zeros((61, 13))
    states[1:, :3] = np.cumsum(0.5 * (velocity[1:] + velocity[:-1]), axis=0) / 60.0
    states[:, 3] = 1.0
    problem = pushed_problem(force, times)
    found = with_mass_by_pushes(problem, states)
    assert found.parameters["mass"].value == pytest.approx(0.4, rel=1e-3)
    assert found.parameters["inertia_zz"].value == pytest.approx(4e-4, rel=1e-3), "of the mesh, so it follows"
    assert found.parameters["inertia_xx"].value == 3e-3, "given"
    assert found.priors["inertia_zz"] == pytest.approx((np.log(4e-4), 0.5), rel=1e-3)
    assert found.priors["inertia_xx"] == problem.priors["inertia_xx"]
    states[:, :3] += rng.normal(0.0, 1e-3, (61, 3))
    assert with_mass_by_pushes(problem, states).parameters["mass"].value == pytest.approx(0.4, rel=0.01)
    states[:, :3] = -states[:, :3]
    states[:, 2] -= 9.81 * times**2
    assert with_mass_by_pushes(problem, states) is problem, "no mass moves against the force"
    assert with_mass_by_pushes(replace(problem, actions=None), states).actions is None
