"""Frames read again from where something else says that the body is, as its dynamics do.

A finger taken for the one beside it is taken for it throughout a clip, and edges fitted from there stay there. A motion
that the system can do, and that the images show better, says where to begin instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.parallel import side_by_side
from vid2phys.error_model import Calibration
from vid2phys.tracking.articulated.contour import image_evidence, log_likelihood, refine_near
from vid2phys.tracking.articulated.contour_refinement import per_coordinate, smoothed
from vid2phys.tracking.articulated.detector import Window, configuration_modes
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.tracking.detectors.network import Image
from vid2phys.types import Array

_NATS = 5.0  # by which a frame may speak against what the others say


@dataclass(frozen=True)
class ClipEvidence:
    """Some frames of a clip, and what they show of a body. indices: [n]."""

    body: ArticulatedBody
    window: Window
    indices: NDArray[np.int64]
    shown: tuple[Evidence, ...]

    @staticmethod
    def of(frames: Indexed, body: ArticulatedBody, window: Window, indices: NDArray[np.int64]) -> ClipEvidence:
        """frames: of the whole clip."""
        solid = Solid.of(body.mesh)
        shown = (image_evidence(frames[int(i)], window, body, solid) for i in indices)
        return ClipEvidence(body, window, indices, tuple(shown))

    def nats(self, configurations: Array) -> float:
        """How well configurations [n, D] part the colours of the frames."""
        each = zip(self.shown, configurations, strict=True)
        return sum(
            log_likelihood(shown, self.window, self.body, configuration, colors_alone=True)
            for shown, configuration in each
        )


def reinitialise_track(
    frames: Indexed,
    window: Window,
    track: ConfigurationTrack,
    body: ArticulatedBody,
    expected: Array,
    calibration: Calibration,
    kept: float,
) -> ConfigurationTrack:
    """The track with frames that show the body better, or as well, at what is found from the configurations expected
    [T, D].

    What the network said is forgotten, but for the frames in which it saw no body: those stay lost. kept: share of the
    body's weak prior that pulls towards what is expected.
    """
    solid, seen = Solid.of(body.mesh), track.observation

    def look(shown: tuple[int, Image]) -> tuple[Array, Array] | None:
        i, image = shown
        found = refine_near(image, window, body, solid, expected[i], kept)
        if found is None:
            return None
        evidence = image_evidence(image, window, body, solid)
        now, then = (log_likelihood(evidence, window, body, each) for each in (found[0], track.configurations[i]))
        return found if now > then - _NATS else None

    tried = np.flatnonzero(track.tracked)
    found = [
        (i, *each)
        for i, each in zip(tried, side_by_side(look, ((i, frames[i]) for i in tried.tolist())), strict=True)
        if each is not None
    ]
    if not found:
        return track
    some, configurations, covariance = (np.stack(part) for part in zip(*found, strict=True))
    scale = per_coordinate(calibration.contour_scale, configurations.shape[1])
    bearings = _put(seen.bearings, some, window.project(body.points(configurations)))
    return _stating(
        replace(
            track,
            observation=replace(seen, bearings=bearings, visible=_put(seen.visible, some, True)),
            configurations=_put(track.configurations, some, configurations),
        ),
        body,
        window,
        some,
        covariance * scale[:, None] * scale,
    )


def with_averaged_covariance(track: ConfigurationTrack, body: ArticulatedBody, window: Window) -> ConfigurationTrack:
    """The track with covariances that are means over frames that err alike (see `outlined.smoothed`).

    A fit does better by what each frame shows, but is too sure of itself by it.
    """
    seen = np.flatnonzero(track.tracked)
    return _stating(track, body, window, seen, smoothed(track.covariance[seen], track.observation.times_s[seen]))


def _put(into: NDArray[Any], some: NDArray[np.int64], values: NDArray[Any] | bool) -> NDArray[Any]:
    """An array [T, ...] with other values [n, ...] in some frames [n]."""
    out = into.copy()
    out[some] = values
    return out


def _stating(
    track: ConfigurationTrack, body: ArticulatedBody, window: Window, some: NDArray[np.int64], covariance: Array
) -> ConfigurationTrack:
    """The track with another covariance [n, D, D] of the configurations of some frames [n]."""
    seen, size = track.observation, covariance.shape[-1]
    basis = seen.shared_basis[some]
    modes = configuration_modes(body, window, track.configurations[some])
    basis[..., :size] = modes[..., :size] @ np.linalg.cholesky(covariance)[:, None]
    observation = replace(seen, shared_basis=_put(seen.shared_basis, some, basis))
    return replace(track, observation=observation, covariance=_put(track.covariance, some, covariance))
