"""Colours in an image of a painted cube say what pose it has, up to the light and what covers it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.painted_mesh import painted_cube
from tests.unit.test_texture import BLOCKS, CAMERA, PLACE, cast
from vid2phys.engine.observe import project
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.shape.rotation_groups import octahedral
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.cues.texture_fit import DEFAULTS, _blurred, _colors, _size_px, fit_texture, mirrored

PAINT = SurfaceTexture.of(painted_cube(BLOCKS), octahedral(), np.zeros(3))
WRONG = np.array([0.10, -0.08, 0.06, 0.008, -0.006, 0.03])


CASES = [(0, False, 2.5), (1, False, 1.0), (3, False, 1.0), (4, False, 1.0), (1, True, 2.5), (3, True, 1.5)]


@pytest.mark.parametrize(("seed", "finger", "most_deg"), CASES)
def test_a_pose_that_is_nearly_right_is_found(seed: int, finger: bool, most_deg: float) -> None:
    """A cube of 70 pixels, 8 degrees and 3 % wrong; one side alone (seed 0) says least of its tilt. The finger
    covers a quarter of it."""
    assert PAINT is not None
    rng = np.random.default_rng(seed)
    rotation = matrix_from_rotvec(rng.normal(size=3))
    frame = cast(rotation, rng, finger)
    found = fit_texture(frame, CAMERA, PAINT, Pose(rotation, PLACE).retract(WRONG * rng.choice([-1.0, 1.0], 6)))
    assert found is not None
    error = Pose(rotation, PLACE).step_to(found.pose)
    assert np.degrees(np.linalg.norm(error[:3])) < most_deg
    assert np.abs(error[3:5]).max() < 3e-3
    assert abs(error[5]) < 0.015
    assert found.score > 0.6
    beside = fit_texture(frame, CAMERA, PAINT, Pose(matrix_from_rotvec(np.array([0.0, 0.0, 1.5])) @ rotation, PLACE))
    assert beside is None or beside.score < found.score - 0.4


def test_the_mirrored_pose_shows_the_same_side_tilted_the_other_way() -> None:
    assert PAINT is not None
    tilt = matrix_from_rotvec(np.array([0.3, 0.0, 0.0]))
    found = mirrored(PAINT, Pose(tilt, np.array([0.0, 0.0, 0.6])))
    assert np.linalg.det(found.rotation) == pytest.approx(1.0)
    sight = np.array([0.0, 0.0, -1.0])  # of the side at -z, which faces the camera
    assert (found.rotation @ sight)[2] == pytest.approx((tilt @ sight)[2], abs=0.05)
    assert (found.rotation @ sight)[1] == pytest.approx(-(tilt @ sight)[1], abs=0.05)
    middle = np.array([0.0, 0.0, -0.05])
    np.testing.assert_allclose(found.rotation @ middle + found.translation, tilt @ middle + [0.0, 0.0, 0.6], atol=3e-3)
    again = mirrored(PAINT, found)
    np.testing.assert_allclose(again.rotation, tilt, atol=0.02)
    np.testing.assert_allclose(again.translation, [0.0, 0.0, 0.6], atol=2e-3)


POSE = Pose(matrix_from_rotvec(np.array([0.6, -0.5, 0.2])), PLACE)


def ramp() -> np.ndarray:
    """A frame whose colours change linearly, each in its own way."""
    v, u = np.mgrid[: CAMERA.height, : CAMERA.width]
    return np.stack([0.5 * u + 60, 0.8 * v + 40, 200 - 0.3 * u - 0.4 * v], axis=-1).astype(np.float32)


def test_colours_at_points_and_their_slopes_are_those_of_a_ramp() -> None:
    """The corner of a cube faces the camera: three sides are seen, the points of the others are not."""
    assert PAINT is not None
    frame = np.rint(ramp()).astype(np.uint8)
    patch = _blurred(frame, CAMERA, PAINT, POSE, 3.0, DEFAULTS)
    assert patch is not None
    image, slope, corner = patch
    pixels = project(CAMERA, POSE.apply(PAINT.fine_points))
    np.testing.assert_allclose(corner, np.maximum(np.floor(pixels.min(axis=0) - 12 - 9.0), 0.0))
    assert image.shape[1] == pytest.approx(np.ceil(pixels[:, 0].max() + 21) + 1 - corner[0])
    inner = slope[20:-20, 20:-20] * 255.0
    np.testing.assert_allclose(inner.mean(axis=(0, 1)), [[0.5, 0.0], [0.0, 0.8], [-0.3, -0.4]], atol=0.02)
    seen = _colors(patch, CAMERA, PAINT, POSE, DEFAULTS)
    assert seen is not None
    found, change, normals, rows, facing = seen
    placed = POSE.apply(PAINT.fine_points)
    cosine = -((PAINT.fine_normals @ POSE.rotation.T) * placed).sum(axis=1) / np.linalg.norm(placed, axis=1)
    np.testing.assert_array_equal(rows, np.flatnonzero(cosine > 0.2))
    np.testing.assert_allclose(facing, cosine[rows])
    np.testing.assert_allclose(normals, PAINT.fine_normals[rows] @ POSE.rotation.T)

    def colors_at(pose: Pose) -> np.ndarray:
        u, v = project(CAMERA, pose.apply(PAINT.fine_points[rows])).T
        return np.stack([0.5 * u + 60, 0.8 * v + 40, 200 - 0.3 * u - 0.4 * v], axis=-1) / 255.0

    np.testing.assert_allclose(found, colors_at(POSE), atol=3e-3)
    for k, step in enumerate(1e-5 * np.eye(6)):
        expected = (colors_at(POSE.retract(step)) - colors_at(POSE.retract(-step))) / 2e-5
        np.testing.assert_allclose(change[..., k], expected, atol=0.06 * np.abs(expected).max())


def test_a_body_that_is_behind_beside_or_small_in_the_frame_is_not_fitted() -> None:
    assert PAINT is not None
    frame = np.rint(ramp()).astype(np.uint8)
    pixels = project(CAMERA, POSE.apply(PAINT.fine_points))
    assert _size_px(CAMERA, PAINT, POSE, DEFAULTS) == pytest.approx(np.ptp(pixels, axis=0).max())
    behind, beside = Pose(POSE.rotation, -PLACE), Pose(POSE.rotation, PLACE + np.array([2.0, 0.0, 0.0]))
    assert _size_px(CAMERA, PAINT, behind, DEFAULTS) is None
    assert _blurred(frame, CAMERA, PAINT, beside, 3.0, DEFAULTS) is None
    assert fit_texture(frame, CAMERA, PAINT, behind) is None
    assert fit_texture(frame, CAMERA, PAINT, beside) is None
    sharp = _blurred(frame, CAMERA, PAINT, POSE, 0.1, DEFAULTS)
    least = _blurred(frame, CAMERA, PAINT, POSE, 0.8, DEFAULTS)
    assert sharp is not None
    assert least is not None
    np.testing.assert_array_equal(sharp[0], least[0])
