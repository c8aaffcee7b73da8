"""Detect a textured mesh by local features, with nothing trained and no motion: SIFT on drawn views, then PnP.

Features (Lowe, SIFT, IJCV 2004) of the textured mesh are taken from drawn views all around it, each with its place on
the surface. A frame's features are matched with them, and a pose is fitted by RANSAC (Fischler and Bolles, 1981). What
holds or hides the body gives outliers only.

Limits: the texture needs corners, and the body some 60 pixels in the frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import pixels_to_bearings
from vid2phys.engine.pose_geometry import rotation_grid
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose
from vid2phys.io.texture import SurfaceColors
from vid2phys.types import Array, Camera, Mesh


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """Settings of `TextureFeatures`."""

    views: int = 48
    """Number of drawn views, evenly spread over all orientations."""
    size: int = 256
    """Width and height of a drawn view, px."""
    distance_radii: float = 5.0
    """Distance of a view, radii of the body."""
    features: int = 400
    """Largest number of features of a view."""
    frame_features: int = 4000
    """Largest number of features of a frame."""
    ratio: float = 0.8
    """Largest distance of a match, as a share of that to the next place on the surface."""
    reach_share: float = 0.03
    """Distance of places on the surface that are one, radii."""
    inlier_px: float = 4.0
    """Largest error of an inlier, px."""
    rounds: int = 500
    """Rounds of RANSAC."""
    min_inliers: int = 8
    """Least number of inliers."""


DEFAULTS = FeatureConfig()
_COMPARED = 8  # most similar features of the mesh, of which one elsewhere on the surface is the second best


@dataclass(frozen=True)
class TextureFeatures:
    """N features of a textured mesh.

    Attributes:
        descriptors: [N, 128], root SIFT (Arandjelovic and Zisserman, CVPR 2012).
        points: [N, 3] places on the surface, body axes, m.
        radius_m: of the body.
        config: settings.
    """

    descriptors: NDArray[np.float32]
    points: Array
    radius_m: float
    config: FeatureConfig = DEFAULTS

    @staticmethod
    def of(mesh: Mesh, config: FeatureConfig = DEFAULTS) -> TextureFeatures | None:
        """Return the features of a mesh; None without a texture or with too few features."""
        if mesh.texture is None:
            return None
        import cv2

        sift, colors = cv2.SIFT.create(nfeatures=config.features), SurfaceColors(mesh)
        focal, middle = 0.42 * config.size * config.distance_radii, 0.5 * (config.size - 1)
        camera = Camera(
            np.array([[focal, 0.0, middle], [0.0, focal, middle], [0.0, 0.0, 1.0]]), config.size, config.size
        )
        texel_m = config.distance_radii * mesh.radius_m / focal
        descriptors, points = [], []
        for rotation in rotation_grid(config.views):
            raster = rasterize_camera(
                mesh.vertices @ rotation.T + [0.0, 0.0, config.distance_radii * mesh.radius_m], mesh.faces, camera
            )
            seen = raster.face_id >= 0
            faces, weights = raster.face_id[seen], raster.barycentric[seen]
            image = np.full((config.size, config.size, 3), 0.5)
            image[seen] = np.clip(colors.at(faces, weights, texel_m), 0.0, 1.0) ** (1.0 / 2.2)
            place = np.zeros((config.size, config.size, 3))
            place[seen] = np.einsum("nk,nki->ni", weights, mesh.vertices[mesh.faces[faces]])
            inside = cv2.erode(seen.astype(np.uint8), np.ones((7, 7), np.uint8))
            found, described = sift.detectAndCompute(_grey(image), inside)
            if described is None:
                continue
            at = np.round([point.pt for point in found]).astype(int)
            descriptors.append(_rooted(described))
            points.append(place[at[:, 1], at[:, 0]])
        if sum(map(len, descriptors)) <= _COMPARED:
            return None
        return TextureFeatures(np.concatenate(descriptors), np.concatenate(points), mesh.radius_m, config)

    def detect(self, frame: NDArray[np.uint8], camera: Camera) -> tuple[Pose, int] | None:
        """Return the pose camera_from_body in a frame and its number of inliers; None where the texture is not seen."""
        import cv2

        sift = cv2.SIFT.create(nfeatures=self.config.frame_features)
        found, described = sift.detectAndCompute(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), None)
        if described is None:
            return None
        pixels, points = self._matches(np.array([point.pt for point in found]), _rooted(described))
        if len(pixels) < self.config.min_inliers:
            return None
        bearings = pixels_to_bearings(camera, pixels)
        sound = np.isfinite(bearings).all(axis=1)
        bearings, points = bearings[sound], points[sound]
        focal = float(np.sqrt(camera.K[0, 0] * camera.K[1, 1]))
        first_rotvec, first_place, kept = self._consensus(points, bearings, self.config.inlier_px / focal)
        if len(kept) < self.config.min_inliers:
            return None
        rotvec, translation = cv2.solvePnPRefineLM(
            points[kept], bearings[kept], np.eye(3), None, first_rotvec, first_place
        )
        if not translation[2, 0] > self.radius_m:
            return None
        rotation = np.asarray(cv2.Rodrigues(rotvec)[0], dtype=float)
        return Pose(rotation, np.asarray(translation[:, 0], dtype=float)), len(kept)

    def _consensus(self, points: Array, bearings: Array, error: float) -> tuple[Array, Array, NDArray[np.int64]]:
        """Return rotation vector and translation [3, 1] by RANSAC, and the inliers, none where nothing agrees.

        SQPnP refuses some samples of points that coincide; EPnP takes its place there.
        """
        import cv2

        for method in (cv2.SOLVEPNP_SQPNP, cv2.SOLVEPNP_EPNP):
            try:
                ok, rotvec, translation, inliers = cv2.solvePnPRansac(
                    points,
                    bearings,
                    np.eye(3),
                    None,
                    iterationsCount=self.config.rounds,
                    reprojectionError=error,
                    flags=method,
                )
            except cv2.error:
                continue
            if ok and inliers is not None:
                return np.asarray(rotvec, float), np.asarray(translation, float), np.asarray(inliers[:, 0], np.int64)
            break
        return np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(0, dtype=np.int64)

    def _matches(self, pixels: Array, described: NDArray[np.float32]) -> tuple[Array, Array]:
        """Return pixels [M, 2] and places [M, 3] of matches; others on the surface are farther by the ratio."""
        similar = described @ self.descriptors.T
        best = similar.argmax(axis=1)
        rows = np.arange(len(best))
        nearest = 2.0 - 2.0 * similar[rows, best]
        candidates = np.argpartition(-similar, _COMPARED, axis=1)[:, :_COMPARED]
        apart = np.linalg.norm(self.points[candidates] - self.points[best][:, None], axis=-1)
        elsewhere = apart > self.config.reach_share * self.radius_m
        other = np.where(elsewhere, 2.0 - 2.0 * np.take_along_axis(similar, candidates, 1), np.inf).min(axis=1)
        kept = nearest < self.config.ratio**2 * other
        return pixels[kept], self.points[best[kept]]


def _grey(image: Any) -> NDArray[np.uint8]:
    import cv2

    return np.asarray(cv2.cvtColor((255.0 * image).astype(np.uint8), cv2.COLOR_RGB2GRAY))


def _rooted(descriptors: Any) -> NDArray[np.float32]:
    sums = descriptors.sum(axis=1, keepdims=True)
    return np.asarray(np.sqrt(descriptors / np.maximum(sums, 1e-9)), dtype=np.float32)
