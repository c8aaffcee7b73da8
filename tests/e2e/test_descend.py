"""identify's last step by other losses and solvers, on a rendered flight with true keypoints in the tracker's place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.e2e.test_standin import tracked
from tests.filmed import cross
from tests.flight import Flight, fly
from tests.synthetic import camera_of
from vid2phys.commands.film import write_clip
from vid2phys.commands.fit_parameters import fixed_parameters
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import FitOptions, IdentifyConfig
from vid2phys.commands.identify.fit import RAN_AWAY
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import UsageError
from vid2phys.io.mesh import mass_properties
from vid2phys.io.run import to_json
from vid2phys.io.video import read_clip
from vid2phys.risp.networks.model import Model
from vid2phys.solvers import gradient, rendering
from vid2phys.solvers.rendering import fit_light
from vid2phys.types import Result, Status, Trajectory

ROOT = Path(__file__).resolve().parents[2]


def solve(inputs: Inputs, flight: Flight, progress: Progress = silent, **options: Any) -> Result:
    """Fit the mass to the flight, without alignment to pixels."""
    asked = FitOptions(fit=("mass",), refine=False, **options)
    return pipeline.solve([inputs], [tracked(flight)], asked, progress)


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Inputs, Flight]:
    flight, folder = fly(0.9, swing=0.3), tmp_path_factory.mktemp("descend")
    camera, mesh = replace(camera_of(flight), camera_to_world=flight.camera_to_world), cross()
    held = np.concatenate([flight.states, flight.states[-1:]])  # the last state of a film is not in it
    path = Trajectory(np.append(flight.times_s, flight.times_s[-1] + 1 / 30), held, flight.system.state_names)
    write_clip(folder / "clip.mp4", flight.system, path, mesh, camera, 30.0)
    given = {p.name: p.value for p in flight.parameters if p.name.startswith("inertia") or p.name == "drag"}
    known = fixed_parameters(flight.system, mass_properties(mesh), given, ("mass",), flight.actions)
    trained = Model.load(ROOT / "models" / "crazyflie")  # of another body: it reads something all the same
    model = SimpleNamespace(
        folder=None, rotations=np.eye(3)[None], permutation=np.arange(12)[None], center=np.zeros(3), view_size=96,
        shape=SimpleNamespace(exact=False), radius_m=0.15, fine=trained.fine, calibration=None,
    )  # fmt: skip
    clip = read_clip(folder / "clip.mp4")
    assert len(clip.times_s) == len(flight.times_s)
    inputs = Inputs(
        clip, mesh, camera, flight.camera_to_world, flight.system, flight.actions, model, known, ()
    )  # type: ignore[arg-type]  # fmt: skip
    return inputs, flight


@pytest.mark.parametrize(
    ("solver", "loss", "starts"),
    [("shooting", "keypoint", 2), ("rmsprop", "pixel", 1), ("adam", "risp_image", 1), ("adam", "state", 2),
     ("rmsprop", "perceptual", 1)],
)  # fmt: skip
def test_every_way_gives_a_result_with_all_starts(
    filmed: tuple[Inputs, Flight], monkeypatch: pytest.MonkeyPatch, solver: str, loss: str, starts: int
) -> None:
    monkeypatch.setattr(gradient, "ITERATIONS", 3)
    inputs, flight = filmed
    told: list[str] = []
    result = solve(*(inputs, flight, lambda stage, *_: told.append(stage)), method=solver, loss=loss, starts=starts)
    reported = to_json(result.diagnostics["starts"])
    assert len(reported) == starts
    assert all(row["failure"] is None and row["iterations"] >= 3 for row in reported)
    assert json.dumps(reported)
    mass = next(p for p in result.parameters if p.name == "mass")
    assert mass.value == pytest.approx(0.72, rel=0.08)
    assert mass.identifiable
    assert np.isfinite(mass.ci95).all() == (loss != "perceptual")
    assert (result.trajectory.covariance is None) == (loss == "perceptual")
    notes = result.diagnostics["notes"]
    assert isinstance(notes, list)
    assert any("no error model" in note for note in notes) == (loss == "perceptual")
    assert RAN_AWAY not in notes
    assert ("shooting" if solver == "shooting" else f"{solver} by {loss}") in told


def test_what_is_not_drawn_is_not_lit(filmed: tuple[Inputs, Flight], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient, "ITERATIONS", 1)
    inputs, flight = filmed
    asked: list[dict[str, bool]] = []

    def watched(*given: object, **looks: bool) -> rendering.Scene:
        asked.append(looks)
        return fit_light(*given, **looks)  # type: ignore[arg-type]

    monkeypatch.setattr(rendering, "fit_light", watched)
    found = [solve(inputs, flight, method="adam", loss="pixel", undrawn=undrawn) for undrawn in ((), ("shading",))]
    assert asked == [{"shading": True, "texture": True}, {"shading": False, "texture": True}]
    losses = [result.diagnostics["starts"][0]["loss"] for result in found]  # type: ignore[index]
    assert losses[1] > 1.1 * losses[0]


def test_a_rollout_that_leaves_the_motion_is_not_converged(
    filmed: tuple[Inputs, Flight], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient, "ITERATIONS", 1)
    inputs, flight = filmed
    pushed = replace(flight.actions, values=flight.actions.values * [1.0, 1.0, 1.0, 1.0] + [0.0, 0.3, 0.0, 0.0])
    result = solve(replace(inputs, actions=pushed), flight, method="adam", loss="state")
    assert result.status is not Status.CONVERGED
    assert RAN_AWAY in result.diagnostics["notes"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("newton", "keypoint", 1), "unknown solver 'newton'; expected one of adam, rmsprop, shooting, smoothing"),
        (("adam", "ssim", 1), "unknown loss 'ssim'; expected one of keypoint, perceptual, pixel, risp_image, state"),
        (("smoothing", "pixel", 1), "--loss pixel with --solver smoothing; expected --loss keypoint; or use --solver"),
        (("smoothing", "keypoint", 3), "--starts 3 with --solver smoothing"),
        (("adam", "keypoint", 0), "--starts 0; expected 1 or more"),
        (("adam", "pixel", 1, "paint"), "unknown appearance 'paint'; expected one of shading, texture"),
        (
            ("adam", "state", 1, "texture"),
            "--undrawn texture with --loss state, which draws nothing; expected --loss",
        ),
    ],
)
def test_options_that_do_not_go_together_are_named(options: tuple[str, str, int, *tuple[str, ...]], text: str) -> None:
    with pytest.raises(UsageError) as raised:
        asked(*options[:3], undrawn=options[3:], actions="a.csv").check()
    assert text in str(raised.value)


def test_what_other_bodies_cannot_do_is_named() -> None:
    with pytest.raises(UsageError, match="--solver rmsprop without --actions; expected recorded actions"):
        asked("rmsprop", "pixel", 1, system="quadrotor").check()
    asked("shooting", "keypoint", 1, system="rigid_contact").check()
    with pytest.raises(UsageError, match="for a body on a known base; expected the defaults"):
        asked("rmsprop", "keypoint", 1, mesh=None, system="hand").check()
    with pytest.raises(UsageError, match="--without contour for a body on a known base"):
        asked("smoothing", "keypoint", 1, mesh=None, system="hand", without=("contour",)).check()
    asked("smoothing", "keypoint", 1, mesh=None, system="hand").check()


def test_an_unknown_cue_is_named() -> None:
    with pytest.raises(UsageError, match=r"unknown cue 'outline'; expected one of .*contour"):
        asked("smoothing", "keypoint", 1, without=("outline",)).check()
    asked("smoothing", "keypoint", 1, without=("contour", "region")).check()


def asked(method: str, loss: str, starts: int, **options: Any) -> IdentifyConfig:
    """Return options of identify for a rigid body, unless told otherwise."""
    given = {"clip": "c.mp4", "mesh": "m.obj", "camera": "c.yaml"} | options
    return IdentifyConfig(method=method, loss=loss, starts=starts, **given)
