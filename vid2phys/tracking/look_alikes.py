"""Poses of a body that have nearly one silhouette: half turns of a body that is nearly symmetric, and depth reversals.

A depth reversal (Necker's cube) reflects a pose along the line of sight. This leaves a silhouette seen from afar as it
is, but makes the body its mirror image. A body with a mirror symmetry is its own mirror image: reflected by that
symmetry as well, the pose is another pose of the same body. A half turn is a plain rotation of the body. A mug, say,
has nearly the same silhouette upside down.

Limits: symmetries about the principal axes alone; rotations of the group are no look-alikes, since all steps know them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from vid2phys.geometry import Pose
from vid2phys.risp.shape.surface import RotatedSurface, surface_points
from vid2phys.types import Array, Mesh

_MOST_MISMATCH = 0.05  # mean distance of the moved surface from the surface, body radii
_MOST = 4
_BALL = 60  # rotations of a ball's group, under which all its orientations are one
_SAME = np.deg2rad(20.0)
_POINTS = 2000


@dataclass(frozen=True)
class LookAlikes:
    """How to find the poses that look like a pose.

    Attributes:
        maps: [M, 3, 3] half turns and reflections that take the body nearly to itself.
        center: [3] point that they leave where it is, m.
    """

    maps: Array
    center: Array

    @staticmethod
    def of(mesh: Mesh, rotations: Array) -> LookAlikes:
        """Return the half turns and reflections that change a mesh least, but no rotation of the group [G, 3, 3]."""
        points, _ = surface_points(mesh, _POINTS)
        center = points.mean(axis=0)
        _, axes = np.linalg.eigh(np.cov(points.T))
        surface = RotatedSurface(mesh, center)
        tried = [axes @ np.diag(signs) @ axes.T for signs in product((1.0, -1.0), repeat=3)]
        mismatch = [surface.mismatch(each) for each in tried]
        known, kept = [np.eye(3)], list[Array]()
        for k in np.argsort(mismatch).tolist() if len(rotations) < _BALL else []:
            if mismatch[k] > _MOST_MISMATCH or len(kept) == _MOST:
                break
            if all(_angle(each, tried[k], rotations) > _SAME for each in known):
                known.append(tried[k])
                kept.append(tried[k])
        return LookAlikes(np.array(kept).reshape(-1, 3, 3), center)

    def of_pose(self, pose: Pose) -> list[Pose]:
        """Return the M look-alikes of a pose camera_from_body."""
        center = pose.apply(self.center[None])[0]
        line = center / np.linalg.norm(center)
        mirror = np.eye(3) - 2.0 * np.outer(line, line)
        turned = [(pose.rotation if np.linalg.det(each) > 0.0 else mirror @ pose.rotation) @ each for each in self.maps]
        return [Pose(rotation, center - rotation @ self.center) for rotation in turned]


def _angle(one: Array, other: Array, rotations: Array) -> float:
    """Return the least angle between two maps up to rotations [G, 3, 3], rad; pi where one of them reflects."""
    if np.linalg.det(one) * np.linalg.det(other) < 0.0:
        return float(np.pi)
    trace = np.einsum("ij,gij->g", other.T @ one, rotations).max()
    return float(np.arccos(np.clip(0.5 * (trace - 1.0), -1.0, 1.0)))
