"""Fit springs of contact of a thrown body: stiffness, damping, friction. Contact lasts, it is no impact.

The smoothing takes contact as an unknown force. Its first state is where rollouts on springs begin. They are fitted by
shooting (`solvers.shooting`) from several stiffnesses, since an impact more or less makes a minimum of its own. The
ends that fit about as well as the best one widen the intervals.

Limits: one clip; the plane and the springs that are not asked for are taken as given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import SimulationError
from vid2phys.notes import warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.solution import Solution
    from vid2phys.types import Array, Parameters

_STIFFNESS, _FRICTION = "k_e", "mu"
_STARTS = 10.0 ** np.linspace(-1.0, 1.0, 7)  # times the stiffness that is given
_SEARCH, _FINE = 0.2, 0.05  # of the longest stable step, for two: the k_e of a thrown cube is 5 % and 1 % too small
_TURN = 1e-6  # of tangents, for differences


def fits_springs(options: FitOptions) -> bool:
    """Return whether springs of contact are asked for."""
    from vid2phys.engine.systems.rigid_contact import OF_SPRINGS

    return bool(set(options.fit) & set(OF_SPRINGS))


def fit_springs(
    inputs: Inputs, problem: Problem, smoothed: Solution, options: FitOptions, progress: Progress = silent
) -> tuple[Problem, Solution, list[str]]:
    """Fit the springs of contact of a clip.

    Args:
        inputs: of the clip.
        problem: of the smoothing.
        smoothed: its solution.
        options: what is asked for.
        progress: receives the share that is done.

    Returns:
        The problem with the springs as unknowns, the solution in the axes of the mesh, and notes for the user.

    Raises:
        SimulationError: where no start can be simulated.
    """
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.types import Parameters

    system, known = problem.system, inputs.known.parameters
    assert isinstance(system, ThrownBody)
    on_springs = system.on_springs(known.vector)
    parameters = Parameters(tuple(known[name] for name in on_springs.parameters().names))
    own = replace(problem, system=on_springs, parameters=parameters)
    states = system.to_principal(smoothed.knot_states)
    ends = []
    factors = _STARTS if parameters[_STIFFNESS].free else np.ones(1)
    for number, factor in enumerate(factors):
        progress("fitting the springs", number, len(factors))
        begin = parameters.with_values({_STIFFNESS: parameters[_STIFFNESS].value * float(factor)}, source="default")
        found = _shot(replace(own, parameters=begin), states, _SEARCH)
        if found is not None:
            ends.append(found)
    if not ends:
        raise SimulationError(f"none of {len(factors)} stiffnesses could be simulated", "a start nearer to the truth")
    progress("fitting the springs in short steps")
    found = _best(own, ends)
    values = {name: found.parameters[name].value for name in parameters.free_names}
    fitted = known.with_values(values, source="fitted")
    solution = replace(_in_mesh_axes(system, found), parameters=fitted)
    return replace(problem, parameters=fitted), solution, _notes(parameters, per_kilogram=inputs.known.per_kilogram)


def _shot(problem: Problem, states: Array, share: float) -> Solution | None:
    """Return the fit from states [T, 13], None where there is none. share: of the longest stable step."""
    from vid2phys.solvers import shooting

    step_s = share * problem.system.longest_step_s(problem.parameters.vector)
    try:
        return shooting.solve(replace(problem, max_step_s=min(problem.max_step_s, step_s)), states[:1])
    except SimulationError:
        return None


def _best(problem: Problem, ends: Sequence[Solution]) -> Solution:
    """Return the best of several ends, refined. Its intervals hold the others as far as they are likely."""
    best = min(ends, key=lambda end: end.loss)
    refined = _shot(replace(problem, parameters=best.parameters), best.states, _FINE) or best
    return replace(refined, theta_covariance=refined.theta_covariance + _spread(ends))


def _spread(ends: Sequence[Solution]) -> Array:
    """Return the covariance [P, P] of the ends about the best one; each end counts by its likelihood."""
    from vid2phys.solvers.intervals import between_ends

    return between_ends(np.array([end.parameters.free_vector() for end in ends]), -np.array([end.loss for end in ends]))


def _in_mesh_axes(system: ThrownBody, solution: Solution) -> Solution:
    """Return a solution in principal axes as one in the axes of the mesh."""
    states = system.from_principal(solution.states)
    steps = _TURN * np.eye(len(system.tangent_names))
    moved = system.from_principal(system.retract(solution.states[:, None], steps))
    by_principal = np.swapaxes(system.local(states[:, None], moved), -1, -2) / _TURN
    covariance = by_principal @ solution.covariance @ np.swapaxes(by_principal, -1, -2)
    return replace(
        solution,
        states=states,
        covariance=covariance,
        knot_states=system.from_principal(solution.knot_states),
        controls=np.zeros((len(states) - 1, len(system.control_names))),
    )


def _notes(parameters: Parameters, *, per_kilogram: bool) -> list[str]:
    """Return what a reader must know of springs that were neither given nor fitted, and of their units."""
    from vid2phys.engine.systems.rigid_contact import OF_SPRINGS

    notes: list[str] = []
    if per_kilogram:
        notes.append(f"{', '.join(OF_SPRINGS)} are per kilogram, too")
    assumed = [p for p in parameters if p.name in (*OF_SPRINGS, _FRICTION) and not p.free and p.source == "default"]
    if assumed:
        values = ", ".join(p.with_unit(f"{p.name} = {p.value:g}") for p in assumed)
        notes.append(warning(f"{values} are assumed: with other values the fit gives another result; use --set"))
    return notes
