"""Estimate the pose of a textured body in a single image, by shape and texture together.

The network detects the shape up to its symmetry. The texture, compared at a pose that is some degrees off, may favour a
wrong symmetry element. So each of the most likely elements is fitted to the texture, then to the contour. Where no
element explains much, all orientations are tried (`detectors.texture_search`). The pose that explains shape and texture
best counts.

Limits: frames that have no other within a quarter of a second; a second of one core for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import pixels_to_bearings
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import make_view
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.tracking.ambiguous_poses import ROUGH_PRIOR, PoseScorer
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.contour_refinement import LEAST_PX
from vid2phys.tracking.cues.contour import Contour, fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.texture import Shown, SurfaceTexture, soft_view
from vid2phys.tracking.cues.texture_patches import Patches
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.tracking.detectors.texture_search import search as texture_search
from vid2phys.tracking.measured import with_poses
from vid2phys.tracking.texture_refinement import TextureRefiner
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Mesh

SOURCE = "single image"  # of such measurements
_SINGLE_S = 0.25  # distance in time from which on a frame is a single image
_VIEW_PX = 96
_ELEMENTS = 6  # largest number of symmetry elements that are fitted
_OVERCONFIDENT = 15.0  # temperature of the shape's nats beside those of the texture
_LEAST_SHARE = 0.25  # least share of the texture that a pose explains
_BOX_SIZES = (0.55, 0.7, 0.87)  # of the body, over that of a square about its bounding sphere
_LITTLE = 0.4  # share of the texture below which all orientations are tried


def refine_single_images(
    frames: Indexed, camera: Camera, body: TexturedBody, track: Track, calibration: Calibration
) -> Track:
    """Return the track with the poses of single images refined by shape and texture."""
    times, known, pose = track.observation.times_s, track.tracked, track.poses.pose
    fits = dict[int, Contour]()
    for i in np.flatnonzero(known):
        single = (np.abs(times[known] - times[i]) < _SINGLE_S).sum() == 1
        if single and in_frame_diameter(camera, *body.place(pose.translation[i])) >= LEAST_PX:
            refined = body.refine(frames[int(i)], camera, pose[i])
            fits |= {} if refined is None else {int(i): refined}
    return with_fits(track, fits, calibration)


def with_fits(track: Track, fits: Mapping[int, Contour], calibration: Calibration) -> Track:
    """Return the track with the poses of fits to single images, by frame."""
    rows, seen, pose = np.array(sorted(fits), dtype=np.int64), track.observation, track.poses.pose.copy()
    std = np.zeros((len(rows), 6))
    for k, i in enumerate(rows.tolist()):
        pose[i] = fits[i].pose
        std[k] = np.sqrt(np.diag(fits[i].covariance)) * calibration.contour_scale
    observation = with_poses(seen, rows, pose[rows], std[..., None] * np.eye(6), seen.process_time_s, SOURCE)
    return replace(track, observation=observation, poses=replace(track.poses, pose=pose)).clocked()


@dataclass(frozen=True)
class TexturedBody:
    """A textured body and the symmetry group of its shape: rotations [G, 3, 3] about center [3] m."""

    mesh: Mesh
    solid: Solid
    texture: SurfaceTexture
    patches: Patches
    rotations: Array
    center: Array

    @staticmethod
    def of(mesh: Mesh, texture: SurfaceTexture, rotations: Array, center: Array) -> TexturedBody:
        """Return the body of a mesh with its texture and symmetry group."""
        return TexturedBody(mesh, Solid.of(mesh), texture, Patches(mesh), rotations, center)

    def refine(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> Contour | None:
        """Return the pose camera_from_body that explains a frame [H, W, 3] best; None where that is the given pose.

        The pose is near the given one, up to the symmetry, unless that explains little of the texture.
        """
        return self.search(frame, camera, pose).fit

    def element_nats(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> Array:
        """Return the log-likelihood [G] of orientations R @ rotations[g]^T by the texture, the best at zero, nats."""
        return PoseSearch(self, frame, camera, pose).element_nats()

    def search(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> PoseSearch:
        """Return the search for the pose that explains a frame best, which began at a pose, at its end."""
        search = PoseSearch(self, frame, camera, pose)
        search.clear()
        pose = search.pose
        for element in np.argsort(-search.element_nats(), kind="stable")[:_ELEMENTS]:
            rotation = pose.rotation @ self.rotations[element].T
            search.begin(Pose(rotation, pose.translation + (pose.rotation - rotation) @ self.center))
        if search.share < _LITTLE:
            search.anywhere()
        search.clear()
        return search

    def search_box(
        self, frame: NDArray[np.uint8], camera: Camera, center_px: Array, side_px: float
    ) -> PoseSearch | None:
        """Return the search that begins at all orientations in a square of a frame; None where none is seen."""
        starts: list[Pose] = []
        for size in _BOX_SIZES:
            half = 0.5 * size * side_px
            corners = pixels_to_bearings(camera, center_px + half * np.array([[-1.0, -1.0], [1.0, 1.0]]))
            starts += texture_search(frame, camera, self.texture, corners)
        if not starts:
            return None
        search = PoseSearch(self, frame, camera, starts[0])
        for start in starts:
            search.begin(start)
        search.clear()
        return search

    def place(self, translation: Array) -> tuple[Array, Array]:
        """Return bearing [2] and angular radius [rad] of the body's bounding sphere."""
        return direction_and_size(translation, self.mesh.radius_m)

    @property
    def silhouette(self) -> Solid:
        """The body without creases."""
        return self.solid.without_creases()


class PoseSearch:
    """The best pose so far of a body in one image.

    Attributes:
        pose: camera_from_body.
        nats: log-likelihood of shape and texture.
        share: share of the texture that the pose explains.
        fit: None for the pose that was detected.
    """

    def __init__(self, body: TexturedBody, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> None:
        self._body, self._frame, self._camera = body, frame, camera
        self._scorer = PoseScorer(frame, camera, body.solid, pose, ROUGH_PRIOR)
        bearing, radius = body.place(pose.translation)
        self._view = make_view(camera, bearing, float(radius), _VIEW_PX)
        self._image = soft_view(frame, camera, self._view)
        self.pose = pose
        self.fit: Contour | None = None
        self.nats, self.share = self._explained(pose)

    def element_nats(self) -> Array:
        """Return the log-likelihood of each symmetry element by the texture, [G] nats."""
        return self._body.texture.element_nats(self._shown(self.pose))

    def clear(self) -> None:
        """Fit the silhouette alone, since lines of the texture may have been taken for creases."""
        self._take(self.pose, self._body.silhouette)

    def begin(self, pose: Pose) -> None:
        """Fit edges from a pose, then the texture, then edges again."""
        self._take(pose, self._body.solid)
        body = TextureRefiner([self._frame], self._camera, self._body.texture, self._body.patches)
        fit = body.fit(0, pose)
        if fit is None:
            return
        self._take(fit.pose, self._body.solid)
        other = None if fit.by_pieces else body.mirrored(0, fit)
        if other is not None:
            self._take(other.pose, self._body.solid)

    def anywhere(self) -> None:
        """Try all orientations at the place of the pose."""
        bearings = project_points(self.pose, self._body.texture.points)
        for pose in texture_search(self._frame, self._camera, self._body.texture, bearings):
            self.begin(pose)

    def _take(self, pose: Pose, solid: Solid) -> None:
        fit = fit_contour(self._frame, self._camera, solid, pose, prior=ROUGH_PRIOR)
        if fit is None:
            return
        nats, share = self._explained(fit.pose)
        if nats > self.nats and share > _LEAST_SHARE:
            self.pose, self.fit = fit.pose, fit
            self.nats, self.share = nats, share

    def _explained(self, pose: Pose) -> tuple[float, float]:
        share, by_texture = self._shown(pose).explained(self._body.texture.colors[0])
        return self._scorer.explained(pose) / _OVERCONFIDENT + by_texture, share

    def _shown(self, pose: Pose) -> Shown:
        return self._body.texture.shown(self._view, self._image, pose)
