"""What a sample's clip shows of its body at the true poses of `states.csv`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, invert_transform, matrix_from_quat
from vid2phys.io.camera import load_camera
from vid2phys.io.video import read_clip
from vid2phys.types import Array, Mesh


def body_colors(sample: Path, mesh: Mesh, rows: tuple[int, ...]) -> Iterator[Array]:
    """Yield the mean colour [3] of the body's silhouette in some frames; a negative row counts from the end.

    The folder is small, and the clip's times are those of the states.
    """
    assert sum(path.stat().st_size for path in sample.iterdir()) < 300_000
    clip, camera = read_clip(sample / "clip.mp4"), load_camera(sample / "camera.yaml")
    table = np.genfromtxt(sample / "states.csv", delimiter=",", names=True)
    np.testing.assert_allclose(clip.times_s, table["time_s"], atol=1e-4)
    frames = list(clip.frames)
    assert camera.camera_to_world is not None
    to_camera = invert_transform(camera.camera_to_world)
    world_to_camera = Pose(to_camera[:3, :3], to_camera[:3, 3])
    for row in rows:
        quat = np.array([table[f"q{name}"][row] for name in "wxyz"])
        pose = Pose(matrix_from_quat(quat), np.array([table[name][row] for name in "xyz"]))
        seen = rasterize_camera(world_to_camera.compose(pose).apply(mesh.vertices), mesh.faces, camera).mask
        yield frames[row][seen].mean(axis=0)
