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
from vid2phys.solvers.impact_problem import ImpactProblem, Motion, factor_of
from vid2phys.solvers.impact_rejoining import End, rejoined
from vid2phys.solvers.impacts import _EXACT, _node_frames, _tightened
from vid2phys.types import Array

SLACK, LEVELS = 0.03, ((10.0, 0.03), (3.0, 0.03), (1.0, 0.03))


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
    poses = FramePoses(
        whole.rows[:count],
        *(whole.states[:count], whole.covariance[:count], whole.basis[:count]),
        *(whole.times_s, whole.clock_s[:count]),
    )
    parameters = throw.parameters.with_free(("mu", "restitution"))
    lengths = np.diff(whole.clock_s[:count])
    frames = _node_frames(throw.system, poses, lengths, 9.81)

    def prior(theta: Array) -> tuple[Array, Array]:
        return np.zeros_like(theta), np.zeros_like(theta)

    lower = factor_of(poses, np.ones(count))
    problem = ImpactProblem(throw.system, parameters, poses, lengths, lower, frames, prior, SLACK, _EXACT)
    return problem, Motion(throw.states[frames], parameters.free_vector(), np.zeros((count - 1, AXES)))


def test_a_part_with_other_impacts_finds_the_right_ones(thrown: tuple[ImpactProblem, Motion]) -> None:
    """The node before two impacts begins 13 deg and 3 rad/s off; a descent alone stays at the wrong corner."""
    problem, true = thrown
    weights = np.ones(len(problem.poses.rows))

    def tightened(motion: Motion) -> End:
        return _tightened(problem, motion, weights, _EXACT, LEVELS)

    nodes, off = true.nodes.copy(), np.array([*[0.0] * 3, -0.02, 0.2, -0.1, *[0.0] * 3, 1.05, 2.71, 0.28])
    nodes[1] = problem.system.retract(nodes[1], off)
    best, stuck = tightened(true), tightened(replace(true, nodes=nodes))
    assert stuck[0] < best[0] - 30.0
    found = rejoined(stuck, _EXACT, SLACK, tightened)
    assert found[0] > best[0] - 5.0
    assert found[2].theta[1] == pytest.approx(true.theta[1], abs=0.02), "restitution; nothing slides for long"
    assert rejoined(best, _EXACT, SLACK, tightened) is best


def test_a_motion_that_cannot_be_simulated_has_no_other_start(problem: ImpactProblem, motion: Motion) -> None:
    broken = replace(motion, nodes=np.full_like(motion.nodes, np.nan))
    assert rejoining._Part(problem, broken, 0).starts(MISS, np.random.default_rng(0)) == []


def test_a_motion_of_one_part_joins_nothing(problem: ImpactProblem, motion: Motion) -> None:
    single = replace(problem, frames=NODES[:1])
    end = (1.0, single, replace(motion, nodes=motion.nodes[:1]), np.ones(len(problem.poses.rows)))
    assert rejoined(end, MISS, SLACK, lambda _: pytest.fail("nothing to search")) is end
