"""Calibrating a model of a body on a known base, on looks held out from training, as `calibrate` does for others.

The error that all points of a frame share is one of the configuration itself, a Gauss-Markov process for each of its
coordinates, and a shift of the image (`sight.configuration_modes`).
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
from vid2phys.tracking.articulated.detector import ConfigurationDetections, Window, configuration_modes, detect
from vid2phys.tracking.uncertainty import articulated_contour_errors
from vid2phys.tracking.uncertainty.articulated_clips import clips
from vid2phys.tracking.uncertainty.calibrate import cross_validated, detection_threshold, with_contour
from vid2phys.tracking.uncertainty.fit_errors import Residuals, fit, normalised
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_MOST_LOOKS = 120
_SHIFT = 0.003  # first guess of the sideways error, bearings
_EDGES = 2.0  # first guess of errors of configurations fitted to edges, over what they state
_ANGLE = 0.05  # of the configuration's errors, in standard deviations of the prior


def mode_names(body: ArticulatedBody) -> tuple[str, ...]:
    """Names of the shared errors, in the order of `configuration_modes`."""
    return (*body.names, "sideways_x", "sideways_y")


def first_calibration(body: ArticulatedBody) -> Calibration:
    """The error model before anything was measured."""
    count = len(body.names) + 2
    return Calibration(
        mode_std=(*(_ANGLE * body.prior_std).tolist(), _SHIFT, _SHIFT),
        mode_exponent=(0.5,) * count,
        mode_doubt=(4.0,) * count,
        correlation_time_s=(0.2,) * count,
        contour_scale=(_EDGES,) * len(body.names),
        contour_correlation_s=(0.2,) * len(body.names),
    )


def calibrate_configurations(
    model: Model,
    body: ArticulatedBody,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """The calibration of a trained model from a sequence dataset of looks that it was not trained on."""
    start = first_calibration(body)
    parts, empty, errors = [], [], []
    for known in clips(renders, body, model.view_size, _MOST_LOOKS, seed, progress):
        clip, window = known.clip, known.window
        seen = detect(model, body, window, clip.frames, start)
        parts.append(_residuals(body, window, seen, known.configurations, known.sequence, clip.times_s))
        errors.append(np.abs(seen.configurations.configuration - known.configurations))
        empty.append(float(detect(model, body, window, [clip.background], start).quality[0]))
    residuals = Residuals(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Residuals)})
    quality = detection_threshold(residuals.quality, np.array(empty))
    start = replace(start, min_quality=quality, still_quality=quality)
    seen_residuals = residuals[residuals.quality >= quality]
    names = mode_names(body)
    numbers = cross_validated(
        np.unique(residuals.sequence),
        lambda fitting, checking: normalised(
            seen_residuals.of_sequences(checking), fit(seen_residuals.of_sequences(fitting), start), names
        ),
    )
    numbers["frames"] = float(len(seen_residuals.quality))
    numbers["sighted_share"] = round(float((residuals.quality >= quality).mean()), 4)
    numbers["false_share"] = round(float((np.array(empty) >= quality).mean()), 4)
    numbers["posture_error"] = round(float(np.concatenate(errors).mean()), 5)
    return replace(fit(seen_residuals, start), evidence_divisor=1.0, normalised=numbers)


def calibrate_edges(
    calibration: Calibration,
    model: Model,
    body: ArticulatedBody,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """The calibration with what configurations fitted to edges are worth; unchanged where no clip shows one."""
    misread = articulated_contour_errors.measure(model, body, calibration, renders, seed=seed, progress=progress)
    found = with_contour(calibration, articulated_contour_errors.of_frames(misread), body.names, trimmed=False)
    return (
        found
        if found is calibration
        else replace(found, swing_scale=articulated_contour_errors.swing_scale(misread, found))
    )


def _residuals(
    body: ArticulatedBody,
    window: Window,
    seen: ConfigurationDetections,
    configurations: Array,
    sequence: int,
    times_s: Array,
) -> Residuals:
    """Read minus true in view pixels."""
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
        np.full(count, sequence, dtype=np.int64),
        times_s,
    )
