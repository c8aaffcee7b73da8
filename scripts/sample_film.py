"""Film bodies that move before a static camera, for the samples: Cycles (module `bpy`), sensor noise, 8 bits.

Limits: no motion blur.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.clips import scene
from benchmarks.clips.appearance import Lens, Light, Room, Sensor
from benchmarks.clips.companions import Mover

Array = NDArray[np.float64]
LIGHTS = (Light((-1.2, -1.4, 2.2), 0.7, 60.0, "#fff1dc"), Light((1.6, -0.8, 1.8), 0.4, 25.0, "#dce8ff"))


@dataclass(frozen=True)
class Stage:
    """Where and how a sample is filmed. samples: rays of a pixel. seed: of the noise."""

    lens: Lens
    room: Room
    sensor: Sensor
    seed: int
    samples: int
    threads: int


def filmed(movers: list[Mover], place_m: Array, frames: int, fps: float, stage: Stage) -> list[NDArray[np.uint8]]:
    """Return the frames [H, W, 3]. place_m: [N, 3] where the bodies move; clutter stays behind it."""
    lens, room, sensor = stage.lens, stage.room, stage.sensor
    scene.start(lens, stage.samples, stage.threads, "#c8d4e6", 0.35)
    scene.add_lights(LIGHTS)
    scene.add_room(room, lens, place_m)
    things = [scene.add_mover(each, frames, fps, sensor.shutter) for each in movers]
    moves = [bool(np.ptp(each.motion.orientation, axis=0).any()) for each in movers]
    moving = [each for each, moved in zip(movers, moves, strict=True) if moved]
    hidden = [thing for thing, moved in zip(things, moves, strict=True) if moved]
    out = []
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "render.exr"
        scene.hide(hidden, hidden=True)
        static = scene.render(0, None, file)
        scene.hide(hidden, hidden=False)
        for k in range(frames):
            box = scene.changed_box(moving, room, LIGHTS, lens, np.array([k / fps]))
            assert box is not None
            clean = sensor.develop(scene.paste(static, scene.render(k, box, file), box), k / fps)
            noise = np.random.default_rng([stage.seed, k]).normal(size=clean.shape)
            out.append(np.clip(np.round(clean + sensor.noise_sigma(clean) * noise), 0, 255).astype(np.uint8))
    return out
