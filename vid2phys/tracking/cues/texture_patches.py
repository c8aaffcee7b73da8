"""The pose of a painted mesh by pieces of its paint, each found in the frame by itself.

What covers half of the body takes half of the pieces away and leaves the others where they are, while a fit of all
colours at once (`texture_fit`) is drawn aside. Pieces lie at corners of the paint (Shi and Tomasi 1994) as it is drawn
at about the right pose, are sought around there by normalised correlation (Lewis 1995), which no light changes, and the
pose on which most of them agree is fitted (random samples: Fischler and Bolles 1981). A wrong pose has few friends: how
many of the pieces agree says whether the body is there.
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

_VIEW_PX = 192
_FOCUS_PX = 0.8  # a drawing is as little in focus as a frame
_PIECE_PX, _MOST_PIECES, _APART_PX = 13, 90, 6
_CORNER = 0.01  # of the best corner's strength
_ALIKE = 0.6  # correlation
_REACH_PX, _AGREE_PX = (14, 4, 4), (3.0, 1.5, 1.5)  # a round
_NEAR_PX = 0.7  # a drawing this near to its pieces on the mean needs no other
_SAMPLES, _SAMPLED = 300, 3
_LEAST_PIECES = 8
_STEPS = 4
_LOOSE = np.diag((5.0 * PRIOR_STD) ** -2.0)  # what is known beforehand
_PLACE_PX = 0.6  # how well a piece is found
_CORRELATED = 2.0  # pieces that count as one


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
    """Finds one painted mesh near known poses."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh, self._colors = mesh, SurfaceColors(mesh)
        low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
        self._middle, self._radius = 0.5 * (low + high), 0.5 * float(np.linalg.norm(high - low))

    def fit(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> PatchFit | None:
        """The pose camera_from_body near a known one; None where too few pieces agree, or too little is seen."""
        middle = pose.rotation @ self._middle + pose.translation
        if middle[2] <= self._radius:
            return None
        bearing, angular_radius = direction_and_size(middle, self._radius)
        view = make_view(camera, bearing, float(angular_radius), _VIEW_PX)
        image = _soft(resample(frame, camera, view))
        fit = None
        for reach, agree in zip(_REACH_PX, _AGREE_PX, strict=True):
            found = self._round(image, camera, view, pose, reach, agree)
            if found is None:
                return None
            fit, apart_px = found
            pose = fit.pose
            if reach < _REACH_PX[0] and apart_px < _NEAR_PX:
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
        """The fit, and how far from it the pieces were drawn, px."""
        drawn, points_seen = self._drawing(view, pose)
        corners = _corners(drawn, np.isfinite(points_seen[..., 0]))
        points = points_seen[corners[:, 1], corners[:, 0]]
        seen = in_frame(camera, project_points(pose, points))
        if seen.sum() < _LEAST_PIECES:
            return None
        corners, points = corners[seen], points[seen]
        places, alike = _found(drawn, image, corners, reach)
        good = alike > _ALIKE
        if good.sum() < _LEAST_PIECES:
            return None
        agreed = _agreed(view, points[good], places[good], pose, agree)
        if agreed is None:
            return None
        fit = PatchFit(agreed[0], agreed[1], agreed[2] / len(corners))
        now = bearings_to_view(view, project_points(fit.pose, points))
        return fit, float(np.linalg.norm(now - corners, axis=1).mean())

    def _drawing(self, view: View, pose: Pose) -> tuple[NDArray[np.uint8], Array]:
        """The paint as the view would show it under even light, [size, size, 3], and the points of the body that are
        seen, [size, size, 3] m, NaN beside it."""
        vertices = pose.apply(self._mesh.vertices) @ view.rotation_view_from_camera.T
        raster = rasterize(vertices, self._mesh.faces, view.K, view.size, view.size)
        seen = raster.faces_seen >= 0
        faces, weights = raster.faces_seen[seen], raster.barycentric_seen[seen]
        linear = self._colors.at(faces, weights, float(np.linalg.norm(pose.translation)) / view.K[0, 0])
        drawn = np.full((view.size, view.size, 3), 128, dtype=np.uint8)
        drawn[raster.window][seen] = np.round(255.0 * np.sqrt(np.clip(linear, 0.0, 1.0)))
        points = np.full((view.size, view.size, 3), np.nan)
        points[raster.window][seen] = np.einsum("nk,nkc->nc", weights, self._mesh.vertices[self._mesh.faces[faces]])
        return _soft(drawn), points


def _soft(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import cv2

    return np.asarray(cv2.GaussianBlur(image, (0, 0), _FOCUS_PX), dtype=np.uint8)


def _corners(drawn: NDArray[np.uint8], body: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Pixels [N, 2] (x, y) whose surroundings lie on the body and can be told from others beside them."""
    import cv2

    inside = cv2.erode(body.astype(np.uint8), np.ones((_PIECE_PX, _PIECE_PX), np.uint8), borderValue=0)
    margin = _PIECE_PX // 2 + 1
    inside[:margin], inside[-margin:], inside[:, :margin], inside[:, -margin:] = 0, 0, 0, 0
    grey = cv2.cvtColor(drawn, cv2.COLOR_RGB2GRAY)
    found = cv2.goodFeaturesToTrack(grey, _MOST_PIECES, _CORNER, _APART_PX, mask=inside, blockSize=5)
    return np.zeros((0, 2), dtype=np.int64) if found is None else found[:, 0].round().astype(np.int64)


def _found(
    drawn: NDArray[np.uint8], image: NDArray[np.uint8], corners: NDArray[np.int64], reach: int
) -> tuple[Array, Array]:
    """Where in the image pieces around corners [N, 2] fit best, [N, 2] px, and how well, [N] in -1..1."""
    import cv2

    half = _PIECE_PX // 2
    padded = cv2.copyMakeBorder(image, reach, reach, reach, reach, cv2.BORDER_REPLICATE)
    places, alike = np.zeros((len(corners), 2)), np.zeros(len(corners))
    for i, (x, y) in enumerate(corners.tolist()):
        piece = drawn[y - half : y + half + 1, x - half : x + half + 1]
        around = padded[y - half : y + half + 1 + 2 * reach, x - half : x + half + 1 + 2 * reach]
        match = cv2.matchTemplate(around, piece, cv2.TM_CCOEFF_NORMED)
        row, column = np.unravel_index(int(np.argmax(match)), match.shape)
        alike[i] = match[row, column]
        offset = (column + _peak(match[row, :], int(column)), row + _peak(match[:, column], int(row)))
        places[i] = corners[i] + np.array(offset) - reach
    return places, alike


def _peak(values: NDArray[Any], at: int) -> float:
    """How far beside its largest value the parabola through it and its neighbours is highest."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, here, after = values[at - 1 : at + 2].tolist()
    curve = before - 2.0 * here + after
    return 0.0 if curve >= -1e-9 else float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5))


def _agreed(view: View, points: Array, places: Array, pose: Pose, agree: float) -> tuple[Pose, Array, float] | None:
    """The pose on which most of the points [N, 3] found at places [N, 2] px agree, its information, how many do: one
    counts 1 at its place and 0 at a distance of `agree` from it."""
    residual, change = _misfit(view, points, places, pose)
    rng = np.random.default_rng(len(points))
    chosen = rng.permuted(np.tile(np.arange(len(points)), (_SAMPLES, 1)), axis=1)[:, :_SAMPLED]
    rows, right = change[chosen].reshape(_SAMPLES, -1, MODES), residual[chosen].reshape(_SAMPLES, -1, 1)
    turned = np.swapaxes(rows, 1, 2)
    steps = np.linalg.solve(turned @ rows + _LOOSE, -turned @ right)[..., 0]
    steps = np.concatenate([np.zeros((1, MODES)), steps])
    apart = np.linalg.norm(residual + np.einsum("nij,sj->sni", change, steps), axis=-1)
    step = steps[np.argmin(np.minimum((apart / (1.5 * agree)) ** 2, 1.0).sum(axis=1))]
    pose = pose.retract(step)
    weight, information = _CORRELATED * _PLACE_PX**2, np.zeros((MODES, MODES))
    for _ in range(_STEPS):
        residual, change = _misfit(view, points, places, pose)
        near = np.linalg.norm(residual, axis=-1) < agree
        if near.sum() < _LEAST_PIECES:
            return None
        weighted = np.swapaxes(change[near], 1, 2)
        information = (weighted @ change[near]).sum(axis=0) / weight
        right = -(weighted @ residual[near][..., None]).sum(axis=0)[:, 0] / weight
        pose = pose.retract(np.linalg.solve(information + _LOOSE, right))
    residual, _ = _misfit(view, points, places, pose)
    return pose, information, float(np.maximum(1.0 - (residual**2).sum(axis=-1) / agree**2, 0.0).sum())


def _misfit(view: View, points: Array, places: Array, pose: Pose) -> tuple[Array, Array]:
    """View pixels [N, 2] by which points of the posed body lie beside places, and their change with MODES [N, 2, 6]."""
    posed = pose.apply(points)
    bearings = posed[:, :2] / posed[:, 2:]
    to_bearings = view_to_bearings(view, bearings_to_view(view, bearings))[1]
    change = np.linalg.inv(to_bearings) @ modes_of_points(posed, pose.translation)
    return bearings_to_view(view, bearings) - places, change
