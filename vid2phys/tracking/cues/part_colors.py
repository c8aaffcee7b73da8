"""Which of several poses a body has, by the colours that its parts would need in each of them.

In a wrong orientation parts cover pixels of other parts, and no light makes one colour of these. The light of a part is
linear in its normals and free in every frame. Only pixels inside the silhouette are compared, so that the background
need not be known. Nothing is learned.

Limits: parts of one colour, and textured bodies, say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose
from vid2phys.tracking.cues import Cue
from vid2phys.tracking.cues.light import DEFAULTS as LIGHT
from vid2phys.tracking.cues.light import (
    LightConfig,
    blurred,
    display_slope,
    linear,
    part_basis,
    reduced,
    smaller,
)
from vid2phys.types import Array, Camera, Mesh

CUE = Cue("colours of the mesh's parts; a part of the symmetry step")


@dataclass(frozen=True, kw_only=True)
class PartColorsConfig:
    """Settings of `part_nats`."""

    min_pixels: int = 100
    """Least number of pixels inside the silhouette."""
    max_size_px: float = 200.0
    """Largest size of the body, px; larger bodies are compared in a smaller image."""
    ridge: float = 1e-3
    """Ridge of the least-squares fit, as a share of the mean diagonal."""
    noise_floor: float = 0.02
    """Least error of a colour, display values, full scale 1."""
    robust_sigma: float = 2.5
    """Residual beyond which a pixel counts less, in standard deviations."""
    rounds: int = 3
    """Rounds of weighting pixels."""
    light: LightConfig = LIGHT
    """Blur of the lens, and correlation of pixels."""


DEFAULTS = PartColorsConfig()


def part_nats(
    frame: NDArray[np.uint8],
    camera: Camera,
    mesh: Mesh,
    poses: Sequence[Pose],
    config: PartColorsConfig = DEFAULTS,
) -> Array:
    """Return how well poses camera_from_body explain a frame [H, W, 3], [P] nats, the best at zero.

    The result is zero where one of the poses shows too little of the body, and for a textured mesh, whose parts have
    more than one colour.
    """
    if mesh.texture is not None:
        return np.zeros(len(poses))
    fits = [_Inside.of(frame, camera, mesh, pose, config) for pose in poses]
    if any(inside is None for inside in fits):
        return np.zeros(len(poses))
    found = [inside for inside in fits if inside is not None]
    count = np.mean([len(inside.light) for inside in found])
    misfits = [inside.misfit(config) for inside in found]
    nats = -0.5 * count / config.light.correlated_px * 3.0 * np.log(misfits)
    return np.asarray(nats - nats.max())


@dataclass(frozen=True)
class _Inside:
    """N pixels inside a drawn silhouette.

    Attributes:
        light: [N, 3] linear.
        slope: [N] of the display's tone curve.
        basis: [N, 4 * parts] of the light.
    """

    light: NDArray[np.float32]
    slope: NDArray[np.float32]
    basis: NDArray[np.float32]

    @staticmethod
    def of(
        frame: NDArray[np.uint8], camera: Camera, mesh: Mesh, pose: Pose, config: PartColorsConfig
    ) -> _Inside | None:
        """Return the pixels of a frame; None for too few."""
        import cv2

        vertices = pose.apply(mesh.vertices)
        pixels = project(camera, vertices)
        pixels = pixels[np.isfinite(pixels).all(axis=-1)]  # of vertices before the camera
        if not len(pixels):
            return None
        reduction = max(1, int(np.ceil(float(np.ptp(pixels, axis=0).max()) / config.max_size_px)))
        raster = rasterize_camera(vertices, mesh.faces, smaller(camera, reduction), 1)
        seen = raster.faces_seen
        if seen.size == 0:
            return None
        inside = cv2.erode((seen >= 0).astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0) > 0
        if inside.sum() < config.min_pixels:
            return None
        basis = part_basis(mesh, raster.normals, vertices[mesh.faces[:, 0]])
        drawn = np.concatenate([basis, np.zeros_like(basis[:1])])[seen]  # its last row is "no face"
        whole = tuple(slice(part.start * reduction, part.stop * reduction) for part in raster.window)
        light = reduced(linear(frame[whole]), seen.shape[::-1])[inside]
        return _Inside(light, display_slope(light.mean(axis=1)), blurred(drawn, config.light.lens_px)[inside])

    def misfit(self, config: PartColorsConfig) -> float:
        """Return the mean robust square of the residual under the best light of the parts, display values."""
        basis, target = (values.astype(float) * self.slope[:, None] for values in (self.basis, self.light))
        weight, square, scale = np.ones(len(target)), np.zeros(len(target)), 1.0
        for _ in range(config.rounds):
            normal = (basis * weight[:, None]).T @ basis
            ridge = (config.ridge * np.trace(normal) / len(normal) + 1e-12) * np.eye(len(normal))
            residual = target - basis @ np.linalg.solve(normal + ridge, (basis * weight[:, None]).T @ target)
            square = (residual**2).mean(axis=1)
            scale = config.robust_sigma**2 * (float(np.median(square)) + config.noise_floor**2)
            weight = 1.0 / (1.0 + square / scale) ** 2  # Geman and McClure 1987
        return float((square / (1.0 + square / scale)).mean()) + config.noise_floor**2
