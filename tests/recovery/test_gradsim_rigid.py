"""gradSim's Table 6 (Jatavallabhula et al., ICLR 2021), rigid bodies: every quantity is found from images alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.gradsim.filmed import by_newton, by_pixels
from experiments.gradsim.newton import noisy
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at
from experiments.gradsim.pushed import pushed
from experiments.gradsim.shapes import shape
from experiments.gradsim.sliding import sliding
from tests.gradsim_scenes import Unknown, film, found
from vid2phys.engine.systems.rigid_contact import Points, RigidContact

MASS, GRAVITY = 0.05, 9.81
FREE = {
    "position": Unknown("state", (0, 1, 2), np.array([0.04, -0.06, 0.03])),
    "orientation": Unknown("state", (3, 4, 5, 6), np.array([0.0, 0.12, -0.1, 0.08])),
    "velocity": Unknown("state", (7, 8, 9), np.array([0.3, -0.3, 0.25])),
    "angular velocity": Unknown("state", (10, 11, 12), np.array([0.8, -0.6, 0.9])),
    "mass": Unknown("parameter", (0,), 0.4),
    "moment of inertia": Unknown("parameter", (1,), 0.3),
    "gravity": Unknown("parameter", (8,), 1.5),
    "force": Unknown("control", (0, 1, 2), np.array([0.05, -0.06, 0.04])),
    "torque": Unknown("control", (3, 4, 5), np.array([0.004, 0.003, -0.004])),
}


@pytest.mark.parametrize("quantity", FREE)
def test_of_a_body_that_is_thrown_and_pushed(quantity: str) -> None:
    mesh = shape("wedge")
    system = RigidContact((Points.of_mesh(mesh),), planes=())
    stage = Stage((Actor.of(system, mesh),), looking_at((0.3, -1.4, 0.4), (0.05, 0.0, 0.1), 0.4, 32))
    shot = Shot(system, stage, 1.0 / 24.0, 6, 2, substeps=2)
    initial = system.rest_state()
    initial[:3], initial[7:] = 0.0, [0.3, 0.2, 1.3, 1.0, -1.5, 0.8]
    parameters = system.parameters()
    assert parameters.names[8] == "gravity"
    values = {f"inertia_{2 * a}": MASS * m for a, m in zip("xyz", system.bodies[0].inertia_per_mass, strict=True)}
    parameters = parameters.with_values({"mass": MASS, "gravity": GRAVITY, **values})
    controls = shot.rest.numpy()
    controls[:, :6] = [0.12, 0.1, 0.05, 2e-3, 1e-3, -2e-3]
    unknown = FREE[quantity]
    value = found(filmed := film(shot, initial, controls, parameters, unknown), 30)
    if quantity == "orientation":  # of any length
        value = value / np.linalg.norm(value)
    start = np.array([p.value for p in filmed.unknown])
    assert np.abs(value - filmed.truth).max() < 0.02 * np.abs(start - filmed.truth).max()


@pytest.mark.parametrize(("name", "close"), [("mu", 0.01), ("k_f", 0.01), ("k_e", 0.01), ("k_d", 0.01), ("mass", 0.01)])
def test_of_a_body_that_bounces_and_slides(name: str, close: float) -> None:
    filmed = sliding(np.random.default_rng(3), unknown=(name,), frames=15, size_px=24, every=5, factor=1.3)
    descended = by_pixels(filmed, rate=0.05, iterations=9, optimizer="lbfgs")
    before = filmed.errors(np.array([filmed.unknown[name].value]))[name]
    assert before > 0.03
    assert filmed.errors(np.exp(descended.values))[name] < min(close, 0.2 * before)


def test_a_mass_and_its_interval() -> None:
    """The first table's: 5 to 400 g, from starts as far as a factor of two."""
    body = pushed(np.random.default_rng(5), "angle", size_px=32, every=15)
    clean = by_newton(body, np.linspace(*np.array(body.bounds)[:, 0], 9)[:, None])
    assert clean["density"].value == pytest.approx(body.truth[0], rel=1e-6)
    seen = replace(body, seen=noisy(body.target, np.random.default_rng(6)))
    real = by_newton(seen, np.array(body.start)[None])
    low, high = real["density"].ci95
    assert low < body.truth[0] < high
    assert high - low < 0.02 * body.truth[0]


def test_of_a_falling_body_the_mass_does_not_show() -> None:
    """Under gravity alone all masses move alike: the interval says so."""
    mesh = shape("cross")
    system = RigidContact((Points.of_mesh(mesh),), planes=())
    stage = Stage((Actor.of(system, mesh),), looking_at((0.3, -1.4, 0.4), (0.0, 0.0, 0.0), 0.4, 24))
    shot = Shot(system, stage, 1.0 / 24.0, 4, 2)
    filmed = film(shot, system.rest_state(), shot.rest.numpy(), system.parameters(), Unknown("parameter", (0,), 0.5))
    fit = by_newton(filmed, np.zeros((0, 1)))
    assert not fit.estimates[0].identifiable
    assert fit.estimates[0].ci95 == (0.0, np.inf)
    assert any("not determined" in line for line in fit.reported)
