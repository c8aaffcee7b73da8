"""The likelihood along one parameter: a normal distribution keeps its covariance, a one-sided one has a least value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.solvers import likelihood_profile
from vid2phys.types import Array, Parameter, Parameters

NAMES = ("mu", "k_f")
COVARIANCE = np.array([[0.04, -0.03], [-0.03, 0.05]])  # of logarithms
MIDDLE = np.log([0.4, 0.6])


def parameters(theta: Array) -> Parameters:
    """Friction and its viscous part at solver coordinates [2]."""
    made = (Parameter(name, "1", 1.0, 0.01, 5.0, "log", free=True) for name in NAMES)
    return Parameters(tuple(made)).with_free_vector(theta)


class FreePrior:
    """A problem without priors."""

    def prior(self, names: tuple[str, ...], values: Array) -> tuple[Array, Array]:
        """See `Problem.prior`."""
        return np.zeros(len(names)), np.zeros(len(names))


def profile(loss_of: Any) -> likelihood_profile.Profile | None:
    """The profile along mu of a model that is normal but for a loss of mu's logarithm."""
    slope = COVARIANCE[0, 1] / COVARIANCE[0, 0]
    left = COVARIANCE[1, 1] - slope * COVARIANCE[0, 1]

    def fit(begin: Parameters) -> Any:
        off = np.log(begin["mu"].value) - MIDDLE[0]
        found = begin.with_free_vector(np.array([MIDDLE[1] + slope * off]))
        return SimpleNamespace(parameters=found, loss=loss_of(off), theta_covariance=np.array([[left]]))

    best: Any = SimpleNamespace(parameters=parameters(MIDDLE), theta_covariance=COVARIANCE)
    problem: Any = FreePrior()
    return likelihood_profile.along(problem, best, "mu", fit)


def test_a_normal_distribution_keeps_its_covariance() -> None:
    found = profile(lambda off: 0.5 * off**2 / COVARIANCE[0, 0])
    assert found is not None
    assert found.least is None
    np.testing.assert_allclose(found.covariance, COVARIANCE, rtol=0.02)


def test_a_skewed_one_is_wider_than_its_curvature() -> None:
    """The loss rises four times as slowly above the best value."""
    found = profile(lambda off: 0.5 * off**2 / COVARIANCE[0, 0] / (16.0 if off > 0.0 else 1.0))
    assert found is not None
    assert found.least is None
    assert found.covariance[0, 0] > 6.0 * COVARIANCE[0, 0]


def test_a_flat_side_leaves_a_least_value() -> None:
    """At a rise of 1.35 nats, which is 1.64 standard deviations below."""
    found = profile(lambda off: 0.5 * min(off, 0.0) ** 2 / COVARIANCE[0, 0])
    assert found is not None
    assert found.least == pytest.approx(0.4 * np.exp(-1.64 * 0.2), rel=0.03)
    assert found.covariance[0, 0] > 9.0 * COVARIANCE[0, 0]


def test_nothing_that_can_be_fitted_gives_no_profile() -> None:
    best: Any = SimpleNamespace(parameters=parameters(MIDDLE), theta_covariance=COVARIANCE)
    problem: Any = FreePrior()
    assert likelihood_profile.along(problem, best, "mu", lambda begin: None) is None
