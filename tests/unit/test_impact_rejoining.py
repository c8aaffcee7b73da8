"""Parts of a motion that are searched again: which ones, from where, and what it gains beside the true motion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import throws
from tests.unit.test_impact_problem import AXES, FRAMES, MISS, NODES, SYSTEM
from tests.unit.test_impact_problem import motion as motion
from tests.unit.test_impact_problem import problem as problem
from vid2phys.solvers import impact_rejoining as rejoining
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.impact_problem import ImpactProblem, Motion, evidence_of, factor_of
from vid2phys.solvers.impact_rejoining import End, rejoined
from vid2phys.solvers.impact_search import _EXACT, _node_frames
from vid2phys.types import Array

SLACK = 0.03


def test_a_part_joins_as_badly_as_it_misses_and_departs(problem: ImpactProblem, motion: Motion) -> None:
    exact = MISS / 4.0
    _, ends, _ = problem.rolled(motion)
    missed = SYSTEM.local(motion.nodes[1:], ends)[0] / exact
    slack = (motion.slack[: NODES[1]] ** 2).sum() / SLACK**2
    found = rejoining._scores(problem, motion, exact, SLACK)
    np.testing.assert_allclose(found, [(missed**2).sum() + slack])


def test_a_part_that_is_cut_off_is_free(problem: ImpactProblem, motion: Motion) -> None:
    exact = MISS / 4.0
    found = rejoining._cut(problem, motion, 0, exact, SLACK)
    np.testing.assert_allclose(found.misses, 300.0 * exact[None])
    weights = np.broadcast_to(found.slack_weights, FRAMES - 1)
    np.testing.assert_allclose(weights[: NODES[1]], 1e-3)
    assert (weights[NODES[1] :] > 1e-3).all()
    assert found.slack_std == SLACK


@pytest.fixture(scope="module")
def thrown() -> tuple[ImpactProblem, Motion]:
    """A prism that meets the ground several times, and its true motion."""
    throw = throws.random_throw(np.random.default_rng(301))
    count = 42
    whole = throw.poses
    first = whole.rows[:count], whole.states[:count], whole.covariance[:count], whole.basis[:count]
    poses = FramePoses(*first, whole.times_s, whole.clock_s[:count])
    parameters = throw.parameters.with_free(("mu", "restitution"))
    lengths = np.diff(whole.clock_s[:count])
    frames = _node_frames(throw.system, poses, lengths, 9.81)

    def prior(theta: Array) -> tuple[Array, Array]:
        return np.zeros_like(theta), np.zeros_like(theta)

    lower = factor_of(poses, np.ones(count))
    problem = ImpactProblem(throw.system, parameters, poses, lengths, lower, frames, prior, SLACK, _EXACT)
    return problem, Motion(throw.states[frames], parameters.free_vector(), np.zeros((count - 1, AXES)))


def as_it_is(problem: ImpactProblem, motion: Motion) -> End:
    """Return the end of a fit that does not descend: impacts are chaotic, and 1e-10 m would move an end by 13 nats."""
    return End(evidence_of(problem, motion), problem, motion, np.ones(len(problem.poses.rows)))


def missed(problem: ImpactProblem, motion: Motion, part: int) -> float:
    """Return by how many times `_EXACT` a part misses the next node, root mean square."""
    _, ends, _ = problem.rolled(motion)
    return float(np.sqrt(((problem.system.local(motion.nodes[1:], ends)[part] / _EXACT) ** 2).mean()))


def test_the_best_draws_join_the_next_node(thrown: tuple[ImpactProblem, Motion]) -> None:
    """The node before two impacts is 3 deg and 1 rad/s off; its part passes the poses and ends at the next node."""
    problem, true = thrown
    nodes, off = true.nodes.copy(), np.array([*[0.0] * 3, -0.02, 0.03, 0.04, *[0.0] * 3, 0.6, -0.5, 0.6])
    nodes[1] = problem.system.retract(nodes[1], off)
    wrong = replace(true, nodes=nodes)
    part = rejoining._Part(rejoining._cut(problem, wrong, 1, _EXACT, SLACK), wrong, 1)
    found = part.starts(_EXACT, np.random.default_rng(0))
    assert 1 <= len(found) <= 3
    assert missed(problem, wrong, 1) > 100.0
    assert missed(problem, found[0], 1) < 0.2 * missed(problem, wrong, 1)
    np.testing.assert_array_equal(np.delete(found[0].nodes, 1, axis=0), np.delete(nodes, 1, axis=0))


def test_a_part_that_departs_from_the_law_is_searched_without_slack(thrown: tuple[ImpactProblem, Motion]) -> None:
    problem, true = thrown
    slack, inside = true.slack.copy(), slice(problem.frames[1], problem.frames[2])
    slack[inside] = 0.3
    wrong = as_it_is(problem, replace(true, slack=slack))
    tried = list[Motion]()

    def descents(motions: list[Motion]) -> End:
        tried.extend(motions)
        return max((as_it_is(problem, motion) for motion in motions), key=lambda end: end.evidence)

    found = rejoined(wrong, _EXACT, SLACK, descents)
    assert found.evidence > wrong.evidence + 1000.0
    assert not tried[0].slack[inside].any()
    assert missed(problem, found.motion, 1) < 0.2 * missed(problem, wrong.motion, 1)


def test_a_motion_that_joins_is_not_searched(thrown: tuple[ImpactProblem, Motion]) -> None:
    end = as_it_is(*thrown)
    assert rejoined(end, _EXACT, SLACK, lambda _: pytest.fail("every part joins")) is end


def test_a_motion_that_cannot_be_simulated_has_no_other_start(problem: ImpactProblem, motion: Motion) -> None:
    broken = replace(motion, nodes=np.full_like(motion.nodes, np.nan))
    assert rejoining._Part(problem, broken, 0).starts(MISS, np.random.default_rng(0)) == []


def test_a_motion_of_one_part_joins_nothing(problem: ImpactProblem, motion: Motion) -> None:
    single = replace(problem, frames=NODES[:1])
    end = (1.0, single, replace(motion, nodes=motion.nodes[:1]), np.ones(len(problem.poses.rows)))
    assert rejoined(end, MISS, SLACK, lambda _: pytest.fail("nothing to search")) is end
