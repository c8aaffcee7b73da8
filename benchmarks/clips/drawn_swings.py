"""Four bodies that swing on a pin, with drawn damping, light, camera and room.

The L shape's pin passes through its hollow. `identify --system pendulum --model none` is what they judge.
"""

from __future__ import annotations

import numpy as np

from benchmarks.clips.appearance import Lens, Point
from benchmarks.clips.bodies import Body
from benchmarks.clips.motion import Pendulum
from benchmarks.clips.random_scenes import COLORS, FLOORS, WALLS, furnished, lamps, patterned, shutter
from benchmarks.clips.table import Spec

_BODIES: dict[str, tuple[str, tuple[float, ...], Point, str, float]] = {
    # shape, its arguments [m], the pin in the body [m], the pattern of the surface, mass [kg]
    "bar": ("box", (0.28, 0.025, 0.03), (-0.12, 0.0, 0.0), "plain", 0.2),
    "l": ("l_shape", (0.2, 0.13, 0.03, 0.03), (-0.07, 0.0, 0.03), "plain", 0.15),
    "bar_stripes": ("box", (0.22, 0.02, 0.04), (-0.1, 0.0, 0.0), "stripes", 0.12),
    "plate": ("box", (0.2, 0.012, 0.14), (-0.09, 0.0, 0.06), "dots", 0.3),
}
_SEED = 424242


def _spec(index: int, name: str) -> Spec:
    """Return the clip of a body."""
    rng = np.random.default_rng([index, _SEED])
    shape, size_m, pin_m, pattern, mass_kg = _BODIES[name]
    surface = patterned(rng, pattern, COLORS[int(rng.integers(10))])
    floor, wall = FLOORS[int(rng.integers(5))], WALLS[int(rng.integers(5))]
    room = furnished(rng, floor, wall, seed=77 + index)
    angle_deg = float(rng.uniform(35.0, 75.0)) * float(rng.choice([-1, 1]))
    swing = Pendulum((0.0, 0.0, 0.42), pin_m, angle_deg, float(np.round(rng.uniform(0.0005, 0.003), 5)))
    lens = Lens(
        (float(rng.uniform(-0.6, 0.6)), -1.2, float(rng.uniform(0.4, 0.6))),
        (0.0, 0.0, 0.33),
        float(rng.uniform(560.0, 680.0)),
        (float(rng.uniform(236.0, 244.0)), float(rng.uniform(176.0, 184.0))),
        roll_deg=float(rng.uniform(-2.0, 2.0)),
    )
    text, body = f"{shape} on a pin, {pattern}", Body(shape, size_m, (surface,), mass_kg)
    return Spec(
        *(f"swing_{name}", "drawn_swings", text, body, swing, room, lamps(rng), lens, shutter(rng)),
        frames=90,
        seed=800 + index,
    )


DRAWN_SWINGS = {spec.name: spec for spec in (_spec(i, name) for i, name in enumerate(_BODIES))}
