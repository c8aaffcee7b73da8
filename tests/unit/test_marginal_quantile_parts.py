"""Intervals of parameters over a line of hyperparameters, beside sums in which evidence and variances are formulas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import bisect
from scipy.special import erfc

from vid2phys.solvers import marginal_quantiles as module
from vid2phys.solvers.marginal_quantiles import _directions, _quantile, marginal_quantiles
from vid2phys.types import Array

NORMAL = 1.9599639845
LINE = [-3.0, -2.25, -1.5, -0.75, 0.0, 0.75, 1.5, 2.25, 3.0]


def half_width(weights: Array, stds: Array) -> float:
    """Where 5 % of a mixture of normal distributions is outside, by bisection of a plain sum."""

    def outside(place: float) -> float:
        return sum(w * erfc(place / s / 2.0**0.5) for w, s in zip(weights, stds, strict=True)) / sum(weights) - 0.05

    return float(bisect(outside, 1e-6, 50.0 * max(stds), xtol=1e-10))


def at_of(bend: Array, tilt: Array, slopes: Array) -> Any:
    """Evidence with curvature `bend` [H, H], and variances whose logarithms have the slopes [P, H]."""

    def at(vector: Array) -> tuple[float, Array, Array]:
        value = -0.5 * vector @ bend @ vector + tilt @ vector
        return float(value), tilt - bend @ vector, np.exp(slopes @ vector)

    return at


def differences(slopes: Array, middle: Array) -> Array:
    """Central differences [P, H] of the variances over 0.1, by the formula."""
    return np.exp(slopes @ middle)[:, None] * np.sinh(0.05 * slopes) / 0.05


def test_a_direction_is_where_a_variance_changes_most_by_the_curvature() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    sizes = np.array([9.0, 2.0, 0.5])
    middle, tilt = np.array([0.3, -0.2, 0.1]), np.array([0.5, 0.1, -0.4])
    slopes = np.array([[1.0, 0.5, -0.3], [-0.2, 2.0, 0.7], [0.0, 0.0, 0.0]])
    found = _directions(at_of(turn @ np.diag(sizes) @ turn.T, tilt, slopes), middle)
    covariance = turn @ np.diag(1.0 / sizes) @ turn.T
    change = differences(slopes, middle)
    for j in range(2):
        expected = covariance @ change[j] / np.sqrt(change[j] @ covariance @ change[j])
        np.testing.assert_allclose(found[j], expected, rtol=1e-9)
        assert found[j] @ np.linalg.inv(covariance) @ found[j] == pytest.approx(1.0), "one standard deviation"
    np.testing.assert_array_equal(found[2], 0.0)


@pytest.mark.parametrize("curvature", [0.24, 0.0, -3.0])
def test_evidence_that_is_flat_or_bends_upwards_counts_as_the_widest_prior(curvature: float) -> None:
    """A quarter is the least curvature, of which the standard deviation is two."""
    bend = np.diag([curvature, 4.0])
    found = _directions(at_of(bend, np.zeros(2), np.array([[1.0, 0.0], [0.0, -1.0]])), np.zeros(2))
    np.testing.assert_allclose(found, [[2.0, 0.0], [0.0, -0.5]], atol=1e-12)
    sharper = _directions(at_of(np.diag([0.26, 4.0]), np.zeros(2), np.array([[1.0, 0.0]])), np.zeros(2))
    np.testing.assert_allclose(sharper, [[0.26**-0.5, 0.0]])


def test_the_curvature_is_the_symmetric_part_of_the_gradients_slopes() -> None:
    bend, slopes = np.array([[3.0, 1.6], [0.4, 2.0]]), np.array([[0.4, -0.9]])
    found = _directions(at_of(bend, np.zeros(2), slopes), np.array([0.2, 0.5]))
    covariance = np.linalg.inv([[3.0, 1.0], [1.0, 2.0]])
    change = differences(slopes, np.array([0.2, 0.5]))[0]
    np.testing.assert_allclose(found[0], covariance @ change / np.sqrt(change @ covariance @ change))


class Formulas:
    """Evidence of two hyperparameters (logarithms), neither normal nor centred, and variances of four parameters."""

    middle = np.array([0.2, -0.4])
    slopes = np.array([[0.0, 0.0], [0.9, 0.0], [0.0, 0.0], [-0.3, 1.4]])
    sizes = np.array([1.0, 2.0, 0.0, 0.5])  # the third parameter is known
    most = np.array([9.0, 9.0])

    def evidence(self, vector: Array) -> tuple[float, Array]:
        x, y = vector - self.middle
        value = 3000.0 - 0.5 * (2.0 * x**2 + 3.0 * y**2) + 0.2 * x**3 - 0.1 * y**4 + 0.5 * x
        return float(value), np.array([-2.0 * x + 0.6 * x**2 + 0.5, -3.0 * y - 0.4 * y**3])

    def variances(self, vector: Array) -> Array:
        return np.asarray(self.sizes * np.exp(self.slopes @ vector))


@pytest.fixture
def formulas(monkeypatch: pytest.MonkeyPatch) -> Formulas:
    """Formulas in the place of a smoothing problem; hyperparameters are their own vectors."""
    one = Formulas()

    def evidence(layout: str, linear: str, point: str, there: Array) -> tuple[float, Array]:
        assert (layout, linear, point) == ("layout", "linear", "point")
        return one.evidence(there)

    def priors(linear: str, layout: str, point: str, there: Array) -> Any:
        assert (layout, linear, point) == ("layout", "linear", "point")
        return SimpleNamespace(matrix=there)

    monkeypatch.setattr(module, "evidence_and_gradient", evidence)
    monkeypatch.setattr(module, "with_priors", priors)
    monkeypatch.setattr(module.arrow, "factorize", lambda matrix: SimpleNamespace(schur=matrix))
    monkeypatch.setattr(module, "pack", lambda hyperparameters: np.array([0.2, -0.4]))
    monkeypatch.setattr(module, "unpack", lambda vector, like: vector)
    monkeypatch.setattr(module, "within_bounds", lambda vector: np.minimum(vector, one.most))
    return one


@pytest.mark.parametrize("most", [9.0, 0.5])
def test_intervals_are_those_of_the_mixture_along_the_line(formulas: Formulas, most: float) -> None:
    """Also where the line ends at a bound of the hyperparameters."""
    formulas.most = np.array([most, most])
    layout, linear, point, unused = list[Any](["layout", "linear", "point", None])
    found = marginal_quantiles(layout, linear, point, unused, formulas.variances)
    assert found[0] == pytest.approx(NORMAL)
    assert found[2] == pytest.approx(NORMAL)
    step = 0.05
    bend = np.zeros((2, 2))
    for i in range(2):
        ahead, behind = (formulas.evidence(formulas.middle + s * step * np.eye(2)[i])[1] for s in (1.0, -1.0))
        bend[i] = (behind - ahead) / (2.0 * step)
    covariance = np.linalg.inv(bend)
    for j in (1, 3):
        slope = np.zeros(2)
        for i in range(2):
            ahead, behind = (formulas.variances(formulas.middle + s * step * np.eye(2)[i])[j] for s in (1.0, -1.0))
            slope[i] = (ahead - behind) / (2.0 * step)
        direction = covariance @ slope / np.sqrt(slope @ covariance @ slope)
        places = [np.minimum(formulas.middle + place * direction, most) for place in LINE]
        weights = np.array([np.exp(formulas.evidence(place)[0] - 3000.0) for place in places])
        stds = np.array([np.sqrt(formulas.variances(place)[j] / formulas.variances(formulas.middle)[j])
                         for place in places])  # fmt: skip
        assert found[j] == pytest.approx(half_width(weights, stds), rel=1e-6)
    assert abs(found[1] - found[3]) > 0.01
    assert min(abs(found[1] - NORMAL), abs(found[3] - NORMAL)) > 0.01


def test_intervals_are_in_standard_deviations_of_the_best_hyperparameters(formulas: Formulas) -> None:
    layout, linear, point, unused = list[Any](["layout", "linear", "point", None])
    before = marginal_quantiles(layout, linear, point, unused, formulas.variances)
    formulas.sizes = 100.0 * formulas.sizes
    after = marginal_quantiles(layout, linear, point, unused, formulas.variances)
    np.testing.assert_allclose(after, before, rtol=1e-9)


@pytest.mark.parametrize("stds", [[1.0, 1.0], [0.01, 2.0], [3.0, 40.0]])
@pytest.mark.parametrize("weights", [[1.0, 1.0], [30.0, 2.0], [0.001, 0.2]])
def test_a_quantile_leaves_a_fortieth_on_either_side(weights: list[float], stds: list[float]) -> None:
    found = _quantile(np.array(weights), np.array(stds))
    assert found == pytest.approx(half_width(np.array(weights), np.array(stds)), rel=1e-6)
