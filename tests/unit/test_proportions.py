"""Proportions of a body beside those of its mesh, at the true poses in drawn images of a box that rotates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from tests.drawn_clip import images
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.proportions import Proportions, proportions
from vid2phys.types import Camera, Mesh

COUNT, WIDTH, HEIGHT = 12, 240, 200


def box() -> Mesh:
    made = trimesh.creation.box((0.1, 0.07, 0.05))
    faces = np.asarray(made.faces, np.int64)
    return Mesh(np.asarray(made.vertices), faces, np.zeros(len(faces), dtype=np.int64), name="box")


def measured(*stretch: float, tracked: int = COUNT) -> Proportions | None:
    """Return what is measured of a box for which a mesh is given that is stretched along x, y and z."""
    mesh = box()
    axis = np.array([0.5, 0.6, 0.62])
    rotation = Rotation.from_rotvec(0.25 * np.arange(COUNT)[:, None] * axis + [0.4, 0.3, 0.1]).as_matrix()
    poses = Pose(rotation, np.tile([0.0, 0.0, 0.8], (COUNT, 1)))
    camera = Camera(np.array([[500.0, 0.0, 120.0], [0.0, 500.0, 100.0], [0.0, 0.0, 1.0]]), WIDTH, HEIGHT)
    camera = replace(camera, camera_to_world=np.eye(4))
    drawn = images((pose.apply(mesh.vertices) for pose in poses), mesh.faces, np.array([0.8, 0.3, 0.2]), camera)
    frames = FrameStore(ArrayFrames(np.stack(drawn)), WIDTH, HEIGHT)
    given = replace(mesh, vertices=mesh.vertices * np.array(stretch))
    return proportions(poses, np.arange(COUNT) < tracked, frames, camera, given)


def test_the_right_mesh_has_its_proportions() -> None:
    found = measured(1.0, 1.0, 1.0)
    assert found is not None
    assert found.ratio < 1.02
    assert found.off_px < 0.5


@pytest.mark.parametrize("stretch", [(1.2, 1.0, 1.0), (1.0, 1.0, 1.2), (1.0, 0.85, 1.0)])
def test_a_stretched_mesh_is_measured(stretch: tuple[float, ...]) -> None:
    found = measured(*stretch)
    assert found is not None
    assert found.ratio == pytest.approx(max(stretch) / min(stretch), rel=0.05)
    assert found.off_px > 1.5
    assert np.log(found.ratio) > 3.0 * found.std


def test_a_larger_mesh_has_the_same_proportions() -> None:
    """The size trades against the distance."""
    found = measured(1.05, 1.05, 1.05)
    assert found is not None
    assert found.ratio < 1.03


def test_few_frames_measure_nothing() -> None:
    assert measured(1.0, 1.0, 1.0, tracked=3) is None
