"""Measure the errors of configurations that are fitted to edges, on held-out clips.

`contour_errors` does this for rigid bodies.

Errors of frames are measured as shares of the stated covariance's columns. A second number, `swing_scale`, measures how
much errors resemble the clip's own motion: such errors do not average out, and bias parameters.

Limits: a coordinate that does not move in a clip has no swing error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.error_model import Calibration
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.tracking.articulated.contour_refinement import refine_contours, refined_correlation_s
from vid2phys.tracking.articulated.detector import detect
from vid2phys.tracking.uncertainty.alignment_errors import RefinementErrors, robust_size
from vid2phys.tracking.uncertainty.articulated_clips import articulated_clips
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model


@dataclass(frozen=True)
class ContourResiduals:
    """The M frames of a held-out clip in which edges were found.

    Attributes:
        error: [M, D] fitted minus true configurations.
        columns: [M, D, D] of `RefinedConfigurations`.
        configurations: [M, D] true configurations.
        times_s: [M] times of the frames, s.
        sequence: Number of the clip.
    """

    error: Array
    columns: Array
    configurations: Array
    times_s: Array
    sequence: int

    @property
    def shares(self) -> Array:
        """Return the errors as shares of the columns, [M, D]."""
        return np.asarray(np.linalg.solve(self.columns, self.error[..., None])[..., 0])

    def swings(self, scale: Array, correlation_s: Array, white_share: float = DEFAULTS.white_share) -> Array:
        """Return the normalised error of each coordinate's swing, [D]; NaN for a coordinate that does not move.

        The errors are modelled as a multiple of the coordinate's distance from its mean. Generalised least squares give
        the multiple, which is divided by its standard deviation.

        Args:
            scale: [D] factors of the columns.
            correlation_s: [D] correlation times of the columns, s.
            white_share: Share of the variance that lasts for a single frame.
        """
        moving = self.configurations - self.configurations.mean(axis=0)
        design = np.linalg.inv(self.columns * scale) * moving[:, None]  # [M, D columns, D coordinates]
        apart = np.abs(self.times_s[:, None] - self.times_s)
        alike = np.exp(-apart / correlation_s[:, None, None]) + white_share * np.eye(len(apart))
        weighed = np.einsum("cmn,ncd->mcd", np.linalg.inv(alike), design, optimize=True)
        along = np.einsum("mcd,mc->d", weighed, self.shares / scale)
        with np.errstate(invalid="ignore"):
            return np.asarray(along / np.sqrt(np.einsum("mcd,mcd->d", weighed, design)))


def measure(
    model: Model,
    body: ArticulatedBody,
    calibration: Calibration,
    renders: RenderSet,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> list[ContourResiduals]:
    """Detect configurations in held-out clips, each frame on its own, and fit them to edges.

    Args:
        model: The trained model.
        body: Its body.
        calibration: Error model of the network.
        renders: Sequences with held-out appearances.
        seed: Seed of all random numbers.
        progress: Is called with the share of clips done.
        config: Settings.
    """
    found = []
    most = config.max_refined_appearances
    for known in articulated_clips(renders, body, model.view_size, most, seed, progress):
        clip, window = known.clip, known.window
        seen = detect(model, body, window, clip.frames, calibration)
        detected = np.flatnonzero(seen.quality >= calibration.min_quality)
        shared_std = calibration.mode_scale(np.full(len(seen.quality), window.diameter_px), seen.quality)
        better = refine_contours(clip.frames, body, window, seen.configurations, shared_std, detected, clip.times_s)
        moved, error = better.moved, better.configuration - known.configurations
        columns, times_s = better.columns[moved], clip.times_s[moved]
        found.append(ContourResiduals(error[moved], columns, known.configurations[moved], times_s, known.sequence))
    return found


def of_frames(residuals: Sequence[ContourResiduals]) -> RefinementErrors:
    """Return the errors of all frames, as shares of their columns."""
    error, times_s = (np.concatenate([getattr(each, name) for each in residuals]) for name in ("shares", "times_s"))
    numbers = np.concatenate([np.full(len(each.times_s), each.sequence) for each in residuals])
    return RefinementErrors(error, np.ones_like(error), numbers, times_s)


def swing_scale(
    residuals: Sequence[ContourResiduals], calibration: Calibration, config: UncertaintyConfig = DEFAULTS
) -> float:
    """Return the ratio of measured to stated errors of swings, at least 1.

    An error recurs with the configuration, more than any correlation time says. An error that looks like more or less
    of the clip's own motion acts as a wrong parameter does, and does not average out. The estimate is robust, since
    frames may show another configuration altogether.
    """
    scale = np.array(calibration.contour_scale)
    correlation_s = refined_correlation_s(calibration, len(scale))
    moving = [each for each in residuals if len(each.times_s) >= config.min_swing_frames]
    swings = [each.swings(scale, correlation_s, config.white_share) for each in moving]
    found = np.concatenate([each[np.isfinite(each)] for each in swings] or [np.zeros(0)])
    return max(1.0, float(robust_size(found))) if len(found) else 1.0
