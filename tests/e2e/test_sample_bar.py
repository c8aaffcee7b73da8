"""The bar's files agree with each other, and the clip gives the true modulus and damping."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.geometry import invert_transform
from vid2phys.io.camera import load_camera
from vid2phys.io.video import read_clip
from vid2phys.io.volume import load_volume

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "bar"


def test_the_clip_shows_the_tip_where_its_motion_places_it() -> None:
    clip, camera = read_clip(SAMPLE / "clip.mp4"), load_camera(SAMPLE / "camera.yaml")
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 300_000
    table = np.genfromtxt(SAMPLE / "tip.csv", delimiter=",", names=True)
    np.testing.assert_allclose(clip.times_s, table["time_s"], atol=1e-4)
    frames = list(clip.frames)
    assert camera.camera_to_world is not None
    to_camera = invert_transform(camera.camera_to_world)
    size = np.ptp(load_volume(SAMPLE / "bar.msh").vertices, axis=0)
    for row in (0, 8, 40, len(table) - 1):
        tip = np.array([table[f"tip_{axis}_m"][row] for axis in "xyz"])  # the upper corner at the back
        inside = tip - np.array([0.05, 1.0, 0.4]) * size  # on the side towards the camera
        place = inside @ to_camera[:3, :3].T + to_camera[:3, 3]
        x, y = np.round(bearings_to_pixels(camera, place[None, :2] / place[2])[0]).astype(int)
        red, green, _ = frames[row][y - 1 : y + 2, x - 1 : x + 2].reshape(-1, 3).mean(axis=0)
        assert red > 1.5 * green


@pytest.mark.slow
def test_the_clip_gives_the_true_modulus_and_damping(tmp_path: Path) -> None:
    truth = json.loads((SAMPLE / "truth.json").read_text())["parameters"]
    result, _ = identify(
        IdentifyConfig(
            clip=SAMPLE / "clip.mp4",
            camera=SAMPLE / "camera.yaml",
            system="soft_body",
            body=str(SAMPLE / "bar.msh"),
            clamp=("x<0.001",),
            fit=("young_modulus", "damping"),
            set_values={name: truth[name] for name in ("density", "poisson_ratio")},
            overlay=False,
            out=tmp_path / "run",
        )
    )
    assert result.status.key == "converged"
    found = {each.name: each for each in result.parameters}
    for name, off in (("young_modulus", 0.05), ("damping", 0.15)):
        assert found[name].ci95[0] < truth[name] < found[name].ci95[1]
        assert found[name].value == pytest.approx(truth[name], rel=off)
