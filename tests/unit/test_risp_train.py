from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.risp_synthetic import square_body, training_data, write_renders
from vid2phys.errors import InputError
from vid2phys.risp.networks.network import KeypointNetwork
from vid2phys.risp.recipes import PenaltyOptions, TrainingData, TrainingRun, head_of, train_head, train_locator
from vid2phys.risp.training.train import Schedule, Trained, learning_rate_factor


class Notes:
    """Keeps notes; interrupts after the `stop`-th epoch."""

    def __init__(self, stop: int = 0) -> None:
        self.lines: list[str] = []
        self.stop = stop

    def step(self, stage: str, done: int, total: int) -> None:
        assert 0 < done <= total

    def note(self, text: str) -> None:
        self.lines.append(text)
        if self.stop and len(self.lines) == self.stop:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    torch.set_num_threads(1)
    body = square_body()
    return training_data(write_renders(tmp_path_factory.mktemp("renders"), body, 40), body)


def train(
    data: TrainingData, folder: Path, notes: Notes, *, epochs: int = 2, gamma: float = 1.0, resume: bool = True
) -> Trained:
    schedule, run = Schedule(epochs, batch=8, workers=0), TrainingRun(folder, "cpu", notes, resume=resume)
    head = head_of(data, "keypoint")
    return train_head(data, head, schedule, run, PenaltyOptions(gamma, every=2), seed=3)


def weights(trained: Trained) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.network.parameters()])


def test_training_goes_on_where_it_was_interrupted(data: TrainingData, tmp_path: Path) -> None:
    whole = train(data, tmp_path / "a", Notes())
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "b", Notes(stop=1))
    notes = Notes()
    resumed = train(data, tmp_path / "b", notes)
    assert "going on after epoch 1 of 2" in notes.lines[0]
    assert torch.equal(weights(whole), weights(resumed))
    assert len(resumed.history) == 2
    assert {"ce", "front", "gradient_px", "px", "rotation_deg", "sideways_mm", "depth_percent"} <= set(
        resumed.history[0]
    )
    assert all(np.isfinite(list(entry.values())).all() for entry in resumed.history)
    assert resumed.history[1]["ce"] < resumed.history[0]["ce"]


def test_checkpoint_of_other_options_is_refused(data: TrainingData, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path, Notes(stop=1))
    with pytest.raises(InputError, match="epochs 2; expected epochs 5 as asked for; repeat its options"):
        train(data, tmp_path, Notes(), epochs=5)


def test_broken_checkpoint_starts_again(data: TrainingData, tmp_path: Path) -> None:
    (tmp_path / "fine.checkpoint.safetensors").write_bytes(b"not a checkpoint")
    notes = Notes()
    assert len(train(data, tmp_path, notes, epochs=1, gamma=0.0).history) == 1
    assert "gradient_px" not in notes.lines[-1]


def test_locator_trains(data: TrainingData, tmp_path: Path) -> None:
    trained = train_locator(data, Schedule(2, batch=8, workers=0), TrainingRun(tmp_path, "cpu", Notes()), seed=0)
    assert trained.history[1]["loss"] < trained.history[0]["loss"]
    assert {"found_first", "above_empty"} <= set(trained.history[0])


def test_learning_rate_rises_and_falls() -> None:
    factors = [learning_rate_factor(f) for f in np.linspace(0, 1, 50)]
    assert factors[0] < 0.1
    assert max(factors) > 0.99
    assert factors[-1] < 0.02


def test_training_may_begin_with_the_features_of_a_model(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from vid2phys.risp.heads.keypoint import SIZE as FINE_SIZE
    from vid2phys.risp.training.features import Features, copy_features

    torch.manual_seed(5)
    other, network = KeypointNetwork(5, **FINE_SIZE), KeypointNetwork(8, **FINE_SIZE)
    save_file({k: v.contiguous() for k, v in other.state_dict().items()}, tmp_path / "fine.safetensors")
    head = network.head.weight.clone()
    features = Features.load(tmp_path)
    copy_features(features.fine, network)
    assert torch.equal(network.pyramid.stem.weight, other.pyramid.stem.weight)
    assert torch.equal(network.head.weight, head)
    assert not features.coarse


def test_folder_without_weights_holds_no_features(tmp_path: Path) -> None:
    from vid2phys.risp.training.features import Features

    with pytest.raises(InputError, match="holds no features; expected a model folder; give one, or --start none"):
        Features.load(tmp_path)
    (tmp_path / "fine.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="is not a safetensors file"):
        Features.load(tmp_path)
