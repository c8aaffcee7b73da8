"""gradSim's cloth (Jatavallabhula, Macklin et al., ICLR 2021, figures 5 and 6b): thrown to where an image shows it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim import reach
from experiments.gradsim.goals import Control
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at, solid_texture
from experiments.gradsim.reach import Task
from experiments.gradsim.smoothing import roughness
from experiments.table import Setting, Table
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.cloth import Cloth, sheet
from vid2phys.types import Array

NAME, BODIES, METHODS = "gradsim-cloth", ("cloth",), reach.METHODS
CELLS = ((8, 4), (9, 9), (14, 13), (21, 20), (32, 32))  # of the sheets: 64, 162, 364, 840 and 2,048 triangles
_FPS, _SUBSTEPS = 60.0, 16  # the paper's code's
_SIDE_M, _SECONDS = 1.0, 0.5
_THROW_M_S, _SPREAD_M_S, _SPIN_RAD_S, _WAVE_M_S = (0.0, 0.0, 2.0), 0.4, 0.6, 0.3
_SMOOTHED_M = 0.15
# a blanket, damped so that it does not flutter in half a second
_VALUES = {"density": 1.0, "damping": 0.1, "bending_stiffness": 1e-3, "bending_damping": 1e-5}
_NOTES = (
    "Square sheets of 1 m, 64, 162, 364, 840 and 2,048 triangles, thrown and seen again half a second later. Sought is "
    "the velocity that each vertex begins with; goals are where smooth throws (a velocity, a turn, a wave) take the "
    "sheet, and both the random throws and those that are improved upon are drawn as the goals' were.",
)


def run(setting: Setting) -> Table:
    """Make the table. Quick: two of the smaller sheets."""
    cells = CELLS[:2] if setting.quick else CELLS
    control = Control(
        name=NAME,
        body="cloth",
        task=lambda index: task(*cells[index], seed=index),
        count=len(cells),
        size_m=_SIDE_M,
        steps=10 if setting.quick else 40,
        notes=_NOTES,
        paper={},
    )
    return control.table(setting)


def task(columns: int, rows: int, *, seed: int, size_px: int = 64, substeps: int = 0) -> Task:
    """Return the task of a sheet that is thrown, and seen from in front when half a second is over.

    substeps: of a 60th of a second, at least as many as are stable; 0: at least gradSim's 16.
    """
    cloth = Cloth(*sheet(_SIDE_M, _SIDE_M, columns, rows), pinned=(), values=_VALUES)
    parameters, steps = cloth.parameters().vector, round(_SECONDS * _FPS)
    stable = int(np.ceil(1.0 / (_FPS * cloth.longest_step_s(parameters))))
    substeps = max(substeps or _SUBSTEPS, stable)
    controls = np.zeros((steps, len(cloth.control_names)))
    rest = torch.from_numpy(cloth.rest_m.ravel())

    rough = roughness(cloth.rest_m, cloth.elements, _SMOOTHED_M)
    smooth = torch.from_numpy(np.linalg.inv(rough))

    def inputs(unknowns: Tensor) -> tuple[Tensor, Tensor]:
        count = len(unknowns)
        velocities = smooth @ unknowns.reshape(count, -1, 3)
        initial = torch.cat([rest.expand(count, -1), velocities.flatten(1)], dim=1)
        return initial, torch.from_numpy(controls).expand(count, -1, -1)

    def drawn(rng: np.random.Generator) -> Array:
        return (rough @ thrown(cloth.rest_m, rng)).ravel()

    start = cloth.state(cloth.rest_m, thrown(cloth.rest_m, np.random.default_rng([seed, 7])))
    goal = simulate(cloth, start[None], controls[None], parameters, 1.0 / _FPS, substeps=substeps)[0, -1]
    camera = looking_at((0.5, -3.2, 0.6), (0.0, 0.0, 0.4), 1.0, size_px)
    texture = solid_texture(cloth.rest_m, cloth.elements, _pattern)
    stage = Stage((Actor.of(cloth, albedo=(1.0, 1.0, 1.0), texture=texture),), camera)
    shot = Shot(cloth, stage, 1.0 / _FPS, steps, substeps=substeps)
    return Task(shot, parameters, inputs, drawn, goal, dense=False)


def thrown(points_m: Array, rng: np.random.Generator) -> Array:
    """Return the velocities [V, 3] m/s of a smooth throw of points [V, 3]: all alike, turning, and in a wave across the
    sheet.
    """
    away = points_m - points_m.mean(axis=0)
    rotation = np.cross(rng.normal(0.0, _SPIN_RAD_S, 3), away)
    direction, phase = rng.uniform(0.0, 2.0 * np.pi, 2)
    along = away @ [np.cos(direction), 0.0, np.sin(direction)]
    wave = _WAVE_M_S * np.sin(2.0 * np.pi * along / _SIDE_M + phase)
    return np.asarray(rng.normal(_THROW_M_S, _SPREAD_M_S) + rotation + wave[:, None] * [0.0, 1.0, 0.0])


def _pattern(points_m: Tensor) -> Tensor:
    """Return the linear light [n, 3] of the sheet's matter: redder to the right and greener upwards.

    It changes slowly: what repeats itself would match at the wrong place.
    """
    x, z = points_m[:, 0] / _SIDE_M + 0.5, points_m[:, 2] / _SIDE_M
    return torch.stack([0.2 + 0.7 * x, 0.2 + 0.7 * z, 0.9 - 0.35 * (x + z)], dim=-1)
