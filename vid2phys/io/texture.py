"""Look up the colours of a mesh's surface at given points, averaged as coarsely as an image needs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.io.faces import face_areas
from vid2phys.types import Array, Mesh, Texture

GREY = 0.5  # linear, of a mesh without a texture
WHITE = np.full((1, 1, 3), 255, np.uint8)  # the image of faces without one
_BYTES = np.arange(256) / 255.0
_LINEAR_OF_BYTE = np.where(_BYTES <= 0.04045, _BYTES / 12.92, ((_BYTES + 0.055) / 1.055) ** 2.4).astype(np.float32)


def surface_colors(mesh: Mesh, faces: NDArray[Any], barycentric: Array, texel_m: float = 0.0) -> Array:
    """Return linear RGB [N, 3] of points on the surface; grey without a texture.

    Args:
        mesh: with or without a texture.
        faces: [N], indices.
        barycentric: [N, 3], weights of the faces' corners.
        texel_m: length over which the image is averaged first [m] (0: as fine as it is).
    """
    return SurfaceColors(mesh).at(faces, barycentric, texel_m)


class SurfaceColors:
    """Look up the colours of a mesh again and again; keep the images averaged by powers of two."""

    def __init__(self, mesh: Mesh) -> None:
        self._texture = mesh.texture
        self._texel_m = texel_sizes(mesh)
        self._averaged: dict[int, tuple[NDArray[Any], ...]] = {}

    def at(self, faces: NDArray[Any], barycentric: Array, texel_m: float = 0.0) -> Array:
        """Return the colours, as `surface_colors` does."""
        texture, faces = self._texture, np.asarray(faces)
        if texture is None:
            return np.full((len(faces), 3), GREY)
        images = self._images(texel_m)
        colors = np.einsum("nk,nkc->nc", barycentric, texture.corner_color[faces])
        uv = np.einsum("nk,nkc->nc", barycentric, texture.uv[faces])
        shown = texture.image[faces]
        for index in np.unique(shown):
            here = shown == index
            colors[here] *= _bilinear(images[index], uv[here])
        return colors

    def _images(self, texel_m: float) -> tuple[NDArray[Any], ...]:
        assert self._texture is not None
        finest = min((size for size in self._texel_m if size > 0.0), default=0.0)
        level = int(np.floor(np.log2(texel_m / finest))) if texel_m > finest > 0.0 else 0
        if not level:
            return self._texture.images
        if level not in self._averaged:
            self._averaged[level] = linear_images(self._texture, self._texel_m, finest * 2.0**level)
        return self._averaged[level]


def linear_images(
    texture: Texture, texel_sizes_m: tuple[float, ...], texel_m: float
) -> tuple[NDArray[np.float32], ...]:
    """Return the images in linear light, float32 [h, w, 3], averaged to texels of about `texel_m` (0: as they are).

    texel_sizes_m: how long their texels are on the surface (`texel_sizes`).
    """
    import cv2

    images = []
    for image, size in zip(texture.images, texel_sizes_m, strict=True):
        linear: NDArray[Any] = _LINEAR_OF_BYTE[image]
        shrink = texel_m / size if size > 0.0 else 1.0
        if shrink > 1.0:
            height, width = (max(1, round(extent / shrink)) for extent in image.shape[:2])
            linear = cv2.resize(linear, (width, height), interpolation=cv2.INTER_AREA).reshape(height, width, 3)
        images.append(np.ascontiguousarray(linear, np.float32))
    return tuple(images)


def texel_sizes(mesh: Mesh) -> tuple[float, ...]:
    """Return the mean length [m] of the texels of each image on the surface; 0 for an image that no area shows."""
    texture = mesh.texture
    if texture is None:
        return ()
    area = face_areas(mesh.vertices, mesh.faces)
    ab, ac = texture.uv[:, 1] - texture.uv[:, 0], texture.uv[:, 2] - texture.uv[:, 0]
    area_uv = 0.5 * np.abs(ab[:, 0] * ac[:, 1] - ab[:, 1] * ac[:, 0])
    sizes = []
    for index, image in enumerate(texture.images):
        here = texture.image == index
        texels = float(area_uv[here].sum()) * image.shape[0] * image.shape[1]
        sizes.append(float(np.sqrt(area[here].sum() / texels)) if texels > 0.0 else 0.0)
    return tuple(sizes)


def mean_face_colors(mesh: Mesh) -> Array:
    """Return about the mean colour of each face, linear RGB [F, 3]: at its centre, averaged over a coarse image."""
    count = len(mesh.faces)
    extent = float(np.ptp(mesh.vertices, axis=0).max())
    return surface_colors(mesh, np.arange(count), np.full((count, 3), 1.0 / 3.0), extent / 32.0)


def of_faces(texture: Texture | None, kept: NDArray[Any]) -> Texture | None:
    """Return the texture of some of a mesh's faces: a mask or indices."""
    if texture is None:
        return None
    return replace(texture, image=texture.image[kept], uv=texture.uv[kept], corner_color=texture.corner_color[kept])


def turned_over(texture: Texture | None, faces: NDArray[np.bool_] | None = None) -> Texture | None:
    """Return the texture of a mesh whose faces, or those of a mask [F], list their corners backwards."""
    if texture is None:
        return None
    turned = np.ones(len(texture.image), bool) if faces is None else faces
    backwards = turned[:, None, None]
    return replace(
        texture,
        uv=np.where(backwards, texture.uv[:, ::-1], texture.uv),
        corner_color=np.where(backwards, texture.corner_color[:, ::-1], texture.corner_color),
    )


def linear_of_srgb(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return sRGB bytes as linear light 0..1 (IEC 61966-2-1)."""
    return _LINEAR_OF_BYTE[image]


def _bilinear(image: NDArray[Any], uv: Array) -> Array:
    """Return linear light [N, 3] at uv [N, 2] of an image of sRGB bytes or linear floats.

    Texel (0, 0) is the top left one; centres lie half a texel from the borders.
    """

    def texels(row: NDArray[Any], column: NDArray[Any]) -> NDArray[Any]:
        values = image[row, column]
        return _LINEAR_OF_BYTE[values] if image.dtype == np.uint8 else values

    height, width = image.shape[:2]
    x, y = uv[:, 0] * width - 0.5, (1.0 - uv[:, 1]) * height - 0.5
    left, top = np.floor(x), np.floor(y)
    fx, fy = (x - left)[:, None], (y - top)[:, None]
    columns = [(left.astype(np.int64) + i) % width for i in (0, 1)]
    rows = [(top.astype(np.int64) + i) % height for i in (0, 1)]
    upper = texels(rows[0], columns[0]) * (1.0 - fx) + texels(rows[0], columns[1]) * fx
    lower = texels(rows[1], columns[0]) * (1.0 - fx) + texels(rows[1], columns[1]) * fx
    return np.asarray(upper * (1.0 - fy) + lower * fy)
