"""Which fit of a frame's texture counts, from where frames are fitted, and what a fit states; with stand-ins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine.pose_geometry import project_points
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking import texture_refinement
from vid2phys.tracking.texture_refinement import (
    Fit,
    TextureRefiner,
    _best_fit,
    _better,
    _is_better,
    _least,
    _moved,
    _own_covariance,
    _pass,
    _resolve_mirrored,
    refine_texture,
)
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera

CAMERA = Camera(np.array([[400.0, 0.0, 160.0], [0.0, 400.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)
POINTS = np.array([[x, y, z] for x in (-0.05, 0.05) for y in (-0.05, 0.05) for z in (-0.05, 0.05)])
PLACE, ASIDE = np.array([0.02, -0.01, 0.8]), np.array([1.0, 0.0, 0.0])


def fit(score: float, by_pieces: bool = False, at: float = 0.0) -> Fit:
    """A fit whose pose is named by its x."""
    return Fit(Pose(np.eye(3), PLACE + at * ASIDE), 1e6 * np.eye(6), score, by_pieces)


def track(count: int, *tracked: int) -> Track:
    nothing = Track.of_nothing(np.arange(count) / 30.0, POINTS, Calibration(), np.zeros(1))
    seen = np.isin(np.arange(count), tracked)
    nothing.poses.rotation[seen], nothing.poses.translation[seen] = np.eye(3), PLACE
    bearings = nothing.observation.bearings + np.arange(count)[:, None, None]
    return replace(nothing, tracked=seen, observation=replace(nothing.observation, bearings=bearings))


class Body:
    """A textured body whose fits are given by how they were found; what was asked for is noted."""

    def __init__(self, **scores: Any) -> None:
        self.scores, self.asked = scores, list[tuple[Any, ...]]()

    def _found(self, way: str, i: int, at: float) -> Fit | None:
        self.asked.append((way, i, round(at, 3)))
        found = self.scores.get(way)
        found = found(i) if callable(found) else found
        return None if found is None else fit(*found) if isinstance(found, tuple) else fit(found)

    def fit(self, i: int, pose: Pose) -> Fit | None:
        return self._found("fit", i, float(pose.translation[0] - PLACE[0]))

    def mirrored(self, i: int, found: Fit) -> Fit | None:
        return self._found("mirrored", i, float(found.pose.translation[0] - PLACE[0]))

    def searched(self, i: int, bearings: Array) -> Fit | None:
        assert (bearings == i).all()
        return self._found("searched", i, 0.0)


def best(body: Body, i: int, tracked: bool, now: Fit | None = None, before: Fit | None = None) -> Fit | None:
    one: Any = body
    return _best_fit(one, track(8, *([i] if tracked else [])), i, now, before)


def test_patches_count_more_than_colours_and_the_higher_score_else() -> None:
    low, high, pieces = fit(0.3), fit(0.9), fit(0.26, by_pieces=True)
    assert _better(low, high) is _better(high, low) is high
    assert _better(pieces, high) is _better(high, pieces) is pieces
    assert _better(None, low) is _better(low, None) is low
    assert _better(None, None) is None


def test_the_pose_of_the_frame_before_is_tried_where_that_frame_is_explained_better() -> None:
    assert not _is_better(None, fit(0.1))
    assert not _is_better(fit(0.9), fit(0.1, by_pieces=True)), "nothing is better than patches"
    assert _is_better(fit(0.3, by_pieces=True), fit(0.9))
    assert _is_better(fit(0.54), fit(0.5))
    assert not _is_better(fit(0.52), fit(0.5))


def test_the_least_fit_is_a_share_of_the_usual_one_or_by_patches() -> None:
    colours = [fit(score) for score in (0.5, 0.6, 0.9)]
    assert _least([*colours, None]) == (False, pytest.approx(0.36))
    assert _least([fit(0.3), fit(0.3), fit(0.2)]) == (False, 0.25)
    assert _least([]) == _least([None]) == (False, np.inf)
    pieces = [fit(0.4, by_pieces=True)] * 3
    assert _least([*colours, *pieces]) == (False, pytest.approx(0.36)), "half of the frames by patches"
    assert _least([*colours, *pieces, pieces[0]]) == (True, 0.0)
    assert _least([*colours[:2], fit(0.24), *pieces]) == (True, 0.0), "what is not explained does not count"
    assert _least([*colours[:2], fit(0.25), *pieces])[0] is False


def test_patches_of_the_frame_before_are_enough() -> None:
    body, before = Body(fit=(0.5, True)), fit(0.6, at=0.3)
    found = best(body, 0, True, before=before)
    assert found is not None
    assert found.by_pieces
    assert body.asked == [("fit", 0, 0.3)]


def test_a_frame_that_goes_on_as_before_is_not_detected_anew() -> None:
    body, before = Body(fit=0.58), fit(0.6, at=0.3)
    assert best(body, 1, True, before=before) is not None
    assert body.asked == [("fit", 1, 0.3)]
    worse = Body(fit=0.56, mirrored=0.7)
    found = best(worse, 1, True, before=before)
    assert found is not None
    assert found.score == 0.7
    assert worse.asked == [("fit", 1, 0.3), ("fit", 1, 0.0), ("mirrored", 1, 0.0)]
    every_fifth = Body(fit=0.58)
    best(every_fifth, 5, True, before=before)
    assert every_fifth.asked == [("fit", 5, 0.3), ("fit", 5, 0.0), ("mirrored", 5, 0.0)]


def test_a_frame_with_a_fit_is_tried_from_the_frame_before_alone() -> None:
    body = Body(fit=0.4)
    found = best(body, 2, True, now=fit(0.5, at=0.2), before=fit(0.6, at=0.3))
    assert found is not None
    assert found.score == 0.5
    assert body.asked == [("fit", 2, 0.3)]
    lost = Body(fit=0.1)
    assert best(lost, 2, False, before=fit(0.6)) is not None
    assert lost.asked == [("fit", 2, 0.0)], "where nothing was detected, nothing else is tried"
    assert best(Body(fit=0.4), 2, False) is None


def test_all_orientations_are_tried_where_nothing_explains_a_detection() -> None:
    for score, ways in (
        (0.26, ["fit", "mirrored"]),
        (0.24, ["fit", "mirrored", "searched"]),
        (None, ["fit", "searched"]),
    ):
        body = Body(fit=score, mirrored=0.1, searched=0.4)
        found = best(body, 5, True)
        assert found is not None
        assert found.score == max(score or 0.0, 0.4 if "searched" in ways else 0.0)
        assert [way for way, *_ in body.asked] == ways
    others = Body(searched=0.4)
    assert best(others, 4, True) is None, "only in every fifth frame"
    pieces = Body(fit=(0.3, True))
    best(pieces, 5, True)
    assert [way for way, *_ in pieces.asked] == ["fit"], "patches do not need the mirrored pose"


def test_a_pass_carries_a_fit_on_and_not_across_a_second() -> None:
    """Only frame 1 is detected; the others follow from the frame before, in both directions."""
    shares = list[float]()
    body: Any = Body(fit=lambda i: (0.5, False, 0.01 * (i + 1)))
    fits: list[Fit | None] = [None] * 4
    _pass(body, track(4, 1), fits, range(4), shares.append)
    assert [each is not None for each in fits] == [False, True, True, True]
    assert shares == [0.0, 0.25, 0.5, 0.75]
    assert body.asked == [("fit", 1, 0.0), ("fit", 2, 0.02), ("fit", 3, 0.03)] or body.asked == [
        ("fit", 1, 0.0), ("mirrored", 1, 0.02), ("fit", 2, 0.02), ("fit", 3, 0.03)
    ]  # fmt: skip
    body.asked.clear()
    _pass(body, track(4, 1), fits, range(3, -1, -1), None)
    assert body.asked == [("fit", 0, 0.02)], "fits that are as good stay"
    slow = track(4, 1)
    slow = replace(slow, observation=replace(slow.observation, times_s=np.array([0.0, 2.0, 2.9, 4.1])))
    fits = [None] * 4
    _pass(body, slow, fits, range(4), None)
    assert [each is not None for each in fits] == [False, True, True, False], "1.2 s later nothing is adjacent"


def test_a_clip_is_passed_both_ways_and_each_pass_is_half_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pass explains three frames of four; the second one mends frame 1. Frame 3 is below the least rank."""
    orders, shares, believed = list[list[int]](), list[float](), list[Any]()

    def passed(body: Any, given: Track, fits: list[Fit | None], order: Any, progress: Any) -> None:
        orders.append(list(order))
        if progress is not None:
            progress(0.0)
            progress(0.5)
        if len(orders) % 2:
            fits[1:] = [fit(0.3, at=1.0), fit(0.9, at=2.0), fit(0.2, at=3.0)]
        else:
            fits[1] = fit(0.8, at=1.5)

    def moved(given: Track, camera: Camera, fits: dict[int, Fit], calibration: Calibration) -> Any:
        believed.append({i: each.score for i, each in fits.items()})
        return "moved"

    monkeypatch.setattr(texture_refinement, "_pass", passed)
    monkeypatch.setattr(texture_refinement, "_moved", moved)
    monkeypatch.setattr(texture_refinement, "Patches", lambda mesh: None)
    monkeypatch.setattr(texture_refinement, "_resolve_mirrored", lambda body, times_s, fits: None)
    given: Any = None
    for progress in (shares.append, None):
        result, explained = refine_texture(given, CAMERA, given, given, track(4, 1, 2), Calibration(), progress)
        assert result == "moved"  # type: ignore[comparison-overlap]
        assert explained.tolist() == [False, True, True, False]
    assert orders == 2 * [[0, 1, 2, 3], [3, 2, 1, 0]]
    assert shares == [0.0, 0.25, 0.5, 0.75]
    assert believed == 2 * [{1: 0.8, 2: 0.9}]


def test_a_frame_that_is_hardly_explained_is_not_followed() -> None:
    body: Any = Body(fit=0.24)
    fits: list[Fit | None] = [None] * 3
    _pass(body, track(3, 1), fits, range(3), None)
    assert [each is not None for each in fits] == [False, True, False]
    pieces: Any = Body(fit=(0.1, True))
    fits = [None] * 3
    _pass(pieces, track(3, 1), fits, range(3), None)
    assert [each is not None for each in fits] == [False, True, True]


def test_a_mirrored_pose_is_chosen_by_continuity_and_by_all_patches() -> None:
    """The patches of one frame say little for the mirrored pose, those of the others much against it."""
    mirror = matrix_from_rotvec(np.array([[0.0, 1.0, 0.0]]))[0]
    here = fit(0.5, by_pieces=True)
    there = replace(here, pose=Pose(mirror, PLACE))

    def resolved(scores: list[tuple[float, float]]) -> list[bool]:
        fits: list[Fit | None] = [None, *(replace(here, score=score) for score, _ in scores), fit(0.9)]
        others = [replace(there, score=score) for _, score in scores]
        body: Any = SimpleNamespace(other=lambda i, _: others[i - 1])
        _resolve_mirrored(body, np.arange(len(fits)) / 30.0, fits)
        assert fits[0] is None
        assert fits[-1] is not None
        assert fits[-1].score == 0.9, "colours stay"
        return [each is not None and bool(np.allclose(each.pose.rotation, mirror)) for each in fits[1:-1]]

    assert resolved([(0.6, 0.3), (0.45, 0.5), (0.6, 0.3)]) == [False] * 3
    assert resolved([(0.3, 0.6), (0.5, 0.45), (0.3, 0.6)]) == [True] * 3
    nothing: list[Fit | None] = [None, fit(0.5)]
    _resolve_mirrored(SimpleNamespace(), np.zeros(2), nothing)  # type: ignore[arg-type]


class Patches:
    """Patches that agree near a pose at an x of zero, within a reach."""

    def __init__(self, reach_m: float, share: float) -> None:
        self.reach_m, self.share = reach_m, share

    def fit(self, frame: Any, camera: Camera, pose: Pose) -> Any:
        if abs(pose.translation[0] - PLACE[0]) > self.reach_m:
            return None
        return SimpleNamespace(pose=Pose(np.eye(3), PLACE), information=3.0 * np.eye(6), share=self.share)


@pytest.mark.parametrize(("reach_m", "share", "colours_at", "expected"), [
    (1.0, 0.3, 0.0, (True, 0.3)),
    (1.0, 0.24, 0.01, (False, 0.7)),  # too few patches agree
    (1.0, 0.25, 0.01, (True, 0.25)),
    (0.05, 0.3, 0.01, (True, 0.3)),  # colours lead near enough for patches
    (0.05, 0.3, 0.09, (False, 0.7)),
    (0.05, 0.3, None, None),
])  # fmt: skip
def test_colours_are_fitted_where_patches_do_not_agree(
    reach_m: float,
    share: float,
    colours_at: float | None,
    expected: tuple[bool, float] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_colours = None if colours_at is None else SimpleNamespace(
        pose=Pose(np.eye(3), PLACE + colours_at * ASIDE), information=np.eye(6), score=0.7
    )  # fmt: skip
    monkeypatch.setattr(texture_refinement, "fit_texture", lambda *_: by_colours)
    patches, unused = Patches(reach_m, share), SimpleNamespace()
    body = TextureRefiner([np.zeros((1, 1, 3), np.uint8)], CAMERA, unused, patches)  # type: ignore[arg-type]
    found = body.fit(0, Pose(np.eye(3), PLACE + 0.1 * ASIDE))
    assert (None if found is None else found.rank) == expected
    if found is not None:
        assert found.information[0, 0] == (3.0 if found.by_pieces else 0.01)


def test_a_search_ends_with_the_first_pose_that_patches_agree_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [fit(0.3), fit(0.2), fit(0.4, by_pieces=True), fit(0.9, by_pieces=True)]
    tried = list[int]()

    def each(self: TextureRefiner, i: int, pose: Pose) -> Fit:
        tried.append(int(pose.translation[0]))
        return ranks[tried[-1]]

    monkeypatch.setattr(TextureRefiner, "fit", each)
    poses = [Pose(np.eye(3), np.array([float(k), 0.0, 1.0])) for k in range(4)]
    monkeypatch.setattr(texture_refinement, "search", lambda *_: poses[: len(poses)])
    unused: Any = SimpleNamespace()
    body = TextureRefiner([np.zeros((1, 1, 3), np.uint8)], CAMERA, unused, unused)
    assert body.searched(0, np.zeros((8, 2))) is ranks[2]
    assert tried == [0, 1, 2]
    del poses[2:]
    assert body.searched(0, np.zeros((8, 2))) is ranks[0]


def test_a_pose_errs_as_keypoints_that_err_by_a_share_of_the_body() -> None:
    """The covariance is that of least squares by differences, in the modes of a pose, with a weak prior."""
    pose = Pose(matrix_from_rotvec(np.array([[0.4, -0.3, 0.2]]))[0], PLACE)
    found, step = _own_covariance(pose, CAMERA, POINTS), 1e-6
    seen = lambda moved: project_points(pose.retract(moved), POINTS)  # noqa: E731
    slope = np.stack([(seen(step * d) - seen(-step * d)) / (2.0 * step) for d in np.eye(6)], axis=-1)
    size = np.ptp(project_points(pose, POINTS), axis=0).max()
    weak = 30.0 * np.array([0.03, 0.03, 0.03, 1e-3, 1e-3, 6e-3])
    information = np.einsum("kia,kib->ab", slope, slope) / (0.003 * size) ** 2 + np.diag(weak**-2.0)
    np.testing.assert_allclose(found @ information, np.eye(6), atol=1e-3)
    off = Pose(pose.rotation, np.array([5.0, 0.0, 0.8]))  # no point in the frame
    np.testing.assert_allclose(_own_covariance(off, CAMERA, POINTS), np.diag(weak**2), rtol=1e-9)


def test_fits_become_measured_poses_of_their_frames() -> None:
    before = track(4, 0, 1)
    before.quality[:2] = 0.9
    before.poses.covariance[:2] = np.eye(6)
    sure, unsure = fit(0.5, at=0.01), replace(fit(0.6, at=0.02), information=np.zeros((6, 6)))
    errors = replace(Calibration(), correlation_time_s=(0.2,) * 6, align_correlation_s=(0.5, 0.1, 0.3, 0.1, 0.1, 0.1))
    found = _moved(before, CAMERA, {1: sure, 3: unsure}, errors)
    assert found.tracked.tolist() == [True, True, False, True]
    np.testing.assert_array_equal(found.quality, [0.9, 0.9, 0.0, 0.6])
    assert found.poses.inliers[3].all()
    assert not found.poses.inliers[1].any()
    np.testing.assert_array_equal(found.poses.covariance[1], 0.0)
    np.testing.assert_array_equal(found.poses.covariance[0], np.eye(6))
    measured = found.observation.configuration
    assert measured is not None
    assert measured.measured.tolist() == [False, True, False, True]
    for i, each in ((1, sure), (3, unsure)):
        np.testing.assert_array_equal(found.poses.translation[i], each.pose.translation)
        np.testing.assert_array_equal(measured.covariance[i], _own_covariance(each.pose, CAMERA, POINTS))
    floor = np.array([0.03, 0.03, 0.03, 1e-3, 1e-3, 6e-3])
    np.testing.assert_allclose(np.diag(measured.shared_basis[3]), floor * np.sqrt(901.0))
    known = 1.0 / (1e6 + (30.0 * floor) ** -2.0)
    np.testing.assert_allclose(np.diag(measured.shared_basis[1]), np.sqrt(known + floor**2))
    np.testing.assert_allclose(found.observation.process_time_s, [0.5, 0.2, 0.3, 0.2, 0.2, 0.2])
