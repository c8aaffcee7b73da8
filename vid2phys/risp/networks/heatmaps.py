"""Heat maps (Tompson et al., NeurIPS 2014): Gaussian targets, and points decoded as the centroid around the peak.

Coordinates are pixels of the virtual camera's image, centres at integers. A map of h x w cells belongs to an image of
4h x 4w pixels.

Limits: a map with two peaks of equal height decodes to one of them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from vid2phys.risp.networks.network import STRIDE, cell_to_pixel, pixel_to_cell

TARGET_SIGMA_CELLS = 0.9
WINDOW_CELLS = 2  # half width of the window around the peak in which the centroid is taken
_BLOB_SIGMA_CELLS = (2.5, 2.0, 1.5, 1.2)  # one per round
_NO_BLOB = 0.02  # weight of probability that no point explains
_LEAST_MASS = 0.02


def log_probabilities(logits: Tensor) -> Tensor:
    """Return the log-softmax over the cells of each map, [..., h, w] -> [..., h, w]."""
    return functional.log_softmax(logits.flatten(-2), dim=-1).reshape(logits.shape)


def separable_target(points_px: Tensor, cells: int, sigma_cells: float = TARGET_SIGMA_CELLS) -> tuple[Tensor, Tensor]:
    """Return normalised 1-D Gaussians along x and y for points [..., 2] px, each [..., cells].

    Their outer product is the target distribution. The factors are separate, since targets of all permutations are
    compared.
    """
    grid = torch.arange(cells, dtype=points_px.dtype, device=points_px.device)
    distance = grid - pixel_to_cell(points_px)[..., None]
    weights = torch.softmax(-0.5 * (distance / sigma_cells) ** 2, dim=-1)
    return weights[..., 0, :], weights[..., 1, :]


def cross_entropy(log_prob: Tensor, points_px: Tensor) -> Tensor:
    """Return the cross-entropy of each map with each point, [B, K, h, w] and [B, N, 2] px -> [B, K, N] nats.

    All pairs are computed at once, so that any permutation of targets is a gather.
    """
    x, y = separable_target(points_px, log_prob.shape[-1])
    rows = torch.einsum("bkyx,bnx->bkny", log_prob, x)
    return -torch.einsum("bkny,bny->bkn", rows, y)


def decode(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decode maps [B, K, h, w] of logits to points: the centroid of the 5x5 cells around the peak.

    Returns:
        Points [B, K, 2] px; their second moments [B, K, 2, 2] px^2 in the window, which include the target's width; and
        the probability [B, K] of the window. All are differentiable except for the choice of the window.
    """
    height, width = logits.shape[-2:]
    flat = logits.flatten(-2)
    best = flat.argmax(-1)
    offsets = torch.arange(-WINDOW_CELLS, WINDOW_CELLS + 1, device=logits.device)
    rows = (best // width)[..., None] + offsets
    columns = (best % width)[..., None] + offsets
    inside = ((rows >= 0) & (rows < height))[..., :, None] & ((columns >= 0) & (columns < width))[..., None, :]
    index = rows.clamp(0, height - 1)[..., :, None] * width + columns.clamp(0, width - 1)[..., None, :]
    window = flat.gather(-1, index.flatten(-2)).masked_fill(~inside.flatten(-2), float("-inf"))
    weights = torch.softmax(window, dim=-1)
    mass = (torch.logsumexp(window, -1) - torch.logsumexp(flat, -1)).exp()
    grid_x = columns.clamp(0, width - 1)[..., None, :].expand(index.shape).flatten(-2).to(logits.dtype)
    grid_y = rows.clamp(0, height - 1)[..., :, None].expand(index.shape).flatten(-2).to(logits.dtype)
    cells = torch.stack([grid_x, grid_y], dim=-1)
    mean = (weights[..., None] * cells).sum(-2)
    centred = cell_to_pixel(cells) - cell_to_pixel(mean)[..., None, :]
    moment = torch.einsum("bkn,bkni,bknj->bkij", weights, centred, centred)
    return cell_to_pixel(mean), moment, mass


def decode_near(logits: Tensor, orbit: Tensor, places_px: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decode points that are expected near given places, whatever their labels in the maps.

    Between two labellings of a symmetric body each map has two peaks, while the sum of the maps of an orbit has each
    peak once. Expectation maximisation (Dempster, Laird and Rubin 1977) fits that sum as a mixture of blobs. They
    start at the places and narrow down.

    Args:
        logits: [B, K, h, w].
        orbit: [K] int64 number of the orbit of each point under the symmetry.
        places_px: [B, K, 2] expected places.

    Returns:
        As `decode`; the probability is that of the blob.
    """
    probability = log_probabilities(logits).exp()
    height, width = logits.shape[-2:]
    pooled = torch.zeros_like(probability).index_add_(1, orbit, probability)[:, orbit]
    grid_x, grid_y = torch.arange(width, dtype=logits.dtype), torch.arange(height, dtype=logits.dtype)
    mean = pixel_to_cell(places_px.to(logits.dtype))
    for sigma in _BLOB_SIGMA_CELLS:
        along_x = (-0.5 * ((grid_x - mean[..., :1]) / sigma) ** 2).exp()
        along_y = (-0.5 * ((grid_y - mean[..., 1:]) / sigma) ** 2).exp()
        blobs = along_y[..., :, None] * along_x[..., None, :]
        rivals = torch.zeros_like(blobs).index_add_(1, orbit, blobs)[:, orbit]
        share = blobs / (rivals + _NO_BLOB) * pooled
        mass = share.sum((-1, -2))
        found = torch.stack([(share.sum(-2) * grid_x).sum(-1), (share.sum(-1) * grid_y).sum(-1)], dim=-1)
        mean = torch.where(mass[..., None] > _LEAST_MASS, found / mass[..., None].clamp(min=_LEAST_MASS), mean)
    x, y = STRIDE * (grid_x - mean[..., :1]), STRIDE * (grid_y - mean[..., 1:])
    weights = share / mass.clamp(min=_LEAST_MASS)[..., None, None]
    across = torch.einsum("bkyx,bky,bkx->bk", weights, y, x)
    spread_x, spread_y = (torch.einsum(f"bkyx,bk{axis}->bk", weights, d**2) for axis, d in (("x", x), ("y", y)))
    moment = torch.stack([torch.stack([spread_x, across], -1), torch.stack([across, spread_y], -1)], -2)
    return cell_to_pixel(mean), moment, mass.clamp(max=1.0)


def sample_log_probability(log_prob: Tensor, points_px: Tensor) -> Tensor:
    """Return bilinear log-probabilities at points, [B, h, w] and [B, N, 2] px -> [B, N] nats."""
    height, width = log_prob.shape[-2:]
    cells = pixel_to_cell(points_px)
    scale = torch.tensor([2.0 / (width - 1), 2.0 / (height - 1)], dtype=cells.dtype, device=cells.device)
    grid = (cells * scale - 1.0)[:, None]
    return functional.grid_sample(log_prob[:, None], grid, align_corners=True, padding_mode="border")[:, 0, 0]
