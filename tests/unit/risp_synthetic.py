"""Renders made without a renderer: a body of coloured dots, in the dataset's own format on disk."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.risp.networks.mesh_shape import body_with_front
from vid2phys.risp.networks.validate import Body
from vid2phys.risp.recipes import TrainingData
from vid2phys.risp.renders.dataset import SHARD_SAMPLES, Settings, shard_path
from vid2phys.risp.renders.stream import StreamSettings
from vid2phys.types import Array

RADIUS_M = 0.1


def square_body() -> Body:
    """Eight points, two orbits of the four quarter turns about z."""
    turns = np.stack([matrix_from_rotvec(np.array([0.0, 0.0, a])) for a in np.arange(4) * np.pi / 2])
    base = np.array([[0.09, 0.02, 0.0], [0.045, 0.0, 0.03]])
    points = np.concatenate([turns @ b for b in base])
    permutation = np.stack([(np.arange(8) + g) % 4 + 4 * (np.arange(8) // 4) for g in range(4)])
    assert np.allclose(np.einsum("gij,kj->gki", turns, points), points[permutation])
    return body_with_front(points, permutation, turns, points)


def dots(points_px: Array, colors: Array, size: int, sigma: float = 1.6) -> Array:
    """Premultiplied RGB and coverage [size, size, 4] of soft dots at points [K, 2] px with colours [K, 3]."""
    y, x = np.mgrid[0:size, 0:size]
    image = np.zeros((size, size, 4))
    for (u, v), color in zip(points_px, colors, strict=True):
        weight = np.exp(-0.5 * ((x - u) ** 2 + (y - v) ** 2) / sigma**2)[..., None]
        image = image * (1 - weight) + weight * np.array([*color, 1.0])
    return image


def write_renders(folder: Path, body: Body, samples: int = 96, *, size: int = 96, seed: int = 0) -> Path:
    """A dataset of dots; a quarter with derivatives along two psi, the brightness of each orbit."""
    settings = Settings(samples, 0.25, seed, size, 1, False, "quadrotor", RADIUS_M, "none", psi_names=("a", "b"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset.json").write_text(json.dumps(asdict(settings)))
    rng = np.random.default_rng(seed)
    for shard in range(settings.shards):
        rows = [_render(rng, body, size) for _ in settings.indices(shard)]
        tangents = [rows[i][3] for i, n in enumerate(settings.indices(shard)) if settings.has_tangents(n)]
        count = len(rows)
        arrays = {
            "radiance": np.stack([row[0] for row in rows]).astype(np.float16),
            "K": np.stack([row[1] for row in rows]),
            "view_from_body": np.stack([row[2] for row in rows]),
            "look_id": np.arange(count, dtype=np.int64) + shard * SHARD_SAMPLES,
            "time_s": np.zeros(count),
            "tangents": np.stack(tangents).astype(np.float16),
        }
        save_file(arrays, shard_path(folder, shard))
    return folder


def _render(rng: np.random.Generator, body: Body, size: int) -> tuple[Array, Array, Array, Array]:
    pose = np.eye(4)
    pose[:3, :3] = matrix_from_rotvec(np.array([2.2, 0.0, 0.0])) @ matrix_from_rotvec(rng.normal(0, 0.3, 3))
    pose[:3, 3] = [*rng.normal(0, 0.01, 2), RADIUS_M * rng.uniform(8, 20)]
    focal = size / 3 / np.tan(np.arcsin(RADIUS_M / pose[2, 3]))
    camera = np.array([[focal, 0, (size - 1) / 2], [0, focal, (size - 1) / 2], [0, 0, 1]])
    pixels = (body.points @ pose[:3, :3].T + pose[:3, 3]) @ camera.T
    pixels = pixels[:, :2] / pixels[:, 2:]
    bright = rng.uniform(0.3, 1.0, 2)
    colors = np.repeat(np.array([[1.0, 0.6, 0.2], [0.2, 0.5, 1.0]]) * bright[:, None], 4, axis=0)
    image = dots(pixels, colors, size)
    tangents = [dots(pixels, colors * np.repeat(np.eye(2)[p], 4)[:, None], size)[..., :3] for p in range(2)]
    return image, camera, pose, np.stack(tangents)


def training_data(folder: Path, body: Body, *, held_out: int = 8) -> TrainingData:
    """The dataset in `folder` as the recipes want it."""
    from vid2phys.risp.renders.dataset import RenderSet

    renders = RenderSet(folder)
    images = StreamSettings(folder, body.points, RADIUS_M, view_size=48, bank_count=4, scene_size=48)
    return TrainingData(images, body, len(renders), renders.gradient_indices, held_out)
