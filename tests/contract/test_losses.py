"""What every loss has to keep; a new file in solvers/losses is tested unasked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.filmed import Filmed, film
from vid2phys.engine.points import manifold_gradient
from vid2phys.errors import InputError, UsageError
from vid2phys.solvers import losses
from vid2phys.solvers.losses import Evidence, Loss

NAMES = losses.available()
BODIES = ("pendulum", "quadrotor", "rigid_contact")
STEP = 2e-8  # of differences: networks have kinks nearly everywhere
OFF = 0.02  # how far from the truth derivatives are taken, in tangents


@pytest.fixture(scope="module", params=BODIES)
def filmed(request: pytest.FixtureRequest) -> Filmed:
    return film(request.param)


@pytest.fixture(params=NAMES)
def loss(request: pytest.FixtureRequest, filmed: Filmed) -> Loss:
    return losses.get(request.param, filmed.problem, filmed.evidence)


def value(loss: Loss, states: np.ndarray) -> float:
    return float(loss.value(torch.from_numpy(states)))


def aside(filmed: Filmed, seed: int) -> np.ndarray:
    tangent = np.random.default_rng(seed).normal(size=(len(filmed.states), len(filmed.problem.system.tangent_names)))
    return filmed.problem.system.retract(filmed.states, OFF * tangent)


def test_the_gradient_is_that_of_differences(loss: Loss, filmed: Filmed) -> None:
    system, states = filmed.problem.system, aside(filmed, 1)
    tensor = torch.from_numpy(states).requires_grad_()
    gradient = torch.autograd.grad(loss.value(tensor), tensor)[0].numpy()
    tangent = manifold_gradient(system, states, gradient)
    rng = np.random.default_rng(2)
    for _ in range(3):
        along = rng.normal(size=tangent.shape)

        def moved(step: float, along: np.ndarray = along) -> float:
            return value(loss, system.retract(states, step * along))

        numeric = (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
        size = np.linalg.norm(tangent) * np.linalg.norm(along)
        assert abs((tangent * along).sum() - numeric) < 1e-5 * size
    assert np.linalg.norm(tangent) > 0.0


def test_the_truth_is_zero_and_everything_else_more(loss: Loss, filmed: Filmed) -> None:
    assert value(loss, filmed.states) == pytest.approx(0.0, abs=1e-12)
    far = value(loss, aside(filmed, 3))
    assert far > 1e-9
    near = filmed.problem.system.retract(
        filmed.states, 0.3 * filmed.problem.system.local(filmed.states, aside(filmed, 3))
    )
    assert 0.0 < value(loss, near) < far
    tensor = torch.from_numpy(filmed.states).requires_grad_()
    slope = torch.autograd.grad(loss.value(tensor), tensor)[0]
    off = torch.from_numpy(aside(filmed, 3)).requires_grad_()
    assert float(slope.norm()) < 1e-6 * float(torch.autograd.grad(loss.value(off), off)[0].norm())


def test_residuals_make_the_value(loss: Loss, filmed: Filmed) -> None:
    states = torch.from_numpy(aside(filmed, 4))
    residuals = loss.residuals(states)
    assert (residuals.numel() > 0) == loss.has_residuals
    if loss.has_residuals:
        assert float(0.5 * residuals.square().sum()) == pytest.approx(float(loss.value(states)))
        assert loss.variance(residuals.numpy()) >= 1.0
        assert loss.variance(np.zeros(10)) == 1.0


def test_what_is_needed_is_asked_for_before_anything_is_computed(loss: Loss, filmed: Filmed) -> None:
    for need in loss.needs:
        with pytest.raises(UsageError, match=f"'{loss.name}' without .*{need}"):
            losses.get(loss.name, filmed.problem, replace(filmed.evidence, **{need: None}))
    if not loss.needs:
        losses.get(loss.name, filmed.problem)


def test_a_body_out_of_sight_is_named(loss: Loss, filmed: Filmed) -> None:
    if "scene" not in loss.needs or filmed.problem.system.name == "pendulum":
        return
    away = filmed.states.copy()
    away[:, :3] += 5.0
    with pytest.raises(InputError, match="in none of the 3 views"):
        loss.check(torch.from_numpy(away))
    loss.check(torch.from_numpy(filmed.states))


def test_views_of_another_size_are_refused() -> None:
    small = film("pendulum", view_px=32)
    reader = film("pendulum").evidence.reader
    for name in NAMES:
        if "reader" in losses.kind(name).needs:
            with pytest.raises(InputError, match="32 x 32 px; expected 48 x 48"):
                losses.get(name, small.problem, replace(small.evidence, reader=reader))


def test_an_unknown_loss_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match="unknown loss 'gradsim'; expected one of keypoint, perceptual, pixel, risp_"):
        losses.get("gradsim", film("pendulum").problem, Evidence())


def test_frames_of_wrong_number_are_named() -> None:
    filmed = film("pendulum")
    short = replace(filmed.evidence, states=filmed.states[:2], std=np.ones((2, 2)))
    with pytest.raises(InputError, match="give a state for every frame"):
        losses.get("state", filmed.problem, short)
    views = vars(filmed.evidence.scene.views)
    with pytest.raises(InputError, match=r"images of shape \[3, 48, 40, 3\]"):
        type(filmed.evidence.scene.views)(**{**views, "images": views["images"][:, :, :40]})
