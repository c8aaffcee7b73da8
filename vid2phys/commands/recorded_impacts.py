"""Fit friction and restitution to the recorded poses of a thrown body, by the law and the solver of `identify`.

`fit-recording rigid_contact states.csv --body box.obj --fit mu,restitution` comes here: springs of contact have no
restitution.

Recordings are fitted one by one, and joined after (`solvers.impact_clips`).

`thinned` leaves out rows beyond `_MOST_HZ` a second: a motion has few impacts, and costs grow with the square of the
rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vid2phys.engine.system import System
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.solvers.frame_poses import FramePoses
    from vid2phys.solvers.impacts import Fitted
    from vid2phys.solvers.recorded import RecordedFit, Recording
    from vid2phys.types import Array, Parameters

_MOST_HZ = 75.0
_LEAST_POSES = 8
_LEAST_STD = np.array([*[1e-4] * 3, *[1e-3] * 3])  # m, rad: of poses without noise; rollouts are not more exact
_DEGREES = 1e6  # of freedom: intervals are those of a normal distribution, as in `identify`


def with_impacts(system: System, fit: Sequence[str]) -> System:
    """Return the system as a thrown body, where something is to be fitted that springs of contact have not.

    Raises UsageError where such a body has no mesh.
    """
    from vid2phys.engine.systems.rigid_contact import OF_CONTACT, RigidContact

    asked = [name for name in fit if name in {*OF_CONTACT, "ground"} - set(system.parameters().names)]
    if not isinstance(system, RigidContact) or not asked:
        return system
    if system.surface is None:
        raise UsageError(f"--fit {asked[0]} without a body", "the mesh of the body", "give it by --body")
    return system.for_clip(system.surface)


def fit_impacts(
    system: ThrownBody, parameters: Parameters, recordings: Sequence[Recording], names: tuple[str, ...]
) -> RecordedFit:
    """Fit `names`, and the ground near where it is given, to the poses of recordings, which share all but the ground.

    parameters: of the system, where to begin. Raises InputError for a recording that has too few poses.
    """
    from vid2phys.commands.fit_parameters import INERTIA
    from vid2phys.commands.identify.fit_impacts import fit_notes, joint_impacts, with_bound, with_ground
    from vid2phys.solvers import impacts, intervals
    from vid2phys.solvers.recorded import RecordedFit

    own = dict(zip(INERTIA, parameters["mass"].value * system.shape.inertia_per_mass, strict=True))
    unknown = {name: value for name, value in own.items() if parameters[name].source == "default"}
    begun = parameters.with_values(unknown, source="mesh").with_free(names)
    every = [_poses(recording) for recording in recordings]
    fits: list[Fitted] = []
    priors: dict[str, tuple[float, float]] = {}
    for recording, poses in zip(recordings, every, strict=True):
        parameters, priors = with_ground(system, begun, {}, names, poses.states)
        means, stds = np.array([priors.get(name, (0.0, np.inf)) for name in parameters.free_names]).T
        moving = poses.moving(system, recording.times_s)
        prior = partial(_gaussian, means, stds)
        fits.append(impacts.fit(system, parameters, poses, recording.times_s, moving, prior))
    notes: list[str] = []
    if len(fits) > 1:
        fits, notes = joint_impacts(fits, names)
    found = fits[0]
    free, null, fitted = found.parameters.free_names, found.null_directions, found.parameters
    estimates = intervals.estimates(fitted, names, found.covariance, null, _DEGREES, priors)
    remedies = system.capabilities.remedies(free)
    lines = intervals.identifiability(free, null, estimates, fitted, remedies=remedies, source="this recording")
    noted = (note for fit in fits for note in fit_notes(fit))
    return RecordedFit(
        parameters=fitted,
        estimates=with_bound(estimates, [fit.least_friction for fit in fits]),
        offsets={},
        states=tuple(fit.states for fit in fits),
        start_covariance=np.array([fit.state_covariance[0] for fit in fits]),
        residuals=tuple(
            system.local(poses.states, fit.states[poses.rows])[:, :6] for fit, poses in zip(fits, every, strict=True)
        ),
        misfit=float(np.sqrt(np.mean([fit.misfit**2 for fit in fits]))),
        whiteness=None,
        notes=tuple(dict.fromkeys((*noted, *notes, *lines))),
        iterations=sum(fit.minimum.iterations for fit in fits),
        converged=all(bool(np.isfinite(fit.minimum.cost)) for fit in fits),
    )


def _gaussian(means: Array, stds: Array, theta: Array) -> tuple[Array, Array]:
    """Return residuals and precisions of independent priors, all [P]."""
    return (theta - means) / stds, stds**-2.0


def thinned(recording: Recording) -> tuple[Recording, list[str]]:
    """Return a recording of at most `_MOST_HZ` rows a second, and a note on what is left out."""
    usual_s = float(np.median(np.diff(recording.times_s)))
    step = max(1, int(np.ceil(1.0 / (_MOST_HZ * usual_s) - 1e-6)))
    if step == 1:
        return recording, []
    fewer = replace(recording, times_s=recording.times_s[::step], seen=recording.seen[::step], controls=None)
    note = f"{len(fewer.times_s)} of {len(recording.times_s)} rows are used: at most {_MOST_HZ:.0f} a second"
    return fewer, [note]


def _poses(recording: Recording) -> FramePoses:
    """Return the recorded poses."""
    from vid2phys.solvers.frame_poses import FramePoses

    rows = np.flatnonzero(np.isfinite(recording.seen[:, :7]).all(axis=1))
    if len(rows) < _LEAST_POSES:
        expected = f"at least {_LEAST_POSES} with position and quaternion"
        raise InputError(f"a recording of {len(rows)} poses", expected, "record longer, or name its columns as states")
    states = recording.seen[rows].copy()
    states[:, 7:] = 0.0
    stds = np.maximum(np.broadcast_to(recording.std, 12)[:6], _LEAST_STD)
    covariance = np.tile(np.diag(stds**2), (len(rows), 1, 1))
    return FramePoses(rows, states, covariance, np.zeros((len(rows), 6, 0)), np.zeros(0), recording.times_s[rows])
