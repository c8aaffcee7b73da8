"""Fits to recorded motion recover what simulated recordings were made with, and their intervals hold it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.engine.systems.double_pendulum import DoublePendulum
from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.errors import InputError, UsageError
from vid2phys.solvers.recorded import Recording, fit, predict
from vid2phys.types import Array, Parameters

DT = 0.02
TRUTH = {"length": 0.4, "damping": 0.02, "friction": 0.01}
NOISE = np.array([0.01, 0.05])


def swing(system: System, parameters: Parameters, start: Array, frames: int) -> Array:
    controls = np.zeros((1, frames - 1, len(system.control_names)))
    return simulate(system, start[None], controls, parameters.vector, DT, substeps=2)[0]


def recordings(
    rng: np.random.Generator, count: int = 3, frames: int = 120, keep: float = 0.0, noise: Array = NOISE
) -> list[Recording]:
    """Swings of one pendulum, seen with noise of which `keep` is left a frame later, by a sensor that is 0.03 off."""
    system = Pendulum()
    parameters = system.parameters().with_values(TRUTH)
    found = []
    for _ in range(count):
        states = swing(system, parameters, rng.normal(0.0, [0.8, 2.0]), frames)
        error = lfilter([np.sqrt(1.0 - keep**2)], [1.0, -keep], rng.normal(size=(frames + 50, 2)), axis=0)[50:]
        found.append(Recording(np.arange(frames) * DT, states + noise * error + [0.03, 0.0], noise))
    return found


def test_a_pendulum_is_recovered_from_angles_of_a_sensor_with_an_offset() -> None:
    seen = recordings(np.random.default_rng(0))
    found = fit(Pendulum(), Pendulum().parameters(), seen, tuple(TRUTH), offsets=("angle_rad",))
    assert found.converged
    for name, value in TRUTH.items():
        assert found[name].value == pytest.approx(value, rel=0.15)
        assert found[name].ci95[0] < value < found[name].ci95[1]
    assert found["length"].value == pytest.approx(TRUTH["length"], rel=2e-3)
    assert found.offsets["angle_rad"].value == pytest.approx(0.03, abs=2e-3)
    assert found.misfit == pytest.approx(1.0, abs=0.3)
    assert found.whiteness is not None
    assert found.whiteness.white


@pytest.mark.parametrize(
    ("keep", "repeats"),
    [
        (0.0, 6),
        (0.8, 12),
        pytest.param(0.0, 100, marks=pytest.mark.slow),
        pytest.param(0.8, 100, marks=pytest.mark.slow),
    ],
)
def test_intervals_hold_the_truth_whether_noise_lasts_or_not(keep: float, repeats: int) -> None:
    """Had frames been counted as independent, intervals of noise that lasts would be three times too narrow."""
    rng, inside, share = np.random.default_rng(1), [], []
    for _ in range(repeats):
        seen = recordings(rng, count=2, frames=80, keep=keep)
        found = fit(Pendulum(), Pendulum().parameters().with_values({"friction": 0.01}), seen, ("length", "damping"),
                    offsets=("angle_rad",), max_step_s=0.02)  # fmt: skip
        for name in ("length", "damping"):
            inside.append(found[name].ci95[0] < TRUTH[name] < found[name].ci95[1])
        share.append(found["length"].ci95[1] / found["length"].ci95[0] - 1.0)
    assert 0.86 < np.mean(inside) <= 1.0
    assert np.median(share) < 0.03


def test_a_model_that_misses_something_is_said_to() -> None:
    """Friction fitted as damping: residuals last, and the error is larger than the noise."""
    seen = recordings(np.random.default_rng(2), noise=0.03 * NOISE)
    missing = fit(Pendulum(), Pendulum().parameters(), seen, ("length", "damping"), offsets=("angle_rad",))
    whole = fit(Pendulum(), Pendulum().parameters(), seen, tuple(TRUTH), offsets=("angle_rad",))
    assert missing.whiteness is not None
    assert not missing.whiteness.white
    assert any("does not fit" in note for note in missing.notes)
    assert not any("does not fit" in note for note in whole.notes)
    assert missing.misfit > 1.5 * whole.misfit


def test_predictions_are_rollouts_from_the_first_states() -> None:
    system, seen = Pendulum(), recordings(np.random.default_rng(3), noise=0.0 * NOISE)
    seen[1] = Recording(seen[1].times_s[:70], seen[1].seen[:70], NOISE)
    parameters = system.parameters().with_values(TRUTH)
    states = predict(system, parameters, seen, offsets={"angle_rad": 0.03})
    assert [len(s) for s in states] == [120, 70, 120]
    for state, recording in zip(states, seen, strict=True):
        np.testing.assert_allclose(state, recording.seen, atol=1e-5)


def test_markers_and_gaps() -> None:
    """Two markers on a double pendulum's links, a third of them hidden; the start is known to 0.2 rad."""
    system, rng = DoublePendulum(), np.random.default_rng(0)
    parameters = system.parameters().with_values({"length_1": 0.5, "length_2": 0.3, "damping_1": 0.01})
    points = np.array([[0.0, 0.0, -0.4], [0.05, 0.02, -0.1]])
    start = np.array([0.7, -0.4, 0.0, 0.5])
    states = swing(system, parameters, start, 100)
    seen = system.keypoints(states, points) + rng.normal(0.0, 1e-3, (100, 2, 3))
    seen[rng.random((100, 2)) < 0.33] = np.nan
    guess = start + np.array([0.1, -0.1, 0.2, -0.3])
    recording = Recording(np.arange(100) * DT, seen, np.array(1e-3), guess, np.array([0.2, 0.2, 1.0, 1.0]),
                          points_body=points)  # fmt: skip
    found = fit(system, parameters.with_values({"length_1": 0.45}), [recording], ("length_1",))
    assert found["length_1"].value == pytest.approx(0.5, rel=5e-3)
    assert found["length_1"].ci95[0] < 0.5 < found["length_1"].ci95[1]
    assert found.misfit == pytest.approx(1.0, abs=0.3)


def test_the_mass_of_a_body_under_a_known_force() -> None:
    """Only positions were seen, and the body does not turn: its start has turns and rates that are known."""
    system, rng, frames = RigidContact((Sphere(0.1),), planes=()), np.random.default_rng(5), 150
    parameters = system.parameters().with_values({"mass": 0.3, "gravity": 9.81})
    controls = np.zeros((frames - 1, 12))
    controls[:, :3] = np.array([0.0, 0.0, 0.3 * 9.81]) + rng.normal(0.0, 0.3, (frames - 1, 3))
    start = system.rest_state()
    states = simulate(system, start[None], controls[None], parameters.vector, DT)[0]
    seen = np.full_like(states, np.nan)
    seen[:, :3] = states[:, :3] + rng.normal(0.0, 1e-3, (frames, 3))
    unsure = np.array([np.inf] * 3 + [0.0] * 3 + [np.inf] * 3 + [0.0] * 3)
    recording = Recording(np.arange(frames) * DT, seen, np.array([1e-3] * 12), start, unsure, controls)
    found = fit(system, parameters.with_values({"mass": 0.5}), [recording], ("mass",), max_step_s=DT)
    assert found["mass"].value == pytest.approx(0.3, rel=2e-3)
    assert found["mass"].ci95[0] < 0.3 < found["mass"].ci95[1]


def test_starts_alone() -> None:
    """First states of swings whose parameters are known, and by how much they are off: 1 in normalised errors."""
    system, seen = Pendulum(), recordings(np.random.default_rng(8), count=12, frames=40)
    truth = recordings(np.random.default_rng(8), count=12, frames=40, noise=0.0 * NOISE)
    found = fit(system, system.parameters().with_values(TRUTH), seen, (), offsets=("angle_rad",))
    error = np.array([s[0] - (t.seen[0] - [0.03, 0.0]) for s, t in zip(found.states, truth, strict=True)])
    std = np.sqrt(np.diagonal(found.start_covariance, axis1=1, axis2=2))
    assert 0.7 < np.sqrt(np.mean((error / std) ** 2)) < 1.4
    assert np.abs(error[:, 0]).max() < 0.02


def test_what_cannot_be_told_apart_is_said() -> None:
    seen = recordings(np.random.default_rng(6))
    found = fit(Pendulum(), Pendulum().parameters(), seen, ("length", "gravity"), offsets=("angle_rad",))
    assert not found["length"].identifiable
    assert not found["gravity"].identifiable
    assert any("length" in note and "gravity" in note for note in found.notes)


def test_bad_input() -> None:
    system, seen = Pendulum(), recordings(np.random.default_rng(7), count=1)
    with pytest.raises(UsageError, match="lenght"):
        fit(system, system.parameters(), seen, ("lenght",))
    with pytest.raises(UsageError, match="no recordings"):
        fit(system, system.parameters(), [], ("length",))
    with pytest.raises(InputError, match="shape"):
        fit(system, system.parameters(), [Recording(seen[0].times_s, seen[0].seen[:, :1], NOISE)], ("length",))
    with pytest.raises(InputError, match="increasing"):
        fit(system, system.parameters(), [Recording(seen[0].times_s[::-1], seen[0].seen, NOISE)], ("length",))
    hidden = seen[0].seen.copy()
    hidden[0] = np.nan
    with pytest.raises(InputError, match="first state"):
        fit(system, system.parameters(), [Recording(seen[0].times_s, hidden, NOISE)], ("length",))
