"""Refine the poses of a body whose mesh has no texture by the texture that the clip shows.

A printed carton is mostly given as a plain box. Its contours alone leave the tilt open, and the print disturbs them.
Tracked poses teach the texture (`learned_surfaces`), the texture refines each pose, and the refined poses teach it
anew. All frames share one texture, so that poses which err against the others are drawn to them.

Limits: bodies with flat sides before a static camera. An error that all frames share stays, as far as the silhouette
allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import one_thread, side_by_side
from vid2phys.error_clock import error_clock
from vid2phys.geometry import Pose
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.learned_surfaces import LearnedSurfaces, LearnedSurfacesConfig
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class TextureLearningConfig:
    """Settings of `refine_by_learned_texture`."""

    margins_px: tuple[int, ...] = (6, 4)
    """Least distance of the background from the body in each pass, px."""
    frames: int = 30
    """Largest number of frames that teach the texture."""
    rounds: int = 4
    """Largest number of steps of a pose in a pass."""
    pose_std: tuple[float, ...] = (0.1, 0.1, 0.1, 0.005, 0.005, 0.06)
    """Standard deviations [6] of the tracked poses, in their local coordinates."""
    lengths: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Lengths of a step that are tried, as multiples of that of the quadratic model."""
    least_nats: float = 0.05
    """Least evidence of a step."""
    textured_share: float = 0.75
    """Share of a plain body's misfit below which that with a texture shows that there is one. Plain bodies have 0.84
    and more, printed ones 0.7 and less."""


DEFAULTS = TextureLearningConfig()


@one_thread()
def refine_by_learned_texture(
    frames: Indexed,
    camera: Camera,
    solid: Solid,
    foreground: Foreground,
    tracked: Mapping[int, Pose],
    times_s: Array,
    config: TextureLearningConfig = DEFAULTS,
) -> dict[int, Pose] | None:
    """Return the poses of frames as a texture refines them; None where the body shows none.

    Args:
        frames: of the clip.
        camera: of the clip; static.
        solid: the body.
        foreground: as the track taught it.
        tracked: poses camera_from_body, by the index of the frame.
        times_s: [T] of all frames.
        config: settings.
    """
    rows, poses = np.array(list(tracked), dtype=np.int64), list(tracked.values())
    learning = LearnedSurfacesConfig(textured_share=config.textured_share)
    for margin_px in config.margins_px:
        taught = Pose.stack(poses)
        some = _different(taught, times_s[rows], config.frames)
        given = frames, camera, solid, foreground, rows[some], taught[some]
        surfaces = LearnedSurfaces.of(*given, margin_px, learning)
        if not surfaces.is_textured:
            return None
        poses = _all_refined(surfaces, tracked, poses, config)
    return dict(zip(tracked, poses, strict=True))


def _all_refined(
    surfaces: LearnedSurfaces, tracked: Mapping[int, Pose], poses: list[Pose], config: TextureLearningConfig
) -> list[Pose]:
    """Return poses after one pass over the tracked frames."""

    def refined(each: tuple[tuple[int, Pose], Pose]) -> Pose:
        (i, start), pose = each
        return _refined(surfaces, i, start, pose, config)

    return list(side_by_side(refined, zip(tracked.items(), poses, strict=True)))


def _different(poses: Pose, times_s: Array, most: int) -> NDArray[np.int64]:
    """Return at most `most` indices of poses [n] at times [n], evenly spread along the body's rotation.

    A body at rest counts about once: otherwise many frames of one wrong pose would teach the texture.
    """
    path = error_clock(times_s, poses.rotation)
    return np.unique(np.searchsorted(path, np.linspace(path[0], path[-1], most))).astype(np.int64)


def _refined(surfaces: LearnedSurfaces, i: int, start: Pose, pose: Pose, config: TextureLearningConfig) -> Pose:
    """Return the pose of frame i after steps from `pose`, as near to the start as its prior asks for."""
    std = np.array(config.pose_std)
    prior = np.diag(std**-2.0)
    for _ in range(config.rounds):
        model = surfaces.model(i, pose)
        if model is None:
            return pose
        step = np.linalg.solve(model.information + prior, model.pull - prior @ start.step_to(pose))
        tried = [pose.retract(length * np.clip(step, -2.0 * std, 2.0 * std)) for length in config.lengths]
        gains = [_gain(surfaces, i, each) for each in tried]
        best = int(np.argmax(gains))
        if gains[best] < model.gain + config.least_nats:
            return pose
        pose = tried[best]
    return pose


def _gain(surfaces: LearnedSurfaces, i: int, pose: Pose) -> float:
    """Return the evidence of frame i for a pose, nats."""
    model = surfaces.model(i, pose, gain_only=True)
    return -np.inf if model is None else model.gain
