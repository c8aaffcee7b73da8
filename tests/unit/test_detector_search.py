"""Which places of a frame are searched, and which detections count, with stand-ins for network and background."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine.virtual_camera import make_view
from vid2phys.error_model import Calibration
from vid2phys.tracking.detectors import Places, search
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.tracking.detectors.search import LastSeen, ObjectDetector, plausible
from vid2phys.types import Array, Camera

RADIUS_M = 0.1
CAMERA = Camera(np.array([[400.0, 0.0, 160.0], [0.0, 400.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)
ERRORS = Calibration(min_quality=0.2, still_quality=0.7)
UNUSED: Any = None


def seen(places: Array, expected: Array | None = None, quality: Array | None = None) -> Any:
    """Detections at places [N, 3] in virtual cameras that expect the body at `expected`."""
    centers, radii = direction_and_size(places if expected is None else expected, RADIUS_M)
    views = [make_view(CAMERA, center, float(radius), 96) for center, radius in zip(centers, radii, strict=True)]
    return SimpleNamespace(
        views=views, poses=SimpleNamespace(translation=places[:, None]),
        diameter_px=in_frame_diameter(CAMERA, centers, radii),
        quality=(np.full(len(places), 0.9) if quality is None else quality)[:, None],
    )  # fmt: skip


def at(x: float, z: float = 2.0) -> Array:
    return np.array([[x, 0.0, z]])


def test_a_plausible_pose_lies_in_the_middle_of_its_image_at_its_size() -> None:
    width = 3.0 * np.tan(np.arcsin(RADIUS_M / 2.0))  # of the virtual image, as bearings
    for share, good in ((0.34, True), (0.36, False), (-0.34, True), (-0.36, False)):
        assert plausible(seen(at(2.0 * share * width), at(0.0)), RADIUS_M).tolist() == [good]
    for factor, good in ((0.56, True), (0.55, False), (1.95, True), (2.05, False)):  # 1.2 and 0.33 of 2 / 3
        assert plausible(seen(at(0.0, 2.0 * factor), at(0.0)), RADIUS_M).tolist() == [good]
    assert not plausible(seen(at(0.0, -2.0), at(0.0)), RADIUS_M)[0]
    far_m = 2.0 * 400.0 * RADIUS_M
    for distance, good in ((far_m / 14.1, True), (far_m / 13.9, False)):
        assert plausible(seen(at(0.0, distance)), RADIUS_M).tolist() == [good], "14 px at least"


def detector(moving: dict[float, float] | None) -> ObjectDetector:
    """moving: share of changed pixels by the x of a place; None without a background."""
    share = lambda frame, camera, place, radius_m: (moving or {}).get(round(float(place[0]), 3), 0.0)  # noqa: E731
    background: Any = None if moving is None else SimpleNamespace(moving=share)
    return ObjectDetector(UNUSED, CAMERA, background, RADIUS_M, ERRORS)


def test_a_static_detection_needs_more_quality_than_one_that_moves() -> None:
    places = np.concatenate([at(0.1), at(0.2), at(0.3), at(0.4), at(0.5)])
    quality = np.array([0.19, 0.21, 0.69, 0.71, 0.5])
    credible, score = detector({0.1: 0.5, 0.2: 0.1, 0.3: 0.09, 0.4: 0.0, 0.5: 1.0}).judge(
        [UNUSED] * 5, seen(places, None, quality)
    )
    assert credible.tolist() == [False, True, False, True, True]
    np.testing.assert_allclose(score, [0.0, 0.21 + 0.3, 0.0, 0.71, 0.5 + 0.3])
    credible, score = detector(None).judge([UNUSED] * 5, seen(places, None, quality))
    assert credible.tolist() == [False, False, False, True, False], "nothing counts as moving"
    credible, _ = detector({0.1: 0.5}).judge([UNUSED], seen(at(0.1), at(1.0), np.array([0.9])))
    assert not credible[0]


def test_where_the_user_shows_the_object_no_more_quality_is_needed() -> None:
    places, quality = np.concatenate([at(0.1), at(0.5), at(0.12)]), np.array([0.21, 0.21, 0.19])
    shown = Places(np.array([[180.0, 120.0]]), np.array([20.0]))  # the first one, and 4 px aside of it
    one = replace(detector(None), shown=shown)
    credible, _ = one.judge([UNUSED] * 3, seen(places, None, quality))
    assert credible.tolist() == [True, False, False]


def test_where_the_user_shows_the_object_no_other_place_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    proposed = Places(np.array([[30.0, 40.0]]), np.array([20.0]))
    monkeypatch.setattr(search, "proposers", lambda: iter([lambda frame, detector: proposed]))
    shown = Places(np.array([[180.0, 120.0], [180.0, 120.0]]), np.array([40.0, 50.0]))
    for place, expected in ((None, proposed), (shown, shown)):
        bearings, radii = replace(detector(None), shown=place)._candidates(UNUSED)
        off = (expected.center_px - CAMERA.K[:2, 2]) / CAMERA.K[0, 0]
        np.testing.assert_allclose(bearings, off, atol=1e-12)
        np.testing.assert_allclose(np.tan(radii), 0.5 * expected.diameter_px / CAMERA.K[0, 0], rtol=0.1)


def test_a_thing_that_was_there_while_the_object_was_elsewhere_is_another() -> None:
    """Elsewhere is two and a half radii away, as the camera sees them."""
    scene: Any = SimpleNamespace(moving=lambda frame, camera, place, radius_m: 0.05 if place[1] == 0.0 else 0.2)
    last = LastSeen(scene, np.array([0.5, 0.0, 2.0]))
    apart = 2.0 * np.tan(np.arcsin(RADIUS_M / 2.0))
    for x, old in (
        (0.5 + 2.7 * apart, True),
        (0.5 + 2.3 * apart, False),
        (0.5 - 2.7 * apart, True),
        (0.5 - 2.3 * apart, False),
    ):
        assert last.was_there(UNUSED, CAMERA, np.array([x, 0.0, 2.0]), RADIUS_M) is old
    assert not last.was_there(UNUSED, CAMERA, np.array([-1.0, 0.1, 2.0]), RADIUS_M), "it changed since"


class Searched(ObjectDetector):
    """A detector of which the finalists are given."""

    found: Any = None

    def finalists(self, frame: Any, most: int) -> Any:
        assert most == 4
        return self.found


def test_the_best_credible_finalist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    places, quality = np.concatenate([at(0.1), at(0.2), at(0.3)]), np.array([0.8, 0.75, 0.9])
    one = Searched(UNUSED, CAMERA, detector({0.2: 0.5}).background, RADIUS_M, ERRORS)
    monkeypatch.setattr(Searched, "found", seen(places, None, quality))
    found = one.search(UNUSED)
    assert found is not None
    np.testing.assert_array_equal(found.translation, places[1])
    assert (found.quality, found.score) == (0.75, pytest.approx(1.05)), "what moves counts more"
    last: Any = SimpleNamespace(was_there=lambda frame, camera, place, *_: place[0] == 0.2)
    other = one.search(UNUSED, last)
    assert other is not None
    np.testing.assert_array_equal(other.translation, places[2])
    every: Any = SimpleNamespace(was_there=lambda *_: True)
    assert one.search(UNUSED, every) is None
    monkeypatch.setattr(Searched, "found", seen(places, None, np.full(3, 0.1)))
    assert one.search(UNUSED) is None
    monkeypatch.setattr(Searched, "found", None)
    assert one.search(UNUSED) is None


def test_the_likeliest_places_are_detected_again_in_their_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five places one is not plausible and one has less than a fifth of the least quality."""
    places = np.concatenate([at(0.1 * k) for k in range(5)])
    expected = places.copy()
    expected[3, 0] += 1.0
    quality, calls = np.array([0.5, 0.039, 0.9, 1.0, 0.041]), list[Any]()

    def detect(model: Any, camera: Any, frames: Any, centers: Array, radii: Array, *_: Any, **__: Any) -> Any:
        calls.append((centers, radii))
        return seen(places, expected, quality) if len(calls) == 1 else "again"

    monkeypatch.setattr(search, "detect", detect)
    monkeypatch.setattr(
        search, "proposers", lambda: [lambda frame, _: Places(np.array([[160.0, 120.0]] * 5), np.full(5, 40.0))]
    )
    one = detector(None)
    assert one.finalists(UNUSED, 4) == "again"  # type: ignore[comparison-overlap]
    centers, radii = direction_and_size(places[[2, 0, 4]], RADIUS_M)
    np.testing.assert_allclose(calls[1][0], centers)
    np.testing.assert_allclose(calls[1][1], radii)
    calls.clear()
    one.finalists(UNUSED, 2)
    assert len(calls[1][0]) == 2
    quality[:] = 0.0
    calls.clear()
    assert one.finalists(UNUSED, 4) is None
    monkeypatch.setattr(search, "proposers", lambda: [lambda frame, _: Places(np.zeros((0, 2)), np.zeros(0))])
    assert one.finalists(UNUSED, 4) is None


def test_places_become_directions_and_angles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two proposers; a place of no size is left out."""
    first, second = (
        Places(np.array([[160.0, 120.0], [100.0, 90.0]]), np.array([40.0, 0.0])),
        Places(np.array([[260.0, 40.0]]), np.array([60.0])),
    )
    monkeypatch.setattr(search, "proposers", lambda: [lambda *_: first, lambda *_: second])
    centers, radii = detector(None)._candidates(UNUSED)
    np.testing.assert_allclose(centers, [[0.0, 0.0], [0.25, -0.2]], atol=1e-9)
    assert radii[0] == pytest.approx(np.arctan(20.0 / 400.0))

    def angle(a: Array, b: Array) -> float:
        one, other = (np.append((each - [160.0, 120.0]) / 400.0, 1.0) for each in (a, b))
        return float(np.arccos(one @ other / np.linalg.norm(one) / np.linalg.norm(other)))

    across = (
        angle(np.array([230.0, 40.0]), np.array([290.0, 40.0])),
        angle(np.array([260.0, 10.0]), np.array([260.0, 70.0])),
    )
    assert radii[1] == pytest.approx(0.25 * sum(across))
    huge = Places(np.array([[160.0, 120.0]]), np.array([1e5]))
    monkeypatch.setattr(search, "proposers", lambda: [lambda *_: huge])
    assert detector(None)._candidates(UNUSED)[1].tolist() == [0.6]
