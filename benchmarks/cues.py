"""What each cue of the tracker is worth: errors of `track` with all cues and without each one, and the time it takes.

    python -m benchmarks.cues [--json FILE] [--markdown] [--frames N]

Clips: the sample, and those of ../shared/clips that have a mesh, a motion capture log and a trained model; the command
skips others. A clip is tracked once with all cues to warm up, once with all, and once without each cue that it can use.
Poses of single frames are judged, before any fit: position and rotation of the tracked frames against motion capture,
by the code of `evaluate`. The rotation of an exactly symmetric body is judged up to its symmetry. Time is CPU time of
all threads. `photometric` works after the first fit and is not part of `track`: the table does not judge it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import write_table
from vid2phys.engine import systems
from vid2phys.errors import Vid2PhysError
from vid2phys.geometry import Pose, quat_from_matrix
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.mocap import load_mocap
from vid2phys.io.video import read_clip
from vid2phys.report.alignment import Alignment, apply
from vid2phys.report.metrics import SymmetryGroup, summarize, symmetry_of
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.model_lookup import find_model
from vid2phys.risp.renders.viewpoints import tilt_spread
from vid2phys.tracking.cues import available
from vid2phys.tracking.cues.texture import SurfaceTexture
from vid2phys.tracking.track import Track
from vid2phys.tracking.tracker import track
from vid2phys.types import Camera, Clip, Mesh, PoseLog

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "samples" / "quadrotor"
CLIPS = ROOT.parent / "shared" / "clips"
ALL = "all cues"
UNITS = {
    "position_rmse": "mm",
    "rotation_median": "deg",
    "rotation_rmse": "deg",
    "tracked": "1",
    "cpu": "ms a frame",
}


@dataclass(frozen=True)
class Case:
    """A clip with all that tracking and judging it needs."""

    name: str
    clip: Clip
    camera: Camera
    mesh: Mesh
    model: Model
    symmetry: SymmetryGroup
    log: PoseLog
    offset_s: float  # motion capture time less video time
    tilt_std_rad: float | None

    def cues(self) -> tuple[str, ...]:
        """Return the names of the cues that can change the poses of this clip."""
        unused = {"photometric"}
        if self.mesh.texture is None:
            unused.add("texture")
        if self.symmetry.exact or len(self.model.rotations) < 2:
            unused |= {"symmetry", "part_colors"}
        return tuple(name for name in available() if name not in unused)

    def track(self, without: tuple[str, ...] = ()) -> tuple[Track, float]:
        """Return the track of the clip without some cues, and CPU milliseconds a frame."""
        began = time.process_time()
        found = track(
            self.clip,
            self.camera,
            self.model,
            self.model.radius_m,
            tilt_std_rad=self.tilt_std_rad,
            mesh=self.mesh,
            texture=SurfaceTexture.of(self.mesh, self.model.rotations, self.model.center),
            without=without,
        )
        return found, 1e3 * (time.process_time() - began) / len(self.clip.times_s)


def cases(frames: int | None) -> Iterator[Case]:
    """Yield the clips that can be judged; the names of others go to standard error."""
    for folder in (SAMPLE, *sorted(path for path in CLIPS.glob("*") if (path / "clip.mp4").is_file())):
        meshes = [path for path in sorted(folder.iterdir()) if path.suffix in (".obj", ".stl", ".ply", ".glb")]
        try:
            if not meshes:
                raise FileNotFoundError("no mesh")
            yield _case(folder, meshes[0], frames)
        except (Vid2PhysError, OSError) as error:
            print(f"skipped {folder.name}: {str(error)[:100]}", file=sys.stderr, flush=True)


def _case(folder: Path, mesh_path: Path, frames: int | None) -> Case:
    mesh, camera = load_mesh(mesh_path, "m"), load_camera(folder / "camera.yaml", None)
    model, clip = find_model(mesh, None, mesh_path=mesh_path), read_clip(folder / "clip.mp4")
    if frames is not None:
        images = list(clip.frames.at(range(min(frames, len(clip.times_s)))))
        clip = replace(clip, frames=ArrayFrames(np.stack(images)), times_s=clip.times_s[: len(images)])
    quadrotor = folder == SAMPLE or folder.name.startswith("quad")
    system = systems.get("quadrotor" if quadrotor else "rigid_contact")
    name = "sample" if folder == SAMPLE else folder.name
    log = load_mocap(folder / "mocap.csv")
    offset_s = float(json.loads((folder / "truth.json").read_text())["time_offset_s"])
    return Case(name, clip, camera, mesh, model, symmetry_of(mesh), log, offset_s, tilt_spread(system))


def in_world(found: Track, camera: Camera) -> PoseLog:
    """Return the poses of the tracked frames in the world."""
    rows = np.flatnonzero(found.tracked & found.poses.pose.is_finite)
    assert camera.camera_to_world is not None
    camera_to_world = np.asarray(camera.camera_to_world, dtype=float)
    pose = Pose(camera_to_world[:3, :3], camera_to_world[:3, 3]).compose(found.poses.pose[rows])
    return PoseLog(found.observation.times_s[rows], pose.translation, quat_from_matrix(pose.rotation))


def judged(case: Case, found: Track) -> dict[str, float | None]:
    """Return the errors of a track in the units of `UNITS`."""
    poses = in_world(found, case.camera)
    truth = apply(Alignment(case.offset_s), case.log, poses.times_s)
    numbers = summarize(poses, truth, symmetry=case.symmetry)
    suffix = "_up_to_symmetry" if case.symmetry.exact else ""
    position_m = numbers["position_rmse_m"]
    return {
        "position_rmse": None if position_m is None else 1e3 * position_m,
        "rotation_median": numbers[f"rotation_median_deg{suffix}"],
        "rotation_rmse": numbers[f"rotation_rmse_deg{suffix}"],
        "tracked": float(found.tracked.mean()),
    }


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the rows of one clip: with all cues, then without each."""
    case.track()  # compiles what is compiled
    for cue in (ALL, *case.cues()):
        found, cpu_ms = case.track(() if cue == ALL else (cue,))
        values = judged(case, found) | {"cpu": cpu_ms}
        method = cue if cue == ALL else f"without {cue}"
        print(f"{case.name}, {method}", file=sys.stderr, flush=True)
        for metric, value in values.items():
            rounded = None if value is None else float(f"{value:.4g}")
            yield {
                "system": case.name,
                "method": method,
                "metric": metric,
                "value": rounded,
                "n": len(case.clip.times_s),
                "unit": UNITS[metric],
            }


def markdown(table: list[dict[str, Any]]) -> str:
    """Return a table with one line for each clip and cue."""
    head = [f"{name.replace('_', ' ')}, {unit}" for name, unit in UNITS.items()]
    lines = ["| clip | cues | " + " | ".join(head) + " |", "|" + "---|" * (len(head) + 2)]
    for system, method in dict.fromkeys((row["system"], row["method"]) for row in table):
        values = {row["metric"]: row["value"] for row in table if (row["system"], row["method"]) == (system, method)}
        cells = ["-" if values[name] is None else f"{values[name]:.3g}" for name in UNITS]
        lines.append(f"| {system} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file to write the table to")
    parser.add_argument("--markdown", action="store_true", help="print the table")
    parser.add_argument("--frames", type=int, help="of each clip, at most: all unless given")
    options = parser.parse_args()
    start = time.monotonic()
    table = [row for case in cases(options.frames) for row in measure(case)]
    if options.json is not None:
        more = "" if options.frames is None else f"--frames {options.frames}"
        write_table(options.json, "cues", table, time.monotonic() - start, options=more)
    if options.markdown or options.json is None:
        print(markdown(table))


if __name__ == "__main__":
    main()
