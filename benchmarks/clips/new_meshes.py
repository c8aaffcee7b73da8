"""One thrown clip for each of ten meshes that neither training nor the tuning of the tracker has met.

Appearance, light, camera and throw of each clip follow from its seed. `benchmarks.identify --untrained --clips DIR`
judges the tool by these clips. They only judge: see the splits of `table.py`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.clips.appearance import Lens, Light, Room, Sensor, Surface
from benchmarks.clips.bodies import Body
from benchmarks.clips.motion import Throw
from benchmarks.clips.table import Spec

_BODIES = {  # shape, sizes [m] and the other arguments of that shape, the pattern of the surface
    "l_shape": ("fine_l_shape", (0.14, 0.1, 0.035, 0.03, 3.0), "plain"),
    "ring": ("ring", (0.12, 0.025), "plain"),
    "mug": ("mug", (0.085, 0.1, 0.005), "dots"),
    "plate": ("plate", (0.17, 0.02, 0.005, 96.0), "plain"),
    "bracket": ("bracket", (0.13, 60.0), "plain"),
    "shoe": ("shoe", (0.2, 80.0), "noise"),
    "gear": ("gear", (0.12, 0.03, 13.0, 130.0), "plain"),
    "knot": ("knot", (0.15, 0.03, 150.0), "plain"),
    "lump": ("statue", (0.16, 0.3, 8.0, 6.0), "noise"),
    "figure": ("figure", (0.24, 275.0), "marble"),
}
COLORS = ("#b03a2e", "#2e6da4", "#d4a017", "#4a7c59", "#6c4a8c", "#c9c4b8", "#40454d", "#b9703c", "#2f8f8b", "#8a8f98")
FLOORS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("planks", ("#a9774a", "#8d5f38", "#4a3220"), 0.1),
    ("tiles", ("#9aa4a8", "#8c979c", "#d8dcdc"), 0.2),
    ("noise", ("#5d6470", "#6f7783", "#4c525c"), 0.015),
    ("checker", ("#8c8478", "#bdb5a6"), 0.15),
    ("marble", ("#c2c2be", "#b0aea8", "#7c7e82"), 0.35),
)
WALLS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("brick", ("#8c4a38", "#7a3d30", "#b8aca0"), 0.08),
    ("stripes", ("#c8c0b0", "#b4aa98"), 0.1),
    ("noise", ("#7d8577", "#6b7365"), 0.35),
    ("dots", ("#51606e", "#65778a"), 0.16),
    ("plain", ("#d8d2c4",), 0.1),
)


def _spec(index: int, name: str) -> Spec:
    """Return the clip of a mesh."""
    rng = np.random.default_rng([index, 4040])
    shape, size_m, pattern = _BODIES[name]
    color = COLORS[index]
    surface = Surface(pattern, (color, darker(color), "#e0dccf"), 0.03, float(rng.uniform(0.3, 0.8)))
    side = float(rng.choice([-1.0, 1.0]))
    throw = Throw(
        (0.34 * side, float(rng.uniform(-0.05, 0.1)), float(rng.uniform(0.28, 0.34))),
        (float(-0.85 * side), float(rng.uniform(0.0, 0.25)), float(rng.uniform(1.1, 1.4))),
        three(rng.uniform(-1.5, 1.5, 3)),
        three(rng.normal(0.0, 4.5, 3)),
        restitution=0.35,
    )
    room = Room(
        surface_of(FLOORS[index % 5], 0.6),
        surface_of(WALLS[(index + index // 5) % 5], 0.9),
        wall_y_m=float(rng.uniform(0.8, 1.2)),
        posters=int(rng.integers(0, 3)),
        clutter=int(rng.integers(2, 6)),
        seed=100 + index,
    )
    lamps = (
        Light((float(rng.uniform(-1.2, -0.4)), -1.1, 1.9), float(rng.uniform(0.1, 0.8)), 50.0, "#fff2e0"),
        Light((float(rng.uniform(0.8, 1.5)), -0.6, 1.6), 0.5, 15.0, "#d8e4ff"),
    )
    lens = Lens(
        (float(rng.uniform(-0.25, 0.25)), -1.45, float(rng.uniform(0.55, 0.95))),
        (0.0, 0.0, 0.19),
        float(rng.uniform(690.0, 800.0)),
        (float(rng.uniform(236.0, 244.0)), float(rng.uniform(176.0, 184.0))),
        roll_deg=float(rng.uniform(-2.0, 2.0)),
    )
    sensor = Sensor(shutter=float(rng.choice([0.0, 0.2, 0.35])))
    text = f"thrown {name} over {room.floor.kind} before {room.wall.kind}"
    body = Body(shape, size_m, (surface,), 0.2)
    return Spec(f"new_{name}", "new_meshes", text, body, throw, room, lamps, lens, sensor, seed=100 + index)


def surface_of(row: tuple[str, tuple[str, ...], float], roughness: float) -> Surface:
    """Return the surface of a row of `FLOORS` or `WALLS`."""
    return Surface(*row, roughness)


def three(values: np.ndarray) -> tuple[float, float, float]:
    """Return three numbers with three digits."""
    x, y, z = (round(float(v), 3) for v in values)
    return (x, y, z)


def darker(color: str) -> str:
    """Return a colour with three quarters of its display values."""
    return "#" + "".join(f"{int(int(color[i : i + 2], 16) * 0.75):02x}" for i in (1, 3, 5))


NEW_MESHES = {spec.name: spec for spec in (_spec(i, name) for i, name in enumerate(_BODIES))}
