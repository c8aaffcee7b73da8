"""Ambiguous poses of one image, compared by how well they explain it: depth reversals, a face taken for a body.

In a few per cent of single images of plain bodies, a network detects the depth reversal (Necker's cube), or leaves out
a side. Poses around the detected one are scored by the colours of the frame (`cues.evidence`). The best of them are
fitted to the edges (`cues.contour`), and the one that explains the frame best is taken.

Limits: poses that explain an image equally well need other frames (`temporal_outliers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.contour import Contour, fit_contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.tracking.cues.photometric import MODES
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.types import Array, Camera

_DEGREES = 6.0  # degrees of freedom of the keypoints' errors (Student's t)


@dataclass(frozen=True, kw_only=True)
class AmbiguityConfig:
    """Settings of `resolve` and of what it calls."""

    passes: int = 2
    """Number of passes; the second one is about the best pose of the first."""
    tilts_deg: tuple[float, ...] = (12.0, 25.0, 45.0, 70.0)
    """Angles by which a pose is tilted, deg."""
    directions: int = 8
    """Number of directions of these tilts."""
    max_fits: int = 4
    """Number of poses that are fitted to the edges in a pass."""
    rough_std: tuple[float, ...] = (0.3, 0.3, 0.3, 0.02, 0.02, 0.1)
    """Standard deviations [6] of the poses from which edges are fitted, in their local coordinates."""


DEFAULTS = AmbiguityConfig()
ROUGH_PRIOR = np.diag(np.array(DEFAULTS.rough_std) ** -2.0)


@dataclass(frozen=True)
class PoseScorer:
    """Score poses of a body in one frame, in which one pose was detected.

    Attributes:
        frame: image [H, W, 3].
        camera: of the image.
        solid: mesh and creases of the body.
        pose: camera_from_body, as detected.
        prior: information about the pose, [6, 6], in its local coordinates.
        use_region: whether the colours of both sides of the silhouette count.
        config: settings.
    """

    frame: NDArray[np.uint8]
    camera: Camera
    solid: Solid
    pose: Pose
    prior: Array
    use_region: bool = True
    config: AmbiguityConfig = DEFAULTS

    @cached_property
    def _evidence(self) -> Evidence:
        radius_m = self.solid.mesh.radius_m
        center, radius = direction_and_size(self.pose.translation, radius_m)
        return Evidence(self.frame, self.camera, self.solid, center, float(radius), self.use_region)

    def nats(self, pose: Pose) -> float:
        """Return how well a pose explains the frame, less its distance from the detected pose (Student's t), nats."""
        return self.explained(pose) - self._unlikely(pose)

    def edge_nats(self, pose: Pose) -> float:
        """Return the same by edges alone, which differ less from frame to frame than colours do."""
        return self._evidence.edge_nats(self._vertices(pose)) - self._unlikely(pose)

    def explained(self, pose: Pose) -> float:
        """Return how well a pose explains the frame, wherever it is, nats."""
        return self._evidence.nats(self._vertices(pose))

    def fitted_from(self, pose: Pose) -> tuple[float, Contour] | None:
        """Fit edges from another pose with a weak prior; return its nats and the fit, None where no contour is seen."""
        prior = np.diag(np.array(self.config.rough_std) ** -2.0)
        fit = fit_contour(self.frame, self.camera, self.solid, pose, prior=prior)
        return None if fit is None else (self.nats(fit.pose), fit)

    def fitted_about(self, pose: Pose) -> Iterator[tuple[float, Contour]]:
        """Yield fits from the ambiguous poses of a pose, for the few that separate the frame's colours best."""
        candidates = list(alternatives(pose, self.config))
        nats = [self._color_nats(other) for other in candidates]
        for best in np.argsort(nats)[: -self.config.max_fits - 1 : -1]:
            fit = self.fitted_from(candidates[best])
            if fit is not None:
                yield fit

    def _color_nats(self, pose: Pose) -> float:
        return self._evidence.color_nats(self._vertices(pose)) - self._unlikely(pose)

    def _vertices(self, pose: Pose) -> Array:
        return pose.apply(self.solid.mesh.vertices)

    def _unlikely(self, pose: Pose) -> float:
        off = self.pose.step_to(pose)
        return 0.5 * (_DEGREES + MODES) * float(np.log1p(float(off @ self.prior @ off) / _DEGREES))


def resolve(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    pose: Pose,
    prior: Array,
    config: AmbiguityConfig = DEFAULTS,
) -> Contour | None:
    """Return the pose that explains a frame best, of the given one and those that it may be taken for.

    The search takes about 100 ms of one core.

    Args:
        frame: [H, W, 3].
        camera: of the frame.
        solid: mesh and creases.
        pose: camera_from_body, as detected.
        prior: [6, 6] information about it in its local coordinates; far poses lose by it as by Student's t.
        config: settings.

    Returns:
        The fitted pose; None where even the given pose has no contour in the frame.
    """
    best = fit_contour(frame, camera, solid, pose, prior=prior)
    if best is None:
        return None
    scorer = PoseScorer(frame, camera, solid, pose, prior, config=config)
    most, around = scorer.nats(best.pose), pose
    for _ in range(config.passes):
        before = best
        for nats, found in scorer.fitted_about(around):
            if nats > most:
                most, best = nats, found
        if best is before:
            break
        around = best.pose
    return best


def alternatives(pose: Pose, config: AmbiguityConfig = DEFAULTS) -> Iterator[Pose]:
    """Yield the poses that a pose camera_from_body may be taken for.

    These are half a rotation about the line of sight, which is the ambiguous pose of bodies that are their own mirror
    image, and tilts.
    """
    line = pose.translation / np.linalg.norm(pose.translation)
    yield _rotated(pose, np.pi * line)
    aside = np.linalg.svd(line[None])[2][1:]  # two directions across it
    for tilt in np.deg2rad(config.tilts_deg):
        for angle in 2.0 * np.pi * np.arange(config.directions) / config.directions:
            axis = np.array([np.cos(angle), np.sin(angle)]) @ aside
            yield _rotated(pose, tilt * axis)


def _rotated(pose: Pose, rotvec: Array) -> Pose:
    """Return the pose rotated about the body's origin by a rotation vector [3] in camera axes, rad."""
    return Pose(matrix_from_rotvec(rotvec) @ pose.rotation, pose.translation)
