"""Estimate the focal length of a camera without a calibration: from metadata of the clip, or from what is usual.

Method: phones and cameras state the focal length that gives the same field on film of 36 x 24 mm, measured along the
diagonal (CIPA DCG-001, 2005): f_px = f_35 * diagonal_px / 43.27 mm. QuickTime files have it under
`com.apple.quicktime.camera.focal_length.35mm_equivalent`, images under the EXIF tag FocalLengthIn35mmFilm. Otherwise
the prior is log-normal about 0.85 of the longer side: main cameras of phones have 0.72 (26 mm) in photographs and 0.8
to 0.95 in videos, which are cropped; webcams 0.7 to 1.0; lenses of 50 mm 1.4, of 60 mm 1.7.

Limits: the focal length of the whole clip, without zoom. Stabilised videos are cropped by shares that no file states,
so metadata has an error of 8 %. There is no distortion, and the principal point is in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vid2phys.io.files import is_pattern, matching
from vid2phys.io.image_files import IMAGE_SUFFIXES, images_in
from vid2phys.types import Camera, Clip

FILM_DIAGONAL_MM = 43.2666  # of 36 x 24 mm
_USUAL, _USUAL_STD = 0.85, 0.4  # of the longer side; of the logarithm
_STATED_STD = 0.08  # of the logarithm, of a value in metadata
_POSSIBLE_MM = (5.0, 2000.0)
_KEYS = re.compile(r"focal_?length.*35_?mm|focallengthin35mm", re.IGNORECASE)
_EXIF_IFD, _EXIF_35MM = 0x8769, 0xA405


@dataclass(frozen=True)
class FocalPrior:
    """A focal length in px, the standard deviation of its logarithm (0: calibrated), and where it comes from."""

    pixels: float
    log_std: float
    source: str


def focal_prior(path: str | Path, clip: Clip) -> FocalPrior:
    """Return the focal length of a clip by its metadata, or the usual one. path: of the clip."""
    stated = _stated_mm(Path(path))
    if stated is not None and _POSSIBLE_MM[0] < stated < _POSSIBLE_MM[1]:
        pixels = stated * float(np.hypot(clip.width, clip.height)) / FILM_DIAGONAL_MM
        return FocalPrior(pixels, _STATED_STD, f"metadata ({stated:.3g} mm on 35 mm film)")
    return FocalPrior(_USUAL * max(clip.width, clip.height), _USUAL_STD, "what is usual for cameras")


def pinhole_camera(clip: Clip, focal_px: float) -> Camera:
    """Return a camera without distortion and pose, with its principal point in the middle of the clip's images."""
    K = np.array([[focal_px, 0.0, 0.5 * (clip.width - 1)], [0.0, focal_px, 0.5 * (clip.height - 1)], [0.0, 0.0, 1.0]])
    return Camera(K, clip.width, clip.height, name="auto")


def _stated_mm(path: Path) -> float | None:
    """Return the equivalent focal length that the metadata of a video or of the first of its images states."""
    if path.is_dir():
        return _of_image(images_in(path)[0])
    if is_pattern(path):
        files = [file for file in matching(path) if file.suffix.lower() in IMAGE_SUFFIXES]
        return _of_image(files[0]) if files else None
    return _of_video(path)


def _of_video(path: Path) -> float | None:
    import av

    try:
        with av.open(f"file:{path}", metadata_errors="replace") as container:
            tags = [container.metadata, *(stream.metadata for stream in container.streams)]
    except (av.FFmpegError, OSError):
        return None
    return next((value for each in tags if (value := _number_in(each)) is not None), None)


def _number_in(tags: Mapping[str, str]) -> float | None:
    for key, text in tags.items():
        found = re.match(r"\s*(\d+(\.\d+)?)", text) if _KEYS.search(key) else None
        if found:
            return float(found[1])
    return None


def _of_image(path: Path) -> float | None:
    from PIL import Image

    try:
        with Image.open(path) as image:
            value = image.getexif().get_ifd(_EXIF_IFD).get(_EXIF_35MM)
        return None if value is None else float(value)
    except (OSError, ValueError, TypeError, SyntaxError):
        return None
