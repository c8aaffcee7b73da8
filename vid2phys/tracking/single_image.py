"""A painted body in one image that has no other beside it: its pose by shape and paint together.

A network reads the shape, up to turns that look alike, and paint that is compared at a pose some degrees off may take a
wrong turn for the right one. So each of the likeliest turns of a reading is fitted to the paint, then to the edges;
where none explains much, all orientations are tried (`detectors.texture_search`). Of all that is found the pose is
taken that explains shape and paint best. A second of one core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.engine.virtual_camera import in_frame, make_view
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.tracking.ambiguous_poses import ROUGH_PRIOR, PoseScorer
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.contour_refinement import LEAST_PX
from vid2phys.tracking.cues.contour import Contour, fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.texture import Paint, Shown, soft_view
from vid2phys.tracking.cues.texture_patches import Patches
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.tracking.detectors.texture_search import search as paint_search
from vid2phys.tracking.texture_refinement import PaintedBody
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Mesh

_ALONE_S = 0.25  # a frame that has no other so near
_VIEW_PX = 96
_TURNS = 6  # that are fitted, at most
_OVERCONFIDENT = 15.0  # by how much nats of the shape are too many beside those of the paint
_LEAST_SHARE = 0.25  # of the paint: what explains less shows none
_LITTLE = 0.4  # of the paint: what explains less is sought in all orientations


def settled_alone(frames: Indexed, camera: Camera, lone: Lone, track: Track, calibration: Calibration) -> Track:
    """The track with the poses of frames that have no other beside them settled by shape and paint."""
    seen, times, known = track.observation, track.observation.times_s, track.tracked
    bearings, basis, visible = seen.bearings.copy(), seen.shared_basis.copy(), seen.visible.copy()
    pose = track.poses.pose.copy()
    for i in np.flatnonzero(known):
        alone = (np.abs(times[known] - times[i]) < _ALONE_S).sum() == 1
        if not alone or in_frame_diameter(camera, *lone.place(pose.translation[i])) < LEAST_PX:
            continue
        told = lone.settle(frames[int(i)], camera, pose[i])
        if told is None:
            continue
        pose[i] = told.pose
        bearings[i] = project_points(told.pose, seen.points_body)
        visible[i] = in_frame(camera, bearings[i])
        std = np.sqrt(np.diag(told.covariance)) * calibration.contour_scale
        basis[i] = pose_modes(told.pose, seen.points_body) * std
    observation = replace(seen, bearings=bearings, shared_basis=basis, visible=visible)
    poses = replace(track.poses, pose=pose)
    return replace(track, observation=observation, poses=poses).clocked()


@dataclass(frozen=True)
class Lone:
    """A painted body with the turns under which its shape looks the same: rotations [G, 3, 3] about center [3] m."""

    mesh: Mesh
    solid: Solid
    paint: Paint
    patches: Patches
    rotations: Array
    center: Array

    @staticmethod
    def of(mesh: Mesh, paint: Paint, rotations: Array, center: Array) -> Lone:
        """Of a mesh with its paint under these turns."""
        return Lone(mesh, Solid.of(mesh), paint, Patches(mesh), rotations, center)

    def settle(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> Contour | None:
        """The pose camera_from_body that explains a frame [H, W, 3] best, near the given one up to a turn unless its
        paint is nowhere near; None where that is the given one."""
        return self._search(frame, camera, pose).fit

    def share(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> float:
        """How much of what a frame shows the paint explains at that pose, at most 1: whether the body is there."""
        return self._search(frame, camera, pose).share

    def _search(self, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> _Search:
        search = _Search(self, frame, camera, pose)
        search.clear()
        pose = search.pose
        for turn in np.argsort(-search.turn_nats(), kind="stable")[:_TURNS]:
            turned = pose.rotation @ self.rotations[turn].T
            search.begin(Pose(turned, pose.translation + (pose.rotation - turned) @ self.center))
        if search.share < _LITTLE:
            search.anywhere()
        search.clear()
        return search

    def place(self, translation: Array) -> tuple[Array, Array]:
        """Bearing [2] and angular radius [rad] of the body's bounding sphere."""
        return direction_and_size(translation, self.mesh.radius_m)

    @property
    def outline(self) -> Solid:
        """The body without creases."""
        return self.solid.without_creases()


class _Search:
    """The best pose so far of a body in one image. nats: how well it explains shape and paint. share: of the paint
    that it explains. fit: None for the pose that was read."""

    def __init__(self, body: Lone, frame: NDArray[np.uint8], camera: Camera, pose: Pose) -> None:
        self._body, self._frame, self._camera = body, frame, camera
        self._read = PoseScorer(frame, camera, body.solid, pose, ROUGH_PRIOR)
        bearing, radius = body.place(pose.translation)
        self._view = make_view(camera, bearing, float(radius), _VIEW_PX)
        self._image = soft_view(frame, camera, self._view)
        self.pose = pose
        self.fit: Contour | None = None
        self.nats, self.share = self._explained(pose)

    def turn_nats(self) -> Array:
        """How likely the paint makes each turn of the pose, [G] nats."""
        return self._body.paint.element_nats(self._shown(self.pose))

    def clear(self) -> None:
        """Goes on by the outline alone: lines of the paint may have been taken for creases."""
        self._take(self.pose, self._body.outline)

    def begin(self, pose: Pose) -> None:
        """Looks about a pose, and where the paint says that the body is, seen from there."""
        self._take(pose, self._body.solid)
        body = PaintedBody([self._frame], self._camera, self._body.paint, self._body.patches)
        fit = body.fit(0, pose)
        if fit is None:
            return
        self._take(fit.pose, self._body.solid)
        other = None if fit.by_pieces else body.mirrored(0, fit)
        if other is not None:
            self._take(other.pose, self._body.solid)

    def anywhere(self) -> None:
        """Looks for the paint in all orientations at its place."""
        bearings = project_points(self.pose, self._body.paint.points)
        for pose in paint_search(self._frame, self._camera, self._body.paint, bearings):
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
        share, of_paint = self._shown(pose).explained(self._body.paint.colors[0])
        return self._read.explained(pose) / _OVERCONFIDENT + of_paint, share

    def _shown(self, pose: Pose) -> Shown:
        return self._body.paint.shown(self._view, self._image, pose)
