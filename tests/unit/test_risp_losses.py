from __future__ import annotations

import numpy as np
import torch

from tests.unit.risp_synthetic import square_body
from vid2phys.risp.networks import heatmaps, losses
from vid2phys.risp.networks.mesh_shape import body_with_front
from vid2phys.risp.networks.network import KeypointNetwork, LocatorNetwork, cell_to_pixel, pixel_to_cell, to_input
from vid2phys.risp.recipes import gamma_at


def logits_at(points_px: torch.Tensor, cells: int = 24) -> torch.Tensor:
    x, y = heatmaps.separable_target(points_px, cells)
    return (y[..., :, None] * x[..., None, :]).clamp(min=1e-12).log()


def random_points(batch: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(14, 82, (batch, 8, 2)))


def targets(points: torch.Tensor) -> losses.Targets:
    body = square_body()
    visible = torch.ones(points.shape[:2], dtype=torch.bool)
    return losses.Targets(points, visible, torch.from_numpy(body.permutation), body.front)


def test_cells_are_centred_on_their_pixels() -> None:
    assert cell_to_pixel(torch.tensor(0.0)) == 1.5  # the middle of pixels 0 1 2 3
    assert torch.allclose(pixel_to_cell(cell_to_pixel(torch.arange(24.0))), torch.arange(24.0))


def make_mirror_symmetric(network: KeypointNetwork) -> None:
    """Every kernel its own mirror image; in the stem, the two columns of each 2x2 pixels also change places."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 4 and parameter.shape[-1] == 3:
                parameter.copy_(0.5 * (parameter + parameter.flip(-1)))
        stem = network.pyramid.stem.weight
        columns = torch.arange(12) ^ 1
        stem.copy_(0.5 * (stem + stem[:, columns]))


def test_network_has_no_drift_between_image_and_map() -> None:
    """With mirror-symmetric kernels a mirrored image gives the mirrored maps: nothing shifts by half a pixel."""
    torch.manual_seed(0)
    network = KeypointNetwork(3, width=8, features=16)
    make_mirror_symmetric(network)
    x = to_input(torch.zeros(1, 96, 96, 3).uniform_(0, 255))
    with torch.no_grad():
        assert torch.allclose(network(x.flip(-1)).flip(-1), network(x), atol=1e-4)


def test_decode_reads_targets_back() -> None:
    points = random_points(4)
    decoded, moment, mass = heatmaps.decode(logits_at(points))
    assert torch.allclose(decoded, points, atol=0.15)
    assert (mass > 0.95).all()
    assert torch.allclose(moment, torch.eye(2, dtype=moment.dtype) * 12.5, atol=1.6)


def test_decode_at_the_border_stays_inside() -> None:
    decoded, _, _ = heatmaps.decode(logits_at(torch.tensor([[[0.0, 95.0], [1.5, 1.5]]])))
    assert torch.isfinite(decoded).all()
    assert ((decoded > -1) & (decoded < 96)).all()


def test_points_are_read_near_a_guess_where_labels_are_torn() -> None:
    """Four corners of one orbit; every map shows its own corner and the next one's, as much of each."""
    corners = torch.tensor([[[30.0, 30.0], [60.0, 33.0], [66.0, 62.0], [34.0, 58.0]]])
    x, y = heatmaps.separable_target(corners, 24)
    own = y[..., :, None] * x[..., None, :]
    torn = (0.5 * own + 0.5 * own.roll(1, dims=1)).clamp(min=1e-9).log()
    orbit = torch.zeros(4, dtype=torch.int64)
    points, moment, mass = heatmaps.decode_near(torn, orbit, corners + torch.tensor([[[5.0, -4.0]]]))
    np.testing.assert_allclose(points.numpy(), corners.numpy(), atol=0.5)
    assert float(mass.min()) > 0.9
    width = (heatmaps.TARGET_SIGMA_CELLS * 4.0) ** 2
    np.testing.assert_allclose(moment.diagonal(dim1=-2, dim2=-1).numpy(), width, rtol=0.2)
    turned, _, _ = heatmaps.decode_near(torn, orbit, corners.roll(1, dims=1))
    np.testing.assert_allclose(turned.numpy(), corners.roll(1, dims=1).numpy(), atol=0.5)  # the guess names the points


def test_cross_entropy_is_least_for_the_right_point() -> None:
    points = random_points(3)
    pairs = heatmaps.cross_entropy(heatmaps.log_probabilities(logits_at(points)), points)
    assert (pairs.argmin(-1) == torch.arange(8)).all()


def test_loss_is_blind_to_the_group_and_to_nothing_else() -> None:
    points = random_points(2)
    wanted = targets(points)
    straight = losses.best_targets(heatmaps.log_probabilities(logits_at(points)), wanted)[0]
    for g in range(4):
        turned = logits_at(points[:, wanted.permutation[g]])
        value, best, _ = losses.best_targets(heatmaps.log_probabilities(turned), wanted)
        assert torch.allclose(value, straight)
        assert torch.allclose(best, points[:, wanted.permutation[g]])
    swapped = logits_at(points[:, [1, 0, 2, 3, 4, 5, 6, 7]])
    assert (losses.best_targets(heatmaps.log_probabilities(swapped), wanted)[0] > straight + 0.5).all()


def test_hidden_points_do_not_count() -> None:
    points = random_points(2)
    wanted = targets(points)
    wanted.visible[:, 5] = False
    log_prob = heatmaps.log_probabilities(logits_at(points))
    before = losses.group_cross_entropy(log_prob, wanted)[:, 0]
    wanted.points_px[:, 5] += 30.0
    assert torch.allclose(losses.group_cross_entropy(log_prob, wanted)[:, 0], before)


def test_a_image_without_the_body_wants_flat_maps() -> None:
    points = random_points(2)
    wanted = targets(points)
    wanted.visible[1] = False
    sharp = torch.cat([logits_at(points), logits_at(points)[:, wanted.front : wanted.front + 1]], dim=1)
    flat = sharp.clone()
    flat[1] = 0.0
    assert losses.keypoint_loss(flat, wanted).cross_entropy < losses.keypoint_loss(sharp, wanted).cross_entropy - 1.0
    assert losses.keypoint_loss(flat, wanted).front < losses.keypoint_loss(sharp, wanted).front - 1.0


def test_gamma_rises_after_the_first_third() -> None:
    assert gamma_at(0.0, 2.0) == gamma_at(1 / 3, 2.0) == 0.0
    assert np.isclose(gamma_at(2 / 3, 2.0), 1.0)
    assert np.isclose(gamma_at(1.0, 2.0), 2.0)


def test_front_is_off_the_axis_towards_the_nose() -> None:
    body = square_body()
    assert np.allclose(body.points[body.front], [0.045, 0.0, 0.03])  # nearer the axis than others, but straight ahead
    assert len(body.points) == 8
    points, alone = np.array([[0.0, 0.1, 0.0], [0.1, 0.0, 0.0]]), np.zeros((1, 2), dtype=np.int64)
    assert body_with_front(points, alone, np.eye(3)[None], points).front == 1


def test_nose_is_added_where_no_keypoint_is() -> None:
    body = square_body()
    aside, order = body.points[:4], body.permutation[:, :4]  # 13 degrees from straight ahead
    surface = np.array([[0.07, 0.001, -0.02], [0.06, 0.0, 0.0], [0.0, 0.09, 0.0]])
    known = body_with_front(aside, order, body.rotations, surface)
    assert known.points.shape == (8, 3)
    assert np.allclose(known.points[known.front], [0.07, 0.001, -0.02])
    turned = np.einsum("gij,kj->gki", known.rotations, known.points)
    assert np.allclose(turned, known.points[known.permutation])
    assert len(body_with_front(aside, order, body.rotations, surface[2:]).points) == 4


def test_locator_loss_falls_where_the_body_is() -> None:
    center, diameter = torch.tensor([[41.3, 22.0], [10.0, 50.0]]), torch.tensor([20.0, 30.0])
    present = torch.tensor([1.0, 0.0])
    heat, near = losses.locator_targets(center, diameter, present, 24)
    assert heat[0].eq(1).sum() == 1
    assert heat[1].max() == 0
    assert near[0].sum() >= 4
    good = torch.full((2, 2, 24, 24), -6.0)
    good[:, 1] = 0.0
    row, column = (int(i) for i in torch.nonzero(heat[0] == 1)[0])
    good[0, 0, row, column] = 6.0
    good[0, 1] = torch.log(diameter[0] / LocatorNetwork.REFERENCE_PX)
    bad = good.clone()
    bad[0, 0] = bad[0, 0].flip(0)
    arguments = (center, diameter, present, LocatorNetwork.REFERENCE_PX)
    assert losses.locator_loss(good, *arguments) < 0.3 < losses.locator_loss(bad, *arguments)
