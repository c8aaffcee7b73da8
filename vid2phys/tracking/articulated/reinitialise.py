"""Re-initialise frames of a track from another source, such as the motion that the dynamics fit.

A finger that is taken for the adjacent one stays wrong throughout a clip: the edge fit cannot leave its minimum. A
motion that the system can perform, and that the images support better, gives another start.

Limits: frames in which the network found no body stay lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.parallel import in_processes
from vid2phys.error_model import Calibration
from vid2phys.tracking.articulated.config import DEFAULTS, ArticulatedConfig
from vid2phys.tracking.articulated.contour import image_evidence, log_likelihood, refine_near
from vid2phys.tracking.articulated.contour_refinement import per_coordinate, smoothed, with_configurations
from vid2phys.tracking.articulated.detector import Window, configuration_modes
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.tracking.measured import std_along
from vid2phys.types import Array, Observation, with_rows


@dataclass(frozen=True)
class ClipEvidence:
    """The evidence of some frames of a clip.

    Attributes:
        body: The body.
        window: The camera, and its pose.
        indices: [n] indices of the frames.
        shown: Evidence of each frame.
    """

    body: ArticulatedBody
    window: Window
    indices: NDArray[np.int64]
    shown: tuple[Evidence, ...]

    @staticmethod
    def of(frames: Indexed, body: ArticulatedBody, window: Window, indices: NDArray[np.int64]) -> ClipEvidence:
        """Return the evidence of the frames with the given indices [n], of all frames of a clip."""
        solid = Solid.of(body.mesh)
        shown = (image_evidence(frames[int(i)], window, body, solid) for i in indices)
        return ClipEvidence(body, window, indices, tuple(shown))

    def nats(self, configurations: Array) -> float:
        """Return the log-likelihood of the frames' colours given configurations [n, D], nats, up to a constant."""
        return sum(
            log_likelihood(shown, self.window, self.body, configuration, colors_alone=True)
            for shown, configuration in zip(self.shown, configurations, strict=True)
        )


def reinitialise_track(
    frames: Indexed,
    window: Window,
    track: ConfigurationTrack,
    body: ArticulatedBody,
    expected: Array,
    calibration: Calibration,
    kept: float,
    config: ArticulatedConfig = DEFAULTS,
) -> ConfigurationTrack:
    """Refit the tracked frames from expected configurations, and keep the fits that the images support.

    The keypoints of the network no longer count in these frames.

    Args:
        frames: T frames [H, W, 3], by index.
        window: The camera, and its pose.
        track: The track.
        body: The body.
        expected: [T, D] configurations to start from.
        calibration: Error model.
        kept: Share of the body's weak prior around the expected configurations that stays in the result.
        config: Settings.

    Returns:
        The track with new configurations in frames where the evidence is better, or hardly worse; the same object where
        there are none.
    """
    solid, seen = Solid.of(body.mesh), track.observation

    def refit(i: int) -> tuple[Array, Array] | None:
        image = frames[i]
        found = refine_near(image, window, body, solid, expected[i], kept, config)
        if found is None:
            return None
        evidence = image_evidence(image, window, body, solid)
        now, then = (log_likelihood(evidence, window, body, each) for each in (found[0], track.configurations[i]))
        return found if now > then - config.reinitialise_nats else None

    tried = np.flatnonzero(track.tracked)
    fits = zip(tried, in_processes(refit, tried.tolist()), strict=True)
    found = [(i, *each) for i, each in fits if each is not None]
    if not found:
        return track
    some, configurations, covariance = (np.stack(part) for part in zip(*found, strict=True))
    scale = per_coordinate(calibration.contour_scale, configurations.shape[1])
    covariance = covariance * scale[:, None] * scale
    columns = np.asarray(np.linalg.cholesky(covariance), dtype=float)
    # all keypoints count for the error of a frame: the edges of the whole body were fitted
    shown = replace(seen, visible=with_rows(seen.visible, some, True))
    shift = _shift_std(shown, body, window, track.configurations, some)
    observation = with_configurations(shown, body, window, (some, configurations, columns), shift, calibration)
    return replace(
        track,
        observation=replace(observation, visible=seen.visible),
        configurations=with_rows(track.configurations, some, configurations),
        covariance=with_rows(track.covariance, some, covariance),
    )


def with_averaged_covariance(track: ConfigurationTrack, body: ArticulatedBody, window: Window) -> ConfigurationTrack:
    """Return the track with covariances that are averaged over adjacent frames (see `contour_refinement.smoothed`).

    A fit with each frame's own covariance is more accurate, and too confident.
    """
    seen, some = track.observation, np.flatnonzero(track.tracked)
    covariance = smoothed(track.covariance[some], seen.times_s[some])
    columns, size = np.linalg.cholesky(covariance), covariance.shape[-1]
    modes = configuration_modes(body, window, track.configurations[some])
    basis = seen.shared_basis[some]
    basis[..., :size] = modes[..., :size] @ columns[:, None]
    measured = seen.configuration
    if measured is not None:
        here = measured.measured[some]
        basis[here] = seen.shared_basis[some][here]  # keypoints keep their errors where configurations have theirs
        own = measured.shared_basis.copy()
        own[some[here], :, :size] = columns[here]
        measured = replace(measured, shared_basis=own)
    observation = replace(seen, shared_basis=with_rows(seen.shared_basis, some, basis), configuration=measured)
    return replace(track, observation=observation, covariance=with_rows(track.covariance, some, covariance))


def _shift_std(
    seen: Observation, body: ArticulatedBody, window: Window, configurations: Array, some: NDArray[np.int64]
) -> Array:
    """Return the standard deviations [n, 2] of the shift that the keypoints of frames [n] share."""
    modes = configuration_modes(body, window, configurations[some])[..., -2:]
    return std_along(seen.shared_basis[some][..., -2:], modes)
