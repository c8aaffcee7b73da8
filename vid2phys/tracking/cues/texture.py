"""Which symmetry element a textured body has, frame by frame, by the colours of its texture.

A textured cube has one right orientation and 23 others with the same edges. The network detects the edges, up to the
symmetry of the shape. The texture decides: colours in the image at points of the surface are compared with those of the
mesh under every element, up to light. The cue needs no training, and draws no image of the hypotheses.

Limits: a texture that looks the same under two elements does not tell them apart.
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
from vid2phys.tracking.cues import Cue
from vid2phys.types import Array, Camera, Mesh

if TYPE_CHECKING:
    from vid2phys.tracking.detectors.network import Detections, Image

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

CUE = Cue("the texture of the mesh, where the mesh has one")


@dataclass(frozen=True, kw_only=True)
class TextureConfig:
    """Settings of the texture cue."""

    points: int = 600
    """Number of points at which symmetry elements are compared."""
    fine_points: int = 1500
    """Number of points for fits of the pose."""
    dense_points: int = 24_000
    """Number of points from which colours are averaged."""
    blur_shares: tuple[float, ...] = (0.05, 0.025, 0.012)
    """Blurs of the colours, sizes of the body, coarse to fine."""
    same_side: float = 0.7
    """Least cosine between the normals of points whose colours are averaged."""
    grazing: float = 0.15
    """Least cosine between normal and line of sight at which a point is seen."""
    min_points: int = 24
    """Least number of points that are seen."""
    correlated_points: float = 6.0
    """Number of points that count as one."""
    noise_floor: float = 0.03
    """Least error of a colour, full scale 1."""
    robust_sigma: float = 3.0
    """Residual beyond which a point counts less, in standard deviations."""
    rounds: int = 3
    """Rounds of weighting points."""
    light_std: tuple[float, float, float] = (0.6, 0.4, 0.15)
    """Standard deviations of the brightness, of its change with the normal, and of haze, full scale 1."""
    max_nats: float = 12.0
    """Largest evidence of one frame, nats."""
    view_blur_px: float = 0.8
    """Blur of the virtual image before it is compared, px."""


DEFAULTS = TextureConfig()


@dataclass(frozen=True)
class SurfaceTexture:
    """Points on the surface and the colours of the texture there.

    Attributes:
        points: [N, 3], m.
        normals: [N, 3] unit.
        colors: [G, N, 3] under each symmetry element, on a perceptual scale.
        fine_points: [M, 3] further points, m.
        fine_normals: [M, 3] unit.
        fine_colors: for each of `blur_shares`, [M, 3] blurred colours.
        pure: for each of `blur_shares`, [M] share in 0..1 of the blur on the same side of the body.
        blur_shares: blurs, sizes of the body.
        config: settings.
    """

    points: Array
    normals: Array
    colors: Array
    fine_points: Array
    fine_normals: Array
    fine_colors: tuple[Array, ...]
    pure: tuple[Array, ...]
    blur_shares: tuple[float, ...] = DEFAULTS.blur_shares
    config: TextureConfig = DEFAULTS

    @staticmethod
    def of(mesh: Mesh, rotations: Array, center: Array, config: TextureConfig = DEFAULTS) -> SurfaceTexture | None:
        """Return the texture of a mesh whose shape is symmetric under rotations [G, 3, 3] about a center [3], m.

        The result is None without a texture.
        """
        if mesh.texture is None:
            return None
        from scipy.spatial import cKDTree

        normals = face_normals(mesh.vertices, mesh.faces)
        points, faces = surface_points(mesh, config.points, seed=4)
        fine, of_fine = surface_points(mesh, config.fine_points, seed=6)
        dense, of_dense = surface_points(mesh, config.dense_points, seed=5)
        color, tree = texture_color(mesh)(dense, of_dense), cKDTree(dense)
        rotated = (points - center) @ np.swapaxes(rotations, -1, -2) + center
        size = float(np.ptp(mesh.vertices, axis=0).max())
        surface = tree, normals[of_dense], color
        soft = [_soft(fine, normals[of_fine], surface, s * size, config.same_side) for s in config.blur_shares]
        return SurfaceTexture(
            points,
            normals[faces],
            color[tree.query(rotated)[1]],
            fine,
            normals[of_fine],
            tuple(colors for colors, _ in soft),
            tuple(pure for _, pure in soft),
            config.blur_shares,
            config,
        )

    def evidence(self, seen: Detections, frames: Sequence[Image], camera: Camera) -> Array:
        """Return the log-likelihood [N, H, G] of orientations R @ rotations[g]^T in N frames, the best at zero."""
        poses = seen.poses
        out = np.zeros((*poses.cost.shape, len(self.colors)))
        for n, (view, frame) in enumerate(zip(seen.views, frames, strict=True)):
            image = soft_view(frame, camera, view, self.config)
            for h in np.flatnonzero(np.isfinite(poses.cost[n])):
                out[n, h] = self.element_nats(self.shown(view, image, poses.pose[n, h]))
        return out

    def element_nats(self, seen: Shown) -> Array:
        """Return the log-likelihood [G] of orientations R @ rotations[g]^T, the best at zero, nats."""
        if seen.points.sum() < self.config.min_points:
            return np.zeros(len(self.colors))
        misfits = [seen.lit(color).misfit for color in self.colors]
        logs = -0.5 * seen.points.sum() / self.config.correlated_points * np.log(misfits)
        return np.asarray(np.maximum(logs - logs.max(), -self.config.max_nats))

    def shown(self, view: View, image: Image, pose: Pose) -> Shown:
        """Return the colours that a virtual image [S, S, 3] shows of the body at a pose camera_from_body."""
        import cv2

        normals = self.normals @ pose.rotation.T
        rays = pose.apply(self.points)
        facing = -(normals * rays).sum(axis=1) / np.linalg.norm(rays, axis=1)
        pixels = bearings_to_view(view, project_points(pose, self.points))
        seen = (facing > self.config.grazing) & (np.abs(pixels - 0.5 * (view.size - 1)) < 0.5 * view.size - 1.0).all(
            axis=1
        )
        x, y = pixels[seen].astype(np.float32).T
        found = cv2.remap(image, x[:, None], y[:, None], cv2.INTER_LINEAR)[:, 0] if seen.any() else np.zeros((0, 3))
        return Shown(seen, found.astype(float) / 255.0, normals[seen], self.config)


@dataclass(frozen=True)
class Shown:
    """The colours that an image shows of a textured body at a pose.

    Attributes:
        points: [N], which points are seen.
        colors: [M, 3] of the image at the M seen points, 0..1.
        normals: [M, 3] of these, camera axes.
        config: settings.
    """

    points: NDArray[np.bool_]
    colors: Array
    normals: Array
    config: TextureConfig = DEFAULTS

    def lit(self, color: Array) -> Light:
        """Return the light that explains the image best, given colours [N, 3] of the body's points."""
        return Light.fit(self.colors, color[self.points], self.normals, config=self.config)

    def explained(self, color: Array) -> tuple[float, float]:
        """Return the share of the variation that colours [N, 3] of the body's points explain, and the nats of it.

        Both are relative to a body without a texture.
        """
        count = float(self.points.sum())
        if count < self.config.min_points:
            return 0.0, 0.0
        share = self.lit(color).explained(self.colors, self.normals)
        return share, -0.5 * count / self.config.correlated_points * float(np.log(max(1.0 - share, 1e-9)))


@dataclass(frozen=True)
class Light:
    """The light in which an image shows a texture.

    Each channel has a brightness that changes linearly with the normal, and haze. Points that do not fit, behind a
    finger or in a highlight, count less.

    Attributes:
        residual: [N, 3] of the image.
        weight: [N] in 0..1.
        scale: square from which on points count less.
        misfit: mean robust square.
        config: settings.
    """

    residual: Array
    weight: Array
    scale: float
    misfit: float
    config: TextureConfig = DEFAULTS

    @staticmethod
    def fit(
        found: Array,
        color: Array,
        normals: Array,
        trust: Array | float = 1.0,
        config: TextureConfig = DEFAULTS,
    ) -> Light:
        """Return the light that explains colours best.

        Args:
            found: [N, 3] colours of the image.
            color: [N, 3] colours of the mesh.
            normals: [N, 3] unit.
            trust: [N] prior weights of the points, 0..1.
            config: settings.
        """
        light_std, floor = config.light_std, config.noise_floor
        trust = np.broadcast_to(trust, len(found))
        shading = np.concatenate([np.ones((len(color), 1)), normals], axis=1)
        prior = np.diag([light_std[0] ** -2, *[light_std[1] ** -2] * 3, light_std[2] ** -2]) * floor**2
        pull = prior @ np.array([1.0, 0.0, 0.0, 0.0, 0.0])
        basis = np.concatenate([shading * color.T[..., None], np.ones((3, len(color), 1))], axis=-1)  # [3, N, 5]
        weight, residual, scale, square = trust, np.zeros_like(found), 1.0, np.zeros(len(found))
        for _ in range(config.rounds):
            weighted = np.swapaxes(basis, 1, 2) * weight
            light = np.linalg.solve(weighted @ basis + prior, weighted @ found.T[..., None] + pull[:, None])
            residual = found - (basis @ light)[..., 0].T
            square = (residual**2).mean(axis=1)
            scale = config.robust_sigma**2 * (float(np.median(square)) + floor**2)
            weight = trust / (1.0 + square / scale) ** 2  # Geman and McClure 1987
        misfit = float(np.average(square / (1.0 + square / scale), weights=trust + 1e-9))
        return Light(residual, weight, scale, misfit + floor**2, config)

    def explained(self, found: Array, normals: Array, trust: Array | float = 1.0) -> float:
        """Return the share of the variation that the texture explains beyond a plain body in some light."""
        plain = Light.fit(found, np.broadcast_to(found.mean(axis=0), found.shape), normals, trust, self.config)
        return 1.0 - self.misfit / plain.misfit


def soft_view(frame: Image, camera: Camera, view: View, config: TextureConfig = DEFAULTS) -> Image:
    """Return a virtual image of a frame, blurred a little for the comparison with a texture."""
    import cv2

    return np.asarray(cv2.GaussianBlur(resample(frame, camera, view), (0, 0), config.view_blur_px), dtype=np.uint8)


def _soft(
    points: Array, normals: Array, surface: tuple[cKDTree, Array, Array], sigma_m: float, same_side: float
) -> tuple[Array, Array]:
    """Return colours [N, 3] at points, averaged with a Gaussian over the surface that faces the same way.

    Return the share [N] of the Gaussian on that surface too. surface: tree of points, their normals and colours.
    """
    tree, dense_normals, color = surface
    dense = tree.data
    out, total = np.zeros((len(points), 3)), np.zeros(len(points))
    for i, near in enumerate(tree.query_ball_point(points, 2.0 * sigma_m)):
        rows = np.array(near if near else [tree.query(points[i])[1]])
        apart = ((dense[rows] - points[i]) ** 2).sum(axis=1)
        weight = np.exp(-0.5 * apart / sigma_m**2) * (dense_normals[rows] @ normals[i] > same_side) + 1e-12
        total[i] = weight.sum()
        out[i] = weight @ color[rows] / total[i]
    return out, np.clip(total / np.quantile(total, 0.75), 0.0, 1.0)
