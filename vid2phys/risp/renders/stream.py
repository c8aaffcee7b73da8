"""Stream batches of developed images to a training.

A batch depends on (seed, epoch, position) alone. A resumed training gets the images that it would have got.

Limits: developing is single-threaded per process. The number of processes sets the speed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vid2phys.errors import Vid2PhysError
from vid2phys.io.photographs import photographs
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.risp.appearance.develop import VIEW_PX, DevelopOptions, develop
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.scenes import develop_scene
from vid2phys.types import Array

Kind = Literal["plain", "gradient", "scene"]
_KIND_CODE = {"plain": 0, "gradient": 1, "scene": 2}
BANK_COUNT = 400
_ATTEMPTS = 3
_DIED = "exited unexpectedly"  # part of torch's message for a dead process
_ABSENT = 0.05  # share of images without the body, so that the maps learn to be flat


@dataclass(frozen=True)
class Key:
    """One image of the stream: its epoch, the index of its render, and how it is developed."""

    epoch: int
    index: int
    kind: Kind


Share = Callable[[list[Key]], list[Key]]


@dataclass(frozen=True)
class StreamSettings:
    """How images are made.

    Attributes:
        folder: Folder of the render dataset.
        points_body: [K, 3] keypoints, m; [N, K, 3] for N renders of an articulated or modal body.
        radius_m: Radius of the sphere around the body origin, m.
        view_size: Width and height V of an image, px.
        scene_size: Width and height of a locator's image, px.
        seed: Seed of all random numbers.
        states: [N, S] encoded states of the renders, for bodies whose state is not a pose.
        appearances: Number of ways to develop a render, each with its background, exposure and blur; 0 for a new way
            each time.
        bank_count: Number of background images.
        view_px: See `develop.DevelopOptions`.
        varied: What is randomised.
    """

    folder: Path
    points_body: Array
    radius_m: float
    view_size: int = 96
    scene_size: int = 96
    seed: int = 0
    states: Array | None = None
    appearances: int = 0
    bank_count: int = BANK_COUNT
    view_px: tuple[float, float, float] = VIEW_PX
    varied: Randomisation = ALL

    def points_of(self, index: int) -> Array:
        """Return the keypoints [K, 3] in render `index`, m."""
        return self.points_body[index] if self.points_body.ndim == 3 else self.points_body


class ImageStream(Dataset[dict[str, Any]]):
    """A dataset that develops the image of a `Key`.

    It opens renders and backgrounds at the first use, so that it can be sent to other processes.
    """

    def __init__(self, settings: StreamSettings, *, jitter: bool = True) -> None:
        self.settings, self.jitter = settings, jitter
        self._opened: _Opened | None = None

    def __getitem__(self, key: Key) -> dict[str, Any]:
        rng = np.random.default_rng([self.settings.seed, 77, *self._chance(key)])
        bank = self._open().bank
        if key.kind == "scene":
            return _scene_item(self.primal(key.index), self.settings, rng, bank)
        render = self._open().renders.sample(key.index) if key.kind == "gradient" else self.primal(key.index)
        absent = self.jitter and key.kind == "plain" and bool(rng.random() < _ABSENT) and not self.settings.appearances
        developed = develop(
            render,
            self.settings.points_of(key.index),
            rng,
            DevelopOptions(
                self.settings.view_size, bank, self.jitter, absent, self.settings.view_px, self.settings.varied
            ),
        )
        item = {
            "image": torch.from_numpy(developed.image),
            "points_px": torch.from_numpy(developed.points_px.astype(np.float32)),
            "visible": torch.from_numpy(developed.visible),
            "K": torch.from_numpy(developed.K.astype(np.float32)),
            "view_from_body": torch.from_numpy(developed.view_from_body.astype(np.float32)),
        }
        if self.settings.states is not None:
            item["state"] = torch.from_numpy(self.settings.states[key.index].astype(np.float32))
        if developed.tangents is not None:
            item["tangents"] = torch.from_numpy(developed.tangents)
        return item

    def _chance(self, key: Key) -> tuple[int, ...]:
        """Return the seed of an image's development; held-out images are always new."""
        appearances = self.settings.appearances
        if appearances and self.jitter:
            return (key.index % appearances, _KIND_CODE["scene" if key.kind == "scene" else "plain"])
        return (key.epoch, key.index, _KIND_CODE[key.kind])

    def primal(self, index: int) -> Primal:
        """Return a render's image and camera."""
        opened = self._open()
        return Primal(opened.renders.radiance(index), opened.K[index], opened.view_from_body[index])

    def _open(self) -> _Opened:
        if self._opened is None:
            self._opened = _Opened.of(self.settings)
        return self._opened


@dataclass(frozen=True)
class _Opened:
    """What a process keeps open: renders, their cameras [N, 3, 3] and poses [N, 4, 4], background images."""

    renders: RenderSet
    K: Array
    view_from_body: Array
    bank: NDArray[np.uint8]

    @staticmethod
    def of(settings: StreamSettings) -> _Opened:
        import cv2

        cv2.setNumThreads(1)
        renders = RenderSet(settings.folder)
        images = photographs() if settings.varied.photographs else []
        bank = make_bank(images, count=settings.bank_count, seed=settings.seed)
        return _Opened(renders, renders.K(), renders.view_from_body(), bank)


@dataclass(frozen=True)
class Primal:
    """A render without its derivatives, which take many times the memory of the image. See `dataset.Render`."""

    radiance: NDArray[Any]
    K: Array
    view_from_body: Array
    tangents: NDArray[Any] | None = None


def _scene_item(
    render: Primal, settings: StreamSettings, rng: np.random.Generator, bank: NDArray[np.uint8]
) -> dict[str, Any]:
    scene = develop_scene(render, settings.radius_m, rng, size=settings.scene_size, bank=bank, varied=settings.varied)
    return {
        "image": torch.from_numpy(scene.image),
        "center_px": torch.from_numpy(scene.center_px.astype(np.float32)),
        "diameter_px": torch.tensor(scene.diameter_px, dtype=torch.float32),
        "present": torch.tensor(float(scene.present)),
    }


@dataclass(frozen=True)
class Plan:
    """The order of the batches.

    Attributes:
        indices: Indices of the training renders.
        gradient_indices: Indices of those with derivatives.
        kind: How the images of a plain batch are developed.
        batch: Number of images in a plain batch.
        gradient_batch: Number of images in a batch with derivatives.
        gradient_every: Number of plain batches before each batch with derivatives; 0 for none.
        seed: Seed of the order.
    """

    indices: NDArray[np.int64]
    gradient_indices: NDArray[np.int64]
    kind: Kind = "plain"
    batch: int = 32
    gradient_batch: int = 8
    gradient_every: int = 0
    seed: int = 0

    def epoch(self, epoch: int) -> Iterator[list[Key]]:
        """Yield the batches of one epoch, in order, without an incomplete last batch."""
        rng = np.random.default_rng([self.seed, 78, epoch])
        order = rng.permutation(self.indices)
        extra = rng.permutation(self.gradient_indices)
        used = 0
        for position in range(self.steps_per_epoch):
            chosen = order[position * self.batch : (position + 1) * self.batch]
            yield [Key(epoch, int(i), self.kind) for i in chosen]
            if self.gradient_every and len(extra) and position % self.gradient_every == self.gradient_every - 1:
                chosen = np.take(extra, np.arange(used, used + self.gradient_batch), mode="wrap")
                used += self.gradient_batch
                yield [Key(epoch, int(i), "gradient") for i in chosen]

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of plain batches per epoch."""
        return max(1, len(self.indices) // self.batch)


class _Batches:
    """A batch sampler: all batches from an epoch on, without the first `taken` ones."""

    def __init__(self, plan: Plan, first_epoch: int, epochs: int, taken: int, share: Share) -> None:
        self.plan, self.first_epoch, self.epochs, self.taken, self.share = plan, first_epoch, epochs, taken, share

    def __iter__(self) -> Iterator[list[Key]]:
        batches = chain.from_iterable(map(self.plan.epoch, range(self.first_epoch, self.epochs)))
        return map(self.share, islice(batches, self.taken, None))


class StreamError(Vid2PhysError):
    """The processes that develop images die repeatedly (exit 3)."""


class BatchStream:
    """An iterator over the batches of epochs first_epoch .. epochs - 1, which `workers` processes develop ahead.

    After the death of a process all of them restart with the batch that is due. Iteration raises StreamError when that
    happens repeatedly, and InputError for renders that cannot be read.
    """

    def __init__(
        self,
        settings: StreamSettings,
        plan: Plan,
        *,
        first_epoch: int,
        epochs: int,
        workers: int,
        note: Callable[[str], None] = lambda text: None,
        share: Share = list,
    ) -> None:
        """Start the processes.

        Args:
            settings: How images are made.
            plan: The order of the batches.
            first_epoch: First epoch.
            epochs: Number of all epochs.
            workers: Number of processes; 0 develops in this process.
            note: Is called with messages.
            share: Selects the part of each batch that this process develops.
        """
        self._images, self._plan, self._workers, self._note = ImageStream(settings), plan, workers, note
        self._share = share
        self._first_epoch, self._epochs, self._taken = first_epoch, epochs, 0
        self._running = self._start()

    def __iter__(self) -> BatchStream:
        return self

    def __next__(self) -> dict[str, Tensor]:
        for _ in range(_ATTEMPTS):
            try:
                batch = next(self._running)
            except (RuntimeError, ConnectionError, EOFError, FileNotFoundError) as error:
                if isinstance(error, RuntimeError) and _DIED not in str(error):
                    raise  # the other errors come from tensors in the memory of a dead process
                self._note("a process that develops images was killed: its batch is made again")
                self._running = self._start()
                continue
            if isinstance(batch, Vid2PhysError):
                raise batch
            self._taken += 1
            return dict(batch)
        raise StreamError(
            "the processes that develop images are killed again and again, perhaps for want of memory",
            "some that live",
            "free some memory, then repeat the command: it goes on after the last whole epoch",
        )

    def _start(self) -> Iterator[Any]:
        batches = _Batches(self._plan, self._first_epoch, self._epochs, self._taken, self._share)
        loader: DataLoader[Any] = DataLoader(
            _Careful(self._images),
            batch_sampler=batches,  # type: ignore[arg-type]
            collate_fn=_joined,
            num_workers=self._workers,
            multiprocessing_context="spawn" if self._workers else None,
            prefetch_factor=6 if self._workers else None,
            worker_init_fn=_one_thread if self._workers else None,
        )
        with _unchanged_child_handler():
            return iter(loader)


class _Careful(Dataset[Any]):
    """A dataset that returns known errors, since the loader would wrap raised ones in its traceback."""

    def __init__(self, images: ImageStream) -> None:
        self.images = images

    def __getitem__(self, key: Key) -> dict[str, Any] | Vid2PhysError:
        try:
            return self.images[key]
        except Vid2PhysError as error:
            return error


def _joined(items: list[Any]) -> Any:
    """Stack a batch to tensors [B, ...], or return the error of one of its images.

    Tensors pass through shared memory. Arrays would pass through a pipe: a process that dies while it writes leaves
    half a message there, and the trainer would wait for the rest.
    """
    for item in items:
        if isinstance(item, Vid2PhysError):
            return item
    return {name: torch.stack([item[name] for item in items]) for name in items[0]}


@contextmanager
def _unchanged_child_handler() -> Iterator[None]:
    """Keep torch's signal handler from raising when a process ends: `next` detects the end."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def _one_thread(_worker: int) -> None:
    """Limit a process to one thread, and let the trainer handle Ctrl-C."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer handles Ctrl-C
