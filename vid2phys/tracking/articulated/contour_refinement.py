"""Refine the configurations of a tracked clip by the body's edges (`contour`), as `tracking.contour_refinement` for
rigid bodies.

A refined frame has a measured configuration in place of its keypoints, with two errors. What edges and keypoints
mistake together lasts for many frames. Each keypoint's own error, and the shift that all keypoints of a frame share,
are independent between frames. Where a network is unsure, it bends a body too little; edges do not.

Limits: frames whose edges are not found keep the configuration of their keypoints.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.parallel import in_processes
from vid2phys.error_model import Calibration
from vid2phys.tracking.articulated.config import DEFAULTS, ArticulatedConfig
from vid2phys.tracking.articulated.contour import downweighted, refine_from
from vid2phys.tracking.articulated.detector import Window, configuration_modes
from vid2phys.tracking.articulated.kinematic_fit import Configurations
from vid2phys.tracking.articulated.shading import fit_shading
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.measured import keypoint_information
from vid2phys.types import Array, ConfigurationMeasurement, Observation

_WEAK_STD = 3.0  # of a coordinate that the keypoints do not show, in those of the body's prior


@dataclass(frozen=True)
class RefinedConfigurations:
    """Refined configurations of N frames.

    Attributes:
        configuration: [N, D].
        covariance: [N, D, D] of edges and keypoints together, averaged over adjacent frames, before the scale of the
            error model.
        moved: [N], whether edges were found. Other frames keep the detected configuration.
    """

    configuration: Array
    covariance: Array
    moved: NDArray[np.bool_]

    @property
    def columns(self) -> Array:
        """Return lower triangular factors L [N, D, D] of the covariances L L'.

        Each column is an independent error of a frame. A camera may determine two coordinates badly and their sum
        well: then the errors of both are correlated.
        """
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=float)

    def errors(self, calibration: Calibration) -> Array:
        """Return the columns [N, D, D]; those of refined frames scaled by the error model."""
        scale = np.where(
            self.moved[:, None], per_coordinate(calibration.contour_scale, self.configuration.shape[1]), 1.0
        )
        return self.columns * scale[:, None]


def per_coordinate(values: tuple[float, ...], size: int) -> Array:
    """Return the values [size] of an error model, one per coordinate.

    A model that was calibrated without edges has another number of values: each coordinate gets the largest.
    """
    return np.array(values) if len(values) == size else np.full(size, max(values))


def refined_correlation_s(calibration: Calibration, size: int) -> Array:
    """Return the correlation times [size] of refined configurations, s.

    They are never shorter than those of the network: edges mistake the same appearance for longer.
    """
    detected = np.array(calibration.correlation_time_s[:size])
    return np.maximum(detected, per_coordinate(calibration.contour_correlation_s, size))


def with_configurations(
    seen: Observation,
    body: ArticulatedBody,
    window: Window,
    found: tuple[NDArray[np.int64], Array, Array],
    shift_std: Array,
    calibration: Calibration,
) -> Observation:
    """Return the observation with measured configurations in some frames.

    Args:
        seen: keypoints of T frames.
        body: The body.
        window: The camera, and its pose.
        found: Indices of frames [n], their configurations [n, D], and the columns [n, D, D] of their lasting errors.
        shift_std: [n, 2] standard deviations of the shift that a frame's keypoints share.
        calibration: Error model.
    """
    frames, configuration, columns = found
    size = configuration.shape[1]
    modes = configuration_modes(body, window, configuration)
    information = keypoint_information(modes, seen.covariance[frames], seen.visible[frames])
    weak = np.append((_WEAK_STD * body.prior_std) ** -2.0, np.zeros(2))
    shift = np.concatenate([np.zeros((len(frames), size)), shift_std**-2.0], axis=1)
    covariance = np.asarray(
        np.linalg.inv(information + np.diag(weak) + shift[..., None] * np.eye(size + 2)), dtype=float
    )
    basis = np.concatenate([columns, np.zeros((len(frames), size, 2))], axis=-1)
    correlation_s = np.array(calibration.correlation_time_s)
    correlation_s[:size] = refined_correlation_s(calibration, size)
    measured = np.ones(len(frames), dtype=bool)
    return seen.with_configurations(
        frames,
        ConfigurationMeasurement(configuration, covariance[:, :size, :size], basis, correlation_s, measured, "contour"),
    )


def refine_contours(
    frames: Indexed,
    body: ArticulatedBody,
    window: Window,
    detected: Configurations,
    shared_std: Array,
    which: NDArray[np.int64],
    times_s: Array,
    config: ArticulatedConfig = DEFAULTS,
) -> RefinedConfigurations:
    """Refine some frames' configurations by their edges.

    Args:
        frames: N frames [H, W, 3], by index.
        body: The body.
        window: The camera, and its pose.
        detected: [N] configurations of the keypoints.
        shared_std: [N, D or more] standard deviations of the errors that the points of a frame share, the coordinates
            of the configuration first.
        which: [M] indices of the frames to refine.
        times_s: [N] times of the frames, s.
        config: Settings.

    Returns:
        The configurations of all N frames. Keypoints of a body that bends count less: along the line of sight, which a
        network hardly sees, it reports half of the truth. One light shades all of that body's frames.
    """
    solid, size = Solid.of(body.mesh), detected.configuration.shape[-1]
    known = detected.covariance + shared_std[:, :size, None] ** 2 * np.eye(size)
    configuration, covariance, moved = detected.configuration.copy(), known.copy(), np.zeros(len(known), dtype=bool)

    def fit(i: int) -> tuple[Array, Array] | None:
        information = np.linalg.inv(known[i])
        before = detected.configuration[i], information
        if body.bends:
            pull = information @ detected.configuration[i]
            before = downweighted(body, pull, information, config.clip_point_overconfidence)
        return refine_from(frames[i], window, body, solid, *before, config)

    fits = in_processes(fit, which.tolist())
    for i, fitted in zip(which.tolist(), fits, strict=True):
        if fitted is not None:
            configuration[i], covariance[i] = fitted
            moved[i] = True
    if body.bends:
        lit, most = np.flatnonzero(moved), config.shading_max_frames
        for some in (lit[start : start + most] for start in range(0, len(lit), most)):
            known_of = configuration[some], covariance[some]
            shaded = fit_shading(frames, some.tolist(), window, body, solid, *known_of, config)
            configuration[some], covariance[some] = shaded
    covariance[moved] = smoothed(covariance[moved], times_s[moved], config.smoothing_s)
    return RefinedConfigurations(configuration, covariance, moved)


def smoothed(covariance: Array, times_s: Array, time_constant_s: float = DEFAULTS.smoothing_s) -> Array:
    """Average covariances over frames that err alike.

    Errors last longer than a frame. If the columns changed from one frame to the next, one lasting error would look
    like many changing numbers, which are unlikely. A fit would then be far too sure that there is no error.

    Args:
        covariance: [M, D, D] of the frames.
        times_s: [M] times of the frames, s.
        time_constant_s: Time over which a frame's weight falls to 1 / e, s.

    Returns:
        Weighted means [M, D, D] of the covariances.
    """
    keep = np.exp(-np.diff(times_s) / time_constant_s)

    def summed(values: Array) -> Array:
        """Return the sums over all frames, each weighted by exp(-|time between| / time_constant_s)."""
        before, after = values.copy(), values.copy()
        for m in range(1, len(values)):
            before[m] += keep[m - 1] * before[m - 1]
            after[-1 - m] += keep[-m] * after[-m]
        return np.asarray(before + after - values)

    return summed(covariance) / summed(np.ones((len(covariance), 1, 1)))
