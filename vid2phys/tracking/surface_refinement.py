"""Refine the poses of a body whose mesh has no texture by the colours of its sides, or by the texture that it shows.

A printed carton is mostly given as a plain box. Its contours alone leave the tilt open, and the print disturbs them.
Tracked poses teach the texture (`learned_surfaces`), the texture refines each pose, and the refined poses teach it
anew. All frames share one texture, so that poses which err against the others are drawn to them. Poses too wrong for
this are replaced by those to which the texture leads from frame to frame.

Plain sides help where a side is hardly brighter than the background: the contour is then taken for the crease beside
it. Colours of sides show this, as they explain some frames much better at other poses.

Limits: bodies with flat sides before a static camera. An error that all frames share stays, as far as the silhouette
allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes, one_thread
from vid2phys.engine.pose_geometry import diameter_px
from vid2phys.error_clock import error_clock
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.risp.networks.model import Shape
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.silhouette import silhouette_of
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.learned_surfaces import LearnedSurfaces, LearnedSurfacesConfig
from vid2phys.tracking.silhouette_fit import FrameForeground
from vid2phys.tracking.texture_symmetry import under_one_element
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class SurfaceRefinementConfig:
    """Settings of `refine_by_surfaces`."""

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
    steady: tuple[float, ...] = (0.05, 0.05, 0.05, 0.005, 0.005, 0.05)
    """Largest distance [6] of a pose from where the frame before leads, in local coordinates, up to which it stays."""
    tried_frames: int = 8
    """Number of frames that tell whether the sides of a plain body refine its poses."""
    plain_gain: float = 0.012
    """Share by which the evidence of these frames has to grow."""
    plain_px: float = 45.0
    """Least diameter of a plain body in the frames: sides of smaller ones have too few pixels, px."""
    depth_std: float = 0.003
    """Standard deviation of the logarithm of the distance of a plain body: contours tell its size better."""
    textured_share: float = 0.8
    """Share of a plain body's misfit below which that with a texture shows that there is one. Plain bodies have 0.86
    and more, printed ones 0.77 and less."""


DEFAULTS = SurfaceRefinementConfig()


@dataclass(frozen=True)
class RefinedPoses:
    """poses: camera_from_body by the index of the frame. is_textured: whether a texture refined them."""

    poses: dict[int, Pose]
    is_textured: bool


@one_thread()
def refine_by_surfaces(
    frames: Indexed,
    camera: Camera,
    solid: Solid,
    foreground: Foreground,
    tracked: Mapping[int, Pose],
    times_s: Array,
    seen: Callable[[int], FrameForeground],
    shape: Shape,
    config: SurfaceRefinementConfig = DEFAULTS,
) -> RefinedPoses | None:
    """Return the poses of frames as the body's surfaces refine them; None where contours serve as well.

    Args:
        frames: of the clip.
        camera: of the clip; static.
        solid: the body.
        foreground: as the track taught it.
        tracked: poses camera_from_body, by the index of the frame.
        times_s: [T] of all frames.
        seen: returns a frame and its foreground, by the index.
        shape: symmetry of the body.
        config: settings.
    """
    learning = LearnedSurfacesConfig(textured_share=config.textured_share)

    def taught_by(poses: Mapping[int, Pose], margin_px: int) -> LearnedSurfaces:
        rows, stacked = np.array(list(poses), dtype=np.int64), Pose.stack(list(poses.values()))
        some = _different(stacked, times_s[rows], config.frames)
        return LearnedSurfaces.of(frames, camera, solid, foreground, rows[some], stacked[some], margin_px, learning)

    tracked = under_one_element(tracked, shape, lambda poses: taught_by(poses, config.margins_px[0]))
    poses = list(tracked.values())
    for margin_px in config.margins_px:
        surfaces = taught_by(dict(zip(tracked, poses, strict=True)), margin_px)
        first = margin_px == config.margins_px[0]
        if first and not (surfaces.is_textured or _gains_by_sides(surfaces, tracked, config)):
            return None
        poses = _all_refined(surfaces, tracked, poses, config)
        if surfaces.is_textured:
            poses = _followed(surfaces, dict(zip(tracked, poses, strict=True)), seen, config)
    return RefinedPoses(dict(zip(tracked, poses, strict=True)), surfaces.is_textured)


@one_thread()
def surface_evidence(
    frames: Indexed,
    camera: Camera,
    solid: Solid,
    foreground: Foreground,
    tracked: Mapping[int, Pose],
    config: SurfaceRefinementConfig = DEFAULTS,
) -> Array | None:
    """Return the evidence [n] of frames for a body, each at the best pose near the tracked one, nats.

    foreground: of the clip and of these frames, before any pose was known. None for a body with curved sides.
    """
    rows, poses = np.array(list(tracked), dtype=np.int64), list(tracked.values())
    mesh = solid.mesh
    shown = {i: silhouette_of(pose.apply(mesh.vertices), mesh.faces, camera) for i, pose in tracked.items()}
    foreground = foreground.learned({i: place for i, place in shown.items() if place is not None})
    for margin_px in config.margins_px:
        surfaces = LearnedSurfaces.of(frames, camera, solid, foreground, rows, Pose.stack(poses), margin_px)
        if not surfaces.body.is_flat:
            return None
        poses = _all_refined(surfaces, tracked, poses, config)
    return np.array([surfaces.gain(i, pose) for i, pose in zip(tracked, poses, strict=True)])


def _gains_by_sides(surfaces: LearnedSurfaces, tracked: Mapping[int, Pose], config: SurfaceRefinementConfig) -> bool:
    """Return whether the sides of a plain body explain some frames much better at other poses than the tracked ones."""
    radius_m = float(np.linalg.norm(surfaces.body.vertices, axis=1).max())
    places = Pose.stack(list(tracked.values())).translation
    width_px = diameter_px(float(surfaces.camera.K[0, 0]), radius_m, places)
    if not surfaces.body.is_flat or width_px < config.plain_px:
        return False
    rows = np.array(list(tracked))[evenly(len(tracked), config.tried_frames)].tolist()
    some = {i: tracked[i] for i in rows}
    after = _all_refined(surfaces, some, list(some.values()), config)
    gain, grown = (
        sum(surfaces.gain(i, pose) for i, pose in zip(rows, each, strict=True)) for each in (some.values(), after)
    )
    return bool(grown - gain > config.plain_gain * grown)


def _all_refined(
    surfaces: LearnedSurfaces, tracked: Mapping[int, Pose], poses: Sequence[Pose], config: SurfaceRefinementConfig
) -> list[Pose]:
    """Return poses after one pass over the tracked frames."""

    def refined(each: tuple[tuple[int, Pose], Pose]) -> Pose:
        (i, start), pose = each
        return _refined(surfaces, i, start, pose, config)

    return list(in_processes(refined, zip(tracked.items(), poses, strict=True)))


def _followed(
    surfaces: LearnedSurfaces,
    tracked: Mapping[int, Pose],
    seen: Callable[[int], FrameForeground],
    config: SurfaceRefinementConfig,
) -> list[Pose]:
    """Return poses of frames after the texture was followed through them in both directions.

    Where a pose does not go on from that of the frame before, another is tried: the motion goes on, or the body stays,
    and the texture refines this pose. Texture and silhouette together are the evidence for a pose.
    """

    def follow(way: Sequence[tuple[int, Pose]]) -> list[tuple[Pose, float]]:
        found = list[tuple[Pose, float]]()
        before: Pose | None = None
        last: Pose | None = None
        for i, own in way:
            frame, tried = seen(i), [own]
            starts = [] if last is None else last.predictions(before)
            if starts and not any(start.is_near(own, config.steady) for start in starts):
                start = max(starts, key=lambda pose: surfaces.gain(i, pose))
                tried.append(_refined(surfaces, i, start, start, config))
            judged = [(pose, surfaces.gain(i, pose) + frame.judged(pose, None).nats) for pose in tried]
            found.append(max(judged, key=lambda each: each[1]))
            before, last = last, found[-1][0]
        return found

    forth = list(tracked.items())
    onwards, back = in_processes(follow, [forth, forth[::-1]])
    return [max(each, key=lambda one: one[1])[0] for each in zip(onwards, back[::-1], strict=True)]


def _different(poses: Pose, times_s: Array, most: int) -> NDArray[np.int64]:
    """Return at most `most` indices of poses [n] at times [n], evenly spread along the body's rotation.

    A body at rest counts about once: otherwise many frames of one wrong pose would teach the texture.
    """
    path = error_clock(times_s, poses.rotation)
    return np.unique(np.searchsorted(path, np.linspace(path[0], path[-1], most))).astype(np.int64)


def _refined(surfaces: LearnedSurfaces, i: int, start: Pose, pose: Pose, config: SurfaceRefinementConfig) -> Pose:
    """Return the pose of frame i after steps from `pose`, as near to the start as its prior asks for."""
    std = np.array(config.pose_std if surfaces.is_textured else (*config.pose_std[:5], config.depth_std))
    prior = np.diag(std**-2.0)
    for _ in range(config.rounds):
        model = surfaces.model(i, pose)
        if model is None:
            return pose
        step = np.linalg.solve(model.information + prior, model.pull - prior @ start.step_to(pose))
        tried = [pose.retract(length * np.clip(step, -2.0 * std, 2.0 * std)) for length in config.lengths]
        gains = [surfaces.gain(i, each) for each in tried]
        best = int(np.argmax(gains))
        if gains[best] < model.gain + config.least_nats:
            return pose
        pose = tried[best]
    return pose
