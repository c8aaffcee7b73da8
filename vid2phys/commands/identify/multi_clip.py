"""Fit several clips of one rigid body together: the clips share the parameters.

Each clip has its own camera, actions and trajectory. `fit.initialise` initialises each clip by itself before. The
solvers then fit all clips in one problem.

Impacts are fitted clip by clip, and joined after (`solvers.impact_clips`).

Limits: smoothing or shooting, from one start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.identify.fit import Initialised, conclude, conclude_impacts, lost
from vid2phys.commands.identify.fit_impacts import fit_impacts, fits_contact, joint_impacts
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.progress import Progress, of_clip, silent
from vid2phys.notes import warning

if TYPE_CHECKING:
    from vid2phys.tracking.track import Track
    from vid2phys.types import Result


def estimate(
    several: Sequence[Inputs],
    tracks: Sequence[Track],
    starts: Sequence[Initialised | None],
    options: FitOptions,
    progress: Progress = silent,
) -> list[Result]:
    """Fit all clips together and return a result for each; the result of a clip without a start has the status lost."""
    from vid2phys.solvers import shooting, smoothing
    from vid2phys.solvers.solution import degrees_of_freedom

    found = {g: start for g, start in enumerate(starts) if start is not None}
    if not found:
        return [lost(inputs, track) for inputs, track in zip(several, tracks, strict=True)]
    if fits_contact(several[0], options):
        return _estimate_impacts(several, tracks, found, options, progress)
    progress("fitting all clips together")
    begun = {g: smoothing.solution(start.fitted) for g, start in found.items()}
    if options.method == "shooting":
        problems = [start.problem for start in found.values()]
        solutions = shooting.solve_clips(problems, [begun[g].knot_states for g in found])
    else:
        knots = [
            smoothing.Start(start.problem, begun[g].knot_states, begun[g].knot_inputs, start.fitted.hyperparameters)
            for g, start in found.items()
        ]
        solutions = [smoothing.solution(fitted) for fitted in smoothing.fit_clips(knots)]
    degrees = sum(degrees_of_freedom(start.problem, 0) for start in found.values()) - len(solutions[0].theta_names)
    by_clip = dict(zip(found, solutions, strict=True))
    return [
        conclude(inputs, tracks[g], found[g], by_clip[g], options, degrees=max(1.0, degrees))
        if g in found
        else lost(inputs, tracks[g])
        for g, inputs in enumerate(several)
    ]


def _estimate_impacts(
    several: Sequence[Inputs],
    tracks: Sequence[Track],
    found: dict[int, Initialised],
    options: FitOptions,
    progress: Progress,
) -> list[Result]:
    """Fit the impacts of each clip, join the clips, and return a result for each."""
    from vid2phys.solvers import smoothing

    problems, fits = [], []
    for g, start in found.items():
        own = of_clip(g, len(several), progress)
        problem, fitted = fit_impacts(several[g], start.problem, smoothing.solution(start.fitted), options, own)
        problems.append(problem)
        fits.append(fitted)
    progress("joining the clips")
    fits, notes = joint_impacts(fits, options.fit)
    results = {g: lost(inputs, tracks[g]) for g, inputs in enumerate(several) if g not in found}
    for (g, start), problem, fitted in zip(found.items(), problems, fits, strict=True):
        begun = replace(start, problem=problem, notes=(*start.notes, *notes))
        results[g] = conclude_impacts(several[g], tracks[g], begun, fitted, options)
    return [results[g] for g in range(len(several))]


def joined(results: Sequence[Result]) -> Result:
    """Return one result for all clips: parameters and status of the fit, and the result of each clip in it."""
    from vid2phys.types import Status

    fitted = [one for one in results if one.status is not Status.LOST] or list(results)
    worst = next((one for one in fitted if one.status is not Status.CONVERGED), fitted[0])
    gone = [g for g, one in enumerate(results) if one.status is Status.LOST and len(fitted) < len(results)]
    left_out = [f"clip {g + 1} is left out: {results[g].message}" for g in gone]
    messages = [message for message in (worst.message, *left_out) if message]
    lines = fitted[0].diagnostics.get("identifiability", [])
    diagnostics: dict[str, object] = {"identifiability": lines, "notes": [warning(text) for text in left_out]}
    return replace(worst, message="; ".join(messages), diagnostics=diagnostics, clips=tuple(results))
