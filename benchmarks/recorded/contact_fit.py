"""Friction and restitution from recorded tosses of a body whose shape and mass are known.

Method: a toss has two parts. While nothing touches, its first state follows from positions and orientations to a
fraction of a millimetre, and so does gravity in the recording's own units of length (`flights`). From there on,
rollouts through all impacts are compared with the recording (`fit_contact`). A tiny change of a parameter may change
where a body comes to lie: the cost grows with a logarithm, and the cross-entropy method searches for its minimum.

Limits: a contact that lasts less than a frame looks the same at any stiffness. The stiffness of compliant contacts is
searched with the others, and reported as a one-sided bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.recorded.cross_entropy import Found, search
from vid2phys import geometry
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.rigid_contact import RigidContact
from vid2phys.errors import InputError
from vid2phys.solvers.recorded import RecordedFit, Recording, fit
from vid2phys.types import Array, Estimate, Parameters

CLEAR_M = 0.005  # lowest point above the ground: still in flight
LEAST_FLIGHT = 6  # frames
NEAR_M, NEAR_RAD = 0.01, 0.15  # distances that a cost tells well
_POSITION_STD_M, _TURN_STD_RAD = 1e-4, 1e-3  # their ratio; the scale is fitted
_STABLE = 0.5  # of the longest stable step
_AGAIN = 400  # tosses drawn again, for intervals
_SPREAD = np.array([0.6, 0.5, 1.0, 0.9])


@dataclass(frozen=True)
class Toss:
    """times_s: [T]. states: [T, 13], of which positions and orientations are used (rates as a first guess)."""

    times_s: Array
    states: Array


@dataclass(frozen=True)
class ContactFit:
    """parameters: all, with fitted values. estimates: mu, restitution (of the points that touch first, the median over
    tosses), one-sided k_e and k_f. found: the search, in logarithms of mu, k_d / (2 sqrt(k_e m)), k_e and k_f."""

    parameters: Parameters
    estimates: dict[str, Estimate]
    found: Found


def flight_frames(system: RigidContact, toss: Toss, clear_m: float = CLEAR_M) -> int:
    """Return the frames at the beginning in which the whole body is above all planes."""
    shape = system.bodies[0]
    points = toss.states[:, None, :3] + geometry.rotate(toss.states[:, None, 3:7], shape.points)
    heights = points @ system.planes[:, :3].T - system.planes[:, 3] - shape.radius
    touching = np.flatnonzero(heights.min(axis=(1, 2)) < clear_m)
    return int(touching[0]) if len(touching) else len(toss.times_s)


def flights(
    system: RigidContact, parameters: Parameters, tosses: Sequence[Toss], *, gravity: bool = True
) -> RecordedFit:
    """Return the first states of tosses from their frames in flight, and gravity in the recording's units (or as
    given).

    Raises InputError for a toss that touches within six frames.
    """
    recordings = []
    for number, toss in enumerate(tosses):
        frames = flight_frames(system, toss)
        if frames < LEAST_FLIGHT:
            raise InputError(f"toss {number} touches after {frames} frames", f"{LEAST_FLIGHT} or more in flight")
        seen = toss.states[:frames].copy()
        seen[:, 7:] = np.nan
        std = np.repeat([_POSITION_STD_M, _TURN_STD_RAD, 1.0, 1.0], 3)
        recordings.append(Recording(toss.times_s[:frames], seen, std, start=toss.states[0]))
    free = RigidContact(system.bodies, planes=(), has_actions=False)
    step_s = float(np.median(np.diff(tosses[0].times_s)))
    return fit(free, parameters, recordings, ("gravity",) if gravity else (), max_step_s=0.5 * step_s)


def predict(system: RigidContact, parameters: Array, starts: Array, times_s: Sequence[Array]) -> Array:
    """Return the rollouts [B, G, T, 13] of G starts [G, 13] (or [B, G, 13]) under parameters [B, P]; all in one batch.

    times_s: of each toss; a shorter one than the longest goes on in its last steps.
    """
    many, count, steps = len(parameters), len(times_s), max(len(t) for t in times_s) - 1
    dt_s = np.array([np.append(np.diff(t), np.full(steps + 1 - len(t), t[-1] - t[-2])) for t in times_s])
    longest = _STABLE * min(system.longest_step_s(row) for row in parameters)
    substeps = int(np.ceil(dt_s.max() / longest))
    rows = np.repeat(parameters, count, axis=0)
    first = np.broadcast_to(starts, (many, count, 13)).reshape(-1, 13)
    controls = np.zeros((many * count, steps, len(system.control_names)))
    states = simulate(system, first, controls, rows, np.tile(dt_s, (many, 1)), substeps=substeps)
    return states.reshape(many, count, steps + 1, 13)


def misses(states: Array, tosses: Sequence[Toss]) -> Array:
    """Return how far rollouts [B, G, T, 13] stay from the recordings, [B, G].

    Means of logarithms: a body that comes to lie elsewhere counts for little more than one a few centimetres off.
    """
    found = np.zeros(states.shape[:2])
    for g, toss in enumerate(tosses):
        there = states[:, g, : len(toss.times_s)]
        far = np.linalg.norm(there[..., :3] - toss.states[:, :3], axis=-1)
        seen = np.broadcast_to(toss.states[:, 3:7], (*there.shape[:2], 4))
        turned = geometry.angle_between(there[..., 3:7], seen)
        found[:, g] = (np.log1p((far / NEAR_M) ** 2) + np.log1p((turned / NEAR_RAD) ** 2)).mean(axis=1)
    return found


def fit_contact(
    system: RigidContact,
    parameters: Parameters,
    tosses: Sequence[Toss],
    starts: Array,
    *,
    size: int = 40,
    generations: int = 8,
    seed: int = 0,
) -> ContactFit:
    """Return the contact of one body with the planes from tosses and their first states [G, 13] (`flights`),
    has_actions=False.

    mu, the dashpot, stiffness and the slope of friction at rest are searched over three decades and more; mass, inertia
    and gravity are as given.
    """
    mass, step_s = parameters["mass"].value, float(np.median(np.diff(tosses[0].times_s)))
    # a contact that lasts a frame has half a period of a mass on a spring, m (pi / dt)^2: from 1/200 to 2 of that
    frame = mass * (np.pi / step_s) ** 2
    lower = np.log([0.01, 0.02, 5e-3 * frame, 5e-3 * mass / step_s])
    upper = np.log([2.0, 3.0, 2.0 * frame, 20.0 * mass / step_s])
    centre = np.log([0.3, 0.5, 0.1 * frame, mass / step_s])
    times = [toss.times_s for toss in tosses]

    def costs(samples: Array) -> Array:
        rows = np.array([_with(parameters, sample).vector for sample in samples])
        return misses(predict(system, rows, starts, times), tosses)

    rng = np.random.default_rng(seed)
    found = search(costs, centre, _SPREAD, lower, upper, rng, size=size, generations=generations)
    fitted = _with(parameters, found.best)
    again = found.resampled(_AGAIN, rng)
    masses = impact_masses(system, parameters, tosses)
    return ContactFit(fitted, _estimates(system, parameters, masses, found.best, again, (lower, upper)), found)


def impact_masses(system: RigidContact, parameters: Parameters, tosses: Sequence[Toss]) -> Array:
    """Return the mass [G] kg that the first point to touch feels along the normal: 1 / (1/m + (r x n) J^-1 (r x n))."""
    shape = system.bodies[0]
    inertia = np.array([parameters[f"inertia_{axis}"].value for axis in ("xx", "yy", "zz")])
    found = []
    for toss in tosses:
        frame = min(flight_frames(system, toss), len(toss.times_s) - 1)
        state = toss.states[frame]
        arms = geometry.rotate(state[3:7], shape.points)
        heights = (state[:3] + arms) @ system.planes[:, :3].T - system.planes[:, 3]
        point, plane = np.unravel_index(int(heights.argmin()), heights.shape)
        lever = np.cross(arms[point], system.planes[plane, :3])
        turning = geometry.rotate(geometry.quat_conjugate(state[3:7]), lever)
        found.append(1.0 / (1.0 / parameters["mass"].value + float((turning**2 / inertia).sum())))
    return np.array(found)


def restitution(system: RigidContact, parameters: Parameters, masses: Array) -> float:
    """Return the rebound over approach speed of a point that feels these masses [G], the median."""
    values = [system.restitution(parameters.with_values({"mass": float(m)}).vector) for m in masses]
    return float(np.median(values))


def _with(parameters: Parameters, sample: Array) -> Parameters:
    mu, ratio, k_e, k_f = (float(v) for v in np.exp(sample))
    k_d = 2.0 * ratio * np.sqrt(k_e * parameters["mass"].value)
    return parameters.with_values({"mu": mu, "k_e": k_e, "k_d": k_d, "k_f": k_f}, source="fitted")


def _estimates(
    system: RigidContact,
    parameters: Parameters,
    masses: Array,
    best: Array,
    again: Array,
    bounds: tuple[Array, Array],
) -> dict[str, Estimate]:
    def bounce(sample: Array) -> float:
        return restitution(system, _with(parameters, sample), masses)

    values = {"mu": np.exp(again[:, 0]), "restitution": np.array([bounce(row) for row in again])}
    middle = {"mu": float(np.exp(best[0])), "restitution": bounce(best)}
    found = {}
    for name, drawn in values.items():
        low, high = np.quantile(drawn, [0.025, 0.975])
        found[name] = Estimate(name, "1", middle[name], (float(low), float(high)), True)
    for name, column, unit in (("k_e", 2, "N/m"), ("k_f", 3, "N s/m")):
        low, value = float(np.exp(np.quantile(again[:, column], 0.05))), float(np.exp(best[column]))
        at_bound = bool(np.isclose(best[column], bounds[0][column]) or np.isclose(best[column], bounds[1][column]))
        found[name] = Estimate(name, unit, value, (low, np.inf), False, at_bound)
    return found
