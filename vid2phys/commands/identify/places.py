"""The places of a tracked body in camera axes, with their errors, for what looks for free flights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vid2phys.solvers.flights import Places
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array, ConfigurationMeasurement

_FLOOR = (1e-4, 1e-4, 1e-3)  # least errors of a place across and along, as shares of the distance


def places_of(track: Track, *, lasting: bool = False) -> Places:
    """Return where the body was in the tracked frames, in camera axes, with the errors of each frame.

    lasting: add errors that last for many frames, as independent ones that make long means as uncertain. An error of
    correlation time tau then has (1 + r) / (1 - r) times its variance, where r = exp(-dt / tau).
    """
    from vid2phys.solvers.flights import Places

    frames = np.flatnonzero(track.tracked & track.poses.pose.is_finite)
    pose, seen = track.poses.pose[frames], track.observation[frames]
    covariance = np.nan_to_num(track.poses.covariance[frames][:, 3:, 3:])
    distance = np.linalg.norm(pose.translation, axis=1)
    if seen.configuration is not None:
        slopes = np.zeros((len(frames), 3, 3))
        slopes[:, 0, 0] = slopes[:, 1, 1] = distance
        slopes[:, :, 2] = pose.translation
        local = seen.configuration.covariance[:, 3:, 3:]
        if lasting:
            local = local + _as_independent(seen.configuration, seen.error_clock_s)
        measured = slopes @ local @ np.swapaxes(slopes, 1, 2)
        covariance = np.where(seen.measured[:, None, None], measured, covariance)
    covariance = covariance + np.diag(np.square(_FLOOR)) * distance[:, None, None] ** 2
    return Places(seen.times_s, pose.translation, covariance)


def _as_independent(measured: ConfigurationMeasurement, clock_s: Array) -> Array:
    """Return the covariances [T, 3, 3] of places in local coordinates, of the errors that last."""
    basis = measured.shared_basis[:, 3:]
    alike = np.exp(-float(np.median(np.diff(clock_s))) / measured.correlation_time_s)
    return np.asarray((basis * (1.0 + alike) / (1.0 - alike)) @ np.swapaxes(basis, 1, 2))
