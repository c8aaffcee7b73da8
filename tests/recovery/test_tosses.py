"""Friction and restitution of simulated tosses come back, and so do first states and gravity of recorded ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.recorded import contact_fit
from benchmarks.recorded.contact_fit import Toss
from vid2phys import geometry
from vid2phys.engine.systems.rigid_contact import Box, RigidContact
from vid2phys.errors import InputError

SIDE, RATE_HZ = 0.1, 120.0
SYSTEM = RigidContact((Box((0.5 * SIDE,) * 3),), has_actions=False)
KNOWN = {"mass": 0.4, "inertia_xx": 6.7e-4, "inertia_yy": 6.7e-4, "inertia_zz": 6.7e-4, "gravity": 9.7}
CONTACT = {"mu": 0.25, "k_e": 8000.0, "k_d": 45.0, "k_f": 40.0}
RECORDED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "cube_tosses"


def thrown(count: int, frames: int = 70, noise: float = 1e-4) -> list[Toss]:
    """Recordings of tosses with velocities that lag behind by half a frame, as differences do."""
    rng, parameters = np.random.default_rng(0), SYSTEM.parameters().with_values(KNOWN | CONTACT)
    starts = np.zeros((count, 13))
    starts[:, :3] = rng.normal(0.0, 0.1, (count, 3)) * [1.0, 1.0, 0.1] + [0.0, 0.0, 0.22]
    starts[:, 3:7] = geometry.quat_normalize(rng.normal(size=(count, 4)))
    starts[:, 7:10] = rng.normal(0.0, 0.6, (count, 3)) * [1.0, 1.0, 0.3]
    starts[:, 10:] = rng.normal(0.0, 4.0, (count, 3))
    times = np.arange(frames) / RATE_HZ
    states = contact_fit.predict(SYSTEM, parameters.vector[None], starts, [times] * count)[0]
    states[..., :3] += rng.normal(0.0, noise, states[..., :3].shape)
    turns = geometry.quat_from_rotvec(rng.normal(0.0, 10.0 * noise, states[..., :3].shape))
    states[..., 3:7] = geometry.quat_multiply(states[..., 3:7], turns)
    states[..., 9] += 0.5 * KNOWN["gravity"] / RATE_HZ
    return [Toss(times, s) for s in states]


def test_gravity_and_first_states_come_from_the_flight() -> None:
    seen = thrown(6)
    found = contact_fit.flights(SYSTEM, SYSTEM.parameters().with_values(KNOWN | {"gravity": 9.0}), seen)
    assert found["gravity"].ci95[0] < KNOWN["gravity"] < found["gravity"].ci95[1]
    assert found["gravity"].value == pytest.approx(KNOWN["gravity"], rel=0.02)
    rise = [toss.states[0, 9] - states[0, 9] for toss, states in zip(seen, found.states, strict=True)]
    assert np.mean(rise) == pytest.approx(0.5 * KNOWN["gravity"] / RATE_HZ, abs=0.02)


def test_friction_and_restitution_of_tosses_are_recovered() -> None:
    seen = thrown(5, 50)
    parameters = SYSTEM.parameters().with_values(KNOWN)
    starts = np.array([states[0] for states in contact_fit.flights(SYSTEM, parameters, seen, gravity=False).states])
    found = contact_fit.fit_contact(SYSTEM, parameters, seen, starts, size=16, generations=4)
    masses = contact_fit.impact_masses(SYSTEM, parameters, seen)
    truth = contact_fit.restitution(SYSTEM, parameters.with_values(CONTACT), masses)
    assert (masses < KNOWN["mass"]).all()
    assert (masses > 0.2 * KNOWN["mass"]).all()
    assert found.estimates["mu"].value == pytest.approx(CONTACT["mu"], abs=0.05)
    assert found.estimates["restitution"].value == pytest.approx(truth, abs=0.1)
    assert found.estimates["k_e"].ci95[1] == np.inf
    best, truly = (
        contact_fit.misses(
            contact_fit.predict(SYSTEM, values.vector[None], starts, [t.times_s for t in seen]), seen
        ).mean()
        for values in (found.parameters, parameters.with_values(CONTACT))
    )
    assert best < truly + 0.3


def test_a_toss_that_touches_at_once_is_refused() -> None:
    low = thrown(1)[0].states.copy()
    low[:, 2] = 0.05
    with pytest.raises(InputError, match="touches after 0 frames"):
        contact_fit.flights(SYSTEM, SYSTEM.parameters(), [Toss(np.arange(len(low)) / RATE_HZ, low)])


@pytest.mark.shared
@pytest.mark.skipif(not RECORDED.is_dir(), reason="../shared/data/cube_tosses is not there")
def test_recorded_tosses_are_two_percent_too_small() -> None:
    """Gravity in flight and the height at rest say so alike."""
    from benchmarks.recorded.tosses import Experiment, recorded

    experiment = Experiment.of(RECORDED)
    seen = [
        t
        for t in recorded(RECORDED)[:16]
        if contact_fit.flight_frames(experiment.system(), t) >= contact_fit.LEAST_FLIGHT
    ]
    found = contact_fit.flights(experiment.system(), experiment.parameters(), seen)["gravity"]
    assert found.value / experiment.gravity == pytest.approx(0.98, abs=0.01)
    rest = np.mean([toss.states[-1, 2] for toss in seen])
    assert rest / experiment.half == pytest.approx(found.value / experiment.gravity, abs=0.01)
