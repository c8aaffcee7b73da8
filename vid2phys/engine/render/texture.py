"""A mesh's texture as Dr.Jit buffers, looked up with plain gathers.

Not Mitsuba's own texture plugin: 3.9 loads 8-bit images in a form without derivatives, and a plugin per image would
bring virtual calls and other kernels with every mesh. Buffers keep one kernel for all looks of a mesh.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vid2phys.io.texture import linear_images, texel_sizes
from vid2phys.types import Mesh

_DARKEST, _BRIGHTEST = 0.004, 0.97  # albedos, as those of random materials


class DeviceTexture:
    """The images of `mesh`, averaged over `texel_m`, for lookup at points of its surface."""

    def __init__(self, mi: Any, dr: Any, mesh: Mesh, texel_m: float) -> None:
        assert mesh.texture is not None
        self._mi, self._dr = mi, dr
        images = linear_images(mesh.texture, texel_sizes(mesh), texel_m)
        heights, widths = (np.array([image.shape[i] for image in images]) for i in (0, 1))
        first = np.concatenate([[0], np.cumsum(heights * widths)[:-1]])
        shown = mesh.texture.image
        self._texels = mi.Float(np.concatenate([image.ravel() for image in images]))
        self._first, self._width, self._height = (
            mi.UInt32(values[shown].astype(np.uint32)) for values in (first, widths, heights)
        )
        self._uv = mi.Float(np.ascontiguousarray(mesh.texture.uv, np.float32).ravel())
        self._corner_color = mi.Float(np.ascontiguousarray(mesh.texture.corner_color, np.float32).ravel())

    def at(self, face: Any, place: Any) -> Any:
        """Return the linear colour of faces, UInt32, at places (the weights of their second and third corners),
        Color3f.
        """
        mi, dr = self._mi, self._dr
        weights = [1.0 - place.x - place.y, place.x, place.y]
        u, v = (self._interpolated(self._uv, 2, i, face, weights) for i in range(2))
        width, height = (dr.gather(mi.UInt32, size, face) for size in (self._width, self._height))
        first = dr.gather(mi.UInt32, self._first, face)
        x, y = u * mi.Float(width) - 0.5, (1.0 - v) * mi.Float(height) - 0.5
        left, top = dr.floor(x), dr.floor(y)
        fx, fy = x - left, y - top
        total = mi.Color3f(0.0)
        for i, j, weight in (
            (0, 0, (1 - fx) * (1 - fy)),
            (1, 0, fx * (1 - fy)),
            (0, 1, (1 - fx) * fy),
            (1, 1, fx * fy),
        ):
            texel = first + _wrapped(mi, dr, top + j, height) * width + _wrapped(mi, dr, left + i, width)
            total += weight * mi.Color3f(*(dr.gather(mi.Float, self._texels, texel * 3 + c) for c in range(3)))
        total *= mi.Color3f(*(self._interpolated(self._corner_color, 3, c, face, weights) for c in range(3)))
        return dr.clip(total, _DARKEST, _BRIGHTEST)

    def _interpolated(self, buffer: Any, channels: int, channel: int, face: Any, weights: list[Any]) -> Any:
        """Return a value given at the corners of faces, [F, 3, channels]."""
        mi, dr = self._mi, self._dr
        values = [dr.gather(mi.Float, buffer, (face * 3 + k) * channels + channel) for k in range(3)]
        return sum((w * value for w, value in zip(weights[1:], values[1:], strict=True)), weights[0] * values[0])


def _wrapped(mi: Any, dr: Any, index: Any, size: Any) -> Any:
    """Return an index of a texel, a whole Float, into 0 .. size - 1 of an image that repeats, UInt32."""
    extent = mi.Float(size)
    inside = index - dr.floor(index / extent) * extent
    return mi.UInt32(dr.clip(inside, 0.0, extent - 1.0))
