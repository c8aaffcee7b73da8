"""The clips: bodies, motions, appearances and cameras. `make.py` draws a row; nothing else decides what it shows.

Splits: `development` clips may be used to improve the tool; `held_out` and `distractors` clips only judge it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.clips.appearance import Lens, Light, Prop, Room, Sensor, Surface
from benchmarks.clips.bodies import Body
from benchmarks.clips.motion import Flight, Moves, Pendulum, Release, Swing, Throw


@dataclass(frozen=True)
class Spec:
    """A clip. seed: of the sensor's noise. ambient: colour and power of the light from everywhere.

    second: another object with its own motion.
    """

    name: str
    split: str
    text: str
    body: Body
    moves: Moves
    room: Room
    lights: tuple[Light, ...]
    lens: Lens
    sensor: Sensor = Sensor()
    fps: float = 60.0
    frames: int = 60
    seed: int = 0
    ambient: tuple[str, float] = ("#ffffff", 0.25)
    second: tuple[Body, Moves] | None = None


_DEVELOPMENT = (
    Spec(
        "box_plain",
        "development",
        "thrown box of one colour over warm tiles before a brick wall; lands and bounces",
        Body("box", (0.12, 0.08, 0.05), (Surface("plain", ("#2b6f8a",), roughness=0.45),), 0.25),
        Throw((-0.36, 0.02, 0.34), (0.85, 0.05, 1.0), (0.5, -0.2, 0.8), (5.0, -6.5, 3.0), 0.35, 0.4),
        Room(
            Surface("tiles", ("#b59a7c", "#a98c6d", "#e0d8c8"), 0.22, 0.35),
            Surface("brick", ("#8c4a38", "#7a3d30", "#b8aca0"), 0.075, 0.9),
            wall_y_m=1.1,
            clutter=4,
            seed=11,
        ),
        (Light((-1.0, -1.2, 2.2), 0.8, 70.0, "#fff0dc"), Light((1.6, -0.6, 1.8), 0.5, 22.0, "#dce8ff")),
        Lens((0.1, -1.5, 0.75), (0.0, 0.0, 0.24), 760.0, (243.1, 176.4)),
        frames=64,
        seed=1,
    ),
    Spec(
        "cube_pattern",
        "development",
        "tossed cube with a pattern of colours over marble; hard shadows, motion blur",
        Body("box", (0.07, 0.07, 0.07), (Surface("cells", ("#c0392b", "#e8d44d", "#2b58a8", "#f0f0ea"), 0.03, 0.4),), 0.12),
        Throw((0.28, -0.02, 0.2), (-0.7, 0.1, 1.5), (0.2, 0.6, -0.3), (-7.0, -4.0, 6.0), 0.3, 0.45),
        Room(
            Surface("marble", ("#d8d8d4", "#c4c2bc", "#8a8c90"), 0.35, 0.25),
            Surface("stripes", ("#3f5d4a", "#57785f"), 0.12, 0.8),
            wall_y_m=0.8,
            posters=2,
            clutter=3,
            seed=12,
        ),
        (Light((0.7, -0.5, 1.5), 0.04, 38.0, "#fff6e8"), Light((-1.5, -1.5, 2.0), 1.2, 10.0, "#cfe0ff")),
        Lens((-0.15, -1.15, 0.62), (0.0, 0.0, 0.17), 690.0, (236.7, 183.2), roll_deg=1.5),
        Sensor(shutter=0.4),
        frames=60,
        seed=2,
        ambient=("#e8f0ff", 0.12),
    ),
    Spec(
        "ball_phone",
        "development",
        "plain ball of 66 mm falls and bounces before a phone: wide lens, planks, bright room",
        Body("ball", (0.066,), (Surface("plain", ("#c6d63a",), roughness=0.7),), 0.058),
        Throw((-0.16, 0.05, 0.62), (0.28, 0.02, 0.0), (0.3, 0.2, 0.1), (0.0, 3.0, 1.0), 0.5, 0.7),
        Room(
            Surface("planks", ("#a9774a", "#8d5f38", "#4a3220"), 0.1, 0.4),
            Surface("noise", ("#e6e1d6", "#dcd6c9"), 0.2, 0.9),
            wall_y_m=1.0,
            posters=1,
            clutter=5,
            seed=13,
        ),
        (Light((0.3, -0.9, 2.3), 1.2, 62.0, "#ffffff"),),
        Lens((0.02, -0.75, 0.42), (0.0, 0.05, 0.3), 374.4, (239.5, 179.5), roll_deg=-1.0),
        Sensor(shutter=0.25, noise=0.8, transform="AgX", exposure_ev=((0.0, 0.4),)),
        frames=72,
        seed=3,
        ambient=("#ffffff", 0.5),
    ),
    Spec(
        "l_wood",
        "development",
        "thrown L-shape of wood over planks of nearly its colour; dim, with noise",
        Body("l_shape", (0.13, 0.09, 0.035, 0.03), (Surface("wood", ("#a87546", "#7d5330"), 0.03, 0.5),), 0.15),
        Throw((-0.36, 0.1, 0.3), (1.05, -0.1, 1.25), (0.9, 0.4, 0.2), (3.0, 5.0, -6.0), 0.4, 0.35),
        Room(
            Surface("planks", ("#9c6b40", "#85592f", "#3a2818"), 0.08, 0.45),
            Surface("planks", ("#6e5138", "#604529", "#2e2116"), 0.14, 0.7),
            wall_y_m=0.9,
            posters=1,
            clutter=4,
            seed=14,
        ),
        (Light((-0.6, -0.9, 1.7), 0.35, 18.0, "#ffd9a8"), Light((1.3, 0.2, 1.2), 0.3, 4.0, "#a8c4ff")),
        Lens((0.2, -1.3, 0.85), (0.0, 0.05, 0.2), 640.0, (241.9, 181.0)),
        Sensor(noise=2.2),
        frames=60,
        seed=4,
        ambient=("#ffe8d0", 0.06),
    ),
    Spec(
        "bar_pin",
        "development",
        "grey bar that swings on a steel pin before concrete of nearly its colour",
        Body("box", (0.3, 0.02, 0.035), (Surface("noise", ("#9a958c", "#8b867e"), 0.04, 0.7),), 0.2),
        Pendulum((0.02, 0.0, 0.48), (-0.13, 0.0, 0.0), 70.0, 0.0012),
        Room(
            Surface("checker", ("#c9c4b8", "#5a5f66"), 0.2, 0.3),
            Surface("noise", ("#a39e95", "#8f8a82", "#98938a"), 0.25, 0.9),
            wall_y_m=0.5,
            posters=1,
            clutter=4,
            seed=15,
        ),
        (Light((-0.8, -1.4, 1.6), 0.25, 40.0, "#ffffff"), Light((0.9, -1.2, 1.3), 0.6, 14.0, "#ffe0c0")),
        Lens((-0.25, -1.25, 0.55), (0.02, 0.0, 0.36), 610.0, (244.0, 178.0)),
        Sensor(shutter=0.3),
        frames=72,
        seed=5,
    ),
    Spec(
        "mug_white",
        "development",
        "thrown white mug with a dark handle over a carpet before pale wallpaper; lights of two colours",
        Body("mug", (0.082, 0.095, 0.005), (Surface("plain", ("#e9e6df",), roughness=0.15), Surface("plain", ("#34495e",), roughness=0.2)), 0.3),
        Throw((0.34, 0.05, 0.3), (-0.95, 0.05, 1.35), (1.2, 0.3, -0.6), (5.0, -4.5, -3.0), 0.3, 0.3),
        Room(
            Surface("noise", ("#4d5a66", "#667582", "#3c4853"), 0.012, 1.0),
            Surface("dots", ("#e3ddd2", "#cdbfae"), 0.09, 0.8),
            wall_y_m=0.85,
            posters=2,
            clutter=4,
            seed=16,
        ),
        (Light((-1.1, -0.8, 1.5), 0.5, 34.0, "#ff9a5a"), Light((1.1, -1.0, 1.6), 0.5, 34.0, "#6aa8ff")),
        Lens((0.0, -1.35, 0.6), (0.02, 0.0, 0.24), 720.0, (238.3, 182.6), roll_deg=-2.0),
        Sensor(shutter=0.2, transform="AgX", exposure_ev=((0.0, 0.5),)),
        frames=62,
        seed=6,
        ambient=("#ffffff", 0.2),
    ),
)

CLIPS = {spec.name: spec for spec in _DEVELOPMENT}
