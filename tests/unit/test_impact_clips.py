"""Posteriors of several clips against the closed form of their product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vid2phys.solvers import impact_clips
from vid2phys.solvers.impact_clips import joined, joint_of
from vid2phys.solvers.impacts import Fitted
from vid2phys.types import Array


def fit_of(theta: tuple[float, ...], stds: tuple[float, ...], unknown: tuple[str, ...] = ()) -> Fitted:
    """Return what `joint_of` reads of a fit: independent posteriors of the ground's height, mu and restitution."""
    names = ("ground_height", "mu", "restitution")
    point = SimpleNamespace(point=SimpleNamespace(theta=np.array((0.0, *theta))))
    given: Any = SimpleNamespace(
        parameters=SimpleNamespace(free_names=names),
        covariance=np.diag(np.square((1.0, *stds))),
        minimum=point,
        unknown=unknown,
    )
    return cast("Fitted", given)


def test_precisions_of_clips_add() -> None:
    joint = joint_of([fit_of((0.0, 0.40), (0.1, 0.03)), fit_of((0.1, 0.41), (0.2, 0.04))], ("mu", "restitution"))
    precision = np.array([0.1**-2 + 0.2**-2, 0.03**-2 + 0.04**-2])
    assert joint.theta == pytest.approx(np.array([0.1 * 0.2**-2, 0.40 * 0.03**-2 + 0.41 * 0.04**-2]) / precision)
    assert np.diagonal(joint.covariance) == pytest.approx(1.0 / precision)


def test_clips_that_disagree_widen_the_covariance() -> None:
    apart = joint_of([fit_of((0.0, 0.4), (0.1, 0.01)), fit_of((0.0, 0.5), (0.1, 0.01))], ("restitution",))
    assert apart.disagreement == pytest.approx(0.1**2 / (2 * 0.01**2))
    assert apart.covariance[0, 0] == pytest.approx(0.5 * 0.01**2 * apart.disagreement)


def test_a_clip_that_does_not_determine_a_parameter_does_not_count_for_it() -> None:
    fits = [fit_of((0.3, 0.40), (0.1, 0.03)), fit_of((3.0, 0.40), (5.0, 0.03), ("mu",))]
    joint = joint_of(fits, ("mu", "restitution"))
    assert joint.theta[0] == pytest.approx(0.3)
    assert joint_of(fits[1:], ("mu", "restitution")).names == ("restitution",)


@dataclass(frozen=True)
class _Point:
    theta: Array


@dataclass(frozen=True)
class _Minimum:
    point: _Point


@dataclass(frozen=True)
class _Fit:
    """What `joined` reads and replaces of a fit of the ground's height, mu and restitution."""

    problem: Any
    parameters: Any
    covariance: Array
    minimum: _Minimum
    weights: str
    unknown: tuple[str, ...]
    least_friction: float | None
    parts: dict[str, Array]


def whole_fit(theta: tuple[float, ...], unknown: tuple[str, ...] = (), least: float | None = None) -> Any:
    problem = SimpleNamespace(parameters=SimpleNamespace(fitted_at=lambda theta: theta.tolist()))
    names = SimpleNamespace(free_names=("ground_height", "mu", "restitution"))
    covariance = np.diag(np.square([0.5, 0.1, 0.03])) + 1e-4
    return _Fit(
        problem, names, covariance, _Minimum(_Point(np.array(theta))), "own", unknown, least, {"prior": np.ones(3)}
    )


def test_motions_are_fitted_again_at_the_joint_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ground of each clip is its own: 0.7 after the second fit, with a deviation of 0.2."""
    fixed = list[dict[str, float]]()

    def with_fixed(problem: Any, point: _Point, values: dict[str, float]) -> tuple[Any, str]:
        fixed.append(values)
        return problem, "motion"

    def concluded(problem: Any, end: str, weights: str) -> Any:
        assert (end, weights) == ("motion at its minimum", "own")
        again = whole_fit((0.7,))
        return replace(again, problem="with fixed values", covariance=np.array([[0.04]]), weights="again")

    monkeypatch.setattr(impact_clips, "with_fixed", with_fixed)
    monkeypatch.setattr(impact_clips, "descended", lambda problem, motion: f"{motion} at its minimum")
    monkeypatch.setattr(impact_clips, "concluded", concluded)
    fits = [whole_fit((0.1, 0.0, 0.40)), whole_fit((0.2, 0.1, 0.44), ("mu", "ground_height"), least=0.3)]
    found, joint = joined(fits, ("mu", "restitution"))
    assert joint.names == ("mu", "restitution")
    for each, values, before in zip(found, fixed, fits, strict=True):
        assert values == dict(zip(joint.names, joint.theta, strict=True))
        expected = [0.7, *joint.theta]
        assert each.parameters == pytest.approx(expected)
        np.testing.assert_allclose(each.minimum.point.theta, expected)
        np.testing.assert_allclose(each.covariance[0], [0.04, 0.0, 0.0])
        np.testing.assert_allclose(each.covariance[1:, 1:], joint.covariance)
        assert each.problem is before.problem
        assert (each.weights, each.parts, each.least_friction) == ("again", {}, None)
    assert [each.unknown for each in found] == [(), ("ground_height",)]
    np.testing.assert_array_equal(fits[0].minimum.point.theta, [0.1, 0.0, 0.40], "what was given stays as it is")
    open_mu = [
        replace(each, unknown=("mu",), least_friction=least) for each, least in zip(fits, (0.2, 0.3), strict=True)
    ]
    assert [each.least_friction for each in joined(open_mu, ("mu", "restitution"))[0]] == [0.3, 0.3]
    nothing = [replace(each, unknown=("mu",), least_friction=None) for each in fits]
    assert [each.least_friction for each in joined(nothing, ("mu", "restitution"))[0]] == [None, None]
