"""A painted cube in one image: the place that its paint explains, however sure the network is of another."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.unit.test_single_image import LONE, START
from tests.unit.test_texture import CAMERA, GROUP, PLACE
from tests.unit.test_texture import cast as drawn
from vid2phys.engine.pnp import known_pose
from vid2phys.engine.virtual_camera import make_view
from vid2phys.geometry import Pose
from vid2phys.tracking.detectors import Places, texture
from vid2phys.tracking.detectors.network import Detections, direction_and_size
from vid2phys.tracking.detectors.search import ObjectDetector
from vid2phys.tracking.detectors.texture import textured_detection
from vid2phys.tracking.single_image import TexturedBody
from vid2phys.types import Camera

UNUSED: Any = None
CENTER_PX = np.array([101.0, 88.0])
RADIUS_M = 0.05 * np.sqrt(3.0)


def _detections(pose: Pose) -> Detections:
    centers, radii = direction_and_size(pose.translation, RADIUS_M)
    views = [make_view(CAMERA, center, float(radius), 96) for center, radius in zip(centers, radii, strict=True)]
    blank = np.zeros((len(views), 0))
    poses = known_pose(pose[:, None])
    quality = np.linspace(0.9, 0.3, len(views))[:, None]
    return Detections(
        views, radii, np.full(len(views), 100.0), blank, blank, blank, blank, blank.astype(bool), blank, poses, quality
    )


@dataclass
class _ObjectDetector:
    """Knows the finalists of any frame."""

    seen: Detections | None
    camera: Camera = field(default_factory=lambda: CAMERA)
    radius_m: float = RADIUS_M

    shown: Places | None = None

    def finalists(self, frame: Any, most: int) -> Detections | None:
        return self.seen

    def detect(self, frames: Any, translation: Any) -> Detections:
        return _detections(Pose(np.eye(3)[None], translation))


def test_the_place_is_taken_that_the_paint_explains() -> None:
    assert LONE is not None
    frame = drawn(START, np.random.default_rng(2), False)
    near = Pose(START @ GROUP[7], PLACE).retract(np.array([0.1, -0.08, 0.05, 0.004, 0.003, 0.03]))
    elsewhere = Pose(START, PLACE + np.array([0.09, 0.05, 0.05]))
    seen = _detections(Pose.stack([elsewhere, near]))
    found = textured_detection(cast(ObjectDetector, _ObjectDetector(seen)), frame, LONE)
    assert found is not None
    detections, search = found
    np.testing.assert_array_equal(detections.poses.translation[0, 0], near.translation)
    assert float(np.trace(START.T @ search.pose.rotation)) > 1.0 + 2.0 * np.cos(0.03), "the label is that of the paint"
    np.testing.assert_allclose(search.pose.translation, PLACE, atol=5e-3)


def test_of_places_that_the_paint_explains_the_best_counts_and_starts_alike_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LONE is not None
    begun = list[float]()

    def search(body: Any, frame: Any, camera: Any, pose: Pose) -> Any:
        begun.append(float(pose.translation[2]))
        share, nats = {1.0: (0.9, 20.0), 1.1: (0.5, 30.0), 1.2: (0.3, 40.0)}[round(begun[-1], 1)]
        return SimpleNamespace(share=share, nats=nats)

    monkeypatch.setattr(TexturedBody, "search", search)
    monkeypatch.setattr(texture, "plausible", lambda seen, radius_m: np.ones(len(seen.views), dtype=bool))
    depths = np.array([1.0, 1.01, 1.1, 1.2])
    rotations = np.stack([START, START @ GROUP[5], START, START])
    seen = _detections(Pose(rotations, depths[:, None] * np.array([0.0, 0.0, 1.0])))
    found = textured_detection(cast(ObjectDetector, _ObjectDetector(seen)), UNUSED, LONE)
    assert found is not None
    assert found[0].poses.translation[0, 0, 2] == 1.1, "1.2 explains too little"
    assert found[1].nats == 30.0
    assert begun == [1.0, 1.1, 1.2], "a symmetry element and a hundredth of the depth are no other start"


def test_a_image_without_it_has_no_place() -> None:
    assert LONE is not None
    rng = np.random.default_rng(5)
    other = rng.integers(0, 255, (CAMERA.height // 12, CAMERA.width // 12, 3)).astype(np.uint8)
    frame = np.kron(other, np.ones((12, 12, 1), np.uint8))
    seen = _detections(Pose(START[None], PLACE[None]))
    assert textured_detection(cast(ObjectDetector, _ObjectDetector(seen)), frame, LONE) is None
    assert textured_detection(cast(ObjectDetector, _ObjectDetector(None)), frame, LONE) is None


@pytest.mark.parametrize(("share", "by_box", "tried"), [(0.9, 40.0, False), (0.5, 40.0, True), (0.5, 10.0, True)])
def test_where_the_user_shows_the_body_all_orientations_are_tried_if_the_network_is_unsure(
    share: float, by_box: float, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LONE is not None
    boxes = list[float]()
    at_network = SimpleNamespace(share=share, nats=20.0)
    at_box = SimpleNamespace(share=0.8, nats=by_box, pose=Pose(START, np.array([0.0, 0.0, 1.5])))

    def search_box(body: Any, frame: Any, camera: Any, center_px: Any, side_px: float) -> Any:
        boxes.append(side_px)
        return at_box

    monkeypatch.setattr(TexturedBody, "search", lambda *_: at_network)
    monkeypatch.setattr(TexturedBody, "search_box", search_box)
    monkeypatch.setattr(texture, "plausible", lambda seen, radius_m: np.ones(len(seen.views), dtype=bool))
    seen = _detections(Pose(START[None], np.array([[0.0, 0.0, 1.0]])))
    detector = _ObjectDetector(seen, shown=Places(np.tile(CENTER_PX, (2, 1)), np.array([50.0, 40.0])))
    found = textured_detection(cast(ObjectDetector, detector), UNUSED, LONE)
    assert boxes == ([50.0] if tried else []), "in the box as the user gave it"
    assert found is not None
    best = at_box if tried and by_box > 20.0 else at_network
    assert found[1] is best
    assert found[0].poses.translation[0, 0, 2] == (1.5 if best is at_box else 1.0)


@pytest.mark.parametrize("looser", [1.0, 1.07])
def test_a_box_about_a_painted_cube_shows_its_pose(looser: float) -> None:
    """No network is asked. The box is about that of the bounding sphere."""
    assert LONE is not None
    rotation = START @ GROUP[11]
    frame = drawn(rotation, np.random.default_rng(9), False)
    center = CAMERA.K[:2, :2] @ (PLACE[:2] / PLACE[2]) + CAMERA.K[:2, 2]
    side_px = looser * 2.0 * RADIUS_M * CAMERA.K[0, 0] / PLACE[2]
    search = LONE.search_box(frame, CAMERA, center, side_px)
    assert search is not None
    assert search.share > 0.6
    assert float(np.trace(rotation.T @ search.pose.rotation)) > 1.0 + 2.0 * np.cos(0.05)
    np.testing.assert_allclose(search.pose.translation, PLACE, atol=0.01)
    assert LONE.search_box(frame, CAMERA, np.array([-500.0, -500.0]), side_px) is None, "outside of the frame"
