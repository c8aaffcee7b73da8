"""Keypoints and symmetry of a mesh: what a model is trained for, and what a body without a model is tracked with.

Limits: as those of `shape.symmetry` and `shape.keypoints`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.io.mesh import geometry_signature
from vid2phys.risp.networks.model import Shape
from vid2phys.risp.networks.validate import Body
from vid2phys.risp.shape.keypoints import choose_keypoints
from vid2phys.risp.shape.symmetry import Symmetry, find_symmetry
from vid2phys.types import Array, Mesh

_FRONT_REACH = 0.3  # least distance of the front point from the axis, of the farthest keypoint's
_NOSE_COSINE = 0.98


def body_of(mesh: Mesh, symmetry: Symmetry) -> Body:
    """Return the keypoints of a mesh under its symmetry, with a front point unless the symmetry is exact."""
    keypoints = choose_keypoints(mesh, symmetry)
    points, center = keypoints.points_body - symmetry.center, symmetry.center
    if symmetry.exact and symmetry.order > 1:
        return Body(keypoints.points_body, keypoints.permutation, symmetry.rotations, None, center)
    known = body_with_front(points, keypoints.permutation, symmetry.rotations, mesh.vertices - center)
    return replace(known, points=known.points + center, center=center)


def shape_of(mesh: Mesh, system: str, body: Body | None = None) -> Shape:
    """Return keypoints and symmetry of a mesh, m; body: those that are known already.

    The symmetry is that of the shape: a texture distinguishes its elements later (`cues.texture`).
    """
    body = body_of(mesh, find_symmetry(replace(mesh, texture=None))) if body is None else body
    return Shape(
        system,
        geometry_signature(mesh),
        body.points,
        body.rotations,
        body.permutation,
        body.front,
        mesh.name,
        body.center,
        textured=mesh.texture is not None,
    )


def body_with_front(points_body: Array, permutation: NDArray[np.int64], rotations: Array, surface: Array) -> Body:
    """Return the keypoints with a front point at the nose (towards +x), which tells symmetry elements apart.

    Most bodies are mirror images of themselves about the plane through their nose. Only handedness tells a point beside
    this plane from its mirror image, so that the front point lies in the plane. Where no keypoint lies near the plane,
    the foremost point of the surface in it is added with its whole orbit.

    Args:
        points_body: [K, 3] keypoints, m.
        permutation: [G, K] of the keypoints.
        rotations: [G, 3, 3] symmetry group about the origin.
        surface: [N, 3] points of the surface, m.
    """
    ahead, distance = _ahead(points_body, rotations)
    far = distance >= _FRONT_REACH * distance.max()
    front = int(np.argmax(np.where(far, ahead, -np.inf)))
    if ahead[front] < _NOSE_COSINE and len(rotations) > 1:
        nose, reach = _ahead(surface, rotations)
        reach = np.where(nose > _NOSE_COSINE, reach, -1.0)
        if reach.max() >= _FRONT_REACH * distance.max():
            front = len(points_body)
            orbit = rotations @ surface[int(np.argmax(reach))]
            rotated = np.einsum("gij,hj->ghi", rotations, orbit)
            table = np.linalg.norm(rotated[:, :, None] - orbit, axis=-1).argmin(axis=-1)
            points_body = np.concatenate([points_body, orbit])
            permutation = np.concatenate([permutation, table + front], axis=1)
    return Body(points_body, permutation, rotations, front)


def _ahead(points: Array, rotations: Array) -> tuple[Array, Array]:
    """Return the cosines between points off the group's axis and the nose, and their distances from the axis."""
    aside = points - np.einsum("gij,kj->ki", rotations, points) / len(rotations)
    if len(rotations) < 2:  # no symmetry
        aside = points
    distance = np.linalg.norm(aside, axis=1)
    nose = next((axis for axis in np.eye(3) if np.linalg.norm(rotations.mean(axis=0) @ axis) < 0.9), np.eye(3)[0])
    return aside @ nose / np.maximum(distance, 1e-12), distance
