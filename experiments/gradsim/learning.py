"""Networks that say the density of a pushed body from its clip: trained on other bodies, kept under a recipe's hash.

What is not in the images but known to all methods, the way of the impulse, is given to the networks, too. Renders are
made anew in every sitting of a training: those of 800 objects take less than a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.gradsim.filmed import Filmed
from experiments.gradsim.pushed import name_of, pushed
from experiments.gradsim.result_cache import Outcome, rng_of
from experiments.methods import digest_of, is_converged
from experiments.table import Setting
from vid2phys.engine.parallel import one_thread
from vid2phys.io.files import sha256
from vid2phys.risp.training.checkpoint import load_checkpoint, read_notes, save_checkpoint
from vid2phys.risp.training.train import learning_rate_factor

METRIC = "mass_error"  # relative, mean over held-out objects
_HELD_OUT = 11  # every so manieth object: of all fourteen shapes
_LIGHT = 0.25  # a body's light less that of the background, about
_MIDDLE, _SPREAD = np.log(6.0), 0.5  # of the logarithms of densities
_CLIP_NORM = 2.0
_SHIFT_PX = 4

_Parts = tuple[Tensor, Tensor, Tensor]  # of one clip, as of `Clips`


@dataclass(frozen=True)
class Recipe:
    """Everything that weights depend on. objects: rendered ones, one in eleven of them held out. every: which of the 60
    frames are shown. network: makes one for clips of so many frames; `name` stands for it."""

    name: str
    network: Callable[[int], nn.Module]
    objects: int
    every: int
    epochs: int
    batch: int = 8
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    seed: int = 0
    version: int = 1

    @property
    def digest(self) -> str:
        """Return the digest that names the weights."""
        return digest_of({name: value for name, value in asdict(self).items() if name != "network"})


@dataclass(frozen=True)
class Clips:
    """images: [N, F, 3, H, W] float16, linear light less the background's, about 0..1. ways: unit vectors [N, 3] of
    the impulses in the camera's axes (x right, y down). targets: [N] logarithms of densities, about -2..1.5."""

    images: Tensor
    ways: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: Any) -> Clips:
        return Clips(self.images[index], self.ways[index], self.targets[index])

    def varied(self, rng: np.random.Generator) -> Clips:
        """Return the same motions seen by a camera that is turned by quarters about its axis, mirrored, and moved by
        some pixels, each clip in a way of its own: what is true of one is true of all of them, but for the lamp.
        """
        images, ways = self.images.clone(), self.ways.clone()
        for clip, way in zip(images, ways, strict=True):
            for axis, side in ((0, -1), (1, -2)):
                if rng.random() < 0.5:
                    clip.copy_(clip.flip(side))
                    way[axis] *= -1.0
            if rng.random() < 0.5:
                clip.copy_(clip.transpose(-1, -2).clone())
                way[:2] = way[:2].flip(0)
            down, right = rng.integers(-_SHIFT_PX, _SHIFT_PX + 1, 2)
            clip.copy_(_moved(clip, int(down), int(right)))
        return Clips(images, ways, self.targets)

    @staticmethod
    def of(bodies: list[Filmed]) -> Clips:
        """Return exact renders of true motions; clips of the same number of frames."""
        return _joined([*map(_clip, bodies)])


@dataclass(frozen=True)
class Learnt:
    """history: a validation after every epoch. images: images it was shown, the same ones again counted again."""

    network: nn.Module
    recipe: Recipe
    history: list[dict[str, float]]
    seconds: float
    images: int
    sha256: str

    @property
    def effort(self) -> dict[str, Any]:
        """Return what every outcome says of the training."""
        return {
            "network": f"{self.recipe.name}, every {self.recipe.every} of the frames",
            "images_seen": self.images,
            "training_seconds": round(self.seconds, 1),
            "converged": is_converged(self.history, self.images, METRIC),
            "recipe": self.recipe.digest,
            "weights_sha256": self.sha256,
        }

    def outcome(self, body: Filmed) -> Outcome:
        """Return what a table keeps of one object, filmed at the recipe's rate."""
        clip = Clips.of([body])
        began = time.monotonic()
        with torch.no_grad():
            found = np.exp(_SPREAD * float(self.network(clip.images.float(), clip.ways)[0]) + _MIDDLE)
        error = abs(found / body.truth[0] - 1.0)
        kept = {"error_density": error, "truth": body.truth.tolist(), "found": [found]}
        return kept | {"seconds": time.monotonic() - began} | self.effort


@one_thread()
def learnt(recipe: Recipe, setting: Setting, stream: int, folder: Path) -> Learnt:
    """Return the network of a recipe, trained or taken from `folder`, where a training goes on that was interrupted.

    stream: of the random numbers of its objects.
    """
    path = folder / f"{recipe.name}-{recipe.digest}.safetensors"
    found = read_notes(path)
    notes: dict[str, Any] = found or {"history": [], "seconds": 0.0}
    history: list[dict[str, float]] = notes["history"]
    if len(history) < recipe.epochs:
        shown, held_out = _training_clips(recipe, setting, stream)
        notes |= {"frames": shown.images.shape[1], "clips": len(shown)}
    torch.manual_seed(recipe.seed)
    network = recipe.network(notes["frames"])
    optimizer = torch.optim.AdamW(network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    if found is not None:
        load_checkpoint(path, network, {}, optimizer)
    for epoch in range(len(history), recipe.epochs):
        began = time.monotonic()
        setting.progress.step(f"{recipe.name}, training", epoch, recipe.epochs)
        loss = train_epoch(network, optimizer, shown, recipe, epoch)
        history.append({"epoch": epoch + 1, "loss": loss, METRIC: validated(network, held_out, recipe.batch)})
        notes["seconds"] += time.monotonic() - began
        save_checkpoint(path, network, {}, optimizer, notes)
        setting.progress.note(f"{recipe.name} {epoch + 1}/{recipe.epochs}: {METRIC} {history[-1][METRIC]:.3g}")
    images = recipe.epochs * notes["clips"] * notes["frames"]
    return Learnt(network.eval(), recipe, history, notes["seconds"], images, sha256(path))


def train_epoch(
    network: nn.Module, optimizer: torch.optim.Optimizer, clips: Clips, recipe: Recipe, epoch: int
) -> float:
    """Show all clips once, in an order of the recipe's seed; the mean squared error of the scaled logarithms."""
    network.train()
    rng = np.random.default_rng([recipe.seed, epoch])
    batches = np.array_split(rng.permutation(len(clips)), max(1, len(clips) // recipe.batch))
    total = 0.0
    for step, batch in enumerate(batches):
        rate = recipe.learning_rate * learning_rate_factor((epoch + step / len(batches)) / recipe.epochs)
        for group in optimizer.param_groups:
            group["lr"] = rate
        some = clips[torch.from_numpy(batch)].varied(rng)
        loss = functional.mse_loss(network(some.images.float(), some.ways), some.targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), _CLIP_NORM)
        optimizer.step()
        total += float(loss.detach()) * len(batch)
    return total / len(clips)


@torch.no_grad()
def validated(network: nn.Module, clips: Clips, batch: int) -> float:
    """Return the mean error of densities, relative to the true ones."""
    network.eval()
    parts = [clips[first : first + batch] for first in range(0, len(clips), batch)]
    found = torch.cat([network(part.images.float(), part.ways) for part in parts])
    return float(((_SPREAD * (found - clips.targets)).exp() - 1.0).abs().mean())


def _training_clips(recipe: Recipe, setting: Setting, stream: int) -> tuple[Clips, Clips]:
    """Return the clips that are shown and the clips that are held out."""
    shown, held_out = list[_Parts](), list[_Parts]()
    for index in range(recipe.objects):
        setting.progress.step(f"{recipe.name}, rendering", index, recipe.objects)
        clip = _clip(pushed(rng_of(setting, stream, index), name_of(index), every=recipe.every))
        (shown if index % _HELD_OUT else held_out).append(clip)
    return _joined(shown), _joined(held_out)


def _joined(parts: list[_Parts]) -> Clips:
    return Clips(*(torch.stack(each) for each in zip(*parts, strict=True)))


def _clip(body: Filmed) -> _Parts:
    """Return the images, way and target of one body."""
    shown = (body.target.images - torch.from_numpy(body.shot.stage.background)) / _LIGHT
    camera_to_world = torch.from_numpy(np.asarray(body.shot.stage.camera.camera_to_world))
    impulse = body.inputs(torch.from_numpy(body.truth))[1][0, :3] @ camera_to_world[:3, :3]
    target = torch.tensor((np.log(body.truth[0]) - _MIDDLE) / _SPREAD, dtype=torch.float32)
    return shown.permute(0, 3, 1, 2).half(), (impulse / impulse.norm()).float(), target


def _moved(clip: Tensor, down: int, right: int) -> Tensor:
    """Return the frames [..., H, W] moved by whole pixels; nothing comes in from outside."""
    height, width = clip.shape[-2:]
    padded = functional.pad(clip, (max(right, 0), max(-right, 0), max(down, 0), max(-down, 0)))
    return padded[..., max(-down, 0) :, max(-right, 0) :][..., :height, :width]
