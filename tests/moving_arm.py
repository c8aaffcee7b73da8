"""Serial arms of boxes that move before a wall, drawn from their own forward kinematics, with known coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import trimesh
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import invert_transform, look_at
from vid2phys.io.array_clip import array_clip
from vid2phys.types import Array, Camera, Clip

FPS = 60.0


@dataclass(frozen=True)
class Link:
    """A box on a joint. offset: m, of the joint in the axes of the link before. axis: of the joint.

    middle and size: of the box in the link's axes, m. limits: rad or m; None without.
    """

    offset: tuple[float, float, float]
    axis: tuple[float, float, float]
    middle: tuple[float, float, float]
    size: tuple[float, float, float]
    color: tuple[float, float, float]
    limits: tuple[float, float] | None = None
    slides: bool = False


BASE = Link((0.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.02), (0.08, 0.08, 0.04), (0.2, 0.2, 0.22))
SWING = (
    Link((0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -0.075), (0.02, 0.02, 0.15), (0.75, 0.3, 0.15)),
    Link((0.0, 0.0, -0.15), (0.0, 1.0, 0.0), (0.0, 0.0, -0.06), (0.02, 0.03, 0.12), (0.2, 0.5, 0.3)),
)


def urdf(links: tuple[Link, ...], name: str = "arm") -> str:
    """Return the arm as a URDF, its base at the world's origin."""
    text = [f'<robot name="{name}">', _link("base", BASE)]
    for i, link in enumerate(links):
        kind = "prismatic" if link.slides else "continuous" if link.limits is None else "revolute"
        low_high = link.limits or (0.0, 0.0)
        limit = "" if link.limits is None else '<limit lower="{}" upper="{}" effort="9" velocity="9"/>'
        text += [
            f'<joint name="joint{i + 1}" type="{kind}"><parent link="{f"link{i}" if i else "base"}"/>'
            f'<child link="link{i + 1}"/><origin xyz="{_words(link.offset)}"/><axis xyz="{_words(link.axis)}"/>'
            f"{limit.format(*low_high)}</joint>",
            _link(f"link{i + 1}", link),
        ]
    return "\n".join([*text, "</robot>"])


def _words(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)


def _link(name: str, link: Link) -> str:
    inertial = f'<inertial><origin xyz="{_words(link.middle)}"/><mass value="0.2"/>'
    inertial += '<inertia ixx="1e-3" ixy="0" ixz="0" iyy="1e-3" iyz="0" izz="1e-3"/></inertial>'
    shape = f'<origin xyz="{_words(link.middle)}"/><geometry><box size="{_words(link.size)}"/></geometry>'
    return f'<link name="{name}">{inertial}<visual>{shape}</visual></link>'


def placed(links: tuple[Link, ...], coordinates: Array) -> list[Array]:
    """Return the corners [8, 3] of each box, the base's first, by a product of transformations."""
    pose, found = np.eye(4), [_corners(BASE)]
    for link, value in zip(links, coordinates, strict=True):
        pose = pose @ trimesh.transformations.translation_matrix(link.offset)
        if link.slides:
            pose = pose @ trimesh.transformations.translation_matrix(value * np.array(link.axis))
        else:
            pose = pose @ trimesh.transformations.rotation_matrix(value, link.axis)
        found.append(_corners(link) @ pose[:3, :3].T + pose[:3, 3])
    return found


def _corners(link: Link) -> Array:
    return np.asarray(trimesh.creation.box(link.size).vertices + np.array(link.middle))


def wall(camera: Camera, seed: int = 0) -> Array:
    """Return a wall with soft blotches and stripes, [H, W, 3] in 0..1."""
    rng = np.random.default_rng(seed)
    blotches = cv2.GaussianBlur(rng.normal(0.0, 1.0, (camera.height, camera.width, 3)), (0, 0), 0.02 * camera.width)
    stripes = 0.1 * np.sign(np.sin(np.arange(camera.width) / (0.03 * camera.width)))[None, :, None]
    return np.asarray(np.clip(0.5 + 1.5 * blotches + stripes * (seed % 2), 0.05, 0.95))


def photograph(
    links: tuple[Link, ...], camera: Camera, coordinates: Array, behind: Array, seed: int
) -> NDArray[np.uint8]:
    """Return a frame [H, W, 3] with the arm, its shadow and noise."""
    assert camera.camera_to_world is not None
    to_camera = invert_transform(camera.camera_to_world)
    boxes = [corners @ to_camera[:3, :3].T + to_camera[:3, 3] for corners in placed(links, coordinates)]
    one = trimesh.creation.box((1.0, 1.0, 1.0)).faces
    vertices = np.concatenate(boxes)
    faces = np.concatenate([one + 8 * n for n in range(len(boxes))])
    shadow = rasterize_camera(vertices + np.array([0.04, 0.05, 0.1]), faces, camera).coverage[..., None]
    image = behind * (1.0 - 0.35 * cv2.GaussianBlur(shadow, (0, 0), 0.006 * camera.width)[..., None])
    colors = np.repeat([link.color for link in (BASE, *links)], len(one), axis=0)
    raster = rasterize_camera(vertices, faces, camera, 2)
    lit = 0.45 + 0.55 * np.abs(raster.normals @ np.array([0.3, -0.8, -0.52]))
    seen = raster.face_id
    fine = np.where((seen >= 0)[..., None], (lit[:, None] * colors)[seen], 0.0)
    small = (camera.height, 2, camera.width, 2)
    cover = (seen >= 0).reshape(small).mean(axis=(1, 3))[..., None]
    image = image * (1.0 - cover) + fine.reshape(*small, 3).mean(axis=(1, 3))
    display = 255.0 * cv2.GaussianBlur(image, (0, 0), 0.6)
    noise = np.random.default_rng(seed).normal(0.0, 2.0, display.shape)
    return np.asarray(np.clip(np.round(display + noise), 0, 255).astype(np.uint8))


def swings(links: tuple[Link, ...], frames: int, seed: int = 0) -> Array:
    """Return smooth joint coordinates [frames, D] that pass through much of their range."""
    rng = np.random.default_rng(seed)
    times = np.arange(frames)[:, None] / FPS
    low, high = np.array([link.limits or (-1.2, 1.2) for link in links]).T
    rate, phase = rng.uniform(0.8, 1.6, (2, len(links))), rng.uniform(0.0, 2.0 * np.pi, (2, len(links)))
    waves = sum(np.sin(2.0 * np.pi * rate[k] * times + phase[k]) for k in range(2))
    return np.asarray(0.5 * (low + high) + 0.22 * (high - low) * waves)


def camera_of(towards: tuple[float, float, float], at: tuple[float, float, float], width: int, focal: float) -> Camera:
    """Return a camera at a place `towards` [3] m that looks at a place `at` [3] m, width x 3/4 width px."""
    height = 3 * width // 4
    K = np.array([[focal, 0.0, 0.49 * width], [0.0, focal, 0.51 * height], [0.0, 0.0, 1.0]])
    return Camera(K, width, height, camera_to_world=look_at(np.array(towards), np.array(at)))


def arm_clip(links: tuple[Link, ...], camera: Camera, coordinates: Array, seed: int = 0) -> Clip:
    """Return the clip of an arm with joint coordinates [T, D]."""
    behind = wall(camera, seed)
    images = np.stack([photograph(links, camera, each, behind, i) for i, each in enumerate(coordinates)])
    return array_clip(images, np.arange(len(images)) / FPS, "arm")
