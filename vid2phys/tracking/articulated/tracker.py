"""From a clip to observations of a body on a known base: read every frame in one window, join the frames, fit edges,
label errors.

A frame alone may leave open to which side a joint is bent that points at the camera. Each frame keeps the minima that
its starts led to, and the clip takes the path through them that is likely and does not jump (Viterbi); what was chosen
is then tried in the neighbouring frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.tracking.articulated.contour_refinement import (
    RefinedConfigurations,
    refine_contours,
    refined_correlation_s,
)
from vid2phys.tracking.articulated.detector import (
    ConfigurationDetections,
    Window,
    agreement,
    configuration_modes,
    detect,
)
from vid2phys.tracking.articulated.kinematic_fit import Configurations, find_minima
from vid2phys.tracking.first_pass import FrameStore
from vid2phys.types import Array, Camera, Clip, Observation

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_BATCH = 16
_LEAST_POINTS = 6
_RATE = 14.0  # spreads of a coordinate a second: about a quarter of its range in a frame
_JUMP_NATS = 12.0  # at most, for what changes however much


@dataclass(frozen=True)
class ConfigurationTrack:
    """What was seen of a body on a known base in a clip of T frames.

    configurations: [T, D] of the frames, at their edges, and covariance [T, D, D]; NaN where lost. tracked: [T].
    quality: [T] in 0..1. notes: what a reader should know.
    """

    observation: Observation
    configurations: Array
    covariance: Array
    tracked: NDArray[np.bool_]
    quality: Array
    notes: tuple[str, ...]

    @property
    def lost_frames(self) -> NDArray[np.int64]:
        """Indices of the frames in which the body was not seen."""
        return np.flatnonzero(~self.tracked)


def track_configurations(
    clip: Clip,
    camera: Camera,
    model: Model,
    body: ArticulatedBody,
    *,
    calibration: Calibration | None = None,
    progress: Callable[[float], None] | None = None,
) -> ConfigurationTrack:
    """Read the body's configurations in a clip.

    camera: of the clip, its pose in the world of the body's base. calibration: the model's own unless given. progress:
    is told the share of frames done. Raises InputError when the camera does not look at the base or no frame shows the
    body.
    """
    if calibration is None:
        calibration = Calibration.from_dict(model.calibration)
    window = Window.of(camera, body, model.view_size)
    frames = FrameStore(clip.frames, clip.width, clip.height)
    seen = _read(frames, model, body, window, calibration, progress)
    found = _joined(body, window, seen, clip.times_s)
    quality = agreement(body, window, found, seen.bearings, seen.peak * seen.inside)
    tracked = (quality >= calibration.min_quality) & (found.inliers.sum(axis=1) >= _LEAST_POINTS)
    if not tracked.any():
        raise InputError(
            f"the {body.system.name} was read in none of the {len(clip.times_s)} frames of '{clip.name}'",
            "a clip that shows it where the camera's pose says, with its base at the world's origin",
            "check camera_to_world, or train longer",
        )
    shown = np.flatnonzero(tracked)
    better = refine_contours(frames, body, window, found, quality, calibration, shown, clip.times_s)
    errors = better.errors(calibration)
    observation = _observe(clip.times_s, body, window, seen, found, better, errors, quality, tracked, calibration)
    return ConfigurationTrack(
        observation,
        np.where(tracked[:, None], better.configuration, np.nan),
        np.where(tracked[:, None, None], errors @ np.swapaxes(errors, -1, -2), np.nan),
        tracked,
        quality,
        window.notes(body),
    )


def _read(
    frames: FrameStore,
    model: Model,
    body: ArticulatedBody,
    window: Window,
    calibration: Calibration,
    progress: Callable[[float], None] | None,
) -> ConfigurationDetections:
    """All frames, each by itself."""
    parts = []
    for start in range(0, len(frames), _BATCH):
        images = [frames[i] for i in range(start, min(start + _BATCH, len(frames)))]
        parts.append(detect(model, body, window, images, calibration))
        if progress is not None:
            progress((start + len(images)) / len(frames))
    return ConfigurationDetections.join(parts)


def _joined(body: ArticulatedBody, window: Window, seen: ConfigurationDetections, times_s: Array) -> Configurations:
    """One configuration a frame: the likeliest path, found twice, the second time with the neighbours' as further
    starts.
    """
    candidates = seen.minima
    rows = np.arange(len(times_s))
    path = candidates.configuration[rows, _viterbi_path(body, candidates, times_s)]
    neighbours = np.stack([np.vstack([path[:1], path[:-1]]), np.vstack([path[1:], path[-1:]])], axis=1)
    more = find_minima(
        body, window.camera_from_base, seen.bearings, seen.covariance, visible=seen.inside, starts=neighbours
    )
    candidates = Configurations.join([candidates, more], axis=1)
    return candidates[rows, _viterbi_path(body, candidates, times_s)]


def _viterbi_path(body: ArticulatedBody, candidates: Configurations, times_s: Array) -> NDArray[np.int64]:
    """The candidate of each frame [N] on the path of least cost through candidates [N, S] (Viterbi)."""
    cost, configurations = candidates.cost, candidates.configuration / body.spread
    total, back = cost[0], np.zeros(cost.shape, dtype=np.int64)
    for n in range(1, len(cost)):
        apart = configurations[n][:, None] - configurations[n - 1][None]
        jump = 0.5 * (apart**2).sum(axis=-1) / (_RATE * (times_s[n] - times_s[n - 1])) ** 2
        step = total[None] + np.minimum(jump, _JUMP_NATS)
        back[n] = step.argmin(axis=1)
        total = step.min(axis=1) + cost[n]
    chosen = np.zeros(len(cost), dtype=np.int64)
    chosen[-1] = int(total.argmin())
    for n in range(len(cost) - 1, 0, -1):
        chosen[n - 1] = back[n, chosen[n]]
    return chosen


def _observe(
    times_s: Array,
    body: ArticulatedBody,
    window: Window,
    seen: ConfigurationDetections,
    found: Configurations,
    better: RefinedConfigurations,
    errors: Array,
    quality: Array,
    tracked: NDArray[np.bool_],
    calibration: Calibration,
) -> Observation:
    """Lost frames hold harmless numbers and are not visible. errors: [T, D, D], of `better`.

    Points of a body that bends are where its edges and its light have it, as those of rigid bodies are (`pixels.
    refine_contours`): what each was read off by on its own would have a say along the sight, which they do not see.
    """
    size, correlation_s = better.configuration.shape[1], np.array(calibration.correlation_time_s)
    std = calibration.mode_scale(np.full(len(quality), window.diameter_px), quality)
    apart = std[:, :, None] * np.eye(std.shape[1])
    apart[better.moved, :size, :size] = errors[better.moved]
    if better.moved.any():
        correlation_s[:size] = refined_correlation_s(calibration, size)
    modes = configuration_modes(body, window, better.configuration) @ apart[:, None]
    put = window.project(body.points(better.configuration))
    bearings = seen.bearings + put - window.project(body.points(found.configuration))
    if body.bends:
        bearings[better.moved] = put[better.moved]
    return Observation(
        times_s,
        np.where(tracked[:, None, None], bearings, 0.0),
        np.where(tracked[:, None, None, None], seen.covariance, np.eye(2)),
        np.where(tracked[:, None, None, None], modes, 0.0),
        correlation_s,
        tracked[:, None] & found.inliers & seen.inside,
        body.points_body,
        swing_scale=np.array(calibration.swing_scale if better.moved.any() else 1.0),
    )
