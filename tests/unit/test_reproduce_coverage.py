"""Whether intervals hold: motions drawn at random, what `identify` says of them, and how it is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import risp_coverage
from experiments.bodies import entries
from experiments.by_identify import Clip, intervals_of
from experiments.experiments import Experiment, Viewpoint
from experiments.footage import Footage
from experiments.random_experiments import BODIES, random_experiment
from experiments.rigid import project
from experiments.risp_coverage import CLIPS, INJECTED, PIXELS, Bench, Trial
from experiments.table import Setting
from experiments.test_renderer import CONFIGURATIONS
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.pose_geometry import pose_modes
from vid2phys.engine.systems.rod import Rod
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose, invert_transform, make_transform, matrix_from_quat
from vid2phys.risp.networks.model_lookup import find_model
from vid2phys.tracking.track import Track
from vid2phys.types import Estimate, Result, Status

SIGMA = 1e-4  # of a point's bearing


def drawn(name: str, folder: Path, seed: int = 0) -> Experiment:
    return random_experiment(entries((name,))[0], folder, np.random.default_rng(seed))


def unfilmed(experiment: Experiment) -> Clip:
    """With black frames, and the shipped model."""
    camera = experiment.camera
    frames = np.zeros((len(experiment.shown), camera.height, camera.width, 3), np.uint8)
    return Clip.of(experiment, Footage(frames, frames[0]), find_model(experiment.adapter.mesh))


def read_exactly(clip: Clip) -> Track:
    """The true motion, and an error model by which points err by `SIGMA`."""
    experiment = clip.experiment
    times = experiment.plan.times_s[experiment.shown]
    points = clip.inputs.network.points_body
    states = experiment.states[experiment.shown]
    at, quats = experiment.plan.system.body_pose(states)
    pose = invert_transform(clip.inputs.camera_to_world) @ make_transform(matrix_from_quat(quats), at)
    nothing = Track.of_nothing(times, points, Calibration(), np.zeros(1))
    shape = (len(times), len(points))
    observation = replace(
        nothing.observation,
        covariance=np.broadcast_to(SIGMA**2 * np.eye(2), (*shape, 2, 2)),
        shared_basis=1e-4 * pose_modes(Pose(pose[:, :3, :3], pose[:, :3, 3]), points),
        visible=np.ones(shape, dtype=bool),
    )
    poses = replace(nothing.poses, pose=Pose(pose[:, :3, :3], pose[:, :3, 3]))
    seen = np.ones(len(times), dtype=bool)
    return replace(nothing, observation=observation, poses=poses, tracked=seen, quality=seen.astype(float))


@pytest.mark.parametrize("name", [name for name in BODIES if name != "rod"])
def test_motions_are_drawn_and_seen(name: str, tmp_path: Path) -> None:
    first, again, other = (drawn(name, tmp_path, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.states, again.states)
    assert first.viewpoint == again.viewpoint != other.viewpoint
    assert not np.array_equal(first.truth, other.truth)
    assert np.abs(first.states - other.states).max() > 0.01
    for experiment in (first, other):
        pixels = project(experiment.camera, experiment.vertices.reshape(-1, 3))
        assert pixels.min() > 0.0
        assert (pixels < [experiment.camera.width, experiment.camera.height]).all()


@pytest.mark.slow
def test_a_stiff_rod_is_pushed_harder(tmp_path: Path) -> None:
    one, other = (drawn("rod", tmp_path, seed) for seed in (0, 1))
    for experiment in (one, other):
        assert isinstance(experiment.plan.system, Rod)
        assert experiment.plan.actions is not None
        # what a load of table 3 moves a rod of 1e5 Pa by, it moves any
        push = np.abs(experiment.plan.actions).max() / 10.0 ** (experiment.truth[0] - 5.0)
        assert 1e-3 < push / experiment.plan.system.load_n(1e5) < 1.0


def test_a_camera_farther_off_sees_it_smaller(tmp_path: Path) -> None:
    near = replace(drawn("quadrotor", tmp_path), viewpoint=Viewpoint(far=1.0))
    far = replace(near, viewpoint=Viewpoint(far=1.5))
    sizes = [np.ptp(project(e.camera, e.vertices[0]), axis=0).max() for e in (near, far)]
    assert sizes[0] / sizes[1] == pytest.approx(1.5, rel=0.05)


def test_variants_of_a_look_have_other_materials() -> None:
    look = CONFIGURATIONS[1]
    assert look.materials([None]) == look.materials([None], 0) != look.materials([None], 1)
    assert look.materials([None], 1) != look.materials([None], 2)


def test_drawn_errors_are_found_as_identify_finds_them(tmp_path: Path) -> None:
    """Intervals of the mass hold, in the paper's unit, and so do those of poses; another branch is no error."""
    clip = unfilmed(drawn("quadrotor", tmp_path))
    track, rng = read_exactly(clip), np.random.default_rng(3)
    noisy = clip.with_drawn_errors(track, rng)
    truth = np.nan_to_num(noisy.observation.bearings)
    assert np.abs(truth).max() > 0.0
    result = clip.identified(noisy, refine=False)
    values, ends = intervals_of(clip, result)
    assert ends[0, 0] < clip.experiment.truth[0] < ends[0, 1]
    assert abs(values[0] - clip.experiment.truth[0]) < 0.02
    held = clip.pose_coverage(result)
    assert held is not None
    assert held > 0.8

    far = replace(result.trajectory, covariance=1e-8 * np.asarray(result.trajectory.covariance))
    assert clip.pose_coverage(replace(result, trajectory=far)) < 0.1  # type: ignore[operator]


def test_poses_of_a_plain_cube_are_judged_up_to_its_turns(tmp_path: Path) -> None:
    clip = unfilmed(drawn("cube-plain", tmp_path))
    assert clip.inputs.actions is None
    result = clip.identified(clip.with_drawn_errors(read_exactly(clip), np.random.default_rng(0)), refine=False)
    held = clip.pose_coverage(result)
    turned = result.trajectory.states.copy()
    w, x, y, z = turned[:, 3:7].T
    turned[:, 3:7] = np.sqrt(0.5) * np.stack([w - z, x + y, y - x, z + w], axis=1)  # a quarter turn about its own z
    again = clip.pose_coverage(replace(result, trajectory=replace(result.trajectory, states=turned)))
    assert held is not None
    assert again is not None
    assert held > 0.8
    assert again == pytest.approx(held, abs=0.1)
    assert intervals_of(clip, result)[0].size == 0


@pytest.mark.slow
def test_intervals_are_in_the_papers_units(tmp_path: Path) -> None:
    clip = Clip(drawn("rod", tmp_path), None, ("young_modulus",))  # type: ignore[arg-type]
    estimate = Estimate("young_modulus", "Pa", 1e5, (1e4, 1e6), True)
    result = Result(Status.CONVERGED, "", "rod", (estimate,), None, None, None, None, {"notes": []})  # type: ignore[arg-type]
    values, ends = intervals_of(clip, result)
    assert values == pytest.approx([5.0])
    assert ends == pytest.approx(np.array([[4.0, 6.0]]))


def bench(tmp_path: Path, method: str = INJECTED, name: str = "quadrotor") -> Bench:
    setting = Setting(True, tmp_path / "out", tmp_path / "work", TrainingProgress(), (name,), (method,))
    return Bench(risp_coverage._cell(entries((name,))[0], method, "every frame", setting))


def test_trials_are_counted_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [Trial((0.1,), (0.05,), (False,), 0.9), Trial((-0.02,), (0.05,), (True,), 0.7, warned=True)]
    made: list[int] = []

    def make(index: int) -> Trial:
        made.append(index)
        return trials[index]

    first = bench(tmp_path)
    monkeypatch.setattr(first, "_plan", lambda: (2, make))
    rows = {row["metric"]: row for row in first.rows()}
    assert rows["held_share"]["value"] == 0.5
    assert rows["mass_error_rms"]["value"] == pytest.approx(np.sqrt((0.01 + 0.0004) / 2.0), rel=1e-4)
    assert rows["mass_error_rms"]["bias"] == pytest.approx(0.04)
    assert rows["mass_error_rms"]["spread"] == pytest.approx(0.06)
    assert rows["over_stated"]["value"] == pytest.approx(1.2)
    assert rows["poses_held_share"]["value"] == pytest.approx(0.8)
    assert rows["warned_share"]["value"] == 0.5

    again = bench(tmp_path)
    monkeypatch.setattr(again, "_plan", lambda: (2, make))
    assert {row["metric"]: row for row in again.rows()} == rows
    assert made == [0, 1]


def test_what_comes_to_nothing_is_named_and_not_counted(tmp_path: Path) -> None:
    def lost() -> tuple[Clip, Result]:
        raise InputError("nothing is there", "a body", "film it")

    trial = risp_coverage._judged(lost)
    assert trial.failure is not None
    rows = bench(tmp_path)._scored([trial])
    assert (rows[0]["value"], rows[0]["failed"]) == (None, 1)
    assert rows[0]["reason"] == trial.failure
    rows = bench(tmp_path)._scored([trial, Trial((0.1,), (np.inf,), (True,))])
    assert {row["metric"]: row for row in rows}["held_share"]["told_nothing"] == 1
    assert rows[0]["failed"] == 1


def test_there_are_enough_of_them_to_tell_90_from_95_percent() -> None:
    assert set(CLIPS) == set(BODIES)
    assert sum(CLIPS.values()) >= 100
    assert risp_coverage.REPEATS >= 200


def test_a_table_names_what_is_missing_and_draws_the_rest(tmp_path: Path) -> None:
    setting = Setting(False, tmp_path / "out", tmp_path / "work", TrainingProgress(), ("rod",), ())
    setting.out.mkdir()
    cell = risp_coverage._cell(entries(("quadrotor",))[0], PIXELS, "every frame", setting)
    cell.keep([{"system": "quadrotor", "method": f"{PIXELS}, every frame", "metric": "held_share", "value": 0.9,
                "std": None, "n": 40, "unit": "1", "paper": None}])  # fmt: skip
    nothing = replace(setting, bodies=("quadrotor",), methods=(PIXELS,))
    cells = [risp_coverage._cell(e, m, label, nothing) for e, m, label in risp_coverage._all()]
    assert sum(c.rows() is not None for c in cells) == 1
    risp_coverage.draw(cell.rows() or [], tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 5000
    assert json.dumps(cell.rows())


def test_held_clips_are_what_a_user_films(tmp_path: Path) -> None:
    """Times of the frames that are shown, and actions that cover them."""
    experiment = replace(drawn("quadrotor", tmp_path), only=tuple(range(0, 37, 4)))
    clip = unfilmed(experiment)
    assert len(clip.inputs.clip.times_s) == 10
    assert clip.inputs.actions is not None
    ends = clip.inputs.actions.times_s[[0, -1]] + [0.0, experiment.plan.step_s]
    assert ends == pytest.approx(clip.inputs.clip.times_s[[0, -1]])
