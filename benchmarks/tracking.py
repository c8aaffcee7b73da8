"""Where the time of tracking goes: CPU milliseconds a frame of each stage, and frames a second.

    python -m benchmarks.tracking --json FILE [--markdown] [--quick] [CLIP_FOLDER ...]

Each folder holds clip.mp4, camera.yaml and one mesh (the sample, unless others are given). A clip is tracked once to
warm up and once more with clocks about the stages. CPU time (all threads) says what an idle machine would need, also
where others work beside it; `fps` is frames over seconds as they passed, so that the machine has to be idle.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.tables import write_table
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.video import read_clip
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.model_lookup import find_model
from vid2phys.tracking import tracker as tracking
from vid2phys.tracking.background import Background
from vid2phys.tracking.detectors import network
from vid2phys.tracking.detectors.search import ObjectDetector
from vid2phys.tracking.first_pass import Follower

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "samples" / "quadrotor"
# stage: where it is called, and its name there. The first two hold most of the others.
STAGES: dict[str, tuple[Any, str]] = {
    "first pass": (Follower, "run"),
    "second pass": (tracking, "_detect_all"),
    "search": (ObjectDetector, "search"),
    "views": (network, "resample"),
    "network": (Model, "predict"),
    "poses": (network, "solve_poses"),
    "motion": (Background, "moving"),
    "labels": (tracking, "label"),
    "contours": (tracking, "refine_contours"),
}


def timed(function: Callable[..., Any], stage: str, spent: dict[str, float]) -> Callable[..., Any]:
    """Return the function, adding its CPU seconds to spent[stage]."""

    def run(*args: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return function(*args, **options)
        finally:
            spent[stage] = spent.get(stage, 0.0) + time.process_time() - began

    return run


def measure(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the rows of one clip."""
    path = next(path for path in sorted(folder.iterdir()) if path.suffix in (".obj", ".stl", ".ply", ".glb"))
    mesh, camera, clip = load_mesh(path), load_camera(folder / "camera.yaml", None), read_clip(folder / "clip.mp4")
    model = find_model(mesh, None, mesh_path=path, system="quadrotor")
    spent: dict[str, float] = {}
    tracking.track(clip, camera, model, model.radius_m, mesh=mesh)
    with ExitStack() as clocks:
        for stage, (owner, name) in STAGES.items():
            clocks.enter_context(patch.object(owner, name, timed(getattr(owner, name), stage, spent)))
        began, passed = time.process_time(), time.monotonic()
        found = tracking.track(clip, camera, model, model.radius_m, mesh=mesh)
        total, passed = time.process_time() - began, time.monotonic() - passed
    frames = len(clip.times_s)
    common = {"system": folder.name, "method": f"{clip.width}x{clip.height}", "n": frames}
    for stage, seconds in {**spent, "all": total}.items():
        yield common | {"metric": stage, "value": round(1e3 * seconds / frames, 2), "unit": "ms a frame"}
    yield common | {"metric": "fps", "value": round(frames / passed, 1), "unit": "1/s"}
    yield common | {"metric": "tracked", "value": round(float(found.tracked.mean()), 4), "unit": "1"}


def markdown(table: list[dict[str, Any]]) -> str:
    """Return a line a clip."""
    metrics = [*STAGES, "all", "fps"]
    lines = ["| clip | size | " + " | ".join(metrics) + " |", "|" + "---|" * (len(metrics) + 2)]
    for clip, size in dict.fromkeys((row["system"], row["method"]) for row in table):
        values = {row["metric"]: row["value"] for row in table if row["system"] == clip}
        lines.append(f"| {clip} | {size} | " + " | ".join(f"{values.get(m, 0.0):.1f}" for m in metrics) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[SAMPLE])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="the first clip only")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    start = time.monotonic()
    table = [row for folder in options.folders[: 1 if options.quick else None] for row in measure(folder)]
    seconds = time.monotonic() - start
    write_table(options.json, "tracking", table, seconds, quick=options.quick)
    if options.markdown:
        print(markdown(table))


if __name__ == "__main__":
    main()
