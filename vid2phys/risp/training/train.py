"""The training loop that both networks share: resumable after every epoch, validated after every epoch.

Muon (for RISP's network, Adam), a one-cycle learning rate, and an exponential average of the weights, which is kept. On
one device with a fixed number of threads the result depends on the seed alone, interrupted or not; several processes
(`together`) find nearly the same.
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
from vid2phys.risp.training.gradient_accumulation import Batch, GradientAccumulator, StepLoss
from vid2phys.risp.training.muon import Muon

Validate = Callable[[nn.Module], dict[str, float]]


class Reporter(Protocol):
    """Where training says how far it is."""

    def step(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` batches of a stage are over."""

    def note(self, text: str) -> None:
        """A line worth keeping, such as an epoch's validation."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast. average: of the weights, per step, once warm. workers: processes that develop images.

    rise: share of the training over which the learning rate rises, before half a cosine. optimizer: a class of
    PyTorch's kind.
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
    """One cycle: a linear rise over the first 6 %, then half a cosine down to 1 %."""
    if fraction < rise:
        return 0.05 + 0.95 * fraction / rise
    return 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * (fraction - rise) / (1.0 - rise)))


@dataclass
class Trained:
    """network: with the averaged weights, in evaluation mode. history: one entry an epoch. seconds: all sittings."""

    network: nn.Module
    history: list[dict[str, float]]
    seconds: float


def train_network(
    network: nn.Module,
    step_loss: StepLoss,
    validate: Validate,
    images: StreamSettings,
    plan: Plan,
    schedule: Schedule,
    *,
    name: str,
    checkpoint: Path,
    device: str,
    reporter: Reporter,
    resume: bool = True,
) -> Trained:
    """Trains in place and returns the averaged network.

    step_loss: loss and parts of it for a batch, given how far training is (0..1). checkpoint: written after every
    epoch; with `resume` an existing one is continued. Raises InputError when it belongs to other settings, UsageError
    for more processes than images in a batch.
    """
    distributed.require_enough_images(min(plan.batch, plan.gradient_batch if plan.gradient_every else plan.batch))
    network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = {k: v.detach().clone() for k, v in network.state_dict().items()}
    optimizer = schedule.optimizer(network.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    identity: dict[str, Any] = {
        "name": name,
        "epochs": schedule.epochs,
        "seed": plan.seed,
        "renders": len(plan.indices),
        "optimizer": schedule.optimizer.__name__,
    }
    identity["without"] = list(images.varied.off)
    notes: dict[str, Any] = {"identity": identity, "epoch": 0, "history": [], "seconds": 0.0}
    found = read_notes(checkpoint) if resume else None
    if found is not None:
        _require_same({"without": [], "optimizer": "Adam", **found["identity"]}, identity, checkpoint)
        notes = found
        load_checkpoint(checkpoint, network, average, optimizer)
        reporter.note(f"{name}: going on after epoch {notes['epoch']} of {schedule.epochs}")
    if notes["epoch"] < schedule.epochs:
        stream = BatchStream(
            *(images, plan),
            first_epoch=notes["epoch"],
            epochs=schedule.epochs,
            workers=schedule.workers,
            note=reporter.note,
            share=distributed.local_share,
        )
        pieces = GradientAccumulator(device, reporter.note)
        for epoch in range(notes["epoch"], schedule.epochs):
            start = time.monotonic()
            parts = _one_epoch(
                network, average, optimizer, step_loss, stream, plan, schedule, epoch, name, pieces, reporter
            )
            if distributed.is_main_process():
                parts |= _with_weights(network, average, validate)
            notes["epoch"] = epoch + 1
            notes["seconds"] += time.monotonic() - start
            notes["history"].append({"epoch": epoch + 1, **parts})
            if distributed.is_main_process():
                save_checkpoint(checkpoint, network, average, optimizer, notes)
            reporter.note(f"{name} {epoch + 1}/{schedule.epochs}: " + _one_line(parts))
    network.load_state_dict(average)
    return Trained(network.eval(), notes["history"], notes["seconds"])


def _one_epoch(
    network: nn.Module,
    average: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    step_loss: StepLoss,
    stream: Iterator[Batch],
    plan: Plan,
    schedule: Schedule,
    epoch: int,
    name: str,
    pieces: GradientAccumulator,
    reporter: Reporter,
) -> dict[str, float]:
    network.train()
    steps = sum(1 for _ in plan.epoch(epoch))
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for step in range(steps):
        fraction = (epoch + step / steps) / schedule.epochs
        for group in optimizer.param_groups:
            group["lr"] = schedule.learning_rate * learning_rate_factor(fraction, schedule.rise)
        batch = next(stream)
        parts = pieces.backward(network, step_loss, batch, fraction)
        distributed.average_gradients(network, len(batch["image"]))
        norm = nn.utils.clip_grad_norm_(network.parameters(), schedule.clip_norm)
        if bool(torch.isfinite(norm)):
            optimizer.step()
            _update_average(
                network, average, min(schedule.average, (1.0 + epoch * steps + step) / (10.0 + epoch * steps + step))
            )
        for key, value in parts.items():
            sums[key] = sums.get(key, 0.0) + value
            counts[key] = counts.get(key, 0) + 1
        reporter.step(
            f"{name}, epoch {epoch + 1} of {schedule.epochs}", epoch * steps + step + 1, schedule.epochs * steps
        )
    return distributed.average_metrics({key: value / counts[key] for key, value in sums.items()})


@torch.no_grad()
def _update_average(network: nn.Module, average: dict[str, Tensor], keep: float) -> None:
    for key, value in network.state_dict().items():
        average[key].lerp_(value.to(average[key].dtype), 1.0 - keep)


def _with_weights(network: nn.Module, weights: dict[str, Tensor], validate: Validate) -> dict[str, float]:
    """Validates with other weights and puts the network's own back."""
    own = {k: v.detach().clone() for k, v in network.state_dict().items()}
    network.load_state_dict(weights)
    network.eval()
    try:
        with torch.no_grad():
            return validate(network)
    finally:
        network.load_state_dict(own)


def _require_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    for key, value in wanted.items():
        if found.get(key) != value:
            raise InputError(
                f"the unfinished training in '{path.parent}' has {key} {found.get(key)}",
                f"{key} {value} as asked for",
                "repeat its options to go on, or give --no-resume to start again",
            )


def _one_line(parts: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.3g}" for key, value in parts.items())
