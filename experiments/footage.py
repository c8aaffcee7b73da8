"""Target videos: a motion before a static camera, path-traced with a held-out appearance.

Frames are the piece of a 640 x 480 frame in which the motion takes place. Exposure is set once, on the scene without
the body. That image is kept as well, for methods that compare pixels (the papers' methods know their background).

Limits: no lens distortion, and no motion blur.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.image_alignment import automatic_gain, digest_of, display, in_process
from experiments.test_renderer import CONFIGURATIONS
from vid2phys.io.array_clip import array_clip
from vid2phys.io.files import atomic_path
from vid2phys.types import Array, Camera, Clip, Mesh

VERSION = 1  # raise when images change
_SHARD = 12  # frames a process
_EMPTY = -1  # number of the frame without the body
_GRAIN = 5  # stream of random numbers


@dataclass(frozen=True)
class Shot:
    """What is filmed, in the axes of the scene: vertices [T, V, 3] m of a mesh, a camera and an appearance.

    radius_m: the scene's unit of length. appearance: index of a configuration of `test_renderer`; variant: of its
    materials.
    """

    mesh: Mesh
    radius_m: float
    vertices: Array
    camera: Camera
    appearance: int
    spp: int
    seed: int
    variant: int = 0

    @property
    def digest(self) -> str:
        """Return the digest; equal digests give equal images."""
        camera = self.camera
        facts = [
            VERSION,
            CONFIGURATIONS[self.appearance].name,
            self.spp,
            self.seed,
            self.radius_m,
            camera.width,
            camera.height,
            *([self.variant] if self.variant else []),
        ]
        return digest_of(facts, self.mesh, self.vertices, [camera])


@dataclass(frozen=True)
class Footage:
    """frames: [T, H, W, 3] uint8. backdrop: [H, W, 3] uint8, what they show without the body."""

    frames: NDArray[np.uint8]
    backdrop: NDArray[np.uint8]

    def clip(self, times_s: Array) -> Clip:
        """Return the footage as a video with frames at these times."""
        return array_clip(self.frames, times_s, "footage")


def film(shot: Shot, folder: Path, progress: Callable[[int, int], None]) -> Footage:
    """Return the video of a shot. Finished pieces in `folder` are used again. Raises MissingDependencyError without
    LLVM.
    """
    from safetensors.numpy import load_file

    place = folder / f"footage-{shot.digest}"
    count = len(shot.vertices)
    empty = place / "empty.safetensors"
    if not empty.exists():
        in_process(_render_empty, (shot, empty), empty)
    seen = load_file(empty)
    pieces = []
    for start in range(0, count, _SHARD):
        path, some = place / f"frames_{start:04d}.safetensors", range(start, min(start + _SHARD, count))
        if not path.exists():
            in_process(_render, (shot, some, float(seen["gain"][0]), path), path)
        pieces.append(load_file(path)["frames"])
        progress(some.stop, count)
    return Footage(np.concatenate(pieces), seen["backdrop"])


def _render_empty(shot: Shot, path: Path) -> None:
    light = _light(shot, [None])[0]
    gain = automatic_gain(light, CONFIGURATIONS[shot.appearance].exposure)
    _save(path, backdrop=display(light, gain, _grain(shot, _EMPTY)), gain=np.array([gain]))


def _render(shot: Shot, some: range, gain: float, path: Path) -> None:
    light = _light(shot, list(some))
    _save(path, frames=np.stack([display(each, gain, _grain(shot, i)) for i, each in zip(some, light, strict=True)]))


def _light(shot: Shot, some: Sequence[int | None]) -> list[NDArray[np.float32]]:
    """Return the linear light of some frames, None: without the body."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent cleans up
    from experiments.path_tracer import PathTracer, surfaces

    appearance = CONFIGURATIONS[shot.appearance]
    materials = appearance.materials([surface.color for surface in surfaces(shot.mesh)], shot.variant)
    tracer = PathTracer(shot.mesh, materials, appearance.surroundings(), shot.radius_m)
    return [
        tracer.frame(None if i is None else shot.vertices[i], shot.camera, spp=shot.spp, seed=0 if i is None else i)
        for i in some
    ]


def _grain(shot: Shot, index: int) -> np.random.Generator:
    return np.random.default_rng([shot.seed, shot.appearance, index - _EMPTY, _GRAIN])


def _save(path: Path, **arrays: NDArray[Any]) -> None:
    from safetensors.numpy import save

    with atomic_path(path) as temporary:
        temporary.write_bytes(save(arrays))
