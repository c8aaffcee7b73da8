"""Reverse mode keeps a rollout's steps, or makes them again when they are too many: the gradients are the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.differences import parameter_differences
from vid2phys.engine import autograd, systems
from vid2phys.engine.rollout import rollout
from vid2phys.types import Array


def gradients(name: str) -> list[Array]:
    system, rng = systems.get(name), np.random.default_rng(0)
    parameters = system.parameters().vector
    hover = system.hover_controls(parameters)
    controls = hover + 0.01 * rng.normal(size=(2, 4, hover.size))
    inputs = [torch.tensor(a, requires_grad=True) for a in (system.sample_state(rng, 2), controls, parameters)]
    states = rollout(system, *inputs, min(0.02, system.longest_step_s(parameters)), substeps=2)
    loss = (states * torch.tensor(rng.normal(size=states.shape))).sum()
    loss.backward(retain_graph=True)
    loss.backward()  # twice the gradient: nothing is left over from the first time
    return [i.grad.numpy() for i in inputs]


@pytest.mark.parametrize("name", systems.available())
def test_steps_kept_and_steps_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = gradients(name)
    monkeypatch.setattr(autograd, "_RECORDED_BYTES", -1)
    for a, b in zip(kept, gradients(name), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * max(np.abs(b).max(initial=0.0), 1e-300))


@pytest.mark.parametrize("name", systems.available())
def test_batched_differences_agree_with_reverse_mode(name: str) -> None:
    system, rng = systems.get(name), np.random.default_rng(1)
    known = system.parameters()
    parameters = np.where(known.vector == 0.0, 0.02, known.vector)
    hover = system.hover_controls(parameters)
    controls = hover + 1e-4 * rng.normal(size=(3, hover.size))
    start, dt_s = system.sample_state(rng, 1)[0], min(0.02, 0.5 * system.longest_step_s(parameters))
    states, found = parameter_differences(system, start, controls, parameters, dt_s, known.names, substeps=2)
    weights = rng.normal(size=len(system.tangent_names))
    seeds = system.cotangent_basis(states[-1]).T @ weights
    values = torch.tensor(parameters, requires_grad=True)
    out = rollout(system, torch.tensor(start[None]), torch.tensor(controls[None]), values, dt_s, substeps=2)
    (out[0, -1] * torch.tensor(seeds)).sum().backward()
    size = np.abs(found[-1]).max(axis=0)
    told = size * np.abs(parameters) > 1e-6  # what shows above rounding
    assert told.any()
    error = (weights @ found[-1] - values.grad.numpy())[told] / (np.abs(weights).max() * size[told])
    np.testing.assert_allclose(error, 0.0, atol=1e-5)
