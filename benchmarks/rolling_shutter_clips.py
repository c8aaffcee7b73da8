"""Clips of a thrown box as a rolling shutter sees it: every two rows of a frame are drawn at their own time.

`make` writes clip.mp4, mesh.obj, camera.yaml, and truth.csv with the states of 1,000 times a second. The motion is
simulated (`engine.systems.rigid_contact`). Each row shows the box at the time of its exposure, by `commands.film`,
which knows nothing of the tracker's model of a rolling shutter.

Limits: no motion blur, no shadows, one light.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import trimesh
from numpy.typing import NDArray

from vid2phys import geometry
from vid2phys.commands import film
from vid2phys.engine.observe import project
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.io.camera import save_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.texture import SurfaceColors
from vid2phys.io.video import VideoWriter
from vid2phys.types import Array, Camera, Mesh, Trajectory

SIDES_M = (0.12, 0.08, 0.05)
TRUTH = {"mu": 0.35, "restitution": 0.4, "gravity": 9.81}
_BAND, _NOISE, _STEP_S = 2, 2.0, 1e-3  # rows that are drawn at one time; of 255 levels
_MARGIN_ROWS = 2


@dataclass(frozen=True, kw_only=True)
class Throw:
    """A throw before a static camera.

    Attributes:
        start: position [m], quaternion wxyz, velocity [m/s] and angular velocity [rad/s] of the first frame, [13].
        seconds: duration.
        fps: frames a second.
        ground_height: of the floor, m.
        camera_m: place of the camera.
        target_m: what it looks at.
    """

    start: tuple[float, ...]
    seconds: float
    fps: float = 30.0
    ground_height: float = -10.0
    camera_m: tuple[float, float, float] = (0.0, -2.0, 0.0)
    target_m: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def camera(self) -> Camera:
        """Return the camera, 640x480."""
        K = np.array([[800.0, 0.0, 322.3], [0.0, 800.0, 236.1], [0.0, 0.0, 1.0]])
        pose = geometry.look_at(np.array(self.camera_m), np.array(self.target_m))
        return Camera(K, 640, 480, camera_to_world=pose)


_ABOUT = (0.84, 0.25, 0.40, 0.26)
THROWS = {
    "fall": Throw(start=(-0.05, 0.0, 0.5, *_ABOUT, 0.3, 0.1, 0.2, 2.0, -3.0, 1.5), seconds=0.48),
    "up and down": Throw(start=(-0.05, 0.0, -0.48, *_ABOUT, 0.12, 0.1, 4.3, 2.0, -3.0, 1.5), seconds=0.86),
    "sideways": Throw(start=(-0.62, 0.0, -0.25, *_ABOUT, 1.8, 0.1, 3.2, 2.0, -3.0, 1.5), seconds=0.7),
    "floor": Throw(
        start=(-0.5, 0.0, 0.4, *_ABOUT, 1.2, 0.1, 0.6, 3.0, -5.0, 2.0),
        seconds=1.0,
        fps=60.0,
        ground_height=0.0,
        camera_m=(0.1, -1.6, 0.7),
        target_m=(0.05, 0.0, 0.2),
    ),
}


def make(folder: Path, throw: Throw, readout_s: float, seed: int = 0) -> None:
    """Write a clip with a readout from top to bottom."""
    folder.mkdir(parents=True)
    trimesh.creation.box(SIDES_M).export(folder / "mesh.obj")
    mesh = load_mesh(folder / "mesh.obj")
    system, motion = simulated(throw, mesh)
    save_camera(throw.camera, folder / "camera.yaml")
    table = np.column_stack([motion.times_s, motion.states])
    np.savetxt(folder / "truth.csv", table, delimiter=",", header="time_s,x,y,z,qw,qx,qy,qz,vx,vy,vz,wx,wy,wz")
    rng = np.random.default_rng(seed)
    with VideoWriter(folder / "clip.mp4", throw.camera.width, throw.camera.height, throw.fps, crf=18) as video:
        for frame in images(throw.camera, mesh, system, motion, frame_times(throw), readout_s):
            noise = _NOISE * rng.normal(size=frame.shape)
            video.write(np.clip(np.round(frame + noise), 0, 255).astype(np.uint8))


def frame_times(throw: Throw) -> Array:
    """Return the times of the frames' middle rows, [T] s, from 0."""
    return np.arange(round(throw.seconds * throw.fps)) / throw.fps


def simulated(throw: Throw, mesh: Mesh) -> tuple[ThrownBody, Trajectory]:
    """Return the body and its states from 0.05 s before the first frame to as long after the last one."""
    system = ThrownBody(mesh)
    inertia = dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), system.shape.inertia_per_mass, strict=True))
    values = {"mass": 1.0, **inertia, **TRUTH, "ground_height": throw.ground_height}
    vector = system.parameters().with_values(values).vector[None]
    start = np.array(throw.start)
    start[3:7] = geometry.quat_normalize(start[3:7])
    before = round(0.05 / _STEP_S)
    start[:3] += -0.05 * start[7:10] + 0.5 * 0.05**2 * np.array([0.0, 0.0, -TRUTH["gravity"]])
    start[9] += 0.05 * TRUTH["gravity"]
    count = round((throw.seconds + 0.1) / _STEP_S)
    lengths, slack = np.full((1, count), _STEP_S), np.zeros((1, count, 4))
    states = system.rollouts(start[None], lengths, vector, slack)[0][0]
    return system, Trajectory((np.arange(count + 1) - before) * _STEP_S, states, system.state_names)


def images(
    camera: Camera, mesh: Mesh, system: ThrownBody, motion: Trajectory, times_s: Array, readout_s: float
) -> list[NDArray[np.uint8]]:
    """Return frames [H, W, 3] whose rows are exposed from top to bottom, the middle one at times_s [T]."""
    floor_m = -1.5 if float(motion.states[:, 2].min()) < -0.3 else 0.0
    background = film.backdrop(camera, floor_m, 0.25)
    plain, colors = film.encode(background), SurfaceColors(mesh)
    assert camera.camera_to_world is not None
    to_camera = geometry.invert_transform(camera.camera_to_world)
    top = np.arange(0, camera.height, _BAND)
    delay = readout_s * ((top + 0.5 * _BAND) / camera.height - 0.5)
    frames = []
    for time_s in times_s:
        states = film.states_at(system, motion, time_s + delay)
        frame = plain.copy()
        for row, state in zip(top, states, strict=True):
            vertices = system.vertices(state, mesh.vertices)
            rows = project(camera, geometry.transform_points(to_camera, vertices))[:, 1]
            if rows.min() - _MARGIN_ROWS < row + _BAND and row < rows.max() + _MARGIN_ROWS:
                drawn, _ = film.draw(vertices, mesh, camera, background, plain, colors)
                frame[row : row + _BAND] = drawn[row : row + _BAND]
        frames.append(frame)
    return frames
