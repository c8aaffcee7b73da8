"""One thrown clip for each of ten meshes that neither training nor the tuning of the tracker has met.

Appearance, light, camera and throw of each clip follow from its seed. `benchmarks.identify --untrained --clips DIR`
judges the tool by these clips. They only judge: see the splits of `table.py`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.clips.bodies import Body
from benchmarks.clips.motion import Throw
from benchmarks.clips.random_scenes import COLORS, FLOORS, WALLS, camera, furnished, lamps, patterned, shutter, three
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


def _spec(index: int, name: str) -> Spec:
    """Return the clip of a mesh."""
    rng = np.random.default_rng([index, 4040])
    shape, size_m, pattern = _BODIES[name]
    surface = patterned(rng, pattern, COLORS[index])
    side = float(rng.choice([-1.0, 1.0]))
    throw = Throw(
        (0.34 * side, float(rng.uniform(-0.05, 0.1)), float(rng.uniform(0.28, 0.34))),
        (float(-0.85 * side), float(rng.uniform(0.0, 0.25)), float(rng.uniform(1.1, 1.4))),
        three(rng.uniform(-1.5, 1.5, 3)),
        three(rng.normal(0.0, 4.5, 3)),
        restitution=0.35,
    )
    room = furnished(rng, FLOORS[index % 5], WALLS[(index + index // 5) % 5], seed=100 + index)
    lights, lens, sensor = lamps(rng), camera(rng, aside_m=0.25, focal_px=(690.0, 800.0)), shutter(rng)
    text = f"thrown {name} over {room.floor.kind} before {room.wall.kind}"
    body = Body(shape, size_m, (surface,), 0.2)
    return Spec(f"new_{name}", "new_meshes", text, body, throw, room, lights, lens, sensor, seed=100 + index)


NEW_MESHES = {spec.name: spec for spec in (_spec(i, name) for i, name in enumerate(_BODIES))}
