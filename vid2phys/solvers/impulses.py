"""Impulses and times of the impacts of a fitted motion over a plane, with their standard deviations.

An impulse per kilogram is the change of the velocity of the centre of mass, without that by gravity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys.solvers.impact_problem import AXES, SIZE, ImpactProblem, Motion
from vid2phys.types import Array, Parameters

if TYPE_CHECKING:
    from vid2phys.engine.systems.rigid_contact import Contacts, ThrownBody

_LEAST_M_S = 1e-12  # change of velocity along the plane that has a direction
_STEP = 1e-4  # of central differences of the velocity, rad and m/s
_STEP_S = 1e-4  # of the difference that gives the speed of an impact
_FAR_M = 1e3  # by which the plane is lowered, so that nothing stops a flight


def impulses_of(
    system: ThrownBody, parameters: Parameters, lengths_s: Array, states: Array, slopes: Array, covariance: Array
) -> tuple[Array, Array]:
    """Return impulses [F - 1, 2] (m/s) of the intervals, along the normal and along the plane, and their deviations.

    Args:
        system: the body.
        parameters: of the system; gravity and plane count as known.
        lengths_s: [F - 1] of the intervals.
        states: [F, 13] of the frames.
        slopes: [F, 12, U], derivatives of the states in their tangent spaces by all unknowns.
        covariance: [U, U] of the unknowns.
    """
    from vid2phys.engine.systems.rigid_contact import plane

    normal, _ = plane({each.name: each.value for each in parameters})
    velocity, by_unknowns = _velocities(system, states, slopes)
    impulse = np.diff(velocity, axis=0)
    impulse[:, 2] += parameters["gravity"].value * lengths_s
    by_unknowns = np.diff(by_unknowns, axis=0)
    along = impulse - np.outer(impulse @ normal, normal)
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), _LEAST_M_S)
    axes = np.stack([np.broadcast_to(normal, along.shape), along], axis=1)
    by_unknowns = axes @ by_unknowns
    variance = np.einsum("fau,uv,fav->fa", by_unknowns, covariance, by_unknowns, optimize=True)
    return np.einsum("fax,fx->fa", axes, impulse), np.sqrt(variance)


def time_stds(
    whole: ImpactProblem, motion: Motion, contacts: Contacts, states: Array, slopes: Array, covariance: Array
) -> Array:
    """Return the standard deviation [F - 1] of the time of the first impact in each interval, s; NaN without one.

    The lowest point of the body is higher than the fit says by an error, and falls at some speed. So it touches the
    plane later by the error over the speed. Where the body touches already, another point may be the lowest one, and
    the deviation is too large.

    Args:
        whole: the problem.
        motion: its minimum.
        contacts: [1, F - 1] of the intervals.
        states: [F, 13] of the frames.
        slopes: [F, 12, U], derivatives of the states in their tangent spaces by all unknowns.
        covariance: [U, U] of the unknowns.
    """
    from vid2phys.engine.kernels.impacts_cpu import SLOW_M_S

    system, theta = whole.system, motion.theta
    time_s = contacts.time_s[0]
    hit = np.flatnonzero(np.isfinite(time_s))
    starts, flown_s = states[hit], time_s[hit]

    def heights(starts: Array, flown_s: Array, theta: Array) -> Array:
        """Return the heights [N] of the lowest points after flights that nothing stops."""
        vector = whole.vectors(theta[None])[0]
        without = vector.copy()
        without[system.parameters().names.index("ground_height")] -= _FAR_M
        vectors, slack = np.tile(without, (len(starts), 1)), np.zeros((len(starts), 1, AXES))
        flown = system.rollouts(starts, flown_s[:, None], vectors, slack)[0][:, 1]
        return system.clearance_m(flown, vector)

    by_state = np.empty((len(hit), SIZE))
    for k, move in enumerate(_STEP * np.eye(SIZE)):
        there, back = (heights(system.retract(starts, sign * move), flown_s, theta) for sign in (1.0, -1.0))
        by_state[:, k] = (there - back) / (2.0 * _STEP)
    by_unknowns = np.einsum("hk,hku->hu", by_state, slopes[hit])
    for k, move in enumerate(_STEP * np.eye(len(theta))):
        there, back = (heights(starts, flown_s, theta + sign * move) for sign in (1.0, -1.0))
        by_unknowns[:, SIZE * len(motion.nodes) + k] += (there - back) / (2.0 * _STEP)
    speed = (heights(starts, flown_s, theta) - heights(starts, flown_s + _STEP_S, theta)) / _STEP_S
    out = np.full(len(time_s), np.nan)
    variance = np.einsum("hu,uv,hv->h", by_unknowns, covariance, by_unknowns, optimize=True)
    out[hit] = np.sqrt(variance) / np.maximum(speed, SLOW_M_S)  # no impact is slower
    return out


def _velocities(system: ThrownBody, states: Array, slopes: Array) -> tuple[Array, Array]:
    """Return velocities [F, 3] of the centre of mass, and their derivatives [F, 3, U] by the unknowns."""
    size = slopes.shape[1]
    moves = _STEP * np.eye(size)
    there, back = (
        system.to_principal(system.retract(np.repeat(states, size, axis=0), np.tile(sign * moves, (len(states), 1))))
        for sign in (1.0, -1.0)
    )
    by_tangent = (there - back)[:, 7:10].reshape(len(states), size, 3) / (2.0 * _STEP)
    return system.to_principal(states)[:, 7:10], np.swapaxes(by_tangent, 1, 2) @ slopes
