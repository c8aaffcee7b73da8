"""Find the frames in which the image of a body stays as it is: there the body rests.

Images tell this better than fits, which waver by more than a pixel where two poses look nearly the same.

Limits: a static camera; a shadow that crosses a body at rest seems to move it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vid2phys.engine.observe import project
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.surfaces import box_around
from vid2phys.tracking.detectors.network import Image
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Array, Camera, Mesh

_REST_S, _LEAST_S, _LEAST_FRAMES = 0.11, 0.08, 5  # to both sides of a frame at rest; least span and frames of both
_NOISE_FACTOR, _NOISE_MORE = 2.0, 0.8  # least change of a body that moves: a factor of the noise, and grey levels more
_MOST_NOISE = 8.0  # largest change of a pixel that is noise, grey levels
_WAVER = 0.2  # largest movement of fits at rest, as a share of the body's size
_BESIDE_PX = 3  # width of what counts beside the body


def still_frames(
    frames: Indexed, times_s: Array, camera: Camera, mesh: Mesh, fits: Mapping[int, Fit]
) -> frozenset[int]:
    """Return the frames, of those with a fit, in which the image about the body stays for a fifth of a second.

    Of path-traced bodies, a movement by a pixel changes the image by three times its noise or more. No flight seems to
    stop for so long.
    """
    return frozenset(i for i in fits if _is_still(i, frames, times_s, camera, mesh, fits))


def _is_still(i: int, frames: Indexed, times_s: Array, camera: Camera, mesh: Mesh, fits: Mapping[int, Fit]) -> bool:
    near = np.flatnonzero(np.abs(times_s - times_s[i]) < _REST_S).tolist()
    if len(near) < _LEAST_FRAMES or times_s[near[-1]] - times_s[near[0]] < _LEAST_S:
        return False
    vertices = fits[i].pose.apply(mesh.vertices)
    box = box_around(vertices, camera, _BESIDE_PX)
    if box is None:
        return False
    places = [project(camera, fits[k].pose.translation[None])[0] for k in near if k in fits]
    if not np.ptp(places, axis=0).max() < _WAVER * float(np.ptp(project(camera, vertices), axis=0).max()):
        return False
    left, top, width, height = box
    about = slice(top, top + height), slice(left, left + width)
    return all(_is_same(frames[i], frames[k], about) for k in (near[0], near[-1]))


def _is_same(one: Image, other: Image, about: tuple[slice, slice]) -> bool:
    """Return whether two images differ by no more than noise in a rectangle."""
    change = np.abs(one.astype(np.float32) - other)
    noise = float(np.minimum(change, _MOST_NOISE).mean())
    return bool(change[about].mean() < _NOISE_FACTOR * noise + _NOISE_MORE)
