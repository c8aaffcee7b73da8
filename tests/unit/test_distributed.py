"""Several processes that train together find the network that one finds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.unit.risp_synthetic import square_body, training_data, write_renders
from vid2phys.risp.recipes import PenaltyOptions, TrainingRun, head_of, train_head
from vid2phys.risp.training import distributed
from vid2phys.risp.training.train import Schedule

ROOT = Path(__file__).resolve().parents[2]
EACH = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.unit.test_distributed import train
from vid2phys.risp.training import distributed
distributed.initialise("cpu")
train(Path({renders!r}), Path({folder!r}))
distributed.shut_down()
"""


class Quiet:
    def step(self, stage: str, done: int, total: int) -> None: ...

    def note(self, text: str) -> None: ...


def train(renders: Path, folder: Path) -> None:
    """Two slow epochs, plain images and images with derivatives, of a loss that is a mean over images."""
    torch.set_num_threads(1)
    body = square_body()
    data = training_data(renders, body) if renders.exists() else training_data(write_renders(renders, body, 40), body)
    head = head_of(data, "state@w8")
    folder.mkdir(exist_ok=True)
    run = TrainingRun(folder, "cpu", Quiet())
    slow = Schedule(2, batch=6, workers=0, learning_rate=2e-4)  # ten times faster, rounding grows to a hundredth
    torch.manual_seed(3)
    begun = weights_of(head.network())
    trained = train_head(data, head, slow, run, PenaltyOptions(1.0, every=2), seed=3)
    if distributed.is_main_process():
        torch.save(weights_of(trained.network) - begun, folder / "way.pt")
        (folder / "history.json").write_text(json.dumps(trained.history))


def weights_of(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def start(count: int, renders: Path, folder: Path) -> None:
    """What torchrun does on one machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    code = EACH.format(root=str(ROOT), renders=str(renders), folder=str(folder))
    world = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | world | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    for process in processes:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    """Batches of 6 and 8 images: three and four a process; unequal thirds are in the next test."""
    train(tmp_path / "renders", tmp_path / "one")
    start(2, tmp_path / "renders", tmp_path / "two")
    one, two = (torch.load(tmp_path / name / "way.pt") for name in ("one", "two"))
    assert (two - one).norm() < 0.01 * one.norm()  # 0.0002 measured; gradients that are not joined make it 1.03
    one, two = (json.loads((tmp_path / name / "history.json").read_text()) for name in ("one", "two"))
    assert two[0] == pytest.approx(one[0], rel=0.05)


def test_unequal_shares_count_by_their_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight images among three: 3, 3 and 2; the mean of the joined gradients is that of all eight."""
    torch.manual_seed(0)
    network, images = torch.nn.Linear(4, 1), torch.randn(8, 4)
    parts: list[torch.Tensor] = []
    monkeypatch.setattr(distributed, "is_distributed", lambda: True)
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 3)

    def gradients(rows: torch.Tensor) -> None:
        network.zero_grad()
        network(rows).square().mean().backward()

    shares = []
    for rank in range(3):
        monkeypatch.setattr(distributed.dist, "get_rank", lambda rank=rank: rank)
        shares.append(distributed.local_share(list(range(8))))
        gradients(images[shares[-1]])
        monkeypatch.setattr(distributed.dist, "all_reduce", lambda flat: parts.append(flat.clone()))
        distributed.average_gradients(network, len(shares[-1]))
    assert sorted(shares[0] + shares[1] + shares[2]) == list(range(8))
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda flat: flat.copy_(torch.stack(parts).sum(dim=0)))
    gradients(images[shares[-1]])
    distributed.average_gradients(network, len(shares[-1]))
    found = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    gradients(images)
    wanted = [p.grad for p in network.parameters() if p.grad is not None]
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
