"""A drawn net of 5 x 5 points that hangs by its upper edge and is set in motion: its springs give way to its weight."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests import drawn_clip
from tests.hanging_sheet import CAMERA, CLAMP, FPS, SIDE_M
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.cloth import sheet
from vid2phys.engine.systems.mass_spring import MassSpring
from vid2phys.types import Array

__all__ = ["CAMERA", "CLAMP", "FPS"]
MASS_KG = 0.002  # of each point
TRUTH = {
    "stiffness": 6.0, "damping": 0.03, "drag": 0.002,
    "start_velocity_x": 0.1, "start_velocity_y": 0.7, "start_velocity_z": 0.0,
}  # fmt: skip
POINTS, FACES = sheet(SIDE_M, SIDE_M, 4, 4)


def lines() -> list[list[int]]:
    """Return rows and columns of points, each a line of springs, and one brace across each cell."""
    grid = np.arange(25).reshape(5, 5)
    braces = [[a, b] for i in range(4) for j in range(4) for a, b in [(grid[i, j], grid[i + 1, j + 1])]]
    return [*grid.tolist(), *grid.T.tolist(), *braces]


def springs() -> NDArray[np.int64]:
    """Return the springs [S, 2] of the lines."""
    return np.array([pair for line in lines() for pair in pairwise(line)])


def motion(frames: int) -> Array:
    """Return places [F, V, 3] m of the points."""
    body = MassSpring(POINTS, springs(), np.flatnonzero(POINTS[:, 2] > 0.199), faces=FACES, masses=MASS_KG)
    given = {name: value for name, value in TRUTH.items() if not name.startswith("start")}
    velocity = np.array([TRUTH[f"start_velocity_{axis}"] for axis in "xyz"])
    start = body.state(POINTS, body.free[:, None] * velocity)
    controls = np.zeros((1, frames - 1, len(body.control_names)))
    parameters = body.parameters().with_values(given).vector
    return body.positions(simulate(body, start[None], controls, parameters, 1.0 / FPS, substeps=20)[0])


def images(frames: int) -> list[np.ndarray]:
    """Return images of the red net."""
    return drawn_clip.images(motion(frames), FACES, np.array([0.7, 0.12, 0.1]), CAMERA)


def obj(with_lines: bool = True, with_faces: bool = True) -> str:
    """Return the net as the text of an OBJ file, in metres."""
    rows = [("v", [f"{x:.9g}" for x in point]) for point in POINTS]
    rows += [("f", [str(i + 1) for i in face]) for face in FACES if with_faces]
    rows += [("l", [str(i + 1) for i in line]) for line in lines() if with_lines]
    return "".join(f"{kind} {' '.join(words)}\n" for kind, words in rows)


def write(folder: Path, frames: int, moving: bool = True) -> None:
    """Write images, camera and net into a folder; without motion, the first image again."""
    drawn_clip.write(folder, images(frames) if moving else images(1) * frames, CAMERA)
    (folder / "net.obj").write_text(obj())
