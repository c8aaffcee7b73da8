"""A run of identify made from a simulated flight, without tracking or fitting: for tests of judging and showing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.flight import Flight, fly, watch
from vid2phys import geometry
from vid2phys.io.camera import save_camera
from vid2phys.io.run import result_to_json, save_observation, save_trajectory, write_json
from vid2phys.io.video import VideoWriter
from vid2phys.types import Actions, Camera, Estimate, Mesh, PoseLog, Posterior, Result, Status, Trajectory

STD = (0.004, 0.004, 0.01, 0.02, 0.02, 0.03)  # m, m, m, rad, rad, rad


def camera_of(flight: Flight, **options: object) -> Camera:
    """A 320x240 camera where the flight was watched from."""
    K = np.array([[300.0, 0.0, 160.0], [0.0, 300.0, 118.0], [0.0, 0.0, 1.0]])
    return Camera(K, 320, 240, camera_to_world=flight.camera_to_world, **options)  # type: ignore[arg-type]


def cross_mesh(arm: float = 0.14) -> Mesh:
    """Two crossed bars and a box on the front one: two parts."""
    import trimesh

    bars = [trimesh.creation.box((2 * arm, 0.03, 0.02)), trimesh.creation.box((0.03, 2 * arm, 0.02))]
    box = trimesh.creation.box((0.06, 0.05, 0.04))
    box.apply_translation((0.03, 0.0, 0.03))
    faces, vertices, parts, offset = [], [], [], 0
    for part, piece in ((0, bars[0]), (0, bars[1]), (1, box)):
        faces.append(piece.faces + offset)
        vertices.append(piece.vertices)
        parts.append(np.full(len(piece.faces), part))
        offset += len(piece.vertices)
    return Mesh(np.concatenate(vertices), np.concatenate(faces), np.concatenate(parts), ("frame", "box"))


def noisy_result(flight: Flight, *, seed: int = 0, lost: tuple[int, ...] = ()) -> Result:
    """The true flight with independent errors of STD, which its covariance states."""
    rng = np.random.default_rng(seed)
    std = np.array([*STD, *[0.05] * 6])
    tangent = rng.normal(size=(len(flight.times_s), 12)) * std
    states = flight.system.retract(flight.states, tangent)
    covariance = np.broadcast_to(np.diag(std**2), (len(states), 12, 12))
    seen = watch(flight, seed=seed)
    seen.visible[list(lost)] = False
    actions = Actions(
        flight.times_s[:-1], np.tile([7.0, 0.0, 0.01, 0.0], (len(states) - 1, 1)), "wrench",
        flight.system.action_names, flight.system.action_units,
    )  # fmt: skip
    return Result(
        Status.CONVERGED, "made for a test", "quadrotor",
        (
            Estimate("mass", "kg", 0.72, (0.71, 0.73), True),
            Estimate("drag", "N s/m", 0.1, (-np.inf, np.inf), False, prior=(0.2, 0.1)),
            Estimate("gravity", "m/s^2", 9.81, (9.81, 9.81), True, source="default"),
        ),
        Trajectory(flight.times_s, states, flight.system.state_names, None, covariance),
        actions, 0.1 * np.ones_like(actions.values), seen,
        {"identifiability": ["drag <b>does not show</b>: film faster motion"], "time_offset_s": 0.01},
        Posterior(("mass",), ("kg",), (True,), np.log([0.72]), np.array([[5e-5]])),
    )  # fmt: skip


def save_run(folder: Path, flight: Flight, result: Result, mesh: Mesh | None = None) -> dict[str, object]:
    """Write the files that evaluate reads, camera and mesh beside them; returns what result.json holds."""
    from tests.obj_files import save_obj

    inputs = folder.parent / "inputs"
    inputs.mkdir(exist_ok=True, parents=True)
    save_camera(camera_of(flight), inputs / "camera.yaml")
    save_obj(mesh or cross_mesh(), inputs / "mesh.obj")
    save_trajectory(result.trajectory, folder / "trajectory.csv")
    save_observation(result.observation, folder / "observation.npz")
    fit = {"loss": 1.0, "rms_px": 0.5, "iterations": 3, "seconds": 1.5, "frames_used": 10, "frames_lost": 0}
    files = {"trajectory": "trajectory.csv"}
    paths = {"camera": inputs / "camera.yaml", "mesh": inputs / "mesh.obj"}
    summary = result_to_json(result, paths, fit, files, seed=0)
    write_json(folder / "result.json", summary)
    return summary


def mocap_of(
    flight: Flight, offset_s: float, *, marker: np.ndarray | None = None, world: np.ndarray | None = None
) -> PoseLog:
    """A 120 Hz log of the flight whose clock is ahead by `offset_s`, of a marker frame, in another world [6] each."""
    from scipy.interpolate import CubicSpline
    from scipy.spatial.transform import Rotation, RotationSpline

    times = np.arange(flight.times_s[0] + 0.05, flight.times_s[-1] - 0.05, 1 / 120)
    positions = CubicSpline(flight.times_s, flight.states[:, :3])(times)
    turns = Rotation.from_quat(np.roll(flight.states[:, 3:7], -1, axis=1))
    quats = np.roll(RotationSpline(flight.times_s, turns)(times).as_quat(), 1, axis=1)
    if marker is not None:
        positions = positions + geometry.rotate(quats, marker[3:])
        quats = geometry.quat_multiply(quats, geometry.quat_from_rotvec(marker[:3]))
    if world is not None:  # mocap_to_world takes the log back
        back = geometry.quat_conjugate(geometry.quat_from_rotvec(world[:3]))
        positions = geometry.rotate(back, positions - world[3:])
        quats = geometry.quat_multiply(back, quats)
    return PoseLog(times + offset_s, positions, quats)


def save_log(log: PoseLog, path: Path) -> None:
    """Write a log as TUM text: time, position, quaternion xyzw."""
    quats = np.roll(log.orientation_quat_wxyz, -1, axis=1)
    np.savetxt(path, np.column_stack([log.times_s, log.positions_m, quats]), fmt="%.9f")


def write_clip(path: Path, flight: Flight, camera: Camera) -> None:
    """A grey clip, one frame a state."""
    with VideoWriter(path, camera.width, camera.height, 30.0) as video:
        for index in range(len(flight.times_s)):
            video.write(np.full((camera.height, camera.width, 3), 120 + index % 5, dtype=np.uint8))


def short_flight() -> Flight:
    """A flight of 3 s."""
    return fly(3.0)
