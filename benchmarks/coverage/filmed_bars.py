"""Random soft bars in a clamp, from pixels: Young's modulus and damping, by `identify --system soft_body`.

Bars are those of `benchmarks.coverage.bars`: a mesh twice as fine as the user's moves. Frames are rasterised with two
lights before the background of `benchmarks.sweep_clips`. The clamp is not drawn, and motion does not blur.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import meshio
import numpy as np

from benchmarks.coverage import filmed
from benchmarks.coverage.bars import FIT, FPS, Bar, random_bar, random_side
from benchmarks.coverage.cases import Case
from vid2phys.risp.appearance.backgrounds import to_linear

_DISTANCES_M = np.linspace(0.2, 1.2, 51)


def case(seed: int, folder: Path) -> Case:
    """Return the fit of a random bar, whose clip and run are written into a folder."""
    rng = np.random.default_rng([seed, 85])
    if not (folder / "clip.mp4").is_file():
        film(random_bar(rng), folder, rng)
    known = json.loads((folder / "truth.json").read_text())
    return filmed.identified(
        folder,
        known["parameters"],
        body=str(folder / "bar.msh"),
        base=f"y:{known['tilt_deg']:.9g}",
        system="soft_body",
        clamp=("x<0.0001",),
        fit=FIT,
        set_values=known["given"],
    )


def film(bar: Bar, folder: Path, rng: np.random.Generator) -> None:
    """Write clip.mp4, camera.yaml, truth.json, and bar.msh as the user has it, in axes along its sides."""
    cell = replace(filmed.random_cell(rng, FPS), image_px=filmed.IMAGE_PX)
    moved = bar.fine.positions(bar.states)
    lens = filmed.nearest_lens(moved, random_side(rng), _DISTANCES_M, filmed.IMAGE_PX)
    assert lens is not None
    assert bar.fine.surface is not None
    faces = bar.fine.surface.faces
    colors = np.tile(to_linear(np.array(cell.color, np.uint8)), (len(faces), 1))
    filmed.write_clip(folder, faces, colors, moved[:, None], lens, cell, rng)
    mesh = meshio.Mesh(bar.level[0], [("tetra", bar.level[1])])
    meshio.write(folder / "bar.msh", mesh, "gmsh", binary=False)
    truth = {"parameters": bar.truth, "given": bar.given, "tilt_deg": float(np.degrees(bar.tilt_rad))}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
