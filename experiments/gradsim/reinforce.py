"""Masses without a derivative of motion or images: REINFORCE through MuJoCo, which gives none.

What the estimate descends is the error of the images that samples of the unknowns make, in the mean over a normal
distribution about the current estimate; its gradient comes of the samples' errors alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from experiments.gradsim.descent import Descended, descend
from experiments.gradsim.filmed import Filmed
from experiments.gradsim.pixels import Shot

_SCENE = """<mujoco><option timestep="{step}" gravity="0 0 0" integrator="Euler"/><worldbody><body><freejoint/>
  <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia}"/></body></worldbody></mujoco>"""


def mean_loss(losses: Callable[[Tensor], Tensor], mean: Tensor, deviation: float, noise: Tensor) -> Tensor:
    """Return the mean of `losses` ([n, U] to [n]) over samples about a mean [U], with a gradient that needs none of
    `losses`.

    noise: standard normal numbers [n, U]. The gradient is an unbiased estimate of that of the expectation over
    N(mean, deviation^2): the score function's (Williams, Machine Learning 1992), each sample's loss less the mean of
    the others'.
    """
    samples = mean.detach() + deviation * noise
    with torch.no_grad():
        found = losses(samples)
    count = len(samples)
    advantage = (found - found.mean()) * (count / (count - 1))
    score = -0.5 * ((samples - mean) / deviation).square().sum(-1)
    surrogate = (advantage * score).mean()
    return found.mean() + surrogate - surrogate.detach()


def by_score(
    filmed: Filmed,
    rng: np.random.Generator,
    *,
    samples: int,
    iterations: int,
    rate: float,
    deviations: tuple[float, float],
) -> Descended:
    """Descend with Adam along `mean_loss` of the images of one free body.

    deviations: of the samples in solver coordinates, first and last, geometrically between.
    """
    stage, target = filmed.shot.stage, filmed.target
    schedule = iter(np.geomspace(*deviations, iterations))

    def imaged(sample: Tensor) -> Tensor:
        states = tumbled(filmed.shot, *filmed.inputs(filmed.values(sample)))
        return target.error(stage.images(filmed.shot.filmed(states)))

    def loss(mean: Tensor) -> Tensor:
        noise = torch.from_numpy(rng.normal(size=(samples, len(mean))))
        return mean_loss(lambda drawn: torch.stack([*map(imaged, drawn)]), mean, float(next(schedule)), noise)

    return descend(loss, filmed.start, rate=rate, iterations=iterations, bounds=filmed.bounds)


def tumbled(shot: Shot, initial: Tensor, controls: Tensor, parameters: Tensor) -> Tensor:
    """Return the states (`Shot.states`) of one free body without weight and contact, but by MuJoCo's Euler steps: [S +
    1, 13].
    """
    import mujoco

    named = dict(zip(shot.system.parameters().names, parameters.tolist(), strict=True))
    inertia = " ".join(repr(named[f"inertia_{2 * axis}"]) for axis in "xyz")
    scene = _SCENE.format(step=shot.step_s / shot.substeps, mass=named["mass"], inertia=inertia)
    model = mujoco.MjModel.from_xml_string(scene)
    data = mujoco.MjData(model)
    data.qpos, data.qvel = np.split(initial.numpy(), [7])
    states = [initial.numpy()]
    for wrench in controls.numpy()[:, :6]:  # force in the world's, torque in the body's axes: as MuJoCo has it
        data.qfrc_applied = wrench
        mujoco.mj_step(model, data, nstep=shot.substeps)
        states.append(np.concatenate([data.qpos, data.qvel]))
    return torch.from_numpy(np.stack(states))
