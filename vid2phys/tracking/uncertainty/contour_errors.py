"""What poses fitted to outlines are worth, measured on short clips of looks held out from training.

Each frame is read by the network as the tracker reads it, and its outline fitted with the reading's covariance as
prior. Shadows, look-alikes and a body's own edges mislead outlines in all frames of a look alike: what is stated is
scaled, mode by mode, to the errors found, as for poses aligned to pixels (`align_errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.engine.movable.rigid import pose_difference
from vid2phys.error_model import Calibration
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.held_out import HeldOutClip, make_clips
from vid2phys.tracking.contour_refinement import LEAST_PX
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.photometric import MODES
from vid2phys.tracking.detectors.network import direction_and_size, look
from vid2phys.tracking.uncertainty.alignment_errors import RefinementErrors
from vid2phys.types import Array, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_MOST_LOOKS = 60
_IN_FRAME_PX = (LEAST_PX, 200.0)
_CENTER, _SIZE = 0.06, 0.03  # spread of where the views look: share of the body's size, log size


@dataclass(frozen=True)
class NetworkPose:
    """A frame's keypoints as a pose camera_from_body, labelled as truth is, and its covariance [6, 6] in modes."""

    frame: int
    rotation: Array
    translation: Array
    covariance: Array


def detect_clip(
    model: Model, calibration: Calibration, clip: HeldOutClip, rng: np.random.Generator, frames: Sequence[int]
) -> Iterator[NetworkPose]:
    """Readings of those frames in which the network believes it sees the body."""
    center, radius = direction_and_size(clip.translation, model.radius_m)
    steady = rng.normal(0.0, 0.5, 3)
    for i in frames:
        error = steady + rng.normal(0.0, 0.8, 3)
        aside = center[i] + error[:2] * _CENTER * np.tan(radius[i])
        size = radius[i] * np.exp(error[2] * _SIZE)
        seen = look(model, clip.cameras[i], [clip.frames[i]], aside[None], size[None], calibration)
        pose, quality = seen.poses[0, 0], seen.quality[:, 0]
        if not np.isfinite(pose.cost) or quality[0] < calibration.min_quality:
            continue
        turned = pose.rotation @ np.swapaxes(model.rotations, -1, -2)
        nearest = int(np.argmax(np.einsum("gij,ij->g", turned, clip.rotation[i])))
        yield NetworkPose(i, turned[nearest], pose.translation, seen.pose_covariance(calibration)[0])


def measure(
    mesh: Mesh,
    model: Model,
    calibration: Calibration,
    renders: RenderSet,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> RefinementErrors:
    """Reads held-out clips (at most 60) and fits their outlines."""
    solid = Solid.of(mesh)
    error, std, look_of, time_s = [], [], [], []
    shown = make_clips(renders, model.radius_m, _MOST_LOOKS, seed=seed, in_frame_px=_IN_FRAME_PX, progress=progress)
    for sequence, clip in shown:
        rng, clock_s = np.random.default_rng([seed, sequence, 11]), clip.clock_s
        for seen in detect_clip(model, calibration, clip, rng, range(len(clip.frames))):
            i, prior = seen.frame, np.linalg.inv(seen.covariance)
            fit = fit_contour(
                clip.frames[i], clip.cameras[i], solid, seen.rotation, seen.translation, prior=np.asarray(prior)
            )
            if fit is not None:
                error.append(pose_difference(clip.rotation[i], clip.translation[i], fit.rotation, fit.translation))
                std.append(np.sqrt(np.diag(fit.covariance)))
                look_of.append(sequence)
                time_s.append(clock_s[i])
    shape = (len(error), MODES)
    looks = np.array(look_of, dtype=np.int64)
    return RefinementErrors(np.array(error).reshape(shape), np.array(std).reshape(shape), looks, np.array(time_s))
