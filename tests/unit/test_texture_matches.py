"""Which features match, where a search begins, and which detection a texture decides on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from vid2phys.engine.pose_geometry import rotation_grid
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.texture import TextureConfig
from vid2phys.tracking.detectors import texture
from vid2phys.tracking.detectors.texture import textured_detection
from vid2phys.tracking.detectors.texture_features import TextureFeatures, _grey, _rooted
from vid2phys.tracking.detectors.texture_search import DEFAULTS, _placed, search
from vid2phys.types import Array, Camera


def test_descriptors_are_compared_by_the_roots_of_their_shares() -> None:
    some = np.array([[1.0, 3.0, 0.0], [8.0, 0.0, 2.0], [0.0, 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(_rooted(some), np.sqrt([[0.25, 0.75, 0.0], [0.8, 0.0, 0.2], [0.0, 0.0, 0.0]]), rtol=1e-6)
    image = np.zeros((1, 3, 3))
    image[0] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.5]]
    np.testing.assert_allclose(_grey(image)[0], [0.299 * 255.0, 0.587 * 255.0, 127.0], atol=1.0)


RADIUS_M = 0.1


def at_distance(square: float) -> NDArray[np.float32]:
    """Return a unit vector whose squared distance from the first axis is given."""
    cosine = 1.0 - 0.5 * square
    return np.array([cosine, np.sqrt(1.0 - cosine**2), *[0.0] * 10], np.float32)


@pytest.mark.parametrize(
    ("square", "apart_m", "matches"),
    [
        (0.16, 0.05, True),  # 0.10 is less than 0.64 times 0.16
        (0.155, 0.05, False),
        (0.155, 0.0031, False),  # three percent of the radius are one place
        (0.155, 0.0029, True),
        (0.08, 0.0, True),
    ],
)
def test_a_match_is_nearer_than_any_other_place_by_the_ratio(square: float, apart_m: float, matches: bool) -> None:
    """The nearest feature is at a square of 0.1 or less, another one at `square`; ten more have nothing in common."""
    descriptors = np.concatenate([np.eye(12, dtype=np.float32)[2:], [at_distance(square)], [at_distance(0.1)]])
    points = np.random.default_rng(0).normal(0.0, 1.0, (12, 3))
    points[10] = points[11] + [0.0, apart_m, 0.0]
    features = TextureFeatures(descriptors, points, RADIUS_M)
    query = np.eye(12, dtype=np.float32)[[5, 0]]
    pixels, places = features._matches(np.array([[1.0, 2.0], [3.0, 4.0]]), query)
    nearest = 10 if square < 0.1 else 11
    np.testing.assert_array_equal(pixels, [[1.0, 2.0], [3.0, 4.0]] if matches else [[1.0, 2.0]])
    np.testing.assert_array_equal(places, points[[3, nearest]] if matches else points[[3]])


def test_each_orientation_is_put_between_two_bearings() -> None:
    """Up to a few percent of the body's size: three rounds lead there from far away."""
    rng = np.random.default_rng(1)
    points = rng.normal(0.0, 0.04, (30, 3))
    rotated = points @ np.swapaxes(Rotation.random(5, rng=rng).as_matrix(), 1, 2)
    low, high = np.array([0.2, -0.3]), np.array([0.3, -0.22])
    found = _placed(rotated, low, high, DEFAULTS)
    assert found.shape == (5, 3)
    size = float(np.linalg.norm(high - low))
    for turned, translation in zip(rotated, found, strict=True):
        placed = turned + translation
        bearings = placed[:, :2] / placed[:, 2:]
        middle = 0.5 * (bearings.min(axis=0) + bearings.max(axis=0))
        np.testing.assert_allclose(middle, 0.5 * (low + high), atol=0.03 * size)
        assert np.linalg.norm(np.ptp(bearings, axis=0)) == pytest.approx(size, rel=0.05)


CAMERA = Camera(np.array([[300.0, 0.0, 80.0], [0.0, 300.0, 60.0], [0.0, 0.0, 1.0]]), 160, 120)


def pattern(points: Array) -> Array:
    """Return colours [N, 3] of a ball, which no rotation takes to itself."""
    return np.asarray(0.5 + 0.4 * np.sin(points @ np.array([[2.0, 3.1, 0.3], [0.4, 2.2, 3.0], [2.9, 0.2, 1.7]]) + 0.3))


def painted_ball() -> tuple[Any, Array]:
    rng = np.random.default_rng(2)
    normals = rng.normal(size=(1600, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    painted: Any = SimpleNamespace(
        fine_points=0.1 * normals, fine_normals=normals, fine_colors=[pattern(normals)], blur_shares=[0.0],
        config=TextureConfig(),
    )  # fmt: skip
    return painted, normals


def frame_of(rotation: Array, place: Array) -> NDArray[np.uint8]:
    """Return a frame of the ball: the line of sight of each pixel meets it or not."""
    v, u = np.mgrid[:120, :160].astype(float)
    ray = np.stack([(u - 80.0) / 300.0, (v - 60.0) / 300.0, np.ones_like(u)], axis=-1)
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
    along = ray @ place
    inside = along**2 - (place @ place - 0.1**2)
    hit = inside > 0.0
    point = (along - np.sqrt(np.maximum(inside, 0.0)))[..., None] * ray - place
    colors = pattern((point / 0.1 @ rotation).reshape(-1, 3)).reshape(120, 160, 3)
    return np.asarray(np.where(hit[..., None], 255.0 * colors, 128.0), np.uint8)


def test_orientations_are_ranked_by_the_colours_of_the_frame() -> None:
    """An orientation of the grid comes first where the frame shows it."""
    painted, normals = painted_ball()
    place = np.array([0.05, -0.03, 0.9])
    few = replace(DEFAULTS, rotations=72)
    rotations = rotation_grid(few.rotations)
    for n in (4, 33):
        points = 0.1 * normals @ rotations[n].T + place
        bearings = points[:, :2] / points[:, 2:]
        bearings = np.vstack([bearings, [np.nan, np.nan]])
        found = search(frame_of(rotations[n], place), CAMERA, painted, bearings, few)
        assert len(found) == DEFAULTS.best
        off = [np.degrees(Rotation.from_matrix(each.rotation.T @ rotations[n]).magnitude()) for each in found]
        assert off[0] < 1e-3
        np.testing.assert_allclose(found[0].translation, place, rtol=0.03, atol=0.003)


def test_a_body_of_few_pixels_or_beside_the_frame_is_not_searched() -> None:
    painted, normals = painted_ball()
    few = replace(DEFAULTS, rotations=72)
    frame = np.full((120, 160, 3), 128, np.uint8)
    for place, some in (
        ((0.0, 0.0, 0.9), True),
        ((0.0, 0.0, 14.0), True),
        ((0.0, 0.0, 17.0), False),
        ((0.6, 0.0, 0.9), False),
    ):
        points = 0.1 * normals + np.array(place)
        assert bool(search(frame, CAMERA, painted, points[:, :2] / points[:, 2:], few)) is some, place
    assert search(frame, CAMERA, painted, np.full((4, 2), np.inf)) == []


@pytest.mark.parametrize(
    ("shares", "sound", "cost", "chosen"),
    [
        ((0.1, 0.41, 0.9), (True, True, True), (1.0, 1.0, 1.0), 1),
        ((0.1, 0.39, 0.9), (True, True, True), (1.0, 1.0, 1.0), 2),
        ((0.9, 0.9, 0.9), (False, True, True), (1.0, np.inf, 1.0), 2),
        ((0.3, 0.3, 0.3), (True, True, True), (1.0, 1.0, 1.0), None),
    ],
)
def test_of_plausible_detections_that_the_texture_explains_the_best_is_taken(
    shares: tuple[float, ...], sound: tuple[bool, ...], cost: tuple[float, ...], chosen: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The evidence of shape and texture falls from the first detection to the last."""
    at = Pose(np.tile(np.eye(3), (3, 1, 1, 1)), np.array([[[0.0, 0.0, 1.0 + k]] for k in range(3)]))
    seen = SimpleNamespace(
        poses=SimpleNamespace(cost=np.array(cost)[:, None], pose=at), select=lambda some: np.flatnonzero(some).tolist()
    )
    detector: Any = SimpleNamespace(finalists=lambda frame, most: seen, radius_m=0.1, camera=None, shown=None)
    monkeypatch.setattr(texture, "plausible", lambda detections, radius_m: np.array(sound))
    searches = [SimpleNamespace(share=share, nats=-float(k)) for k, share in enumerate(shares)]
    body: Any = SimpleNamespace(
        rotations=np.eye(3)[None], search=lambda frame, camera, pose: searches[round(pose.translation[2]) - 1]
    )
    frame: Any = None
    found: Any = textured_detection(detector, frame, body)
    assert found == (None if chosen is None else ([chosen], searches[chosen]))
