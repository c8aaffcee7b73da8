"""Random viewpoints of training cameras before a body on a known base, close to the tracker's virtual camera.

Base and camera are known, so that the virtual camera is fixed: it looks at the middle of the workspace, with the
vertical upright, and the workspace fills its image. Small errors of all three stand for those of a calibration.

Limits: a camera whose roll is beyond a few degrees is not trained; the virtual camera removes the roll.
"""

from __future__ import annotations

import numpy as np

from vid2phys.engine.movable.body import FILL, ArticulatedBody
from vid2phys.geometry import matrix_from_rotvec, shortest_rotation
from vid2phys.risp.renders.viewpoints import (
    FRAMES_PER_SEQUENCE,
    SEQUENCE_FPS,
    Viewpoint,
    log_uniform,
    upright,
)
from vid2phys.types import Array

VIEW_PX = (50.0, 120.0, 220.0)  # least, most frequent and largest width of the image in frame pixels
_CENTER, _ZOOM, _ROLL_RAD = 0.02, 0.03, np.deg2rad(1.5)  # standard deviations: share of the image, logarithm, rad


def sample_articulated(rng: np.random.Generator, body: ArticulatedBody, size: int) -> Viewpoint:
    """Draw a random viewpoint of a random configuration. size: width and height of the image, px."""
    return _viewpoints(rng, body, size, body.sample(rng)[None], np.zeros(1))[0]


def sample_articulated_sequence(rng: np.random.Generator, body: ArticulatedBody, size: int) -> list[Viewpoint]:
    """Draw consecutive frames of a smooth motion before a static camera. size: width and height of the image, px."""
    times = np.arange(FRAMES_PER_SEQUENCE) / SEQUENCE_FPS
    return _viewpoints(rng, body, size, body.sample_motion(rng, times), times)


def _viewpoints(
    rng: np.random.Generator, body: ArticulatedBody, size: int, configurations: Array, times_s: Array
) -> list[Viewpoint]:
    """Draw one camera for all configurations [T, D]."""
    distance = body.radius_m * log_uniform(rng, *body.cameras.distance)
    focal = 0.5 * FILL * size / np.tan(np.arcsin(body.radius_m / distance)) * np.exp(rng.normal(0.0, _ZOOM))
    middle = 0.5 * (size - 1)
    K = np.array([[focal, 0.0, middle], [0.0, focal, middle], [0.0, 0.0, 1.0]])
    towards = _direction(rng, body)
    aside = np.array([*(rng.normal(0.0, _CENTER, 2) * size / focal), 1.0])
    roll = matrix_from_rotvec(np.array([0.0, 0.0, rng.normal(0.0, _ROLL_RAD)]))
    view_from_world = np.eye(4)
    view_from_world[:3, :3] = shortest_rotation(aside) @ roll @ upright(-towards)
    view_from_world[:3, 3] = -view_from_world[:3, :3] @ (body.center_m + distance * towards)
    still, away = np.eye(3), np.zeros(3)
    return [
        Viewpoint(view_from_world, K, still, away, float(t), q) for t, q in zip(times_s, configurations, strict=True)
    ]


def _direction(rng: np.random.Generator, body: ArticulatedBody) -> Array:
    """Draw a unit vector [3] from the workspace to the camera, evenly over `body.cameras`."""
    middle, half = body.cameras.azimuth
    low, high = np.sin(np.deg2rad(body.cameras.elevation))
    azimuth, sine = np.deg2rad(middle + rng.uniform(-half, half)), rng.uniform(low, high)
    flat = np.sqrt(1.0 - sine**2)
    return np.array([flat * np.cos(azimuth), flat * np.sin(azimuth), sine])
