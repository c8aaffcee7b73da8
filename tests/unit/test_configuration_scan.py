"""Other motions of a body under other parameters, with a closed form in place of an engine, and images that know it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.solvers import configuration_scan as scan
from vid2phys.solvers.configuration_scan import Motion, other_motion
from vid2phys.types import Array, Parameter, Parameters

TIMES = np.arange(20) * 0.1
REST = np.array([0.3, 0.0])
BODY: Any = SimpleNamespace(rest=REST, prior_std=np.array([1.0, 1.0]), configurations=lambda states: states)
PARAMETERS = Parameters(
    (
        Parameter("stiffness", "N m/rad", 1.0, 0.1, 6.0, "log", free=True),
        Parameter("mass", "kg", 3.0, 0.0, 9.0),
        Parameter("push", "m/s", 1.0, -9.0, 30.0, free=True),
    )
)
PROBLEM: Any = SimpleNamespace(parameters=PARAMETERS)
START = np.array([0.8, 0.1, 0.0, 0.0])


def motion(start: Array, theta: Array) -> Array:
    """A joint that swings about its rest by its stiffness, and a slider that is pushed."""
    swing = REST[0] + (start[0] - REST[0] + 0.2) * np.cos(np.exp(0.5 * theta[0]) * TIMES)
    return np.stack([swing, start[1] + (start[3] + theta[1]) * TIMES], axis=1)


@pytest.fixture(autouse=True)
def closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stiffness of 6 cannot be computed."""

    def states_at_frames(problem: Any, body: Any, unknowns: Array) -> Array:
        return np.array(
            [motion(row[:4], row[4:]) if row[4] < np.log(5.9) else np.full((20, 2), np.nan) for row in unknowns]
        )

    monkeypatch.setattr(scan, "states_at_frames", states_at_frames)


def judge_of(truths: list[Array]) -> Any:
    """Images that know the true motion of each clip, a thousandth well."""
    return lambda clip, seen: -0.5 * float((((seen - truths[clip]) / 1e-3) ** 2).sum())


def theta_of(stiffness: float, push: float) -> Array:
    return np.array([np.log(stiffness), push])


def test_parameters_are_found_among_shares_of_their_values() -> None:
    """Two clips of one body; the starts are right."""
    starts = np.stack([START, START + np.array([0.1, 0.2, 0.0, 0.5])])
    truths = [motion(start, theta_of(1.7, 3.0)) for start in starts]
    found = other_motion([PROBLEM, PROBLEM], BODY, starts, theta_of(1.0, 1.0), judge_of(truths), 10.0)
    assert found is not None
    np.testing.assert_allclose(found.theta, theta_of(1.7, 3.0))
    np.testing.assert_array_equal(found.starts, starts)
    assert found.nats == pytest.approx(0.0, abs=1e-9)


def test_what_a_parameter_moves_may_begin_at_rest() -> None:
    """The joint of the second clip hangs still at first; its slider stays where it was fitted."""
    starts = np.stack([START, START + np.array([0.1, 0.2, 3.0, 0.5])])
    resting = np.array([REST[0], starts[1, 1], 0.0, starts[1, 3]])
    truths = [motion(START, theta_of(0.2, 1.0)), motion(resting, theta_of(0.2, 1.0))]
    found = other_motion([PROBLEM, PROBLEM], BODY, starts, theta_of(1.0, 1.0), judge_of(truths), 10.0)
    assert found is not None
    np.testing.assert_allclose(found.theta, theta_of(0.2, 1.0))
    np.testing.assert_allclose(found.starts, [START, resting])


def test_a_motion_has_to_gain_what_is_asked() -> None:
    start, near = START[None], theta_of(1.0, 1.0)
    truth = [motion(START, theta_of(1.0, 1.0))]
    assert other_motion([PROBLEM], BODY, start, near, judge_of(truth), 10.0) is None, "nothing is better"
    truth = [motion(START, theta_of(1.7, 1.0))]
    gain = -judge_of(truth)(0, motion(START, near))
    assert other_motion([PROBLEM], BODY, start, near, judge_of(truth), 0.99 * gain) is not None
    assert other_motion([PROBLEM], BODY, start, near, judge_of(truth), 1.01 * gain) is None


def test_values_are_tried_within_the_domain() -> None:
    """Each once, in solver coordinates; mass is not free."""
    stiffness, push = scan._Scan([PROBLEM], BODY, judge_of([]))._values()
    shares = np.array(scan.SHARES)
    np.testing.assert_allclose(np.exp(stiffness), [0.1, *shares[(shares > 0.1) & (shares < 6.0)], 6.0])
    np.testing.assert_allclose(push, shares)


def test_a_motion_that_cannot_be_computed_explains_nothing() -> None:
    one = scan._Scan([PROBLEM], BODY, judge_of([motion(START, theta_of(1.0, 1.0))]))
    found = one._nats(0, START, np.stack([theta_of(6.0, 1.0), theta_of(1.0, 1.0)]))
    assert found.tolist() == [-np.inf, 0.0]


def test_a_parameter_moves_the_coordinates_that_change_with_it() -> None:
    one = scan._Scan([PROBLEM], BODY, judge_of([]))
    at = Motion(START[None], theta_of(1.0, 1.0), 0.0)
    assert one._moved(at, 0).tolist() == [True, False]
    assert one._moved(at, 1).tolist() == [False, True]
    hardly: Any = SimpleNamespace(**{**vars(BODY), "prior_std": np.array([1.0, 1e3])})
    assert scan._Scan([PROBLEM], hardly, judge_of([]))._moved(at, 1).tolist() == [False, False]
