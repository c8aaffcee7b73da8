"""The whole road with true keypoints and noise in place of the network: fit, run folder, overlay, report, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.flight import Flight, camera_poses, fly, watch
from tests.obj_files import save_obj
from tests.synthetic import camera_of, cross_mesh, mocap_of, save_log, write_clip
from vid2phys.commands.evaluate import evaluate
from vid2phys.commands.fit_parameters import fixed_parameters
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.identify.outputs import draw_overlay, write_run
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.geometry import Pose
from vid2phys.io.camera import save_camera
from vid2phys.io.mesh import mass_properties
from vid2phys.io.run import validate_result
from vid2phys.io.video import read_clip
from vid2phys.tracking.track import Track
from vid2phys.types import Status


def tracked(flight: Flight) -> Track:
    """What the tracker would say, had it a perfect network with known errors."""
    rotation, translation = camera_poses(flight)
    count = len(rotation)
    pose = PoseEstimate(
        Pose(rotation, translation),
        np.zeros((count, 6, 6)),
        np.zeros(count),
        np.zeros(count),
        np.ones((count, 12), bool),
    )
    everything = np.ones(count, dtype=bool)
    return Track(watch(flight), pose, everything, np.ones(count), np.zeros(count, dtype=np.int64), np.zeros(1))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Flight]:
    flight, folder = fly(2.8), tmp_path_factory.mktemp("standin")
    camera, mesh = camera_of(flight), cross_mesh()
    write_clip(folder / "clip.mp4", flight, camera)
    save_camera(camera, folder / "camera.yaml")
    save_obj(mesh, folder / "mesh.obj")
    given = {p.name: p.value for p in flight.parameters if p.name.startswith("inertia") or p.name == "drag"}
    known = fixed_parameters(flight.system, mass_properties(mesh), given, ("mass",), flight.actions)
    model = SimpleNamespace(
        folder=None, rotations=np.eye(3)[None], permutation=np.arange(12)[None], center=np.zeros(3),
        shape=SimpleNamespace(exact=False),
    )  # fmt: skip
    inputs = Inputs(
        read_clip(folder / "clip.mp4"), mesh, camera, flight.camera_to_world, flight.system, flight.actions,
        model, known, (),
    )  # type: ignore[arg-type]  # fmt: skip
    config = IdentifyConfig(
        clip=folder / "clip.mp4", mesh=folder / "mesh.obj", camera=folder / "camera.yaml", fit=("mass",),
        set_values=given, refine=False,
    )  # fmt: skip
    result = pipeline.solve([inputs], [tracked(flight)], config)
    out = folder / "run"
    out.mkdir()
    draw_overlay(out, result, inputs)
    write_run(out, result, inputs, config, 1.0)
    assert result.status is Status.CONVERGED
    return out, flight


def test_result_is_valid_and_right(run: tuple[Path, Flight]) -> None:
    data = json.loads((run[0] / "result.json").read_text())
    validate_result(data)
    mass = data["parameters"]["mass"]
    assert mass["source"] == "fitted"
    assert mass["value"] == pytest.approx(0.72, rel=0.01)
    assert mass["ci95"][0] < 0.72 < mass["ci95"][1]
    assert data["fit"]["frames_lost"] == 0


def test_files_are_there(run: tuple[Path, Flight]) -> None:
    for name in ("trajectory.csv", "actions.csv", "observation.npz", "overlay.mp4", "report.html"):
        assert (run[0] / name).stat().st_size > 1000
    assert "0.72" in (run[0] / "report.html").read_text()


def test_evaluate_finds_the_clock_and_small_errors(run: tuple[Path, Flight]) -> None:
    folder, flight = run
    save_log(mocap_of(flight, 0.35), folder.parent / "mocap.txt")
    metrics, _ = evaluate(folder, mocap=folder.parent / "mocap.txt")
    assert metrics["time_offset_s"] == pytest.approx(0.35, abs=0.01)
    assert metrics["position_rmse_m"] < 0.02
    assert metrics["rotation_median_deg"] < 1.5
    assert metrics["interval_coverage"] > 0.8
