"""Which frames count as tracked: right poses of a rendered body are supported by the image, wrong ones are not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.distractor_clips import DistractorClip, make_clip
from tests.synthetic import cross_mesh
from vid2phys.commands.identify.fit import _support_notes
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_quat, quat_from_rotvec
from vid2phys.notes import Severity, severity_of
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.tracking import support
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.support import (
    EVIDENCE,
    SupportConfig,
    SupportModel,
    _depth_jumps,
    _heaviest_chain,
    _with_share,
    decided,
    evidence_of,
    image_match,
    supported,
)
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Mesh


def box(*sides: float) -> Mesh:
    import trimesh

    solid = trimesh.creation.box(sides)
    return Mesh(np.asarray(solid.vertices), np.asarray(solid.faces), np.zeros(len(solid.faces), dtype=np.int64))


@pytest.fixture(scope="module", params=["cube", "long box", "cross"])
def shot(request: pytest.FixtureRequest) -> DistractorClip:
    """A clip in which most of the body is seen in at least half of the frames."""
    mesh = {"cube": box(0.1, 0.1, 0.1), "long box": box(0.2, 0.06, 0.05), "cross": cross_mesh(0.1)}[request.param]
    bank = make_bank([], count=12, seed=4)
    return next(clip for seed in range(30, 60) if np.mean((clip := make_clip(mesh, bank, seed)).shown > 0.9) > 0.5)


def tracked_at(shot: DistractorClip, rotation: Array, translation: Array) -> Track:
    """A track with these poses in all frames and good keypoints, as of a network that is sure of itself."""
    count = len(shot.clip.times_s)
    track = Track.of_nothing(shot.clip.times_s, np.eye(3), Calibration.from_dict(None), np.zeros(1))
    poses = replace(track.poses, pose=Pose(rotation, translation), chi2=np.full(count, 8.0))
    visible = np.ones_like(track.observation.visible)
    return replace(
        track,
        poses=poses,
        tracked=np.ones(count, dtype=bool),
        quality=np.full(count, 0.75),
        observation=replace(track.observation, visible=visible),
    )


def kept(shot: DistractorClip, rotation: Array, translation: Array) -> Array:
    """Share of the frames that show the body well in which these poses count as tracked."""
    frames = FrameStore.of(shot.clip)
    track = supported(tracked_at(shot, rotation, translation), frames, shot.camera, shot.mesh)
    return np.asarray(track.tracked[shot.shown > 0.9].mean())


def test_right_poses_count_as_tracked(shot: DistractorClip) -> None:
    assert kept(shot, shot.rotation, shot.translation) > 0.9


@pytest.mark.parametrize("aside", [0.6, 1.5])
def test_poses_beside_the_body_are_lost(shot: DistractorClip, aside: float) -> None:
    size_m = 2.0 * float(np.linalg.norm(shot.mesh.vertices, axis=1).max())
    assert kept(shot, shot.rotation, shot.translation + aside * size_m * np.array([0.8, -0.6, 0.0])) < 0.15


@pytest.mark.parametrize("factor", [0.55, 1.8])
def test_poses_at_another_distance_are_lost(shot: DistractorClip, factor: float) -> None:
    assert kept(shot, shot.rotation, factor * shot.translation) < 0.2


def test_turned_poses_are_supported_less_than_right_ones(shot: DistractorClip) -> None:
    turn = matrix_from_quat(quat_from_rotvec(np.array([0.5, 0.6, 0.4])))
    turned = kept(shot, shot.rotation @ turn, shot.translation)
    assert turned < 0.5 * kept(shot, shot.rotation, shot.translation)


def test_unsupported_frames_are_listed_and_carry_no_information(shot: DistractorClip) -> None:
    frames = FrameStore.of(shot.clip)
    aside = shot.translation.copy()
    aside[::3] += 0.4 * np.array([0.8, -0.6, 0.0])
    track = supported(tracked_at(shot, shot.rotation, aside), frames, shot.camera, shot.mesh)
    assert set(track.unsupported) == set(np.flatnonzero(~track.tracked))
    assert not track.observation.visible[track.unsupported].any()
    assert np.isnan(track.poses.translation[track.unsupported]).all()


def test_evidence_has_a_column_for_each_name_and_is_finite_wherever_the_pose_is(shot: DistractorClip) -> None:
    frames = FrameStore.of(shot.clip)
    for factor in (1.0, -1.0, 30.0, 0.05):  # in place, behind the camera, far away, about the camera
        track = tracked_at(shot, shot.rotation, factor * shot.translation)
        rows, evidence = evidence_of(track, frames, shot.camera, shot.mesh)
        assert evidence.shape == (len(rows), len(EVIDENCE))
        assert np.isfinite(evidence).all()


def test_of_two_groups_that_no_motion_joins_the_likelier_counts() -> None:
    times, places = np.arange(10) / 30, np.zeros((10, 3))
    places[:, 2] = 2.0
    places[4:, 0] = 5.0  # 5 m in a thirtieth of a second
    weights = np.ones(10)
    assert _heaviest_chain(times, places, np.full(10, 0.2), weights).tolist() == [4, 5, 6, 7, 8, 9]
    weights[:4] = 3.0
    assert _heaviest_chain(times, places, np.full(10, 0.2), weights).tolist() == [0, 1, 2, 3]
    assert _heaviest_chain(times * 100.0, places, np.full(10, 0.2), weights).tolist() == list(range(10))


def test_where_most_poses_are_unlikely_the_others_are_doubted_too() -> None:
    model = replace(SupportModel.load(), weights=np.eye(len(EVIDENCE))[0], mean=np.zeros(len(EVIDENCE)), bias=0.0)
    model = replace(model, std=np.ones(len(EVIDENCE)))
    evidence = np.zeros((60, len(EVIDENCE)))
    evidence[:, 0] = np.where(np.arange(60) < 6, 1.0, -4.0)
    among_unlikely = model.log_odds(evidence)[0]
    evidence[:, 0] = np.where(np.arange(60) < 6, 1.0, 4.0)
    assert among_unlikely < 0.0 < 1.0 < model.log_odds(evidence)[0]


def test_missing_evidence_counts_as_the_average() -> None:
    model = SupportModel.load()
    whole, missing = model.mean.copy(), model.mean.copy()
    missing[EVIDENCE.index("depth_jump")] = np.nan
    both = model.log_odds(np.array([whole, missing]))
    assert both[0] == pytest.approx(both[1])


@pytest.mark.parametrize(("refused", "severity"), [(2, Severity.INFORMATION), (30, Severity.DOUBT)])
def test_many_unsupported_frames_make_the_result_doubtful(refused: int, severity: Severity) -> None:
    track = Track.of_nothing(np.arange(100) / 30, np.eye(3), Calibration.from_dict(None), np.zeros(1))
    (note,) = _support_notes(replace(track, unsupported=np.arange(refused)))
    assert note.startswith(f"in {refused} of 100 frames")
    assert severity_of(note) is severity
    assert not _support_notes(track)


CAMERA = Camera(np.array([[400.0, 0.0, 160.0], [0.0, 400.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)


def track_at(places: Array, times_s: Array | None = None, **poses: Array) -> Track:
    """A track with upright poses at some places."""
    count = len(places)
    times_s = np.arange(count) / 30 if times_s is None else times_s
    track = Track.of_nothing(times_s, np.eye(3), Calibration.from_dict(None), np.zeros(1))
    found = replace(track.poses, pose=Pose(np.tile(np.eye(3), (count, 1, 1)), places), **poses)
    return replace(track, poses=found, tracked=np.ones(count, dtype=bool), quality=np.linspace(0.2, 0.9, count))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clip whose frames are their numbers, and a verifier that states the number of a frame."""
    monkeypatch.setattr(support.Verifier, "load", lambda: SimpleNamespace(logit=float))
    monkeypatch.setattr(support, "background_of", lambda background, shape: background)
    monkeypatch.setattr(support, "crop_of", lambda frame, background, camera, mesh, pose: frame[0])

    class Numbered:
        background = None

        def __getitem__(self, index: int) -> Array:
            return np.array([float(index)])

    return Numbered()


def test_evidence_is_what_its_columns_say(judged: Any) -> None:
    places = np.array([[0.0, 0.0, 2.0], [0.1, 0.0, 2.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.5], [0.0, 0.0, 1e4]])
    chi2 = np.array([3.0, 0.0, np.nan, 12.0, 1.0])
    track = track_at(places, chi2=chi2)
    track.tracked[1] = False
    rows, evidence = evidence_of(track, judged, CAMERA, box(0.1, 0.1, 0.1))
    np.testing.assert_array_equal(rows, [0, 2, 3, 4])
    columns = dict(zip(EVIDENCE, evidence.T, strict=True))
    np.testing.assert_array_equal(columns["quality"], track.quality[rows])
    np.testing.assert_allclose(columns["keypoint_misfit"], [np.log(3.1), 3.0, np.log(12.1), np.log(1.1)])
    size_px = 2.0 * 400.0 * np.tan(np.arcsin(0.05 * 3.0**0.5 / 2.0))
    np.testing.assert_allclose(columns["log_size"], [np.log(size_px), np.log(size_px), 4.5, 0.0])
    np.testing.assert_array_equal(columns["image_match"], rows)
    np.testing.assert_allclose(
        columns["depth_jump"], np.log(3e-3 + np.array([np.log(2.0), 0.0, np.log(4.0), 2.0])), atol=1e-9
    )


def test_images_match_by_the_median_of_some_frames(judged: Any) -> None:
    track = track_at(np.tile([0.0, 0.0, 2.0], (400, 1)))
    track.tracked[:100] = False  # of the other 300 every second one is compared, 100, 102 .. 398
    assert image_match(track, judged, CAMERA, box(0.1, 0.1, 0.1)) == 249.0
    track.tracked[102:] = False
    assert image_match(track, judged, CAMERA, box(0.1, 0.1, 0.1)) == 100.5
    track.tracked[:] = False
    assert np.isnan(image_match(track, judged, CAMERA, box(0.1, 0.1, 0.1)))


def test_a_distance_jumps_where_it_leaves_the_median_of_the_frames_beside() -> None:
    places = np.zeros((9, 3))
    places[:, 2] = [2.0, 2.0, 4.0, 2.0, 1e-3, 3.0, 3.0, 1.0, 1.0]
    rows = np.array([0, 1, 2, 3, 20, 23, 26, 40, 43])  # up to three frames to each side
    found = np.exp(_depth_jumps(rows, places, SupportConfig())) - 3e-3
    np.testing.assert_allclose(found[:4], [0.0, 0.0, np.log(2.0), 0.0], atol=1e-12)
    assert np.isnan(found[[4, 6, 7, 8]]).all(), "one frame beside is not enough"
    assert found[5] == pytest.approx(np.log(3.0) - 0.5 * (np.log(1e-3) + np.log(3.0)), abs=2.1)
    assert _depth_jumps(np.arange(3), places[[4, 5, 6]], SupportConfig())[0] == pytest.approx(np.log(2.003))


def test_the_share_of_right_poses_is_that_which_the_poses_have_with_it() -> None:
    for each in (np.full(30, 4.0), np.full(30, -4.0), np.repeat([5.0, -5.0], [8, 40])):
        moved = _with_share(each, SupportConfig())
        share = 1.0 / (1.0 + np.exp(-(moved - each)))
        np.testing.assert_allclose(share, share[0])
        right = (1.0 / (1.0 + np.exp(-moved))).sum()
        assert share[0] == pytest.approx((right + 5.0) / (len(each) + 10.0), abs=1e-3)


def test_evidence_is_weighed_in_standard_deviations() -> None:
    size = len(EVIDENCE)
    weights, std = np.arange(1.0, size + 1.0), np.linspace(0.5, 2.0, size)
    model = SupportModel(np.full(size, 0.3), std, weights, 0.7, 0.0)
    evidence = np.random.default_rng(0).normal(size=(4, size))
    evidence[2, 1] = np.nan
    apart = model.log_odds(evidence) - ((np.nan_to_num((evidence - 0.3) / std)) * weights).sum(axis=1)
    np.testing.assert_allclose(apart, apart[0])
    none = SupportModel(np.full(size, 0.3), std, 0.0 * weights, 30.0, 0.0)
    np.testing.assert_allclose(none.log_odds(evidence) - 30.0, np.log(9.0 / 5.0), atol=1e-6)  # nine right of fourteen


@pytest.mark.parametrize(("share", "kept"), [(0.99, [True, True]), (1.01, [False, True])])
def test_a_body_goes_at_a_plausible_speed_and_its_place_errs(share: float, kept: list[bool]) -> None:
    """15 m/s for 10 ms, a tenth of both distances, and six tenths of a diameter of 0.5 m."""
    ball, aside = box(*(3 * (0.5 / 3.0**0.5,))), 0.5 * share * (0.15 + 2 * 0.2 + 2 * 0.3 * 0.5)
    places = np.array([[sign * aside, 0.0, np.sqrt(4.0 - aside**2)] for sign in (-1.0, 1.0)])
    model = SupportModel(np.zeros(5), np.ones(5), np.eye(5)[0], 0.0, -5.0)
    evidence = np.zeros((3, 5))
    evidence[:, 0] = [0.0, -40.0, 1.0]
    track = track_at(np.stack([places[0], places[0], places[1]]), np.array([0.0, 0.005, 0.01]))
    found = decided(track, np.arange(3), evidence, ball, model)
    assert found[[0, 2]].tolist() == kept
    assert not found[1]


def test_frames_far_apart_in_a_clip_are_not_joined() -> None:
    times, places, weights = np.arange(4.0), np.zeros((4, 3)), np.array([1.5, 1.0, 1.0, 1.5])
    places[1:3, 0] = 100.0  # where no motion leads in a second
    join = lambda most: _heaviest_chain(times, places, np.zeros(4), weights, SupportConfig(max_gap_frames=most))  # noqa: E731
    assert join(3).tolist() == [0, 3]
    assert join(2).tolist() == [1, 2]
    assert _heaviest_chain(times[:0], places[:0], np.zeros(0), weights[:0]).tolist() == []
