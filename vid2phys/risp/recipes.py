"""Recipes of the fine and the coarse network: sizes, schedules, losses, held-out renders.

Limits: the recipe of RISP's own network follows the publication and is not tuned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.risp import heads, penalties
from vid2phys.risp.appearance.randomisation import ALL
from vid2phys.risp.heads import Head
from vid2phys.risp.networks.losses import locator_loss
from vid2phys.risp.networks.network import LocatorNetwork, to_input
from vid2phys.risp.networks.validate import Body, LocatorValidation
from vid2phys.risp.penalties import Penalty
from vid2phys.risp.renders.stream import ImageStream, Plan, StreamSettings
from vid2phys.risp.training import mixed_precision
from vid2phys.risp.training.features import copy_features
from vid2phys.risp.training.train import Batch, Schedule, Trained, TrainingRun, Validate, train_network

COARSE_SIZE = {"width": 12, "features": 24, "depth": 3}
_GAMMA_FROM = 1.0 / 3.0  # share of the training before which gamma is 0; then gamma rises linearly


@dataclass(frozen=True)
class TrainingData:
    """Renders and what they show.

    Attributes:
        stream: How images are made.
        body: Keypoints and symmetry.
        renders: Number of renders.
        gradient_indices: Indices of the renders with derivatives.
        held_out: Number of the last renders that are kept for validation.
    """

    stream: StreamSettings
    body: Body
    renders: int
    gradient_indices: NDArray[np.int64]
    held_out: int

    @property
    def training(self) -> NDArray[np.int64]:
        """Return the indices of the training renders."""
        return np.arange(self.renders - self.held_out)

    @property
    def validation(self) -> NDArray[np.int64]:
        """Return the indices of the validation renders."""
        return np.arange(self.renders - self.held_out, self.renders)


def paper_schedule(epochs: int = 100, workers: int = 1) -> Schedule:
    """Return RISP's schedule (Ma, Du et al., 2022, appendix): Adam 1e-2, cosine, weight decay 1e-6, batches of 16."""
    return Schedule(
        epochs,
        batch=16,
        learning_rate=1e-2,
        weight_decay=1e-6,
        average=0.0,
        workers=workers,
        clip_norm=float("inf"),
        rise=0.0,
        optimizer=torch.optim.Adam,
    )


def gamma_at(fraction: float, gamma: float) -> float:
    """Return eq. 12's weight at a fraction of the training: 0 for the first third, then rising to `gamma`."""
    return gamma * max(0.0, (fraction - _GAMMA_FROM) / (1.0 - _GAMMA_FROM))


@dataclass(frozen=True)
class HeadStep:
    """The loss of a batch: the head's own, or error and penalty for a batch with derivatives."""

    head: Head
    penalty: Penalty
    gamma: float

    def __call__(self, network: nn.Module, batch: Batch, fraction: float) -> tuple[Tensor, dict[str, float]]:
        """See `train.StepLoss`."""
        if "tangents" in batch:
            chance = torch.Generator().manual_seed(round(1e9 * fraction))  # the same when training is resumed
            error, norm = self.penalty(network, self.head, batch, chance)
            loss = self.head.gradient_weight * (error + gamma_at(fraction, self.gamma) * norm)
            return loss, {"gradient_px" if self.head.name == "keypoint" else "gradient": float(norm.detach())}
        images = to_input(batch["image"])
        paper = self.head.name == "state"  # RISP's own training is in float32
        return self.head.loss(network(images) if paper else mixed_precision.run(network, images), batch)


@dataclass(frozen=True)
class PenaltyOptions:
    """The penalty of rendering gradients.

    Attributes:
        gamma: Its weight; 0 trains by the error alone (eq. 8).
        name: Name of the penalty (see `penalties`).
        every: Number of plain batches before each batch with derivatives.
    """

    gamma: float
    name: str = "error-gradient"
    every: int = 5


def head_of(data: TrainingData, spec: str) -> Head:
    """Return the head called `spec` (see `heads.get`) for the body and the images of `data`."""
    stream = data.stream
    numbers = None if stream.states is None else stream.states.shape[1]
    return heads.get(spec, data.body, radius_m=stream.radius_m, view_size=stream.view_size, numbers=numbers)


def train_head(
    data: TrainingData,
    head: Head,
    schedule: Schedule,
    run: TrainingRun,
    penalty: PenaltyOptions,
    *,
    seed: int,
    validation: Validate | None = None,
) -> Trained:
    """Train a head's network.

    Args:
        data: The renders.
        head: The head.
        schedule: Length and speed.
        run: Where to train.
        penalty: The penalty of rendering gradients.
        seed: Seed of all random numbers.
        validation: Validates after every epoch; None takes the head's own.
    """
    torch.manual_seed(seed)
    network = head.network()
    if head.name == "keypoint" and run.start is not None:
        copy_features(run.start.fine, network)
    if validation is None:
        unjittered = ImageStream(replace(data.stream, varied=ALL), jitter=False)  # all effects judge an ablation
        validation = head.validation(unjittered, data.validation)
    plan = Plan(
        data.training,
        np.intersect1d(data.gradient_indices, data.training),
        batch=schedule.batch,
        gradient_every=penalty.every if penalty.gamma > 0.0 and penalty.name != "error-only" else 0,
        seed=seed,
    )
    usual = head.name == "keypoint" and penalty.name == "error-gradient"
    names = (
        "fine network" if usual else f"{head.name} network, {penalty.name}",
        "fine.checkpoint.safetensors" if usual else f"{head.name}.checkpoint.safetensors",
    )
    step = HeadStep(head, penalties.get(penalty.name), penalty.gamma)
    return train_network(network, step, validation, data.stream, plan, schedule, run, names)


def _locator_step(network: nn.Module, batch: Batch, fraction: float) -> tuple[Tensor, dict[str, float]]:
    """Return the locator's loss of a batch; see `train.StepLoss`."""
    output = mixed_precision.run(network, to_input(batch["image"]))
    reference = LocatorNetwork.REFERENCE_PX
    loss = locator_loss(output, batch["center_px"], batch["diameter_px"], batch["present"], reference)
    return loss, {"loss": float(loss.detach())}


def train_locator(data: TrainingData, schedule: Schedule, run: TrainingRun, *, seed: int) -> Trained:
    """Train the coarse network."""
    torch.manual_seed(seed + 1)
    network = LocatorNetwork(**COARSE_SIZE)
    if run.start is not None:
        copy_features(run.start.coarse, network)
    validation = LocatorValidation.prepare(ImageStream(replace(data.stream, varied=ALL)), data.validation)
    plan = Plan(data.training, data.gradient_indices, kind="scene", batch=schedule.batch, seed=seed)
    names = ("coarse network", "coarse.checkpoint.safetensors")
    return train_network(network, _locator_step, validation, data.stream, plan, schedule, run, names)
