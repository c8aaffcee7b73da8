"""Which of its look-alike orientations a body has, by what colours its parts would have to have in each.

In a wrong orientation parts cover pixels of other parts, and no light makes one colour of them. A part's light is
linear in its normals, as in `align` (Basri and Jacobs, PAMI 2003), free in every frame; only what lies inside the
silhouette is compared, so that nothing has to be known of what is behind the body. Nothing here is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.types import Array, Camera, Mesh

_LENS_PX = 0.7  # blur of an ordinary camera and codec
_LEAST_PIXELS = 100
_CORRELATED_PX = 28.0  # neighbouring pixels err together: this many count as one
_GAMMA, _DARK = 2.2, 0.02  # of the display; linear light below which its curve is taken as straight
_RIDGE = 1e-3
_FLOOR = 0.02  # of what a colour is off at least, display values, full scale 1
_ROBUST_SIGMA = 2.5
_ROUNDS = 3


def part_nats(frame: NDArray[np.uint8], camera: Camera, mesh: Mesh, poses: Sequence[tuple[Array, Array]]) -> Array:
    """How well a frame [H, W, 3] is explained by each of some poses camera_from_body, [P] nats, the best at zero.

    Zeros where one of them shows too little of the body."""
    fits = [_Inside.of(frame, camera, mesh, *pose) for pose in poses]
    if any(inside is None for inside in fits):
        return np.zeros(len(poses))
    found = [inside for inside in fits if inside is not None]
    count = np.mean([len(inside.light) for inside in found])
    nats = -0.5 * count / _CORRELATED_PX * 3.0 * np.log([inside.misfit() for inside in found])
    return np.asarray(nats - nats.max())


@dataclass(frozen=True)
class _Inside:
    """N pixels inside a drawn silhouette. light: [N, 3] linear. slope: [N] of the display's curve there. basis:
    [N, 4 * parts], what light is linear in."""

    light: Array
    slope: Array
    basis: Array

    @staticmethod
    def of(frame: NDArray[np.uint8], camera: Camera, mesh: Mesh, rotation: Array, translation: Array) -> _Inside | None:
        import cv2

        posed = mesh.vertices @ rotation.T + translation
        raster = rasterize_camera(posed, mesh.faces, camera, 1)
        seen, window = raster.faces_seen, raster.window
        if seen.size == 0:
            return None
        inside = cv2.erode((seen >= 0).astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0) > 0
        if inside.sum() < _LEAST_PIXELS:
            return None
        away = (raster.normals * posed[mesh.faces[:, 0]]).sum(axis=1) > 0.0
        normals = np.where(away[:, None], -raster.normals, raster.normals)
        table = np.zeros((len(mesh.faces) + 1, len(mesh.part_names), 4), dtype=np.float32)  # its last row is "no face"
        faces = np.arange(len(mesh.faces))
        table[faces, mesh.part, 0], table[faces, mesh.part, 1:] = 1.0, normals
        drawn = table.reshape(len(table), -1)[seen]
        blurred = np.stack([cv2.GaussianBlur(c, (0, 0), _LENS_PX) for c in np.moveaxis(drawn, -1, 0)], axis=-1)
        light = (frame[window][inside] / 255.0) ** _GAMMA
        slope = (light.mean(axis=1) + _DARK) ** (1.0 / _GAMMA - 1.0) / _GAMMA
        return _Inside(light, slope, blurred[inside].astype(float))

    def misfit(self) -> float:
        """Mean robust square of what no light of the parts explains, display values."""
        basis, target = self.basis * self.slope[:, None], self.light * self.slope[:, None]
        weight, square, scale = np.ones(len(target)), np.zeros(len(target)), 1.0
        for _ in range(_ROUNDS):
            normal = (basis * weight[:, None]).T @ basis
            ridge = (_RIDGE * np.trace(normal) / len(normal) + 1e-12) * np.eye(len(normal))
            residual = target - basis @ np.linalg.solve(normal + ridge, (basis * weight[:, None]).T @ target)
            square = (residual**2).mean(axis=1)
            scale = _ROBUST_SIGMA**2 * (float(np.median(square)) + _FLOOR**2)
            weight = 1.0 / (1.0 + square / scale) ** 2  # Geman and McClure 1987
        return float((square / (1.0 + square / scale)).mean()) + _FLOOR**2
