"""`identify --camera auto`: keypoints of a body that bounces give camera, ground and trajectory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trimesh
import yaml

from tests.bouncing_ball import HEIGHT, WIDTH, Scene, bouncing, seen_by, tracked
from tests.flight import POINTS as FLYING
from tests.flight import fly
from tests.unit.test_given_points import NAMES, body, camera_of, clip_of, pixels_of, write_csv
from vid2phys.api import load_run
from vid2phys.commands.configs import AUTO_CAMERA
from vid2phys.commands.fit_parameters import fixed_parameters
from vid2phys.commands.identify import FitOptions, IdentifyConfig, identify
from vid2phys.commands.identify.estimated_camera import _estimated, with_estimated_camera
from vid2phys.commands.identify.external_keypoints import given_track
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.errors import UsageError
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.camera import save_camera
from vid2phys.io.focal_length import FocalPrior, pinhole_camera
from vid2phys.io.mesh import MassProperties
from vid2phys.io.points import save_body_points
from vid2phys.io.video import VideoWriter
from vid2phys.solvers.camera_from_motion import CameraPrior, Motion
from vid2phys.solvers.flights import Places, find_flights
from vid2phys.tracking.track import Track
from vid2phys.types import Camera, Clip, ConfigurationMeasurement, Mesh, Observation, Result, Status

FPS, RADIUS_M, NOISE_PX = 60.0, 0.1, 0.4
TIMES = np.arange(60) / FPS
SPIN = np.array([2.0, 3.0, 1.0])
POINTS = RADIUS_M / np.sqrt(3) * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
MIDDLE = np.array([0.5 * (WIDTH - 1), 0.5 * (HEIGHT - 1)])


def scene_of(focal_px: float) -> Scene:
    world = bouncing(TIMES, 0.4, (0.2, 0.4), 0.8, RADIUS_M)
    return seen_by(world, TIMES, pitch_deg=28.0, roll_deg=3.0, focal_px=focal_px, radius_m=RADIUS_M)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ball")
    with VideoWriter(folder / "clip.mp4", WIDTH, HEIGHT, FPS) as video:
        for _ in TIMES:
            video.write(np.full((HEIGHT, WIDTH, 3), 80, np.uint8))
    trimesh.creation.icosphere(subdivisions=3, radius=RADIUS_M).export(folder / "ball.obj")
    save_body_points({f"p{k}": point for k, point in enumerate(POINTS)}, folder / "body.csv")
    return folder


def write_keypoints(scene: Scene, path: Path) -> None:
    rng, rows = np.random.default_rng(0), ["time_s,point,x_px,y_px,sigma_px,shared_px"]
    for time, place in zip(scene.times_s, scene.places, strict=True):
        points = POINTS @ matrix_from_rotvec(time * SPIN).T + place
        image = scene.focal_px * points[:, :2] / points[:, 2:] + MIDDLE + NOISE_PX * rng.normal(size=(len(POINTS), 2))
        rows += [f"{time:.6f},p{k},{x:.4f},{y:.4f},{NOISE_PX},0" for k, (x, y) in enumerate(image)]
    path.write_text("\n".join(rows))


def run(files: Path, out: Path, scene: Scene, **options: Any) -> tuple[Result, dict[str, Any]]:
    write_keypoints(scene, out / "k.csv")
    given: dict[str, Any] = {"camera": AUTO_CAMERA, "overlay": False, "out": out / "run"} | options
    config = IdentifyConfig(
        clip=files / "clip.mp4", mesh=files / "ball.obj", system="rigid_contact", observation=out / "k.csv",
        body_points=files / "body.csv", **given,
    )  # fmt: skip
    result, folder = identify(config)
    return result, json.loads((folder / "result.json").read_text())


def in_world(scene: Scene) -> np.ndarray:
    """Return the true places [T, 3] in a world of z up, x to the camera's right, from the first place on."""
    up = -scene.down
    x = np.array([1.0, 0.0, 0.0]) - up[0] * up
    x /= np.linalg.norm(x)
    return (scene.places - scene.places[0]) @ np.stack([x, np.cross(up, x), up]).T


def inside(entry: dict[str, Any], value: float) -> bool:
    return bool(entry["ci95"][0] <= value <= entry["ci95"][1])


def test_nothing_is_known_of_the_camera(files: Path, tmp_path: Path) -> None:
    scene = scene_of(900.0)
    result, data = run(files, tmp_path, scene)
    assert result.status is Status.CONVERGED
    found = data["diagnostics"]["camera_estimate"]
    assert found["focal_px"]["value"] == pytest.approx(900.0, rel=0.05)
    assert inside(found["focal_px"], 900.0)
    assert inside(found["gravity_m_s2"], 9.81)
    assert inside(found["pitch_deg"], 28.0)
    height = float(scene.ground_m - scene.places[0] @ scene.down)
    assert inside(found["ground_z_m"], -height)
    assert any("vid2phys calibrate" in line for line in found["measurements_that_would_help"])
    fitted = yaml.safe_load((tmp_path / "run" / "camera.yaml").read_text())
    assert fitted["camera_matrix"]["data"][0] == pytest.approx(900.0, rel=0.05)
    miss = result.trajectory.states[:, :3] - in_world(scene)
    assert np.sqrt((miss**2).mean()) < 0.02
    assert result.trajectory.covariance is not None
    std = np.sqrt(np.diagonal(result.trajectory.covariance[:, :3, :3], axis1=1, axis2=2))
    assert (np.abs(miss) < 3.0 * std).mean() > 0.95
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["camera"] == "auto"
    camera = load_run(tmp_path / "run").camera  # by which observation.npz was measured
    assert camera.camera_to_world is not None
    assert data["parameters"]["focal"]["source"] == "nuisance"


def test_the_intrinsics_are_known(files: Path, tmp_path: Path) -> None:
    scene = scene_of(900.0)
    (tmp_path / "phone.yaml").write_text(
        f"fx: 900\nfy: 900\ncx: {MIDDLE[0]}\ncy: {MIDDLE[1]}\nwidth: {WIDTH}\nheight: {HEIGHT}\n"
    )
    result, data = run(files, tmp_path, scene, camera=tmp_path / "phone.yaml")
    assert result.status is Status.CONVERGED
    found = data["diagnostics"]["camera_estimate"]
    assert found["focal_px"]["source"] == "the camera file"
    assert inside(found["gravity_m_s2"], 9.81)
    assert found["gravity_m_s2"]["ci95"][1] - found["gravity_m_s2"]["ci95"][0] < 0.8
    assert inside(found["pitch_deg"], 28.0)
    assert data["parameters"]["focal"]["source"] == "default"
    assert data["inputs"]["camera"]["path"].endswith("phone.yaml")
    assert load_run(tmp_path / "run").camera.camera_to_world is not None


def test_bounces_show_restitution_where_neither_camera_nor_ground_is_known(files: Path, tmp_path: Path) -> None:
    """The ball keeps its spin and its horizontal velocity, so that it slides through all impacts without friction."""
    scene = scene_of(900.0)
    result, data = run(files, tmp_path, scene, fit=("restitution",), set_values={"mu": 1e-3})
    assert result.status is Status.CONVERGED
    assert data["parameters"]["restitution"]["value"] == pytest.approx(0.8, abs=0.02)
    assert inside(data["parameters"]["restitution"], 0.8)
    height = float(scene.ground_m - scene.places[0] @ scene.down)
    assert data["parameters"]["ground_height"]["value"] == pytest.approx(-height, abs=0.02)
    assert any("do not carry the uncertainty of the camera" in note for note in data["diagnostics"]["notes"])


def test_a_size_that_is_wrong_shows_in_gravity(files: Path, tmp_path: Path) -> None:
    """A body that is 1.3 times as large as its mesh falls at 9.81 / 1.3 m/s^2."""
    scene = scene_of(900.0)
    small = replace(scene, places=scene.places / 1.3)  # the same images as of a body that is so much larger
    camera = Camera(np.array([[900.0, 0, MIDDLE[0]], [0, 900.0, MIDDLE[1]], [0, 0, 1.0]]), WIDTH, HEIGHT)
    save_camera(camera, tmp_path / "phone.yaml")
    _, data = run(files, tmp_path, small, camera=tmp_path / "phone.yaml")
    found = data["diagnostics"]["camera_estimate"]
    assert inside(found["gravity_m_s2"], 9.81 / 1.3)
    assert found["pitch_deg"]["value"] == pytest.approx(28.0, abs=4.0)
    assert any("its size or the frame rate is wrong" in note for note in data["diagnostics"]["notes"])


def test_what_flies_by_its_own_forces_shows_no_fall(tmp_path: Path) -> None:
    flight = fly(1.0)
    clip = clip_of(flight.times_s)
    pixels = pixels_of(flight) + np.random.default_rng(0).normal(0.0, 0.3, (len(flight.times_s), len(FLYING), 2))
    save_body_points(dict(zip(NAMES, FLYING, strict=True)), tmp_path / "body.csv")
    keypoints = write_csv(tmp_path / "k.csv", flight.times_s, pixels, ",0.3,0", ",sigma_px,shared_px")
    camera = replace(camera_of(flight), camera_to_world=None)
    focal = FocalPrior(float(camera.K[0, 0]), 0.0, "the camera file")
    known = fixed_parameters(flight.system, MassProperties(1e-3, np.zeros(3), np.eye(3), True), {}, (), None)
    inputs = Inputs(clip, body(), camera, np.eye(4), flight.system, None, None, known, (), focal=focal)
    track, _ = given_track(keypoints, tmp_path / "body.csv", clip, camera, body())
    found, same = with_estimated_camera(inputs, (inputs, track), FitOptions(), lambda one: (one, track))
    assert same is track
    assert found.camera_estimate is not None
    assert found.camera_estimate.estimate.flights is None
    np.testing.assert_allclose(found.camera_to_world[:3, :3], [[1, 0, 0], [0, 0, 1], [0, -1, 0]], atol=1e-12)
    assert set(found.known.nuisance) == {"camera_turn_x", "camera_turn_y"}
    assert found.known.priors["camera_turn_x"] == pytest.approx((0.0, np.radians(15.0)))


def measured_track(scene: Scene, nominal_px: float) -> Track:
    """Return the track of a silhouette tracker: measured poses, no keypoints, no rotation of a plain ball."""
    motion = tracked(scene, nominal_px)
    count = len(motion.times_s)
    pose, nothing = Pose(motion.rotation, motion.points), np.zeros((count, 1))
    covariance = np.tile(np.diag([1.0, 1.0, 1.0, 2e-4, 2e-4, 1e-2]) ** 2, (count, 1, 1))
    there, hidden = np.ones(count, dtype=bool), np.zeros((count, 1), dtype=bool)
    found = ConfigurationMeasurement(pose, covariance, np.zeros((count, 6, 6)), np.ones(6), there, "silhouette")
    observation = Observation(
        motion.times_s, np.zeros((count, 1, 2)), np.tile(np.eye(2), (count, 1, 1, 1)), np.zeros((count, 1, 2, 6)),
        np.ones(6), hidden, np.zeros((1, 3)), configuration=found,
    )  # fmt: skip
    estimate = PoseEstimate(pose, np.zeros((count, 6, 6)), nothing[:, 0], nothing[:, 0], hidden)
    return Track(observation, estimate, there, np.ones(count), np.zeros(count, dtype=np.int64), np.zeros(1))


def test_measured_poses_are_tracked_again_with_the_focal_length(tmp_path: Path) -> None:
    scene, system = scene_of(1500.0), RigidContact((Sphere(RADIUS_M),), planes=())
    clip = Clip(None, TIMES, WIDTH, HEIGHT)  # type: ignore[arg-type]
    focal = FocalPrior(1088.0, 0.3, "what is usual for cameras")
    known = fixed_parameters(system, MassProperties(1e-3, np.zeros(3), 1e-3 * np.eye(3), True), {}, (), None)
    ball = Mesh(tracked(scene, 1.0).vertices, np.array([[0, 1, 2]]), np.zeros(1, dtype=np.int64))
    inputs = Inputs(clip, ball, pinhole_camera(clip, 1088.0), np.eye(4), system, None, None, known, (), focal=focal)
    asked: list[float] = []

    def again(one: Inputs) -> tuple[Inputs, Track]:
        asked.append(float(one.camera.K[0, 0]))
        return one, measured_track(scene, asked[-1])

    found, track = with_estimated_camera(inputs, (inputs, measured_track(scene, 1088.0)), FitOptions(), again)
    assert asked
    assert found.camera.K[0, 0] == pytest.approx(1500.0, rel=0.05)
    assert track.observation.configuration is not None
    assert found.camera_estimate is not None
    estimate = found.camera_estimate.estimate
    assert abs(np.log(1500.0 / found.camera.K[0, 0]) - estimate.log_focal) < 3.0 * estimate.std("log_focal")
    up = found.camera_to_world[:3, :3] @ -scene.down
    assert np.degrees(np.arccos(up[2])) < 3.0
    assert found.known.priors["focal"] == pytest.approx((estimate.log_focal, estimate.std("log_focal")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": ("focal",)}, "--fit focal of a camera without a pose"),
        ({"camera_pose": Path("pose.yaml")}, "--camera auto with --camera-pose"),
        (
            {"clip": (Path("a.mp4"), Path("b.mp4")), "observation": None, "body_points": None},
            "--camera auto for 2 clips",
        ),
        ({"observation": Path("o.npz"), "body_points": None}, "--camera auto with --observation o.npz"),
        ({"system": "hand", "mesh": None, "observation": None, "body_points": None}, "--camera auto; expected"),
    ],
)
def test_what_does_not_go_together(files: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "clip": files / "clip.mp4", "mesh": files / "ball.obj", "camera": "auto", "system": "rigid_contact",
        "observation": files / "body.csv", "body_points": files / "body.csv", "out": tmp_path / "run",
    } | options  # fmt: skip
    with pytest.raises(UsageError, match=message):
        identify(IdentifyConfig(**given))


@pytest.mark.parametrize("moved_by_hand", [True, False])
def test_short_stretches_of_constant_acceleration_are_no_fall(moved_by_hand: bool) -> None:
    """A hand waves the ball at 30 fps; or the ball falls in a clip whose rate is wrong by a factor of 0.7."""
    rng, times = np.random.default_rng(0), np.arange(240) / 30.0
    if moved_by_hand:
        rates = np.array([0.3, 0.8, 1.3, 1.9])
        sizes = rng.normal(size=(4, 3)) * 0.12 / (1.0 + rates[:, None] ** 2)
        places = np.sin(2.0 * np.pi * rates * times[:, None] + rng.uniform(0.0, 6.0, 4)) @ sizes
    else:
        times = times[:20]
        places = np.array([0.0, 0.5, 0.0]) * 9.81 * 0.49 * (times[:, None] - 0.1) ** 2
    stds = np.array([5e-4, 5e-4, 3e-3])
    places = places + [0.0, 0.0, 1.0] + rng.normal(size=places.shape) * stds
    count = len(times)
    motion = Motion(times, places, np.tile(np.diag(stds**2), (count, 1, 1)), np.tile(np.eye(3), (count, 1, 1)), POINTS)
    flights = find_flights(Places(times, places, motion.covariance))
    assert flights is not None, "accelerations that could be gravity"
    inputs: Any = SimpleNamespace(system=RigidContact((Sphere(RADIUS_M),), planes=()))
    estimate, check = _estimated(inputs, motion, CameraPrior(1e-4))
    assert (estimate.flights is None) == (check.flights is None) == moved_by_hand
    if not moved_by_hand:
        assert check.gravity == pytest.approx(9.81 * 0.49, rel=0.05)
