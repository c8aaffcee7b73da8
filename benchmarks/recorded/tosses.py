"""Recorded cube tosses: friction and restitution of twenty, and where twenty others come to rest.

Which tosses are fitted and which are foretold is drawn by a fixed seed; nothing was chosen by those that are foretold.
Free flight shows a gravity of 9.62 in the recording's units, and the cube rests 2 % lower than half its side: lengths
were recorded 2 % too small. They are corrected by the gravity of the tosses that are fitted; the height of the ground
is that on which these come to rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.recorded.contact_fit import (
    LEAST_FLIGHT,
    ContactFit,
    Toss,
    fit_contact,
    flight_frames,
    flights,
    impact_masses,
    predict,
    restitution,
)
from benchmarks.recorded.cross_entropy import Found
from benchmarks.recorded.mujoco_cube import Cube
from benchmarks.recorded.rows import Rows, estimate, median, number
from vid2phys import geometry
from vid2phys.engine.systems.rigid_contact import Box, RigidContact
from vid2phys.io.mesh import load_mesh
from vid2phys.types import Array, Estimate, Parameters

CASE, SYSTEM, SOURCE = "cube tosses", "rigid_contact", "cube_tosses"
RATE_HZ = 148.0
COUNT, SEED = 20, 0
PUBLISHED = {"mu": 0.18, "restitution": 0.125}  # of the experiment's file; the URDF says mu 0.15
DRAWS = 10  # of first states within their noise
AIM_M = 0.02


@dataclass(frozen=True)
class Experiment:
    """Cube [m, kg, kg m^2] and true gravity."""

    half: float
    mass: float
    inertia: float
    gravity: float

    @staticmethod
    def of(folder: Path) -> Experiment:
        """Return the cube of the experiment's file, whose unit of length is half the cube's side."""
        data = json.loads((folder / "contact-nets_experiment.json").read_text())
        half = float(np.abs(load_mesh(folder / "contactnets_cube.obj").vertices).max())
        return Experiment(half, data["mass"], data["inertia"] * half**2, data["g"] * half)

    def system(self) -> RigidContact:
        """Return the cube on the ground z = 0."""
        return RigidContact((Box((self.half,) * 3),), has_actions=False)

    def parameters(self) -> Parameters:
        """Return what is known."""
        moments = {f"inertia_{axis}": self.inertia for axis in ("xx", "yy", "zz")}
        return self.system().parameters().with_values({"mass": self.mass, "gravity": self.gravity, **moments})


def recorded(folder: Path) -> list[Toss]:
    """Return all tosses, in our layout of states."""
    with np.load(folder / "tosses.npz") as data:
        rows, number_of = data["state"], data["toss_id"]
    turns = geometry.quat_normalize(rows[:, :4])
    states = np.concatenate([rows[:, 4:7], turns, rows[:, 10:], rows[:, 7:10]], axis=1)
    return [_toss(states[number_of == i]) for i in np.unique(number_of)]


def _toss(states: Array) -> Toss:
    return Toss(np.arange(len(states)) / RATE_HZ, states)


def rows(folder: Path, *, quick: bool = False) -> Rows:
    """Return the rows of fits by our contact and by MuJoCo's, and how far from where they came to rest tosses are
    foretold.
    """
    experiment = Experiment.of(folder)
    system, parameters, tosses = experiment.system(), experiment.parameters(), recorded(folder)
    drawn = [tosses[i] for i in np.random.default_rng(SEED).permutation(len(tosses))]
    drawn = [toss for toss in drawn if flight_frames(system, toss) >= LEAST_FLIGHT]  # too short to tell a first state
    train, held_out, others = drawn[:COUNT], drawn[COUNT : 2 * COUNT], [] if quick else drawn[2 * COUNT :]
    table, scale, lift = _units(experiment, train)
    train, held_out, others = ([_corrected(t, scale, lift) for t in part] for part in (train, held_out, others))
    effort = {"size": 20, "generations": 3} if quick else {"size": 40, "generations": 8}
    first = flights(system, parameters, train, gravity=False)
    starts = np.array([states[0] for states in first.states])
    ours = fit_contact(system, parameters, train, starts, **effort)
    table += [estimate(CASE, SYSTEM, "ours", e, PUBLISHED.get(e.name)) for e in ours.estimates.values()]
    cube = Cube(experiment.half, experiment.mass, experiment.inertia, experiment.gravity, RATE_HZ)
    theirs = cube.fit(train, starts, **effort)
    table += _mujoco_estimates(theirs)
    table += _foretold("fitted", train, starts, system, ours, cube, theirs)
    for name, part in (("held out", held_out), ("all others", others)):
        if part:
            there = flights(system, parameters, part, gravity=False)
            begin = np.array([states[0] for states in there.states])
            table += _foretold(name, part, begin, system, ours, cube, theirs)
            if name == "held out":
                lasting = 1.0 if there.whiteness is None else there.whiteness.frames
                table.append(_noise(system, ours, part, begin, lasting * there.start_covariance))
    return table


def _units(experiment: Experiment, train: Sequence[Toss]) -> tuple[Rows, float, float]:
    """Return gravity in the recording's units, the factor to metres, and what lifts resting cubes onto the ground."""
    found = flights(experiment.system(), experiment.parameters(), train)["gravity"]
    scale = experiment.gravity / found.value
    rest = float(np.mean([toss.states[-1, 2] for toss in train]))
    table = [
        estimate(CASE, SYSTEM, "free flight", found, experiment.gravity),
        number(CASE, SYSTEM, "free flight", "recorded length over true, by gravity", 1.0 / scale, "1",
               ci95=[bound / experiment.gravity for bound in found.ci95]),
        number(CASE, SYSTEM, "at rest", "recorded height over half the side", rest / experiment.half, "1"),
    ]  # fmt: skip
    return table, scale, experiment.half - scale * rest


def _corrected(toss: Toss, scale: float, lift: float) -> Toss:
    states = toss.states.copy()
    states[:, :3] *= scale
    states[:, 7:10] *= scale
    states[:, 2] += lift
    return replace(toss, states=states)


def _mujoco_estimates(found: Found) -> Rows:
    again = np.exp(found.resampled(1000, np.random.default_rng(0)))
    table = []
    for column, (name, unit) in enumerate([("mu", "1"), ("time_constant", "s"), ("damping_ratio", "1")]):
        low, high = np.quantile(again[:, column], [0.025, 0.975])
        of_mujoco = Estimate(name, unit, float(np.exp(found.best[column])), (float(low), float(high)), True)
        table.append(estimate(CASE, SYSTEM, "mujoco", of_mujoco, PUBLISHED.get(name)))
    return table


def _foretold(
    part: str, tosses: Sequence[Toss], starts: Array, system: RigidContact, ours: ContactFit, cube: Cube, theirs: Found
) -> Rows:
    frames = max(len(toss.times_s) for toss in tosses)
    published = _published(system, ours.parameters, impact_masses(system, ours.parameters, tosses))
    table = []
    for method, values in (("ours", ours.parameters), ("ours, published mu and restitution", published)):
        states = predict(system, values.vector[None], starts, [toss.times_s for toss in tosses])
        table += _errors(part, method, states[0], tosses)
    return table + _errors(part, "mujoco", cube.predict(theirs.best, starts, frames)[0], tosses)


def _published(system: RigidContact, fitted: Parameters, masses: Array) -> Parameters:
    """Return our stiffness and the dashpot that gives the published restitution."""
    from scipy.optimize import brentq

    values = fitted.with_values({"mu": PUBLISHED["mu"]})
    critical = 2.0 * np.sqrt(values["k_e"].value * values["mass"].value)

    def off(ratio: float) -> float:
        return restitution(system, values.with_values({"k_d": ratio * critical}), masses) - PUBLISHED["restitution"]

    return values.with_values({"k_d": float(brentq(off, 1e-3, 5.0)) * critical})


def _errors(part: str, method: str, states: Array, tosses: Sequence[Toss]) -> Rows:
    """Return the distance and angle at rest, the median over tosses."""
    ends = np.array([states[g, len(toss.times_s) - 1] for g, toss in enumerate(tosses)])
    truth = np.array([toss.states[-1] for toss in tosses])
    far = np.linalg.norm(ends[:, :3] - truth[:, :3], axis=1)
    turned = np.rad2deg(geometry.angle_between(ends[:, 3:7], truth[:, 3:7]))
    share = float(np.mean(turned < 45.0))
    return [
        median(CASE, SYSTEM, method, f"distance at rest, {part}", far, "m", mean=float(far.mean()), aim=AIM_M),
        median(CASE, SYSTEM, method, f"angle at rest, {part}", turned, "deg"),
        number(CASE, SYSTEM, method, f"share on the right face, {part}", share, "1", n=len(tosses)),
    ]


def _noise(system: RigidContact, ours: ContactFit, tosses: Sequence[Toss], starts: Array, covariance: Array) -> dict:  # type: ignore[type-arg]
    """Return how far apart tosses come to rest that begin within the noise of the recorded first states."""
    rng = np.random.default_rng(SEED)
    tangents = np.stack([rng.multivariate_normal(np.zeros(12), c, DRAWS) for c in covariance], axis=1)
    moved = np.concatenate([starts[None], system.retract(starts, tangents)])
    values = np.repeat(ours.parameters.vector[None], len(moved), axis=0)
    states = predict(system, values, moved, [toss.times_s for toss in tosses])
    ends = np.stack([states[:, g, len(toss.times_s) - 1, :3] for g, toss in enumerate(tosses)], axis=1)
    apart = np.linalg.norm(ends[1:] - ends[:1], axis=-1)
    return median(CASE, SYSTEM, "noise of first states alone", "distance at rest, held out", apart.mean(axis=0), "m")
