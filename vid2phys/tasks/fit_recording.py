"""`vid2phys fit-recording`: the parameters of a system from recorded states, without a video."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.errors import InputError, UsageError, unknown_name
from vid2phys.tasks.progress import Progress, silent

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.solvers.recorded import RecordedFit, Recording
    from vid2phys.types import Actions, Array, Estimate, Trajectory

SCHEMA = "vid2phys.recorded/1"
_LEAST_NOISE = 1e-3  # of a coordinate's spread: recordings without noise are not taken for exact


@dataclass(frozen=True)
class FittedRecording:
    """What was fitted. estimates: the parameters asked for, then the sensors' zeros."""

    system: System
    fit: RecordedFit
    estimates: tuple[Estimate, ...]


def fit_recording(
    system: str,
    recordings: list[Path],
    *,
    fit: tuple[str, ...],
    body: str | Path | None = None,
    body_units: str = "m",
    set_values: dict[str, float] | None = None,
    params: str | Path | None = None,
    actions: str | Path | None = None,
    std: dict[str, float] | None = None,
    offsets: tuple[str, ...] = (),
    out: str | Path | None = None,
    progress: Progress = silent,
) -> tuple[FittedRecording, Path]:
    """Fit parameters to recordings, CSVs with `time_s` and states by name (`vid2phys systems`), in one clock each.

    Cells that are blank and states that are not there were not seen. set_values, params: where the fit begins, and what
    is known. actions: what drove the system, in the recordings' clock (default: what holds it at rest). std: standard
    deviations by state (default: from the recording's own jitter; only their ratios matter). offsets: states whose
    sensor's zero is not known. Returns the fit and the run folder: result.json, fitted_0.csv and so on. Raises
    Vid2PhysError for anything a user can mend.
    """
    options = {key: value for key, value in locals().items() if key != "progress"}
    from vid2phys.io.recordings import save_trajectory
    from vid2phys.io.run import new_run, to_json, write_json
    from vid2phys.solvers import recorded
    from vid2phys.tasks.config import write_config
    from vid2phys.tasks.known_values import check_given, read_parameters
    from vid2phys.tasks.simulation_inputs import read_actions, read_system
    from vid2phys.types import Trajectory

    if not recordings or not fit:
        got = "no recording" if not recordings else "nothing to fit"
        raise UsageError(got, "recordings and --fit", "vid2phys fit-recording pendulum swing.csv --fit length")
    progress("reading inputs")
    known, notes = read_system({"system": system, "body": body, "body_units": body_units})
    given = (read_parameters(params) if params else {}) | (set_values or {})
    parameters = known.parameters()
    check_given(parameters, given, fit)
    driven = None
    if actions:
        known, driven = read_actions(known, actions, given.get("mass"))
    read = [_recording(known, path, std or {}) for path in recordings]
    if driven is not None:
        read = [_driven(known, each, driven) for each in read]
    progress("fitting")
    found = recorded.fit(known, parameters.with_values(given), read, fit, offsets=offsets)
    found = replace(found, notes=(*notes, *found.notes))
    estimates = (*(e for e in found.estimates if e.source == "fitted"), *found.offsets.values())
    with new_run("fit-recording", out) as folder:
        write_config(folder / "config.yaml", "fit-recording", options | {"out": None})
        for number, (each, states) in enumerate(zip(read, found.states, strict=True)):
            save_trajectory(Trajectory(each.times_s, states, known.state_names), folder / f"fitted_{number}.csv")
        write_json(folder / "result.json", to_json(_result(known, found, estimates)))
    return FittedRecording(known, found, estimates), folder


def _recording(system: System, path: Path, std: dict[str, float]) -> Recording:
    """A recording by a trajectory CSV, of which some states may be missing. Raises InputError and UsageError."""
    from vid2phys.io.recordings import load_trajectory
    from vid2phys.solvers.recorded import Recording
    from vid2phys.solvers.recorded_start import first_state

    table = load_trajectory(path)
    columns = [name for name in table.state_names if name in system.state_names]
    if not columns:
        got = f"'{path}' has none of the states of '{system.name}'"
        raise InputError(got, f"time_s and some of {', '.join(system.state_names[:13])}", "name the columns so")
    for name in std:
        if name not in system.tangent_names:
            raise unknown_name("state", name, system.tangent_names)
    seen = np.full((len(table.times_s), len(system.state_names)), np.nan)
    for name in columns:
        seen[:, system.state_names.index(name)] = table.states[:, table.state_names.index(name)]
    jitter = _jitter(system, seen)
    given = np.array([std.get(name, float(j)) for name, j in zip(system.tangent_names, jitter, strict=True)])
    start = first_state(system, table.times_s, seen, jitter, system.rest_state())
    return Recording(table.times_s, seen, given, start, controls=_controls(system, table))


def _jitter(system: System, seen: Array) -> Array:
    """How far each tangent coordinate is from being smooth [D]: third differences of white noise are sqrt(20) of it."""
    moved = np.asarray(system.local(seen[:1], seen), dtype=float)
    size = moved.shape[1]
    found = np.ones(size)
    for d in range(size):
        values = moved[np.isfinite(moved[:, d]), d]
        if len(values) > 8:
            noise = float(np.median(np.abs(np.diff(values, 3)))) / (0.6745 * np.sqrt(20.0))
            found[d] = max(noise, _LEAST_NOISE * float(np.ptp(values)), 1e-12)
    return found


def _controls(system: System, table: Trajectory) -> Array | None:
    """Controls of a trajectory that `simulate` wrote, None for other tables."""
    if table.controls is None or table.controls.shape[1] != len(system.control_names):
        return None
    return table.controls


def _driven(system: System, recording: Recording, actions: Actions) -> Recording:
    """The recording with recorded actions, their means over its intervals."""
    from vid2phys.solvers.problem import Knots, effective_actions

    controls = np.zeros((len(recording.times_s) - 1, len(system.control_names)))
    knots = Knots.of(recording.times_s, np.inf)
    controls[:, : len(system.action_names)] = effective_actions(actions, knots, 0.0, 0.0)
    return replace(recording, controls=controls)


def _result(system: System, found: RecordedFit, estimates: tuple[Estimate, ...]) -> dict[str, object]:
    judged = found.whiteness
    return {
        "schema": SCHEMA,
        "status": "converged" if found.converged else "not_converged",
        "system": system.name,
        "parameters": {
            e.name: {"value": e.value, "unit": e.unit, "ci95": list(e.ci95), "identifiable": e.identifiable,
                     "at_bound": e.at_bound} for e in estimates
        },
        "misfit": found.misfit,
        "residuals_last_frames": None if judged is None else judged.frames,
        "iterations": found.iterations,
        "notes": list(found.notes),
    }  # fmt: skip
