"""Measure the errors of poses that are fitted to contours, on short clips with held-out appearances.

The network detects each frame as the tracker does. The contour fit then has the detection's covariance as its prior.
Shadows, look-alikes and a body's own edges mislead the fits of all frames of an appearance alike. The stated covariance
is scaled, mode by mode, to the measured errors, as for aligned poses (`alignment_errors`).

Limits: bodies below the contour fit's least size and above `contour_max_px` are not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.held_out import HeldOutClip, make_clips
from vid2phys.tracking.contour_refinement import LEAST_PX
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.photometric import MODES
from vid2phys.tracking.detectors.network import detect, direction_and_size
from vid2phys.tracking.uncertainty.alignment_errors import RefinementErrors
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.types import Array, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model


@dataclass(frozen=True)
class NetworkPose:
    """The network's pose in one frame.

    Attributes:
        frame: Index of the frame.
        rotation: [3, 3] of camera_from_body, under the symmetry element of the truth.
        translation: [3] of camera_from_body, m.
        covariance: [6, 6] in the modes of a pose.
    """

    frame: int
    rotation: Array
    translation: Array
    covariance: Array


def detect_clip(
    model: Model,
    calibration: Calibration,
    clip: HeldOutClip,
    rng: np.random.Generator,
    frames: Sequence[int],
    config: UncertaintyConfig = DEFAULTS,
) -> Iterator[NetworkPose]:
    """Yield the poses of the given frames in which the network detects the body.

    The virtual cameras have the errors of a second pass, partly the same in all frames.
    """
    center, radius = direction_and_size(clip.translation, model.radius_m)
    steady = rng.normal(0.0, 0.5, 3)
    for i in frames:
        error = steady + rng.normal(0.0, 0.8, 3)
        aside = center[i] + error[:2] * config.contour_view_offset * np.tan(radius[i])
        size = radius[i] * np.exp(error[2] * config.view_size_offset)
        seen = detect(model, clip.cameras[i], [clip.frames[i]], aside[None], size[None], calibration)
        pose, quality = seen.poses[0, 0], seen.quality[:, 0]
        if not np.isfinite(pose.cost) or quality[0] < calibration.min_quality:
            continue
        equal = pose.rotation @ np.swapaxes(model.rotations, -1, -2)
        nearest = int(np.argmax(np.einsum("gij,ij->g", equal, clip.rotation[i])))
        yield NetworkPose(i, equal[nearest], pose.translation, seen.pose_covariance(calibration)[0])


def measure(
    mesh: Mesh,
    model: Model,
    calibration: Calibration,
    renders: RenderSet,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> RefinementErrors:
    """Detect poses in held-out clips, fit them to contours, and return their errors.

    Args:
        mesh: The body's mesh.
        model: The trained model.
        calibration: Error model of the network.
        renders: Sequences with held-out appearances.
        seed: Seed of all random numbers.
        progress: Is called with the share of clips done.
        config: Settings.
    """
    solid, in_frame_px = Solid.of(mesh), (LEAST_PX, config.contour_max_px)
    error, std, appearances, time_s = [], [], [], []
    shown = make_clips(
        *(renders, model.radius_m, config.max_refined_appearances),
        seed=seed,
        in_frame_px=in_frame_px,
        progress=progress,
    )
    for sequence, clip in shown:
        rng, clock_s = np.random.default_rng([seed, sequence, 11]), clip.clock_s
        for seen in detect_clip(model, calibration, clip, rng, range(len(clip.frames)), config):
            i, prior = seen.frame, np.linalg.inv(seen.covariance)
            fit = fit_contour(
                clip.frames[i], clip.cameras[i], solid, Pose(seen.rotation, seen.translation), prior=np.asarray(prior)
            )
            if fit is not None:
                error.append(Pose(clip.rotation[i], clip.translation[i]).step_to(fit.pose))
                std.append(np.sqrt(np.diag(fit.covariance)))
                appearances.append(sequence)
                time_s.append(clock_s[i])
    shape = (len(error), MODES)
    numbers = np.array(appearances, dtype=np.int64)
    return RefinementErrors(np.array(error).reshape(shape), np.array(std).reshape(shape), numbers, np.array(time_s))
