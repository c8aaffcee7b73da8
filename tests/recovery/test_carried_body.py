"""A body that a hand moves is told from one that is thrown, by the evidence of both."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import box
from benchmarks.coverage.free_fall import Fall
from vid2phys.commands.identify.fit import CARRIED
from vid2phys.commands.system_choice import filmed_system
from vid2phys.geometry import quat_from_rotvec
from vid2phys.types import Array, Result

GRAVITY = 9.81
MESH = box(np.full(3, 0.08))
TIMES = np.arange(75) / 30.0


def fitted(states: Array) -> Result:
    """Return what `identify` makes of states [T, 13]."""
    middle = states[:, :3].mean(axis=0)
    camera = rigid.camera_at(middle + np.array([0.2, -1.1, 0.25]), middle)
    system = filmed_system("rigid_contact", MESH, None, ())
    return rigid.identified(np.random.default_rng(3), system, MESH, camera, TIMES, states, (), {"mass": 0.2}, None)


def in_a_hand() -> Array:
    """States of a body that a hand moves to and fro, and rotates."""
    states, phase = np.zeros((len(TIMES), 13)), TIMES[:, None] * np.array([3.0, 2.2, 4.1])
    states[:, :3] = 0.06 * np.sin(phase)
    states[:, 7:10] = 0.06 * np.array([3.0, 2.2, 4.1]) * np.cos(phase)
    states[:, 3:7] = quat_from_rotvec(0.3 * np.sin(2.5 * TIMES)[:, None] * np.array([0.0, 0.0, 1.0]))
    states[:, 12] = 0.75 * np.cos(2.5 * TIMES)
    return states


def test_a_hand_carries_the_weight_and_its_forces_are_found() -> None:
    states = in_a_hand()
    result = fitted(states)
    assert CARRIED in result.diagnostics["notes"]
    assert result.actions is not None
    lift = result.actions.values[:, 2] / 0.2
    true = GRAVITY - 0.06 * 4.1**2 * np.sin(4.1 * (TIMES[:-1] + 0.5 / 30.0))
    assert lift.mean() == pytest.approx(true.mean(), abs=0.1)
    assert np.sqrt(np.mean((lift - true)[5:-5] ** 2)) < 0.35
    off = np.linalg.norm(result.trajectory.states[:, :3] - states[:, :3], axis=1)
    assert np.median(off) < 6e-3


def test_a_thrown_body_is_not_carried() -> None:
    start = np.array([0.0, 0.0, 1.0]), quat_from_rotvec(np.array([0.4, -0.3, 0.9]))
    states = Fall(start, np.array([0.3, 0.1, 2.5]), np.array([1.0, 2.0, 0.5]), GRAVITY).states(TIMES[:20])
    lying = np.repeat(states[-1:], len(TIMES) - 20, axis=0)
    lying[:, 7:13] = 0.0
    result = fitted(np.concatenate([states, lying]))
    assert CARRIED not in result.diagnostics["notes"]
