"""The pendulums against what is known without our code: closed forms, energy, SciPy, and a recorded swing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.io import loadmat
from scipy.optimize import least_squares
from scipy.special import ellipk

from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.engine.systems.double_pendulum import DoublePendulum
from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.errors import UsageError
from vid2phys.types import Array

RECORDED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "pendulums"
needs_recording = pytest.mark.skipif(not RECORDED.is_dir(), reason="../shared/data/pendulums is not there")
STRIDE = 40  # of the recorded samples
DOUBLE = {"length_1": 0.7, "length_2": 0.4, "mass_1": 0.9, "mass_2": 0.5, "gravity": 9.79}
FRICTION = {"damping": 0.02, "friction": 0.05, "air_drag": 0.03}
GRADSIM_START = [3 * np.pi / 7, 3 * np.pi / 4, 0.0, 0.0]


def values_of(system: System, **values: float) -> Array:
    return system.parameters().with_values(values).vector


def swing(system: System, start: Array, values: Array, dt_s: float, steps: int, **options: object) -> Array:
    controls = np.zeros((1, steps, len(system.control_names)))
    return simulate(system, np.asarray(start)[None], controls, values, dt_s, **options)[0]


def integrated(derivative: Callable[[Array, Array], Array], start: Array, controls: Array, dt_s: float) -> Array:
    """States at the ends of all intervals by SciPy, controls held over each."""
    states = [np.asarray(start, dtype=float)]
    for control in controls:
        solution = solve_ivp(
            lambda _, s, u=control: derivative(s, u), (0, dt_s), states[-1], method="DOP853", rtol=1e-11, atol=1e-12
        )
        states.append(solution.y[:, -1])
    return np.array(states)


def pendulum_derivative(state: Array, torque: Array) -> Array:
    """By hand for l = 0.6, m = 0.5, J = 0.03, g = 9.8 and FRICTION: torques about +y over the pivot's inertia."""
    angle, rate = state
    friction = 0.02 * rate + 0.05 * np.tanh(rate / 0.05) + 0.03 * rate * abs(rate)
    weight = np.cross([-0.6 * np.sin(angle), 0.0, -0.6 * np.cos(angle)], [0.0, 0.0, -0.5 * 9.8])[1]
    return np.array([rate, (weight + torque.sum() - friction) / (0.5 * 0.36 + 0.03)])


def double_derivative(state: Array, torques: Array, damping: Array) -> Array:
    """Lagrange by the masses' Jacobians: M q'' = Q, M = sum m J^T J, Q = sum J^T (m g - m J' q') + A^T t."""
    lengths = np.array([DOUBLE["length_1"], DOUBLE["length_2"]])
    angles, rates = state[:2], state[2:]
    along = np.stack([-np.sin(angles), -np.cos(angles)]) * lengths  # rods as vectors (x, z)
    turning = np.stack([-np.cos(angles), np.sin(angles)]) * lengths  # d along / d angle
    relative = np.array([[1.0, 0.0], [-1.0, 1.0]])  # joint angles from the rods' angles
    inertia, force = np.zeros((2, 2)), relative.T @ (torques - damping * (relative @ rates))
    for mass, rods in ((DOUBLE["mass_1"], [1, 0]), (DOUBLE["mass_2"], [1, 1])):
        jacobian = turning * rods
        inertia += mass * jacobian.T @ jacobian
        centripetal = -(along * rods) @ rates**2
        force += jacobian.T @ (mass * np.array([0.0, -DOUBLE["gravity"]]) - mass * centripetal)
    return np.concatenate([rates, np.linalg.solve(inertia, force)])


def test_pendulum_agrees_with_scipy() -> None:
    pendulum, rng = Pendulum(), np.random.default_rng(0)
    values = values_of(pendulum, length=0.6, mass=0.5, inertia=0.03, gravity=9.8, **FRICTION)
    controls, start = 0.5 * rng.normal(size=(40, 2)), np.array([2.5, -3.0])
    ours = simulate(pendulum, start[None], controls[None], values, 0.05, substeps=200)[0]
    assert np.count_nonzero(np.diff(np.sign(ours[:, 1]))) >= 2, "dry friction has to change sign"
    np.testing.assert_allclose(ours, integrated(pendulum_derivative, start, controls, 0.05), atol=1e-10)


def test_double_pendulum_agrees_with_scipy() -> None:
    system, rng = DoublePendulum(), np.random.default_rng(1)
    damping = np.array([0.03, 0.02])
    values = values_of(system, **DOUBLE, damping_1=damping[0], damping_2=damping[1])
    controls = 0.5 * rng.normal(size=(40, 4))
    ours = simulate(system, np.array([GRADSIM_START]), controls[None], values, 0.05, substeps=100)[0]
    expected = integrated(
        lambda s, u: double_derivative(s, u[:2] + u[2:], damping), np.array(GRADSIM_START), controls, 0.05
    )
    assert np.ptp(ours[:, 1]) > np.pi
    np.testing.assert_allclose(ours, expected, atol=2e-9)


def pendulum_energy(states: Array) -> Array:
    return 0.5 * 1.2 * 0.64 * states[:, 1] ** 2 - 1.2 * 9.81 * 0.8 * np.cos(states[:, 0])


def double_energy(states: Array) -> Array:
    """From positions and velocities of the two masses, the system's own keypoints."""
    system = DoublePendulum(elbow=DOUBLE["length_1"])
    points = np.array([[0, 0, -DOUBLE["length_1"]], [0, 0, -DOUBLE["length_1"] - DOUBLE["length_2"]]])
    mass = np.array([DOUBLE["mass_1"], DOUBLE["mass_2"]])
    heights = system.keypoints(states, points)[..., 2]
    velocities = np.einsum("tkid,td->tki", system.keypoints_jacobian(states, points)[..., :2], states[:, 2:])
    return (mass * (0.5 * (velocities**2).sum(axis=-1) + DOUBLE["gravity"] * heights)).sum(axis=-1)


def wide_swing(kind: str) -> tuple[System, Array, Array, Callable[[Array], Array]]:
    """An undamped system, values and a start that swings widely, and the function for its energy."""
    if kind == "pendulum":
        pendulum = Pendulum()
        return pendulum, values_of(pendulum, length=0.8, mass=1.2), np.array([2.8, 1.0]), pendulum_energy
    double = DoublePendulum()
    return double, values_of(double, **DOUBLE), np.array(GRADSIM_START), double_energy


@pytest.mark.parametrize(
    ("kind", "rk4_share", "euler_share"), [("pendulum", 4e-9, 4e-3), ("double_pendulum", 4e-6, 4e-2)]
)
def test_energy_is_kept_without_damping(kind: str, rk4_share: float, euler_share: float) -> None:
    """Errors over 10 s as shares of what swings between the kinds of energy, at 5 ms (RK4) and 0.5 ms (Euler)."""
    system, values, start, energy = wide_swing(kind)

    def drift(integrator: str, substeps: int) -> float:
        states = swing(system, start, values, 0.05, 200, substeps=substeps, integrator=integrator)
        at_rest = np.where(np.arange(states.shape[1]) < states.shape[1] // 2, states, 0.0)
        return float(np.ptp(energy(states)) / np.ptp(energy(at_rest)))

    rk4, euler = [drift("rk4", n) for n in (10, 20)], [drift("semi_implicit_euler", n) for n in (100, 200)]
    assert rk4[0] < rk4_share
    assert rk4[0] / rk4[1] > 12.0
    assert euler[0] < euler_share
    assert 1.7 < euler[0] / euler[1] < 2.6


def test_period_of_small_and_large_swings() -> None:
    """2 pi sqrt((m l^2 + J) / m g l) for small ones, 4 K(sin(q / 2)) / w for those of amplitude q."""
    pendulum = Pendulum()
    values = values_of(pendulum, length=0.6, mass=0.5, inertia=0.03)
    frequency = np.sqrt(0.5 * 9.81 * 0.6 / (0.5 * 0.36 + 0.03))
    # a period is longer by q^2 / 16 of itself than the small one's: 6e-8 at 1e-3 rad, a rate of 2e-6 q at its end
    for amplitude, period, tolerance in (
        (1e-3, 2 * np.pi / frequency, 5e-6),
        (2.5, 4 * ellipk(np.sin(1.25) ** 2) / frequency, 3e-9),
    ):
        states = swing(pendulum, np.array([amplitude, 0.0]), values, period / 100, 100, substeps=10)
        np.testing.assert_allclose(states[-1] / amplitude, [1.0, 0.0], atol=tolerance)


def test_order_of_the_integrators() -> None:
    """Without drag and dry friction: their kinks at rest cost RK4 its order."""
    cases = (
        (Pendulum(), {"damping": 0.1, "inertia": 0.1}, np.array([1.0, 2.0])),
        (DoublePendulum(), {**DOUBLE, "damping_1": 0.1, "damping_2": 0.05}, np.array([0.5, -0.8, 1.0, 2.0])),
    )
    for system, given, start in cases:
        values = values_of(system, **given)
        truth = swing(system, start, values, 0.1, 4, substeps=512)[-1]
        for integrator, order in (("rk4", 4), ("semi_implicit_euler", 1)):
            errors = [
                np.linalg.norm(swing(system, start, values, 0.1, 4, substeps=n, integrator=integrator)[-1] - truth)
                for n in (8, 16, 32)
            ]
            np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), order, atol=0.15)


def test_a_little_of_a_positive_angle_takes_the_masses_towards_minus_x() -> None:
    """Points and their velocities against hand-made positions; the mesh goes with the points."""
    single, double = Pendulum(), DoublePendulum(elbow=0.7)
    np.testing.assert_allclose(
        single.keypoints(np.array([0.3, 0.0]), [[0, 0.2, -1.0]]), [[-np.sin(0.3), 0.2, -np.cos(0.3)]]
    )
    state = np.array([0.3, -0.5, 0.0, 0.0])
    elbow = np.array([-0.7 * np.sin(0.3), 0.0, -0.7 * np.cos(0.3)])
    tip = elbow + np.array([0.4 * np.sin(0.5), 0.0, -0.4 * np.cos(0.5)])
    points = np.array([[0, 0, -0.7], [0, 0, -1.1]])
    np.testing.assert_allclose(double.keypoints(state, points), [elbow, tip], atol=1e-15)
    np.testing.assert_array_equal(double.vertices(state, points), double.keypoints(state, points))
    with pytest.raises(UsageError, match="elbow"):
        DoublePendulum(elbow=0.0)


@dataclass(frozen=True)
class Refit:
    """What least squares makes of recorded swings: values, where the pendulum rests, and how far off it stays."""

    values: dict[str, float]
    rest_rad: float
    angle_error_rad: float  # root mean square over all samples

    def frequency_squared(self) -> float:
        inertia = self.values["mass"] * self.values["length"] ** 2 + self.values["inertia"]
        return self.values["mass"] * self.values["gravity"] * self.values["length"] / inertia

    def damping_rate(self) -> float:
        return self.values["damping"] / (self.values["mass"] * self.values["length"] ** 2 + self.values["inertia"])


def authors_values() -> dict[str, float]:
    """a1, m1, I1, k1, g of their SinglePendulumODE.m: (m a^2 + I) q'' = m g a sin q - k q', q = 0 upright."""
    names = ("length", "mass", "inertia", "damping", "gravity")
    given = loadmat(RECORDED / "EstimatedParameters_SinglePendulum.mat")["EstimatedParameters"][0]
    return dict(zip(names, given.tolist(), strict=True))


def recorded(part: str) -> Array:
    """Segments [B, T, 2] of angle from hanging down and rate, every 40th sample of 1 ms."""
    cells = loadmat(RECORDED / "SinglePendulumDataForParameterEstimation.mat")[part][:, 0]
    return np.stack([cell.T[:9166:STRIDE] for cell in cells]) - [np.pi, 0.0]


def replay(values: dict[str, float], rest_rad: float, starts: Array, count: int) -> Array:
    offset = np.array([rest_rad, 0.0])
    controls, given = np.zeros((len(starts), count - 1, 2)), values_of(Pendulum(), **values)
    return simulate(Pendulum(), starts - offset, controls, given, STRIDE * 1e-3, substeps=2) + offset


def refit(segments: Array, free: dict[str, float]) -> Refit:
    """Least squares over `free` (first values, which scale them), where it rests and each segment's start.

    A swing tells m g a and friction over the pivot's inertia only: what is not free stays at the authors' values.
    """
    scale, count = np.array(list(free.values())), len(free)

    def model(x: Array) -> tuple[dict[str, float], float, Array]:
        values = {**authors_values(), **dict(zip(free, x[:count] * scale, strict=True))}
        starts = segments[:, 0] + x[count + 1 :].reshape(-1, 2)
        return values, x[count], replay(values, x[count], starts, segments.shape[1])

    def residual(x: Array) -> Array:
        return ((model(x)[2] - segments) * [1.0, 1.0 / 8.0]).ravel()  # 8 rad/s: both of one size in a swing

    first = np.concatenate([np.ones(count), np.zeros(1 + 2 * len(segments))])
    lower = np.where(np.arange(first.size) < count, 0.0, -1.0)
    best = least_squares(residual, first, bounds=(lower, np.inf), x_scale="jac")
    assert best.success
    values, rest_rad, states = model(best.x)
    return Refit(values, rest_rad, float(np.sqrt(((states - segments)[..., 0] ** 2).mean())))


@needs_recording
def test_recorded_swings_refit_to_the_authors_values() -> None:
    """Their model, fitted to 37 s from 1.6 to 0.6 rad: 0.27 % and 16 % off their values, 4.4 mrad off the data.

    A viscous coefficient is what is asked of friction that is not: alone, the six segments give 79 to 162 % of theirs.
    """
    segments, authors = recorded("Y_id"), authors_values()
    ours = refit(segments, {name: authors[name] for name in ("length", "damping")})
    theirs = Refit(authors, 0.0, np.nan)
    assert ours.frequency_squared() == pytest.approx(theirs.frequency_squared(), rel=0.006)
    assert ours.damping_rate() == pytest.approx(theirs.damping_rate(), rel=0.25)
    assert ours.angle_error_rad < 0.008


@needs_recording
def test_dry_friction_and_drag_explain_the_recorded_swings_better() -> None:
    """Half the error that damping leaves, and of a forecast over 9 s of each held-out segment from its first sample."""
    segments, authors = recorded("Y_id"), authors_values()
    viscous = refit(segments, {name: authors[name] for name in ("length", "damping")})
    dry = refit(segments, {"length": authors["length"], "damping": 1e-4, "friction": 1e-4, "air_drag": 1e-5})
    held_out = recorded("Y_vad")

    def forecast_error(fit: Refit) -> float:
        states = replay(fit.values, fit.rest_rad, held_out[:, 0], held_out.shape[1])
        return float(np.sqrt(((states - held_out)[..., 0] ** 2).mean()))

    assert dry.angle_error_rad < 0.7 * viscous.angle_error_rad  # measured 0.52
    assert forecast_error(dry) < 0.75 * forecast_error(viscous)  # measured 0.57, 14 mrad
    assert dry.frequency_squared() == pytest.approx(viscous.frequency_squared(), rel=1e-3)
    assert 3e-4 < dry.values["friction"] < 7e-4
    assert 1e-5 < dry.values["air_drag"] < 2e-5
    assert dry.values["damping"] < 0.1 * viscous.values["damping"]
