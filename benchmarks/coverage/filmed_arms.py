"""Random arms on a fixed base, from pixels: damping of each joint and payload, by `identify --body arm.xml`.

Arms are those of `benchmarks.coverage.arms`. MuJoCo moves them, and states where each part is, so that clips share no
kinematics with the fit. Frames are rasterised with two lights before the background of `benchmarks.sweep_clips`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np
import trimesh
from numpy.typing import NDArray

from benchmarks.clips.appearance import Lens
from benchmarks.coverage import filmed
from benchmarks.coverage.arms import FPS, FRAMES, STEPS, Arm, random_arm, simulator
from benchmarks.coverage.cases import Case
from vid2phys.risp.appearance.backgrounds import to_linear
from vid2phys.types import Array

FIT = ("joint_damping", "payload")
_IMAGE_PX = 640, 480
_SHUTTER = 0.4  # at most this share of a frame interval
_EXPOSURES = 6
_DISTANCES_M = np.linspace(0.8, 4.0, 65)


def case(seed: int, folder: Path) -> Case:
    """Return the fit of a random arm, whose clip and run are written into a folder."""
    rng = np.random.default_rng([seed, 84])
    arm = random_arm(rng)
    if not (folder / "clip.mp4").is_file():
        film(arm, folder, rng)
    return filmed.identified(folder, arm.values, body=str(folder / "arm.xml"), fit=FIT)


def film(arm: Arm, folder: Path, rng: np.random.Generator) -> None:
    """Write clip.mp4, camera.yaml, truth.json, and arm.xml as the user has it."""
    cell = replace(filmed.random_cell(rng, FPS), image_px=_IMAGE_PX)
    open_steps = round(STEPS * float(rng.uniform(0.0, _SHUTTER))) if rng.random() < 0.5 else 0
    shape = _Shape.of(arm, rng)
    lens = _camera(rng, np.concatenate([shape.placed(data) for data in _moved(arm, 0)]))
    placed = np.array([shape.placed(data) for data in _moved(arm, open_steps)])
    frames = placed.reshape(-1, _EXPOSURES if open_steps else 1, *placed.shape[1:])
    filmed.write_clip(folder, shape.faces, shape.colors, frames, lens, cell, rng)
    (folder / "arm.xml").write_text(arm.given)
    (folder / "truth.json").write_text(json.dumps({"parameters": arm.values}, indent=1) + "\n")


def _moved(arm: Arm, open_steps: int) -> Iterator[mujoco.MjData]:
    """Yield the arm at the middle of each exposure, or at `_EXPOSURES` times in each where the shutter stays open."""
    model, data = simulator(arm)
    shares = (np.arange(_EXPOSURES) + 0.5) / _EXPOSURES - 0.5 if open_steps else np.zeros(1)
    first = int(open_steps > 0)  # a clip with open shutter begins one frame later, where its first exposure is whole
    at = 0
    for k in range(FRAMES):
        for step in (k + first) * STEPS + np.round(shares * open_steps).astype(int):
            mujoco.mj_step(model, data, int(step) - at)
            at = int(step)
            mujoco.mj_forward(model, data)
            yield data


@dataclass(frozen=True)
class _Shape:
    """The arm's parts as one mesh: corners in the axes of their part, the part of each, faces and their colours."""

    corners: Array
    part: NDArray[np.int64]
    faces: NDArray[np.int64]
    colors: Array

    @staticmethod
    def of(arm: Arm, rng: np.random.Generator) -> _Shape:
        model, _ = simulator(arm)
        corners, part, faces, colors, count = [], [], [], [], 0
        for index in range(model.ngeom):
            size = model.geom_size[index]
            is_box = model.geom_type[index] == mujoco.mjtGeom.mjGEOM_BOX
            mesh = trimesh.creation.box(2.0 * size) if is_box else trimesh.creation.icosphere(3, float(size[0]))
            corners.append(np.asarray(mesh.vertices))
            part.append(np.full(len(mesh.vertices), index))
            faces.append(np.asarray(mesh.faces) + count)
            colors.append(np.tile(to_linear(np.array(filmed.random_rgb(rng), np.uint8)), (len(mesh.faces), 1)))
            count += len(mesh.vertices)
        return _Shape(*(np.concatenate(each) for each in (corners, part, faces, colors)))

    def placed(self, data: mujoco.MjData) -> Array:
        """Return the corners [V, 3] in the world."""
        rotation = data.geom_xmat.reshape(-1, 3, 3)[self.part]
        return np.asarray(np.einsum("vij,vj->vi", rotation, self.corners) + data.geom_xpos[self.part])


def _camera(rng: np.random.Generator, points: Array) -> Lens:
    """Return the nearest camera, up to 40 deg beside the first joint's axis (y), that has all points [N, 3] in view."""
    azimuth, pitch = np.radians(rng.uniform(50.0, 130.0)), np.radians(rng.uniform(-10.0, 25.0))
    away = filmed.direction(azimuth + np.pi * float(rng.choice([1.0, 0.0])), pitch)
    lens = filmed.nearest_lens(points, away, _DISTANCES_M, _IMAGE_PX)
    if lens is None:
        raise RuntimeError("the arm fits into no image")
    return lens
