"""Colours in an image of a painted cube say what pose it has, up to the light and what covers it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.painted_mesh import painted_cube
from tests.unit.test_texture import BLOCKS, CAMERA, PLACE, cast
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.shape.rotation_groups import octahedral
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.cues.texture_fit import fit_texture, mirrored

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
