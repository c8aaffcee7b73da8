"""What the networks are trained on.

Keypoints: cross-entropy of heat maps with Gaussian targets, the minimum over the body's symmetry group of one whole
image (not of each point), plus the error in pixels of the decoded points. What makes networks blind to rendering
parameters is in `penalties/`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.network import pixel_to_cell

_ERROR_LIMIT_PX = 8.0  # a point decoded at a wrong peak is the cross-entropy's business
_SMOOTH_PX = 0.3


@dataclass(frozen=True)
class Targets:
    """What a batch of images shows.

    points_px: [B, K, 2]. visible: [B, K] bool. permutation: [G, K], the body's symmetry group on its points (see
    `shape/symmetry.py`). front: index of the keypoint whose true place the front map learns; None where the group is
    exact and there is nothing to learn.
    """

    points_px: Tensor
    visible: Tensor
    permutation: Tensor
    front: int | None


@dataclass(frozen=True)
class KeypointLoss:
    """Parts of the loss: heat-map cross-entropies [nats] and decoded error [px], means over the batch."""

    cross_entropy: Tensor
    front: Tensor
    error_px: Tensor

    def total(self, *, front_weight: float, error_weight: float) -> Tensor:
        """What is minimised (without the rendering-gradient term)."""
        return self.cross_entropy + front_weight * self.front + error_weight * self.error_px


def group_cross_entropy(log_prob: Tensor, targets: Targets) -> Tensor:
    """Mean cross-entropy over visible points under each element of the group, [B, K, h, w] -> [B, G] nats.

    Element g says that map k shows point permutation[g, k].
    """
    pairs = heatmaps.cross_entropy(log_prob, targets.points_px)  # [B, K maps, K points]
    maps = torch.arange(pairs.shape[1], device=pairs.device).expand_as(targets.permutation)
    chosen = pairs[:, maps, targets.permutation]
    weight = targets.visible[:, targets.permutation].to(chosen.dtype)
    return (chosen * weight).sum(-1) / weight.sum(-1).clamp(min=1.0)


def best_targets(log_prob: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """The group element that explains each image best: its cross-entropy [B], points [B, K, 2] px, visible [B, K]."""
    value, element = group_cross_entropy(log_prob, targets).min(-1)
    order = targets.permutation[element]
    points = targets.points_px.gather(1, order[..., None].expand(-1, -1, 2))
    return value, points, targets.visible.gather(1, order)


def decoded_error_px(logits: Tensor, points_px: Tensor, visible: Tensor) -> Tensor:
    """Mean distance of decoded points from their places in each image, px, smooth at 0 and limited: [B]."""
    decoded, _, _ = heatmaps.decode(logits)
    squared = (decoded - points_px).square().sum(-1)
    distance = (squared + _SMOOTH_PX**2).sqrt() - _SMOOTH_PX
    weight = (visible & (squared < _ERROR_LIMIT_PX**2)).to(distance.dtype)
    return (distance * weight).sum(-1) / visible.sum(-1).clamp(min=1)


def keypoint_loss(output: Tensor, targets: Targets) -> KeypointLoss:
    """Loss of a network's output [B, K + 1, h, w].

    An image in which no point is visible should say so: its maps are drawn towards the uniform distribution.
    """
    logits, log_prob = output[:, :-1], heatmaps.log_probabilities(output)
    cross_entropy, points, visible = best_targets(log_prob[:, :-1], targets)
    absent = ~targets.visible.any(dim=1)
    uniform = -log_prob.mean(dim=(-1, -2))
    cross_entropy = torch.where(absent, uniform[:, :-1].mean(dim=1), cross_entropy)
    return KeypointLoss(
        cross_entropy.mean(),
        _front_loss(log_prob[:, -1:], targets, absent, uniform[:, -1]),
        decoded_error_px(logits, points, visible).mean(),
    )


def _front_loss(log_prob: Tensor, targets: Targets, absent: Tensor, uniform: Tensor) -> Tensor:
    """Cross-entropy of the front map [B, 1, h, w] with the true place of the front point, mean over where it is seen.

    absent, uniform: [B], images without the body, and the cross-entropy of the map with nothing in particular.
    """
    if targets.front is None:
        return log_prob.new_zeros(())
    point = targets.points_px[:, targets.front : targets.front + 1]
    front = torch.where(absent, uniform, heatmaps.cross_entropy(log_prob, point)[:, 0, 0])
    seen = (targets.visible[:, targets.front] | absent).to(front.dtype)
    return (front * seen).sum() / seen.sum().clamp(min=1.0)


def locator_targets(center_px: Tensor, diameter_px: Tensor, present: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """Centre target 0..1 [B, h, w] (1 at the cell that holds the centre) and where size is learnt, bool [B, h, w]."""
    grid = torch.arange(cells, dtype=center_px.dtype, device=center_px.device)
    middle = pixel_to_cell(center_px)
    dx, dy = grid - middle[:, :1], grid - middle[:, 1:]
    squared = dy.square()[:, :, None] + dx.square()[:, None, :]
    sigma = (diameter_px / 30.0).clamp(min=0.7)[:, None, None]
    heat = torch.exp(-0.5 * squared / sigma**2) * present[:, None, None]
    holds = ((dx.abs() <= 0.5)[:, None, :] & (dy.abs() <= 0.5)[:, :, None]) & present[:, None, None].bool()
    return torch.where(holds, torch.ones_like(heat), heat.clamp(max=0.98)), squared.le(2.0) & present[
        :, None, None
    ].bool()


def locator_loss(
    output: Tensor, center_px: Tensor, diameter_px: Tensor, present: Tensor, reference_px: float
) -> Tensor:
    """Focal loss of centre logits (Zhou, Wang, Kraehenbuehl 2019, "Objects as points", eq. 1) + L1 of log diameter.

    output: [B, 2, h, w]. center_px: [B, 2]. diameter_px: [B]. present: [B], 0 where an image has no body.
    """
    heat, near = locator_targets(center_px, diameter_px, present, output.shape[-1])
    score = output[:, 0].sigmoid().clamp(1e-4, 1 - 1e-4)
    found = -((1 - score) ** 2) * functional.logsigmoid(output[:, 0]) * heat.eq(1)
    empty = -(score**2) * functional.logsigmoid(-output[:, 0]) * (1 - heat) ** 4 * heat.lt(1)
    log_size = torch.log(diameter_px / reference_px)[:, None, None]
    size = (output[:, 1] - log_size).abs() * near
    count = present.sum().clamp(min=1.0)
    return (found + empty).sum() / count + size.sum() / near.sum().clamp(min=1.0)
