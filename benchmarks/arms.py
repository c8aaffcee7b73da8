"""Joint coordinates of arms that are tracked with nothing trained, against the true ones; and what is fitted to them.

    python -m benchmarks.arms [--json FILE] [--markdown] [--seeds N] [--arms NAME,...]
    python -m benchmarks.arms --values [--clips DIR]

Cases: clips of ../shared/clips that have arm.urdf and joint_states.csv, and drawn arms (`tests.moving_arm`) in N random
motions each, before another wall each. Frames are judged before a motion is fitted. `rms` is that of the worst joint,
in deg; sliding joints are apart, in mm. `median` is over all frames and joints. `within` is the share of frames where
all joints are within 5 deg and 5 mm. `stated` is the RMS of errors divided by their stated standard deviations; 1 is
honest.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import arm_values
from benchmarks.tables import write_table
from experiments.table import row
from tests.moving_arm import SWING, Link, arm_clip, camera_of, swings, urdf
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.systems.articulated import Articulated
from vid2phys.io.camera import load_camera
from vid2phys.io.robot import parse_robot
from vid2phys.io.video import read_clip
from vid2phys.tracking.articulated.silhouette_tracker import track_silhouettes
from vid2phys.types import Array, Camera, Clip

CLIPS = Path(__file__).resolve().parents[2] / "shared" / "clips"
FRAMES = 84
SHARES = ("tracked", "within")
UNITS = {
    "tracked": "1",
    "within": "1",
    "rms": "deg",
    "median": "deg",
    "rms_slide": "mm",
    "stated": "1",
    "seconds": "s",
}
GREY, BLUE, WHITE, ORANGE = (0.25, 0.25, 0.3), (0.2, 0.35, 0.7), (0.75, 0.75, 0.72), (0.8, 0.45, 0.1)
UP, ACROSS = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)
# three joints, of which the first turns the arm towards the camera
THREE = (
    Link((0, 0, 0.04), UP, (0, 0, 0.06), (0.05, 0.04, 0.12), ORANGE, (-2.6, 2.6)),
    Link((0, 0, 0.12), ACROSS, (0.1, 0, 0), (0.22, 0.03, 0.03), BLUE, (-1.9, 0.6)),
    Link((0.2, 0, 0), ACROSS, (0.08, 0, 0), (0.18, 0.022, 0.022), WHITE, (-0.3, 2.4)),
)
# two joints about the vertical, and a rod that slides
SCARA = (
    Link((0, 0, 0.25), UP, (0.11, 0, 0), (0.26, 0.05, 0.03), WHITE, (-2.2, 2.2)),
    Link((0.22, 0, 0.03), UP, (0.08, 0, 0), (0.2, 0.04, 0.03), ORANGE, (-2.4, 2.4)),
    Link((0.16, 0, 0), UP, (0, 0, -0.02), (0.02, 0.02, 0.22), GREY, (-0.08, 0.06), True),
)
FIVE = (
    Link((0, 0, 0.04), UP, (0, 0, 0.05), (0.06, 0.06, 0.1), WHITE, (-2.9, 2.9)),
    Link((0, 0, 0.1), ACROSS, (0, 0, 0.1), (0.04, 0.05, 0.2), ORANGE, (-1.5, 1.5)),
    Link((0, 0, 0.2), ACROSS, (0, 0, 0.07), (0.035, 0.04, 0.15), WHITE, (-2.2, 2.2)),
    Link((0, 0, 0.14), ACROSS, (0, 0, 0.04), (0.03, 0.035, 0.08), ORANGE, (-1.8, 1.8)),
    Link((0, 0, 0.08), UP, (0.01, 0, 0.03), (0.07, 0.015, 0.06), GREY, (-2.9, 2.9)),
)
DRAWN = {
    "swing": (SWING, camera_of((0.3, -1.1, 0.1), (0.0, 0.0, -0.05), 480, 600.0)),
    "three": (THREE, camera_of((0.7, -1.2, 0.75), (0.0, 0.0, 0.15), 640, 900.0)),
    "scara": (SCARA, camera_of((0.5, -0.9, 0.9), (0.05, 0.0, 0.2), 640, 800.0)),
    "five": (FIVE, camera_of((0.9, -1.1, 0.6), (0.0, 0.0, 0.2), 640, 800.0)),
}


@dataclass(frozen=True)
class Case:
    """A clip of an arm. coordinates: [T, D] true ones."""

    name: str
    clip: Clip
    camera: Camera
    body: JointBody
    coordinates: Array


def filmed() -> Iterator[Case]:
    """Yield the clips of ../shared/clips that show an arm."""
    for folder in sorted(CLIPS.glob("*")):
        if (folder / "arm.urdf").exists() and (folder / "joint_states.csv").exists():
            body = JointBody(Articulated(folder / "arm.urdf"))
            rows = np.loadtxt(folder / "joint_states.csv", delimiter=",", skiprows=1)
            true = rows[:, 2 : 2 + len(body.names)]
            yield Case(folder.name, read_clip(folder / "clip.mp4"), load_camera(folder / "camera.yaml"), body, true)


def drawn(name: str, seed: int) -> Case:
    """Return the clip of a drawn arm in a random motion."""
    links, camera = DRAWN[name]
    motion = swings(links, FRAMES, seed)
    body = JointBody(Articulated(parse_robot(urdf(links, name), Path(f"{name}.urdf"))))
    return Case(f"{name}-{seed}", arm_clip(links, camera, motion, seed), camera, body, motion)


def judged(case: Case) -> dict[str, float]:
    """Return the errors of a tracked clip, by column."""
    started = time.monotonic()
    track = track_silhouettes(case.clip, case.camera, case.body)
    seconds = time.monotonic() - started
    used, angle = track.tracked, case.body.is_angle
    off = case.body.difference(case.coordinates, track.configurations)[used]
    stated = np.sqrt(np.einsum("tii->ti", track.covariance[used]))
    scaled = off * np.where(angle, 180.0 / np.pi, 1000.0)
    rms = np.sqrt((scaled**2).mean(axis=0))
    return {
        "tracked": float(used.mean()),
        "within": float((np.abs(scaled) < 5.0).all(axis=1).sum() / len(used)),
        "rms": float(rms[angle].max()),
        "median": float(np.median(np.abs(scaled[:, angle]))),
        "rms_slide": float(rms[~angle].max(initial=0.0)),
        "stated": float(np.sqrt(((off / stated) ** 2).mean())),
        "seconds": seconds,
    }


def print_values(clips: Path) -> None:
    """Print the table of fitted values of the clips in a folder."""
    print("| " + " | ".join(arm_values.HEADER) + " |", "|---" * len(arm_values.HEADER) + "|", sep="\n")
    lines = []
    for values, line in arm_values.table(clips):
        print(*("| " + " | ".join(value.cells) + " |" for value in values), sep="\n", flush=True)
        lines.append(line)
    print(*lines, sep="\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the table here, too")
    parser.add_argument("--markdown", action="store_true", help="print the table for docs")
    parser.add_argument("--seeds", type=int, default=3, help="random motions of each drawn arm")
    parser.add_argument("--arms", default=",".join(DRAWN), help="drawn arms, with commas between them")
    parser.add_argument("--values", action="store_true", help="fit damping and payload of the clips by the command")
    parser.add_argument("--clips", type=Path, default=CLIPS, help="folder of the clips, for --values")
    options = parser.parse_args()
    if options.values:
        print_values(options.clips)
        return
    began, table = time.monotonic(), list[tuple[str, dict[str, float]]]()
    names = [name for name in options.arms.split(",") if name]
    cases = itertools.chain(filmed(), (drawn(name, seed) for name in names for seed in range(options.seeds)))
    if options.markdown:
        print("| case | " + " | ".join(UNITS) + " |", "|---" * (len(UNITS) + 1) + "|", sep="\n")
    for case in cases:
        found = judged(case)
        table.append((case.name, found))
        cells = [f"{100 * found[c]:.0f} %" if c in SHARES else f"{found[c]:.2f}" for c in UNITS]
        print(
            "| " + " | ".join([case.name, *cells]) + " |" if options.markdown else f"{case.name:10} {cells}", flush=True
        )
    if options.json:
        rows = [row(name, "ours", c, value, UNITS[c]) for name, found in table for c, value in found.items()]
        more = f"--seeds {options.seeds} --arms {options.arms}"
        write_table(options.json, "arms", rows, time.monotonic() - began, options=more)


if __name__ == "__main__":
    main()
