"""A drawn bar on a hinge before a textured wall: its motion by SciPy, its images by the project's own rasteriser."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
import trimesh
from scipy.integrate import solve_ivp

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, look_at, matrix_from_rotvec
from vid2phys.types import Array, Camera, Mesh

SIDES_M = (0.30, 0.04, 0.03)
LENGTH_M, GRAVITY = 0.12, 9.81  # from the hinge to the centre of mass
INERTIA = (SIDES_M[0] ** 2 + SIDES_M[2] ** 2) / 12.0  # of a kilogram, about the axis through the centre of mass
RATE = 0.5  # damping over inertia, 1/s
PIVOT = np.array([0.02, 0.05, 0.3])
FPS = 60.0
CAMERA = Camera(
    np.array([[560.0, 0.0, 161.0], [0.0, 560.0, 119.0], [0.0, 0.0, 1.0]]), 320, 240,
    camera_to_world=look_at(np.array([0.35, -1.1, 0.35]), np.array([0.02, 0.05, 0.2])),
)  # fmt: skip


@dataclass(frozen=True)
class Swing:
    """A swing of T frames: times, angles from hanging, poses world_from_body, and the axis in the world."""

    times_s: Array
    angles: Array
    poses: Pose
    axis: Array


def bar() -> trimesh.Trimesh:
    """Return the bar: x is along it, the origin is its centre of mass."""
    return trimesh.creation.box(SIDES_M)


def swing(frames: int, start_rad: float = 0.9, tilt_rad: float = 0.0) -> Swing:
    """Return a swing about an axis near the world's y, by SciPy. tilt_rad: of the axis above the horizontal."""
    axis = np.array([0.0, np.cos(tilt_rad), np.sin(tilt_rad)])
    inertia = LENGTH_M**2 + INERTIA
    torque = GRAVITY * np.cos(tilt_rad) * LENGTH_M
    times = np.arange(frames) / FPS
    found = solve_ivp(
        lambda _, s: [s[1], -RATE * s[1] - torque / inertia * np.sin(s[0])], (0.0, times[-1]), [start_rad, 0.0],
        t_eval=times, rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    up = np.array([0.0, 0.0, 1.0]) - axis * axis[2]
    up /= np.linalg.norm(up)
    hanging = np.stack([-up, axis, np.cross(-up, axis)], axis=1)  # the bar's x is down
    rotation = matrix_from_rotvec(found.y[0][:, None] * axis) @ hanging
    return Swing(times, found.y[0], Pose(rotation, PIVOT + LENGTH_M * rotation[:, :, 0]), axis)


def images(motion: Swing, mesh: Mesh, camera: Camera = CAMERA, seed: int = 0) -> list[np.ndarray]:
    """Return images of a red bar, shaded side by side, before a wall of soft spots, with noise."""
    rng = np.random.default_rng(seed)
    wall = cv2.GaussianBlur(rng.uniform(0.15, 0.75, (camera.height, camera.width, 3)).astype(np.float32), (0, 0), 6.0)
    wall = 0.35 + 2.0 * (wall - wall.mean())
    assert camera.camera_to_world is not None
    to_world = np.asarray(camera.camera_to_world)
    to_camera = Pose(to_world[:3, :3], to_world[:3, 3]).inverse()
    out = []
    for k in range(len(motion.times_s)):
        drawn = rasterize_camera(to_camera.compose(motion.poses[k]).apply(mesh.vertices), mesh.faces, camera, 4)
        normals = drawn.normals @ to_camera.rotation  # world axes
        light = 0.55 + 0.35 * normals @ (np.array([0.5, -0.6, 0.7]) / 1.05)
        color = np.where(drawn.faces_seen >= 0, light[drawn.faces_seen], 0.0)[..., None] * np.array([0.75, 0.1, 0.08])
        mean = drawn.averaged(color)
        linear = wall.copy()
        window = drawn.image_window
        linear[window] = linear[window] * (1.0 - mean[..., 3:]) + mean[..., :3] * mean[..., 3:]
        shown = 255.0 * np.clip(cv2.GaussianBlur(linear, (0, 0), 0.45), 0.0, 1.0) ** (1.0 / 2.2)
        out.append(np.clip(shown + rng.normal(0.0, 1.5, shown.shape), 0, 255).astype(np.uint8))
    return out


def in_camera(motion: Swing, camera: Camera = CAMERA) -> Pose:
    """Return the poses camera_from_body [T]."""
    to_world = np.asarray(camera.camera_to_world)
    return Pose(to_world[:3, :3], to_world[:3, 3]).inverse().compose(motion.poses)


def mesh_of(path: object) -> Mesh:
    """Return the bar as a mesh; path: where it is written."""
    from vid2phys.io.mesh import load_mesh

    bar().export(path)
    return replace(load_mesh(str(path)), name="bar")
