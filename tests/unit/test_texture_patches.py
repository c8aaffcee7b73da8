"""Pieces of a cube's paint say its pose, behind whatever covers half of it, and say nothing of another place."""

from __future__ import annotations

import numpy as np
import pytest

from tests.painted_mesh import painted_cube, plain_cube
from tests.unit.test_texture import BLOCKS, CAMERA, PLACE, cast
from tests.unit.test_texture_fit import WRONG
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.texture_patches import Patches

PATCHES = Patches(painted_cube(BLOCKS))
SEEDS = (3, 4, 6, 8, 9)
HALVES = (4, 6, 9)  # whose other half has corners enough


def _covered(frame: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Everything right of the middle of the cube behind something with paint of its own."""
    covered = frame.copy()
    covered[:, 116:] = rng.integers(0, 255, (180, 84, 3)) // 2 + 60
    return covered


@pytest.mark.parametrize(("seed", "half"), [(seed, False) for seed in SEEDS] + [(seed, True) for seed in HALVES])
def test_a_pose_that_is_nearly_right_is_found(seed: int, half: bool) -> None:
    """8 degrees and 3 % wrong, a cube of 70 pixels."""
    rng = np.random.default_rng(seed)
    rotation = matrix_from_rotvec(rng.normal(size=3))
    frame = cast(rotation, rng, False)
    if half:
        frame = _covered(frame, rng)
    found = PATCHES.fit(frame, CAMERA, Pose(rotation, PLACE).retract(WRONG * rng.choice([-1.0, 1.0], 6)))
    assert found is not None
    error = Pose(rotation, PLACE).step_to(found.pose)
    assert np.degrees(np.linalg.norm(error[:3])) < 1.5
    assert abs(error[5]) < 0.012
    assert found.share > (0.2 if half else 0.6)
    std = np.sqrt(np.diag(np.linalg.inv(found.information)))
    assert (np.abs(error) < 4.0 * std).all()
    assert std[:3].max() < 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_few_pieces_agree_on_a_wrong_pose(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = cast(matrix_from_rotvec(rng.normal(size=3)), rng, False)
    found = PATCHES.fit(frame, CAMERA, Pose(matrix_from_rotvec(2.0 * rng.normal(size=3)), PLACE))
    assert found is None or found.share < 0.2
    noise = rng.integers(0, 255, frame.shape).astype(np.uint8)
    assert PATCHES.fit(noise, CAMERA, Pose(np.eye(3), PLACE)) is None


def test_what_has_no_paint_has_no_pieces() -> None:
    frame = cast(np.eye(3), np.random.default_rng(0), False)
    assert Patches(plain_cube()).fit(frame, CAMERA, Pose(np.eye(3), PLACE)) is None
    assert PATCHES.fit(frame, CAMERA, Pose(np.eye(3), -PLACE)) is None
