"""Light in images of a body: display values to light and back, what the light of its parts is linear in, and smaller
images of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array, Camera, Mesh

LENS_PX = 0.7  # blur of an ordinary camera and codec, of the body alone
CORRELATED_PX = 28.0  # neighbouring pixels err together: this many count as one
_GAMMA = 2.2
_DARK = 0.02  # linear light below which the tone curve is taken as straight


def linear(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Display bytes to linear light."""
    return (image.astype(np.float32) / np.float32(255.0)) ** np.float32(_GAMMA)


def display_slope(level: NDArray[np.float32]) -> NDArray[np.float32]:
    """Slope of the display's tone curve at linear light."""
    return np.asarray((level + _DARK) ** (1.0 / _GAMMA - 1.0) / _GAMMA)


def blurred(image: NDArray[np.float32], sigma_px: float) -> NDArray[np.float32]:
    """An image of any number of channels, [h, w, C], out of focus."""
    import cv2

    soft = cv2.GaussianBlur(image, (0, 0), sigma_px, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(soft, dtype=np.float32).reshape(image.shape)


def part_basis(mesh: Mesh, normals: Array, sight: Array, axes: Array | None = None) -> NDArray[np.float32]:
    """What the light of the faces is linear in: part, and part times normal, [F, 4 * parts].

    Light that does not change from where it comes, on surfaces without gloss, as first-order spherical harmonics (Basri
    and Jacobs, PAMI 2003). normals: [F, 3] unit, in the axes of the camera, turned towards it by the directions sight
    [F, 3] from it. axes: [3, 3], to other axes.
    """
    away = (normals * sight).sum(axis=1) > 0.0
    normals = np.where(away[:, None], -normals, normals)
    if axes is not None:
        normals = normals @ axes.T
    out = np.zeros((len(normals), len(mesh.part_names), 4), dtype=np.float32)
    faces = np.arange(len(normals))
    out[faces, mesh.part, 0], out[faces, mesh.part, 1:] = 1.0, normals
    return out.reshape(len(normals), -1)


def smaller(camera: Camera, reduction: int) -> Camera:
    """The camera of images whose pixels are `reduction` x `reduction` of the given one's; the rest is cut."""
    K = np.asarray(camera.K, dtype=float).copy()
    K[:2, 2] += 0.5  # pixel centres are at integers
    K[:2] /= reduction
    K[:2, 2] -= 0.5
    return replace(camera, K=K, width=camera.width // reduction, height=camera.height // reduction)


def reduced(image: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Means over blocks; size: (width, height)."""
    import cv2

    if image.shape[1::-1] == size:
        return image
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.float32)
