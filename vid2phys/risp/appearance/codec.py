"""Random video compression of training images: mostly JPEG, which has the same blocks and colours, sometimes H.264.

On 96 x 96 pixels and one core JPEG takes 0.3 ms, and H.264 takes 3 to 5 ms for a key frame and the frame that is
predicted from it. Most of that time opens the coder. Every eighth image is such a predicted frame, which costs half a
millisecond per image in the mean.

Limits: other codecs (HEVC, AV1) are not simulated.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
_UNTOUCHED, _VIDEO = 0.12, 0.12  # shares of the images
_PRESETS = ("ultrafast", "veryfast", "medium")


def compress(rng: np.random.Generator, image: Image) -> Image:
    """Return the image [H, W, 3] after a random codec at a random quality, or unchanged."""
    kind = rng.random()
    if kind < _UNTOUCHED:
        return image
    if kind < _UNTOUCHED + _VIDEO:
        return h264(rng, image)
    return jpeg(rng, image)


def jpeg(rng: np.random.Generator, image: Image) -> Image:
    """Apply JPEG with 4:2:0 colour at a random block phase; smooth strong compression as a loop filter does."""
    quality = int(np.clip(rng.normal(68, 20), 15, 97))
    top, left = (int(v) for v in rng.integers(0, 8, 2))
    padded = cv2.copyMakeBorder(image, top, 8, left, 8, cv2.BORDER_REPLICATE)
    _, code = cv2.imencode(".jpg", cv2.cvtColor(padded, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    decoded = cv2.cvtColor(np.asarray(cv2.imdecode(code, cv2.IMREAD_COLOR)), cv2.COLOR_BGR2RGB)
    result = np.ascontiguousarray(decoded[top : top + image.shape[0], left : left + image.shape[1]])
    if quality < 60 and rng.random() < 0.6:
        smooth = cv2.GaussianBlur(result, (3, 3), 0.6)
        return np.asarray(cv2.addWeighted(result, 0.5, smooth, 0.5, 0), np.uint8)
    return np.asarray(result, np.uint8)


def h264(rng: np.random.Generator, image: Image) -> Image:
    """Return the image as the second frame of a stream whose first frame is shifted by a pixel or two, with noise."""
    top, left = (int(v) for v in rng.integers(0, 16, 2))
    height, width = (-(-(n + extent) // 16) * 16 for n, extent in zip((top, left), image.shape[:2], strict=True))
    bottom, right = height - top - image.shape[0], width - left - image.shape[1]
    now = cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_REPLICATE)
    move = np.concatenate([np.eye(2), rng.normal(0.0, 1.2, (2, 1))], axis=1)
    before = cv2.warpAffine(now, move, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    before = np.clip(before + rng.normal(0.0, 2.0, before.shape), 0, 255).astype(np.uint8)
    options = {"preset": str(rng.choice(_PRESETS)), "tune": "zerolatency", "crf": f"{rng.uniform(18.0, 36.0):.1f}"}
    decoded = _last_frame([np.asarray(before, np.uint8), np.asarray(now, np.uint8)], options)
    return np.ascontiguousarray(decoded[top : top + image.shape[0], left : left + image.shape[1]])


def _last_frame(frames: list[Image], options: dict[str, str]) -> Image:
    """Return the last frame after coding and decoding in memory."""
    import av

    encoder: Any = av.CodecContext.create("libx264", "w")
    decoder: Any = av.CodecContext.create("h264", "r")
    encoder.height, encoder.width = frames[0].shape[:2]
    encoder.pix_fmt, encoder.time_base, encoder.options = "yuv420p", Fraction(1, 30), options
    encoder.thread_count = decoder.thread_count = 1  # the same bytes whatever else the machine does
    packets = []
    for index, frame in enumerate(frames):
        # OpenCV converts the colours: FFmpeg's converter starts threads for each image
        planes = np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2YUV_I420), np.uint8)
        video_frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
        video_frame.pts = index
        packets += encoder.encode(video_frame)
    packets += encoder.encode(None)
    shown = [video_frame for packet in packets for video_frame in decoder.decode(packet)] + decoder.decode(None)
    return np.asarray(cv2.cvtColor(shown[-1].to_ndarray(), cv2.COLOR_YUV2RGB_I420), np.uint8)
