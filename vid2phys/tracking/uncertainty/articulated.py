"""Calibrate a model of an articulated or modal body, on held-out appearances, as `calibrate` for rigid bodies.

The error that all keypoints of a frame share is an error of the configuration, a Gauss-Markov process for each
coordinate, and a shift of the image (`detector.configuration_modes`).

Limits: a coordinate that too few frames determine keeps its first guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.virtual_camera import bearings_to_view, in_frame, view_to_bearings
from vid2phys.error_model import Calibration
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.tracking.articulated.detector import ConfigurationDetections, configuration_modes, detect
from vid2phys.tracking.uncertainty import articulated_contour_errors
from vid2phys.tracking.uncertainty.articulated_clips import ArticulatedClip, articulated_clips
from vid2phys.tracking.uncertainty.calibrate import cross_validated, detection_threshold, with_contour
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.tracking.uncertainty.fit_errors import Residuals, fit, normalised

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model


def mode_names(body: ArticulatedBody) -> tuple[str, ...]:
    """Return the names of the shared errors, in the order of `configuration_modes`."""
    return (*body.names, "sideways_x", "sideways_y")


def first_calibration(body: ArticulatedBody, config: UncertaintyConfig = DEFAULTS) -> Calibration:
    """Return the error model before anything was measured."""
    count, shift = len(body.names) + 2, config.first_shift
    return Calibration(
        mode_std=(*(config.first_configuration_share * body.prior_std).tolist(), shift, shift),
        mode_exponent=(0.5,) * count,
        mode_doubt=(4.0,) * count,
        correlation_time_s=(0.2,) * count,
        contour_scale=(config.first_contour_scale,) * len(body.names),
        contour_correlation_s=(0.2,) * len(body.names),
    )


def calibrate_configurations(
    model: Model,
    body: ArticulatedBody,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> Calibration:
    """Calibrate a trained model's detections.

    Args:
        model: The trained model.
        body: Its body.
        renders: Sequences with held-out appearances.
        seed: Seed of all random numbers.
        progress: Is called with the share of clips done.
        config: Settings.
    """
    start = first_calibration(body, config)
    parts, empty, errors = [], [], []
    for known in articulated_clips(renders, body, model.view_size, config.max_appearances, seed, progress):
        clip, window = known.clip, known.window
        seen = detect(model, body, window, clip.frames, start)
        parts.append(_residuals(body, known, seen))
        errors.append(np.abs(seen.configurations.configuration - known.configurations))
        empty.append(float(detect(model, body, window, [clip.background], start).quality[0]))
    residuals = Residuals(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Residuals)})
    quality = detection_threshold(residuals.quality, np.array(empty), config)
    start = replace(start, min_quality=quality, still_quality=quality)
    detected = residuals[residuals.quality >= quality]
    names = mode_names(body)
    numbers = cross_validated(
        np.unique(residuals.sequence),
        lambda fitting, checking: normalised(
            detected.of_sequences(checking), fit(detected.of_sequences(fitting), start, config), names, config
        ),
    )
    numbers["frames"] = float(len(detected.quality))
    numbers["sighted_share"] = round(float((residuals.quality >= quality).mean()), 4)
    numbers["false_share"] = round(float((np.array(empty) >= quality).mean()), 4)
    numbers["posture_error"] = round(float(np.concatenate(errors).mean()), 5)
    return replace(fit(detected, start, config), evidence_divisor=1.0, normalised=numbers)


def calibrate_edges(
    calibration: Calibration,
    model: Model,
    body: ArticulatedBody,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> Calibration:
    """Add the measured errors of edge fits to an error model; return it unchanged where too few clips have any.

    Arguments: see `calibrate_configurations`.
    """
    residuals = articulated_contour_errors.measure(
        *(model, body, calibration, renders), seed=seed, progress=progress, config=config
    )
    errors = articulated_contour_errors.of_frames(residuals)
    found = with_contour(calibration, errors, body.names, trimmed=False, config=config)
    if found is calibration:
        return found
    return replace(found, swing_scale=articulated_contour_errors.swing_scale(residuals, found, config))


def _residuals(body: ArticulatedBody, known: ArticulatedClip, seen: ConfigurationDetections) -> Residuals:
    """Return detected minus true keypoints, in pixels of the virtual camera."""
    window, configurations = known.window, known.configurations
    truth = window.project(body.points(configurations))
    place = bearings_to_view(window.view, truth)
    to_pixels = np.linalg.inv(view_to_bearings(window.view, place)[1])
    count = len(configurations)
    return Residuals(
        bearings_to_view(window.view, seen.bearings) - place,
        seen.raw_px,
        in_frame(window.camera, truth) & seen.inside,
        to_pixels @ configuration_modes(body, window, configurations),
        np.full(count, window.diameter_px),
        seen.quality,
        np.full(count, known.sequence, dtype=np.int64),
        known.clip.times_s,
    )
