"""Track a body on a known base: detect in every frame, choose hypotheses, refine by edges, state the errors.

A single image may leave open to which side a joint is bent that points at the camera. Each frame keeps the minima that
its starts lead to. The Viterbi path (Viterbi 1967) through them has small costs and small jumps. A second fit of each
frame starts from the configurations of the adjacent frames on that path.

Limits: a hypothesis that no frame's starts lead to is not found. `reinitialise` starts anew from a fitted motion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.tracking.articulated.config import DEFAULTS, ArticulatedConfig
from vid2phys.tracking.articulated.contour_refinement import (
    RefinedConfigurations,
    refine_contours,
    with_configurations,
)
from vid2phys.tracking.articulated.detector import (
    ConfigurationDetections,
    Window,
    agreement,
    configuration_modes,
    detect,
)
from vid2phys.tracking.articulated.kinematic_fit import Configurations, find_minima
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.viterbi import CoordinateMotion, viterbi_path
from vid2phys.types import Array, Camera, Clip, Observation

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model


@dataclass(frozen=True)
class ConfigurationTrack:
    """Configurations of a body on a known base in a clip of T frames.

    Attributes:
        observation: Keypoints and measured configurations with their errors, for the estimator.
        configurations: [T, D] refined configurations; NaN in lost frames.
        covariance: [T, D, D] of the configurations; NaN in lost frames.
        tracked: [T], False in lost frames.
        quality: [T], 0 to 1.
        notes: Warnings for the result.
    """

    observation: Observation
    configurations: Array
    covariance: Array
    tracked: NDArray[np.bool_]
    quality: Array
    notes: tuple[str, ...]

    @property
    def lost_frames(self) -> NDArray[np.int64]:
        """Return the indices of the lost frames."""
        return np.flatnonzero(~self.tracked)


@dataclass(frozen=True)
class FrameFits:
    """What was found in T frames.

    Attributes:
        seen: The detections.
        chosen: [T] configurations of the Viterbi path.
        refined: [T] refined configurations.
        quality: [T], 0 to 1.
        tracked: [T], False in lost frames.
    """

    seen: ConfigurationDetections
    chosen: Configurations
    refined: RefinedConfigurations
    quality: Array
    tracked: NDArray[np.bool_]


def track_configurations(
    clip: Clip,
    camera: Camera,
    model: Model,
    body: ArticulatedBody,
    *,
    calibration: Calibration | None = None,
    progress: Callable[[float], None] | None = None,
    config: ArticulatedConfig = DEFAULTS,
) -> ConfigurationTrack:
    """Track the body's configuration in a clip.

    Args:
        clip: T frames.
        camera: Camera of the clip; its pose is in the world of the body's base.
        model: A model that was trained for the body.
        body: The body.
        calibration: Error model; None takes the model's own.
        progress: Is called with the share of frames done.
        config: Settings.

    Raises:
        InputError: The camera does not look at the base, or no frame shows the body.
    """
    if calibration is None:
        calibration = Calibration.from_dict(model.calibration)
    window = Window.of(camera, body, model.view_size)
    frames = FrameStore.of(clip)
    seen = _detect_all(frames, model, body, window, calibration, progress, config)
    chosen = _choose_hypotheses(body, window, seen, clip.times_s, config)
    quality = agreement(body, window, chosen, seen.bearings, seen.peak * seen.inside, config)
    tracked = (quality >= calibration.min_quality) & (chosen.inliers.sum(axis=1) >= config.min_points)
    if not tracked.any():
        raise InputError(
            f"the {body.system.name} was detected in none of the {len(clip.times_s)} frames of '{clip.name}'",
            "a clip that shows it where the camera's pose says, with its base at the world's origin",
            "check camera_to_world, or train longer",
        )
    shown, shared_std = np.flatnonzero(tracked), _shared_std(window, quality, calibration)
    refined = refine_contours(frames, body, window, chosen, shared_std, shown, clip.times_s, config)
    observation = _observe(clip.times_s, body, window, FrameFits(seen, chosen, refined, quality, tracked), calibration)
    errors = refined.errors(calibration)
    return ConfigurationTrack(
        observation,
        np.where(tracked[:, None], refined.configuration, np.nan),
        np.where(tracked[:, None, None], errors @ np.swapaxes(errors, -1, -2), np.nan),
        tracked,
        quality,
        window.notes(body),
    )


def _shared_std(window: Window, quality: Array, calibration: Calibration) -> Array:
    """Return the standard deviations [T, D + 2] of the errors that a frame's keypoints share."""
    return calibration.mode_scale(np.full(len(quality), window.diameter_px), quality)


def _detect_all(
    frames: FrameStore,
    model: Model,
    body: ArticulatedBody,
    window: Window,
    calibration: Calibration,
    progress: Callable[[float], None] | None,
    config: ArticulatedConfig,
) -> ConfigurationDetections:
    """Detect in all frames, each on its own."""
    parts = []
    for start in range(0, len(frames), config.batch):
        images = [frames[i] for i in range(start, min(start + config.batch, len(frames)))]
        parts.append(detect(model, body, window, images, calibration, config))
        if progress is not None:
            progress((start + len(images)) / len(frames))
    return ConfigurationDetections.join(parts)


def _choose_hypotheses(
    body: ArticulatedBody, window: Window, seen: ConfigurationDetections, times_s: Array, config: ArticulatedConfig
) -> Configurations:
    """Return one configuration per frame: the Viterbi path, found again with starts from the adjacent frames."""
    candidates = seen.minima
    rows = np.arange(len(times_s))
    path = candidates.configuration[rows, _viterbi_path(body, candidates, times_s, config)]
    adjacent = np.stack([np.vstack([path[:1], path[:-1]]), np.vstack([path[1:], path[-1:]])], axis=1)
    more = find_minima(
        *(body, window.camera_from_base, seen.bearings, seen.covariance),
        visible=seen.inside,
        starts=adjacent,
        config=config,
    )
    candidates = Configurations.join([candidates, more], axis=1)
    return candidates[rows, _viterbi_path(body, candidates, times_s, config)]


def _viterbi_path(
    body: ArticulatedBody, candidates: Configurations, times_s: Array, config: ArticulatedConfig = DEFAULTS
) -> NDArray[np.int64]:
    """Return the candidate of each frame [N] on the path of least cost through candidates [N, S]."""
    motion = CoordinateMotion(max_rate=config.max_rate, max_jump_nats=config.max_jump_nats)
    return viterbi_path(candidates.cost, candidates.configuration / body.prior_std, times_s, motion)


def _observe(
    times_s: Array, body: ArticulatedBody, window: Window, fits: FrameFits, calibration: Calibration
) -> Observation:
    """Return the detected keypoints and the refined configurations, with their errors.

    Lost frames hold placeholder numbers; nothing is seen in them.
    """
    seen, refined, tracked = fits.seen, fits.refined, fits.tracked
    std = _shared_std(window, fits.quality, calibration)
    modes = configuration_modes(body, window, fits.chosen.configuration) * std[:, None, None]
    frames = np.flatnonzero(refined.moved & tracked)
    observation = Observation(
        times_s,
        np.where(tracked[:, None, None], seen.bearings, 0.0),
        np.where(tracked[:, None, None, None], seen.covariance, np.eye(2)),
        np.where(tracked[:, None, None, None], modes, 0.0),
        np.array(calibration.correlation_time_s),
        tracked[:, None] & fits.chosen.inliers & seen.inside,
        body.points_body,
        swing_scale=np.array(calibration.swing_scale if len(frames) else 1.0),
    )
    if not len(frames):
        return observation
    columns, shift = refined.errors(calibration)[frames], std[frames][:, refined.configuration.shape[1] :]
    return with_configurations(
        observation, body, window, (frames, refined.configuration[frames], columns), shift, calibration
    )
