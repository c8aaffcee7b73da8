"""Poses that look alike at first sight, told apart by the edges they explain: the mirror twin, a face taken for a body.

Networks read single pictures of plain bodies a few per cent of the time as the twin in depth (Necker's cube), or with
a side left out. From the pose that was read and from others about it edges are fitted (`contour`), and that pose is
taken whose outline and creases show the most edges and the fewest places where an edge should be and is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.pixels.align import MODES, moved
from vid2phys.risp.pixels.align_errors import difference
from vid2phys.risp.pixels.contour import Contour, fit_contour
from vid2phys.risp.pixels.creases import Solid
from vid2phys.risp.pixels.evidence import edge_evidence
from vid2phys.types import Array, Camera

_PASSES = 2  # the second about the best of the first
_TILTS = np.deg2rad([22.0, 45.0])
_DIRECTIONS = 8
_ROUGH_STD = np.array([0.3, 0.3, 0.3, 0.02, 0.02, 0.1])  # of where other poses start, in modes
_DEGREES = 6.0  # of freedom of keypoints' errors


@dataclass(frozen=True)
class Reading:
    """A pose camera_from_body that was read in a frame [H, W, 3]. prior: [6, 6] information about it in its modes."""

    frame: NDArray[np.uint8]
    camera: Camera
    solid: Solid
    rotation: Array
    translation: Array
    prior: Array

    def nats(self, rotation: Array, translation: Array) -> float:
        """How well a pose explains the frame's edges; far from the one that was read it loses, as by Student's t."""
        off = difference(self.rotation, self.translation, rotation, translation)
        unlikely = 0.5 * (_DEGREES + MODES) * np.log1p(float(off @ self.prior @ off) / _DEGREES)
        posed = self.solid.mesh.vertices @ rotation.T + translation
        return edge_evidence(self.frame, self.camera, self.solid, posed) - float(unlikely)

    def fitted_from(self, rotation: Array, translation: Array) -> tuple[float, Contour] | None:
        """Edges fitted from another pose, which is hardly believed, and its nats; None where no outline is seen."""
        rough = np.diag(_ROUGH_STD**-2.0)
        fit = fit_contour(self.frame, self.camera, self.solid, rotation, translation, prior=rough)
        return None if fit is None else (self.nats(fit.rotation, fit.translation), fit)


def settle(
    frame: NDArray[np.uint8], camera: Camera, solid: Solid, rotation: Array, translation: Array, prior: Array
) -> Contour | None:
    """The pose camera_from_body, of those that may be taken for the given one, that explains a frame's edges best.

    frame: [H, W, 3]. prior: [6, 6] information about the given pose in its modes; far poses lose by it as by Student's
    t. Some 300 ms of one core. None where even the given pose's outline is not seen.
    """
    best = fit_contour(frame, camera, solid, rotation, translation, prior=prior)
    if best is None:
        return None
    read = Reading(frame, camera, solid, rotation, translation, prior)
    most, around = read.nats(best.rotation, best.translation), (rotation, translation)
    for _ in range(_PASSES):
        before = best
        for other in others(*around):
            found = read.fitted_from(other, around[1])
            if found is not None and found[0] > most:
                most, best = found
        if best is before:
            break
        around = best.rotation, best.translation
    return best


def others(rotation: Array, translation: Array) -> Iterator[Array]:
    """Rotations about a pose camera_from_body: half a turn about the line of sight, which is the twin of bodies that
    are their own mirror image, and tilts."""
    sight = translation / np.linalg.norm(translation)
    yield moved(rotation, translation, np.array([*(np.pi * sight), 0.0, 0.0, 0.0]))[0]
    aside = np.linalg.svd(sight[None])[2][1:]  # two directions across it
    for tilt in _TILTS:
        for angle in 2.0 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS:
            axis = np.array([np.cos(angle), np.sin(angle)]) @ aside
            yield moved(rotation, translation, np.array([*(tilt * axis), 0.0, 0.0, 0.0]))[0]
