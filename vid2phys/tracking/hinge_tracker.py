"""Track a rigid body on a hinge: one hinge for the whole clip and one angle a frame, fitted to the edges of all frames.

Purpose: a free track confuses the tilt of a thin body with its distance; on a hinge all frames share both.

Method: bundle adjustment (Triggs et al., "Bundle adjustment", 2000). Each frame states a quadratic model of its pose,
first by lines across the contour of the foreground (`cues.foreground_edges`), then by the contour cue (`cues.contour`).
Steps of hinge and angles together (`hinge.adjusted`) alternate with new models until both stand. Several starts are
followed in some frames, and the evidence of the images chooses.

Limits: a static camera; the body is on one fixed hinge in all frames that are tracked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import one_thread, side_by_side
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.risp.networks.model import Shape
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR_DEFAULTS
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_steps import normal_equations, slopes, variance_level
from vid2phys.tracking.cues.foreground_edges import edge_places
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.first_pass import FrameStore
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.hinge import Adjustment, Hinge, HingeStart, adjusted, hinge_starts
from vid2phys.tracking.hinge_config import DEFAULTS, HingeTrackerConfig
from vid2phys.tracking.silhouette_fit import FrameForeground
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Clip, Mesh

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
        agreement: share of the free track's frames whose image positions the hinge explains.
    """

    adjustment: Adjustment
    tracked: NDArray[np.bool_]
    quality: Array
    misfit: Array
    off: Array
    agreement: float


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
    frames = FrameStore(clip.frames, clip.width, clip.height)
    starts = hinge_starts(track.poses.pose[track.tracked], shape, mesh.radius_m)
    rows = np.flatnonzero(track.tracked)
    every = [_in_all_frames(start, rows, len(frames)) for start in starts]
    images = HingeImages.of(frames, camera, mesh, track, config)
    some = evenly(len(frames), config.start_frames)
    tried = []
    for number, start in enumerate(every):
        tried.append((start, *images.compared(start, some)))
        report(0.4 * (number + 1) / len(every))
    start, hinge, _ = max(tried, key=lambda each: each[2])
    found = images.adjusted(hinge, start.angles, lambda share: report(0.4 + 0.6 * share))
    return replace(found, agreement=start.agreement)


def _in_all_frames(start: HingeStart, rows: NDArray[np.int64], count: int) -> HingeStart:
    """Return a start with angles in all frames, interpolated where the free track was lost."""
    return replace(start, angles=np.interp(np.arange(count), rows, np.unwrap(start.angles)))


@dataclass(frozen=True)
class HingeImages:
    """The frames of a clip, the body, and the learned foreground."""

    frames: FrameStore
    camera: Camera
    solid: Solid
    foreground: Foreground
    config: HingeTrackerConfig

    @staticmethod
    def of(frames: FrameStore, camera: Camera, mesh: Mesh, track: Track, config: HingeTrackerConfig) -> HingeImages:
        """Learn the foreground from the silhouettes of a free track, which are right where its poses are not."""
        foreground = Foreground.of(frames)
        masks = {}
        for i in foreground.rows.tolist():
            drawing = draw(track.poses.pose[i].apply(mesh.vertices), mesh.faces) if track.tracked[i] else None
            mask = None if drawing is None else drawing.in_frame(camera)
            if mask is not None:
                masks[i] = mask
        return HingeImages(frames, camera, Solid.of(mesh), foreground.learned(masks), config)

    def compared(self, start: HingeStart, rows: NDArray[np.int64]) -> tuple[Hinge, float]:
        """Return the hinge that a start leads to in some frames, and the evidence of these frames, nats."""
        hinge, angles = start.hinge, start.angles[rows]
        seen = [self._seen(i) for i in rows.tolist()]
        for reach in self.config.reaches:
            step = adjusted(hinge, angles, *self._models(seen, hinge.poses(angles), reach), most=0.3)
            hinge, angles = step.hinge, step.angles
        for _ in range(self.config.start_rounds):
            step = adjusted(hinge, angles, *self._models(seen, hinge.poses(angles), None), most=0.1)
            hinge, angles = step.hinge, step.angles
        poses = hinge.poses(angles)
        nats = list(side_by_side(lambda k: seen[k].judged(poses[k], None).nats, range(len(seen))))
        return hinge, float(np.maximum(nats, 0.0).sum()) / self.config.temperature

    def adjusted(self, hinge: Hinge, angles: Array, report: Callable[[float], None]) -> HingeTrack:
        """Fit hinge and angles to all frames, until neither moves."""
        config, rows = self.config, range(len(self.frames))
        seen = [self._seen(i) for i in rows]
        for reach in config.reaches[-2:]:
            angles = self._turned(hinge, angles, self._models(seen, hinge.poses(angles), reach))
        for k in range(config.max_rounds):
            models = self._models(seen, hinge.poses(angles), None)
            step = adjusted(hinge, angles, *models, most=0.1)
            hinge, angles = step.hinge, step.angles
            report((k + 1) / config.max_rounds)
            if step.moved < config.still:
                break
        poses = hinge.poses(angles)
        information, pull = self._models(seen, poses, None)
        step = adjusted(hinge, angles, information, pull)
        overlap = np.array(list(side_by_side(lambda i: seen[i].judged(poses[i], None).overlap, rows)))
        off = _best(information, pull)
        misfit = np.sqrt(np.einsum("ti,tij,tj->t", off, information, off) / off.shape[1])
        tracked = (overlap > config.lost_overlap) & (np.trace(information, axis1=1, axis2=2) > 0.0)
        return HingeTrack(step, tracked, overlap, misfit, off, 0.0)

    def _turned(self, hinge: Hinge, angles: Array, models: tuple[Array, Array]) -> Array:
        """Return angles [T] after a step on a known hinge."""
        slope, (information, pull) = hinge.slopes(angles)[..., -1], models
        curvature = np.einsum("ti,tij,tj->t", slope, information, slope)
        return np.asarray(angles + np.clip((slope * pull).sum(axis=-1) / np.maximum(curvature, 1e-9), -0.3, 0.3))

    def _seen(self, i: int) -> FrameForeground:
        frame = self.frames[i]
        return FrameForeground(frame, self.foreground.log_ratio(frame), self.camera, self.solid)

    def _models(self, seen: Sequence[FrameForeground], poses: Pose, reach: float | None) -> tuple[Array, Array]:
        """Return information [T, 6, 6] and pull [T, 6] of frames about poses [T]; zero where a frame has no edges.

        reach: of the foreground's lines; None for the contour cue.
        """

        def model(k: int) -> tuple[Array, Array]:
            pose = poses[k]
            found = self._by_contour(seen[k], pose) if reach is None else self._by_foreground(seen[k], pose, reach)
            return found or (np.zeros((6, 6)), np.zeros(6))

        each = list(side_by_side(model, range(len(seen))))
        information, pull = np.stack([a for a, _ in each]), np.stack([b for _, b in each])
        off = _best(information, pull)
        squares = np.einsum("ti,tij,tj->t", off, information, off) / off.shape[1]
        usual = max(float(np.median(squares)), 1e-12)
        weight = 1.0 / (1.0 + squares / (usual * self.config.robust_sigma**2))
        return weight[:, None, None] * information, weight[:, None] * pull

    def _by_foreground(self, seen: FrameForeground, pose: Pose, reach: float) -> tuple[Array, Array] | None:
        config, mesh = seen.config, self.solid.mesh
        drawing = draw(pose.apply(mesh.vertices), mesh.faces)
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
        return hessian[:6, :6] - np.outer(by_width, hessian[6, :6]), by_width * gradient[6] - gradient[:6]

    def _by_contour(self, seen: FrameForeground, pose: Pose) -> tuple[Array, Array] | None:
        """Return what the contour cue states about a pose, without the prior that keeps its search near."""
        prior = np.diag(np.array(self.config.prior_std) ** -2.0)
        settings = replace(CONTOUR_DEFAULTS, max_rounds=self.config.contour_rounds)
        found = fit_contour(seen.frame, self.camera, self.solid, pose, prior=prior, config=settings)
        if found is None:
            return None
        information = found.information / found.overconfidence
        return information, (information + prior) @ pose.step_to(found.pose)


def _best(information: Array, pull: Array) -> Array:
    """Return the steps [T, 6] to the best poses of quadratic models, near zero along what they do not determine."""
    weak = 1e-3 * np.eye(6) * np.maximum(np.trace(information, axis1=1, axis2=2), 1e-9)[:, None, None] / 6.0
    return np.asarray(np.linalg.solve(information + weak, pull[..., None])[..., 0])
