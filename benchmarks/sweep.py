"""Where tracking without a trained model stops to work: size, blur, noise, occlusion and background, one at a time.

    python -m benchmarks.sweep --markdown --json FILE [--axis size blur] [--body box] [--failures SHEET.png]

`benchmarks.sweep_clips` makes each clip, `vid2phys identify --model none` tracks it, and `evaluate` judges it. A line
of the table is one clip a body. A cell with less than 95 % of the frames within 5 cm and 5 deg has failed. It is marked
(!) where its status is `converged`, since there the tool did not notice. `--work DIR` keeps clips and runs, and a later
call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.contact_sheet import write_sheet
from benchmarks.identify import GOOD_SHARE, Case, Row, failures, flat, run_case, run_folder
from benchmarks.sweep_clips import BODIES, Cell, make
from benchmarks.tables import write_table

_BASE, _FAST = Cell(), Cell(fps=30.0)  # at 30 frames a second a body passes 30 px in a frame
_SIZES = {15: 2.0, 20: 2.0, 30: 2.0, 50: 2.0, 80: 2.0, 150: 2.0, 300: 4.0}  # px: m
AXES: dict[str, dict[str, Cell]] = {
    "size": {f"{v} px": replace(_BASE, size_px=v, distance_m=m) for v, m in _SIZES.items()},
    "blur": {f"{v} px": replace(_FAST, blur_px=v) for v in (0, 4, 8, 16, 28)},
    "noise": {f"{v} of 255": replace(_BASE, noise=v) for v in (5, 10, 20, 40)},
    "occlusion": {f"{v:.0%}": replace(_BASE, covered=v) for v in (0.1, 0.25, 0.5, 0.7)},
    "background": {f"{v} patches": replace(_BASE, patches=v) for v in (0, 100, 1000)},
    "own colour": {f"{v:.0%} of 100 patches": replace(_BASE, patches=100, own_color=v) for v in (0.25, 0.5, 1.0)},
}
_DIAGNOSTICS = {"rms_px": "px", "branch_log_ratio": "nats"}
_UNEXPLAINED = {"action_force_std": "N", "action_torque_std": "N m"}


@dataclass(frozen=True)
class Run:
    """One clip of the sweep. label: what the axis is set to."""

    axis: str
    label: str
    body: str

    @property
    def name(self) -> str:
        """Return the name of the clip's folder."""
        return f"{self.axis} {self.label} {self.body}".replace(" ", "_").replace("%", "pc")


def runs(axes: list[str], bodies: list[str]) -> Iterator[Run]:
    """Yield the runs of some axes."""
    for axis in axes:
        for label in AXES[axis]:
            for body in bodies:
                yield Run(axis, label, body)


def measure(run: Run, work: Path) -> list[Row]:
    """Make the clip, identify, evaluate. Rows that exist in the folder are returned as they are."""
    kept = work / f"{run.name}.json"
    if kept.is_file():
        return [Row(**row) for row in json.loads(kept.read_text())]
    folder = work / "clips" / run.name
    if not (folder / "clip.mp4").is_file():
        make(AXES[run.axis][run.label], BODIES[run.body], folder)
    case = Case(run.name, folder, "mesh.obj", ("--model", "none", "--system", "rigid_contact"), None)
    shutil.rmtree(run_folder(case, work / "runs"), ignore_errors=True)  # of a call that was interrupted
    rows = [*run_case(case, work / "runs"), *_diagnostics(run, run_folder(case, work / "runs") / "result.json")]
    kept.write_text(json.dumps([vars(row) for row in rows]))
    return rows


def _diagnostics(run: Run, result: Path) -> Iterator[Row]:
    """Yield what a result says about itself."""
    if not result.is_file():
        return
    found = json.loads(result.read_text())["diagnostics"]
    for names, values in ((_DIAGNOSTICS, found), (_UNEXPLAINED, found.get("levels", {}))):
        for name, unit in names.items():
            yield Row(run.name, name, values.get(name), unit)


def markdown(rows: list[Row], done: list[Run]) -> str:
    """Return a table: a line for each setting, three columns for each body."""
    found = {(row.case, row.metric): row for row in rows}
    bodies = list(dict.fromkeys(run.body for run in done))
    heads = [f"{body}: {what}" for body in bodies for what in ("within 5 cm, 5 deg", "sideways", "status")]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for axis, label in dict.fromkeys((run.axis, run.label) for run in done):
        cells = [cell for body in bodies for cell in _cells(found, Run(axis, label, body).name)]
        lines.append(f"| {axis} {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(found: dict[tuple[str, str], Row], case: str) -> list[str]:
    if (case, "status") not in found:
        return ["", "", ""]
    share = found[case, "within_5cm_5deg_fraction"].value or 0.0
    sideways = found.get((case, "lateral_rmse_m"))
    status = found[case, "status"].text
    aside = "" if sideways is None or sideways.value is None else f"{1000.0 * sideways.value:.1f} mm"
    return [f"{share:.0%}", aside, f"{status} (!)" if status == "converged" and share < GOOD_SHARE else status]


def main() -> None:
    """Run the sweep, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    parser.add_argument("--axis", nargs="*", choices=list(AXES), default=list(AXES))
    parser.add_argument("--body", nargs="*", choices=list(BODIES), default=list(BODIES))
    parser.add_argument("--failures", type=Path, help=f"image to write, of runs below {GOOD_SHARE:.0%}%")
    parser.add_argument("--work", type=Path, help="folder that keeps clips and runs")
    options = parser.parse_args()
    start, rows, done = time.monotonic(), list[Row](), list(runs(options.axis, options.body))
    with nullcontext(str(options.work)) if options.work else tempfile.TemporaryDirectory() as name:
        work = Path(name)
        work.mkdir(parents=True, exist_ok=True)
        for run in done:
            own = measure(run, work)
            rows += own
            print(run.name, _cells({(row.case, row.metric): row for row in own}, run.name), flush=True)
        if options.failures is not None:
            write_sheet(options.failures, {title: work / "runs" / case for case, title in failures(rows).items()})
    if options.markdown:
        print(markdown(rows, done))
    if options.json is not None:
        status = {row.case: row.text for row in rows if row.metric == "status"}
        write_table(options.json, "sweep", flat(rows), time.monotonic() - start, status=status)


if __name__ == "__main__":
    main()
