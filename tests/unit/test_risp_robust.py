"""Training on machines that run out: of the GPU's memory, of processes, of disk."""

from __future__ import annotations

import errno
import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.unit.risp_synthetic import square_body, training_data, write_renders
from tests.unit.test_risp_train import Notes, train, weights
from vid2phys.errors import InputError
from vid2phys.risp.networks.network import KeypointNetwork, to_input
from vid2phys.risp.penalties import get as penalty
from vid2phys.risp.recipes import HeadStep, TrainingData, head_of
from vid2phys.risp.renders import stream
from vid2phys.risp.renders.stream import BatchStream, Plan, StreamError
from vid2phys.risp.training import mixed_precision
from vid2phys.risp.training.gradient_accumulation import GpuMemoryError, GradientAccumulator


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    torch.set_num_threads(1)
    body = square_body()
    return training_data(write_renders(tmp_path_factory.mktemp("renders"), body, 40), body)


class Small(nn.Module):
    """A network for which a GPU has too little memory for more than `most` images."""

    def __init__(self, most: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.most, self.seen = nn.Linear(6, 1), most, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        if len(x) > self.most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return self.layer(x)


def step_loss(network: nn.Module, batch: dict[str, Tensor], fraction: float) -> tuple[Tensor, dict[str, float]]:
    error = network(batch["image"]).square().mean()
    return error, {"error": float(error.detach())}


def backward(
    most: int, kind: str = "plain", pieces: GradientAccumulator | None = None
) -> tuple[Small, dict[str, float], list[str]]:
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32))
    batch = {"image": images} | ({"tangents": images} if kind == "gradient" else {})
    lines: list[str] = []
    network = Small(most)
    parts = (pieces or GradientAccumulator("cpu", lines.append)).backward(network, step_loss, batch, 0.5)
    return network, parts, lines


@pytest.mark.parametrize(("most", "sizes"), [(11, [6, 6]), (5, [3, 3, 3, 3]), (1, [1] * 12)])
def test_a_batch_that_does_not_fit_goes_in_pieces_with_the_same_gradient(most: int, sizes: list[int]) -> None:
    whole, parts, lines = backward(12)
    pieces, same, told = backward(most)
    assert whole.seen == [12]
    assert not lines
    assert pieces.seen[-len(sizes) :] == sizes
    assert same["error"] == pytest.approx(parts["error"], rel=1e-5)
    for a, b in zip(whole.parameters(), pieces.parameters(), strict=True):
        assert a.grad is not None
        assert torch.allclose(a.grad, b.grad, rtol=1e-5)
    assert told[0] == "the GPU's memory is full: 6 images at once instead of 12, same batches"


def test_pieces_stay_small_for_their_kind_alone() -> None:
    pieces = GradientAccumulator("cpu", lambda text: None)
    backward(3, "gradient", pieces)
    network, _, _ = backward(3, "gradient", pieces)
    assert network.seen == [3, 3, 3, 3]
    network, _, _ = backward(12, "plain", pieces)
    assert network.seen == [12]


def test_no_memory_for_one_image_is_said() -> None:
    with pytest.raises(GpuMemoryError, match="no memory for a single image; expected more that is free; end what"):
        backward(0)


def test_a_training_goes_on_with_less_memory(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(data, tmp_path / "a", Notes(), epochs=1)
    forward = KeypointNetwork.forward

    def poor(network: KeypointNetwork, images: Tensor) -> Tensor:
        if network.training and len(images) > 4:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(network, images)

    monkeypatch.setattr(KeypointNetwork, "forward", poor)
    notes = Notes()
    halved = train(data, tmp_path / "b", notes, epochs=1)
    assert [line for line in notes.lines if "memory is full: 4 images at once instead of 8" in line]
    assert (weights(whole) - weights(halved)).abs().max() < 0.05 * weights(whole).abs().max()
    assert halved.history[0]["ce"] == pytest.approx(whole.history[0]["ce"], rel=0.02)


def batches(data: TrainingData, workers: int, note: Any = lambda text: None) -> BatchStream:
    plan = Plan(data.training, data.gradient_indices, batch=2, gradient_batch=2, gradient_every=3, seed=1)
    return BatchStream(data.stream, plan, first_epoch=0, epochs=2, workers=workers, note=note)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


def dying(live: int) -> Any:
    """A way of starting processes that are killed after every `live` batches."""
    start = BatchStream._start

    def started(self: BatchStream) -> Iterator[Any]:
        running = start(self)

        def until_killed() -> Iterator[Any]:
            for _ in range(live):
                yield next(running)
            raise RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")

        return until_killed()

    return started


def test_a_killed_developing_process_changes_no_batch(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(batches(data, 0))
    assert {"image", "tangents"} <= set(whole[3])
    monkeypatch.setattr(BatchStream, "_start", dying(5))
    told: list[str] = []
    again = [batch for batch, _ in zip(batches(data, 0, told.append), range(12), strict=False)]
    assert all(same(a, b) for a, b in zip(again, whole, strict=False))
    assert len(again) == 12
    assert told == ["a process that develops images was killed: its batch is made again"] * 2


def test_processes_that_never_live_are_an_error(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchStream, "_start", dying(0))
    with pytest.raises(StreamError, match=r"killed again and again.*goes on after the last whole epoch") as raised:
        next(batches(data, 0))
    assert raised.value.exit_code == 3


def test_other_errors_are_not_taken_for_a_killed_process(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: BatchStream) -> Iterator[Any]:
        return iter(())

    def raising(*args: Any, **options: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(stream, "develop", raising)
    with pytest.raises(RuntimeError, match="a bug"):
        next(batches(data, 0))
    monkeypatch.setattr(BatchStream, "_start", broken)
    with pytest.raises(StopIteration):
        next(batches(data, 0))


@pytest.mark.slow
def test_a_real_process_is_killed(data: TrainingData) -> None:
    whole = batches(data, 0)
    told: list[str] = []
    handler = signal.getsignal(signal.SIGCHLD)
    running = batches(data, 1, told.append)
    assert signal.getsignal(signal.SIGCHLD) is handler
    for position in range(24):
        assert same(next(running), next(whole))
        if position == 2:
            for process in multiprocessing.active_children():
                process.kill()
    assert len(told) == 1


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_damaged_render_is_one_line(data: TrainingData, tmp_path: Path, workers: int) -> None:
    body = square_body()
    folder = write_renders(tmp_path / "renders", body, 40)
    damaged = training_data(folder, body)
    path = folder / "shard_00001.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match=r"'.*shard_00001.safetensors' is damaged; expected renders") as raised:
        list(batches(damaged, workers))
    assert "\n" not in str(raised.value)


def test_a_full_disk_keeps_the_last_checkpoint(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(data, tmp_path / "a", Notes(), gamma=0.0)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "b", Notes(stop=1), gamma=0.0)
    before = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"the disk is full: '.*fine.checkpoint.safetensors' could not be written"):
        train(data, tmp_path / "b", Notes(), gamma=0.0)
    assert {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()} == before
    monkeypatch.undo()
    assert torch.equal(weights(train(data, tmp_path / "b", Notes(), gamma=0.0)), weights(whole))


def test_mixed_precision_leaves_the_penalty_in_float32(data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU's autocast, where it can be tried without a GPU (it is too slow there to be used)."""
    assert not mixed_precision.is_faster("cpu")
    head = head_of(data, "keypoint")
    torch.manual_seed(0)
    network = head.network()
    types: list[torch.dtype] = []
    network.pyramid.stem.register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
    plan = Plan(data.training, data.gradient_indices, batch=4, gradient_batch=4, gradient_every=1, seed=1)
    stream_ = BatchStream(data.stream, plan, first_epoch=0, epochs=1, workers=0)
    plain, gradient = next(stream_), next(stream_)
    step = HeadStep(head, penalty("error-gradient"), 1.0)
    exact = step(network, plain, 0.9)[0].detach()
    images = to_input(plain["image"])
    assert torch.equal(mixed_precision.run(network, images), network(images))
    monkeypatch.setattr(mixed_precision, "is_faster", lambda device: True)
    types.clear()
    loss = step(network, plain, 0.9)[0]
    loss.backward()
    assert types == [torch.bfloat16]
    assert loss.dtype == torch.float32
    assert 0.0 < abs(float(loss.detach()) - float(exact)) < 0.02 * float(exact)
    assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in network.parameters())
    types.clear()
    step(network, gradient, 0.9)[0].backward()
    assert types == [torch.float32]
