"""The path of least cost beside all paths, and the price of a step at which a path changes its mind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.tracking.viterbi import CoordinateMotion, RotationMotion, SteadyMotion, viterbi_path
from vid2phys.types import Array

STEADY, ROTATION = SteadyMotion(), RotationMotion()


def test_a_path_through_coordinates_is_the_cheapest_of_all() -> None:
    rng, motion = np.random.default_rng(0), CoordinateMotion(max_rate=2.0, max_jump_nats=6.0)
    for _ in range(20):
        times = np.cumsum(rng.uniform(0.1, 0.4, 5))
        cost, states = rng.uniform(0.0, 4.0, (5, 3)), rng.normal(size=(5, 3, 2))
        cost[2, 1] = np.inf

        def total(path: tuple[int, ...], cost: Array = cost, states: Array = states, times: Array = times) -> float:
            at = states[np.arange(5), path]
            steps = 0.5 * (np.diff(at, axis=0) ** 2).sum(axis=1) / (2.0 * np.diff(times)) ** 2
            return float(cost[np.arange(5), path].sum() + np.minimum(steps, 6.0).sum())

        best = min(itertools.product(range(3), repeat=5), key=total)
        assert tuple(viterbi_path(cost, states, times, motion).tolist()) == best


def steady_price(apart: float, dt: float, size: int = 1) -> float:
    """Cost of a first step of a point that moves as yet unknown."""
    spread = (STEADY.max_rate**2 + STEADY.rate_growth * dt) * dt**2 + 2.0 * STEADY.std**2
    return float(0.5 * apart**2 / spread + 0.5 * size * np.log(spread / (2.0 * STEADY.std**2)))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("dt", [0.01, 0.05])
def test_a_first_step_costs_as_much_as_its_rate_is_unlikely(dt: float, size: int) -> None:
    states = np.zeros((2, 2, size))
    states[1, 1, 0] = 0.7
    price = min(steady_price(0.7, dt, size), 25.0) - min(steady_price(0.0, dt, size), 25.0)
    for more, chosen in ((0.02, 1), (-0.02, 0)):
        cost = np.array([[0.0, np.inf], [price + more, 0.0]])
        assert viterbi_path(cost, states, np.array([0.0, dt]), STEADY).tolist() == [0, chosen]


def test_a_steady_rate_is_expected_to_go_on() -> None:
    """After two frames the rate is known by a filter with one gain; the third frame goes on or stops."""
    dt, d = 0.02, 0.1
    known = STEADY.max_rate**2 + STEADY.rate_growth * dt
    gain = known / (known + 2.0 * STEADY.std**2 / dt**2)
    rate, variance = gain * d / dt, (1.0 - gain) * known
    spread = (variance + STEADY.rate_growth * dt) * dt**2 + 2.0 * STEADY.std**2
    on, stop = (0.5 * (step - rate * dt) ** 2 / spread for step in (d, 0.0))
    states = np.array([[[0.0], [9.0]], [[d], [9.0]], [[2.0 * d], [d]]])
    for more, chosen in ((0.02, 1), (-0.02, 0)):
        cost = np.array([[0.0, np.inf], [0.0, np.inf], [stop - on + more, 0.0]])
        assert viterbi_path(cost, states, dt * np.arange(3), STEADY).tolist() == [0, 0, chosen]


def test_a_jump_costs_no_more_than_the_most_and_a_period_is_no_jump() -> None:
    states = np.array([[[3.0], [9.0]], [[3.0], [-3.2]]])
    around = SteadyMotion(periods=(2.0 * np.pi,))
    times = np.array([0.0, 0.01])
    short = steady_price(2.0 * np.pi - 6.2, 0.01) - steady_price(0.0, 0.01)
    for more, chosen in ((0.02, 1), (-0.02, 0)):
        cost = np.array([[0.0, np.inf], [short + more, 0.0]])
        assert viterbi_path(cost, states, times, around).tolist() == [0, chosen]
        most = np.array([[0.0, np.inf], [25.0 - steady_price(0.0, 0.01) + more, 0.0]])
        assert viterbi_path(most, states, times, STEADY).tolist() == [0, chosen]


def rotation_price(angle: float, dt: float, spread: float, std: float = ROTATION.orientation_std_rad) -> float:
    widened = 1.0 + spread / (2.0 * std**2)
    return float(0.5 * angle**2 / (2.0 * std**2 * widened) + 1.5 * np.log(widened))


@pytest.mark.parametrize("angle", [0.3, 1.0])
def test_a_first_rotation_costs_as_much_as_its_rate_and_its_size(angle: float) -> None:
    dt = 0.04
    spread = (ROTATION.rate_rad_s**2 + ROTATION.rate_growth * dt) * dt**2
    rotations = matrix_from_rotvec(np.array([[[0.0, 0.0, 0.0]] * 2, [[0.0, 0.0, 0.0], [0.0, angle, 0.0]]]))
    swing = (angle / ROTATION.large_step_rad) ** 2
    price = rotation_price(angle, dt, spread) + swing - rotation_price(0.0, dt, spread)
    for more, chosen in ((0.02, 1), (-0.02, 0)):
        cost = np.array([[0.0, np.inf], [price + more, 0.0]])
        assert viterbi_path(cost, rotations, np.array([0.0, dt])).tolist() == [0, chosen]


def test_a_distance_that_changes_costs_its_logarithm() -> None:
    rotations, log_distance = np.tile(np.eye(3), (2, 2, 1, 1)), np.array([[0.7, 0.7], [0.7, 0.8]])
    price = 0.5 * (0.1 / 0.04) ** 2
    for more, chosen in ((0.02, 1), (-0.02, 0)):
        cost = np.array([[0.0, np.inf], [price + more, 0.0]])
        assert viterbi_path(cost, rotations, np.array([0.0, 0.1]), log_distance=log_distance).tolist() == [0, chosen]
        assert viterbi_path(cost, rotations, np.array([0.0, 0.1])).tolist() == [0, 1], "nothing is known of distances"


def spin(angles: list[float], other: float) -> Array:
    """Rotations [T, 2, 3, 3] about one axis; the second state of the last frame has another angle."""
    first = np.array(angles)[:, None] * np.array([0.0, 0.6, 0.8])
    second = first.copy()
    second[-1] = other * np.array([0.0, 0.6, 0.8])
    return matrix_from_rotvec(np.stack([first, second], axis=1))


def test_a_rotation_is_expected_to_go_on() -> None:
    dt, d = 0.04, 0.15
    std = ROTATION.orientation_std_rad
    known = ROTATION.rate_rad_s**2 + ROTATION.rate_growth * dt
    gain = known / (known + 2.0 * std**2 / dt**2)
    rate, variance = gain * d / dt, (1.0 - gain) * known
    spread = (variance + ROTATION.rate_growth * dt) * dt**2
    unknown = (ROTATION.rate_rad_s * dt) ** 2

    def price(step: float) -> float:
        going_on = rotation_price(abs(step - rate * dt), dt, spread)
        hit = rotation_price(abs(step), dt, unknown) + ROTATION.impact_nats
        return min(going_on, hit) + (step / ROTATION.large_step_rad) ** 2

    for step in (-0.1, 0.3):
        for more, chosen in ((0.02, 1), (-0.02, 0)):
            cost = np.array([[0.0, np.inf], [0.0, np.inf], [price(step) - price(d) + more, 0.0]])
            path = viterbi_path(cost, spin([0.0, d, 2.0 * d], d + step), dt * np.arange(3))
            assert path.tolist() == [0, 0, chosen]


def test_a_wrong_frame_is_passed_over_at_a_price() -> None:
    """Both states of some frames are far off; their labels are those next to the frame before."""
    dt = 0.04
    for wrong in (1, 2):
        count = 3 + wrong
        rotvec = np.zeros((count, 2, 3))
        rotvec[:, 1, 0] = 2.5
        rotvec[2 : 2 + wrong, 0], rotvec[2 : 2 + wrong, 1] = [0.0, 1.4, 0.0], [0.0, 2.9, 0.0]
        cost = np.zeros((count, 2))
        cost[:, 1] = 8.0
        cost[2 : 2 + wrong, 1] = 3.0
        path = viterbi_path(cost, matrix_from_rotvec(rotvec), dt * np.arange(count))
        np.testing.assert_array_equal(path, 0)


@pytest.mark.parametrize(("wrong", "path"), [(2, [0] * 5), (3, [0, 0, 0, 1, 1, 0])])
def test_up_to_two_frames_in_a_row_are_passed_over(wrong: int, path: list[int]) -> None:
    """Wrong frames speak strongly for their second states, which are far from the others and alike."""
    rotvec, cost = np.zeros((3 + wrong, 2, 3)), np.zeros((3 + wrong, 2))
    rotvec[:, 1, 0] = 2.5
    rotvec[2 : 2 + wrong] = [[0.0, 1.4, 0.0], [0.0, 2.9, 0.0]]
    cost[:, 1], cost[2 : 2 + wrong, 1] = 8.0, -13.0
    assert viterbi_path(cost, matrix_from_rotvec(rotvec), 0.04 * np.arange(3 + wrong)).tolist() == path
