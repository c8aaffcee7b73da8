"""A drawn sheet that hangs by its upper edge and is set in motion: simulated on a finer mesh than the given one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from tests import drawn_clip
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.cloth import Cloth, sheet
from vid2phys.geometry import look_at
from vid2phys.types import Array, Camera

SIDE_M, FPS = 0.2, 60.0
CLAMP = "z>0.199"
KNOWN = {
    "shear_stiffness": 40.0, "area_stiffness": 60.0, "damping": 0.02, "lift": 0.5, "bending_damping": 1e-6,
    "density": 0.2,
}  # fmt: skip
TRUTH = {
    "bending_stiffness": 3e-4, "drag": 0.3,
    "start_velocity_x": 0.1, "start_velocity_y": 0.8, "start_velocity_z": 0.0,
}  # fmt: skip
CAMERA = Camera(
    np.array([[420.0, 0.0, 161.0], [0.0, 420.0, 119.0], [0.0, 0.0, 1.0]]), 320, 240,
    camera_to_world=look_at(np.array([0.42, -0.35, 0.16]), np.array([0.0, 0.0, 0.11])),
)  # fmt: skip


def motion(frames: int, cells: int = 10) -> tuple[Array, Array]:
    """Return places [F, V, 3] m of the vertices and the triangles [T, 3]."""
    vertices, triangles = sheet(SIDE_M, SIDE_M, cells, cells)
    held = np.flatnonzero(vertices[:, 2] > 0.199)
    body = Cloth(vertices, triangles, pinned=held, values=KNOWN | {k: TRUTH[k] for k in ("bending_stiffness", "drag")})
    velocity = np.array([TRUTH[f"start_velocity_{axis}"] for axis in "xyz"])
    start = body.state(vertices, body.free[:, None] * velocity)
    parameters = body.parameters().vector
    substeps = int(np.ceil(1.0 / FPS / (0.8 * body.longest_step_s(parameters))))
    states = simulate(body, start[None], np.zeros((1, frames - 1, 6)), parameters, 1.0 / FPS, substeps=substeps)
    return body.positions(states[0]), triangles


def images(frames: int, cells: int = 10) -> list[np.ndarray]:
    """Return images of the red sheet."""
    places, faces = motion(frames, cells)
    return drawn_clip.images(places, faces, np.array([0.7, 0.12, 0.1]), CAMERA)


def write(folder: Path, frames: int, cells: int = 6, moving: bool = True) -> None:
    """Write images, camera and a mesh of `cells` by `cells` into a folder; without motion, the first image again."""
    drawn_clip.write(folder, images(frames) if moving else images(1) * frames, CAMERA)
    trimesh.Trimesh(*sheet(SIDE_M, SIDE_M, cells, cells), process=False).export(folder / "sheet.obj")
