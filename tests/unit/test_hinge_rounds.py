"""Rounds of the tracker of a body on a hinge, with stand-ins of the images: what each is given, and when they end."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.swinging_bar import CAMERA
from tests.unit.test_hinge_tracker import ANGLES, FRAMES, HINGE, TRUTH, towards, track_of, unseen
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import array_clip
from vid2phys.tracking import hinge_tracker
from vid2phys.tracking.cues.surfaces import PoseModel
from vid2phys.tracking.hinge import HingeStart
from vid2phys.tracking.hinge_config import DEFAULTS
from vid2phys.tracking.hinge_tracker import (
    NOTHING,
    Candidate,
    HingeImages,
    HingeTrack,
    _best,
    _in_all_frames,
    track_hinge,
)
from vid2phys.types import Array

ROWS = np.array([0, 4, 8, 12])
START = HingeStart(HINGE, ANGLES + 0.3, 0.6)


def test_angles_go_on_through_half_a_rotation_where_a_track_is_lost() -> None:
    angles = np.array([3.0, 3.1, 3.3 - 2.0 * np.pi, 3.4 - 2.0 * np.pi])
    found = _in_all_frames(HingeStart(HINGE, angles, 0.6), np.array([1, 2, 4, 5]), 7)
    np.testing.assert_allclose(found.angles, [3.0, 3.0, 3.1, 3.2, 3.3, 3.4, 3.4])
    assert found.agreement == 0.6


def moved_by_edges(monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[str, float | None, float]], HingeStart]:
    """The cues of the steps by edges, each of which adds a hundredth to the angle of the third frame shown."""
    steps, given = list[tuple[str, float | None, float]](), list[HingeStart]()

    def stepped(self: Any, hinge: Any, angles: Array, rows: Array, cue: Any, most: float, fixed: bool = False) -> Any:
        np.testing.assert_array_equal(rows, ROWS)
        np.testing.assert_allclose(angles[2] - START.angles[8], 0.01 * len(steps), atol=1e-12)
        reach = getattr(cue, "keywords", {}).get("reach")
        steps.append((getattr(cue, "func", cue).__name__, reach, most))
        return SimpleNamespace(hinge=hinge, angles=angles + 0.01 * np.eye(4)[2])

    monkeypatch.setattr(HingeImages, "_stepped", stepped)
    monkeypatch.setattr(HingeImages, "finer", lambda self, start, rows: given.append(start) or Candidate(start, 1.0))  # type: ignore[func-returns-value]
    unseen(FRAMES, start_rounds=3).by_edges(START, ROWS)
    return steps, given[0]


def test_edges_are_searched_ever_nearer_and_then_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, found = moved_by_edges(monkeypatch)
    assert steps[:4] == [("_by_foreground", reach, 0.3) for reach in (0.12, 0.08, 0.05, 0.03)]
    assert steps[4:] == [("_by_contour", None, 0.1)] * 3
    ramp = np.interp(np.arange(FRAMES), [4, 8, 12], [0.0, 0.07, 0.0])
    np.testing.assert_allclose(found.angles, START.angles + ramp)
    assert found.agreement == 0.6


def test_frames_between_those_of_a_start_move_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Surfaces that state the pose of each frame lead all angles there, by as many rounds as are asked for."""
    asked = list[tuple[list[int], int]]()

    def cue(self: Any, rows: Array, poses: Pose, margin_px: int) -> Any:
        asked.append((rows.tolist(), margin_px))
        np.testing.assert_allclose(poses.rotation, HINGE.poses(START.angles[rows]).rotation)
        return towards(TRUTH)

    monkeypatch.setattr(HingeImages, "_cue_of_surfaces", cue)
    fixed, longer = list[bool](), HingeImages._longer_round

    def noted(self: Any, *given: Any, **options: bool) -> Any:
        fixed.append(options["fixed"])
        return longer(self, *given, **options)

    monkeypatch.setattr(HingeImages, "_longer_round", noted)
    some = unseen(FRAMES, start_rounds=5, margins_px=(7, 2))
    found = some.finer(START, ROWS, 2)
    assert asked == [(ROWS.tolist(), 7)]
    assert fixed == [True] * 2 + [False] * 5
    after = found.start.hinge.poses(found.start.angles)
    shift = found.start.angles - START.angles
    np.testing.assert_allclose(shift, np.interp(np.arange(FRAMES), ROWS, shift[ROWS]))
    for i in ROWS:
        np.testing.assert_allclose(after[int(i)].step_to(TRUTH[int(i)]), 0.0, atol=1e-3)
    assert found.gain == pytest.approx(0.0, abs=1e-5)


def descent(monkeypatch: pytest.MonkeyPatch, moves: list[float], gains: list[float], rounds: int = 9) -> Any:
    """The margins asked for, and the shares reported, of a descent whose rounds move and gain so much."""
    margins, shares, done = list[int](), list[float](), list[int]()

    def cue(self: Any, rows: Array, poses: Pose, margin_px: int) -> int:
        margins.append(margin_px)
        return margin_px

    def longer(self: Any, hinge: Any, angles: Array, rows: Array, margin_px: int) -> Any:
        k = len(done)
        done.append(margin_px)
        return hinge, angles + 0.01, moves[k], gains[k]

    monkeypatch.setattr(HingeImages, "_cue_of_surfaces", cue)
    monkeypatch.setattr(HingeImages, "_longer_round", longer)
    found = unseen(FRAMES, fine_frames=3, max_rounds=rounds).descended(START, (6, 2), shares.append)
    np.testing.assert_allclose(found.angles, START.angles + 0.01 * len(done))
    np.testing.assert_allclose(shares, np.arange(1, len(done) + 1) / rounds)
    assert margins == [6, 2]
    return done


def test_a_descent_has_two_rounds_a_margin_and_ends_where_nothing_is_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    some, still = [1.0] * 9, DEFAULTS.still
    assert descent(monkeypatch, some, list(np.arange(9.0))) == [6, 6, 2, 2, 2, 2, 2, 2, 2]
    assert len(descent(monkeypatch, some, [0, 1, 2, 3, 4, 5, 5, 6, 7])) == 7, "no gain"
    assert len(descent(monkeypatch, some, [5, 4, 3, 2, 3, 4, 3, 6, 7])) == 7, "losses count at the last margin"
    assert len(descent(monkeypatch, [0.0] * 5 + some, list(np.arange(14.0)))) == 5, "nothing moves"
    few = [0.9 * still] * 4 + [1.1 * still, 0.9 * still, *some]
    assert len(descent(monkeypatch, few, list(np.arange(12.0)))) == 6


def test_a_hinge_explains_a_frame_as_well_with_a_twentieth_less() -> None:
    gains = {True: [96.0, 94.0, -104.0, -106.0, None], False: [100.0, 100.0, -100.0, -100.0, 1.0]}
    on, free = TRUTH, TRUTH.retract(1e-3 * np.eye(6)[0])

    def cue(i: int, pose: Pose, gain_only: bool = False) -> PoseModel | None:
        assert gain_only
        gain = gains[bool((pose.rotation == on[i].rotation).all())][i]
        return None if gain is None else replace(NOTHING, gain=gain)

    assert unseen(5)._as_well(on, track_of(free, np.arange(FRAMES) < 5), cue) == pytest.approx(0.4)
    assert unseen(5, start_frames=2)._as_well(on, track_of(free, np.arange(FRAMES) < 2), cue) == pytest.approx(0.5)


def test_the_best_step_of_a_model_is_near_zero_along_what_it_does_not_state() -> None:
    information = np.stack(
        [np.diag([2.0, 4.0, 1.0, 1.0, 1.0, 1.0]), np.diag([5.0, 5.0, 5.0, 5.0, 5.0, 0.0]), np.zeros((6, 6))]
    )
    pull = np.array([[2.0, 2.0, 0.0, 0.0, 0.0, 3.0], [5.0, 0.0, 0.0, 0.0, 0.0, 0.0], np.zeros(6)])
    found = _best(information, pull)
    np.testing.assert_allclose(found[0], [1.0, 0.5, 0.0, 0.0, 0.0, 3.0], rtol=3e-3)
    np.testing.assert_allclose(found[1], np.eye(6)[0], rtol=3e-3)
    np.testing.assert_array_equal(found[2], 0.0)


def test_misfits_are_in_stated_deviations_and_frames_without_surfaces_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that states its pose to 1 / 20, and is off by as much along one of six coordinates."""
    off = 0.05 * np.eye(6)[4]
    overlaps = np.full(FRAMES, 0.9)
    overlaps[[3, 4]] = 0.34, 0.36

    def cue(i: int, pose: Pose, gain_only: bool = False) -> PoseModel | None:
        return None if i == 6 else PoseModel(400.0 * np.eye(6), 400.0 * off, 1.0)

    monkeypatch.setattr(HingeImages, "_cue_of_surfaces", lambda *_: cue)
    monkeypatch.setattr(HingeImages, "_overlaps", lambda *_: overlaps)
    monkeypatch.setattr(HingeImages, "_turned", lambda self, hinge, angles, rows, cue: angles)
    found = unseen(FRAMES).adjusted(HingeStart(HINGE, ANGLES, 1.0), track_of(TRUTH, np.ones(FRAMES, bool)))
    assert np.flatnonzero(~found.tracked).tolist() == [3, 6]
    np.testing.assert_array_equal(found.quality, overlaps)
    there = np.arange(FRAMES) != 6
    weight = 1.0 / (1.0 + 1.0 / DEFAULTS.robust_sigma**2)
    np.testing.assert_allclose(found.off[there], np.tile(off, (FRAMES - 1, 1)), rtol=2e-3, atol=1e-12)
    np.testing.assert_allclose(found.misfit[there], np.sqrt(weight / 6.0), rtol=5e-3)
    assert found.misfit[6] == 0.0


def test_a_contour_states_its_fit_without_the_prior_that_kept_it_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit's own optimum solves (I + P) s = pull: so the pull of the information alone is that of the edges."""
    step, information = np.array([0.01, -0.02, 0.005, 1e-3, -5e-4, 2e-3]), np.diag(np.arange(1.0, 7.0)) * 1e6
    given = list[Any]()

    def fit(frame: Any, camera: Any, solid: Any, pose: Pose, *, prior: Array, config: Any) -> Any:
        given.append((prior, config.max_rounds))
        return SimpleNamespace(pose=pose.retract(step), information=9.0 * information, overconfidence=9.0)

    monkeypatch.setattr(hinge_tracker, "fit_contour", fit)
    images = unseen(FRAMES, edge_rounds=3)
    vars(images).update(camera=None, solid=None)
    found = images._by_contour(2, TRUTH[2])
    assert found is not None
    prior = np.diag(np.array(DEFAULTS.prior_std) ** -2.0)
    np.testing.assert_allclose(found.information, information)
    np.testing.assert_allclose(np.linalg.solve(information + prior, found.pull), step, atol=1e-9)
    assert given[0][1] == 3
    np.testing.assert_allclose(given[0][0], np.diag([400.0] * 3 + [1.0 / 9e-6] * 2 + [2500.0]))


def test_lines_across_the_foreground_share_its_unknown_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dense system of seven unknowns whose last one, the width, is known to be small."""
    rng = np.random.default_rng(0)
    root, gradient, same, reaches = rng.normal(size=(7, 9)), rng.normal(size=7), 4.0, list[float]()
    hessian = root @ root.T
    lines = SimpleNamespace(
        pixels=np.zeros((40, 2)), normals=None, size_px=50.0, points=np.zeros((40, 3)), along=np.zeros((40, 2))
    )
    images = unseen(FRAMES)
    mesh = SimpleNamespace(vertices=np.zeros((3, 3)))
    vars(images).update(camera=None, solid=SimpleNamespace(mesh=mesh, draw=lambda _: SimpleNamespace()))
    seen = SimpleNamespace(
        log_ratio=None,
        config=SimpleNamespace(min_lines=8, min_size_px=20.0, min_reach_px=3.0, steps=9, correlated_px=2.0),
    )
    jacobians = list[Array]()

    def normal(off: Array, jacobian: Array, variance: Array, robust: float) -> tuple[Array, Array]:
        jacobians.append(jacobian)
        np.testing.assert_array_equal(off, -0.5)
        np.testing.assert_array_equal(variance, 6.0)
        assert robust == 2.0
        return gradient, hessian

    def places(ratio: Any, pixels: Array, normals: Any, reach_px: float, *rest: Any) -> tuple[Array, Array]:
        reaches.append(reach_px)
        return np.full(40, 0.5), np.full(40, 2.0)

    for name, stand_in in (
        ("occluding_contour", lambda *_: lines), ("edge_places", places),
        ("variance_level", lambda *_: (3.0, same)), ("slopes", lambda *_: np.full((40, 6), 7.0)),
        ("normal_equations", normal),
    ):  # fmt: skip
        monkeypatch.setattr(hinge_tracker, name, stand_in)
    monkeypatch.setattr(HingeImages, "_seen", lambda *_: seen)
    found = images._by_foreground(2, TRUTH[2], 0.1)
    assert found is not None
    known = hessian / same + np.diag([0.0] * 6 + [DEFAULTS.wider_px**-2])
    np.testing.assert_allclose(np.linalg.inv(found.information), np.linalg.inv(known)[:6, :6], rtol=1e-6, atol=1e-9)
    best = np.linalg.solve(known, -gradient / same)
    np.testing.assert_allclose(np.linalg.solve(found.information, found.pull), best[:6], rtol=1e-6, atol=1e-9)
    assert jacobians[0].shape == (40, 7)
    np.testing.assert_array_equal(jacobians[0][:, 6], 1.0)
    images._by_foreground(2, TRUTH[2], 0.01)
    assert reaches == [5.0, 3.0], "at least so many pixels"
    lines.size_px = 19.0
    assert images._by_foreground(2, TRUTH[2], 0.1) is None
    lines.size_px, lines.pixels = 20.0, np.zeros((8, 2))
    assert images._by_foreground(2, TRUTH[2], 0.1) is not None
    lines.pixels = np.zeros((7, 2))
    assert images._by_foreground(2, TRUTH[2], 0.1) is None


@pytest.mark.parametrize(("tilt_rad", "rival"), [(0.0, 0.0), (0.19, 0.0), (0.21, 0.75)])
def test_a_rival_has_another_axis(tilt_rad: float, rival: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two starts the second has three quarters of the evidence, and counts as a rival where its axis is apart."""
    aside = HINGE.retract(tilt_rad * np.eye(10)[0])
    starts = [HingeStart(HINGE, ANGLES, 0.5), HingeStart(aside, ANGLES, 0.6)]
    gains = {0.5: 4.0, 0.6: 3.0}
    found, images = Candidate, unseen(FRAMES, by_edges=0)
    monkeypatch.setattr(HingeImages, "finer", lambda self, start, rows: found(start, gains[start.agreement]))
    monkeypatch.setattr(HingeImages, "squared", lambda *_: [])
    monkeypatch.setattr(HingeImages, "descended", lambda self, start, *_: start)
    monkeypatch.setattr(HingeImages, "adjusted", lambda *_: track)
    monkeypatch.setattr(HingeImages, "halved", lambda images, _: images)
    monkeypatch.setattr(HingeImages, "of", lambda *_: images)
    for name, result in (("hinge_starts", starts), ("rolled_starts", []), ("principal_axes", np.eye(3))):
        monkeypatch.setattr(hinge_tracker, name, lambda *_, result=result: result)
    empty = np.zeros(FRAMES)
    track = HingeTrack(None, empty > 0.0, empty, empty, empty, 1.0)  # type: ignore[arg-type]
    clip = array_clip(np.zeros((FRAMES, 8, 8, 3), np.uint8), np.arange(FRAMES) / 30.0, "swing")
    body: Any = SimpleNamespace(radius_m=0.2, vertices=np.zeros((1, 3)))
    shape: Any = SimpleNamespace(center=np.zeros(3))
    free = track_of(TRUTH, np.ones(FRAMES, bool))
    assert track_hinge(clip, CAMERA, body, shape, free, config=images.config).rival == pytest.approx(rival)
