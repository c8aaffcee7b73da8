"""A recorded pendulum: the authors' parameters against ours, and swings that nothing was fitted to.

Their model is (m a^2 + I) q'' = m g a sin q - k q', q = 0 upright. A swing without a known torque tells m g a and
friction over the pivot's inertia only: mass, inertia and gravity stay theirs, `length` stands for the frequency.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.recorded.matlab import load_matlab
from benchmarks.recorded.rows import Rows, fitted, number
from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.solvers.recorded import RecordedFit, Recording, fit, predict
from vid2phys.types import Array, Parameters

CASE, SYSTEM = "pendulum", "pendulum"
SOURCE = "pendulums"
STRIDE = 20  # of samples at 1 kHz
STD = np.array([1e-3, 8e-3])  # the encoder's step, and a rate of the same share of a swing; their scale is fitted
AUTHORS = ("length", "mass", "inertia", "damping", "gravity")
MODELS = {
    "viscous, as the authors": ("length", "damping"),
    "dry friction and drag": ("length", "damping", "friction", "air_drag"),
}


def recorded(folder: Path, part: str) -> list[Recording]:
    """Return the segments of `id` (to fit) or `vad` (held out): angle from hanging down and rate."""
    data = load_matlab(folder / "SinglePendulumDataForParameterEstimation.mat")
    found = []
    for times, states in zip(data[f"Time_{part}"], data[f"Y_{part}"], strict=True):
        seen = states.T[::STRIDE] - [np.pi, 0.0]
        found.append(Recording(times.ravel()[::STRIDE][: len(seen)], seen, STD))
    return found


def authors(folder: Path) -> Parameters:
    """Return the authors' parameters."""
    values = load_matlab(folder / "EstimatedParameters_SinglePendulum.mat")["EstimatedParameters"].ravel()
    return Pendulum().parameters().with_values(dict(zip(AUTHORS, values.tolist(), strict=True)))


def rows(folder: Path, *, quick: bool = False) -> Rows:
    """Return what is fitted, what is foretold, and why the authors' values are where they are."""
    theirs, system = authors(folder), Pendulum()
    published = {p.name: p.value for p in theirs if p.name in ("length", "damping")}
    train, held_out = recorded(folder, "id"), recorded(folder, "vad")
    table: Rows = []
    for method, names in MODELS.items():
        found = fit(system, theirs, train, names, offsets=("angle_rad",), max_step_s=STRIDE * 1e-3)
        table += fitted(CASE, SYSTEM, method, found, published if names == MODELS["viscous, as the authors"] else None)
        table.append(_angle_error("fitted_angle_rms", method, found.states, train, _zero(found)))
        offsets = {"angle_rad": found.offsets["angle_rad"].value}
        states = predict(system, found.parameters, held_out, offsets=offsets, max_step_s=STRIDE * 1e-3)
        table.append(_angle_error("foretold_angle_rms", method, states, held_out, np.zeros(1)))
    table += _of_the_authors(system, theirs, train, held_out)
    if not quick:
        table += _segment_by_segment(system, theirs, train + held_out, published)
    return table


def _zero(found: RecordedFit) -> Array:
    return np.array([found.offsets["angle_rad"].value])


def _angle_error(metric: str, method: str, states: tuple[Array, ...], seen: list[Recording], offset: Array) -> dict:  # type: ignore[type-arg]
    off = np.concatenate([s[:, 0] + offset - r.seen[:, 0] for s, r in zip(states, seen, strict=True)])
    worst = max(float(np.abs(s[:, 0] + offset - r.seen[:, 0]).max()) for s, r in zip(states, seen, strict=True))
    return number(CASE, SYSTEM, method, metric, float(np.sqrt((off**2).mean())), "rad", n=len(seen), worst=worst)


def _of_the_authors(system: Pendulum, theirs: Parameters, train: list[Recording], held_out: list[Recording]) -> Rows:
    """Return the authors' values on the same segments, with first states and the encoder's zero fitted for them, and
    from first samples as everybody else's on those held out.
    """
    found = fit(system, theirs, train, (), offsets=("angle_rad",), max_step_s=STRIDE * 1e-3)
    states = predict(system, theirs, held_out, max_step_s=STRIDE * 1e-3)
    return [
        _angle_error("fitted_angle_rms", "authors' values", found.states, train, _zero(found)),
        _angle_error("foretold_angle_rms", "authors' values", states, held_out, np.zeros(1)),
    ]


def _segment_by_segment(
    system: Pendulum, theirs: Parameters, segments: list[Recording], published: dict[str, float]
) -> Rows:
    """Return the authors' model fitted to every segment alone, over their values: constants of a pendulum would be the
    same.
    """
    table: Rows = []
    for number_of, segment in enumerate(segments, start=1):
        found = fit(system, theirs, [segment], ("length", "damping"), offsets=("angle_rad",), max_step_s=STRIDE * 1e-3)
        swing = float(np.abs(segment.seen[:, 0]).max())
        for name, value in published.items():
            low, high = (bound / value for bound in found[name].ci95)
            metric = f"{name} over the authors', segment {number_of} alone"
            table.append(number(CASE, SYSTEM, "viscous, as the authors", metric, found[name].value / value, "1",
                                ci95=[low, high], largest_angle_rad=swing))  # fmt: skip
    return table
