"""Random flights of a quadrotor with recorded actions, from pixels: mass and drag, by `identify --model none`.

Flights are those of `benchmarks.coverage.flights`: smooth, with unknown forces and torques, and an inertia that differs
from that of the mesh. Frames are rasterised with two lights before the background of `benchmarks.sweep_clips`. Motion
does not blur.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.clips import files
from benchmarks.clips.appearance import Lens, Surface
from benchmarks.clips.bodies import Body, Solid, build
from benchmarks.coverage import filmed
from benchmarks.coverage.cases import Case
from benchmarks.coverage.flights import FPS, Flight, random_flight, random_mass
from vid2phys.geometry import matrix_from_quat
from vid2phys.io.actions import save_actions
from vid2phys.risp.appearance.backgrounds import to_linear
from vid2phys.types import Array

FIT = ("mass", "drag")
_IMAGE_PX = 640, 480
_LEAST_PX = 40.0  # mean size of the body in the image
_DISTANCES_M = np.linspace(0.8, 6.0, 105)
_TRIES = 200


def case(seed: int, folder: Path) -> Case:
    """Return the fit of a random flight, whose clip and run are written into a folder."""
    if not (folder / "clip.mp4").is_file():
        film(np.random.default_rng([seed, 86]), folder)
    known = json.loads((folder / "truth.json").read_text())["parameters"]
    truth = {name: known[name] for name in FIT}
    return filmed.identified(folder, truth, system="quadrotor", actions=folder / "actions.csv", fit=FIT)


def film(rng: np.random.Generator, folder: Path) -> None:
    """Write clip.mp4, mesh.obj, camera.yaml, actions.csv and truth.json."""
    solid, flight, placed, lens = _seen(rng)
    cell = replace(filmed.random_cell(rng, FPS), image_px=_IMAGE_PX)
    colors = to_linear(np.array([filmed.random_rgb(rng) for _ in range(3)], np.uint8))
    filmed.write_clip(folder, solid.faces, colors[solid.slot], placed[:, None], lens, cell, rng)
    files.write_mesh(folder / "mesh.obj", solid)
    save_actions(flight.actions, folder / "actions.csv")
    (folder / "truth.json").write_text(json.dumps({"parameters": flight.truth}, indent=1) + "\n")


def _seen(rng: np.random.Generator) -> tuple[Solid, Flight, Array, Lens]:
    """Return a body, its flight, its vertices [T, V, 3] in each frame, and a camera that sees all of them well."""
    for _ in range(_TRIES):
        span, mass = float(rng.uniform(0.12, 0.5)), random_mass(rng)
        solid = build(Body("quadrotor", (span,), (Surface(),) * 3, mass))
        flight = random_flight(rng, mass, np.diag(solid.inertia))
        _, states = flight.states_of_frames()
        rotations = matrix_from_quat(states[:, 3:7])
        placed = np.einsum("tij,vj->tvi", rotations, solid.vertices) + states[:, None, :3]
        away = filmed.direction(rng.uniform(-np.pi, np.pi), np.radians(rng.uniform(-5.0, 30.0)))
        lens = filmed.nearest_lens(placed, away, _DISTANCES_M, _IMAGE_PX)
        if lens is None:
            continue
        if np.ptp(lens.project(placed)[0], axis=1).max(axis=1).mean() > _LEAST_PX:
            return solid, flight, placed, lens
    raise RuntimeError(f"no flight of {_TRIES} fits into a frame")
