"""Train the general network on images that processes draw while it learns.

Samples stay in a pool from which batches are drawn, until new ones take their place. A share of them has rendering
gradients: the penalty of RISP (Ma, Du et al., ICLR 2022, eq. 10) keeps step and agreement from changing with the
appearance, here along one random direction of psi a sample.

Limits: which samples are in the pool at a step depends on the machine's speed, so that two trainings differ.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from experiments.general_network.network import STEP_UNITS, GeneralNetwork, Output, split, to_input
from experiments.general_network.samples import MAX_ROTATION_RAD, SIZE_PX, Hypotheses, TrainingBody, draw_sample

_CHANNELS = 9  # bytes of a pixel: image, drawing, mask


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of a training."""

    minutes: float = 7.0
    """Time for learning, after the pool was filled."""
    workers: int = 2
    """Processes that draw samples."""
    bodies: int = 8
    """Random bodies of a process at a time."""
    images: int = 16
    """Images after which a process replaces one of its bodies."""
    backgrounds: int = 200
    """Background images of a process."""
    hypotheses: int = 6
    """Hypotheses of an image."""
    pool: int = 12_000
    """Largest number of samples in memory."""
    first: int = 4_000
    """Samples before the first step."""
    batch: int = 128
    """Samples of a step."""
    rate: float = 1.5e-3
    """Largest learning rate."""
    decay: float = 0.02
    """Weight decay."""
    tangent_share: float = 0.15
    """Share of the images with rendering gradients."""
    penalty: float = 0.02
    """Weight of RISP's penalty."""
    penalty_every: int = 3
    """Steps of which one has the penalty."""
    reuse: float = 6.0
    """Largest number of times that a sample is used, in the mean."""
    held_out: int = 3_000
    """Samples of other bodies that judge the network."""
    seed: int = 1
    """Seed of bodies and images."""


class Block:
    """A block of samples in shared memory, which one process writes and another one reads."""

    def __init__(self, config: TrainingConfig, name: str | None = None) -> None:
        rows, pixels = 16 * config.hypotheses, SIZE_PX**2
        layout = (("pixels", np.uint8, (rows, pixels * _CHANNELS)), ("targets", np.float32, (rows, 7)))
        layout += (("tangents", np.float16, (rows, pixels * 3)), ("has_tangent", np.uint8, (rows,)))  # type: ignore[assignment]
        size = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for _, kind, shape in layout)
        self.memory = shared_memory.SharedMemory(name, create=name is None, size=size)
        self.rows, offset = rows, 0
        for key, kind, shape in layout:
            setattr(self, key, np.ndarray(shape, kind, self.memory.buf, offset))
            offset += int(np.prod(shape)) * np.dtype(kind).itemsize

    pixels: NDArray[np.uint8]
    targets: NDArray[np.float32]
    tangents: NDArray[np.float16]
    has_tangent: NDArray[np.uint8]

    def write(self, at: int, sample: Hypotheses) -> None:
        """Write the hypotheses of one image from row `at` on."""
        rows = slice(at, at + len(sample.step))
        joined = np.concatenate([sample.image, sample.drawing, sample.mask[..., None]], axis=-1)
        self.pixels[rows] = joined.reshape(len(sample.step), -1)
        self.targets[rows, :6], self.targets[rows, 6] = sample.step, sample.agreement
        self.has_tangent[rows] = sample.tangent is not None
        if sample.tangent is not None:
            self.tangents[rows] = sample.tangent.reshape(len(sample.step), -1)


def _draw(config: TrainingConfig, stream: int, free: Any, full: Any) -> None:
    """Draw samples into free blocks. Streams below zero are held out: their bodies and backgrounds are others."""
    import cv2

    from vid2phys.io.photographs import photographs
    from vid2phys.risp.appearance.backgrounds import make_bank

    cv2.setNumThreads(1)
    own = (config.seed, stream + 1000)
    bank = make_bank(photographs(), count=config.backgrounds, seed=10_000 * config.seed + stream)
    bodies = [TrainingBody.draw((*own, i)) for i in range(config.bodies)]
    rng, blocks, count = np.random.default_rng(own), dict[str, Block](), 0
    while (name := free.get()) is not None:
        if name not in blocks:
            blocks[name] = Block(config, name)
        for at in range(0, blocks[name].rows, config.hypotheses):
            body, tangent = bodies[int(rng.integers(len(bodies)))], rng.random() < config.tangent_share and stream >= 0
            blocks[name].write(at, draw_sample(rng, body, bank, config.hypotheses, tangent=tangent))
            count += 1
            if count % config.images == 0:
                i = config.bodies + count // config.images
                bodies[i % len(bodies)] = TrainingBody.draw((*own, i))
        full.put(name)


class Source:
    """Processes that draw samples, and the blocks that they fill."""

    def __init__(self, config: TrainingConfig, streams: list[int]) -> None:
        context = mp.get_context("spawn")
        self.full = context.Queue()
        self.queues = [context.Queue() for _ in streams]
        self.blocks: dict[str, tuple[Block, Any]] = {}
        for queue in self.queues:
            for _ in range(2):
                block = Block(config)
                self.blocks[block.memory.name] = block, queue
                queue.put(block.memory.name)
        self.processes = [
            context.Process(target=_draw, args=(config, stream, queue, self.full), daemon=True)
            for stream, queue in zip(streams, self.queues, strict=True)
        ]
        for process in self.processes:
            process.start()

    def ready(self, *, wait: bool) -> Iterator[Block]:
        """Yield filled blocks; each is given back when the next one is asked for. wait: for the first one."""
        while wait or not self.full.empty():
            name = self.full.get()
            block, queue = self.blocks[name]
            yield block
            queue.put(name)
            wait = False

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.terminate()
        for block, _ in self.blocks.values():
            block.memory.close()
            block.memory.unlink()


class Pool:
    """Samples on the device that learns."""

    def __init__(self, size: int, tangents: int, device: torch.device) -> None:
        pixels = SIZE_PX**2
        self.pixels = torch.empty(size, pixels * _CHANNELS, dtype=torch.uint8, device=device)
        self.targets = torch.empty(size, 7, device=device)
        self.tangents = torch.empty(tangents, pixels * 3, dtype=torch.float16, device=device)
        self.of_tangent = torch.empty(tangents, pixels * _CHANNELS, dtype=torch.uint8, device=device)
        self.added = self.added_tangents = 0

    def add(self, block: Block) -> None:
        """Copy a block; the oldest samples make room."""
        pixels, targets = torch.from_numpy(block.pixels), torch.from_numpy(block.targets)
        rows = (self.added + torch.arange(block.rows)) % len(self.targets)
        self.pixels[rows], self.targets[rows] = pixels.to(self.pixels.device), targets.to(self.targets.device)
        self.added += block.rows
        own = np.flatnonzero(block.has_tangent)
        if len(own) and len(self.tangents):
            rows = (self.added_tangents + torch.arange(len(own))) % len(self.tangents)
            self.tangents[rows] = torch.from_numpy(block.tangents[own]).to(self.tangents.device)
            self.of_tangent[rows] = torch.from_numpy(block.pixels[own]).to(self.tangents.device)
            self.added_tangents += len(own)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return images, drawings, masks and targets of some rows."""
        return *_planes(self.pixels[rows]), self.targets[rows]


def _planes(pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return images, drawings and masks of packed pixels [B, S * S * 9]."""
    planes = pixels.reshape(len(pixels), SIZE_PX, SIZE_PX, _CHANNELS)
    return planes[..., :3], planes[..., 3:8], planes[..., 8]


def losses(output: Output, mask: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return the losses of a batch: silhouette, step (Laplace), and agreement (cross entropy)."""
    units = targets.new_tensor(STEP_UNITS)
    step = targets[:, :6] / units
    near = (targets[:, :3].norm(dim=1) < MAX_ROTATION_RAD).float()
    weight = torch.cat([near[:, None].expand(-1, 3), torch.ones_like(step[:, 3:])], dim=1)
    error = (output.step - step).abs()
    likely = error * (-output.log_spread).exp() + output.log_spread
    return {
        "mask": functional.binary_cross_entropy_with_logits(output.mask, mask.float() / 255.0),
        "step": (likely * weight).sum() / weight.sum(),
        "agreement": functional.binary_cross_entropy_with_logits(output.agreement, targets[:, 6]),
    }


WEIGHTS = {"mask": 2.0, "step": 0.5, "agreement": 1.0}


def penalty(network: GeneralNetwork, pixels: Tensor, tangents: Tensor) -> Tensor:
    """Return the norm of the derivative of step and agreement along a direction of psi (RISP, eq. 10, projected)."""
    image, drawing, _ = _planes(pixels)
    image = image.float().requires_grad_(True)
    predicted = network(to_input(image, drawing))[:, [0, 1, 2, 3, 4, 5, 12]].float()
    weight = torch.randn_like(predicted)
    (slope,) = torch.autograd.grad((predicted * weight).sum(), image, create_graph=True)
    along = (slope * tangents.reshape(image.shape).float()).sum(dim=(1, 2, 3))
    return (along.square() + 1e-8).sqrt().mean()


def train(folder: Path, config: TrainingConfig, device: torch.device) -> dict[str, Any]:
    """Train a network, write it to `folder`, and return its score."""
    began = time.perf_counter()
    source = Source(config, list(range(config.workers)))
    pool = Pool(config.pool, config.pool // 6, device)
    network = GeneralNetwork(SIZE_PX).to(device)
    mean = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.rate, weight_decay=config.decay)
    while pool.added < config.first:
        for block in source.ready(wait=True):
            pool.add(block)
    print(f"{pool.added} samples after {time.perf_counter() - began:.0f} s", flush=True)
    start, step, drawn = time.perf_counter(), 0, 0
    while (share := (time.perf_counter() - start) / (60.0 * config.minutes)) < 1.0:
        for block in source.ready(wait=drawn > config.reuse * pool.added):
            pool.add(block)
        rate = config.rate * min(1.0, (step + 1) / 200) * (0.5 + 0.5 * float(np.cos(np.pi * share)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = torch.randint(min(pool.added, config.pool), (config.batch,), device=device)
        image, drawing, mask, targets = pool.batch(rows)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            raw = network(to_input(image, drawing))
        parts = losses(split(raw), mask, targets)
        loss = sum((WEIGHTS[name] * value for name, value in parts.items()), torch.zeros((), device=device))
        if step % config.penalty_every == 0 and pool.added_tangents >= 64:
            own = torch.randint(
                min(pool.added_tangents, len(pool.tangents)), (max(16, config.batch // 8),), device=device
            )
            parts["penalty"] = penalty(network, pool.of_tangent[own], pool.tangents[own])
            loss = loss + config.penalty * config.penalty_every * parts["penalty"]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        mean.update_parameters(network)
        step, drawn = step + 1, drawn + config.batch
        if step % 500 == 0:
            seen = {name: round(value.item(), 4) for name, value in parts.items()}
            print(f"step {step}, {pool.added} samples, {share:.2f}: {seen}", flush=True)
        if step % 4000 == 0:
            _write(folder, mean.module)
    source.close()
    return _finish(folder, mean.module, config, {"steps": step, "samples": pool.added}, device)


def _finish(
    folder: Path,
    network: Any,
    config: TrainingConfig,
    counts: dict[str, int],
    device: torch.device,
) -> dict[str, Any]:
    """Judge a network by bodies that it has not met, and write it."""
    _write(folder, network)
    source = Source(config, [-1 - i for i in range(config.workers)])
    pool = Pool(config.held_out + 16 * config.hypotheses * config.workers, 0, device)
    while pool.added < config.held_out:
        for block in source.ready(wait=True):
            pool.add(block)
    source.close()
    score = {"config": asdict(config), **counts, **judge(network, pool, config.held_out)}
    (folder / "score.json").write_text(json.dumps(score, indent=1) + "\n")
    return score


def _write(folder: Path, network: Any) -> None:
    """Write the weights of a network in half precision."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.detach().to(torch.float16).cpu().contiguous() for name, value in network.state_dict().items()
    }
    save_file(weights, folder / "network.safetensors")


@torch.no_grad()
def judge(network: Any, pool: Pool, count: int) -> dict[str, float]:
    """Return how good a network is on the samples of a pool."""
    parts = []
    for begin in range(0, count, 250):
        rows = torch.arange(begin, min(begin + 250, count), device=pool.targets.device)
        image, drawing, mask, targets = pool.batch(rows)
        output = split(network(to_input(image, drawing)))
        truth, shown = mask > 127, output.mask > 0.0
        overlap = (truth & shown).sum(dim=(1, 2)) / (truth | shown).sum(dim=(1, 2)).clamp(min=1)
        rest = output.step * targets.new_tensor(STEP_UNITS) - targets[:, :6]
        spread = output.log_spread.exp() * targets.new_tensor(STEP_UNITS)
        parts.append(
            torch.cat([targets, rest, spread, overlap[:, None], output.agreement.sigmoid()[:, None]], dim=1).cpu()
        )
    values = torch.cat(parts).numpy()
    target, off, stated = values[:, :6], values[:, 7:13], values[:, 13:19]
    turned = np.degrees(np.linalg.norm(target[:, :3], axis=1))
    left = np.degrees(np.linalg.norm(off[:, :3], axis=1))
    score = {
        "mask_iou_median": float(np.median(values[:, 19])),
        "mask_iou_p10": float(np.percentile(values[:, 19], 10)),
    }
    for name, low, high in (("near", 2.0, 12.0), ("far", 12.0, 40.0)):
        own = (turned > low) & (turned < high)
        score |= {
            f"{name}_rotation_before_deg": float(np.median(turned[own])),
            f"{name}_rotation_after_deg": float(np.median(left[own])),
            f"{name}_sideways_before_radii": float(np.median(np.linalg.norm(target[own, 3:5], axis=1))),
            f"{name}_sideways_after_radii": float(np.median(np.linalg.norm(off[own, 3:5], axis=1))),
            f"{name}_distance_before": float(np.median(np.abs(target[own, 5]))),
            f"{name}_distance_after": float(np.median(np.abs(off[own, 5]))),
            f"{name}_error_over_spread": float(np.median(np.abs(off[own, :3]) / stated[own, :3])),
        }
    score["agreement_correlation"] = float(np.corrcoef(values[:, 6], values[:, 20])[0, 1])
    return {name: round(value, 4) for name, value in score.items()}


def main() -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    defaults = TrainingConfig()
    for name, value in asdict(defaults).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    values = vars(parser.parse_args())
    folder = values.pop("out")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.perf_counter()
    score = train(folder, TrainingConfig(**values), device)
    print(json.dumps(score, indent=1))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
