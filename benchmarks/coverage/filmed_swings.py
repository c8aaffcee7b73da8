"""Random bars and other bodies on a hinge, from pixels: length and damping, by `identify --system pendulum`.

Clips are those of `benchmarks.swings`, with random bodies, axes and appearances. SciPy moves the body.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import swings
from benchmarks.clips.appearance import Surface
from benchmarks.clips.bodies import Body
from benchmarks.coverage import filmed
from benchmarks.coverage.cases import Case
from vid2phys.io.run import read_json

FIT = ("length", "damping")


def case(seed: int, folder: Path) -> Case:
    """Return the fit of a random swing, whose clip and run are written into a folder."""
    if not (folder / "clip.mp4").is_file():
        swings.make(f"random {seed}", random_swing(np.random.default_rng([seed, 83])), folder)
    known = read_json(folder / "truth.json")["parameters"]
    truth = {name: known[name] for name in FIT}
    return filmed.identified(folder, truth, system="pendulum", fit=FIT, set_values={"mass": known["mass"]})


def random_swing(rng: np.random.Generator) -> swings.Swing:
    """Return a bar or an L that swings through 20 to 100 degrees, with an axis within 40 degrees of the line of sight.

    The axis is up to 10 degrees off the horizontal.
    """
    long, mass = float(rng.uniform(0.15, 0.35)), float(np.exp(rng.uniform(np.log(0.05), np.log(1.0))))
    if rng.random() < 0.3:
        sides = (
            long,
            long * float(rng.uniform(0.3, 0.7)),
            float(rng.uniform(0.02, 0.04)),
            float(rng.uniform(0.02, 0.04)),
        )
        body = Body("l_shape", sides, (Surface(),), mass)
    else:
        body = Body("box", (long, *rng.uniform(0.02, 0.06, 2).tolist()), (Surface(),), mass)
    end = 0.45 if body.shape == "box" else 0.3  # an L's centre of mass is beside the middle of its long leg
    return swings.Swing(
        body,
        (float(rng.uniform(0.2, end)) * long, 0.0, 0.0),
        (0.0, 0.0, 1.0),
        yaw_deg=float(rng.uniform(-40.0, 40.0)),
        tilt_deg=float(rng.uniform(-10.0, 10.0)),
        start_deg=float(rng.choice([-1.0, 1.0]) * rng.uniform(20.0, 100.0)),
        periods=float(rng.uniform(1.0, 2.0)),
        decay_1_s=float(np.exp(rng.uniform(np.log(0.1), np.log(1.5)))),
        fps=float(rng.uniform(30.0, 60.0)),
        shutter=float(rng.uniform(0.0, 0.3)) if rng.random() < 0.5 else 0.0,
        noise=float(rng.uniform(0.5, 2.0)),
        colors=tuple(_hex(rng) for _ in range(int(rng.integers(1, 4)))),
        patches=int(rng.integers(5, 40)),
        aside_m=(float(rng.uniform(-0.25, 0.25)), float(rng.uniform(-0.1, 0.2))),
    )


def _hex(rng: np.random.Generator) -> str:
    return "#{:02x}{:02x}{:02x}".format(*filmed.random_rgb(rng))
