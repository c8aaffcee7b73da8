"""No method of a table is given what its user would not have: the truth as a start, or the body's true place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments import method_inputs
from experiments.bodies import entries
from experiments.by_identify import Clip
from experiments.experiments import Experiment, unknown_of
from experiments.footage import Footage
from experiments.identification import COMMAND
from experiments.method_inputs import looked_for, places
from experiments.rigid import ASIDE, SIZE
from experiments.risp_table2 import Bench
from experiments.table import Setting
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.error_model import Calibration
from vid2phys.geometry import look_at
from vid2phys.risp.shape.rotation_groups import cyclic
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera

NAMES = ("quadrotor", "cube-plain", "hand")


def truth_of(name: str) -> Array:
    return np.full(len(unknown_of(name).names), unknown_of(name).truth)


@pytest.mark.parametrize("name", NAMES)
def test_starts_do_not_follow_the_truth(name: str, tmp_path: Path) -> None:
    (entry,) = entries((name,))
    given = Setting(True, tmp_path / "out", tmp_path / "work", TrainingProgress(quiet=True), (name,), (COMMAND,))
    of_paper, of_random = (
        [Bench(entry, truth, given)._case(i, with_images=False) for i in range(4)] for truth in ("paper", "random")
    )
    for one, other in zip(of_paper, of_random, strict=True):
        np.testing.assert_array_equal(one.start, other.start)
        assert not np.array_equal(one.experiment.truth, other.experiment.truth)
    starts = np.array([case.start for case in of_paper])
    draws = np.array([unknown_of(name).draw(np.random.default_rng(i)) for i in range(200)])
    assert np.abs(starts - truth_of(name)).max() > 0.5 * draws.std()
    assert len(np.unique(starts, axis=0)) == 4


def test_places_err_as_a_trackers_do() -> None:
    K = np.array([[700.0, 0.0, 319.5], [0.0, 700.0, 239.5], [0.0, 0.0, 1.0]])
    camera = Camera(K, 640, 480, camera_to_world=look_at(np.array([0.0, -2.0, 0.0]), np.zeros(3)))
    centers, radii = looked_for(camera, np.zeros((2000, 3)), 0.1, 0)
    true = np.arcsin(0.1 / 2.0)
    assert np.log(radii / true).std() == pytest.approx(SIZE, rel=0.1)
    aside = centers / (6.0 * np.tan(true) * 0.5)  # shares of a view, which is three radii wide to each side
    np.testing.assert_allclose(aside.std(axis=0), ASIDE, rtol=0.1)
    np.testing.assert_allclose(aside.mean(axis=0), 0.0, atol=0.1 * ASIDE)


def test_places_of_a_table_are_not_the_true_ones(tmp_path: Path) -> None:
    (entry,) = entries(("cube-plain",))
    experiment = Experiment.of(entry, tmp_path, truth_of("cube-plain"), 10)
    (first, _), (second, _) = places(experiment, 0), places(experiment, 1)
    assert (np.abs(first - second).max(axis=1) > 1e-4).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_command_is_given_nothing_that_follows_from_the_truth(name: str, tmp_path: Path) -> None:
    (entry,) = entries((name,))
    experiment = Experiment.of(entry, tmp_path, truth_of(name), 10)
    camera = experiment.camera
    black = np.zeros((len(experiment.shown), camera.height, camera.width, 3), np.uint8)
    start = unknown_of(name).draw(np.random.default_rng(1))
    clips = [
        Clip.of(each, Footage(black, black[0]), None, start)
        for each in (experiment, replace(experiment, truth=1.3 * experiment.truth))
    ]
    one, other = (clip.inputs.known for clip in clips)
    np.testing.assert_array_equal(one.parameters.vector, other.parameters.vector)
    assert one.priors == other.priors
    asked = [one.parameters[name].value for name in clips[0].asked]
    np.testing.assert_allclose(unknown_of(name).from_si(np.array(asked)), start, rtol=1e-9)


def test_the_orientation_of_a_later_frame_is_not_known(tmp_path: Path) -> None:
    """A symmetric body is named by its known first state alone, and only where the first frame shows it."""
    (entry,) = entries(("cube-plain",))
    experiment, turns = Experiment.of(entry, tmp_path, truth_of("cube-plain"), 10), cyclic(4)
    model: Any = SimpleNamespace(rotations=turns, permutation=np.tile(np.arange(8), (4, 1)), center=np.zeros(3))
    nothing = Track.of_nothing(experiment.plan.times_s, np.zeros((8, 3)), Calibration(), np.zeros(4))
    known = method_inputs._known_rotation(experiment)
    poses = nothing.poses.pose.copy()
    poses.rotation[:], poses.translation[:] = known @ turns[1], [0.0, 0.0, 1.0]
    read = replace(nothing, poses=replace(nothing.poses, pose=poses), tracked=np.ones(len(poses), bool))
    named = method_inputs._in_known_branch(experiment, read, model)
    np.testing.assert_allclose(named.poses.rotation[0], known, atol=1e-9)
    lost = replace(read, tracked=np.arange(len(poses)) > 0)
    np.testing.assert_array_equal(
        method_inputs._in_known_branch(experiment, lost, model).poses.rotation, poses.rotation
    )
