"""Several clips of one body in one fit: what each says of the parameters adds up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.flight import Flight, fly, watch
from tests.recovery.test_posed_fit import problem_of, small_rod
from tests.recovery.test_smoothing import start
from vid2phys.errors import UsageError
from vid2phys.geometry import look_at
from vid2phys.solvers import configuration_shooting, shooting, smoothing
from vid2phys.solvers.hyperparameters import prior_hyperparameters
from vid2phys.solvers.multi_clip import Join
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.smoothing_model import Layout


def flights() -> list[Flight]:
    """Two of them, before two cameras, the second at half the rate."""
    first, second = fly(1.6), fly(2.0, swing=0.3)
    other = look_at(np.array([1.0, -1.4, 0.5]), np.zeros(3))
    return [first, replace(second, times_s=second.times_s[::2], states=second.states[::2], camera_to_world=other)]


def problems(free: tuple[str, ...] = ("mass",), **options: object) -> list[Problem]:
    found = []
    for seed, flight in enumerate(flights()):
        drag = {"drag": 0.0} if "thrust_scale" in free else {}  # which, where it is known, tells mass a little
        parameters = flight.parameters.with_values({"mass": 0.76} | drag).with_free(free)
        seen = watch(flight, seed=seed)
        found.append(
            Problem(flight.system, parameters, seen, flight.camera_to_world, flight.actions, **options)  # type: ignore[arg-type]
        )
    return found


@pytest.mark.parametrize("solver", ["smoothing", "shooting"])
def test_information_of_clips_adds_up(solver: str) -> None:
    """With one parameter shared and everything else of each clip alone, precisions add and values are averaged."""
    each = problems()
    begin = [start(problem) for problem in each]
    if solver == "shooting":
        alone = [shooting.solve(problem, states) for problem, states in zip(each, begin, strict=True)]
        together = shooting.solve_clips(each, begin)
    else:
        known = [(prior_hyperparameters(Layout.of(problem)),) for problem in each]
        starts = [smoothing.Start(*args) for args in zip(each, begin, [None, None], known, strict=True)]
        alone = [smoothing.solution(smoothing.fit_clips([one], rounds=0)[0]) for one in starts]
        together = [smoothing.solution(one) for one in smoothing.fit_clips(starts, rounds=0)]
    precision = np.array([one.theta_covariance[0, 0] ** -1 for one in alone])
    values = np.array([np.log(one.parameters["mass"].value) for one in alone])
    for one, problem in zip(together, each, strict=True):
        assert one.theta_covariance[0, 0] ** -1 == pytest.approx(precision.sum(), rel=0.02)
        std = precision.sum() ** -0.5
        assert np.log(one.parameters["mass"].value) == pytest.approx(
            precision @ values / precision.sum(), abs=0.2 * std
        )
        assert len(one.states) == len(problem.observation.times_s)
    assert np.exp(precision @ values / precision.sum()) == pytest.approx(0.72, rel=0.01)


def test_a_prior_counts_once_and_levels_are_of_each_clip() -> None:
    """A prior alone says what thrust and mass are apart; with two clips it must not be twice as narrow."""
    each = problems(("mass", "thrust_scale"), priors={"thrust_scale": (0.0, 0.05)})
    found = smoothing.fit_clips([smoothing.Start(problem, start(problem)) for problem in each], rounds=1)
    for one in found:
        names = one.layout.theta_names
        assert one.theta_covariance[names.index("thrust_scale"), names.index("thrust_scale")] == pytest.approx(
            0.05**2, rel=0.02
        )
        assert len(one.null_directions) == 0
        assert one.theta_covariance.shape == (4, 4)  # delay and lag are of each clip
    assert found[0].point.theta[0] == found[1].point.theta[0]
    assert found[0].point.theta[2] != found[1].point.theta[2]
    assert found[0].hyperparameters[0].input_std["force"] != found[1].hyperparameters[0].input_std["force"]


def test_what_no_clip_determines_is_named_for_all() -> None:
    found = smoothing.fit_clips([smoothing.Start(p, start(p)) for p in problems(("mass", "thrust_scale"))], rounds=1)
    for one in found:
        np.testing.assert_allclose(np.abs(one.null_directions[0, :2]), 0.5**0.5, atol=1e-2)


def test_clips_with_other_parameters_are_refused() -> None:
    one, other = problems()[0], problems(("drag",))[1]
    with pytest.raises(UsageError, match="clips with the parameters drag"):
        smoothing.fit_clips([smoothing.Start(p, start(p)) for p in (one, other)])


@pytest.mark.slow
def test_stiffness_of_a_rod_from_two_clips() -> None:
    rod, body = small_rod()
    truth = rod.parameters().with_values({"young_modulus": 6e5})
    each, starts = [], []
    for bend in (0.03, -0.02):
        configuration, rates = np.array([0.0, bend, 0.0, 0.0]), np.array([0.3, 0.0, 0.0, 0.0])
        each.append(problem_of(rod, body.points_body, truth, body.states(configuration, rates), ("young_modulus",), 2))
        starts.append(np.concatenate([0.7 * configuration, 0.0 * rates]))
    alone = [configuration_shooting.solve(p, body, s[:4], s[4:]) for p, s in zip(each, starts, strict=True)]
    first, second = configuration_shooting.solve_clips(each, body, starts)
    precision = sum(float(one.theta_covariance[0, 0]) ** -1 for one in alone)
    assert first.theta_covariance[0, 0] ** -1 == pytest.approx(precision, rel=0.1)  # misfits differ a little
    modulus = first.parameters["young_modulus"].value
    assert abs(np.log(modulus / 6e5)) < 3.0 * precision**-0.5
    assert modulus == second.parameters["young_modulus"].value
    assert np.abs(first.states[0] - second.states[0]).max() > 0.03


def test_what_other_clips_say_is_what_is_left_when_their_own_unknowns_are_summed_out() -> None:
    """The information of a marginal is the inverse of the part of the covariance."""
    rng = np.random.default_rng(0)
    join = Join.of([("mass", "drag", "delay"), ("mass", "drag", "delay", "lag")], ("mass", "drag"))
    assert join.names == ("mass", "drag", "delay", "delay", "lag")
    informations = [rows.T @ rows for rows in (rng.normal(size=(9, 3)), rng.normal(size=(9, 4)))]
    gradients = [rng.normal(size=3), rng.normal(size=4)]
    found = join.other_clips(0, informations, gradients)
    assert found is not None
    marginal = np.linalg.inv(np.linalg.inv(informations[1])[:2, :2])
    np.testing.assert_allclose(found.information[:2, :2], marginal, rtol=1e-9)
    np.testing.assert_allclose(found.information[2], 0.0, atol=1e-12)
    lowest = -np.linalg.solve(informations[1], gradients[1])[:2]
    np.testing.assert_allclose(-np.linalg.solve(marginal, found.gradient[:2]), lowest, rtol=1e-9)
    assert Join.of([("mass",)], ("mass",)).other_clips(0, informations[:1], gradients[:1]) is None
