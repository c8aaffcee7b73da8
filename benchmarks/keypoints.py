"""Keypoints of another tracker with errors of several kinds: how near the poses are, and whether intervals hold.

    python -m benchmarks.keypoints [--seeds N] [--markdown]

Six points of the sample's quadrotor are projected along its motion capture and made wrong in known ways. The files say
nothing of their errors. Columns: the position errors of OpenCV's solvePnP frame by frame and of `identify` (root mean
square over frames and seeds), the share of pose coordinates within their 95 % interval, the largest error of the mass.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from vid2phys.commands.evaluate import evaluate
from vid2phys.commands.identify import identify
from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.engine.pose_geometry import pose_modes
from vid2phys.geometry import Pose, invert_transform, make_transform, matrix_from_quat
from vid2phys.io.camera import load_camera
from vid2phys.io.keypoints import Keypoints, save_keypoints
from vid2phys.io.mocap import load_mocap
from vid2phys.io.points import save_body_points
from vid2phys.io.video import read_clip
from vid2phys.report.alignment import Alignment, apply
from vid2phys.types import Array, Camera

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "quadrotor"
POINTS = {
    "nose": [0.12, 0.0, 0.01],
    "motor front left": [0.08, 0.09, 0.02],
    "motor front right": [0.08, -0.09, 0.02],
    "motor rear left": [-0.08, 0.09, 0.02],
    "motor rear right": [-0.08, -0.09, 0.02],
    "battery": [0.0, 0.0, -0.04],
}
LASTS_S = 0.2


@dataclass(frozen=True)
class Scene:
    """The sample: camera, times [T] s, poses camera_from_body [T, 4, 4], and pixels [T, K, 2] of the points."""

    camera: Camera
    times_s: Array
    poses: Array
    pixels: Array


@dataclass(frozen=True)
class Row:
    """A kind of errors: position errors [m] of PnP and of the fit, coverage, and the largest error of the mass [kg]."""

    errors: str
    pnp_m: float
    fit_m: float
    coverage: float
    mass_kg: float


def scene() -> Scene:
    """Return the sample's points as its motion capture has them."""
    truth = json.loads((SAMPLE / "truth.json").read_text(encoding="utf-8"))
    camera, times_s = load_camera(SAMPLE / "camera.yaml"), read_clip(SAMPLE / "clip.mp4").times_s
    places, quats, _ = apply(Alignment(truth["time_offset_s"]), load_mocap(SAMPLE / "mocap.csv"), times_s)
    assert camera.camera_to_world is not None
    poses = invert_transform(camera.camera_to_world) @ make_transform(matrix_from_quat(quats), places)
    seen = np.einsum("tij,kj->tki", poses[:, :3, :3], np.array(list(POINTS.values()))) + poses[:, None, :3, 3]
    return Scene(camera, times_s, poses, bearings_to_pixels(camera, seen[..., :2] / seen[..., 2:]))


def errors(made: Scene, seed: int) -> Iterator[tuple[str, Array]]:
    """Return the errors [T, K, 2] px of several kinds."""
    rng, shape = np.random.default_rng(seed), made.pixels.shape
    yield "0.3 px independent", rng.normal(0.0, 0.3, shape)
    yield "1 px independent", rng.normal(0.0, 1.0, shape)
    shift = lasting(rng, made.times_s, 2)[:, None]
    yield f"0.3 px independent, a shift of 1 px shared for {LASTS_S:g} s", rng.normal(0.0, 0.3, shape) + shift
    outliers = np.where(rng.random(shape[:2])[..., None] < 0.05, rng.normal(0.0, 20.0, shape), 0.0)
    yield "0.3 px independent, 5 % off by 20 px", rng.normal(0.0, 0.3, shape) + outliers
    yield "heavy tails: 0.3 px, Student's t with 3 degrees", 0.3 * rng.standard_t(3.0, shape)
    focal = np.sqrt(made.camera.K[0, 0] * made.camera.K[1, 1])
    modes = focal * pose_modes(Pose(made.poses[:, :3, :3], made.poses[:, :3, 3]), np.array(list(POINTS.values())))
    modes /= np.sqrt((modes**2).sum(axis=2, keepdims=True).mean(axis=1, keepdims=True) / 2.0)
    shared = np.einsum("tkir,tr->tki", modes, lasting(rng, made.times_s, 6))
    yield (
        f"0.3 px independent, shift, turn and scale of 1 px each for {LASTS_S:g} s",
        rng.normal(0.0, 0.3, shape) + shared,
    )


def lasting(rng: np.random.Generator, times_s: Array, count: int) -> Array:
    """Return the numbers of unit variance that are forgotten within `LASTS_S`, [T, count]."""
    values = np.zeros((len(times_s), count))
    values[0] = rng.normal(size=count)
    for k, step_s in enumerate(np.diff(times_s), start=1):
        kept = np.exp(-step_s / LASTS_S)
        values[k] = kept * values[k - 1] + np.sqrt(1.0 - kept**2) * rng.normal(size=count)
    return values


def pnp_error(made: Scene, pixels: Array) -> float:
    """Return the root mean square position error [m] of OpenCV's solvePnP, frame by frame, begun at the true pose."""
    camera, points, found = made.camera, np.array(list(POINTS.values())), []
    for frame, pose in zip(pixels, made.poses, strict=True):
        turn, place = cv2.Rodrigues(pose[:3, :3])[0], pose[:3, 3:].copy()
        _, _, place = cv2.solvePnP(points, frame, camera.K, camera.distortion, turn, place, useExtrinsicGuess=True)
        found.append(place[:, 0])
    return float(np.sqrt(((np.array(found) - made.poses[:, :3, 3]) ** 2).sum(axis=1).mean()))


def fit(made: Scene, pixels: Array, folder: Path) -> tuple[float, float, float]:
    """Return the position error [m], coverage, and error of the mass [kg] of identify."""
    names = tuple(POINTS)
    seen = Keypoints(names, pixels, None, np.ones(pixels.shape[:2], dtype=bool), None)
    save_keypoints(seen, made.times_s, folder / "points.csv")
    save_body_points({name: np.array(place) for name, place in POINTS.items()}, folder / "body.csv")
    result, run = identify(
        *(SAMPLE / "clip.mp4", SAMPLE / "quad.obj", SAMPLE / "camera.yaml"), actions=SAMPLE / "actions.csv",
        fit=("mass",), observation=folder / "points.csv", body_points=folder / "body.csv", overlay=False,
        out=folder / "run",
    )  # fmt: skip
    metrics, _ = evaluate(run, mocap=SAMPLE / "mocap.csv", plots=False)
    truth = json.loads((SAMPLE / "truth.json").read_text(encoding="utf-8"))
    mass = next(estimate.value for estimate in result.parameters if estimate.name == "mass")
    off = abs(mass - truth["parameters"]["mass"])
    return metrics["position_rmse_m"], metrics["interval_coverage"], off


def rows(seeds: int) -> list[Row]:
    """Return a row for each kind of errors, over some seeds."""
    made, found = scene(), dict[str, list[tuple[float, float, float, float]]]()
    for seed in range(seeds):
        for name, noise in errors(made, seed):
            pixels = made.pixels + noise
            with tempfile.TemporaryDirectory() as folder:
                numbers = pnp_error(made, pixels), *fit(made, pixels, Path(folder))
            found.setdefault(name, []).append(numbers)
    table = []
    for name, values in found.items():
        pnp, fitted, coverage, mass = np.array(values).T
        mean = [float(np.sqrt(np.mean(each**2))) for each in (pnp, fitted)]
        table.append(Row(name, *mean, float(coverage.mean()), float(mass.max())))
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--markdown", action="store_true", help="as a table of the documentation")
    options = parser.parse_args()
    if options.markdown:
        print("| errors of the points | PnP frame by frame | `identify` | 95 % intervals hold | mass off |")
        print("|---|---|---|---|---|")
    for row in rows(options.seeds):
        numbers = (
            f"{1e3 * row.pnp_m:.1f} mm", f"{1e3 * row.fit_m:.1f} mm", f"{100.0 * row.coverage:.0f} %",
            f"{1e3 * row.mass_kg:.1f} g",
        )  # fmt: skip
        print(
            f"| {row.errors} | {' | '.join(numbers)} |" if options.markdown else f"{row.errors}: {', '.join(numbers)}"
        )


if __name__ == "__main__":
    main()
