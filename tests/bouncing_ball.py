"""A ball that falls, bounces on a level ground and is seen by a pinhole camera: exact places, then errors in pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vid2phys.geometry import invert_transform, look_at, make_transform, matrix_from_rotvec
from vid2phys.solvers.camera_from_motion import Motion
from vid2phys.types import Array

GRAVITY, RADIUS_M = 9.81, 0.033
WIDTH, HEIGHT = 1280, 720


@dataclass(frozen=True)
class Scene:
    """Where a ball is: times_s [T], places [T, 3] m in camera axes, the true focal length, gravity and ground."""

    times_s: Array
    places: Array
    focal_px: float
    down: Array
    ground_m: float
    radius_m: float = RADIUS_M


def bouncing(
    times_s: Array, drop_m: float, velocity: tuple[float, float], restitution: float, radius_m: float = RADIUS_M
) -> Array:
    """Return places [T, 3] m in the world of a ball on the ground z = 0, by the closed form between impacts."""
    height, fall = drop_m, 0.0  # of a flight's start above its lowest place, and its vertical velocity
    begin, places = 0.0, np.zeros((len(times_s), 3))
    for index, time in enumerate(times_s):
        while True:
            lands = (fall + np.sqrt(fall**2 + 2.0 * GRAVITY * height)) / GRAVITY
            if time - begin < lands or lands < 1e-6:
                break
            fall, height, begin = restitution * (GRAVITY * lands - fall), 0.0, begin + lands
        after = min(time - begin, lands)
        places[index, 2] = radius_m + height + fall * after - 0.5 * GRAVITY * after**2
    places[:, :2] = times_s[:, None] * np.array(velocity)
    return places


def seen_by(
    world: Array,
    times_s: Array,
    *,
    pitch_deg: float,
    roll_deg: float = 0.0,
    focal_px: float = 900.0,
    radius_m: float = RADIUS_M,
) -> Scene:
    """Return the scene for a camera 2 m from the ball's start, high enough to look down on it by an angle."""
    pitch = np.radians(pitch_deg)
    eye = np.array([-0.05, -2.0 * np.cos(pitch), 0.5 + 2.0 * np.sin(pitch)])
    level = look_at(eye, eye + np.array([0.0, np.cos(pitch), -np.sin(pitch)]))
    pose = level @ make_transform(matrix_from_rotvec(np.radians([0.0, 0.0, roll_deg])), np.zeros(3))
    to_camera = invert_transform(pose)
    places = world @ to_camera[:3, :3].T + to_camera[:3, 3]
    return Scene(times_s, places, focal_px, to_camera[:3, :3] @ np.array([0.0, 0.0, -1.0]), float(eye[2]), radius_m)


def tracked(
    scene: Scene,
    nominal_px: float,
    *,
    seed: int = 0,
    place_px: float = 0.15,
    size_px: float = 0.3,
    size_error: float = 0.0,
    outliers: int = 0,
) -> Motion:
    """Return what a tracker finds that takes another focal length: places by the image and by the width in it.

    size_error: of the body's width, of the logarithm.
    """
    rng, count = np.random.default_rng(seed), len(scene.times_s)
    image = scene.focal_px * scene.places[:, :2] / scene.places[:, 2:] + place_px * rng.normal(size=(count, 2))
    true_width = 2.0 * scene.radius_m
    width = scene.focal_px * true_width / scene.places[:, 2] + size_px * rng.normal(size=count)
    wrong = rng.choice(count, outliers, replace=False)
    image[wrong] += 20.0 * rng.normal(size=(outliers, 2))
    depth = nominal_px * true_width * np.exp(size_error) / width
    ray = np.column_stack([image / nominal_px, np.ones(count)])
    across, along = place_px / nominal_px * depth, size_px / width * depth
    slopes = np.zeros((count, 3, 3))
    slopes[:, 0, 0] = slopes[:, 1, 1] = across
    slopes[:, :, 2] = along[:, None] * ray
    angle = np.linspace(0.0, 2.0 * np.pi, 37)
    rings = [np.column_stack([np.cos(angle) * np.cos(e), np.sin(angle) * np.cos(e), np.full(37, np.sin(e))])
             for e in np.linspace(-1.5, 1.5, 25)]  # fmt: skip
    ball = scene.radius_m * np.concatenate(rings)
    rotation = np.tile(np.eye(3), (count, 1, 1))
    return Motion(scene.times_s, depth[:, None] * ray, slopes @ np.swapaxes(slopes, 1, 2), rotation, ball)


def path(place: Callable[[Array], Array], frames: int = 120, fps: float = 60.0) -> tuple[Array, Array]:
    """Return a path [T, 3] m by its function of time, and its times [T] s."""
    times = np.arange(frames) / fps
    return place(times), times
