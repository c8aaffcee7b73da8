"""Fit a MuJoCo model to known states by `mujoco.sysid`, MuJoCo's own toolbox for system identification.

Method: the toolbox's parameters, residual, least squares and intervals. The unknowns are logarithms, since all are
positive. A long motion is cut into pieces, and each piece starts from the file's state, velocities included: a rollout
through several impacts is chaotic. The optimiser begins at several values, and the lowest cost counts.

Limits: the first states are taken as exact. Intervals are those of the toolbox, from the slopes at the minimum; they
leave out how rugged the cost of a contact is, and how far other starts end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import sysid

from benchmarks.recorded.contact_fit import NEAR_M, NEAR_RAD
from vid2phys import geometry
from vid2phys.types import Array

NEEDED = {"absl": "absl-py", "colorama": "colorama", "tabulate": "tabulate"}
_SLOPE_STEP = 0.02  # of the logarithms, for slopes: over smaller steps, the cost of a contact is rugged
_CHANCE = 0.05  # that a 95 % interval misses


@dataclass(frozen=True)
class Unknown:
    """A positive parameter. begin: the first start. spread: of further starts, in logarithms. write: sets its value."""

    name: str
    unit: str
    lower: float
    upper: float
    begin: float
    write: Callable[[mujoco.MjSpec, float], None]
    spread: float = 0.6


@dataclass(frozen=True)
class Motion:
    """times_s [T] in equal steps, MuJoCo's coordinates [T, nq] and velocities [T, nv]."""

    times_s: Array
    coordinates: Array
    velocities: Array


@dataclass(frozen=True)
class Fitted:
    """names of the unknowns, the best logarithms [P], their covariance and 95 % half widths, and the fitted model."""

    names: tuple[str, ...]
    best: Array
    covariance: Array
    half: Array
    spec: mujoco.MjSpec
    unknowns: Sequence[Unknown]

    def value(self, name: str) -> float:
        """Return the value of an unknown."""
        return float(np.exp(self.best[self.names.index(name)]))

    def interval(self, name: str) -> tuple[float, float]:
        """Return its 95 % interval."""
        index = self.names.index(name)
        with np.errstate(over="ignore"):
            low, high = np.exp(self.best[index] + self.half[index] * np.array([-1.0, 1.0]))
        return float(low), float(high)

    def model(self, logarithms: Array) -> mujoco.MjModel:
        """Return the model with other values of the unknowns."""
        return sysid.apply_param_modifiers(_parameters(self.unknowns, logarithms), self.spec)

    def drawn(self, count: int) -> Array:
        """Return logarithms [count, P] drawn from the covariance, within the bounds."""
        rng = np.random.default_rng(0)
        finite = np.nan_to_num(self.covariance, posinf=1e6, neginf=-1e6)
        drawn = rng.multivariate_normal(self.best, finite, count, check_valid="ignore", method="eigh")
        return np.asarray(np.clip(drawn, *_bounds(self.unknowns)))


def missing() -> list[str]:
    """Return the packages that `mujoco.sysid` needs and that are not installed."""
    return [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]


def fit(
    spec: mujoco.MjSpec,
    unknowns: Sequence[Unknown],
    motion: Motion,
    *,
    longest_step_s: float,
    piece_s: float | None = None,
    starts: int = 1,
) -> Fitted:
    """Return the fit of `unknowns` to a motion. piece_s: how long a rollout lasts (default: as long as the motion)."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    interval_s = float(np.median(np.diff(motion.times_s)))
    substeps = int(np.ceil(interval_s / longest_step_s - 1e-6))
    spec.option.timestep = interval_s / substeps
    rows = len(motion.times_s) - 1 if piece_s is None else round(piece_s / interval_s)
    residuals = sysid.build_residual_fn(
        models_sequences=[_pieces(spec, motion, rows, substeps)],
        modify_residual=_compared(substeps),
        resample_true=False,
        n_threads=1,  # pieces are short: making and ending threads would take most of the time
    )
    fits = [_descent(_parameters(unknowns, start), residuals) for start in _starts(unknowns, starts)]
    best, slopes, off = min(fits, key=lambda each: float(np.square(np.concatenate(each[2])).sum()))
    covariance, half = sysid.calculate_intervals(off, slopes, alpha=_CHANCE)
    return Fitted(tuple(each.name for each in unknowns), best, covariance, half, spec, unknowns)


def _starts(unknowns: Sequence[Unknown], count: int) -> Array:
    begin, spread = np.array([[np.log(each.begin), each.spread] for each in unknowns]).T
    drawn = begin + spread * np.random.default_rng(0).standard_normal((count, len(begin)))
    drawn[0] = begin
    return np.asarray(np.clip(drawn, *_bounds(unknowns)))


def _bounds(unknowns: Sequence[Unknown]) -> tuple[Array, Array]:
    lower, upper = np.log([[each.lower, each.upper] for each in unknowns]).T
    return lower, upper


def _parameters(unknowns: Sequence[Unknown], logarithms: Array) -> sysid.ParameterDict:
    found = sysid.ParameterDict()
    for each, value, lower, upper in zip(unknowns, logarithms, *_bounds(unknowns), strict=True):
        found.add(sysid.Parameter(each.name, value, lower, upper, modifier=_writer(each)))
    return found


def _writer(unknown: Unknown) -> Callable[[mujoco.MjSpec, sysid.Parameter], None]:
    return lambda spec, parameter: unknown.write(spec, float(np.exp(parameter.value[0])))


def _pieces(spec: mujoco.MjSpec, motion: Motion, rows: int, substeps: int) -> sysid.ModelSequences:
    """Return pieces of `rows` rows after a first state, the last one shorter, without control."""
    model, last = spec.compile(), len(motion.times_s) - 1
    firsts = range(0, last, rows)
    states, controls, seen = [], [], []
    for first in firsts:
        end = min(first + rows, last)
        steps = np.arange((end - first) * substeps + 1) * model.opt.timestep
        states.append(sysid.create_initial_state(model, motion.coordinates[first], motion.velocities[first]))
        controls.append(sysid.TimeSeries(steps, np.zeros((len(steps), 0))))
        part = slice(first + 1, end + 1)
        seen.append(sysid.TimeSeries(motion.times_s[part] - motion.times_s[first], motion.coordinates[part], {}))
    names = [str(first) for first in firsts]
    return sysid.ModelSequences("body", spec, names, states, controls, seen, allow_missing_sensors=True)


def _compared(substeps: int) -> sysid.ModifyResidualFn:
    """Return the residual of a piece: errors of coordinates, of a free body in units of NEAR_M and NEAR_RAD."""

    def compared(params, predicted, measured, model, return_all, *, state):  # type: ignore[no-untyped-def]
        found = state[substeps - 1 :: substeps, 1 : 1 + model.nq]
        return _apart(measured.data, found).ravel(), measured, measured

    return compared


def _apart(seen: Array, found: Array) -> Array:
    if seen.shape[1] != 7:
        return found - seen
    rotation = geometry.quat_multiply(geometry.quat_conjugate(seen[:, 3:]), found[:, 3:])
    far, turned = found[:, :3] - seen[:, :3], geometry.rotvec_from_quat(rotation)
    return np.concatenate([far / NEAR_M, turned / NEAR_RAD], axis=1)


def _descent(parameters: sysid.ParameterDict, residuals: Callable) -> tuple[Array, Array, list[Array]]:  # type: ignore[type-arg]
    """Return where the toolbox's default optimiser ends, with slopes and residuals there."""
    with contextlib.redirect_stdout(io.StringIO()):  # it prints each iteration, whatever `verbose` says
        found, result = sysid.optimize(parameters, residuals, verbose=False, eps=_SLOPE_STEP)
    return result.x, result.jac, residuals(result.x, found)[0]
