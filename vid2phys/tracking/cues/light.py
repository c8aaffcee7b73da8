"""Light in images of a body: display values to linear light, a linear basis of shading, and smaller images.

Limits: a display has one tone curve (gamma 2.2); surfaces have no gloss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array, Camera, Mesh

_GAMMA = 2.2  # of a display
_LIGHT = (np.arange(256, dtype=np.float32) / np.float32(255.0)) ** np.float32(_GAMMA)  # of display bytes
_DARK = 0.02  # linear light below which the tone curve is taken as straight


@dataclass(frozen=True, kw_only=True)
class LightConfig:
    """Settings that all cues of colours share."""

    lens_px: float = 0.7
    """Blur of an ordinary camera and codec on a drawn body, standard deviation, px."""
    correlated_px: float = 28.0
    """Number of adjacent pixels that count as one, since they err together."""


DEFAULTS = LightConfig()


def linear(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return display bytes as linear light."""
    return np.asarray(_LIGHT[image])


def displayed(light: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return linear light as display bytes."""
    return np.asarray(np.round(255.0 * np.clip(light, 0.0, 1.0) ** (1.0 / _GAMMA)), dtype=np.uint8)


def display_slope(level: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the slope of the display's tone curve at linear light."""
    return np.asarray((level + _DARK) ** (1.0 / _GAMMA - 1.0) / _GAMMA)


def blurred(image: NDArray[np.float32], sigma_px: float) -> NDArray[np.float32]:
    """Return an image [h, w, C] of any number of channels, blurred."""
    import cv2

    soft = cv2.GaussianBlur(image, (0, 0), sigma_px, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(soft, dtype=np.float32).reshape(image.shape)


def part_basis(mesh: Mesh, normals: Array, rays: Array, axes: Array | None = None) -> NDArray[np.float32]:
    """Return the basis of the faces' light: part, and part times normal, [F, 4 * parts].

    The light is fixed and the surfaces have no gloss: first-order spherical harmonics (Basri and Jacobs, PAMI 2003).

    Args:
        mesh: the mesh.
        normals: [F, 3] unit, camera axes; those that point away from the camera are reversed.
        rays: [F, 3] directions from the camera to the faces.
        axes: [3, 3] rotation to other axes.
    """
    away = (normals * rays).sum(axis=1) > 0.0
    normals = np.where(away[:, None], -normals, normals)
    if axes is not None:
        normals = normals @ axes.T
    out = np.zeros((len(normals), len(mesh.part_names), 4), dtype=np.float32)
    faces = np.arange(len(normals))
    out[faces, mesh.part, 0], out[faces, mesh.part, 1:] = 1.0, normals
    return out.reshape(len(normals), -1)


def smaller(camera: Camera, reduction: int) -> Camera:
    """Return the camera of images whose pixels are `reduction` x `reduction` of the given one's; the rest is cut."""
    K = np.asarray(camera.K, dtype=float).copy()
    K[:2, 2] += 0.5  # pixel centres are at integers
    K[:2] /= reduction
    K[:2, 2] -= 0.5
    return replace(camera, K=K, width=camera.width // reduction, height=camera.height // reduction)


def shrunk(image: NDArray[np.uint8], reduction: int) -> NDArray[np.uint8]:
    """Return an image [H, W, 3] for the camera of `smaller`: means over blocks of pixels, averaged as light."""
    height, width = image.shape[0] // reduction, image.shape[1] // reduction
    light = linear(image[: reduction * height, : reduction * width])
    return displayed(reduced(light, (width, height)))


def reduced(image: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Return the means over blocks; size: (width, height)."""
    import cv2

    if image.shape[1::-1] == size:
        return image
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.float32)
