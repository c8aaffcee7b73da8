"""The run folder, its JSON and its arrays; files that are never half-written; the photographs."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io import files, run
from vid2phys.io.photographs import photograph_names, photographs
from vid2phys.types import ConfigurationMeasurement, Estimate, Observation, Result, Status, Trajectory

STATE_NAMES = (
    "position_x_m",
    "orientation_quat_w",
    "orientation_quat_x",
    "orientation_quat_y",
    "orientation_quat_z",
    "v_m_s",
)
FIT = {"loss": np.float64(1.5), "rms_px": 0.7, "iterations": 12, "seconds": 3.2, "frames_used": 4, "frames_lost": 0}


def trajectory(frames: int = 4) -> Trajectory:
    rng = np.random.default_rng(0)
    covariance = np.einsum("td,de->tde", rng.uniform(0.1, 1.0, (frames, 5)) ** 2, np.eye(5))
    return Trajectory(
        np.arange(frames) / 30, rng.normal(size=(frames, 6)), STATE_NAMES, rng.normal(size=(frames - 1, 2)), covariance
    )


def observation() -> Observation:
    rng = np.random.default_rng(1)
    return Observation(
        np.arange(4) / 30, rng.normal(size=(4, 3, 2)), np.tile(np.eye(2), (4, 3, 1, 1)), rng.normal(size=(4, 3, 2, 6)),
        np.full(6, 0.2), rng.random((4, 3)) > 0.5, rng.normal(size=(3, 3)),
    )  # fmt: skip


def result() -> Result:
    estimates = (
        Estimate("mass", "kg", 0.0405, (0.0399, 0.0411), True),
        Estimate("drag", "N s/m", 0.0, (-np.inf, np.inf), False, True, "default"),
    )
    diagnostics = {
        "offset": np.float32(0.5),
        "null": np.array([1.0, np.nan]),
        "status": Status.LOST,
        "where": Path("a"),
    }
    return Result(
        Status.CONVERGED, "fine", "quadrotor", estimates, trajectory(), None, None, observation(), diagnostics
    )


def test_result_json_follows_its_schema(tmp_path: Path) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"abc")
    data = run.result_to_json(
        result(), {"clip": clip, "actions": None, "fit": ["mass"]}, FIT, {"overlay": "overlay.mp4"}, 7
    )
    run.write_json(tmp_path / "result.json", data)
    again = run.read_json(tmp_path / "result.json")
    run.validate_result(again)
    assert again["schema"] == "vid2phys.result/1"
    assert again["status"] == "converged"
    assert again["parameters"]["mass"] == {
        "value": 0.0405, "unit": "kg", "ci95": [0.0399, 0.0411], "identifiable": True, "at_bound": False,
        "source": "fitted",
    }  # fmt: skip
    assert again["parameters"]["drag"]["ci95"] == [None, None]
    assert again["inputs"]["clip"]["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert "actions" not in again["inputs"]
    assert again["diagnostics"] == {"offset": 0.5, "null": [1.0, None], "status": "lost", "where": "a"}
    assert again["seed"] == 7
    assert {"vid2phys", "python", "numpy"} <= set(again["versions"])


@pytest.mark.parametrize("status", list(Status))
def test_every_status_is_in_the_schema(status: Status) -> None:
    data = run.result_to_json(dataclasses.replace(result(), status=status), {}, FIT, {}, 0)
    run.validate_result(data)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"status": "great"}, "status"),
        ({"schema": "vid2phys.result/2"}, "schema"),
        ({"fit": {}}, "fit"),
        ({"extra": 1}, "the top"),
        ({"parameters": {"mass": {"value": 1.0}}}, "parameters/mass"),
    ],
)
def test_the_schema_refuses(change: dict[str, object], where: str) -> None:
    data = run.result_to_json(result(), {}, FIT, {}, 0)
    with pytest.raises(ValueError, match=f"at {where}"):
        run.validate_result({**data, **change})


def test_metrics_schema() -> None:
    names = run.schema("metrics")["$defs"]["metrics"]["required"]
    assert {"position_rmse_m", "rpe_1s_m", "interval_coverage", "time_offset_s"} <= set(names)
    numbers = {**dict.fromkeys(names, 0.5), "alignment": "time+marker", "frames": 144}
    data = {"schema": "vid2phys.metrics/1", **numbers, "also": {"time": {**numbers, "alignment": "time"}}}
    run.validate_metrics(data)
    for change in (
        {"alignment": "none"},
        {"frames_tracked_fraction": 2.0},
        {"also": {"world": numbers}},
        {"frames": None},
    ):
        with pytest.raises(ValueError, match=r"metrics\.json"):
            run.validate_metrics({**data, **change})


def test_runs_are_never_overwritten(tmp_path: Path) -> None:
    folders = [run.create_run("identify", root=tmp_path) for _ in range(12)]
    assert len(set(folders)) == 12
    with pytest.raises(InputError, match="no run of 'identify'"):
        run.newest_run(root=tmp_path)
    for folder in folders[:11]:
        run.write_json(folder / "result.json", {})
    assert run.newest_run(root=tmp_path) == folders[10]  # the last one has no result
    out = run.create_run("identify", tmp_path / "mine" / "here")
    assert out == tmp_path / "mine" / "here"
    assert run.create_run("identify", out) == out
    (out / "log.txt").write_text("x")
    for taken in (out, out / "log.txt"):
        with pytest.raises(InputError, match="not an empty folder"):
            run.create_run("identify", taken)


def test_trajectory_round_trip(tmp_path: Path) -> None:
    before = trajectory()
    run.save_trajectory(before, tmp_path / "t.csv")
    header = (tmp_path / "t.csv").read_text().splitlines()[0].split(",")
    assert header[7:12] == [
        "std_position_x_m",
        "std_rotation_x_rad",
        "std_rotation_y_rad",
        "std_rotation_z_rad",
        "std_v_m_s",
    ]
    after = run.load_trajectory(tmp_path / "t.csv")
    assert after.state_names == STATE_NAMES
    for name in ("times_s", "states", "controls", "covariance"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-10)
    assert before.controls is not None
    named = [f"force_{i}_N" for i in range(before.controls.shape[1])]
    run.save_trajectory(before, tmp_path / "t.csv", named)
    header = (tmp_path / "t.csv").read_text().splitlines()[0].split(",")
    assert header[-len(named) :] == [f"control_{name}" for name in named]
    np.testing.assert_allclose(np.asarray(run.load_trajectory(tmp_path / "t.csv").controls), before.controls)
    run.save_trajectory(dataclasses.replace(before, controls=None, covariance=None), tmp_path / "t.csv")
    after = run.load_trajectory(tmp_path / "t.csv")
    assert after.controls is None
    assert after.covariance is None
    with pytest.raises(InputError, match="not a trajectory"):
        run.load_trajectory(files.require_file(__file__, "this file"))


def measured(configuration: Pose | np.ndarray) -> ConfigurationMeasurement:
    size = 6 if isinstance(configuration, Pose) else configuration.shape[1]
    covariance, basis = np.tile(np.eye(size), (4, 1, 1)), np.ones((4, size, 6))
    return ConfigurationMeasurement(configuration, covariance, basis, np.full(6, 0.2), np.arange(4) > 1, "contour")


@pytest.mark.parametrize("configuration", [Pose(np.tile(np.eye(3), (4, 1, 1)), np.ones((4, 3))), np.ones((4, 2))])
def test_measured_configurations_round_trip(tmp_path: Path, configuration: Pose | np.ndarray) -> None:
    before = dataclasses.replace(observation(), configuration=measured(configuration))
    run.save_observation(before, tmp_path / "o.npz")
    after = run.load_observation(tmp_path / "o.npz")
    assert before.configuration is not None
    assert after.configuration is not None
    assert after.configuration.source == "contour"
    np.testing.assert_array_equal(after.measured, before.measured)
    np.testing.assert_array_equal(after.configuration.covariance, before.configuration.covariance)
    if isinstance(configuration, Pose):
        np.testing.assert_array_equal(after.configuration.pose.translation, configuration.translation)
    else:
        np.testing.assert_array_equal(after.configuration.configuration, configuration)
    with np.load(tmp_path / "o.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "o.npz", **{**arrays, "measured_covariance": np.full((4, 3, 3), 1.0)})
    with pytest.raises(InputError, match="shape"):
        run.load_observation(tmp_path / "o.npz")
    np.savez(tmp_path / "o.npz", **{n: a for n, a in arrays.items() if not n.startswith("measured_")})
    assert run.load_observation(tmp_path / "o.npz").configuration is None, "as earlier versions wrote it"


def test_observation_round_trip(tmp_path: Path) -> None:
    before = observation()
    run.save_observation(before, tmp_path / "o.npz")
    after = run.load_observation(tmp_path / "o.npz")
    for item in dataclasses.fields(before):
        np.testing.assert_array_equal(getattr(after, item.name), getattr(before, item.name))
    assert after.visible.dtype == np.bool_
    data = (tmp_path / "o.npz").read_bytes()
    for broken in (data[: len(data) // 2], b"abc"):
        (tmp_path / "o.npz").write_bytes(broken)
        with pytest.raises(InputError, match="cannot be read"):
            run.load_observation(tmp_path / "o.npz")
    np.savez(tmp_path / "o.npz", bearings=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="cannot be read"):
        run.load_observation(tmp_path / "o.npz")


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "may not be written")]
)
def test_failed_writes_leave_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: str
) -> None:
    path = tmp_path / "result.json"
    run.write_json(path, {"a": 1})

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match=expected) as caught:
        run.write_json(path, {"a": 2})
    assert "\n" not in str(caught.value)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_interrupted_writes_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        half_write(tmp_path / "new" / "a.txt")
    assert list((tmp_path / "new").iterdir()) == []


def half_write(path: Path) -> None:
    with files.atomic_path(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt


def test_written_files_have_ordinary_permissions(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a.txt", "x")
    (tmp_path / "b.txt").write_text("x")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "half.json").write_text('{"a": [1,')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    cases = {"none": "does not exist", "empty": "is empty", "binary": "not a text file", ".": "is a folder",
             "half.json": "not valid JSON", "list.json": "no JSON object", "deep.json": "not valid JSON"}  # fmt: skip
    for name, expected in cases.items():
        with pytest.raises(InputError, match=expected):
            run.read_json(tmp_path / name)


def test_hash_of_a_folder_follows_names_and_contents(tmp_path: Path) -> None:
    for name, content in (("b", "1"), ("a", "2")):
        (tmp_path / name).write_text(content)
    first = files.sha256(tmp_path)
    (tmp_path / "a").write_text("3")
    assert files.sha256(tmp_path) != first
    assert len(first) == 64


def test_photographs_are_images() -> None:
    pytest.importorskip("skimage")
    images = photographs()
    assert len(images) == len(photograph_names()) >= 4
    for image in images:
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
        assert min(image.shape[:2]) >= 256
        assert image.std() > 5


def test_a_run_that_is_interrupted_leaves_no_folder(tmp_path: Path) -> None:
    def fill() -> None:
        with run.new_run("identify", tmp_path / "mine") as folder:
            (folder / "overlay.mp4").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert not (tmp_path / "mine").exists()


def test_a_run_that_fails_leaves_its_preview_alone(tmp_path: Path) -> None:
    """The preview shows what was taken for the body; the next run may take the folder."""
    out = tmp_path / "mine"

    def fill() -> None:
        with run.new_run("identify", out) as folder:
            (folder / "overlay.mp4").write_bytes(b"half")
            (folder / "preview.jpg").write_bytes(b"whole")
            raise InputError("no motion", "a clip with motion", "film one")

    with pytest.raises(InputError, match="no motion"):
        fill()
    assert sorted(path.name for path in out.iterdir()) == [run._LOCK, "preview.jpg"]
    with run.new_run("identify", out) as folder:
        assert [path.name for path in folder.iterdir()] == [run._LOCK]
    assert not any(out.iterdir())


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    (out / "frames").mkdir(parents=True)
    for name in (run._LOCK, "half.json", "frames/1.png"):
        (out / name).write_text("")
    with run.new_run("identify", out) as folder:
        assert [path.name for path in folder.iterdir()] == [run._LOCK]
        (folder / "result.json").write_text("{}")
    assert [path.name for path in out.iterdir()] == ["result.json"]
