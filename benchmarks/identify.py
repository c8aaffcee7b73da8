"""identify and evaluate on the sample, on recorded flights and on recorded tosses: accuracy, wall time, memory.

    python -m benchmarks.identify --json FILE [--quick | --untrained] [--markdown]
    python -m benchmarks.identify --untrained --clips DIR --markdown --failures SHEET.png

Each case runs `vid2phys identify` in a process of its own, so its seconds hold the imports and its memory is its own.
Clips named quad_* and cube_* in ../shared/clips are used when they are there; a plain cube is judged up to its turns.
`--quick` runs the sample's first case alone. `--untrained` runs all clips of single bodies with `--model none`: the
sample and ../shared/clips, or with `--clips` those of one folder, such as `benchmarks.clips.make` writes. `--failures`
shows overlay frames of the runs with less than 95 % of the frames within 5 cm and 5 deg.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contact_sheet import write_sheet
from benchmarks.tables import write_table

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "samples" / "quadrotor"
CLIPS = ROOT.parent / "shared" / "clips"
REFUSED = 3  # exit code of a command that refuses its input
FIT_FAILED = 4  # exit code of a run that says that its result is not to be trusted
GOOD_SHARE = 0.95  # share of frames below which a run has failed
RECORDED_MASS_KG = 0.0405  # accelerometer and thrust of the same logs, by least squares
POSE_METRICS = {
    "position_rmse_m": "m",
    "lateral_rmse_m": "m",
    "depth_rmse_m": "m",
    "rotation_median_deg": "deg",
    "rotation_median_deg_up_to_symmetry": "deg",
    "rotation_rmse_deg": "deg",
    "within_5cm_5deg_fraction": "1",
    "frames_tracked_fraction": "1",
    "interval_coverage": "1",
}


@dataclass(frozen=True)
class Case:
    """One run: a clip's folder, its mesh, what is asked, and the true mass [kg], None where none is asked for."""

    name: str
    folder: Path
    mesh: str
    arguments: tuple[str, ...]
    mass_kg: float | None


@dataclass(frozen=True)
class Row:
    """One number of the table, or a text."""

    case: str
    metric: str
    value: float | None
    unit: str
    text: str = ""


def cases(quick: bool) -> list[Case]:
    """Yield the runs to make."""
    mass_kg = float(json.loads((SAMPLE / "truth.json").read_text())["parameters"]["mass"])
    with_actions = ("--actions", "actions.csv", "--fit", "mass")
    found = [Case("sample, mass", SAMPLE, "quad.obj", with_actions, mass_kg)]
    if quick:
        return found
    found.append(Case("sample, imitation", SAMPLE, "quad.obj", ("--set", f"mass={mass_kg}"), mass_kg))
    for folder in sorted(CLIPS.glob("quad_*")):
        found.append(Case(f"{folder.name}, mass", folder, "mesh.obj", with_actions, RECORDED_MASS_KG))
        imitation = ("--set", f"mass={RECORDED_MASS_KG}")
        found.append(Case(f"{folder.name}, imitation", folder, "mesh.obj", imitation, RECORDED_MASS_KG))
    for folder in sorted(CLIPS.glob("cube_*")):
        found.append(Case(folder.name, folder, "mesh.obj", ("--system", "rigid_contact"), None))
    return found


def untrained_cases(clips: Path | None = None) -> list[Case]:
    """Return the runs without a trained model: the clips of a single rigid body in a folder, or all that are known."""
    none = ("--model", "none")
    found = [] if clips else [Case("sample", SAMPLE, "quad.obj", none, None)]
    for folder in sorted((clips or CLIPS).glob("*")):
        if (folder / "mesh.obj").is_file():
            system = () if folder.name.startswith("quad_") else ("--system", "rigid_contact")
            found.append(Case(folder.name, folder, "mesh.obj", (*none, *system), None))
    return found


def run_case(case: Case, work: Path) -> list[Row]:
    """Identify, evaluate, compare. The run's folder is that of `run_folder`.

    Raises:
        RuntimeError: with the command's words, when it fails other than by refusing its input.
    """
    out = run_folder(case, work)
    arguments = [str(case.folder / a) if a.endswith(".csv") else a for a in case.arguments]
    inputs = [str(case.folder / "clip.mp4"), "--mesh", str(case.folder / case.mesh)]
    inputs += ["--camera", str(case.folder / "camera.yaml"), "--out", str(out), *arguments]
    faces = sum(line.startswith("f ") for line in (case.folder / case.mesh).read_text().splitlines())
    code, seconds, memory_gb = _measured([sys.executable, "-m", "vid2phys", "identify", *inputs])
    costs = [("faces", faces, "1"), ("wall_seconds", seconds, "s"), ("peak_memory", memory_gb, "GB")]
    status = "refused" if code == REFUSED else json.loads((out / "result.json").read_text())["status"]
    judge = [sys.executable, "-m", "vid2phys", "evaluate", str(out), "--mocap", str(case.folder / "mocap.csv")]
    judged = status not in ("refused", "lost") and _measured(judge)[0] != REFUSED  # else there is no trajectory
    if not judged and status not in ("refused", "lost"):
        status += ", not evaluated"
    ends = [*(Row(case.name, *cost) for cost in costs), Row(case.name, "status", None, "", status)]
    if not judged:
        none = ("within_5cm_5deg_fraction", "frames_tracked_fraction")
        return [*(Row(case.name, name, 0.0, "1") for name in none), *ends]
    result = json.loads((out / "result.json").read_text())
    metrics = json.loads((out / "metrics.json").read_text())
    rows: list[tuple[str, float | None, str]] = [(name, metrics[name], unit) for name, unit in POSE_METRICS.items()]
    rotation = "rotation_median_deg" if case.mass_kg else "rotation_median_deg_up_to_symmetry"
    rows.append(("rotation_judged", metrics[rotation], "deg"))
    if "--fit" in case.arguments and case.mass_kg:
        rows += list(_mass(result["parameters"]["mass"], case.mass_kg))
    elif case.folder == SAMPLE and case.mass_kg:
        rows += list(_actions(out / "actions.csv", SAMPLE / "actions.csv", 9.81 * case.mass_kg))
    return [*(Row(case.name, *row) for row in rows), *ends]


def run_folder(case: Case, work: Path) -> Path:
    """Return where a case's run is, in a folder of runs."""
    return work / case.name.replace(", ", "-")


def _mass(found: dict[str, Any], true_kg: float) -> Iterator[tuple[str, float | None, str]]:
    low, high = found["ci95"]
    yield "mass", found["value"], "kg"
    yield "mass_ci95_low", low, "kg"
    yield "mass_ci95_high", high, "kg"
    yield "mass_error", found["value"] / true_kg - 1.0, "1"
    inside = (low is None or low <= true_kg) and (high is None or true_kg <= high)
    yield "mass_in_interval", float(inside), "1"


def _actions(fitted_path: Path, true_path: Path, hover_n: float) -> Iterator[tuple[str, float | None, str]]:
    """Return the fitted actions against the true ones, averaged over each frame interval."""
    fitted, truth = _columns(fitted_path), _columns(true_path)
    ends = np.append(fitted["time_s"], 2 * fitted["time_s"][-1] - fitted["time_s"][-2])
    names = [name for name in truth if name != "time_s"]
    error = {name: fitted[name] - _means(truth["time_s"], truth[name], ends) for name in names}
    yield "thrust_rms_of_hover", float(np.sqrt(np.mean(error["thrust_N"] ** 2))) / hover_n, "1"
    inside = []
    for name in names[1:]:
        stem, unit = name.rsplit("_", 1)
        yield f"{stem}_rms", float(np.sqrt(np.mean(error[name] ** 2))), "N m"
        inside.append(np.abs(error[name]) <= 1.96 * fitted[f"{stem}_std_{unit}"])
    yield "torques_in_interval", float(np.mean(inside)), "1"


def _columns(path: Path) -> dict[str, np.ndarray]:
    header, *lines = path.read_text().splitlines()
    table = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    return dict(zip(header.split(","), table.T, strict=True))


def _means(times: np.ndarray, values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the means of a zero-order hold over the intervals between `ends`."""
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    return np.diff(np.interp(ends, times, area)) / np.diff(ends)


def _measured(command: list[str]) -> tuple[int, float, float]:
    """Return exit code, wall seconds and peak memory [GB] of a command. Raises RuntimeError for any other exit code."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen(command, stdout=words, stderr=words, text=True, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        words.seek(0)
        if process.returncode not in (0, REFUSED, FIT_FAILED):
            raise RuntimeError(f"{' '.join(command)}\n{words.read()}")
        if process.returncode == REFUSED:
            print(words.read().rstrip().splitlines()[-1], file=sys.stderr)
    per_gb = 1e9 if sys.platform == "darwin" else 1e6
    return process.returncode, time.monotonic() - start, usage.ru_maxrss / per_gb


def flat(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the rows in the form that all tables share."""
    return [
        {
            "system": "quadrotor" if row.case.startswith(("sample", "quad_")) else "rigid_contact",
            "method": "ours",
            "case": row.case,
            "metric": row.metric,
            "value": row.value,
            "std": None,
            "n": 1,
            "unit": row.unit,
            "paper": None,
        }
        for row in rows
        if not row.text
    ]


MARKDOWN = {  # heading -> metric, factor, format
    "within 5 cm, 5 deg": ("within_5cm_5deg_fraction", 100.0, "{:.0f} %"),
    "tracked": ("frames_tracked_fraction", 100.0, "{:.0f} %"),
    "position RMSE": ("position_rmse_m", 100.0, "{:.1f} cm"),
    "sideways": ("lateral_rmse_m", 1000.0, "{:.1f} mm"),
    "depth": ("depth_rmse_m", 1000.0, "{:.0f} mm"),
    "rotation, median": ("rotation_judged", 1.0, "{:.1f} deg"),
    "mass error": ("mass_error", 100.0, "{:+.1f} %"),
    "mass in its interval": ("mass_in_interval", 1.0, "{:.0f}"),
    "thrust RMS of hover": ("thrust_rms_of_hover", 100.0, "{:.1f} %"),
    "torques in their intervals": ("torques_in_interval", 100.0, "{:.0f} %"),
    "time": ("wall_seconds", 1.0, "{:.0f} s"),
    "poses in their intervals": ("interval_coverage", 100.0, "{:.0f} %"),
    "memory": ("peak_memory", 1.0, "{:.1f} GB"),
}


UNTRAINED = {  # the columns of --untrained
    "faces": ("faces", 1.0, "{:,.0f}"),
    "within 5 cm, 5 deg": MARKDOWN["within 5 cm, 5 deg"],
    "tracked": MARKDOWN["tracked"],
    "position RMSE": MARKDOWN["position RMSE"],
    "sideways": MARKDOWN["sideways"],
    "depth": MARKDOWN["depth"],
    "rotation, median": MARKDOWN["rotation, median"],
    "status": ("status", 1.0, "{}"),
    "time": MARKDOWN["time"],
}


def markdown(rows: list[Row], columns: dict[str, tuple[str, float, str]] = MARKDOWN) -> str:
    """Return a table for the docs: a line a case. columns: by heading, as in `MARKDOWN`."""
    found = {(row.case, row.metric): row for row in rows}
    lines = [f"| case | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for case in dict.fromkeys(row.case for row in rows):
        cells = []
        for metric, factor, form in columns.values():
            row = found.get((case, metric))
            number = "" if row is None or row.value is None else form.format(factor * row.value)
            cells.append(row.text if row is not None and row.text else number)
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def failures(rows: list[Row]) -> dict[str, str]:
    """Return the cases that failed, each with a title for the contact sheet."""
    good = "within_5cm_5deg_fraction"
    bad = {row.case: row.value for row in rows if row.metric == good and (row.value or 0.0) < GOOD_SHARE}
    status = {row.case: row.text for row in rows if row.metric == "status"}
    return {case: f"{case}: {share or 0.0:.0%} of the frames; {status[case]}" for case, share in bad.items()}


def run_all(cases: list[Case], work: Path) -> tuple[list[Row], list[str]]:
    """Run the cases; return their rows, and the names of those that ended by an error of the program."""
    rows, broken = [], []
    for case in cases:
        print(case.name, file=sys.stderr, flush=True)
        try:
            rows += run_case(case, work)
        except RuntimeError as error:
            broken.append(case.name)
            print(error, file=sys.stderr)
    return rows, broken


def main() -> None:
    """Run the cases, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--quick", action="store_true", help="the sample's first case alone")
    parser.add_argument("--untrained", action="store_true", help="all clips of single bodies with --model none")
    parser.add_argument("--clips", type=Path, help="folder of clips for --untrained")
    parser.add_argument("--failures", type=Path, help="image of the failed runs to write")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        chosen = untrained_cases(options.clips) if options.untrained else cases(options.quick)
        rows, broken = run_all(chosen, work)
        if options.failures is not None:
            titles = failures(rows)
            shown = {titles[case.name]: run_folder(case, work) for case in chosen if case.name in titles}
            write_sheet(options.failures, shown)
    if options.markdown:
        print(markdown(rows, UNTRAINED if options.untrained else MARKDOWN))
    for row in [] if options.markdown else rows:
        value = row.text or ("-" if row.value is None else f"{row.value:.5g}")
        print(f"{row.case:28} {row.metric:36} {value:>10} {row.unit}")
    if options.json is not None:
        status = {row.case: row.text for row in rows if row.metric == "status"}
        write_table(options.json, "identify", flat(rows), time.monotonic() - start, quick=options.quick, status=status)
    if broken:
        sys.exit(f"failed: {', '.join(broken)}")


if __name__ == "__main__":
    main()
