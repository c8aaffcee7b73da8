"""Where a search through impacts begins and what it concludes, beside closed forms of flights and small problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_impact_problem import MISS, PARAMETERS, SLACK_STD, SYSTEM, start
from tests.unit.test_impact_problem import motion as motion
from tests.unit.test_impact_problem import problem as problem
from vid2phys.geometry import quat_from_rotvec
from vid2phys.solvers import impact_search, impacts, least_squares
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.impact_problem import (
    ImpactProblem,
    Motion,
    covariance_of,
    descended,
    evidence_of,
    factor_of,
    misfit_of,
)
from vid2phys.solvers.impact_rejoining import End
from vid2phys.solvers.impact_search import (
    _candidates,
    _different,
    _exact,
    _kinks,
    _node_frames,
    _rejoined,
    _robust,
    _searched,
    _searched_anew,
    _starts,
    _tightened,
    _with_nearest,
)
from vid2phys.solvers.impacts import (
    _between,
    _least_friction,
    _least_of_all,
    _noise_of,
    _of_poses,
    _sharpened,
    concluded,
)
from vid2phys.solvers.impulses import impulses_of, time_stds
from vid2phys.solvers.least_squares import Settings, minimize
from vid2phys.types import Array

G = 9.81


def flight(times_s: Array, kick: Array, at_s: float) -> Array:
    """States [F, 13] of a body that flies and turns, and whose velocity and rate change by `kick` [6] once."""
    states = np.zeros((len(times_s), 13))
    after = np.maximum(times_s - at_s, 0.0)[:, None]
    states[:, :3] = np.array([0.0, 0.0, 1.0]) + np.array([1.0, 0.5, 2.0]) * times_s[:, None] + kick[:3] * after
    states[:, 2] -= 0.5 * G * times_s**2
    states[:, 3:7] = quat_from_rotvec(np.array([0.0, 0.0, 4.0]) * times_s[:, None] + kick[3:] * after)
    return states


def poses_of(states: Array, rows: Array, std: float = 1e-3) -> FramePoses:
    count = len(rows)
    own = np.tile(np.diag([std**2] * 3 + [4.0 * std**2] * 3), (count, 1, 1))
    return FramePoses(rows, states[rows], own, np.zeros((count, 6, 0)), np.zeros(0), np.zeros(count))


def test_a_kink_is_the_change_of_velocity_in_variances() -> None:
    """Between frames 0.01 s and 0.02 s long; gravity is no kink, and rotation about a fixed axis adds up."""
    times = np.array([0.0, 0.01, 0.02, 0.04, 0.06, 0.07])
    kick = np.array([0.2, -0.1, 0.5, 0.0, 0.0, 3.0])
    poses = poses_of(flight(times, kick, 0.04), np.arange(6))
    found = _kinks(SYSTEM, poses, times, G)
    bend = kick
    variance = 0.02**-2 + 0.02**-2 + (2.0 / 0.02) ** 2
    expected = ((bend[:3] ** 2).sum() / 1e-6 + bend[5] ** 2 / 4e-6) / variance
    np.testing.assert_allclose(found[[0, 1, 2, 4, 5]], 0.0, atol=1e-9)
    assert found[3] == pytest.approx(expected, rel=1e-6)
    uneven = _kinks(SYSTEM, poses_of(flight(times, kick, 0.02), np.arange(6)), times, G)
    variance = 0.01**-2 + 0.02**-2 + (1.0 / 0.01 + 1.0 / 0.02) ** 2
    assert uneven[2] == pytest.approx(((bend[:3] ** 2).sum() / 1e-6 + bend[5] ** 2 / 4e-6) / variance, rel=1e-6)


def test_nodes_lie_where_poses_fly_freely() -> None:
    """Impacts at frames 6 and 15: nodes are two frames and more from both, and four to eight apart."""
    times = np.arange(24) / 60.0
    states = flight(times, np.array([0.0, 0.0, 3.0, 0.0, 0.0, 0.0]), times[6])
    states[:, :3] += np.array([0.0, 1.0, 2.0]) * np.maximum(times - times[15], 0.0)[:, None]
    states[:, 0] += 1e-5 * np.random.default_rng(0).normal(size=24)
    lengths = np.diff(times)
    found = _node_frames(SYSTEM, poses_of(states, np.arange(24)), lengths, G)
    assert found[0] == 0
    assert (np.diff(found) >= 4).all()
    assert (np.diff(found) <= 8).all()
    assert len(found) >= 3
    assert (np.abs(found[1:, None] - [6, 15]) >= 2).all()
    assert _node_frames(SYSTEM, poses_of(states[:10], np.arange(10)), lengths[:9], G).tolist() == [0]
    assert len(_node_frames(SYSTEM, poses_of(states[:11], np.arange(11)), lengths[:10], G)) == 2


def test_nodes_may_begin_with_the_velocity_before_them_or_after_them() -> None:
    times, kick = np.arange(9) / 60.0, np.array([0.3, 0.0, 4.0, 0.0, 0.0, 2.0])
    states = flight(times, kick, times[4])
    smoothed = states + 0.5
    found = _candidates(SYSTEM, poses_of(states, np.arange(9)), smoothed, np.array([0, 4, 8]), times, G)
    assert found.shape == (3, 3, 13)
    np.testing.assert_array_equal(found[0], smoothed[[0, 4, 8]])
    before = np.array([1.0, 0.5, 2.0 - G * times[4], 0.0, 0.0, 4.0])
    np.testing.assert_allclose(found[1, 1, 7:], before + kick, atol=1e-5)
    np.testing.assert_allclose(found[2, 1, 7:], before, atol=1e-5)
    np.testing.assert_allclose(found[1, 0, 7:], [1.0, 0.5, 2.0, 0.0, 0.0, 4.0], atol=1e-5)
    np.testing.assert_array_equal(found[2, 0], smoothed[0], "nothing is before the first frame")
    np.testing.assert_array_equal(found[1, 2], smoothed[8])
    np.testing.assert_array_equal(found[:, :, :7], np.tile(smoothed[[0, 4, 8], :7], (3, 1, 1)))


def test_each_node_begins_as_its_own_poses_tell(problem: ImpactProblem, motion: Motion) -> None:
    wrong = motion.nodes.copy()
    wrong[:, 7:10] += 1.0
    mixed = np.array([[wrong[0], motion.nodes[1]], [motion.nodes[0], wrong[1]], wrong])
    found = _with_nearest(problem, replace(motion, nodes=wrong), mixed)
    np.testing.assert_array_equal(found.nodes, motion.nodes)


def test_starts_are_all_combinations_of_friction_and_restitution(motion: Motion) -> None:
    found = _starts(("mu", "gravity", "restitution"), replace(motion, theta=np.array([0.5, 9.7, 0.6])))
    theta = np.array([each.theta for each in found])
    assert len(found) == 9
    assert {(round(float(np.exp(mu)), 6), float(e)) for mu, _, e in theta} == {
        (mu, e) for mu in (0.1, 0.3, 0.8) for e in (0.1, 0.4, 0.75)
    }
    np.testing.assert_array_equal(theta[:, 1], 9.7)


def end(evidence: float, *theta: float) -> End:
    motion: Any = SimpleNamespace(theta=np.array(theta))
    nothing: Any = None
    return End(evidence, nothing, motion, nothing)


def test_ends_that_are_alike_count_once() -> None:
    ends = [end(3.0, 0.0, 1.0), end(2.0, 0.08, 1.08), end(1.0, 0.15, 1.0), end(0.0, 0.0, 1.15)]
    assert _different(ends) == [ends[0], ends[2], ends[3]]


def test_the_search_begins_anew_at_a_best_motion_in_parts(
    problem: ImpactProblem, motion: Motion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search has the evidences of one list; a motion with 9 nats joins."""
    weights, exact = np.ones(len(problem.poses.rows)), MISS
    begun = list[tuple[int, Any]]()

    def run(*searches: Sequence[float]) -> list[float]:
        rest = iter(searches)
        begun.clear()

        def searched(whole: Any, starts: Sequence[Motion], of_poses: Array, of_nodes: Array) -> list[Any]:
            begun.append((len(starts), of_poses))
            return [End(nats, replace(whole, slack_std=nats), motion, nats * weights) for nats in next(rest)]

        monkeypatch.setattr(impact_search, "_searched", searched)
        monkeypatch.setattr(impact_search, "is_apart", lambda problem: problem.slack_std < 9.0)
        return [end.evidence for end in _searched_anew(problem, [motion], weights, exact, lambda share: None)]

    assert run([5.0, 9.0]) == [5.0, 9.0]
    assert [count for count, _ in begun] == [1]
    assert run([5.0, 6.0], [4.0, 7.0], [8.0]) == [5.0, 6.0, 4.0, 7.0, 8.0], "three searches are all"
    assert [count for count, _ in begun] == [1, 9, 9], "all combinations of friction and restitution"
    np.testing.assert_array_equal(begun[1][1], 6.0 * weights)
    np.testing.assert_array_equal(begun[2][1], 7.0 * weights)
    assert run([5.0], [4.0]) == [5.0, 4.0], "nothing is gained"


@pytest.mark.parametrize(
    ("nats", "rounds"), [([5.0, 7.0, 9.0, 9.5], 4), ([5.0, 7.0, 9.0, 11.0, 13.0], 5), ([5.0, 5.5], 2)]
)
def test_starts_begin_anew_at_the_best_motion_while_they_gain(
    problem: ImpactProblem, motion: Motion, monkeypatch: pytest.MonkeyPatch, nats: list[float], rounds: int
) -> None:
    """The best start of each round has its evidence in `nats`; weights of poses count the rounds. Two ends go on."""
    weights, seen = np.ones(len(problem.poses.rows)), list[int]()

    def tightened(whole: Any, begun: Motion, of_poses: Array, exact: Array, strictness: Any) -> Any:
        if strictness != impact_search._ROUGH:
            return End(100.0 + of_poses[0], replace(whole, slack_std=0.1), begun, of_poses)
        seen.append(int(of_poses[0]))
        return End(nats[seen[-1]] - 0.1 * np.abs(begun.theta).sum(), whole, begun, of_poses + 1.0)

    monkeypatch.setattr(impact_search, "_tightened", tightened)
    monkeypatch.setattr(impact_search, "_rejoined", lambda end, exact: end)
    found = _searched(problem, [replace(motion, theta=np.zeros(4))], 0.0 * weights, MISS)
    assert sorted(set(seen)) == list(range(rounds))
    assert len(found) == 2
    assert found[0].evidence == 100.0 + rounds


def test_of_descents_from_a_part_the_best_goes_on(
    problem: ImpactProblem, motion: Motion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All begin at one strictness; the evidence is that of the start and of the last miss."""
    weights, tried = np.ones(len(problem.poses.rows)), list[tuple[float, list[float]]]()

    def tightened(whole: Any, begun: Motion, of_poses: Array, exact: Array, strictness: Any) -> Any:
        tried.append((float(begun.theta[0]), [miss for miss, _ in strictness]))
        return End(float(begun.theta[0]) - strictness[-1][0], whole, begun, of_poses)

    monkeypatch.setattr(impact_search, "_tightened", tightened)
    monkeypatch.setattr(impact_search, "rejoined", lambda end, exact, slack, descents: descents(starts))
    starts = [replace(motion, theta=np.full(4, nats)) for nats in (3.0, 5.0, 4.0)]
    found = _rejoined(End(0.0, problem, motion, weights), MISS)
    assert sorted(tried[:3]) == [(3.0, [10.0]), (4.0, [10.0]), (5.0, [10.0])]
    assert tried[3:] == [(5.0, [3.0, 1.0]), (5.0, [1.0, 1.0])]
    assert found.evidence == 4.0


def test_the_spread_of_ends_counts_ten_nats_as_one() -> None:
    found = _between([end(100.0, 0.0), end(90.0, 1.0), end(60.0, 3.0)])
    share = np.exp([0.0, -1.0, -4.0])
    np.testing.assert_allclose(found, [[(share[1] + 9.0 * share[2]) / share.sum()]])


def test_poses_that_disagree_count_less(problem: ImpactProblem, motion: Motion) -> None:
    count = len(problem.poses.rows)
    states = problem.poses.states.copy()
    states[7, 0] += 0.05
    spoilt = replace(problem, poses=replace(problem.poses, states=states))
    weights, found = _robust(spoilt, motion, np.ones(count))
    np.testing.assert_allclose(found.nodes, descended(spoilt, motion).point.nodes)
    off = SYSTEM.local(states, spoilt.rolled(found)[0][spoilt.poses.rows])[:, :6]
    square = np.einsum("gi,gij,gj->g", off, spoilt.poses.precision, off) / 6.0
    np.testing.assert_allclose(weights, np.minimum(6.0 / (5.0 + square), 1.0))
    assert weights[7] < 0.1
    assert np.delete(weights, 7).min() > 0.2


def test_the_strictness_with_most_evidence_counts(problem: ImpactProblem, motion: Motion) -> None:
    exact, weights = MISS / 10.0, np.ones(len(problem.poses.rows))
    tried = ((30.0, 0.2), (10.0, 0.05))
    singles = [_tightened(problem, motion, weights, exact, (one,)) for one in tried]
    for (miss, std), (evidence, whole, moved, _) in zip(tried, singles, strict=True):
        np.testing.assert_allclose(whole.miss, miss * exact)
        assert whole.slack_std == std
        assert evidence == pytest.approx(evidence_of(whole, moved))
    assert singles[1][0] > singles[0][0], "of a motion that keeps the laws"
    both = _tightened(problem, motion, weights, exact, tried)
    assert both[1].slack_std == 0.05
    back = _tightened(problem, motion, weights, exact, tried[::-1])
    assert back[1].slack_std == 0.05


def test_a_fit_has_the_covariance_of_its_problem_and_of_its_rivals(
    problem: ImpactProblem, motion: Motion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(impacts, "_least_friction", lambda *_: 0.07)
    minimum = minimize(problem, motion, Settings(iterations=15))
    weights, between = np.ones(len(problem.poses.rows)), np.diag([0.0, 0.01, 0.0, 0.0])
    found = concluded(problem, minimum, weights, between)
    _, normal, _, states, slopes = problem.equations(minimum.point)
    off, of_poses = _of_poses(problem, minimum.point, slopes)
    normal = _sharpened(normal, of_poses, _noise_of(normal, off, of_poses))
    misfit = misfit_of(problem, minimum.point)
    whole = covariance_of(normal) * max(1.0, misfit**2)
    np.testing.assert_allclose(found.covariance, whole[24:28, 24:28] + between)
    np.testing.assert_allclose(found.states, states)
    expected = np.einsum("fiu,uv,fjv->fij", slopes, whole, slopes)
    np.testing.assert_allclose(found.state_covariance, expected, rtol=1e-6, atol=1e-14)
    assert found.misfit == misfit
    assert found.slack_std == SLACK_STD
    assert found.parameters["restitution"].value == pytest.approx(minimum.point.theta[1])
    assert found.unknown == ()
    assert found.null_directions.shape == (0, 4)
    assert found.least_friction is None
    wide = concluded(problem, minimum, weights, np.diag([0.0, 0.16**2, 0.0, 0.0]))
    assert wide.unknown == ("restitution",)
    np.testing.assert_array_equal(wide.null_directions, [[0.0, 1.0, 0.0, 0.0]])
    loose = concluded(problem, minimum, weights, np.diag([1.01, 0.14**2 - whole[25, 25], 100.0, 100.0]))
    assert loose.unknown == ("mu",), "of the law of contact alone"
    assert loose.least_friction == 0.07
    monkeypatch.setattr(impacts, "is_apart", lambda _: True)
    apart = concluded(problem, minimum, weights, np.diag([1.01, 0.0, 100.0, 100.0]))
    assert apart.unknown == ("mu",)
    assert apart.least_friction is None, "a motion in parts bounds nothing"


def test_no_motion_shows_more_friction_than_it_uses() -> None:
    contacts: Any = SimpleNamespace(impacts=np.array([[1, 0, 2, 1]]))
    impulses = np.array([[2.0, 0.2], [1.0, 0.9], [1.0, 0.3], [0.1, 0.09]])  # no impact in the second, a touch at last
    assert impacts._used_friction(contacts, impulses) == pytest.approx(0.3)
    assert impacts._used_friction(contacts, 0.0 * impulses) == 0.0


def test_the_width_of_intervals_is_split(problem: ImpactProblem, motion: Motion) -> None:
    """The part of the law is that of slack and joins alone."""
    poses = problem.poses
    basis = np.zeros((len(poses.rows), 6, 1))
    basis[:, 0] = 2e-3
    poses = replace(poses, basis=basis, times_s=np.array([0.2]), clock_s=np.arange(len(poses.rows)) / 60.0)
    weights = np.linspace(0.3, 1.0, len(poses.rows))

    def prior(theta: Array) -> tuple[Array, Array]:
        return theta / 2.0, np.full(len(theta), 0.25)

    whole = replace(problem, poses=poses, lower=factor_of(poses, weights), prior=prior)
    minimum = minimize(whole, motion, Settings(iterations=15))
    found = concluded(whole, minimum, weights, np.diag([0.0, 0.01, 0.0, 0.0]))
    np.testing.assert_allclose(sum(found.parts.values()), np.diagonal(found.covariance), rtol=1e-9)
    np.testing.assert_allclose(found.parts["other_minima"], [0.0, 0.01, 0.0, 0.0])
    _, normal, _, _, slopes = whole.equations(minimum.point)
    off, of_poses = _of_poses(whole, minimum.point, slopes)
    noise = _noise_of(normal, off, of_poses)
    covariance = covariance_of(_sharpened(normal, of_poses, noise))
    of_theta = covariance[24:28]
    of_law = normal.information - of_poses.T @ of_poses + 1e-2 * np.eye(len(covariance))
    of_law[24:28, 24:28] -= 0.25 * np.eye(4)
    np.testing.assert_allclose(found.parts["prior"], 0.25 * (of_theta[:, 24:28] ** 2).sum(axis=1))
    expected = np.einsum("pu,uv,pv->p", of_theta, of_law, of_theta)
    np.testing.assert_allclose(found.parts["law_of_impact"], expected, rtol=1e-4)
    assert (found.parts["frame_noise"] > 0.0).all()
    assert (found.parts["shared_error"] > 0.0).all()
    np.testing.assert_allclose(
        found.parts["misfit"], (max(1.0, found.misfit**2) - 1.0) * np.diagonal(covariance)[24:28]
    )


@pytest.mark.parametrize("least", [0.149, 0.075, 0.197, 0.0])
def test_the_least_friction_is_the_last_that_explains_the_clip(monkeypatch: pytest.MonkeyPatch, least: float) -> None:
    """Frictions from `least` on explain it; others cost more than half the chi-square of a one-sided interval."""

    def with_fixed(whole: Any, motion: Any, values: dict[str, float]) -> Any:
        return np.exp(values["mu"]), SimpleNamespace(theta=np.delete(motion.theta, 1))

    monkeypatch.setattr(impacts, "with_fixed", with_fixed)
    monkeypatch.setattr(impacts, "replace", lambda point, theta: SimpleNamespace(theta=theta))
    cost = lambda mu: 7.0 + (1.35 if mu >= least else 1.36)  # noqa: E731
    monkeypatch.setattr(impacts, "descended", lambda mu, start: SimpleNamespace(cost=cost(mu), point=start))
    whole: Any = SimpleNamespace(parameters=_Named(("restitution", "mu")))
    minimum: Any = SimpleNamespace(point=SimpleNamespace(theta=np.array([0.5, np.log(0.2)])), cost=7.0)
    found = _least_friction(whole, minimum)
    if least == 0.0:
        assert found is None
        return
    assert found is not None
    assert least <= found < 1.041 * least, "the last step that was refused has 4 per cent at most"


class _Named:
    """Free names, and the parameter mu of the body."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.free_names = names

    def __getitem__(self, name: str) -> Any:
        return PARAMETERS[name]


@pytest.mark.parametrize(("evidence", "expected"), [(91.0, 0.4), (89.0, 0.7)])
def test_an_end_that_explains_the_clip_as_well_lowers_the_least_friction(
    monkeypatch: pytest.MonkeyPatch, evidence: float, expected: float
) -> None:
    monkeypatch.setattr(impacts, "_least_friction", lambda whole, _: whole)
    monkeypatch.setattr(least_squares, "minimize", lambda *_: None)
    ends: list[Any] = [
        SimpleNamespace(evidence=each, problem=bound, motion=SimpleNamespace(theta=np.log([0.9, mu])))
        for each, bound, mu in ((100.0, 0.7, 2.0), (evidence, 0.4, 0.5), (50.0, 0.1, 0.1))
    ]
    names = SimpleNamespace(free_names=("restitution", "mu"))
    fitted: Any = SimpleNamespace(least_friction=0.7, parameters=names)
    assert _least_of_all(fitted, ends) == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.0, None), (1e-3, 0.5), (1e3, 1.0)])
def test_errors_of_poses_are_those_of_the_residuals(
    problem: ImpactProblem, motion: Motion, factor: float, expected: float | None
) -> None:
    """Each degree of freedom that the motion uses takes one residual away."""
    rng = np.random.default_rng(5)
    minimum = minimize(problem, motion, Settings(iterations=15)).point
    states = problem.rolled(minimum)[0][problem.poses.rows].copy()
    states[:, :3] += factor * rng.normal(0.0, 1.4e-3, (len(states), 3))
    moved = replace(problem, poses=replace(problem.poses, states=states))
    _, normal, _, _, slopes = moved.equations(minimum)
    residuals, of_poses = _of_poses(moved, minimum, slopes)
    np.testing.assert_allclose(residuals, moved.residuals(minimum)[0])
    hat = np.trace(of_poses @ covariance_of(normal) @ of_poses.T)
    noise = np.sqrt((residuals**2).sum() / (len(residuals) - hat))
    assert expected is not None or 0.5 < noise < 1.0
    scaled = replace(moved, lower=moved.lower * (expected or noise)).equations(minimum)[1].information
    found = _sharpened(normal, of_poses, _noise_of(normal, residuals, of_poses)).information
    np.testing.assert_allclose(found, scaled, rtol=1e-9, atol=1e-9 * np.abs(scaled).max())


def test_impulses_have_the_errors_of_moved_rollouts(problem: ImpactProblem, motion: Motion) -> None:
    """The plane is level, so that its normal is the z axis; errors are differences of whole rollouts."""
    given = SYSTEM, problem.parameters, problem.lengths_s
    _, normal, active, states, slopes = problem.equations(motion)
    covariance = covariance_of(normal)
    k = int(np.flatnonzero(problem.rolled(motion)[2].impacts[0])[0])
    by_unknowns = []
    for move in 1e-6 * np.eye(len(covariance)):
        there, back = (problem.rolled(problem.moved(motion, sign * move, active))[0] for sign in (1.0, -1.0))
        by_unknowns.append(np.diff(SYSTEM.to_principal(there)[k : k + 2, 7:10], axis=0)[0])
        by_unknowns[-1] -= np.diff(SYSTEM.to_principal(back)[k : k + 2, 7:10], axis=0)[0]
    change = np.diff(SYSTEM.to_principal(states)[k : k + 2, 7:9], axis=0)[0]
    axes = np.array([[0.0, 0.0, 1.0], [*change / np.linalg.norm(change), 0.0]])
    slope = np.array(by_unknowns) / 2e-6 @ axes.T
    stds = impulses_of(*given, states, slopes, covariance)[1]
    np.testing.assert_allclose(stds[k], np.sqrt(np.diagonal(slope.T @ covariance @ slope)), rtol=0.01)


def test_times_of_impacts_have_the_errors_of_moved_rollouts(problem: ImpactProblem, motion: Motion) -> None:
    """Errors are differences of whole rollouts; intervals without an impact have none."""
    _, normal, active, states, slopes = problem.equations(motion)
    covariance, contacts = covariance_of(normal), problem.rolled(motion)[2]
    times = contacts.time_s[0]
    found = time_stds(problem, motion, contacts, states, slopes, covariance)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(times))
    for k in np.flatnonzero(np.isfinite(times))[:2]:

        def time_s(move: Array, k: int = int(k)) -> float:
            return float(problem.rolled(problem.moved(motion, move, active))[2].time_s[0, k])

        moves = 1e-6 * np.eye(len(covariance))
        by_unknowns = np.array([time_s(move) - time_s(-move) for move in moves]) / 2e-6
        assert 1e-6 < found[k] < 0.01
        np.testing.assert_allclose(found[k], np.sqrt(by_unknowns @ covariance @ by_unknowns), rtol=0.02)


def test_impulses_are_those_of_the_law(problem: ImpactProblem) -> None:
    slack = np.zeros((1, len(problem.lengths_s), 4))
    vector = PARAMETERS.vector[None]
    states, contacts = SYSTEM.rollouts(start()[None], problem.lengths_s[None], vector, slack)
    found, _ = impulses_of(
        *(SYSTEM, PARAMETERS, problem.lengths_s, states[0]), np.zeros((len(states[0]), 12, 1)), np.eye(1)
    )
    np.testing.assert_allclose(found[:, 0], contacts.normal_impulse[0], atol=1e-9)
    np.testing.assert_allclose(found[:, 1], contacts.friction_impulse[0], atol=1e-9)


def test_a_hidden_rotation_may_jump_and_its_rate_goes_on() -> None:
    """A cylinder's axis is z; a ball hides all rotation."""
    seen = _exact(np.zeros((0, 3)))
    for hidden, free in ((np.array([[0.0, 0.0, -1.0]]), [5]), (np.eye(3), [3, 4, 5])):
        found = _exact(hidden)
        np.testing.assert_allclose(found[free], np.pi, rtol=1e-6)
        kept = np.setdiff1d(np.arange(12), free)
        np.testing.assert_array_equal(found[kept], seen[kept])
