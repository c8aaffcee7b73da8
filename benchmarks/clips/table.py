"""The clips: bodies, motions, appearances and cameras. `make.py` draws a row; nothing else decides what it shows.

Splits: `development` clips may be used to improve the tool. Clips of `held_out`, `distractors`, `new_meshes` (in
`new_meshes.py`) and `drawn_throws` (in `drawn_throws.py`) only judge it.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.clips.appearance import Lens, Light, Prop, Room, Sensor, Surface
from benchmarks.clips.bodies import Body
from benchmarks.clips.motion import Flight, Moves, Pendulum, Release, Swing, Throw

_SENSOR = Sensor()


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
    sensor: Sensor = _SENSOR
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
        Body(
            "box",
            (0.07, 0.07, 0.07),
            (Surface("cells", ("#c0392b", "#e8d44d", "#2b58a8", "#f0f0ea"), 0.03, 0.4),),
            0.12,
        ),
        Throw((0.28, -0.02, 0.2), (-0.7, 0.1, 1.5), (0.2, 0.6, -0.3), (-7.0, -4.0, 6.0), 0.3, 0.45),
        Room(
            Surface("marble", ("#c2c2be", "#b0aea8", "#7c7e82"), 0.35, 0.25),
            Surface("stripes", ("#3f5d4a", "#57785f"), 0.12, 0.8),
            wall_y_m=0.8,
            posters=2,
            clutter=3,
            seed=12,
        ),
        (Light((0.7, -0.5, 1.5), 0.04, 24.0, "#fff6e8"), Light((-1.5, -1.5, 2.0), 1.2, 8.0, "#cfe0ff")),
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
        Sensor(shutter=0.25, noise=0.8, soft=True),
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
        (Light((-0.6, -0.9, 1.7), 0.35, 26.0, "#ffd9a8"), Light((1.3, 0.2, 1.2), 0.3, 7.0, "#a8c4ff")),
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
        Body(
            "mug",
            (0.082, 0.095, 0.005),
            (Surface("plain", ("#e9e6df",), roughness=0.15), Surface("plain", ("#34495e",), roughness=0.2)),
            0.3,
        ),
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
        Sensor(shutter=0.2, soft=True, exposure_ev=((0.0, 0.5),)),
        frames=62,
        seed=6,
        ambient=("#ffffff", 0.2),
    ),
)

_HELD_OUT = (
    Spec(
        "ring_orange",
        "held_out",
        "thrown orange ring over a carpet of cells before striped wallpaper; soft light",
        Body("ring", (0.11, 0.022), (Surface("plain", ("#d9741f",), roughness=0.35),), 0.08),
        Throw((0.32, 0.1, 0.28), (-0.9, -0.05, 1.45), (1.0, 0.2, 0.0), (7.0, 2.0, 3.0), 0.4, 0.5),
        Room(
            Surface("cells", ("#6f7f8c", "#8c8878", "#5d6a5a", "#a09c90"), 0.05, 0.95),
            Surface("stripes", ("#d8c8b8", "#b8a090", "#d8c8b8", "#e8e0d4"), 0.2, 0.9),
            wall_y_m=0.9,
            clutter=3,
            seed=21,
        ),
        (Light((0.2, -1.0, 2.4), 1.6, 75.0, "#fffaf0"),),
        Lens((0.25, -1.4, 0.9), (0.0, 0.05, 0.22), 780.0, (240.8, 183.9)),
        frames=62,
        seed=21,
        ambient=("#f0f4ff", 0.3),
    ),
    Spec(
        "plate_pale",
        "held_out",
        "thrown pale plate over pale marble; large in the frame, motion blur",
        Body("plate", (0.17, 0.018, 0.005), (Surface("plain", ("#d5d9dc",), roughness=0.2),), 0.35),
        Throw((-0.3, 0.05, 0.26), (0.75, 0.0, 1.3), (0.5, 0.3, 0.0), (2.5, 3.0, 9.0), 0.25, 0.3),
        Room(
            Surface("marble", ("#d6d3cc", "#c6c8c8", "#a9aeb2"), 0.3, 0.3),
            Surface("tiles", ("#7f99a8", "#7690a0", "#dfe5e8"), 0.15, 0.25),
            wall_y_m=0.75,
            clutter=4,
            seed=22,
        ),
        (Light((-0.9, -0.7, 1.6), 0.5, 30.0, "#ffffff"), Light((1.4, -1.2, 1.4), 0.4, 10.0, "#ffd8b0")),
        Lens((0.1, -1.05, 0.65), (0.0, 0.0, 0.17), 700.0, (237.4, 178.8), roll_deg=1.0),
        Sensor(shutter=0.5),
        frames=58,
        seed=22,
    ),
    Spec(
        "carton_print",
        "held_out",
        "thrown carton with a print over planks before a papered wall; filmed at 120 frames a second",
        Body(
            "box",
            (0.15, 0.1, 0.045),
            (Surface("waves", ("#e9d9a8", "#b5402e", "#e9d9a8", "#2f4f6f"), 0.07, 0.55),),
            0.18,
        ),
        Throw((-0.3, 0.1, 0.4), (1.1, -0.1, 0.6), (0.3, -0.6, 0.5), (-4.0, 6.0, 4.0), 0.45, 0.25),
        Room(
            Surface("planks", ("#c2b49c", "#b3a48b", "#7e705c"), 0.12, 0.6),
            Surface("dots", ("#51606e", "#65778a"), 0.16, 0.9),
            wall_y_m=1.2,
            posters=2,
            clutter=5,
            seed=23,
        ),
        (Light((1.2, -1.0, 1.9), 0.2, 55.0, "#fff0d0"), Light((-1.4, -0.4, 1.5), 0.8, 12.0, "#b8d0ff")),
        Lens((-0.1, -1.45, 0.7), (0.02, 0.05, 0.22), 840.0, (242.2, 180.9)),
        Sensor(noise=1.4),
        fps=120.0,
        frames=84,
        seed=23,
    ),
    Spec(
        "statue_grey",
        "held_out",
        "thrown lump of grey stone, 20,480 faces, over a brick floor",
        Body("statue", (0.2, 0.42, 5.0), (Surface("noise", ("#8d8a84", "#716e69"), 0.02, 0.85),), 0.6),
        Throw((0.22, 0.0, 0.3), (-0.55, 0.05, 1.1), (0.4, 0.9, 0.2), (-3.0, -5.5, 2.0), 0.5, 0.3),
        Room(
            Surface("brick", ("#9a6a50", "#875a44", "#6a6058"), 0.1, 0.85),
            Surface("noise", ("#7d8577", "#6b7365"), 0.35, 0.95),
            wall_y_m=0.9,
            posters=1,
            clutter=4,
            seed=24,
        ),
        (Light((-0.5, -1.1, 1.8), 0.3, 45.0, "#fff4e0"),),
        Lens((0.05, -1.2, 0.75), (0.0, 0.0, 0.2), 900.0, (239.9, 176.2), roll_deg=-1.5),
        Sensor(shutter=0.25),
        frames=60,
        seed=24,
    ),
    Spec(
        "quad_small",
        "held_out",
        "small quadrotor that flies a smooth path before a cluttered brick wall; 25 to 40 px, 30 frames a second",
        Body(
            "quadrotor",
            (0.2,),
            (
                Surface("plain", ("#26282c",), roughness=0.4),
                Surface("plain", ("#b03028",)),
                Surface("plain", ("#5a5c60",)),
            ),
            0.5,
        ),
        Flight((0.0, 0.1, 0.85), (0.7, 0.25, 0.25), (0.45, 0.6, 0.75), (0.6, 0.1, 0.3), 0.8),
        Room(
            Surface("checker", ("#8a8f98", "#b9bcc2"), 0.3, 0.5),
            Surface("brick", ("#a5644c", "#91543f", "#c2b8ac"), 0.085, 0.9),
            wall_y_m=1.6,
            posters=3,
            clutter=8,
            seed=25,
        ),
        (Light((0.5, -1.0, 2.8), 1.0, 120.0, "#ffffff"), Light((-2.0, -0.5, 2.0), 0.6, 30.0, "#ffd0a0")),
        Lens((0.3, -2.9, 1.2), (0.0, 0.1, 0.85), 400.0, (241.7, 179.0)),
        Sensor(shutter=0.3),
        fps=30.0,
        frames=72,
        seed=25,
    ),
    Spec(
        "ball_stripes",
        "held_out",
        "spinning ball of 80 mm with stripes bounces over tiles; 45 px",
        Body("ball", (0.08,), (Surface("stripes", ("#e4e0d0", "#a02c3c"), 0.04, 0.4),), 0.1),
        Throw((-0.36, 0.0, 0.42), (0.75, 0.05, 0.3), (0.3, 1.0, 0.4), (4.0, 9.0, -5.0), 0.5, 0.78),
        Room(
            Surface("tiles", ("#66757c", "#5c6b74", "#9aa4a8"), 0.16, 0.3),
            Surface("wood", ("#b98d5c", "#9a6f42"), 0.12, 0.6),
            wall_y_m=0.9,
            posters=1,
            clutter=4,
            seed=26,
        ),
        (Light((0.8, -0.8, 1.7), 0.3, 40.0, "#fff8f0"), Light((-1.0, -1.2, 1.2), 0.6, 10.0, "#c0ffe0")),
        Lens((0.0, -1.5, 0.55), (0.0, 0.0, 0.26), 830.0, (236.5, 182.3)),
        Sensor(shutter=0.35),
        frames=72,
        seed=26,
    ),
    Spec(
        "box_slide",
        "held_out",
        "ochre box that slides over concrete and stops, seen from above; hard shadow",
        Body("box", (0.1, 0.07, 0.04), (Surface("noise", ("#b88a2e", "#a67a24"), 0.02, 0.6),), 0.25),
        Throw((-0.36, -0.06, 0.02), (1.35, 0.2, 0.0), (0.0, 0.0, 0.5), (0.0, 0.0, 5.0), 0.24, 0.2),
        Room(
            Surface("noise", ("#8f8c86", "#7f7c77", "#99958f"), 0.08, 0.9),
            Surface("plain", ("#b0a890",), roughness=0.9),
            wall_y_m=1.3,
            posters=0,
            clutter=5,
            seed=27,
        ),
        (Light((-0.9, 0.6, 1.2), 0.05, 26.0, "#fff2d8"), Light((0.6, -1.2, 2.0), 1.0, 14.0, "#d8e4ff")),
        Lens((0.05, -1.0, 1.05), (0.0, 0.0, 0.0), 720.0, (243.8, 184.4), roll_deg=2.5),
        frames=60,
        seed=27,
    ),
    Spec(
        "cube_string",
        "held_out",
        "blue cube that swings on a string before a wall of tiles",
        Body("box", (0.06, 0.06, 0.06), (Surface("plain", ("#29468f",), roughness=0.3),), 0.1),
        Swing((0.0, 0.0, 0.72), 0.34, (0.0, 0.0, 0.03), (14.0, 38.0), (0.4, 0.0, 1.5)),
        Room(
            Surface("planks", ("#5f4632", "#523b29", "#2d2016"), 0.1, 0.5),
            Surface("tiles", ("#cfd6d2", "#c4ccc8", "#8f9a98"), 0.12, 0.3),
            wall_y_m=0.55,
            posters=1,
            clutter=4,
            seed=28,
        ),
        (Light((-0.7, -1.3, 1.5), 0.4, 42.0, "#fffdf8"),),
        Lens((0.1, -1.2, 0.62), (0.0, 0.0, 0.4), 700.0, (238.0, 181.2)),
        Sensor(shutter=0.3),
        frames=72,
        seed=28,
    ),
    Spec(
        "cylinder_green",
        "held_out",
        "thrown green cylinder over a green carpet of nearly its colour; dim, with noise",
        Body("cylinder", (0.05, 0.12), (Surface("plain", ("#4c7a4a",), roughness=0.5),), 0.2),
        Throw((0.34, 0.05, 0.3), (-0.85, 0.0, 1.2), (0.4, 1.2, 0.3), (4.0, -3.0, 6.0), 0.4, 0.35),
        Room(
            Surface("noise", ("#3f6b44", "#548256", "#365c3c"), 0.015, 1.0),
            Surface("checker", ("#5d6f86", "#6e8098"), 0.3, 0.8),
            wall_y_m=0.9,
            posters=2,
            clutter=4,
            seed=29,
        ),
        (Light((0.7, -1.1, 1.5), 0.6, 20.0, "#ffe8c8"), Light((-1.2, -0.3, 1.4), 0.3, 9.0, "#d0d8ff")),
        Lens((-0.2, -1.5, 0.8), (0.0, 0.05, 0.2), 690.0, (242.6, 177.7)),
        Sensor(noise=2.0),
        frames=60,
        seed=29,
        ambient=("#ffffff", 0.1),
    ),
    Spec(
        "cube_pole",
        "held_out",
        "thrown wooden cube that passes behind a thin pole",
        Body("box", (0.075, 0.075, 0.075), (Surface("wood", ("#d2a66c", "#b08350"), 0.02, 0.5),), 0.15),
        Throw((-0.36, 0.1, 0.34), (0.78, 0.0, 1.1), (0.5, 0.2, -0.4), (5.0, 4.0, -4.0), 0.4, 0.4),
        Room(
            Surface("checker", ("#3f4652", "#c8c4b8"), 0.12, 0.35),
            Surface("marble", ("#8c9a90", "#7a8880", "#a8b4aa"), 0.5, 0.7),
            wall_y_m=0.9,
            posters=1,
            clutter=3,
            seed=30,
            props=(Prop("cylinder", (0.03, 1.2), (-0.02, -0.35, 0.6), Surface("plain", ("#c8ccd0",), 0.1, 0.3, 1.0)),),
        ),
        (Light((-0.8, -1.0, 1.8), 0.6, 48.0, "#ffffff"), Light((1.2, -0.4, 1.5), 0.4, 14.0, "#ffc890")),
        Lens((0.08, -1.45, 0.6), (0.0, 0.0, 0.24), 720.0, (240.2, 180.3)),
        Sensor(shutter=0.25),
        frames=60,
        seed=30,
    ),
)

_DISTRACTORS = (
    Spec(
        "hand_release",
        "distractors",
        "a hand throws a red box and lets it go in the first third of the clip",
        Body("box", (0.1, 0.07, 0.05), (Surface("plain", ("#a8322d",), roughness=0.4),), 0.2),
        Release(
            (-0.46, 0.05, 0.27),
            0.3,
            Throw((-0.3, 0.05, 0.36), (1.05, 0.0, 1.0), (0.0, 0.15, 0.25), (0.5, 4.5, 0.8), 0.4, 0.35),
        ),
        Room(
            Surface("planks", ("#b08a60", "#9c774f", "#5c452c"), 0.09, 0.45),
            Surface("noise", ("#b9c4c8", "#aab6bb"), 0.3, 0.9),
            wall_y_m=1.0,
            posters=2,
            clutter=4,
            seed=41,
        ),
        (Light((-0.4, -1.2, 2.0), 0.7, 60.0, "#fff8ee"), Light((1.3, -0.6, 1.5), 0.5, 14.0, "#d0e0ff")),
        Lens((0.05, -1.5, 0.62), (0.02, 0.0, 0.28), 700.0, (241.4, 178.2)),
        Sensor(shutter=0.3),
        frames=66,
        seed=41,
    ),
    Spec(
        "two_alike",
        "distractors",
        "a thrown yellow cube, and a yellow ball that bounces the other way behind it",
        Body("box", (0.07, 0.07, 0.07), (Surface("plain", ("#d8b028",), roughness=0.4),), 0.15),
        Throw((-0.34, -0.05, 0.3), (0.8, 0.0, 1.25), (0.4, 0.5, 0.1), (4.0, 5.0, 3.0), 0.4, 0.4),
        Room(
            Surface("tiles", ("#5a6672", "#525e6a", "#8a949c"), 0.18, 0.4),
            Surface("stripes", ("#c8c0b0", "#b4aa98"), 0.1, 0.9),
            wall_y_m=1.1,
            posters=1,
            clutter=3,
            seed=42,
        ),
        (Light((0.6, -1.0, 1.9), 0.5, 52.0, "#ffffff"), Light((-1.4, -0.4, 1.6), 0.5, 14.0, "#ffd8b0")),
        Lens((0.0, -1.5, 0.65), (0.0, 0.0, 0.25), 740.0, (238.8, 181.5)),
        frames=62,
        seed=42,
        second=(
            Body("ball", (0.085,), (Surface("plain", ("#d8b028",), roughness=0.4),), 0.1),
            Throw((0.42, 0.28, 0.4), (-0.75, 0.0, 0.4), (0.0, 0.0, 0.0), (0.0, -6.0, 0.0), 0.5, 0.75),
        ),
    ),
    Spec(
        "exposure_drift",
        "distractors",
        "a thrown violet box while the camera's exposure changes by two stops",
        Body("box", (0.11, 0.06, 0.06), (Surface("plain", ("#6a4a9c",), roughness=0.4),), 0.2),
        Throw((0.34, 0.0, 0.3), (-0.8, 0.05, 1.2), (0.2, -0.5, 0.9), (3.5, -5.0, 4.0), 0.35, 0.4),
        Room(
            Surface("checker", ("#a89878", "#c4b698"), 0.15, 0.5),
            Surface("brick", ("#8a8a86", "#7c7c78", "#b4b4ae"), 0.09, 0.9),
            wall_y_m=0.95,
            posters=2,
            clutter=4,
            seed=43,
        ),
        (Light((-0.7, -1.1, 1.8), 0.4, 44.0, "#fff2e0"), Light((1.2, -0.8, 1.5), 0.5, 12.0, "#d8e4ff")),
        Lens((-0.1, -1.4, 0.7), (0.0, 0.0, 0.23), 720.0, (240.6, 177.3), roll_deg=1.0),
        Sensor(soft=True, noise=1.2, exposure_ev=((0.0, 0.7), (0.35, 0.6), (0.6, -1.1), (0.75, -1.3), (1.0, -0.4))),
        frames=60,
        seed=43,
    ),
    Spec(
        "enters_late",
        "distractors",
        "a thrown teal cylinder that is out of the frame in the first fifth of the clip",
        Body("cylinder", (0.08, 0.07), (Surface("dots", ("#1f7a78", "#e0e4d8"), 0.03, 0.4),), 0.2),
        Throw((-0.78, 0.0, 0.24), (1.45, 0.05, 1.75), (0.3, 0.4, 0.2), (-3.0, 5.0, 3.0), 0.4, 0.4),
        Room(
            Surface("noise", ("#7a6a58", "#8c7a66", "#6a5c4c"), 0.02, 1.0),
            Surface("cells", ("#c4b8a4", "#b0a48e", "#d4c8b4"), 0.25, 0.8),
            wall_y_m=0.95,
            posters=1,
            clutter=4,
            seed=44,
        ),
        (Light((0.8, -1.1, 1.8), 0.4, 46.0, "#ffffff"), Light((-1.2, -0.8, 1.5), 0.5, 12.0, "#ffd8c0")),
        Lens((0.05, -1.4, 0.7), (0.05, 0.0, 0.26), 720.0, (241.1, 181.9)),
        Sensor(shutter=0.3),
        frames=66,
        seed=44,
    ),
)

CLIPS = {spec.name: spec for spec in (*_DEVELOPMENT, *_HELD_OUT, *_DISTRACTORS)}
