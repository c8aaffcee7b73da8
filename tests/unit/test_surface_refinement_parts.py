"""Steps that refine poses by surfaces: stand-ins state a quadratic evidence, whose best steps are closed forms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking import surface_refinement
from vid2phys.tracking.cues.surfaces import PoseModel
from vid2phys.tracking.learned_surfaces import LearnedSurfaces
from vid2phys.tracking.surface_refinement import (
    SurfaceRefinementConfig,
    _different,
    _followed,
    _gains_by_sides,
    _refined,
    refine_by_surfaces,
    surface_evidence,
)
from vid2phys.types import Array

START = Pose(np.eye(3), np.array([0.0, 0.0, 2.0]))  # on the camera's axis, where steps add up exactly
STD = np.array([0.1, 0.2, 0.3, 0.01, 0.02, 0.05])
ONE_STEP = SurfaceRefinementConfig(rounds=1, lengths=(1.0,), pose_std=tuple(STD), least_nats=0.0)


@dataclass
class Surfaces:
    """Evidence that falls with the square of the step to the best pose; `weight` [6] is its information."""

    weight: Array
    best: Pose = START
    top: float = 50.0
    is_textured: bool = True
    body: Any = field(default_factory=lambda: SimpleNamespace(is_flat=True, vertices=np.array([[0.3, 0.0, 0.4]])))
    camera: Any = field(default_factory=lambda: SimpleNamespace(K=np.diag([100.0, 999.0, 1.0])))
    nothing: bool = False
    calls: list[tuple[int, bool]] = field(default_factory=list)

    def model(self, i: int, pose: Pose, gain_only: bool = False) -> PoseModel | None:
        self.calls.append((i, gain_only))
        if self.nothing:
            return None
        step = pose.step_to(self.best)
        gain = self.top - 0.5 * float(self.weight @ step**2)
        return PoseModel(np.zeros((0, 0)) if gain_only else np.diag(self.weight), self.weight * step, gain)

    gain = LearnedSurfaces.gain


def moved(surfaces: Surfaces, config: SurfaceRefinementConfig = ONE_STEP, pose: Pose = START) -> Array:
    """Return the step [6] from the start to the refined pose."""
    given: Any = surfaces
    return START.step_to(_refined(given, 7, START, pose, config))


def test_a_step_weighs_the_evidence_against_the_prior() -> None:
    weight = np.array([300.0, 50.0, 10.0, 2e4, 900.0, 500.0])
    off = np.array([0.1, -0.2, 0.15, 0.01, -0.02, 0.06])
    found = moved(Surfaces(weight, START.retract(off)))
    np.testing.assert_allclose(found, off * weight / (weight + STD**-2.0), atol=1e-9)


def test_a_pose_that_errs_along_what_nothing_shows_returns_to_the_tracked_one() -> None:
    """The evidence for the first coordinate makes the step count; the others have none."""
    weight, off = np.array([1e6, 0.0, 0.0, 0.0, 0.0, 0.0]), np.array([0.0, 0.02, -0.03, 0.004, 0.003, -0.01])
    best = START.retract(np.array([0.05, 0.0, 0.0, 0.0, 0.0, 0.0]))
    found = moved(Surfaces(weight, best), pose=START.retract(off))
    assert found[0] == pytest.approx(0.05, abs=2e-3)
    np.testing.assert_allclose(found[1:], 0.0, atol=1e-3)


def test_a_step_is_two_standard_deviations_at_most() -> None:
    off = np.array([1.0, -1.0, 1.0, -0.1, 0.1, 0.4])
    found = moved(Surfaces(np.full(6, 1e7), START.retract(off)))
    np.testing.assert_allclose(found, 2.0 * STD * np.sign(off), atol=1e-9)


def test_the_distance_of_a_plain_body_hardly_moves() -> None:
    off = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.04])
    surfaces = Surfaces(np.full(6, 1e7), START.retract(off), is_textured=False)
    found = moved(surfaces, replace(ONE_STEP, depth_std=0.003))
    np.testing.assert_allclose(found, [0.0, 0.0, 0.0, 0.0, 0.0, 0.006], atol=1e-9)
    wide = moved(Surfaces(np.full(6, 1e7), START.retract(np.full(6, 1.0)), is_textured=False))
    np.testing.assert_allclose(wide[:5], 2.0 * STD[:5], atol=1e-9)


@pytest.mark.parametrize(("off", "length"), [(0.02, 0.5), (0.0501, 1.0), (0.2, 2.0)])
def test_the_best_of_three_lengths_counts(off: float, length: float) -> None:
    """The model overstates or understates the step: its pull is that of a best pose 0.05 rad away."""
    surfaces = Surfaces(np.array([1e6, 1.0, 1.0, 1.0, 1.0, 1.0]), START.retract(off * np.eye(6)[0]))

    def model(i: int, pose: Pose, gain_only: bool = False) -> PoseModel | None:
        stated = Surfaces.model(surfaces, i, pose, gain_only)
        assert stated is not None
        return replace(stated, pull=surfaces.weight * 0.05 * np.eye(6)[0])

    surfaces.model = model  # type: ignore[method-assign]
    found = moved(surfaces, replace(ONE_STEP, lengths=(0.5, 1.0, 2.0)))
    assert found[0] == pytest.approx(0.05 * length, rel=1e-3)


@pytest.mark.parametrize(("nats", "moves"), [(0.051, True), (0.049, False)])
def test_a_step_needs_its_evidence(nats: float, moves: bool) -> None:
    """A step of the whole way, 0.01 rad, gains half of the information times its square."""
    weight = np.array([nats / (0.5 * 0.01**2), 0.0, 0.0, 0.0, 0.0, 0.0])
    config = replace(ONE_STEP, pose_std=(1e3,) * 6, least_nats=0.05)
    found = moved(Surfaces(weight, START.retract(0.01 * np.eye(6)[0])), config)
    assert found[0] == pytest.approx(0.01 * moves, rel=1e-3)


def test_a_frame_that_shows_nothing_keeps_its_pose() -> None:
    pose = START.retract(np.full(6, 0.01))
    surfaces: Any = Surfaces(np.ones(6), nothing=True)
    assert _refined(surfaces, 7, START, pose, ONE_STEP) is pose


def test_steps_end_after_the_rounds() -> None:
    surfaces = Surfaces(np.full(6, 1e7), START.retract(np.eye(6)[0]))
    found = moved(surfaces, replace(ONE_STEP, rounds=3))
    np.testing.assert_allclose(found[0], 6.0 * STD[0], atol=1e-6)
    assert surfaces.calls == [(7, False), (7, True)] * 3  # in each round the model, and the gain of one length


@pytest.mark.parametrize(("share", "moves"), [(0.0121, True), (0.0119, False)])
def test_sides_count_where_their_evidence_grows_by_a_share(share: float, moves: bool) -> None:
    """Each frame gains the same on the way to its best pose, which is reached in one step."""
    off = 0.05 * np.eye(6)[0]
    weight = np.array([50.0 * share / (0.5 * 0.05**2), 0.0, 0.0, 0.0, 0.0, 0.0])
    surfaces: Any = Surfaces(weight, START.retract(off))
    config = replace(ONE_STEP, pose_std=(1e3,) * 6, plain_gain=0.012, tried_frames=2, plain_px=1.0)
    assert _gains_by_sides(surfaces, dict.fromkeys((3, 5, 8), START), config) is moves
    assert {i for i, _ in surfaces.calls} == {3, 8}


@pytest.mark.parametrize(("plain_px", "is_flat", "counts"), [
    (49.9, True, True),  # of a radius of 0.5 m at 2 m with a focal length of 100 px
    (50.1, True, False),
    (49.9, False, False),
])  # fmt: skip
def test_sides_of_small_or_of_round_bodies_do_not_count(plain_px: float, is_flat: bool, counts: bool) -> None:
    surfaces: Any = Surfaces(np.full(6, 1e4), START.retract(0.05 * np.eye(6)[0]))
    surfaces.body.is_flat = is_flat
    config = replace(ONE_STEP, plain_px=plain_px)
    assert _gains_by_sides(surfaces, {3: START, 5: START}, config) is counts


def test_chosen_frames_are_evenly_spread_along_the_rotation() -> None:
    """The body rotates steadily, rests, and rotates on: 0, 1/3, 2/3 and all of the way; 20 frames at rest are short."""
    rows = np.concatenate([np.arange(10), np.full(20, 9), np.arange(9, 20)])
    rotation = matrix_from_rotvec(0.1 * rows[:, None] * np.eye(3)[2])
    poses = Pose(rotation, np.tile([0.0, 0.0, 2.0], (len(rows), 1)))
    steady = np.concatenate([np.arange(10), np.arange(30, 41)])
    alone = _different(poses[steady], np.arange(len(steady)) / 600.0, 4)
    np.testing.assert_array_equal(alone, [0, 7, 14, 20])
    assert len(_different(poses, np.arange(len(rows)) / 600.0, 4)) == 4


@dataclass
class Clip:
    """A body that turns about z. A texture has the better evidence, the nearer a rotation is to the true one.

    silhouette: evidence of the silhouette for the poses that lead on, beyond that for the tracked ones, nats.
    """

    tracked: Array
    true: Array = field(default_factory=lambda: 0.2 * np.arange(12.0))
    silhouette: float = 0.0
    body: Any = None
    is_textured: bool = True
    tried: set[int] = field(default_factory=set)

    def model(self, i: int, pose: Pose, gain_only: bool = False) -> PoseModel:
        off = turned(pose) - self.true[i]
        if not gain_only:
            self.tried.add(i)
        return PoseModel(1e4 * np.eye(6), 1e4 * START.retract(off * TURN).step_to(START), 100.0 - 500.0 * off**2)

    gain = LearnedSurfaces.gain

    def seen(self, i: int) -> Any:
        def judged(pose: Pose, contour: None) -> Any:
            is_tracked = abs(turned(pose) - self.tracked[i]) < 1e-9
            return SimpleNamespace(nats=0.0 if is_tracked else self.silhouette)

        return SimpleNamespace(judged=judged)

    def followed(self) -> Array:
        """Return the angles of the frames, rad."""
        rows = {i: START.retract(angle * TURN) for i, angle in enumerate(self.tracked.tolist())}
        given: Any = self
        return np.array([turned(pose) for pose in _followed(given, rows, self.seen, SurfaceRefinementConfig())])


TURN = np.eye(6)[2]  # START.retract turns about the camera's axis, and back


def turned(pose: Pose) -> float:
    return float(START.step_to(pose)[2])


@pytest.mark.parametrize("wrong", [range(4, 8), range(5), range(7, 12)])
def test_a_texture_leads_over_wrong_frames(wrong: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they begin or end the clip: it is followed in both directions, whose second frames know no motion."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tracked = 0.2 * np.arange(12.0)
    tracked[list(wrong)] += 0.4
    clip = Clip(tracked)
    found = clip.followed()
    np.testing.assert_allclose(found, clip.true, atol=0.03)
    assert clip.tried <= {1, 10} | {i + off for i in wrong for off in (-1, 0, 1)}, "steady frames cost nothing"


def test_a_texture_leads_nowhere_against_the_silhouette(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of 0.4 rad costs 80 nats of the texture."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tracked = 0.2 * np.arange(12.0)
    tracked[4:8] += 0.4
    for nats, stays in ((-100.0, True), (-60.0, False)):
        found = Clip(tracked, silhouette=nats).followed()
        assert (np.abs(found - tracked).max() < 1e-9) == stays


def test_a_body_that_stops_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 0.2 rad end in frame 6; the tracked poses there are wrong."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    true = 0.2 * np.minimum(np.arange(12.0), 6.0)
    tracked = true + 0.4 * (np.arange(12) > 5)
    np.testing.assert_allclose(Clip(tracked, true).followed(), true, atol=0.03)


@dataclass
class Learning:
    """What was learned in each pass: margins, rows and places that taught it, and what refined the poses."""

    monkeypatch: pytest.MonkeyPatch
    textured: tuple[bool, ...] = (True, True)
    is_flat: bool = True
    gains: bool = False
    passes: list[tuple[int, list[int], list[float]]] = field(default_factory=list)
    refined: list[tuple[list[int], list[float]]] = field(default_factory=list)
    paths: list[list[float]] = field(default_factory=list)
    shape: Any = "shape"

    def __post_init__(self) -> None:
        self.monkeypatch.setattr(surface_refinement, "LearnedSurfaces", SimpleNamespace(of=self.of))
        self.monkeypatch.setattr(surface_refinement, "_all_refined", self.all_refined)
        self.monkeypatch.setattr(surface_refinement, "_followed", self.followed)
        self.monkeypatch.setattr(surface_refinement, "under_one_element", self.under_one_element)
        self.monkeypatch.setattr(surface_refinement, "_gains_by_sides", lambda *given: self.gains)
        self.monkeypatch.setattr(surface_refinement, "silhouette_of", lambda points, *given: self.shown(points))

    def of(self, *given: Any) -> Any:
        rows, poses, margin_px = given[4:7]
        self.passes.append((margin_px, rows.tolist(), poses.translation[:, 0].tolist()))
        textured = self.textured[len(self.passes) - 1]
        return Surfaces(np.eye(6)[3], is_textured=textured, body=SimpleNamespace(is_flat=self.is_flat))

    def all_refined(self, surfaces: Any, tracked: Any, poses: Any, config: Any) -> list[Pose]:
        self.refined.append((list(tracked), [float(tracked[i].translation[0]) for i in tracked]))
        return [Pose(pose.rotation, pose.translation + np.eye(3)[0]) for pose in poses]

    def under_one_element(self, tracked: dict[int, Pose], shape: Any, taught_by: Any) -> dict[int, Pose]:
        assert shape == self.shape
        return tracked

    def followed(self, surfaces: Any, tracked: Any, seen: Any, config: Any) -> list[Pose]:
        assert surfaces.is_textured
        assert seen == "seen"
        self.paths.append([float(pose.translation[0]) for pose in tracked.values()])
        return [Pose(pose.rotation, pose.translation + 0.01 * np.eye(3)[0]) for pose in tracked.values()]

    def shown(self, points: Array) -> float | None:
        """The body's place in the frames; the second one does not show it."""
        x = float(points[0, 0])
        return None if abs(x - 0.4) < 0.01 else x

    def tracked(self) -> dict[int, Pose]:
        """Three frames, the second a right angle on from the first, and the third two."""
        turn = (matrix_from_rotvec(0.5 * np.pi * k * np.eye(3)[1]) for k in range(3))
        return {i: Pose(each, np.array([0.1 * i, 0.0, 2.0])) for i, each in zip((2, 4, 9), turn, strict=True)}

    def refine(self, **config: Any) -> Any:
        nothing: Any = None
        solid: Any = SimpleNamespace(mesh=SimpleNamespace(vertices=np.zeros((1, 3)), faces=None))
        seen: Any = "seen"
        given = nothing, nothing, solid, nothing, self.tracked(), np.arange(10.0), seen, self.shape
        return refine_by_surfaces(*given, SurfaceRefinementConfig(**config))


def test_refined_poses_teach_the_next_pass_nearer_to_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    learning = Learning(monkeypatch)
    found = learning.refine(margins_px=(6, 4))
    assert found is not None
    assert found.is_textured
    assert list(found.poses) == [2, 4, 9]
    np.testing.assert_allclose([pose.translation[0] for pose in found.poses.values()], [2.22, 2.42, 2.92])
    margins, rows, places = zip(*learning.passes, strict=True)
    assert margins == (6, 4)
    assert rows == ([2, 4, 9], [2, 4, 9])
    np.testing.assert_allclose(places, [[0.2, 0.4, 0.9], [1.21, 1.41, 1.91]])
    np.testing.assert_allclose(learning.paths, [[1.2, 1.4, 1.9], [2.21, 2.41, 2.91]])
    for frames, starts in learning.refined:  # the prior is about the tracked poses in each pass
        assert frames == [2, 4, 9]
        np.testing.assert_allclose(starts, [0.2, 0.4, 0.9])


def test_few_frames_teach_the_texture(monkeypatch: pytest.MonkeyPatch) -> None:
    learning = Learning(monkeypatch)
    assert learning.refine(frames=2) is not None
    assert [rows for _, rows, _ in learning.passes] == [[2, 9], [2, 9]]


@pytest.mark.parametrize(("textured", "gains", "is_textured"), [
    ((False, True), False, None),
    ((False, True), True, True),
    ((True, False), False, False),  # only the first pass says whether surfaces refine the poses
])  # fmt: skip
def test_a_plain_body_is_refined_where_its_sides_gain(
    textured: tuple[bool, ...], gains: bool, is_textured: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = Learning(monkeypatch, textured, gains=gains)
    found = learning.refine()
    assert (None if found is None else found.is_textured) == is_textured
    passes = textured if found is not None else ()
    assert len(learning.paths) == sum(passes), "only a texture is followed"


@pytest.mark.parametrize("is_flat", [True, False])
def test_evidence_is_that_at_refined_poses(is_flat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sideways off by x/|t| at x m aside, and information 1 about it: the evidence is 50 - x^2 / |t|^2 / 2."""
    learning = Learning(monkeypatch, is_flat=is_flat)
    nothing: Any = None
    solid: Any = SimpleNamespace(mesh=SimpleNamespace(vertices=np.zeros((1, 3)), faces=None))
    taught = list[dict[int, float]]()
    foreground: Any = SimpleNamespace(learned=taught.append)
    found = surface_evidence(nothing, nothing, solid, foreground, learning.tracked())
    assert taught == [{2: pytest.approx(0.2), 9: pytest.approx(0.9)}]  # colours of the frames that show the body
    if not is_flat:
        assert found is None
        return
    aside = np.array([2.2, 2.4, 2.9])
    assert found is not None
    np.testing.assert_allclose(found, 50.0 - 0.5 * aside**2 / (aside**2 + 4.0))
    assert [margin_px for margin_px, _, _ in learning.passes] == [6, 4]
