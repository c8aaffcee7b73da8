"""The places of a tracked body in camera axes, with their errors, for what looks for free flights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vid2phys.solvers.flights import Places
    from vid2phys.tracking.track import Track

_FLOOR = (1e-4, 1e-4, 1e-3)  # least errors of a place across and along, as shares of the distance


def places_of(track: Track) -> Places:
    """Return where the body was in the tracked frames, in camera axes, with the errors of each frame."""
    from vid2phys.solvers.flights import Places

    frames = np.flatnonzero(track.tracked & track.poses.pose.is_finite)
    pose, seen = track.poses.pose[frames], track.observation[frames]
    covariance = np.nan_to_num(track.poses.covariance[frames][:, 3:, 3:])
    distance = np.linalg.norm(pose.translation, axis=1)
    if seen.configuration is not None:
        slopes = np.zeros((len(frames), 3, 3))
        slopes[:, 0, 0] = slopes[:, 1, 1] = distance
        slopes[:, :, 2] = pose.translation
        measured = slopes @ seen.configuration.covariance[:, 3:, 3:] @ np.swapaxes(slopes, 1, 2)
        covariance = np.where(seen.measured[:, None, None], measured, covariance)
    covariance = covariance + np.diag(np.square(_FLOOR)) * distance[:, None, None] ** 2
    return Places(seen.times_s, pose.translation, covariance)
