"""What poses aligned to pixels are worth, measured on short clips of looks held out from training.

Aligning is not learned, but it errs: lights and materials are not as simple as it takes them for, and neighbouring
frames err alike. Its stated covariance is scaled, mode by mode, to the errors found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.rigid import pose_difference, retract_pose
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.held_out import HeldOutClip, make_clips
from vid2phys.tracking.cues.background_image import Backdrop
from vid2phys.tracking.cues.photometric import MODES, PRIOR_STD, Stage, align
from vid2phys.types import Array, Mesh

_MOST_LOOKS = 60
_START = 0.5  # poses start wrong by this share of what aligning allows for
_TRIM_SIGMA = 5.0
_CHI2_MEDIAN = 0.455  # of one degree of freedom
_TIMES_S = np.exp(np.linspace(np.log(0.01), np.log(5.0), 60))
_LEAST_SCALE = 0.25
POSE_MODES = ("rotation_x", "rotation_y", "rotation_z", "sideways_x", "sideways_y", "log_depth")


@dataclass(frozen=True)
class RefinementErrors:
    """Fitted minus true poses of N frames: error [N, 6] in the modes of `align`, std [N, 6] as stated, look [N],
    time_s [N] within a look, by the `clock` of errors. Of configurations: their D coordinates instead."""

    error: Array
    std: Array
    look: NDArray[np.int64]
    time_s: Array

    def of_appearances(self, chosen: NDArray[np.int64]) -> RefinementErrors:
        """The frames of some looks."""
        kept = np.isin(self.look, chosen)
        return RefinementErrors(self.error[kept], self.std[kept], self.look[kept], self.time_s[kept])


def measure(
    mesh: Mesh, renders: RenderSet, *, seed: int = 0, progress: Callable[[float], None] | None = None
) -> RefinementErrors:
    """Aligns held-out clips (at most 60) from poses that are wrong by as much as a first fit's."""
    parts, radius_m = [], renders.settings.radius_m
    for sequence, clip in make_clips(renders, radius_m, _MOST_LOOKS, seed=seed, progress=progress):
        rng = np.random.default_rng([seed, sequence, 9])
        error, std, time_s = _errors(mesh, clip, _START * PRIOR_STD * rng.normal(size=MODES))
        parts.append(RefinementErrors(error, std, np.full(len(error), sequence), time_s))
    return RefinementErrors(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("error", "std", "look", "time_s"))
    )


def _errors(mesh: Mesh, clip: HeldOutClip, start: Array) -> tuple[Array, Array, Array]:
    behind = Backdrop(clip.background, np.ones(clip.background.shape[:2], dtype=bool))
    looks, frames = [], []
    for i, (frame, camera) in enumerate(zip(clip.frames, clip.cameras, strict=True)):
        look = Stage(mesh, camera, behind).look(frame, *retract_pose(clip.rotation[i], clip.translation[i], start))
        if look is not None:
            looks.append(look)
            frames.append(i)
    if not looks:
        return np.zeros((0, MODES)), np.zeros((0, MODES)), np.zeros(0)
    found = align(looks)
    error = np.stack(
        [
            pose_difference(clip.rotation[i], clip.translation[i], *retract_pose(look.rotation, look.translation, step))
            for i, look, step in zip(frames, looks, found.steps, strict=True)
        ]
    )
    std = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    return error[found.usable], std[found.usable], clip.clock_s[np.array(frames)[found.usable]]


def fit(errors: RefinementErrors, *, trimmed: bool = True) -> tuple[Array, Array]:
    """By how much the stated standard deviations must be scaled, and the correlation times [s], [6] each.

    trimmed: errors above 5 sigma are left out; else they count as 5 sigma, where nothing puts such frames right later.
    """
    normal = errors.error / errors.std
    robust = robust_size(normal)
    kept = np.abs(normal) < _TRIM_SIGMA * robust
    scale = np.maximum(_root_mean_square(normal, _TRIM_SIGMA * robust, trimmed), _LEAST_SCALE)
    return scale, np.array([_correlation_s(errors, normal[:, m] / scale[m], kept[:, m]) for m in range(len(scale))])


def robust_size(values: Array) -> Array:
    """Standard deviation about 0 of the columns of values [N, ...], by their median squares."""
    return np.asarray(np.sqrt(np.median(values**2, axis=0) / _CHI2_MEDIAN))


def _root_mean_square(values: Array, most: Array | float, trimmed: bool) -> Array:
    """Of the columns of values [N, D], without those above `most` or with these as large as that."""
    kept = np.abs(values) < most
    squares = np.where(kept, values**2, 0.0 if trimmed else np.square(most))
    return np.sqrt(squares.sum(axis=0) / np.maximum(kept.sum(axis=0) if trimmed else len(values), 1))


def _correlation_s(errors: RefinementErrors, values: Array, kept: NDArray[np.bool_]) -> float:
    """Correlation time of unit Gauss-Markov processes, one a look, by maximum likelihood."""
    cost = np.zeros(len(_TIMES_S))
    for look in np.unique(errors.look[kept]):
        rows = kept & (errors.look == look)
        lag = np.diff(errors.time_s[rows])
        along = np.exp(-lag / _TIMES_S[:, None])
        spread = 1.0 - along**2 + 1e-6
        cost += ((values[rows][1:] - along * values[rows][:-1]) ** 2 / spread + np.log(spread)).sum(axis=1)
    return float(_TIMES_S[np.argmin(cost)])


def normalised(
    errors: RefinementErrors, scale: Array, names: Sequence[str], *, trimmed: bool = True
) -> dict[str, float]:
    """Root mean square error over what is stated after scaling, by names of the modes. trimmed: as for `fit`."""
    normal = errors.error / (errors.std * scale)
    numbers = dict(zip(names, _root_mean_square(normal, _TRIM_SIGMA, trimmed).tolist(), strict=True))
    return numbers | {"outlier_share": float(1.0 - (np.abs(normal) < _TRIM_SIGMA).all(axis=1).mean())}


def pose_sizes(errors: RefinementErrors) -> dict[str, float]:
    """Median errors of poses, in the units that people know."""
    return {
        "rotation_deg": float(np.degrees(np.median(np.linalg.norm(errors.error[:, :3], axis=1)))),
        "depth_percent": float(100.0 * np.median(np.abs(errors.error[:, 5]))),
    }
