"""The quadrotor's motion against what is known without our code: closed forms, conserved quantities, SciPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from vid2phys.engine import systems
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.errors import UsageError
from vid2phys.types import Array

INERTIA = np.array([1.6e-5, 2.4e-5, 2.9e-5])


def parameters(system: Quadrotor, **values: float) -> Array:
    defaults = {"inertia_xx": INERTIA[0], "inertia_yy": INERTIA[1], "inertia_zz": INERTIA[2]}
    return system.parameters().with_values({**defaults, **values}).vector


def at_rest(**parts: object) -> Array:
    state = np.zeros(13)
    state[3] = 1.0
    for name, value in parts.items():
        state[{"p": slice(0, 3), "q": slice(3, 7), "v": slice(7, 10), "w": slice(10, 13)}[name]] = value
    return state


@pytest.fixture
def quadrotor() -> Quadrotor:
    return Quadrotor()


def test_free_fall(quadrotor: Quadrotor) -> None:
    start = at_rest(p=[1.0, 2.0, 3.0], v=[0.5, -1.0, 2.0])
    end = simulate(quadrotor, start[None], np.zeros((1, 10, 10)), parameters(quadrotor, gravity=9.7), 0.05)[0, -1]
    np.testing.assert_allclose(end[:3], [1.25, 1.5, 3.0 + 1.0 - 9.7 / 8], atol=1e-12)
    np.testing.assert_allclose(end[7:10], [0.5, -1.0, 2.0 - 9.7 / 2], atol=1e-12)
    np.testing.assert_array_equal(end[3:7], [1, 0, 0, 0])


def test_linear_drag_decays_exponentially(quadrotor: Quadrotor) -> None:
    start, values = at_rest(v=[3.0, -2.0, 0.0]), parameters(quadrotor, mass=0.05, drag=0.04, gravity=9.81)
    end = simulate(quadrotor, start[None], np.zeros((1, 20, 10)), values, 0.05, substeps=4)[0, -1]
    decay, terminal = np.exp(-0.04 / 0.05), -0.05 * 9.81 / 0.04
    np.testing.assert_allclose(end[7:10], [3 * decay, -2 * decay, terminal * (1 - decay)], rtol=1e-8)
    np.testing.assert_allclose(end[:2], np.array([3.0, -2.0]) * (1 - decay) * 0.05 / 0.04, rtol=1e-8)


def energy_and_momentum(states: Array) -> tuple[Array, Array]:
    momentum_body = INERTIA * states[:, 10:]
    turn = Rotation.from_quat(np.roll(states[:, 3:7], -1, axis=1))
    return 0.5 * (states[:, 10:] * momentum_body).sum(axis=1), turn.apply(momentum_body)


def test_torque_free_tumbling_conserves_energy_and_angular_momentum(quadrotor: Quadrotor) -> None:
    start = at_rest(q=np.array([0.5, -0.5, 0.1, 0.7]) / np.linalg.norm([0.5, -0.5, 0.1, 0.7]), w=[0.3, 9.0, -0.4])
    drift = []
    for substeps in (2, 4, 8):
        states = simulate(
            quadrotor, start[None], np.zeros((1, 60, 10)), parameters(quadrotor), 0.05, substeps=substeps
        )[0]
        energy, momentum = energy_and_momentum(states)
        drift.append([np.ptp(energy) / energy[0], np.abs(momentum - momentum[0]).max() / np.linalg.norm(momentum[0])])
    assert np.abs(states[:, 11]).min() < 2.0 < 8.0 < np.abs(states[:, 11]).max()  # it tumbles over its middle axis
    assert max(drift[-1]) < 1e-6
    # halving the step divides a fourth-order error by 16 (and RK4's energy error by 32)
    assert all(a / b > 13.0 for coarse, fine in pairwise(drift) for a, b in zip(coarse, fine, strict=True))


def reference_derivative(
    state: Array, thrust: float, torque: Array, force: Array, mass: float, drag: float, g: float
) -> Array:
    """Newton-Euler written with SciPy's rotations and NumPy, nothing of ours."""
    w = state[10:]
    turn = Rotation.from_quat(np.roll(state[3:7], -1)).as_matrix()
    q, (x, y, z) = state[3:7], w
    rates = np.array([[0, -x, -y, -z], [x, 0, z, -y], [y, -z, 0, x], [z, y, -x, 0]]) @ q / 2
    acceleration = (turn[:, 2] * thrust + force - drag * state[7:10]) / mass - np.array([0, 0, g])
    return np.concatenate([state[7:10], rates, acceleration, (torque - np.cross(w, INERTIA * w)) / INERTIA])


def test_full_rollout_agrees_with_scipy() -> None:
    quadrotor, steps, dt = Quadrotor(input="rotors"), 12, 1 / 30
    rng = np.random.default_rng(0)
    values = parameters(quadrotor, mass=0.041, drag=0.03, thrust_scale=1.1, arm_length=0.043, gravity=9.79)
    controls = np.zeros((steps, 10))
    controls[:, :4] = 0.092 + 0.02 * rng.normal(size=(steps, 4))
    controls[:, 4:7], controls[:, 7:] = 0.05 * rng.normal(size=(steps, 3)), 2e-5 * rng.normal(size=(steps, 3))
    start = quadrotor.sample_state(rng, 1)[0]
    state, expected = start.copy(), [start]
    lever, ratio = 1.1 * 0.043 / np.sqrt(2), 1.1 * 0.005964
    for u in controls:
        a, b, c, d = u[:4]
        torque = np.array([lever * (c + d - a - b), lever * (b + c - a - d), ratio * (b + d - a - c)]) + u[7:]
        args = (1.1 * u[:4].sum(), torque, u[4:7], 0.041, 0.03, 9.79)
        solution = solve_ivp(
            lambda _, s, args=args: reference_derivative(s, *args),
            (0, dt),
            state,
            rtol=1e-10,
            atol=1e-12,
            method="DOP853",
        )
        state = solution.y[:, -1]
        expected.append(state)
    ours = simulate(quadrotor, start[None], controls[None], values, dt, substeps=32)[0]
    assert np.linalg.norm(ours[-1, 10:]) > 3.0
    np.testing.assert_allclose(quadrotor.local(np.array(expected), ours), 0.0, atol=2e-9)


def test_order_of_the_integrators() -> None:
    quadrotor = Quadrotor()
    values = parameters(quadrotor, drag=0.01)
    start, controls = at_rest(v=[1.0, 0.5, 0.0], w=[2.0, -3.0, 4.0]), np.zeros((1, 8, 10))
    controls[..., :4] = [0.3, 4e-5, -3e-5, 2e-5]
    truth = simulate(quadrotor, start[None], controls, values, 0.05, substeps=256)[0, -1]
    for integrator, order in (("rk4", 4), ("semi_implicit_euler", 1)):
        errors = [
            np.linalg.norm(
                quadrotor.local(
                    truth,
                    simulate(quadrotor, start[None], controls, values, 0.05, substeps=n, integrator=integrator)[0, -1],
                )
            )
            for n in (4, 8, 16)
        ]
        measured = np.log2(np.array(errors[:-1]) / errors[1:])
        np.testing.assert_allclose(measured, order, atol=0.25)


@pytest.mark.parametrize(("rotor", "signs"), [(0, (-1, -1, -1)), (1, (-1, 1, 1)), (2, (1, 1, -1)), (3, (1, -1, 1))])
def test_each_rotor_pushes_where_it_sits(rotor: int, signs: tuple[int, int, int]) -> None:
    """Torque = r x F by hand: front right, back right, back left, front left; 0 and 2 turn counter-clockwise."""
    quadrotor = Quadrotor(input="rotors")
    values = parameters(quadrotor, mass=0.03, gravity=0.0, arm_length=0.05, torque_ratio=0.006, thrust_scale=1.2)
    controls, dt = np.zeros((1, 1, 10)), 1e-6
    controls[0, 0, rotor] = 0.1
    end = simulate(quadrotor, at_rest()[None], controls, values, dt)[0, 1]
    lever = 0.05 / np.sqrt(2.0)
    position = np.array([[lever, -lever], [-lever, -lever], [-lever, lever], [lever, lever]])[rotor]
    by_hand = 0.12 * np.array([position[1], -position[0], signs[2] * 0.006])
    assert tuple(np.sign(by_hand)) == signs
    np.testing.assert_allclose(end[10:] / dt * INERTIA, by_hand, rtol=1e-6)
    np.testing.assert_allclose(end[7:10] / dt, [0.0, 0.0, 0.12 / 0.03], atol=1e-6)
    np.testing.assert_allclose(quadrotor.allocation(values)[:, rotor], [0.12, *by_hand] / np.array(0.1))


@pytest.mark.parametrize("kind", ["wrench", "rotors"])
def test_hovering_hovers(kind: str) -> None:
    quadrotor = Quadrotor(input=kind)
    values = parameters(quadrotor, thrust_scale=0.8)
    controls = np.tile(quadrotor.hover_controls(values), (1, 30, 1))
    np.testing.assert_allclose(
        simulate(quadrotor, at_rest()[None], controls, values, 0.05)[0, -1], at_rest(), atol=1e-12
    )


def test_positive_pitch_torque_flies_forward() -> None:
    """An asymmetric example of the conventions: nose down is a positive turn about y (left) and tilts thrust to +x."""
    quadrotor = Quadrotor()
    values = parameters(quadrotor)
    controls = np.tile(quadrotor.hover_controls(values), (1, 10, 1))
    controls[..., 2] = 1e-5
    state = simulate(quadrotor, at_rest()[None], controls, values, 0.03)[0, -1]
    assert state[7] > 0.01
    nose = quadrotor.keypoints(state, np.array([[1.0, 0.0, 0.0]]))[0] - state[:3]
    assert nose[2] < -0.01


def test_body_torque_acts_in_the_body_and_disturbance_force_in_the_world() -> None:
    quadrotor = Quadrotor()
    on_its_side = at_rest(q=[np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0])  # a quarter turn about x: body z points to -y
    controls = np.zeros((1, 1, 10))
    controls[..., 0], controls[..., 4:7], controls[..., 9] = 0.1, [0.01, 0.0, 0.0], 1e-5
    end = simulate(quadrotor, on_its_side[None], controls, parameters(quadrotor, gravity=0.0, mass=0.05), 1e-5)[0, 1]
    np.testing.assert_allclose(end[7:10] / 1e-5, [0.2, -2.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(end[10:] / 1e-5, [0.0, 0.0, 1e-5 / INERTIA[2]], rtol=1e-6, atol=1e-6)


def test_sampled_states_for_training(quadrotor: Quadrotor) -> None:
    states = quadrotor.sample_state(np.random.default_rng(0), 4000)
    axis = Rotation.from_quat(np.roll(states[:, 3:7], -1, axis=1)).apply([0.0, 0.0, 1.0])
    tilt = np.rad2deg(np.arccos(np.clip(axis[:, 2], -1, 1)))
    assert tilt.max() < 61.0
    assert 0.75 < (tilt < 30.0).mean() < 0.95
    nose = Rotation.from_quat(np.roll(states[:, 3:7], -1, axis=1)).apply([1.0, 0.0, 0.0])
    counts = np.histogram(np.arctan2(nose[:, 1], nose[:, 0]), bins=8, range=(-np.pi, np.pi))[0]
    assert counts.min() > 400
    np.testing.assert_array_equal(states, quadrotor.sample_state(np.random.default_rng(0), 4000))


def test_unknown_names_are_listed(quadrotor: Quadrotor) -> None:
    with pytest.raises(UsageError, match=r"unknown system 'plane'; expected one of .*quadrotor"):
        systems.get("plane")
    with pytest.raises(UsageError, match="unknown integrator 'euler'; expected one of rk4, semi_implicit_euler"):
        simulate(quadrotor, at_rest()[None], np.zeros((1, 1, 10)), parameters(quadrotor), 0.1, integrator="euler")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="0 substeps an interval; expected 1 or more"):
        simulate(quadrotor, at_rest()[None], np.zeros((1, 1, 10)), parameters(quadrotor), 0.1, substeps=0)
    with pytest.raises(ValueError, match=r"controls have shape \(2, 1, 10\); expected \[1, S, 10\]"):
        simulate(quadrotor, at_rest()[None], np.zeros((2, 1, 10)), parameters(quadrotor), 0.1)
    with pytest.raises(UsageError, match="quadrotor input 'motors'; expected wrench or rotors"):
        Quadrotor(input="motors")  # type: ignore[arg-type]
