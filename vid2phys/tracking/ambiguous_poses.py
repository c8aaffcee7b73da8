"""Poses that look alike at first sight, told apart by what they explain: the mirror twin, a face taken for a body.

Networks read single images of plain bodies a few per cent of the time as the twin in depth (Necker's cube), or with
a side left out, and thin ones as something like it. Of the poses about the one that was read those that explain the
frame best (`evidence`) are fitted to its edges (`contour`), and of these the best is taken.
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

_PASSES = 2  # the second about the best of the first
_TILTS = np.deg2rad([12.0, 25.0, 45.0, 70.0])
_DIRECTIONS = 8
_MOST_FITS = 4  # a pass
ROUGH_PRIOR = np.diag(np.array([0.3, 0.3, 0.3, 0.02, 0.02, 0.1]) ** -2.0)  # of where other poses start, in modes
_DEGREES = 6.0  # of freedom of keypoints' errors


@dataclass(frozen=True)
class Reading:
    """A pose that was detected in a frame, and how well other poses explain that frame.

    Attributes:
        frame: image [H, W, 3].
        camera: of the image.
        solid: mesh and creases of the body.
        pose: camera_from_body, as detected.
        prior: information about the pose, [6, 6], in its local coordinates.
        use_region: whether the colours of both sides of the silhouette count.
    """

    frame: NDArray[np.uint8]
    camera: Camera
    solid: Solid
    pose: Pose
    prior: Array
    use_region: bool = True

    @cached_property
    def _evidence(self) -> Evidence:
        radius_m = self.solid.mesh.radius_m
        center, radius = direction_and_size(self.pose.translation, radius_m)
        return Evidence(self.frame, self.camera, self.solid, center, float(radius), self.use_region)

    def nats(self, pose: Pose) -> float:
        """How well a pose explains the frame; far from the one that was read it loses, as by Student's t."""
        return self.explained(pose) - self._unlikely(pose)

    def edge_nats(self, pose: Pose) -> float:
        """As `nats`, by edges alone: what differs less from frame to frame than colours do."""
        return self._evidence.edge_nats(self._vertices(pose)) - self._unlikely(pose)

    def explained(self, pose: Pose) -> float:
        """As `nats`, wherever the pose is."""
        return self._evidence.nats(self._vertices(pose))

    def fitted_from(self, pose: Pose) -> tuple[float, Contour] | None:
        """Edges fitted from another pose, which is hardly believed, and its nats; None where no outline is seen."""
        fit = fit_contour(self.frame, self.camera, self.solid, pose, prior=ROUGH_PRIOR)
        return None if fit is None else (self.nats(fit.pose), fit)

    def fitted_about(self, pose: Pose) -> Iterator[tuple[float, Contour]]:
        """As `fitted_from` those that a pose may be taken for, the few that part the frame's colours best."""
        candidates = list(others(pose))
        nats = [self._color_nats(other) for other in candidates]
        for best in np.argsort(nats)[: -_MOST_FITS - 1 : -1]:
            fit = self.fitted_from(candidates[best])
            if fit is not None:
                yield fit

    def _color_nats(self, pose: Pose) -> float:
        colors = self._evidence.color_nats(self._vertices(pose))
        return colors - self._unlikely(pose)

    def _vertices(self, pose: Pose) -> Array:
        return pose.apply(self.solid.mesh.vertices)

    def _unlikely(self, pose: Pose) -> float:
        off = self.pose.step_to(pose)
        return 0.5 * (_DEGREES + MODES) * float(np.log1p(float(off @ self.prior @ off) / _DEGREES))


def settle(frame: NDArray[np.uint8], camera: Camera, solid: Solid, pose: Pose, prior: Array) -> Contour | None:
    """The pose camera_from_body, of those that may be taken for the given one, that explains a frame best.

    frame: [H, W, 3]. prior: [6, 6] information about the given pose in its modes; far poses lose by it as by Student's
    t. Some 100 ms of one core. None where even the given pose's outline is not seen.
    """
    best = fit_contour(frame, camera, solid, pose, prior=prior)
    if best is None:
        return None
    read = Reading(frame, camera, solid, pose, prior)
    most, around = read.nats(best.pose), pose
    for _ in range(_PASSES):
        before = best
        for nats, found in read.fitted_about(around):
            if nats > most:
                most, best = nats, found
        if best is before:
            break
        around = best.pose
    return best


def others(pose: Pose) -> Iterator[Pose]:
    """Yield the poses that a pose camera_from_body may be taken for.

    These are half a turn about the line of sight, which is the ambiguous pose of bodies that are their own mirror
    image, and tilts.
    """
    sight = pose.translation / np.linalg.norm(pose.translation)
    yield _turned(pose, np.pi * sight)
    aside = np.linalg.svd(sight[None])[2][1:]  # two directions across it
    for tilt in _TILTS:
        for angle in 2.0 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS:
            axis = np.array([np.cos(angle), np.sin(angle)]) @ aside
            yield _turned(pose, tilt * axis)


def _turned(pose: Pose, rotvec: Array) -> Pose:
    """Return the pose turned about the body's origin by a rotation vector [3] rad in camera axes."""
    return Pose(matrix_from_rotvec(rotvec) @ pose.rotation, pose.translation)
