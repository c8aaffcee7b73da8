"""What a covariance states of parameters: their intervals, what they are worth, and sentences on what is open."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student_t

from vid2phys.solvers import intervals
from vid2phys.solvers.intervals import between_ends, estimates, identifiability, posterior
from vid2phys.types import Array, Estimate, Parameter, Parameters

ITEMS = Parameters(
    (
        Parameter("mass", "kg", 2.0, 1e-3, 1e3, "log", free=True),
        Parameter("gravity", "m/s^2", 9.81, 0.0, 30.0, source="given"),
        Parameter("drag", "N s/m", 0.5, 0.0, 1.0, free=True),
        Parameter("length", "m", 0.3, 1e-3, 10.0, "log", free=True),
    )
)
COVARIANCE = np.diag([0.01, 0.04, 0.0025])
NOWHERE = np.zeros((0, 3))


def found_of(covariance: Array = COVARIANCE, nowhere: Array = NOWHERE, **how: object) -> dict[str, Estimate]:
    found = estimates(ITEMS, ("mass", "drag"), covariance, nowhere, 10.0, **how)  # type: ignore[arg-type]
    assert tuple(e.name for e in found) == ITEMS.names
    return {e.name: e for e in found}


def test_intervals_are_those_of_students_t_in_solver_coordinates() -> None:
    found, quantile = found_of(), student_t.ppf(0.975, 10)
    mass, drag, gravity = (found[name] for name in ("mass", "drag", "gravity"))
    assert mass.ci95 == pytest.approx((2.0 * np.exp(-0.1 * quantile), 2.0 * np.exp(0.1 * quantile)))
    assert drag.ci95 == pytest.approx((0.5 - 0.2 * quantile, 0.5 + 0.2 * quantile))
    assert (gravity.value, gravity.ci95, gravity.source) == (9.81, (9.81, 9.81), "given")
    assert [found[name].source for name in ("mass", "drag", "length")] == ["fitted", "fitted", "nuisance"]
    assert all(e.identifiable and not e.at_bound for e in found.values())
    wide = found_of(4.0 * COVARIANCE)["drag"]
    assert wide.ci95 == (0.0, 1.0), "cut at the bounds"
    given = found_of(quantiles=np.array([3.0, 4.0, 5.0]))["mass"]
    assert given.ci95 == pytest.approx((2.0 * np.exp(-0.3), 2.0 * np.exp(0.3)))


def test_no_fit_has_less_than_one_degree_of_freedom() -> None:
    few = estimates(ITEMS, ("drag",), 1e-4 * COVARIANCE, NOWHERE, 0.2)[2]
    assert few.ci95[1] - 0.5 == pytest.approx(0.002 * student_t.ppf(0.975, 1.0))


def test_what_no_data_determine_has_an_infinite_interval() -> None:
    found = found_of(nowhere=np.array([[0.0, 1.0, 5e-4]]))
    assert not found["drag"].identifiable
    assert found["drag"].ci95 == (-np.inf, np.inf)
    assert found["mass"].identifiable
    assert found["length"].identifiable


def test_logarithms_within_a_factor_of_e_are_results() -> None:
    for std, known in ((0.99, True), (1.01, False)):
        covariance = np.diag([std**2, 4.0, 0.0])
        found = found_of(covariance)
        assert found["mass"].identifiable is known
        assert found["drag"].identifiable, "a parameter with no logarithm may have any size"


def test_a_parameter_that_is_no_better_known_than_before_is_not_identifiable() -> None:
    """Its prior is stated in SI, to first order."""
    priors = {"mass": (np.log(3.0), 0.2), "drag": (0.4, 0.2)}
    for share, known in ((0.97, True), (0.99, False)):
        found = found_of(np.diag([(share * 0.2) ** 2, (share * 0.2) ** 2, 0.0]), priors=priors)
        assert found["mass"].identifiable is found["drag"].identifiable is known
    assert found["mass"].prior == pytest.approx((3.0, 0.6))
    assert found["drag"].prior == pytest.approx((0.4, 0.2))
    assert found["length"].prior is None


def test_values_at_their_bounds_are_marked() -> None:
    for value, at_bound in ((0.0, True), (1.0, True), (1.0 - 5e-7, True), (1.0 - 5e-6, False), (1e-4, False)):
        (found,) = estimates(
            Parameters((Parameter("drag", "1", value, 0.0, 1.0, free=True),)),
            ("drag",),
            np.eye(1),
            np.zeros((0, 1)),
            9.0,
        )
        assert found.at_bound is at_bound, value


def test_variances_are_split_where_there_are_any() -> None:
    parts = {"frame_noise": np.array([0.003, 0.04, 1.0]), "prior": np.array([0.007, 0.0, 0.0])}
    found = found_of(parts=parts)
    assert found["mass"].parts == pytest.approx({"frame_noise": 0.3, "prior": 0.7})
    assert found["drag"].parts == pytest.approx({"frame_noise": 1.0, "prior": 0.0})
    assert found_of(parts=parts, nowhere=np.eye(3)[:1])["mass"].parts == {}


def test_the_joint_posterior_is_that_of_what_is_determined() -> None:
    covariance = COVARIANCE.copy()
    covariance[0, 1] = covariance[1, 0] = 0.01
    found = estimates(ITEMS, ("mass", "drag"), covariance, NOWHERE, 10.0)
    joint = posterior(ITEMS, found, covariance)
    assert joint is not None
    assert (joint.names, joint.units, joint.logarithmic) == (("mass", "drag"), ("kg", "N s/m"), (True, False))
    np.testing.assert_allclose(joint.mean, [np.log(2.0), 0.5])
    np.testing.assert_array_equal(joint.covariance, covariance[:2, :2])
    open_mass = estimates(ITEMS, ("mass", "drag"), covariance, np.eye(3)[:1], 10.0)
    alone = posterior(ITEMS, open_mass, covariance)
    assert alone is not None
    assert alone.names == ("drag",)
    np.testing.assert_array_equal(alone.covariance, [[0.04]])
    assert posterior(ITEMS, estimates(ITEMS, (), covariance, NOWHERE, 10.0), covariance) is None


def test_ends_of_searches_count_by_their_evidence() -> None:
    theta = np.array([[1.0, 0.0], [2.0, 1.0], [5.0, -1.0]])
    found = between_ends(theta, np.array([-3.0, -2.0, -4.0]))
    share = np.exp([-1.0, 0.0, -2.0])
    off = theta - theta[1]
    expected = sum(s * np.outer(row, row) for s, row in zip(share, off, strict=True)) / share.sum()
    np.testing.assert_allclose(found, expected)


def lines(*directions: Array, names: tuple[str, ...] = ("mass", "drag", "length"), **how: object) -> list[str]:
    return identifiability(names, np.array(directions), (), **how)  # type: ignore[arg-type]


def test_directions_are_named_by_what_they_keep() -> None:
    """Of logarithms: equal changes keep ratios, opposite ones a product, and powers a law."""
    assert lines(np.array([1.0, 1.0, 0.0])) == [f"mass and drag are determined only as a ratio: {intervals.REMEDY}"]
    assert lines(np.ones(3)) == [f"only the ratios of mass, drag and length are determined: {intervals.REMEDY}"]
    assert lines(np.array([1.0, -1.0, 0.0])) == [f"mass and drag are determined only as a product: {intervals.REMEDY}"]
    (law,) = lines(np.array([1.0, 2.0, -0.5]))
    assert law.startswith("the fit does not change when all of these are scaled together: ")
    assert "mass x s^2, drag x s^4, length x s^-1." in law
    assert law.endswith(intervals.REMEDIES["mass"])
    (neither,) = lines(np.array([1.0, 1.37, 0.0]))
    assert neither.startswith("mass and drag can be changed together without changing the fit. ")
    (tiny,) = lines(np.array([1.0, 1.0, 5e-4]))
    assert tiny.startswith("mass and drag are determined only as a ratio"), "too little of length"


def test_a_change_of_a_value_counts_by_its_share() -> None:
    """A drag of 0.5 that changes by 0.5 doubles; angles and what may be negative have no logarithm."""
    assert lines(np.array([1.0, 0.5, 0.0]), parameters=ITEMS)[0].startswith(
        "mass and drag are determined only as a ratio"
    )
    angled = Parameters((Parameter("mass", "kg", 2.0, 0.0, 9.0, "log"), Parameter("drag", "rad", 0.5, 0.0, 9.0)))
    assert "can be changed together" in lines(np.array([1.0, 0.5]), names=("mass", "drag"), parameters=angled)[0]
    signed = Parameters((Parameter("mass", "kg", 2.0, 0.0, 9.0, "log"), Parameter("drag", "1", 0.5, -9.0, 9.0)))
    assert "can be changed together" in lines(np.array([1.0, 0.5]), names=("mass", "drag"), parameters=signed)[0]


def test_what_is_open_by_itself_is_listed_with_its_remedy() -> None:
    found = lines(*np.eye(3), remedies={"mass": "weigh it", "length": "weigh it"}, source="these clips")
    assert found == [
        "length and mass are not determined by these clips. weigh it",
        f"drag is not determined by these clips. {intervals.REMEDY}",
    ]


def test_estimates_that_are_worth_nothing_are_named() -> None:
    priors = {"drag": (0.4, 0.1)}
    weak = tuple(found_of(np.diag([4.0, 1.0, 9.0]), priors=priors).values())
    first, second = identifiability(("mass", "drag", "length"), NOWHERE, weak)
    assert first == f"mass is determined to no better than a factor of e. {intervals.REMEDIES['mass']}"
    assert second.startswith("drag is known by its prior alone (0.4 +- 0.1): this clip adds nothing. ")
    (bound,) = identifiability(("drag",), NOWHERE, (Estimate("drag", "N", 1.0, (0.9, 1.0), True, at_bound=True),))
    assert bound == "drag ended at a bound (1 N)"


@pytest.mark.parametrize(
    ("powers", "expected"),
    [([1.0, -2.0], True), ([1.0, 0.5], True), ([1.0, 1.0 / 3.0], True), ([1.0, 0.4], False), ([1.0, np.inf], False)],
)
def test_powers_of_a_law_are_halves_or_thirds(powers: list[float], expected: bool) -> None:
    assert intervals._is_law(np.array(powers)) is expected
    assert intervals._is_law(np.array(powers) + 0.005) is expected
