"""`identify` with several clips, priors and the camera, true keypoints and noise in place of the network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.e2e.test_standin import tracked
from tests.flight import Flight, fly, watch
from tests.obj_files import save_obj
from tests.synthetic import camera_of, cross_mesh, write_clip
from vid2phys.commands.evaluate import evaluate
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.inputs import require_frames
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import look_at, matrix_from_rotvec
from vid2phys.io.actions import save_actions
from vid2phys.io.camera import load_camera, save_camera
from vid2phys.io.run import load_trajectory, validate_result
from vid2phys.risp.networks import model_lookup
from vid2phys.types import Status

GIVEN = {"inertia_xx": 4.1e-3, "inertia_yy": 4.6e-3, "inertia_zz": 7.3e-3, "drag": 0.12}


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Flight]]:
    folder, other = tmp_path_factory.mktemp("several"), look_at(np.array([1.2, -1.5, 0.6]), np.zeros(3))
    flights = [fly(1.2), replace(fly(1.2, swing=0.35), camera_to_world=other)]
    save_obj(cross_mesh(), folder / "mesh.obj")
    for g, flight in enumerate(flights):
        write_clip(folder / f"{g}.mp4", flight, camera_of(flight))
        save_camera(camera_of(flight), folder / f"{g}.yaml")
        save_actions(flight.actions, folder / f"{g}.csv")
    return folder, flights


@pytest.fixture
def identify(flown: tuple[Path, list[Flight]], monkeypatch: pytest.MonkeyPatch) -> Any:
    folder, flights = flown
    model = SimpleNamespace(
        folder=None, rotations=np.eye(3)[None], permutation=np.arange(12)[None], center=np.zeros(3), radius_m=0.15,
        shape=SimpleNamespace(exact=False, kind="rigid"),
    )  # fmt: skip
    monkeypatch.setattr(model_lookup, "find_model", lambda *_, **__: model)
    tracks = {f"{g}.mp4": tracked(flight) for g, flight in enumerate(flights)}
    monkeypatch.setattr(pipeline, "track_pose", lambda inputs, *_: tracks[Path(inputs.clip.name).stem + ".mp4"])

    def run(*clips: int, **options: Any) -> tuple[Any, Path]:
        one = lambda end: [folder / f"{g}.{end}" for g in clips]  # noqa: E731
        given = {"fit": ("mass",), "set_values": GIVEN, "actions": one("csv"), "refine": False, "overlay": False}
        return pipeline.identify(
            one("mp4"), folder / "mesh.obj", options.pop("camera", one("yaml")), **(given | options)
        )

    return run


def test_two_clips_of_two_cameras_give_one_mass(
    identify: Any, flown: tuple[Path, list[Flight]], tmp_path: Path
) -> None:
    alone = identify(0, out=tmp_path / "alone")[0]
    result, folder = identify(0, 1, priors={"mass": (0.7, 0.2)}, overlay=True, out=tmp_path / "both")
    assert result.status is Status.CONVERGED
    mass = result.parameters[0]
    assert mass.name == "mass"
    assert mass.ci95[0] < 0.72 < mass.ci95[1]
    width = lambda p: p.ci95[1] - p.ci95[0]  # noqa: E731
    assert width(mass) < 0.9 * width(alone.parameters[0])
    data = json.loads((folder / "result.json").read_text())
    validate_result(data)
    assert data["parameters"]["mass"]["prior"] == {"mean": pytest.approx(0.7), "std": pytest.approx(0.2)}
    assert [part["folder"] for part in data["clips"]] == ["clip_1", "clip_2"]
    for part, flight in zip(data["clips"], flown[1], strict=True):
        own = json.loads((folder / part["folder"] / "result.json").read_text())
        validate_result(own)
        assert own["parameters"]["mass"] == data["parameters"]["mass"]
        assert (folder / part["folder"] / "overlay.mp4").stat().st_size > 1000
        states = load_trajectory(folder / part["folder"] / "trajectory.csv").states
        assert np.sqrt(((states - flight.states)[:, :3] ** 2).sum(axis=1).mean()) < 0.03
    assert data["fit"]["frames_used"] == sum(len(flight.times_s) for flight in flown[1])
    assert "prior 0.7 +- 0.2" in (folder / "clip_1" / "report.html").read_text()
    with pytest.raises(
        UsageError, match=r"is a fit of several clips; expected the folder of one; for example .*clip_1"
    ):
        evaluate(folder, mocap=flown[0] / "none.csv")


def test_a_clip_in_which_the_body_is_lost_is_left_out(
    identify: Any, flown: tuple[Path, list[Flight]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = (tracked(flight) for flight in flown[1])
    second = replace(second, tracked=np.zeros_like(second.tracked))
    monkeypatch.setattr(pipeline, "track_pose", lambda inputs, *_: first if "0" in inputs.clip.name else second)
    result, folder = identify(0, 1, method="shooting", out=tmp_path / "run")
    assert result.status is Status.CONVERGED
    assert result.message.startswith("clip 2 is left out: tracked in 0 of ")
    assert [part["status"] for part in json.loads((folder / "result.json").read_text())["clips"]] == [
        "converged",
        "lost",
    ]
    assert result.parameters[0].value == pytest.approx(0.72, rel=0.02)


def test_the_tilt_of_a_camera_that_leans_is_found_and_written(
    identify: Any, flown: tuple[Path, list[Flight]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Gravity shows the tilt of a camera whose file says otherwise; the heading keeps its prior."""
    flight = flown[1][0]
    seen = replace(tracked(flight), observation=watch(flight, seed=2))
    monkeypatch.setattr(pipeline, "track_pose", lambda *_: seen)
    camera = load_camera(flown[0] / "0.yaml")
    assert camera.camera_to_world is not None
    truth, leaning = camera.camera_to_world, camera.camera_to_world.copy()
    leaning[:3, :3] = matrix_from_rotvec(np.array([0.05, -0.04, 0.0])) @ leaning[:3, :3]
    save_camera(replace(camera, camera_to_world=leaning), tmp_path / "leaning.yaml")
    turns = tuple(f"camera_turn_{axis}" for axis in "xyz")
    result, folder = identify(
        *(0,), camera=tmp_path / "leaning.yaml", method="shooting", fit=("mass", *turns),
        priors={"camera_turn_z": (0.0, 0.02)}, out=tmp_path / "run",
    )  # fmt: skip
    assert result.status is Status.CONVERGED
    found = {p.name: p for p in result.parameters}
    assert found["mass"].value == pytest.approx(0.72, rel=0.02)
    assert not found["camera_turn_z"].identifiable
    assert any("camera_turn_z is known by its prior alone (0 +- 0.02)" in line for line in result.message.split("; "))
    written = load_camera(folder / "camera.yaml").camera_to_world
    assert written is not None
    down = np.array([0.0, 0.0, -1.0])
    assert np.arccos((written[:3, :3].T @ down) @ (truth[:3, :3].T @ down)) < 0.02
    data = json.loads((folder / "result.json").read_text())
    assert data["fit"]["rms_px"] < 3.0
    assert data["files"]["camera"] == "camera.yaml"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"actions": ["a.csv", "b.csv", "c.csv"]}, "2 clips and 3 --actions; expected one --actions, or one a clip"),
        ({"camera": ["a.yaml", "b.yaml"], "fit": ("focal",)}, "--fit focal of 2 cameras; expected one camera"),
    ],
)
def test_clips_that_do_not_go_together_are_named(options: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"clip": ["a.mp4", "b.mp4"], "camera": "c.yaml", "fit": ("mass",)}
    with pytest.raises(UsageError) as raised:
        IdentifyConfig(**(given | options)).of_each_clip()
    assert text in str(raised.value)


def test_other_solvers_and_too_many_unknowns_are_refused(identify: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 clips with --solver adam"):
        identify(0, 1, method="adam", out=tmp_path / "run")
    with pytest.raises(UsageError, match="--fit scale with --solver rmsprop"):
        identify(0, method="rmsprop", fit=("scale",), out=tmp_path / "run")
    clip = SimpleNamespace(times_s=np.arange(8.0))
    unknowns = SimpleNamespace(parameters=SimpleNamespace(free_names=tuple("abcdefghi")))
    with pytest.raises(InputError, match="8 frames and 9 unknowns"):
        require_frames([SimpleNamespace(clip=clip, known=unknowns)])  # type: ignore[list-item]


def test_the_size_of_a_flown_body_shows_by_its_tilt_and_gravity(identify: Any, tmp_path: Path) -> None:
    """Without actions or a mass: how fast a tilted body moves aside is metres, how it looks is pixels."""
    result, folder = identify(0, actions=None, system="quadrotor", fit=("scale",), set_values={}, out=tmp_path / "run")
    assert result.status is Status.CONVERGED
    (scale,) = [p for p in result.parameters if p.name == "scale"]
    assert scale.identifiable
    assert scale.ci95[0] < 1.0 < scale.ci95[1]
    assert 0.002 < np.log(scale.ci95[1] / scale.ci95[0]) < 1.5
    validate_result(json.loads((folder / "result.json").read_text()))
