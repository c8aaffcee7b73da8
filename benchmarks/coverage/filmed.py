"""What kinds of motions share that start from pixels: random bodies and appearances, and the user's command.

Limits of the images are those of `benchmarks.sweep_clips`: no shadows, no reflections, no floor. Meshes and cameras are
exact.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clips import files
from benchmarks.clips.appearance import Lens, Surface
from benchmarks.clips.bodies import Body
from benchmarks.coverage.cases import Case
from benchmarks.painted import Lights, Painted
from benchmarks.sweep_clips import MARGIN_PX, Cell, background, developed, lens_at
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.errors import Vid2PhysError
from vid2phys.risp.appearance.backgrounds import random_color
from vid2phys.types import Array, Camera, Status

IMAGE_PX = 480, 360
_LEAST_PX_S = 240.0  # a body moves faster than this in the mean, so that there is room for the blur
_MOST_BLUR_PX = 5.0
_LEAST_DEPTH_M = 0.1
_LENS_BLUR_PX = 0.4, 1.0  # of lenses whose contrast is halved at 0.47 to 0.19 cycles a pixel


def random_body(rng: np.random.Generator) -> Body:
    """Return a box, an L, a cylinder, a mug or a lump, 0.08 to 0.16 m long."""
    long = float(rng.uniform(0.08, 0.16))

    def share(low: float, high: float) -> float:
        return long * float(rng.uniform(low, high))

    shapes = {
        "box": (long, share(0.4, 0.9), share(0.25, 0.7)),
        "l_shape": (long, share(0.5, 0.9), share(0.2, 0.35), share(0.2, 0.4)),
        "cylinder": (share(0.3, 0.8), long),
        "mug": (share(0.7, 0.9), long, share(0.04, 0.08)),
        "statue": (long, float(rng.uniform(0.1, 0.3)), float(rng.integers(1000)), 3.0),
    }
    shape = str(rng.choice(list(shapes), p=(0.35, 0.3, 0.1, 0.1, 0.15)))
    return Body(shape, shapes[shape], (Surface(),))


def random_cell(rng: np.random.Generator, fps: float) -> Cell:
    """Return a random appearance: colours, a print in half of the clips, two lights, background, noise and blur."""
    return Cell(
        size_px=float(rng.uniform(50.0, 120.0)),
        blur_px=min(_MOST_BLUR_PX, float(rng.uniform(0.0, 0.5)) * _LEAST_PX_S / fps),
        noise=float(rng.uniform(1.0, 6.0)),
        patches=int(rng.integers(0, 80)),
        fps=fps,
        color=random_rgb(rng),
        print_color=random_rgb(rng) if rng.random() < 0.5 else None,
        lights=_lights(rng),
        image_px=IMAGE_PX,
        lens_blur_px=float(rng.uniform(*_LENS_BLUR_PX)),
        crf=int(rng.integers(18, 29)),
    )


def random_rgb(rng: np.random.Generator) -> tuple[int, int, int]:
    """Return a colour in display values."""
    red, green, blue = (int(each) for each in 255.0 * random_color(rng))
    return red, green, blue


def _lights(rng: np.random.Generator) -> Lights:
    """Return a strong light from above and a weak one from anywhere on the camera's side."""
    ways = rng.normal(0.0, 1.0, (2, 3))
    ways[:, 2] = np.abs(ways[:, 2]) + 0.3  # away from the camera
    ways[0, 1] = abs(ways[0, 1]) + 0.3  # downward
    share = float(rng.uniform(0.55, 0.9))
    strong, weak = ((float(x), float(y), float(z)) for x, y, z in ways)
    return ((strong, share), (weak, 1.0 - share))


def nearest_lens(points: Array, away: Array, distances_m: Array, image_px: tuple[int, int]) -> Lens | None:
    """Return the nearest camera that has all points [..., 3] m in its image; None where there is none.

    away: [3] direction from the middle of the points to the camera. distances_m: from that middle, in ascending order.
    """
    points = points.reshape(-1, 3)
    middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
    for distance in distances_m:
        lens = lens_at(middle + distance * away, middle, image_px)
        pixels, depth = lens.project(points)
        inside = (pixels > MARGIN_PX).all() and (pixels < np.array(image_px) - MARGIN_PX).all()
        if depth.min() > _LEAST_DEPTH_M and inside:
            return lens
    return None


def direction(azimuth_rad: float, pitch_rad: float) -> Array:
    """Return the direction [3] of an azimuth from the world's x, and of an elevation."""
    level = np.cos(pitch_rad)
    return np.array([level * np.cos(azimuth_rad), level * np.sin(azimuth_rad), np.sin(pitch_rad)])


def write_clip(
    folder: Path,
    faces: NDArray[np.int64],
    colors: Array,
    frames: Iterable[Sequence[Array]],
    lens: Lens,
    cell: Cell,
    rng: np.random.Generator,
) -> None:
    """Write camera.yaml and clip.mp4 of a body before a random background.

    Args:
        folder: which is made.
        faces: [F, 3] of the body.
        colors: [F, 3] of these, linear.
        frames: of each, the body's vertices [V, 3] m in its exposures.
        lens: camera.
        cell: appearance.
        rng: of background and noise.
    """
    camera = Camera(lens.matrix(), *lens.size_px, camera_to_world=lens.camera_to_world())
    behind, painted = background(cell, rng), Painted(faces, colors, camera, cell.lights)
    images = [developed(painted.before(behind, exposures), cell, rng) for exposures in frames]
    folder.mkdir(parents=True)
    files.write_camera(folder / "camera.yaml", folder.name, lens)
    files.write_video(folder / "clip.mp4", images, cell.fps, lens.size_px, cell.crf)


def identified(folder: Path, truth: dict[str, float], **options: Any) -> Case:
    """Return what the user's command makes of the clip in a folder, without a trained model.

    options: of `IdentifyConfig`, beside clip and camera; without `body`, the mesh is the folder's. An error counts as a
    fit that did not converge.
    """
    clip, mesh, camera, out = (folder / name for name in ("clip.mp4", "mesh.obj", "camera.yaml", "run"))
    shutil.rmtree(out, ignore_errors=True)  # of a call that was interrupted
    shown: dict[str, Any] = {"mesh": mesh, "model": Path("none")} if "body" not in options else {}
    try:
        config = IdentifyConfig(clip=clip, camera=camera, overlay=False, out=out, **shown, **options)
        result, _ = identify(config)
    except Vid2PhysError:
        return Case(truth, {}, Status.NOT_CONVERGED)
    return Case.of(result, truth)
