"""Describe a shape by a few numbers, by which a trained model is matched to a mesh (not by a file's hash)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vid2phys.io.faces import face_areas
from vid2phys.types import Array, Mesh

SAME_GEOMETRY = 0.03  # signature distances up to here are the same shape, exported or simplified differently
_POINTS = 64
_AREA_WEIGHT = 0.1  # area changes most when a mesh is simplified, so it counts least


@dataclass(frozen=True)
class GeometrySignature:
    """Numbers that depend on the shape and the body axes, but not on vertex order or tessellation.

    extents: [3] m of the bounding box. radius: m, largest distance from the body origin. area: m^2 of the surface.
    second_moments: [3] m^2, mean of x^2, y^2, z^2 over the surface. points: [64, 3] m, in fixed directions d, d * max
    over the surface of d . x (the support function).
    """

    extents: Array
    radius: float
    area: float
    second_moments: Array
    points: Array

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and numbers, for a model's config.json."""
        return {
            "extents": self.extents.tolist(),
            "radius": self.radius,
            "area": self.area,
            "second_moments": self.second_moments.tolist(),
            "points": np.round(self.points, 9).tolist(),
        }

    def scaled(self, factor: float) -> GeometrySignature:
        """Return the signature of the same shape `factor` times as large."""
        return GeometrySignature(
            self.extents * factor,
            self.radius * factor,
            self.area * factor**2,
            self.second_moments * factor**2,
            self.points * factor,
        )

    @staticmethod
    def from_json(data: dict[str, Any]) -> GeometrySignature:
        """Return the signature that `to_json` made plain."""
        return GeometrySignature(
            np.array(data["extents"], dtype=float),
            float(data["radius"]),
            float(data["area"]),
            np.array(data["second_moments"], dtype=float),
            np.array(data["points"], dtype=float),
        )


def geometry_signature(mesh: Mesh) -> GeometrySignature:
    """Return the signature of a mesh in its body axes."""
    corners, areas = mesh.vertices[mesh.faces], face_areas(mesh.vertices, mesh.faces)
    # Exact for a triangle: the integral of x^2 is area / 12 times (sum of squares + square of the sum).
    squares = ((corners**2).sum(axis=1) + corners.sum(axis=1) ** 2) / 12.0
    vertices = mesh.vertices[np.unique(mesh.faces)]
    directions = support_directions()
    support = (vertices @ directions.T).max(axis=0)
    return GeometrySignature(
        extents=np.ptp(vertices, axis=0),
        radius=float(np.linalg.norm(vertices, axis=1).max()),
        area=float(areas.sum()),
        second_moments=areas @ squares / areas.sum(),
        points=directions * support[:, None],
    )


def signature_distance(a: GeometrySignature, b: GeometrySignature) -> float:
    """Return how far apart two shapes are, relative to their radius: 0 for the same, about 1 for unrelated ones.

    It is the largest of: RMS difference of the support points, difference of the extents, difference of the surface's
    radii of gyration (all over the mean radius), and a tenth of the logarithm of the area ratio.
    """
    radius = 0.5 * (a.radius + b.radius)
    gaps = [
        float(np.sqrt(((a.points - b.points) ** 2).sum(axis=1).mean())) / radius,
        float(np.abs(a.extents - b.extents).max()) / (2.0 * radius),
        float(np.abs(np.sqrt(a.second_moments) - np.sqrt(b.second_moments)).max()) / radius,
        _AREA_WEIGHT * abs(float(np.log(a.area / b.area))),
    ]
    return max(gaps)


def support_directions() -> Array:
    """Return the directions of the support points: [64, 3] unit vectors spread over the sphere (golden spiral)."""
    k = np.arange(_POINTS) + 0.5
    z = 1.0 - 2.0 * k / _POINTS
    angle = np.pi * (1.0 + np.sqrt(5.0)) * k
    across = np.sqrt(1.0 - z**2)
    return np.stack([across * np.cos(angle), across * np.sin(angle), z], axis=1)
