"""Which of its look-alike orientations a body has, by what colours its parts would have to have in each.

In a wrong orientation parts cover pixels of other parts, and no light makes one colour of them. A part's light is
linear in its normals and free in every frame; only what lies inside the silhouette is compared, so that nothing has to
be known of what is behind the body. Nothing here is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.light import (
    CORRELATED_PX,
    LENS_PX,
    blurred,
    display_slope,
    linear,
    part_basis,
    reduced,
    smaller,
)
from vid2phys.types import Array, Camera, Mesh

_LEAST_PIXELS = 100
_MOST_PX = 200.0  # of the body; a larger one is looked at in a smaller image
_RIDGE = 1e-3
_FLOOR = 0.02  # of what a colour is off at least, display values, full scale 1
_ROBUST_SIGMA = 2.5
_ROUNDS = 3


def part_nats(frame: NDArray[np.uint8], camera: Camera, mesh: Mesh, poses: Sequence[Pose]) -> Array:
    """How well a frame [H, W, 3] is explained by each of some poses camera_from_body, [P] nats, the best at zero.

    Zeros where one of them shows too little of the body, and of a painted mesh, whose parts have more than a colour."""
    if mesh.texture is not None:
        return np.zeros(len(poses))
    fits = [_Inside.of(frame, camera, mesh, pose) for pose in poses]
    if any(inside is None for inside in fits):
        return np.zeros(len(poses))
    found = [inside for inside in fits if inside is not None]
    count = np.mean([len(inside.light) for inside in found])
    nats = -0.5 * count / CORRELATED_PX * 3.0 * np.log([inside.misfit() for inside in found])
    return np.asarray(nats - nats.max())


@dataclass(frozen=True)
class _Inside:
    """N pixels inside a drawn silhouette. light: [N, 3] linear. slope: [N] of the display's curve there. basis:
    [N, 4 * parts], what light is linear in."""

    light: NDArray[np.float32]
    slope: NDArray[np.float32]
    basis: NDArray[np.float32]

    @staticmethod
    def of(frame: NDArray[np.uint8], camera: Camera, mesh: Mesh, pose: Pose) -> _Inside | None:
        import cv2

        posed = pose.apply(mesh.vertices)
        pixels = project(camera, posed)
        pixels = pixels[np.isfinite(pixels).all(axis=-1)]  # of the vertices that the camera can see
        if not len(pixels):
            return None
        reduction = max(1, int(np.ceil(float(np.ptp(pixels, axis=0).max()) / _MOST_PX)))
        raster = rasterize_camera(posed, mesh.faces, smaller(camera, reduction), 1)
        seen = raster.faces_seen
        if seen.size == 0:
            return None
        inside = cv2.erode((seen >= 0).astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0) > 0
        if inside.sum() < _LEAST_PIXELS:
            return None
        basis = part_basis(mesh, raster.normals, posed[mesh.faces[:, 0]])
        drawn = np.concatenate([basis, np.zeros_like(basis[:1])])[seen]  # its last row is "no face"
        whole = tuple(slice(part.start * reduction, part.stop * reduction) for part in raster.window)
        light = reduced(linear(frame[whole]), seen.shape[::-1])[inside]
        return _Inside(light, display_slope(light.mean(axis=1)), blurred(drawn, LENS_PX)[inside])

    def misfit(self) -> float:
        """Mean robust square of what no light of the parts explains, display values."""
        basis, target = (values.astype(float) * self.slope[:, None] for values in (self.basis, self.light))
        weight, square, scale = np.ones(len(target)), np.zeros(len(target)), 1.0
        for _ in range(_ROUNDS):
            normal = (basis * weight[:, None]).T @ basis
            ridge = (_RIDGE * np.trace(normal) / len(normal) + 1e-12) * np.eye(len(normal))
            residual = target - basis @ np.linalg.solve(normal + ridge, (basis * weight[:, None]).T @ target)
            square = (residual**2).mean(axis=1)
            scale = _ROBUST_SIGMA**2 * (float(np.median(square)) + _FLOOR**2)
            weight = 1.0 / (1.0 + square / scale) ** 2  # Geman and McClure 1987
        return float((square / (1.0 + square / scale)).mean()) + _FLOOR**2
