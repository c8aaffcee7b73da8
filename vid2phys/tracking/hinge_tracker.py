"""Track a rigid body on a hinge: one hinge for the whole clip and one angle a frame, fitted to the edges of all frames.

Purpose: a free track confuses the tilt of a thin body with its distance; on a hinge all frames share both.

Method: bundle adjustment (Triggs et al., "Bundle adjustment", 2000). Each frame states a quadratic model of its pose:
by lines across the contour of the foreground (`cues.foreground_edges`), by the contour cue (`cues.contour`), at last by
the colours of the surfaces (`cues.surfaces`). Steps of hinge and angles together (`hinge.adjusted`) alternate with new
models until both stand. Several starts are followed in some frames, then the best one with the body rolled, and the
evidence of the surfaces chooses.

Limits: a static camera; the body is on one fixed hinge in all frames that are tracked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes, one_thread
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.risp.networks.model import Shape
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR_DEFAULTS
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_steps import normal_equations, slopes, variance_level
from vid2phys.tracking.cues.foreground_edges import edge_places
from vid2phys.tracking.cues.light import smaller
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import silhouette_of
from vid2phys.tracking.cues.surfaces import PoseModel
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.hinge import DEFAULTS as HINGE_STARTS
from vid2phys.tracking.hinge import (
    Adjustment,
    Hinge,
    HingeStart,
    adjusted,
    axes_apart,
    hinge_starts,
    principal_axes,
    rolled_starts,
    snapped,
)
from vid2phys.tracking.hinge_config import DEFAULTS, HingeTrackerConfig
from vid2phys.tracking.learned_surfaces import LearnedSurfaces
from vid2phys.tracking.silhouette_fit import FrameForeground
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Clip, Mesh

PoseCue: TypeAlias = Callable[..., PoseModel | None]
"""From a frame's index and a pose to what the frame states about it; None for nothing."""
NOTHING = PoseModel(np.zeros((6, 6)), np.zeros(6), 0.0)
_ROBUST_LINE = 2.0  # standard deviations


@dataclass(frozen=True)
class HingeTrack:
    """A body on a hinge in a clip of T frames.

    Attributes:
        adjustment: hinge and angles [T] with their errors, as the edges state them.
        tracked: [T], False in lost frames.
        quality: [T] overlap of silhouette and foreground, 0 to 1.
        misfit: root mean square disagreement [T] of each frame with the hinge, in stated standard deviations.
        off: [T, 6] step from the pose on the hinge to the pose that the frame alone has near it.
        rival: evidence for another hinge, as a share of that for this one, when both were compared in some frames.
        agreement: share of the free track's frames whose surfaces the hinge explains as well.
    """

    adjustment: Adjustment
    tracked: NDArray[np.bool_]
    quality: Array
    misfit: Array
    off: Array
    agreement: float
    rival: float = 0.0


@one_thread()
def track_hinge(
    clip: Clip,
    camera: Camera,
    mesh: Mesh,
    shape: Shape,
    track: Track,
    progress: Callable[[float], None] | None = None,
    config: HingeTrackerConfig = DEFAULTS,
) -> HingeTrack:
    """Track a body on a hinge.

    Args:
        clip: T frames.
        camera: of the clip; static.
        mesh: of the body.
        shape: points and symmetry of the body.
        track: of the free body, with at least two tracked frames.
        progress: receives the share of the work that is done.
        config: settings.
    """
    report = progress or (lambda share: None)
    frames = FrameStore.of(clip)
    axes = principal_axes(mesh)
    starts = hinge_starts(track.poses.pose[track.tracked], shape, mesh.radius_m, axes)
    rows = np.flatnonzero(track.tracked)
    every = [_in_all_frames(start, rows, len(frames)) for start in starts]
    images = HingeImages.of(frames, camera, mesh, track, config)
    small = images.halved(track)
    some = evenly(len(frames), config.start_frames)
    finer, by_edges = partial(small.finer, rows=some), partial(small.by_edges, rows=some)
    found = list(in_processes(finer, every))
    report(0.2)
    best_first = np.argsort([-each.gain for each in found], kind="stable")
    found += in_processes(by_edges, [every[k] for k in best_first[: config.by_edges]])
    report(0.3)
    best = max(found, key=lambda each: each.gain)
    rolled = rolled_starts(best.start, shape, mesh.vertices)
    found += in_processes(lambda way: way[0](way[1]), [(way, start) for start in rolled for way in (finer, by_edges)])
    for each in _best_and_rival(found, config):
        found += small.squared(each.start, some, axes, shape.center)
    best = max(found, key=lambda each: each.gain)
    start = best.start if small is images else small.descended(best.start, config.margins_px, report)
    margins = config.margins_px if small is images else config.margins_px[-1:]
    rival = max((each.gain for each in _with_other_axes(found, best, config)), default=0.0)
    descended = images.descended(start, margins, lambda share: report(0.4 + 0.5 * share))
    return replace(images.adjusted(descended, track), rival=rival / max(best.gain, 1e-9))


@dataclass(frozen=True)
class Candidate:
    """A start that some frames have refined, and the evidence of these frames, nats."""

    start: HingeStart
    gain: float


def _best_and_rival(found: Sequence[Candidate], config: HingeTrackerConfig) -> list[Candidate]:
    """Return the candidate with the most evidence, and the next one with another axis if it has nearly as much."""
    best = max(found, key=lambda each: each.gain)
    rival = max(_with_other_axes(found, best, config), key=lambda each: each.gain, default=None)
    return [best] if rival is None or rival.gain <= config.rival_share * best.gain else [best, rival]


def _with_other_axes(found: Sequence[Candidate], best: Candidate, config: HingeTrackerConfig) -> list[Candidate]:
    """Return the candidates whose axes are so far from that of the best one that they do not lead to its hinge."""
    return [each for each in found if axes_apart(each.start.hinge, best.start.hinge) > config.rival_rad]


def _in_all_frames(start: HingeStart, rows: NDArray[np.int64], count: int) -> HingeStart:
    """Return a start with angles in all frames, interpolated where the free track was lost."""
    return replace(start, angles=np.interp(np.arange(count), rows, np.unwrap(start.angles)))


@dataclass(frozen=True)
class HingeImages:
    """The frames of a clip, the body, and the learned foreground."""

    frames: Indexed
    camera: Camera
    solid: Solid
    foreground: Foreground
    config: HingeTrackerConfig

    @staticmethod
    def of(frames: Indexed, camera: Camera, mesh: Mesh, track: Track, config: HingeTrackerConfig) -> HingeImages:
        """Learn the foreground from the silhouettes of a free track, which are right where its poses are not."""
        poses = {int(i): track.poses.pose[i] for i in np.flatnonzero(track.tracked)}
        foreground = Foreground.of(frames).learned_from(poses, mesh, camera)
        return HingeImages(frames, camera, Solid.of(mesh), foreground, config)

    def halved(self, track: Track) -> HingeImages:
        """Return images of half the size where the body of a track is large; the same ones where it is small."""
        rows = np.flatnonzero(track.tracked)
        pose, mesh = track.poses.pose[rows[len(rows) // 2]], self.solid.mesh
        mask = silhouette_of(pose.apply(mesh.vertices), mesh.faces, self.camera)
        if mask is None or np.sqrt(mask[2].sum()) < self.config.large_px:
            return self
        small = smaller(self.camera, 2)
        return HingeImages.of(FrameStore.reduced(self.frames, small, 2), small, self.solid.mesh, track, self.config)

    def by_edges(self, start: HingeStart, rows: NDArray[np.int64]) -> Candidate:
        """Return the hinge that edges in some frames, then the surfaces, lead to from a start, and their evidence."""
        hinge, angles = start.hinge, start.angles[rows]
        for reach in self.config.reaches:
            step = self._stepped(hinge, angles, rows, partial(self._by_foreground, reach=reach), 0.3)
            hinge, angles = step.hinge, step.angles
        for _ in range(self.config.start_rounds):
            step = self._stepped(hinge, angles, rows, self._by_contour, 0.1)
            hinge, angles = step.hinge, step.angles
        later = np.interp(np.arange(len(self.frames)), rows, angles - start.angles[rows])
        return self.finer(HingeStart(hinge, start.angles + later, start.agreement), rows)

    def squared(self, start: HingeStart, rows: NDArray[np.int64], axes: Array, center: Array) -> list[Candidate]:
        """Return what a start leads to with its hinge on the nearest known axis of the body at first.

        Pins are mostly square to a body, and its tilt on the pin is what images determine least.
        """
        if float(np.abs(axes @ start.hinge.axis).max()) > np.cos(self.config.apart_rad):
            return []
        near = snapped(start.hinge, axes, center, HINGE_STARTS)
        squared = [replace(start, hinge=hinge) for hinge in near]
        return list(in_processes(partial(self.finer, rows=rows, fixed_rounds=self.config.fixed_rounds), squared))

    def finer(self, start: HingeStart, rows: NDArray[np.int64], fixed_rounds: int = 0) -> Candidate:
        """Return the hinge that the surfaces in some frames lead to from a start, and their evidence.

        fixed_rounds: number of rounds at first in which the axis stays where it is in the body.
        """
        hinge, angles = start.hinge, start.angles[rows]
        cue = self._cue_of_surfaces(rows, hinge.poses(angles), self.config.margins_px[0])
        for k in range(fixed_rounds + self.config.start_rounds):
            hinge, angles, _, gain = self._longer_round(hinge, angles, rows, cue, fixed=k < fixed_rounds)
        later = np.interp(np.arange(len(self.frames)), rows, angles - start.angles[rows])
        return Candidate(HingeStart(hinge, start.angles + later, start.agreement), gain)

    def descended(self, start: HingeStart, margins_px: tuple[int, ...], report: Callable[[float], None]) -> HingeStart:
        """Return the hinge that some frames lead to, with the angles of all frames.

        The descent ends where nothing moves, or where the images are explained no better than before.
        """
        config, every = self.config, np.arange(len(self.frames))
        rows = evenly(len(self.frames), config.fine_frames)
        hinge, some, most = start.hinge, start.angles[rows], -np.inf
        for k in range(config.max_rounds):
            if k < 2 * len(margins_px) and k % 2 == 0:
                cue = self._cue_of_surfaces(rows, hinge.poses(some), margins_px[k // 2])
            finest, before = k >= 2 * len(margins_px), most
            hinge, some, moved, most = self._longer_round(hinge, some, rows, cue)
            report((k + 1) / config.max_rounds)
            if finest and (moved < config.still or most <= before):
                break
        return HingeStart(hinge, start.angles + np.interp(every, rows, some - start.angles[rows]), start.agreement)

    def adjusted(self, start: HingeStart, track: Track) -> HingeTrack:
        """Fit the angles of all frames to a descended hinge, and compare it with the free track."""
        config, every = self.config, np.arange(len(self.frames))
        hinge, angles = start.hinge, start.angles
        rows = evenly(len(self.frames), config.fine_frames)
        cue = self._cue_of_surfaces(rows, hinge.poses(angles[rows]), config.margins_px[-1])
        angles = self._turned(hinge, angles, every, cue)
        poses = hinge.poses(angles)
        information, pull = self._models(every, poses, cue)
        overlap = self._overlaps(poses)
        off = _best(information, pull)
        misfit = np.sqrt(np.einsum("ti,tij,tj->t", off, information, off) / off.shape[1])
        tracked = (overlap > config.lost_overlap) & (np.trace(information, axis1=1, axis2=2) > 0.0)
        return HingeTrack(
            adjusted(hinge, angles, information, pull), tracked, overlap, misfit, off, self._as_well(poses, track, cue)
        )

    def _overlaps(self, poses: Pose) -> Array:
        """Return the overlaps [T] of silhouette and foreground at poses [T]."""
        each = in_processes(lambda i: self._seen(i).judged(poses[i], None).overlap, range(len(poses)))
        return np.array(list(each))

    def _as_well(self, poses: Pose, track: Track, cue: PoseCue) -> float:
        """Return the share of frames whose surfaces the poses [T] on a hinge explain as well as the free track."""
        tracked = np.flatnonzero(track.tracked)
        rows = tracked[evenly(len(tracked), self.config.start_frames)].tolist()
        on, free = ([(cue(i, at[i], gain_only=True) or NOTHING).gain for i in rows] for at in (poses, track.poses.pose))
        return float(np.mean([a > b - self.config.worse_share * abs(b) for a, b in zip(on, free, strict=True)]))

    def _stepped(
        self, hinge: Hinge, angles: Array, rows: NDArray[np.int64], cue: PoseCue, most: float, fixed: bool = False
    ) -> Adjustment:
        """Return the step of hinge and angles [n] that a cue states in some frames. most, fixed: as of `adjusted`."""
        return adjusted(hinge, angles, *self._models(rows, hinge.poses(angles), cue), most=most, fixed=fixed)

    def _longer_round(
        self, hinge: Hinge, angles: Array, rows: NDArray[np.int64], cue: PoseCue, fixed: bool = False
    ) -> tuple[Hinge, Array, float, float]:
        """Return hinge and angles [n] after a step of the best length, by how much one step moves, and the evidence.

        Pixels that disagree count less, so that a step by the quadratic models is too short where an edge is far off.
        """
        step = self._stepped(hinge, angles, rows, cue, 0.1, fixed)
        found, most = (step.hinge, step.angles), self._gain(step.hinge, step.angles, rows, cue)
        for doubling in range(1, self.config.doublings + 1):
            further = step.longer(2.0**doubling)
            gain = self._gain(*further, rows, cue)
            if gain <= most:
                break
            found, most = further, gain
        return *found, step.moved, most

    def _gain(self, hinge: Hinge, angles: Array, rows: NDArray[np.int64], cue: PoseCue) -> float:
        """Return the evidence of the surfaces in some frames for a hinge at angles [n], nats."""
        poses, quick = hinge.poses(angles), partial(cue, gain_only=True)
        each = (quick(int(rows[k]), poses[k]) or NOTHING for k in range(len(rows)))
        return sum(found.gain for found in each)

    def _turned(self, hinge: Hinge, angles: Array, rows: NDArray[np.int64], cue: PoseCue) -> Array:
        """Return angles [n] of some frames after a step on a known hinge."""
        information, pull = self._models(rows, hinge.poses(angles), cue)
        slope = hinge.slopes(angles)[..., -1]
        curvature = np.einsum("ti,tij,tj->t", slope, information, slope)
        return np.asarray(angles + np.clip((slope * pull).sum(axis=-1) / np.maximum(curvature, 1e-9), -0.3, 0.3))

    def _seen(self, i: int) -> FrameForeground:
        frame = self.frames[i]
        return FrameForeground(frame, self.foreground.log_ratio(frame), self.camera, self.solid)

    def _models(self, rows: NDArray[np.int64], poses: Pose, cue: PoseCue) -> tuple[Array, Array]:
        """Return information [n, 6, 6] and pull [n, 6] of frames about poses [n]; zero where a frame states nothing.

        Frames that disagree with the hinge count less.
        """

        each = list(in_processes(lambda k: cue(int(rows[k]), poses[k]) or NOTHING, range(len(rows))))
        information, pull = np.stack([found.information for found in each]), np.stack([found.pull for found in each])
        off = _best(information, pull)
        squares = np.einsum("ti,tij,tj->t", off, information, off) / off.shape[1]
        usual = max(float(np.median(squares)), 1e-12)
        weight = 1.0 / (1.0 + squares / (usual * self.config.robust_sigma**2))
        return weight[:, None, None] * information, weight[:, None] * pull

    def _cue_of_surfaces(self, rows: NDArray[np.int64], poses: Pose, margin_px: int) -> PoseCue:
        """Return the cue of surfaces before the background that some frames show beside the body at poses [n]."""
        return LearnedSurfaces.of(self.frames, self.camera, self.solid, self.foreground, rows, poses, margin_px).model

    def _by_foreground(self, i: int, pose: Pose, reach: float) -> PoseModel | None:
        """Return what lines across the contour of the foreground state about a pose. reach: in sizes of the body."""
        seen = self._seen(i)
        config = seen.config
        drawing = self.solid.draw(pose.apply(self.solid.mesh.vertices))
        contour = None if drawing is None else occluding_contour(drawing, self.camera)
        if contour is None or len(contour.pixels) < config.min_lines or contour.size_px < config.min_size_px:
            return None
        reach_px = max(config.min_reach_px, reach * contour.size_px)
        mean, variance = edge_places(
            seen.log_ratio, contour.pixels, contour.normals, reach_px, config.steps, config.correlated_px
        )
        level, same = variance_level(mean, variance, 0.3, 20)
        jacobian = slopes(contour.points, contour.along, pose.translation)
        jacobian = np.concatenate([jacobian, np.ones((len(jacobian), 1))], axis=1)
        gradient, hessian = normal_equations(-mean, jacobian, variance * level, _ROBUST_LINE)
        gradient, hessian = gradient / same, hessian / same
        wider = hessian[6, 6] + self.config.wider_px**-2.0
        by_width = hessian[:6, 6] / wider
        information = hessian[:6, :6] - np.outer(by_width, hessian[6, :6])
        return PoseModel(information, by_width * gradient[6] - gradient[:6], 0.0)

    def _by_contour(self, i: int, pose: Pose) -> PoseModel | None:
        """Return what the contour cue states about a pose, without the prior that keeps its search near."""
        prior = np.diag(np.array(self.config.prior_std) ** -2.0)
        settings = replace(CONTOUR_DEFAULTS, max_rounds=self.config.edge_rounds)
        found = fit_contour(self.frames[i], self.camera, self.solid, pose, prior=prior, config=settings)
        if found is None:
            return None
        information = found.information / found.overconfidence
        return PoseModel(information, (information + prior) @ pose.step_to(found.pose), 0.0)


def _best(information: Array, pull: Array) -> Array:
    """Return the steps [T, 6] to the best poses of quadratic models, near zero along what they do not determine."""
    weak = 1e-3 * np.eye(6) * np.maximum(np.trace(information, axis1=1, axis2=2), 1e-9)[:, None, None] / 6.0
    return np.asarray(np.linalg.solve(information + weak, pull[..., None])[..., 0])
