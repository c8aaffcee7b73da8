"""`vid2phys identify --fit mu,restitution` of keypoints of a thrown box, and what contact refuses."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import trimesh

from vid2phys import cli
from vid2phys.engine.observe import bearings_to_pixels, observe
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.geometry import look_at
from vid2phys.io.camera import save_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.points import save_body_points
from vid2phys.types import Camera

SIDES = np.array([0.12, 0.08, 0.05])
CORNERS = 0.5 * SIDES * np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
FRAMES, FPS, NOISE_PX = 36, 60.0, 0.3
TRUTH = {"mu": 0.3, "restitution": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with keypoints of a box that hits the floor, its camera, mesh and black images."""
    place = tmp_path_factory.mktemp("throw")
    trimesh.creation.box(SIDES).export(place / "box.obj")
    system = ThrownBody(load_mesh(place / "box.obj"))
    moments = dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), system.shape.inertia_per_mass, strict=True))
    vector = system.parameters().with_values({"mass": 1.0, **moments, **TRUTH}).vector
    start = np.array([-0.1, 0.0, 0.15, 0.9, 0.3, 0.3, 0.1, 0.9, 0.1, 0.3, 3.0, -5.0, 2.0])
    start[3:7] /= np.linalg.norm(start[3:7])
    lengths, slack = np.full((1, FRAMES - 1), 1.0 / FPS), np.zeros((1, FRAMES - 1, 4))
    states = system.rollouts(start[None], lengths, vector[None], slack)[0][0]
    camera = Camera(
        *(np.array([[700.0, 0.0, 320.0], [0.0, 700.0, 240.0], [0.0, 0.0, 1.0]]), 640, 480),
        camera_to_world=look_at(np.array([0.1, -1.2, 0.5]), np.array([0.1, 0.0, 0.08])),
    )
    assert camera.camera_to_world is not None
    pixels = bearings_to_pixels(camera, observe(system, states, CORNERS, camera.camera_to_world)[0])
    pixels = pixels + np.random.default_rng(0).normal(0.0, NOISE_PX, pixels.shape)
    rows = [f"{t},p{k},{x:.4f},{y:.4f},{NOISE_PX},0.001\n" for t, frame in enumerate(pixels)
            for k, (x, y) in enumerate(frame)]  # fmt: skip
    (place / "seen.csv").write_text("frame,point,x_px,y_px,sigma_px,shared_px\n" + "".join(rows))
    save_body_points({f"p{k}": point for k, point in enumerate(CORNERS)}, place / "points.csv")
    save_camera(camera, place / "cam.yaml")
    (place / "images").mkdir()
    for i in range(FRAMES):
        cv2.imwrite(str(place / "images" / f"{i:04d}.png"), np.zeros((480, 640, 3), np.uint8))
    return place


def options(place: Path, out: str, fit: str) -> list[str]:
    given = ["identify", str(place / "images"), "--fps", "60", "--mesh", str(place / "box.obj")]
    given += ["--camera", str(place / "cam.yaml"), "--system", "rigid_contact", "--fit", fit, "--no-overlay"]
    given += ["--observation", str(place / "seen.csv"), "--body-points", str(place / "points.csv")]
    return [*given, "--out", str(place / out)]


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vid2phys", *arguments])
    return cli._run()


def test_friction_and_restitution_of_a_throw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_cli(monkeypatch, *options(folder, "run", "mu,restitution")) == 0
    result = json.loads((folder / "run" / "result.json").read_text())
    for name, true in TRUTH.items():
        found = result["parameters"][name]
        low, high = found["ci95"]
        assert low - 0.02 < true < high + 0.02, (name, found)
        assert high - low < 0.4
    impacts = result["diagnostics"]["impacts"]
    assert impacts[0]["time_s"] == pytest.approx(0.18, abs=0.05)
    assert [hit["time_s"] for hit in impacts] == sorted(hit["time_s"] for hit in impacts)


def test_contact_refuses_other_solvers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, *options(folder, "refused", "mu"), "--solver", "shooting") != 0
    assert "--solver shooting with contact" in " ".join(capsys.readouterr().err.split())
