"""gradSim's flat systems: discs and smoke as images, gradients through them against differences, truths recovered."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments import gradsim_pendulum
from experiments.gradsim.discs import discs
from experiments.gradsim.reach import descended
from experiments.gradsim_pendulum import descended as swung
from experiments.gradsim_pendulum import fitted, guessed, swing
from experiments.gradsim_smoke import Plume, eddies, plume

BODIES = ("pendulum", "double_pendulum")


def test_a_disc_has_its_area_and_its_middle() -> None:
    centre = torch.tensor([[19.3, 11.8]], dtype=torch.float64)
    light = discs(centre, radius_px=6.0, size_px=48, edge_px=0.8)
    row, column = torch.meshgrid(*(torch.arange(48.0, dtype=torch.float64),) * 2, indexing="ij")
    # a blurred edge of a circle is a little larger: pi (r^2 + s^2)
    assert float(light.sum()) == pytest.approx(np.pi * (36.0 + 0.64), rel=1e-3)
    assert float((light * column).sum() / light.sum()) == pytest.approx(19.3, abs=1e-3)
    assert float((light * row).sum() / light.sum()) == pytest.approx(11.8, abs=1e-3)


def test_discs_on_each_other_do_not_add_up() -> None:
    one = discs(torch.tensor([[10.0, 10.0]], dtype=torch.float64), 4.0, 20, 0.5)
    two = discs(torch.tensor([[10.0, 10.0], [10.0, 10.0]], dtype=torch.float64), 4.0, 20, 0.5)
    assert float(two.max()) <= 1.0
    torch.testing.assert_close(two, 1.0 - (1.0 - one) ** 2)


@pytest.mark.parametrize("body", BODIES)
def test_images_show_the_masses_where_the_system_has_them(body: str) -> None:
    """`System.keypoints` of the masses hanging, with lengths at their defaults, against the flat formula."""
    truth = swing(body, np.random.default_rng(0)).shortened(4)
    defaults = truth.system.parameters()
    rods = [name for name in defaults.names if name.startswith("length")]
    hanging = np.cumsum([[0.0, 0.0, -defaults[name].value] for name in rods], axis=0)
    states = np.random.default_rng(1).normal(size=(1, 4, len(truth.system.state_names)))
    expected = truth.system.keypoints(states, hanging)[..., [0, 2]]
    got = truth.centres_m(torch.from_numpy(states), torch.from_numpy(defaults.vector[None]))
    # the elbow itself belongs to the first rod, the end to the second
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("body", BODIES)
def test_gradients_of_images_by_unknowns_agree_with_differences(body: str) -> None:
    rng = np.random.default_rng(2)
    truth = swing(body, rng).shortened(6)
    target = truth.drawn(truth.centres(torch.from_numpy(truth.unknowns()[None])))
    at = guessed(truth, rng, 1)

    def loss(unknowns: torch.Tensor) -> torch.Tensor:
        return (truth.drawn(truth.centres(unknowns)) - target).square().mean()

    unknowns = torch.from_numpy(at.copy()).requires_grad_()
    slope = torch.autograd.grad(loss(unknowns), unknowns)[0].numpy()[0]
    for i in range(at.shape[1]):
        step = 1e-6 * np.eye(at.shape[1])[i]
        numeric = (float(loss(torch.from_numpy(at + step))) - float(loss(torch.from_numpy(at - step)))) / 2e-6
        assert slope[i] == pytest.approx(numeric, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("body", BODIES)
def test_ours_finds_all_unknowns_of_a_pendulum(body: str) -> None:
    rng = np.random.default_rng(3)
    truth = swing(body, rng)
    images = truth.drawn(truth.centres(torch.from_numpy(truth.unknowns()[None])))[0]
    found = fitted(truth, guessed(truth, rng, 16), images)
    np.testing.assert_allclose(found.values, truth.unknowns(), atol=1e-6)


def test_what_images_do_not_tell_has_no_end() -> None:
    widths = gradsim_pendulum._widths(np.diag([4.0, 0.0, 1.0]))
    np.testing.assert_allclose(widths, [0.98, np.inf, 1.96])


def test_gradsim_s_way_comes_near_from_images() -> None:
    rng = np.random.default_rng(4)
    truth = swing("pendulum", rng).shortened(20)
    start = guessed(truth, rng, 1)[0]
    end = swung(truth, start, places=False, parts=(8,), iterations=40)
    before, after = (np.abs(each - truth.unknowns())[0] for each in (start, end))
    assert after < 0.2 * before  # the length, which a single image nearly shows


def _small() -> Plume:
    return plume("film", np.random.default_rng(5), cells=12, steps=6)


def test_eddies_have_no_divergence() -> None:
    u, v = eddies(16, np.random.default_rng(0))
    outflow = np.roll(u, -1, axis=1) - u + np.roll(v, -1, axis=0) - v
    assert np.abs(outflow).max() < 1e-12
    assert np.sqrt(np.mean(u**2 + v**2)) > 0.1


@pytest.mark.parametrize("method", ["pixel", "diffphysics"])
def test_gradients_of_smoke_by_its_first_wind_agree_with_differences(method: str) -> None:
    task, rng = _small(), np.random.default_rng(6)
    at, loss = 0.5 * task.drawn(rng), task.loss(method)
    along = rng.normal(size=at.shape)
    unknowns = torch.from_numpy(at[None].copy()).requires_grad_()
    slope = torch.autograd.grad(loss(task.states(unknowns)[0]), unknowns)[0][0].numpy()
    step = 1e-7  # what is looked up must stay between the same lines of the grid
    ends = task.states(torch.from_numpy(np.stack([at + step * along, at - step * along])))
    numeric = (float(loss(ends[0])) - float(loss(ends[1]))) / (2.0 * step)
    assert abs(numeric) > 1e-5
    assert float(slope @ along) == pytest.approx(numeric, rel=1e-4)


def test_the_wind_that_was_drawn_is_the_wind_that_blows() -> None:
    task = _small()
    states = task.states(torch.from_numpy(task.drawn(np.random.default_rng(7))[None]))
    expected = eddies(12, np.random.default_rng(7)).ravel()
    np.testing.assert_allclose(states[0, 0, : 2 * 144].numpy(), expected, atol=1e-10)


def test_the_wind_behind_a_film_is_found() -> None:
    task = _small()
    found = descended(task, "pixel", 0.2 * task.drawn(np.random.default_rng(8)), 12)
    first, last = found.curve[0], found.curve[-1]
    assert last["image_error"] < 0.1 * first["image_error"]
    assert last["velocity_error"] < 0.75 * first["velocity_error"]
