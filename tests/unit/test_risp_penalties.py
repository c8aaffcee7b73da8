"""RISP's losses by the efficient way against brute force: autograd through network and renderer, in doubles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.unit.risp_synthetic import RADIUS_M, square_body
from tests.unit.test_risp_heads import poses
from vid2phys.errors import UsageError
from vid2phys.risp import heads, penalties
from vid2phys.risp.heads import Head
from vid2phys.risp.networks import losses
from vid2phys.risp.networks.network import to_input
from vid2phys.risp.penalties.full_jacobian import jacobian_penalty

VIEW, PSI, BATCH = 48, 3, 2
Scene = tuple[nn.Module, Head, dict[str, Tensor], Tensor]


def render(psi: Tensor, place_px: Tensor) -> Tensor:
    """A ball under a lamp on a plain ground, in display values: psi [..., P] are brightness, azimuth of the lamp and
    warmth. Smooth in psi; [..., V, V, 3]."""
    grid = torch.arange(VIEW, dtype=psi.dtype)
    x, y = (grid - place_px[..., :1]) / 13.0, (grid - place_px[..., 1:]) / 13.0
    x, y = x[..., None, :].expand(*x.shape[:-1], VIEW, VIEW), y[..., :, None].expand(*y.shape[:-1], VIEW, VIEW)
    cover = torch.sigmoid(8.0 * (1.0 - x**2 - y**2))
    azimuth = psi[..., 1, None, None]
    shade = torch.nn.functional.softplus(4.0 * (0.5 + x * azimuth.cos() + y * azimuth.sin()) / 4.0)
    warm = torch.tensor([1.0, 0.0, -1.0], dtype=psi.dtype)
    color = torch.exp(psi[..., :1] + psi[..., 2:3] * warm)[..., None, None, :]
    light = cover[..., None] * shade[..., None] * color + (1.0 - cover[..., None]) * 0.3
    return 255.0 * (1.0 - torch.exp(-light)) ** (1.0 / 2.2)


@pytest.fixture(params=["state@w8", "keypoint@w8"])
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A network, its head, a batch of rendered images with their derivatives, and psi."""
    monkeypatch.setattr(losses, "_ERROR_LIMIT_PX", 1e3)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    head = heads.get(request.param, square_body(), radius_m=RADIUS_M, view_size=VIEW)
    pose, camera = poses(BATCH)
    place = torch.tensor([[22.0, 25.0], [27.0, 20.0]]).double()
    psi = torch.tensor(np.random.default_rng(1).normal(0.0, 0.5, (BATCH, PSI)))
    steps = torch.eye(PSI, dtype=psi.dtype)[:, None].expand(PSI, BATCH, PSI)
    tangents = [torch.func.jvp(lambda p: render(p, place), (psi,), (step,))[1] for step in steps]
    batch = {
        "image": render(psi, place),
        "tangents": torch.stack(tangents, dim=1),
        "view_from_body": pose,
        "K": camera,
        "points_px": torch.from_numpy(np.random.default_rng(2).uniform(5, 43, (BATCH, 8, 2))),
        "visible": torch.ones(BATCH, 8, dtype=torch.bool),
        "place": place,
    }
    return head.network().double(), head, batch, psi


def brute_force(scene: Scene, value: Callable[[Tensor], Tensor]) -> Tensor:
    """|d value(network(render(psi))) / d psi| of each image, [B], with a graph: the renderer is differentiated
    twice by autograd. value: network output -> [B, S]."""
    network, _, batch, psi = scene
    psi = psi.clone().requires_grad_(True)
    numbers = value(network(to_input(render(psi, batch["place"]))))
    rows = [torch.autograd.grad(numbers[:, s].sum(), psi, create_graph=True)[0] for s in range(numbers.shape[1])]
    return (torch.stack(rows, dim=1).square().sum((1, 2)) + 1e-8).sqrt()


def weights_gradient(network: nn.Module, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    pairs = zip(found, network.parameters(), strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def assert_same(scene: Scene, fast: Tensor, slow: Tensor) -> None:
    """The same penalty, and the same gradient for the weights."""
    assert fast.item() == pytest.approx(slow.item(), rel=1e-9)
    assert slow.item() > 1e-3
    ours, theirs = (weights_gradient(scene[0], value) for value in (fast, slow))
    assert theirs.norm() > 1e-3
    assert (ours - theirs).norm() < 1e-8 * theirs.norm()


def test_error_gradient_is_that_of_brute_force(scene: Scene) -> None:
    network, head, batch, _ = scene
    error, norm = penalties.get("error-gradient")(network, head, batch, torch.Generator())
    assert_same(scene, norm, brute_force(scene, lambda output: head.error(output, batch)[:, None]).mean())
    assert error.item() == pytest.approx(head.error(network(to_input(batch["image"])), batch).mean().item())


def test_full_jacobian_is_that_of_brute_force(scene: Scene) -> None:
    network, head, batch, _ = scene
    _, norm = penalties.get("full-jacobian")(network, head, batch, torch.Generator())
    assert_same(scene, norm, brute_force(scene, head.prediction).mean())


def test_projections_are_combinations_of_the_jacobians_rows(scene: Scene) -> None:
    network, head, batch, _ = scene
    size = head.prediction(network(to_input(batch["image"]))).shape[1]
    along = torch.randn(3, BATCH, size, generator=torch.Generator().manual_seed(5)).double()
    _, norm = jacobian_penalty(network, head, batch, along)
    combined = lambda output: torch.einsum("kbs,bs->bk", along, head.prediction(output)) / 3**0.5  # noqa: E731
    assert_same(scene, norm, brute_force(scene, combined).mean())


def test_projections_are_right_on_average(scene: Scene) -> None:
    network, head, batch, _ = scene
    one = {name: value[:1] for name, value in batch.items()}
    full = penalties.get("full-jacobian")(network, head, one, torch.Generator())[1].item()
    size = head.prediction(network(to_input(one["image"]))).shape[1]
    along = torch.randn(300, 1, size, generator=torch.Generator().manual_seed(6))
    assert jacobian_penalty(network, head, one, along)[1].item() == pytest.approx(full, rel=0.1)
    drawn = [penalties.get("projected-jacobian")(network, head, one, torch.Generator().manual_seed(s))[1].item()
             for s in (0, 0, 1)]  # fmt: skip
    assert drawn[0] == drawn[1] != drawn[2]


def test_error_only_has_no_penalty(scene: Scene) -> None:
    network, head, batch, _ = scene
    error, norm = penalties.get("error-only")(network, head, batch, torch.Generator())
    assert norm == 0.0
    assert error.requires_grad


def test_losses_are_found_by_name() -> None:
    assert set(penalties.available()) >= {"error-only", "error-gradient", "full-jacobian", "projected-jacobian"}
    with pytest.raises(UsageError, match="unknown loss 'jacobian'; expected one of error-gradient, error-only"):
        penalties.get("jacobian")
