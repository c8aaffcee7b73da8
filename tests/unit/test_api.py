"""The Python API: what it names, a run opened from its folder, plots that show themselves."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vid2phys
from tests.flight import Flight
from tests.synthetic import mocap_of, noisy_result, save_log, save_run, short_flight
from vid2phys.errors import InputError
from vid2phys.io.actions import save_actions
from vid2phys.io.recordings import save_trajectory
from vid2phys.types import Actions, Result, Trajectory

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture(scope="module")
def flight() -> Flight:
    return short_flight()


@pytest.fixture(scope="module")
def result(flight: Flight) -> Result:
    return noisy_result(flight, lost=(3, 4))


@pytest.fixture
def folder(tmp_path: Path, flight: Flight, result: Result) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    save_run(folder, flight, result)
    assert result.actions is not None
    save_actions(result.actions, folder / "actions.csv", result.actions_std)
    return folder


def test_all_names_are_there_and_the_package_starts_light() -> None:
    for name in vid2phys.__all__:
        assert getattr(vid2phys, name).__doc__
    assert set(vid2phys.__all__) <= set(dir(vid2phys))
    with pytest.raises(AttributeError, match="no attribute 'identity'"):
        _ = vid2phys.identity  # type: ignore[attr-defined]
    code = "import sys, vid2phys; print([m for m in ('numpy', 'torch', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_identify_has_the_options_of_the_task() -> None:
    from vid2phys.commands.identify import identify

    given, own = inspect.signature(vid2phys.identify), inspect.signature(identify)
    assert list(given.parameters) == list(own.parameters)
    assert given.return_annotation == "Run"


def test_a_run_comes_back_from_its_folder(folder: Path, flight: Flight, result: Result) -> None:
    run = vid2phys.load_run(folder)
    assert run.converged
    assert run.message == "converged: made for a test"
    assert (run["mass"].value, run["mass"].ci95) == (0.72, (0.71, 0.73))
    assert run["drag"].ci95 == (-np.inf, np.inf)
    assert run["drag"].prior == (0.2, 0.1)
    assert run.result.posterior is not None
    assert run.result.posterior.logarithmic == (True,)
    with pytest.raises(KeyError, match="one of mass, drag, gravity"):
        run["weight"]
    np.testing.assert_allclose(run.trajectory.states, result.trajectory.states, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.positions_m, result.trajectory.states[:, :3], rtol=1e-9)
    np.testing.assert_allclose(run.orientation_quat_wxyz, result.trajectory.states[:, 3:7], rtol=1e-9)
    assert run.actions is not None
    assert result.actions is not None
    np.testing.assert_allclose(run.actions.values, result.actions.values)
    np.testing.assert_allclose(run.result.actions_std, result.actions_std)
    np.testing.assert_array_equal(run.observation.bearings, result.observation.bearings)


def test_evaluation_has_numbers(folder: Path, flight: Flight) -> None:
    save_log(mocap_of(flight, 0.35), folder.parent / "log.txt")
    found = vid2phys.load_run(folder).evaluate(folder.parent / "log.txt", plots=False)
    assert found.time_offset_s == pytest.approx(0.35, abs=0.006)
    assert found.position_rmse_m is not None
    assert 0.005 < found.position_rmse_m < 0.02
    assert set(found.also) == {"time+marker", "time+marker+world"}


def test_plots_show_themselves(folder: Path, tmp_path: Path) -> None:
    run = vid2phys.load_run(folder)
    for plot in (run.plot_trajectory(), run.plot_actions(), run.plot_residuals(), run.plot_posterior()):
        assert plot._repr_svg_().startswith("<svg")
        plot.save(tmp_path / "plot.png")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    shown = run._repr_html_()
    assert "<td>0.72</td><td>kg</td><td>0.71 to 0.73</td>" in shown


def test_what_was_seen_is_written_for_other_tools(folder: Path, tmp_path: Path) -> None:
    run = vid2phys.load_run(folder)
    run.save_keypoints(tmp_path / "k.csv", tmp_path / "b.csv")
    rows = (tmp_path / "k.csv").read_text().splitlines()
    assert len(rows) == 1 + int(run.observation.visible.sum())
    assert len((tmp_path / "b.csv").read_text().splitlines()) == 1 + len(run.observation.points_body)


def test_a_run_of_an_own_robot_comes_back(folder: Path) -> None:
    """Its states and actions are not those of the robot that the system has by default."""
    names = ("shoulder_rad", "elbow_rad", "shoulder_rad_s", "elbow_rad_s")
    times = vid2phys.load_run(folder).trajectory.times_s
    states = np.sin(np.arange(4.0 * len(times))).reshape(-1, 4)
    save_trajectory(Trajectory(times, states, names, None), folder / "trajectory.csv")
    torques = Actions(times[:-1], states[:-1, :2], "other", ("shoulder_torque", "elbow_torque"), ("N m", "N m"))
    save_actions(torques, folder / "actions.csv", 0.1 * states[:-1, :2])
    data = json.loads((folder / "result.json").read_text())
    data["system"] = "articulated"
    data["inputs"]["body"] = str(SAMPLES / "arm" / "arm.urdf")
    (folder / "result.json").write_text(json.dumps(data))
    run = vid2phys.load_run(folder)
    np.testing.assert_allclose(run.trajectory.states, states)
    assert run.system.state_names == names
    assert run.actions is not None
    assert run.actions.names == torques.names
    np.testing.assert_allclose(run.actions.values, torques.values)
    assert run.plot_trajectory()._repr_svg_().startswith("<svg")
    with pytest.raises(InputError, match="'articulated', whose states are no pose"):
        run.evaluate(SAMPLES / "quadrotor" / "mocap.csv")
    data["inputs"]["body"] = "gone.urdf"
    (folder / "result.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="the states of the body in 'gone"):
        _ = vid2phys.load_run(folder).system


def test_a_folder_without_a_run_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        vid2phys.load_run(folder / "nothing")
    (folder / "result.json").write_text('{"schema": "vid2phys.result/1"}')
    with pytest.raises(InputError, match="cannot be read"):
        vid2phys.load_run(folder)
