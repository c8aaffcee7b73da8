"""Where to look when it is not known where the object is: a coarse network, and what moves before a still camera."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import pixels_to_bearings
from vid2phys.risp.error_model import Calibration
from vid2phys.risp.sight import Image, Sightings, direction_and_size, look
from vid2phys.risp.view import View, bearings_to_view
from vid2phys.types import Array, Camera

if TYPE_CHECKING:
    from vid2phys.risp.model import Model

_BACKGROUND_FRAMES = 15
_WORK_PIXELS = 480 * 640  # motion is looked for in frames shrunk to about this size
_CANDIDATES = 8  # of each kind
_FINALISTS = 4
_BLOB_TO_SPHERE = 1.15  # the sphere is wider than what one sees of a body in it


class Indexed(Protocol):
    """Frames that are found by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Image: ...


@dataclass(frozen=True)
class Background:
    """Temporal median of a clip from a still camera, shrunk by `shrink`; image: [h, w, 3]."""

    image: Image
    shrink: int
    noise: float

    @staticmethod
    def of(frames: Indexed) -> Background:
        """From about 15 frames spread over the clip."""
        indices = np.unique(np.linspace(0, len(frames) - 1, _BACKGROUND_FRAMES).astype(np.int64))
        height, width = frames[0].shape[:2]
        shrink = max(1, round(float(np.sqrt(height * width / _WORK_PIXELS))))
        stack = np.stack([_shrink(frames[int(i)], shrink) for i in indices])
        ordered = np.partition(stack, len(stack) // 2, axis=0)
        median = ordered[len(stack) // 2]
        spread = np.abs(stack[::4].astype(np.int16) - median).max(axis=-1)
        return Background(median, shrink, float(np.median(spread)))

    def proposals(self, frame: Image) -> tuple[Array, Array]:
        """Centres [N, 2] px and widths [N] px of what differs from the background, the largest first."""
        import cv2

        small = _shrink(frame, self.shrink)
        difference = cv2.absdiff(small, self.image).max(axis=-1)
        mask = (cv2.blur(difference, (3, 3)) > max(14.0, 5.0 * self.noise)).astype(np.uint8)
        mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
        _, _, stats, _ = cv2.connectedComponentsWithStats(mask)
        stats = stats[1:]
        stats = stats[np.argsort(-stats[:, cv2.CC_STAT_AREA], kind="stable")][:_CANDIDATES]
        corner, extent = stats[:, :2].astype(float), stats[:, 2:4].astype(float)
        large = extent.max(axis=1, initial=0.0) >= 5.0
        center = (corner + 0.5 * extent) * self.shrink - 0.5
        return center[large], extent.max(axis=1, initial=0.0)[large] * self.shrink


def _shrink(frame: Image, factor: int) -> Image:
    import cv2

    if factor == 1:
        return frame
    size = (frame.shape[1] // factor, frame.shape[0] // factor)
    cropped = frame[: size[1] * factor, : size[0] * factor]
    return np.asarray(cv2.resize(cropped, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def candidates(model: Model, camera: Camera, background: Background, frame: Image) -> tuple[Array, Array]:
    """Bearings [N, 2] and angular radii [N] worth a look."""
    found = model.locate(frame)
    order = np.argsort(-np.asarray(found.score), kind="stable")[:_CANDIDATES]
    moving, width = background.proposals(frame)
    center = np.concatenate([np.asarray(found.center_px, dtype=float)[order].reshape(-1, 2), moving])
    diameter = np.concatenate([np.asarray(found.diameter_px, dtype=float)[order].ravel(), width * _BLOB_TO_SPHERE])
    sides = center[:, None] + diameter[:, None, None] * np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, -0.5], [0.0, 0.5]])
    rays = _rays(camera, sides)
    angles = [np.arccos(np.clip((rays[:, i] * rays[:, i + 1]).sum(-1), -1.0, 1.0)) for i in (0, 2)]
    bearings, radius = pixels_to_bearings(camera, center), 0.25 * (angles[0] + angles[1])
    good = np.isfinite(bearings).all(axis=-1) & np.isfinite(radius) & (radius > 1e-4)
    return bearings[good], np.clip(radius[good], 1e-4, 0.6)


def _rays(camera: Camera, pixels: Array) -> Array:
    bearings = pixels_to_bearings(camera, pixels)
    rays = np.concatenate([bearings, np.ones_like(bearings[..., :1])], axis=-1)
    return np.asarray(rays / np.linalg.norm(rays, axis=-1, keepdims=True))


@dataclass(frozen=True)
class Found:
    """Where the object is in a frame: translation [3] m in camera axes, and how sure that is, 0..1."""

    translation: Array
    quality: float


def search(
    model: Model,
    camera: Camera,
    background: Background,
    frame: Image,
    radius_m: float,
    calibration: Calibration,
) -> Found | None:
    """The object in a whole frame, or None.

    Each candidate is read by the fine network, the best again in views centred on what was read; the reading must then
    repeat itself and be better than `calibration.min_quality`.
    """
    centers, radii = candidates(model, camera, background, frame)
    if not len(centers):
        return None
    first = look(model, camera, [frame] * len(centers), centers, radii, calibration)
    order = np.argsort(-first.quality[:, 0] * plausible(first, radius_m), kind="stable")[:_FINALISTS]
    order = order[first.quality[order, 0] > 0.2 * calibration.min_quality]
    if not len(order):
        return None
    translation = first.poses.translation[order, 0]
    again = look(model, camera, [frame] * len(order), *direction_and_size(translation, radius_m), calibration)
    score = again.quality[:, 0] * plausible(again, radius_m)
    best = int(np.argmax(score))
    if score[best] < calibration.min_quality:
        return None
    return Found(again.poses.translation[best, 0], float(score[best]))


def plausible(sightings: Sightings, radius_m: float) -> NDArray[np.bool_]:
    """Whether the best pose lies where its view looked, at about the size that the view was made for, [N]."""
    translation = sightings.poses.translation[:, 0]
    in_front = translation[:, 2] > radius_m
    safe = np.where(in_front[:, None], translation, np.array([0.0, 0.0, 10.0 * radius_m]))
    bearings, radius = direction_and_size(safe, radius_m)
    center = np.array([_offset(view, b) for view, b in zip(sightings.views, bearings, strict=True)])
    focal = np.array([view.K[0, 0] / view.size for view in sightings.views])
    fill = 2.0 * np.tan(radius) * focal  # share of the view, 2/3 where the view was made for it
    return in_front & (center < 0.35) & (fill > 0.33) & (fill < 1.2)


def _offset(view: View, bearing: Array) -> float:
    """Distance of a bearing from the middle of a view, as a share of its size."""
    return float(np.linalg.norm(bearings_to_view(view, bearing) - view.K[:2, 2]) / view.size)
