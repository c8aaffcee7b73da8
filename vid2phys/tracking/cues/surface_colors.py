"""The colours that a frame shows at places of a body's surface, without the shading of its sides.

Purpose: a print tells poses apart that have one silhouette. Its colours belong to places of the body in all poses.

Method: the surface is divided into small places. A frame's pixels, each by the face that covers it at a pose, give a
mean logarithm of colour for each place. A linear function of the normals is subtracted: light changes with them, and
it gives each of three flat sides a colour of its own. What is left is the print.

Limits: sides that differ in colour alone, without a print, look plain. Of a body of revolution, whose spin is known in
steps alone, all places that turn about its axis are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import face_normals
from vid2phys.geometry import Pose, quat_from_matrix, rotvec_from_quat
from vid2phys.risp.shape.surface import surface_points
from vid2phys.risp.shape.symmetry import AXIAL_ORDER
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.surfaces import box_around, face_labels
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class SurfaceColorsConfig:
    """Settings of `SurfacePlaces`."""

    places: int = 300
    """Number of places on the surface."""
    face_size: float = 0.15
    """Largest edge of a face that belongs to one place, body radii."""
    normal_weight: float = 0.3
    """Distance of places whose normals differ by 1, body radii: the two sides of a thin plate are two places."""
    least_places: int = 10
    """Least number of places that a frame has to show."""
    darkest: float = 0.03
    """Light that is added before its logarithm is taken, so that noise in the dark counts little."""
    shading_prior: float = 0.1
    """Weight of the prior that light does not depend on the normals, as a number of places."""


DEFAULTS = SurfaceColorsConfig()


@dataclass(frozen=True)
class SurfacePlaces:
    """Places on the surface of a body.

    Attributes:
        vertices: [V, 3] of a mesh with small faces, m.
        faces: [F, 3].
        part: [F] smooth part of each face.
        place: [F] place of each face.
        normals: [N, 3] of the places.
        under: [G, N] which place lies where place n of the body under symmetry element g does.
    """

    vertices: Array
    faces: NDArray[np.int64]
    part: NDArray[np.int64]
    place: NDArray[np.int64]
    normals: Array
    under: NDArray[np.int64]
    config: SurfaceColorsConfig = DEFAULTS

    @staticmethod
    def of(solid: Solid, rotations: Array, center: Array, config: SurfaceColorsConfig = DEFAULTS) -> SurfacePlaces:
        """Divide the surface of a body with symmetry elements [G, 3, 3] about `center` [3]."""
        import trimesh
        from scipy.spatial import cKDTree

        mesh = solid.mesh
        part = np.unique(solid.smooth_parts, return_inverse=True)[1]
        vertices, faces, index = trimesh.remesh.subdivide_to_size(
            mesh.vertices, mesh.faces, config.face_size * mesh.radius_m, max_iter=20, return_index=True
        )
        points, on = surface_points(mesh, config.places)
        points, normals = points - center, face_normals(mesh.vertices, mesh.faces)
        weight, axis = config.normal_weight * mesh.radius_m, _axis(rotations)
        tree = cKDTree(_places(points, weight * normals[on], axis))
        _, place = tree.query(_places(vertices[faces].mean(axis=1) - center, weight * normals[index], axis))
        _, under = tree.query(_places(points @ rotations, weight * normals[on] @ rotations, axis))
        return SurfacePlaces(
            np.asarray(vertices), np.asarray(faces, np.int64), part[index], place, normals[on], under, config
        )

    def seen(self, light: NDArray[np.float32], camera: Camera, pose: Pose) -> Array:
        """Return the colours [N, 3] that a frame shows of the places at a pose; NaN where it shows none.

        light: [H, W, 3] linear light. Colours are logarithms, less a linear function of the normals.
        """
        import cv2

        out = np.full((len(self.normals), 3), np.nan)
        placed = pose.apply(self.vertices)
        box = box_around(placed, camera, 1)
        if box is None:
            return out
        left, top, width, height = box
        pixels = project(camera, placed) - np.array([left, top])
        label = face_labels(pixels, 1.0 / placed[:, 2], self.faces, width, height, 1)
        part = np.where(label >= 0, self.part[label], -1).astype(np.float32)
        pure = (cv2.dilate(part, np.ones((3, 3))) == cv2.erode(part, np.ones((3, 3)))) & (part >= 0)
        place = self.place[label[pure]]
        colors = np.log(light[top : top + height, left : left + width][pure] + self.config.darkest)
        count = np.bincount(place, minlength=len(out))
        shown = count > 0
        if shown.sum() < self.config.least_places:
            return out
        total = np.stack([np.bincount(place, colors[:, c], len(out)) for c in range(3)], axis=1)
        mean, weight = total[shown] / count[shown, None], np.sqrt(count[shown, None])
        basis = np.column_stack([np.ones(shown.sum()), self.normals[shown] @ pose.rotation.T])
        prior = self.config.shading_prior * np.diag([0.0, 1.0, 1.0, 1.0])
        shading = np.linalg.solve((weight * basis).T @ (weight * basis) + prior, (weight * basis).T @ (weight * mean))
        out[shown] = mean - basis @ shading
        return out


def _axis(rotations: Array) -> Array | None:
    """Return the axis [3] of a body of revolution with symmetry elements [G, 3, 3]; None for other bodies."""
    rotvec = rotvec_from_quat(quat_from_matrix(rotations))
    angle = np.linalg.norm(rotvec, axis=1)
    least = int(np.argmin(np.where(angle > 0.0, angle, np.inf)))
    full = 2.0 * np.pi / AXIAL_ORDER
    return np.asarray(rotvec[least] / angle[least]) if 0.0 < angle[least] < 1.01 * full else None


def _places(points: Array, normals: Array, axis: Array | None) -> Array:
    """Return coordinates [..., D] in which a place is near itself; normals: [..., 3], scaled.

    What turns about an axis of revolution is one place.
    """
    if axis is None:
        return np.concatenate([points, normals], axis=-1)
    across = points - (points @ axis)[..., None] * axis
    radius = np.linalg.norm(across, axis=-1)
    outwards = (normals * across).sum(axis=-1) / np.maximum(radius, 1e-12)
    return np.stack([points @ axis, radius, normals @ axis, outwards], axis=-1)
