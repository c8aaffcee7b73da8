"""Fit springs of contact of a thrown or pushed body: stiffness, damping, friction. Contact lasts, it is no impact.

The smoothing takes contact as an unknown force. Its first state is where rollouts on springs begin. They are fitted by
shooting (`solvers.shooting`) from several stiffnesses, since an impact more or less makes a minimum of its own. The
ends that fit about as well as the best one widen the intervals. Recorded forces on the body show its mass, too.
Friction and its viscous part exchange where a body slides for a part of its way only: an unknown friction has the
likelihood along it (`solvers.likelihood_profile`) in place of the ends.

Limits: one clip; the plane and the springs that are not asked for are taken as given; recorded forces act at the centre
of mass, and without a delay.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.progress import Progress, silent
from vid2phys.engine.parallel import in_processes
from vid2phys.errors import SimulationError
from vid2phys.notes import warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.solution import Solution
    from vid2phys.types import Actions, Array, Parameters

_STIFFNESS, _FRICTION, _GRIP = "k_e", "mu", "k_f"
_SLIDE_M_S, _FRICTIONS, _TOUCHING = (0.03, 0.3, 2.0), (0.25, 0.6), 4  # starts of friction; points that touch
_STARTS = 10.0 ** np.linspace(-1.0, 1.0, 7)  # times the stiffness that is given
_SEARCH, _FINE = 0.2, 0.05  # of the longest stable step, for two: the k_e of a thrown cube is 5 % and 1 % too small
_ROUGH: dict[str, Any] = {"iterations": 15, "tolerance": 1e-3}  # of searches
_TURN = 1e-6  # of tangents, for differences


@dataclass(frozen=True)
class FittedSprings:
    """problem: with the springs as unknowns. notes: for the user. least_friction: the least mu that explains the clip
    (95 %), where it only has such a bound."""

    problem: Problem
    solution: Solution
    notes: tuple[str, ...]
    least_friction: float | None


def fits_springs(inputs: Inputs, options: FitOptions) -> bool:
    """Return whether springs of contact are asked for, or friction beside recorded forces."""
    from vid2phys.engine.systems.rigid_contact import OF_SPRINGS

    pushed = inputs.actions is not None and _FRICTION in options.fit
    return pushed or bool(set(options.fit) & set(OF_SPRINGS))


def fit_springs(
    inputs: Inputs, problem: Problem, smoothed: Solution, options: FitOptions, progress: Progress = silent
) -> FittedSprings:
    """Fit the springs of contact of a clip.

    Args:
        inputs: of the clip.
        problem: of the smoothing.
        smoothed: its solution.
        options: what is asked for.
        progress: receives the share that is done.

    Returns:
        The fit, with its solution in the axes of the mesh.

    Raises:
        SimulationError: where no start can be simulated.
    """
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.types import Parameters

    system, known = problem.system, _with_mass(inputs.known.parameters, smoothed)
    assert isinstance(system, ThrownBody)
    on_springs = system.on_springs(known.vector, has_actions=problem.actions is not None)
    parameters = Parameters(tuple(known[name] for name in on_springs.parameters().names))
    actions = None if problem.actions is None else _to_principal(system, problem.actions)
    own = replace(problem, system=on_springs, parameters=parameters, actions=actions)
    is_aligned = np.array_equal(system.shape.axes, np.eye(3))
    own = own if is_aligned else _about_principal_axes(system, own)
    parameters = own.parameters
    states = system.to_principal(smoothed.knot_states)
    progress("fitting the springs")
    begins = _stiffnesses(parameters)
    ends = _searched(own, begins, states)
    if not ends:
        raise SimulationError(f"none of {len(begins)} stiffnesses could be simulated", "a start nearer to the truth")
    if grips := _grips(min(ends, key=lambda end: end.loss).parameters):
        progress("fitting the friction")
        ends += _searched(own, grips, states)
    progress("fitting the springs in short steps")
    found, least = _best(own, ends)
    values = {name: found.parameters[name].value for name in parameters.free_names}
    fitted = known.with_values(values, source="fitted")
    solution = replace(_in_mesh_axes(system, found), parameters=fitted)
    notes = _notes(parameters, per_kilogram=inputs.known.per_kilogram)
    if actions is not None and not is_aligned:
        notes.append("moments of inertia are about the principal axes of the mesh, in its order of axes")
    if least is not None:
        notes.append(f"mu is at least {least:.2g} (95 %): the body slides too slowly for an upper bound")
    return FittedSprings(replace(problem, parameters=fitted), solution, tuple(notes), least)


def _searched(problem: Problem, begins: Sequence[Parameters], states: Array) -> list[Solution]:
    """Return the ends of fits from several parameters and states [T, 13], so far as these can be simulated."""
    shares = _horizons(problem)

    def shot(begin: Parameters) -> Solution | None:
        return _shot(replace(problem, parameters=begin), states, _SEARCH, shares=shares, **_ROUGH)

    return [end for end in in_processes(shot, begins) if end is not None]


def _horizons(problem: Problem) -> list[float]:
    """Return the shares of a clip to which a search fits in turn: those from its last push on.

    Before it nothing shows the mass, which would run away.
    """
    from vid2phys.solvers.shooting import SHARES

    if problem.actions is None:
        return list(SHARES)
    times_s, pushed = problem.observation.times_s, problem.actions.values.any(axis=1)
    last_s = problem.actions.times_s[pushed].max(initial=times_s[0])
    least = float((last_s - times_s[0]) / (times_s[-1] - times_s[0]))
    return [share for share in SHARES if share > least] or [1.0]


def _stiffnesses(parameters: Parameters) -> list[Parameters]:
    """Return starts of the stiffness about the given one; the parameters alone where it is known."""
    if not parameters[_STIFFNESS].free:
        return [parameters]
    given = parameters[_STIFFNESS].value
    return [parameters.with_values({_STIFFNESS: given * float(factor)}, source="default") for factor in _STARTS]


def _grips(found: Parameters) -> list[Parameters]:
    """Return starts of friction where its viscous part is unknown: it slides from several speeds on.

    Below that speed the ground grips by `k_f`, above it by `mu`: a fit that begins on one side hardly finds the other.
    """
    if not found[_GRIP].free:
        return []
    weight = found["mass"].value * found["gravity"].value / _TOUCHING
    pairs = itertools.product(_SLIDE_M_S, _FRICTIONS if found[_FRICTION].free else (found[_FRICTION].value,))
    return [found.with_values({_GRIP: mu * weight / speed, _FRICTION: mu}, source="default") for speed, mu in pairs]


def _with_mass(known: Parameters, smoothed: Solution) -> Parameters:
    """Return the parameters with mass and inertia where the smoothing found them, so far as these are unknown."""
    from vid2phys.commands.fit_parameters import INERTIA

    found = {name: smoothed.parameters[name].value for name in ("mass", *INERTIA) if known[name].free}
    return known.with_values(found, source="default")


def _about_principal_axes(system: ThrownBody, problem: Problem) -> Problem:
    """Return the problem with the inertia of the mesh about its principal axes, where these are not its own axes.

    A spread of an inertia about that of the mesh stays as it is.
    """
    from vid2phys.commands.fit_parameters import INERTIA

    moments = problem.parameters["mass"].value * np.asarray(system.shape.inertia_per_mass)
    values = dict(zip(INERTIA, moments.tolist(), strict=True))
    priors = {
        name: (float(np.log(values[name])), problem.priors[name][1]) for name in INERTIA if name in problem.priors
    }
    parameters = problem.parameters.with_values(values, source="mesh")
    return replace(problem, parameters=parameters, priors=problem.priors | priors)


def _to_principal(system: ThrownBody, actions: Actions) -> Actions:
    """Return forces along the world's axes, and torques about the principal axes in place of those of the mesh."""
    values = actions.values.copy()
    values[:, 3:6] = values[:, 3:6] @ system.shape.axes
    return replace(actions, values=values)


def _shot(problem: Problem, states: Array, share: float, **how: Any) -> Solution | None:
    """Return the fit from states [T, 13], None where there is none.

    share: of the longest stable step. how: as `shooting.solve_clips` takes it.
    """
    from vid2phys.solvers import shooting

    step_s = share * problem.system.longest_step_s(problem.parameters.vector)
    try:
        return shooting.solve(replace(problem, max_step_s=min(problem.max_step_s, step_s)), states[:1], **how)
    except SimulationError:
        return None


def _best(problem: Problem, ends: Sequence[Solution]) -> tuple[Solution, float | None]:
    """Return the best of several ends, refined, and the least friction. Its intervals hold all that is likely, too.

    The refinement keeps the whole clip. Where that does not converge, the horizon grows once more.
    """
    from vid2phys.solvers import likelihood_profile

    best = min(ends, key=lambda end: end.loss)
    from_best = replace(problem, parameters=best.parameters)
    refined = _shot(from_best, best.states, _FINE, shares=(1.0,))
    if refined is None or not refined.converged:
        tried = [each for each in (refined, _shot(from_best, best.states, _FINE)) if each is not None]
        refined = min(tried, key=lambda each: each.loss, default=best)
    begin, profile = refined.states, None

    def fixed(parameters: Parameters) -> Solution | None:
        return _shot(replace(problem, parameters=parameters), begin, _SEARCH, shares=(1.0,))

    if refined.parameters[_FRICTION].free:
        profile = likelihood_profile.along(problem, refined, _FRICTION, fixed)
    if profile is None:
        return replace(refined, theta_covariance=refined.theta_covariance + _spread(ends)), None
    if profile.least is not None:  # no interval about the value
        of_friction = np.array([[float(name == _FRICTION) for name in refined.theta_names]])
        refined = replace(refined, null_directions=np.vstack([refined.null_directions, of_friction]))
    return replace(refined, theta_covariance=profile.covariance), profile.least


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
    controls = np.zeros((len(states) - 1, len(system.control_names)))
    controls[:, : solution.controls.shape[1]] = solution.controls
    controls[:, 3:6] = controls[:, 3:6] @ system.shape.axes.T
    return replace(
        solution,
        states=states,
        covariance=covariance,
        knot_states=system.from_principal(solution.knot_states),
        controls=controls,
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
