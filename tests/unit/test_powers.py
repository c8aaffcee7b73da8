"""Parameters that a recording tells only together: the powers that are printed against closed forms."""

from __future__ import annotations

import re

import numpy as np
import pytest

from vid2phys.engine import systems
from vid2phys.engine.rollout import simulate
from vid2phys.solvers.intervals import identifiability
from vid2phys.solvers.recorded import Recording, fit
from vid2phys.types import Parameter, Parameters

PENDULUM = {"length": 0.5, "mass": 0.3, "damping": 0.01}


def notes_of(name: str, truth: dict[str, float], names: tuple[str, ...]) -> list[str]:
    """What a fit to a motion that nothing drives says of these parameters."""
    system, frames, rng = systems.get(name), 90, np.random.default_rng(0)
    parameters = system.parameters().with_values(truth)
    start = system.rest_state()
    start[len(start) // 2 :] = 2.0 * rng.normal(size=len(start) // 2)
    start[: 1 if name == "pendulum" else 0] = 1.0
    controls = np.zeros((1, frames - 1, len(system.control_names)))
    states = simulate(system, start[None], controls, parameters.vector, 1.0 / 60.0, substeps=4)[0]
    std = np.full(len(system.tangent_names), 1e-3)
    seen = states + rng.normal(0.0, std, states.shape)
    return list(fit(system, parameters, [Recording(np.arange(frames) / 60.0, seen, std, start)], names).notes)


def powers(note: str) -> dict[str, float]:
    return {name: float(power) for name, power in re.findall(r"(\w+) x s\^([-\d.e+]+)", note.rstrip("."))}


def test_a_swing_tells_damping_over_mass() -> None:
    """m l^2 q'' = -b q' - m g l sin q, with l known."""
    (note,) = notes_of("pendulum", PENDULUM, ("mass", "damping"))
    assert note.startswith("mass and damping are determined only as a ratio")


@pytest.mark.parametrize("damping", [3e-4, 1e-5])
def test_small_values_are_not_taken_for_determined(damping: float) -> None:
    system = systems.get("pendulum")
    parameters = system.parameters().with_values({**PENDULUM, "damping": damping})
    states = simulate(system, np.array([[1.0, 2.0]]), np.zeros((1, 300, 2)), parameters.vector, 1.0 / 60.0)[0]
    recording = Recording(np.arange(301) / 60.0, states, np.full(2, 1e-4), states[0])
    found = fit(system, parameters, [recording], ("mass", "damping"))
    assert not found["mass"].identifiable
    assert not found["damping"].identifiable
    assert any("mass and damping are determined only as a ratio" in note for note in found.notes)


@pytest.mark.parametrize(
    ("truth", "names", "expected"),
    [
        # g / l and b / (m l^2)
        (PENDULUM, ("length", "gravity", "damping"), {"length": 1, "gravity": 1, "damping": 2}),
        (
            {**PENDULUM, "friction": 0.02, "air_drag": 0.003},
            ("length", "gravity", "damping", "friction", "air_drag"),
            {"length": 1, "gravity": 1, "damping": 2, "friction": 2, "air_drag": 2},
        ),
        # m l^2 known by friction: g / l, m l^2
        (
            {**PENDULUM, "friction": 0.02, "damping": 0.0},
            ("mass", "length", "gravity"),
            {"length": 1, "mass": -2, "gravity": 1},
        ),
    ],
)
def test_powers_of_a_pendulum(truth: dict[str, float], names: tuple[str, ...], expected: dict[str, float]) -> None:
    (note,) = notes_of("pendulum", truth, names)
    assert powers(note) == pytest.approx(expected)
    assert note.endswith(tuple(systems.get("pendulum").capabilities.remedies(names).values()))


def test_springs_tell_stiffness_and_damping_over_mass() -> None:
    (note,) = notes_of("mass_spring", {"damping": 0.1}, ("stiffness", "damping", "mass"))
    assert note.startswith("only the ratios of stiffness, damping and mass are determined")


def test_a_swing_of_known_length_tells_damping_and_friction_over_mass() -> None:
    (note,) = notes_of("pendulum", {**PENDULUM, "friction": 0.02}, ("mass", "damping", "friction"))
    assert note.startswith("only the ratios of mass, damping and friction are determined")


def test_a_sum_is_no_law_of_powers() -> None:
    """m l^2 + J and m l: a change of J of no single power goes with one of l."""
    names = ("length", "gravity", "inertia", "damping")
    notes = notes_of("pendulum", {**PENDULUM, "inertia": 0.017}, names)
    assert len(notes) == 2
    assert all("can be changed together" in note and "x s^" not in note for note in notes)


@pytest.mark.parametrize(("power", "said"), [(1.0, "ratio"), (-1.0, "product"), (2.0, "a x s^1, b x s^2"),
                                             (0.5, "a x s^2, b x s^1"), (-1.5, "a x s^1, b x s^-1.5")])  # fmt: skip
def test_powers_of_values_that_are_not_fitted_in_logarithms(power: float, said: str) -> None:
    """b of 0.02 goes as a^power: its change is power * 0.02 of that of log a."""
    parameters = Parameters((Parameter("a", "kg", 7.0, 1e-3, 10.0, "log"), Parameter("b", "N m", 0.02, 0.0, 1.0)))
    (line,) = identifiability(("a", "b"), np.array([[1.0, power * 0.02]]), (), parameters)
    assert said in line


def test_a_place_has_no_power() -> None:
    parameters = Parameters((Parameter("a", "kg", 7.0, 1e-3, 10.0, "log"), Parameter("zero", "m", 0.02)))
    (line,) = identifiability(("a", "zero"), np.array([[1.0, 0.02]]), (), parameters)
    assert line.startswith("a and zero can be changed together")
