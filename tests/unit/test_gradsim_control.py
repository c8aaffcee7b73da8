"""gradSim's control experiments on small bodies: gradients through images against differences, goals that are met."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.gradsim import goals
from experiments.gradsim import reach as reaching
from experiments.gradsim.controller import SineNetwork
from experiments.gradsim.goals import Control, enlarged
from experiments.gradsim.reach import Task, descended, reach, steps_to_goal
from experiments.gradsim_cloth import task as cloth_task
from experiments.gradsim_walker import Gait
from experiments.gradsim_walker import task as walker_task
from experiments.table import Setting
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.systems.walker import Walker
from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array


@pytest.fixture(scope="module")
def walking() -> Task:
    """A coarse walker, a third of a second."""
    return walker_task(Walker(), Gait(seconds=0.3, frequency_hz=3.0, activation=0.2), size_px=32)


@pytest.fixture(scope="module")
def throwing() -> Task:
    """A sheet of 18 triangles."""
    return cloth_task(3, 3, seed=0, size_px=32, substeps=4)


def test_controller_is_one_layer_and_a_tanh() -> None:
    network, rng = SineNetwork(count=3, limit=0.4, frequency_hz=1.5), np.random.default_rng(0)
    weights, times = rng.normal(size=(2, network.size)), np.array([0.0, 0.13, 0.7])
    got = network.activations(torch.from_numpy(weights), times)
    assert got.shape == (2, 3, 3)
    for b in range(2):
        for s, t in enumerate(times):
            for m in range(3):
                signals = [np.sin(2.0 * np.pi * (1.5 * t + k / 8.0)) for k in range(8)]
                total = sum(weights[b, 8 * m + k] * signals[k] for k in range(8)) + weights[b, 24 + m]
                assert float(got[b, s, m]) == pytest.approx(0.4 * np.tanh(total), abs=1e-14)


def test_controller_never_leaves_its_range_and_a_range_that_takes_all_size_is_refused() -> None:
    huge = 1e6 * torch.ones((1, SineNetwork(2, 0.3, 1.0).size), dtype=torch.float64)
    assert float(SineNetwork(2, 0.3, 1.0).activations(huge, np.linspace(0.0, 1.0, 9)).abs().max()) <= 0.3
    for limit in (0.0, 1.0, -0.2):
        with pytest.raises(UsageError, match="less than 1"):
            SineNetwork(2, limit, 1.0)


def test_an_activation_outside_its_range_is_an_error(walking: Task) -> None:
    controls = walking.shot.rest.clone()
    controls[0, 3] = 1.5
    with pytest.raises(UsageError, match=r"activation_3 of 1.5.*-1 to 1"):
        walking.shot.states(torch.from_numpy(walking.body.rest_state()), controls, torch.from_numpy(walking.parameters))


@pytest.mark.parametrize("body", ["walking", "throwing"])
@pytest.mark.parametrize("method", ["pixel", "diffphysics"])
def test_gradients_by_unknowns_agree_with_differences(body: str, method: str, request: pytest.FixtureRequest) -> None:
    """Through controller, physics and images, in double precision."""
    task: Task = request.getfixturevalue(body)
    rng, loss = np.random.default_rng(1), task.loss(method)
    at = task.drawn(rng)
    along = rng.normal(size=at.shape)
    unknowns = torch.from_numpy(at[None].copy()).requires_grad_()
    slope = torch.autograd.grad(loss(task.states(unknowns)[0]), unknowns)[0][0].numpy()
    step = 1e-6
    ends = task.states(torch.from_numpy(np.stack([at + step * along, at - step * along])))
    numeric = (float(loss(ends[0])) - float(loss(ends[1]))) / (2.0 * step)
    assert abs(numeric) > 1e-6
    assert float(slope @ along) == pytest.approx(numeric, rel=1e-4)


def test_a_sheet_is_thrown_to_where_the_image_shows_it(throwing: Task) -> None:
    start = throwing.begin(np.random.default_rng(2))
    found = reach(throwing, "pixel", start, 8, np.random.default_rng(0), lengths=4)
    first, last = found.curve[0], found.curve[-1]
    assert last["overlap"] > 0.85
    assert last["overlap"] > first["overlap"] + 0.1
    assert last["image_error"] < 0.35 * first["image_error"]
    errors = [each["image_error"] for each in found.curve]
    assert errors == sorted(errors, reverse=True)


def test_told_the_middle_it_meets_the_middle_and_not_the_image(throwing: Task) -> None:
    start = throwing.begin(np.random.default_rng(2))
    told = reach(throwing, "diffphysics", start, 3, np.random.default_rng(0), lengths=4).curve[-1]
    assert told["middle_m"] < 0.02
    assert told["vertices_m"] > 0.05


def test_random_keeps_the_best_of_as_many_rollouts(throwing: Task) -> None:
    start = throwing.drawn(np.random.default_rng(2))[None]
    curve = reach(throwing, "random", start, 3, np.random.default_rng(0), lengths=2).curve
    assert [each["rollouts"] for each in curve] == [1, 4, 7, 10]
    errors = [each["image_error"] for each in curve]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]


def _elsewhere(task: Task, metres: float) -> Task:
    """The same with its goal so far to the right."""
    count = task.body.rest_m.size
    goal = task.goal.copy()
    goal[:count:3] += metres
    return replace(task, goal=goal)


def test_a_goal_that_the_body_never_overlaps_is_refused(walking: Task) -> None:
    away = _elsewhere(walking, 1.7)  # walker and goal are 1.5 m wide, both in the image
    with pytest.raises(InputError, match="no gradient"):
        reach(away, "pixel", np.zeros((1, len(walking.drawn(np.random.default_rng(0))))), 1, np.random.default_rng(0))


def test_out_of_the_image_is_no_way_to_the_goal(walking: Task) -> None:
    gone = torch.from_numpy(_elsewhere(walking, 50.0).goal[None])
    aside = torch.from_numpy(_elsewhere(walking, 1.4).goal[None])
    assert walking.measured(gone)["image_error"] < walking.measured(aside)["image_error"]
    assert float(walking.seen_error(gone)) == np.inf


def test_a_loss_without_gradient_ends_the_descent() -> None:
    class Still:
        """A motion that nothing moves."""

        def states(self, unknowns: torch.Tensor) -> torch.Tensor:
            return 0.0 * unknowns[:, None] + 1.0

        def loss(self, method: str) -> goals.Any:
            return lambda states: states.square().mean()

        def measured(self, states: torch.Tensor) -> dict[str, float]:
            return {"image_error": 1.0}

        def drawn(self, rng: np.random.Generator) -> Array:
            return np.zeros(2)

    found = descended(Still(), "pixel", np.ones(2), 5)
    assert found.ended == "the loss has no gradient"
    assert len(found.curve) == 1


def test_a_start_is_the_best_of_a_few(throwing: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "TRIES", 3)
    rng = np.random.default_rng(4)
    drawn = np.stack([throwing.drawn(rng) for _ in range(6)])
    errors = [throwing.measured(each)["image_error"] for each in throwing.states(torch.from_numpy(drawn))]
    np.testing.assert_array_equal(throwing.begin(np.random.default_rng(4), 2), drawn[np.argsort(errors)[:2]])


def test_of_several_starts_the_one_that_comes_nearest_counts(throwing: Task) -> None:
    starts = throwing.begin(np.random.default_rng(2), 2)
    one, other, both = (
        reach(throwing, "pixel", each, 2, np.random.default_rng(0), lengths=4)
        for each in (starts[:1], starts[1:], starts)
    )
    assert both.curve[-1]["image_error"] == min(each.curve[-1]["image_error"] for each in (one, other))


def test_steps_to_goal_are_those_until_the_middle_is_near() -> None:
    curve = [{"middle_m": value} for value in (0.5, 0.09, 0.049, 0.2)]
    assert steps_to_goal(curve, 1.0) == 2
    assert steps_to_goal(curve, 0.1) is None


def test_a_larger_camera_sees_the_same(walking: Task) -> None:
    goal = torch.from_numpy(walking.goal[None])
    small, large = walking.shot.stage.coverage(goal), enlarged(walking, 3).shot.stage.coverage(goal)
    means = large.reshape(1, 32, 3, 32, 3).mean(dim=(2, 4))
    torch.testing.assert_close(means, small, atol=1e-9, rtol=0.0)


def test_a_table_goes_on_where_it_was_interrupted(
    throwing: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control("gradsim-cloth", "cloth", lambda index: throwing, 1, 1.0, 1, (), {}, lengths=2)
    setting = Setting(True, tmp_path / "out", tmp_path / "work", TrainingProgress(quiet=True), methods=("pixel",))
    table = control.table(setting)
    assert any("diffphysics (0 of 1)" in note for note in table.notes)
    files = table.write(setting)
    assert {file.suffix for file in files} == {".json", ".md", ".png", ".mp4"}
    assert all(file.stat().st_size < 300_000 for file in files)
    document = json.loads(files[0].read_text())
    assert document["schema"] == "vid2phys.table/1"
    assert document["quick"] is True

    def again(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(goals, "reach", again)
    assert control.table(setting).rows == table.rows
