"""A box that moves before a photograph-like wall, drawn with one colour a face and its shadow, with known poses."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.types import Array, Camera, Clip, Mesh

CAMERA = Camera(np.array([[420.0, 0.0, 157.0], [0.0, 420.0, 121.0], [0.0, 0.0, 1.0]]), 320, 240)
FPS = 60.0
COLOR = np.array([0.75, 0.25, 0.15])
_SIDES = np.array([0.06, 0.04, 0.025])


def box_mesh() -> Mesh:
    """Return a box of 120 x 80 x 50 mm."""
    corners = np.array([[(-1.0, 1.0)[(i >> k) & 1] for k in range(3)] for i in range(8)]) * _SIDES
    quads = [(0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5)]
    faces = np.array([tri for a, b, c, d in quads for tri in ((a, b, c), (a, c, d))])
    return Mesh(corners, faces, np.zeros(len(faces), dtype=np.int64), name="box")


def box_poses(frames: int) -> Pose:
    """Return poses camera_from_body [frames] of a box that is thrown and rotates about a tilted axis."""
    times = np.arange(frames) / FPS
    places = np.array([-0.25, 0.08, 1.1]) + times[:, None] * np.array([0.75, -0.9, 0.1])
    places[:, 1] += 0.5 * 3.0 * times**2
    rotations = matrix_from_rotvec(times[:, None] * np.array([3.0, 2.0, -1.5]) + np.array([0.4, 0.5, 0.2]))
    return Pose(rotations, places)


def wall(seed: int = 0) -> NDArray[np.float64]:
    """Return a wall with soft blotches, [H, W, 3] in 0..1."""
    rng = np.random.default_rng(seed)
    blotches = cv2.GaussianBlur(rng.normal(0.0, 1.0, (CAMERA.height, CAMERA.width, 3)), (0, 0), 6.0)
    return np.asarray(np.clip(0.45 + 0.6 * blotches, 0.05, 0.95))


def photograph(mesh: Mesh, pose: Pose, behind: Array, seed: int) -> NDArray[np.uint8]:
    """Return a frame [H, W, 3] with the mesh at a pose, its shadow below, and noise."""
    vertices = pose.apply(mesh.vertices)
    shadow = rasterize_camera(vertices + np.array([0.02, 0.05, 0.03]), mesh.faces, CAMERA, 2).coverage[..., None]
    image = behind * (1.0 - 0.4 * cv2.GaussianBlur(shadow, (0, 0), 3.0)[..., None])
    normals = np.cross(*(vertices[mesh.faces[:, k]] - vertices[mesh.faces[:, 0]] for k in (1, 2)))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    for k in np.argsort(-vertices[mesh.faces].mean(axis=1)[:, 2]).tolist():
        lit = 0.45 + 0.55 * abs(float(normals[k] @ np.array([0.3, -0.8, -0.52])))
        cover = rasterize_camera(vertices, mesh.faces[k : k + 1], CAMERA, 3).coverage[..., None]
        image = (1.0 - cover) * image + cover * lit * COLOR
    display = 255.0 * cv2.GaussianBlur(image, (0, 0), 0.6)
    noise = np.random.default_rng(seed).normal(0.0, 2.0, display.shape)
    return np.clip(np.round(display + noise), 0, 255).astype(np.uint8)


def box_clip(frames: int = 30) -> tuple[Clip, Pose]:
    """Return a clip of the box and its true poses."""
    mesh, poses, behind = box_mesh(), box_poses(frames), wall()
    images = np.stack([photograph(mesh, poses[i], behind, i) for i in range(frames)])
    return Clip(ArrayFrames(images), np.arange(frames) / FPS, CAMERA.width, CAMERA.height, "thrown box"), poses
