"""The tracker of a body on a hinge: its rounds beside closed forms, and images of a bar that swings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray

from tests.swinging_bar import CAMERA, LENGTH_M, images, in_camera, mesh_of, swing
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import array_clip
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.light import smaller
from vid2phys.tracking.cues.surfaces import PoseModel
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.hinge import Hinge, HingeStart
from vid2phys.tracking.hinge_config import DEFAULTS
from vid2phys.tracking.hinge_tracker import NOTHING, Candidate, HingeImages, _best_and_rival, track_hinge
from vid2phys.tracking.learned_surfaces import LearnedSurfaces
from vid2phys.types import Array, Mesh

FRAMES, LOST = 14, 5
MOTION = swing(FRAMES)
TRUTH = in_camera(MOTION)
HINGE = Hinge(TRUTH[0], np.array([0.0, 1.0, 0.0]), np.array([-LENGTH_M, 0.0, 0.0]))
ANGLES = MOTION.angles - MOTION.angles[0]
FALSE = np.array([0.02, -0.015, 0.03, 0.002, -0.002, 0.015])


def track_of(poses: Pose, tracked: NDArray[np.bool_]) -> Any:
    """A free track; its poses are not finite where it is lost."""
    poses = Pose(np.where(tracked[:, None, None], poses.rotation, np.nan), poses.translation)
    return SimpleNamespace(tracked=tracked, poses=SimpleNamespace(pose=poses))


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return mesh_of(tmp_path_factory.mktemp("bar") / "bar.obj")


@pytest.fixture(scope="module")
def frames(mesh: Mesh) -> list[NDArray[np.uint8]]:
    return images(MOTION, mesh)


@pytest.fixture(scope="module")
def shown(frames: list[NDArray[np.uint8]], mesh: Mesh) -> HingeImages:
    """The clip and its foreground, which a track that is lost in one frame has taught."""
    return HingeImages.of(frames, CAMERA, mesh, track_of(TRUTH, np.arange(FRAMES) != LOST), DEFAULTS)


def unseen(count: int, **config: Any) -> HingeImages:
    """A tracker of a clip whose images nothing asks for."""
    tracked = object.__new__(HingeImages)
    vars(tracked).update(frames=range(count), config=replace(DEFAULTS, **config))
    return tracked


def apart_px(pose: Pose, truth: Pose, mesh: Mesh) -> float:
    """Root mean square distance of the body's corners in the image from where they are."""
    a, b = (each.apply(mesh.vertices) @ np.asarray(CAMERA.K).T for each in (pose, truth))
    return float(np.sqrt(((a[:, :2] / a[:, 2:] - b[:, :2] / b[:, 2:]) ** 2).sum(axis=1).mean()))


def towards(targets: Pose, share: float = 1.0) -> Any:
    """A cue by which each frame states its own pose, with equal information about all coordinates."""

    def cue(i: int, pose: Pose, gain_only: bool = False) -> PoseModel:
        off = pose.step_to(targets[i])
        return PoseModel(np.eye(6), share * off, -0.5 * float(off @ off))

    return cue


def test_the_foreground_is_the_body_also_where_the_track_is_lost(shown: HingeImages, mesh: Mesh) -> None:
    for i in (2, LOST, 11):
        seen = shown._seen(i)
        fit = seen.judged(TRUTH[i], None)
        assert fit.overlap > 0.95
        assert seen.judged(TRUTH[i].retract(4.0 * FALSE), None).overlap < fit.overlap - 0.02
    np.testing.assert_array_equal(
        shown._overlaps(TRUTH), [shown._seen(i).judged(TRUTH[i], None).overlap for i in range(FRAMES)]
    )


def test_half_the_size_has_the_mean_of_light() -> None:
    board = np.zeros((7, 9, 3), np.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 255
    grey = np.full((7, 9, 3), 93, np.uint8)
    halved = FrameStore.reduced([board, grey], smaller(replace(CAMERA, width=9, height=7), 2), 2)
    assert len(halved) == 2
    assert halved[0].shape == (3, 4, 3)
    np.testing.assert_array_equal(halved[0], round(255.0 * 0.5 ** (1.0 / 2.2)))
    np.testing.assert_array_equal(halved[1], 93)


def test_only_a_large_body_is_compared_at_half_the_size(shown: HingeImages, mesh: Mesh) -> None:
    track = track_of(TRUTH, np.ones(FRAMES, bool))
    side_px = np.sqrt(np.mean([(shown._seen(i).log_ratio > 0.0).sum() for i in (FRAMES // 2,)]))
    large, small = (replace(shown, config=replace(DEFAULTS, large_px=s * side_px)) for s in (0.9, 1.1))
    assert small.halved(track) is small
    halved = large.halved(track)
    assert (halved.camera.width, halved.camera.height) == (160, 120)
    assert len(halved.frames) == FRAMES
    assert halved._seen(3).judged(TRUTH[3], None).overlap > 0.9


def test_frames_that_disagree_with_the_hinge_count_less() -> None:
    steps = 1e-3 * np.eye(6)[[0, 1, 2, 3, 4]]
    steps[4] *= 100.0
    models = [PoseModel(np.eye(6), step, 0.0) for step in steps]
    cue = lambda i, _: None if i == 7 else models[i]  # noqa: E731
    rows = np.array([0, 1, 2, 3, 4, 7])
    information, pull = unseen(8)._models(rows, TRUTH[rows], cue)
    weight = information[:, 0, 0]
    np.testing.assert_allclose(weight, [*[1.0 / (1.0 + 1.0 / 9.0)] * 4, 1.0 / (1.0 + 1e4 / 9.0), 0.0], rtol=1e-6)
    np.testing.assert_allclose(information, weight[:, None, None] * np.eye(6), atol=1e-12)
    np.testing.assert_allclose(pull[:5], weight[:5, None] * steps, atol=1e-12)
    np.testing.assert_array_equal(pull[5], 0.0)


def test_angles_step_to_the_best_ones_on_a_known_hinge() -> None:
    rows = np.arange(4)
    off = np.array([0.01, -0.02, 1.0, -1.0])
    found = unseen(4)._turned(HINGE, ANGLES[:4] + off, rows, towards(TRUTH))
    np.testing.assert_allclose(found[:2], ANGLES[:2], atol=2e-5)
    np.testing.assert_allclose(found[2:] - ANGLES[2:4], [0.7, -0.7], atol=1e-9)  # 0.3 rad at most


@pytest.mark.parametrize(
    ("share", "doublings", "length"), [(0.25, 4, 4.0), (0.25, 1, 2.0), (1.0, 4, 1.0), (1.9, 4, 1.0)]
)
def test_a_step_is_doubled_while_the_evidence_grows(share: float, doublings: int, length: float) -> None:
    """The models state a share of the step to the best pose, so that the best step is longer than theirs."""
    tracked, rows, off = unseen(FRAMES, doublings=doublings), np.arange(6), 0.004
    _, angles, moved, gain = tracked._longer_round(HINGE, ANGLES[:6] + off, rows, towards(TRUTH, share))
    left = ANGLES[:6] + off - angles
    np.testing.assert_allclose(left, length * share * off, rtol=0.01)
    per_radian = float(np.sqrt((HINGE.slopes(ANGLES[:6])[..., -1] ** 2).mean()))
    assert moved == pytest.approx(share * off * per_radian, rel=0.01)
    rest = (1.0 - length * share) * off * per_radian
    assert gain == pytest.approx(-0.5 * 36 * rest**2, rel=0.05, abs=1e-9)


def test_evidence_of_frames_adds_up_and_an_empty_frame_has_none() -> None:
    gains = {0: 2.0, 3: None, 4: 5.0}

    def cue(i: int, pose: Pose, gain_only: bool = False) -> PoseModel | None:
        assert gain_only
        np.testing.assert_allclose(pose.rotation, TRUTH[i].rotation, atol=1e-9)
        gain = gains[i]
        return None if gain is None else replace(NOTHING, gain=gain)

    rows = np.array([0, 3, 4])
    assert unseen(5)._gain(HINGE, ANGLES[rows], rows, cue) == 7.0


def test_lines_across_the_foreground_lead_to_the_body(shown: HingeImages, mesh: Mesh) -> None:
    for i in (1, 8):
        start = TRUTH[i].retract(FALSE)
        pose = start
        for _ in range(3):
            found = shown._by_foreground(i, pose, 0.1)
            assert found is not None
            np.testing.assert_allclose(found.information, found.information.T, rtol=1e-9)
            assert (np.linalg.eigvalsh(found.information) > 0.0).all()
            pose = pose.retract(np.linalg.solve(found.information, found.pull))
        assert apart_px(start, TRUTH[i], mesh) > 2.5
        assert apart_px(pose, TRUTH[i], mesh) < 1.0


def test_a_foreground_that_may_be_wider_says_less_about_the_distance(shown: HingeImages) -> None:
    sure = replace(shown, config=replace(DEFAULTS, wider_px=1e-6))
    strict, free = sure._by_foreground(4, TRUTH[4], 0.05), shown._by_foreground(4, TRUTH[4], 0.05)
    assert strict is not None
    assert free is not None
    less = np.linalg.eigvalsh(strict.information - free.information)
    assert less[-1] > 0.0
    np.testing.assert_allclose(less[:-1], 0.0, atol=1e-6 * less[-1])  # of one width
    assert free.information[5, 5] < 0.7 * strict.information[5, 5]
    assert free.information[3, 3] > 0.9 * strict.information[3, 3]


def test_a_foreground_states_nothing_of_a_body_that_it_does_not_show(shown: HingeImages) -> None:
    pose = TRUTH[4]
    behind, far = (Pose(pose.rotation, factor * pose.translation) for factor in (-1.0, 60.0))
    assert [shown._by_foreground(4, each, 0.1) for each in (behind, far)] == [None, None]


def test_the_contour_leads_to_the_body(shown: HingeImages, mesh: Mesh) -> None:
    start = TRUTH[6].retract(0.5 * FALSE)
    pose = start
    for _ in range(8):
        found = shown._by_contour(6, pose)
        assert found is not None
        prior = np.diag(np.array(DEFAULTS.prior_std) ** -2.0)
        pose = pose.retract(np.linalg.solve(found.information + prior, found.pull))
    assert apart_px(start, TRUTH[6], mesh) > 1.2
    assert apart_px(pose, TRUTH[6], mesh) < 0.5
    again = shown._by_contour(6, pose)
    assert again is not None
    assert np.abs(np.linalg.solve(again.information + prior, again.pull)).max() < 2e-3


def test_a_frame_without_the_body_has_no_contour(shown: HingeImages) -> None:
    flat = replace(shown, frames=[np.full((240, 320, 3), 90, np.uint8)] * FRAMES)
    assert flat._by_contour(6, TRUTH[6]) is None


def test_surfaces_take_a_false_hinge_to_the_bodys(shown: HingeImages, mesh: Mesh) -> None:
    rows = np.array([0, 6, 13])
    false = HINGE.retract(np.array([0.015, -0.01, 0.0, 0.001, -0.001, 0.004, 0.0, 0.0, 0.0, 0.0]))
    start = HingeStart(false, ANGLES + 0.02, 0.8)
    found = shown.finer(start, rows)
    assert found.start.agreement == 0.8
    before, after = (
        [apart_px(at.hinge.poses(at.angles)[i], TRUTH[i], mesh) for i in range(FRAMES)] for at in (start, found.start)
    )
    assert min(before) > 1.5
    assert max(after) < 0.5
    assert found.gain > replace(shown, config=replace(DEFAULTS, start_rounds=1)).finer(start, rows).gain
    fixed = replace(shown, config=replace(DEFAULTS, start_rounds=0)).finer(start, rows, fixed_rounds=3)
    np.testing.assert_allclose(fixed.start.hinge.axis, HINGE.axis, atol=1e-6)
    assert not np.allclose(found.start.hinge.axis, HINGE.axis, atol=1e-4)


def test_edges_take_a_hinge_that_is_far_off_to_the_body(shown: HingeImages, mesh: Mesh) -> None:
    rows = np.array([0, 6, 13])
    start = HingeStart(HINGE, ANGLES + 0.05, 0.8)
    found = replace(shown, config=replace(DEFAULTS, start_rounds=1)).by_edges(start, rows)
    after = [apart_px(found.start.hinge.poses(found.start.angles)[i], TRUTH[i], mesh) for i in range(FRAMES)]
    assert max(after) < 1.5


@pytest.mark.parametrize(
    ("is_flat", "ratio", "is_textured"), [(True, 0.5, True), (True, 0.7, False), (False, 0.5, False)]
)
def test_a_texture_counts_where_it_explains_flat_sides_better(
    is_flat: bool,
    ratio: float,
    is_textured: bool,
    frames: list[NDArray[np.uint8]],
    mesh: Mesh,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_flat:
        ball = trimesh.creation.icosphere(3, 0.05)
        mesh = Mesh(np.asarray(ball.vertices), np.asarray(ball.faces), np.zeros(len(ball.faces), np.int64))
    seen = []

    def model(self: LearnedSurfaces, i: int, pose: Pose, gain_only: bool = False) -> PoseModel:
        seen.append((i, gain_only))
        return replace(NOTHING, cost=10.0 * (ratio if self.is_textured else 1.0))

    monkeypatch.setattr(LearnedSurfaces, "model", model)
    track = track_of(TRUTH, np.ones(FRAMES, bool))
    shown = HingeImages(
        frames, CAMERA, Solid.of(mesh), HingeImages.of(frames[:2], CAMERA, mesh, track, DEFAULTS).foreground, DEFAULTS
    )
    rows = np.array([2, 4, 8])
    learned = shown._cue_of_surfaces(rows, TRUTH[rows], 2).__self__  # type: ignore[attr-defined]
    assert learned.is_textured is is_textured
    assert learned.backdrop.known.mean() > 0.9
    assert set(seen) == ({(i, True) for i in rows} if is_flat else set())


def test_known_axes_are_tried_where_the_hinge_is_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[tuple[HingeStart, int]]()

    def finer(self: HingeImages, start: HingeStart, rows: Array, fixed_rounds: int = 0) -> Candidate:
        tried.append((start, fixed_rounds))
        return Candidate(start, 1.0)

    monkeypatch.setattr(HingeImages, "finer", finer)
    tracked, rows = unseen(FRAMES), np.arange(3)

    def squared(tilt: float) -> list[Candidate]:
        at = HINGE.retract(np.array([0.0] * 6 + [np.tan(tilt), 0.0, 0.0, 0.0]))
        return tracked.squared(HingeStart(at, ANGLES, 0.7), rows, np.eye(3), np.zeros(3))

    assert squared(0.045) == squared(-0.045) == []
    assert len(squared(0.055)) == len(tried) == 2
    for start, fixed_rounds in tried:
        np.testing.assert_allclose(start.hinge.axis, HINGE.axis, atol=1e-12)
        assert (start.agreement, fixed_rounds) == (0.7, 6)


def test_the_descent_ends_where_nothing_moves_and_reports_its_share(shown: HingeImages, mesh: Mesh) -> None:
    start, shares = HingeStart(HINGE, ANGLES + 0.01, 0.9), list[float]()
    found = replace(shown, config=replace(DEFAULTS, fine_frames=3, max_rounds=12)).descended(
        start, (3, 2), shares.append
    )
    assert 5 <= len(shares) < 12, "two rounds for each margin, and one that changes nothing"
    np.testing.assert_allclose(shares, np.arange(1, len(shares) + 1) / 12)
    assert max(apart_px(found.hinge.poses(found.angles)[i], TRUTH[i], mesh) for i in range(FRAMES)) < 0.5


def test_a_frame_that_hides_the_body_is_lost(frames: list[NDArray[np.uint8]], shown: HingeImages) -> None:
    hidden = list(frames)
    hidden[9] = np.median(frames, axis=0).astype(np.uint8)
    hidden[9][:, 160:] = frames[0][:, 160:]
    some = replace(shown, frames=hidden, config=replace(DEFAULTS, fine_frames=4, start_frames=4))
    free = Pose(TRUTH.rotation, TRUTH.translation.copy())
    free.translation[:7] *= 1.1
    found = some.adjusted(HingeStart(HINGE, ANGLES + 0.001, 1.0), track_of(free, np.arange(FRAMES) != LOST))
    there = np.arange(FRAMES) != 9
    np.testing.assert_array_equal(found.tracked, there)
    assert found.quality[there].min() > 0.95
    assert found.quality[9] < 0.35
    np.testing.assert_allclose(found.adjustment.angles[there], ANGLES[there], atol=2e-3)
    assert np.median(found.misfit[there]) < 1.0
    assert np.abs(found.off[there]).max() < 0.01
    assert found.agreement == 1.0
    worse = some.adjusted(HingeStart(HINGE.retract(8e-3 * np.eye(10)[4]), ANGLES, 1.0), track_of(TRUTH, there))
    assert np.median(worse.misfit[there]) > 3.0
    assert worse.agreement < 0.5


def test_another_axis_with_nearly_as_much_evidence_is_a_rival() -> None:
    near, aside = HINGE.retract(0.1 * np.eye(10)[0]), HINGE.rolled(np.eye(3), np.zeros(3)).retract(0.3 * np.eye(10)[0])

    def candidate(hinge: Hinge, gain: float) -> Candidate:
        return Candidate(HingeStart(hinge, ANGLES, 1.0), gain)

    best, close = candidate(HINGE, 100.0), candidate(aside, 95.1)
    assert _best_and_rival([candidate(near, 99.0), candidate(aside, 95.05), best, close], DEFAULTS) == [best, close]
    assert _best_and_rival([candidate(near, 99.0), best, candidate(aside, 94.9)], DEFAULTS) == [best]


@pytest.mark.parametrize("is_large", [False, True])
def test_the_start_with_most_evidence_is_followed(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three starts of which the second is the best, and becomes better by edges; the third has another axis."""
    aside = HINGE.rolled(np.eye(3), np.zeros(3)).retract(0.3 * np.eye(10)[0])
    tracked = np.arange(FRAMES) != LOST
    hinges = [HINGE, HINGE.retract(1e-3 * np.eye(10)[3]), aside]
    starts = [HingeStart(hinge, ANGLES[tracked], 0.5 + 0.1 * k) for k, hinge in enumerate(hinges)]
    rolled, square = replace(starts[0], agreement=0.1), replace(starts[0], agreement=0.2)
    gains, calls, shares = {0.5: 2.0, 0.6: 4.0, 0.7: 3.0, 0.1: 1.0, 0.2: 1.5}, list[tuple[Any, ...]](), list[float]()

    def note(name: str, more: float) -> Any:
        def refine(self: HingeImages, start: HingeStart, rows: Array) -> Candidate:
            calls.append((name, start.agreement))
            np.testing.assert_array_equal(rows, [0, 6, 13])
            if start.agreement >= 0.5:  # angles of all frames, in between where the track is lost
                np.testing.assert_allclose(start.angles[tracked], ANGLES[tracked])
                assert start.angles[LOST] == pytest.approx(0.5 * (ANGLES[LOST - 1] + ANGLES[LOST + 1]))
            return Candidate(start, gains[start.agreement] + more)

        return refine

    def squared(self: HingeImages, start: HingeStart, *others: object) -> list[Candidate]:
        calls.append(("squared", start.agreement))
        return [Candidate(square, gains[0.2])]

    def descended(self: HingeImages, start: HingeStart, margins_px: tuple[int, ...], report: Any) -> HingeStart:
        calls.append(("descended", start.agreement, margins_px))
        report(0.5)
        return start

    done: Any = SimpleNamespace(quality=1.0)
    small, module = unseen(FRAMES), "vid2phys.tracking.hinge_tracker."
    for name, other in (("finer", note("finer", 0.0)), ("by_edges", note("edges", 0.5)), ("squared", squared)):
        monkeypatch.setattr(HingeImages, name, other)
    monkeypatch.setattr(HingeImages, "descended", descended)
    monkeypatch.setattr(HingeImages, "adjusted", lambda *_: done)
    monkeypatch.setattr(HingeImages, "halved", lambda images, _: small if is_large else images)
    monkeypatch.setattr(HingeImages, "of", lambda *_: unseen(FRAMES))
    monkeypatch.setattr(module + "hinge_starts", lambda *_: starts)
    monkeypatch.setattr(module + "rolled_starts", lambda *_: [rolled])
    monkeypatch.setattr(module + "principal_axes", lambda *_: np.eye(3))
    monkeypatch.setattr(module + "replace", lambda each, **new: new if each is done else replace(each, **new))
    clip = array_clip(np.zeros((FRAMES, 8, 8, 3), np.uint8), MOTION.times_s, "swing")
    body: Any = SimpleNamespace(radius_m=0.2, vertices=np.zeros((1, 3)))
    shape: Any = SimpleNamespace(center=np.zeros(3))
    config = replace(DEFAULTS, start_frames=3)  # two by edges, margins of 6, 3 and 2 px
    found: Any = track_hinge(clip, CAMERA, body, shape, track_of(TRUTH, tracked), shares.append, config)
    assert found == {"rival": pytest.approx(3.5 / 4.5)}
    assert calls[:5] == [("finer", 0.5), ("finer", 0.6), ("finer", 0.7), ("edges", 0.6), ("edges", 0.7)]
    assert calls[5:8] == [("finer", 0.1), ("edges", 0.1), ("squared", 0.6)]
    last = [("descended", 0.6, (6, 3, 2)), ("descended", 0.6, (2,))]
    assert calls[8:] == (last if is_large else last[:1])
    np.testing.assert_allclose(shares, [0.2, 0.3, 0.5, 0.65] if is_large else [0.2, 0.3, 0.65])
