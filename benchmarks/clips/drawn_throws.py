"""Five sets of throws with drawn friction and restitution: plain and patterned bodies.

Appearance, light, camera, throw, friction (0.1 to 0.7) and restitution (0.1 to 0.6) of each clip follow from its seed.
`benchmarks.identify --untrained --clips DIR` and `benchmarks.throw_clips --clips DIR` judge the tool by these clips.
The ground of the tracker and the fit of impacts were worked on with the first two sets, so that these judge less.
`last_throws` were drawn after both. `fresh_throws` came later, and showed that a body at rest was taken for background.
`later_throws` were drawn after all work on these.
"""

from __future__ import annotations

import numpy as np

from benchmarks.clips.bodies import Body
from benchmarks.clips.motion import Throw
from benchmarks.clips.random_scenes import COLORS, FLOORS, WALLS, camera, furnished, lamps, patterned, shutter, three
from benchmarks.clips.table import Spec

_Bodies = dict[str, tuple[str, tuple[float, ...], str]]
_BODIES: _Bodies = {  # shape, sizes [m] and the other arguments of that shape, the pattern of the surface
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
_MORE: _Bodies = {
    "box_flat": ("box", (0.14, 0.09, 0.03), "plain"),
    "box_tall": ("box", (0.05, 0.06, 0.12), "stripes"),
    "cube_cells": ("box", (0.07, 0.07, 0.07), "cells"),
    "l_plain": ("l_shape", (0.12, 0.09, 0.04, 0.03), "plain"),
    "can": ("cylinder", (0.065, 0.1), "plain"),
    "can_dots": ("cylinder", (0.05, 0.12), "dots"),
    "mug_dots": ("mug", (0.08, 0.09, 0.005), "dots"),
    "ring_plain": ("ring", (0.12, 0.035), "plain"),
    "bracket_plain": ("bracket", (0.12, 40.0), "plain"),
    "plate_plain": ("plate", (0.15, 0.02, 0.006), "plain"),
}

_LAST: _Bodies = {
    "box_pack": ("box", (0.1, 0.06, 0.08), "dots"),
    "box_plank": ("box", (0.16, 0.08, 0.02), "wood"),
    "bracket_stripes": ("bracket", (0.11, 40.0), "stripes"),
    "can_short": ("cylinder", (0.09, 0.05), "cells"),
    "l_cells": ("l_shape", (0.11, 0.1, 0.03, 0.05), "cells"),
    "lump": ("statue", (0.1, 0.25, 3.0, 3.0), "noise"),
    "mug_cells": ("mug", (0.085, 0.095, 0.006), "cells"),
    "ring_dots": ("ring", (0.14, 0.04), "dots"),
}

_FRESH: _Bodies = {
    "brick": ("box", (0.09, 0.055, 0.07), "noise"),
    "cube_small": ("box", (0.05, 0.05, 0.05), "plain"),
    "l_wood": ("l_shape", (0.13, 0.1, 0.035, 0.04), "wood"),
    "book": ("box", (0.15, 0.105, 0.025), "cells"),
    "ball": ("ball", (0.066,), "dots"),
    "box_plain": ("box", (0.12, 0.08, 0.05), "plain"),
}

_LATER: _Bodies = {
    "box_wood": ("box", (0.12, 0.07, 0.06), "wood"),
    "box_stripes": ("box", (0.13, 0.09, 0.04), "stripes"),
    "cube_dots": ("box", (0.065, 0.065, 0.065), "dots"),
    "l_noise": ("l_shape", (0.12, 0.08, 0.035, 0.045), "noise"),
    "l_plain": ("l_shape", (0.14, 0.11, 0.03, 0.03), "plain"),
    "bracket_cells": ("bracket", (0.12, 40.0), "cells"),
    "can_wood": ("cylinder", (0.07, 0.12), "wood"),
    "box_plain": ("box", (0.09, 0.07, 0.07), "plain"),
}


def _split(split: str, bodies: _Bodies, seed: int) -> dict[str, Spec]:
    """Return the clips of a split by name."""
    specs = (_spec(split, index, name, seed, *bodies[name]) for index, name in enumerate(bodies))
    return {spec.name: spec for spec in specs}


def _spec(split: str, index: int, name: str, seed: int, shape: str, size_m: tuple[float, ...], pattern: str) -> Spec:
    """Return the clip of a body."""
    rng = np.random.default_rng([index, seed])
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
    room = furnished(rng, floor, wall, seed=900 + index + seed)
    lights, lens, sensor = lamps(rng), camera(rng, aside_m=0.3, focal_px=(650.0, 800.0)), shutter(rng)
    text = f"thrown {shape} with {pattern} over {room.floor.kind} before {room.wall.kind}"
    body = Body(shape, size_m, (surface,), 0.2)
    full = f"{split.split('_')[0]}_{name}"
    return Spec(full, split, text, body, throw, room, lights, lens, sensor, frames=72, seed=500 + index)


DRAWN_THROWS = {
    **_split("drawn_throws", _BODIES, 9191),
    **_split("more_throws", _MORE, 20261130),
    **_split("last_throws", _LAST, 20261201),
    **_split("fresh_throws", _FRESH, 555777),
    **_split("later_throws", _LATER, 818283),
}
