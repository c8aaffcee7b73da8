"""Fit friction, restitution and the ground of a body that hits a plane, after its motion was smoothed.

The smoothing takes contact as an unknown force. Its motion and the measured poses are where the fit of the impacts
begins (`solvers.impacts`). The result has the states of the rollout through the impacts.

Several clips of one body share friction and restitution (`solvers.impact_clips`); each has a ground of its own.

Limits: the mass is not determined by a throw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.progress import Progress, silent
from vid2phys.notes import doubt, warning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.solvers.impacts import Fitted
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.solution import Solution
    from vid2phys.types import Array, Estimate, Parameters

GROUND_STD = {"ground_height": 0.005, "ground_tilt_x": 0.02, "ground_tilt_y": 0.02}
"""How far the ground may be from where the camera file or the user puts it, m and rad."""
FITTED_GROUND_STD = {"ground_height": 1.0, "ground_tilt_x": 0.1, "ground_tilt_y": 0.1}
_MISFIT = 2.0  # of the residuals, in standard deviations, from which on the result is doubtful
_DISAGREE = 3.0  # chi-square per degree of freedom between clips from which on a note says so
_EARLY = 4  # intervals between frames, from the first one: impacts in these alone show no restitution
_LATE_SHARE = 0.15  # of the squares of approach speeds, below which later impacts show none either
_UNLAWFUL = 0.1  # slack of impacts from which on a note says that the law hardly holds


def without_contact(parameters: Parameters, of_impacts: tuple[str, ...]) -> Parameters:
    """Return the parameters with those of impacts fixed, for the smoothing."""
    return parameters.with_free(tuple(name for name in parameters.free_names if name not in of_impacts))


def fits_contact(inputs: Inputs, options: FitOptions) -> bool:
    """Return whether parameters of impacts are asked for."""
    return bool(set(options.fit) & set(inputs.system.capabilities.of_impacts))


def fit_impacts(
    inputs: Inputs, problem: Problem, smoothed: Solution, options: FitOptions, progress: Progress = silent
) -> tuple[Problem, Fitted]:
    """Fit the impacts of a clip.

    Args:
        inputs: of the clip.
        problem: of the smoothing.
        smoothed: its solution.
        options: what is asked for.
        progress: receives the share that is done.

    Returns:
        The problem with the parameters of impacts and ground, and the fit.
    """
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.solvers import impacts
    from vid2phys.solvers.frame_poses import FramePoses

    system = problem.system
    assert isinstance(system, ThrownBody)
    progress("fitting the impacts")
    hidden = _hidden_axes(inputs)
    poses = FramePoses.of(problem, smoothed.states, hidden)
    known = inputs.known.parameters
    # a world that begins where the body was first seen does not know its ground
    asked = options.fit if inputs.camera_estimate is None else (*options.fit, *GROUND_STD)
    parameters, priors = with_ground(system, known, problem.priors, asked, poses.states)
    whole = replace(problem, parameters=parameters, priors=priors)
    names = parameters.free_names
    fitted = impacts.fit(
        *(system, parameters, poses, problem.observation.times_s, without_hidden(smoothed.states, hidden)),
        lambda theta: whole.prior(names, theta),
        lambda share: progress("fitting the impacts", round(100 * share), 100),
        hidden,
    )
    return replace(whole, parameters=fitted.parameters), _without_early(fitted)


def _are_early(fitted: Fitted) -> bool:
    """Return whether a free restitution follows from impacts in the first frames alone, or from much slower ones.

    A body that slides from the start has none: an error of its first pose makes it fall on the ground.
    """
    contacts = fitted.contacts
    speeds = np.where(contacts.impacts > 0, contacts.approach_m_s, 0.0).max(axis=0)
    late, every = (float((each**2).sum()) for each in (speeds[_EARLY:], speeds))
    return "restitution" in fitted.parameters.free_names and every > 0.0 and late < _LATE_SHARE * every


def _without_early(fitted: Fitted) -> Fitted:
    """Return the fit, which does not determine a restitution that follows from the first frames alone."""
    known = not _are_early(fitted) or "restitution" in fitted.unknown
    return fitted if known else replace(fitted, unknown=(*fitted.unknown, "restitution"))


def joint_impacts(fits: Sequence[Fitted], fit: Sequence[str]) -> tuple[list[Fitted], list[str]]:
    """Return the fits of several clips at the values that the clips share, and notes on how well the clips agree.

    fit: what is asked for. The ground is each clip's own.
    """
    from vid2phys.solvers.impact_clips import joined

    shared = [name for name in fit if not name.startswith("ground")]
    fits, joint = joined(fits, shared)
    if joint.disagreement <= _DISAGREE:
        return fits, []
    got = f"fits of single clips differ by {np.sqrt(joint.disagreement):.1f} times their deviations"
    return fits, [warning(f"{got} ({', '.join(joint.names)}): the joint intervals grow by as much")]


def impacts_report(fitted: Fitted, times_s: Array) -> dict[str, Any]:
    """Return what `result.json` reports of the impacts of a clip; times_s: [F] of its frames."""
    return {
        "impacts": _listed(fitted, times_s),
        "departure_from_the_law": fitted.slack_std,
        "misfit": fitted.misfit,
    }


def _hidden_axes(inputs: Inputs) -> Array:
    """Return axes [A, 3] of the body, rotations about which do not show."""
    from vid2phys.risp.shape.symmetry import axes_of_revolution

    if inputs.mesh.texture is not None or inputs.shape is None:
        return np.zeros((0, 3))
    mesh = inputs.mesh if inputs.untrained is None else replace(inputs.mesh, part_names=())
    axes = np.asarray(axes_of_revolution(mesh)).reshape(-1, 3)
    return np.eye(3) if len(axes) > 1 else axes


def without_hidden(states: Array, hidden: Array) -> Array:
    """Return states [F, 13] that do not rotate about the hidden axes [A, 3] of the body."""
    states = states.copy()
    if len(hidden) == 3:
        states[:, 3:7] = (1.0, 0.0, 0.0, 0.0)
    states[:, 10:13] -= states[:, 10:13] @ hidden.T @ hidden
    return states


def with_ground(
    system: ThrownBody,
    parameters: Parameters,
    priors: Mapping[str, tuple[float, float]],
    fit: Sequence[str],
    poses: Array,
) -> tuple[Parameters, dict[str, tuple[float, float]]]:
    """Return the parameters with the ground free where it is not given, and the priors with those of the ground.

    fit: what is asked for. With `ground_height`, the ground begins at the lowest points of the poses [G, 13].
    """
    given = {p.name for p in parameters if p.source == "given"}
    own = tuple(name for name in GROUND_STD if name not in given)
    free = tuple(dict.fromkeys((*parameters.free_names, *own)))
    if "ground_height" in fit and "ground_height" not in given:
        lowest = float(np.quantile(system.clearance_m(poses, parameters.vector), 0.02))
        height = parameters["ground_height"].value + lowest
        parameters = parameters.with_values({"ground_height": height}, source="default")
    of_ground = {
        name: (parameters[name].value, (FITTED_GROUND_STD if name in fit else GROUND_STD)[name]) for name in own
    }
    return parameters.with_free(free), of_ground | dict(priors)


def impacts_solution(smoothed: Solution, fitted: Fitted) -> Solution:
    """Return the fit as a solution of the clip, in place of the smoothed one."""
    return replace(
        smoothed,
        states=fitted.states,
        covariance=fitted.state_covariance,
        controls=np.zeros_like(smoothed.controls),
        action_std=None,
        parameters=fitted.parameters,
        theta_names=fitted.parameters.free_names,
        theta_covariance=fitted.covariance,
        theta_parts=fitted.parts,
        theta_quantiles=None,
        null_directions=fitted.null_directions,
        iterations=fitted.minimum.iterations,
        converged=np.isfinite(fitted.minimum.cost),
        loss=fitted.minimum.cost,
        extra={"departure_from_the_law": fitted.slack_std, "misfit": fitted.misfit},
        residuals=None,
    )


def _listed(fitted: Fitted, times_s: Array) -> list[dict[str, float]]:
    """Return the impacts in the order of time, with impulses per kilogram (m/s)."""
    contacts, impulses, stds = fitted.contacts, fitted.impulses, fitted.impulse_stds
    hit = np.flatnonzero(contacts.impacts[0] > 0)
    return [
        {
            "time_s": round(float(times_s[k] + contacts.time_s[0, k]), 6),
            "time_std_s": round(float(fitted.time_stds[k]), 6),
            "approach_m_s": round(float(contacts.approach_m_s[0, k]), 5),
            "normal_impulse_m_s": round(float(impulses[k, 0]), 5),
            "normal_impulse_std_m_s": round(float(stds[k, 0]), 5),
            "friction_impulse_m_s": round(float(impulses[k, 1]), 5),
            "friction_impulse_std_m_s": round(float(stds[k, 1]), 5),
            "count": int(contacts.impacts[0, k]),
        }
        for k in hit
    ]


def with_bound(found: tuple[Estimate, ...], bounds: Sequence[float | None]) -> tuple[Estimate, ...]:
    """Return the estimates, in which the interval of a friction that has a least value only begins there.

    bounds: least frictions of the clips, None where a clip has no such bound alone.
    """
    least = max((bound for bound in bounds if bound is not None), default=None)
    if least is None:
        return found
    return tuple(
        replace(each, ci95=(least, np.inf)) if each.name == "mu" and not each.identifiable else each for each in found
    )


def fit_notes(fitted: Fitted) -> list[str]:
    """Return what a reader must know of the fit."""
    notes: list[str] = []
    contacts = fitted.contacts
    if not (contacts.impacts > 0).any() and not (contacts.sliding_s > 0).any():
        notes.append(
            doubt(
                "the body never touches the ground: check --set ground_height, or fit it with --fit ground; no contact "
                "is determined"
            )
        )
    elif fitted.misfit > _MISFIT:
        notes.append(
            doubt(
                f"the motion through the impacts is {fitted.misfit:.1f} standard deviations off the measured poses: "
                "something else touches the body, or the ground is not where it should be (--fit ground)"
            )
        )
    if _are_early(fitted):
        notes.append(
            "all fast impacts are in the first frames: errors of the first poses look like impacts, and show no "
            "restitution"
        )
    if fitted.is_apart:
        got = f"impulses depart from the law by {100 * fitted.slack_std:.0f} %, and parts of the motion miss each other"
        remedy = "film more frames a second, or use a part with fewer impacts (--from, --to)"
        notes.append(doubt(f"no motion through these impacts joins the poses: {got}; {remedy}"))
    elif fitted.slack_std >= _UNLAWFUL:
        notes.append(
            warning(
                f"impulses depart from the law of impact by {100 * fitted.slack_std:.0f} %: the ground or the body "
                "yields, or poses are wrong near impacts"
            )
        )
    if fitted.least_friction is not None:
        notes.append(
            f"mu is at least {fitted.least_friction:.2g} (95 %): every impact ends without sliding, so that a larger "
            "mu gives the same motion"
        )
    return notes
