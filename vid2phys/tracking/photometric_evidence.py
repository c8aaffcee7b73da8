"""Which symmetry element of a clip explains the pixels best: evidence from the clip itself, without training.

Fitted poses are a little wrong, under each element in another way. So every frame is first aligned to its pixels under
each element (`align`); otherwise the comparison would judge the alignment.

Limits: elements that differ by less than light and materials do are not told apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes
from vid2phys.error_model import CLIP_FRAMES
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.tracking.cues.photometric import PoseInFrame, Stage, align
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.types import Array, Clip


@dataclass(frozen=True, kw_only=True)
class PhotometricEvidenceConfig:
    """Settings of `branch_evidence`."""

    first_frames: int = 8
    """Number of frames in which all symmetry elements are compared."""
    final_frames: int = 16
    """Number of frames in which the best ones are compared."""
    close_nats: float = 40.0
    """Largest distance from the best element with which an element is compared again, nats."""
    temperature: float = TEMPERATURES.photometric
    """Factor by which the pixels of one clip state too much."""


DEFAULTS = PhotometricEvidenceConfig()


def branch_evidence(
    clip: Clip,
    stage: Stage,
    pose: Pose,
    at: NDArray[np.int64],
    elements: Array,
    center: Array | None = None,
    config: PhotometricEvidenceConfig = DEFAULTS,
) -> Array:
    """Return the log-likelihood of orientations R @ elements[g]^T, [G] nats, the best at zero.

    Args:
        clip: frames and times.
        stage: of the clip.
        pose: camera_from_body of the frames `at`, with orientations R.
        at: [N] indices of frames.
        elements: [G, 3, 3] symmetry elements.
        center: [3] point of the body that the elements leave in place, its origin by default, m.
        config: settings.

    Returns:
        The log-likelihoods; zeros where no image shows the body.
    """
    if not len(at):
        return np.zeros(len(elements))
    center = np.zeros(3) if center is None else center
    chosen = evenly(len(at), config.final_frames)
    images = clip.frames.at(at[chosen])
    found = [stage.frame_at(image, pose[i]) for image, i in zip(images, chosen, strict=True)]
    frames = [frame for frame in found if frame is not None]
    if not frames:
        return np.zeros(len(elements))
    stride = max(1, len(frames) // config.first_frames)
    total = _compare([_rotated(frames[::stride], element, center) for element in elements], len(at), config)
    close = np.flatnonzero(total > -config.close_nats)
    if len(close) > 1 and stride > 1:
        total[close] = _compare([_rotated(frames, elements[g], center) for g in close], len(at), config)
    return total


def _rotated(frames: list[PoseInFrame], element: Array, center: Array) -> list[PoseInFrame]:
    """Return frames with their poses under a symmetry element [3, 3]."""
    aside = offsets(element, center)
    out = []
    for frame in frames:
        rotation = frame.pose.rotation @ element.T
        out.append(replace(frame, pose=Pose(rotation, frame.pose.translation - rotation @ aside)))
    return out


def _compare(elements: list[list[PoseInFrame]], count: int, config: PhotometricEvidenceConfig) -> Array:
    """Return the log-likelihoods of the elements, the best at zero, for a clip of so many frames.

    A clip of CLIP_FRAMES counts as one frame: light and materials err alike in all of them. A longer one shows more of
    the body.
    """
    each = in_processes(lambda frames: align(frames).log_likelihood, elements)
    mean = np.array(list(each)) / len(elements[0])
    return np.asarray((mean - mean.max()) / config.temperature * np.sqrt(max(1.0, count / CLIP_FRAMES)))
