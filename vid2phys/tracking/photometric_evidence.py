"""Which branch of a symmetric body explains the pixels best: evidence from the clip itself, without training.

Fitted poses are a little wrong, in each branch in its own way, so every frame is first aligned to its pixels in each
branch (`align`); otherwise the comparison would judge the alignment.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.error_model import CLIP_FRAMES
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.risp.shape.rotation_groups import offsets
from vid2phys.tracking.cues.photometric import Look, Stage, align
from vid2phys.types import Array, Clip

FIRST_LOOKS, FINAL_LOOKS = 8, 16  # frames in which all branches are compared, and those that come out close
_CLOSE_NATS = 40.0
# A clip of CLIP_FRAMES counts as one frame, and that as less: lights and materials err alike in all of them. Measured
# on 60 held-out looks of each of two quadrotors, where 1.5 to 2 made the true branches most probable.
_TEMPERATURE = 1.5


def branch_evidence(
    clip: Clip,
    stage: Stage,
    pose: Pose,
    at: NDArray[np.int64],
    branches: Array,
    center: Array | None = None,
) -> Array:
    """Log-likelihood of each branch R @ branches[g]^T of the orientations R, [G] nats, the best at zero.

    pose: camera_from_body of the frames at [N]. center: [3] m, the point of the body that the symmetry elements leave
    where it is, its origin by default. Zeros where the body is in no image.
    """
    if not len(at):
        return np.zeros(len(branches))
    center = np.zeros(3) if center is None else center
    chosen = evenly(len(at), FINAL_LOOKS)
    frames = clip.frames.at(at[chosen])
    seen = [stage.look(frame, pose[i]) for frame, i in zip(frames, chosen, strict=True)]
    looks = [look for look in seen if look is not None]
    if not looks:
        return np.zeros(len(branches))
    stride = max(1, len(looks) // FIRST_LOOKS)
    total = _compare([_turned(looks[::stride], branch, center) for branch in branches], len(at))
    close = np.flatnonzero(total > -_CLOSE_NATS)
    if len(close) > 1 and stride > 1:
        total[close] = _compare([_turned(looks, branches[g], center) for g in close], len(at))
    return total


def _turned(looks: list[Look], branch: Array, center: Array) -> list[Look]:
    aside = offsets(branch, center)
    out = []
    for look in looks:
        rotation = look.pose.rotation @ branch.T
        out.append(replace(look, pose=Pose(rotation, look.pose.translation - rotation @ aside)))
    return out


def _compare(branches: list[list[Look]], frames: int) -> Array:
    """Log-likelihoods of the branches, the best at zero, for a clip of so many frames, which shows more of the body."""
    mean = np.array([align(looks).log_likelihood for looks in branches]) / len(branches[0])
    return np.asarray((mean - mean.max()) / _TEMPERATURE * np.sqrt(max(1.0, frames / CLIP_FRAMES)))
