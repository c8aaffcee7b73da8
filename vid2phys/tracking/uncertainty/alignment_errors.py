"""Measure the errors of poses that are aligned to the pixels of a clip, on short clips with held-out appearances.

Alignment is not learned, but it errs: lights and materials are not as simple as its model, and adjacent frames err
alike. Its stated covariance is scaled, mode by mode, to the measured errors. Each mode is a first-order Gauss-Markov
process with the correlation time of greatest likelihood.

Limits: clips are rendered, and the background is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.error_model import MODE_NAMES
from vid2phys.geometry import Pose
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.held_out import HeldOutClip, make_clips
from vid2phys.tracking.cues.background_image import Backdrop
from vid2phys.tracking.cues.photometric import MODES, PRIOR_STD, Stage, align
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.types import Array, Mesh

POSE_MODES = MODE_NAMES
_CHI2_MEDIAN = 0.455  # of one degree of freedom
_GRID = 60  # correlation times that are tried


@dataclass(frozen=True)
class RefinementErrors:
    """Errors of N refined poses or configurations, fitted minus true.

    Attributes:
        error: [N, 6] in the modes of a pose, or [N, D] in the coordinates of a configuration.
        std: Standard deviations as stated, of the same shape.
        appearance: [N] number of the appearance.
        time_s: [N] time within an appearance's clip, by the clock of errors (`error_clock`), s.
    """

    error: Array
    std: Array
    appearance: NDArray[np.int64]
    time_s: Array

    def of_appearances(self, chosen: NDArray[np.int64]) -> RefinementErrors:
        """Return the errors of some appearances."""
        kept = np.isin(self.appearance, chosen)
        return RefinementErrors(self.error[kept], self.std[kept], self.appearance[kept], self.time_s[kept])


def measure(
    mesh: Mesh,
    renders: RenderSet,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> RefinementErrors:
    """Align held-out clips from poses that are as wrong as those of a first fit.

    Args:
        mesh: The body's mesh.
        renders: Sequences with held-out appearances.
        seed: Seed of all random numbers.
        progress: Is called with the share of clips done.
        config: Settings.
    """
    parts, radius_m = [], renders.settings.radius_m
    most = config.max_refined_appearances
    for sequence, clip in make_clips(renders, radius_m, most, seed=seed, progress=progress):
        rng = np.random.default_rng([seed, sequence, 9])
        error, std, time_s = _errors(mesh, clip, config.start_share * PRIOR_STD * rng.normal(size=MODES))
        parts.append(RefinementErrors(error, std, np.full(len(error), sequence), time_s))
    names = ("error", "std", "appearance", "time_s")
    return RefinementErrors(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _errors(mesh: Mesh, clip: HeldOutClip, start: Array) -> tuple[Array, Array, Array]:
    """Return errors [N, 6], stated standard deviations [N, 6] and times [N] of a clip's aligned frames."""
    behind = Backdrop(clip.background, np.ones(clip.background.shape[:2], dtype=bool))
    patches, frames = [], []
    for i, (frame, camera) in enumerate(zip(clip.frames, clip.cameras, strict=True)):
        pose = Pose(clip.rotation[i], clip.translation[i]).retract(start)
        patch = Stage(mesh, camera, behind).frame_at(frame, pose)
        if patch is not None:
            patches.append(patch)
            frames.append(i)
    if not patches:
        return np.zeros((0, MODES)), np.zeros((0, MODES)), np.zeros(0)
    found = align(patches)
    error = np.stack(
        [
            Pose(clip.rotation[i], clip.translation[i]).step_to(patch.pose.retract(step))
            for i, patch, step in zip(frames, patches, found.steps, strict=True)
        ]
    )
    std = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    return error[found.usable], std[found.usable], clip.clock_s[np.array(frames)[found.usable]]


def fit(errors: RefinementErrors, *, trimmed: bool = True, config: UncertaintyConfig = DEFAULTS) -> tuple[Array, Array]:
    """Fit the factors of the stated standard deviations and the correlation times [s], one per mode.

    trimmed: whether outliers are left out. Otherwise they count as errors of `trim_sigma`, for errors that no later
    step corrects.
    """
    normal = errors.error / errors.std
    most = config.trim_sigma * robust_size(normal)
    kept = np.abs(normal) < most
    scale = np.maximum(_root_mean_square(normal, most, trimmed), config.min_scale)
    times_s = [_correlation_s(errors, normal[:, m] / scale[m], kept[:, m], config) for m in range(len(scale))]
    return scale, np.array(times_s)


def robust_size(values: Array) -> Array:
    """Return the standard deviations about 0 of the columns of values [N, ...], by their median squares."""
    return np.asarray(np.sqrt(np.median(values**2, axis=0) / _CHI2_MEDIAN))


def _root_mean_square(values: Array, most: Array | float, trimmed: bool) -> Array:
    """Return the root mean squares of the columns of values [N, D], without values above `most` or with these cut."""
    kept = np.abs(values) < most
    squares = np.where(kept, values**2, 0.0 if trimmed else np.square(most))
    return np.sqrt(squares.sum(axis=0) / np.maximum(kept.sum(axis=0) if trimmed else len(values), 1))


def _correlation_s(
    errors: RefinementErrors, values: Array, kept: NDArray[np.bool_], config: UncertaintyConfig
) -> float:
    """Return the correlation time [s] of unit Gauss-Markov processes, one per appearance, by maximum likelihood."""
    least_s, most_s = config.correlation_range_s
    times_s = np.exp(np.linspace(np.log(least_s), np.log(most_s), _GRID))
    cost = np.zeros(len(times_s))
    for appearance in np.unique(errors.appearance[kept]):
        rows = kept & (errors.appearance == appearance)
        lag = np.diff(errors.time_s[rows])
        along = np.exp(-lag / times_s[:, None])
        spread = 1.0 - along**2 + 1e-6
        cost += ((values[rows][1:] - along * values[rows][:-1]) ** 2 / spread + np.log(spread)).sum(axis=1)
    return float(times_s[np.argmin(cost)])


def normalised(
    errors: RefinementErrors,
    scale: Array,
    names: Sequence[str],
    *,
    trimmed: bool = True,
    config: UncertaintyConfig = DEFAULTS,
) -> dict[str, float]:
    """Return the root mean square of errors over scaled standard deviations, by the names of the modes.

    The key `outlier_share` holds the share of errors above `trim_sigma`. trimmed: see `fit`.
    """
    normal = errors.error / (errors.std * scale)
    numbers = dict(zip(names, _root_mean_square(normal, config.trim_sigma, trimmed).tolist(), strict=True))
    return numbers | {"outlier_share": float(1.0 - (np.abs(normal) < config.trim_sigma).all(axis=1).mean())}


def pose_sizes(errors: RefinementErrors) -> dict[str, float]:
    """Return the median errors of poses, in deg and in percent of the range."""
    return {
        "rotation_deg": float(np.degrees(np.median(np.linalg.norm(errors.error[:, :3], axis=1)))),
        "depth_percent": float(100.0 * np.median(np.abs(errors.error[:, 5]))),
    }
