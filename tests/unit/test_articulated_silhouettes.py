"""Tracking an arm with nothing trained, against drawn clips whose motion has its own forward kinematics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray

from tests.moving_arm import FPS, SWING, Link, arm_clip, camera_of, placed, swings, urdf
from vid2phys.commands.identify.config import FitOptions, IdentifyConfig
from vid2phys.commands.identify.default_system import with_system
from vid2phys.commands.identify.fit_articulated import estimate, initialise
from vid2phys.commands.identify.inputs import Filmed, Inputs, read_inputs
from vid2phys.commands.identify.measured_motion import unlike
from vid2phys.commands.options import built
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.engine.systems.articulated import Articulated
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import invert_transform
from vid2phys.io.array_clip import array_clip
from vid2phys.io.robot import parse_robot
from vid2phys.notes import Severity, severity_of
from vid2phys.tracking.articulated import silhouette_fit
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.silhouette_fit import Fit, FrameFit
from vid2phys.tracking.articulated.silhouette_search import ConfigurationSearch, SilhouetteSearchConfig
from vid2phys.tracking.articulated.silhouette_tracker import jump_notes, track_silhouettes, unwrapped
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.viterbi import SteadyMotion, viterbi_path
from vid2phys.types import Array, Camera, Clip, Status

FEW = SilhouetteSearchConfig(configurations=512)
CAMERA = camera_of((0.25, -1.1, 0.1), (0.0, 0.0, -0.05), 320, 400.0)


def body_of(links: tuple[Link, ...]) -> JointBody:
    return JointBody(Articulated(parse_robot(urdf(links), Path("arm.urdf"))))


def covered(boxes: list[Array]) -> NDArray[np.bool_]:
    """Return the pixels of a frame that show any of some boxes."""
    assert CAMERA.camera_to_world is not None
    to_camera = invert_transform(CAMERA.camera_to_world)
    one = np.asarray(trimesh.creation.box((1.0, 1.0, 1.0)).faces)
    vertices = np.concatenate(boxes) @ to_camera[:3, :3].T + to_camera[:3, 3]
    return rasterize_camera(vertices, np.concatenate([one + 8 * n for n in range(len(boxes))]), CAMERA).mask


def rms_deg(found: Array, true: Array) -> Array:
    return np.degrees(np.sqrt(((found - true) ** 2).mean(axis=0)))


@pytest.fixture(scope="module")
def arm() -> JointBody:
    return body_of(SWING)


@pytest.fixture(scope="module")
def filmed() -> tuple[Clip, Array]:
    motion = swings(SWING, 24, seed=3)
    return arm_clip(SWING, CAMERA, motion), motion


def test_body_is_where_a_product_of_transformations_has_it(arm: JointBody) -> None:
    at = np.array([0.7, -1.1])
    true = np.concatenate(placed(SWING, at))
    apart = np.linalg.norm(arm.vertices(at)[:, None] - true[None], axis=-1)
    assert apart.min(axis=1).max() < 1e-9
    assert apart.min(axis=0).max() < 1e-9


def test_places_on_the_surface_move_as_their_differences_say(arm: JointBody) -> None:
    at, small = np.array([0.3, 0.8]), 1e-6
    places = np.arange(len(arm.surface(at)))
    slopes = [(arm.surface(at + d) - arm.surface(at - d)) / (2.0 * small) for d in small * np.eye(2)]
    np.testing.assert_allclose(arm.surface_jacobian(at, places), np.stack(slopes, axis=-1), atol=1e-8)
    gaps = np.linalg.norm(arm.surface(at)[:, None] - arm.vertices(at).mean(axis=0), axis=-1)
    assert len(places) > 3 * len(arm.mesh.vertices)
    assert np.isfinite(gaps).all()


def test_joints_without_limits_go_round(arm: JointBody) -> None:
    assert np.isinf(arm.upper).all()
    np.testing.assert_allclose(arm.difference(np.array([3.0, 0.0]), np.array([-3.0, 0.1])), [2 * np.pi - 6.0, 0.1])
    motion = np.stack([np.linspace(2.8, 3.6, 9), np.zeros(9)], axis=1)
    wrapped = (motion + np.pi) % (2.0 * np.pi) - np.pi
    np.testing.assert_allclose(unwrapped(wrapped, arm), motion)
    limited = body_of(tuple(replace(link, limits=(-1.0, 1.5)) for link in SWING))
    assert (limited.periods == 0.0).all()
    assert (limited.upper < 1.7).all()


def test_pixels_of_the_base_are_neither_body_nor_scene(arm: JointBody) -> None:
    search = ConfigurationSearch(arm, Window.of(CAMERA, arm, 128), FEW)
    base = covered(placed((), np.zeros(0)))
    assert search.static[base].all()
    assert search.static.sum() < 1.5 * base.sum()
    assert not search.moving[arm.mesh.part == 0].any()
    assert search.moving[arm.mesh.part > 0].all()


def test_search_proposes_the_configuration_of_a_perfect_foreground(arm: JointBody) -> None:
    search = ConfigurationSearch(arm, Window.of(CAMERA, arm, 128), FEW)
    at = np.array([0.5, -0.9])
    ratio = np.where(covered(placed(SWING, at)[1:]), 4.0, -4.0).astype(np.float32)
    assert search.distance(search.propose(ratio)[0], at) < 0.12


@pytest.mark.parametrize(("std", "expected"), [(0.5, 0.5), (None, silhouette_fit.DEFAULTS.contour_std)])
def test_a_fit_knows_its_start_by_units_of_the_coordinates(
    arm: JointBody, monkeypatch: pytest.MonkeyPatch, std: float | None, expected: float
) -> None:
    search, given = ConfigurationSearch(arm, Window.of(CAMERA, arm, 96), FEW), []
    seen = FrameFit(np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8), np.float32), search, Solid.of(arm.mesh))
    monkeypatch.setattr(silhouette_fit, "refine_from", lambda *rest: given.append(rest[-1]))
    monkeypatch.setattr(FrameFit, "judged", lambda _, at, covariance: Fit(at, 3.0, 0.5, covariance))
    start = np.zeros(len(search.units))
    assert seen.fitted(start, std) == Fit(start, 3.0, 0.5, None)
    np.testing.assert_allclose(given[0], np.diag(1.0 / (expected * search.units) ** 2))


def test_arm_is_tracked_to_a_degree(arm: JointBody, filmed: tuple[Clip, Array]) -> None:
    clip, motion = filmed
    track = track_silhouettes(clip, CAMERA, arm, search=FEW)
    assert track.tracked.all()
    assert (rms_deg(track.configurations, motion) < 1.0).all()
    assert track.observation.measured.all()
    assert not track.observation.visible.any()
    stated = np.sqrt(np.einsum("tii->ti", track.covariance))
    assert (np.abs(track.configurations - motion) < 4.0 * stated).mean() > 0.95


def test_a_joint_that_rests_is_part_of_the_background(arm: JointBody) -> None:
    motion = swings(SWING, 24, seed=3) * [0.0, 1.0] + [0.5, 0.0]
    track = track_silhouettes(arm_clip(SWING, CAMERA, motion), CAMERA, arm, search=FEW)
    assert (rms_deg(track.configurations[track.tracked], motion[track.tracked]) < 2.0).all()
    assert track.tracked.mean() > 0.9


def test_nothing_is_tracked_where_nothing_moves(arm: JointBody) -> None:
    still = arm_clip(SWING, CAMERA, np.zeros((1, 2)))
    images = np.repeat(np.stack(list(still.frames)), 10, axis=0)
    with pytest.raises(InputError, match="nothing moves"):
        track_silhouettes(array_clip(images, np.arange(10) / FPS, "still"), CAMERA, arm, search=FEW)


def test_a_camera_that_moves_needs_a_model(arm: JointBody, filmed: tuple[Clip, Array]) -> None:
    moving = replace(CAMERA, camera_to_world=np.repeat(np.asarray(CAMERA.camera_to_world)[None], 24, axis=0))
    with pytest.raises(InputError, match="a camera that moves"):
        track_silhouettes(filmed[0], moving, arm, search=FEW)


def test_steady_path_passes_decoys_and_a_period() -> None:
    times = np.arange(12) / 30.0
    steady = (2.9 + 4.0 * times + np.pi) % (2.0 * np.pi) - np.pi
    decoy = np.where(np.arange(12) % 5 == 2, 0.0, 1.0)
    states = np.stack([decoy, steady], axis=1)[..., None]
    cost = np.zeros((12, 2))
    cost[[3, 7], 1] = 3.0  # the decoy looks better in some frames
    motion = SteadyMotion(periods=(2.0 * np.pi,))
    assert (viterbi_path(cost, states, times, motion) == 1).all()
    assert (viterbi_path(cost - np.array([10.0, 0.0]), states, times, motion) == 0).all()


def read(folder: Path, text: str, **options: object) -> Inputs:
    path = folder / "arm.urdf"
    path.write_text(text)
    asked = {"clip": "c.mp4", "camera": "c.yaml", "body": str(path), **options}
    return read_inputs(with_system(built(IdentifyConfig, asked)), known)


def known(_config: IdentifyConfig, _actions: object) -> Filmed:
    """Stand for a clip, which nothing of these tests needs."""
    camera = Camera(np.eye(3), 64, 48)
    return Filmed(Clip((), np.zeros(0), 64, 48), camera, np.eye(4))  # type: ignore[arg-type]


def test_robot_is_read_from_its_file_on_a_given_base(tmp_path: Path) -> None:
    inputs = read(tmp_path, urdf(SWING), model="none", base="z:90,shift:0:0:0.4")
    assert inputs.model is None
    assert inputs.system.name == "articulated"
    assert any("without limits" in note and "joint1, joint2" in note for note in inputs.notes)
    true = np.concatenate(placed(SWING, np.array([0.4, 0.6])))
    true = np.stack([-true[:, 1], true[:, 0], true[:, 2] + 0.4], axis=1)
    assert inputs.body is not None
    found = inputs.body.vertices(np.array([0.4, 0.6]))
    assert np.linalg.norm(found[:, None] - true[None], axis=-1).min(axis=1).max() < 1e-9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("<visual>", "<!-- "), "no geometry"),
        (('<axis xyz="0 1 0"/>', '<axis xyz="0 1 0"/><mimic joint="joint1"/>'), "mimics another"),
        (('type="continuous"', 'type="floating"'), "not supported"),
    ],
)
def test_robot_that_cannot_be_tracked_is_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    text = urdf(SWING).replace(*change)
    if "<!--" in text:
        text = text.replace("</visual>", " -->")
    with pytest.raises(InputError, match=words):
        read(tmp_path, text, model="none")


def test_base_that_moves_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arm.xml"
    geom = '<geom type="box" size="0.1 0.1 0.1"/>'
    text = f'<body><freejoint/>{geom}<body pos="0.2 0 0"><joint/>{geom}</body></body>'
    path.write_text(f"<mujoco><worldbody>{text}</worldbody></mujoco>")
    asked = {"clip": "c.mp4", "camera": "c.yaml", "body": str(path), "model": "none"}
    with pytest.raises(InputError, match="moves"):
        read_inputs(with_system(built(IdentifyConfig, asked)), known)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"body": "arm.urdf", "mesh": "box.obj"}, "beside the robot"),
        ({"mesh": "box.obj", "base": "z:90"}, "--base z:90 without a robot"),
        ({"body": "arm.urdf", "observation": "points.csv"}, "--observation"),
    ],
)
def test_options_that_contradict_a_robot(options: dict[str, str], words: str) -> None:
    config = with_system(built(IdentifyConfig, {"clip": "c.mp4", "camera": "c.yaml", **options}))
    with pytest.raises(UsageError, match=words):
        config.check()


def test_robot_belongs_to_the_articulated_system(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--system articulated"):
        read(tmp_path, urdf(SWING), model="none", system="hand")


def test_path_that_changes_between_configurations_is_doubtful(arm: JointBody) -> None:
    times = np.arange(20) / FPS
    steady = np.stack([9.0 * times, np.sin(12.0 * times)], axis=1)  # goes round, fast
    assert jump_notes(times, (steady + np.pi) % (2.0 * np.pi) - np.pi, arm, np.full(2, 0.35)) == ()
    mirrored = np.where((np.arange(20) < 8)[:, None], steady, -steady)
    (note,) = jump_notes(times, mirrored, arm, np.full(2, 0.35))
    assert severity_of(note) is Severity.DOUBT
    assert f"first at {times[7]:.2f} s" in note


def test_motor_drives_a_robot_of_which_nothing_is_asked(
    tmp_path: Path, arm: JointBody, filmed: tuple[Clip, Array]
) -> None:
    clip, motion = filmed
    track = track_silhouettes(clip, CAMERA, arm, search=FEW)
    inputs = replace(read(tmp_path, urdf(SWING), model="none"), clip=clip, camera=CAMERA)
    start = initialise(inputs, track)
    (measured,) = estimate([inputs], [track], [start], FitOptions())
    assert measured.status is Status.CONVERGED
    assert (rms_deg(measured.trajectory.states[:, :2], motion) < 0.7).all()
    rates = np.gradient(motion, 1.0 / FPS, axis=0)
    apart = measured.trajectory.states[2:-2, 2:] - rates[2:-2]
    assert np.sqrt((apart**2).mean()) < 0.15 * np.sqrt((rates**2).mean())
    assert any("no dynamics are fitted" in note for note in measured.diagnostics["notes"])  # type: ignore[attr-defined]
    free = np.concatenate([motion, rates], axis=1) * [1.0, 0.3, 1.0, 0.3]
    (note,) = unlike(inputs, track, free)
    assert "joint2" in note
    assert severity_of(note) is Severity.DOUBT
    assert unlike(inputs, track, np.concatenate([motion, rates], axis=1)) == []
