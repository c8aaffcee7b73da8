"""What fitting outlines adds to keypoints, on looks never seen: depth, sideways, rotation, by size in the frame.

    python -m benchmarks.contour --json FILE [--quick] [--markdown] [--work FOLDER] [--looks N]

Sequences of new looks are rendered (kept in --work, so that a second run is quick; needs LLVM, see `vid2phys doctor`)
and developed into short clips at each size, as for calibration. Each frame is read by the shipped network as the
tracker reads it; from that pose start `contour` (outline alone, with a weak prior), `fused` (outline with the
keypoints' covariance as prior) and `align` (mesh to the pixels of all frames over the true background, what the solver
does at last). Errors are up to the body's symmetry. `normalised` is the error over what was stated; 1 is honest.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import write_table
from vid2phys.engine.systems import get
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.io.mesh import load_mesh
from vid2phys.io.photographs import photographs
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.risp.networks.model import Model
from vid2phys.risp.renders.held_out import HeldOutClip, make_clip
from vid2phys.risp.renders.make_dataset import RenderOptions, make_dataset
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE
from vid2phys.tracking.cues.background_image import Backdrop
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.photometric import PRIOR_STD, Stage, align
from vid2phys.tracking.uncertainty.contour_errors import NetworkPose, detect_clip
from vid2phys.types import Array, Mesh

ROOT = Path(__file__).resolve().parents[1]
BODIES = {
    "quadrotor": ROOT / "samples" / "quadrotor" / "quad.obj",
    "crazyflie": ROOT.parent / "shared" / "clips" / "quad_log203" / "mesh.obj",
}
SIZES_PX = (20.0, 35.0, 60.0, 100.0, 200.0)
FRAMES = (1, 5, 9, 13)  # of a sequence
LOOKS, QUICK_LOOKS = 20, 2
SEED = 2_000_003


Errors = dict[str, list[tuple[Array, Array]]]  # of each method: error [6] in modes, covariance [6, 6]


def judge(solid: Solid, model: Model, clip: HeldOutClip, rng: np.random.Generator, spent: dict[str, float]) -> Errors:
    """Return the errors of every method in the clip's frames that the network believes it sees the body in."""
    calibration = Calibration.from_dict(model.calibration)
    readings = list(detect_clip(model, calibration, clip, rng, FRAMES))
    scale = np.array(calibration.contour_scale)
    found: Errors = defaultdict(list)
    for seen in readings:
        start = Pose(seen.rotation, seen.translation)
        found["keypoints"].append((_error(clip, seen.frame, start), seen.covariance))
        for method, prior in (("contour", None), ("fused", np.linalg.inv(seen.covariance))):
            began = time.process_time()
            fit = fit_contour(clip.frames[seen.frame], clip.cameras[seen.frame], solid, start, prior=prior)
            spent[method] = spent.get(method, 0.0) + time.process_time() - began
            if fit is not None:
                stated = scale[:, None] * fit.covariance * scale
                found[method].append((_error(clip, seen.frame, fit.pose), stated))
            elif method == "fused":
                found[method].append(found["keypoints"][-1])
    _align(solid.mesh, clip, readings, np.array(calibration.align_scale), found)
    return found


def _align(mesh: Mesh, clip: HeldOutClip, readings: list[NetworkPose], scale: Array, found: Errors) -> None:
    behind = Backdrop(clip.background, np.ones(clip.background.shape[:2], dtype=bool))
    kept, looks = [], []
    for seen in readings:
        at = Stage(mesh, clip.cameras[seen.frame], behind).frame_at(
            clip.frames[seen.frame], Pose(seen.rotation, seen.translation)
        )
        if at is not None:
            kept.append(seen.frame)
            looks.append(at)
    if not looks:
        return
    result = align(looks)
    for k in np.flatnonzero(result.usable):
        pose = looks[k].pose.retract(result.steps[k])
        covariance = scale[:, None] * result.covariance[k] * scale
        found["align"].append((_error(clip, kept[k], pose), covariance))


def _error(clip: HeldOutClip, frame: int, pose: Pose) -> Array:
    return Pose(clip.rotation[frame], clip.translation[frame]).step_to(pose)


def rows(body: str, size_px: float, found: Errors) -> Iterator[dict[str, Any]]:
    """Return the numbers of one body at one size."""
    for method, pairs in found.items():
        error = np.array([pair[0] for pair in pairs])
        normal = error / np.sqrt(np.array([np.diag(pair[1]) for pair in pairs]))
        parts = {
            "rotation": (np.degrees(np.linalg.norm(error[:, :3], axis=1)), normal[:, :3], "deg"),
            "sideways": (1e3 * np.linalg.norm(error[:, 3:5], axis=1), normal[:, 3:5], "1e-3 of range"),
            "depth": (1e2 * np.abs(error[:, 5]), normal[:, 5:], "% of range"),
        }
        for name, (values, ratio, unit) in parts.items():
            robust = float(np.sqrt(np.median(ratio**2) / 0.455))
            numbers = [(f"{name}_median", float(np.median(values)), unit), (f"{name}_p90", _p90(values), unit)]
            numbers += [
                (f"{name}_normalised", robust, "1"),
                (f"{name}_normalised_p90", _p90(np.abs(ratio)) / 1.645, "1"),
            ]
            for metric, value, units in numbers:
                yield {
                    "system": body,
                    "size_px": size_px,
                    "method": method,
                    "metric": metric,
                    "value": round(value, 4),
                    "n": len(values),
                    "unit": units,
                }


def _p90(values: Array) -> float:
    return float(np.quantile(values, 0.9))


def measure(work: Path, quick: bool, looks: int) -> Iterator[dict[str, Any]]:
    """Yield all rows. Bodies whose mesh is not there are left out."""
    bank = make_bank(photographs(), count=32, seed=1)
    rendered, sizes = (QUICK_LOOKS, SIZES_PX[1::2]) if quick else (LOOKS, SIZES_PX)
    looks = min(looks, rendered)
    for body, path in BODIES.items():
        if not path.exists() or (quick and body != "quadrotor"):
            continue
        mesh, model = load_mesh(path), Model.load(ROOT / "models" / body)
        solid = Solid.of(mesh)
        renders = make_dataset(
            mesh,
            get("quadrotor"),
            work / f"{body}-{rendered}",
            RenderOptions(rendered * FRAMES_PER_SEQUENCE, SEED, gradient_share=0.0, size=288, sequences=True),
            workers=1,
        )
        warm = make_clip(renders, 0, model.radius_m, bank, seed=7, in_frame_px=(sizes[0], sizes[0]))
        fit_contour(
            warm.frames[0], warm.cameras[0], solid, Pose(warm.rotation[0], warm.translation[0]).retract(PRIOR_STD / 2)
        )
        for size in sizes:
            found: Errors = defaultdict(list)
            spent: dict[str, float] = {}
            for sequence in range(looks):
                clip = make_clip(renders, sequence, model.radius_m, bank, seed=7, in_frame_px=(size, size))
                rng = np.random.default_rng([SEED, sequence, int(size)])
                for method, pairs in judge(solid, model, clip, rng, spent).items():
                    found[method] += pairs
            yield from rows(body, size, found)
            for method, seconds in spent.items():
                milliseconds = 1e3 * seconds / max(1, len(found["keypoints"]))
                yield {"system": body, "size_px": size, "method": method, "metric": "cpu_per_frame",
                       "value": round(milliseconds, 1), "n": len(found["keypoints"]), "unit": "ms"}  # fmt: skip


def markdown(table: list[dict[str, Any]]) -> str:
    """Return the medians, p90 and normalised errors, a line a body, size and method."""
    lines = ["| body | px | method | rotation deg | sideways 1e-3 | depth % | normalised rot / side / depth |"]
    lines.append("|---|---|---|---|---|---|---|")
    keys = dict.fromkeys((row["system"], row["size_px"], row["method"]) for row in table)
    for key in keys:
        v = {r["metric"]: r["value"] for r in table if (r["system"], r["size_px"], r["method"]) == key}
        cells = [f"{v[f'{n}_median']:.2f} ({v[f'{n}_p90']:.1f})" for n in ("rotation", "sideways", "depth")]
        ratio = " / ".join(f"{v[f'{n}_normalised']:.1f}" for n in ("rotation", "sideways", "depth"))
        lines.append(f"| {key[0]} | {key[1]:.0f} | {key[2]} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "benchmarks" / "contour")
    parser.add_argument("--looks", type=int, default=LOOKS, help="judge the first so many only")
    options = parser.parse_args()
    start = time.monotonic()
    table = list(measure(options.work, options.quick, options.looks))
    seconds = time.monotonic() - start
    write_table(
        options.json,
        "contour",
        table,
        seconds,
        quick=options.quick,
        options="" if options.quick else f"--looks {options.looks}",
    )
    if options.markdown:
        print(markdown(table))


if __name__ == "__main__":
    main()
