"""What was seen of an object in a clip: its pose and readings in every frame, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.pose_geometry import pose_modes
from vid2phys.error_clock import error_clock
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.tracking.detectors.network import Detections
from vid2phys.tracking.motion_blur import MotionBlur
from vid2phys.tracking.proportions import Proportions
from vid2phys.tracking.visibility import Visibility
from vid2phys.types import Array, Observation


@dataclass(frozen=True)
class Track:
    """What was seen of an object in a clip of T frames.

    observation: keypoints with the true labels of the chosen branch. poses: [T] camera_from_body of each frame by
    itself (NaN where lost). tracked: [T]. quality: [T] in 0..1. element: [T] symmetry element that the network labelled
    the frame with, -1 where lost. branch_log_likelihood: [G] nats of the clip if every orientation R were R @
    rotations[g]^T, the chosen branch (g = 0) first. unsupported: indices of lost frames in which a pose was found that
    the image does not support (`support`). image_match: how well the images show the mesh, of a track by silhouettes
    (`support.image_match`); NaN where nobody asked. visibility, proportions: what the clip shows of the body, and how
    its shape differs from the mesh, of such a track. learned_texture: whether a texture that the mesh does not have
    refined the poses (`surface_refinement`). blur: of the clip, of a track by silhouettes; None where there is little.
    """

    observation: Observation
    poses: PoseEstimate
    tracked: NDArray[np.bool_]
    quality: Array
    element: NDArray[np.int64]
    branch_log_likelihood: Array
    unsupported: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    image_match: float = float("nan")
    visibility: Visibility | None = None
    proportions: Proportions | None = None
    learned_texture: bool = False
    blur: MotionBlur | None = None

    @property
    def lost_frames(self) -> NDArray[np.int64]:
        """Indices of the frames in which the object was not found."""
        return np.flatnonzero(~self.tracked)

    @staticmethod
    def of_nothing(times_s: Array, points_body: Array, calibration: Calibration, branch_log_likelihood: Array) -> Track:
        """A clip with frames at times_s [T] in all of which the object is lost: they hold harmless numbers."""
        count, points = len(times_s), len(points_body)
        lost = np.full(count, np.nan)
        poses = PoseEstimate(
            Pose(np.full((count, 3, 3), np.nan), np.full((count, 3), np.nan)),
            np.full((count, 6, 6), np.nan),
            lost,
            np.full(count, np.inf),
            np.zeros((count, points), dtype=bool),
        )
        observation = Observation(
            times_s,
            np.zeros((count, points, 2)),
            np.broadcast_to(np.eye(2), (count, points, 2, 2)),
            np.zeros((count, points, 2, 6)),
            np.array(calibration.correlation_time_s),
            np.zeros((count, points), dtype=bool),
            points_body,
        )
        nowhere = np.full(count, -1, dtype=np.int64)
        return Track(observation, poses, np.zeros(count, dtype=bool), np.zeros(count), nowhere, branch_log_likelihood)

    def clocked(self) -> Track:
        """With the clock of its errors, by how the object turns."""
        clock = error_clock(self.observation.times_s, self.poses.rotation)
        return replace(self, observation=replace(self.observation, error_clock_s=clock))

    def without(self, lost: NDArray[np.bool_], *, unsupported: bool = False) -> Track:
        """Return the track with more lost frames, [T]; unsupported: because their image does not support the pose."""
        if not lost.any():
            return self
        tracked, element = self.tracked & ~lost, self.element.copy()
        element[lost] = -1
        pose, covariance = self.poses.pose.copy(), self.poses.covariance.copy()
        for values in (pose.rotation, pose.translation, covariance):
            values[lost] = np.nan
        return replace(
            self,
            observation=self.observation.without(lost),
            poses=replace(self.poses, pose=pose, covariance=covariance),
            tracked=tracked,
            quality=np.where(lost, 0.0, self.quality),
            element=element,
            unsupported=np.flatnonzero(self.tracked & lost) if unsupported else self.unsupported,
        )

    def seeing(
        self,
        indices: NDArray[np.int64],
        seen: Detections,
        poses: PoseEstimate,
        quality: Array,
        element: NDArray[np.int64],
        inverse: NDArray[np.int64],
        calibration: Calibration,
    ) -> Track:
        """With the object found in N more frames.

        seen: what was read there. poses [N] and quality [N]: of the hypothesis that was chosen, under the true labels.
        element: [N], as above. inverse: [N, K], true point k was read as point inverse[k].
        """
        scale = calibration.mode_scale(seen.diameter_px, quality)
        scale[:, 3:5] *= seen.angular_radius[:, None]  # of the radius to of the range
        modes = pose_modes(poses.pose, self.observation.points_body)
        inside = np.take_along_axis(seen.inside, inverse, axis=1)

        def put(into: Any, values: Any) -> Any:
            out = into.copy()
            out[indices] = values
            return out

        rows = self.observation
        observation = replace(
            rows,
            bearings=put(rows.bearings, np.take_along_axis(seen.bearings, inverse[..., None], axis=1)),
            covariance=put(rows.covariance, np.take_along_axis(seen.covariance, inverse[..., None, None], axis=1)),
            shared_basis=put(rows.shared_basis, modes * scale[:, None, None, :]),
            visible=put(rows.visible, poses.inliers & inside),
        )
        return Track(
            observation,
            self.poses.with_rows(indices, poses),
            put(self.tracked, True),
            put(self.quality, quality),
            put(self.element, element),
            self.branch_log_likelihood,
        )
