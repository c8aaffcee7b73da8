"""Fit the silhouette of a mesh to the foreground of one frame, and score poses by it.

A pose is scored by the log-likelihood ratio of the pixels inside its silhouette, and aligned by rounds of lines across
its contour (`cues.foreground_edges`). The contour cue (`cues.contour`) then finishes the pose by light and creases.

Limits: poses with the same silhouette have the same score; edges inside the silhouette separate some of these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from vid2phys.geometry import Pose
from vid2phys.tracking.cues.contour import Contour, fit_contour
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR_DEFAULTS
from vid2phys.tracking.cues.contour_config import ContourConfig
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_steps import DescentSettings, descend, slopes
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.tracking.cues.exposure import STILL, longer
from vid2phys.tracking.cues.foreground_edges import edge_places
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.tracking.detectors.network import Image, direction_and_size
from vid2phys.tracking.detectors.silhouette import Silhouettes, propose_poses
from vid2phys.types import Camera


@dataclass(frozen=True, kw_only=True)
class SilhouetteFitConfig:
    """Settings of `FrameForeground`."""

    reaches: tuple[float, ...] = (0.2, 0.12, 0.07, 0.04)
    """Reach of the lines in each round, as a share of the body's size."""
    min_reach_px: float = 2.0
    """Least reach of a line, px."""
    steps: int = 10
    """Steps of a line to each side."""
    correlated_px: float = 4.0
    """Pixels in a row that count as one."""
    prior_std: tuple[float, ...] = (0.5, 0.5, 0.5, 0.05, 0.05, 0.3)
    """Standard deviations [6] of a start, in the local coordinates of a pose."""
    contour_std: tuple[float, ...] = (0.15, 0.15, 0.15, 0.02, 0.02, 0.06)
    """The same for the start of the contour cue."""
    max_step: tuple[float, ...] = (0.4, 0.4, 0.4, 0.05, 0.05, 0.3)
    """Largest step of a round."""
    correlated_sides: float = 0.75
    """Number of pixels that count as one piece of evidence, in square roots of the silhouette's area: shadows are as
    large as the body is."""
    sure_nats: float = 2.0
    """Log-likelihood ratio from which on a pixel is foreground as a whole, nats."""
    proposal_reaches: tuple[float, ...] = (0.1, 0.06)
    """The same for a pose that a detector proposes."""
    proposals: int = 7
    """Number of aligned proposals of a region that are fitted to the edges."""
    contour_rounds: int = 4
    """Largest number of rounds of the contour cue."""
    min_lines: int = 12
    """Least number of lines across a contour."""
    min_size_px: float = 6.0
    """Least size of a body in the frame, px."""

    def contour_config(self, path_px: tuple[float, float]) -> ContourConfig:
        """Return the settings of the contour cue in a frame. path_px: path of the body in its exposure."""
        return replace(CONTOUR_DEFAULTS, max_rounds=self.contour_rounds, path_px=path_px)


DEFAULTS = SilhouetteFitConfig()
_SETTINGS = DescentSettings(steps=2, overconfidence=20.0, robust_sigma=2.0, min_level=0.3, max_correlated=20)


@dataclass(frozen=True)
class Fit:
    """A pose camera_from_body that was fitted to a frame.

    Attributes:
        pose: camera_from_body.
        nats: how well the pose explains the frame: foreground, contour and creases.
        overlap: intersection over union of silhouette and foreground, 0..1.
        contour: the fit of the contour cue at this pose or close to it; None where it found too few edges.
    """

    pose: Pose
    nats: float
    overlap: float
    contour: Contour | None


@dataclass(frozen=True)
class FrameForeground:
    """One frame, its foreground, and the body that is fitted to both.

    Attributes:
        frame: image [H, W, 3].
        log_ratio: [H, W] log-likelihood ratio of body and scene, nats.
        camera: of the frame.
        solid: mesh and creases.
        foreground_edges: whether a contour has to be an edge of the foreground, too.
        path_px: path of the body in the exposure (x, y).
        excess: length by which the foreground is longer than the body, as a share of that path; negative for shorter.
        config: settings.
    """

    frame: Image
    log_ratio: NDArray[np.float32]
    camera: Camera
    solid: Solid
    foreground_edges: bool = False
    path_px: tuple[float, float] = STILL
    excess: float = 0.0
    config: SilhouetteFitConfig = DEFAULTS

    @cached_property
    def sharp(self) -> NDArray[np.float32]:
        """The log-likelihood ratio [H, W] without what the motion of the body adds to its foreground, nats."""
        return longer(self.log_ratio, np.array(self.path_px), -self.excess)

    def _score(self, drawing: Drawing) -> tuple[float, float]:
        """Return the evidence of the foreground for a drawn pose, nats, and the overlap of both, 0..1."""
        import cv2

        to_frame = drawing.to_frame(self.camera)
        if not np.isfinite(to_frame).all():
            return -np.inf, 0.0
        drawn = (drawing.nearness > 0.0).astype(np.uint8)
        path = np.asarray(np.linalg.solve(to_frame[:, :2], np.array(self.path_px)))
        mask = longer(drawn, path, self.excess) > 0
        seen = cv2.warpAffine(
            self.log_ratio,
            to_frame,
            mask.shape[::-1],
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=0.0,
        )
        area_px = abs(float(np.linalg.det(to_frame[:, :2])))
        inside, sure = float(seen[mask].sum()), np.clip(seen / self.config.sure_nats, 0.0, 1.0)
        both = float(sure[mask].sum())
        union = float(sure.sum()) + float(mask.sum()) - both
        side_px = np.sqrt(area_px * max(float(mask.sum()), 1.0))
        return area_px * inside / (self.config.correlated_sides * side_px), both / max(union, 1e-9)

    def aligned(self, pose: Pose, reaches: tuple[float, ...] | None = None) -> Pose | None:
        """Return the pose after rounds of lines across its contour; None where the body has no contour here."""
        config = self.config
        prior, most = np.diag(np.array(config.prior_std) ** -2.0), np.array(config.max_step)
        total = np.zeros(6)
        for reach in reaches or config.reaches:
            drawing = self.solid.draw(pose.apply(self.solid.mesh.vertices))
            contour = None if drawing is None else occluding_contour(drawing, self.camera)
            if contour is None or len(contour.pixels) < config.min_lines or contour.size_px < config.min_size_px:
                return None
            reach_px = max(config.min_reach_px, reach * contour.size_px)
            beyond = 0.5 * self.excess * np.abs(contour.normals @ np.array(self.path_px))[:, None]
            middles = contour.pixels + beyond * contour.normals
            mean, variance = edge_places(
                self.log_ratio, middles, contour.normals, reach_px, config.steps, config.correlated_px
            )
            jacobian = slopes(contour.points, contour.along, pose.translation)
            step, _ = descend(jacobian, mean, variance, prior, total, most, _SETTINGS)
            pose, total = pose.retract(step), total + step
        return pose

    def fitted(self, start: Fit) -> Fit | None:
        """Return the fit that the contour cue finds from a judged start, or the start where its evidence is better."""
        contour = contour_near(self.frame, self.camera, self.solid, start.pose, self.path_px, self.config)
        found = [replace(start, contour=contour)]
        if contour is not None:
            found.append(self.judged(contour.pose, contour))
        best = max(found, key=lambda fit: fit.nats)
        return best if np.isfinite(best.nats) else None

    def fitted_from(self, pose: Pose) -> Fit | None:
        """Return the fit from a pose that is not judged yet."""
        return self.fitted(self.judged(pose, None))

    def judged(self, pose: Pose, contour: Contour | None) -> Fit:
        """Return a pose with the evidence of the frame for it."""
        vertices = pose.apply(self.solid.mesh.vertices)
        drawing = self.solid.draw(vertices)
        if drawing is None:
            return Fit(pose, -np.inf, 0.0, contour)
        nats, overlap = self._score(drawing)
        center, radius = direction_and_size(pose.translation, self.solid.mesh.radius_m)
        shown = self._shown if self.foreground_edges else None
        view = self.frame, self.camera, self.solid, center, float(radius), False
        evidence = Evidence(*view, shown, self.config.contour_config(self.path_px))
        return Fit(pose, nats + evidence.edges(vertices, drawing), overlap, contour)

    @cached_property
    def _shown(self) -> NDArray[np.uint8]:
        """The foreground as an image [H, W, 3]: the probability that a pixel shows the body."""
        level = 255.0 * expit(self.sharp)
        return np.repeat(level.astype(np.uint8)[..., None], 3, axis=-1)


def contour_near(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    pose: Pose,
    path_px: tuple[float, float] = STILL,
    config: SilhouetteFitConfig = DEFAULTS,
) -> Contour | None:
    """Return the fit of the contour cue near a pose; None where too few lines across the contour find the edge.

    path_px: path of the body in the exposure of the frame (x, y).
    """
    prior = np.diag(np.array(config.contour_std) ** -2.0)
    return fit_contour(frame, camera, solid, pose, prior=prior, config=config.contour_config(path_px))


def detect(silhouettes: Silhouettes, seen: FrameForeground, most: int = 4) -> list[Fit]:
    """Detect a mesh in a frame; return at most `most` fitted poses, the best first."""
    config, found = seen.config, list[Fit]()
    for proposed in propose_poses(silhouettes, seen.sharp, seen.camera):
        aligned = [seen.aligned(pose, config.proposal_reaches) for pose in proposed]
        judged = [seen.judged(pose, None) for pose in aligned if pose is not None]
        judged.sort(key=lambda fit: -fit.nats)
        fits = (seen.fitted(fit) for fit in judged[: config.proposals])
        found += [fit for fit in fits if fit is not None]
    return sorted(found, key=lambda fit: -fit.nats)[:most]
