"""Motion before a static camera: the difference of a frame from the temporal median of the clip.

Limits: a camera that moves changes all of the image; an object that rests for half of the clip is background.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.indices import evenly
from vid2phys.tracking.detectors.network import Image, direction_and_size, in_frame_diameter
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class BackgroundConfig:
    """Settings of `Background`."""

    frames: int = 15
    """Number of frames of the median."""
    work_pixels: int = 480 * 640
    """Number of pixels to about which frames are shrunk."""
    min_change: float = 14.0
    """Least change of a pixel, grey levels."""
    min_noises: float = 5.0
    """Least change of a pixel, multiples of the noise."""
    max_blobs: int = 6
    """Largest number of changed regions for each gap."""
    gaps: tuple[int, ...] = (5, 17)
    """Gaps over which changed pixels are joined, px of the shrunk frame."""
    min_width: float = 5.0
    """Least width of a changed region, px of the shrunk frame."""
    core: float = 0.7
    """Radius within which a moving body changes the image, radii of the bounding sphere."""


DEFAULTS = BackgroundConfig()


class Indexed(Protocol):
    """Frames by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Image: ...


@dataclass(frozen=True)
class Background:
    """Temporal median of a clip.

    Attributes:
        image: [h, w, 3], shrunk.
        shrink: pixels of the clip on a side of a pixel.
        noise: of a frame about the median, grey levels.
        config: settings.
    """

    image: Image
    shrink: int
    noise: float
    config: BackgroundConfig = DEFAULTS

    @staticmethod
    def of(frames: Indexed, config: BackgroundConfig = DEFAULTS) -> Background:
        """Return the background from some frames that are spread over the clip."""
        indices = evenly(len(frames), config.frames)
        height, width = frames[0].shape[:2]
        shrink = max(1, round(float(np.sqrt(height * width / config.work_pixels))))
        stack = np.stack([shrunk(frames[int(i)], shrink) for i in indices])
        median = np.partition(stack, len(stack) // 2, axis=0)[len(stack) // 2]
        spread = np.abs(stack[::4].astype(np.int16) - median).max(axis=-1)
        return Background(median, shrink, float(np.median(spread)), config)

    def at(self, frame: Image) -> Background:
        """Return the background with one frame in place of the median."""
        return replace(self, image=shrunk(frame, self.shrink))

    def proposals(self, frame: Image) -> tuple[Array, Array]:
        """Return centres [N, 2] and widths [N] of the regions that differ from the background, px.

        Changed pixels are joined over narrow and over wide gaps: a body with thin arms appears as one region or many.
        """
        changed = self._changed(shrunk(frame, self.shrink), self.image).astype(np.uint8)
        pieces = [_blobs(changed, gap, self.config) for gap in self.config.gaps]
        center, width = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        return (center + 0.5) * self.shrink - 0.5, width * self.shrink

    def moving(self, frame: Image, camera: Camera, translation: Array, radius_m: float) -> float:
        """Return the share of changed pixels in the image of a body at a translation [3], camera axes, m."""
        if not translation[2] > radius_m:
            return 0.0
        bearing, angular_radius = direction_and_size(translation, radius_m)
        center = (bearings_to_pixels(camera, bearing) + 0.5) / self.shrink - 0.5
        reach = self.config.core * 0.5 * float(in_frame_diameter(camera, bearing, angular_radius)) / self.shrink
        if not np.isfinite(center).all():
            return 0.0
        height, width = self.image.shape[:2]
        low = np.clip(np.floor(center - reach), 0, [width, height]).astype(int)
        high = np.clip(np.ceil(center + reach) + 1, 0, [width, height]).astype(int)
        if (high - low).min() < 2:
            return 0.0
        (left, top), (right, bottom) = low, high
        piece = frame[top * self.shrink : bottom * self.shrink, left * self.shrink : right * self.shrink]
        changed = self._changed(shrunk(piece, self.shrink), self.image[top:bottom, left:right])
        v, u = np.mgrid[top:bottom, left:right]
        inside = np.hypot(u - center[0], v - center[1]) <= max(reach, 1.0)
        return float(changed[inside].mean()) if inside.any() else 0.0

    def _changed(self, small: Image, background: Image) -> NDArray[np.bool_]:
        import cv2

        difference = cv2.blur(cv2.absdiff(small, background).max(axis=-1), (3, 3))
        return np.asarray(difference > max(self.config.min_change, self.config.min_noises * self.noise))


def _blobs(mask: Image, gap: int, config: BackgroundConfig) -> tuple[Array, Array]:
    """Return centres [N, 2] and widths [N] of the largest connected regions of a mask [h, w] after closing gaps."""
    import cv2

    closed = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((gap, gap), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(closed)
    stats = stats[1:]
    stats = stats[np.argsort(-stats[:, cv2.CC_STAT_AREA], kind="stable")][: config.max_blobs]
    corner, extent = stats[:, :2].astype(float), stats[:, 2:4].astype(float)
    width = extent.max(axis=1, initial=0.0)
    return (corner + 0.5 * (extent - 1.0))[width >= config.min_width], width[width >= config.min_width]


def shrunk(frame: Image, factor: int) -> Image:
    """Return a frame with blocks of `factor` x `factor` pixels as pixels, whose display values are averaged."""
    import cv2

    if factor == 1:
        return frame
    size = (frame.shape[1] // factor, frame.shape[0] // factor)
    cropped = frame[: size[1] * factor, : size[0] * factor]
    return np.asarray(cv2.resize(cropped, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
