"""Sample points of a mesh's surface, and measure how far a rotated surface is from the surface.

Limits: differences below the spacing of 20,000 samples are not measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import face_normals
from vid2phys.io.faces import face_areas
from vid2phys.io.texture import surface_colors
from vid2phys.types import Array, Mesh

# From points [N, 3] m on faces [N] to perceptual RGB [N, 3] in 0..1.
SurfaceColor = Callable[[Array, NDArray[np.int64]], Array]

COLOR_WEIGHT = 0.4  # a mean difference of colour of 0.1 (of white minus black) counts as 0.04 body radii
_PROBES, _SAMPLES = 1000, 20_000
_BLUR = 12  # samples over which colour is averaged: small images lose detail below a tenth of a radius
_FAR = 0.25  # radii: larger distances count as this one
_ROUGH_PROBES = 4  # stride of the probes
_FINE = 0.03  # of the radius: a pixel of the virtual camera
_CELLS = 48  # of the coarse distance field, along each axis


def surface_points(mesh: Mesh, count: int, seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Draw points [count, 3] m on the surface, even by area, and their faces [count]."""
    rng = np.random.default_rng(seed)
    area = face_areas(mesh.vertices, mesh.faces)
    # Stratified sampling: the same share of points as of area for every seed.
    at = (np.arange(count) + rng.random(count)) / count
    faces = np.searchsorted(np.cumsum(area) / area.sum(), at).clip(max=len(area) - 1)
    u, v = rng.random((2, count, 1))
    flip = u + v > 1.0
    u, v = np.where(flip, 1.0 - u, u), np.where(flip, 1.0 - v, v)
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces[faces]], 1, 0)
    return a + u * (b - a) + v * (c - a), faces.astype(np.int64)


def texture_color(mesh: Mesh) -> SurfaceColor:
    """Return the perceptual colour of a textured mesh, averaged over what the virtual camera cannot resolve."""
    texel_m = _FINE * mesh.radius_m

    def color(points: Array, faces: NDArray[np.int64]) -> Array:
        a, b, c = np.moveaxis(mesh.vertices[mesh.faces[faces]], 1, 0)
        edges = np.stack([b - a, c - a], axis=-1)
        weight = (np.linalg.pinv(edges) @ (points - a)[..., None])[..., 0]
        barycentric = np.concatenate([1.0 - weight.sum(axis=1, keepdims=True), weight], axis=1)
        return np.sqrt(np.clip(surface_colors(mesh, faces, barycentric, texel_m), 0.0, 1.0))

    return color


def part_color(mesh: Mesh) -> SurfaceColor:
    """Return a colour for each part of a mesh, different from those of the others: parts may differ in colour."""
    colors = np.random.default_rng(0).random((len(mesh.part_names), 3))
    return lambda _points, faces: colors[mesh.part[faces]]


class RotatedSurface:
    """The difference of a surface from itself after a rotation about `center`, in body radii."""

    def __init__(self, mesh: Mesh, center: Array, color: SurfaceColor | None = None) -> None:
        from scipy.spatial import cKDTree

        used = mesh.vertices[np.unique(mesh.faces)]
        self.radius = float(np.linalg.norm(used - center, axis=1).max())
        points, _ = surface_points(mesh, _PROBES, seed=1)
        self.probes = (points - center) / self.radius
        self.samples, self._faces = surface_points(mesh, _SAMPLES, seed=2)
        self._tree = cKDTree((self.samples - center) / self.radius)
        self._normals = face_normals(mesh.vertices, mesh.faces)[self._faces]
        self._color = self._probe_color = None
        if color is not None:
            raw = color(self.samples, self._faces)
            self._color = raw[self._tree.query(self._tree.data, k=_BLUR)[1]].mean(axis=1)
            self._probe_color = self._color[self._tree.query(self.probes)[1]]
        self.samples = np.asarray(self._tree.data)
        self._field = _distance_field(self.samples)
        self._floor = self._difference(self.probes)  # difference due to the samples

    def mismatch(self, rotation: Array) -> float:
        """Return the mean distance of the rotated surface from the surface, plus a weighted colour difference."""
        both = 0.5 * (self._difference(self.probes @ rotation.T) + self._difference(self.probes @ rotation))
        return max(0.0, both - self._floor)

    def _difference(self, points: Array) -> float:
        distance, nearest = self._tree.query(points, distance_upper_bound=_FAR)
        if np.isinf(distance).any():  # too far: the nearest sample does not matter
            distance, nearest = np.minimum(distance, _FAR), np.minimum(nearest, len(self.samples) - 1)
        difference = float(distance.mean())
        if self._color is not None and self._probe_color is not None:
            difference += COLOR_WEIGHT * float(np.abs(self._color[nearest] - self._probe_color).mean())
        return difference

    def nearest(self, points: Array) -> tuple[Array, Array]:
        """Return the samples nearest to points [..., 3] and the unit normals there."""
        _, index = self._tree.query(points.reshape(-1, 3), workers=-1)  # -1: all cores
        return self.samples[index].reshape(points.shape), self._normals[index].reshape(points.shape)

    def roughly(self, rotations: Array) -> Array:
        """Return mean distances of rotated surfaces by a distance field, [R, 3, 3] -> [R]; slightly too small."""
        probes = self.probes[::_ROUGH_PROBES]
        mean = np.empty(len(rotations))
        for start in range(0, len(rotations), 512):
            part = slice(start, start + 512)
            x, y, z = np.moveaxis(_cell(probes @ np.swapaxes(rotations[part], -1, -2)), -1, 0)
            mean[part] = self._field[x, y, z].mean(axis=-1)
        return mean


def _cell(points: Array) -> NDArray[np.int64]:
    """Return the cells [..., 3] of points within the unit sphere."""
    return np.clip(((points / 1.05 + 1.0) * 0.5 * _CELLS).astype(np.int64), 0, _CELLS - 1)


def _distance_field(points: Array) -> NDArray[np.float32]:
    """Return the distances of all cells from those that contain points."""
    from scipy.ndimage import distance_transform_edt

    empty = np.ones((_CELLS,) * 3, dtype=bool)
    empty[tuple(_cell(points).T)] = False
    return np.asarray(distance_transform_edt(empty) * (2.1 / _CELLS), dtype=np.float32)
