"""Each cue that can be switched off is not asked when it is off; unknown names are refused with the list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vid2phys.errors import UsageError
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.video import read_clip
from vid2phys.risp.networks.model import Model
from vid2phys.tracking import refine, symmetry_evidence, tracker
from vid2phys.tracking.cues import STEPS, ActiveCues, available, declared, descriptions
from vid2phys.tracking.cues.region import Region
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.temporal_outliers import TemporalOutliers
from vid2phys.tracking.tracker import track

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "quadrotor"
ASKED: dict[str, tuple[Any, str]] = {  # by which function a cue is asked
    "contour": (tracker, "refine_contours"),
    "creases": (refine, "find_creases"),
    "region": (Region, "of"),
    "symmetry": (tracker, "symmetry_evidence"),
    "part_colors": (symmetry_evidence, "part_nats"),
    "temporal_outliers": (TemporalOutliers, "correct"),
    "support": (tracker, "supported"),
    "texture": (SurfaceTexture, "evidence"),
}


@pytest.fixture(scope="module")
def inputs() -> dict[str, Any]:
    clip, camera = read_clip(SAMPLE / "clip.mp4"), load_camera(SAMPLE / "camera.yaml", None)
    frames = ArrayFrames(np.stack(list(clip.frames.at(range(3)))))
    model, mesh = Model.load(str(ROOT / "models" / "quadrotor"), "cpu"), load_mesh(SAMPLE / "quad.obj", "m")
    return {
        "clip": replace(clip, frames=frames, times_s=clip.times_s[:3]),
        "camera": camera,
        "model": model,
        "radius_m": model.radius_m,
        "mesh": mesh,
    }


def _forbid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError(f"the cue {name} was asked")

    monkeypatch.setattr(*ASKED[name], asked)


@pytest.mark.parametrize("name", [name for name in ASKED if name != "texture"])
def test_a_cue_that_is_off_is_not_asked(name: str, inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _forbid(monkeypatch, name)
    assert track(**inputs, without=(name,)).tracked.all()
    with pytest.raises(AssertionError, match=name):
        track(**inputs)


def test_texture_off_means_no_texture(inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _forbid(monkeypatch, "texture")
    texture = object()  # is never looked at
    assert track(**inputs, texture=texture, without=("texture",)).tracked.all()


def test_names_are_listed_and_unknown_ones_refused(inputs: dict[str, Any]) -> None:
    assert available() == tuple(descriptions())
    assert set(available()) == set(declared()) | set(STEPS)
    assert set(ASKED) | {"photometric"} == set(available()), "photometric is asked after the first fit, by identify"
    with pytest.raises(UsageError, match=r"unknown cue 'contours'.*temporal_outliers"):
        track(**inputs, without=("contours",))
    cues = ActiveCues.without(["region"])
    assert "region" not in cues
    assert "contour" in cues
