"""Which of its look-alike orientations a painted body has, frame by frame, by the colours that its mesh shows.

A painted cube has one right orientation and 23 others with the same edges. The network reads the edges, up to the
shape's own symmetry, and what is painted on them decides: colours in the image at points of the surface against those
that the mesh has there in every orientation, up to light. Needs no training, and no image of the branch is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.render.rasterizer import face_normals
from vid2phys.engine.virtual_camera import View, bearings_to_view, resample
from vid2phys.geometry import Pose
from vid2phys.risp.shape.surface import surface_points, texture_color
from vid2phys.tracking.detectors.network import Detections, Image
from vid2phys.types import Array, Camera, Mesh

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

_POINTS, _FINE_POINTS, _DENSE = 600, 1500, 24_000
_BLUR_SHARES = (0.05, 0.025, 0.012)  # of the body's size, coarse to fine
_GRAZING = 0.15  # cosine between normal and sight from which on a point is seen
_LEAST = 24  # points
_CORRELATED = 6.0  # points that count as one
FLOOR = 0.03  # of what a colour is off at least, full scale 1
_ROBUST_SIGMA = 3.0
_ROUNDS = 3
_LIGHT_STD = (0.6, 0.4, 0.15)  # of the brightness, of how it changes with the normal, of haze; shares of full scale
_MOST_NATS = 12.0  # that one frame may say


@dataclass(frozen=True)
class Paint:
    """Points on the surface and what is painted there.

    points, normals: [N, 3] m. colors: [G, N, 3] (a scale like the eye's) when the body is turned by each element of its
    group. fine_points, fine_normals: [M, 3], more of them. fine_colors: for each of blur_shares (of the body's size),
    [M, 3], out of focus by that. pure: for each, [M] in 0..1, how much of that lies on the same side of the body.
    """

    points: Array
    normals: Array
    colors: Array
    fine_points: Array
    fine_normals: Array
    fine_colors: tuple[Array, ...]
    pure: tuple[Array, ...]
    blur_shares: tuple[float, ...] = _BLUR_SHARES

    @staticmethod
    def of(mesh: Mesh, rotations: Array, center: Array) -> Paint | None:
        """Of a mesh whose shape is symmetric under rotations [G, 3, 3] about center [3]; None without paint."""
        if mesh.texture is None:
            return None
        from scipy.spatial import cKDTree

        normals = face_normals(mesh.vertices, mesh.faces)
        points, faces = surface_points(mesh, _POINTS, seed=4)
        fine, of_fine = surface_points(mesh, _FINE_POINTS, seed=6)
        dense, of_dense = surface_points(mesh, _DENSE, seed=5)
        color, tree = texture_color(mesh)(dense, of_dense), cKDTree(dense)
        turned = (points - center) @ np.swapaxes(rotations, -1, -2) + center
        size = float(np.ptp(mesh.vertices, axis=0).max())
        soft = [_soft(fine, normals[of_fine], tree, normals[of_dense], color, s * size) for s in _BLUR_SHARES]
        return Paint(
            points,
            normals[faces],
            color[tree.query(turned)[1]],
            fine,
            normals[of_fine],
            tuple(colors for colors, _ in soft),
            tuple(pure for _, pure in soft),
        )

    def evidence(self, seen: Detections, frames: Sequence[Image], camera: Camera) -> Array:
        """Log-likelihood [N, H, G] of orientations R @ rotations[g]^T of N looks' H poses, the best at zero."""
        poses = seen.poses
        out = np.zeros((*poses.cost.shape, len(self.colors)))
        for n, (view, frame) in enumerate(zip(seen.views, frames, strict=True)):
            image = soft_view(frame, camera, view)
            for h in np.flatnonzero(np.isfinite(poses.cost[n])):
                out[n, h] = self.turn_nats(self.shown(view, image, poses.pose[n, h]))
        return out

    def turn_nats(self, seen: Shown) -> Array:
        """Log-likelihood [G] of the orientations R @ rotations[g]^T of a look at the body as R, the best at zero."""
        if seen.points.sum() < _LEAST:
            return np.zeros(len(self.colors))
        misfits = [seen.lit(color).misfit for color in self.colors]
        logs = -0.5 * seen.points.sum() / _CORRELATED * np.log(misfits)
        return np.asarray(np.maximum(logs - logs.max(), -_MOST_NATS))

    def shown(self, view: View, image: Image, pose: Pose) -> Shown:
        """What a view's image [S, S, 3] shows of the body at a pose camera_from_body."""
        import cv2

        normals = self.normals @ pose.rotation.T
        sight = pose.apply(self.points)
        facing = -(normals * sight).sum(axis=1) / np.linalg.norm(sight, axis=1)
        pixels = bearings_to_view(view, project_points(pose, self.points))
        seen = (facing > _GRAZING) & (np.abs(pixels - 0.5 * (view.size - 1)) < 0.5 * view.size - 1.0).all(axis=1)
        x, y = pixels[seen].astype(np.float32).T
        found = cv2.remap(image, x[:, None], y[:, None], cv2.INTER_LINEAR)[:, 0] if seen.any() else np.zeros((0, 3))
        return Shown(seen, found.astype(float) / 255.0, normals[seen])


@dataclass(frozen=True)
class Shown:
    """What an image shows of a painted body at a pose. points: [N], which are seen. colors: [M, 3] in 0..1 under
    these M, and normals [M, 3] in camera axes."""

    points: NDArray[np.bool_]
    colors: Array
    normals: Array

    def lit(self, color: Array) -> Light:
        """The light that explains it best by colours [N, 3] of the body's points."""
        return Light.fit(self.colors, color[self.points], self.normals)

    def explained(self, color: Array) -> tuple[float, float]:
        """The share of the variation that colours [N, 3] of the body's points explain, and how many nats better than no
        paint they do."""
        count = float(self.points.sum())
        if count < _LEAST:
            return 0.0, 0.0
        share = self.lit(color).explained(self.colors, self.normals)
        return share, -0.5 * count / _CORRELATED * float(np.log(max(1.0 - share, 1e-9)))


@dataclass(frozen=True)
class Light:
    """The light in which an image shows paint: for each channel a brightness that changes linearly with the normal,
    and haze. Points that do not fit, behind a finger or in a highlight, count less.

    residual: [N, 3] found minus explained. weight: [N] in 0..1. scale: of the squares from which on they count less.
    misfit: mean robust square.
    """

    residual: Array
    weight: Array
    scale: float
    misfit: float

    @staticmethod
    def fit(found: Array, color: Array, normals: Array, trust: Array | float = 1.0) -> Light:
        """The light that explains colours found [N, 3] best by the mesh's color [N, 3], normals [N, 3] being known.

        trust: [N] in 0..1, what points count beforehand.
        """
        trust = np.broadcast_to(trust, len(found))
        shading = np.concatenate([np.ones((len(color), 1)), normals], axis=1)
        prior = np.diag([_LIGHT_STD[0] ** -2, *[_LIGHT_STD[1] ** -2] * 3, _LIGHT_STD[2] ** -2]) * FLOOR**2
        pull = prior @ np.array([1.0, 0.0, 0.0, 0.0, 0.0])
        basis = np.concatenate([shading * color.T[..., None], np.ones((3, len(color), 1))], axis=-1)  # [3, N, 5]
        weight, residual, scale, square = trust, np.zeros_like(found), 1.0, np.zeros(len(found))
        for _ in range(_ROUNDS):
            weighted = np.swapaxes(basis, 1, 2) * weight
            light = np.linalg.solve(weighted @ basis + prior, weighted @ found.T[..., None] + pull[:, None])
            residual = found - (basis @ light)[..., 0].T
            square = (residual**2).mean(axis=1)
            scale = _ROBUST_SIGMA**2 * (float(np.median(square)) + FLOOR**2)
            weight = trust / (1.0 + square / scale) ** 2  # Geman and McClure 1987
        misfit = float(np.average(square / (1.0 + square / scale), weights=trust + 1e-9))
        return Light(residual, weight, scale, misfit + FLOOR**2)

    def explained(self, found: Array, normals: Array, trust: Array | float = 1.0) -> float:
        """The share of the variation that is explained by more than a plain body in some light."""
        plain = Light.fit(found, np.broadcast_to(found.mean(axis=0), found.shape), normals, trust)
        return 1.0 - self.misfit / plain.misfit


def soft_view(frame: Image, camera: Camera, view: View) -> Image:
    """A view of a frame, a little out of focus, as paint is compared with it."""
    import cv2

    return np.asarray(cv2.GaussianBlur(resample(frame, camera, view), (0, 0), 0.8), dtype=np.uint8)


def _soft(
    points: Array, normals: Array, tree: cKDTree, dense_normals: Array, color: Array, sigma_m: float
) -> tuple[Array, Array]:
    """Colours [N, 3] at points, averaged with a Gaussian over the surface around them that faces the same way, and the
    share [N] of the Gaussian that does. tree: of the points whose normals and colours are given."""
    dense = tree.data
    out, total = np.zeros((len(points), 3)), np.zeros(len(points))
    for i, near in enumerate(tree.query_ball_point(points, 2.0 * sigma_m)):
        rows = np.array(near if near else [tree.query(points[i])[1]])
        apart = ((dense[rows] - points[i]) ** 2).sum(axis=1)
        weight = np.exp(-0.5 * apart / sigma_m**2) * (dense_normals[rows] @ normals[i] > 0.7) + 1e-12
        total[i] = weight.sum()
        out[i] = weight @ color[rows] / total[i]
    return out, np.clip(total / np.quantile(total, 0.75), 0.0, 1.0)
