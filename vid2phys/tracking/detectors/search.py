"""Search a whole frame for the object, and judge whether a detection is the object.

The detectors of this folder propose places, and the fine network detects keypoints at these.

Limits: an object that looks like the body counts as the body where the image changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels, pixels_to_bearings
from vid2phys.engine.pnp import PoseEstimate
from vid2phys.engine.virtual_camera import View, bearings_to_view
from vid2phys.error_model import Calibration
from vid2phys.tracking.detectors import Places, proposers
from vid2phys.tracking.detectors.network import Detections, Image, detect, direction_and_size
from vid2phys.types import Array, Camera

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model
    from vid2phys.tracking.background import Background


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Settings of `ObjectDetector`."""

    candidates: int = 8
    """Number of places that the coarse network proposes."""
    finalists: int = 4
    """Number of places at which detection is repeated."""
    finalist_share: float = 0.2
    """Least quality of these, as a share of the model's least quality."""
    blob_to_sphere: float = 1.15
    """Diameter of the bounding sphere, as a multiple of the width of a changed region."""
    min_size_px: float = 14.0
    """Least diameter of the bounding sphere in the frame, px; training begins at 20."""
    moving_share: float = 0.1
    """Share of changed pixels from which on a place is moving."""
    elsewhere_radii: float = 2.5
    """Distance from the last place from which on a detection is elsewhere, radii."""
    moving_bonus: float = 0.3
    """Score of a place that is moving, beside quality."""
    max_offset: float = 0.35
    """Largest distance of a plausible pose from the middle of the virtual image, as a share of the image."""
    fill_range: tuple[float, float] = (0.33, 1.2)
    """Least and largest share of the virtual image that a plausible pose fills; 2/3 is expected."""


DEFAULTS = SearchConfig()


@dataclass(frozen=True)
class ObjectDetection:
    """A detection of the object in a frame.

    Attributes:
        translation: [3] in camera axes, m.
        quality: 0..1.
        score: by which frames are compared.
    """

    translation: Array
    quality: float
    score: float


@dataclass(frozen=True)
class LastSeen:
    """The scene of a frame in which the object was at a translation [3], camera axes, m."""

    scene: Background
    translation: Array

    def was_there(
        self, frame: Image, camera: Camera, place: Array, radius_m: float, config: SearchConfig = DEFAULTS
    ) -> bool:
        """Return whether a thing at a place [3] in m was there while the object was elsewhere: a similar thing.

        The result is False with a moving camera, where all of the image differs.
        """
        (then, _), (now, size) = (direction_and_size(x, radius_m) for x in (self.translation, place))
        apart = float(np.linalg.norm(now - then) / np.tan(size))
        changed = self.scene.moving(frame, camera, place, radius_m) if apart > config.elsewhere_radii else 1.0
        return changed < config.moving_share


@dataclass(frozen=True)
class ObjectDetector:
    """Detect one object in the frames of one clip.

    Attributes:
        model: the trained network.
        camera: of the clip.
        background: of the clip; None where the camera moves.
        radius_m: radius of the bounding sphere about the body's origin.
        calibration: error model.
        shown: where the user shows the object, in a clip of a single image.
        config: settings.
    """

    model: Model
    camera: Camera
    background: Background | None
    radius_m: float
    calibration: Calibration
    shown: Places | None = None
    config: SearchConfig = DEFAULTS

    def at(self, frames: int | NDArray[np.int64]) -> ObjectDetector:
        """Return the detector of one frame, or of N frames: a camera that moves has other poses in others."""
        return replace(self, camera=self.camera.at(frames)) if self.camera.moves else self

    def detect(self, frames: Sequence[Image], translation: Array, *, hypotheses: int = 1) -> Detections:
        """Detect the object in N frames near expected translations [N, 3], camera axes, m."""
        centers, radii = direction_and_size(translation, self.radius_m)
        return detect(self.model, self.camera, frames, centers, radii, self.calibration, hypotheses=hypotheses)

    def reinitialise(self, frames: Sequence[Image], poses: PoseEstimate) -> Detections:
        """Detect the object in N frames near expected poses [N], under their labels."""
        centers, radii = direction_and_size(poses.translation, self.radius_m)
        return detect(self.model, self.camera, frames, centers, radii, self.calibration, expected=poses)

    def judge(self, frames: Sequence[Image], seen: Detections) -> tuple[NDArray[np.bool_], Array]:
        """Return whether detections [N] are the object, and scores [N] by which they are compared.

        The pose must lie in the middle of the virtual image, and the quality must be sufficient. More quality is needed
        where the image does not differ from the clip's median, because any background resembles the object somewhere.
        Without a background nothing counts as moving. Where the user shows the object, no more quality is needed.
        """
        translation, quality = seen.poses.translation[:, 0], seen.quality[:, 0]
        moving = np.zeros(len(frames), dtype=bool)
        if self.background is not None:
            share = [
                self.background.moving(frame, self.camera, place, self.radius_m)
                for frame, place in zip(frames, translation, strict=True)
            ]
            moving = np.array(share) >= self.config.moving_share
        least = np.where(
            moving | self._is_shown(translation), self.calibration.min_quality, self.calibration.still_quality
        )
        credible = plausible(seen, self.radius_m, self.config) & (quality >= least)
        return credible, np.where(credible, quality + self.config.moving_bonus * moving, 0.0)

    def _is_shown(self, translation: Array) -> NDArray[np.bool_]:
        """Return whether the user shows the object at translations [N, 3], camera axes, m."""
        if self.shown is None:
            return np.zeros(len(translation), dtype=bool)
        center, _ = direction_and_size(translation, self.radius_m)
        off = np.linalg.norm(bearings_to_pixels(self.camera, center) - self.shown.center_px[0], axis=-1)
        return np.asarray(off < 0.5 * self.shown.diameter_px[0])

    def search(self, frame: Image, last: LastSeen | None = None) -> ObjectDetection | None:
        """Search a whole frame for the object; None where it is not found. last: the scene before it was lost.

        The fine network detects at each proposed place, and again in virtual cameras that are centred on the best ones.
        """
        again = self.finalists(frame, self.config.finalists)
        if again is None:
            return None
        credible, score = self.judge([frame] * len(again.views), again)
        if last is not None:
            places = again.poses.translation[:, 0]
            old = np.array([last.was_there(frame, self.camera, place, self.radius_m, self.config) for place in places])
            credible, score = credible & ~old, np.where(old, 0.0, score)
        best = int(np.argmax(score))
        if not credible[best]:
            return None
        return ObjectDetection(again.poses.translation[best, 0], float(again.quality[best, 0]), float(score[best]))

    def finalists(self, frame: Image, most: int) -> Detections | None:
        """Return the most likely detections in a frame, repeated in centred virtual cameras; None without any."""
        centers, radii = self._candidates(frame)
        if not len(centers):
            return None
        first = detect(self.model, self.camera, [frame] * len(centers), centers, radii, self.calibration)
        rough = first.quality[:, 0] * plausible(first, self.radius_m, self.config)
        order = np.argsort(-rough, kind="stable")[:most]
        order = order[rough[order] > self.config.finalist_share * self.calibration.min_quality]
        return self.detect([frame] * len(order), first.poses.translation[order, 0]) if len(order) else None

    def _candidates(self, frame: Image) -> tuple[Array, Array]:
        """Return bearings [N, 2] and angular radii [N] of the places that the user shows, or the detectors propose."""
        places = [propose(frame, self) for propose in proposers()] if self.shown is None else [self.shown]
        center = np.concatenate([each.center_px for each in places])
        diameter = np.concatenate([each.diameter_px for each in places])
        sides = center[:, None] + diameter[:, None, None] * np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, -0.5], [0.0, 0.5]])
        rays = _rays(self.camera, sides)
        angles = [np.arccos(np.clip((rays[:, i] * rays[:, i + 1]).sum(-1), -1.0, 1.0)) for i in (0, 2)]
        bearings, radius = pixels_to_bearings(self.camera, center), 0.25 * (angles[0] + angles[1])
        good = np.isfinite(bearings).all(axis=-1) & np.isfinite(radius) & (radius > 1e-4)
        return bearings[good], np.clip(radius[good], 1e-4, 0.6)


def _rays(camera: Camera, pixels: Array) -> Array:
    """Return unit rays [..., 3] through pixels [..., 2]."""
    bearings = pixels_to_bearings(camera, pixels)
    rays = np.concatenate([bearings, np.ones_like(bearings[..., :1])], axis=-1)
    return np.asarray(rays / np.linalg.norm(rays, axis=-1, keepdims=True))


def plausible(detections: Detections, radius_m: float, config: SearchConfig = DEFAULTS) -> NDArray[np.bool_]:
    """Return whether the best pose lies in the middle of its virtual image, at about the expected size, [N].

    A body that is too small in the frame is never plausible.
    """
    translation = detections.poses.translation[:, 0]
    in_front = translation[:, 2] > radius_m
    safe = np.where(in_front[:, None], translation, np.array([0.0, 0.0, 10.0 * radius_m]))
    bearings, radius = direction_and_size(safe, radius_m)
    center = np.array([_offset(view, b) for view, b in zip(detections.views, bearings, strict=True)])
    focal = np.array([view.K[0, 0] / view.size for view in detections.views])
    fill = 2.0 * np.tan(radius) * focal  # share of the virtual image
    least, most = config.fill_range
    centred = in_front & (center < config.max_offset) & (fill > least) & (fill < most)
    return centred & (detections.diameter_px >= config.min_size_px)


def _offset(view: View, bearing: Array) -> float:
    """Return the distance of a bearing from the middle of a virtual image, as a share of the image."""
    return float(np.linalg.norm(bearings_to_view(view, bearing) - view.K[:2, 2]) / view.size)
