"""`vid2phys evaluate` on logs that a tracker or an export has spoiled: lost rows, wrong axes, units and orders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.flight import Flight
from tests.synthetic import STD, mocap_of, noisy_result, save_log, save_run, short_flight
from vid2phys import cli
from vid2phys.commands.evaluate import evaluate
from vid2phys.errors import InputError
from vid2phys.geometry import quat_from_rotvec, quat_multiply, rotate
from vid2phys.io.run import validate_metrics
from vid2phys.report.metrics import SymmetryGroup, symmetry_of
from vid2phys.types import Array, Mesh, PoseLog

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
CASE = SHARED / "cases" / "lost_pose_identity" / "lostid.csv"


@pytest.fixture(scope="module")
def flight() -> Flight:
    return short_flight()


@pytest.fixture(autouse=True, scope="module")
def symmetry_is_found_once() -> Iterator[None]:
    """All runs are of one mesh, whose symmetry takes seconds."""
    found = dict[bytes, SymmetryGroup]()

    def once(mesh: Mesh) -> SymmetryGroup:
        key = mesh.vertices.tobytes()
        return found[key] if key in found else found.setdefault(key, symmetry_of(mesh))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vid2phys.commands.evaluate.symmetry_of", once)
        yield


@pytest.fixture(scope="module")
def run(flight: Flight, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    folder.mkdir()
    save_run(folder, flight, noisy_result(flight))
    return folder


def turned(log: PoseLog, vector: list[float]) -> PoseLog:
    """The log in a world turned by a rotation vector."""
    turn = quat_from_rotvec(np.array(vector))
    quats = quat_multiply(turn, log.orientation_quat_wxyz)
    return replace(log, positions_m=rotate(turn, log.positions_m), orientation_quat_wxyz=quats)


def scaled(log: PoseLog, factor: float) -> PoseLog:
    return replace(log, positions_m=factor * log.positions_m)


def moved(log: PoseLog, shift: Array) -> PoseLog:
    return replace(log, positions_m=log.positions_m + shift)


def mirrored(log: PoseLog) -> PoseLog:
    quats = log.orientation_quat_wxyz * [1.0, -1.0, 1.0, -1.0]
    return replace(log, positions_m=log.positions_m * [1.0, -1.0, 1.0], orientation_quat_wxyz=quats)


def reordered(log: PoseLog) -> PoseLog:
    """With quaternions w, x, y, z where the format has x, y, z, w."""
    return replace(log, orientation_quat_wxyz=np.roll(log.orientation_quat_wxyz, 1, axis=1))


def inverted(log: PoseLog) -> PoseLog:
    return replace(log, orientation_quat_wxyz=log.orientation_quat_wxyz * [1.0, -1.0, -1.0, -1.0])


def without_rotation(log: PoseLog) -> PoseLog:
    return replace(log, orientation_quat_wxyz=np.tile([1.0, 0.0, 0.0, 0.0], (len(log.times_s), 1)))


def test_lost_rows_are_skipped_counted_and_printed(
    run: Path, flight: Flight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = moved(mocap_of(flight, 0.35), np.array([0.5, -0.4, 1.0]))
    save_log(log, tmp_path / "whole.txt")
    log.positions_m[100:130], log.orientation_quat_wxyz[100:130] = 0.0, [1.0, 0.0, 0.0, 0.0]
    log.positions_m[200:215], log.orientation_quat_wxyz[200:215] = log.positions_m[199], log.orientation_quat_wxyz[199]
    save_log(log, tmp_path / "log.txt")
    monkeypatch.setattr(
        "sys.argv", ["vid2phys", "evaluate", str(run), "--mocap", str(tmp_path / "log.txt"), "--align", "world"]
    )
    assert cli._run() == 0
    assert f"note: 45 of {len(log.times_s)} rows of the log are lost" in capsys.readouterr().out
    metrics = json.loads((run / "metrics.json").read_text())
    validate_metrics(metrics)
    assert metrics["log_rows_lost"] == 45
    assert metrics["log_rows"] == len(log.times_s)
    assert metrics["notes"][0].endswith("30 at the origin, 15 with the last pose repeated")
    whole, _ = evaluate(run, mocap=tmp_path / "whole.txt", align="world", plots=False)
    assert whole["notes"] == []
    assert metrics["position_rmse_m"] == pytest.approx(whole["position_rmse_m"], rel=0.1)
    assert metrics["time_offset_s"] == pytest.approx(0.35, abs=0.006)


def test_a_good_log_has_no_notes(run: Path, flight: Flight, tmp_path: Path) -> None:
    save_log(mocap_of(flight, 0.35), tmp_path / "log.txt")
    metrics, _ = evaluate(run, mocap=tmp_path / "log.txt", plots=False)
    assert metrics["notes"] == []
    assert metrics["log_rows_lost"] == 0


@pytest.mark.parametrize(
    ("change", "given", "note", "mended"),
    [
        (lambda log: turned(log, [-np.pi / 2, 0.0, 0.0]), {}, "y-up: evaluate with --up-axis y", {"up_axis": "y"}),
        (lambda log: turned(log, [0.0, np.pi / 2, 0.0]), {}, "x-up: evaluate with --up-axis x", {"up_axis": "x"}),
        (lambda log: log, {"up_axis": "y"}, "z-up: evaluate with --up-axis z", {}),
        (lambda log: scaled(log, 1 / 0.0254), {}, "evaluate with --mocap-units in", {"units": "in"}),
        (lambda log: log, {"units": "mm"}, "evaluate with --mocap-units m", {"units": "m"}),
        (
            lambda log: scaled(turned(log, [-np.pi / 2, 0.0, 0.0]), 100.0),
            {},
            "y-up and in cm: evaluate with --mocap-units cm --up-axis y",
            {"units": "cm", "up_axis": "y"},
        ),
        (lambda log: turned(log, [0.0, 0.0, 2.0]), {}, "evaluate with --align world", {"align": "world"}),
    ],
)
def test_the_option_that_mends_a_log_is_named(  # type: ignore[no-untyped-def]
    run: Path, flight: Flight, tmp_path: Path, change, given: dict[str, str], note: str, mended: dict[str, str]
) -> None:
    save_log(change(mocap_of(flight, 0.35)), tmp_path / "log.txt")
    metrics, _ = evaluate(run, mocap=tmp_path / "log.txt", plots=False, **given)  # type: ignore[arg-type]
    assert [text for text in metrics["notes"] if note in text]
    again, _ = evaluate(run, mocap=tmp_path / "log.txt", plots=False, **mended)  # type: ignore[arg-type]
    assert again["notes"] == []
    assert again["position_rmse_m"] < 3.0 * np.linalg.norm(STD[:3])


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (mirrored, "left-handed"),
        (reordered, "quaternions look like w, x, y, z"),
        (inverted, "rotations look like world to body"),
        (without_rotation, "other rotations"),
        (lambda log: replace(log, times_s=1e3 * log.times_s), "times look like milliseconds"),
        (
            lambda log: replace(log, positions_m=np.cumsum(log.positions_m[::-1] ** 3, axis=0)),
            "does not show the motion",
        ),
    ],
)
def test_what_no_option_mends_is_said(run: Path, flight: Flight, tmp_path: Path, change, note: str) -> None:  # type: ignore[no-untyped-def]
    save_log(change(mocap_of(flight, 0.35)), tmp_path / "log.txt")
    metrics, _ = evaluate(run, mocap=tmp_path / "log.txt", plots=False)
    assert [text for text in metrics["notes"] if note in text]


def test_times_in_nanoseconds_are_refused(run: Path, flight: Flight, tmp_path: Path) -> None:
    log = mocap_of(flight, 0.35)
    save_log(replace(log, times_s=1e9 * log.times_s), tmp_path / "log.txt")
    with pytest.raises(InputError, match="check that its times are in seconds"):
        evaluate(run, mocap=tmp_path / "log.txt", plots=False)


def test_a_marker_off_the_body_names_the_alignment(run: Path, flight: Flight, tmp_path: Path) -> None:
    save_log(mocap_of(flight, 0.35, marker=np.array([0.1, 0.0, 0.3, 0.1, 0.0, 0.12])), tmp_path / "log.txt")
    metrics, _ = evaluate(run, mocap=tmp_path / "log.txt", plots=False)
    assert [text for text in metrics["notes"] if "with --align marker the log fits" in text]


@pytest.mark.skipif(not CASE.is_file(), reason="../shared is not there")
def test_the_case_of_lost_rows() -> None:
    from vid2phys.io.mocap import load_mocap

    log = load_mocap(CASE)
    assert np.flatnonzero(np.isnan(log.positions_m[:, 0])).tolist() == list(range(200, 230))
