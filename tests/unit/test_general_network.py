"""Samples and network of the trial of one network for all meshes."""

from __future__ import annotations

import numpy as np
import torch

from experiments.general_network.bodies import random_body
from experiments.general_network.network import GeneralNetwork, split, to_input
from experiments.general_network.samples import SIZE_PX, TrainingBody, draw_sample
from experiments.general_network.train import losses
from vid2phys.risp.appearance.backgrounds import make_bank


def test_random_bodies_are_of_one_size_about_the_origin() -> None:
    for seed in range(40):
        mesh = random_body(np.random.default_rng(seed))
        low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
        assert np.allclose(low, -high, atol=1e-9)
        assert np.isclose(mesh.radius_m, 1.0)
        assert mesh.faces.max() < len(mesh.vertices)


def test_a_network_learns_a_batch_of_drawn_samples() -> None:
    torch.manual_seed(0)
    bank = make_bank([], count=4, seed=1)
    sample = draw_sample(np.random.default_rng(3), TrainingBody.draw((1, 2)), bank, 6, tangent=True)
    assert sample.image.shape == (6, SIZE_PX, SIZE_PX, 3)
    assert sample.tangent is not None
    assert np.isfinite(sample.tangent).all()
    assert ((sample.agreement >= 0.0) & (sample.agreement <= 1.0)).all()
    images, drawings, masks = (torch.from_numpy(each) for each in (sample.image, sample.drawing, sample.mask))
    targets = torch.from_numpy(np.concatenate([sample.step, sample.agreement[:, None]], axis=1))
    network = GeneralNetwork()
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    total = []
    for _ in range(25):
        parts = losses(split(network(to_input(images, drawings))), masks, targets)
        loss = parts["mask"] + parts["step"] + parts["agreement"]
        total.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert np.mean(total[-5:]) < 0.7 * total[0]  # single steps go up and down
