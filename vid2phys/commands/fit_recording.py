"""`vid2phys fit-recording`: the parameters of a system from recorded states, without a video."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.configs import MOST_SECONDS, FitRecordingConfig
from vid2phys.commands.options import taking
from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import InputError, UsageError
from vid2phys.notes import doubt, is_doubtful, ordered, warning

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.solvers.recorded import RecordedFit, Recording
    from vid2phys.types import Actions, Estimate, Parameters

SCHEMA = "vid2phys.recorded/1"
_STABLE_SHARE, _MOST_VERTICES = 0.01, 1500  # of values on finer meshes, and of a mesh that is refined once more
_STEP_S, _MOST_HALVINGS = 0.005, 3  # the longest step of integration, and how often it is halved
_EXACT, _WELL = 0.3, 1.5  # misfits of recordings without noise, and of those with noise alone
_MOST_STEPS_S = 3000  # of integration, one after the other in a rollout, for each second of a fit: 20 rollouts in all
_OTHER = 1.01  # times a parameter: another value, to see what depends on it
_BETTER, _LEAST_SECONDS = 3.0, 5.0  # by how much degrees have to lower the misfit, and how long they are tried at least


@dataclass(frozen=True)
class FittedRecording:
    """What was fitted. estimates: the parameters asked for, then the sensors' zeros."""

    system: System
    fit: RecordedFit
    estimates: tuple[Estimate, ...]
    refinement: tuple[dict[str, float], ...] = ()
    """Vertices and fitted values of ever finer meshes of a body of tets."""

    @property
    def status(self) -> str:
        """`converged`, `doubtful`, `not_identifiable` or `not_converged`."""
        if not self.fit.converged:
            return "not_converged"
        if not any(estimate.identifiable for estimate in self.estimates if estimate.name in self.fit.parameters.names):
            return "not_identifiable"
        return "doubtful" if is_doubtful(self.fit.notes) else "converged"


@taking(FitRecordingConfig, "system", "recordings")
def fit_recording(config: FitRecordingConfig, progress: Progress = silent) -> tuple[FittedRecording, Path]:
    """Fit parameters to recordings, CSVs with `time_s` and states by name (`vid2phys systems`), in one clock each.

    The options are those of `FitRecordingConfig`: a config, or its fields as arguments. Blank cells and states that are
    not there were not seen. `set_values` and `params` state where the fit begins, and what is known. `actions` drove
    the system, in the recordings' clock (default: the recording's own `control_` columns, else nothing). With `hold`,
    what holds the system at rest did. Of `std` only the ratios matter.

    Returns:
        The fit and the run folder: result.json, fitted_0.csv and so on.

    Raises:
        Vid2PhysError: for anything that a user can mend.
    """
    from vid2phys.commands.recorded_impacts import fit_impacts, thinned
    from vid2phys.commands.simulation_inputs import check_driven, require_positive
    from vid2phys.engine.systems.rigid_contact import ThrownBody

    end = time.monotonic() + config.most_seconds
    if not config.recordings or not config.fit:
        got = "no recording" if not config.recordings else "nothing to fit"
        raise UsageError(got, "recordings and --fit", "vid2phys fit-recording pendulum swing.csv --fit length")
    require_positive("most-seconds", config.most_seconds)
    check_driven(config)
    progress("reading inputs")
    given = _read_given(config)
    config = replace(config, fit=given.fit)
    motions, lines = given.read(config)
    told_apart = getattr(given.system, "ambiguity", None)
    if told_apart is not None and (line := told_apart(config.fit)):
        lines.append(warning(line))
    lines += _driven_by(given, motions, config.hold)
    if isinstance(given.system, ThrownBody):
        fewer = [thinned(motion) for motion in motions]
        motions = [motion for motion, _ in fewer]
        lines += [note for _, notes in fewer for note in notes]
        found = fit_impacts(given.system, given.parameters, motions, given.fit)
        return _finished(given, found, (), lines, motions, config)
    _require_short(given.system, given.parameters, motions, max(config.most_seconds, MOST_SECONDS))
    progress("fitting")
    begin = time.monotonic()
    found, given, refinement = _refined_until_stable(given, motions, config, end)
    now = time.monotonic()
    if not _well(found) and now < end and (columns := _in_radians(given.system, motions)):
        progress("fitting, angles as degrees")
        in_degrees, _ = given.read(config, degrees=True)
        tried = _fitted(given, in_degrees, config, min(end, now + max(_LEAST_SECONDS, now - begin)))
        lines += _degrees_suspected(found, tried, columns)
    return _finished(given, found, refinement, lines, motions, config)


def _finished(
    given: _Given,
    found: RecordedFit,
    refinement: tuple[dict[str, float], ...],
    lines: list[str],
    motions: list[Recording],
    config: FitRecordingConfig,
) -> tuple[FittedRecording, Path]:
    """Write the run folder of a fit, and return both. lines: further notes."""
    found = replace(found, notes=tuple(ordered((*given.notes, *lines, *found.notes))))
    estimates = (*(e for e in found.estimates if e.source == "fitted"), *found.offsets.values())
    result = FittedRecording(given.system, found, estimates, refinement)
    return result, _write(result, motions, config)


@dataclass(frozen=True)
class _Given:
    """What was read beside the recordings. actions: that were recorded by themselves. notes: on the body."""

    system: System
    fit: tuple[str, ...]
    parameters: Parameters
    actions: Actions | None
    notes: tuple[str, ...]

    def read(self, config: FitRecordingConfig, *, degrees: bool = False) -> tuple[list[Recording], list[str]]:
        """Return the recordings and notes on them. degrees: take angles for degrees."""
        from vid2phys.commands.recording_inputs import read_markers, read_recording

        if config.points is not None:
            return [read_markers(self.system, path, config.points) for path in config.recordings], []
        found = [read_recording(self.system, path, config.std, degrees=degrees) for path in config.recordings]
        return [each for each, _ in found], [note for _, lines in found for note in lines]


def _read_given(config: FitRecordingConfig) -> _Given:
    """Read system, known values and actions."""
    from vid2phys.commands.fit_parameters import check_given, named, read_parameters
    from vid2phys.commands.recorded_impacts import with_impacts
    from vid2phys.commands.simulation_inputs import read_actions, read_system

    system, notes = read_system(config)
    system = with_impacts(system, config.fit)
    given = (read_parameters(config.params) if config.params else {}) | config.set_values
    system, fit = named(system, config.fit, given)
    check_given(system.parameters(), given, fit)
    parameters, actions = system.parameters().with_values(given), None
    if config.hold:
        _require_known_hold(system, parameters, fit)
    if config.actions:
        system, actions = read_actions(system, config.actions, given.get("mass"))
    return _Given(system, fit, parameters, actions, notes)


def _write(result: FittedRecording, motions: list[Recording], config: FitRecordingConfig) -> Path:
    """Write the run folder and return it."""
    from vid2phys.commands.config import write_config
    from vid2phys.io.recordings import save_trajectory
    from vid2phys.io.run import new_run, to_json, write_json
    from vid2phys.types import Trajectory

    names = result.system.state_names
    with new_run("fit-recording", config.out) as folder:
        write_config(folder / "config.yaml", replace(config, out=None))
        for number, (motion, states) in enumerate(zip(motions, result.fit.states, strict=True)):
            save_trajectory(Trajectory(motion.times_s, states, names), folder / f"fitted_{number}.csv")
        write_json(folder / "result.json", to_json(_result(result)))
    return folder


def _fitted(given: _Given, motions: list[Recording], config: FitRecordingConfig, end: float) -> RecordedFit:
    """Return the fit, again with half the step as long as that matters. end: when to stop, by the monotonic clock."""
    from vid2phys.solvers import recorded

    system, parameters = given.system, given.parameters
    motions = [_with_controls(system, each, given.actions, config.hold) for each in motions]
    step_s: float | None = _STEP_S
    for _ in range(_MOST_HALVINGS + 1):
        assert step_s is not None
        left_s = max(0.0, end - time.monotonic())
        found = recorded.fit(
            system,
            parameters,
            motions,
            config.fit,
            offsets=config.offsets,
            max_step_s=step_s,
            most_seconds=left_s,
        )
        step_s = recorded.finer_step_s(system, found, motions, step_s)
        if step_s is None or is_doubtful(found.notes) or time.monotonic() >= end:
            return found
        parameters = found.parameters
        motions = [replace(each, start=states[0]) for each, states in zip(motions, found.states, strict=True)]
    return replace(found, notes=(*found.notes, warning("the motion still depends on the step of integration")))


def _refined_until_stable(
    given: _Given, motions: list[Recording], config: FitRecordingConfig, end: float
) -> tuple[RecordedFit, _Given, tuple[dict[str, float], ...]]:
    """Return the fit, of a body of tets with markers again on finer meshes until no fitted value moves by 1 %."""
    found = _fitted(given, motions, config, end)
    refine = getattr(given.system, "refined", None)
    if refine is None or config.points is None:
        return found, given, ()

    def values(fit: RecordedFit, system: System) -> dict[str, float]:
        return {"vertices": len(system.rest_m)} | {n: fit.parameters[n].value for n in config.fit}  # type: ignore[attr-defined]

    path, stable = [values(found, given.system)], False
    while not stable and path[-1]["vertices"] < _MOST_VERTICES and time.monotonic() < end:
        system = given.system.refined()  # type: ignore[attr-defined]
        size = len(system.tangent_names)
        motions = [replace(each, start=system.rest_state(), start_std=np.zeros(size)) for each in motions]
        known = {name: found.parameters[name].value for name in system.parameters().names}
        given = replace(given, system=system, parameters=system.parameters().with_values(known))
        found = _fitted(given, motions, config, end)
        path.append(values(found, system))
        change = max(abs(path[-1][n] / path[-2][n] - 1.0) if path[-2][n] else 0.0 for n in config.fit)
        stable = change < _STABLE_SHARE
    if not stable:
        note = warning("finer meshes still move the values, or were not tried: see `refinement` of result.json")
        found = replace(found, notes=(*found.notes, note))
    return found, given, tuple(path)


def _driven_by(given: _Given, motions: list[Recording], hold: bool) -> list[str]:
    """Return notes on what drives the recordings. Raises UsageError for `hold` beside controls of a recording."""
    from vid2phys.commands.simulation_inputs import hold_note

    own = any(each.controls is not None for each in motions)
    if own and hold:
        raise UsageError("--hold beside control_ columns", "one of them", "leave --hold out, or cut the columns")
    if given.actions is not None:
        return ["--actions take the place of the control_ columns"] if own else []
    return hold_note(given.system, given.parameters, hold) if any(each.controls is None for each in motions) else []


def _require_short(system: System, parameters: Parameters, motions: list[Recording], seconds: float) -> None:
    """Raises InputError for recordings that take so many steps of integration that a fit would not get anywhere."""
    from vid2phys.solvers.recorded import steps_of

    steps, most = steps_of(system, parameters, motions, _STEP_S), int(_MOST_STEPS_S * seconds)
    if steps > most:
        lasts_s = max(float(each.times_s[-1] - each.times_s[0]) for each in motions)
        got = f"the longest recording lasts {lasts_s:.4g} s, which takes {steps} steps of integration"
        remedy = "check that time_s is in seconds, give a part of the recording, or raise --most-seconds"
        raise InputError(got, f"at most {most} in {seconds:.4g} s", remedy)


def _require_known_hold(system: System, parameters: Parameters, fit: tuple[str, ...]) -> None:
    """Raises UsageError where what holds the system depends on a parameter to fit.

    Such a fit would find the value that it began with.
    """
    at_rest = system.hover_controls(parameters.vector)
    for name in fit:
        value = parameters[name].value
        other = parameters.with_values({name: _OTHER * value if value != 0.0 else _OTHER})
        if not np.allclose(system.hover_controls(other.vector), at_rest, rtol=1e-9, atol=0.0):
            got = f"--hold with --fit {name}: what holds '{system.name}' at rest depends on {name}"
            raise UsageError(got, "recorded --actions", f"or give {name} with --set in place of --fit")


def _with_controls(system: System, recording: Recording, actions: Actions | None, hold: bool) -> Recording:
    """Return the recording with its controls: the actions, its table's own, what holds the system, or none."""
    from vid2phys.commands.recording_inputs import with_actions

    if actions is not None:
        return with_actions(system, recording, actions)
    if recording.controls is not None or hold:
        return recording
    return replace(recording, controls=np.zeros((len(recording.times_s) - 1, len(system.control_names))))


def _in_radians(system: System, recordings: list[Recording]) -> list[str]:
    """Return the names of the states in rad or rad/s that were recorded."""
    from vid2phys.engine.layout import turning

    names = system.state_names
    return [names[i] for i in turning(names) if any(np.isfinite(each.seen[:, i]).any() for each in recordings)]


def _well(found: RecordedFit) -> bool:
    """Return whether a fit leaves noise alone."""
    white = found.whiteness is None or found.whiteness.white
    return found.misfit < _EXACT or (found.misfit < _WELL and white)


def _degrees_suspected(found: RecordedFit, in_degrees: RecordedFit, columns: list[str]) -> list[str]:
    """Return a note where a fit to the columns as degrees explains the motion, and clearly better."""
    times = found.misfit / in_degrees.misfit
    if is_doubtful(in_degrees.notes) or not (times > _BETTER or (times > 1.0 and _well(in_degrees))):
        return []
    names = ", ".join(columns[:3]) + (" ..." if len(columns) > 3 else "")
    better = f"{times:.0f} times better" if times > _BETTER else "better, and leaves noise alone,"
    return [doubt(f"the fit is {better} with {names} taken as degrees: the values are probably wrong; multiply these "
                  "columns by pi / 180")]  # fmt: skip


def _result(fitted: FittedRecording) -> dict[str, object]:
    found = fitted.fit
    judged = found.whiteness
    return {
        "schema": SCHEMA,
        "status": fitted.status,
        "system": fitted.system.name,
        "parameters": {
            e.name: {"value": e.value, "unit": e.unit, "ci95": list(e.ci95), "identifiable": e.identifiable,
                     "at_bound": e.at_bound} for e in fitted.estimates
        },
        **({"refinement": list(fitted.refinement)} if fitted.refinement else {}),
        "misfit": found.misfit,
        "residuals_last_frames": None if judged is None else judged.frames,
        "iterations": found.iterations,
        "notes": list(found.notes),
    }  # fmt: skip
