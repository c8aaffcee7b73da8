"""Fits to measurements that were drawn again: their spread is what the analytic interval says of measurements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student_t

from tests.flight import fly, watch
from tests.recovery.test_smoothing import start
from vid2phys.commands.identify.config import FitOptions, IdentifyConfig
from vid2phys.commands.identify.resampling import resample_flight, with_resampled
from vid2phys.errors import UsageError
from vid2phys.solvers import intervals, smoothing
from vid2phys.solvers.bootstrap import OF_MEASUREMENTS, Resampled
from vid2phys.solvers.interval_parts import FRAME_NOISE, UNKNOWN_FORCES
from vid2phys.solvers.problem import Problem
from vid2phys.types import Result, Status, Trajectory

KNOWN = {"mass": 0.9, "drag": 0.12}


def test_half_widths_add_what_no_measurement_changes() -> None:
    values = np.random.default_rng(0).normal(scale=[0.3, 0.1], size=(8, 2))
    parts = {FRAME_NOISE: np.full(3, 9.0), UNKNOWN_FORCES: np.array([0.04, 0.0, 1.0])}
    expected = student_t.ppf(0.975, 7) * np.sqrt(values.var(axis=0, ddof=1) + np.array([0.04, 0.0]))
    assert Resampled(values, 0).half_widths(parts) == pytest.approx(expected)
    assert np.isinf(Resampled(values[:1], 7).half_widths(parts)).all()


def test_the_spread_of_a_mass_is_that_of_its_measurements() -> None:
    flight = fly(1.6)
    seen = watch(flight)
    parameters = flight.parameters.with_values(KNOWN).with_free(("mass",))
    problem = Problem(flight.system, parameters, seen, flight.camera_to_world, actions=flight.actions)
    fitted = smoothing.fit(problem, start(problem))
    solution, said = smoothing.solution(fitted), []
    options = FitOptions(fit=("mass",), intervals="bootstrap", resamples=8)
    resampled = resample_flight(problem, fitted, solution, options, lambda *said_: said.append(said_))
    assert resampled.values.shape == (8, 1)
    assert said[-1][1:] == (8, 8)
    analytic = sum(solution.theta_parts[name][0] for name in OF_MEASUREMENTS) ** 0.5
    assert 0.5 < resampled.values.std(ddof=1) / analytic < 1.8
    again = resample_flight(problem, fitted, solution, replace(options, resamples=2), lambda *_: None)
    np.testing.assert_array_equal(again.values, resampled.values[:2], "a seed gives the same draws")

    found = intervals.estimates(
        *(solution.parameters, ("mass",), solution.theta_covariance, solution.null_directions, 100.0)
    )
    names = flight.system.state_names
    result = Result(
        *(Status.CONVERGED, "", "quadrotor", found, Trajectory(seen.times_s, solution.states, names)),
        *(None, None, seen, {}),
    )
    result = with_resampled(result, solution.parameters, resampled, solution.theta_parts)
    estimates = {each.name: each for each in result.parameters}
    mass = estimates["mass"]
    assert mass.bootstrap is not None
    assert mass.bootstrap[0] < mass.value < mass.bootstrap[1]
    assert estimates["drag"].bootstrap is None
    assert result.diagnostics["bootstrap_resamples"] == 8


@pytest.mark.parametrize(
    "options",
    [{"intervals": "guess"}, {"intervals": "bootstrap", "resamples": 2}, {"intervals": "bootstrap", "method": "adam"}],
)
def test_intervals_that_do_not_exist_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        IdentifyConfig(clip="a.mp4", camera="c.yaml", mesh="m.obj", actions="a.csv", **options).check()  # type: ignore[arg-type]
