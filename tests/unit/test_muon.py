"""Steps of Muon: even in all directions of a layer's weights, Adam's for the rest."""

from __future__ import annotations

import torch
from torch import nn

from vid2phys.risp.training.muon import RATE, Muon, orthogonal


def test_singular_values_come_to_about_one_and_directions_stay() -> None:
    torch.manual_seed(0)
    for shape in ((6, 40), (40, 6)):
        left, sizes, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
        given = left @ torch.diag(torch.tensor([10.0, 5.0, 2.0, 1.0, 0.5, 0.2])) @ right
        inside = left.mT @ orthogonal(given) @ right.mT
        assert len(sizes) == 6
        assert ((torch.diagonal(inside) > 0.6) & (torch.diagonal(inside) < 1.3)).all()
        assert (inside - torch.diag(torch.diagonal(inside))).abs().max() < 1e-5


def test_weights_move_evenly_and_biases_as_adam_moves_them() -> None:
    torch.manual_seed(1)
    layer = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = layer.weight.detach().clone()
    beside = nn.Parameter(layer.bias.detach().clone())  # type: ignore[union-attr]
    optimizer = Muon(layer.parameters(), lr=1e-2, weight_decay=1e-3)
    adam = torch.optim.AdamW([beside], lr=1e-2, weight_decay=1e-3)
    layer(torch.randn(2, 3, 5, 5)).square().sum().backward()
    beside.grad = layer.bias.grad.clone()  # type: ignore[union-attr]
    optimizer.step()
    adam.step()
    step = (before * (1.0 - RATE * 1e-2 * 1e-3) - layer.weight.detach()).flatten(1) / (RATE * 1e-2)
    sizes = torch.linalg.svdvals(step)
    assert ((sizes > 0.6) & (sizes < 1.3)).all()
    assert torch.equal(layer.bias, beside)


def test_a_state_that_was_kept_goes_on() -> None:
    def steps(optimizer: Muon, weight: nn.Parameter, count: int) -> None:
        for index in range(count):
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(index))
            optimizer.step()

    ways = []
    for kept in (False, True):
        weight = nn.Parameter(torch.ones(4, 3, 1, 1))
        optimizer = Muon([weight], lr=1e-2, weight_decay=0.0)
        steps(optimizer, weight, 2)
        if kept:
            state = optimizer.state_dict()
            optimizer = Muon([weight], lr=1e-2, weight_decay=0.0)
            optimizer.load_state_dict(state)
        steps(optimizer, weight, 2)
        ways.append(weight.detach())
    assert torch.equal(*ways)
