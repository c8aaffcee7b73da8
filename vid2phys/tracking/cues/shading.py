"""Shading of a body that bends: it shows deformations along the line of sight, which the contour does not.

The light of a face depends on its normal, on its material, and little on its place. Its logarithm is a sum of three
terms: a number for each smooth part of the surface, harmonics of the normal up to the second order, and a slope along
each axis for lights nearby. Surfaces without gloss keep no other harmonics of distant light (Ramamoorthi and Hanrahan,
SIGGRAPH 2001; Basri and Jacobs, PAMI 2003). These numbers are fitted and projected out (Kaufman, BIT 1975), so that
configurations are compared under the light that explains them best. All frames of a clip share one light. Nothing is
learned.

Limits: patterns and cast shadows are not explained; they only widen the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import Raster, rasterize_camera
from vid2phys.tracking.cues.light import linear
from vid2phys.types import Array, Camera

_CHANNELS = 3
_MEDIAN = 0.8  # median of a mean square over three channels


@dataclass(frozen=True, kw_only=True)
class ShadingConfig:
    """Settings of the shading cue. Standard deviations of the light are those of logarithms."""

    dark: float = 0.02
    """Linear light below which the logarithm is taken as straight."""
    min_pixels: int = 40
    """Least number of pixels inside the parts."""
    min_faces: int = 8
    """Least number of faces that are seen."""
    noise_floor: float = 0.02
    """Least error of a face's logarithm."""
    white: int = 250
    """Display value from which on a pixel is saturated."""
    max_white_share: float = 0.3
    """Largest share of saturated pixels of a face that says something."""
    unknown_variance: float = 1e4
    """Variance of a face that says nothing."""
    level_std: float = 20.0
    """Prior standard deviation of the light's level."""
    part_std: float = 0.3
    """Prior standard deviation of a part beside the others."""
    first_order_std: float = 2.0
    """Prior standard deviation of the normal's harmonics of first order."""
    second_order_std: float = 0.3
    """Prior standard deviation of the normal's harmonics of second order."""
    place_std: float = 0.3
    """Prior standard deviation of the slope of light along each axis, per body radius."""
    rounds: int = 3
    """Rounds of weighting faces."""
    robust_square: float = 6.0
    """Mean square from which on faces count less."""
    min_misfit: float = 0.3
    """Least factor of the stated variances."""
    correlated_faces: float = 40.0
    """Number of faces that count as one in what their grain explains, as measured on held-out appearances."""
    correlated_faces_beyond: float = 200.0
    """The same for the error beyond it: patterns and shadows."""


DEFAULTS = ShadingConfig()


@dataclass(frozen=True)
class Shading:
    """The light of F faces that are seen in a frame.

    Attributes:
        faces: [F] indices.
        light: [F, 3] logarithms.
        variance: [F, 3] of these; very large for saturated faces.
        config: settings.
    """

    faces: NDArray[np.int64]
    light: Array
    variance: Array
    config: ShadingConfig = DEFAULTS


@dataclass(frozen=True)
class FaceMotion:
    """F faces and their motion with D coordinates.

    Attributes:
        normals: [F, 3] unit.
        places: [F, 3] middles, body radii.
        normal_slopes: [F, 3, D] derivative of the normals.
        place_slopes: [F, 3, D] derivative of the places.
        parts: [F] indices of the parts.
    """

    normals: Array
    places: Array
    normal_slopes: Array
    place_slopes: Array
    parts: NDArray[np.int64]

    @staticmethod
    def of(corners: Array, slopes: Array, parts: NDArray[np.int64], radius_m: float) -> FaceMotion:
        """Return the motion of faces with corners [F, 3, 3] in m, a row each, and their derivatives [F, 3, 3, D]."""
        first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
        of_first, of_second = slopes[:, 1] - slopes[:, 0], slopes[:, 2] - slopes[:, 0]
        area = np.cross(first, second)
        of_area = np.cross(of_first, second[..., None], axis=1) + np.cross(first[..., None], of_second, axis=1)
        size = np.linalg.norm(area, axis=1, keepdims=True) + 1e-30
        normals = area / size
        along = np.einsum("fj,fjd->fd", normals, of_area)
        of_normals = (of_area - normals[..., None] * along[:, None]) / size[..., None]
        return FaceMotion(normals, corners.mean(axis=1) / radius_m, of_normals, slopes.mean(axis=1) / radius_m, parts)


def measure_shading(
    frame: NDArray[np.uint8],
    camera: Camera,
    vertices: Array,
    faces: NDArray[np.int64],
    parts: NDArray[np.int64],
    config: ShadingConfig = DEFAULTS,
) -> Shading | None:
    """Measure the light of faces in a frame, away from the ends of their parts.

    Args:
        frame: [H, W, 3].
        camera: of the frame.
        vertices: [V, 3] in camera axes, m.
        faces: [F, 3] indices of vertices.
        parts: [F] indices of parts.
        config: settings.

    Returns:
        The light; None where too few pixels or faces are seen.
    """
    raster = rasterize_camera(vertices, faces, camera, 1)
    inside = _within_parts(raster, parts)
    if inside is None or inside.sum() < config.min_pixels:
        return None
    shown = frame[raster.window][inside]
    light = np.log(linear(shown) + config.dark)
    found, which, count = np.unique(raster.faces_seen[inside], return_inverse=True, return_counts=True)
    if len(found) < config.min_faces:
        return None
    mean, white = (
        np.stack([np.bincount(which, values[:, c]) for c in range(_CHANNELS)], axis=1) / count[:, None]
        for values in (light, shown >= config.white)
    )
    grain = ((light - mean[which]) ** 2).mean(axis=0)
    known = grain / count[:, None] + config.noise_floor**2
    variance = np.where(white > config.max_white_share, config.unknown_variance, known)
    return Shading(found.astype(np.int64), mean, variance, config)


def _within_parts(raster: Raster, parts: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Return the pixels [h, w] of the window that have only their own part around them; None without any body."""
    import cv2

    seen = raster.faces_seen
    if seen.size == 0:
        return None
    part = np.where(seen >= 0, parts[seen] + 1, 0).astype(np.float32)
    around = np.ones((3, 3), np.uint8)
    least = cv2.erode(part, around, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return np.asarray((least == cv2.dilate(part, around)) & (least > 0))


@dataclass(frozen=True)
class ShadingInformation:
    """The information of shading about D coordinates in T frames, under the light that explains them best.

    Attributes:
        gradient: [T, D].
        apart: [T, D, D] information if the light were known.
        shared: [T, L, D] of the light; with all coordinates in a row the information is `apart` in blocks, less
            shared' shared.
    """

    gradient: Array
    apart: Array
    shared: Array


def shading_information(seen: Sequence[Shading], motion: Sequence[FaceMotion]) -> ShadingInformation:
    """Return the information of the shading in T frames about the D coordinates of each."""
    config = seen[0].config
    parts = np.unique(np.concatenate([each.parts for each in motion]))
    basis, slopes = (np.concatenate([of(each, parts, config) for each in motion]) for of in (_basis, _slopes))
    light, stated = (np.concatenate([getattr(each, name) for each in seen]) for name in ("light", "variance"))
    known = (stated < config.unknown_variance).sum(axis=1)
    variance = stated
    for _ in range(config.rounds):
        left = light - basis @ _explaining(basis, light, variance)
        square = (left**2 / stated).sum(axis=1) / np.maximum(known, 1)
        misfit = max(float(np.median(square[known > 0])) / _MEDIAN, config.min_misfit) if known.any() else 1.0
        beyond = config.correlated_faces_beyond * max(misfit - 1.0, 0.0)
        correlated = config.correlated_faces * min(misfit, 1.0) + beyond
        variance = stated * (correlated * (1.0 + square / (config.robust_square * misfit)))[:, None]
    numbers = _explaining(basis, light, variance)
    ends = np.cumsum([len(each.faces) for each in seen])[:-1]
    frames = [np.split(values, ends) for values in (basis, slopes, light - basis @ numbers, 1.0 / variance)]
    size = slopes.shape[2]
    gradient, apart = np.zeros((len(seen), size)), np.zeros((len(seen), size, size))
    shared = []
    for c in range(_CHANNELS):
        to_unit = np.linalg.inv(np.linalg.cholesky(_known(basis, variance[:, c])))
        of_channel = []
        for t, (based, slope, left_over, weight) in enumerate(zip(*frames, strict=True)):
            moved = np.einsum("fmd,m->fd", slope, numbers[:, c])
            weighed = moved * weight[:, c, None]
            gradient[t] -= weighed.T @ left_over[:, c]
            apart[t] += weighed.T @ moved
            of_channel.append(to_unit @ based.T @ weighed)
        shared.append(np.stack(of_channel))
    return ShadingInformation(gradient, apart, np.concatenate(shared, axis=1))


def _known(basis: Array, variance: Array) -> Array:
    """Return the information [M, M] about the light in a channel; the prior of each number has unit variance."""
    return np.asarray((basis / variance[:, None]).T @ basis + np.eye(basis.shape[1]))


def _explaining(basis: Array, light: Array, variance: Array) -> Array:
    """Return the light [M, 3] that explains faces [F, 3] of a variance [F, 3] best."""
    of_channels = [
        np.linalg.solve(_known(basis, varies), (basis / varies[:, None]).T @ shown)
        for shown, varies in zip(light.T, variance.T, strict=True)
    ]
    return np.stack(of_channels, axis=1)


def _basis(motion: FaceMotion, parts: NDArray[np.int64], config: ShadingConfig) -> Array:
    """Return the basis [F, M] of the faces' logarithms, in prior standard deviations. parts: those that are seen."""
    x, y, z = motion.normals.T
    second = np.stack([x * y, y * z, z * x, x * x - y * y, 1.5 * z * z - 0.5], axis=1)
    of_parts = parts == motion.parts[:, None]
    level = np.full((len(x), 1), config.level_std)
    normals, places = config.first_order_std * motion.normals, config.place_std * motion.places
    return np.concatenate(
        [normals, config.second_order_std * second, places, level, config.part_std * of_parts], axis=1
    )


def _slopes(motion: FaceMotion, parts: NDArray[np.int64], config: ShadingConfig) -> Array:
    """Return the derivative [F, M, D] of the basis by the coordinates."""
    (x, y, z), (dx, dy, dz) = motion.normals.T[..., None], np.moveaxis(motion.normal_slopes, 1, 0)
    second = np.stack(
        [x * dy + y * dx, y * dz + z * dy, z * dx + x * dz, 2.0 * (x * dx - y * dy), 3.0 * z * dz], axis=1
    )
    count, coordinates = dx.shape
    rest = np.zeros((count, 1 + len(parts), coordinates))
    normals, places = config.first_order_std * motion.normal_slopes, config.place_std * motion.place_slopes
    return np.concatenate([normals, config.second_order_std * second, places, rest], axis=1)
