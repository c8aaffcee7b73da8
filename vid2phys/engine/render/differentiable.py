"""A rasteriser with gradients: exact areas of faces in pixels, so that pictures are smooth in the vertices.

Each pixel is averaged over its square. Faces take the area that they have in it, front to back, until it is full: an
A-buffer (Carpenter, SIGGRAPH 1984) with areas in place of masks. What an area gains when an edge moves is known in
closed form, so gradients are exact where no two faces trade places in depth, silhouettes, creases and faces smaller
than a pixel included. A wider reach comes from blurring pictures, not from softer edges: these stay where they are.

Pixel centres are at integers (OpenCV). Limits: where faces pierce each other the line between them does not move with
the vertices; of two outlines in one pixel the nearer is taken to leave its free part to the other; faces that reach
behind the camera are dropped; no shadows, no texture, no lens distortion (use a virtual camera: `risp.tracking.view`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

_NEAR_M = 1e-6
_SAME = 1e-9  # of a body's size: vertices as close as this are one


def draw(
    vertices_camera: Tensor,
    faces: NDArray[np.int64],
    colors: Tensor,
    K: Tensor,
    width: int,
    height: int,
    *,
    one_sided: NDArray[np.bool_] | None = None,
) -> tuple[Tensor, Tensor]:
    """Pictures of B bodies and how much of each pixel they cover, with gradients for vertices and colours.

    vertices_camera: [B, V, 3] m in camera axes. faces: [F, 3]. colors: [B, F, C], linear light. K: [B, 3, 3] px, no
    skew. one_sided: [F] faces that are not seen from behind (`closed`; None: all are seen from both sides). Returns
    pictures [B, height, width, C], in which what is not covered is black (add (1 - coverage) times what is behind), and
    coverage [B, height, width] in 0..1. Computes in float64 on the device of the vertices.
    """
    vertices = vertices_camera.double()
    safe = torch.where(vertices[..., 2:] > _NEAR_M, vertices[..., 2:], torch.ones_like(vertices[..., 2:]))
    focal = torch.stack([K[:, 0, 0], K[:, 1, 1]], dim=-1)[:, None]
    pixels = focal * vertices[..., :2] / safe + K[:, None, :2, 2] + 0.5
    corners = torch.cat([pixels, vertices[..., 2:]], dim=-1)
    sides = np.zeros(len(faces), dtype=bool) if one_sided is None else one_sided
    picture, coverage = _Composite.apply(corners, colors.double(), faces, sides, width, height)
    return picture, coverage


def closed(vertices: NDArray[np.float64], faces: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which faces [F] belong to a closed surface and so are never seen from behind.

    vertices: [V, 3]; equal ones count as one. A surface is closed if each of its edges has two faces that run along it
    in opposite directions.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    grid = _SAME * max(float(np.ptp(vertices, axis=0).max()), 1e-30)
    _, same = np.unique(np.round(vertices / grid), axis=0, return_inverse=True)
    welded = same.reshape(-1)[faces]
    edges = np.stack([welded, np.roll(welded, -1, axis=1)], axis=-1)  # [F, 3, 2]
    count = int(welded.max(initial=0)) + 1
    forth, back = edges[..., 0] * count + edges[..., 1], edges[..., 1] * count + edges[..., 0]
    keys, times = np.unique(forth, return_counts=True)
    once = np.isin(forth, keys[times == 1]) & np.isin(back, keys[times == 1])
    links = edges.reshape(-1, 2)
    graph = coo_matrix((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(count, count))
    surface = connected_components(graph, directed=False)[1][welded[:, 0]]
    return ~np.isin(surface, surface[~once.all(axis=1)])


def normals_of(vertices: Tensor, faces: NDArray[np.int64]) -> Tensor:
    """Unit normals of faces, [B, V, 3] -> [B, F, 3]; those of faces without area are short."""
    a, b, c = (vertices[:, faces[:, k]] for k in range(3))
    normals = torch.linalg.cross(b - a, c - a)
    return normals / normals.norm(dim=-1, keepdim=True).clamp(min=1e-30)


class _Composite(torch.autograd.Function):
    """Corners [B, V, 3] (x, y in pixels from the picture's corner, z in m) and colours [B, F, C] to the pictures."""

    @staticmethod
    def forward(
        ctx: Any,
        corners: Tensor,
        colors: Tensor,
        faces: NDArray[np.int64],
        one_sided: NDArray[np.bool_],
        width: int,
        height: int,
    ) -> tuple[Tensor, Tensor]:
        from vid2phys.engine.kernels import coverage as kernels

        wp, batch = kernels.wp, len(corners)
        device = wp.device_from_torch(corners.device)
        triangles: Any = wp.array(np.asarray(faces, dtype=np.int32), dtype=wp.vec3i, device=device)
        sides: Any = wp.array(np.asarray(one_sided, dtype=bool), dtype=wp.bool, device=device)
        points = wp.from_torch(corners.detach().contiguous(), dtype=wp.vec3d, requires_grad=False)
        shades = wp.from_torch(colors.detach().contiguous(), dtype=wp.float64, requires_grad=False)
        total = batch * height * width

        def find(place: Any, keep: int, kept: list[Any]) -> None:
            inputs = [points, triangles, sides, _NEAR_M, width, height, place, keep, *kept]
            wp.launch(kernels.fragments, (batch, len(faces)), inputs, device=device)

        counts = torch.zeros(total + 1, dtype=torch.int32, device=corners.device)
        nothing = [wp.empty(1, dtype=t, device=device) for t in (wp.int32, wp.float64, wp.float64)]
        find(wp.from_torch(counts[1:], requires_grad=False), 0, nothing)
        start = torch.cumsum(counts, 0, dtype=torch.int32)
        size = max(int(start[-1]), 1)
        kept = [wp.empty(size, dtype=t, device=device) for t in (wp.int32, wp.float64, wp.float64)]
        find(wp.from_torch(start[:-1].clone(), requires_grad=False), 1, kept)
        picture = colors.new_zeros((total, colors.shape[-1]))
        covered = colors.new_zeros(total)
        ctx.warp = wp.from_torch(start, requires_grad=False), kept[0], kept[1], shades, points, triangles
        inputs = [ctx.warp[0], *kept, shades, height * width]
        outputs = [wp.from_torch(t, dtype=wp.float64, requires_grad=False) for t in (picture, covered)]
        wp.launch(kernels.composite, total, inputs, outputs, device=device)
        ctx.keep, ctx.shape = (start, colors, corners), (batch, height, width)
        return picture.reshape(batch, height, width, -1), covered.reshape(batch, height, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_picture: Tensor, by_coverage: Tensor) -> tuple[Tensor | None, ...]:
        from vid2phys.engine.kernels import coverage as kernels

        wp, (batch, height, width) = kernels.wp, ctx.shape
        _, colors, corners = ctx.keep
        total = batch * height * width
        grad_corners, grad_colors = torch.zeros_like(corners), torch.zeros_like(colors)
        given = by_picture.reshape(total, -1).contiguous(), by_coverage.reshape(total).contiguous()
        arrays = [wp.from_torch(t, dtype=wp.float64, requires_grad=False) for t in (*given, grad_corners, grad_colors)]
        inputs = [*ctx.warp, width, height * width, *arrays[:2]]
        wp.launch(kernels.composite_adjoint, total, inputs, arrays[2:], device=wp.device_from_torch(corners.device))
        return grad_corners, grad_colors, None, None, None, None
