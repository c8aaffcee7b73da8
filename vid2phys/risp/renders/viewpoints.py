"""Random viewpoints of training cameras: poses of a rigid body in the virtual camera, single or in smooth sequences.

The virtual camera (`engine.virtual_camera`) is rotated towards the body and zoomed until the bounding sphere fills two
thirds of the image, with the world's vertical upright. Here it has the tracker's errors of centre, zoom and roll.

Limits: the camera's own distortion is not part of the virtual camera.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from vid2phys.engine.system import System
from vid2phys.geometry import looking, matrix_from_quat, matrix_from_rotvec, shortest_rotation
from vid2phys.types import Array

FILL = 2.0 / 3.0
FRAMES_PER_SEQUENCE = 16
SEQUENCE_FPS = 30.0
_DISTANCE_IN_RADII = (6.0, 80.0)
_NEAREST_TUMBLING = 3.0  # radii: thrown and hand-held bodies may fill a frame, flying ones stay away
_TURN_RATE_RAD_S = 3.0  # spread of each component for a tumbling body
_CENTER, _ZOOM, _ROLL_RAD = 0.12, (0.8, 1.25), np.deg2rad(8.0)


@dataclass(frozen=True)
class Viewpoint:
    """The pose of a body in one virtual camera.

    Attributes:
        view_from_body: [4, 4], m.
        K: [3, 3] camera matrix, px; pixel centres at integers.
        body_from_world: [3, 3] rotation.
        moved_m: [3] motion of the body in the world since the first frame, m.
        time_s: Time since the first frame, s.
        configuration: [D] of an articulated or modal body, else None.
    """

    view_from_body: Array
    K: Array
    body_from_world: Array
    moved_m: Array
    time_s: float
    configuration: Array | None = None


@dataclass(frozen=True)
class _Jitter:
    """Errors of the virtual camera: centre [2] in shares of the image, zoom factor, roll in rad."""

    center: Array
    zoom: float
    roll_rad: float


def sample_single(rng: np.random.Generator, system: System, radius_m: float, size: int) -> Viewpoint:
    """Draw a random viewpoint of a random state. size: width and height of the image, px."""
    world_from_body = _orientation(rng, system)
    nearest, farthest = _DISTANCE_IN_RADII
    nearest = _NEAREST_TUMBLING if tilt_spread(system) is None else nearest
    towards, distance = _direction(rng), radius_m * log_uniform(rng, nearest, farthest)
    jitter = _Jitter(
        rng.uniform(-_CENTER, _CENTER, 2), log_uniform(rng, *_ZOOM), float(rng.uniform(-_ROLL_RAD, _ROLL_RAD))
    )
    return _viewpoint(towards * distance, world_from_body, np.zeros(3), radius_m, size, jitter, 0.0)


def sample_sequence(rng: np.random.Generator, system: System, radius_m: float, size: int) -> list[Viewpoint]:
    """Draw consecutive frames of smooth motion before a static camera, tracked with small, steady errors.

    Bodies whose system keeps them upright sway and yaw; others tumble. Over half a second the fall of a thrown body is
    one of the smooth motions. size: width and height of the image, px.
    """
    times = np.arange(FRAMES_PER_SEQUENCE) / SEQUENCE_FPS
    start = _orientation(rng, system)
    upright = tilt_spread(system) is not None
    distance = radius_m * log_uniform(rng, 8.0 if upright else 4.0, 60.0)
    first = _direction(rng) * distance
    moved = _way(rng, times, min(1.5, 0.5 * distance))
    tilt_rad = _smooth(rng, times, np.deg2rad([14.0, 14.0, 6.0]))
    tilt_rad += np.outer(times, [0.0, 0.0, rng.normal(0.0, 0.8)] if upright else rng.normal(0.0, _TURN_RATE_RAD_S, 3))
    center, zoom, roll = rng.normal(0.0, 0.03, 2), np.exp(rng.normal(0.0, 0.06)), rng.normal(0.0, np.deg2rad(1.5))
    frames = []
    for time, way, angle in zip(times, moved, tilt_rad, strict=True):
        jitter = _Jitter(center + rng.normal(0.0, 0.012, 2), float(zoom * np.exp(rng.normal(0.0, 0.015))), float(roll))
        attitude = start @ matrix_from_rotvec(angle)
        frames.append(_viewpoint(first + way, attitude, way, radius_m, size, jitter, float(time)))
    return frames


def _viewpoint(
    position: Array, world_from_body: Array, moved: Array, radius_m: float, size: int, jitter: _Jitter, time: float
) -> Viewpoint:
    """Return the viewpoint of a body at `position` [3] m from the world's origin."""
    distance = float(np.linalg.norm(position))
    focal = 0.5 * FILL * size / np.tan(np.arcsin(radius_m / distance)) * jitter.zoom
    middle = 0.5 * (size - 1)
    aside = np.array([*(jitter.center * size / focal), 1.0])
    rotated = upright(position / distance)
    view_from_world = shortest_rotation(aside) @ matrix_from_rotvec(np.array([0.0, 0.0, jitter.roll_rad])) @ rotated
    view_from_body = np.eye(4)
    view_from_body[:3, :3] = view_from_world @ world_from_body
    view_from_body[:3, 3] = view_from_world @ position
    K = np.array([[focal, 0.0, middle], [0.0, focal, middle], [0.0, 0.0, 1.0]])
    return Viewpoint(view_from_body, K, world_from_body.T, moved, time)


def upright(forward: Array) -> Array:
    """Return the rotation from the world to a camera that looks along `forward`, with the vertical upright."""
    return np.ascontiguousarray(looking(forward).T)  # C order: in Fortran order products differ in the last bit


def tilt_spread(system: System) -> float | None:
    """Return the spread [rad] of the angle between body z and the vertical in a system's states.

    A quadrotor stays within tens of degrees of upright. None for a system that does not, such as a tossed cube.
    """
    if system not in _SPREADS:
        _, quats = system.body_pose(system.sample_state(np.random.default_rng(0), 2000))
        tilt = np.arccos(np.clip(matrix_from_quat(quats)[:, 2, 2], -1.0, 1.0))
        spread = float(np.sqrt(np.mean(tilt**2)))
        _SPREADS[system] = max(spread, np.radians(15.0)) if spread < np.radians(60.0) else None
    return _SPREADS[system]


_SPREADS: WeakKeyDictionary[System, float | None] = WeakKeyDictionary()


def _orientation(rng: np.random.Generator, system: System) -> Array:
    """Draw the rotation [3, 3] of a random state."""
    _, quats = system.body_pose(system.sample_state(rng, 1))
    return matrix_from_quat(quats[0])


def _direction(rng: np.random.Generator) -> Array:
    """Draw a line of sight: most cameras are a little above the body, -70 to 80 deg of elevation, any azimuth."""
    if rng.random() < 0.6:
        elevation = np.clip(np.deg2rad(rng.normal(14.0, 24.0)), np.deg2rad(-70.0), np.deg2rad(80.0))
    else:
        elevation = np.arcsin(rng.uniform(np.sin(np.deg2rad(-70.0)), np.sin(np.deg2rad(80.0))))
    azimuth = rng.uniform(-np.pi, np.pi)
    flat = np.cos(elevation)
    return np.array([flat * np.cos(azimuth), flat * np.sin(azimuth), -np.sin(elevation)])


def _way(rng: np.random.Generator, times: Array, top_speed: float) -> Array:
    """Draw the motion [T, 3] of a smooth flight, from zero."""
    heading = rng.normal(size=3) * [1.0, 1.0, 0.5]
    steady = heading / np.linalg.norm(heading) * rng.uniform(0.0, top_speed)
    return np.outer(times, steady) + _smooth(rng, times, np.full(3, 0.05 * top_speed))


def _smooth(rng: np.random.Generator, times: Array, amplitude: Array) -> Array:
    """Draw sums of three slow sines, [T, 3], zero at the first time."""
    frequency = rng.uniform(0.3, 2.5, (3, 3))
    phase = rng.uniform(-np.pi, np.pi, (3, 3))
    waves = np.sin(2.0 * np.pi * frequency * times[:, None, None] + phase).sum(axis=1)
    return (waves - waves[0]) * amplitude * rng.uniform(0.1, 0.6, 3)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a number between low and high, evenly in its logarithm."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
