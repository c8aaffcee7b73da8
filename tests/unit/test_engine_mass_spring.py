"""Masses and springs against what is known without our code: SciPy, conserved quantities, a chain's normal modes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from vid2phys.engine.kernels.runtime import wp
from vid2phys.engine.rollout import linearize, simulate
from vid2phys.engine.stepping import run_interval
from vid2phys.engine.systems.mass_spring import MassSpring
from vid2phys.errors import InputError, SimulationError, UsageError
from vid2phys.types import Array

SQUARE = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 1.0, 0.0))
RING = ((0, 1), (1, 2), (2, 3), (3, 0))


def values_of(system: MassSpring, **values: float) -> Array:
    return system.parameters().with_values(values).vector


def at(positions: Array, velocities: Array | float = 0.0) -> Array:
    """The state of points [V, 3] with velocities [V, 3]."""
    return np.concatenate([np.ravel(positions), np.ravel(np.broadcast_to(velocities, np.shape(positions)))])


def still(system: MassSpring, start: Array, values: Array, dt_s: float, steps: int, **options: object) -> Array:
    """States [steps + 1, N] without forces."""
    controls = np.zeros((1, steps, len(system.control_names)))
    return simulate(system, start[None], controls, values, dt_s, **options)[0]


def test_agrees_with_scipy() -> None:
    """Every parameter its own, two pins, forces that change; the right side by hand from matrices of the graph."""
    rng = np.random.default_rng(0)
    points = np.array([[0, 0, 0], [0.4, 0, 0.1], [0.3, 0.5, -0.2], [-0.2, 0.3, -0.4], [0.1, 0.1, -0.6]])
    springs = np.array([[0, 1], [2, 1], [2, 0], [3, 0], [4, 3], [2, 4], [4, 1]])
    pinned, free = [0, 2], [1, 3, 4]
    masses, stiffness = rng.uniform(0.05, 0.2, 5), rng.uniform(50, 150, 7)
    system = MassSpring(points, springs, pinned, per_spring=True, masses=masses)
    rest, damping = system.rest_lengths * rng.uniform(0.8, 1.2, 7), rng.uniform(0.05, 0.3, 7)
    given = {f"stiffness_{s}": stiffness[s] for s in range(7)} | {f"damping_{s}": damping[s] for s in range(7)}
    given |= {f"rest_length_{s}": rest[s] for s in range(7)}
    values = values_of(system, **given, drag=0.05, gravity=9.7)
    incidence = np.zeros((7, 5))
    incidence[np.arange(7), springs[:, 0]], incidence[np.arange(7), springs[:, 1]] = -1.0, 1.0

    def derivative(state: Array, control: Array) -> Array:
        x, v = state.reshape(2, 5, 3)
        along, force = incidence @ x, np.zeros((5, 3))
        length = np.linalg.norm(along, axis=1)
        rate = ((incidence @ v) * along).sum(axis=1) / length
        tension = stiffness * (length - rest) + damping * rate
        force[free] = control.reshape(3, 3)
        force -= incidence.T @ ((tension / length)[:, None] * along)
        acceleration = (force - 0.05 * v) / masses[:, None] - [0.0, 0.0, 9.7]
        acceleration[pinned] = 0.0
        return np.concatenate([v.ravel(), acceleration.ravel()])

    velocities = rng.normal(size=(5, 3))
    velocities[pinned] = 0.0
    start, controls = at(points + 0.05 * rng.normal(size=(5, 3)), velocities), 0.5 * rng.normal(size=(10, 9))
    ours = simulate(system, start[None], controls[None], values, 0.05, substeps=400)[0]
    expected = [start]
    for control in controls:
        solution = solve_ivp(
            lambda _, s, u=control: derivative(s, u), (0, 0.05), expected[-1], method="DOP853", rtol=1e-10, atol=1e-12
        )
        expected.append(solution.y[:, -1])
    assert np.ptp(ours[:, 3:6], axis=0).max() > 0.2  # far from linear
    np.testing.assert_allclose(ours, expected, rtol=0.0, atol=3e-9)  # of speeds up to 10 m/s


def energy(states: Array) -> Array:
    """Of the ring below: springs, height, motion."""
    x, v = states[:, :12].reshape(-1, 4, 3), states[:, 12:].reshape(-1, 4, 3)
    lengths = np.linalg.norm(x - np.roll(x, -1, axis=1), axis=-1)
    elastic = 0.5 * 80.0 * ((lengths - 0.8) ** 2).sum(axis=-1)
    return elastic + 0.3 * (9.81 * x[..., 2] + 0.5 * (v**2).sum(axis=-1)).sum(axis=-1)


def ring() -> tuple[MassSpring, Array, Array]:
    """A ring in the air, values without damping, and a start."""
    rng = np.random.default_rng(2)
    system = MassSpring(SQUARE, RING, (), masses=0.3)
    values = values_of(system, stiffness=80.0, rest_scale=0.8, damping=0.0)
    return system, values, at(np.array(SQUARE) + 0.1 * rng.normal(size=(4, 3)), rng.normal(size=(4, 3)))


def test_energy_is_kept_without_damping_and_falls_with_it() -> None:
    system, values, start = ring()

    def drift(integrator: str, substeps: int) -> float:
        return float(np.ptp(energy(still(system, start, values, 0.05, 40, integrator=integrator, substeps=substeps))))

    rk4, euler = [drift("rk4", n) for n in (10, 20)], [drift("semi_implicit_euler", n) for n in (50, 100)]
    assert rk4[0] < 1e-3
    assert rk4[0] / rk4[1] > 12.0
    assert euler[0] < 0.5
    assert 1.7 < euler[0] / euler[1] < 2.3
    damped = np.where(np.array(system.parameters().names) == "damping", 0.3, values)
    assert np.diff(energy(still(system, start, damped, 0.05, 40, substeps=10))).max() < -1e-3


def test_momentum_is_kept_without_pins() -> None:
    """The middle falls freely, and inner forces leave the spin about it alone: RK4 to its own error, Euler exactly."""
    system, values, start = ring()
    values = np.where(np.array(system.parameters().names) == "damping", 0.3, values)
    times = 0.05 * np.arange(41)
    for integrator, tolerance in (("rk4", 2e-6), ("semi_implicit_euler", 1e-13)):
        states = still(system, start, values, 0.05, 40, substeps=10, integrator=integrator)
        x, v = states[:, :12].reshape(-1, 4, 3), states[:, 12:].reshape(-1, 4, 3)
        falling = v[0].mean(axis=0) - 9.81 * times[:, None] * [0.0, 0.0, 1.0]
        about = x - x.mean(axis=1, keepdims=True)
        spin = np.cross(about, v).sum(axis=1)
        np.testing.assert_allclose(v.mean(axis=1), falling, atol=1e-13)
        assert np.abs(spin[0]).max() > 0.3
        np.testing.assert_allclose(spin, np.broadcast_to(spin[0], spin.shape), atol=tolerance)


def chain(count: int) -> MassSpring:
    """Masses between two walls along x, 0.1 m apart."""
    points = np.zeros((count + 2, 3))
    points[:, 0] = 0.1 * np.arange(count + 2)
    springs = np.stack([np.arange(count + 1), np.arange(count + 1) + 1], axis=1)
    return MassSpring(points, springs, (0, count + 1), masses=0.02)


@pytest.mark.parametrize("mode", [1, 2, 5])
def test_normal_modes_of_a_chain(mode: int) -> None:
    """w = 2 sqrt(k / m) sin(j pi / 2 (n + 1)), exactly, for mode j of n masses moving along the chain."""
    count, system = 5, chain(5)
    values = values_of(system, stiffness=50.0, damping=0.0, gravity=0.0)
    frequency = 2.0 * np.sqrt(50.0 / 0.02) * np.sin(mode * np.pi / (2 * (count + 1)))
    shape = np.zeros((count + 2, 3))
    shape[:, 0] = 1e-3 * np.sin(mode * np.pi * np.arange(count + 2) / (count + 1))
    period = 2.0 * np.pi / frequency
    states = still(system, at(system.rest_m + shape), values, period / 40, 30, substeps=10)
    for quarter, velocity in ((1, -frequency * shape), (3, frequency * shape)):
        difference = np.abs(states[10 * quarter] - at(system.rest_m, velocity)).max(axis=0)
        assert difference / (1e-3 * frequency) < 1e-10


def test_a_tight_chain_swings_across_itself() -> None:
    """Pulled to twice its rest length it is a string: 2 sqrt(T / m a) sin(...), T = k (a - a / 2)."""
    system = chain(5)
    values = values_of(system, stiffness=50.0, damping=0.0, gravity=0.0, rest_scale=0.5)
    frequency = 2.0 * np.sqrt(50.0 * 0.05 / (0.02 * 0.1)) * np.sin(np.pi / 12)
    shape = np.zeros((7, 3))
    shape[:, 1] = 1e-7 * np.sin(np.pi * np.arange(7) / 6)
    states = still(system, at(system.rest_m + shape), values, 2.0 * np.pi / frequency / 40, 40, substeps=10)
    np.testing.assert_allclose(states[-1], at(system.rest_m + shape), atol=1e-6 * 1e-7 * frequency)


def test_hangs_as_far_as_its_weight_pulls() -> None:
    """m g / k below the pin; a force of its weight upwards leaves no load."""
    system = MassSpring([[0, 0, 1.0], [0, 0, 0.5]], [[0, 1]], [0], masses=0.2)
    values, weight = values_of(system, stiffness=40.0, damping=2.0), 0.2 * 9.81
    states = still(system, at(system.rest_m), values, 0.1, 100, substeps=10)
    np.testing.assert_allclose(states[-1], at([[0, 0, 1.0], [0, 0, 0.5 - weight / 40.0]]), atol=1e-12)
    lifted = simulate(system, at(system.rest_m)[None], np.tile([0, 0, weight], (1, 10, 1)), values, 0.1, substeps=10)
    np.testing.assert_allclose(lifted[0, -1], at(system.rest_m), atol=1e-14)


def test_drag_ends_a_fall_at_its_terminal_speed() -> None:
    """v = (m g / d) (1 - exp(-d t / m)) of two points side by side, whose spring has nothing to do."""
    system = MassSpring([[0, 0, 0], [0.3, 0.4, 0]], [[0, 1]], [], masses=0.2)
    states = still(system, at(system.rest_m), values_of(system, drag=0.8), 0.1, 30, substeps=10)
    speed = 0.2 * 9.81 / 0.8 * (1.0 - np.exp(-0.8 / 0.2 * 0.1 * np.arange(31)))
    np.testing.assert_allclose(states[:, [8, 11]], -np.stack([speed, speed], axis=1), atol=1e-7)


def test_order_of_the_integrators() -> None:
    system, values, start = ring()
    values = np.where(np.array(system.parameters().names) == "damping", 0.3, values)
    truth = still(system, start, values, 0.1, 3, substeps=512)[-1]
    for integrator, order in (("rk4", 4), ("semi_implicit_euler", 1)):
        errors = [
            np.linalg.norm(still(system, start, values, 0.1, 3, substeps=n, integrator=integrator)[-1] - truth)
            for n in (16, 32, 64)
        ]
        np.testing.assert_allclose(np.log2(np.array(errors[:-1]) / errors[1:]), order, atol=0.3)


@pytest.mark.parametrize("integrator", MassSpring.integrators)
@pytest.mark.parametrize("damping", [0.0, 0.05, 5.0])
def test_the_longest_step_is_stable_and_twice_of_it_is_not(damping: float, integrator: str) -> None:
    """Of a long chain, whose fastest mode has nearly the 4 k / m that bounds it, by steps that skip the check."""
    points = np.zeros((40, 3))
    points[:, 0] = 0.1 * np.arange(40)
    system = MassSpring(points, np.stack([np.arange(39), np.arange(1, 40)], axis=1), [0], masses=0.02)
    values = values_of(system, stiffness=50.0, damping=damping, gravity=0.0)
    start = at(points)
    start[3:120:3] += 1e-9 * np.random.default_rng(0).normal(size=39)
    controls = wp.zeros((1, 1, 117), dtype=wp.float64, device="cpu")
    moved = []
    for share in (0.99, 2.0):
        state, given = (wp.array(a[None], dtype=wp.float64, device="cpu") for a in (start, values))
        dt_s = wp.array([[100 * share * system.longest_step_s(values)]], dtype=wp.float64, device="cpu")
        out = run_interval(system, state, controls, given, dt_s, step=0, integrator=integrator, substeps=100)
        moved.append(np.abs(out.numpy()[0, :120] - start[:120]).max())
    assert moved[0] < 1e-8
    assert moved[1] > 1e3


def test_gradients_with_parameters_of_each_spring() -> None:
    """The contract test runs the common ones; here one of each for every spring and point, and two pins."""
    system = MassSpring(SQUARE, (*RING, (0, 2)), (1, 3), per_spring=True, masses=[0.1, 0.2, 0.3, 0.4])
    rng = np.random.default_rng(4)
    values = values_of(system, drag=0.05) * rng.uniform(0.8, 1.2, 19)
    state = system.sample_state(rng, 1)
    control = rng.normal(size=(1, 6))
    for integrator in system.integrators:
        mine = linearize(system, state, control, values, np.array([0.02]), integrator=integrator, substeps=4).C[0]
        for i in range(19):
            h = 1e-3 * values[i] * np.eye(19)[i]
            ends = [
                simulate(system, state, control[None], values + s * h, 0.02, integrator=integrator, substeps=4)[0, 1]
                for s in (1, -1)
            ]
            differences = (ends[0] - ends[1]) / (2 * h.sum())
            np.testing.assert_allclose(mine[:, i], differences, atol=1e-5 * np.abs(differences).max())
            assert np.abs(differences).max() > 0.0


def test_points_go_with_the_nearest_spring() -> None:
    system = MassSpring(SQUARE, RING, ())
    moved = np.array(SQUARE) + np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0.5], [0, 0, 0.5]])
    points = np.array([[1.0, 0, 0], [0.25, -0.1, 0.05], [1.3, 0.5, 0], [1.2, 1.3, 0]])
    expected = [[2.0, 0, 0], [0.5, -0.1, 0.05], [2.3, 0.5, 0.25], [2.2, 1.3, 0.5]]
    np.testing.assert_allclose(system.keypoints(at(moved), points), expected, atol=1e-15)
    np.testing.assert_array_equal(system.vertices(at(moved), points), system.keypoints(at(moved), points))
    np.testing.assert_allclose(system.body_pose(at(moved))[0], [1.0, 0.5, 0.25])


def test_pinned_points_stay() -> None:
    system = MassSpring()
    state = system.sample_state(np.random.default_rng(0), 1)[0]
    state[15:18] = 3.0
    for integrator in system.integrators:
        states = still(system, state, system.parameters().vector, 0.01, 20, integrator=integrator)
        np.testing.assert_array_equal(states[:, :3], np.zeros((21, 3)))
        np.testing.assert_array_equal(states[1:, 15:18], np.zeros((20, 3)))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"springs": ((0, 1), (1, 4))}, InputError, "spring 1 names point 4; expected 0 to 3"),
        ({"springs": ((0, 1), (2, -1))}, InputError, "spring 1 names point -1"),
        ({"springs": (*RING, (2, 2))}, InputError, "spring 4 from point 2 to 2 has no length"),
        ({"points": (*SQUARE[:3], SQUARE[0])}, InputError, "spring 3 from point 3 to 0 has no length"),
        ({"springs": ((0, 1), (1, 2))}, InputError, "no spring holds point 3"),
        ({"springs": ()}, InputError, "no spring holds point 0"),
        ({"springs": (0, 1, 2)}, InputError, "springs of shape"),
        ({"springs": ((0.5, 1.0),)}, InputError, "springs of type float64"),
        ({"points": [[0.0, np.nan, 0.0]] * 4}, InputError, "finite"),
        ({"points": [[0.0, 0.0]] * 4}, InputError, "points of shape"),
        ({"points": np.zeros((0, 3))}, InputError, "points of shape"),
        ({"pinned": (4,)}, InputError, "pinned point 4; expected 0 to 3"),
        ({"pinned": (0, 1, 2, 3)}, UsageError, "all 4 points are pinned"),
        ({"masses": 0.0}, UsageError, "a mass of 0 kg; expected a positive number"),
        ({"masses": (1.0, 1.0, -2.0, 1.0)}, UsageError, "a mass of -2 kg of point 2"),
        ({"masses": (1.0, 1.0)}, UsageError, "masses of shape"),
    ],
)
def test_what_is_no_net_is_refused(options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        MassSpring(**{"points": SQUARE, "springs": RING, "pinned": (0,), **options})


def test_points_that_meet_are_named() -> None:
    system = MassSpring([[0, 0, 0], [1.0, 0, 0]], [[0, 1]], [])
    with pytest.raises(SimulationError, match="not a finite number"):
        still(system, at(np.zeros((2, 3))), system.parameters().vector, 0.001, 2)
