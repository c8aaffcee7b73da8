"""Intervals of what follows from parameters, beside their closed form to first order."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.solvers.intervals import derived
from vid2phys.types import Array, Parameters


def parameters() -> Parameters:
    return Pendulum().parameters().with_values({"length": 0.5, "mass": 2.0}).with_free(("length", "mass"))


def products(vector: Array) -> dict[str, tuple[float, str]]:
    length, mass = vector[:2]
    return {"moment": (mass * length, "kg m"), "gravity": (float(vector[6]), "m/s^2")}


def test_a_product_has_the_interval_of_its_logarithms() -> None:
    covariance = np.array([[0.01, 0.004], [0.004, 0.0025]])
    moment, gravity = derived(products, parameters(), covariance, 1e6)
    half = 1.959964 * np.sqrt(0.01 + 2.0 * 0.004 + 0.0025)  # of the logarithm; the product is 1
    assert (moment.name, moment.unit, moment.value) == ("moment", "kg m", pytest.approx(1.0))
    assert moment.ci95 == pytest.approx((1.0 - half, 1.0 + half), rel=1e-4)
    assert (gravity.value, gravity.ci95) == (pytest.approx(9.81), pytest.approx((9.81, 9.81)))


def test_few_degrees_of_freedom_widen_the_interval() -> None:
    covariance = np.diag([0.01, 0.0])
    few, many = (derived(products, parameters(), covariance, degrees)[0].ci95 for degrees in (2.0, 1e6))
    assert (few[1] - 1.0) / (many[1] - 1.0) == pytest.approx(4.302653 / 1.959964, rel=1e-4)  # of Student's t


def test_a_variance_below_zero_by_rounding_is_none() -> None:
    moment, _ = derived(products, parameters(), np.array([[1.0, -1.0], [-1.0, 1.0 - 1e-9]]), 1e6)
    assert moment.ci95 == (moment.value, moment.value)
    assert moment.identifiable
