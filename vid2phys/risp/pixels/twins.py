"""Poses that look alike at first sight, told apart by the edges they explain: the mirror twin, a face taken for a body.

Networks read single pictures of plain bodies a few per cent of the time as the twin in depth (Necker's cube), or with
a side left out. From the pose that was read and from others about it edges are fitted (`contour`), and that pose is
taken whose outline and creases show the most edges and the fewest places where an edge should be and is none.
"""

from __future__ import annotations

from collections.abc import Iterator

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
ROUGH_STD = np.array([0.3, 0.3, 0.3, 0.02, 0.02, 0.1])  # of where other poses start, in modes
_DEGREES = 6.0  # of freedom of keypoints' errors


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
    rough = np.diag(ROUGH_STD**-2.0)

    def nats(fit: Contour) -> float:
        off = difference(rotation, translation, fit.rotation, fit.translation)
        posed = solid.mesh.vertices @ fit.rotation.T + fit.translation
        return edge_evidence(frame, camera, solid, posed) - unlikely(off, prior)

    most, around = nats(best), (rotation, translation)
    for _ in range(_PASSES):
        before = best
        for other in others(*around):
            found = fit_contour(frame, camera, solid, other, around[1], prior=rough)
            if found is not None and (score := nats(found)) > most:
                best, most = found, score
        if best is before:
            break
        around = best.rotation, best.translation
    return best


def unlikely(off: Array, prior: Array) -> float:
    """Nats that a pose loses which is `off` [6] in modes from the one that was read with `prior` [6, 6] information."""
    return float(0.5 * (_DEGREES + MODES) * np.log1p(float(off @ prior @ off) / _DEGREES))


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
