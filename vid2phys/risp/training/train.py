"""The training loop of all networks: resumable after every epoch, validated after every epoch.

It has the optimiser Muon (Adam for RISP's network), a one-cycle learning rate (Smith and Topin 2019), and an
exponential average of the weights, which is the result. On one device with a fixed number of threads the result depends
on the seed alone, interrupted or not.

Limits: several processes (`distributed`) find nearly the same network, not the same bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from vid2phys.errors import InputError
from vid2phys.risp.renders.stream import BatchStream, Plan, StreamSettings
from vid2phys.risp.training import distributed
from vid2phys.risp.training.checkpoint import load_checkpoint, read_notes, save_checkpoint
from vid2phys.risp.training.features import Features
from vid2phys.risp.training.gradient_accumulation import Batch, GradientAccumulator, StepLoss
from vid2phys.risp.training.muon import Muon

Validate = Callable[[nn.Module], dict[str, float]]


class Reporter(Protocol):
    """Receiver of a training's progress."""

    def step(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` batches of a stage are done."""

    def note(self, text: str) -> None:
        """Report a line to keep, such as an epoch's validation."""


@dataclass(frozen=True)
class Schedule:
    """Length and speed of a training.

    Attributes:
        epochs: Number of epochs.
        batch: Number of images per batch.
        learning_rate: Peak of the learning rate.
        weight_decay: Decoupled weight decay.
        average: Decay per step of the exponential average of the weights, after a warm-up.
        workers: Number of processes that develop images.
        clip_norm: Largest norm of the gradient.
        rise: Share of the training over which the learning rate rises, before half a cosine.
        optimizer: Class of the optimiser.
    """

    epochs: int
    batch: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    average: float = 0.998
    workers: int = 1
    clip_norm: float = 2.0
    rise: float = 0.06
    optimizer: type[torch.optim.Adam] = Muon


def learning_rate_factor(fraction: float, rise: float = 0.06) -> float:
    """Return the factor of the learning rate: a linear rise, then half a cosine down to 1 %."""
    if fraction < rise:
        return 0.05 + 0.95 * fraction / rise
    return 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * (fraction - rise) / (1.0 - rise)))


@dataclass
class Trained:
    """A finished training.

    Attributes:
        network: With the averaged weights, in evaluation mode.
        history: Numbers of each epoch.
        seconds: Time of all runs.
    """

    network: nn.Module
    history: list[dict[str, float]]
    seconds: float


@dataclass(frozen=True)
class TrainingRun:
    """Where a training runs.

    Attributes:
        folder: Folder of the checkpoints.
        device: torch's name of the device.
        reporter: Receiver of the progress.
        resume: Whether to continue from an existing checkpoint.
        start: Features that both networks start from, or None.
    """

    folder: Path
    device: str
    reporter: Reporter
    resume: bool = True
    start: Features | None = None


@dataclass
class _Loop:
    """The state of a training loop."""

    network: nn.Module
    average: dict[str, Tensor]
    optimizer: torch.optim.Optimizer
    step_loss: StepLoss
    plan: Plan
    schedule: Schedule
    name: str
    run: TrainingRun


def train_network(
    network: nn.Module,
    step_loss: StepLoss,
    validate: Validate,
    images: StreamSettings,
    plan: Plan,
    schedule: Schedule,
    run: TrainingRun,
    names: tuple[str, str],
) -> Trained:
    """Train a network in place; return it with averaged weights.

    Args:
        network: The network.
        step_loss: Returns the loss of a batch and its terms, given the share of the training that is done.
        validate: Returns numbers of a network after every epoch.
        images: How images are made.
        plan: The order of the batches.
        schedule: Length and speed.
        run: Where to train. A checkpoint is written after every epoch.
        names: Name of the network in messages, and file name of its checkpoint.

    Raises:
        InputError: The checkpoint belongs to other settings.
        UsageError: There are more processes than images in a batch.
    """
    distributed.require_enough_images(min(plan.batch, plan.gradient_batch if plan.gradient_every else plan.batch))
    network.to(device=run.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = {k: v.detach().clone() for k, v in network.state_dict().items()}
    optimizer = schedule.optimizer(network.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    loop = _Loop(network, average, optimizer, step_loss, plan, schedule, names[0], run)
    checkpoint = run.folder / names[1]
    notes = _resumed(loop, images, checkpoint)
    if notes["epoch"] < schedule.epochs:
        _train_epochs(loop, validate, images, notes, checkpoint)
    network.load_state_dict(average)
    return Trained(network.eval(), notes["history"], notes["seconds"])


def _resumed(loop: _Loop, images: StreamSettings, checkpoint: Path) -> dict[str, Any]:
    """Load the checkpoint, if the run resumes one; return the notes of the training so far. Raises InputError."""
    plan, schedule = loop.plan, loop.schedule
    identity: dict[str, Any] = {
        "name": loop.name,
        "epochs": schedule.epochs,
        "seed": plan.seed,
        "renders": len(plan.indices),
        "optimizer": schedule.optimizer.__name__,
        "without": list(images.varied.off),
    }
    found = read_notes(checkpoint) if loop.run.resume else None
    if found is None:
        return {"identity": identity, "epoch": 0, "history": [], "seconds": 0.0}
    _require_same({"without": [], "optimizer": "Adam", **found["identity"]}, identity, checkpoint)
    load_checkpoint(checkpoint, loop.network, loop.average, loop.optimizer)
    loop.run.reporter.note(f"{loop.name}: going on after epoch {found['epoch']} of {schedule.epochs}")
    return found


def _train_epochs(
    loop: _Loop, validate: Validate, images: StreamSettings, notes: dict[str, Any], checkpoint: Path
) -> None:
    """Train the remaining epochs; validate and write a checkpoint after each."""
    epochs, reporter = loop.schedule.epochs, loop.run.reporter
    stream = BatchStream(
        *(images, loop.plan),
        first_epoch=notes["epoch"],
        epochs=epochs,
        workers=loop.schedule.workers,
        note=reporter.note,
        share=distributed.local_share,
    )
    accumulator = GradientAccumulator(loop.run.device, reporter.note)
    for epoch in range(notes["epoch"], epochs):
        start = time.monotonic()
        parts = _one_epoch(loop, stream, accumulator, epoch)
        if distributed.is_main_process():
            parts |= _with_weights(loop.network, loop.average, validate)
        notes["epoch"] = epoch + 1
        notes["seconds"] += time.monotonic() - start
        notes["history"].append({"epoch": epoch + 1, **parts})
        if distributed.is_main_process():
            save_checkpoint(checkpoint, loop.network, loop.average, loop.optimizer, notes)
        reporter.note(f"{loop.name} {epoch + 1}/{epochs}: " + _one_line(parts))


def _one_epoch(loop: _Loop, stream: Iterator[Batch], accumulator: GradientAccumulator, epoch: int) -> dict[str, float]:
    """Train one epoch; return the means of the loss's terms."""
    network, schedule = loop.network, loop.schedule
    network.train()
    steps = sum(1 for _ in loop.plan.epoch(epoch))
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for step in range(steps):
        done = epoch * steps + step
        fraction = (epoch + step / steps) / schedule.epochs
        for group in loop.optimizer.param_groups:
            group["lr"] = schedule.learning_rate * learning_rate_factor(fraction, schedule.rise)
        batch = next(stream)
        parts = accumulator.backward(network, loop.step_loss, batch, fraction)
        distributed.average_gradients(network, len(batch["image"]))
        norm = nn.utils.clip_grad_norm_(network.parameters(), schedule.clip_norm)
        if bool(torch.isfinite(norm)):
            loop.optimizer.step()
            _update_average(network, loop.average, min(schedule.average, (1.0 + done) / (10.0 + done)))
        for key, value in parts.items():
            sums[key] = sums.get(key, 0.0) + value
            counts[key] = counts.get(key, 0) + 1
        loop.run.reporter.step(
            f"{loop.name}, epoch {epoch + 1} of {schedule.epochs}", done + 1, schedule.epochs * steps
        )
    return distributed.average_metrics({key: value / counts[key] for key, value in sums.items()})


@torch.no_grad()
def _update_average(network: nn.Module, average: dict[str, Tensor], keep: float) -> None:
    """Move the average towards the network's weights."""
    for key, value in network.state_dict().items():
        average[key].lerp_(value.to(average[key].dtype), 1.0 - keep)


def _with_weights(network: nn.Module, weights: dict[str, Tensor], validate: Validate) -> dict[str, float]:
    """Validate with other weights, and restore the network's own."""
    own = {k: v.detach().clone() for k, v in network.state_dict().items()}
    network.load_state_dict(weights)
    network.eval()
    try:
        with torch.no_grad():
            return validate(network)
    finally:
        network.load_state_dict(own)


def _require_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    """Raise InputError where a checkpoint belongs to another training."""
    for key, value in wanted.items():
        if found.get(key) != value:
            raise InputError(
                f"the unfinished training in '{path.parent}' has {key} {found.get(key)}",
                f"{key} {value} as asked for",
                "repeat its options to go on, or give --no-resume to start again",
            )


def _one_line(parts: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.3g}" for key, value in parts.items())
