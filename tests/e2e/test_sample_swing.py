"""The swing's files agree with each other, and the clip gives the true length, damping and axis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sample_clip import body_colors
from vid2phys.commands.fit_recording import fit_recording
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.io.mesh import load_mesh

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "swing"
FIT = ("length", "damping")


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    return dict(json.loads((SAMPLE / "truth.json").read_text()))


def test_the_true_angles_give_the_true_parameters(truth: dict[str, Any], tmp_path: Path) -> None:
    true = truth["parameters"]
    given = {"mass": true["mass"], "inertia": true["inertia"], "axis_tilt": float(np.arcsin(truth["axis"][2]))}
    fitted, _ = fit_recording(
        "pendulum", [SAMPLE / "states.csv"], set_values=given | {"length": 0.13}, fit=FIT, out=tmp_path / "run"
    )
    found = {each.name: each.value for each in fitted.estimates}
    assert {name: found[name] for name in FIT} == pytest.approx({name: true[name] for name in FIT}, rel=1e-3)


def test_the_clip_shows_the_bar_where_its_motion_places_it() -> None:
    for red, _, blue in body_colors(SAMPLE, load_mesh(SAMPLE / "bar.obj"), (0, 20, 50, -1)):
        assert red > 2.0 * blue  # the bar is ochre, the wall behind it blue


@pytest.mark.slow
def test_the_clip_gives_the_true_parameters_and_axis(truth: dict[str, Any], tmp_path: Path) -> None:
    true = truth["parameters"]
    result, _ = identify(
        IdentifyConfig(
            clip=SAMPLE / "clip.mp4",
            mesh=SAMPLE / "bar.obj",
            camera=SAMPLE / "camera.yaml",
            system="pendulum",
            model="none",
            set_values={"mass": true["mass"]},
            overlay=False,
            out=tmp_path / "run",
        )
    )
    assert result.status.key == "converged"
    found = {each.name: each for each in result.parameters}
    for name, share in (("length", 0.01), ("damping", 0.1)):
        assert found[name].ci95[0] < true[name] < found[name].ci95[1]
        assert found[name].value == pytest.approx(true[name], rel=share)
    derived = {each.name: each.value for each in result.derived}
    axis = np.array([derived[f"axis_{name}"] for name in "xyz"])
    assert np.degrees(np.arccos(min(1.0, abs(float(axis @ truth["axis"]))))) < 0.6
