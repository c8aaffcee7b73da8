"""Impacts of a thrown body against closed forms, and fits of its poses against what was simulated."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.throws import Throw, fitted, measured
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.geometry import matrix_from_quat, quat_from_rotvec
from vid2phys.io.primitives import load_body
from vid2phys.solvers import impacts
from vid2phys.solvers.impact_problem import covariance_of, inverse
from vid2phys.solvers.least_squares import NormalEquations
from vid2phys.types import Array

DT_S = 1.0 / 60.0


def body(text: str) -> ThrownBody:
    return ThrownBody(load_body(None, text))


def vector(system: ThrownBody, **values: float) -> Array:
    moments = dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), system.shape.inertia_per_mass, strict=True))
    return system.parameters().with_values({"mass": 1.0, **moments, **values}).vector


def rolled(system: ThrownBody, start: Array, frames: int, **values: float) -> Array:
    lengths = np.full((1, frames - 1), DT_S)
    given = vector(system, **values)[None], np.zeros((1, frames - 1, 4))
    return np.asarray(system.rollouts(start[None], lengths, *given)[0][0])


def state(position: tuple[float, ...], velocity: tuple[float, ...], rate: tuple[float, ...] = (0.0, 0.0, 0.0)) -> Array:
    return np.array([*position, 1.0, 0.0, 0.0, 0.0, *velocity, *rate])


def test_a_ball_rebounds_with_the_restitution() -> None:
    ball = body("ball:d=60mm")
    states = rolled(ball, state((0.0, 0.0, 0.53), (0.0, 0.0, 0.0)), 60, restitution=0.8, mu=0.3, gravity=9.81)
    fall_s = np.sqrt(2.0 * 0.5 / 9.81)
    top = np.interp(fall_s * (1.0 + 0.8), DT_S * np.arange(60), states[:, 2]) - 0.03
    assert top == pytest.approx(0.8**2 * 0.5, rel=2e-3)


@pytest.mark.parametrize(("mu", "share"), [(0.3, 0.3), (0.0, 0.0), (2.0, 1.0)])
def test_an_impact_departs_by_a_share_of_its_normal_impulse_and_of_what_friction_can_give(
    mu: float, share: float
) -> None:
    """Without friction nothing acts along the plane; the share of a steep friction is that of the normal impulse."""
    ball, slack = body("ball:d=60mm"), np.array([0.02, 0.05, 0.0, 0.0])
    start = state((0.0, 0.0, 0.04), (0.0, 0.0, -1.0))
    ends = [
        ball.rollouts(start[None], np.full((1, 1), DT_S), vector(ball, mu=mu, restitution=0.6)[None], each[None, None])
        for each in (np.zeros(4), slack)
    ]
    gained = ends[1][0][0, -1, 7:10] - ends[0][0][0, -1, 7:10]
    fastest = np.sqrt(1.0 + 2.0 * 9.81 * 0.01)
    impulse = (1.0 + 0.6) * fastest  # of 1 kg
    assert gained[2] == pytest.approx(0.02 * impulse, rel=1e-3)
    assert np.hypot(*gained[:2]) == pytest.approx(0.05 * share * impulse, rel=1e-3, abs=1e-9)


def test_a_box_slides_as_far_as_its_friction_lets_it() -> None:
    box = body("box:120x80x50mm")
    states = rolled(box, state((0.0, 0.0, 0.025), (1.2, 0.0, 0.0)), 60, mu=0.25, restitution=0.3, gravity=9.81)
    assert states[-1, 0] == pytest.approx(1.2**2 / (2.0 * 0.25 * 9.81), rel=2e-3)
    assert states[-1, 2] == pytest.approx(0.025, abs=1e-5)


def test_a_ball_that_slides_ends_in_rolling_at_five_sevenths_of_its_speed() -> None:
    ball = body("ball:d=60mm")
    states = rolled(ball, state((0.0, 0.0, 0.03), (1.0, 0.0, 0.0)), 60, mu=0.2, restitution=0.0, gravity=9.81)
    assert states[-1, 7] == pytest.approx(5.0 / 7.0, rel=1e-3)
    assert states[-1, 11] == pytest.approx(states[-1, 7] / 0.03, rel=1e-3)


def test_a_box_that_tumbles_keeps_its_angular_momentum_and_energy() -> None:
    box = body("box:120x80x50mm")
    inertia = np.asarray(box.shape.inertia_per_mass)
    start = state((0.0, 0.0, 1.0), (0.0, 0.0, 0.0), (3.0, -5.0, 2.0))
    start[3:7] = quat_from_rotvec(np.array([0.4, -0.3, 0.8]))
    states = rolled(box, start, 40, gravity=0.0)
    rate = states[:, 10:13]  # in the body's axes
    momentum = np.einsum("tij,tj->ti", matrix_from_quat(states[:, 3:7]), inertia * rate)
    np.testing.assert_allclose(momentum, np.tile(momentum[0], (40, 1)), atol=2e-3 * np.linalg.norm(momentum[0]))
    np.testing.assert_allclose((inertia * rate**2).sum(axis=1), (inertia * rate[0] ** 2).sum(), rtol=2e-3)
    assert np.ptp(rate, axis=0).min() > 1.0  # it does tumble


@pytest.mark.parametrize("angle", [0.0, 0.4, 2.2, -1.1])
def test_an_oblique_impact_changes_the_velocity_by_friction_times_the_normal_impulse(angle: float) -> None:
    ball, way = body("ball:d=60mm"), np.array([np.cos(angle), np.sin(angle)])
    start = state((0.0, 0.0, 0.031), (*(2.0 * way), -1.0))
    states = rolled(ball, start, 2, mu=0.1, restitution=0.5, gravity=0.0)
    assert states[-1, 9] == pytest.approx(0.5, rel=1e-6)
    assert states[-1, 7:9] == pytest.approx((2.0 - 0.1 * 1.5) * way, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("angle", [0.0, 0.4, 2.2, -1.1])
def test_an_impact_that_grips_leaves_a_ball_rolling(angle: float) -> None:
    """Friction of 0.9 stops the point that touches: by angular momentum about it, five sevenths of the speed stay."""
    ball, way = body("ball:d=60mm"), np.array([np.cos(angle), np.sin(angle)])
    start = state((0.0, 0.0, 0.031), (*(0.7 * way), -1.0))
    states = rolled(ball, start, 2, mu=0.9, restitution=0.5, gravity=0.0)
    assert states[-1, 7:9] == pytest.approx(5.0 / 7.0 * 0.7 * way, rel=1e-4, abs=1e-6)
    assert states[-1, 10:13] == pytest.approx(5.0 / 7.0 * 0.7 / 0.03 * np.array([-way[1], way[0], 0.0]), abs=1e-3)


def test_a_body_whose_origin_is_off_its_centre_of_mass_flies_about_this() -> None:
    mesh = load_body(None, "box:120x80x50mm")
    aside = ThrownBody(type(mesh)(mesh.vertices + np.array([0.03, 0.0, 0.0]), mesh.faces, mesh.part))
    at = state((0.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 3.0))
    states = rolled(aside, at, 10, gravity=0.0)
    centre = states[:, :3] + 0.03 * np.stack(
        [
            np.cos(2 * np.arctan2(states[:, 6], states[:, 3])),
            np.sin(2 * np.arctan2(states[:, 6], states[:, 3])),
            0 * states[:, 0],
        ],
        1,
    )
    velocity = np.array([0.0, 3.0 * 0.03, 0.0])
    assert centre == pytest.approx(centre[0] + np.outer(DT_S * np.arange(10), velocity), abs=1e-9)


def test_what_the_clip_does_not_show_is_known_as_little_as_without_it() -> None:
    shown, hidden = np.array([2.0, 1.0]) / np.sqrt(5.0), np.array([-1.0, 2.0]) / np.sqrt(5.0)
    covariance = covariance_of(NormalEquations(np.zeros(2), 5.0 * np.outer(shown, shown)))
    assert shown @ covariance @ shown == pytest.approx(1.0 / 5.01)
    assert hidden @ covariance @ hidden == pytest.approx(1.0 / 0.01)


def test_a_direction_without_information_has_a_large_and_finite_variance() -> None:
    found = inverse(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    hidden, shown = np.sqrt(0.5) * np.array([1.0, 1.0]), np.sqrt(0.5) * np.array([1.0, -1.0])
    assert hidden @ found @ hidden == pytest.approx(1.0 / (1e-13 * 2.0), rel=1e-3)
    assert shown @ found @ shown == pytest.approx(0.5, rel=0.05)  # what is left of 1e12 by rounding


@pytest.mark.parametrize(("most", "is_open"), [(0.5, True), (0.3, False)])
def test_friction_is_open_where_twice_as_much_explains_the_clip(
    monkeypatch: pytest.MonkeyPatch, most: float, is_open: bool
) -> None:
    """The clip is explained by friction from 0.15 to `most`; the fit ends at 0.2."""
    monkeypatch.setattr(impacts, "with_fixed", lambda whole, motion, values: (np.exp(values["mu"]), motion))
    monkeypatch.setattr(impacts, "descended", lambda mu, _: SimpleNamespace(cost=0.0 if 0.15 < mu < most else 100.0))
    whole = SimpleNamespace(parameters=SimpleNamespace(free_names=("restitution", "mu")))
    minimum = SimpleNamespace(point=SimpleNamespace(theta=np.log([0.9, 0.2])), cost=0.0)
    assert impacts._is_open(whole, minimum) == is_open  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_throw_gives_friction_and_restitution_inside_their_intervals() -> None:
    box = body("box:120x80x50mm")
    parameters = box.parameters().with_values({"mass": 1.0, "mu": 0.3, "restitution": 0.45})
    moments = dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), box.shape.inertia_per_mass, strict=True))
    parameters = parameters.with_values(moments)
    start = state((0.0, 0.0, 0.25), (0.7, 0.2, 0.3), (2.0, -4.0, 1.0))
    start[3:7] = quat_from_rotvec(np.array([0.4, -0.3, 0.8]))
    states = rolled(box, start, 50, mu=0.3, restitution=0.45)
    fit = fitted(Throw(box, parameters, states, measured(box, states, np.random.default_rng(4))))
    for name, true in (("mu", 0.3), ("restitution", 0.45)):
        found = fit.parameters[name]
        half = 1.96 * np.sqrt(fit.covariance[(j := fit.parameters.free_names.index(name)), j])
        assert abs(found.to_free(found.value) - found.to_free(true)) < 1.3 * half
        assert half < 0.4
    assert np.linalg.norm(fit.states[:, :3] - states[:, :3], axis=1).max() < 0.01
