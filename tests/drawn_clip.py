"""Images of a coloured surface before a wall of soft spots, drawn with noise, for clips of bodies that bend."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import invert_transform, transform_points
from vid2phys.io.camera import save_camera
from vid2phys.types import Array, Camera


def images(
    motion: Iterable[Array], faces: NDArray[np.int64], colors: Array, camera: Camera, seed: int = 0
) -> list[np.ndarray]:
    """Return an image for each place [V, 3] m of the vertices. faces: [T, 3]. colors: [T, 3] or [3], linear."""
    rng = np.random.default_rng(seed)
    wall = cv2.GaussianBlur(rng.uniform(0.2, 0.8, (camera.height, camera.width, 3)).astype(np.float32), (0, 0), 6.0)
    wall = 0.4 + 2.0 * (wall - wall.mean())
    to_camera = invert_transform(np.asarray(camera.camera_to_world))
    out = []
    for vertices in motion:
        raster = rasterize_camera(transform_points(to_camera, vertices), faces, camera, 4)
        light = 0.5 + 0.45 * np.abs((raster.normals @ to_camera[:3, :3]) @ np.array([0.3, -0.5, 0.81]))
        color = np.where((raster.faces_seen >= 0)[..., None], (light[:, None] * colors)[raster.faces_seen], 0.0)
        mean = raster.averaged(color)
        linear, window = wall.copy(), raster.image_window
        linear[window] = linear[window] * (1.0 - mean[..., 3:]) + mean[..., :3] * mean[..., 3:]
        shown = 255.0 * np.clip(cv2.GaussianBlur(linear, (0, 0), 0.45), 0.0, 1.0) ** (1.0 / 2.2)
        out.append(np.clip(shown + rng.normal(0.0, 1.5, shown.shape), 0, 255).astype(np.uint8))
    return out


def write(folder: Path, shown: Iterable[np.ndarray], camera: Camera) -> None:
    """Write images and the camera into a folder."""
    (folder / "images").mkdir(parents=True)
    for i, image in enumerate(shown):
        cv2.imwrite(str(folder / "images" / f"{i:04d}.png"), np.ascontiguousarray(image[..., ::-1]))
    save_camera(camera, folder / "cam.yaml")
