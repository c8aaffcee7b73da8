"""Track a body in reduced frames where these are large, and fit it in the frames themselves at the end.

A phone's frames have ten times the pixels that a search needs. Contours in the frames themselves make a track exact.
Limits: a body that is small in the reduced frames is tracked in the frames themselves, which takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vid2phys.engine.parallel import in_processes
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.exposure import STILL
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.tracking.motion_blur import MotionBlur
from vid2phys.tracking.silhouette_fit import Fit, contour_near
from vid2phys.types import Camera

_SIDE_PX = 720.0  # geometric mean of the sides of frames that are not reduced: half of it is between 640 x 480 and HD
_LEAST_PX = 40.0  # diameter of a body in reduced frames


def reduction_of(camera: Camera) -> int:
    """Return how many pixels of a frame become one in each direction while a body is searched and followed."""
    return max(1, round(float(np.sqrt(camera.width * camera.height)) / _SIDE_PX))


def is_large(found: Sequence[Fit | None], camera: Camera, radius_m: float) -> bool:
    """Return whether a body of a radius is large enough in the frames in which it was found."""
    places = np.array([fit.pose.translation for fit in found if fit is not None]).reshape(-1, 3)
    if not len(places):
        return False
    return bool(np.median(in_frame_diameter(camera, *direction_and_size(places, radius_m))) >= _LEAST_PX)


def at_own_size(
    frames: Indexed, camera: Camera, solid: Solid, found: Sequence[Fit | None], blur: MotionBlur | None = None
) -> list[Fit | None]:
    """Return the fits of all frames as the contour cue refines them in the frames themselves."""

    def fitted(i: int) -> Fit | None:
        fit = found[i]
        if fit is None:
            return None
        path_px = STILL if blur is None else blur.path(i)
        contour = contour_near(frames[i], camera, solid, fit.pose, path_px)
        return fit if contour is None else replace(fit, pose=contour.pose, contour=contour)

    return list(in_processes(fitted, range(len(found))))
