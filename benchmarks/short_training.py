"""What a start from another model's features is worth: short trainings of one body, side by side.

    python -m benchmarks.short_training --body FILE --system NAME --starts none,models/cube [--json FILE]

All rows learn from the same renders, in the same order, and are judged on the same renders of held-out appearances, one
image at a time. `cpu_s` is the processor time of the fine network's training, its images and validation included: on 2
cores that nothing else uses, it takes about two thirds of that.

Limits: one seed; the coarse network and the calibration are left out.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.tables import write_table
from vid2phys.commands.train_rigid import training_data
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.systems import get
from vid2phys.io.primitives import is_primitive, load_body
from vid2phys.risp.recipes import PenaltyOptions, TrainingData, TrainingRun, head_of, train_head
from vid2phys.risp.training.features import Features
from vid2phys.risp.training.train import Schedule

NONE = "none"


@dataclass(frozen=True)
class Row:
    """One training; errors are medians on held-out appearances, rotations up to the body's symmetry."""

    body: str
    start: str
    renders: int
    epochs: int
    gamma: float
    learning_rate: float
    px: float
    rotation_deg: float
    rotation_over_20deg: float
    cpu_s: float


def train(data: TrainingData, start: str, schedule: Schedule, gamma: float, body: str) -> Row:
    """Train the fine network once. start: a model folder, or none."""
    begin = None if start == NONE else Features.load(start)
    before = _processor_s()
    with TemporaryDirectory() as folder:
        run = TrainingRun(Path(folder), "cpu", TrainingProgress(), False, begin)
        done = train_head(data, head_of(data, "keypoint"), schedule, run, PenaltyOptions(gamma), seed=0)
    last = done.history[-1]
    return Row(
        *(body, Path(start).name, data.renders - data.held_out, schedule.epochs, gamma, schedule.learning_rate),
        *(round(last[name], 3) for name in ("px", "rotation_deg", "rotation_over_20deg")),
        round(_processor_s() - before, 1),
    )


def _processor_s() -> float:
    """Return the processor time of this process and of those that it has waited for, s."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--body", required=True, help="a mesh, or a primitive")
    parser.add_argument("--system", default="rigid_contact")
    parser.add_argument("--starts", default=NONE, help="model folders, or none, with commas between")
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--gamma", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=Schedule.learning_rate)
    parser.add_argument("--work", type=Path, default=Path("runs/short-training"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.monotonic()
    mesh, primitive = (None, given.body) if is_primitive(given.body) else (Path(given.body), None)
    body = load_body(mesh, primitive, "m", None)
    name = Path(given.body).stem
    data = training_data(
        body, get(given.system), given.work / name, samples=given.samples, seed=0, progress=TrainingProgress()
    )
    rows = []
    for start in given.starts.split(","):
        schedule = Schedule(given.epochs, workers=1, learning_rate=given.rate)
        rows.append(train(data, start, schedule, given.gamma, name))
        print(asdict(rows[-1]), flush=True)
    if given.json:
        options = f"--body {name} --system {given.system} --starts {given.starts} --samples {given.samples}"
        options += f" --epochs {given.epochs} --gamma {given.gamma:g} --rate {given.rate:g}"
        seconds = time.monotonic() - began
        write_table(given.json, "short_training", [asdict(row) for row in rows], seconds, options=options)


if __name__ == "__main__":
    main()
