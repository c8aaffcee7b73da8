"""How steadily tracked poses move: closed forms of a rotation about a fixed axis."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.geometry import Pose
from vid2phys.tracking.steadiness import steadiness

AXIS = np.array([0.0, 0.6, 0.8])
ALL = np.ones(40, dtype=bool)


def _spinning(deg_a_frame: float, wobble_deg: float = 0.0) -> Pose:
    """A body that rotates steadily about AXIS; every other frame is off by a wobble about camera x."""
    spin = Rotation.from_rotvec(np.radians(deg_a_frame) * np.arange(40)[:, None] * AXIS)
    off = Rotation.from_rotvec(np.radians(wobble_deg) * (np.arange(40) % 2)[:, None] * [1.0, 0.0, 0.0])
    return Pose((off * spin).as_matrix(), np.tile([0.0, 0.0, 2.0], (40, 1)))


def test_a_steady_rotation_does_not_jump() -> None:
    found = steadiness(_spinning(9.0), ALL)
    assert found is not None
    assert (found.jitter_deg, found.jitter_distance) == pytest.approx((0.0, 0.0), abs=1e-5)
    assert found.step_deg == pytest.approx(9.0)


def test_frames_that_err_by_a_degree_in_turns_jump_by_two() -> None:
    """Third differences are 4 deg, and are scaled to the size of second ones."""
    found = steadiness(_spinning(0.0, 1.0), ALL)
    assert found is not None
    assert found.jitter_deg == pytest.approx(4.0 * np.sqrt(0.3), rel=1e-3)


def test_independent_errors_have_the_size_of_second_differences() -> None:
    rng, deg = np.random.default_rng(0), 0.5
    rotation = Rotation.from_rotvec(np.radians(deg) * rng.normal(size=(4000, 3))).as_matrix()
    found = steadiness(Pose(rotation, np.tile([0.0, 0.0, 2.0], (4000, 1))), np.ones(4000, dtype=bool))
    assert found is not None
    assert found.jitter_deg == pytest.approx(deg * np.sqrt(6.0) * np.sqrt(2.366), rel=0.05), "median of chi"


def test_a_ring_that_tumbles_steadily_does_not_jump() -> None:
    """Its axis moves by 10 deg a frame: second differences are 1.7 deg."""
    found = steadiness(_spinning(10.0), ALL, [np.array([1.0, 0.0, 0.0])])
    assert found is not None
    assert found.jitter_deg == pytest.approx(np.sqrt(0.3) * np.degrees(np.radians(10.0) ** 3), rel=0.02)


def test_distance_is_compared_by_its_logarithm() -> None:
    pose = _spinning(0.0)
    pose.translation[::2] *= 1.01
    found = steadiness(pose, ALL)
    assert found is not None
    assert found.jitter_distance == pytest.approx(4.0 * np.sqrt(0.3) * np.log(1.01))


def test_rotation_that_is_not_seen_does_not_jump() -> None:
    """Spin about the axis of revolution, in body axes: random from frame to frame."""
    spin = Rotation.from_rotvec(np.random.default_rng(0).uniform(-3.0, 3.0, (40, 1)) * AXIS)
    pose = Pose(spin.as_matrix(), np.tile([0.0, 0.0, 2.0], (40, 1)))
    plain, of_revolution = steadiness(pose, ALL), steadiness(pose, ALL, [AXIS])
    assert plain is not None
    assert of_revolution is not None
    assert plain.jitter_deg > 20.0
    assert of_revolution.jitter_deg == pytest.approx(0.0, abs=1e-5)


def test_no_rotation_of_a_ball_is_seen() -> None:
    found = steadiness(_spinning(9.0, 5.0), ALL, [np.eye(3)[0], np.eye(3)[1]])
    assert found is not None
    assert (found.jitter_deg, found.step_deg) == (0.0, 0.0)


def test_frames_apart_are_not_compared() -> None:
    assert steadiness(_spinning(9.0), np.arange(40) % 3 < 2) is None


def test_a_body_that_is_found_upside_down_from_some_frame_on_jumps_once() -> None:
    pose = _spinning(3.0)
    over = Rotation.from_rotvec([np.radians(80.0), 0.0, 0.0]).as_matrix()
    pose.rotation[25:] = pose.rotation[25:] @ over
    found, of_axis = steadiness(pose, ALL), steadiness(pose, ALL, [np.array([1.0, 0.0, 0.0])])
    assert found is not None
    assert of_axis is not None
    assert found.jump_deg == pytest.approx(80.0, abs=4.0)
    assert found.jitter_deg == pytest.approx(0.0, abs=1e-5)
    assert of_axis.jump_deg < 10.0  # the axis about which it was rotated


def test_single_frames_that_err_are_no_jump() -> None:
    pose = _spinning(3.0)
    pose.rotation[[10, 20]] = pose.rotation[[10, 20]] @ Rotation.from_rotvec([2.0, 0.0, 0.0]).as_matrix()
    found = steadiness(pose, ALL)
    assert found is not None
    assert found.jump_deg == pytest.approx(9.0)


def test_an_axis_that_tumbles_moves_by_its_angle_from_frame_to_frame() -> None:
    """It rotates by 10 deg a frame about an axis across it. Frames before and after the middle share 10 deg."""
    found = steadiness(_spinning(10.0), ALL, [np.array([1.0, 0.0, 0.0])])
    assert found is not None
    assert (found.step_deg, found.jump_deg) == pytest.approx((10.0, 10.0))
    ball = steadiness(_spinning(10.0), ALL, [np.eye(3)[0], np.eye(3)[1]])
    assert ball is not None
    assert ball.jump_deg == 0.0


def test_an_axis_that_is_reversed_moves_by_half_a_turn() -> None:
    found = steadiness(_spinning(180.0), ALL, [np.array([1.0, 0.0, 0.0])])
    assert found is not None
    assert found.step_deg == pytest.approx(180.0, abs=1e-4)


@pytest.mark.parametrize("off", range(4))
def test_only_the_four_frames_in_a_row_count(off: int) -> None:
    """One of them is further away by a hundredth; weights of a third difference are 1, 3, 3 and 1."""
    pose = _spinning(0.0)
    pose.translation[:] *= np.exp(np.random.default_rng(1).normal(0.0, 0.3, (40, 1)))
    pose.translation[8:12] = [0.0, 0.0, 2.0]
    pose.translation[8 + off] *= 1.01
    found = steadiness(pose, (np.arange(40) >= 8) & (np.arange(40) < 12))
    assert found is not None
    assert found.jitter_distance == pytest.approx([1.0, 3.0, 3.0, 1.0][off] * np.sqrt(0.3) * np.log(1.01))
