"""How light falls on a body that bends: the part of a configuration that its outline does not show, the way along the
sight.

Light on a face depends on how it is turned, little on where it is, and on its material. Its logarithm is taken as a
number for each smooth part of the surface, harmonics of the face's normal up to the second order, which are all that
surfaces without gloss keep of distant light (Ramamoorthi and Hanrahan, SIGGRAPH 2001; Basri and Jacobs, PAMI 2003), and
a slope along each axis, of lights that are near. These are as images say they are, and are projected out (Kaufman,
BIT 1975), so that configurations are weighed by shading under whatever light explains it. Frames of a clip share their
light: how sides darken as they turn is seen where their outline shows by how much they do. Nothing here is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import Raster, rasterize_camera
from vid2phys.tracking.cues.light import linear
from vid2phys.types import Array, Camera

_DARK = 0.02  # linear light below which the logarithm is taken as straight
_LEAST_PIXELS, _LEAST_FACES = 40, 8
_FLOOR = 0.02  # of what a face's logarithm is off at least
_WHITE, _MOST_WHITE, _UNKNOWN = 250, 0.3, 1e4  # display values that say nothing, share of a face's, variance of such
_CHANNELS = 3
# Standard deviations beforehand of what light may be, in logarithms: of its level, of a part beside the others, of a
# normal's harmonics of first and second order, and of a body's radius along each axis.
_LEVEL, _PART, _FIRST, _SECOND, _PLACE = 20.0, 0.3, 2.0, 0.3, 0.3
_ROUNDS = 3  # of weighing faces
_ROBUST = 6.0  # mean squares from which on faces count less
_MEDIAN = 0.8  # of a mean square over three channels
_LEAST_MISFIT = 0.3
# Faces of an image err together, most of all where no such light explains them, as patterns and shadows: so many count
# as one, of their grain and of what is beyond it. By held-out looks.
_ALIKE, _ALIKE_BEYOND = 40.0, 200.0


@dataclass(frozen=True)
class Shading:
    """What the F faces seen in a frame look like. faces: [F]. light, variance: [F, 3], of a logarithm; where a face is
    white, the variance says that it tells nothing."""

    faces: NDArray[np.int64]
    light: Array
    variance: Array


@dataclass(frozen=True)
class Turned:
    """F faces as D coordinates move them. normals: [F, 3] unit. places: [F, 3], middles in body radii. `..._slopes`:
    by the coordinates, [F, 3, D]. parts: [F], of the body's."""

    normals: Array
    places: Array
    normal_slopes: Array
    place_slopes: Array
    parts: NDArray[np.int64]

    @staticmethod
    def of(corners: Array, slopes: Array, parts: NDArray[np.int64], radius_m: float) -> Turned:
        """Of corners [F, 3, 3] m, a row each, and their slopes [F, 3, 3, D]."""
        first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
        of_first, of_second = slopes[:, 1] - slopes[:, 0], slopes[:, 2] - slopes[:, 0]
        area = np.cross(first, second)
        of_area = np.cross(of_first, second[..., None], axis=1) + np.cross(first[..., None], of_second, axis=1)
        size = np.linalg.norm(area, axis=1, keepdims=True) + 1e-30
        normals = area / size
        along = np.einsum("fj,fjd->fd", normals, of_area)
        of_normals = (of_area - normals[..., None] * along[:, None]) / size[..., None]
        return Turned(normals, corners.mean(axis=1) / radius_m, of_normals, slopes.mean(axis=1) / radius_m, parts)


def seen_shading(
    frame: NDArray[np.uint8], camera: Camera, posed: Array, faces: NDArray[np.int64], parts: NDArray[np.int64]
) -> Shading | None:
    """What a frame [H, W, 3] shows of faces [F, 3] of vertices `posed` [V, 3] m in camera axes, away from where their
    parts [F] end. None where that is too little."""
    raster = rasterize_camera(posed, faces, camera, 1)
    inside = _within_parts(raster, parts)
    if inside is None or inside.sum() < _LEAST_PIXELS:
        return None
    shown = frame[raster.window][inside]
    light = np.log(linear(shown) + _DARK)
    found, which, count = np.unique(raster.faces_seen[inside], return_inverse=True, return_counts=True)
    if len(found) < _LEAST_FACES:
        return None
    mean, white = (
        np.stack([np.bincount(which, values[:, c]) for c in range(_CHANNELS)], axis=1) / count[:, None]
        for values in (light, shown >= _WHITE)
    )
    grain = ((light - mean[which]) ** 2).mean(axis=0)
    variance = np.where(white > _MOST_WHITE, _UNKNOWN, grain / count[:, None] + _FLOOR**2)
    return Shading(found.astype(np.int64), mean, variance)


def _within_parts(raster: Raster, parts: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Pixels [h, w] of the window that have nothing but their own part around them; None where the body is not seen."""
    import cv2

    seen = raster.faces_seen
    if seen.size == 0:
        return None
    part = np.where(seen >= 0, parts[seen] + 1, 0).astype(np.float32)
    around = np.ones((3, 3), np.uint8)
    least = cv2.erode(part, around, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return np.asarray((least == cv2.dilate(part, around)) & (least > 0))


@dataclass(frozen=True)
class Told:
    """What shading tells of D coordinates in T frames, under whatever light explains all of them.

    gradient: [T, D]. apart: [T, D, D], information if the light were known. shared: [T, L, D]; with all coordinates in
    a row the information is that of `apart`, in blocks, less shared' shared.
    """

    gradient: Array
    apart: Array
    shared: Array


def told_by_shading(seen: Sequence[Shading], turned: Sequence[Turned]) -> Told:
    """What the T frames' shading tells of each one's D coordinates."""
    parts = np.unique(np.concatenate([each.parts for each in turned]))
    basis, slopes = (np.concatenate([of(each, parts) for each in turned]) for of in (_basis, _slopes))
    light, stated = (np.concatenate([getattr(each, name) for each in seen]) for name in ("light", "variance"))
    told = (stated < _UNKNOWN).sum(axis=1)
    variance = stated
    for _ in range(_ROUNDS):
        left = light - basis @ _explaining(basis, light, variance)
        square = (left**2 / stated).sum(axis=1) / np.maximum(told, 1)
        misfit = max(float(np.median(square[told > 0])) / _MEDIAN, _LEAST_MISFIT) if told.any() else 1.0
        alike = _ALIKE * min(misfit, 1.0) + _ALIKE_BEYOND * max(misfit - 1.0, 0.0)
        variance = stated * (alike * (1.0 + square / (_ROBUST * misfit)))[:, None]
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
    return Told(gradient, apart, np.concatenate(shared, axis=1))


def _known(basis: Array, variance: Array) -> Array:
    """Information [M, M] about light in a channel, each of whose numbers is of unit variance beforehand; faces have a
    variance [F]."""
    return np.asarray((basis / variance[:, None]).T @ basis + np.eye(basis.shape[1]))


def _explaining(basis: Array, light: Array, variance: Array) -> Array:
    """The light [M, 3] that explains faces [F, 3] of a variance [F, 3] best."""
    of_channels = [
        np.linalg.solve(_known(basis, varies), (basis / varies[:, None]).T @ shown)
        for shown, varies in zip(light.T, variance.T, strict=True)
    ]
    return np.stack(of_channels, axis=1)


def _basis(turned: Turned, parts: NDArray[np.int64]) -> Array:
    """What a face's logarithm is linear in, [F, M], in standard deviations beforehand. parts: that are seen at all."""
    x, y, z = turned.normals.T
    second = np.stack([x * y, y * z, z * x, x * x - y * y, 1.5 * z * z - 0.5], axis=1)
    of_parts = parts == turned.parts[:, None]
    level = np.full((len(x), 1), _LEVEL)
    return np.concatenate(
        [_FIRST * turned.normals, _SECOND * second, _PLACE * turned.places, level, _PART * of_parts], axis=1
    )


def _slopes(turned: Turned, parts: NDArray[np.int64]) -> Array:
    """Of the basis by the coordinates, [F, M, D]."""
    (x, y, z), (dx, dy, dz) = turned.normals.T[..., None], np.moveaxis(turned.normal_slopes, 1, 0)
    second = np.stack(
        [x * dy + y * dx, y * dz + z * dy, z * dx + x * dz, 2.0 * (x * dx - y * dy), 3.0 * z * dz], axis=1
    )
    count, coordinates = dx.shape
    rest = np.zeros((count, 1 + len(parts), coordinates))
    return np.concatenate([_FIRST * turned.normal_slopes, _SECOND * second, _PLACE * turned.place_slopes, rest], axis=1)
