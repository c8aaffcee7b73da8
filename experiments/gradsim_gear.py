"""gradSim's gear (Jatavallabhula, Macklin et al., ICLR 2021, figures 5 and 6a): roll to where an image shows it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim import reach
from experiments.gradsim.controller import SineNetwork
from experiments.gradsim.goals import Control
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at
from experiments.gradsim.reach import Task
from experiments.table import Setting, Table
from vid2phys.engine.constants import GRADSIM_GEAR
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.gear import Gear
from vid2phys.types import Array

NAME, BODIES, METHODS = "gradsim-gear", ("gear",), reach.METHODS
_FPS = 30.0
_FREQUENCY_HZ = 1.0  # of the controller, and of the goals' waves
_SPREAD = 0.3  # of the controller's random weights
_WAVE = 0.3  # of the largest activation, that of the goals
GOALS = tuple((order, offset) for offset in (0.0, 0.25, 0.5) for order in (1, -1))
_NOTES = (
    "The gear has 480 vertices and 1,152 tets in four muscles, and rolls for 3 s; a goal is where a wave of activation "
    "has rolled it by then: round one way or the other, begun at one of three phases. `diffphysics` pulls at every "
    "step of the motion.",
)


def run(setting: Setting) -> Table:
    """Make the table. Quick: one goal, 1 s away."""
    quick = setting.quick
    gear = Gear("paper")
    control = Control(
        name=NAME,
        body="gear",
        task=lambda index: task(gear, *GOALS[index], seconds=1.0 if quick else GRADSIM_GEAR.seconds),
        count=1 if quick else len(GOALS),
        size_m=2.0 * GRADSIM_GEAR.tip_m,
        steps=4 if quick else 5,
        notes=_NOTES,
        paper={},
        lengths=4,
        starts=1 if quick else 4,
        version=4,
    )
    return control.table(setting)


def task(gear: Gear, order: int, offset: float, *, seconds: float, size_px: int = 64) -> Task:
    """Return the task of a gear that is to get where a wave of activation through its muscles takes it, filmed from the
    side.

    order: 1 or -1, which way the wave goes round. offset: of its phase, in periods.
    """
    parameters, steps = gear.parameters().vector, round(seconds * _FPS)
    substeps = int(np.ceil(1.0 / (_FPS * gear.longest_step_s(parameters))))
    times, muscles = np.arange(steps) / _FPS, len(gear.action_names) - 3
    controller = SineNetwork(muscles, GRADSIM_GEAR.activation, _FREQUENCY_HZ)
    start, led = gear.rest_state(), _wave(times, muscles, order, offset)
    last = simulate(gear, start[None], led[None], parameters, 1.0 / _FPS, substeps=substeps)[0, -1]

    def inputs(weights: Tensor) -> tuple[Tensor, Tensor]:
        activations = controller.activations(weights, times)
        calm = activations.new_zeros(len(weights), steps, 3)  # no disturbance
        return torch.from_numpy(start).expand(len(weights), -1), torch.cat([calm, activations], dim=-1)

    reach_m = 3.0 * GRADSIM_GEAR.tip_m
    camera = looking_at((0.0, -8.0 * reach_m, 1.5 * reach_m), (0.0, 0.0, GRADSIM_GEAR.tip_m), reach_m, size_px)
    shot = Shot(gear, Stage((Actor.of(gear),), camera), 1.0 / _FPS, steps, substeps=substeps)
    return Task(shot, parameters, inputs, lambda rng: controller.drawn(rng, _SPREAD), last)


def _wave(times_s: Array, muscles: int, order: int, offset: float) -> Array:
    """Return the controls [S, M] of a wave through the muscles, once round in a period, of the activation that
    gradSim's has.
    """
    phase = _FREQUENCY_HZ * times_s[:, None] - order * np.arange(muscles) / muscles + offset
    wave = _WAVE * GRADSIM_GEAR.activation * np.sin(2.0 * np.pi * phase)
    return np.concatenate([np.zeros((len(times_s), 3)), wave], axis=1)
