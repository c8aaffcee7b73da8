"""The order of the tracker's passes, the share of its work that it reports, and what makes a frame lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.painted import CAMERA, RADIUS_M, PaintedModel, make_scene
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import array_clip
from vid2phys.tracking import tracker
from vid2phys.tracking.cues import ActiveCues
from vid2phys.tracking.detectors import Places
from vid2phys.tracking.track import Track
from vid2phys.tracking.tracker import TrackerConfig, TrackingInputs, _part, candidates, corrected, track
from vid2phys.types import Array, Clip

UNUSED: Any = None
ERRORS = Calibration(point_scale=0.3, point_floor_px=0.4, min_quality=0.2)


def test_a_part_of_the_work_is_a_part_of_the_share() -> None:
    shares = list[float]()
    part = _part(shares.append, 0.6, 0.9)
    assert part is not None
    for share in (0.0, 0.5, 1.0):
        part(share)
    np.testing.assert_allclose(shares, [0.6, 0.75, 0.9])
    assert _part(None, 0.0, 1.0) is None


def test_the_share_of_the_work_grows_from_pass_to_pass() -> None:
    """The first pass has six tenths; the second has three, reported batch by batch."""
    t = np.arange(6) / 30.0
    scene = make_scene(np.stack([0.2 * t, 0.0 * t, 1.9 + 0.0 * t], axis=1))
    shares = list[float]()
    config = TrackerConfig(batch=2)
    found = track(
        scene.clip, CAMERA, PaintedModel(), RADIUS_M, calibration=ERRORS, progress=shares.append, config=config
    )
    assert found.tracked.all()
    np.testing.assert_allclose(shares[-3:], [0.7, 0.8, 0.9])
    first = np.array(shares[:-3])
    assert len(first) > 1
    assert (np.diff(first) > 0.0).all()
    assert first[0] == pytest.approx(0.6 * 2 / 6)
    assert first[-1] == pytest.approx(0.6)


class Steps:
    """Stand-ins of the passes, which note that they were called and what they were given."""

    def __init__(self, patch: pytest.MonkeyPatch, texture_seen: bool = True, found: bool = True) -> None:
        self.calls = list[str]()
        self.nothing = Track.of_nothing(np.arange(3) / 30.0, np.eye(3), ERRORS, np.zeros(1))
        first = SimpleNamespace(found=np.full(3, found), translation=np.ones((3, 3)))
        follower = SimpleNamespace(run=self.note("first pass", first))
        patch.setattr(tracker, "Follower", lambda *_: follower)
        patch.setattr(tracker, "smooth_path", lambda _, path: path)
        patch.setattr(tracker, "_second_pass", self.note("second pass", self.nothing))
        patch.setattr(tracker, "filled", self.note("gaps", self.nothing))
        patch.setattr(tracker, "corrected", self.note("corrections", self.nothing))
        patch.setattr(tracker, "refine_single_images", self.note("single images", self.nothing))
        patch.setattr(tracker, "_track_single_image", self.note("one image", self.nothing if texture_seen else None))
        patch.setattr(tracker, "supported", self.note("support", self.nothing))
        patch.setattr(tracker, "ObjectDetector", lambda *given: given)
        patch.setattr(tracker.TexturedBody, "of", lambda *given: given)

    def note(self, name: str, result: Any) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            self.calls.append(name)
            return result

        return call


def blank(frames: int) -> Clip:
    return array_clip(np.zeros((frames, 48, 64, 3), np.uint8), np.arange(frames) / 30.0, "blank")


MESH, TEXTURE = object(), object()
PASSES = ["first pass", "second pass", "gaps"]


@pytest.mark.parametrize(("frames", "given", "calls"), [
    (3, {}, PASSES),
    (3, {"mesh": MESH}, [*PASSES, "corrections", "support"]),
    (3, {"mesh": MESH, "without": ("support",)}, [*PASSES, "corrections"]),
    (3, {"mesh": MESH, "texture": TEXTURE}, [*PASSES, "corrections", "single images", "support"]),
    (3, {"mesh": MESH, "texture": TEXTURE, "without": ("texture",)}, [*PASSES, "corrections", "support"]),
    (1, {"mesh": MESH, "texture": TEXTURE}, ["one image", "support"]),
    (1, {"mesh": MESH}, [*PASSES, "corrections", "support"]),
])  # fmt: skip
def test_what_is_known_of_the_body_decides_which_passes_are_made(
    frames: int, given: dict[str, Any], calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    track(blank(frames), CAMERA, PaintedModel(), RADIUS_M, calibration=ERRORS, **given)
    assert steps.calls == calls


def test_an_image_whose_texture_is_not_seen_is_tracked_as_a_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, texture_seen=False)
    track(blank(1), CAMERA, PaintedModel(), RADIUS_M, calibration=ERRORS, mesh=MESH, texture=TEXTURE)
    assert steps.calls == ["one image", *PASSES, "corrections", "single images", "support"]


def test_the_evidence_of_an_image_is_that_of_its_refined_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network's pose some degrees off may favour another label; the refined one has the label of the texture."""
    labelled = Track.of_nothing(np.zeros(1), np.eye(3), ERRORS, np.array([-7.0, 0.0]))
    refined = Pose(np.eye(3), np.array([0.1, 0.2, 1.5]))
    fit = SimpleNamespace(pose=refined, covariance=1e-4 * np.eye(6))
    monkeypatch.setattr(tracker, "textured_detection", lambda *_: (None, SimpleNamespace(fit=fit)))
    monkeypatch.setattr(tracker, "label", lambda *_: labelled)
    nats = {0.0: [-9.0, 0.0], 0.1: [0.0, -9.0]}
    body: Any = SimpleNamespace(element_nats=lambda frame, camera, pose: np.array(nats[float(pose.translation[0])]))
    inputs: Any = SimpleNamespace(
        texture=SimpleNamespace(evidence=lambda *_: np.zeros((1, 1, 2))), camera=CAMERA, calibration=ERRORS
    )
    frames: Any = [np.zeros((48, 64, 3), np.uint8)]
    found = tracker._track_single_image(UNUSED, frames, np.zeros(1), body, inputs)
    assert found is not None
    np.testing.assert_allclose(found.poses.pose.translation[0], refined.translation)
    assert found.branch_log_likelihood.tolist() == [0.0, -9.0]


@pytest.mark.parametrize(("shown", "source", "judged"), [
    (True, "single image", False), (False, "single image", True), (True, "contour", True),
])  # fmt: skip
def test_a_texture_where_the_user_shows_it_needs_no_other_support(
    shown: bool, source: str, judged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network's quality, and its keypoints, say nothing of a pose that the texture gave."""
    steps = Steps(monkeypatch)
    measured: Any = SimpleNamespace(source=source)
    one: Any = SimpleNamespace(tracked=np.ones(1, dtype=bool), observation=SimpleNamespace(configuration=measured))
    monkeypatch.setattr(tracker, "_track_single_image", steps.note("one image", one))
    place = Places(np.zeros((1, 2)), np.ones(1)) if shown else None
    given: dict[str, Any] = {"mesh": MESH, "texture": TEXTURE, "shown": place, "calibration": ERRORS}
    track(blank(1), CAMERA, PaintedModel(), RADIUS_M, **given)
    assert steps.calls == ["one image", *(["support"] if judged else [])]


def test_a_camera_that_moves_has_no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, given = Steps(monkeypatch), list[Any]()
    monkeypatch.setattr(tracker, "ObjectDetector", lambda *each: given.append(each))
    moving = replace(CAMERA, camera_to_world=np.tile(np.eye(4), (3, 1, 1)))
    for camera in (CAMERA, moving):
        candidates(blank(3), camera, PaintedModel(), RADIUS_M, calibration=ERRORS)
    (_, _, background, radius_m, *_), (_, _, none, *_) = given
    assert background is not None
    assert none is None
    assert radius_m == RADIUS_M
    assert steps.calls == 2 * PASSES


def test_a_clip_without_the_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Steps(monkeypatch, found=False)
    with pytest.raises(InputError, match="none of the 3 frames of 'blank'"):
        candidates(blank(3), CAMERA, PaintedModel(), RADIUS_M, calibration=ERRORS)


def test_the_error_model_is_that_of_the_model_unless_one_is_given() -> None:
    model: Any = SimpleNamespace(calibration=ERRORS.to_dict())
    assert TrackingInputs.of(CAMERA, model).calibration == ERRORS
    other = replace(ERRORS, point_scale=0.9)
    assert TrackingInputs.of(CAMERA, model, calibration=other).calibration == other
    assert TrackingInputs.of(CAMERA, model, texture=TEXTURE).texture is TEXTURE  # type: ignore[arg-type]
    assert TrackingInputs.of(CAMERA, model, without=("texture",), texture=TEXTURE).texture is None  # type: ignore[arg-type]


def of_frames(
    monkeypatch: pytest.MonkeyPatch, explained: NDArray[np.bool_] | None, nats: Array, without: tuple[str, ...] = ()
) -> Track:
    """The corrections of a track that is tracked in all frames; explained: None for a body without texture."""
    count = len(nats)
    nothing = Track.of_nothing(np.arange(count) / 30.0, np.eye(3), ERRORS, np.zeros(1))
    found = replace(nothing, tracked=np.ones(count, dtype=bool))
    found.poses.rotation[:] = np.eye(3)
    seen = list[Any]()

    def contours(*given: Any, also: Any = None, **_: Any) -> tuple[Track, Array]:
        seen.append(also)
        return given[3], nats

    monkeypatch.setattr(tracker, "refine_texture", lambda *given: (given[4], explained))
    monkeypatch.setattr(tracker, "refine_contours", contours)
    unused: Any = None
    texture: Any = None if explained is None else TEXTURE
    cues = ActiveCues.without(without)
    inputs = TrackingInputs(camera=CAMERA, model=unused, calibration=ERRORS, mesh=unused, texture=texture, cues=cues)
    object.__setattr__(inputs, "mesh", MESH)
    out = corrected(found, unused, inputs)
    if "contour" not in without:
        assert (seen[0] is None) is (explained is None), "poses before the texture are tried, too"
    return out


def test_a_frame_counts_by_its_texture_or_by_edges_as_good_as_those_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explained = np.array([True, True, True, False, False, False])
    nats = np.array([10.0, 40.0, 90.0, 9.9, 10.1, 41.0])  # a quarter of the median of the explained frames is 10
    assert of_frames(monkeypatch, explained, nats).tracked.tolist() == [True, True, True, False, True, True]
    assert of_frames(monkeypatch, explained, -nats).tracked.tolist() == explained.tolist(), "edges that speak against"
    assert not of_frames(monkeypatch, ~explained & explained, nats).tracked.any(), "nothing to compare with"
    assert of_frames(monkeypatch, explained, nats, ("contour",)).tracked.tolist() == explained.tolist()
    assert of_frames(monkeypatch, None, nats).tracked.all()


class Detector:
    """A stand-in of the detector of frames that are numbers; a frame is credible if it is even."""

    model = SimpleNamespace(rotations=np.zeros((4, 3, 3)))

    def __init__(self) -> None:
        self.seen = list[tuple[list[int], list[int], int]]()

    def at(self, indices: NDArray[np.int64]) -> Detector:
        self.indices = indices.tolist()
        return self

    def detect(self, images: list[int], path: Array, hypotheses: int) -> Any:
        np.testing.assert_array_equal(path[:, 0], images)
        self.seen.append((self.indices, images, hypotheses))
        return SimpleNamespace(images=images, poses=SimpleNamespace(cost=np.zeros((len(images), hypotheses))))

    def judge(self, images: list[int], seen: Any) -> tuple[NDArray[np.bool_], None]:
        return np.array(images) % 2 == 0, None


@pytest.mark.parametrize(("batch", "at_once", "sizes"), [(2, 9, [2, 2, 1]), (9, 3, [3, 2]), (9, 9, [5])])
def test_the_second_pass_detects_in_batches(
    batch: int, at_once: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Frames(list[int]):
        at_once = 0

    frames, detector, shares = Frames(range(9)), Detector(), list[float]()
    frames.at_once = at_once
    rows = np.array([1, 2, 4, 6, 7])
    monkeypatch.setattr(tracker, "side_by_side", lambda work, over: map(work, over))
    monkeypatch.setattr(tracker.Detections, "join", lambda parts: [part.images for part in parts])
    texture = SimpleNamespace(
        evidence=lambda seen, images, camera: np.array(images)[:, None, None] * np.ones((1, 2, 4))
    )
    for given, nats in ((None, 0.0), (texture, rows)):
        detector.seen.clear()
        shares.clear()
        config = TrackerConfig(batch=batch, hypotheses=2)
        inputs = replace(INPUTS, texture=given, config=config)  # type: ignore[arg-type]
        along = np.stack([rows, rows, rows], axis=1).astype(float)
        detections, credible, found = tracker._detect_all(detector, frames, along, rows, inputs, shares.append)  # type: ignore[arg-type]
        assert [len(images) for images in detections] == sizes
        assert [each for images in detections for each in images] == rows.tolist()
        assert all(indices == images and count == 2 for indices, images, count in detector.seen)
        assert credible.tolist() == [False, True, True, True, False]
        np.testing.assert_array_equal(found, np.broadcast_to(np.reshape(nats, (-1, 1, 1)), (5, 2, 4)))
        np.testing.assert_allclose(shares, np.arange(1, len(sizes) + 1) / len(sizes))


INPUTS = TrackingInputs(camera=CAMERA, model=PaintedModel(), calibration=ERRORS)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Found:
    """Detections of some frames, whose first hypotheses have so many inliers of eight."""

    rows: NDArray[np.int64]
    inliers: NDArray[np.int64]

    @property
    def poses(self) -> Any:
        first = np.arange(8) < self.inliers[:, None]
        return SimpleNamespace(inliers=np.stack([first, ~first], axis=1))

    def select(self, kept: NDArray[np.bool_]) -> Found:
        return Found(self.rows[kept], self.inliers[kept])


@pytest.mark.parametrize("mesh", [None, MESH])
def test_the_second_pass_keeps_credible_frames_with_enough_inliers(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of eight keypoints; frames off the path are not detected."""
    path = np.arange(7.0)[:, None] * np.ones(3)
    path[2, 1] = np.nan
    asked, labelled = list[Any](), list[Any]()
    inliers, credible = np.array([8, 6, 5, 8, 7, 6]), np.array([1, 1, 1, 0, 1, 1], dtype=bool)

    def detect_all(detector: Any, frames: Any, along: Array, rows: NDArray[np.int64], *_: Any) -> Any:
        asked.append((along[:, 0].tolist(), rows.tolist()))
        return Found(rows, inliers), credible, 10.0 * rows[:, None, None]

    def label(times_s: Array, rows: NDArray[np.int64], found: Found, evidence: list[Any], inputs: Any) -> str:
        labelled.append((rows.tolist(), found.rows.tolist(), evidence))
        return "track"

    monkeypatch.setattr(tracker, "_detect_all", detect_all)
    monkeypatch.setattr(tracker, "label", label)
    monkeypatch.setattr(tracker.Solid, "of", lambda mesh: SimpleNamespace(without_creases=lambda: "no creases"))
    monkeypatch.setattr(tracker, "symmetry_evidence", lambda *given: [("symmetry", given[4])])
    monkeypatch.setattr(tracker, "cue_evidence", lambda *given: ["cues"])
    model: Any = SimpleNamespace(rotations=None, center=None, shape=None)
    unused: Any = None
    inputs = TrackingInputs(camera=CAMERA, model=model, calibration=ERRORS, mesh=mesh)
    found: Any = tracker._second_pass(blank(7), unused, unused, path, inputs, None)
    assert found == "track"
    assert asked == [([0, 1, 3, 4, 5, 6], [0, 1, 3, 4, 5, 6])]
    ((rows, of_frames, evidence),) = labelled
    assert rows == of_frames == [0, 1, 5, 6]
    np.testing.assert_array_equal(evidence[0].nats[:, 0, 0], [0.0, 10.0, 50.0, 60.0])
    if mesh is None:
        assert len(evidence) == 1
    else:
        (name, solid), cues = evidence[1:]
        assert (name, cues) == ("symmetry", "cues")
        assert solid != "no creases"
        for without, expected in ((("creases",), ["no creases", "cues"]), (("symmetry",), ["cues"])):
            tracker._second_pass(
                blank(7), unused, unused, path, replace(inputs, cues=ActiveCues.without(without)), None
            )
            assert [each if each == "cues" else each[1] for each in labelled[-1][2][1:]] == expected
    credible[:] = False
    with pytest.raises(InputError, match="keypoints of the object in 'blank' could not be detected"):
        tracker._second_pass(blank(7), unused, unused, path, inputs, None)
