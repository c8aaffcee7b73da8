"""A filmed motion whose images are path-traced with looks that nothing else here has: colours, light and what is
behind are then no longer those of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from experiments import footage
from experiments.gradsim.filmed import Filmed
from experiments.gradsim.pixels import Target
from experiments.test_renderer import FLOOR
from vid2phys.geometry import invert_transform, make_transform
from vid2phys.solvers.rendering import Views, decode_srgb, fit_light
from vid2phys.types import Array, Camera, Mesh

SPP = 64
_AHEAD = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # the stage looks along x, our cameras along y


def photographed(
    filmed: Filmed, appearance: int, folder: Path, *, seed: int, spp: int = SPP, progress: Callable[[int, int], None]
) -> Filmed:
    """Return the same motion before another renderer: its images are what was seen, the model draws into its backdrop.

    appearance: index of a configuration of `test_renderer`. The model's one body has no texture any more; its colours
    are those that explain the first image, whose state is known, linear in its normals. Finished pieces in `folder`
    are used again. Raises MissingDependencyError without LLVM.
    """
    shot, camera = filmed.shot, filmed.shot.stage.camera
    (actor,) = shot.stage.actors
    with torch.no_grad():
        states = filmed.states(torch.from_numpy(filmed.true_free))
        vertices = actor.placed(states).numpy()
    rotation, shift, radius_m = _stage_of(camera, min(0.0, float(vertices[..., 2].min())))
    mesh = Mesh(vertices[0], actor.faces, np.zeros(len(actor.faces), dtype=np.int64))
    pose = make_transform(rotation, shift) @ np.asarray(camera.camera_to_world)
    filming = replace(camera, camera_to_world=pose)
    target = footage.Shot(mesh, radius_m, vertices @ rotation.T + shift, filming, appearance, spp, seed)
    taken = footage.film(target, folder, progress)
    frames, backdrop = taken.frames / 255.0, taken.backdrop / 255.0
    light = _light(filmed, states[:1].numpy(), frames[:1], backdrop[None])
    background = decode_srgb(torch.from_numpy(backdrop)).numpy()
    stage = replace(shot.stage, actors=(replace(actor, texture=None, light=light),), background=background)
    return replace(filmed, shot=replace(shot, stage=stage), seen=Target(decode_srgb(torch.from_numpy(frames))))


def _stage_of(camera: Camera, floor_m: float) -> tuple[Array, Array, float]:
    """Return the transform from the world, z up, to the renderer's scene, whose floor is where bodies sink to: the
    rotation [3, 3] and the shift [3] m of points, and the stage's unit of length in m.
    """
    eye = np.asarray(camera.camera_to_world)[:3, 3]
    return _AHEAD, -_AHEAD @ eye, float((floor_m - eye[2]) / FLOOR)


def _light(filmed: Filmed, states: Array, images: Array, backdrop: Array) -> Array:
    """Return the light [4, 3], see `Actor.light`: what explains images [n, H, W, 3] of known states [n, N] best."""
    camera, system = filmed.shot.stage.camera, filmed.shot.system
    assert system.surface is not None
    count = len(states)
    views = Views(
        np.arange(count), images, backdrop, np.ones(images.shape[:3], dtype=bool),
        np.tile(camera.K, (count, 1, 1)), np.tile(invert_transform(np.asarray(camera.camera_to_world)), (count, 1, 1)),
    )  # fmt: skip
    return np.asarray(fit_light(system, system.surface, views, torch.from_numpy(states)).light[0])
