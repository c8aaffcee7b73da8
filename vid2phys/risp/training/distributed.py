"""Several processes that train one network, as torchrun starts them, on one machine or on several with the same files.

Each takes its share of every batch, and gradients are added up before every step. No layer looks across images:
where a loss is a mean over images the network is that of one process up to rounding, and where it is one over the
images that show something (front map, centre), over those of each process. The first process renders, validates,
writes and ends the work; the others wait for it.
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
_PATIENCE = timedelta(days=2)  # the others wait while the first renders


def initialise(device: str) -> None:
    """Meets the other processes, if torchrun started any. device: cuda or cpu."""
    if _started() > 1 and not dist.is_initialized():
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(timeout=_PATIENCE)


def shut_down() -> None:
    """Parts from the others when all have come to this point."""
    if is_distributed():
        dist.barrier()
        dist.destroy_process_group()


def is_distributed() -> bool:
    """Whether there are others."""
    return dist.is_available() and dist.is_initialized()


def is_main_process() -> bool:
    """Whether this is the first process, or the only one; also when they have parted."""
    return _started() == 1 or os.environ["RANK"] == "0"


def _started() -> int:
    """Number of processes that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def main_process_first(work: Callable[[], T]) -> T:
    """What `work` returns: the first process does it, then the others, who find it done."""
    if not is_distributed():
        return work()
    if is_main_process():
        done = work()
        dist.barrier()
        return done
    dist.barrier()
    return work()


def local_processes() -> int:
    """Number of processes that share this machine's cores."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if is_distributed() else 1


def require_enough_images(images: int) -> None:
    """Raises UsageError when batches of so many `images` leave processes without any."""
    if is_distributed() and dist.get_world_size() > images:
        said = f"{dist.get_world_size()} processes for batches of {images} images"
        raise UsageError(said, f"at most {images}", "give torchrun fewer")


def local_share(items: Sequence[T]) -> list[T]:
    """This process's part of a batch; the first parts are the longer ones."""
    return list(items[dist.get_rank() :: dist.get_world_size()] if is_distributed() else items)


@torch.no_grad()
def average_gradients(network: nn.Module, count: int) -> None:
    """Turns gradients of the mean over each process's `count` images into those of the mean over all."""
    if not is_distributed():
        return
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    flat = torch.cat([count * g.flatten() for g in gradients] + [gradients[0].new_tensor([float(count)])])
    dist.all_reduce(flat)
    parts = (flat[:-1] / flat[-1]).split([g.numel() for g in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def average_metrics(parts: dict[str, float]) -> dict[str, float]:
    """Means over the processes."""
    if not is_distributed() or not parts:
        return parts
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    values = torch.tensor([parts[name] for name in sorted(parts)], dtype=torch.float64, device=device)
    dist.all_reduce(values)
    return dict(zip(sorted(parts), (values / dist.get_world_size()).tolist(), strict=True))
