"""Random throws onto a floor, from pixels: friction and restitution, by `identify --model none`.

Motions are those of `benchmarks.clips.motion`, which shares no code with the fit. Images are those of
`benchmarks.sweep_clips` with random appearances. Balls, mugs and cylinders are left out: they roll, and rolling hides
friction.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.clips.appearance import Lens
from benchmarks.clips.bodies import Solid, build
from benchmarks.clips.motion import Motion, Throw
from benchmarks.coverage import filmed
from benchmarks.coverage.cases import Case
from benchmarks.sweep_clips import film
from vid2phys.geometry import matrix_from_quat
from vid2phys.types import Array

FIT = ("mu", "restitution")
_DISTANCES_M = np.linspace(0.8, 2.2, 29)
_SIZES_PX = 40.0, 120.0
_TRIES = 100


def case(seed: int, folder: Path) -> Case:
    """Return the fit of a random throw, whose clip and run are written into a folder."""
    rng = np.random.default_rng([seed, 82])
    truth = {"mu": float(rng.uniform(0.1, 0.8)), "restitution": float(rng.uniform(0.1, 0.8))}
    if not (folder / "clip.mp4").is_file():
        cell = filmed.random_cell(rng, float(rng.uniform(50.0, 90.0)))
        solid, motion, frames, lens = _thrown(rng, truth, cell.fps)
        film(cell, solid, motion, frames, lens, folder, rng)
    return filmed.identified(folder, truth, system="rigid_contact", fit=FIT)


def _thrown(rng: np.random.Generator, truth: dict[str, float], fps: float) -> tuple[Solid, Motion, int, Lens]:
    """Return a body, its motion, the number of frames, and a camera that has all of it in its image."""
    for _ in range(_TRIES):
        body = filmed.random_body(rng)
        if body.shape in ("cylinder", "mug"):
            continue
        solid, frames = build(body), int(rng.uniform(0.75, 1.05) * fps)
        motion = _throw(rng, truth).solve(solid, (frames + 1) / fps)
        lens = _camera(rng, solid, motion, np.arange(frames) / fps)
        if lens is not None:
            return solid, motion, frames, lens
    raise RuntimeError(f"no throw of {_TRIES} fits into a frame")


def _throw(rng: np.random.Generator, truth: dict[str, float]) -> Throw:
    spin = rng.normal(0.0, 5.0, 3)
    return Throw(
        (float(rng.uniform(-0.1, 0.1)), float(rng.uniform(-0.1, 0.1)), float(rng.uniform(0.2, 0.4))),
        (float(rng.uniform(-0.8, 0.8)), float(rng.uniform(-0.8, 0.8)), float(rng.uniform(-0.5, 0.8))),
        tuple(rng.uniform(-1.5, 1.5, 3).tolist()),
        tuple(spin.tolist()),
        truth["mu"],
        truth["restitution"],
    )


def _camera(rng: np.random.Generator, solid: Solid, motion: Motion, times_s: Array) -> Lens | None:
    """Return the nearest camera from a random side that has the motion in its image; None for too small a body."""
    position, quats = motion.at(times_s)
    points = np.einsum("tij,vj->tvi", matrix_from_quat(quats), solid.hull) + position[:, None]
    away = filmed.direction(rng.uniform(-np.pi, np.pi), np.radians(rng.uniform(8.0, 35.0)))
    lens = filmed.nearest_lens(points, away, _DISTANCES_M, filmed.IMAGE_PX)
    if lens is None:
        return None
    size = float(np.ptp(lens.project(points)[0], axis=1).max(axis=1).mean())
    return lens if _SIZES_PX[0] < size < _SIZES_PX[1] else None
