"""A fit by a reduced body, corrected by the simulation of all its vertices.

Purpose: rollouts of thousands of vertices are too slow for a descent, and a few modes leave something out.

Method: output space mapping (Bandler et al., "Space mapping: the state of the art", IEEE Trans. MTT, 2004). The full
body is rolled out at the fitted start and parameters. The difference between its shapes and those of the reduced body
is taken from the measurements, and the reduced body is fitted again. At the end the full body's own shapes explain the
measurements.

Limits: where the full body cannot be rolled out, the fit stays that of the reduced body, and a note states so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.engine.movable.clamped import ClampedBody
from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError
from vid2phys.notes import Note, warning
from vid2phys.solvers.configuration_shooting import ConfigurationSolution, solve_clips
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Parameters

_ROUNDS = 4
_FINAL = 0.1  # of the standard deviation of a parameter, by which it may still move
_LEAST = 1e-3  # relative change that never matters
_SUBSTEPS = (2, 4, 8, 16)  # of a frame, tried one after the other; at least one a `_STEP_S`
_STEP_S = 0.005
_EULER_STEPS, _EULER_SHARE = 4, 1.0 / 32.0  # damped steps at the start, and the share of a frame that each takes


@dataclass(frozen=True)
class Corrected:
    """solutions: whose states are those of the full body. moved: by how much the correction moved each fitted
    parameter, as a share. notes: for the reader."""

    solutions: list[ConfigurationSolution]
    moved: dict[str, float]
    notes: tuple[Note, ...]


def corrected(
    problems: Sequence[Problem],
    body: ClampedBody,
    solutions: Sequence[ConfigurationSolution],
    report: Callable[[int], None] = lambda number: None,
) -> Corrected:
    """Return fits of clips [G] corrected by the full body. report: receives the number of each round."""
    first, current = solutions[0].parameters, list(solutions)
    defects: list[Array] | None = None
    for number in range(_ROUNDS):
        report(number + 1)
        try:
            found = [_defect(problem, body, one) for problem, one in zip(problems, current, strict=True)]
        except SimulationError as error:
            note = warning(f"the full mesh could not be simulated at the fitted values ({error}): a reduced model fits")
            return Corrected(_moved(current, defects), _change(first, current[0].parameters), (note,))
        defects = found
        before = current[0]
        moved = [_without(problem, each) for problem, each in zip(problems, defects, strict=True)]
        moved = [replace(each, parameters=before.parameters) for each in moved]
        current = solve_clips(moved, body, [one.start for one in current], shares=(1.0,))
        if _is_final(before, current[0]):
            break
    return Corrected(_moved(current, defects), _change(first, current[0].parameters), ())


def full_states(body: ClampedBody, start: Array, parameters: Parameters, times_s: Array) -> Array:
    """Return states [T, 6 V] of the full body at times [T] from amplitudes and rates [2 D] at the first.

    The first steps are damped, since shapes of a few modes do not balance the forces in each element. Raises
    SimulationError where shorter steps do not help.
    """
    full, values = body.system.full, body.system.full_parameters(parameters.vector)
    first = full.state(*body.system.full_motion(start))
    intervals = np.diff(times_s)
    controls = np.zeros((1, len(intervals), len(full.control_names)))
    short = np.full(_EULER_STEPS, _EULER_SHARE * intervals[0])
    long = np.concatenate([[intervals[0] - short.sum()], intervals[1:]])
    least = int(np.ceil(intervals.max() / _STEP_S))
    damped = simulate(full, first[None], controls[:, :1].repeat(_EULER_STEPS, axis=1), values, short,
                      integrator="implicit_euler")[0]  # fmt: skip
    for substeps in (n for n in _SUBSTEPS if n >= min(least, _SUBSTEPS[-1])):
        try:
            states = simulate(full, damped[-1:], controls, values, long, substeps=substeps)[0]
            return np.concatenate([first[None], states[1:]])
        except SimulationError:
            if substeps == _SUBSTEPS[-1]:
                raise
    raise AssertionError("unreachable")


def _defect(problem: Problem, body: ClampedBody, found: ConfigurationSolution) -> Array:
    """Return by how much the full body's states [T, 2 D] differ from those of the reduced one."""
    states = full_states(body, found.start, found.parameters, problem.observation.times_s)
    return body.nearest_states(states, body.configurations(found.states)) - found.states


def _without(problem: Problem, defect: Array) -> Problem:
    """Return the problem with defects [T, 2 D] taken from the measured amplitudes."""
    seen = problem.observation
    measured = seen.configuration
    assert measured is not None
    size = defect.shape[1] // 2
    rows = np.flatnonzero(measured.measured)
    amplitudes = np.array(measured.configuration, dtype=float)
    amplitudes[rows] -= defect[rows, :size]
    return replace(problem, observation=replace(seen, configuration=replace(measured, configuration=amplitudes)))


def _moved(solutions: list[ConfigurationSolution], defects: list[Array] | None) -> list[ConfigurationSolution]:
    """Return solutions with the states of the full body."""
    if defects is None:
        return solutions
    return [replace(one, states=one.states + off) for one, off in zip(solutions, defects, strict=True)]


def _is_final(before: ConfigurationSolution, after: ConfigurationSolution) -> bool:
    """Return whether no fitted parameter moved by much."""
    step = np.abs(after.parameters.free_vector() - before.parameters.free_vector())
    size = np.maximum(np.abs(after.parameters.free_vector()), 1e-12)
    is_log = np.array([p.transform == "log" for p in after.parameters if p.free], dtype=bool)
    std = np.sqrt(np.maximum(np.diagonal(after.theta_covariance), 0.0))
    return bool((step <= np.maximum(_FINAL * std, _LEAST * np.where(is_log, 1.0, size))).all())


def _change(before: Parameters, after: Parameters) -> dict[str, float]:
    return {
        name: after[name].value / before[name].value - 1.0 for name in after.free_names if before[name].value != 0.0
    }
