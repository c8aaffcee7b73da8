"""What moves in front of a still camera: the difference from the temporal median of the clip."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.indices import evenly
from vid2phys.tracking.detectors.network import Image, direction_and_size, in_frame_diameter
from vid2phys.types import Array, Camera

_FRAMES = 15
_WORK_PIXELS = 480 * 640  # motion is looked for in frames shrunk to about this size
_LEAST_CHANGE, _LEAST_NOISES = 14.0, 5.0  # grey levels, and multiples of the noise, that count as a change
_BLOBS = 6
_GAPS = (5, 17)
_LEAST_WIDTH = 5.0
_CORE = 0.7  # of the bounding sphere's radius: where a body that moves changes the image


class Indexed(Protocol):
    """Frames that are found by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Image: ...


@dataclass(frozen=True)
class Background:
    """Temporal median of a clip, shrunk by `shrink`: image [h, w, 3]. noise: of a frame about it, grey levels."""

    image: Image
    shrink: int
    noise: float

    @staticmethod
    def of(frames: Indexed) -> Background:
        """From about 15 frames spread over the clip."""
        indices = evenly(len(frames), _FRAMES)
        height, width = frames[0].shape[:2]
        shrink = max(1, round(float(np.sqrt(height * width / _WORK_PIXELS))))
        stack = np.stack([_shrunk(frames[int(i)], shrink) for i in indices])
        median = np.partition(stack, len(stack) // 2, axis=0)[len(stack) // 2]
        spread = np.abs(stack[::4].astype(np.int16) - median).max(axis=-1)
        return Background(median, shrink, float(np.median(spread)))

    def at(self, frame: Image) -> Background:
        """What the scene looked like in one frame, in place of the median."""
        return replace(self, image=_shrunk(frame, self.shrink))

    def proposals(self, frame: Image) -> tuple[Array, Array]:
        """Centres [N, 2] px and widths [N] px of what differs from the background.

        Changed pixels are joined over narrow and over wide gaps: a body with thin arms shows as one piece or many.
        """
        changed = self._changed(_shrunk(frame, self.shrink), self.image).astype(np.uint8)
        pieces = [_blobs(changed, gap) for gap in _GAPS]
        center, width = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        return (center + 0.5) * self.shrink - 0.5, width * self.shrink

    def moving(self, frame: Image, camera: Camera, translation: Array, radius_m: float) -> float:
        """Share of the image of a body at `translation` [3] m (camera axes) that is not background, 0..1."""
        if not translation[2] > radius_m:
            return 0.0
        bearing, angular_radius = direction_and_size(translation, radius_m)
        center = (bearings_to_pixels(camera, bearing) + 0.5) / self.shrink - 0.5
        reach = _CORE * 0.5 * float(in_frame_diameter(camera, bearing, angular_radius)) / self.shrink
        if not np.isfinite(center).all():
            return 0.0
        height, width = self.image.shape[:2]
        low = np.clip(np.floor(center - reach), 0, [width, height]).astype(int)
        high = np.clip(np.ceil(center + reach) + 1, 0, [width, height]).astype(int)
        if (high - low).min() < 2:
            return 0.0
        (left, top), (right, bottom) = low, high
        piece = frame[top * self.shrink : bottom * self.shrink, left * self.shrink : right * self.shrink]
        changed = self._changed(_shrunk(piece, self.shrink), self.image[top:bottom, left:right])
        v, u = np.mgrid[top:bottom, left:right]
        inside = np.hypot(u - center[0], v - center[1]) <= max(reach, 1.0)
        return float(changed[inside].mean()) if inside.any() else 0.0

    def _changed(self, small: Image, background: Image) -> NDArray[np.bool_]:
        import cv2

        difference = cv2.blur(cv2.absdiff(small, background).max(axis=-1), (3, 3))
        return np.asarray(difference > max(_LEAST_CHANGE, _LEAST_NOISES * self.noise))


def _blobs(mask: Image, gap: int) -> tuple[Array, Array]:
    """Centres [N, 2] and widths [N] of the largest connected pieces of a mask [h, w] after closing gaps."""
    import cv2

    closed = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((gap, gap), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(closed)
    stats = stats[1:]
    stats = stats[np.argsort(-stats[:, cv2.CC_STAT_AREA], kind="stable")][:_BLOBS]
    corner, extent = stats[:, :2].astype(float), stats[:, 2:4].astype(float)
    width = extent.max(axis=1, initial=0.0)
    return (corner + 0.5 * (extent - 1.0))[width >= _LEAST_WIDTH], width[width >= _LEAST_WIDTH]


def _shrunk(frame: Image, factor: int) -> Image:
    import cv2

    if factor == 1:
        return frame
    size = (frame.shape[1] // factor, frame.shape[0] // factor)
    cropped = frame[: size[1] * factor, : size[0] * factor]
    return np.asarray(cv2.resize(cropped, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
