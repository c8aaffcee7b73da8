"""Train the verifier, the network that tells whether a frame shows a mesh at a pose (`tracking/verifier.py`).

    python -m benchmarks.verifier render FOLDER --start 0 --clips 480   # several can run, with other clips
    python -m benchmarks.verifier mine FOLDER --start 2000 --clips 300   # poses of the tracker, the hardest ones
    python -m benchmarks.verifier train FOLDER   # writes vid2phys/tracking/verifier.safetensors

A clip of a random mesh with distractors gives right and wrong poses: near the true one, at what moves, and anywhere.
Half of them are fitted to the edges first, as the tracker does, so that wrong ones lie on edges of something else. What
the tracker itself finds in clips of the two sample bodies is added, since its errors are the hardest to see.
Appearances, backgrounds and meshes are drawn from seeds below 100,000; judging uses others.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import trimesh
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from benchmarks.distractor_clips import FOCAL_PX, FRAMES, DistractorClip, make_clip
from benchmarks.lost_frames import RIGHT as RIGHT_IN_IMAGE
from benchmarks.lost_frames import WRONG as WRONG_IN_IMAGE
from benchmarks.lost_frames import image_error, tracked
from vid2phys.geometry import Pose
from vid2phys.io.mesh import load_mesh
from vid2phys.io.photographs import photographs
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.tracking.background import Background
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.verifier import WEIGHTS, VerifierNetwork, background_of, crop_of
from vid2phys.types import Array, Mesh

RIGHT, WRONG = 0.025, 0.06  # mean distance of the surfaces, in body sizes
FRAMES_A_CLIP, POSES_A_FRAME = 10, 8
_NO_CHANGE = 0.25  # of clips show no background: the camera moves, or the body never does
_SURFACE = 150
_PIECE = 20  # clips
_EPOCHS, _BATCH, _RATE = 10, 128, 3e-3
Examples = Callable[[int, NDArray[np.uint8]], tuple[list[NDArray[np.float32]], list[int]]]


def random_mesh(rng: np.random.Generator) -> Mesh:
    """Return a primitive, two joined ones, a random convex solid, or the sample's quadrotor; about 0.1 m wide."""
    kind = int(rng.integers(0, 8))
    if kind == 0:
        return load_mesh("samples/quadrotor/quad.obj", "m")
    if kind == 1:
        return load_mesh("samples/cube/cube.obj", "m")
    if kind == 2:
        solid = trimesh.creation.box(0.1 * rng.uniform(0.2, 1.0, 3))
    elif kind == 3:
        solid = trimesh.creation.cylinder(0.1 * rng.uniform(0.2, 0.6), 0.1 * rng.uniform(0.2, 1.2), sections=24)
    elif kind == 4:
        solid = trimesh.convex.convex_hull(0.06 * rng.normal(size=(int(rng.integers(6, 14)), 3)))
    elif kind == 5:
        solid = trimesh.creation.cone(0.05, 0.1 * rng.uniform(0.5, 1.2), sections=20)
    else:
        solid = _joined(rng)
    solid.apply_translation(-solid.bounds.mean(axis=0))
    count = len(solid.faces)
    return Mesh(np.array(solid.vertices), np.array(solid.faces), np.zeros(count, dtype=int))


def _joined(rng: np.random.Generator) -> trimesh.Trimesh:
    """Return two or three boxes that touch: an L, a T, a cross or a stool."""
    pieces = []
    for _ in range(int(rng.integers(2, 4))):
        piece = trimesh.creation.box(0.1 * rng.permutation([1.0, rng.uniform(0.15, 0.4), rng.uniform(0.15, 0.5)]))
        piece.apply_translation(0.03 * rng.normal(size=3))
        pieces.append(piece)
    return trimesh.util.concatenate(pieces)


def distance(points: Array, pose: Pose, true: Pose, size_m: float) -> float:
    """Return how far a surface [N, 3] m seen at a pose is from where it is, up to its symmetries, in body sizes.

    Distances are across the line of sight, and along it within the body: a scale error shows as a size in the image.
    """

    def seen(pose: Pose) -> Array:
        at = pose.apply(points)
        if at[:, 2].min() <= 0.0:
            return np.full_like(at, 1e3)
        return np.concatenate([at[:, :2] / at[:, 2:] * true.translation[2], at[:, 2:] - pose.translation[2]], axis=1)

    here, there = seen(pose), seen(true)
    both = cKDTree(there).query(here)[0].mean(), cKDTree(here).query(there)[0].mean()
    return float(max(both)) / size_m


def candidate_poses(
    rng: np.random.Generator, shot: DistractorClip, index: int, blobs: tuple[Array, Array]
) -> list[Pose]:
    """Return poses of a frame to learn from: near the true one, further off, on a part of the body, and elsewhere."""
    true = Pose(shot.rotation[index], shot.translation[index])
    radius_m = shot.mesh.radius_m
    poses = [_moved(rng, true, 0.03, 0.02, 0.02, radius_m) for _ in range(2)]
    poses.append(_moved(rng, true, 0.4, 0.15, 0.15, radius_m))
    poses.append(_moved(rng, true, 1.5, 0.1, 0.1, radius_m))
    print_size = float(rng.uniform(0.2, 0.7))  # a print on the body, or a part of it, taken for the body
    aside = radius_m * np.array([*rng.normal(0.0, 0.5, 2), 0.0])
    poses.append(Pose(Rotation.random(random_state=rng).as_matrix(), (true.translation + aside) / print_size))
    centers, widths = blobs
    while len(poses) < POSES_A_FRAME:
        if len(centers) and rng.random() < 0.8:
            k = int(rng.integers(len(centers)))
            pixel, width = centers[k], float(widths[k]) * float(rng.uniform(0.4, 1.4))
        else:
            pixel, width = rng.uniform(0, shot.clip.width, 2), float(np.exp(rng.uniform(np.log(25), np.log(160))))
        depth = 2.0 * radius_m * FOCAL_PX / max(width, 12.0)
        ray = np.linalg.inv(shot.camera.K) @ [*pixel, 1.0]
        poses.append(Pose(Rotation.random(random_state=rng).as_matrix(), ray * depth))
    return poses


def _moved(rng: np.random.Generator, pose: Pose, turn: float, aside: float, along: float, radius_m: float) -> Pose:
    rotation = Rotation.from_rotvec(turn * rng.normal(size=3)).as_matrix() @ pose.rotation
    moved = pose.translation * float(np.exp(along * rng.normal())) + aside * radius_m * np.array(
        [*rng.normal(size=2), 0.0]
    )
    return Pose(rotation, moved)


def rendered(seed: int, bank: NDArray[np.uint8]) -> tuple[list[NDArray[np.float32]], list[int]]:
    """Return crops and labels of one clip: 1 for right poses, 0 for wrong ones."""
    rng = np.random.default_rng([seed, 5])
    shot = make_clip(random_mesh(rng), bank, seed, upright=bool(rng.random() < 0.2))
    solid = Solid.of(shot.mesh)
    size_m = 2.0 * shot.mesh.radius_m
    points = np.asarray(
        trimesh.sample.sample_surface(trimesh.Trimesh(shot.mesh.vertices, shot.mesh.faces), _SURFACE, seed=0)[0]
    )
    frames = list(shot.clip.frames)
    background = Background.of(frames)
    behind = None if rng.random() < _NO_CHANGE else background_of(background, frames[0].shape)
    crops, labels = [], []
    for index in rng.choice(FRAMES, FRAMES_A_CLIP, replace=False).tolist():
        frame = frames[index]
        true = Pose(shot.rotation[index], shot.translation[index])
        for pose in candidate_poses(rng, shot, index, background.proposals(frame)):
            if pose.translation[2] < 1.05 * size_m:
                continue
            if rng.random() < 0.6:
                fit = fit_contour(frame, shot.camera, solid, pose)
                pose = pose if fit is None else fit.pose
            off = distance(points, pose, true, size_m) if shot.shown[index] > 0.4 else np.inf
            if RIGHT < off < WRONG or pose.translation[2] < 1.05 * size_m:
                continue
            crops.append(crop_of(frame, behind, shot.camera, shot.mesh, pose).astype(np.float16))
            labels.append(int(off <= RIGHT))
    return crops, labels


def mined(seed: int, bank: NDArray[np.uint8]) -> tuple[list[NDArray[np.float32]], list[int]]:
    """Return crops and labels of what the tracker finds in one clip of a sample body."""
    rng = np.random.default_rng([seed, 6])
    shot, model, found = tracked(seed, bank)
    if found is None:
        return [], []
    frames, crops, labels = list(shot.clip.frames), [], []
    behind = None if rng.random() < _NO_CHANGE else background_of(Background.of(frames), frames[0].shape)
    for index in np.flatnonzero(found.tracked & np.isfinite(found.poses.translation).all(axis=-1)):
        pose = found.poses.pose[index]
        off = image_error(shot, model, int(index), pose)
        if RIGHT_IN_IMAGE < off < WRONG_IN_IMAGE:
            continue
        crops.append(crop_of(frames[index], behind, shot.camera, shot.mesh, pose).astype(np.float16))
        labels.append(int(off <= RIGHT_IN_IMAGE))
    return crops, labels


def render(folder: Path, start: int, clips: int, examples: Examples) -> None:
    """Write pieces of the training set, each of `_PIECE` clips, into a folder."""
    bank = make_bank(photographs(), count=80, seed=3)
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(start, start + clips, _PIECE):
        crops, labels, seeds = [], [], []
        for seed in range(first, min(first + _PIECE, start + clips)):
            some, right = examples(seed, bank)
            crops += some
            labels += right
            seeds += [seed] * len(some)
        print(first, len(crops), f"{np.mean(labels):.2f} right", flush=True)
        np.savez(folder / f"{first:06d}.npz", crops=np.stack(crops), labels=np.array(labels), seeds=np.array(seeds))


def train(folder: Path, out: Path) -> None:
    """Train on all clips but one in twelve, which are judged after each epoch."""
    from safetensors.torch import save_file

    loaded = [np.load(piece) for piece in sorted(folder.glob("*.npz"))]
    crops, labels, seeds = (np.concatenate([one[name] for one in loaded]) for name in ("crops", "labels", "seeds"))
    judged = seeds % 12 == 0
    torch.manual_seed(0)
    network = VerifierNetwork()
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=0.02)
    rows, rng, began = np.flatnonzero(~judged), np.random.default_rng(0), time.monotonic()
    steps = _EPOCHS * (len(rows) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    balance = torch.tensor(float((labels == 0).sum() / max(1, (labels == 1).sum())))
    history = []
    for epoch in range(_EPOCHS):
        network.train()
        order, total = rng.permutation(rows), 0.0
        for k in range(len(rows) // _BATCH):
            some = order[k * _BATCH : (k + 1) * _BATCH]
            batch = torch.from_numpy(_varied(rng, crops[some].astype(np.float32)))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                network(batch), torch.from_numpy(labels[some].astype(np.float32)), pos_weight=balance
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        history.append(
            {"epoch": epoch, "loss": total / (len(rows) // _BATCH), **_judge(network, crops[judged], labels[judged])}
        )
        print(history[-1], f"{time.monotonic() - began:.0f} s", flush=True)
        save_file(network.state_dict(), str(out))
    score = {"command": "python -m benchmarks.verifier train", "examples": len(rows), "epochs": history}
    out.with_suffix(".score.json").write_text(json.dumps(score, indent=1) + "\n")


def _varied(rng: np.random.Generator, crops: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return crops turned by quarter turns and mirrored, with their normals; colours exchanged; contrast varied."""
    turns, mirrored = int(rng.integers(4)), rng.random() < 0.5  # the same for a batch, which is a small part of all
    crops = np.rot90(crops, turns, axes=(2, 3)).copy()
    for _ in range(turns):
        crops[:, 5], crops[:, 6] = crops[:, 6].copy(), -crops[:, 5]
    if mirrored:
        crops = crops[..., ::-1].copy()
        crops[:, 5] *= -1.0
    crops[:, :3] = crops[:, rng.permutation(3)]
    crops[:, :3] *= np.exp(rng.normal(0.0, 0.15, (len(crops), 3, 1, 1))).astype(np.float32)
    crops[:, :3] += rng.normal(0.0, 0.1, (len(crops), 3, 1, 1)).astype(np.float32)
    crops[rng.random(len(crops)) < 0.1, 3] = 0.0  # no background is known
    return crops


def _judge(network: VerifierNetwork, crops: NDArray[np.float16], labels: NDArray[np.int64]) -> dict[str, float]:
    network.eval()
    with torch.inference_mode():
        logits = np.concatenate(
            [
                network(torch.from_numpy(crops[k : k + 256].astype(np.float32))).numpy()
                for k in range(0, len(crops), 256)
            ]
        )
    right, wrong = logits[labels == 1], logits[labels == 0]
    least = np.quantile(right, 0.03)
    return {
        "wrong_kept_at_3_percent_lost": float((wrong >= least).mean()),
        "accuracy": float(((logits > 0) == labels).mean()),
    }


def main() -> None:
    """Run one of the two steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    for name, default in (("render", 480), ("mine", 300)):
        one = steps.add_parser(name)
        one.add_argument("folder", type=Path)
        one.add_argument("--start", type=int, default=0)
        one.add_argument("--clips", type=int, default=default)
    two = steps.add_parser("train")
    two.add_argument("folder", type=Path)
    two.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    if options.step in ("render", "mine"):
        render(options.folder, options.start, options.clips, rendered if options.step == "render" else mined)
    else:
        train(options.folder, options.out)


if __name__ == "__main__":
    main()
