"""Report the motion of a body on a known base as it was measured, where neither actions nor parameters are asked for.

Motors may drive a robot in any way. So its coordinates are smoothed in time (`solvers.coordinate_smoothing`), and
no dynamics are fitted. `unlike` judges the other case, in which dynamics were fitted.

Limits: errors that last for many frames are stated, and not removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.notes import doubt, is_doubtful, ordered
from vid2phys.solvers.coordinate_smoothing import smooth_coordinates

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.types import Array, Result

MEASURED = "no --actions and no --fit: coordinates are measured and smoothed, no dynamics are fitted"
_DRIVEN = "does a motor drive it? Give --actions, or leave --fit out for the measured motion"
_HELD = "is the body held where --clamp says and free elsewhere, and is its mesh right?"
_FAR = 6.0  # RMS of fitted minus measured coordinates, standard deviations, from which on another motion was fitted


def is_measured(several: Sequence[Inputs]) -> bool:
    """Return whether nothing is asked about the dynamics of a body on a known base."""
    asked = several[0].known.parameters.free_names
    return not asked and all(inputs.actions is None for inputs in several)


def measured_motion(inputs: Inputs, tracked: ConfigurationTrack) -> Result:
    """Return the smoothed motion of a tracked robot, with its standard deviations."""
    from vid2phys.types import Result, Status, Trajectory

    body, seen = inputs.body, tracked.observation
    assert body is not None
    size, (own, lasting) = len(body.names), _errors(tracked)
    moved, covariance = smooth_coordinates(seen.times_s, tracked.configurations, own)
    covariance[:, :size, :size] += lasting
    states = body.states(moved[:, :size], moved[:, size:])
    notes = ordered([*inputs.notes, MEASURED, *tracked.notes])
    diagnostics: dict[str, object] = {
        "notes": notes,
        "lost_frames": tracked.lost_frames,
        "rms_px": None,
        "loss": None,
        "iterations": 0,
    }
    trajectory = Trajectory(seen.times_s, states, inputs.system.state_names, None, covariance)
    name = inputs.system.name
    status = Status.DOUBTFUL if is_doubtful(notes) else Status.CONVERGED
    return Result(status, "", name, (), trajectory, None, None, seen, diagnostics)


def _errors(tracked: ConfigurationTrack) -> tuple[Array, Array]:
    """Return the covariances [T, D, D] of errors of single frames, and of errors that last.

    Where only keypoints were detected, all errors count as those of single frames. Lasting ones are as much larger as
    the calibration found the amplitudes of whole clips to err, as in a fit of dynamics (`configuration_shooting`).
    """
    shown, measured = tracked.tracked, tracked.observation.configuration
    own = np.where(shown[:, None, None], tracked.covariance, np.eye(tracked.configurations.shape[1]))
    lasting = np.zeros_like(own)
    if measured is not None:
        refined = shown & measured.measured
        own[refined] = measured.covariance[refined]
        basis = float(tracked.observation.swing_scale) * measured.shared_basis[refined]
        lasting[refined] = basis @ np.swapaxes(basis, -1, -2)
    lasting[~shown] = lasting[shown].mean(axis=0)
    return own, lasting


def unlike(inputs: Inputs, tracked: ConfigurationTrack, states: Array) -> list[str]:
    """Return a doubt where a fitted motion [T, N] is not the measured one of a body without a model."""
    body, rows = inputs.body, tracked.tracked
    if body is None or inputs.model is not None:
        return []
    off = body.difference(tracked.configurations[rows], body.configurations(states)[rows])
    std = np.sqrt(np.einsum("tii->ti", tracked.covariance[rows]))
    if np.sqrt(((off / std) ** 2).mean()) < _FAR:
        return []
    worst = int(np.argmax((off / std).std(axis=0)))
    unit, factor = ("deg", 180.0 / np.pi) if body.is_angle[worst] else ("mm", 1e3)
    size = factor * float(np.sqrt((off[:, worst] ** 2).mean()))
    return [
        doubt(
            f"the fitted motion of {body.names[worst]} is {size:.3g} {unit} (RMS) off the measured one: "
            + (_DRIVEN if inputs.system.action_names else _HELD)
        )
    ]
