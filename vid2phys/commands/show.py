"""What the commands print on stdout: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.notes import Severity, severity_of

if TYPE_CHECKING:
    from vid2phys.commands.batch import Outcome
    from vid2phys.commands.control import Controlled
    from vid2phys.commands.doctor import Finding
    from vid2phys.commands.fit_recording import FittedRecording
    from vid2phys.commands.simulate import Simulation
    from vid2phys.types import Estimate, Result

FITTED = ("fitted", "nuisance")


def print_result(result: Result, folder: Path, *, as_json: bool = False) -> None:
    """Print a fit: parameters with intervals, the status, the notes and where the files are.

    Notes are those of `result.diagnostics`, the most serious first; each clip of several prints its own.
    """
    if as_json:
        print((folder / "result.json").read_text(encoding="utf-8").rstrip())
        return
    if result.parameters:
        from vid2phys.solvers.camera_parameters import NAMES as CAMERA_NAMES

        shown = (p for p in result.parameters if p.source != "default" or p.name not in CAMERA_NAMES)
        rows = [[p.name, format_value(p.value), p.unit, format_interval(p), note(p)] for p in shown]
        print_table(("parameter", "value", "unit", "95 % interval", ""), rows)
    print(f"{result.status.value}" + (f" ({result.message})" if result.message else ""))
    if result.clips:
        _print_notes(result.diagnostics.get("notes"))
    for number, one in enumerate(result.clips or (result,)):
        frames, lost = len(one.trajectory.times_s), one.observation.frames_lost
        clip = f"clip {number + 1}, " if result.clips else ""
        if "camera" in one.diagnostics:
            print(f"{clip}camera: {one.diagnostics['camera']}")
        print(f"{clip}frames: {frames - lost} of {frames} tracked")
        if one.impacts:
            times = ", ".join(f"{hit['time_s']:.3f}" for hit in one.impacts)
            _print_wrapped(f"{clip}impacts at {times} s")
        _print_notes(one.diagnostics.get("notes"), clip)
    for name in ("overlay.mp4", "report.html", "result.json"):
        if (folder / name).exists():
            print(f"{name.split('.')[0]}: {folder / name}")


def _print_notes(notes: object, prefix: str = "") -> None:
    """Print each note on lines of its own, named by its severity."""
    for note_ in notes if isinstance(notes, list) else []:
        label = severity_of(note_).name.lower() if severity_of(note_) is not Severity.INFORMATION else "note"
        _print_wrapped(f"{prefix}{label}: {note_}")


def _print_wrapped(text: str) -> None:
    print(textwrap.fill(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def print_batch(outcomes: tuple[Outcome, ...], folder: Path, *, as_json: bool = False) -> None:
    """Print how each clip of a batch ended, then how many did so well."""
    if as_json:
        print((folder / "summary.json").read_text(encoding="utf-8").rstrip())
        return
    names = sorted({name for outcome in outcomes for name in outcome.parameters})
    rows = [
        [
            outcome.name,
            outcome.status,
            *(_with_interval(outcome.parameters.get(name)) for name in names),
            outcome.message,
        ]
        for outcome in outcomes
    ]
    print_table(("clip", "status", *names, ""), rows)
    print(f"clips: {sum(outcome.converged for outcome in outcomes)} of {len(outcomes)} converged")
    print(f"summary: {folder / 'summary.csv'}")


def _with_interval(value: tuple[float | None, float | None, float | None] | None) -> str:
    """A value with its interval as text, '-' where it was not fitted."""
    if value is None or value[0] is None:
        return "-"
    _, low, high = value
    interval = "unbounded" if low is None or high is None else f"{format_value(low)} to {format_value(high)}"
    return f"{format_value(value[0])} ({interval})"


def print_metrics(metrics: dict[str, object], folder: Path, *, as_json: bool = False) -> None:
    """Print the numbers of `evaluate`, one column an alignment."""
    if as_json:
        print(json.dumps(metrics, indent=2))
        return
    also = metrics["also"]
    assert isinstance(also, dict)
    columns = {str(metrics["alignment"]): metrics, **also}
    hidden = ("schema", "also", "alignment", "frames", "log_rows", "log_rows_lost", "notes")
    names = [name for name in metrics if name not in hidden and not isinstance(metrics[name], dict)]
    rows = [[name, *(_cell(column, name) for column in columns.values())] for name in names]
    print_table(("metric", *columns), rows)
    for alignment, column in columns.items():
        if "refused" in column:
            print(f"{alignment}: {column['refused']}")
    print(f"frames: {metrics['frames']}")
    _print_notes(metrics["notes"])
    print(f"metrics: {folder / 'metrics.json'}")


def print_simulation(simulation: Simulation, folder: Path, *, as_json: bool = False) -> None:
    """Print what `simulate` wrote and with which steps."""
    times_s = simulation.trajectory.times_s
    names = ("trajectory.csv", "actions.csv", "clip.mp4", "config.yaml")
    files = {name.split(".")[0]: str(folder / name) for name in names if (folder / name).exists()}
    step_s = float((times_s[1:] - times_s[:-1]).max()) / simulation.substeps
    if as_json:
        data = {
            "system": simulation.system.name,
            "seconds": float(times_s[-1]),
            "rows": len(times_s),
            "integrator": simulation.integrator,
            "step_s": step_s,
            "step_change": simulation.step_change,
            "parameters": {p.name: p.value for p in simulation.parameters},
            "frames": simulation.frames,
            "frames_in_view": simulation.frames_in_view,
            "notes": list(simulation.notes),
            "files": files,
        }
        print(json.dumps(data, indent=2))
        return
    print(f"{simulation.system.name}: {times_s[-1]:g} s, {simulation.integrator}, steps of {format_value(step_s)} s")
    if simulation.frames:
        print(f"frames: {simulation.frames}, the body in {simulation.frames_in_view} of them")
    _print_notes(list(simulation.notes))
    for name, path in files.items():
        print(f"{name}: {path}")


def print_control(found: Controlled, folder: Path, *, as_json: bool = False) -> None:
    """Print whether the target was reached, and where the files are."""
    if as_json:
        print((folder / "result.json").read_text(encoding="utf-8").rstrip())
        return
    print(f"{found.status} ({found.message})" if found.status != "missed" else found.message)
    for note_ in found.notes:
        print(f"note: {note_}")
    for name in ("actions.csv", "trajectory.csv", "overlay.mp4", "result.json"):
        if (folder / name).exists():
            print(f"{name.split('.')[0]}: {folder / name}")


def print_recorded(fitted: FittedRecording, folder: Path, *, as_json: bool = False) -> None:
    """Print what `fit-recording` found."""
    if as_json:
        print((folder / "result.json").read_text(encoding="utf-8").rstrip())
        return
    rows = [[p.name, format_value(p.value), p.unit, format_interval(p), note(p)] for p in fitted.estimates]
    print_table(("parameter", "value", "unit", "95 % interval", ""), rows)
    print(f"{fitted.status.replace('_', ' ')} after {fitted.fit.iterations} iterations")
    _print_notes(list(fitted.fit.notes))
    print(f"result: {folder / 'result.json'}")


def print_systems(name: str | None = None, *, as_json: bool = False) -> None:
    """Print one system, or all: parameters, states, actions and limits. Raises UsageError for an unknown name."""
    from vid2phys.commands.describe import describe, summarise
    from vid2phys.engine.systems import available
    from vid2phys.io.run import to_json

    found = [describe(each) for each in ((name,) if name else available())]
    if as_json:
        print(json.dumps(to_json(found), indent=2))
        return
    for index, system in enumerate(found):
        print(f"{'' if index == 0 else chr(10)}{system['name']}: {system['summary']}")
        rows = [
            [p["name"], p["unit"], f"{p['default']:g}", f"{p['lower']:g} to {p['upper']:g}"]
            for p in system["parameters"]
        ]
        print_table(("parameter", "unit", "default", "domain"), _grouped(rows))
        actions = [f"{action['name']} ({action['unit']})" for action in system["actions"]]
        frames: dict[str, list[str]] = {}
        for quantity, frame in system["state_frames"].items():
            frames.setdefault(frame, []).append(quantity)
        can = system["capabilities"]
        texts = {
            "purpose": can["purpose"],
            "from a clip": f"seen as {can['observed_as']}" if can["observed_as"] else f"no: {can['reason']}",
            "in a clip, too": ", ".join(system["clip_parameters"]),
            "to determine": "; ".join(f"{p}: {what}" for p, what in can["excited_by"].items()) if name else "",
            f"state ({len(system['state'])})": summarise(system["state"]),
            "axes": "; ".join(f"{summarise(names)}: {frame}" for frame, names in frames.items()) or "not stated",
            f"actions ({len(actions)})": summarise(actions) or "none",
            "integrators": ", ".join([f"{system['integrators'][0]} (default)", *system["integrators"][1:]]),
            "--body": system["body"] or "no file",
            "limits": system["limits"],
        }
        for title, text in texts.items():
            if text:
                print(textwrap.fill(f"{title}: {text}", 118, initial_indent="  ", subsequent_indent="    "))


def print_doctor(findings: list[Finding]) -> None:
    """Print what `doctor` found, with what to do about each thing that is missing."""
    rows = [[item.name, "ok" if item.ok else "missing", item.detail, item.remedy] for item in findings]
    print_table(("", "", "found", "to do"), rows)


def format_value(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, '-' when it is not finite."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "-"


def format_interval(estimate: Estimate) -> str:
    """The 95 % interval as text; '-' for a value that was given."""
    return estimate.interval if estimate.source in FITTED else "-"


def note(estimate: Estimate) -> str:
    """What a reader must know about a value: given, not identifiable, at a bound."""
    if estimate.source not in FITTED:
        return estimate.source
    if not estimate.identifiable:
        return "not identifiable" if estimate.prior is None else "known by its prior alone"
    if estimate.at_bound:
        return "at its bound"
    return "" if estimate.source == "fitted" else estimate.source


def _grouped(rows: list[list[str]], most: int = 16) -> list[list[str]]:
    """Rows of parameters; of more than `most`, those that differ in a number within the name alone are one row."""
    if len(rows) <= most:
        return rows
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, *rest in rows:
        groups.setdefault((re.sub(r"\d+", "#", name), *rest), []).append(name)
    return [
        [names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)})", *rest]
        for (_, *rest), names in groups.items()
    ]


def _cell(column: dict[str, object], name: str) -> str:
    value = column.get(name)
    return format_value(float(value)) if isinstance(value, int | float) else "-"


def print_table(header: tuple[str, ...], rows: list[list[str]]) -> None:
    """Print a table; on what is no terminal, 120 columns wide."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, title in enumerate(header):
        table.add_column(title, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    terminal = Console()
    (terminal if terminal.is_terminal else Console(width=120)).print(table)


def print_model(folder: Path) -> None:
    """The folder of a trained model, for scripts; the first of several processes says it."""
    from vid2phys.risp.training.distributed import is_main_process

    if is_main_process():
        print(folder)
