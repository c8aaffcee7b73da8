"""Intervals of parameters whose variance is uncertain, against Student's t and against flights with unknown forces."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, norm
from scipy.stats import t as student_t

from tests.flight import fly, watch
from tests.recovery.test_smoothing import mass_problem, start
from vid2phys.solvers import smoothing
from vid2phys.solvers.marginal_quantiles import _quantile


def test_one_variance_has_the_normal_quantile() -> None:
    assert _quantile(np.ones(3), np.ones(3)) == pytest.approx(norm.ppf(0.975), rel=1e-4)


@pytest.mark.parametrize("degrees", [3, 10])
def test_a_mixture_over_the_posterior_of_a_variance_is_student_t(degrees: int) -> None:
    precision = chi2.ppf((np.arange(4000) + 0.5) / 4000, degrees) / degrees
    found = _quantile(np.ones(len(precision)), precision**-0.5)
    assert found == pytest.approx(student_t.ppf(0.975, degrees), rel=0.01)


def test_quantiles_of_a_flight_are_those_of_uncertain_forces() -> None:
    problem = mass_problem(watch(fly(1.6)))
    fit = smoothing.fit(problem, start(problem))
    assert fit.theta_quantiles is not None
    assert 1.96 < fit.theta_quantiles[0] < 4.0, "a second and a half hardly shows how strong forces are"
