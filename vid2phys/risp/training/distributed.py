"""Data-parallel training in several processes, as torchrun starts them, on machines that share their files.

Each process takes its part of every batch, and gradients are averaged before every step. The main process renders,
validates and writes; the others wait for it.

Limits: a loss that is a mean over images gives the network of a single process up to rounding. A loss over the images
that show something (front map, centre) is averaged over those of each process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed as dist
from torch import nn

from vid2phys.errors import UsageError

T = TypeVar("T")
_PATIENCE = timedelta(days=2)  # the others wait while the main process renders


def initialise(device: str) -> None:
    """Join the other processes, if torchrun started any. device: cuda or cpu."""
    if _started() > 1 and not dist.is_initialized():
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(timeout=_PATIENCE)


def shut_down() -> None:
    """Leave the group of processes when all have reached this point."""
    if is_distributed():
        dist.barrier()
        dist.destroy_process_group()


def is_distributed() -> bool:
    """Return whether several processes train together."""
    return dist.is_available() and dist.is_initialized()


def is_main_process() -> bool:
    """Return whether this is the main process, or the only one; also after `shut_down`."""
    return _started() == 1 or os.environ["RANK"] == "0"


def _started() -> int:
    """Return the number of processes that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def main_process_first(work: Callable[[], T]) -> T:
    """Return the result of `work`: the main process does it first, so that the others find it done."""
    if not is_distributed():
        return work()
    if is_main_process():
        done = work()
        dist.barrier()
        return done
    dist.barrier()
    return work()


def local_processes() -> int:
    """Return the number of processes that share this machine's cores."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if is_distributed() else 1


def require_enough_images(images: int) -> None:
    """Raise UsageError where batches of `images` images leave a process without any."""
    if is_distributed() and dist.get_world_size() > images:
        got = f"{dist.get_world_size()} processes for batches of {images} images"
        raise UsageError(got, f"at most {images}", "give torchrun fewer")


def local_share(items: Sequence[T]) -> list[T]:
    """Return this process's part of a batch; the first parts are the longer ones."""
    return list(items[dist.get_rank() :: dist.get_world_size()] if is_distributed() else items)


@torch.no_grad()
def average_gradients(network: nn.Module, count: int) -> None:
    """Replace gradients of the mean over this process's `count` images by those of the mean over all images."""
    if not is_distributed():
        return
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    flat = torch.cat([count * g.flatten() for g in gradients] + [gradients[0].new_tensor([float(count)])])
    dist.all_reduce(flat)
    parts = (flat[:-1] / flat[-1]).split([g.numel() for g in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def average_metrics(parts: dict[str, float]) -> dict[str, float]:
    """Return means over the processes."""
    if not is_distributed() or not parts:
        return parts
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    values = torch.tensor([parts[name] for name in sorted(parts)], dtype=torch.float64, device=device)
    dist.all_reduce(values)
    return dict(zip(sorted(parts), (values / dist.get_world_size()).tolist(), strict=True))
