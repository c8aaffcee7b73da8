"""The evidence of hyperparameters beside one dense Gaussian: its value, its slopes, and where a search may go."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag

from tests.unit.test_smoothing_parts import RECORDED, dense, problem_of
from vid2phys.solvers import hyperparameters as hyper
from vid2phys.solvers import smoothing
from vid2phys.solvers.hyperparameters import OtherClips, pack, prior_hyperparameters, unpack
from vid2phys.solvers.smoothing import Chain
from vid2phys.solvers.smoothing_model import (
    STEP_STD,
    Hyperparameters,
    Layout,
    Process,
    Unknowns,
    input_processes,
    linearized,
    shared_processes,
    with_priors,
)
from vid2phys.types import Array


@pytest.fixture(scope="module")
def chain() -> Chain:
    """A short clip at a point that is off, with hyperparameters aside from their priors."""
    problem, states = problem_of(RECORDED)
    layout, rng = Layout.of(problem), np.random.default_rng(0)
    point = smoothing.initial_unknowns(layout, states, None)
    inputs = 0.1 * rng.normal(size=point.inputs.shape)
    shared = 0.2 * rng.normal(size=point.shared.shape)
    theta = point.theta + 0.01 * rng.normal(size=len(point.theta))
    known = prior_hyperparameters(layout)
    off = pack(known) + 0.2 * rng.normal(size=len(pack(known)))
    return Chain(layout, Unknowns(point.states, inputs, shared, theta), unpack(off, known), share=1.0)


def precision_of(process: Process, steps: int) -> Array:
    """The precision of a chain of one process, [T S, T S]: steps from each knot to the next, and the first one."""
    chain, size = process.chain, len(process.index)
    onto = np.eye(steps * size)
    for t in range(steps - 1):
        onto[(t + 1) * size : (t + 2) * size, t * size : (t + 1) * size] = -chain.transition[t]
    return np.asarray(onto.T @ block_diag(chain.initial, *chain.precision) @ onto)


def test_the_evidence_is_that_of_one_gaussian(chain: Chain) -> None:
    layout, point, at = chain.layout, chain.point, chain.hyperparameters
    linear = linearized(layout, point, at)
    normal = with_priors(linear, layout, point, at)
    steps, whole = len(layout.knots.times_s), dense(normal.matrix)
    both = np.append(normal.gradient.ravel(), normal.gradient_theta)
    cost, logdet = linear.cost, 0.0
    for std, terms in ((at.point_scale, linear.measurements), *((at.step_std[g], linear.steps[g]) for g in STEP_STD)):
        cost += terms.cost / std**2
        logdet -= 2.0 * terms.count * np.log(std)
    values = np.concatenate([point.inputs, point.shared], axis=1)
    for process in (*input_processes(layout, at), *shared_processes(layout, at)):
        precision = precision_of(process, steps)
        own = values[:, process.index - layout.tangent].ravel()
        cost += 0.5 * own @ precision @ own
        logdet += np.linalg.slogdet(precision)[1]
    gained = 0.5 * both @ np.linalg.solve(whole, both)
    expected = gained - cost - 0.5 * np.linalg.slogdet(whole)[1] + 0.5 * logdet + hyper._log_prior(at)[0]
    found = hyper.log_evidence(layout, linear, point, at)
    assert found == pytest.approx(expected, abs=1e-4 * abs(gained))


def test_slopes_of_the_evidence_are_those_of_differences(chain: Chain) -> None:
    layout, point = chain.layout, chain.point
    linear = linearized(layout, point, chain.hyperparameters)
    vector = pack(chain.hyperparameters)
    _, gradient = hyper.evidence_and_gradient(layout, linear, point, chain.hyperparameters)
    for k, row in enumerate(1e-4 * np.eye(len(vector))):
        ends = [
            hyper.log_evidence(layout, linear, point, unpack(vector + sign * row, chain.hyperparameters))
            for sign in (1.0, -1.0)
        ]
        assert gradient[k] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3, abs=5e-3)


def test_the_prior_of_hyperparameters_is_normal_in_their_logarithms() -> None:
    """A spread above the median costs a half; slopes are those of differences."""
    groups = ("force", "thrust")
    medians = Hyperparameters({g: hyper.PRIORS[g][0][0] for g in groups}, {g: hyper.PRIORS[g][1][0] for g in groups})
    value, gradient = hyper._log_prior(medians)
    assert value == 0.0
    assert not gradient.any()
    spreads = [hyper.PRIORS[g][i][1] for i in (0, 1) for g in groups]
    spreads += [hyper.STEP_PRIOR] * 2 + [hyper.SCALE_PRIOR] * 2
    for k, spread in enumerate(spreads):
        aside = unpack(pack(medians) + spread * np.eye(8)[k], medians)
        value, gradient = hyper._log_prior(aside)
        assert value == pytest.approx(-0.5)
        np.testing.assert_allclose(gradient, -np.eye(8)[k] / spread, atol=1e-12)


def test_hyperparameters_are_packed_by_name() -> None:
    step_std = {"force": 0.004, "torque": 0.03}
    given = Hyperparameters({"thrust": 2.0, "force": 0.5}, {"thrust": 8.0, "force": 3.0}, 1.5, 1.2, step_std)
    np.testing.assert_allclose(np.exp(pack(given)), [0.5, 2.0, 3.0, 8.0, 0.004, 0.03, 1.5, 1.2])
    back = unpack(pack(given), given)
    for name in ("input_std", "bandwidth_rad_s", "step_std"):
        assert getattr(back, name) == pytest.approx(getattr(given, name))
    assert (back.point_scale, back.shared_scale) == pytest.approx((1.5, 1.2))


def test_the_mean_of_hyperparameters_is_geometric() -> None:
    one = Hyperparameters({"force": 1.0}, {"force": 3.0}, 1.0, 1.0)
    other = Hyperparameters({"force": 4.0}, {"force": 12.0}, 9.0, 1.0)
    mean = hyper.geometric_mean([one, other])
    assert (mean.input_std["force"], mean.bandwidth_rad_s["force"], mean.point_scale) == pytest.approx((2.0, 6.0, 3.0))
    assert hyper.change(one, other) == hyper.change(other, one) == pytest.approx(np.log(9.0))


def test_steps_and_scales_stay_within_their_bounds() -> None:
    """Steps are at most those stated and at least a thirtieth of them; scales are one at least."""
    most = np.log(list(STEP_STD.values()))
    vector = np.array([1.0, 2.0, most[0] + 1.0, most[1] - 9.0, -0.5, 0.3])
    found = hyper.within_bounds(vector)
    np.testing.assert_allclose(found, [1.0, 2.0, most[0], most[1] - np.log(30.0), 0.0, 0.3])
    assert vector[-2] == -0.5, "what was given stays as it is"


def test_a_search_raises_the_evidence(chain: Chain) -> None:
    layout, point, before = chain.layout, chain.point, chain.hyperparameters
    found = hyper.maximize_evidence(layout, point, before)
    linear = linearized(layout, point, before)
    _, slopes = hyper.evidence_and_gradient(layout, linear, point, before)
    gain = hyper.log_evidence(layout, linear, point, found) - hyper.log_evidence(layout, linear, point, before)
    assert gain > 0.1
    _, after = hyper.evidence_and_gradient(layout, linear, point, found)
    inside = np.abs(pack(found) - hyper.within_bounds(pack(found))) == 0.0
    free = inside & (pack(found) > 1e-6) & (np.abs(pack(found) - pack(before)) < 2.9)
    assert np.abs(after[free]).max(initial=0.0) < np.abs(slopes).max()


def test_a_search_has_bounds_and_what_other_clips_tell(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, point, before = chain.layout, chain.point, chain.hyperparameters
    given = dict[str, Any]()

    def minimize(objective: Any, start: Array, bounds: Any, **_: Any) -> Any:
        given.update(bounds=np.array(bounds), at_start=objective(start), start=start)
        monkeypatch.setattr(hyper, "evidence_and_gradient", lambda *_: (np.nan, 0.0 * start))
        given["nan"] = objective(start)
        monkeypatch.setattr(hyper, "evidence_and_gradient", lambda *_: (1.0, np.inf * start))
        given["steep"] = objective(start)

        def singular(*_: Any) -> Any:
            raise np.linalg.LinAlgError

        monkeypatch.setattr(hyper, "evidence_and_gradient", singular)
        given["singular"] = objective(start)
        return SimpleNamespace(x=start + 0.1)

    count = len(point.theta)
    others = OtherClips(5.0 * np.eye(count), np.arange(count, dtype=float))
    linear = linearized(layout, point, before)
    linear.corner += others.information
    linear.gradient_theta += others.gradient
    value, gradient = hyper.evidence_and_gradient(layout, linear, point, before)
    monkeypatch.setattr(hyper, "minimize", minimize)
    found = hyper.maximize_evidence(layout, point, before, others)
    np.testing.assert_allclose(pack(found), pack(before) + 0.1)
    assert given["at_start"][0] == pytest.approx(-value)
    np.testing.assert_allclose(given["at_start"][1], -gradient)
    for name in ("nan", "steep", "singular"):
        cost, slope = given[name]
        assert cost > 1e9
        assert not slope.any()
    low, high = given["bounds"].T
    start = given["start"]
    np.testing.assert_allclose(low[:-4], start[:-4] - (high - start)[:-4])
    most = np.log(list(STEP_STD.values()))
    np.testing.assert_allclose(high[-4:-2], most)
    np.testing.assert_allclose(low[-4:-2], most - np.log(30.0))
    np.testing.assert_allclose(low[-2:], np.minimum(0.0, start[-2:]), err_msg="never below the calibrated scales")
    assert (high[-2:] >= np.maximum(start[-2:], 0.0)).all()


def test_scales_below_one_may_stay_there(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start below the calibrated scale by more than the search reaches is still below its upper bound."""
    bounds = list[Any]()
    monkeypatch.setattr(
        hyper, "minimize", lambda _, start, **options: (bounds.extend(options["bounds"]), SimpleNamespace(x=start))[1]
    )
    small = replace(chain.hyperparameters, point_scale=0.01)
    hyper.maximize_evidence(chain.layout, chain.point, small)
    assert bounds[-2] == (pytest.approx(np.log(0.01)), 0.0)


def test_first_hyperparameters_are_the_medians_of_the_groups_that_occur(chain: Chain) -> None:
    found = prior_hyperparameters(chain.layout)
    groups = {channel.group for channel in chain.layout.channels}
    assert set(found.input_std) == set(found.bandwidth_rad_s) == groups
    for group in groups:
        assert (found.input_std[group], found.bandwidth_rad_s[group]) == tuple(m for m, _ in hyper.PRIORS[group])
