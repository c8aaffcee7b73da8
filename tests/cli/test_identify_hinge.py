"""`vid2phys identify --system pendulum`: a drawn bar on a hinge, from images to the run folder, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.swinging_bar import (
    CAMERA,
    GRAVITY,
    INERTIA,
    LENGTH_M,
    PIVOT,
    RATE,
    images,
    mesh_of,
    swing,
)
from vid2phys import cli
from vid2phys.commands.evaluate import load_run
from vid2phys.errors import InputError
from vid2phys.io.camera import save_camera

FRAMES, MASS = 60, 0.25


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vid2phys", *arguments])
    return cli._run()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with images of a swing, the bar and the camera."""
    place = tmp_path_factory.mktemp("swing")
    mesh = mesh_of(place / "bar.obj")
    (place / "images").mkdir()
    for i, image in enumerate(images(swing(FRAMES), mesh)):
        cv2.imwrite(str(place / "images" / f"{i:04d}.png"), np.ascontiguousarray(image[..., ::-1]))
    save_camera(CAMERA, place / "cam.yaml")
    return place


def options(place: Path, out: str) -> list[str]:
    given = ["identify", str(place / "images"), "--fps", "60", "--mesh", str(place / "bar.obj"), "--model", "none"]
    return [*given, "--camera", str(place / "cam.yaml"), "--system", "pendulum", "--out", str(place / out)]


def test_length_damping_and_the_hinge_come_from_a_clip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_cli(monkeypatch, *options(folder, "run"), "--set", f"mass={MASS}") == 0
    result = json.loads((folder / "run" / "result.json").read_text())
    inertia = MASS * (LENGTH_M**2 + INERTIA)
    found, derived = result["parameters"], result["derived"]
    for name, truth, share in (("length", LENGTH_M, 0.01), ("damping", RATE * inertia, 0.1)):
        low, high = found[name]["ci95"]
        assert found[name]["source"] == "fitted"
        assert found[name]["value"] == pytest.approx(truth, rel=share)
        assert low < truth < high
    assert found["inertia"]["value"] == pytest.approx(MASS * INERTIA, rel=0.01)
    period = 2.0 * np.pi * np.sqrt((LENGTH_M**2 + INERTIA) / (GRAVITY * LENGTH_M))
    for name, truth, share in (("small_angle_period_s", period, 0.005), ("damping_over_inertia_1_s", RATE, 0.1)):
        low, high = derived[name]["ci95"]
        assert derived[name]["value"] == pytest.approx(truth, rel=share)
        assert low < truth < high
    axis = np.array([derived[f"axis_{name}"]["value"] for name in "xyz"])
    assert np.degrees(np.arccos(min(1.0, abs(axis[1])))) < 1.0
    pivot = np.array([derived[f"pivot_{name}_m"]["value"] for name in "xyz"])
    assert np.abs(pivot - PIVOT)[[0, 2]].max() < 0.003
    assert {"overlay.mp4", "preview.jpg", "report.html"} <= {path.name for path in (folder / "run").iterdir()}
    with pytest.raises(InputError, match="a run of 'pendulum', whose states are no pose of a body"):
        load_run(folder / "run")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--solver", "shooting"), "a body on a hinge"),
        (("--observation", "seen.npz"), "a body on a hinge"),
        (("--fit", "stiffness"), "stiffness"),
    ],
)
def test_options_that_do_not_serve_end_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str, ...],
    expected: str,
) -> None:  # fmt: skip
    assert run_cli(monkeypatch, *options(folder, "none"), *more) in (2, 3)
    assert expected in capsys.readouterr().err
    assert not (folder / "none").exists()


def test_two_hinges_are_refused_with_what_serves(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [each.replace("pendulum", "double_pendulum") for each in options(folder, "none")]
    assert run_cli(monkeypatch, *arguments) == 2
    assert "--body two_links.urdf" in capsys.readouterr().err


def test_poses_of_a_swing_are_fitted_as_its_angle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.spatial.transform import Rotation

    motion, path = swing(120), folder / "states.csv"
    quat = Rotation.from_matrix(motion.poses.rotation).as_quat(canonical=True)[:, [3, 0, 1, 2]]
    table = np.concatenate([motion.times_s[:, None], motion.poses.translation, quat], axis=1)
    rows = [",".join(f"{cell:.7f}" for cell in row) for row in table]
    path.write_text("\n".join(["time_s,x,y,z,qw,qx,qy,qz", *rows]) + "\n")
    given = [
        "--set",
        "length=0.118",
        "--set",
        f"mass={MASS}",
        "--set",
        f"inertia={MASS * INERTIA}",
        "--fit",
        "length,damping",
    ]
    out = folder / "recorded"
    assert run_cli(monkeypatch, "fit-recording", "pendulum", str(path), *given, "--out", str(out)) == 0
    found = json.loads((out / "result.json").read_text())["parameters"]
    assert found["length"]["value"] == pytest.approx(LENGTH_M, rel=1e-3)
    assert found["damping"]["value"] == pytest.approx(RATE * MASS * (LENGTH_M**2 + INERTIA), rel=1e-2)
