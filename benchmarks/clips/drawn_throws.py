"""Ten throws with drawn friction and restitution: plain and patterned bodies.

Appearance, light, camera, throw, friction (0.1 to 0.7) and restitution (0.1 to 0.6) of each clip follow from its seed.
`benchmarks.identify --untrained --clips DIR` and `benchmarks.throw_clips --clips DIR` judge the tool by these clips.
Versions of the tracker were compared on them, so that they judge less than clips that nobody has seen.
"""

from __future__ import annotations

import numpy as np

from benchmarks.clips.bodies import Body
from benchmarks.clips.motion import Throw
from benchmarks.clips.random_scenes import COLORS, FLOORS, WALLS, camera, furnished, lamps, patterned, shutter, three
from benchmarks.clips.table import Spec

_BODIES = {  # shape, sizes [m] and the other arguments of that shape, the pattern of the surface
    "box_cells": ("box", (0.11, 0.075, 0.045), "cells"),
    "box_long": ("box", (0.15, 0.05, 0.03), "plain"),
    "cylinder": ("cylinder", (0.06, 0.11), "stripes"),
    "l_dots": ("fine_l_shape", (0.13, 0.1, 0.04, 0.035, 2.0), "dots"),
    "bracket": ("bracket", (0.13, 40.0), "wood"),
    "ring": ("ring", (0.13, 0.03), "stripes"),
    "cube": ("box", (0.06, 0.06, 0.06), "plain"),
    "mug": ("mug", (0.08, 0.1, 0.006), "plain"),
    "slab": ("box", (0.1, 0.1, 0.03), "noise"),
    "quadrotor": ("quadrotor", (0.25,), "plain"),
}
_SEED = 9191


def _spec(index: int, name: str) -> Spec:
    """Return the clip of a body."""
    rng = np.random.default_rng([index, _SEED])
    shape, size_m, pattern = _BODIES[name]
    surface = patterned(rng, pattern, COLORS[int(rng.integers(10))])
    side = float(rng.choice([-1.0, 1.0]))
    throw = Throw(
        (0.34 * side, float(rng.uniform(-0.05, 0.1)), float(rng.uniform(0.28, 0.36))),
        (-0.8 * side, float(rng.uniform(0.0, 0.25)), float(rng.uniform(0.6, 1.2))),
        three(rng.uniform(-1.5, 1.5, 3)),
        three(rng.normal(0.0, 5.0, 3)),
        friction=float(np.round(rng.uniform(0.1, 0.7), 3)),
        restitution=float(np.round(rng.uniform(0.1, 0.6), 3)),
    )
    floor, wall = FLOORS[int(rng.integers(5))], WALLS[int(rng.integers(5))]
    room = furnished(rng, floor, wall, seed=900 + index + _SEED)
    lights, lens, sensor = lamps(rng), camera(rng, aside_m=0.3, focal_px=(650.0, 800.0)), shutter(rng)
    text = f"thrown {shape} with {pattern} over {room.floor.kind} before {room.wall.kind}"
    body = Body(shape, size_m, (surface,), 0.2)
    return Spec(
        f"drawn_{name}", "drawn_throws", text, body, throw, room, lights, lens, sensor, frames=72, seed=500 + index
    )


DRAWN_THROWS = {spec.name: spec for spec in (_spec(i, name) for i, name in enumerate(_BODIES))}
