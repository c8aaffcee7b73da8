"""The model of a fit to recordings beside slow sums: layout, residuals, normal equations, and steps of the descent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems import get
from vid2phys.errors import InputError, UsageError
from vid2phys.solvers.recorded_descent import _FACTORS, Descent, _left, _Linear, _moved, _pieces, _scaled
from vid2phys.solvers.recorded_model import (
    Point,
    Recording,
    Setup,
    cost_of,
    linearized,
    mean_squares,
    reduced,
    residuals_of,
    scale_of,
    set_up,
    substeps_of,
)
from vid2phys.types import Array

SYSTEM = get("pendulum")
NAMES, OFFSETS = tuple(p.name for p in SYSTEM.parameters()), (SYSTEM.tangent_names[0],)
FREE = NAMES[:2]
STD = np.array([0.02, 0.1])
COUNTS, STARTS = (24, 15), np.array([[0.6, -0.5], [-0.9, 0.8]])


def swing(start: Array, count: int, seed: int) -> Recording:
    """A swing with errors, of which one number is lost and the first state is known to some deviations."""
    rng, times = np.random.default_rng(seed), np.arange(count) / 50.0
    controls = 0.1 * rng.normal(size=(count - 1, len(SYSTEM.control_names)))
    vector = SYSTEM.parameters().vector
    states = simulate(SYSTEM, start[None], controls[None], vector[None], np.diff(times)[None], substeps=4)[0]
    seen = states + STD * rng.normal(size=states.shape)
    seen[5, 1] = np.nan
    return Recording(
        times, seen, STD, start=start + 0.01, start_std=np.array([0.05, 0.0 if seed else 0.3]), controls=controls
    )


@pytest.fixture(scope="module")
def setup() -> Setup:
    recordings = tuple(swing(start, count, k) for k, (start, count) in enumerate(zip(STARTS, COUNTS, strict=True)))
    return set_up(SYSTEM, SYSTEM.parameters(), recordings, FREE, OFFSETS, 5e-3)


@pytest.fixture(scope="module")
def point(setup: Setup) -> Point:
    rng = np.random.default_rng(3)
    theta = setup.first_point.theta + np.array([0.03, -0.02, 0.01])
    return Point(theta, 0.3 * rng.normal(size=(2, 2)) * ~setup.fixed)


def test_recordings_are_laid_out_with_the_shorter_ones_filled(setup: Setup) -> None:
    assert (setup.fitted, setup.longest) == (2, 24)
    np.testing.assert_allclose(setup.starts, STARTS + 0.01)
    np.testing.assert_allclose(setup.dt_s[0], 0.02)
    np.testing.assert_allclose(setup.dt_s[1], [0.02] * 14 + [1e-6] * 9)
    np.testing.assert_array_equal(setup.controls[1, :14], setup.recordings[1].controls)
    hold = SYSTEM.hover_controls(SYSTEM.parameters().vector)
    np.testing.assert_array_equal(setup.controls[1, 14:], np.tile(hold, (9, 1)))
    assert setup.fixed.tolist() == [[False, False], [False, True]]
    np.testing.assert_allclose(setup.start_scale, [[0.02, 0.1], [0.02, 1.0]])
    np.testing.assert_allclose(setup.start_inverse, [[20.0, 1.0 / 0.3], [20.0, 0.0]])
    np.testing.assert_allclose(setup.offset_scale, [0.02])
    first = setup.first_point
    np.testing.assert_array_equal(first.starts, 0.0)
    assert first.theta[2] == 0.0
    sure = set_up(SYSTEM, SYSTEM.parameters(), (replace(setup.recordings[0], start_std=np.zeros(2)),), FREE, (), 5e-3)
    assert sure.start_scale.shape == (1, 0)
    unsure = set_up(SYSTEM, SYSTEM.parameters(), (replace(setup.recordings[0], start_std=None),), FREE, (), 5e-3)
    np.testing.assert_allclose(unsure.start_scale, [STD])
    np.testing.assert_array_equal(unsure.start_inverse, 0.0)


def test_what_does_not_belong_together_is_refused(setup: Setup) -> None:
    one = setup.recordings[0]

    def laid_out(*recordings: Recording, names: tuple[str, ...] = FREE, offsets: tuple[str, ...] = ()) -> Setup:
        return set_up(SYSTEM, SYSTEM.parameters(), recordings, names, offsets, 5e-3)

    short = [replace(one, times_s=one.times_s[:n], seen=one.seen[:n], controls=None) for n in (4, 5)]
    assert laid_out(short[1]).longest == 5
    for recording in (
        short[0],
        replace(one, seen=one.seen[:, :1]),
        replace(one, times_s=one.times_s[::-1]),
        replace(one, times_s=np.where(np.arange(24) == 3, one.times_s[2], one.times_s)),
        replace(one, controls=one.seen),
        replace(one, start=None, seen=np.where(np.arange(24)[:, None] == 0, np.nan, one.seen)),
    ):
        with pytest.raises(InputError):
            laid_out(recording)
    for wrong in ({"names": ("mas",)}, {"offsets": ("angl",)}):
        with pytest.raises(UsageError):
            laid_out(one, **wrong)
    with pytest.raises(UsageError):
        laid_out()


def test_steps_are_half_of_the_longest_stable_one_and_of_the_users(setup: Setup) -> None:
    stable = SYSTEM.longest_step_s(setup.values(setup.first_point.theta).vector)
    longest = min(5e-3, 0.5 * stable)
    assert substeps_of(setup, [setup.first_point], 24) == int(np.ceil(0.02 / longest - 1e-6))
    assert substeps_of(replace(setup, max_step_s=1e-3), [setup.first_point], 24) == 20
    uneven = setup.dt_s.copy()
    uneven[0, 20] = 0.04
    assert substeps_of(replace(setup, dt_s=uneven, max_step_s=1e-3), [setup.first_point], 24) == 40
    assert substeps_of(replace(setup, dt_s=uneven, max_step_s=1e-3), [setup.first_point], 20) == 20


def test_residuals_are_predicted_minus_measured_in_deviations(setup: Setup, point: Point) -> None:
    states, residuals = residuals_of(setup, [setup.first_point, point], 24)
    assert states.shape == (2, 2, 24, 2)
    vector = setup.values(point.theta).vector
    substeps = substeps_of(setup, [setup.first_point, point], 24)
    for g, recording in enumerate(setup.recordings):
        start = STARTS[g] + 0.01 + point.starts[g] * setup.start_scale[g]
        rolled = simulate(
            SYSTEM, start[None], recording.controls[None], vector[None], np.diff(recording.times_s)[None],
            substeps=substeps,
        )[0]  # fmt: skip
        predicted = rolled + np.array([point.theta[2], 0.0])
        np.testing.assert_allclose(residuals[g][1], (predicted - recording.seen) / STD, rtol=1e-6, atol=1e-9)
        assert np.isnan(residuals[g][1, 5, 1])


def test_costs_are_students_t_of_frames_and_priors_of_starts(setup: Setup, point: Point) -> None:
    residuals = residuals_of(setup, [point], 24)[1]
    total = 0.0
    for g in range(2):
        total += 0.5 * (point.starts[g, 0] * 0.02 / 0.05) ** 2
        for frame in residuals[g][0]:
            seen = frame[np.isfinite(frame)]
            total += 3.0 * len(seen) * np.log1p((seen**2).mean() / 1.5**2 / 5.0)
    total += 0.5 * (point.starts[0, 1] * 0.1 / 0.3) ** 2
    assert cost_of(setup, point, residuals, 1.5) == pytest.approx(total)
    mean, count = mean_squares(np.array([[1.0, np.nan, 3.0], [np.nan] * 3]))
    np.testing.assert_array_equal(mean, [5.0, 0.0])
    np.testing.assert_array_equal(count, [2, 0])
    assert scale_of([np.array([[[1.0, 3.0], [2.0, 2.0], [np.nan, 9.0], [np.nan, np.nan]]])]) == pytest.approx(5.0**0.5)


def test_normal_equations_are_those_of_weighted_differences(setup: Setup, point: Point) -> None:
    """One dense system of all unknowns, with the weights of Student's t as they are at the point."""
    scale, frames = 1.2, 20
    found = linearized(setup, point, frames, scale)
    _, residuals = residuals_of(setup, [point], frames)
    assert found.cost == pytest.approx(cost_of(setup, point, residuals, scale))
    flat = np.concatenate([point.theta, point.starts.ravel()])

    def at(values: Array) -> Point:
        return Point(values[:3], values[3:].reshape(2, 2))

    rows, gradient, size = [], [], 1e-4
    for k in range(7):
        ahead, back = (at(flat + s * size * np.eye(7)[k]) for s in (1.0, -1.0))
        sides = [residuals_of(setup, [each], frames)[1] for each in (ahead, back)]
        rows.append([(a[0] - b[0]) / (2.0 * size) for a, b in zip(*sides, strict=True)])
        costs = [cost_of(setup, each, side, scale) for each, side in zip((ahead, back), sides, strict=True)]
        gradient.append((costs[0] - costs[1]) / (2.0 * size))
    free = np.array([True] * 6 + [False])  # the last start is known
    whole = np.zeros((7, 7))
    for g in range(2):
        weight = 6.0 / (5.0 + mean_squares(residuals[g][0])[0] / scale**2) / scale**2
        slopes = np.nan_to_num(np.stack([row[g] for row in rows])) * free[:, None, None]
        whole += np.einsum("utq,vtq,t->uv", slopes, slopes, weight)
    for k, inverse in ((3, 0.02 / 0.05), (4, 0.1 / 0.3), (5, 0.02 / 0.05), (6, 1.0)):
        whole[k, k] += inverse**2
    np.testing.assert_allclose(
        np.append(found.gradient, found.start_gradient.ravel())[free], np.array(gradient)[free], rtol=1e-3
    )
    np.testing.assert_allclose(found.information, whole[:3, :3], rtol=1e-3, atol=1e-4)
    for g, own in enumerate((slice(3, 5), slice(5, 7))):
        np.testing.assert_allclose(found.start_information[g], whole[own, own], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.mixed[g], whole[own, :3], rtol=1e-3, atol=1e-3)
    assert [score.shape for score in found.scores] == [(20, 5), (15, 5)]
    np.testing.assert_allclose(sum(score[:, :3].sum(axis=0) for score in found.scores), found.gradient)
    schur, reduced_gradient, gains = reduced(found)
    inverse = np.linalg.inv(whole)
    np.testing.assert_allclose(np.linalg.inv(schur), inverse[:3, :3], rtol=5e-3, atol=1e-8)
    both = np.append(found.gradient, found.start_gradient.ravel())
    expected = -inverse @ both
    np.testing.assert_allclose(-np.linalg.solve(schur, reduced_gradient), expected[:3], rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(gains[0], np.linalg.solve(whole[3:5, 3:5], whole[3:5, :3]), rtol=1e-2, atol=1e-4)
    step, gain = _Linear(setup, point, found, found.cost).step(0.0)
    np.testing.assert_allclose(step.theta - point.theta, expected[:3], rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose((step.starts - point.starts).ravel()[:3], expected[3:6], rtol=1e-2, atol=1e-4)
    assert gain == pytest.approx(-0.5 * both @ expected, rel=1e-2)
    damped = _Linear(setup, point, found, found.cost).step(2.0)[0]
    raised = whole + 2.0 * np.diag(np.diag(whole))
    np.testing.assert_allclose(damped.theta - point.theta, -np.linalg.solve(raised, both)[:3], rtol=1e-2, atol=1e-5)


def test_pieces_cover_a_recording(setup: Setup) -> None:
    parameters = setup.parameters.with_values({FREE[0]: 0.7})
    found = _pieces(setup, 0.25, parameters)
    assert [len(r.times_s) for r in found.recordings] == [12, 12, 12], "of the second the rest is too short"
    np.testing.assert_array_equal(found.recordings[1].seen, setup.recordings[0].seen[12:24])
    np.testing.assert_array_equal(found.recordings[1].controls, setup.recordings[0].controls[12:23])
    np.testing.assert_array_equal(found.recordings[2].times_s, setup.recordings[1].times_s[:12])
    assert found.parameters[FREE[0]].value == pytest.approx(0.7)
    assert found.parameters.free_names == FREE
    assert len(found.offsets) == 0
    long = _pieces(setup, 1.0, parameters)
    assert [len(r.times_s) for r in long.recordings] == [24, 15]


def test_other_starts_are_multiples_of_logarithmic_parameters(setup: Setup) -> None:
    assert _FACTORS == (1.0, 0.25, 4.0, 0.0625, 16.0)
    parameters = setup.parameters
    found = _scaled(parameters, 4.0)
    for p in parameters:
        expected = min(4.0 * p.value, p.upper) if p.free and p.transform == "log" else p.value
        assert found[p.name].value == pytest.approx(expected)


def test_what_is_left_is_a_share_of_the_motion_about_a_line(setup: Setup, point: Point) -> None:
    still = replace(setup.recordings[0], seen=np.outer(setup.recordings[0].times_s, [1.0, -2.0]))
    np.testing.assert_allclose(_moved(setup, still), 0.0, atol=1e-9)
    one = setup.recordings[0]
    for column in range(2):
        known = np.isfinite(one.seen[:, column])
        line = np.polyval(np.polyfit(one.times_s[known], one.seen[known, column], 1), one.times_s)
        expected = (one.seen[:, column] - line) / STD[column]
        np.testing.assert_allclose(_moved(setup, one)[:, column], expected, atol=1e-9)
    misfit, share = _left(setup, point)
    residuals = residuals_of(setup, [point], 24)[1]
    assert misfit == pytest.approx(scale_of(residuals))
    assert share == pytest.approx(misfit / scale_of([_moved(setup, each)[None] for each in setup.recordings]))


@pytest.mark.parametrize(
    ("misfit", "unexplained", "converged", "failed", "poor"),
    [
        (2.9, 0.9, False, False, False),
        (3.1, 0.06, True, True, True),
        (3.1, 0.04, True, False, True),
        (3.1, 0.01, True, False, False),
        (3.1, 0.01, False, False, True),
    ],
)
def test_descents_fail_where_more_than_noise_is_left(
    misfit: float, unexplained: float, converged: bool, failed: bool, poor: bool
) -> None:
    found = Descent(Point(np.zeros(0), np.zeros((0, 0))), misfit, unexplained, 1, converged)
    assert (found.failed, found.poor) == (failed, poor)
