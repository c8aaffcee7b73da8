"""A camera that moves: the motion and parameters of a body are those that a static camera shows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from scipy.spatial.transform import Rotation

from tests.flight import Flight, fly, watch
from vid2phys.api import Run
from vid2phys.commands.identify import IdentifyConfig, identify
from vid2phys.commands.identify.inputs import MOVES, with_camera
from vid2phys.engine import systems
from vid2phys.engine.observe import bearings_to_pixels, observe
from vid2phys.engine.pnp import known_pose
from vid2phys.engine.rollout import simulate
from vid2phys.errors import UsageError
from vid2phys.geometry import Pose, invert_transform, look_at, make_transform, matrix_from_quat, matrix_from_rotvec
from vid2phys.io.camera import save_camera
from vid2phys.io.camera_trajectory import tum
from vid2phys.io.mesh import load_mesh
from vid2phys.io.points import save_body_points
from vid2phys.io.video import VideoWriter, read_clip
from vid2phys.report.fit_charts import residuals_px
from vid2phys.solvers import camera_parameters, configurations, initialise, losses, prediction, segments
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.smoothing_model import Layout
from vid2phys.tracking.hypotheses import tilt_evidence
from vid2phys.tracking.measured import with_poses
from vid2phys.types import Array, Camera

FRAMES, FPS, SIDE_M = 30, 30.0, 0.05
TIMES = np.arange(FRAMES) / FPS
CORNERS = SIDE_M * np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
K = np.array([[400.0, 0.0, 320.0], [0.0, 400.0, 240.0], [0.0, 0.0, 1.0]])
STATIC = look_at(np.array([-2.0, -0.6, 0.3]), np.zeros(3))


def walked(times_s: Array) -> Array:
    """Return the poses [T, 4, 4] of a camera that is carried around the origin and rolls."""
    angle = 0.5 * times_s
    places = np.stack([-2.0 * np.cos(angle), -2.0 * np.sin(angle) - 0.6, 0.3 + 0.1 * np.sin(4.0 * times_s)], axis=1)
    poses = np.stack([look_at(place, np.array([0.1, 0.0, 0.1])) for place in places])
    roll = matrix_from_rotvec(np.stack([0 * angle, 0 * angle, 0.2 * np.sin(5.0 * times_s)], axis=1))
    poses[:, :3, :3] = poses[:, :3, :3] @ roll
    return poses


@dataclass(frozen=True)
class Thrown:
    """A thrown box with its files, and the true states [T, 13]."""

    folder: Path
    states: Array

    def identify(self, poses: Array, name: str, *, given: Array | None = None, **options: Any) -> Any:
        """Return the result of exact keypoints in cameras with some poses, and the run folder.

        given: the poses that `identify` is told (default: the same).
        """
        system = systems.get("rigid_contact")
        camera = Camera(K, 640, 480, camera_to_world=poses)
        pixels = bearings_to_pixels(camera, observe(system, self.states, CORNERS, poses)[0])
        rows = [f"{t},p{k},{x:.6f},{y:.6f},0.1,0.001\n" for t, frame in enumerate(pixels)
                for k, (x, y) in enumerate(frame)]  # fmt: skip
        seen = self.folder / f"{name}.csv"
        seen.write_text("frame,point,x_px,y_px,sigma_px,shared_px\n" + "".join(rows))
        save_camera(camera if poses.ndim == 2 else replace(camera, camera_to_world=None), self.folder / "camera.yaml")
        if poses.ndim == 3:
            tum.save(self.folder / "poses.txt", TIMES, poses if given is None else given)
            options["camera_pose"] = self.folder / "poses.txt"
        return identify(
            *(self.folder / "clip.mp4", self.folder / "body.obj", self.folder / "camera.yaml"),
            observation=seen, body_points=self.folder / "points.csv",
            out=self.folder / name, **{"system": "rigid_contact", "fit": ("scale",)} | options,
        )  # fmt: skip


@pytest.fixture(scope="module")
def thrown(tmp_path_factory: pytest.TempPathFactory) -> Thrown:
    folder = tmp_path_factory.mktemp("thrown")
    trimesh.creation.box((2 * SIDE_M,) * 3).export(folder / "body.obj")
    system = systems.get("rigid_contact").for_clip(load_mesh(folder / "body.obj"))
    state = system.rest_state()
    state[:3], state[7:13] = (0.0, 0.0, -0.6), (0.0, 0.2, 4.9, 1.0, 2.0, 0.5)
    controls = np.zeros((1, FRAMES - 1, len(system.control_names)))
    states = simulate(system, state[None], controls, system.parameters().vector, 1.0 / FPS, substeps=20)[0]
    with VideoWriter(folder / "clip.mp4", 640, 480, FPS) as video:
        for _ in range(FRAMES):
            video.write(np.zeros((480, 640, 3), dtype=np.uint8))
    save_body_points({f"p{k}": point for k, point in enumerate(CORNERS)}, folder / "points.csv")
    return Thrown(folder, states)


def test_a_moving_camera_shows_what_a_static_one_shows(thrown: Thrown) -> None:
    static, _ = thrown.identify(STATIC, "static", overlay=False)
    moved, folder = thrown.identify(walked(TIMES), "moved")
    for result in (static, moved):
        assert result.status.key == "converged"
        assert result.parameters[0].value == pytest.approx(1.0, abs=2e-3)
        assert np.abs(result.trajectory.states[:, :3] - thrown.states[:, :3]).max() < 5e-3
        assert np.degrees(np.abs(rotation_error(result.trajectory.states, thrown.states)).max()) < 0.2
        assert result.diagnostics["rms_px"] < 0.05
    assert moved.parameters[0].value == pytest.approx(static.parameters[0].value, abs=2e-3)
    notes = moved.diagnostics["notes"]
    assert MOVES in notes
    assert not any("camera moves" in note for note in static.diagnostics["notes"])
    assert (folder / "overlay.mp4").exists()
    run = Run(folder, moved)
    np.testing.assert_allclose(run.camera.camera_to_world, walked(TIMES), atol=1e-7)
    assert np.nanmax(residuals_px(moved, run.system, run.camera)) < 0.5


def rotation_error(a: Array, b: Array) -> Array:
    """Return the angles [T] rad between the orientations of states."""
    turned, other = (Rotation.from_matrix(matrix_from_quat(each[:, 3:7])) for each in (a, b))
    return np.asarray((turned.inv() * other).magnitude())


@pytest.mark.slow
def test_a_fitted_camera_corrects_all_poses_together(thrown: Thrown) -> None:
    """Gravity shows how a log's world leans; the corrected poses are written."""
    truth, lean = walked(TIMES), matrix_from_rotvec(np.array([0.05, -0.03, 0.0]))
    wrong = truth.copy()
    wrong[:, :3, :3] = lean @ truth[:, :3, :3]
    wrong[:, :3, 3] = truth[0, :3, 3] + (truth[:, :3, 3] - truth[0, :3, 3]) @ lean.T
    values = dict.fromkeys([f"camera_{what}_{axis}" for what in ("turn", "move") for axis in "xyz"], 0.0)
    values |= {"camera_turn_x": -0.05, "camera_turn_y": 0.03}
    moved = camera_parameters.camera_pose(wrong, values)
    back = matrix_from_rotvec(np.array([-0.05, 0.03, 0.0]))
    np.testing.assert_allclose(moved[:, :3, :3], back @ wrong[:, :3, :3], atol=1e-12)
    np.testing.assert_allclose(moved, truth, atol=1e-12)
    np.testing.assert_allclose(camera_parameters.camera_pose(wrong[0], values), truth[0], atol=1e-12)

    result, folder = thrown.identify(
        truth, "leaning", given=wrong, fit=("camera_turn_x", "camera_turn_y"), set_values={"scale": 1.0}, overlay=False
    )
    assert result.status.key == "converged"
    clip = read_clip(thrown.folder / "clip.mp4")
    written = tum.load(tum.Source(folder / "camera_poses.txt", (folder / "camera_poses.txt").read_text()))
    assert written.times_s is not None
    np.testing.assert_allclose(written.times_s, clip.times_s, atol=1e-6)
    down = [-poses[:, 2, :3] for poses in (written.poses, truth, wrong)]  # in camera axes
    assert np.arccos((down[2] * down[1]).sum(axis=1)).min() > 0.05
    assert np.arccos(np.clip((down[0] * down[1]).sum(axis=1), -1.0, 1.0)).max() < 0.01
    assert (
        "camera_to_world" not in (folder / "camera.yaml").read_text().split("# camera_to_world")[-1].split("\n", 1)[1]
    )


def flown(poses: Array | None = None) -> tuple[Flight, Problem]:
    """Return a short flight and its problem: keypoints, and measured poses in half of the frames."""
    flight = fly(0.9)
    poses = walked(flight.times_s) if poses is None else poses
    flight = replace(flight, camera_to_world=poses)
    in_camera = invert_transform(poses) @ make_transform(matrix_from_quat(flight.states[:, 3:7]), flight.states[:, :3])
    pose = Pose(in_camera[:, :3, :3], in_camera[:, :3, 3])
    half = np.arange(0, len(flight.times_s), 2)
    basis = np.tile(0.01 * np.eye(6), (len(half), 1, 1))
    seen = with_poses(watch(flight), half, pose[half], basis, np.full(6, 0.1), "test")
    names = ("focal", "camera_turn_x", "camera_move_z")
    parameters = camera_parameters.with_camera_parameters(flight.parameters, names)
    parameters = parameters.with_values({"camera_turn_x": 0.02, "focal": 1.05}).with_free(names)
    return flight, Problem(flight.system, parameters, seen, poses, flight.actions)


def test_each_frame_is_predicted_in_its_own_camera() -> None:
    """With as many static cameras as frames: each predicts its own frame."""
    flight, problem = flown()
    parameters, states = problem.parameters, flight.states + 1e-3
    fitted = camera_parameters.pose_as_fitted(problem.camera_to_world, parameters)
    fixed = parameters.with_values({"camera_turn_x": 0.0, "camera_move_z": 0.0})
    bearings, by_state, _ = prediction.linear_bearings(problem, parameters, states)
    step, step_by_state, _ = configurations.linear(problem, parameters, states)
    for f in range(0, len(states), 3):
        static = replace(problem, camera_to_world=fitted[f])
        alone, alone_by_state, _ = prediction.linear_bearings(static, fixed, states)
        np.testing.assert_allclose(bearings[f], alone[f], atol=1e-12)
        np.testing.assert_allclose(by_state[f], alone_by_state[f], atol=1e-12)
        alone, alone_by_state, _ = configurations.linear(static, fixed, states)
        np.testing.assert_allclose(step[f], alone[f], atol=1e-12)
        np.testing.assert_allclose(step_by_state[f], alone_by_state[f], atol=1e-9)
    np.testing.assert_array_equal(prediction.bearings(problem, parameters, states[None, :5])[0], bearings[:5])
    np.testing.assert_array_equal(configurations.residual(problem, parameters, states[:5]), step[:5])


def test_derivatives_by_the_camera_parameters() -> None:
    flight, problem = flown()
    _, _, by_camera = prediction.linear_bearings(problem, problem.parameters, flight.states)
    for j, name in enumerate(problem.parameters.free_names):
        parameter = problem.parameters[name]
        at = parameter.to_free(parameter.value)
        ahead, behind = (
            prediction.bearings(
                problem, problem.parameters.with_values({name: parameter.from_free(at + step)}), flight.states
            )
            for step in (1e-4, -1e-4)
        )
        np.testing.assert_allclose(by_camera[..., j], (ahead - behind) / 2e-4, atol=1e-5)


def test_the_loss_of_pytorch_is_that_of_each_frames_camera() -> None:
    flight, problem = flown()
    problem = replace(problem, parameters=flight.parameters)
    along = losses.get("keypoint", problem).residuals(torch.from_numpy(flight.states)).numpy()
    along = along.reshape(len(flight.states), -1)
    for f in (0, 7, 20):
        static = replace(problem, camera_to_world=problem.camera_to_world[f])
        alone = losses.get("keypoint", static).residuals(torch.from_numpy(flight.states)).numpy()
        np.testing.assert_allclose(along[f], alone.reshape(along.shape)[f], atol=1e-9)
        assert np.abs(along[f + 3] - alone.reshape(along.shape)[f + 3]).max() > 0.1


@pytest.mark.parametrize("lost", [slice(0, 0), slice(5, 9)])
def test_first_states_are_those_of_a_static_camera(lost: slice) -> None:
    flight, moving = flown()
    static = replace(moving, camera_to_world=STATIC)
    found = []
    for problem in (moving, static):
        body = make_transform(matrix_from_quat(flight.states[:, 3:7]), flight.states[:, :3])
        in_camera = invert_transform(problem.camera_to_world) @ body
        in_camera[lost, :3, 3] = np.nan
        found.append(initialise.rigid_states(problem, in_camera[:, :3, :3], in_camera[:, :3, 3]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-7)


def test_pieces_of_a_long_clip_have_their_own_poses() -> None:
    _, problem = flown()
    for piece in segments.cut(Layout.of(problem), frames=6, overlap=2):
        part = piece.layout.problem
        first = int(np.searchsorted(problem.observation.times_s, part.observation.times_s[0]))
        expected = problem.camera_to_world[first : first + len(part.observation.times_s)]
        np.testing.assert_array_equal(part.camera_to_world, expected)


def test_up_is_that_of_each_frame() -> None:
    poses = walked(TIMES[:4])
    upright = invert_transform(poses)[:, :3, :3]  # bodies whose z axis is up
    found = known_pose(Pose(upright, np.tile([0.0, 0.0, 2.0], (4, 1))))
    camera = Camera(K, 640, 480, camera_to_world=poses)
    np.testing.assert_allclose(tilt_evidence(found[:, None], np.eye(3)[None], camera, 0.1), 0.0, atol=1e-9)
    static = camera.at(0)
    assert tilt_evidence(found[:, None], np.eye(3)[None], static, 0.1)[3, 0, 0] < -0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": None}, "for a body on a known base; expected a static camera"),
        ({"loss": "pixel", "method": "adam"}, "--loss pixel; expected a static camera"),
    ],
)
def test_what_needs_a_static_camera_is_refused(thrown: Thrown, options: dict[str, Any], message: str) -> None:
    clip = read_clip(thrown.folder / "clip.mp4")
    save_camera(Camera(K, 640, 480), thrown.folder / "alone.yaml")
    tum.save(thrown.folder / "walked.txt", TIMES, walked(TIMES))
    given = {"clip": thrown.folder / "clip.mp4", "mesh": Path("m.obj"), "camera": thrown.folder / "alone.yaml"}
    config = IdentifyConfig(**given | {"camera_pose": thrown.folder / "walked.txt"} | options)
    with pytest.raises(UsageError, match=message):
        with_camera(config, clip)
    allowed = replace(config, mesh=Path("m.obj"), loss="keypoint")
    with pytest.warns(UserWarning, match="cues that need a static background are off"):
        filmed = with_camera(allowed, clip)
    assert filmed.camera.moves
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = with_camera(config, replace(clip, times_s=clip.times_s[:1]))  # a single image
    np.testing.assert_allclose(alone.camera_to_world, walked(TIMES)[0], atol=1e-7)
