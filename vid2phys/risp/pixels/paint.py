"""Which of its look-alike orientations a painted body has, frame by frame, by the colours that its mesh shows.

A painted cube has one right orientation and 23 others with the same edges. The network reads the edges, up to the
shape's own symmetry, and what is painted on them decides: colours in the picture at points of the surface against those
that the mesh has there in every orientation, up to light. Needs no training, and no picture of the branch is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vid2phys.risp.shape.surface import mesh_normals, surface_points, texture_color
from vid2phys.risp.tracking.geometry import project_points
from vid2phys.risp.tracking.sight import Image, Sightings
from vid2phys.risp.tracking.view import View, bearings_to_view, resample
from vid2phys.types import Array, Camera, Mesh

_POINTS = 600
_GRAZING = 0.15  # cosine between normal and sight from which on a point is seen
_LEAST = 24  # points
_CORRELATED = 6.0  # points that count as one
_FLOOR = 0.03  # of what a colour is off at least, full scale 1
_CAUCHY_SIGMA = 2.0
_ROUNDS = 3
_LIGHT_STD = (0.6, 0.4, 0.15)  # of the brightness, of how it changes with the normal, of haze; shares of full scale
_MOST_NATS = 12.0  # that one frame may say


@dataclass(frozen=True)
class Paint:
    """Points on the surface, [N, 3] m with normals [N, 3], and their colours [G, N, 3] (a scale like the eye's) when
    the body is turned by each element of its group."""

    points: Array
    normals: Array
    colors: Array

    @staticmethod
    def of(mesh: Mesh, rotations: Array, center: Array) -> Paint | None:
        """Of a mesh whose shape is symmetric under rotations [G, 3, 3] about center [3]; None if nothing is painted on
        it or nothing is symmetric."""
        if mesh.texture is None or len(rotations) < 2:
            return None
        from scipy.spatial import cKDTree

        points, faces = surface_points(mesh, _POINTS, seed=4)
        dense, of_dense = surface_points(mesh, 40 * _POINTS, seed=5)
        color, tree = texture_color(mesh)(dense, of_dense), cKDTree(dense)
        turned = (points - center) @ np.swapaxes(rotations, -1, -2) + center
        return Paint(points, mesh_normals(mesh)[faces], color[tree.query(turned)[1]])

    def evidence(self, seen: Sightings, frames: Sequence[Image], camera: Camera) -> Array:
        """Log-likelihood [N, H, G] of orientations R @ rotations[g]^T of N looks' H poses, the best at zero."""
        poses = seen.poses
        out = np.zeros((*poses.cost.shape, len(self.colors)))
        for n, (view, frame) in enumerate(zip(seen.views, frames, strict=True)):
            picture = resample(frame, camera, view)
            for h in np.flatnonzero(np.isfinite(poses.cost[n])):
                out[n, h] = self._compare(view, picture, poses.rotation[n, h], poses.translation[n, h])
        return out

    def _compare(self, view: View, picture: Image, rotation: Array, translation: Array) -> Array:
        import cv2

        normals = self.normals @ rotation.T
        sight = self.points @ rotation.T + translation
        facing = -(normals * sight).sum(axis=1) / np.linalg.norm(sight, axis=1)
        pixels = bearings_to_view(view, project_points(rotation, translation, self.points))
        seen = (facing > _GRAZING) & (np.abs(pixels - 0.5 * (view.size - 1)) < 0.5 * view.size - 1.0).all(axis=1)
        if seen.sum() < _LEAST:
            return np.zeros(len(self.colors))
        x, y = pixels[seen].astype(np.float32).T
        blurred = cv2.GaussianBlur(picture, (0, 0), 0.8)
        found = cv2.remap(blurred, x[:, None], y[:, None], cv2.INTER_LINEAR)[:, 0].astype(float) / 255.0
        logs = (
            -0.5
            * seen.sum()
            / _CORRELATED
            * np.log([_misfit(found, color[seen], normals[seen]) for color in self.colors])
        )
        return np.maximum(logs - logs.max(), -_MOST_NATS)


def _misfit(found: Array, color: Array, normals: Array) -> float:
    """Mean square of found [N, 3] minus the mesh's color [N, 3] in the light that explains it best.

    Light: a brightness that changes linearly with the normal, for each channel, and haze. Points that do not fit,
    behind a finger or in a highlight, count less.
    """
    shading = np.concatenate([np.ones((len(color), 1)), normals], axis=1)
    prior = np.diag([_LIGHT_STD[0] ** -2, *[_LIGHT_STD[1] ** -2] * 3, _LIGHT_STD[2] ** -2]) * _FLOOR**2
    expected = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    weight, residual = np.ones(len(found)), np.zeros_like(found)
    for _ in range(_ROUNDS):
        for c in range(3):
            basis = np.concatenate([shading * color[:, c : c + 1], np.ones((len(color), 1))], axis=1)
            weighted = basis.T * weight
            light = np.linalg.solve(weighted @ basis + prior, weighted @ found[:, c] + prior @ expected)
            residual[:, c] = found[:, c] - basis @ light
        square = (residual**2).mean(axis=1)
        scale = _CAUCHY_SIGMA**2 * (float(np.median(square)) + _FLOOR**2)
        weight = 1.0 / (1.0 + square / scale)
    return float((scale * np.log1p(square / scale)).mean()) + _FLOOR**2
