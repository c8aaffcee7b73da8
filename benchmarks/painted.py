"""Triangles of plain colours under distant lights, by the project's own rasteriser: what benchmarks film cheaply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import lambert, rasterize_camera
from vid2phys.types import Array, Camera

Light = NDArray[Any]  # float32, linear
Lights = tuple[tuple[tuple[float, float, float], float], ...]
_AMBIENT, _SUPERSAMPLE = 0.25, 3


@dataclass(frozen=True)
class Painted:
    """A body before a camera.

    Attributes:
        faces: [F, 3].
        colors: [F, 3], linear.
        camera: with its pose.
        lights: direction of travel in camera axes, and strength, of each.
    """

    faces: NDArray[np.int64]
    colors: Array
    camera: Camera
    lights: Lights

    def layer(self, vertices: Array) -> tuple[tuple[slice, slice], Light]:
        """Return the part of the image that vertices [V, 3] of the world reach, and what is seen there.

        That is linear light and coverage [h, w, 4]; the light is multiplied by the coverage.
        """
        pose = np.asarray(self.camera.camera_to_world)
        raster = rasterize_camera((vertices - pose[:3, 3]) @ pose[:3, :3], self.faces, self.camera, _SUPERSAMPLE)
        lit = _AMBIENT + np.sum([strength * lambert(raster, np.array(way)) for way, strength in self.lights], axis=0)
        seen = raster.averaged((self.colors * lit[:, None])[raster.faces_seen])
        seen[..., :3] *= seen[..., 3:]
        return raster.image_window, seen

    def before(self, behind: Light, exposures: Sequence[Array]) -> Light:
        """Return linear light [H, W, 3] of a frame, for vertices [V, 3] of each of its exposures."""
        rgba = np.zeros((*behind.shape[:2], 4), np.float32)
        for vertices in exposures:
            window, seen = self.layer(vertices)
            rgba[window] += seen / len(exposures)
        return np.asarray(behind * (1.0 - rgba[..., 3:]) + rgba[..., :3])
