"""gradSim's baselines for masses: networks that learn, clips they learn from, REINFORCE through MuJoCo."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments import gradsim_table1, reproduce
from experiments.gradsim import learning
from experiments.gradsim.convlstm import ConvLSTM
from experiments.gradsim.efficientnet import EfficientNetOverFrames, trunk
from experiments.gradsim.filmed import Filmed
from experiments.gradsim.learning import Clips, Recipe, learnt, train_epoch
from experiments.gradsim.pushed import name_of, pushed
from experiments.gradsim.reinforce import by_score, mean_loss, tumbled
from experiments.table import Setting
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.parallel import one_thread

FRAMES = 3


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def body(index: int, **how: int) -> Filmed:
    return pushed(np.random.default_rng(index), name_of(index), **how)


def setting(tmp_path: Path) -> Setting:
    return Setting(True, tmp_path, tmp_path, TrainingProgress(quiet=True))


def test_the_trunk_is_that_of_efficientnet_b0() -> None:
    count = sum(p.numel() for p in nn.Sequential(*trunk(7)).parameters())
    head = 320 * 1280 + 2 * 1280 + 1280 * 1000 + 1000  # last convolution, its norm, 1000 classes
    assert count + head == 5_288_548  # as published with the network's weights


@pytest.mark.parametrize("make", [partial(ConvLSTM, width=8), EfficientNetOverFrames])
def test_networks_say_a_number_a_clip_and_have_gradients(make: Callable[[int], nn.Module]) -> None:
    torch.manual_seed(0)
    network = make(FRAMES).double()
    clips, ways = torch.randn(2, FRAMES, 3, 64, 64).double(), torch.randn(2, 3).double()
    found = network(clips, ways)
    assert found.shape == (2,)
    weights = list(network.parameters())
    along = [torch.randn_like(weight) for weight in weights]

    def moved(step: float) -> float:
        with torch.no_grad():
            for weight, way in zip(weights, along, strict=True):
                weight += step * way
            loss = float(functional.mse_loss(network(clips, ways), torch.ones(2).double()))
            for weight, way in zip(weights, along, strict=True):
                weight -= step * way
        return loss

    slopes = torch.autograd.grad(functional.mse_loss(found, torch.ones(2).double()), weights)
    slope = float(sum((a * b).sum() for a, b in zip(slopes, along, strict=True)))
    assert abs(slope) > 1e-4
    assert slope == pytest.approx((moved(1e-6) - moved(-1e-6)) / 2e-6, rel=1e-4)
    assert (network(clips.flip(1), ways) - found).abs().max() > 1e-6  # the order of frames matters


def centre(image: Tensor) -> Tensor:
    """Mean column and row of what is seen in an image [3, H, W]."""
    light = image.float().abs().sum(0)
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    return torch.stack([(light * columns).sum(), (light * rows).sum()]) / light.sum()


def test_varied_clips_are_of_motions_along_their_ways() -> None:
    clips = Clips.of([body(index, every=10) for index in (1, 5, 6)])  # the way is not along the view
    rng = np.random.default_rng(0)
    for some in (clips, *(clips.varied(rng) for _ in range(6))):
        assert some.images.shape == (3, 7, 3, 64, 64)
        for images, way in zip(some.images, some.ways, strict=True):
            off = centre(images[3]) - centre(images[0])
            assert functional.cosine_similarity(off, way[:2], dim=0) > 0.9
    assert (clips.varied(rng).images != clips.images).any()
    torch.testing.assert_close(clips.ways.norm(dim=1), torch.ones(3))


RECIPE = Recipe("convlstm", partial(ConvLSTM, width=8), objects=12, every=30, epochs=4, batch=6, learning_rate=1e-2)


@pytest.mark.parametrize("make", [partial(ConvLSTM, width=8), EfficientNetOverFrames])
def test_training_lowers_the_loss(make: Callable[[int], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clips, "varied", lambda clips, rng: clips)
    torch.manual_seed(0)
    clips = Clips.of([body(index, every=30) for index in range(8)])
    recipe = replace(RECIPE, network=make, epochs=12, batch=8)
    network = make(clips.images.shape[1])
    optimizer = torch.optim.AdamW(network.parameters())

    def loss() -> float:
        with torch.no_grad():
            return float(functional.mse_loss(network(clips.images.float(), clips.ways), clips.targets))

    before = loss()
    for epoch in range(recipe.epochs):
        train_epoch(network, optimizer, clips, recipe, epoch)
    assert loss() < 0.5 * before


def test_a_training_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = learnt(RECIPE, setting(tmp_path / "whole"), 1, tmp_path / "whole")
    assert len(whole.history) == RECIPE.epochs
    assert whole.images == 4 * 10 * 3
    assert not whole.effort["converged"]

    def stops(network: nn.Module, optimizer: torch.optim.Optimizer, clips: Clips, recipe: Recipe, epoch: int) -> float:
        if epoch == 2:
            raise KeyboardInterrupt
        return train_epoch(network, optimizer, clips, recipe, epoch)

    monkeypatch.setattr(learning, "train_epoch", stops)
    with pytest.raises(KeyboardInterrupt):
        learnt(RECIPE, setting(tmp_path / "parts"), 1, tmp_path / "parts")
    monkeypatch.undo()
    parts = learnt(RECIPE, setting(tmp_path / "parts"), 1, tmp_path / "parts")
    assert parts.history == whole.history
    again = learnt(RECIPE, setting(tmp_path / "parts"), 1, tmp_path / "parts")
    assert (again.seconds, again.sha256) == (parts.seconds, parts.sha256)
    assert replace(RECIPE, epochs=7).digest != RECIPE.digest


def test_mujoco_moves_a_body_as_the_engine_does() -> None:
    for index in (0, 7, 13):
        there = body(index)
        free = torch.from_numpy(there.true_free)
        inputs = there.inputs(there.values(free))
        ours, theirs = there.shot.states(*inputs), tumbled(there.shot, *inputs)
        torch.testing.assert_close(theirs[:, :3], ours[:, :3], rtol=0.0, atol=1e-12)
        torch.testing.assert_close(theirs[:, 3:7], ours[:, 3:7], rtol=0.0, atol=2e-4)  # quaternions step differently
        torch.testing.assert_close(theirs[:, 7:], ours[:, 7:], rtol=0.0, atol=1e-9)


def estimates(losses: object, mean: Tensor, deviation: float, samples: int, count: int) -> np.ndarray:
    """Gradients that `mean_loss` gives with ever new noise, [count, U]."""
    found, rng = [], np.random.default_rng(0)
    for _ in range(count):
        at = mean.clone().requires_grad_()
        noise = torch.from_numpy(rng.normal(size=(samples, len(mean))))
        value = mean_loss(losses, at, deviation, noise)  # type: ignore[arg-type]
        found.append(torch.autograd.grad(value, at)[0].numpy())
    return np.array(found)


def test_reinforce_estimates_the_gradient_without_bias() -> None:
    curvature, best, mean = torch.tensor([3.0, 0.5]), torch.tensor([0.2, -1.0]), torch.tensor([1.0, 1.0]).double()
    found = estimates(lambda x: (curvature * (x - best).square()).sum(-1) + 100.0, mean, 0.3, 4, 2000)
    error = found.mean(0) - (2.0 * curvature * (mean - best)).numpy()  # that of the expectation, too, for a parabola
    spread = found.std(0) / np.sqrt(len(found))
    assert (np.abs(error) < 4.0 * spread).all()
    assert (spread < 0.3).all()


def test_reinforce_agrees_with_differences_of_the_images_error() -> None:
    seen = body(0, size_px=16, every=30)
    stage, deviation = seen.shot.stage, 0.3

    def losses(samples: Tensor) -> Tensor:
        return torch.stack([
            seen.target.error(stage.images(seen.shot.filmed(tumbled(seen.shot, *seen.inputs(seen.values(sample))))))
            for sample in samples
        ])  # fmt: skip

    nodes, weights = np.polynomial.hermite_e.hermegauss(16)

    def expected(mean: float) -> float:
        with torch.no_grad():
            values = losses(torch.from_numpy(mean + deviation * nodes)[:, None])
        return float(values.numpy() @ weights / weights.sum())

    start = float(seen.start[0])
    true = (expected(start + 0.01) - expected(start - 0.01)) / 0.02
    found = estimates(losses, torch.tensor([start], dtype=torch.float64), deviation, 8, 60)
    spread = float(found.std() / np.sqrt(len(found)))
    assert abs(found.mean() - true) < 4.0 * spread
    assert abs(true) > 6.0 * spread  # so that a wrong sign or size would show


def test_reinforce_finds_a_density() -> None:
    seen = body(0, size_px=32, every=20)
    how = {"samples": 6, "iterations": 15, "rate": 0.2}
    found = by_score(seen, np.random.default_rng(1), deviations=(0.2, 0.01), **how)  # type: ignore[arg-type]
    error = seen.errors(seen.values(torch.from_numpy(found.values)).numpy())["density"]
    start = seen.errors(np.array([p.value for p in seen.unknown]))["density"]
    assert start > 0.2
    assert error < 0.25 * start
    assert found.failure is None


def test_the_table_has_the_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradsim_table1, "QUICK", 2)
    monkeypatch.setattr(gradsim_table1, "_QUICK_STEPS", 4)
    monkeypatch.setattr(gradsim_table1, "_QUICK_TRAININGS", {"convlstm": (12, 30, 2), "efficientnet": (12, 30, 1)})
    methods = ("convlstm", "efficientnet", "reinforce")

    def run() -> dict[tuple[str, str], dict[str, object]]:
        where = {"out": tmp_path, "work": tmp_path / "work", "quiet": True}
        files = reproduce(gradsim_table1.NAME, quick=True, methods=methods, **where)  # type: ignore[arg-type]
        rows = json.loads(files[0].read_text())["rows"]
        assert "reinforce" in files[1].read_text()
        return {(row["method"], row["metric"]): row for row in rows}

    rows = run()
    for method in methods:
        assert rows[method, "mass_error"]["value"] > 0.0  # type: ignore[operator]
        assert rows[method, "mass_error"]["n"] == 2
    assert rows["convlstm", "images_seen"]["value"] == 2 * 10 * 3
    assert rows["efficientnet", "images_seen"]["value"] == 10 * 3
    assert rows["reinforce", "images_seen"]["value"] == 4 * 8 * 16
    assert rows["convlstm", "mass_error"]["converged"] is False
    assert rows["efficientnet", "training_seconds"]["value"] > 0.0  # type: ignore[operator]
    assert rows["convlstm", "mass_error"]["paper"] == 0.0094
    assert rows["ours", "mass_error"]["value"] is None
    assert run() == rows  # nothing is made twice
