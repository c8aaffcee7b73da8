"""Which frames count as tracked: right poses of a rendered body are supported by the image, wrong ones are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.distractor_clips import DistractorClip, make_clip
from tests.synthetic import cross_mesh
from vid2phys.commands.identify.fit import _support_notes
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_quat, quat_from_rotvec
from vid2phys.notes import Severity, severity_of
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.tracking.first_pass import FrameStore
from vid2phys.tracking.support import EVIDENCE, SupportModel, _heaviest_chain, evidence_of, supported
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Mesh


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
