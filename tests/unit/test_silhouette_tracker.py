"""How coordinates are followed by silhouettes: hypotheses, searches, jumps and choices, with frames that know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine.parallel import one_thread
from vid2phys.notes import Severity, severity_of
from vid2phys.tracking.articulated.silhouette_fit import Fit
from vid2phys.tracking.articulated.silhouette_tracker import (
    DEFAULTS,
    Hypothesis,
    SilhouetteTracker,
    _track,
    jump_notes,
    observation_of_nothing,
    unwrapped,
)
from vid2phys.types import Array

FPS = 60.0
UNITS = np.array([1.0, 2.0])


def fit_at(a: float, nats: float = 100.0, b: float = 0.0, overlap: float = 0.9, covariance: Array | None = None) -> Fit:
    return Fit(np.array([a, b]), nats, overlap, covariance)


class Body:
    """A body with an angle that goes round and a length."""

    names = ("elbow", "slide")
    rest = np.array([0.1, 0.0])
    periods = np.array([2.0 * np.pi, 0.0])
    prior_std = np.array([0.8, 0.5])
    is_angle = np.array([True, False])
    points_body = np.zeros((3, 3))

    def difference(self, a: Array, b: Array) -> Array:
        step = np.asarray(b) - np.asarray(a)
        around = np.where(self.periods > 0.0, self.periods, 1.0)
        return np.where(self.periods > 0.0, step - around * np.round(step / around), step)


@dataclass
class World:
    """Frames in which the coordinates are `truth` [T, 2]: a fit leads there from within `reach`, not in `lost`.

    A frame has 100 nats for its configuration, and a nat less for each hundredth of a unit.
    """

    truth: Array
    reach: float = 0.1
    lost: tuple[int, ...] = ()
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    is_whole: bool = True
    units: Array = field(default_factory=lambda: UNITS)
    body: Any = field(default_factory=Body)
    coarse: Any = None
    trick: Array | None = None

    def __len__(self) -> int:
        return len(self.truth)

    def __getitem__(self, i: int) -> int:
        return i

    def distance(self, a: Array, b: Array) -> float:
        return float(np.abs(self.body.difference(a, b) / UNITS).max())

    def within(self, at: Array) -> Array:
        return np.clip(at, -20.0, 20.0)

    def varied(self, at: Array, noise: float, count: int, rng: np.random.Generator) -> Array:
        self.calls.append(("varied", round(noise, 6), count))
        return np.tile(at if self.trick is None else self.trick, (count, 1))

    def scores(self, tried: Array, seen: int) -> Array:
        return -np.array([self.distance(self.truth[seen], each) for each in tried])

    def tracker(self, **config: Any) -> SilhouetteTracker:
        given: Any = self
        tracker = SilhouetteTracker(given, np.arange(len(self)) / FPS, given, None, replace(DEFAULTS, **config))
        vars(tracker)["_seen"] = lambda i: Seen(self, i)
        return tracker


@dataclass
class Seen:
    """One frame of a world."""

    world: World
    i: int

    @property
    def coarse(self) -> int:
        return self.i

    def off(self, at: Array) -> float:
        return self.world.distance(self.world.truth[self.i], at)

    def judged(self, at: Array, covariance: Array | None = None) -> Fit:
        return Fit(at, 100.0 - 100.0 * self.off(at), 0.9, covariance)

    def fitted(self, at: Array, std: float | None = None) -> Fit | None:
        self.world.calls.append(("fitted", self.i, *np.round(at, 6).tolist(), *([] if std is None else [std])))
        if self.i in self.world.lost:
            return None
        return self.judged(self.world.truth[self.i] if self.off(at) <= self.world.reach else at)

    def aligned(self, at: Array) -> Array | None:
        self.world.calls.append(("aligned", self.i))
        step = self.world.body.difference(at, self.world.truth[self.i])
        return np.asarray(at + 0.8 * step)

    def detect(self) -> list[Fit]:
        self.world.calls.append(("searched", self.i))
        return [] if self.i in self.world.lost else [self.judged(self.world.truth[self.i])]


def along(*angles: float) -> Array:
    return np.array([[a, 0.0] for a in angles])


def angles(fits: Sequence[Fit | None]) -> list[float | None]:
    return [None if fit is None else round(float(fit.configuration[0]), 6) for fit in fits]


def calls(world: World, name: str) -> list[int]:
    return [call[1] for call in world.calls if call[0] == name]


RNG = np.random.default_rng(0)


def advanced(world: World, i: int, h: Hypothesis) -> Hypothesis | None:
    seen: Any = Seen(world, i)
    return world.tracker()._advanced(seen, h, RNG)


def test_a_hypothesis_goes_on_as_before() -> None:
    world = World(along(0.0, 0.4))
    found = advanced(world, 1, Hypothesis(fit_at(0.2), np.array([0.2, 0.0]), 50.0))
    assert found is not None
    assert world.calls == [("varied", 0.06, 24), ("fitted", 1, 0.4, 0.0)]
    assert angles([found.fit]) == [0.4]
    np.testing.assert_allclose(found.step, [0.2, 0.0])  # type: ignore[arg-type]
    assert found.evidence == pytest.approx(0.8 * 50.0 + 100.0)


def test_a_hypothesis_that_just_began_is_varied_more() -> None:
    world = World(along(0.2), trick=np.array([0.2, 0.0]))
    found = advanced(world, 0, Hypothesis(fit_at(0.0), None, 0.0))
    assert found is not None
    assert world.calls == [("varied", 0.12, 24), ("fitted", 0, 0.2, 0.0)], "from the variation with the best score"
    np.testing.assert_allclose(found.step, [0.2, 0.0])  # type: ignore[arg-type]


def test_a_body_that_stopped_is_found_where_it_was() -> None:
    world = World(along(0.2))
    found = advanced(world, 0, Hypothesis(fit_at(0.2), np.array([0.5, 0.0]), 0.0))
    assert found is not None
    assert world.calls[1] == ("fitted", 0, 0.2, 0.0)


def test_a_step_goes_round_the_shorter_way() -> None:
    world = World(along(-3.1))
    found = advanced(world, 0, Hypothesis(fit_at(3.1), None, 0.0))
    assert found is not None
    np.testing.assert_allclose(found.step, [2.0 * np.pi - 6.2, 0.0])  # type: ignore[arg-type]


def test_a_fit_that_explains_less_than_before_is_aligned_first() -> None:
    """The configuration is 0.4 units away, beyond the reach of edges; aligned it is 0.08 units away."""
    world = World(along(0.4))
    found = advanced(world, 0, Hypothesis(fit_at(0.0), None, 0.0))
    assert found is not None
    assert found.fit.nats == 100.0
    assert [call[0] for call in world.calls] == ["varied", "fitted", "aligned", "fitted"]
    for nats, count in ((63.0, 2), (64.0, 4)):  # a fit that stays has 60 nats
        world.calls.clear()
        advanced(world, 0, Hypothesis(fit_at(0.0, nats), None, 0.0))
        assert len(world.calls) == count, "steady within 5 %"
    lost = World(along(0.4), lost=(0,))
    assert advanced(lost, 0, Hypothesis(fit_at(0.0), None, 0.0)) is None


def test_a_motion_is_followed_from_its_anchor_both_ways() -> None:
    for whole in (True, False):
        world = World(along(*(0.05 * k for k in range(7))), is_whole=whole)
        found = one_thread()(world.tracker()._followed)({3: [fit_at(0.15)]})
        assert [set(angles(fits)) for fits in found] == [{round(0.05 * k, 6)} for k in range(7)]
        assert [len(fits) for fits in found] == [1, 1, 1, 3, 1, 1, 1], "the anchor, and the start of both ways"
        assert calls(world, "searched") == []


def test_a_body_that_jumps_is_searched_a_few_times() -> None:
    truth = along(0.0, 0.0, 2.0, 2.0, -1.5, 1.0, -2.0)
    still = SimpleNamespace(aligned=lambda *_: None)

    def searched(anchors: dict[int, list[Fit]], **config: Any) -> list[int]:
        world = World(truth)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Seen, "aligned", still.aligned)
            list(world.tracker(**config)._follow(range(7), anchors))
        return calls(world, "searched")

    assert searched({0: [fit_at(0.0)]}) == [2, 4, 5, 6]
    assert searched({0: [fit_at(0.0)]}, max_searches=2) == [2, 4]
    assert searched({0: [fit_at(0.0)], 4: [fit_at(-1.5)]}) == [2, 5, 6], "an anchor is a search"
    hidden = World(along(0.0, 0.0, 0.0, 0.0), lost=(1, 2))
    assert [len(fits) for fits in hidden.tracker()._follow(range(4), {0: [fit_at(0.0)]})] == [1, 0, 0, 0]
    assert calls(hidden, "searched") == [1], "of a lost body nothing is followed"


def test_a_search_finds_evidence_as_old_as_that_of_the_others() -> None:
    world = World(along(0.0, 0.0, 2.0))
    tracker, seen = world.tracker(), list[list[Hypothesis]]()
    choose = tracker._distinct
    vars(tracker)["_distinct"] = lambda some: seen.append(some) or choose(some)  # type: ignore[func-returns-value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Seen, "aligned", lambda *_: None)
        list(tracker._follow(range(3), {0: [fit_at(0.0)]}))
    assert [h.evidence for h in seen[0]] == [99.0]
    assert [h.evidence for h in seen[1]] == [pytest.approx(0.8 * 99.0 + 100.0)]
    on, fresh = seen[2]
    assert fresh.evidence == pytest.approx(0.8 * seen[1][0].evidence + 99.0)
    assert on.evidence == pytest.approx(0.8 * seen[1][0].evidence + on.fit.nats)
    assert fresh.step is None


def test_hypotheses_differ_and_explain_the_frame() -> None:
    tracker = World(along(0.0)).tracker()
    some = [Hypothesis(fit_at(0.1 * k), None, 200.0 - k) for k in range(5)]
    assert tracker._distinct(some[::-1]) == some[:3]
    near = Hypothesis(fit_at(0.04), None, 199.5)
    assert tracker._distinct([*some, near]) == some[:3]
    apart = Hypothesis(fit_at(0.0, b=0.12), None, 199.5)  # units of 2
    assert tracker._distinct([*some, apart]) == [some[0], apart, some[1]]
    weak, enough = (replace(some[0], fit=fit_at(3.0, nats)) for nats in (69.0, 71.0))
    assert tracker._distinct([weak, *some[1:]]) == some[1:4]
    assert tracker._distinct([enough, *some[1:]]) == [enough, *some[1:3]]
    assert tracker._distinct([]) == []


def test_candidates_that_are_nearly_one_are_one() -> None:
    tracker = World(along(0.0)).tracker(candidates=2)
    fits = [fit_at(0.0, 5.0), fit_at(0.009, 7.0), fit_at(0.5, 6.0), fit_at(0.9, 1.0), fit_at(0.02, 2.0)]
    assert tracker._different(fits) == [fits[1], fits[2]]
    every = World(along(0.0)).tracker()._different(fits)
    assert angles(every) == [0.009, 0.5, 0.02, 0.9]


def test_the_worst_frame_of_each_stretch_is_searched_again() -> None:
    tracker = World(along(0.0)).tracker(stretch=3)
    found = [fit_at(0.0, nats) for nats in (5.0, 4.0, 6.0, 3.0, 9.0, 9.0, 8.0)]
    assert tracker._weakest([*found, None]) == [1, 3, 7]
    assert tracker._weakest(found) == [1, 3, 6]


def test_a_path_is_steady_and_skips_what_a_frame_prefers() -> None:
    """A fit that explains one frame better by 15 nats of 10 each is not on the way; the angle goes round."""
    truth = 0.2 * np.arange(8) + 2.6
    world = World(along(*truth))
    candidates = [[fit_at((a + np.pi) % (2.0 * np.pi) - np.pi)] for a in truth]
    candidates[3].append(fit_at(0.0, 250.0))
    candidates[6] = []
    found = world.tracker()._joined(candidates)
    assert found[6] is None
    assert [fit.nats for fit in found if fit is not None] == [100.0] * 7
    sure = [[*fits, fit_at(0.0, 1e4)] if k == 3 else fits for k, fits in enumerate(candidates)]
    assert angles(world.tracker()._joined(sure))[3] == 0.0
    assert world.tracker()._joined([[], []]) == [None, None]


def test_frames_are_fitted_again_from_the_frames_beside() -> None:
    world = World(along(*(0.1 * k for k in range(6))))
    path: list[Fit | None] = [fit_at(0.1 * k) for k in range(6)]
    path[3] = None
    out = world.tracker()._with_adjacent([[] for _ in path], path)
    starts = {call[1]: call[2] for call in world.calls}
    assert starts == pytest.approx({0: 0.0, 1: 0.1, 2: 0.2, 3: 0.3}), "between two frames, or beyond two on one side"
    assert [angles(fits) for fits in out] == [[0.0], [0.1], [0.2], [0.3], [], []]
    few = World(along(0.0, 0.1))
    assert few.tracker()._with_adjacent([[path[0]], []], [path[0], None]) == [[path[0]], []]  # type: ignore[list-item]
    around = World(along(3.1, 0.0, -3.1))
    around.tracker()._with_adjacent([[], [], []], [fit_at(3.1), None, fit_at(-3.1)])
    assert around.calls[0][:2] == ("fitted", 1)
    assert around.calls[0][2] == pytest.approx(np.pi, abs=1e-6)


def test_a_path_is_followed_over_its_jump_from_both_sides() -> None:
    """The truth goes on steadily; the path changes to another configuration at frame 4 and back at frame 6."""
    truth = 0.05 * np.arange(10)
    world = World(along(*truth))
    path: list[Fit | None] = [fit_at(a) for a in truth]
    path[4], path[5] = fit_at(2.0), fit_at(2.05)
    candidates = [[fit] for fit in path if fit is not None]
    found = world.tracker()._across_jumps(candidates, path)
    assert angles(found[4]) == [2.0, 0.2, 0.2]
    assert angles(found[5]) == [2.05, 0.25, 0.25]
    assert all(len(call) == 5 and call[4] == 0.05 for call in world.calls), "near what the motion predicts"
    steady: list[Fit | None] = [fit_at(a) for a in truth]
    world.calls.clear()
    assert world.tracker()._across_jumps(candidates, steady) == candidates
    steady[5] = None
    assert world.tracker()._across_jumps(candidates, steady) == candidates
    assert world.calls == []


def test_a_continued_path_ends_where_it_meets_the_path_again_or_at_its_reach() -> None:
    truth = 0.05 * np.arange(12)
    path: list[Fit | None] = [fit_at(a) for a in truth]
    for k in (4, 5, 6):
        path[k] = fit_at(2.0)
    world = World(along(*truth))
    on = world.tracker()
    assert [(i, round(float(fit.configuration[0]), 6)) for i, fit in on._followed_alone(path, 3, 1)] == [
        (4, 0.2), (5, 0.25), (6, 0.3), (7, 0.35)
    ]  # fmt: skip
    assert world.calls[0] == ("fitted", 4, 0.2, 0.0, 0.05), "a step ahead"
    assert [i for i, _ in on._followed_alone(path, 7, -1)] == [6, 5, 4, 3]
    assert [i for i, _ in World(along(*truth)).tracker(reach=3)._followed_alone(path, 3, 1)] == [4, 5]
    assert [i for i, _ in World(along(*truth), lost=(5,)).tracker()._followed_alone(path, 3, 1)] == [4]
    world = World(along(*truth))
    assert [i for i, _ in world.tracker()._followed_alone([*path[:5]], 3, 1)] == [4], "until the clip ends"
    jumped: list[Fit | None] = [fit_at(2.0), fit_at(0.05), fit_at(2.0)]
    world = World(along(0.0, 0.05, 0.05), reach=0.01)
    list(world.tracker()._followed_alone(jumped, 1, 1))
    assert world.calls[0] == ("fitted", 2, 0.05, 0.0, 0.05), "after a jump the rate is unknown"


def test_colours_are_taught_by_the_frames_of_most_overlap() -> None:
    world = World(along(*np.zeros(30)))
    tracker, learned = world.tracker(), list[dict[int, float]]()
    vars(tracker)["_searched"] = lambda rows: {
        i: [fit_at(0.0, overlap=0.01 * i), fit_at(1.0)] if i != 16 else [] for i in rows
    }
    vars(tracker)["_learn"] = lambda fits: learned.append({i: fit.overlap for i, fit in fits.items()})
    tracker.foreground = SimpleNamespace(rows=np.arange(0, 30, 2))  # type: ignore[assignment]
    assert list(tracker._teach(4)) == [4, 10, 22], "of 4, 10, 16 and 22, within the clip"
    assert [list(fits) for fits in learned] == [[22, 10], [22, 10, 4]]
    assert learned[1] == pytest.approx({22: 0.22, 10: 0.1, 4: 0.04})
    assert list(tracker._teach()) == [i for i in range(2, 26, 2) if i != 16]


def test_a_clip_is_taught_followed_and_followed_again() -> None:
    world, shares, first = World(along(*(0.05 * k for k in range(9)))), list[float](), list[tuple[int, float]]()
    tracker = world.tracker(stretch=4)
    tracker.progress, tracker.first = shares.append, lambda i, at: first.append((i, float(at[0])))
    learned = list[list[int]]()
    vars(tracker)["_begin"] = lambda: None
    vars(tracker)["_teach"] = lambda *_: {2: [fit_at(0.1, 60.0, overlap=0.9)], 6: [fit_at(0.3, 90.0, overlap=0.7)]}
    vars(tracker)["_learn"] = lambda fits: learned.append(list(fits))
    vars(tracker)["_searched"] = lambda rows: {i: Seen(world, i).detect() for i in rows}
    found = tracker.run()
    assert angles(found) == [round(0.05 * k, 6) for k in range(9)]
    assert shares == [0.3, 0.5, 0.65, 0.85, 0.95]
    assert first == [(6, pytest.approx(0.3))]
    assert learned == [list(range(9))]
    assert calls(world, "searched") == [0, 4, 8]
    vars(tracker)["_teach"] = lambda *_: {}
    assert tracker.run() == [None] * 9
    assert tracker.searched_anchors(3) == {}


def test_jumps_are_named_and_counted() -> None:
    times, body = np.arange(10) / FPS, Body()
    steady = np.stack([0.3 * np.arange(10), 0.1 * np.arange(10)], axis=1)
    assert jump_notes(times, steady, body, 0.35 * UNITS) == ()  # type: ignore[arg-type]
    for column, names in ((0, "(elbow)"), (1, "(slide)")):
        jumped = steady.copy()
        jumped[6, column] += 1.0
        (note,) = jump_notes(times, jumped, body, 0.35 * UNITS)  # type: ignore[arg-type]
        assert names in note
        assert f"in 3 frames, first at {times[5]:.2f} s" in note
        assert severity_of(note) is Severity.DOUBT
    both = steady.copy()
    both[6] += 1.0
    (note,) = jump_notes(times, both, body, 0.35 * UNITS)  # type: ignore[arg-type]
    assert "(elbow, slide)" in note
    assert "in 3 frames" in note
    assert jump_notes(times[:2], both[5:7], body, 0.35 * UNITS) == ()  # type: ignore[arg-type]
    assert len(jump_notes(times[:3], both[5:8], body, 0.35 * UNITS)) == 1  # type: ignore[arg-type]


def test_an_angle_goes_on_round() -> None:
    motion = np.stack([np.linspace(-3.5, -9.0, 12), np.linspace(0.0, 9.0, 12)], axis=1)
    wrapped = motion.copy()
    wrapped[:, 0] = (motion[:, 0] + np.pi) % (2.0 * np.pi) - np.pi
    found = unwrapped(wrapped, Body())  # type: ignore[arg-type]
    np.testing.assert_allclose(found - found[0], motion - motion[0], atol=1e-9)
    assert abs(found[0, 0] - 0.1) <= np.pi, "the first is nearest to the rest"


def test_a_track_states_scaled_and_averaged_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four frames, of which one is lost, and one has no covariance: it has the usual one."""
    monkeypatch.setattr("vid2phys.tracking.articulated.silhouette_tracker.coordinate_units", lambda _: UNITS)
    times, body = np.array([0.0, 0.2, 0.4, 0.6]), Body()
    near, wide = np.diag([1.0, 4.0]), np.diag([9.0, 16.0])
    found = [fit_at(0.0, covariance=near), None, fit_at(0.1, covariance=wide, overlap=0.5), fit_at(0.2)]
    track = _track(times, body, found, np.array([True, False, True, True]), DEFAULTS)  # type: ignore[arg-type]
    usual = np.diag([5.0, 10.0])
    each, at = np.stack([near, wide, usual]), times[[0, 2, 3]]
    weight = np.exp(-np.abs(at[:, None] - at) / 0.2)
    mean = np.einsum("mn,nij->mij", weight, each) / weight.sum(axis=1)[:, None, None]
    np.testing.assert_allclose(track.covariance[[0, 2, 3]], 0.25 * mean)
    assert np.isnan(track.covariance[1]).all()
    assert np.isnan(track.configurations[1]).all()
    np.testing.assert_allclose(track.configurations[[0, 2, 3], 0], [0.0, 0.1, 0.2])
    np.testing.assert_array_equal(track.quality, [0.9, 0.0, 0.5, 0.9])
    measured = track.observation.configuration
    assert measured is not None
    assert measured.measured.tolist() == [True, False, True, True]
    np.testing.assert_allclose(measured.covariance[[0, 2, 3]], 0.25 * 0.25 * mean)
    basis = measured.shared_basis[[0, 2, 3]]
    np.testing.assert_allclose(basis @ np.swapaxes(basis, 1, 2), 0.25 * mean)
    np.testing.assert_array_equal(track.observation.process_time_s, [0.3, 0.3])
    assert track.notes == ()
    nowhere = _track(times[:1], body, [fit_at(0.0)], np.array([True]), DEFAULTS)  # type: ignore[arg-type]
    np.testing.assert_allclose(nowhere.covariance[0], 0.25 * np.diag(body.prior_std**2))


def test_nothing_is_seen_of_keypoints() -> None:
    seen = observation_of_nothing(np.arange(4) / FPS, Body(), np.array([0.3, 0.2]))  # type: ignore[arg-type]
    assert not seen.visible.any()
    assert seen.bearings.shape == (4, 3, 2)
    assert seen.shared_basis.shape == (4, 3, 2, 2)
    np.testing.assert_array_equal(seen.covariance, np.broadcast_to(np.eye(2), (4, 3, 2, 2)))


def test_static_parts_and_what_may_be_the_body_at_rest_count_less() -> None:
    world = World(along(0.0))
    ratio = np.array([[-2.0, 3.0, -4.0, 5.0]], np.float32)
    static = np.array([[False, False, True, True]])
    body: Any = SimpleNamespace(mesh=None)
    search: Any = SimpleNamespace(static=static, body=body)
    tracker = SilhouetteTracker(world, np.zeros(1), search)  # type: ignore[arg-type]
    vars(tracker)["solid"] = None
    for known, scale in ((None, 0.15), (np.zeros(1), 1.0)):  # whether the colours of the body are known
        tracker.foreground = SimpleNamespace(log_ratio=lambda _: ratio.copy(), body=known)  # type: ignore[assignment]
        seen = tracker._seen(0)
        np.testing.assert_allclose(seen.log_ratio, [[-2.0 * scale, 3.0, 0.0, 0.0]])
        assert seen.frame == 0


def test_nothing_is_searched_before_something_moves() -> None:
    world = World(along(*np.zeros(4)))
    tracker = world.tracker()
    tracker.foreground = SimpleNamespace(body=None)  # type: ignore[assignment]
    pixels = {0: 3, 1: 4, 2: 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Seen, "coarse", property(lambda seen: np.arange(9.0) < pixels[seen.i]))
        searched = one_thread()(tracker._searched)
        assert searched([0]) == {0: []}
        assert not tracker.moved
        tracker.foreground = SimpleNamespace(body=1)  # type: ignore[assignment]
        assert searched([1]) == {1: []}, "static things of the body's colours do not move"
        tracker.foreground = SimpleNamespace(body=None)  # type: ignore[assignment]
        assert angles(searched([1])[1]) == [0.0]
        assert tracker.moved
        assert angles(searched([2])[2]) == [0.0]


def test_a_silhouette_leaves_static_parts_out() -> None:
    static = np.zeros((20, 30), dtype=bool)
    static[8:12, 10:14] = True
    mask = np.zeros((6, 8), dtype=bool)
    mask[2:, 3:] = True
    asked = list[float]()

    @dataclass(frozen=True)
    class Grid:
        corner: Array
        size: Array
        scale: float

    def silhouette(configuration: Array, grid: Grid) -> Any:
        asked.append(grid.scale)
        return mask if configuration[0] > 0.0 else mask & False if configuration[0] == 0.0 else None

    search: Any = SimpleNamespace(
        coarse=Grid(np.array([9, 7]), np.array([8, 6]), 0.2), static=static, silhouette=silhouette
    )
    tracker = SilhouetteTracker(World(along(0.0)), np.zeros(1), search)  # type: ignore[arg-type]
    found = tracker._mask(np.ones(2))
    assert found is not None
    rows, columns, pixels = found
    assert (rows, columns) == (slice(7, 13), slice(9, 17))
    np.testing.assert_array_equal(pixels, mask & ~static[7:13, 9:17])
    assert pixels.sum() == 20 - 6
    assert asked == [1.0], "pixels of the frame"
    assert tracker._mask(np.zeros(2)) is None
    assert tracker._mask(-np.ones(2)) is None
