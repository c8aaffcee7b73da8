"""How well `tracking.visibility` measures size, blur, hidden share and noise, on random clips at their true poses.

    python -m benchmarks.doubt_clips --clips 14
    python -m benchmarks.doubt_clips --proportions --first 14 --clips 7

Bodies, colours and motions are those of no other benchmark. Each clip varies one or two of the axes of
`benchmarks.sweep`, over ranges in which tracking begins to fail. Nothing is tracked, so that a clip takes some seconds.

`--proportions` tracks each body in a clip that hinders nothing, with its mesh and with one side 1.2 times too long. It
prints what `tracking.proportions` measures. A clip takes a minute.

Limits: those of `benchmarks.sweep_clips`.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from benchmarks.clips.appearance import Surface
from benchmarks.clips.bodies import Body
from benchmarks.sweep_clips import Cell, make, thrown
from vid2phys.engine import SYSTEM_OF_MESH
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.io.mesh import load_mesh
from vid2phys.io.video import read_clip
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.mesh_track import track_mesh
from vid2phys.tracking.proportions import proportions
from vid2phys.tracking.visibility import Visibility, visibility
from vid2phys.types import Camera

_SHAPES = ("box", "cylinder", "l_shape", "mug", "statue", "ring", "plate")
_AXES = ("size", "blur", "noise", "occlusion", "background", "none")
_STRETCH = 1.2  # of one side of a wrong mesh
_SECOND = 0.3  # share of clips that vary a second axis


def draw(seed: int) -> tuple[Cell, Body]:
    """Return what the clip of a seed shows."""
    rng = np.random.default_rng([seed, 77])
    body = _body(rng, _SHAPES[seed % len(_SHAPES)], seed)
    color = tuple(int(c) for c in rng.integers(25, 230, 3))
    size_px = float(np.exp(rng.uniform(np.log(55.0), np.log(160.0))))
    cell = Cell(size_px, 0.0, float(rng.uniform(1.0, 6.0)), color=(color[0], color[1], color[2]))
    cell = replace(cell, patches=int(rng.integers(0, 60)), fps=float(rng.choice([30.0, 30.0, 60.0])))
    for _ in range(1 + int(rng.random() < _SECOND)):
        cell = _varied(rng, cell, _AXES[int(rng.integers(len(_AXES)))])
    return cell, body


def _body(rng: np.random.Generator, shape: str, seed: int) -> Body:
    """Return a body of random proportions."""
    a, b, c = (float(v) for v in 0.1 * rng.uniform(0.35, 1.0, 3))
    sizes: dict[str, tuple[float, ...]] = {
        "box": (a, b, c),
        "cylinder": (a, 1.3 * b),
        "l_shape": (0.12, 0.06 + 0.5 * a, 0.02 + 0.15 * b, 0.02 + 0.3 * c),
        "mug": (0.09, 0.07 + 0.4 * a, 0.005),
        "statue": (0.1, float(rng.uniform(0.2, 0.4)), float(seed), 3.0),
        "ring": (0.1, 0.15 * a + 0.01),
        "plate": (0.12, 0.02, 0.005),
    }
    return Body(shape, sizes[shape], (Surface(),))


def _varied(rng: np.random.Generator, cell: Cell, axis: str) -> Cell:
    """Return a cell with a random value on one axis."""

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    if axis == "size":
        return replace(cell, size_px=between(13.0, 60.0))
    if axis == "blur":
        return replace(cell, blur_px=between(2.0, 24.0), fps=30.0)
    if axis == "noise":
        return replace(cell, noise=between(8.0, 60.0))
    if axis == "occlusion":
        return replace(cell, covered=between(0.05, 0.6))
    if axis == "background":
        return replace(cell, patches=100, own_color=float(rng.uniform(0.2, 1.0)))
    return cell


def measured(cell: Cell, body: Body, folder: Path, seed: int) -> Visibility | None:
    """Make a clip; return what is measured of it at its true poses."""
    make(cell, body, folder, seed)
    clip, lens = read_clip(folder / "clip.mp4"), cell.lens
    _, motion, _ = thrown(cell, body, seed)
    position, quats = motion.at(clip.times_s)
    axes, place = lens.camera_to_world()[:3, :3], lens.camera_to_world()[:3, 3]
    poses = Pose(axes.T @ Rotation.from_quat(quats, scalar_first=True).as_matrix(), (position - place) @ axes)
    frames, camera = FrameStore.of(clip), Camera(lens.matrix(), clip.width, clip.height)
    everywhere = np.ones(len(position), dtype=bool)
    return visibility(poses, everywhere, frames, camera, load_mesh(folder / "mesh.obj", "m"))


def print_proportions(seed: int, folder: Path) -> None:
    """Print rows of a clip that hinders nothing: with the right mesh, and with one side 1.2 times too long."""
    cell, body = draw(seed)
    cell = replace(cell, size_px=max(cell.size_px, 40.0), blur_px=0.0, noise=min(cell.noise, 8.0), covered=0.0)
    cell = replace(cell, patches=min(cell.patches, 40), own_color=0.0, fps=60.0)
    make(cell, body, folder, seed)
    clip, right = read_clip(folder / "clip.mp4"), load_mesh(folder / "mesh.obj", "m")
    camera, frames = Camera(cell.lens.matrix(), clip.width, clip.height), FrameStore.of(clip)
    sides = np.ones(3)
    sides[seed % 3] = _STRETCH
    for text, mesh in (("right", right), ("stretched", replace(right, vertices=right.vertices * sides))):
        shape, errors = shape_of(mesh, SYSTEM_OF_MESH), Calibration.from_dict(None)
        track = track_mesh(clip, camera, mesh, shape, errors, frames=frames)
        found = proportions(track.poses.pose, track.tracked, frames, camera, mesh)
        shown = "| | |"
        if found is not None:
            agreed = "" if found.agreement is None else f"{found.agreement:.0%}"
            shown = f"{found.ratio:.2f} | {found.off_px:.1f} | {agreed} |"
        print(f"| {body.shape}, {cell.size_px:.0f} px | {text} | {shown}", flush=True)


def main() -> None:
    """Print a table: what clips show, and what is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=14)
    parser.add_argument("--first", type=int, default=0, help="seed of the first clip")
    parser.add_argument("--proportions", action="store_true", help="measure proportions of tracked bodies")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.clips)
    if options.proportions:
        print("| body | mesh | ratio | off px | pixels agree |\n|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as name:
            for seed in seeds:
                print_proportions(seed, Path(name) / str(seed))
        return
    print("| body | size px | blur px | hidden | noise |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for seed in seeds:
            cell, body = draw(seed)
            found = measured(cell, body, Path(name) / str(seed), seed)
            if found is None:
                print(f"| {body.shape} | not measured | | | |", flush=True)
                continue
            pairs = ((cell.size_px, found.size_px), (cell.blur_px, found.blur_px), (cell.noise, found.noise))
            size, blur, noise = (f"{true:.0f}: {got:.0f}" for true, got in pairs)
            print(f"| {body.shape} | {size} | {blur} | {cell.covered:.2f}: {found.hidden:.2f} | {noise} |", flush=True)


if __name__ == "__main__":
    main()
