"""Debiasing: render the fit, run the network on the render, and take off what it gets wrong there.

Bias does not average out over time. RISP's eq. 6 compares the network's reading of the clip with its reading of the
rendered simulation, so that what the network gets wrong in both cancels; here the difference between reading and
projection in the render is subtracted from the observation, as coefficients of the six pose modes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import observe
from vid2phys.engine.render.rasterizer import Raster, rasterize_camera, shade
from vid2phys.risp.error_model import Calibration
from vid2phys.risp.model import Model
from vid2phys.risp.photometric import backdrop, grown
from vid2phys.risp.sight import direction_and_size, look
from vid2phys.rotations import invert_transform
from vid2phys.solvers.problem import Problem
from vid2phys.types import Array, Camera, Clip, Mesh, Observation

RENDERS = 60
_LOOKS = 15  # frames from which the background and the colours are taken
_SUPERSAMPLE = 4
_MEMORY_S = 0.4  # the bias is taken to change no faster than this
_GAMMA = 2.2
_RIDGE = 0.1  # renders are averaged, so a mode may be read without shrinking it


@dataclass(frozen=True)
class Scene:
    """What is needed to render the clip again: its frames, camera, mesh, and the model that reads the renders."""

    clip: Clip
    camera: Camera
    mesh: Mesh
    model: Model
    calibration: Calibration


@dataclass(frozen=True)
class Appearance:
    """How the clip looks: the frame without the object, uint8 [H, W, 3], and linear colours of the parts [P, 3]."""

    background: NDArray[np.uint8]
    part_colors: Array


def debiased(scene: Scene, problem: Problem, states: Array) -> Observation:
    """The problem's observation without the bias that the network shows on renders of `states` [F, N]."""
    seen = problem.observation
    tracked = np.flatnonzero(seen.visible.any(axis=1))
    chosen = tracked[np.unique(np.linspace(0, len(tracked) - 1, RENDERS).astype(int))]
    vertices = {int(i): _in_camera(problem, states[i], scene.mesh) for i in chosen}
    appearance = _appearance(scene, problem, states, tracked)
    pictures = [_render(scene, appearance, vertices[int(i)], problem.camera_to_world) for i in chosen]
    modes = _read_modes(scene, problem, states[chosen], chosen, pictures)
    bias = _smooth(seen.times_s, seen.times_s[chosen], modes)
    shift = np.einsum("fkir,fr->fki", seen.shared_basis, bias)
    return replace(seen, bearings=seen.bearings - shift)


def _in_camera(problem: Problem, state: Array, mesh: Mesh) -> Array:
    to_camera = invert_transform(problem.camera_to_world)
    return problem.system.vertices(state, mesh.vertices) @ to_camera[:3, :3].T + to_camera[:3, 3]


def _down(camera_to_world: Array) -> Array:
    """World's down in camera axes: light from above is the likeliest."""
    return -camera_to_world[2, :3]


def _appearance(scene: Scene, problem: Problem, states: Array, tracked: NDArray[np.int64]) -> Appearance:
    picked = tracked[np.unique(np.linspace(0, len(tracked) - 1, _LOOKS).astype(int))]
    frames = scene.clip.frames.sample(picked)
    rasters = [
        rasterize_camera(_in_camera(problem, states[i], scene.mesh), scene.mesh.faces, scene.camera) for i in picked
    ]
    masks = np.stack([grown(raster.mask) for raster in rasters])
    colors = _part_colors(scene.mesh, frames, rasters, _down(problem.camera_to_world))
    return Appearance(backdrop(frames, masks), colors)


def _part_colors(mesh: Mesh, frames: NDArray[np.uint8], rasters: list[Raster], down: Array) -> Array:
    """Linear colour of each part: median over its pixels, shading taken out; the body's where a part is not seen."""
    white = np.ones((len(mesh.part_names), 3))
    samples: list[list[Array]] = [[] for _ in mesh.part_names]
    for frame, raster in zip(frames, rasters, strict=True):
        inside = raster.mask & (raster.face_id >= 0)
        brightness = shade(raster, mesh, white, down)[inside][:, :1]
        linear = (frame[inside] / 255.0) ** _GAMMA / np.maximum(brightness, 0.05)
        part = mesh.part[raster.face_id[inside]]
        for index in np.unique(part):
            samples[index].append(linear[part == index])
    everything = [piece for pieces in samples for piece in pieces]
    common = np.median(np.concatenate(everything), axis=0) if everything else np.full(3, 0.3)
    colors = [np.median(np.concatenate(pieces), axis=0) if pieces else common for pieces in samples]
    return np.clip(np.array(colors), 0.0, 1.0)


def _render(scene: Scene, appearance: Appearance, vertices: Array, camera_to_world: Array) -> NDArray[np.uint8]:
    raster = rasterize_camera(vertices, scene.mesh.faces, scene.camera, _SUPERSAMPLE)
    picture = shade(raster, scene.mesh, appearance.part_colors, _down(camera_to_world))
    cover = picture[..., 3:]
    seen = np.flatnonzero(cover.ravel() > 0.0)
    out = appearance.background.reshape(-1, 3).astype(np.float32)
    front = 255.0 * np.clip(picture[..., :3].reshape(-1, 3)[seen], 0.0, 1.0) ** (1.0 / _GAMMA)
    share = cover.reshape(-1, 1)[seen]
    out[seen] = share * front + (1.0 - share) * out[seen]
    return np.clip(np.round(out), 0, 255).astype(np.uint8).reshape(appearance.background.shape)


def _read_modes(
    scene: Scene, problem: Problem, states: Array, chosen: NDArray[np.int64], pictures: list[NDArray[np.uint8]]
) -> Array:
    """Mode coefficients [N, R] of reading minus projection by robust least squares; a ridge bounds weak modes."""
    seen, model = problem.observation, scene.model
    projected, _, _ = observe(problem.system, states, seen.points_body, problem.camera_to_world)
    to_camera = invert_transform(problem.camera_to_world)
    positions, _ = problem.system.body_pose(states)
    centers, radii = direction_and_size(positions @ to_camera[:3, :3].T + to_camera[:3, 3], model.radius_m)
    read = look(model, scene.camera, pictures, centers, radii, scene.calibration)
    modes = np.zeros((len(chosen), seen.shared_basis.shape[-1]))
    for n, frame in enumerate(chosen):
        labelled = read.bearings[n][model.permutation]
        element = int(np.argmin(np.median(np.linalg.norm(labelled - projected[n], axis=-1), axis=-1)))
        order = model.permutation[element]
        root = np.linalg.inv(np.linalg.cholesky(read.covariance[n][order]))
        residual = (root @ (labelled[element] - projected[n])[..., None]).reshape(-1)
        basis = (root @ seen.shared_basis[frame]).reshape(len(residual), -1)
        weight = 6.0 / (5.0 + np.repeat((residual.reshape(-1, 2) ** 2).sum(axis=1), 2))
        normal = basis.T @ (weight[:, None] * basis) + _RIDGE * np.eye(basis.shape[1])
        modes[n] = np.linalg.solve(normal, basis.T @ (weight * residual))
    return modes


def _smooth(times_s: Array, at_s: Array, modes: Array) -> Array:
    """Local means of the modes at all frames, [F, R]."""
    weight = np.exp(-0.5 * ((times_s[:, None] - at_s[None]) / _MEMORY_S) ** 2)
    return weight @ modes / weight.sum(axis=1, keepdims=True)
