"""Logged Crazyflie flights: the mass from recorded heights and the commanded thrust, and what that thrust is worth.

A body under a known force: height over time, the thrust that the controller asked for along the recorded body axis, and
gravity. Sideways motion is left out: an attitude that is off by a degree moves it by half a metre in two seconds, and
height by nothing. What is fitted is the mass that the commanded thrust would carry; over the mass on the scales it is
the inverse of the thrust's scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student_t

from benchmarks.recorded.rows import Rows, estimate, fitted, number
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.errors import InputError
from vid2phys.io.table import numbers, split_csv
from vid2phys.solvers.problem import Knots, effective_actions
from vid2phys.solvers.recorded import RecordedFit, Recording, fit
from vid2phys.types import Actions, Array, Estimate

CASE, SYSTEM, SOURCE = "crazyflie", "rigid_contact", "crazyflie_flights"
STATED_KG = {"log203": 0.0419, "log183": 0.032}  # by the controller's settings
WINDOW_S = 1.0
LONGEST_GAP_S = 0.1
HEIGHT_STD_M = 1e-3  # the log's digits
GRAVITY = 9.81
LAGS_S = (0.0, 0.05, 0.1, 0.2)  # of motors behind commands, the clocks' difference with it
_COLUMNS = ("t_s", "locSrv.x", "locSrv.y", "locSrv.z", "ctrlLee.rpyx", "ctrlLee.rpyy", "ctrlLee.thrustSI", "acc.z")


@dataclass(frozen=True)
class Log:
    """times_s [N] of the onboard log; height [N] m as last received; upright [N], the body axis' vertical part; thrust
    [N] N as commanded; specific_force [N] m/s^2 along the body axis; fresh [N]: a position was received."""

    times_s: Array
    height: Array
    upright: Array
    thrust: Array
    specific_force: Array
    fresh: Array


def load(path: Path) -> Log:
    """Return a log with the columns of crazyswarm2's. Raises InputError for one without."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    names = split_csv(header)
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise InputError(f"'{path}' has no {', '.join(missing)}", f"columns {', '.join(_COLUMNS)}")
    kept = [split_csv(line) for line in lines if line.strip()]
    t, x, y, z, roll, pitch, thrust, acc = numbers(
        path, kept, [names.index(name) for name in _COLUMNS], np.arange(2, len(kept) + 2)
    ).T
    fresh = np.concatenate([[0.0], (np.abs(np.diff([x, y, z], axis=1)).sum(axis=0) > 0.0).astype(float)])
    return Log(t, z, np.cos(roll) * np.cos(pitch), thrust, acc * GRAVITY, fresh)


def windows(log: Log, lag_s: float) -> list[Recording]:
    """Return the stretches of a second, each with a first height and speed of its own; gaps in the log end one."""
    system = body()
    actions = Actions(log.times_s, (log.thrust * log.upright)[:, None], "other", ("lift",), ("N",))
    received = np.flatnonzero(log.fresh > 0.0)
    times, height = log.times_s[received], log.height[received]
    cuts, first = [], 0
    for i in range(1, len(times)):
        gap = times[i] - times[i - 1] > LONGEST_GAP_S
        if gap or times[i] - times[first] > WINDOW_S:
            cuts.append((first, i))
            first = i
    found = []
    unsure = np.zeros(12)
    unsure[[2, 8]] = np.inf
    for begin, end in cuts:
        if times[end - 1] - times[begin] < 0.8 * WINDOW_S:
            continue
        there = times[begin:end]
        seen, start = np.full((len(there), 13), np.nan), system.rest_state()
        seen[:, 2] = height[begin:end]
        start[2], start[9] = height[begin], np.polyfit(there[:10], height[begin : begin + 10], 1)[0]
        controls = np.zeros((len(there) - 1, len(system.control_names)))
        controls[:, 2] = effective_actions(actions, Knots.of(there, np.inf), 0.0, lag_s)[:, 0]
        found.append(Recording(there, seen, np.full(12, HEIGHT_STD_M), start, unsure, controls))
    return found


def body() -> RigidContact:
    """Return a free body that a force moves."""
    return RigidContact((Sphere(0.05),), planes=())


def mass_of(log: Log, lag_s: float, names: tuple[str, ...] = ("mass",)) -> RecordedFit:
    """Return the mass that the commanded thrust would carry."""
    parameters = body().parameters().with_values({"mass": float(np.median(log.thrust)) / GRAVITY, "gravity": GRAVITY})
    return fit(body(), parameters, windows(log, lag_s), names, max_step_s=0.05)


def rows(folder: Path, *, quick: bool = False) -> Rows:
    """Return the mass of each log in `folder`, beside what the accelerometer says and what is stated."""
    table: Rows = []
    for path in sorted(folder.glob("log*.csv")):
        log, case = load(path), f"{CASE} {path.stem}"
        fits = {lag: mass_of(log, lag) for lag in (LAGS_S[1:3] if quick else LAGS_S)}
        lag = min(fits, key=lambda lag: _height_rms(fits[lag]))
        found, stated = fits[lag], STATED_KG.get(path.stem)
        published = {} if stated is None else {"mass": stated}
        table += fitted(case, SYSTEM, "height and thrust", found, published)
        table.append(number(case, SYSTEM, "height and thrust", "motor_lag", lag, "s"))
        masses = [f["mass"].value for f in fits.values()]
        table.append(number(case, SYSTEM, "height and thrust", "mass over all lags tried, largest over least",
                            max(masses) / min(masses), "1"))  # fmt: skip
        table.append(number(case, SYSTEM, "height and thrust", "height_rms", _height_rms(found), "m",
                            n=len(found.residuals), window_s=WINDOW_S))  # fmt: skip
        table += _second_by_second(case, log, found, lag)
        table.append(_accelerometer(case, log, stated))
        if stated is not None:
            mass = found["mass"]
            scale = [stated / bound for bound in mass.ci95[::-1]]
            table.append(number(case, SYSTEM, "height and thrust", "true thrust over commanded, at the stated mass",
                                stated / mass.value, "1", ci95=scale))  # fmt: skip
    return table


def _height_rms(found: RecordedFit) -> float:
    off = np.concatenate([residual[:, 2] for residual in found.residuals]) * HEIGHT_STD_M
    return float(np.sqrt(np.nanmean(off**2)))


def _second_by_second(case: str, log: Log, found: RecordedFit, lag: float) -> Rows:
    """Return the mass in each second alone: a thrust that is off by a constant factor gives one, a model that misses
    something a mass that drifts.
    """
    parameters = found.parameters
    alone = [fit(body(), parameters, [window], ("mass",), max_step_s=0.05)["mass"] for window in windows(log, lag)]
    values = np.array([e.value for e in alone])
    halves = np.array_split(values, 2)
    drift = float(np.mean(halves[1]) / np.mean(halves[0]) - 1.0)
    return [
        number(case, SYSTEM, "height and thrust", "mass in each second, std over mean", float(values.std(ddof=1)
               / values.mean()), "1", n=len(values), values=[float(f"{v:.4g}") for v in values]),
        number(case, SYSTEM, "height and thrust", "mass, second half over first - 1", drift, "1"),
    ]  # fmt: skip


def _accelerometer(case: str, log: Log, stated: float | None) -> dict:  # type: ignore[type-arg]
    """Return mean thrust over mean specific force, which knows of no position: parts of a second for the interval."""
    parts = max(8, int(log.times_s[-1] / WINDOW_S))
    pairs = zip(np.array_split(log.thrust, parts), np.array_split(log.specific_force, parts), strict=True)
    masses = np.array([thrust.mean() / force.mean() for thrust, force in pairs])
    half = float(student_t.ppf(0.975, parts - 1)) * masses.std(ddof=1) / np.sqrt(parts)
    value = float(masses.mean())
    found = Estimate("mass", "kg", value, (value - half, value + half), True)
    return estimate(case, SYSTEM, "accelerometer and thrust", found, stated)
