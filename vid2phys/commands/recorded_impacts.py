"""Fit friction and restitution to the recorded poses of a thrown body, by the law and the solver of `identify`.

`fit-recording rigid_contact states.csv --body box.obj --fit mu,restitution` comes here: springs of contact have no
restitution.

Limits: one recording. `thinned` leaves out rows beyond `_MOST_HZ` a second: a motion has few impacts, and costs grow
with the square of the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vid2phys.engine.system import System
    from vid2phys.engine.systems.rigid_contact import ThrownBody
    from vid2phys.solvers.frame_poses import FramePoses
    from vid2phys.solvers.recorded import RecordedFit, Recording
    from vid2phys.types import Parameters

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
    """Fit `names`, and the ground near where it is given, to the poses of a recording.

    parameters: of the system, where to begin. Raises UsageError for several recordings, InputError for one that has too
    few poses.
    """
    from vid2phys.commands.fit_parameters import INERTIA
    from vid2phys.commands.identify.fit_impacts import fit_notes, with_ground
    from vid2phys.solvers import impacts, intervals
    from vid2phys.solvers.recorded import RecordedFit

    if len(recordings) > 1:
        raise UsageError(f"{len(recordings)} recordings of impacts", "one", "fit them one by one")
    poses, times = _poses(recordings[0]), recordings[0].times_s
    own = dict(zip(INERTIA, parameters["mass"].value * system.shape.inertia_per_mass, strict=True))
    unknown = {name: value for name, value in own.items() if parameters[name].source == "default"}
    parameters = parameters.with_values(unknown, source="mesh").with_free(names)
    parameters, priors = with_ground(system, parameters, {}, names, poses.states)
    means, stds = np.array([priors.get(name, (0.0, np.inf)) for name in parameters.free_names]).T
    found = impacts.fit(
        *(system, parameters, poses, times, poses.moving(system, times)),
        lambda theta: ((theta - means) / stds, stds**-2.0),
    )
    free = found.parameters.free_names
    null, fitted = found.null_directions, found.parameters
    estimates = intervals.estimates(fitted, names, found.covariance, null, _DEGREES, priors)
    remedies = system.capabilities.remedies(free)
    lines = intervals.identifiability(free, null, estimates, fitted, remedies=remedies, source="this recording")
    return RecordedFit(
        parameters=fitted,
        estimates=estimates,
        offsets={},
        states=(found.states,),
        start_covariance=found.state_covariance[:1],
        residuals=(system.local(poses.states, found.states[poses.rows])[:, :6],),
        misfit=found.misfit,
        whiteness=None,
        notes=(*fit_notes(found), *lines),
        iterations=found.minimum.iterations,
        converged=bool(np.isfinite(found.minimum.cost)),
    )


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
