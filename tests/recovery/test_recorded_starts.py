"""Fits to recordings whose first state is not recorded: rates by local fits, other starts, and limits of what is tried.

Truths are simulated with twenty steps a frame.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.commands.fit_recording import fit_recording
from vid2phys.engine import systems
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.notes import is_doubtful
from vid2phys.solvers.recorded import RecordedFit, Recording, fit
from vid2phys.solvers.recorded_start import first_state
from vid2phys.types import Array

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "pendulum_over_top"
STIFF = {"length": 0.5, "mass": 0.3}


def moved(system: System, truth: dict[str, float], start: Array, seconds: float, rate: float) -> tuple[Array, Array]:
    """Times [T] and states [T, N] of a motion that nothing drives."""
    steps = round(seconds * rate)
    controls = np.zeros((1, steps, len(system.control_names)))
    values = system.parameters().with_values(truth).vector
    return np.arange(steps + 1) / rate, simulate(system, start[None], controls, values, 1.0 / rate, substeps=20)[0]


def recorded(system: System, times_s: Array, states: Array, std: float, seed: int = 0) -> Recording:
    """What sensors saw of a motion's positions, orientations and angles, none of its rates."""
    noise = np.random.default_rng(seed).normal(0.0, std, (len(states), len(system.tangent_names)))
    seen = system.retract(states, noise)
    seen[:, ["velocity" in name or name.endswith("_s") for name in system.state_names]] = np.nan
    errors = np.full(len(system.tangent_names), std)
    start = first_state(system, times_s, seen, errors, system.rest_state())
    return Recording(times_s, seen, errors, start, controls=np.zeros((len(states) - 1, len(system.control_names))))


def check(found: RecordedFit, truth: dict[str, float], rel: float) -> None:
    for name, value in truth.items():
        assert found[name].value == pytest.approx(value, rel=rel), name
        assert found[name].ci95[0] < value < found[name].ci95[1], name
    assert not is_doubtful(found.notes)


@pytest.mark.parametrize(
    ("start", "damping", "seconds", "std"),
    [
        ((0.0, 10.5), 0.002, 2.0, 0.003),  # over the top
        ((0.0, 3.0), 0.002, 2.0, 0.003),
        ((0.0, -40.0), 0.02, 5.0, 0.003),  # many turns
        ((0.1, 0.0), 0.002, 4.0, 0.003),  # a small swing
        ((-2.5, 0.0), 0.3, 2.0, 0.003),  # hardly a swing
        ((1.0, 7.0), 0.005, 3.0, 0.01),
    ],
)
def test_a_pendulum_of_which_only_the_angle_is_recorded(
    start: tuple[float, float], damping: float, seconds: float, std: float
) -> None:
    system, truth = systems.get("pendulum"), {**STIFF, "damping": damping}
    times_s, states = moved(system, truth, np.array(start), seconds, 60.0)
    seen = recorded(system, times_s, states, std)
    found = fit(system, system.parameters().with_values({"mass": 0.3}), [seen], ("length", "damping"))
    assert found.converged
    check(found, {"length": 0.5, "damping": damping}, 0.5)
    assert found["length"].value == pytest.approx(0.5, rel=0.02)


def test_a_far_first_length_is_found_from_pieces() -> None:
    """A hundred times too long: growing horizons end in a wrong valley, which short pieces do not have."""
    system, truth = systems.get("pendulum"), {"length": 0.06, "mass": 0.3, "damping": 1e-4}
    times_s, states = moved(system, truth, np.array([3.0, 8.0]), 2.0, 120.0)
    seen = recorded(system, times_s, states, 0.003)
    parameters = system.parameters().with_values({"mass": 0.3, "length": 6.0})
    found = fit(system, parameters, [seen], ("length", "damping"), max_step_s=0.004)
    check(found, {"length": 0.06}, 0.01)


def test_a_double_pendulum_without_velocities() -> None:
    system, truth = systems.get("double_pendulum"), {"length_1": 0.5, "length_2": 0.3, "mass_1": 0.4}
    times_s, states = moved(system, truth, np.array([1.0, 0.5, 3.0, -2.0]), 2.0, 60.0)
    parameters = system.parameters().with_values({"mass_1": 0.4})
    found = fit(system, parameters, [recorded(system, times_s, states, 0.003)], ("length_1", "length_2"))
    check(found, {"length_1": 0.5, "length_2": 0.3}, 0.01)


def test_springs_of_which_positions_are_recorded() -> None:
    system, truth = systems.get("mass_spring"), {"stiffness": 60.0, "damping": 0.1}
    start, count = system.rest_state(), len(system.rest_m)  # type: ignore[attr-defined]
    start[3 * count + 3 :] = np.random.default_rng(1).normal(0.0, 0.5, 3 * count - 3)
    times_s, states = moved(system, truth, start, 1.5, 60.0)
    seen = recorded(system, times_s, states, 1e-3)
    check(fit(system, system.parameters(), [seen], ("stiffness", "damping")), truth, 0.1)


def test_an_arm_of_which_joint_angles_are_recorded() -> None:
    system, truth = systems.get("articulated"), {"damping_shoulder": 0.06, "mass_lower": 1.2}
    start = np.array([0.5, -0.3, 0.02, 3.0, -2.0, 0.1])
    times_s, states = moved(system, truth, start, 1.5, 60.0)
    seen = recorded(system, times_s, states, 0.003)
    found = fit(system, system.parameters(), [seen], tuple(truth), max_step_s=0.002)
    check(found, truth, 0.15)


def test_a_thrown_body_of_which_poses_are_recorded() -> None:
    system, truth = (
        systems.get("rigid_contact"),
        {"gravity": 9.0, "inertia_xx": 2e-3, "inertia_yy": 1e-3, "inertia_zz": 2.5e-3},
    )
    start = system.rest_state()
    start[2], start[7:] = 1.5, [0.5, 0.2, 2.0, 8.0, -5.0, 3.0]
    times_s, states = moved(system, truth, start, 0.6, 60.0)
    seen = recorded(system, times_s, states, 0.003)
    np.testing.assert_allclose(seen.start[7:], start[7:], atol=1.0)  # type: ignore[index]
    known = system.parameters().with_values({"inertia_yy": 1e-3, "inertia_zz": 2.5e-3})
    check(fit(system, known, [seen], ("gravity", "inertia_xx")), {"gravity": 9.0, "inertia_xx": 2e-3}, 0.03)


def test_the_first_state_of_a_recording_that_begins_with_blanks() -> None:
    system = systems.get("pendulum")
    times_s, states = moved(system, STIFF, np.array([0.4, 6.0]), 1.0, 100.0)
    seen = np.column_stack([states[:, 0], np.full(len(states), np.nan)])
    seen[:3] = np.nan
    found = first_state(system, times_s, seen, np.full(2, 1e-3), np.array([9.0, 9.0]))
    np.testing.assert_allclose(found, states[0], atol=0.5)


def test_what_was_not_recorded_stays_as_it_is_known() -> None:
    system = systems.get("double_pendulum")
    times_s, states = moved(system, {"length_1": 0.5},
                            np.array([0.3, 0.2, 1.0, 2.0]), 0.5, 60.0)  # fmt: skip
    seen = np.full(states.shape, np.nan)
    seen[:, 0] = states[:, 0]
    found = first_state(system, times_s, seen, np.full(4, 1e-3), np.array([7.0, 0.7, 7.0, 0.5]))
    np.testing.assert_allclose(found[[0, 2]], states[0, [0, 2]], atol=0.1)
    assert found[[1, 3]].tolist() == [0.7, 0.5]


def test_a_fit_that_has_no_time_gives_back_what_it_has() -> None:
    system = systems.get("pendulum")
    times_s, states = moved(system, STIFF, np.array([0.5, 0.0]), 2.0, 60.0)
    seen = recorded(system, times_s, states, 0.003)
    found = fit(system, system.parameters(), [seen], ("length",), most_seconds=1e-9)
    assert not found.converged
    assert found["length"].value == 1.0
    assert any("stopped" in note for note in found.notes)


def test_a_fit_that_explains_nothing_is_doubtful() -> None:
    """A swing that grows is no pendulum's."""
    system, times_s = systems.get("pendulum"), np.arange(181) / 60.0
    angle = 0.2 * np.exp(times_s) * np.sin(9.0 * times_s) ** 3 + 0.5 * times_s**2
    seen = np.column_stack([angle, np.full(len(angle), np.nan)])
    recording = Recording(times_s, seen, np.full(2, 1e-3), np.array([0.0, 0.0]))
    found = fit(system, system.parameters(), [recording], ("length", "damping"), most_seconds=20.0)
    assert is_doubtful(found.notes)
    assert any("unexplained" in note for note in found.notes)


@pytest.mark.shared
@pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases")
@pytest.mark.parametrize("name", ["nw2.csv", "w3.csv"])
def test_the_pendulums_of_the_cases(name: str, tmp_path: Path) -> None:
    found, _ = fit_recording("pendulum", [CASES / name], fit=("length", "damping"), set_values={"mass": 0.3},
                             out=tmp_path / "fit")  # fmt: skip
    assert found.status == "converged"
    check(found.fit, {"length": 0.5, "damping": 0.002}, 0.05)
