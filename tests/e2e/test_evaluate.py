"""`vid2phys evaluate` on a run made from a simulated flight with known errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from tests.flight import Flight
from tests.mocap_files import c3d
from tests.synthetic import STD, mocap_of, noisy_result, save_log, save_run, short_flight
from vid2phys import cli
from vid2phys.commands.evaluate import evaluate
from vid2phys.errors import InputError, UsageError
from vid2phys.io.run import validate_metrics


@pytest.fixture(scope="module")
def flight() -> Flight:
    return short_flight()


@pytest.fixture
def run(tmp_path: Path, flight: Flight) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    save_run(folder, flight, noisy_result(flight, lost=(3, 4)))
    save_log(mocap_of(flight, 0.35), tmp_path / "log.txt")
    return folder


def test_metrics(run: Path, flight: Flight) -> None:
    metrics, folder = evaluate(run, mocap=run.parent / "log.txt")
    assert folder == run
    assert metrics["time_offset_s"] == pytest.approx(0.35, abs=0.006)
    assert metrics["position_rmse_m"] == pytest.approx(np.linalg.norm(STD[:3]), rel=0.2)
    parts = np.hypot(metrics["lateral_rmse_m"], metrics["depth_rmse_m"])
    assert parts == pytest.approx(metrics["position_rmse_m"], rel=1e-6)
    assert 1.5 < metrics["rotation_median_deg"] < 3.0
    assert metrics["rotation_median_deg_up_to_symmetry"] <= metrics["rotation_median_deg"]
    assert 0.9 < metrics["interval_coverage"] < 0.99
    assert metrics["frames_tracked_fraction"] == pytest.approx(1 - 2 / len(flight.times_s))
    assert metrics["alignment"] == "time"
    assert set(metrics["also"]) == {"time+marker", "time+marker+world"}
    written = json.loads((run / "metrics.json").read_text())
    validate_metrics(written)
    assert written["position_rmse_m"] == metrics["position_rmse_m"]
    assert (run / "evaluation.png").stat().st_size > 10_000


@pytest.mark.parametrize(("align", "name"), [("marker", "time+marker"), ("world", "time+marker+world")])
def test_alignment_that_was_asked_for_comes_first(run: Path, align: str, name: str) -> None:
    metrics, _ = evaluate(run, mocap=run.parent / "log.txt", align=align, plots=False)
    assert metrics["alignment"] == name
    assert "time" in metrics["also"]
    assert np.shape(metrics["marker_in_body"]["covariance"]) == (6, 6)


MARKERS = np.array([[0.05, 0.0, 0.01], [-0.02, 0.06, 0.0], [-0.03, -0.02, 0.03], [0.0, -0.04, -0.04]])  # mean zero


def test_other_logs_judge_alike(run: Path, flight: Flight) -> None:
    """The same motion as Vicon's angles in millimetres, and as bare markers in a C3D, against the TUM file."""
    log = mocap_of(flight, 0.35)
    body = Rotation.from_quat(np.roll(log.orientation_quat_wxyz, -1, axis=1))
    rate = 1.0 / np.diff(log.times_s).mean()
    angles = body.as_euler("ZYX", degrees=True)[:, ::-1]
    rows = [
        f"{i},0," + ",".join(f"{x:.9g}" for x in (*angles[i], *(1e3 * log.positions_m[i]))) for i in range(len(angles))
    ]
    head = ["Objects", f"{rate:.9g}", ",,quad,,,,,", "Frame,Sub Frame,RX,RY,RZ,TX,TY,TZ", ",,deg,deg,deg,mm,mm,mm"]
    (run.parent / "vicon.csv").write_text("\n".join([*head, *rows]))
    points = np.stack([body.apply(marker) for marker in MARKERS], axis=1) + log.positions_m[:, None]
    (run.parent / "take.c3d").write_bytes(c3d(points, ["q1", "q2", "q3", "q4"], rate=rate, first=1))
    plain, _ = evaluate(run, mocap=run.parent / "log.txt", align="marker", plots=False)
    vicon, _ = evaluate(run, mocap=run.parent / "vicon.csv", euler="ZYX", align="marker", plots=False)
    markers, _ = evaluate(run, mocap=run.parent / "take.c3d", align="marker", plots=False)
    for other in (vicon, markers):
        for name in ("position_rmse_m", "rotation_median_deg", "rpe_1s_m"):
            assert other[name] == pytest.approx(plain[name], rel=0.05)
    assert vicon["also"]["time"]["rotation_median_deg"] < 3.0


def test_a_quarter_turn_counts_unless_it_is_a_symmetry(run: Path, flight: Flight) -> None:
    log = mocap_of(flight, 0.35, marker=np.array([0.0, 0.0, np.pi / 2, 0.0, 0.0, 0.0]))
    save_log(log, run.parent / "turned.txt")
    metrics, _ = evaluate(run, mocap=run.parent / "turned.txt", plots=False)
    assert metrics["rotation_median_deg"] == pytest.approx(90.0, abs=3.0)
    assert metrics["also"]["time+marker"]["rotation_median_deg"] < 3.0


def test_marker_alignment_is_refused_when_nothing_turns(tmp_path: Path, flight: Flight) -> None:
    from dataclasses import replace

    level = flight.states.copy()
    level[:, 3:7] = [1.0, 0.0, 0.0, 0.0]
    level[:, 10:] = 0.0
    still = replace(flight, states=level)
    result = noisy_result(still)
    result.trajectory.states[:, 3:7] = [1.0, 0.0, 0.0, 0.0]
    (tmp_path / "run").mkdir()
    save_run(tmp_path / "run", still, result)
    save_log(mocap_of(still, 0.35), tmp_path / "log.txt")
    metrics, _ = evaluate(tmp_path / "run", mocap=tmp_path / "log.txt", plots=False)
    assert "20 deg" in metrics["also"]["time+marker"]["refused"]
    validate_metrics(json.loads((tmp_path / "run" / "metrics.json").read_text()))
    with pytest.raises(InputError, match="20 deg"):
        evaluate(tmp_path / "run", mocap=tmp_path / "log.txt", align="marker", plots=False)


def test_bad_input(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown alignment"):
        evaluate(run, mocap=run.parent / "log.txt", align="scale")
    with pytest.raises(InputError, match="does not exist"):
        evaluate(run, mocap=run.parent / "none.csv")
    with pytest.raises(InputError, match="does not exist"):
        evaluate(tmp_path / "nowhere", mocap=run.parent / "log.txt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no run of 'identify'"):
        evaluate(mocap=run.parent / "log.txt")


def test_command(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["vid2phys", "evaluate", str(run), "--mocap", str(run.parent / "log.txt")])
    assert cli._run() == 0
    out = capsys.readouterr().out
    assert "position_rmse_m" in out
    assert "metrics.json" in out
