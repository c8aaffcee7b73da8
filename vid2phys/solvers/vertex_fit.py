"""Fit few parameters of a body of vertices to the contours of a whole clip, and state how well the clip shows them.

Method: the motion is one rollout from a known shape, with a common velocity of all free vertices. Gauss-Newton steps by
differences of rollouts (`rollout_fit`) alternate with new lines across the contours. The horizon grows over the clip:
where all frames so far fit, the next edge is within reach. Several starts compete at first. Intervals follow from the
scatter of the scores of blocks of frames (cluster-robust covariance: Liang and Zeger, "Longitudinal data analysis using
generalized linear models", Biometrika 1986), since errors are correlated along a contour and in adjacent frames.

Limits: blocks are as long as an error lasts at most if there shall be a dozen of them; contours do not show motion
within the silhouette.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vid2phys.engine.contour_lines import ContourLines
from vid2phys.engine.replay import MOST_NUMBERS
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems._particles import VertexBody
from vid2phys.errors import SimulationError
from vid2phys.solvers import arrow
from vid2phys.solvers.least_squares import STUDENT_DOF
from vid2phys.solvers.rollout_fit import BatchedMotionLoss, Prior, solve
from vid2phys.types import Array, Parameter, Parameters

START_VELOCITY = tuple(Parameter(f"start_velocity_{axis}", "m/s", 0.0, -100.0, 100.0) for axis in "xyz")
_FIRST_FRAMES, _GROWTH = 3, 1.5  # of the horizon
_REACHES, _LAST_REACHES = (0.15, 0.08), (0.06, 0.04, 0.04, 0.04)  # of lines, shares of the body's size
_FACTOR = 3.0  # between starts
_PRIOR_UNITS = 1.5  # standard deviation of starts while the horizon grows
_STEPS = 3  # of Gauss-Newton for each set of lines
_LEAST_SHARE = 1e-9  # of the covariance of independent lines
_LEAST_BLOCKS = 12
_MOST_SUBSTEPS = 2**12  # between two frames: stiffer bodies take hours
_FINER, _ALWAYS = 8, 64  # times as many substeps as the given values need, and so many, may be tried
_CHUNK = 8  # intervals that are recorded at once
_DIFFERENCE = 1e-3
_CHANGED, _TOLERATED = 0.05, 0.2  # by the last lines, in units or standard deviations, of a fit that has converged
_MESH_STEPS = 2
_MESH_ERROR = 1.0 / 3.0  # standard deviation of what still finer meshes change: errors go with the square of an edge


class Frames(Protocol):
    """Frames of a clip: see `tracking.vertex_contours.VertexFrames`."""

    def lines(self, positions: Array, reach_share: float) -> ContourLines | None:
        """Return lines across the contours of a motion."""

    def overlaps(self, positions: Array) -> Array:
        """Return the overlap of silhouette and foreground of each frame."""

    def learn(self, positions: Array, rows: Sequence[int]) -> None:
        """Learn colours from a motion."""


@dataclass(frozen=True)
class Started:
    """Rollouts of a body from its shape at rest. parameters: of the system, then `START_VELOCITY`."""

    system: VertexBody
    parameters: Parameters
    times_s: Array

    def states(self, values: Array, frames: int) -> Array:
        """Return states [B, F, 6 V] of the first frames, by free parameters [B, U] in solver coordinates.

        Raises SimulationError where they do not stay finite, and where steps would be too short.
        """
        rows = np.stack([self.parameters.fitted_at(row).vector for row in values])
        own, velocity = rows[:, : -len(START_VELOCITY)], rows[:, -len(START_VELOCITY) :]
        moving = velocity[:, None] * self.system.free[:, None]
        starts = self.system.state(np.broadcast_to(self.system.rest_m, moving.shape), moving)
        steps = np.diff(self.times_s[:frames])
        substeps = self._substeps(own)
        if substeps > self._most_substeps:
            got = f"{substeps} steps between two frames"
            raise SimulationError(got, f"at most {self._most_substeps}", "give a smaller stiffness or damping")
        chunk = min(max(1, MOST_NUMBERS // (starts.size * substeps)), _CHUNK)
        parts = [starts[:, None]]
        for first in range(0, len(steps), chunk):  # rollouts of one shape are recorded once and replayed
            part = np.resize(steps[first : first + chunk], chunk)
            controls = np.zeros((len(rows), chunk, len(self.system.control_names)))
            rolled = simulate(self.system, parts[-1][:, -1], controls, own, part, substeps=substeps)
            parts.append(rolled[:, 1 : 1 + len(steps) - first])
        return np.concatenate(parts, axis=1)

    @cached_property
    def _most_substeps(self) -> int:
        """Return how many substeps may be tried: steps of a descent that leap far ahead would take hours."""
        own = self.parameters.vector[None, : -len(START_VELOCITY)]
        return min(_MOST_SUBSTEPS, max(_ALWAYS, _FINER * self._substeps(own)))

    def _substeps(self, own: Array) -> int:
        """Return the substeps between two frames by parameters [B, P] of the system: few different numbers."""
        longest = self.system.step_share * min(self.system.longest_step_s(row) for row in own)
        return int(np.exp2(np.ceil(2.0 * np.log2(max(2.0, np.diff(self.times_s).max() / longest))) / 2.0)) + 1

    def positions(self, values: Array, frames: int) -> Array:
        """Return places [F, V, 3] m of the first frames, by free parameters [U]."""
        return self.system.positions(self.states(values[None], frames)[0])


class _Loss(BatchedMotionLoss):
    """Distances from the edges, those that disagree weighted down as by Student's t."""

    def __init__(self, system: VertexBody, lines: ContourLines, positions: Array) -> None:
        self._system, self._lines = system, lines
        off = lines.residuals(positions[None])[0]
        self.scale = np.sqrt((STUDENT_DOF + 1.0) / (STUDENT_DOF + off**2))

    def batched_residuals(self, motions: Tensor) -> Tensor:
        """See `rollout_fit.MotionLoss.batched_residuals`; not differentiable."""
        return torch.from_numpy(self.scale * self._lines.residuals(self._system.positions(motions.numpy())))


@dataclass(frozen=True)
class VertexFit:
    """The optimum.

    values: [U] of free parameters in solver coordinates, which a finer mesh moved by `moved` [U]. states: [F, 6 V].
    covariance [U, U] and null_directions [*, U]. degrees: of freedom. lines: at the optimum. misfit: RMS of their
    residuals, and distance_px of the distances. overlaps: [F].
    """

    values: Array
    moved: Array
    states: Array
    covariance: Array
    null_directions: Array
    degrees: float
    lines: ContourLines
    misfit: float
    distance_px: float
    overlaps: Array
    rounds: int
    converged: bool


def fit(
    started: Started,
    finer: Started | None,
    frames: Frames,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> VertexFit:
    """Return the best fit.

    finer: the same on a finer mesh, whose first vertices are those of the body. It corrects the fit. None for a body
    without a finer mesh.

    Raises SimulationError when no start can be simulated to the end of the clip.
    """
    count, candidates, reason = len(started.times_s), _starts(started.parameters), ""
    horizons = _horizons(count)
    for n, horizon in enumerate(horizons):
        progress(n, len(horizons) + 1)
        found = list[tuple[float, Array]]()
        for start in candidates:
            try:
                values = start
                for reach in _REACHES:
                    values = _round(started, frames, values, horizon, reach, start)
                found.append((-float(frames.overlaps(started.positions(values, horizon)).mean()), values))
            except SimulationError as error:
                reason = reason or f": {error.got}"
        if not found:
            got = f"no start follows the clip{reason}"
            raise SimulationError(got, "a motion that stays finite", "start nearer with --set")
        found.sort(key=lambda pair: pair[0])
        kept = max(1, len(found) // 2) if horizon > 4 * _FIRST_FRAMES else len(found)
        candidates = [values for _, values in found[:kept]]
        frames.learn(started.positions(candidates[0], horizon), range(horizon))
    return _finished(started, finer, frames, candidates[0])


def _finished(started: Started, finer: Started | None, frames: Frames, values: Array) -> VertexFit:
    """Return the fit to all frames, from values [U] near it."""
    count, rounds, system = len(started.times_s), 0, started.system
    for reach in _LAST_REACHES:
        before, rounds = values, rounds + 1
        values = _round(started, frames, values, count, reach, None)
        change, units = np.abs(values - before), _units(started.parameters, values)
        if (change < _DIFFERENCE * units).all():
            break
    states, moved = started.states(values[None], count)[0], np.zeros(len(values))
    positions = system.positions(states)
    lines = frames.lines(positions, _LAST_REACHES[-1])
    assert lines is not None
    loss = _Loss(system, lines, positions)
    residuals, jacobian = _linear(started, loss, values, count)
    null, degrees = robust_covariance(residuals, jacobian, lines.frame, count)
    tolerated = np.maximum(_CHANGED * units, _TOLERATED * np.sqrt(np.diagonal(null.covariance)))
    if finer is not None:
        states, moved = _on_finer_mesh(started, finer, loss, values, jacobian)
    positions = system.positions(states)
    off = lines.residuals(positions[None])[0]
    return VertexFit(
        values=values + moved,
        moved=moved,
        states=states,
        covariance=null.covariance + np.diag((_MESH_ERROR * moved) ** 2),
        null_directions=null.directions,
        degrees=degrees,
        lines=lines,
        misfit=float(np.sqrt(np.mean((loss.scale * off) ** 2))),
        distance_px=float(np.sqrt(np.mean((off * lines.std) ** 2))),
        overlaps=frames.overlaps(positions),
        rounds=rounds,
        converged=bool((change < tolerated).all()),
    )


def _on_finer_mesh(
    started: Started, finer: Started, loss: _Loss, values: Array, jacobian: Array
) -> tuple[Array, Array]:
    """Return states [F, 6 V] of the body's vertices on the finer mesh, and by how much [U] it moves the optimum.

    Gauss-Newton steps with its residuals, and with slopes [L, U] of the body's own mesh.
    """
    system, moved = started.system, np.zeros(len(values))
    gain = arrow.parameter_covariance(jacobian.T @ jacobian).covariance @ jacobian.T
    for last in (*[False] * _MESH_STEPS, True):
        full = finer.states((values + moved)[None], len(started.times_s))[0]
        kept = len(system.rest_m)
        states = system.state(finer.system.positions(full)[:, :kept], finer.system.velocities(full)[:, :kept])
        if not last:
            off = loss.batched_residuals(torch.from_numpy(states[None])).numpy()[0]
            moved = np.clip(values + moved - gain @ off, *started.parameters.free_bounds) - values
    return states, moved


def robust_covariance(
    residuals: Array, jacobian: Array, frame: NDArray[np.int64], frames: int
) -> tuple[arrow.Null, float]:
    """Return the covariance of least squares with residuals [L] that are correlated in blocks of frames, with its null
    directions, and degrees of freedom. jacobian: [L, U]. frame: [L]."""
    size = jacobian.shape[1]
    information = jacobian.T @ jacobian
    null = arrow.parameter_covariance(information, reference=np.diagonal(information))
    blocks = int(np.clip(np.sqrt(2.0 * frames), max(_LEAST_BLOCKS, size + 4), frames))
    block = frame * blocks // frames
    scores = np.stack([jacobian[block == b].T @ residuals[block == b] for b in range(blocks)])
    degrees = max(1.0, blocks - size)
    scatter = blocks / degrees * scores.T @ scores
    variance = max(1.0, float(np.mean(residuals**2)))
    floor = variance * null.covariance  # of independent lines, which no block may fall below
    covariance = null.covariance @ scatter @ null.covariance
    covariance = covariance + _LEAST_SHARE * floor  # scores of all blocks may be zero
    widen = np.sqrt(np.maximum(1.0, np.diagonal(floor) / np.maximum(np.diagonal(covariance), 1e-300)))
    return arrow.Null(covariance * np.outer(widen, widen), null.directions), float(degrees)


def _linear(started: Started, loss: _Loss, values: Array, frames: int) -> tuple[Array, Array]:
    """Return residuals [L] and their slopes [L, U] by the free parameters."""
    steps = _DIFFERENCE * np.diag(_units(started.parameters, values))
    lower, upper = started.parameters.free_bounds
    above, below = np.minimum(values + steps, upper), np.maximum(values - steps, lower)
    states = started.states(np.concatenate([values[None], above, below]), frames)
    off = loss.batched_residuals(torch.from_numpy(states)).numpy()
    size = len(values)
    return off[0], ((off[1 : 1 + size] - off[1 + size :]) / np.diagonal(above - below)[:, None]).T


def _round(started: Started, frames: Frames, values: Array, horizon: int, reach: float, start: Array | None) -> Array:
    """Return values [U] after some steps with one set of lines. start: mean [U] of a weak prior, if any."""
    positions = started.positions(values, horizon)
    lines = frames.lines(positions, reach)
    if lines is None:
        raise SimulationError("the body leaves the frame", "a body in view", "start nearer with --set")
    loss, units = _Loss(started.system, lines, positions), _units(started.parameters, values)
    prior = None if start is None else Prior(start, np.diag(1.0 / (_PRIOR_UNITS * _units(started.parameters, start))))
    found = solve(
        lambda rows: started.states(rows, horizon), loss, values[None], units, prior=prior,
        limits=started.parameters.free_bounds, iterations=_STEPS,
    )  # fmt: skip
    return found.values


def _units(parameters: Parameters, values: Array) -> Array:
    """Return changes [U] that matter about equally: of a logarithm 1, of others their value."""
    return parameters.fitted_at(values).free_units


def _starts(parameters: Parameters) -> list[Array]:
    """Return the given start, and others in which one parameter at a time is larger or smaller."""
    start = parameters.free_vector()
    found, lower, upper = [start], *parameters.free_bounds
    for j, parameter in enumerate(p for p in parameters if p.free):
        if parameter.value <= 0.0 or parameter.name in [p.name for p in START_VELOCITY]:
            continue
        for factor in (_FACTOR, 1.0 / _FACTOR):
            other = start.copy()
            other[j] = parameter.to_free(parameter.value * factor)
            found.append(np.clip(other, lower, upper))
    return found


def _horizons(count: int) -> list[int]:
    """Return numbers of frames that grow to all of them."""
    found, horizon = list[int](), float(_FIRST_FRAMES)
    while horizon < count:
        found.append(int(horizon))
        horizon *= _GROWTH
    return [*found, count]
