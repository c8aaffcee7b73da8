"""Where the object is when that is not known, and whether what was read there is the object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import pixels_to_bearings
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.virtual_camera import View, bearings_to_view
from vid2phys.error_model import Calibration
from vid2phys.tracking.background import Background
from vid2phys.tracking.detectors.network import Detections, Image, direction_and_size, look
from vid2phys.types import Array, Camera

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_CANDIDATES = 8  # of the coarse network
_FINALISTS = 4
_BLOB_TO_SPHERE = 1.15  # the sphere is wider than what one sees of a body in it
_LEAST_PX = 14.0  # in-frame diameter of the bounding sphere; training begins at 20
_MOVING = 0.1  # share of changed pixels from which on a place is moving
_ELSEWHERE = 2.5  # radii
_MOVING_BONUS = 0.3  # what that is worth against quality


@dataclass(frozen=True)
class Found:
    """Where the object is in a frame: translation [3] m in camera axes. quality: 0..1. score: to compare frames by."""

    translation: Array
    quality: float
    score: float


@dataclass(frozen=True)
class LastSeen:
    """The scene of a frame in which the object was at translation [3] m, in camera axes."""

    scene: Background
    translation: Array

    def stood_already(self, frame: Image, camera: Camera, place: Array, radius_m: float) -> bool:
        """Whether what is seen at a place [3] m was there while the object was elsewhere: something that looks like it.

        Always False with a camera that moves, where all of the image differs.
        """
        (then, _), (now, size) = (direction_and_size(x, radius_m) for x in (self.translation, place))
        apart = float(np.linalg.norm(now - then) / np.tan(size))
        return apart > _ELSEWHERE and self.scene.moving(frame, camera, place, radius_m) < _MOVING


@dataclass(frozen=True)
class Watch:
    """What is needed to look for one object in the frames of one clip."""

    model: Model
    camera: Camera
    background: Background
    radius_m: float
    calibration: Calibration

    def look(self, frames: Sequence[Image], translation: Array, *, hypotheses: int = 1) -> Detections:
        """Read N frames where the object is thought to be, translation [N, 3] m in camera axes."""
        centers, radii = direction_and_size(translation, self.radius_m)
        return look(self.model, self.camera, frames, centers, radii, self.calibration, hypotheses=hypotheses)

    def reinitialise(self, frames: Sequence[Image], poses: PoseEstimate) -> Detections:
        """Read N frames in which the object is thought to have poses [N], under their labels."""
        centers, radii = direction_and_size(poses.translation, self.radius_m)
        return look(self.model, self.camera, frames, centers, radii, self.calibration, expected=poses)

    def judge(self, frames: Sequence[Image], seen: Detections) -> tuple[NDArray[np.bool_], Array]:
        """Whether detections [N] are the object, and scores to compare them by.

        The pose must lie where the view looked, and the network must be sure of it: a little where the image differs
        from the clip's median, much where nothing moves, because whatever stands about looks like the object somewhere.
        """
        translation, quality = seen.poses.translation[:, 0], seen.quality[:, 0]
        share = [
            self.background.moving(frame, self.camera, place, self.radius_m)
            for frame, place in zip(frames, translation, strict=True)
        ]
        moving = np.array(share) >= _MOVING
        least = np.where(moving, self.calibration.min_quality, self.calibration.still_quality)
        credible = plausible(seen, self.radius_m) & (quality >= least)
        return credible, np.where(credible, quality + _MOVING_BONUS * moving, 0.0)

    def search(self, frame: Image, last: LastSeen | None = None) -> Found | None:
        """The object in a whole frame, or None. last: where it was seen when it was lost.

        Each candidate is read by the fine network, the best again in views centred on what was read.
        """
        again = self.finalists(frame, _FINALISTS)
        if again is None:
            return None
        credible, score = self.judge([frame] * len(again.views), again)
        if last is not None:
            places = again.poses.translation[:, 0]
            old = np.array([last.stood_already(frame, self.camera, place, self.radius_m) for place in places])
            credible, score = credible & ~old, np.where(old, 0.0, score)
        best = int(np.argmax(score))
        if not credible[best]:
            return None
        return Found(again.poses.translation[best, 0], float(again.quality[best, 0]), float(score[best]))

    def finalists(self, frame: Image, most: int) -> Detections | None:
        """The likeliest places of the object in a frame, read in views centred on what was read there; None without."""
        centers, radii = self._candidates(frame)
        if not len(centers):
            return None
        first = look(self.model, self.camera, [frame] * len(centers), centers, radii, self.calibration)
        rough = first.quality[:, 0] * plausible(first, self.radius_m)
        order = np.argsort(-rough, kind="stable")[:most]
        order = order[rough[order] > 0.2 * self.calibration.min_quality]
        return self.look([frame] * len(order), first.poses.translation[order, 0]) if len(order) else None

    def _candidates(self, frame: Image) -> tuple[Array, Array]:
        """Bearings [N, 2] and angular radii [N] worth a look: from the coarse network, and from motion."""
        found = self.model.locate(frame)
        order = np.argsort(-np.asarray(found.score), kind="stable")[:_CANDIDATES]
        moving, width = self.background.proposals(frame)
        center = np.concatenate([np.asarray(found.center_px, dtype=float)[order].reshape(-1, 2), moving])
        diameter = np.concatenate([np.asarray(found.diameter_px, dtype=float)[order].ravel(), width * _BLOB_TO_SPHERE])
        sides = center[:, None] + diameter[:, None, None] * np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, -0.5], [0.0, 0.5]])
        rays = _rays(self.camera, sides)
        angles = [np.arccos(np.clip((rays[:, i] * rays[:, i + 1]).sum(-1), -1.0, 1.0)) for i in (0, 2)]
        bearings, radius = pixels_to_bearings(self.camera, center), 0.25 * (angles[0] + angles[1])
        good = np.isfinite(bearings).all(axis=-1) & np.isfinite(radius) & (radius > 1e-4)
        return bearings[good], np.clip(radius[good], 1e-4, 0.6)


def _rays(camera: Camera, pixels: Array) -> Array:
    bearings = pixels_to_bearings(camera, pixels)
    rays = np.concatenate([bearings, np.ones_like(bearings[..., :1])], axis=-1)
    return np.asarray(rays / np.linalg.norm(rays, axis=-1, keepdims=True))


def plausible(detections: Detections, radius_m: float) -> NDArray[np.bool_]:
    """Whether the best pose lies where its view looked, at about the size that the view was made for, [N].

    What would be smaller in the frame than the network can tell from other things is never plausible.
    """
    translation = detections.poses.translation[:, 0]
    in_front = translation[:, 2] > radius_m
    safe = np.where(in_front[:, None], translation, np.array([0.0, 0.0, 10.0 * radius_m]))
    bearings, radius = direction_and_size(safe, radius_m)
    center = np.array([_offset(view, b) for view, b in zip(detections.views, bearings, strict=True)])
    focal = np.array([view.K[0, 0] / view.size for view in detections.views])
    fill = 2.0 * np.tan(radius) * focal  # share of the view, 2/3 where the view was made for it
    return in_front & (center < 0.35) & (fill > 0.33) & (fill < 1.2) & (detections.diameter_px >= _LEAST_PX)


def _offset(view: View, bearing: Array) -> float:
    """Distance of a bearing from the middle of a view, as a share of its size."""
    return float(np.linalg.norm(bearings_to_view(view, bearing) - view.K[:2, 2]) / view.size)
