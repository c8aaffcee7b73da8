"""A rasteriser with gradients: exact areas of faces in pixels, so that images are smooth in the vertices.

Each pixel is averaged over its square. Faces take the area that they have in it, front to back, until it is full: an
A-buffer (Carpenter, SIGGRAPH 1984) with areas in place of masks. What an area gains when an edge moves is known in
closed form, so gradients are exact where no two faces trade places in depth, silhouettes, creases and faces smaller
than a pixel included. A wider reach comes from blurring images, not from softer edges: these stay where they are.

Inside a body's silhouette, each face has one colour or colours that vary over it (`FragmentColors`). Values at its
corners are interpolated in perspective at the middle of the pixel, as in DIB-R (Chen et al., NeurIPS 2019).

Pixel centres are at integers (OpenCV). Limits: where faces pierce each other the line between them does not move with
the vertices; of two contours in one pixel the nearer is taken to leave its free part to the other; a face that has a
pixel's middle beside it shows the colour of its nearest border there; faces that reach behind the camera are dropped;
no shadows, no lens distortion (use a virtual camera: `engine.virtual_camera`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

_NEAR_M = 1e-6


@dataclass(frozen=True)
class Fragments:
    """Pieces of faces in pixels, each of which a `FragmentColors` gives a colour.

    image, face: [n]. weights: [n, 3] of the face's corners at the middle of the pixel, of its border if that is
    beside it; in perspective, with gradients for the vertices.
    """

    image: Tensor
    face: Tensor
    weights: Tensor


FragmentColors = Callable[[Fragments], Tensor]
"""Linear light [n, C] of fragments."""


def draw(
    vertices_camera: Tensor,
    faces: NDArray[np.int64],
    colors: Tensor | FragmentColors,
    K: Tensor,
    width: int,
    height: int,
    *,
    one_sided: NDArray[np.bool_] | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw images of B bodies and how much of each pixel they cover, with gradients for vertices and colours.

    vertices_camera: [B, V, 3] m in camera axes. faces: [F, 3]. colors: [B, F, C], linear light, or what says it of
    each piece of a face. K: [B, 3, 3] px, no skew. one_sided: [F] faces that are not seen from behind
    (`closed_surfaces`; None: all are seen from both sides). Returns images [B, height, width, C], in which what is not
    covered is black (add (1 - coverage) times what is behind), and coverage [B, height, width] in 0..1. Computes in
    float64 on the device of the vertices.
    """
    vertices = vertices_camera.double()
    safe = torch.where(vertices[..., 2:] > _NEAR_M, vertices[..., 2:], torch.ones_like(vertices[..., 2:]))
    focal = torch.stack([K[:, 0, 0], K[:, 1, 1]], dim=-1)[:, None]
    projected = focal * vertices[..., :2] / safe + K[:, None, :2, 2] + 0.5
    corners = torch.cat([projected, vertices[..., 2:]], dim=-1)
    sides = np.zeros(len(faces), dtype=bool) if one_sided is None else one_sided
    pieces = _PixelFragments.of(corners.detach(), faces, sides, width, height)
    if callable(colors):
        fragments = Fragments(pieces.image, pieces.face.long(), _weights(corners, faces, pieces))
        rows, values = torch.arange(len(pieces.face), dtype=torch.int32, device=corners.device), colors(fragments)
    else:
        rows, values = (pieces.image * len(faces) + pieces.face).int(), colors.flatten(0, 1)
    image, coverage = _Composite.apply(corners, values.double(), rows, pieces, faces)
    return image, coverage


def normals_of(vertices: Tensor, faces: NDArray[np.int64]) -> Tensor:
    """Return the unit normals of faces, [B, V, 3] -> [B, F, 3]; those of faces without area are short."""
    a, b, c = (vertices[:, faces[:, k]] for k in range(3))
    normals = torch.linalg.cross(b - a, c - a)
    return normals / normals.norm(dim=-1, keepdim=True).clamp(min=1e-30)


@dataclass(frozen=True)
class _PixelFragments:
    """The fragments of B images, pixel by pixel, from front to back; n are kept, one at least.

    start: [B * H * W + 1] int32, where those of a pixel begin. image: [n]. face: [n] int32. area: [n] of the pixel.
    """

    start: Tensor
    image: Tensor
    face: Tensor
    area: Tensor
    width: int
    height: int

    @staticmethod
    def of(
        corners: Tensor, faces: NDArray[np.int64], one_sided: NDArray[np.bool_], width: int, height: int
    ) -> _PixelFragments:
        """Return the fragments of corners [B, V, 3]: x, y in pixels from the image's corner, z in m."""
        from vid2phys.engine.kernels import coverage as kernels

        wp, batch, on = kernels.wp, len(corners), corners.device
        device = wp.device_from_torch(on)
        sides: Any = wp.array(np.asarray(one_sided, dtype=bool), dtype=wp.bool, device=device)
        points, triangles = _points(wp, corners), _triangles(wp, faces, device)
        total = batch * height * width

        def find(place: Tensor, keep: int, *kept: Tensor) -> None:
            arrays = [wp.from_torch(t, requires_grad=False) for t in (place, *kept)]
            inputs = [points, triangles, sides, _NEAR_M, width, height, arrays[0], keep, *arrays[1:]]
            wp.launch(kernels.fragments, (batch, len(faces)), inputs, device=device)

        def fresh(size: int) -> tuple[Tensor, Tensor, Tensor]:
            face = torch.zeros(size, dtype=torch.int32, device=on)
            area, nearness = (torch.zeros(size, dtype=torch.float64, device=on) for _ in range(2))
            return face, area, nearness

        counts = torch.zeros(total + 1, dtype=torch.int32, device=on)
        find(counts[1:], 0, *fresh(1))
        start = torch.cumsum(counts, 0, dtype=torch.int32)
        face, area, nearness = fresh(max(int(start[-1]), 1))
        find(start[:-1].clone(), 1, face, area, nearness)
        arrays = [wp.from_torch(t, requires_grad=False) for t in (start, face, area, nearness)]
        wp.launch(kernels.sort_fragments, total, arrays, device=device)
        images = counts[1:].reshape(batch, -1).sum(1)
        image = torch.repeat_interleave(torch.arange(batch, device=on), images)
        return _PixelFragments(start, image if len(image) else face.long(), face, area, width, height)

    @property
    def middles(self) -> Tensor:
        """Return the middles of the pixels of the fragments, [n, 2] px from the image's corner."""
        counts = self.start.diff()
        pixel = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
        pixel = pixel if len(pixel) else torch.zeros_like(self.image)
        x, y = pixel % self.width, pixel // self.width % self.height
        return torch.stack([x, y], dim=-1).double() + 0.5


def _weights(corners: Tensor, faces: NDArray[np.int64], pieces: _PixelFragments) -> Tensor:
    """See `Fragments.weights`: areas in the image over depths, those of what is beside a face taken for zero."""
    face = torch.from_numpy(np.asarray(faces, dtype=np.int64)).to(corners.device)[pieces.face.long()]
    triangles = corners[pieces.image[:, None], face]
    x, y = (triangles[..., :2] - pieces.middles[:, None]).unbind(-1)
    areas = x.roll(-1, 1) * y.roll(-2, 1) - x.roll(-2, 1) * y.roll(-1, 1)
    inner = (areas * areas.sum(1, keepdim=True).sign().detach()).clamp(min=0.0) / triangles[..., 2]
    return inner / inner.sum(1, keepdim=True).clamp(min=1e-30)


def _points(wp: Any, corners: Tensor) -> Any:
    return wp.from_torch(corners.detach().contiguous(), dtype=wp.vec3d, requires_grad=False)


def _triangles(wp: Any, faces: NDArray[np.int64], device: Any) -> Any:
    return wp.array(np.asarray(faces, dtype=np.int32), dtype=wp.vec3i, device=device)


class _Composite(torch.autograd.Function):
    """Corners [B, V, 3] and colours [R, C], of which `rows` [n] names that of each fragment, to the images."""

    @staticmethod
    def forward(
        ctx: Any, corners: Tensor, colors: Tensor, rows: Tensor, pieces: _PixelFragments, faces: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        from vid2phys.engine.kernels import coverage as kernels

        wp, shape = kernels.wp, (len(corners), pieces.height, pieces.width)
        device = wp.device_from_torch(corners.device)
        total = len(pieces.start) - 1
        image, covered = colors.new_zeros((total, colors.shape[-1])), colors.new_zeros(total)
        given = pieces.start, pieces.face, rows, pieces.area, colors.detach().contiguous()
        ctx.warp = [wp.from_torch(t, requires_grad=False) for t in given]
        outputs = [wp.from_torch(t, requires_grad=False) for t in (image, covered)]
        wp.launch(kernels.composite, total, ctx.warp, outputs, device=device)
        ctx.keep, ctx.faces, ctx.pieces = (*given, corners, colors), faces, pieces
        return image.reshape(*shape, -1), covered.reshape(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_image: Tensor, by_coverage: Tensor) -> tuple[Tensor | None, ...]:
        from vid2phys.engine.kernels import coverage as kernels

        wp, pieces = kernels.wp, ctx.pieces
        *_, corners, colors = ctx.keep
        device, total = wp.device_from_torch(corners.device), len(pieces.start) - 1
        grad_corners, grad_colors = torch.zeros_like(corners), torch.zeros_like(colors)
        given = by_image.reshape(total, -1).contiguous(), by_coverage.reshape(total).contiguous()
        arrays = [wp.from_torch(t, requires_grad=False) for t in (*given, grad_corners, grad_colors)]
        meshes = _points(wp, corners), _triangles(wp, ctx.faces, device)
        inputs = [*ctx.warp, *meshes, pieces.width, pieces.height * pieces.width, *arrays[:2]]
        wp.launch(kernels.composite_adjoint, total, inputs, arrays[2:], device=device)
        return grad_corners, grad_colors, None, None, None
