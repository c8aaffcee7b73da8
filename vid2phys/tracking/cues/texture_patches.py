"""Fit the pose of a textured mesh to patches of its texture, each of which is found in the frame by itself.

A cover over half of the body hides half of the patches and leaves the others in place, while a fit of all colours at
once (`texture_fit`) is drawn aside. Patches lie at corners of the texture (Shi and Tomasi 1994), drawn at about the
right pose. They are searched nearby by normalised correlation (Lewis 1995), which light does not change. The pose on
which most of them agree is fitted (random samples: Fischler and Bolles 1981). Few patches agree on a wrong pose: their
share says whether the body is there.

Limits: a texture without corners has no patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import modes_of_points, project_points
from vid2phys.engine.render.rasterizer import rasterize
from vid2phys.engine.virtual_camera import View, bearings_to_view, in_frame, make_view, resample, view_to_bearings
from vid2phys.geometry import Pose
from vid2phys.io.texture import SurfaceColors
from vid2phys.tracking.cues.photometric import MODES, PRIOR_STD
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.types import Array, Camera, Mesh


@dataclass(frozen=True, kw_only=True)
class PatchConfig:
    """Settings of `Patches`. Pixels are those of the virtual image."""

    view_px: int = 192
    """Size of the virtual image, px."""
    blur_px: float = 0.8
    """Blur of frame and drawing, px."""
    patch_px: int = 13
    """Size of a patch, px."""
    max_patches: int = 90
    """Largest number of patches."""
    apart_px: int = 6
    """Least distance of patches, px."""
    corner_share: float = 0.01
    """Least strength of a corner, as a share of the best one's."""
    corner_block_px: int = 5
    """Block of pixels from which the strength of a corner is measured, px."""
    min_correlation: float = 0.6
    """Least correlation of a patch with the frame."""
    reach_px: tuple[int, ...] = (14, 4, 4)
    """Distance to which patches are searched in each round, px."""
    agree_px: tuple[float, ...] = (3.0, 1.5, 1.5)
    """Distance within which a patch agrees with a pose in each round, px."""
    near_px: float = 0.7
    """Mean distance of a drawing from its patches with which no further round follows, px."""
    samples: int = 300
    """Number of random samples."""
    sampled: int = 3
    """Number of patches in a sample."""
    cut_off: float = 1.5
    """Distance at which a sample's patch counts as an outlier, multiples of `agree_px`."""
    min_patches: int = 8
    """Least number of patches that agree."""
    steps: int = 4
    """Number of Gauss-Newton steps."""
    prior_scale: float = 5.0
    """Standard deviations of the start, multiples of those of the alignment (`photometric.PRIOR_STD`)."""
    place_px: float = 0.6
    """Error of a patch's place, px."""
    correlated_patches: float = 2.0
    """Number of patches that count as one."""

    @property
    def prior(self) -> Array:
        """The information [6, 6] about the start."""
        return np.diag((self.prior_scale * PRIOR_STD) ** -2.0)


DEFAULTS = PatchConfig()


@dataclass(frozen=True)
class PatchFit:
    """A pose fitted to patches of the texture.

    Attributes:
        pose: camera_from_body.
        information: [6, 6], in the local coordinates of the pose.
        share: share of the visible patches that lie where the pose puts them, closer ones weighing more, 0..1.
    """

    pose: Pose
    information: Array
    share: float


class Patches:
    """Find one textured mesh near known poses."""

    def __init__(self, mesh: Mesh, config: PatchConfig = DEFAULTS) -> None:
        self._config = config
        self._mesh, self._colors = mesh, SurfaceColors(mesh)
        low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
        self._middle, self._radius = 0.5 * (low + high), 0.5 * float(np.linalg.norm(high - low))

    def fit(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> PatchFit | None:
        """Fit a pose camera_from_body near a known one; None where too few patches agree or are seen."""
        config = self._config
        middle = pose.rotation @ self._middle + pose.translation
        if middle[2] <= self._radius:
            return None
        bearing, angular_radius = direction_and_size(middle, self._radius)
        view = make_view(camera, bearing, float(angular_radius), config.view_px)
        image = _soft(resample(frame, camera, view), config.blur_px)
        fit = None
        for reach, agree in zip(config.reach_px, config.agree_px, strict=True):
            found = self._round(image, camera, view, pose, reach, agree)
            if found is None:
                return None
            fit, apart_px = found
            pose = fit.pose
            if reach < config.reach_px[0] and apart_px < config.near_px:
                break
        return fit

    def _round(
        self,
        image: NDArray[np.uint8],
        camera: Camera,
        view: View,
        pose: Pose,
        reach: int,
        agree: float,
    ) -> tuple[PatchFit, float] | None:
        """Return the fit, and the mean distance of the drawn patches from it, px."""
        config = self._config
        drawn, points_seen = self._drawing(view, pose)
        corners = _corners(drawn, np.isfinite(points_seen[..., 0]), config)
        points = points_seen[corners[:, 1], corners[:, 0]]
        seen = in_frame(camera, project_points(pose, points))
        if seen.sum() < config.min_patches:
            return None
        corners, points = corners[seen], points[seen]
        places, correlation = _matched(drawn, image, corners, reach, config.patch_px)
        good = correlation > config.min_correlation
        if good.sum() < config.min_patches:
            return None
        agreed = _agreed(view, points[good], places[good], pose, agree, config)
        if agreed is None:
            return None
        fit = PatchFit(agreed[0], agreed[1], agreed[2] / len(corners))
        now = bearings_to_view(view, project_points(fit.pose, points))
        return fit, float(np.linalg.norm(now - corners, axis=1).mean())

    def _drawing(self, view: View, pose: Pose) -> tuple[NDArray[np.uint8], Array]:
        """Draw the texture in a virtual image under even light.

        Return the image [size, size, 3] and the points of the body in its pixels [size, size, 3] in m, NaN beside it.
        """
        vertices = pose.apply(self._mesh.vertices) @ view.rotation_view_from_camera.T
        raster = rasterize(vertices, self._mesh.faces, view.K, view.size, view.size)
        seen = raster.faces_seen >= 0
        faces, weights = raster.faces_seen[seen], raster.barycentric_seen[seen]
        linear = self._colors.at(faces, weights, float(np.linalg.norm(pose.translation)) / view.K[0, 0])
        drawn = np.full((view.size, view.size, 3), 128, dtype=np.uint8)
        drawn[raster.window][seen] = np.round(255.0 * np.sqrt(np.clip(linear, 0.0, 1.0)))
        points = np.full((view.size, view.size, 3), np.nan)
        points[raster.window][seen] = np.einsum("nk,nkc->nc", weights, self._mesh.vertices[self._mesh.faces[faces]])
        return _soft(drawn, self._config.blur_px), points


def _soft(image: NDArray[np.uint8], blur_px: float) -> NDArray[np.uint8]:
    import cv2

    return np.asarray(cv2.GaussianBlur(image, (0, 0), blur_px), dtype=np.uint8)


def _corners(drawn: NDArray[np.uint8], body: NDArray[np.bool_], config: PatchConfig) -> NDArray[np.int64]:
    """Return pixels [N, 2] (x, y) whose surroundings lie on the body and differ from those beside them."""
    import cv2

    inside = cv2.erode(body.astype(np.uint8), np.ones((config.patch_px, config.patch_px), np.uint8), borderValue=0)
    margin = config.patch_px // 2 + 1
    inside[:margin], inside[-margin:], inside[:, :margin], inside[:, -margin:] = 0, 0, 0, 0
    grey = cv2.cvtColor(drawn, cv2.COLOR_RGB2GRAY)
    count, share, apart = config.max_patches, config.corner_share, config.apart_px
    found = cv2.goodFeaturesToTrack(grey, count, share, apart, mask=inside, blockSize=config.corner_block_px)
    return np.zeros((0, 2), dtype=np.int64) if found is None else found[:, 0].round().astype(np.int64)


def _matched(
    drawn: NDArray[np.uint8], image: NDArray[np.uint8], corners: NDArray[np.int64], reach: int, patch_px: int
) -> tuple[Array, Array]:
    """Return the places [N, 2] in the image where patches around corners [N, 2] fit best, px, and correlations [N]."""
    import cv2

    half = patch_px // 2
    padded = cv2.copyMakeBorder(image, reach, reach, reach, reach, cv2.BORDER_REPLICATE)
    places, correlation = np.zeros((len(corners), 2)), np.zeros(len(corners))
    for i, (x, y) in enumerate(corners.tolist()):
        patch = drawn[y - half : y + half + 1, x - half : x + half + 1]
        around = padded[y - half : y + half + 1 + 2 * reach, x - half : x + half + 1 + 2 * reach]
        match = cv2.matchTemplate(around, patch, cv2.TM_CCOEFF_NORMED)
        row, column = np.unravel_index(int(np.argmax(match)), match.shape)
        correlation[i] = match[row, column]
        offset = (column + _peak(match[row, :], int(column)), row + _peak(match[:, column], int(row)))
        places[i] = corners[i] + np.array(offset) - reach
    return places, correlation


def _peak(values: NDArray[Any], at: int) -> float:
    """Return the distance from the largest value to the top of the parabola through it and the adjacent values."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, here, after = values[at - 1 : at + 2].tolist()
    curve = before - 2.0 * here + after
    return 0.0 if curve >= -1e-9 else float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5))


def _agreed(
    view: View, points: Array, places: Array, pose: Pose, agree: float, config: PatchConfig
) -> tuple[Pose, Array, float] | None:
    """Return the pose on which most points [N, 3] at places [N, 2] in px agree, its information, and their number.

    A point counts 1 at its place and 0 at a distance of `agree` from it. The result is None for too few points.
    """
    residual, change = _misfit(view, points, places, pose)
    rng = np.random.default_rng(len(points))
    chosen = rng.permuted(np.tile(np.arange(len(points)), (config.samples, 1)), axis=1)[:, : config.sampled]
    rows, right = change[chosen].reshape(config.samples, -1, MODES), residual[chosen].reshape(config.samples, -1, 1)
    transposed = np.swapaxes(rows, 1, 2)
    steps = np.linalg.solve(transposed @ rows + config.prior, -transposed @ right)[..., 0]
    steps = np.concatenate([np.zeros((1, MODES)), steps])
    apart = np.linalg.norm(residual + np.einsum("nij,sj->sni", change, steps), axis=-1)
    step = steps[np.argmin(np.minimum((apart / (config.cut_off * agree)) ** 2, 1.0).sum(axis=1))]
    pose = pose.retract(step)
    weight, information = config.correlated_patches * config.place_px**2, np.zeros((MODES, MODES))
    for _ in range(config.steps):
        residual, change = _misfit(view, points, places, pose)
        near = np.linalg.norm(residual, axis=-1) < agree
        if near.sum() < config.min_patches:
            return None
        weighted = np.swapaxes(change[near], 1, 2)
        information = (weighted @ change[near]).sum(axis=0) / weight
        right = -(weighted @ residual[near][..., None]).sum(axis=0)[:, 0] / weight
        pose = pose.retract(np.linalg.solve(information + config.prior, right))
    residual, _ = _misfit(view, points, places, pose)
    return pose, information, float(np.maximum(1.0 - (residual**2).sum(axis=-1) / agree**2, 0.0).sum())


def _misfit(view: View, points: Array, places: Array, pose: Pose) -> tuple[Array, Array]:
    """Return by how many pixels [N, 2] points at a pose lie beside places, and the derivative by the pose [N, 2, 6]."""
    placed = pose.apply(points)
    bearings = placed[:, :2] / placed[:, 2:]
    to_bearings = view_to_bearings(view, bearings_to_view(view, bearings))[1]
    change = np.linalg.inv(to_bearings) @ modes_of_points(placed, pose.translation)
    return bearings_to_view(view, bearings) - places, change
