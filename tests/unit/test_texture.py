"""Colours in images of a painted cube tell which of its 24 orientations it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.painted_mesh import CUBE_SIDE_M, painted_cube, plain_cube
from vid2phys.engine.pnp import PoseEstimate, known_pose
from vid2phys.engine.virtual_camera import make_view
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.shape.rotation_groups import octahedral
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.detectors.network import Detections
from vid2phys.tracking.mesh_track import _by_elements
from vid2phys.tracking.mesh_tracker import DEFAULTS
from vid2phys.types import Array, Camera

CAMERA = Camera(np.array([[420.0, 0.0, 101.0], [0.0, 400.0, 88.0], [0.0, 0.0, 1.0]]), 200, 180)
PLACE = np.array([0.02, -0.03, 0.6])
BLOCKS = np.random.default_rng(3).integers(10, 250, (6, 3, 3, 3))
GROUP = octahedral()


def cast(rotation: Array, rng: np.random.Generator, finger: bool) -> np.ndarray:
    """The painted cube as rays through the pixels meet it, each side in a light of its own, in blue light."""
    v, u = np.mgrid[: CAMERA.height, : CAMERA.width]
    rays = np.stack([(u - 101.0) / 420.0, (v - 88.0) / 400.0, np.ones(u.shape)], axis=-1) @ rotation
    eye = -PLACE @ rotation
    light = rng.uniform(0.5, 1.0, 6)
    image = np.full((*u.shape, 3), 120.0)
    for axis in range(3):
        for end in (0, 1):
            half = 0.5 * CUBE_SIDE_M * (2 * end - 1)
            if (eye[axis] - half) * (2 * end - 1) <= 0.0:  # seen from behind
                continue
            hit = eye + rays * ((half - eye[axis]) / rays[..., axis])[..., None]
            place = np.delete(np.moveaxis(hit, -1, 0), axis, axis=0) / CUBE_SIDE_M + 0.5
            inside = ((place >= 0.0) & (place < 1.0)).all(axis=0)
            across = hit[..., [(axis + 1) % 3, (axis + 2) % 3]] / CUBE_SIDE_M + 0.5
            column, up = np.clip((3 * across).astype(int), 0, 2).transpose(2, 0, 1)
            color = BLOCKS[2 * axis + end][2 - up, column] * light[2 * axis + end]  # row 0 of an image is its top
            image[inside] = color[inside]
    if finger:
        image[:, 95:115] = (200.0, 150.0, 120.0)
    image = image * (0.7, 0.8, 1.0) + rng.normal(0.0, 4.0, image.shape)
    return np.clip(image, 0.0, 255.0).astype(np.uint8)


def _seen(poses: PoseEstimate) -> Detections:
    view = make_view(CAMERA, PLACE[:2] / PLACE[2], 0.15, 128)
    nothing = np.zeros((1, 0))
    return Detections(
        [view], nothing, nothing, nothing, nothing, nothing, nothing, nothing.astype(bool), nothing, poses, nothing
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("finger", [False, True])
def test_colours_find_the_orientation_under_any_label(seed: int, finger: bool) -> None:
    rng = np.random.default_rng(seed)
    rotation = matrix_from_rotvec(rng.normal(size=3))
    label = int(rng.integers(24))
    paint = SurfaceTexture.of(painted_cube(BLOCKS), GROUP, np.zeros(3))
    assert paint is not None
    poses = known_pose(Pose((rotation @ GROUP[label])[None, None], PLACE[None, None]))
    nats = paint.evidence(_seen(poses), [cast(rotation, rng, finger)], CAMERA)[0, 0]
    assert int(np.argmax(nats)) == label
    assert np.sort(nats)[-2] < -2.0


def test_a_texture_tells_under_which_element_a_track_has_the_body() -> None:
    rng, label = np.random.default_rng(7), 5
    rotation = matrix_from_rotvec(rng.normal(size=3))
    mesh = painted_cube(BLOCKS)
    paint = SurfaceTexture.of(mesh, GROUP, np.zeros(3))
    assert paint is not None
    track: Any = SimpleNamespace(
        tracked=np.array([True, False, True]),
        poses=SimpleNamespace(pose=Pose(np.tile(rotation @ GROUP[label], (3, 1, 1)), np.tile(PLACE, (3, 1)))),
    )
    frames: Any = [cast(rotation, rng, finger=False) for _ in range(3)]
    nats = _by_elements(frames, CAMERA, mesh, paint, track, DEFAULTS)
    assert int(np.argmax(nats)) == label
    assert nats[label] == 0.0
    assert np.sort(nats)[-2] < -2.0


def test_a_plain_body_says_nothing() -> None:
    assert SurfaceTexture.of(plain_cube(), GROUP, np.zeros(3)) is None
    paint = SurfaceTexture.of(painted_cube(np.full((6, 2, 2, 3), 90)), GROUP, np.zeros(3))
    assert paint is not None
    poses = known_pose(Pose(np.eye(3)[None, None], PLACE[None, None]))
    nats = paint.evidence(_seen(poses), [cast(np.eye(3), np.random.default_rng(0), False)], CAMERA)
    assert np.ptp(nats) < 1e-6
