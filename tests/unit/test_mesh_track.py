"""What a mesh's track is made of: features of the texture first, else motion; what is refused, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.moving_box import CAMERA, FPS
from tests.unit.test_mesh_tracker import MESH, SHAPE, START, UNUSED, World, fit_at, pose_at
from vid2phys.engine.pose_geometry import project_points
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import array_clip
from vid2phys.tracking import mesh_track, mesh_tracker
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.tracking.mesh_track import _by_elements, _by_texture, _supported, _track_features, _with_fits, track_mesh
from vid2phys.tracking.mesh_tracker import DEFAULTS, MeshTracker
from vid2phys.tracking.silhouette_fit import Fit, SilhouetteFitConfig
from vid2phys.tracking.surface_refinement import RefinedPoses
from vid2phys.tracking.track import Track

FRAMES = 4
CLIP = array_clip(np.zeros((FRAMES, 48, 64, 3), np.uint8), np.arange(FRAMES) / FPS, "blank")
FOUND = [fit_at(0.0), None, fit_at(0.2), fit_at(0.3, overlap=0.1)]  # the last one is not supported
MOVING = replace(CAMERA, camera_to_world=np.tile(np.eye(4), (FRAMES, 1, 1)))
ELEMENTS = len(SHAPE.rotations)


@dataclass
class Stage:
    """Stand-ins of the steps, which note what they were given. features: what the texture's features find."""

    patch: pytest.MonkeyPatch
    texture: Any = None
    features: Track | None = None
    at_hint: bool = True
    found: Sequence[Fit | None] = tuple(FOUND)
    moved: bool = True
    learned: RefinedPoses | None = None
    by_texture: Track | None = None

    def __post_init__(self) -> None:
        self.calls, self.tracker = list[str](), UNUSED
        self.patch.setattr(mesh_track.SurfaceTexture, "of", lambda *_: self.texture)
        self.patch.setattr(mesh_track, "_track_features", lambda *_: self.note("features", self.features))
        self.patch.setattr(mesh_track, "is_at_hint", lambda *_: self.at_hint)
        self.patch.setattr(mesh_tracker, "refine_by_surfaces", self.refine)
        self.patch.setattr(MeshTracker, "judged", self.judge)
        self.patch.setattr(mesh_track, "_by_texture", lambda *_: self.note("texture", self.by_texture))

    def note(self, name: str, result: Any) -> Any:
        self.calls.append(name)
        return result

    def judge(self, i: int, pose: Pose, contour: Any) -> Fit:
        """Return the frame's evidence for a pose that surfaces moved; a pose beyond 0.3 m has none."""
        return Fit(pose, 100.0 if pose.translation[0] < 0.3 else 1.0, 0.9, contour)

    def refine(self, *given: Any) -> Any:
        self.calls.append(f"learned from {sorted(given[4])}")
        return self.learned

    def track(self, **options: Any) -> Track:
        def run(tracker: MeshTracker) -> list[Fit | None]:
            self.calls.append("motion")
            self.tracker, tracker.moved = tracker, self.moved
            tracker.evidence, tracker.foreground = np.arange(float(ELEMENTS)), UNUSED
            return list(self.found)

        self.patch.setattr(MeshTracker, "run", run)
        return track_mesh(CLIP, options.pop("camera", CAMERA), MESH, SHAPE, Calibration(), **options)


def nothing(count: int) -> Track:
    return Track.of_nothing(np.arange(count) / FPS, SHAPE.points_body, Calibration(), np.zeros(len(SHAPE.rotations)))


def tracked(rows: list[int]) -> Track:
    return _with_fits(nothing(FRAMES), np.array(rows), [fit_at(0.1 * i) for i in rows], Calibration(), DEFAULTS)


def test_a_plain_body_is_followed_by_its_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    found = stage.track(tilt_std_rad=0.3)
    assert stage.calls == ["motion", "learned from [0, 2]"]
    assert found.tracked.tolist() == [True, False, True, False]
    assert found.unsupported.tolist() == [3]
    assert not found.learned_texture
    np.testing.assert_allclose(found.poses.translation[2, 0], 0.2)
    np.testing.assert_array_equal(found.branch_log_likelihood, np.arange(float(ELEMENTS)))
    assert stage.tracker.tilt_std_rad == 0.3
    assert stage.tracker.hinted is None


@pytest.mark.parametrize("is_textured", [True, False])
def test_learned_surfaces_move_the_poses(is_textured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, learned=RefinedPoses({0: pose_at(0.01), 2: pose_at(0.21)}, is_textured))
    found = stage.track()
    assert found.learned_texture == is_textured
    np.testing.assert_allclose(found.poses.translation[[0, 2], 0], [0.01, 0.21])


def test_a_pose_to_which_surfaces_move_needs_support(monkeypatch: pytest.MonkeyPatch) -> None:
    """The surfaces move the body of frame 2 to where the silhouette explains nothing."""
    found = Stage(monkeypatch, learned=RefinedPoses({0: pose_at(0.01), 2: pose_at(0.4)}, True)).track()
    assert found.tracked.tolist() == [True, False, False, False]
    assert found.unsupported.tolist() == [2, 3]


@pytest.mark.parametrize("explains", [True, False])
def test_a_body_of_which_no_features_are_found_is_refined_by_its_texture(
    explains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, texture=UNUSED, by_texture=tracked([2]) if explains else None)
    found = stage.track()
    assert stage.calls == ["features", "motion", "texture"]
    assert np.flatnonzero(found.tracked).tolist() == ([2] if explains else [0, 2])


def test_features_of_a_texture_track_the_body_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before a camera that moves; the first frame in which it is found is shown."""
    seen, shown = tracked([1, 3]), list[tuple[int, float]]()
    stage = Stage(monkeypatch, texture=UNUSED, features=seen)
    first = lambda i, pose: shown.append((i, float(pose.translation[0])))  # noqa: E731
    assert stage.track(first=first) is seen
    assert stage.track(camera=MOVING) is seen
    assert shown == [(1, pytest.approx(0.1))]
    assert stage.calls == ["features"] * 2


@pytest.mark.parametrize("at_hint", [True, False])
def test_features_elsewhere_than_the_hint_do_not_count(at_hint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, hint = tracked([1, 3]), SimpleNamespace(row=lambda clip: 2)
    stage = Stage(monkeypatch, texture=UNUSED, features=seen, at_hint=at_hint)
    found = stage.track(hint=hint)
    assert (found is seen) is at_hint
    if not at_hint:
        assert (stage.tracker.hinted.row, stage.tracker.hinted.hint) == (2, hint)


@pytest.mark.parametrize(
    ("given", "camera", "message"),
    [
        ({}, MOVING, "a camera that moves, and no trained model"),
        ({"moved": False}, CAMERA, "nothing moves in 'blank'"),
        ({"found": (None, None, None, None)}, CAMERA, "nothing that moves in 'blank' has the shape"),
        ({"found": (None, None, None, FOUND[3])}, CAMERA, "nothing that moves in 'blank' has the shape"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    given: dict[str, Any], camera: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=message):
        Stage(monkeypatch, **given).track(camera=camera)


def test_frames_count_by_their_evidence_beside_that_of_good_frames() -> None:
    """Evidence times the root of the distance, of which the 80th percentile is 100: 40 are needed."""
    fits: list[Fit | None] = [fit_at(0.0, nats) for nats in (100.0, 100.0, 100.0, 39.0, 41.0)]
    far = Pose(np.eye(3), 4.0 * START)
    fits += [
        None,
        Fit(far, 21.0, 0.9, None),
        Fit(far, 19.0, 0.9, None),
        fit_at(0.0, 90.0, 0.36),
        fit_at(0.0, 90.0, 0.35),
    ]
    assert _supported(fits, DEFAULTS).tolist() == [0, 1, 2, 4, 6, 8]
    assert _supported([None, None], DEFAULTS).tolist() == []
    assert _supported([fit_at(0.0, -5.0)], DEFAULTS).tolist() == [], "evidence against the body"


def test_a_track_states_the_errors_of_its_fits() -> None:
    covariance = np.diag(np.arange(1.0, 7.0) ** 2) * 1e-6
    contour: Any = SimpleNamespace(covariance=covariance)
    errors = replace(
        Calibration(),
        contour_scale=(2.0, 1.0, 1.0, 3.0, 1.0, 1.0),
        contour_correlation_s=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    )
    fits = [fit_at(0.0, overlap=0.8), replace(fit_at(0.05), contour=contour)]
    found = _with_fits(nothing(4), np.array([1, 3]), fits, errors, DEFAULTS)
    assert found.tracked.tolist() == [False, True, False, True]
    np.testing.assert_array_equal(found.quality, [0.0, 0.8, 0.0, 0.9])
    np.testing.assert_array_equal(found.element, [-1, 0, -1, 0])
    std = np.array([SilhouetteFitConfig().contour_std, 1e-3 * np.arange(1.0, 7.0) * errors.contour_scale])
    measured = found.observation.configuration
    assert measured is not None
    np.testing.assert_allclose(found.poses.covariance[[1, 3]], std[..., None] ** 2 * np.eye(6))
    np.testing.assert_allclose(measured.covariance[[1, 3]], 0.25 * std[..., None] ** 2 * np.eye(6))
    np.testing.assert_allclose(measured.shared_basis[[1, 3]], std[..., None] * np.eye(6))
    np.testing.assert_array_equal(found.observation.process_time_s, errors.contour_correlation_s)
    np.testing.assert_allclose(found.observation.bearings[3], project_points(pose_at(0.05), SHAPE.points_body))
    np.testing.assert_array_equal(found.observation.bearings[2], 0.0)
    assert not found.poses.inliers.any()


@pytest.mark.parametrize(("explained", "counts"), [([1, 1, 1, 0], True), ([1, 1, 0, 0], False)])
def test_a_texture_must_explain_more_than_half_of_the_frames(
    explained: list[int], counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = np.array(explained, dtype=bool)
    track = _with_fits(nothing(4), np.arange(4), [fit_at(0.0)] * 4, Calibration(), DEFAULTS)
    monkeypatch.setattr(mesh_track, "refine_texture", lambda *given: (given[4], shown))
    refined = lambda *given, **_: (replace(given[3], quality=np.full(4, 0.7)), None)  # noqa: E731
    monkeypatch.setattr(mesh_track, "refine_contours", refined)
    monkeypatch.setattr(mesh_track, "_by_elements", lambda *given: np.arange(4.0))
    found = _by_texture(
        UNUSED, CAMERA, MESH, UNUSED, replace(track, branch_log_likelihood=np.ones(4)), Calibration(), DEFAULTS
    )
    assert (found is not None) is counts
    if found is not None:
        np.testing.assert_array_equal(found.tracked, shown)
        np.testing.assert_array_equal(found.quality, 0.7, "contours refine what the texture explains")
        np.testing.assert_array_equal(found.branch_log_likelihood, 1.0 + np.arange(4.0))


def test_elements_are_compared_by_the_texture_of_some_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    track = _with_fits(nothing(9), np.arange(1, 8), [fit_at(0.0)] * 7, Calibration(), DEFAULTS)
    monkeypatch.setattr(mesh_track, "shown_at", lambda frame, *given: frame)
    texture: Any = SimpleNamespace(element_nats=lambda i: np.array([10.0, 7.0 - i, -100.0]))
    found = _by_elements(World(np.zeros(9)), CAMERA, MESH, texture, track, replace(DEFAULTS, element_frames=3))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, np.array([0.0, -3.0 * 3 - (1 + 4 + 7), -90.0]) / TEMPERATURES.symmetry)


@pytest.mark.parametrize(("seen", "counts"), [(1, False), (2, True)])
def test_features_of_a_texture_must_be_found_in_some_frames(
    seen: int, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two of ten frames, of twenty."""
    tried, tracks = list[int](), list[Track]()

    def detect(i: int, camera: Any) -> tuple[Pose] | None:
        tried.append(i)
        return (pose_at(0.01 * i),) if len(tried) <= seen else None

    monkeypatch.setattr(mesh_track.TextureFeatures, "of", lambda mesh: SimpleNamespace(detect=detect))
    monkeypatch.setattr(mesh_track, "in_processes", lambda work, over: [work(each) for each in over])
    monkeypatch.setattr(mesh_track, "_by_texture", lambda *given: tracks.append(given[4]) or given[4])  # type: ignore[func-returns-value]
    given: Any = World(np.zeros(20)), np.arange(20) / FPS, CAMERA, MESH, UNUSED, SHAPE, Calibration()
    found = _track_features(*given, replace(DEFAULTS, feature_frames=10))
    assert len(tried) == 10
    assert tried == [int(19 * k / 9) for k in range(10)]
    assert (found is not None) is counts
    if counts:
        (track,) = tracks
        assert np.flatnonzero(track.tracked).tolist() == tried[:2]
        np.testing.assert_allclose(track.poses.translation[tried[1], 0], 0.01 * tried[1])
    monkeypatch.setattr(mesh_track.TextureFeatures, "of", lambda mesh: None)
    assert _track_features(*given, DEFAULTS) is None
