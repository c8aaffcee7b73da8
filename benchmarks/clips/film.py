"""Film bodies that move before a static camera: Cycles (module `bpy`), sensor noise, 8 bits.

Limits: no motion blur.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clips import files, scene
from benchmarks.clips.appearance import Lens, Light, Room, Sensor
from benchmarks.clips.companions import Mover

Array = NDArray[np.float64]
LIGHTS = (Light((-1.2, -1.4, 2.2), 0.7, 60.0, "#fff1dc"), Light((1.6, -0.8, 1.8), 0.4, 25.0, "#dce8ff"))


@dataclass(frozen=True)
class Stage:
    """Where and how a clip is filmed. seed: of the noise. frames: their number. samples: rays of a pixel."""

    lens: Lens
    room: Room
    sensor: Sensor
    seed: int
    frames: int
    fps: float
    samples: int
    threads: int
    lights: tuple[Light, ...] = LIGHTS


def options_of(text: str, folder: Path) -> argparse.Namespace:
    """Return the options of a script: samples, threads and the folder `out`, which is made. text: of its help."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=6, help="rays of a pixel")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=folder)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def prepare(stage: Stage, place_m: Array) -> None:
    """Build the room with its lights. place_m: [N, 3] where the bodies move; clutter stays behind it."""
    scene.start(stage.lens, stage.samples, stage.threads, "#c8d4e6", 0.35)
    scene.add_lights(stage.lights)
    scene.add_room(stage.room, stage.lens, place_m)


def film(path: Path, stage: Stage, hidden: list[Any], box_of: Callable[[int], scene.Box | None]) -> None:
    """Write the video of a scene that is prepared.

    Args:
        path: of the video.
        stage: of the scene.
        hidden: the things that move; the scene without them is rendered once.
        box_of: moves the things to a frame, and returns the rectangle that they change.
    """
    shown = []
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "render.exr"
        scene.hide(hidden, hidden=True)
        static = scene.render(0, None, file)
        scene.hide(hidden, hidden=False)
        for k in range(stage.frames):
            box = box_of(k)
            assert box is not None
            clean = stage.sensor.develop(scene.paste(static, scene.render(k, box, file), box), k / stage.fps)
            noise = np.random.default_rng([stage.seed, k]).normal(size=clean.shape)
            shown.append(np.clip(np.round(clean + stage.sensor.noise_sigma(clean) * noise), 0, 255).astype(np.uint8))
    files.write_video(path, shown, stage.fps, stage.lens.size_px, stage.sensor.crf)


def film_movers(path: Path, stage: Stage, movers: list[Mover], place_m: Array) -> None:
    """Write the video of bodies that move. place_m: [N, 3] where the bodies move; clutter stays behind it."""
    prepare(stage, place_m)
    things = [scene.add_mover(each, stage.frames, stage.fps, stage.sensor.shutter) for each in movers]
    moves = [bool(np.ptp(each.motion.orientation, axis=0).any()) for each in movers]
    moving = [each for each, moved in zip(movers, moves, strict=True) if moved]
    hidden = [thing for thing, moved in zip(things, moves, strict=True) if moved]

    def box_of(k: int) -> scene.Box | None:
        return scene.changed_box(moving, stage.room, stage.lights, stage.lens, np.array([k / stage.fps]))

    film(path, stage, hidden, box_of)
