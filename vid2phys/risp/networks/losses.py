"""Losses of the networks.

The keypoint loss is the cross-entropy of heat maps with Gaussian targets, plus the error in pixels of the decoded
points. Of the body's symmetry elements the best one counts, for a whole image and not for each point. The locator has a
focal loss. Terms that make networks invariant to rendering parameters are in `penalties`.

Limits: the weights of the terms are constants of the heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.network import pixel_to_cell

_ERROR_LIMIT_PX = 8.0  # the cross-entropy corrects points at wrong peaks
_SMOOTH_PX = 0.3


@dataclass(frozen=True)
class Targets:
    """The truth of a batch of images.

    Attributes:
        points_px: [B, K, 2] keypoints.
        visible: [B, K] bool.
        permutation: [G, K] symmetry group of the points (`shape.symmetry`).
        front: Index of the keypoint whose true place the front map learns; None for an exact group.
    """

    points_px: Tensor
    visible: Tensor
    permutation: Tensor
    front: int | None


@dataclass(frozen=True)
class KeypointLoss:
    """Terms of the loss: heat-map cross-entropies [nats] and decoded error [px], means over the batch."""

    cross_entropy: Tensor
    front: Tensor
    error_px: Tensor

    def total(self, *, front_weight: float, error_weight: float) -> Tensor:
        """Return the weighted sum of the terms."""
        return self.cross_entropy + front_weight * self.front + error_weight * self.error_px


def group_cross_entropy(log_prob: Tensor, targets: Targets) -> Tensor:
    """Return the mean cross-entropy over visible points under each symmetry element, [B, K, h, w] -> [B, G] nats.

    Element g says that map k shows point permutation[g, k].
    """
    pairs = heatmaps.cross_entropy(log_prob, targets.points_px)  # [B, K maps, K points]
    maps = torch.arange(pairs.shape[1], device=pairs.device).expand_as(targets.permutation)
    chosen = pairs[:, maps, targets.permutation]
    weight = targets.visible[:, targets.permutation].to(chosen.dtype)
    return (chosen * weight).sum(-1) / weight.sum(-1).clamp(min=1.0)


def best_targets(log_prob: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best symmetry element of each image: cross-entropy [B], points [B, K, 2] px, visible [B, K]."""
    value, element = group_cross_entropy(log_prob, targets).min(-1)
    order = targets.permutation[element]
    points = targets.points_px.gather(1, order[..., None].expand(-1, -1, 2))
    return value, points, targets.visible.gather(1, order)


def decoded_error_px(logits: Tensor, points_px: Tensor, visible: Tensor) -> Tensor:
    """Return the mean distance [B] of decoded points from their places, px, smooth at 0 and bounded."""
    decoded, _, _ = heatmaps.decode(logits)
    squared = (decoded - points_px).square().sum(-1)
    distance = (squared + _SMOOTH_PX**2).sqrt() - _SMOOTH_PX
    weight = (visible & (squared < _ERROR_LIMIT_PX**2)).to(distance.dtype)
    return (distance * weight).sum(-1) / visible.sum(-1).clamp(min=1)


def keypoint_loss(output: Tensor, targets: Targets) -> KeypointLoss:
    """Return the loss of a network's output [B, K + 1, h, w].

    The target of an image without visible points is the uniform distribution.
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
    """Return the cross-entropy of the front map [B, 1, h, w] with the front point, mean over images that show it.

    absent: [B], images without the body. uniform: [B], cross-entropy of the map with the uniform distribution.
    """
    if targets.front is None:
        return log_prob.new_zeros(())
    point = targets.points_px[:, targets.front : targets.front + 1]
    front = torch.where(absent, uniform, heatmaps.cross_entropy(log_prob, point)[:, 0, 0])
    seen = (targets.visible[:, targets.front] | absent).to(front.dtype)
    return (front * seen).sum() / seen.sum().clamp(min=1.0)


def locator_targets(center_px: Tensor, diameter_px: Tensor, present: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """Return the centre target [B, h, w] in 0..1, 1 at the centre's cell, and where size is learnt, bool [B, h, w]."""
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
    """Return the focal loss of centres (Zhou, Wang, Kraehenbuehl 2019, eq. 1) plus the L1 error of log diameters.

    Args:
        output: [B, 2, h, w] of `LocatorNetwork`.
        center_px: [B, 2].
        diameter_px: [B].
        present: [B], 0 for an image without a body.
        reference_px: `LocatorNetwork.REFERENCE_PX`.
    """
    heat, near = locator_targets(center_px, diameter_px, present, output.shape[-1])
    score = output[:, 0].sigmoid().clamp(1e-4, 1 - 1e-4)
    found = -((1 - score) ** 2) * functional.logsigmoid(output[:, 0]) * heat.eq(1)
    empty = -(score**2) * functional.logsigmoid(-output[:, 0]) * (1 - heat) ** 4 * heat.lt(1)
    log_size = torch.log(diameter_px / reference_px)[:, None, None]
    size = (output[:, 1] - log_size).abs() * near
    count = present.sum().clamp(min=1.0)
    return (found + empty).sum() / count + size.sum() / near.sum().clamp(min=1.0)
