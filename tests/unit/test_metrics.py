"""Metrics up to symmetry: one turn of the body for a whole clip, and all the numbers of an exactly symmetric body."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.geometry import quat_from_matrix, quat_from_rotvec, quat_multiply, rotate
from vid2phys.report.metrics import SymmetryGroup, summarize
from vid2phys.risp.shape.rotation_groups import octahedral
from vid2phys.types import Array, PoseLog

RNG = np.random.default_rng(0)
TIMES = np.arange(100) / 50.0
POSITIONS = np.stack([TIMES, 1.0 - TIMES**2, np.full(100, 2.0)], axis=1)
QUATS = quat_from_rotvec(np.outer(TIMES, [1.0, -2.0, 3.0]))
CENTER = np.array([0.02, -0.01, 0.03])
CUBE = octahedral()
SEEN = np.ones(100, dtype=bool)


def turns(*, exact: bool) -> SymmetryGroup:
    return SymmetryGroup(quat_from_matrix(CUBE), CENTER - CUBE @ CENTER, exact)


def read_as(element: Array, noise_deg: float = 0.2) -> tuple[PoseLog, Array]:
    """A trajectory of a cube labelled by elements [T] of its group, and its standard deviations: x errs most."""
    std = np.tile([1e-3, 1e-3, 1e-3, *(np.radians(noise_deg) * np.array([3.0, 1.0, 1.0]))], (100, 1))
    noise = np.random.default_rng(1).normal(size=(100, 6)) * std
    inverse = quat_from_matrix(np.swapaxes(CUBE[element], -1, -2))
    aside = -np.einsum("nji,nj->ni", CUBE[element], (CENTER - CUBE @ CENTER)[element])
    quats = quat_multiply(QUATS, inverse)
    positions = POSITIONS + rotate(QUATS, aside)
    return PoseLog(TIMES, positions + noise[:, :3], quat_multiply(quats, quat_from_rotvec(noise[:, 3:]))), std


@pytest.mark.parametrize("element", [0, 7, 19])
def test_any_branch_of_an_exact_body_is_right(element: int) -> None:
    estimate, std = read_as(np.full(100, element))
    found = summarize(estimate, (POSITIONS, QUATS, SEEN), std=std, symmetry=turns(exact=True))
    assert found["rotation_median_deg_up_to_symmetry"] == pytest.approx(0.6, abs=0.3)
    assert found["position_rmse_m"] == pytest.approx(1e-3 * np.sqrt(3.0), rel=0.2)
    assert found["symmetry_turns"] == 24
    assert found["within_5cm_5deg_fraction"] == 1.0
    assert 0.9 < (found["interval_coverage"] or 0.0) < 0.99
    assert (found["rotation_median_deg"] > 60.0) == (element > 0)


def test_a_label_that_changes_within_the_clip_is_an_error() -> None:
    element = np.where(TIMES < 1.2, 5, 11)
    estimate, _ = read_as(element)
    found = summarize(estimate, (POSITIONS, QUATS, SEEN), symmetry=turns(exact=True))
    assert (found["rotation_rmse_deg_up_to_symmetry"] or 0.0) > 40.0
    assert found["within_5cm_5deg_fraction"] == pytest.approx((element == 5).mean(), abs=0.35)


def test_the_wrong_branch_of_a_near_symmetric_body_counts() -> None:
    estimate, std = read_as(np.full(100, 7))
    found = summarize(estimate, (POSITIONS, QUATS, SEEN), std=std, symmetry=turns(exact=False))
    assert (found["position_rmse_m"] or 0.0) > 0.01
    assert (found["rotation_median_deg"] or 0.0) > 60.0
    assert found["rotation_median_deg_up_to_symmetry"] == pytest.approx(0.6, abs=0.3)


def spun(axis: Array, tilt_deg: float) -> PoseLog:
    """The true poses with a tilt about body x, after rotations about an axis through CENTER that differ by frame."""
    spin = quat_from_rotvec(RNG.uniform(-3.0, 3.0, (100, 1)) * axis)
    quats = quat_multiply(quat_multiply(QUATS, quat_from_rotvec(np.radians([tilt_deg, 0.0, 0.0]))), spin)
    center = np.broadcast_to(CENTER, POSITIONS.shape)
    return PoseLog(TIMES, POSITIONS + rotate(QUATS, center) - rotate(quats, center), quats)


@pytest.mark.parametrize("tilt_deg", [0.0, 3.0])
def test_rotation_about_an_axis_of_revolution_is_not_judged(tilt_deg: float) -> None:
    axis = np.array([0.0, 0.0, 1.0])
    symmetry = SymmetryGroup(np.array([[1.0, 0.0, 0.0, 0.0]]), np.zeros((1, 3)), True, axis[None], CENTER)
    found = summarize(spun(axis, tilt_deg), (POSITIONS, QUATS, SEEN), symmetry=symmetry)
    assert found["rotation_median_deg_up_to_symmetry"] == pytest.approx(tilt_deg, abs=1e-5)
    assert found["within_5cm_5deg_fraction"] == 1.0
    assert found["position_rmse_m"] == pytest.approx(0.0, abs=0.03 * np.radians(4.0))


def test_rotation_of_a_ball_is_not_judged() -> None:
    axes = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    symmetry = SymmetryGroup(np.array([[1.0, 0.0, 0.0, 0.0]]), np.zeros((1, 3)), True, axes, CENTER)
    found = summarize(spun(np.array([0.6, 0.0, 0.8]), 40.0), (POSITIONS, QUATS, SEEN), symmetry=symmetry)
    assert found["within_5cm_5deg_fraction"] == 1.0
    assert found["position_rmse_m"] == pytest.approx(0.0, abs=1e-9)
