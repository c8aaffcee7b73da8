"""Impulses of a fitted motion over a plane, with their standard deviations.

An impulse per kilogram is the change of the velocity of the centre of mass, without that by gravity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys.types import Array, Parameters

if TYPE_CHECKING:
    from vid2phys.engine.systems.rigid_contact import ThrownBody

_LEAST_M_S = 1e-12  # change of velocity along the plane that has a direction
_STEP = 1e-4  # of central differences of the velocity, rad and m/s


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
