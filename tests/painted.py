"""A stand-in for a trained network: the body is eight painted discs, and the "network" reads their colours.

It labels each image in a random branch of the body's four-fold symmetry, as a network trained with the minimum over
the group does.
"""

from __future__ import annotations

import colorsys
import zlib
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.engine.pose_geometry import project_points
from vid2phys.geometry import Pose, make_transform, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.types import Array, Camera, Clip

RADIUS_M = 0.06
SIZE = 96
GRAY = 90.0
LEAST_PEAK = 0.02  # of a disc that is not seen
_ANGLES = np.pi / 4 + np.pi / 2 * np.arange(4)


def _ring(radius: float, turn: float, z: float) -> Array:
    return np.stack([radius * np.cos(_ANGLES + turn), radius * np.sin(_ANGLES + turn), np.full(4, z)], axis=-1)


POINTS = np.concatenate([_ring(0.055, 0.0, 0.012), _ring(0.032, 0.5, -0.01)])
ROTATIONS = np.stack([matrix_from_rotvec(np.array([0.0, 0.0, np.pi / 2 * g])) for g in range(4)])
PERMUTATION = np.stack([np.concatenate([(np.arange(4) + g) % 4, 4 + (np.arange(4) + g) % 4]) for g in range(4)])
COLORS = np.array([colorsys.hsv_to_rgb(k / 8, 1.0, 1.0) for k in range(8)]) * 255.0

# one metre behind the origin, looking along world y, gravity down in the image
CAMERA = Camera(
    np.array([[900.0, 0.0, 316.4], [0.0, 900.0, 235.3], [0.0, 0.0, 1.0]]),
    640,
    480,
    np.array([-0.1, 0.02, 0.0, 0.0, 0.0]),
    camera_to_world=make_transform(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]), np.zeros(3)),
)


_NOISE = np.random.default_rng(9).normal(0.0, 3.0, (CAMERA.height, CAMERA.width, 1)).astype(np.float32)


@dataclass(frozen=True)
class Scene:
    """A clip with its truth: camera_from_body rotation [T, 3, 3] and translation [T, 3]; present [T]."""

    clip: Clip
    rotation: Array
    translation: Array
    present: NDArray[np.bool_]


def paint(rng: np.random.Generator, rotation: Array | None, translation: Array) -> NDArray[np.uint8]:
    """A frame with the body in it, or without (rotation None)."""
    frame = np.full((CAMERA.height, CAMERA.width, 3), GRAY, dtype=np.float32)
    if rotation is not None:
        pixels = bearings_to_pixels(CAMERA, project_points(Pose(rotation, translation), POINTS))
        far_first = np.argsort(-(POINTS @ rotation.T)[:, 2])
        for k in far_first:
            center = np.round(pixels[k] * 16).astype(int).tolist()
            cv2.circle(
                frame,
                center,
                round(0.006 * CAMERA.K[0, 0] / translation[2] * 16),
                COLORS[k].tolist(),
                -1,
                cv2.LINE_AA,
                4,
            )
    noise = np.roll(_NOISE, rng.integers(640, size=2), axis=(0, 1))
    return np.clip(frame + noise, 0, 255).astype(np.uint8)


def make_scene(translation: Array, present: NDArray[np.bool_] | None = None, *, seed: int = 0) -> Scene:
    """A clip of the body moving along camera positions [T, 3] m, turning slowly and tilting."""
    rng = np.random.default_rng(seed)
    count = len(translation)
    present = np.ones(count, dtype=bool) if present is None else present
    t = np.arange(count) / 30.0
    world_from_body = [
        matrix_from_rotvec(np.array([0.25 * np.sin(3 * x), 0.2 * np.cos(2 * x), 0.0]))
        @ matrix_from_rotvec(np.array([0.0, 0.0, 0.8 * x + 0.4]))
        for x in t
    ]
    rotation = CAMERA.camera_to_world[:3, :3].T @ np.stack(world_from_body)
    images = [paint(rng, r if p else None, x) for r, x, p in zip(rotation, translation, present, strict=True)]
    return Scene(
        Clip(ArrayFrames(np.stack(images)), t, CAMERA.width, CAMERA.height, "painted"), rotation, translation, present
    )


@dataclass(frozen=True)
class KeypointPrediction:
    points_px: Array
    covariance_px: Array
    peak: Array
    front_logprob: Array


@dataclass(frozen=True)
class Candidates:
    center_px: Array
    diameter_px: Array
    score: Array


class PaintedModel:
    """Reads colours; its labels and its front map have a will of their own, which a view and the seed decide: tracking
    reads in threads, in whatever order."""

    view_size = SIZE
    points_body = POINTS
    rotations = ROTATIONS
    permutation = PERMUTATION
    front: int | None = 0
    center = np.zeros(3)

    def __init__(
        self, *, seed: int = 0, locates: bool = True, random_labels: bool = True, torn_rad: tuple[float, float] = (0, 0)
    ) -> None:
        """torn_rad: angles of point 0 about the middle of the view between which half of the points are called by
        another label than the rest, unless it is known about where they are."""
        self.seed, self.locates, self.random_labels = seed, locates, random_labels
        self.torn_rad = torn_rad

    def predict(self, images: NDArray[np.uint8], places_px: Array | None = None) -> KeypointPrediction:
        wills = [np.random.default_rng([self.seed, zlib.crc32(image.tobytes())]) for image in images]
        true_points, peak = zip(*map(self._colors, images, wills), strict=True)
        points, found = np.stack(true_points), np.stack(peak)
        front = np.stack([self._front(p[self.front], will) for p, will in zip(points, wills, strict=True)])
        element = np.array([will.integers(4) if self.random_labels else 0 for will in wills])
        if places_px is not None:  # the labelling nearest to what is expected
            off = np.linalg.norm(points[:, PERMUTATION] - places_px[:, None], axis=-1).sum(axis=-1)
            element = off.argmin(axis=1)
        order = PERMUTATION[element]
        if places_px is None:
            angle = np.arctan2(*(points[:, 0] - 0.5 * (SIZE - 1)).T[::-1])
            torn = (angle > self.torn_rad[0]) & (angle < self.torn_rad[1])
            order[torn, ::2] = PERMUTATION[(element[torn] + 2) % 4, ::2]
        points, found = np.take_along_axis(points, order[..., None], axis=1), np.take_along_axis(found, order, axis=1)
        std = np.where(found > LEAST_PEAK, 1.0, SIZE / 4)  # a hidden disc may be anywhere
        return KeypointPrediction(points, std[..., None, None] ** 2 * np.eye(2), found, front)

    def _colors(self, image: NDArray[np.uint8], will: np.random.Generator) -> tuple[Array, Array]:
        v, u = np.mgrid[:SIZE, :SIZE]
        distance = ((image[:, :, None].astype(float) - COLORS) ** 2).sum(-1)
        weight = np.exp(-0.5 * distance / 30.0**2)
        mass = weight.sum((0, 1))
        mean = (
            np.stack([(weight * u[..., None]).sum((0, 1)), (weight * v[..., None]).sum((0, 1))], -1)
            / (mass + 1e-9)[:, None]
        )
        nowhere = will.uniform(0, SIZE, (8, 2))
        there = mass > 4.0
        return np.where(there[:, None], mean, nowhere), np.where(there, np.minimum(mass / 12.0, 1.0), LEAST_PEAK)

    def _front(self, point: Array, will: np.random.Generator) -> Array:
        cells = SIZE // 4
        v, u = np.mgrid[:cells, :cells] * 4 + 1.5
        log = -0.5 * ((u - point[0]) ** 2 + (v - point[1]) ** 2) / 6.0**2 + will.normal(0.0, 0.5)
        if will.random() < 0.2:
            log = np.zeros_like(u)
        return log - np.log(np.exp(log).sum())

    def locate(self, image: NDArray[np.uint8]) -> Candidates:
        colored = image.max(-1).astype(int) - image.min(-1) > 120
        if not self.locates or colored.sum() < 20:
            return Candidates(np.array([[100.0, 50.0]]), np.array([40.0]), np.array([0.1]))
        v, u = np.nonzero(colored)
        center = np.array([[100.0, 50.0], [u.mean() + 3.0, v.mean() - 2.0]])
        return Candidates(center, np.array([40.0, 1.3 * np.ptp(u)]), np.array([0.3, 0.6]))
