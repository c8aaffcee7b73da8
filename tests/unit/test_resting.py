"""A body at rest lies on a face: of two poses with nearly the same silhouette, the one that lies is taken."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import trimesh

from vid2phys.engine import SYSTEM_OF_MESH
from vid2phys.geometry import Pose, invert_transform, look_at, matrix_from_rotvec
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.risp.networks.model import Shape
from vid2phys.tracking import resting
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.silhouette import silhouette_of
from vid2phys.tracking.ground import Ground
from vid2phys.tracking.silhouette_fit import Fit, FrameForeground
from vid2phys.types import Camera, Mesh

SIZES_M = (0.16, 0.08, 0.03)
TIMES_S = np.arange(30) / 60.0


@pytest.fixture(scope="module")
def plank() -> Mesh:
    made = trimesh.creation.box(SIZES_M)
    return Mesh(np.asarray(made.vertices), np.asarray(made.faces), np.zeros(len(made.faces), np.int64), name="plank")


@pytest.fixture(scope="module")
def shape(plank: Mesh) -> Shape:
    return shape_of(plank, SYSTEM_OF_MESH)


@pytest.fixture(scope="module")
def camera() -> Camera:
    place = look_at(np.array([0.1, -1.1, 0.6]), np.zeros(3))
    return Camera(np.array([[700.0, 0, 160], [0, 700, 120], [0, 0, 1]]), 320, 240, camera_to_world=place)


@pytest.fixture(scope="module")
def ground(camera: Camera) -> Ground:
    return Ground.of(np.array([0.0, 0.0, 1.0]), 0.0, np.asarray(camera.camera_to_world))


def true_pose(camera: Camera, yaw: float = 0.7) -> Pose:
    """The plank flat on the ground."""
    to_camera = invert_transform(np.asarray(camera.camera_to_world))
    turned = to_camera[:3, :3] @ matrix_from_rotvec(np.array([0.0, 0.0, yaw]))
    return Pose(turned, to_camera[:3, :3] @ np.array([0.0, 0.0, 0.5 * SIZES_M[2]]) + to_camera[:3, 3])


def mirrored(pose: Pose) -> Pose:
    """The pose with nearly the same silhouette: the body mirrored at a plane across the line of sight, and its own."""
    sight = pose.translation / np.linalg.norm(pose.translation)
    across = np.eye(3) - 2.0 * np.outer(sight, sight)
    return replace(pose, rotation=across @ pose.rotation @ np.diag([1.0, 1.0, -1.0]))


def foreground(camera: Camera, mesh: Mesh, pose: Pose) -> FrameForeground:
    """A white body on black, whose silhouette is known."""
    ratio = np.full((camera.height, camera.width), -4.0, np.float32)
    part = silhouette_of(pose.apply(mesh.vertices), mesh.faces, camera)
    assert part is not None
    ratio[part[0], part[1]][part[2]] = 4.0
    image = np.where(ratio[..., None] > 0.0, 230, 20).astype(np.uint8).repeat(3, axis=-1)
    return FrameForeground(image, ratio, camera, Solid.of(mesh))


def test_a_flat_body_at_rest_is_not_mirrored(camera: Camera, plank: Mesh, shape: Shape, ground: Ground) -> None:
    truth, seen = true_pose(camera), foreground(camera, plank, true_pose(camera))
    wrong = seen.fitted_from(mirrored(truth))
    assert wrong is not None
    assert np.degrees(resting._angle(wrong.pose, truth, shape)) > 30.0
    fits = dict.fromkeys(range(len(TIMES_S)), wrong)
    found = resting.laid(fits, fits, ground, plank, shape, lambda i: seen)
    for i, fit in found.items():
        assert np.degrees(resting._angle(fit.pose, truth, shape)) < 3.0, i
        assert np.linalg.norm(fit.pose.translation - truth.translation) < 0.02


def test_a_right_fit_and_one_in_motion_stay(camera: Camera, plank: Mesh, shape: Shape, ground: Ground) -> None:
    truth, seen = true_pose(camera), foreground(camera, plank, true_pose(camera))
    given = ground, plank, shape, lambda i: seen
    right = dict.fromkeys(range(len(TIMES_S)), Fit(truth, 1.0, 0.9, None))
    assert resting.laid(right, right, *given) == right
    moving = {
        i: Fit(replace(mirrored(truth), translation=truth.translation + np.array([0.01 * i, 0.0, 0.0])), 1.0, 0.9, None)
        for i in range(len(TIMES_S))
    }
    assert resting.laid(moving, (), *given) == moving


def test_a_body_that_leans_stays(camera: Camera, plank: Mesh, shape: Shape, ground: Ground) -> None:
    """Upright on an edge, as no plank stands by itself: no face explains the image."""
    flat = true_pose(camera)
    leaning = replace(flat, rotation=matrix_from_rotvec(np.radians(50.0) * flat.rotation[:, 0]) @ flat.rotation)
    leaning = replace(leaning, translation=ground.share_to_touch(leaning, plank) * leaning.translation)
    fits = dict.fromkeys(range(len(TIMES_S)), Fit(leaning, 1.0, 0.9, None))
    seen = partial(foreground, camera, plank, leaning)
    found = resting.laid(fits, fits, ground, plank, shape, lambda i: seen())
    assert found == fits


def test_a_box_is_stable_on_its_large_faces_and_a_ball_on_none(plank: Mesh) -> None:
    ups = resting.stable_normals(plank)
    np.testing.assert_allclose(np.abs(ups).max(axis=1), 1.0, atol=1e-9)
    assert {int(np.abs(up).argmax()) for up in ups} >= {2}
    ball = trimesh.creation.icosphere(3, 0.05)
    round_one = Mesh(
        np.asarray(ball.vertices), np.asarray(ball.faces), np.zeros(len(ball.faces), np.int64), name="ball"
    )
    assert resting.stable_normals(round_one).shape == (0, 3)


@pytest.mark.parametrize("direction", [[0.0, 0.0, -1.0], [0.02, 0.0, -0.9998], [0.6, 0.0, 0.8]])
def test_a_rotation_takes_up_to_any_direction(direction: list[float]) -> None:
    unit = np.array(direction) / np.linalg.norm(direction)
    rotation = resting._upright(unit)
    np.testing.assert_allclose(rotation @ [0.0, 0.0, 1.0], unit, atol=1e-9)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)


def test_a_pose_on_the_ground_moves_along_it(camera: Camera, plank: Mesh, ground: Ground) -> None:
    """13 mm and 12 deg off, as a fit leaves it that was put onto the ground."""
    truth, seen = true_pose(camera), foreground(camera, plank, true_pose(camera))
    along = np.cross(ground.normal, [1.0, 0.0, 0.0])
    turned = resting._turned(truth, matrix_from_rotvec(np.radians(12.0) * ground.normal) @ truth.rotation, plank)
    off = replace(turned, translation=turned.translation + 0.013 * along / np.linalg.norm(along))
    start = seen.judged(off, None)
    found = resting._moved_along(seen, start, ground, plank)
    assert found.nats > start.nats
    assert np.linalg.norm(found.pose.translation - truth.translation) < 0.004
    assert np.degrees(np.linalg.norm(truth.step_to(found.pose)[:3])) < 3.0
    assert ground.clearance_m(found.pose, plank) == pytest.approx(0.0, abs=1e-9)


def test_fits_that_waver_at_rest_get_one_pose(camera: Camera, plank: Mesh, shape: Shape, ground: Ground) -> None:
    """Tilted by 7 deg to either side: less than what is another pose in motion."""
    truth, seen = true_pose(camera), foreground(camera, plank, true_pose(camera))
    tilted = [matrix_from_rotvec(np.radians(side) * truth.rotation[:, 0]) @ truth.rotation for side in (-7.0, 7.0)]
    fits = {i: Fit(replace(truth, rotation=tilted[i % 2]), 1.0, 0.9, None) for i in range(len(TIMES_S))}
    found = resting.laid(fits, range(10, 20), ground, plank, shape, lambda i: seen)
    off = np.degrees([resting._angle(fit.pose, truth, shape) for fit in found.values()])
    assert off[10:20].max() < 3.0
    assert off[:9].min() > 6.0
