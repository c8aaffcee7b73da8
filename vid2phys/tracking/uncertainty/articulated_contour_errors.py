"""What configurations fitted to edges are worth, measured on held-out clips, as `pixels.contour_errors` for rigid
bodies.
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
from vid2phys.tracking.uncertainty.articulated_clips import clips
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_MOST_LOOKS = 60
_LEAST_FRAMES = 8  # of a clip, to tell how far a body swings in it
_WHITE = 1e-6  # share of an error that lasts for a frame only


@dataclass(frozen=True)
class ContourResiduals:
    """The M frames of a held-out clip in which edges were seen. error: [M, D], configurations fitted minus true.
    columns: [M, D, D], of `RefinedConfigurations`. configurations: [M, D], the true ones. times_s: [M].
    sequence: the clip's number.
    """

    error: Array
    columns: Array
    configurations: Array
    times_s: Array
    sequence: int

    @property
    def shares(self) -> Array:
        """Errors as shares of the columns, [M, D]."""
        return np.asarray(np.linalg.solve(self.columns, self.error[..., None])[..., 0])

    def swings(self, scale: Array, correlation_s: Array) -> Array:
        """By how much each coordinate's swing is misread, in what is stated of that, [D]; NaN for one that rests.

        scale, correlation_s: [D] of the columns. The errors are taken for a multiple of how far the coordinate is from
        its mean; given is that multiple, by generalised least squares, over its standard deviation.
        """
        moving = self.configurations - self.configurations.mean(axis=0)
        told = np.linalg.inv(self.columns * scale) * moving[:, None]  # [M, D columns, D coordinates]
        apart = np.abs(self.times_s[:, None] - self.times_s)
        alike = np.exp(-apart / correlation_s[:, None, None]) + _WHITE * np.eye(len(apart))
        weighed = np.einsum("cmn,ncd->mcd", np.linalg.inv(alike), told, optimize=True)
        along = np.einsum("mcd,mc->d", weighed, self.shares / scale)
        with np.errstate(invalid="ignore"):
            return np.asarray(along / np.sqrt(np.einsum("mcd,mcd->d", weighed, told)))


def measure(
    model: Model,
    body: ArticulatedBody,
    calibration: Calibration,
    renders: RenderSet,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[ContourResiduals]:
    """Reads at most 60 clips, each frame by itself, and fits their edges."""
    found = []
    for known in clips(renders, body, model.view_size, _MOST_LOOKS, seed, progress):
        clip, window = known.clip, known.window
        seen = detect(model, body, window, clip.frames, calibration)
        sighted = np.flatnonzero(seen.quality >= calibration.min_quality)
        shared_std = calibration.mode_scale(np.full(len(seen.quality), window.diameter_px), seen.quality)
        better = refine_contours(clip.frames, body, window, seen.configurations, shared_std, sighted, clip.times_s)
        moved, error = better.moved, better.configuration - known.configurations
        columns, times_s = better.columns[moved], clip.times_s[moved]
        found.append(ContourResiduals(error[moved], columns, known.configurations[moved], times_s, known.sequence))
    return found


def of_frames(misread: Sequence[ContourResiduals]) -> RefinementErrors:
    """The errors of all frames, as shares of their columns."""
    error, times_s = (np.concatenate([getattr(each, name) for each in misread]) for name in ("shares", "times_s"))
    look_of = np.concatenate([np.full(len(each.times_s), each.sequence) for each in misread])
    return RefinementErrors(error, np.ones_like(error), look_of, times_s)


def swing_scale(misread: Sequence[ContourResiduals], calibration: Calibration) -> float:
    """By how much swings are misread over what errors of frames amount to, at least 1.

    Errors come back with the configuration, and more so than any correlation time says: what looks like more or less
    of the clip's own motion, as parameters do, is not averaged out. Robust: frames may show another configuration
    altogether.
    """
    scale = np.array(calibration.contour_scale)
    correlation_s = refined_correlation_s(calibration, len(scale))
    swings = [each.swings(scale, correlation_s) for each in misread if len(each.times_s) >= _LEAST_FRAMES]
    found = np.concatenate([each[np.isfinite(each)] for each in swings] or [np.zeros(0)])
    return max(1.0, float(robust_size(found))) if len(found) else 1.0
