"""Random bodies in free flight, from pixels: g, by `identify --model none --fit gravity`.

Clips are those of `benchmarks.sweep_clips` with random appearances. g is drawn, too: 8.8 to 10.8 m/s^2. Air slows the
bodies as it slows bodies of 100 to 1,500 kg/m^3: a box of 12 x 8 x 6 cm with a drag coefficient of 0.9 has a drag of
10 m^2/kg over its density, in 1/m.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.clips.bodies import Body
from benchmarks.coverage import filmed
from benchmarks.coverage.cases import Case
from benchmarks.sweep_clips import Cell, make

FIT = ("gravity",)
_AIR_DRAG_1_M = 0.007, 0.1


def case(seed: int, folder: Path) -> Case:
    """Return the fit of a random fall, whose clip and run are written into a folder."""
    rng = np.random.default_rng([seed, 81])
    fps, frames = float(rng.uniform(30.0, 120.0)), int(rng.integers(20, 51))
    cell, body = random_fall(rng, fps, frames)
    return filmed_fall(cell, body, seed, folder)


def random_fall(rng: np.random.Generator, fps: float, frames: int) -> tuple[Cell, Body]:
    """Return a random fall of about some number of frames, and its body."""
    cell = replace(
        filmed.random_cell(rng, fps),
        longest_s=(frames + 0.5) / fps,
        distance_m=float(rng.uniform(1.2, 3.0)),
        spin_rad_s=float(rng.uniform(0.5, 5.0)),
        pitch_deg=float(rng.uniform(-25.0, 25.0)),
        gravity=float(rng.uniform(8.8, 10.8)),
    )
    body = filmed.random_body(rng)
    return replace(cell, air_drag_1_m=float(np.exp(rng.uniform(*np.log(_AIR_DRAG_1_M))))), body


def filmed_fall(cell: Cell, body: Body, seed: int, folder: Path) -> Case:
    """Return the fit of a fall, whose clip and run are written into a folder."""
    if not (folder / "clip.mp4").is_file():
        make(cell, body, folder, seed)
    return filmed.identified(folder, {"gravity": cell.gravity}, system="rigid_contact", fit=FIT)
