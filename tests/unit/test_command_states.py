"""The table's states by the user's command: places and axes of a known frame come back, whatever is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import state_by_command
from experiments.bodies import entries
from experiments.body_adapter import Frames
from experiments.result_cache import model_of_command, own_model
from experiments.rigid import RigidAdapter, project
from experiments.state_by_command import CommandEstimator
from vid2phys.commands.control import Target
from vid2phys.errors import InputError
from vid2phys.geometry import quat_from_matrix


def one_frame(adapter: RigidAdapter) -> Frames:
    rng = np.random.default_rng(3)
    states = adapter.sample(rng, 1)
    image = np.zeros((1, 160, 160, 3), np.uint8)
    return Frames(image, adapter.cameras(rng, states), states, np.zeros(1, np.int64))


def cube() -> RigidAdapter:
    (entry,) = entries(("cube-plain",))
    adapter = entry.make(Path("unused"))
    assert isinstance(adapter, RigidAdapter)
    return adapter


def test_a_pose_of_the_world_is_the_state_and_the_hint_is_about_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, hints = cube(), list[Any]()
    frames = one_frame(adapter)
    truth = frames.states[0]

    def read(inputs: Any, start: Any, config: Any) -> Target:
        hints.append(inputs.hint.corners)
        quat = quat_from_matrix(truth[:3, :3])
        pose = {f"orientation_quat_{axis}": float(value) for axis, value in zip("wxyz", quat, strict=True)}
        pose |= {f"position_{axis}_m": float(value) for axis, value in zip("xyz", truth[:3, 3], strict=True)}
        return Target(np.zeros((1, 3)), np.zeros((1, 3)), pose, 0.0, 0.1, ())

    monkeypatch.setattr(state_by_command, "read_target", read)
    estimator = CommandEstimator(adapter, None, [])
    found = estimator.estimate(frames, 0).states
    assert found is not None
    np.testing.assert_allclose(found[0], truth, atol=1e-12)
    assert estimator.found == [True]
    left, top, right, bottom = hints[0]
    x, y = project(frames.cameras[0], truth[:3, 3])
    assert left < x < right
    assert top < y < bottom


def test_a_body_that_is_not_found_is_not_rotated_in_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = cube()
    frames = one_frame(adapter)

    def nothing(*_: Any) -> Target:
        raise InputError("nothing", "a body")

    monkeypatch.setattr(state_by_command, "read_target", nothing)
    estimator = CommandEstimator(adapter, None, [])
    found = estimator.estimate(frames, 0).states
    assert found is not None
    np.testing.assert_allclose(found[0, :3, :3], np.eye(3), atol=1e-12)
    assert np.linalg.norm(found[0, :3, 3] - frames.states[0, :3, 3]) < 4.0 * adapter.radius_m
    assert estimator.found == [False]


def test_the_command_takes_a_model_of_the_meshs_shape() -> None:
    """No model of the textured cube is shipped: the plain one has its shape."""
    textured, plain, hand = entries(("cube", "cube-plain", "hand"))
    assert own_model(textured) is None
    found = model_of_command(textured), model_of_command(plain), model_of_command(hand)
    assert [folder and folder.name for folder in found] == ["cube", "cube", "hand"]
