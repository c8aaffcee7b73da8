"""Look-alikes of a pose have nearly its silhouette, and are other poses of the same body."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from vid2phys.geometry import Pose
from vid2phys.risp.shape.symmetry import find_symmetry
from vid2phys.tracking.cues.silhouette import silhouette_of
from vid2phys.tracking.look_alikes import LookAlikes
from vid2phys.types import Camera, Mesh

CAMERA = Camera(np.array([[3000.0, 0.0, 160.0], [0.0, 3000.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)


def mesh_of(*parts: trimesh.Trimesh) -> Mesh:
    made = trimesh.util.concatenate(parts)
    faces = np.asarray(made.faces, np.int64)
    return Mesh(np.asarray(made.vertices), faces, np.zeros(len(faces), dtype=np.int64))


def bar(extents: tuple[float, float, float], center: tuple[float, float, float]) -> trimesh.Trimesh:
    return trimesh.creation.box(extents, trimesh.transformations.translation_matrix(center))


def overlap(mesh: Mesh, one: Pose, other: Pose) -> float:
    masks = np.zeros((2, CAMERA.height, CAMERA.width), dtype=bool)
    for mask, pose in zip(masks, (one, other), strict=True):
        shown = silhouette_of(pose.apply(mesh.vertices), mesh.faces, CAMERA)
        assert shown is not None
        mask[shown[0], shown[1]] = shown[2]
    return float((masks[0] & masks[1]).sum() / (masks[0] | masks[1]).sum())


POSE = Pose(Rotation.from_euler("xyz", [0.5, 0.4, 0.7]).as_matrix(), np.array([0.02, -0.01, 2.5]))
HANDLE = [bar((0.03, 0.007, 0.007), (0.05, 0.0, z)) for z in (-0.02, 0.03)] + [
    bar((0.007, 0.007, 0.05), (0.065, 0.0, 0.005))
]
MUG = mesh_of(trimesh.creation.cylinder(0.04, 0.1, sections=48), *HANDLE)
BODIES = {
    "box": mesh_of(bar((0.1, 0.07, 0.04), (0.03, 0.0, 0.0))),
    "cube": mesh_of(bar((0.08, 0.08, 0.08), (0.0, 0.0, 0.0))),
    "l_shape": mesh_of(bar((0.1, 0.03, 0.03), (0.05, 0.0, 0.0)), bar((0.03, 0.08, 0.03), (0.0, 0.055, 0.0))),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_depth_reversal_has_the_same_silhouette(name: str) -> None:
    mesh = BODIES[name]
    rotations = find_symmetry(mesh).rotations
    look_alikes = LookAlikes.of(mesh, rotations)
    assert np.linalg.det(look_alikes.maps) == pytest.approx([-1.0])
    (other,) = look_alikes.of_pose(POSE)
    assert np.linalg.det(other.rotation) == pytest.approx(1.0)
    assert overlap(mesh, POSE, other) > 0.94
    apart = Rotation.from_matrix(other.rotation.T @ POSE.rotation @ rotations).magnitude()
    assert apart.min() > 0.5, "no symmetry element"
    (again,) = look_alikes.of_pose(other)
    assert np.abs(POSE.step_to(again)).max() < 1e-9


def test_a_mug_looks_nearly_the_same_upside_down() -> None:
    """Where the group leaves half turns out, they are look-alikes."""
    look_alikes = LookAlikes.of(MUG, np.eye(3)[None])
    poses = look_alikes.of_pose(POSE)
    upside_down = [pose for pose in poses if pose.rotation[:, 2] @ POSE.rotation[:, 2] < -0.95]
    assert len(poses) > 1
    assert upside_down
    assert max(overlap(MUG, POSE, pose) for pose in upside_down) > 0.85


def test_a_body_unlike_its_mirror_image_has_none() -> None:
    """Three bars along three edges of a box, one after the other, wind to one side."""
    parts = [
        bar((0.12, 0.02, 0.02), (0.06, 0.0, 0.0)),
        bar((0.02, 0.12, 0.02), (0.12, 0.06, 0.0)),
        bar((0.02, 0.02, 0.12), (0.12, 0.12, 0.06)),
    ]
    mesh = mesh_of(*parts)
    look_alikes = LookAlikes.of(mesh, find_symmetry(mesh).rotations)
    assert look_alikes.of_pose(POSE) == []


def test_a_ball_has_none() -> None:
    made = trimesh.creation.icosphere(3, 0.03)
    ball = Mesh(np.asarray(made.vertices), np.asarray(made.faces, np.int64), np.zeros(len(made.faces), dtype=np.int64))
    assert LookAlikes.of(ball, find_symmetry(ball).rotations).of_pose(POSE) == []
