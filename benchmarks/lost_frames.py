"""Which frames count as tracked: fits the decision on clips with distractors, and judges it on others.

    python -m benchmarks.lost_frames judge [--clips 60] [--json FILE]
    python -m benchmarks.lost_frames fit [--clips 160]     # writes vid2phys/tracking/support.json

A pose is right where its vertices are within 5 % of the body's size in the image of where they are, up to the body's
symmetries, and wrong beyond 10 %; between the two it counts as neither. Fitting and judging draw clips from other seeds
and put them on other photographs. Bodies: the sample's quadrotor and the plain cube, by the models that come with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.distractor_clips import DistractorClip, make_clip
from benchmarks.tables import write_table
from experiments.test_renderer import PHOTOGRAPHS, photograph
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.mesh import load_mesh
from vid2phys.io.photographs import photographs
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.risp.networks.model import Model
from vid2phys.tracking import support
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.track import Track
from vid2phys.tracking.tracker import candidates
from vid2phys.types import Array, Mesh

ROOT = Path(__file__).resolve().parents[1]
BODIES = (("samples/cube/cube.obj", "models/cube", False), ("samples/quadrotor/quad.obj", "models/quadrotor", True))
RIGHT, WRONG = 0.05, 0.10  # of the body's size in the image
FIRST_FITTED, FIRST_JUDGED = 500_000, 1_000_000  # seeds
MOST_LOST = 0.025  # of right poses that the threshold may lose
_TILT_STD_RAD = 0.4  # of the upright body
_RIDGE = 1e-3
_BANK = 60


@dataclass(frozen=True)
class Poses:
    """Poses found in clips.

    evidence: [N, E]. error: [N] of body sizes in the image. clip: [N] seed. kept: [N] which count as tracked, by the
    decision of this version.
    """

    evidence: Array
    error: Array
    clip: NDArray[np.int64]
    kept: NDArray[np.bool_]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Return which poses are right, [N]."""
        return self.error < RIGHT

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Return which poses are wrong, [N]."""
        return self.error > WRONG

    @staticmethod
    def join(parts: list[Poses]) -> Poses:
        """Return all poses of several parts."""
        columns = ((getattr(part, name) for part in parts) for name in ("evidence", "error", "clip", "kept"))
        return Poses(*(np.concatenate(list(column)) for column in columns))


def poses_of(seed: int) -> Poses:
    """Return the poses that the tracker finds in one clip; the decision is made for judged clips alone."""
    shot, model, found = tracked(seed, _bank(seed))
    if found is None:
        return Poses(np.zeros((0, len(support.EVIDENCE))), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, bool))
    frames = FrameStore.of(shot.clip)
    rows, evidence = support.evidence_of(found, frames, shot.camera, shot.mesh)
    judge = seed >= FIRST_JUDGED
    kept = support.decided(found, rows, evidence, shot.mesh) if judge else np.ones(len(rows), dtype=bool)
    poses = found.poses[rows]
    error = [image_error(shot, model, i, poses.pose[k]) for k, i in enumerate(rows)]
    return Poses(evidence, np.array(error), np.full(len(rows), seed), kept)


def _bank(seed: int) -> NDArray[np.uint8]:
    """Return images for backgrounds and textures: of training, or for judged clips of the tables' looks alone."""
    if seed < FIRST_JUDGED:
        return make_bank(photographs(), count=_BANK, seed=11)
    names = [name for some in PHOTOGRAPHS.values() for name in some]
    no_observation = [np.asarray(np.round(255.0 * photograph(name) ** (1 / 2.2)), np.uint8) for name in names]
    return make_bank(no_observation, count=_BANK, seed=12)


def tracked(seed: int, bank: NDArray[np.uint8]) -> tuple[DistractorClip, Model, Track | None]:
    """Return a clip, the model of its body, and what the tracker finds in it before the decision; None for nothing."""
    mesh_path, model_path, upright = BODIES[seed % len(BODIES)]
    mesh, model = load_mesh(ROOT / mesh_path, "m"), Model.load(str(ROOT / model_path), "cpu")
    shot = make_clip(mesh, bank, seed, upright=upright)
    tilt = _TILT_STD_RAD if upright else None
    try:
        return shot, model, candidates(shot.clip, shot.camera, model, model.radius_m, mesh=shot.mesh, tilt_std_rad=tilt)
    except InputError:
        return shot, model, None


def image_error(shot: DistractorClip, model: Model, index: int, pose: Pose) -> float:
    """Return the mean distance of the vertices in the image from their true places, in body sizes, up to symmetry."""
    true = _bearings(shot.mesh, Pose(shot.rotation[index], shot.translation[index]))
    size = float(np.ptp(true, axis=0).max())
    errors = []
    for element in model.rotations:
        turned = pose.rotation @ element.T
        found = _bearings(shot.mesh, Pose(turned, pose.translation + (pose.rotation - turned) @ model.center))
        errors.append(float(np.linalg.norm(found - true, axis=-1).mean()) / size)
    return min(errors)


def _bearings(mesh: Mesh, pose: Pose) -> Array:
    articulated = pose.apply(mesh.vertices)
    return np.asarray(articulated[:, :2] / np.maximum(articulated[:, 2:], 1e-3))


def collect(first: int, clips: int) -> Poses:
    """Return the poses found in clips of successive seeds, two clips at a time."""
    parts = []
    with ProcessPoolExecutor(2) as pool:
        for done, part in enumerate(pool.map(poses_of, range(first, first + clips)), 1):
            parts.append(part)
            if done % 10 == 0:
                print(f"{done} of {clips} clips", file=sys.stderr, flush=True)
    return Poses.join(parts)


def fit(evidence: Array, right: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> support.SupportModel:
    """Return the logistic regression of right against wrong poses [N], both classes of equal weight."""
    known = right | wrong
    x, y = evidence[known], right[known].astype(float)
    mean, std = np.nanmean(x, axis=0), np.nanstd(x, axis=0) + 1e-9
    z = np.column_stack([np.nan_to_num((x - mean) / std), np.ones(len(x))])
    weight = np.where(y > 0.0, 0.5 / y.sum(), 0.5 / (1.0 - y).sum())

    def loss(b: Array) -> tuple[float, Array]:
        odds = z @ b
        ridge = np.append(b[:-1], 0.0)
        gradient = z.T @ (weight * (1.0 / (1.0 + np.exp(-odds)) - y)) + 2.0 * _RIDGE * ridge
        return float((weight * np.logaddexp(0.0, (1.0 - 2.0 * y) * odds)).sum() + _RIDGE * ridge @ ridge), gradient

    b = minimize(loss, np.zeros(z.shape[1]), jac=True, method="L-BFGS-B").x
    return support.SupportModel(mean, std, b[:-1], float(b[-1]), 0.0)


def with_threshold(model: support.SupportModel, poses: Poses) -> support.SupportModel:
    """Return the model with the threshold that loses `MOST_LOST` of the right poses."""
    odds = by_clip(model, poses.evidence, poses.clip)
    return replace(model, threshold=float(np.quantile(odds[poses.right], MOST_LOST)))


def by_clip(model: support.SupportModel, evidence: Array, clip: NDArray[np.int64]) -> Array:
    """Return the log odds of poses [N], those of each clip together."""
    odds = np.zeros(len(evidence))
    for each in np.unique(clip):
        odds[clip == each] = model.log_odds(evidence[clip == each])
    return odds


def judged(poses: Poses) -> dict[str, float]:
    """Return the shares of wrong poses that count as tracked and of right poses that count as lost, and counts."""
    kept = poses.kept
    far = poses.error > 1.0
    return {
        "right_poses": float(poses.right.sum()),
        "wrong_poses": float(poses.wrong.sum()),
        "right_lost": float((~kept[poses.right]).mean()),
        "wrong_tracked": float(kept[poses.wrong].mean()),
        "far_tracked": float(kept[far].mean()) if far.any() else 0.0,
        "tracked_that_are_wrong": float(poses.wrong[kept].mean()),
        "tracked_that_are_wrong_undecided": float(poses.wrong.mean()),
    }


def without_each(poses: Poses) -> Iterator[tuple[str, float]]:
    """Yield each kind of evidence with the share of wrong poses tracked where it is left out, over held-out clips."""
    folds = (poses.clip // 2) % 4
    for left_out in ("", *support.EVIDENCE):
        kept = [k for k, name in enumerate(support.EVIDENCE) if name != left_out]
        odds = np.zeros(len(poses.error))
        for fold in range(4):
            part, train = poses.evidence[:, kept], folds != fold
            model = fit(part[train], poses.right[train], poses.wrong[train])
            odds[~train] = by_clip(model, part[~train], poses.clip[~train])
        least = np.quantile(odds[poses.right], MOST_LOST)
        yield left_out or "all", float((odds[poses.wrong] >= least).mean())


def save(model: support.SupportModel, ablation: dict[str, float], clips: int) -> None:
    """Write the weights, with what each kind of evidence is worth."""
    columns = {
        name: dict(zip(support.EVIDENCE, np.round(getattr(model, name), 5).tolist(), strict=True))
        for name in ("mean", "std", "weights")
    }
    data = {
        "command": f"python -m benchmarks.lost_frames fit --clips {clips}",
        **columns,
        "bias": round(model.bias, 5),
        "threshold": round(model.threshold, 5),
        "wrong_tracked_without_each": {name: round(value, 4) for name, value in ablation.items()},
    }
    path = Path(support.__file__).with_suffix(".json")
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Fit or judge, print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("fit", "judge"))
    parser.add_argument("--clips", type=int)
    parser.add_argument("--json", type=Path, help="file to write the judged shares to")
    options = parser.parse_args()
    began = time.monotonic()
    if options.step == "fit":
        clips = options.clips or 160
        poses = collect(FIRST_FITTED, clips)
        ablation = dict(without_each(poses))
        save(with_threshold(fit(poses.evidence, poses.right, poses.wrong), poses), ablation, clips)
        for name, share in ablation.items():
            print(f"{name:24} {share:.3f}")
    else:
        clips = options.clips or 60
        scores = judged(collect(FIRST_JUDGED, clips))
        for name, value in scores.items():
            print(f"{name:34} {value:.4g}")
        if options.json is not None:
            rows = [
                {
                    "system": "all",
                    "method": "ours",
                    "metric": name,
                    "value": value,
                    "std": None,
                    "n": clips,
                    "unit": "1",
                }
                for name, value in scores.items()
            ]
            write_table(options.json, "lost_frames", rows, time.monotonic() - began)


if __name__ == "__main__":
    main()
