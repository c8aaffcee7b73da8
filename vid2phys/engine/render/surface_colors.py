"""Colours that vary over faces, for the differentiable rasteriser: of vertices, or by a mesh's texture.

Limits: a texture is averaged over one length for all images, so distant bodies flicker or near ones blur.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vid2phys.engine.render.differentiable import FragmentColors, Fragments
from vid2phys.io.texture import linear_images, texel_sizes
from vid2phys.types import Mesh


def interpolated(colors: Tensor, faces: NDArray[np.int64]) -> FragmentColors:
    """Return the linear light of vertices, [V, C] for all images or [B, V, C], interpolated over faces [F, 3]."""
    corners = torch.from_numpy(np.asarray(faces, dtype=np.int64))

    def colors_of(fragments: Fragments) -> Tensor:
        vertex = corners.to(colors.device)[fragments.face]
        values = colors[vertex] if colors.dim() == 2 else colors[fragments.image[:, None], vertex]
        return (fragments.weights[..., None] * values).sum(1)

    return colors_of


def textured(mesh: Mesh, texel_m: float = 0.0) -> FragmentColors:
    """Return the linear light [n, 3] of a mesh's texture, bilinear between texels.

    texel_m: length over which its images are averaged first (0: as they are). About a pixel's, or colours flicker.
    """
    texture = mesh.texture
    assert texture is not None
    images = linear_images(texture, texel_sizes(mesh), texel_m)
    heights, widths = (torch.tensor([image.shape[i] for image in images]) for i in (0, 1))
    first = torch.cumsum(heights * widths, 0) - heights * widths
    texels = torch.from_numpy(np.concatenate([np.asarray(image, float).reshape(-1, 3) for image in images]))
    shown, uv, tint = (torch.from_numpy(a) for a in (texture.image, texture.uv, texture.corner_color))

    def colors_of(fragments: Fragments) -> Tensor:
        image, weights = shown[fragments.face], fragments.weights[..., None]
        width, height, begin = widths[image], heights[image], first[image]
        place = (weights * uv[fragments.face]).sum(1)
        x, y = place[:, 0] * width - 0.5, (1.0 - place[:, 1]) * height - 0.5
        left, top = x.detach().floor(), y.detach().floor()
        fx, fy = (x - left)[:, None], (y - top)[:, None]

        def texel(right: int, down: int) -> Tensor:
            row, column = (top.long() + down) % height, (left.long() + right) % width
            return texels[begin + row * width + column]

        upper = (1.0 - fx) * texel(0, 0) + fx * texel(1, 0)
        lower = (1.0 - fx) * texel(0, 1) + fx * texel(1, 1)
        return ((1.0 - fy) * upper + fy * lower) * (weights * tint[fragments.face]).sum(1)

    return colors_of
