"""The frames that methods are judged on: bodies in random states under held-out appearances.

The scene's axes have z up; the camera is about the origin and looks about along x. Limits: only the piece of a frame
around the body is rendered, with the frame's own pixels and perspective.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.body_adapter import BodyAdapter, Frames
from experiments.table import Setting
from experiments.test_renderer import CONFIGURATIONS
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.errors import Vid2PhysError
from vid2phys.io.files import atomic_path
from vid2phys.types import Array, Camera, Mesh

WIDTH, HEIGHT, FOCAL_PX, PIECE_PX = 640, 480, 450.0, 160
VERSION = 2  # raise when images change
_NOISE, _SHARD, _LUMINANCE = 1.5, 10, np.array([0.2126, 0.7152, 0.0722])
_STATES, _GRAIN = 1, 2  # streams of random numbers


@dataclass(frozen=True)
class _Shots:
    """What a process renders. radius_m: the stage's unit of length. vertices: [N, V, 3] m and cameras, on the stage.
    first: number of the first frame."""

    mesh: Mesh
    radius_m: float
    vertices: Array
    cameras: list[Camera]
    first: int

    def __getitem__(self, some: range) -> _Shots:
        chosen = [self.cameras[i] for i in some]
        return replace(self, vertices=self.vertices[some.start : some.stop], cameras=chosen, first=some.start)

    def digest(self, spp: int, seed: int) -> str:
        """Return the digest; equal digests give equal images."""
        appearances = [appearance.name for appearance in CONFIGURATIONS]
        return digest_of([VERSION, spp, seed, appearances, self.radius_m], self.mesh, self.vertices, self.cameras)


def digest_of(facts: list[Any], mesh: Mesh, vertices: Array, cameras: Sequence[Camera]) -> str:
    """Return digest that names images of a mesh with its vertices [..., V, 3] m; facts: what else they follow from."""
    digest = hashlib.sha256(json.dumps(facts).encode())
    arrays: list[NDArray[Any]] = [mesh.faces, mesh.part, vertices]
    if mesh.texture is not None:
        texture = mesh.texture
        arrays += [texture.image, texture.uv, texture.corner_color, *texture.images]
    for camera in cameras:
        assert camera.camera_to_world is not None
        arrays += [camera.K, camera.camera_to_world]
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


def piece(K: Array, camera_to_world: Array, point: Array) -> Camera:
    """Return the camera of the piece of a frame, of `K` [3, 3], that is about a point [3] m of the world."""
    shifted = K.copy()
    place = K @ camera_to_world[:3, :3].T @ (point - camera_to_world[:3, 3])
    shifted[:2, 2] -= np.round(place[:2] / place[2] - 0.5 * (PIECE_PX - 1))
    return Camera(shifted, PIECE_PX, PIECE_PX, camera_to_world=camera_to_world)


def frame_matrix() -> Array:
    """Return the camera matrix of whole frames, [3, 3] px."""
    return np.array([[FOCAL_PX, 0.0, 0.5 * (WIDTH - 1)], [0.0, FOCAL_PX, 0.5 * (HEIGHT - 1)], [0.0, 0.0, 1.0]])


def rendered_frames(
    adapter: BodyAdapter, folder: Path, *, count: int, spp: int, seed: int, progress: Callable[[int, int], None]
) -> Frames:
    """Return `count` frames of each configuration, the same states for all. Shards in `folder` are used again."""
    rng = np.random.default_rng([seed, _STATES])
    states = adapter.sample(rng, count)
    cameras = adapter.cameras(rng, states)
    shots = _before_camera(adapter, states, cameras)
    digest, pieces = shots.digest(spp, seed), []
    for place, appearance in enumerate(CONFIGURATIONS):
        for start in range(0, count, _SHARD):
            some = range(start, min(start + _SHARD, count))
            path = folder / f"unseen-{digest}" / f"{appearance.name}_{start:04d}.safetensors"
            if not path.exists():
                in_process(_render, (shots[some], place, spp, seed, path), path)
            pieces.append(_read(path))
            progress(place * count + some.stop, len(CONFIGURATIONS) * count)
    times = len(CONFIGURATIONS)
    configuration = np.repeat(np.arange(times), count)
    return Frames(np.concatenate(pieces), cameras * times, np.concatenate([states] * times), configuration)


def judged_frames(adapter: BodyAdapter, setting: Setting) -> Frames:
    """Return the frames of table 1 of a body, of which a quick run has few."""
    count, spp = (10, 16) if setting.quick else (200, 64)
    return rendered_frames(
        adapter,
        setting.work / adapter.name,
        count=count,
        spp=spp,
        seed=setting.seed,
        progress=lambda done, total: setting.progress.step(f"unseen frames of {adapter.name}", done, total),
    )


def _before_camera(adapter: BodyAdapter, states: Array, cameras: list[Camera]) -> _Shots:
    vertices, moved = [], []
    for state, camera in zip(states, cameras, strict=True):
        assert camera.camera_to_world is not None
        move = adapter.stage_from_world(camera)
        vertices.append(adapter.vertices(state) @ move[:3, :3].T + move[:3, 3])
        moved.append(replace(camera, camera_to_world=move @ camera.camera_to_world))
    return _Shots(adapter.mesh, adapter.radius_m, np.stack(vertices), moved, 0)


def in_process(render: Callable[..., None], arguments: tuple[Any, ...], path: Path) -> None:
    """Render a shard to `path` in a process of its own: many Mitsuba scenes in one can hang."""
    if find_llvm() is None:
        from vid2phys.engine.render.mitsuba import load_mitsuba

        load_mitsuba()  # raises, with the remedy
    process = multiprocessing.get_context("spawn").Process(target=render, args=arguments, daemon=True)
    process.start()
    try:
        process.join()
    finally:
        process.kill()
    if process.exitcode != 0 or not path.exists():
        raise Vid2PhysError(f"a rendering process ended with {process.exitcode}", "frames", "see the messages above")


def _render(shots: _Shots, place: int, spp: int, seed: int, path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent cleans up
    from safetensors.numpy import save

    from experiments.path_tracer import PathTracer, surfaces

    appearance = CONFIGURATIONS[place]
    materials = appearance.materials([surface.color for surface in surfaces(shots.mesh)])
    tracer = PathTracer(shots.mesh, materials, appearance.surroundings(), shots.radius_m)
    pieces = []
    for index, (vertices, camera) in enumerate(zip(shots.vertices, shots.cameras, strict=True), start=shots.first):
        light = tracer.frame(vertices, camera, spp=spp, seed=index)
        grain = np.random.default_rng([seed, place, index, _GRAIN])
        pieces.append(display(light, automatic_gain(light, appearance.exposure), grain))
    with atomic_path(path) as temporary:
        temporary.write_bytes(save({"pieces": np.stack(pieces)}))


def automatic_gain(light: NDArray[np.float32], exposure: float) -> float:
    """Return the factor by which the light is multiplied so that its mean comes to the share `exposure` of white."""
    return exposure / max(float((light @ _LUMINANCE).mean()), 1e-6)


def display(light: NDArray[np.float32], gain: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a frame in sRGB (IEC 61966-2-1) with a little noise."""
    value = np.clip(light * gain, 0.0, 1.0)
    display = np.where(value <= 0.0031308, 12.92 * value, 1.055 * value ** (1.0 / 2.4) - 0.055) * 255.0
    return np.clip(np.round(display + rng.normal(0.0, _NOISE, display.shape)), 0, 255).astype(np.uint8)


def _read(path: Path) -> NDArray[np.uint8]:
    from safetensors.numpy import load_file

    pieces: NDArray[np.uint8] = load_file(path)["pieces"]
    return pieces
