"""gradSim's walker (Jatavallabhula, Macklin et al., ICLR 2021, figures 5 and 6a): walk to where an image shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim import reach
from experiments.gradsim.controller import SineNetwork
from experiments.gradsim.goals import Control
from experiments.gradsim.pixels import Actor, Shot, Stage, looking_at
from experiments.gradsim.reach import Task
from experiments.table import Setting, Table
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.walker import Walker
from vid2phys.types import Array

NAME, BODIES, METHODS = "gradsim-walker", ("walker",), reach.METHODS
_FPS = 30.0
_SHARE = 0.6  # of the controller's limit that the gait has
_SPREAD = 0.3  # of the controller's random weights
_NOTES = (
    "The walker has 74 vertices and 104 muscles and walks for 5 s, as the paper's; its goal is where a gait that the "
    "methods do not know, a wave of activation through the body, has taken it by then. `diffphysics` pulls at every "
    "step of the motion. Goals are all the same, the random weights to begin with differ.",
)


@dataclass(frozen=True)
class Gait:
    """A wave of activation that runs through the body once in a period, for so long."""

    seconds: float
    frequency_hz: float
    activation: float

    def controls(self, walker: Walker, times_s: Array) -> Array:
        """Return the controls [S, M] without disturbances."""
        place = walker.rest_m[walker.elements].mean(axis=1)[:, 0] / np.ptp(walker.rest_m[:, 0])
        wave = self.activation * np.sin(2.0 * np.pi * (self.frequency_hz * times_s[:, None] + place))
        return np.concatenate([wave, np.zeros((len(times_s), 2))], axis=1)


PAPER = Gait(seconds=5.0, frequency_hz=2.0, activation=0.12)
QUICK = Gait(seconds=2.0, frequency_hz=2.0, activation=0.15)


def run(setting: Setting) -> Table:
    """Make the table. Quick: one goal, 2 s away."""
    quick = setting.quick
    walker = Walker(size="paper")
    control = Control(
        name=NAME,
        body="walker",
        task=lambda index: task(walker, QUICK if quick else PAPER),
        count=1 if quick else 3,
        size_m=float(np.ptp(walker.rest_m[:, 0])),
        steps=4,
        notes=_NOTES,
        paper={"steps_to_goal": 3.0},
        starts=4,
        version=4,
    )
    return control.table(setting)


def task(walker: Walker, gait: Gait, *, size_px: int = 64) -> Task:
    """Return the task of a walker that is to get where the gait takes it, filmed from the side."""
    parameters, steps = walker.parameters().vector, round(gait.seconds * _FPS)
    substeps = int(np.ceil(1.0 / (_FPS * walker.longest_step_s(parameters))))
    times, width = np.arange(steps) / _FPS, float(np.ptp(walker.rest_m[:, 0]))
    controller = SineNetwork(len(walker.elements), gait.activation / _SHARE, gait.frequency_hz)
    start, led = walker.rest_state(), gait.controls(walker, times)
    last = simulate(walker, start[None], led[None], parameters, 1.0 / _FPS, substeps=substeps)[0, -1]

    def inputs(weights: Tensor) -> tuple[Tensor, Tensor]:
        activations = controller.activations(weights, times)
        calm = activations.new_zeros(len(weights), steps, 2)  # no disturbance
        return torch.from_numpy(start).expand(len(weights), -1), torch.cat([activations, calm], dim=-1)

    middle = (0.4 * width, 0.0, 0.45 * width)
    camera = looking_at((middle[0], -8.0 * width, 1.2 * width), middle, 1.1 * width, size_px)
    shot = Shot(walker, Stage((Actor.of(walker),), camera), 1.0 / _FPS, steps, substeps=substeps)
    return Task(shot, parameters, inputs, lambda rng: controller.drawn(rng, _SPREAD), last)
