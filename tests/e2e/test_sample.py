"""The sample's files agree with each other: actions fly the logged motion, and the clip shows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.identify import Row, markdown
from vid2phys.engine.render.rasterizer import rasterize
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems import get
from vid2phys.geometry import angle_between, invert_transform, rotate
from vid2phys.io.actions import load_actions
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.mocap import load_mocap
from vid2phys.io.video import read_clip
from vid2phys.report.alignment import Alignment, apply
from vid2phys.types import PoseLog

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "quadrotor"


@pytest.fixture(scope="module")
def truth() -> dict[str, object]:
    return dict(json.loads((SAMPLE / "truth.json").read_text()))


@pytest.fixture(scope="module")
def log() -> PoseLog:
    return load_mocap(SAMPLE / "mocap.csv")


def test_recorded_actions_fly_the_logged_motion(truth: dict, log: PoseLog) -> None:
    system = get("quadrotor")
    parameters = system.parameters().with_values(truth["parameters"]).vector
    actions = load_actions(SAMPLE / "actions.csv")
    from_start = actions.times_s >= -1e-9
    held = actions.values[from_start][:100]
    controls = np.zeros((1, len(held), 10))
    controls[0, :, :4] = held
    start = np.array(truth["first_state"])[None]
    states = simulate(system, start, controls, parameters, 0.01, substeps=4)[0]
    times = 0.01 * np.arange(len(states))
    positions, quats, seen = apply(Alignment(truth["time_offset_s"]), log, times)
    assert seen.all()
    assert np.linalg.norm(states[:, :3] - positions, axis=1).max() < 1e-3
    assert np.rad2deg(angle_between(states[:, 3:7], quats)).max() < 0.1


def test_the_clip_shows_the_logged_motion(truth: dict, log: PoseLog) -> None:
    clip, camera, mesh = (
        read_clip(SAMPLE / "clip.mp4"),
        load_camera(SAMPLE / "camera.yaml"),
        load_mesh(SAMPLE / "quad.obj"),
    )
    assert (len(clip.frames), clip.width, clip.height) == (144, 640, 480)
    positions, quats, _ = apply(Alignment(truth["time_offset_s"]), log, clip.times_s)
    assert camera.camera_to_world is not None
    to_camera = invert_transform(camera.camera_to_world)
    chosen = np.arange(0, 144, 12)
    frames = np.stack(list(clip.frames.at(chosen))).astype(float)
    background = np.median(frames, axis=0)
    for index, frame in zip(chosen, frames, strict=True):
        world = rotate(quats[index], mesh.vertices) + positions[index]
        seen = rasterize(world @ to_camera[:3, :3].T + to_camera[:3, 3], mesh.faces, camera.K, 640, 480).mask
        change = np.abs(frame - background).sum(axis=-1)
        score = {
            (dy, dx): change[np.roll(seen, (dy, dx), axis=(0, 1))].mean() for dy in (-2, 0, 2) for dx in (-2, 0, 2)
        }
        assert max(score, key=lambda shift: score[shift]) == (0, 0), f"frame {index}"


def test_the_sample_is_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.iterdir() if path.is_file()) < 3e6


def test_benchmark_table_has_a_line_a_case() -> None:
    rows = [Row("a", "mass_error", -0.012, "1"), Row("a", "wall_seconds", 41.2, "s"), Row("b", "mass_error", None, "1")]
    lines = markdown(rows).splitlines()
    assert len(lines) == 4
    assert "-1.2 %" in lines[2]
    assert "41 s" in lines[2]
    assert len({line.count("|") for line in lines}) == 1
