"""The least squares of a motion through an impact: residuals, slopes, priors and evidence beside slow sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.geometry import quat_from_rotvec
from vid2phys.io.primitives import load_body
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.impact_problem import (
    AXES,
    ImpactProblem,
    Motion,
    covariance_of,
    descended,
    evidence_of,
    factor_of,
    misfit_of,
    with_fixed,
)
from vid2phys.types import Array

FRAMES, DT_S, NODES = 10, 1.0 / 60.0, np.array([0, 6])
FREE = ("mu", "restitution", "ground_height", "gravity")
SYSTEM = ThrownBody(load_body(None, "ball:d=60mm"))  # a box meets other corners after small changes
PARAMETERS = SYSTEM.parameters().with_values({"mu": 0.1, "restitution": 0.5}).with_free(FREE)
SLACK_STD, MISS = 0.05, np.array([*[2e-3] * 3, *[0.01] * 3, *[0.05] * 3, *[0.3] * 3])
MEAN, PRECISION = np.array([np.log(0.12), 0.45, 0.002, 9.7]), np.array([4.0, 25.0, 1e4, 100.0])


def prior(theta: Array) -> tuple[Array, Array]:
    return np.sqrt(PRECISION) * (theta - MEAN), PRECISION


def start() -> Array:
    state = np.array([0.0, 0.0, 0.12, 1.0, 0.0, 0.0, 0.0, 2.0, 0.5, -1.5, 2.0, -4.0, 1.0])
    state[3:7] = quat_from_rotvec(np.array([0.5, 0.3, 0.2]))
    return state


@pytest.fixture(scope="module")
def problem() -> ImpactProblem:
    """Poses of all frames but one about a throw with an impact, with errors of one process beside their own."""
    lengths, rng = np.full(FRAMES - 1, DT_S), np.random.default_rng(0)
    slack = np.zeros((1, FRAMES - 1, AXES))
    states, contacts = SYSTEM.rollouts(start()[None], lengths[None], PARAMETERS.vector[None], slack)
    assert (contacts.impacts[0] > 0).any(), "it hits the ground"
    rows = np.setdiff1d(np.arange(FRAMES), [4])
    std = np.array([*[2e-3] * 3, *[0.01] * 3])
    off = np.zeros((len(rows), 12))
    off[:, :6] = std * rng.normal(size=(len(rows), 6))
    factor = np.diag(std) @ (np.eye(6) + 0.2 * np.tril(rng.normal(size=(6, 6))))
    poses = FramePoses(
        rows,
        SYSTEM.retract(states[0][rows], off),
        np.tile(factor @ factor.T, (len(rows), 1, 1)),
        0.5 * std[None, :, None] * rng.normal(size=(len(rows), 6, 1)),
        np.array([0.05]),
        rows * DT_S,
    )
    return ImpactProblem(
        SYSTEM, PARAMETERS, poses, lengths, factor_of(poses, np.ones(len(rows))), NODES, prior, SLACK_STD, MISS, 0.02
    )


@pytest.fixture(scope="module")
def motion(problem: ImpactProblem) -> Motion:
    """A motion that is a little wrong everywhere."""
    rng = np.random.default_rng(1)
    slack = np.zeros((1, 6, AXES))
    end = SYSTEM.rollouts(start()[None], problem.lengths_s[None, :6], PARAMETERS.vector[None], slack)[0][0, -1]
    nodes = SYSTEM.retract(np.stack([start(), end]), 0.1 * MISS * rng.normal(size=(2, 12)))
    theta = PARAMETERS.free_vector() + np.array([0.004, 0.002, 1e-3, 0.1])
    return Motion(nodes, theta, 2e-3 * rng.normal(size=(FRAMES - 1, AXES)))


def separate(problem: ImpactProblem, motion: Motion) -> tuple[Array, Array]:
    """States [F, 13] and the end before the second node, each node rolled by itself."""
    vector = PARAMETERS.with_values(
        dict(zip(FREE, [np.exp(motion.theta[0]), *motion.theta[1:].tolist()], strict=True))
    ).vector
    parts = []
    for node, (first, last) in zip(motion.nodes, ((0, 6), (6, 9)), strict=True):
        given = problem.lengths_s[first:last][None], vector[None], motion.slack[first:last][None]
        parts.append(SYSTEM.rollouts(node[None], *given)[0][0])
    return np.concatenate([parts[0][:-1], parts[1]]), parts[0][-1]


def test_parameters_are_in_solver_coordinates(problem: ImpactProblem) -> None:
    found = problem.vectors(np.array([[np.log(0.2), 0.7, 0.01, 9.0], [np.log(0.4), 0.6, 0.02, 9.5]]))
    names = PARAMETERS.names
    np.testing.assert_allclose(found[:, names.index("mu")], [0.2, 0.4])
    np.testing.assert_allclose(found[:, names.index("restitution")], [0.7, 0.6])
    np.testing.assert_allclose(found[:, names.index("gravity")], [9.0, 9.5])
    np.testing.assert_allclose(found[:, names.index("mass")], PARAMETERS["mass"].value)


def test_residuals_are_of_poses_and_of_the_missed_node(problem: ImpactProblem, motion: Motion) -> None:
    states, end = separate(problem, motion)
    rolled, ends, contacts = problem.rolled(motion)
    np.testing.assert_allclose(rolled, states, atol=1e-12)
    np.testing.assert_allclose(ends, end[None], atol=1e-12)
    assert contacts.impacts.shape == (1, FRAMES - 1)
    poses, missed = problem.residuals(motion)
    off = SYSTEM.local(problem.poses.states, states[problem.poses.rows])[:, :6].ravel()
    covariance = problem.poses.covariance_of_clip(np.ones(len(problem.poses.rows)))
    assert poses @ poses == pytest.approx(off @ np.linalg.solve(covariance, off))
    np.testing.assert_allclose(missed, SYSTEM.local(motion.nodes[1:], end[None])[0] / MISS)
    assert misfit_of(problem, motion) == pytest.approx(np.sqrt((poses @ poses) / len(poses)))
    known = (motion.slack**2).sum() / SLACK_STD**2 + (PRECISION * (motion.theta - MEAN) ** 2).sum()
    known += (motion.nodes[0, 10:13] ** 2).sum() / 60.0**2
    assert problem.cost(motion) == pytest.approx(0.5 * (poses @ poses + missed @ missed + known))


def test_the_last_segment_is_filled_with_no_time(problem: ImpactProblem, motion: Motion) -> None:
    sizes, lengths, slack = problem.segments(motion)
    np.testing.assert_array_equal(sizes, [6, 3])
    np.testing.assert_allclose(lengths, DT_S * np.array([[1.0] * 6, [1.0] * 3 + [0.0] * 3]))
    np.testing.assert_array_equal(slack[0], motion.slack[:6])
    np.testing.assert_array_equal(slack[1], np.concatenate([motion.slack[6:], np.zeros((3, 4))]))


def test_slack_acts_where_there_is_contact(problem: ImpactProblem, motion: Motion) -> None:
    contacts = problem.rolled(motion)[2]
    found = {tuple(each) for each in problem.active(contacts).tolist()}
    impacts, slides = np.flatnonzero(contacts.impacts[0]), np.flatnonzero(contacts.sliding_s[0])
    assert len(impacts)
    assert found == {(k, a) for k in impacts for a in range(3)} | {(k, 3) for k in slides}
    nothing = replace(contacts, impacts=0.0 * contacts.impacts, sliding_s=np.eye(1, FRAMES - 1, 2))
    assert problem.active(nothing).tolist() == [[2, 3]]


def test_impacts_that_depart_by_much_count_less(problem: ImpactProblem, motion: Motion) -> None:
    hit = np.flatnonzero(problem.rolled(motion)[2].impacts[0])
    slack = np.zeros_like(motion.slack)
    slack[hit[0], :3] = 10.0 * SLACK_STD
    moved = replace(motion, slack=slack)
    found = problem.forgiving(moved)
    used = int((problem.active(problem.rolled(moved)[2])[:, 0] == hit[0]).sum())
    expected = np.ones(FRAMES - 1)
    expected[hit[0]] = 6.0 / (5.0 + 300.0 / used)
    np.testing.assert_allclose(found.slack_weights, expected)
    np.testing.assert_allclose(found.slack_stds, SLACK_STD / np.sqrt(expected))
    assert found.cost(moved) - problem.cost(moved) == pytest.approx(0.5 * (expected[hit[0]] - 1.0) * 300.0)


def test_weights_of_the_slack_are_in_the_linear_model(problem: ImpactProblem, motion: Motion) -> None:
    weights = np.linspace(0.2, 1.0, FRAMES - 1)
    weighted = replace(problem, slack_weights=weights)
    _, normal, active, _, _ = problem.equations(motion)
    cost, other, _, _, _ = weighted.equations(motion)
    assert cost == pytest.approx(weighted.cost(motion))
    more = np.append(np.zeros(28), (weights[active[:, 0]] - 1.0) / SLACK_STD**2)
    np.testing.assert_allclose(other.information, normal.information + np.diag(more))
    pull = more[28:] * motion.slack[tuple(active.T)]
    np.testing.assert_allclose(other.gradient, normal.gradient + np.append(np.zeros(28), pull))
    bent = [np.linalg.slogdet(each.information + 0.01 * np.eye(len(pull) + 28))[1] for each in (other, normal)]
    gained = problem.cost(motion) - cost + 0.5 * np.log(weights[active[:, 0]]).sum() - 0.5 * (bent[0] - bent[1])
    assert evidence_of(weighted, motion) == pytest.approx(evidence_of(problem, motion) + gained)


def test_the_linear_model_is_that_of_differences(problem: ImpactProblem, motion: Motion) -> None:
    """Each unknown is moved by itself, and whole rollouts are compared."""
    cost, normal, active, states, slopes = problem.equations(motion)
    assert cost == pytest.approx(problem.cost(motion))
    count = 24 + len(FREE) + len(active)
    assert normal.gradient.shape == (count,)
    of_state = [*[2e-6] * 3, *[2e-5] * 3, *[2e-4] * 3, *[2e-3] * 3]
    small = np.array([*of_state, *of_state, 2e-4, 2e-4, 2e-6, 2e-4, *[2e-4] * len(active)])
    rows, gradient, by_states = [], [], []
    for k in range(count):
        ahead, back = (problem.moved(motion, s * small[k] * np.eye(count)[k], active) for s in (1.0, -1.0))
        difference = [a - b for a, b in zip(problem.residuals(ahead), problem.residuals(back), strict=True)]
        rows.append(np.concatenate(difference) / (2.0 * small[k]))
        gradient.append((problem.cost(ahead) - problem.cost(back)) / (2.0 * small[k]))
        rolled = SYSTEM.local(problem.rolled(back)[0], problem.rolled(ahead)[0]) / (2.0 * small[k])
        by_states.append(rolled)
    np.testing.assert_allclose(normal.gradient, gradient, rtol=0.02, atol=5e-3 * np.abs(gradient).max())
    jacobian = np.stack(rows, axis=1)
    known = np.zeros(count)
    known[9:12], known[24:28], known[28:] = 60.0**-2, PRECISION, SLACK_STD**-2
    expected = jacobian.T @ jacobian + np.diag(known)
    scale = np.sqrt(np.diag(expected))
    whole = np.outer(scale, scale)
    np.testing.assert_allclose(normal.information / whole, expected / whole, atol=0.03)
    np.testing.assert_allclose(np.diag(normal.information), np.diag(expected), rtol=0.03)
    own = np.moveaxis(np.stack(by_states), 0, 2)
    size = np.abs(own).max(axis=(0, 1))
    np.testing.assert_allclose(slopes / size, own / size, atol=0.03)
    np.testing.assert_allclose(states, separate(problem, motion)[0], atol=1e-12)


def test_parameters_stay_within_their_bounds(problem: ImpactProblem, motion: Motion) -> None:
    step = np.zeros(24 + 4)
    step[25], step[24] = 5.0, -30.0
    found = problem.moved(motion, step, np.zeros((0, 2), np.int64))
    np.testing.assert_allclose(found.theta, [np.log(1e-3), 1.0, *motion.theta[2:]])
    np.testing.assert_array_equal(found.slack, motion.slack)


def test_the_evidence_is_laplaces(problem: ImpactProblem, motion: Motion) -> None:
    cost, normal, active, _, _ = problem.equations(motion)
    covariance = problem.poses.covariance_of_clip(np.ones(len(problem.poses.rows)))
    expected = -cost - 0.5 * np.linalg.slogdet(covariance)[1] - np.log(MISS).sum() - len(active) * np.log(SLACK_STD)
    expected -= 0.5 * np.linalg.slogdet(normal.information + 0.01 * np.eye(len(normal.gradient)))[1]
    assert evidence_of(problem, motion) == pytest.approx(expected)
    spoilt = replace(motion, nodes=np.where(np.arange(13) == 8, np.nan, motion.nodes))
    assert evidence_of(problem, spoilt) == -np.inf
    assert problem.cost(spoilt) == np.inf
    regular = normal.information + 0.01 * np.eye(len(normal.gradient))
    np.testing.assert_allclose(covariance_of(normal) @ regular, np.eye(len(regular)), atol=1e-5)


def test_fixed_parameters_are_no_unknowns(problem: ImpactProblem, motion: Motion) -> None:
    values = {"restitution": float(motion.theta[1]), "mu": np.log(0.2)}
    fixed, moved = with_fixed(problem, motion, values)
    assert fixed.parameters.free_names == ("ground_height", "gravity")
    np.testing.assert_array_equal(moved.theta, motion.theta[2:])
    assert fixed.parameters["mu"].value == pytest.approx(0.2)
    assert fixed.parameters["restitution"].value == pytest.approx(motion.theta[1])
    residuals, precision = fixed.prior(moved.theta)
    np.testing.assert_allclose(residuals, prior(motion.theta)[0][2:])
    np.testing.assert_array_equal(precision, PRECISION[2:])
    whole = replace(motion, theta=np.array([np.log(0.2), *motion.theta[1:]]))
    given = prior(whole.theta)[0][:2]
    assert fixed.cost(moved) + 0.5 * given @ given == pytest.approx(problem.cost(whole))


def test_a_descent_ends_at_the_poses_of_the_clip(problem: ImpactProblem, motion: Motion) -> None:
    wrong = replace(motion, theta=motion.theta + np.array([0.2, 0.1, 0.0, 0.1]))
    found = descended(problem, wrong)
    assert found.cost < 0.3 * problem.cost(wrong)
    assert 0.5 < misfit_of(problem, found.point) < 1.3
    assert found.point.theta[1] == pytest.approx(0.5, abs=0.15)
    spoilt = replace(motion, nodes=np.where(np.arange(13) == 8, np.nan, motion.nodes))
    assert descended(problem, spoilt).cost == np.inf
