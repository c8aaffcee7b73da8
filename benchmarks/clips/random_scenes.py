"""Random surroundings of a thrown body: surfaces, room, lamps, camera and shutter, each from a generator.

The clips of `new_meshes.py` and `drawn_throws.py` follow from seeds, so that the order of these draws must stay.
"""

from __future__ import annotations

import numpy as np

from benchmarks.clips.appearance import Lens, Light, Room, Sensor, Surface

Pattern = tuple[str, tuple[str, ...], float]  # kind, colours and period [m] of a surface
COLORS = ("#b03a2e", "#2e6da4", "#d4a017", "#4a7c59", "#6c4a8c", "#c9c4b8", "#40454d", "#b9703c", "#2f8f8b", "#8a8f98")
FLOORS: tuple[Pattern, ...] = (
    ("planks", ("#a9774a", "#8d5f38", "#4a3220"), 0.1),
    ("tiles", ("#9aa4a8", "#8c979c", "#d8dcdc"), 0.2),
    ("noise", ("#5d6470", "#6f7783", "#4c525c"), 0.015),
    ("checker", ("#8c8478", "#bdb5a6"), 0.15),
    ("marble", ("#c2c2be", "#b0aea8", "#7c7e82"), 0.35),
)
WALLS: tuple[Pattern, ...] = (
    ("brick", ("#8c4a38", "#7a3d30", "#b8aca0"), 0.08),
    ("stripes", ("#c8c0b0", "#b4aa98"), 0.1),
    ("noise", ("#7d8577", "#6b7365"), 0.35),
    ("dots", ("#51606e", "#65778a"), 0.16),
    ("plain", ("#d8d2c4",), 0.1),
)


def patterned(rng: np.random.Generator, pattern: str, color: str) -> Surface:
    """Return the surface of a body: a colour, a darker one and a light one, of random roughness."""
    darker = "#" + "".join(f"{int(int(color[i : i + 2], 16) * 0.75):02x}" for i in (1, 3, 5))
    return Surface(pattern, (color, darker, "#e0dccf"), 0.03, float(rng.uniform(0.3, 0.8)))


def furnished(rng: np.random.Generator, floor: Pattern, wall: Pattern, seed: int) -> Room:
    """Return a room with a wall at a random distance, posters and clutter. seed: of where these are."""
    return Room(
        Surface(*floor, 0.6),
        Surface(*wall, 0.9),
        wall_y_m=float(rng.uniform(0.8, 1.2)),
        posters=int(rng.integers(0, 3)),
        clutter=int(rng.integers(2, 6)),
        seed=seed,
    )


def lamps(rng: np.random.Generator) -> tuple[Light, Light]:
    """Return a strong warm lamp to the left and a weak cold one to the right."""
    return (
        Light((float(rng.uniform(-1.2, -0.4)), -1.1, 1.9), float(rng.uniform(0.1, 0.8)), 50.0, "#fff2e0"),
        Light((float(rng.uniform(0.8, 1.5)), -0.6, 1.6), 0.5, 15.0, "#d8e4ff"),
    )


def camera(rng: np.random.Generator, aside_m: float, focal_px: tuple[float, float]) -> Lens:
    """Return a camera that looks at the middle of a throw. aside_m: most of its way to a side. focal_px: its limits."""
    return Lens(
        (float(rng.uniform(-aside_m, aside_m)), -1.45, float(rng.uniform(0.55, 0.95))),
        (0.0, 0.0, 0.19),
        float(rng.uniform(*focal_px)),
        (float(rng.uniform(236.0, 244.0)), float(rng.uniform(176.0, 184.0))),
        roll_deg=float(rng.uniform(-2.0, 2.0)),
    )


def shutter(rng: np.random.Generator) -> Sensor:
    """Return a sensor whose exposure lasts for 0, 0.2 or 0.35 of a frame."""
    return Sensor(shutter=float(rng.choice([0.0, 0.2, 0.35])))


def three(values: np.ndarray) -> tuple[float, float, float]:
    """Return three numbers with three digits."""
    x, y, z = (round(float(v), 3) for v in values)
    return (x, y, z)
