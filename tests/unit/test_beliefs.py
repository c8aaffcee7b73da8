"""Priors and bounds of fitted parameters: what is refused, where a fit begins, and what solvers make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.flight import fly, watch
from tests.recovery.test_smoothing import start
from vid2phys.commands.priors import Priors
from vid2phys.engine.systems import get
from vid2phys.errors import UsageError
from vid2phys.solvers import arrow, intervals, shooting, smoothing
from vid2phys.solvers.problem import Problem

FITTED = get("quadrotor").parameters().with_values({"mass": 0.5}).with_free(("mass", "drag"))


def test_a_prior_is_mapped_to_solver_coordinates_to_first_order() -> None:
    _, priors, _ = Priors({"mass": (0.4, 0.05), "drag": (0.2, 0.1)}).applied(FITTED, {})
    assert priors["mass"] == (pytest.approx(np.log(0.4)), pytest.approx(0.125))
    assert priors["drag"] == (0.2, 0.1)


def test_a_fit_begins_inside_its_bounds() -> None:
    parameters, _, notes = Priors(bounds={"mass": (0.01, 0.09)}).applied(FITTED, {})
    mass = parameters["mass"]
    assert (mass.lower, mass.upper, mass.value) == (0.01, 0.09, pytest.approx(0.03))  # the geometric middle
    assert "mass starts in the middle of its bounds, 0.03 kg" in notes
    parameters, _, _ = Priors(bounds={"mass": (0.0, 2.0)}).applied(FITTED, {"mass": 0.5})
    assert (parameters["mass"].lower, parameters["mass"].value) == (FITTED["mass"].lower, 0.5)


@pytest.mark.parametrize(
    ("priors_and_bounds", "given", "text"),
    [
        (Priors({"gravity": (9.8, 0.1)}), {}, "--prior of gravity, which is not fitted; expected one that is (mass, "),
        (Priors(bounds={"maas": (0.1, 1.0)}), {}, "unknown parameter 'maas'"),
        (Priors({"mass": (0.4, 0.0)}), {}, "the prior 0.4 +- 0 of mass; expected a mean and a width above zero"),
        (Priors({"mass": (0.4, -0.1)}), {}, "a width above zero"),
        (Priors({"mass": (-0.4, 0.1)}), {}, "a mean within its bounds, 0.001 to 100 kg"),
        (Priors({"mass": (3.0, 0.1)}, {"mass": (0.1, 2.0)}), {}, "a mean within its bounds, 0.1 to 2 kg"),
        (Priors(bounds={"mass": (2.0, 0.1)}), {}, "the bounds 2..0.1 of mass; expected a lower end below the upper"),
        (Priors(bounds={"mass": (-2.0, -1.0)}), {}, "expected some of its domain, 0.001 to 100 kg"),
        (Priors(bounds={"mass": (0.5, 2.0)}), {"mass": 0.5}, "a fit of mass that starts at 0.5 kg"),
        (Priors(bounds={"mass": (0.6, 2.0)}), {"mass": 0.5}, "a start inside its bounds, 0.6 to 2 kg"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(priors_and_bounds: Priors, given: dict[str, float], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        priors_and_bounds.applied(FITTED, given)
    assert text in str(caught.value)


def test_a_prior_settles_what_the_data_leave_open_however_little_it_is() -> None:
    """Only a difference was measured, ten orders better than one end is known beforehand."""
    schur = 1e12 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert len(arrow.parameter_covariance(schur, reference=np.diagonal(schur)).directions) == 1
    prior = np.array([4.0, 0.0])
    known = schur + np.diag(prior)
    settled = arrow.parameter_covariance(known, reference=np.diagonal(known), prior=prior)
    assert len(settled.directions) == 0
    np.testing.assert_allclose(settled.covariance, 0.25 * np.ones((2, 2)), rtol=1e-4)
    one = arrow.parameter_covariance(
        np.diag([1e6, 0.0, 4.0]), reference=np.array([1e6, 1e6, 1e12]), prior=np.array([0.0, 0.0, 4.0])
    )
    np.testing.assert_allclose(one.directions, [[0.0, 1.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(one.covariance, np.diag([1e-6, 0.0, 0.25]), rtol=1e-6)


@pytest.mark.parametrize("solver", ["smoothing", "shooting"])
def test_a_prior_tells_mass_from_thrust_scale(solver: str) -> None:
    """Thrust shows the ratio alone; the other way of the two is as wide as the prior, whose mean it follows."""
    flight = fly(1.6)
    fitted = flight.parameters.with_values({"mass": 0.8, "drag": 0.0}).with_free(("mass", "thrust_scale"))
    priors = {"thrust_scale": (np.log(1.1), 0.05)}
    problem = Problem(flight.system, fitted, watch(flight), flight.camera_to_world, flight.actions, priors)
    if solver == "smoothing":
        solution = smoothing.solution(smoothing.fit(problem, start(problem), rounds=1))
    else:
        solution = shooting.solve(problem, start(problem))
    names, covariance, null = solution.theta_names, solution.theta_covariance, solution.null_directions
    found = {e.name: e for e in intervals.estimates(solution.parameters, names, covariance, null, 1e6, priors)}
    mass, scale = found["mass"], found["thrust_scale"]
    assert scale.prior == (pytest.approx(1.1), pytest.approx(0.055))
    assert scale.value == pytest.approx(1.1, rel=1e-3)
    assert scale.ci95[1] / scale.ci95[0] == pytest.approx(np.exp(2 * 1.96 * 0.05), rel=0.01)
    assert not scale.identifiable
    assert mass.identifiable
    assert mass.value / scale.value == pytest.approx(0.72, rel=0.03)
    lines = intervals.identifiability(names, null, tuple(found.values()))
    assert any(line.startswith("thrust_scale is known by its prior alone (1.1 +- 0.055)") for line in lines)


def test_what_is_not_determined_is_named_along_as_few_parameters_as_can_be() -> None:
    rng = np.random.default_rng(0)
    nowhere = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
    rows = rng.normal(size=(9, 4))
    rows -= rows @ np.linalg.pinv(nowhere) @ nowhere
    found = arrow.parameter_covariance(1e8 * rows.T @ rows).directions
    in_order = found[np.argsort(-np.abs(found[:, 0]))]
    np.testing.assert_allclose(np.abs(in_order), [[1, 0, 0, 0], [0, 0.5**0.5, 0.5**0.5, 0]], atol=1e-4)
    assert in_order[1, 1] * in_order[1, 2] > 0.0


@pytest.mark.parametrize("option", [{"given": {"scale": 2.0}}, {"fit": ("scale",)}])
def test_a_body_of_the_system_has_its_own_size(option: dict[str, Any]) -> None:
    from vid2phys.commands.fit_parameters import articulated_parameters

    asked: dict[str, Any] = {"given": {}, "fit": (), "priors_and_bounds": Priors(), **option}
    with pytest.raises(UsageError, match="the scale of 'hand'"):
        articulated_parameters(get("hand"), **asked)


def test_of_a_crowd_that_is_not_told_apart_some_are_named() -> None:
    names = tuple(f"mass_{i}" for i in range(20))
    null = np.random.default_rng(0).normal(size=(3, 20)) * (np.arange(20) < 12)
    assert intervals.identifiability(names, null, ()) == [
        "mass_0, mass_1, mass_2 and 9 more can be changed together, in 3 ways, without changing the fit. "
        + intervals.REMEDY
    ]
    (line,) = intervals.identifiability(names, null[:1], ())
    assert "in one way" in line
