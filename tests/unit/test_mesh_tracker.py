"""How a mesh is followed: hypotheses, searches and choices, with frames that know the pose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.moving_box import CAMERA, FPS, box_mesh
from vid2phys.errors import InputError
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking import mesh_tracker
from vid2phys.tracking.hypotheses import DEFAULTS as HYPOTHESES
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.tracking.mesh_tracker import (
    DEFAULTS,
    Hypothesis,
    MeshTracker,
)
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Array

MESH = box_mesh()
SHAPE = shape_of(MESH, "rigid_contact")
START, ASIDE = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
UNUSED: Any = SimpleNamespace()


def pose_at(x: float, rotvec: Sequence[float] = (0.0, 0.0, 0.0)) -> Pose:
    return Pose(matrix_from_rotvec(np.array([rotvec]))[0], START + x * ASIDE)


def fit_at(x: float, nats: float = 100.0, overlap: float = 0.9, rotvec: Sequence[float] = (0.0, 0.0, 0.0)) -> Fit:
    return Fit(pose_at(x, rotvec), nats, overlap, None)


@dataclass(frozen=True)
class Scene:
    """What the tracker asks of a foreground."""

    rows: Any = ()
    body: Any = None
    is_dark: bool = False


@dataclass
class World:
    """Frames in which the body is at `places` (x, m): a fit leads there from within `reach_m`, and fails in `lost`.

    A frame has 100 nats for its pose, and a nat less for each millimetre.
    """

    places: Array
    reach_m: float = 0.02
    lost: tuple[int, ...] = ()
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> int:
        return i

    @property
    def is_whole(self) -> bool:
        return True

    def tracker(self, **config: Any) -> MeshTracker:
        frames: Any = self
        times_s = np.arange(len(self)) / FPS
        tracker = MeshTracker(frames, times_s, CAMERA, MESH, SHAPE, config=replace(DEFAULTS, **config))
        vars(tracker)["_seen"] = lambda i: Seen(self, i)
        vars(tracker)["_detected"] = self.detected
        tracker.foreground = Scene()  # type: ignore[assignment]
        return tracker

    def detected(self, i: int, seen: Any) -> list[Fit]:
        self.calls.append(("searched", i))
        return [] if i in self.lost else [seen.judged(pose_at(self.places[i]), None)]


@dataclass
class Seen:
    """One frame of a world."""

    world: World
    i: int
    frame: Any = None

    @property
    def log_ratio(self) -> Array:
        return np.zeros((2, 2))

    def _off_m(self, pose: Pose) -> float:
        return float(pose.translation[0] - self.world.places[self.i])

    def judged(self, pose: Pose, contour: Any) -> Fit:
        return Fit(pose, 100.0 - 1e3 * abs(self._off_m(pose)), 0.9, None)

    def fitted_from(self, pose: Pose) -> Fit | None:
        return self.fitted(self.judged(pose, None))

    def fitted(self, start: Fit) -> Fit | None:
        pose = start.pose
        self.world.calls.append(("fitted", self.i, round(float(pose.translation[0]), 6)))
        if self.i in self.world.lost:
            return None
        near = abs(self._off_m(pose)) <= self.world.reach_m
        return self.judged(pose_at(self.world.places[self.i]) if near else pose, None)

    def aligned(self, pose: Pose) -> Pose | None:
        self.world.calls.append(("aligned", self.i))
        return pose_at(float(pose.translation[0]) - np.sign(self._off_m(pose)) * 0.05)


def xs(fits: Sequence[Fit | None]) -> list[float | None]:
    return [None if fit is None else round(float(fit.pose.translation[0]), 6) for fit in fits]


def are(found: Sequence[object], expected: Sequence[object]) -> bool:
    """Whether these are the same objects in the same order."""
    return [id(each) for each in found] == [id(each) for each in expected]


def test_a_motion_goes_on_or_stops() -> None:
    before, now = pose_at(0.0, (0.0, 0.0, 0.1)), pose_at(0.02, (0.0, 0.0, 0.3))
    on, stop = Hypothesis(Fit(now, 1.0, 1.0, None), before, 0.0).predictions()
    assert stop is now
    np.testing.assert_allclose(on.translation, START + 0.04 * ASIDE, atol=1e-3)
    np.testing.assert_allclose(on.rotation, pose_at(0.0, (0.0, 0.0, 0.5)).rotation, atol=1e-9)
    assert Hypothesis(Fit(now, 1.0, 1.0, None), None, 0.0).predictions() == [now]


def test_a_hypothesis_advances_from_the_better_of_its_predictions() -> None:
    world = World(np.array([0.0, 0.024, 0.0]))
    tracker = world.tracker()
    moving = Hypothesis(fit_at(0.012), pose_at(0.0), 50.0)
    found = tracker._advanced(Seen(world, 1), moving)  # type: ignore[arg-type]
    assert found is not None
    assert world.calls == [("fitted", 1, pytest.approx(0.024, abs=1e-4))]
    assert (xs([found.fit]), found.before) == ([0.024], moving.fit.pose)
    assert found.evidence == pytest.approx(0.8 * 50.0 + 100.0)
    world.calls.clear()
    assert tracker._advanced(Seen(world, 2), moving) is not None  # type: ignore[arg-type]
    assert world.calls[0] == ("fitted", 2, 0.012), "the body stopped, or went back"


def test_a_fit_that_explains_less_than_before_is_aligned_first() -> None:
    """The body is 60 mm away, beyond the reach of edges; aligned it is 10 mm away."""
    world = World(np.array([0.06]))
    found = world.tracker()._advanced(Seen(world, 0), Hypothesis(fit_at(0.0), None, 0.0))  # type: ignore[arg-type]
    assert found is not None
    assert found.fit.nats == 100.0
    assert world.calls == [("fitted", 0, 0.0), ("aligned", 0), ("fitted", 0, 0.05)]
    for nats, ways in ((42.0, 1), (43.0, 3)):  # a fit that stays has 40 nats
        world.calls.clear()
        world.tracker()._advanced(Seen(world, 0), Hypothesis(fit_at(0.0, nats), None, 0.0))  # type: ignore[arg-type]
        assert len(world.calls) == ways, "steady within 5 %"
    lost = World(np.array([0.06]), lost=(0,))
    assert lost.tracker()._advanced(Seen(lost, 0), Hypothesis(fit_at(0.0), None, 0.0)) is None  # type: ignore[arg-type]
    far = World(np.array([0.2]))
    kept = far.tracker()._advanced(Seen(far, 0), Hypothesis(fit_at(0.0), None, 0.0))  # type: ignore[arg-type]
    assert kept is not None
    assert xs([kept.fit]) == [0.05], "the better of both"


def test_a_body_is_followed_from_its_anchor_both_ways() -> None:
    world = World(0.012 * np.arange(7))
    found, agreed = world.tracker()._followed({3: [fit_at(0.036)]})
    assert agreed.tolist() == [k == 3 for k in range(7)], "each other frame is reached from one side"
    assert [len(set(xs(fits))) for fits in found] == [1] * 7
    assert [xs(fits)[0] for fits in found] == [round(0.012 * k, 6) for k in range(7)]
    assert [len(fits) for fits in found] == [1, 1, 1, 3, 1, 1, 1], "the anchor itself, and as the start of both ways"
    assert not any(call[0] == "searched" for call in world.calls)
    found, agreed = world.tracker()._followed({})
    assert (found, agreed.tolist()) == ([[]] * 7, [False] * 7)


def test_both_ways_agree_where_they_lead_to_one_pose() -> None:
    """The body jumps behind frame 2, where no way follows it: each is right up to there from its own side."""
    world = World(np.array([0.0, 0.0, 0.0, 0.3, 0.3, 0.3]))
    anchors = {0: [fit_at(0.0)], 5: [fit_at(0.3)]}
    _, agreed = world.tracker(max_searches=0)._followed(anchors)
    assert agreed.tolist() == [True, False, False, False, False, True]
    _, agreed = World(np.full(6, 0.3)).tracker()._followed({0: [fit_at(0.3)], 5: [fit_at(0.3)]})
    assert agreed.tolist() == [True] * 6


def test_nothing_is_tried_in_frames_whose_fit_is_fixed() -> None:
    """The motion goes on in the next frame, from the fixed pose."""
    world = World(0.012 * np.arange(7))
    fixed = {k: fit_at(0.012 * k) for k in (2, 3, 4)}
    found, agreed = world.tracker()._followed({}, fixed)
    assert [xs(fits)[0] for fits in found] == [round(0.012 * k, 6) for k in range(7)]
    assert [len(fits) for fits in found] == [1, 1, 2, 2, 2, 1, 1]
    assert agreed.tolist() == [False, False, True, True, True, False, False]
    assert {call[1] for call in world.calls} == {0, 1, 5, 6}
    assert ("fitted", 5, pytest.approx(0.06, abs=1e-4)) in world.calls, "as the frames before move"


def test_a_body_that_jumps_is_searched_a_few_times() -> None:
    places = np.array([0.0, 0.0, 0.3, 0.3, 0.6, 0.9, 1.2])
    world = World(places)
    found = list(world.tracker()._follow(range(7), {0: [fit_at(0.0)]}, {}))
    assert [min(abs(fit.pose.translation[0] - x) for fit in fits) for fits, x in zip(found, places, strict=True)] == [
        0.0
    ] * 7
    assert [call[1] for call in world.calls if call[0] == "searched"] == [2, 4, 5, 6]
    world = World(places)
    found = list(world.tracker(max_searches=2)._follow(range(7), {0: [fit_at(0.0)]}, {}))
    assert [call[1] for call in world.calls if call[0] == "searched"] == [2, 4]
    world = World(places)
    list(world.tracker()._follow(range(7), {0: [fit_at(0.0)], 4: [fit_at(0.6)]}, {}))
    assert [call[1] for call in world.calls if call[0] == "searched"] == [2, 5, 6], "an anchor is a search"
    hidden = World(np.zeros(4), lost=(1, 2))
    assert [len(fits) for fits in hidden.tracker()._follow(range(4), {0: [fit_at(0.0)]}, {})] == [1, 0, 0, 0]
    assert [call[1] for call in hidden.calls if call[0] == "searched"] == [1], "of a lost body nothing is followed"


def test_a_search_finds_evidence_as_old_as_that_of_the_others() -> None:
    """A fresh fit is worth the most that others had before, less a nat."""
    world = World(np.array([0.0, 0.0, 0.3]))
    tracker, seen = world.tracker(memory=0.5), list[list[Hypothesis]]()
    choose = tracker._distinct
    vars(tracker)["_distinct"] = lambda some: seen.append(some) or choose(some)  # type: ignore[func-returns-value]
    list(tracker._follow(range(3), {0: [fit_at(0.0)]}, {}))
    assert [h.evidence for h in seen[0]] == [99.0]
    assert [h.evidence for h in seen[1]] == [0.5 * 99.0 + 100.0]
    on, fresh = seen[2]
    assert fresh.evidence == pytest.approx(0.5 * 149.5 + 99.0)
    assert on.evidence == pytest.approx(0.5 * 149.5 + on.fit.nats)
    assert fresh.before is None


def test_hypotheses_differ_and_one_of_them_goes_on() -> None:
    tracker = World(np.zeros(1)).tracker()
    on = Hypothesis(fit_at(0.0, 80.0), pose_at(0.0), 150.0)
    fresh = [Hypothesis(fit_at(x, 100.0), None, 200.0 - x) for x in (0.1, 0.2, 0.3)]
    assert are(tracker._distinct([*fresh, on]), [on, fresh[0]]), "what goes on is one of them, the best others follow"
    weak = replace(on, fit=fit_at(0.0, 69.0))
    assert are(tracker._distinct([*fresh, weak]), fresh[:2])
    same = Hypothesis(fit_at(0.1 + 0.004), None, 199.85)
    assert are(tracker._distinct([fresh[0], same, fresh[2]]), [fresh[0], fresh[2]])
    apart = Hypothesis(fit_at(0.1 + 0.006), None, 199.85)
    assert are(tracker._distinct([fresh[0], apart, fresh[2]]), [fresh[0], apart])
    assert tracker._distinct([]) == []


def test_fits_are_one_up_to_the_symmetry_of_the_body() -> None:
    tracker = World(np.zeros(1)).tracker()
    pose = pose_at(0.0, (0.3, -0.2, 0.1))
    for g in range(len(SHAPE.rotations)):
        near = tracker._under(pose, g).retract(np.array([0.05, -0.05, 0.05, 0.004, -0.004, 0.025]))
        assert tracker._same(pose, near)
        for k, step in enumerate((0.07, 0.07, 0.07, 0.006, 0.006, 0.04)):
            assert not tracker._same(pose, tracker._under(pose, g).retract(step * np.eye(6)[k]))
            assert not tracker._same(pose, tracker._under(pose, g).retract(-step * np.eye(6)[k]))
    fits = [Fit(tracker._under(pose, 1), 1.0, 0.5, None), Fit(pose, 2.0, 0.5, None), fit_at(0.3), fit_at(0.4)]
    assert are(tracker._distinct_fits(fits), [fits[0], fits[2]])


def test_the_worst_frame_in_which_both_ways_differ_is_searched_again() -> None:
    tracker = World(np.zeros(1)).tracker(stretch=3)
    found = [fit_at(0.0, nats) for nats in (5.0, 4.0, 6.0, 3.0, 9.0, 9.0, 8.0)]
    assert tracker._weakest([*found, None], np.zeros(8, dtype=bool)) == [1, 3, 7]
    assert tracker._weakest(found, np.zeros(7, dtype=bool)) == [1, 3, 6]
    assert tracker._weakest(found, np.arange(7) < 2) == [2, 3, 6], "in the others they agree"
    assert tracker._weakest(found, np.arange(7) < 6) == [6]
    assert tracker._weakest(found, np.ones(7, dtype=bool)) == []


def test_a_path_is_fitted_again_where_it_has_a_fit() -> None:
    world = World(0.01 * np.arange(7), lost=(1,))
    found: list[Fit | None] = [fit_at(0.01 * k + 0.002) for k in range(7)]
    found[4] = None
    again = world.tracker()._fitted_again(found)
    expected = {0: 0.0, 2: 0.02, 3: 0.03, 5: 0.05, 6: 0.06}
    assert dict(zip(again, xs(list(again.values())), strict=True)) == expected


def test_ways_agree_in_whole_stretches() -> None:
    tracker, agreed = World(np.zeros(1)).tracker(stretch=3), np.arange(7) < 6
    assert tracker._agreed_rows(agreed) == list(range(6))
    agreed[1] = False
    assert tracker._agreed_rows(agreed) == [3, 4, 5]


def test_poses_of_the_first_path_stay_candidates() -> None:
    """The second time, the ways lead 5 cm aside, where frames have half the evidence."""
    world = World(0.012 * np.arange(9))
    tracker = world.tracker()
    vars(tracker)["begin"] = lambda: None
    vars(tracker)["_looking_alike"] = lambda found: [[] for _ in found]
    vars(tracker)["_agreeing"] = tracker._joined
    vars(tracker)["_teach"] = lambda: {0: [fit_at(0.0)]}
    vars(tracker)["_learn"] = lambda fits: None
    followed, aside = tracker._followed, [[fit_at(x + 0.05, 50.0)] for x in world.places]
    ways = iter([lambda *given: followed(*given), lambda *_: (aside, np.zeros(9, dtype=bool))])
    vars(tracker)["_followed"] = lambda *given: next(ways)(*given)
    assert xs(tracker.run()) == [round(0.012 * k, 6) for k in range(9)]


def test_frames_where_the_path_jumps_are_fitted_from_both_sides() -> None:
    world = World(0.01 * np.arange(6.0), reach_m=0.002)
    tracker = world.tracker()
    path: list[Fit | None] = [fit_at(0.01 * k) for k in range(6)]
    assert [xs(fits) for fits in tracker._between(path)] == [[round(0.01 * k, 6)] for k in range(6)]
    assert not world.calls, "a steady path stays as it is"
    path[2] = fit_at(0.2)
    found = [xs(fits) for fits in tracker._between(path)]
    assert found[2] == [0.2, 0.02, 0.02], "from the frames beside, and from those beyond"
    path[2:5] = [None] * 3
    found = [xs(fits) for fits in tracker._between(path)]
    assert found[2] == [], "frames 3 and 4 are lost, too, and nothing is before frame 0"
    assert found[3] == [0.03], "frames 1 and 5 count"
    path[1] = None
    assert xs(tracker._between(path)[3]) == []
    far: list[Fit | None] = [fit_at(0.01 * k) if k in (0, 6) else None for k in range(7)]
    assert xs(World(0.01 * np.arange(7.0)).tracker()._between(far)[3]) == [0.03], "up to three frames to each side"
    assert World(np.zeros(9)).tracker()._between([fit_at(0.0), *[None] * 7, fit_at(0.0)])[4] == []
    found = [xs(fits) for fits in tracker._between(path)]
    assert found[0] == [0.0]


def test_a_path_is_steady_and_keeps_one_label() -> None:
    """One frame has a wrong fit that explains it a little better; labels of the box change from frame to frame."""
    world = World(np.zeros(8))
    tracker = world.tracker()
    assert len(SHAPE.rotations) > 1
    assert SHAPE.exact
    true = [pose_at(0.0, (0.0, 0.0, 0.05 * k)) for k in range(8)]
    labelled = [tracker._under(pose, k % len(SHAPE.rotations)) for k, pose in enumerate(true)]
    candidates = [[Fit(pose, 100.0, 0.9, None)] for pose in labelled]
    candidates[4].append(Fit(pose_at(0.0, (0.9, 0.0, 0.2)), 110.0, 0.9, None))
    candidates[6] = []
    found = tracker._joined(candidates)
    assert found[6] is None
    turns = [pose.rotation.T @ fit.pose.rotation for fit, pose in zip(found, true, strict=True) if fit is not None]
    np.testing.assert_allclose(turns, np.tile(turns[0], (7, 1, 1)), atol=1e-9)
    assert all(fit is None or fit.nats == 100.0 for fit in found)
    assert tracker._joined([[], []]) == [None, None]
    few = world.tracker(candidates=1)
    assert xs(few._joined([[fit_at(0.0, 5.0), fit_at(0.1, 6.0)]])) == [0.1]


def test_a_distance_that_jumps_costs_more_than_the_evidence_of_a_frame() -> None:
    tracker = World(np.zeros(5)).tracker()
    near, far = (Fit(Pose(np.eye(3), z * START), nats, 0.9, None) for z, nats in ((1.0, 100.0), (1.3, 110.0)))
    found = tracker._joined([[near], [near], [near, far], [near], [near]])
    assert [fit is not None and fit.pose.translation[2] for fit in found] == [1.0] * 5


def test_the_best_frames_teach() -> None:
    tracker, taught = World(np.zeros(6)).tracker(), list[dict[int, Any]]()
    learner: Any = SimpleNamespace(learned=lambda shown: taught.append(shown))
    tracker.foreground = learner
    vars(tracker)["_mask"] = lambda pose: None if pose.translation[0] > 0.5 else round(float(pose.translation[0]), 6)
    fits = {0: fit_at(0.0, 50.0, 0.9), 1: fit_at(0.1, 100.0, 0.3), 2: fit_at(0.2, 9.0, 0.4), 4: fit_at(0.4, 20.0, 0.5)}
    tracker._learn(fits, 0.5)
    tracker.foreground = learner
    tracker._learn(fits)
    tracker.foreground, tracker.resting = learner, {3: fit_at(0.3)}
    tracker._learn({1: fits[1], 5: fit_at(0.9)}, 0.5)
    assert taught == [{0: 0.0, 1: 0.1}, {0: 0.0, 1: 0.1, 4: 0.4}, {3: 0.3}], "by evidence times overlap"


def test_colours_are_taught_in_rounds_by_frames_within_the_clip() -> None:
    world = World(np.zeros(30))
    tracker, learned = world.tracker(taught_frames=3), list[tuple[dict[int, float | None], float]]()
    tracker.foreground = Scene(rows=np.arange(0, 30, 2))  # type: ignore[assignment]
    vars(tracker)["_learn"] = lambda fits, share: learned.append(
        (dict(zip(fits, xs(list(fits.values())), strict=True)), share)
    )
    shadows = list[bool]()

    def searched(rows: list[int]) -> dict[int, list[Fit]]:
        shadows.append(tracker.foreground.is_dark)
        return {i: [fit_at(0.0), fit_at(0.1)] if i != 14 else [] for i in rows}

    vars(tracker)["_searched"], vars(tracker)["_passes_for_shadow"] = searched, lambda rows: True
    assert tracker._taught_rows() == [6, 14, 20], "neither the first nor the last frame"
    assert list(tracker._teach()) == [6, 20]
    assert learned == [({6: 0.0, 20: 0.0}, 0.5), ({6: 0.0, 20: 0.0}, 0.8)]
    assert shadows == [True, True], "a dark body"


@pytest.mark.parametrize(("dark", "body", "twice"), [(True, None, True), (True, 1, False), (False, None, False)])
def test_a_dark_body_of_unknown_colours_is_searched_twice(dark: bool, body: int | None, twice: bool) -> None:
    tracker = World(np.zeros(3)).tracker()
    tracker.foreground = Scene(is_dark=dark, body=body)  # type: ignore[assignment]
    vars(tracker)["_seen"] = lambda i: SimpleNamespace(log_ratio=np.zeros((2, 2)), frame=None)
    vars(tracker)["_detected"] = lambda i, seen: [fit_at(0.1)]
    vars(tracker)["_detected_in_shadow"] = lambda i, seen: [fit_at(0.2)]
    assert xs(tracker._searched([1])[1]) == ([0.2] if twice else [0.1])


def test_a_hint_teaches_along_the_motion_that_begins_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is followed from the hinted frame; only frames with half of its evidence teach."""
    world = World(0.012 * np.arange(9.0))
    tracker, learned = world.tracker(), list[dict[int, float | None]]()
    best, other = fit_at(0.048, 40.0), fit_at(0.5, 30.0)
    hinted: Any = SimpleNamespace(row=4, hint=SimpleNamespace(flag="--hint"))
    tracker.foreground = SimpleNamespace(rows=np.arange(9))  # type: ignore[assignment]
    masks = list[float]()
    monkeypatch.setattr(mesh_tracker, "unchanged", lambda frame, foreground, mask: masks.append(mask) or [1, 4])  # type: ignore[func-returns-value]
    vars(tracker)["at_hint"] = lambda _: [best, other]
    vars(tracker)["_mask"] = lambda pose: float(pose.translation[0])
    vars(tracker)["_learn"] = lambda fits: learned.append(dict(zip(fits, xs(list(fits.values())), strict=True)))
    vars(tracker)["_searched"] = lambda rows: {i: [fit_at(0.9)] if i % 2 else [] for i in rows}
    followed, judged = tracker._followed, list[list[float]]()
    vars(tracker)["_followed"] = lambda anchors: judged.append([fit.nats for fit in anchors[4]]) or followed(anchors)  # type: ignore[func-returns-value]
    found = tracker._teach_at_hint(hinted)
    assert masks == [pytest.approx(0.048)]
    assert tracker.moved
    assert xs(list(tracker.resting.values())) == [0.048, 0.048]
    assert judged == [[100.0, 100.0]], "all fits of the hinted frame count as the first one"
    assert learned[0] == {4: 0.048}
    assert learned[1] == {i: round(0.012 * i, 6) for i in (4, *range(9))}
    assert {i: round(float(pose.translation[0]), 6) for i, pose in tracker.known.items()} == learned[1]
    assert {i: xs(fits) for i, fits in found.items()} == {1: [0.9], 3: [0.9], 5: [0.9], 7: [0.9], 4: [0.048, 0.5]}
    vars(tracker)["at_hint"] = lambda _: []
    with pytest.raises(InputError, match="no object of the mesh's shape at the hint"):
        tracker._teach_at_hint(hinted)


def test_of_hypotheses_with_equal_evidence_the_upright_one_is_followed() -> None:
    tracker = World(np.zeros(1)).tracker(beam=1)
    tracker.camera = replace(CAMERA, camera_to_world=np.eye(4))
    upright, tilted = (Hypothesis(fit_at(x, rotvec=(x, 0.0, 0.0)), None, 100.0 + x) for x in (0.0, 0.5))
    assert are(tracker._distinct([upright, tilted]), [tilted])
    assert tracker._tilt_nats(tilted.fit.pose) == 0.0
    tracker.tilt_std_rad = 0.25
    assert are(tracker._distinct([upright, tilted]), [upright])
    assert tracker._tilt_nats(tilted.fit.pose) == pytest.approx(-2.0)
    down = pose_at(0.0, (3.0, 0.0, 0.0))
    assert tracker._tilt_nats(down) == -HYPOTHESES.max_tilt_nats
    tracker.tilt_std_rad = 2.0
    assert tracker._tilt_nats(down) == pytest.approx(-0.5 * 1.5**2)
    tracker.camera = CAMERA
    assert tracker._tilt_nats(down) == 0.0, "a camera without a pose does not know up"


def test_a_silhouette_is_where_the_body_is() -> None:
    tracker = World(np.zeros(1)).tracker()
    mask = tracker._mask(pose_at(0.1))
    assert mask is not None
    rows, columns, pixels = mask
    v, u = np.nonzero(pixels)
    place = CAMERA.K @ pose_at(0.1).translation
    np.testing.assert_allclose([u.mean() + columns.start, v.mean() + rows.start], place[:2] / place[2], atol=4.0)
    assert tracker._mask(Pose(np.eye(3), -START)) is None


def test_a_search_sorts_its_fits_and_notes_what_moves() -> None:
    world = World(np.zeros(3))
    tracker = world.tracker()
    found = [fit_at(0.0, 5.0), fit_at(0.1, 9.0), fit_at(0.2, 7.0)]
    vars(tracker)["_detected"] = lambda i, seen: found[: i + 1]
    assert [xs(fits) for fits in tracker._searched([0, 2]).values()] == [[0.0], [0.1, 0.2, 0.0]]
    assert not tracker.moved
    seen = SimpleNamespace(log_ratio=np.array([[-1.0, 0.5]]), frame=None)
    vars(tracker)["_seen"] = lambda i: seen
    tracker._searched([1])
    assert tracker.moved


def test_a_clip_is_taught_followed_and_followed_again() -> None:
    """The work is reported at each step, and the frame of the best anchor is shown first."""
    world, shares, first = World(0.012 * np.arange(9)), list[float](), list[tuple[int, float]]()
    tracker = world.tracker(stretch=4)
    tracker.progress, tracker.first = shares.append, lambda i, pose: first.append((i, float(pose.translation[0])))
    vars(tracker)["begin"] = lambda: None
    vars(tracker)["_looking_alike"] = lambda found: [[] for _ in found]
    vars(tracker)["_agreeing"] = tracker._joined
    anchors = {2: [fit_at(0.024, 60.0, 0.9)], 6: [fit_at(0.072, 90.0, 0.7)]}
    vars(tracker)["_teach"] = lambda: anchors
    learned = list[list[int]]()
    vars(tracker)["_learn"] = lambda fits: learned.append(list(fits))
    found = tracker.run()
    assert xs(found) == [round(0.012 * k, 6) for k in range(9)]
    assert shares == [0.3, 0.5, 0.7]
    assert first == [(6, pytest.approx(0.072))]
    assert learned == [list(range(9))]
    searched = [call[1] for call in world.calls if call[0] == "searched"]
    assert searched == [0, 7, 8], "both ways reach the frames between the anchors alone"
    np.testing.assert_array_equal(tracker.evidence, np.zeros(len(SHAPE.rotations)))
    vars(tracker)["_teach"] = dict
    assert tracker.run() == [None] * 9


def test_the_symmetry_element_with_most_evidence_in_the_clip_is_taken() -> None:
    """The body is not quite symmetric; its second element fits better by 3, 1 and 50 nats, of which 30 count."""
    tracker = World(np.zeros(5)).tracker(element_frames=3)
    half = np.diag([-1.0, 1.0, -1.0])
    tracker.shape = replace(
        SHAPE, rotations=np.stack([np.eye(3), half]), front=0, permutation=np.zeros((2, 1), np.int64)
    )
    better = {0: 3.0, 1: -99.0, 2: 1.0, 3: 99.0, 4: 50.0}
    vars(tracker)["_relabelled"] = lambda i, fit, g: replace(fit, nats=fit.nats + g * better[i], overlap=float(g))
    found = tracker._in_best_element([fit_at(0.01 * k) for k in range(5)])
    assert [fit.overlap for fit in found if fit is not None] == [1.0] * 5
    np.testing.assert_allclose(tracker.evidence, np.array([0.0, -34.0]) / TEMPERATURES.symmetry)
    better.update({0: -3.0, 2: -1.0, 4: 2.0})
    fits: list[Fit | None] = [fit_at(0.01 * k) for k in range(5)]
    assert tracker._in_best_element(fits) is fits
    np.testing.assert_allclose(tracker.evidence, np.array([-2.0, -4.0]) / TEMPERATURES.symmetry)
    exact = World(np.zeros(5)).tracker()
    assert exact._in_best_element(fits) is fits, "nothing tells exact elements apart"


def test_the_background_is_learned_before_any_pose_with_the_colours_of_a_texture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = list[Any]()
    plain = SimpleNamespace(knowing=lambda colors: ("knowing", colors))
    monkeypatch.setattr(mesh_tracker.Foreground, "of", lambda *some: given.append(some[1]) or plain)  # type: ignore[func-returns-value]
    monkeypatch.setattr(mesh_tracker.MotionBlur, "measured", lambda frames, foreground: (frames, foreground))
    tracker = World(np.zeros(3)).tracker()
    tracker.begin()
    assert tracker.foreground is plain
    assert tracker.blur == (tracker.frames, plain)  # type: ignore[comparison-overlap]
    tracker.texture = SimpleNamespace(fine_colors=["much blurred", "blurred", "fine"])  # type: ignore[assignment]
    tracker.hinted = SimpleNamespace(row=2)  # type: ignore[assignment]
    tracker.begin()
    assert tracker.foreground == ("knowing", "fine")
    assert given == [(), (2,)]
