"""The frames that methods are judged on: one camera at rest, a body at random states before it, unseen looks.

Only the piece of a frame around the body is rendered, with the frame's own pixels and perspective.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.llvm import find_llvm
from vid2phys.errors import Vid2PhysError
from vid2phys.io.files import atomic_path
from vid2phys.reproduce.bodies import Body
from vid2phys.reproduce.unseen import CONFIGURATIONS
from vid2phys.rotations import make_transform, matrix_from_quat
from vid2phys.types import Array, Camera, Mesh

_WIDTH, _HEIGHT, _FOCAL_PX, _PIECE_PX = 640, 480, 450.0, 160
_MIDDLE = (14.0, 0.0, 0.0)  # of the states' range, body radii; the camera is at the origin and looks along x
HALF_RANGE = (5.0, 4.0, 3.0)  # of positions about it
_NOISE, _SHARD, _LUMINANCE = 1.5, 10, np.array([0.2126, 0.7152, 0.0722])
_STATES, _GRAIN = 1, 2  # streams of random numbers


@dataclass(frozen=True)
class Frames:
    """pieces: [N, 160, 160, 3] uint8. cameras: of the pieces. world_from_body: [N, 4, 4] m. configuration: [N]."""

    pieces: NDArray[np.uint8]
    cameras: list[Camera]
    world_from_body: Array
    configuration: NDArray[np.int64]


@dataclass(frozen=True)
class _Recipe:
    body: str
    mesh: str
    seed: int
    spp: int
    looks: tuple[str, ...] = tuple(c.name for c in CONFIGURATIONS)
    version: int = 1

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]


def radius_m(body: Body) -> float:
    """Of the sphere about the body's origin."""
    return float(np.linalg.norm(body.mesh.vertices, axis=1).max())


def half_range_m(body: Body) -> Array:
    """Half the range of positions, [3] m."""
    return np.array(HALF_RANGE) * radius_m(body)


def sample_poses(body: Body, rng: np.random.Generator, count: int) -> Array:
    """World poses [N, 4, 4] m: positions evenly over their range, orientations as the system gives them."""
    _, quats = body.system.body_pose(body.system.sample_state(rng, count))
    place = np.array(_MIDDLE) * radius_m(body) + rng.uniform(-1.0, 1.0, (count, 3)) * half_range_m(body)
    return make_transform(matrix_from_quat(quats), place)


def middle_m() -> Array:
    """Middle of the range of positions, [3] body radii."""
    return np.array(_MIDDLE)


def unseen_frames(
    body: Body, folder: Path, *, count: int, spp: int, seed: int, progress: Callable[[int, int], None]
) -> Frames:
    """`count` frames of each configuration, the same states for all. Finished shards in `folder` are used again."""
    if find_llvm() is None:
        from vid2phys.engine.render.mitsuba import load_mitsuba

        load_mitsuba()  # raises, with the remedy
    recipe = _Recipe(body.name, _digest(body.mesh), seed, spp)
    poses = sample_poses(body, np.random.default_rng([seed, _STATES]), count)
    cameras = [_piece(pose) for pose in poses]
    shards = [range(i, min(i + _SHARD, count)) for i in range(0, count, _SHARD)]
    pieces = []
    for place, name in enumerate(recipe.looks):
        for number, shard in enumerate(shards):
            path = folder / f"unseen-{recipe.digest}" / f"{name}_{number:03d}_{len(shard)}.safetensors"
            if not path.exists():
                _in_process(body.mesh, place, poses[shard], [cameras[i] for i in shard], (spp, seed, shard.start), path)
            pieces.append(_read(path))
            progress(place * count + shard.stop, len(recipe.looks) * count)
    configurations = len(recipe.looks)
    return Frames(
        np.concatenate(pieces),
        cameras * configurations,
        np.tile(poses, (configurations, 1, 1)),
        np.repeat(np.arange(configurations), count),
    )


def _piece(world_from_body: Array) -> Camera:
    """The camera of the piece of the frame that is about the body."""
    camera_to_world = np.eye(4)
    camera_to_world[:3, :3] = [[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]
    K = np.array([[_FOCAL_PX, 0.0, 0.5 * (_WIDTH - 1)], [0.0, _FOCAL_PX, 0.5 * (_HEIGHT - 1)], [0.0, 0.0, 1.0]])
    place = K @ camera_to_world[:3, :3].T @ world_from_body[:3, 3]
    K[:2, 2] -= np.round(place[:2] / place[2] - 0.5 * (_PIECE_PX - 1))
    return Camera(K, _PIECE_PX, _PIECE_PX, camera_to_world=camera_to_world)


def _in_process(
    mesh: Mesh, place: int, poses: Array, cameras: list[Camera], numbers: tuple[int, int, int], path: Path
) -> None:
    """Renders a shard in a process of its own: many Mitsuba scenes in one can hang."""
    arguments = (mesh, place, poses, cameras, numbers, path)
    process = multiprocessing.get_context("spawn").Process(target=_render, args=arguments, daemon=True)
    process.start()
    try:
        process.join()
    finally:
        process.kill()
    if process.exitcode != 0 or not path.exists():
        raise Vid2PhysError(f"a rendering process ended with {process.exitcode}", "frames", "see the messages above")


def _render(
    mesh: Mesh, place: int, poses: Array, cameras: list[Camera], numbers: tuple[int, int, int], path: Path
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent cleans up
    from safetensors.numpy import save

    from vid2phys.engine.render.pathtraced import PathTracer

    spp, seed, first = numbers
    look = CONFIGURATIONS[place]
    tracer = PathTracer(mesh, look.materials(len(np.unique(mesh.part))), look.surroundings())
    pieces = []
    for index, (pose, camera) in enumerate(zip(poses, cameras, strict=True), start=first):
        light = tracer.frame(pose, camera, spp=spp, seed=index)
        pieces.append(_display(light, look.exposure, np.random.default_rng([seed, place, index, _GRAIN])))
    with atomic_path(path) as temporary:
        temporary.write_bytes(save({"pieces": np.stack(pieces)}))


def _display(light: NDArray[np.float32], exposure: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Automatic exposure, sRGB (IEC 61966-2-1), a little noise."""
    value = np.clip(light * (exposure / max(float((light @ _LUMINANCE).mean()), 1e-6)), 0.0, 1.0)
    display = np.where(value <= 0.0031308, 12.92 * value, 1.055 * value ** (1.0 / 2.4) - 0.055) * 255.0
    return np.clip(np.round(display + rng.normal(0.0, _NOISE, display.shape)), 0, 255).astype(np.uint8)


def _read(path: Path) -> NDArray[np.uint8]:
    from safetensors.numpy import load_file

    pieces: NDArray[np.uint8] = load_file(path)["pieces"]
    return pieces


def _digest(mesh: Mesh) -> str:
    digest = hashlib.sha256()
    for array in (mesh.vertices, mesh.faces, mesh.part):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
