"""Passes through a clip: what teaches, what is searched, and what texture, tilt and shadows count in a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.moving_box import CAMERA, FPS
from tests.unit.test_mesh_tracker import MESH, SHAPE, World, fit_at, pose_at, xs
from vid2phys.tracking import mesh_tracker
from vid2phys.tracking.hypotheses import DEFAULTS as HYPOTHESES
from vid2phys.tracking.mesh_tracker import DEFAULTS, MeshTracker
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Array

ELEMENTS = len(SHAPE.rotations)


class Runner(MeshTracker):
    """A tracker whose steps are stand-ins: fits of a row are at that many tenths of a metre."""

    def __init__(self, anchors: dict[int, list[Fit]], hinted: Any = None, **options: Any) -> None:
        frames: Any = [0] * 5
        super().__init__(frames, np.arange(5) / FPS, CAMERA, MESH, SHAPE, **options)
        self.anchors, self.hinted, self.log = anchors, hinted, list[Any]()
        self.agreed = np.zeros(5, dtype=bool)

    def begin(self) -> None:
        self.log.append("begin")

    def _teach(self) -> dict[int, list[Fit]]:
        return self.anchors

    def _teach_at_hint(self, hinted: Any) -> dict[int, list[Fit]]:
        self.log.append("hint")
        return self.anchors

    def _followed(self, anchors: dict[int, list[Fit]], fixed: Mapping[int, Fit] = MappingProxyType({})) -> Any:
        self.log.append({i: len(fits) for i, fits in anchors.items()})
        self.fixed = list(fixed)
        return [[fit_at(0.1 * i)] for i in range(5)], self.agreed.copy()

    def _fitted_again(self, found: Sequence[Fit | None]) -> dict[int, Fit]:
        return {i: fit for i, fit in enumerate(found) if fit is not None}

    def _agreed_rows(self, agreed: NDArray[np.bool_]) -> list[int]:
        return [int(i) for i in np.flatnonzero(agreed)]

    def _joined(self, candidates: Any) -> Any:
        return [None if i == 4 else fits[0] for i, fits in enumerate(candidates)]

    _agreeing = _joined

    def _looking_alike(self, found: Any) -> Any:
        return [[] for _ in found]

    def _learn(self, fits: dict[int, Fit], share: float = 1.0) -> None:
        self.log.append(("learn", sorted(fits)))

    def _searched(self, rows: Sequence[int]) -> dict[int, list[Fit]]:
        return {0: [fit_at(0.0)], 1: [], 3: [fit_at(0.3), fit_at(0.31)]}

    def _between(self, found: Any) -> Any:
        return [[] if fit is None else [fit] for fit in found]


def test_a_run_follows_twice_and_shows_its_best_anchor_first() -> None:
    """The best one by evidence and overlap; frames in which a search finds nothing are no anchors."""
    shown, shares = list[tuple[int, float]](), list[float]()
    anchors = {1: [fit_at(0.1, nats=50.0)], 3: [fit_at(0.3, nats=60.0)], 2: [fit_at(0.2, nats=90.0, overlap=0.5)]}
    runner = Runner(anchors, first=lambda i, pose: shown.append((i, pose.translation[0])), progress=shares.append)
    found = runner.run()
    assert shown == [(3, pytest.approx(0.3))]
    assert shares == [0.3, 0.5, 0.7]
    assert runner.log == ["begin", {1: 1, 3: 1, 2: 1}, ("learn", [0, 1, 2, 3]), {0: 1, 3: 2}]
    assert [fit is None for fit in found] == [False] * 4 + [True]
    np.testing.assert_array_equal(runner.evidence, np.zeros(ELEMENTS))


def test_the_fit_at_a_hint_stays_an_anchor() -> None:
    runner = Runner({3: [fit_at(0.3)]}, hinted=SimpleNamespace(row=3))
    runner.run()
    assert runner.log[1] == "hint"
    assert runner.log[-1] == {0: 1, 3: 3}
    runner = Runner({2: [fit_at(0.2)]}, hinted=SimpleNamespace(row=2))
    runner.run()
    assert runner.log[-1] == {0: 1, 3: 2, 2: 1}


def test_ways_that_agree_fix_fits_unless_they_begin_at_one_hint() -> None:
    for hinted, fixed in ((None, [0, 1]), (SimpleNamespace(row=3), [])):
        runner = Runner({3: [fit_at(0.3)]}, hinted=hinted)
        runner.agreed[[0, 1]] = True
        runner.run()
        assert runner.fixed == fixed


def test_look_alikes_that_explain_a_frame_are_candidates() -> None:
    """Of three, one explains nothing, and one is the pose again. The third is joined with the frame's other fits."""
    world = World(np.array([0.0, 0.1]), reach_m=0.0)
    tracker = world.tracker(look_alike_share=0.5)
    aside = {0: [pose_at(0.0), pose_at(0.2), pose_at(0.04)], 1: [pose_at(0.16)]}
    alike = SimpleNamespace(of_pose=lambda pose: aside[round(10 * float(pose.translation[0]))])
    vars(tracker)["look_alikes"] = alike
    found = tracker._looking_alike([fit_at(0.0), fit_at(0.1)])
    assert [xs(fits) for fits in found] == [[0.04], []]
    assert tracker._looking_alike([None, None]) == [[], []]
    joined = list[Any]()
    vars(tracker)["_looking_alike"] = lambda found: [[fit_at(0.5)] if fit is not None else [] for fit in found]
    vars(tracker)["_agreeing"] = lambda fits: joined.append([xs(each) for each in fits]) or [None] * 2
    for name in ("begin", "_learn", "_report"):
        vars(tracker)[name] = lambda *_: None
    vars(tracker)["_teach"] = lambda: {0: [fit_at(0.0)], 1: [fit_at(0.1)]}
    tracker.run()
    assert joined == [[[0.0, 0.5], [0.1, 0.5]]]


def test_a_body_without_look_alikes_is_joined_by_silhouettes() -> None:
    tracker = World(np.array([0.0, 0.1])).tracker()
    vars(tracker)["look_alikes"] = SimpleNamespace(maps=np.zeros((0, 3, 3)))
    assert xs(tracker._agreeing([[fit_at(0.0)], [fit_at(0.1)]])) == [0.0, 0.1]


def test_without_anchors_all_frames_are_lost() -> None:
    shares = list[float]()
    assert Runner({}, progress=shares.append).run() == [None] * 5
    assert shares == []


@pytest.mark.parametrize(("tilt_rad", "nats"), [(0.0, 0.0), (0.2, -2.0), (0.3, -4.5), (3.0, -HYPOTHESES.max_tilt_nats)])
def test_a_tilt_costs_half_its_square_up_to_a_limit(tilt_rad: float, nats: float) -> None:
    """The body's z axis is up in the world for a camera of any pose."""
    up = np.array([[1.0, 0.0, 0.0], [0.0, np.cos(0.4), -np.sin(0.4)], [0.0, np.sin(0.4), np.cos(0.4)]])
    to_world = np.eye(4)
    to_world[:3, :3] = up
    runner = Runner({}, tilt_std_rad=0.1)
    runner.camera = replace(CAMERA, camera_to_world=to_world)
    tilted = pose_at(0.0, (tilt_rad, 0.0, 0.0)).rotation
    pose = replace(pose_at(0.0), rotation=up.T @ tilted)
    assert runner._tilt_nats(pose) == pytest.approx(nats, abs=1e-9)
    fit = Fit(pose, 70.0, 0.9, None)
    assert runner._nats(fit) == pytest.approx(70.0 / DEFAULTS.temperature + nats)
    runner.tilt_std_rad = None
    assert runner._tilt_nats(pose) == 0.0
    runner.tilt_std_rad, runner.camera = 0.1, replace(CAMERA, camera_to_world=None)
    assert runner._tilt_nats(pose) == 0.0


def test_a_texture_speaks_for_an_element_and_for_what_it_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, image = Runner({}), np.zeros((2, 2, 3), np.uint8)
    np.testing.assert_array_equal(runner._texture_nats(image, fit_at(0.0)), np.zeros(ELEMENTS))
    shown: Any = SimpleNamespace(explained=lambda colors: (None, {"b": 5.0}[colors]))
    monkeypatch.setattr(mesh_tracker, "shown_at", lambda *_: shown)
    nats: Array = np.array([1.0, 3.0, 2.0])
    runner.texture = SimpleNamespace(element_nats=lambda _: nats, colors=["a", "b", "c"])  # type: ignore[assignment]
    np.testing.assert_array_equal(runner._texture_nats(image, fit_at(0.0)), nats + 5.0)


def test_most_of_what_changes_may_be_a_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fifths of the changed pixels must be no shadow, in the median of the frames."""
    monkeypatch.setattr(mesh_tracker, "in_processes", lambda work, over: [work(each) for each in over])
    runner = Runner({})

    def lit(counts: list[int]) -> bool:
        ratio = lambda count: np.where(np.arange(10) < count, 1.0, 0.0)  # noqa: E731
        runner.frames = counts  # type: ignore[assignment]
        bright = SimpleNamespace(log_ratio=lambda _: ratio(10))
        runner.foreground = SimpleNamespace(without_shadows=lambda: bright, log_ratio=ratio)  # type: ignore[assignment]
        return runner._passes_for_shadow(range(len(counts)))

    assert lit([3, 3, 9])
    assert not lit([4, 5, 0]), "four of ten"
    assert not lit([0, 10, 10])


def test_what_may_be_shadow_counts_neither_for_nor_against_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two searches, with shadows in the model of the scene and without; both are judged by the same pixels."""
    runner, judged, searched = Runner({}), list[Any](), list[Array]()
    seen_ratio, bright_ratio = np.array([0.5, -1.0, -1.0, 2.0]), np.array([1.5, 2.0, -3.0, -4.0])

    @dataclass(frozen=True)
    class Frame:
        frame: str
        log_ratio: Array

        def judged(self, pose: Any, contour: Any) -> Any:
            judged.append((self.log_ratio.tolist(), contour))
            return Fit(pose, float(self.log_ratio[0]), float(self.log_ratio[1]), contour)

    def detected(i: int, seen: Any) -> list[Fit]:
        searched.append(seen.log_ratio)
        return [Fit(pose_at(0.1 * len(searched)), 1.0, 1.0, f"contour {len(searched)}")]  # type: ignore[arg-type]

    bright = SimpleNamespace(log_ratio=lambda frame: bright_ratio)
    runner.foreground = SimpleNamespace(without_shadows=lambda: bright)  # type: ignore[assignment]
    monkeypatch.setattr(MeshTracker, "_detected", lambda self, i, seen: detected(i, seen))
    found = runner._detected_in_shadow(3, Frame("frame", seen_ratio))  # type: ignore[arg-type]
    np.testing.assert_allclose([fit.pose.translation[0] for fit in found], [0.1, 0.2])
    assert [(fit.nats, fit.overlap) for fit in found] == [(0.5, 2.0)] * 2, "a body that may be shadow is overlapped"
    assert [fit.contour for fit in found] == ["contour 1", "contour 2"]
    assert [each.tolist() for each in searched] == [seen_ratio.tolist(), bright_ratio.tolist()]
    of_both, of_bright = [0.5, 0.0, -3.0, 2.0], bright_ratio.tolist()
    assert judged == [(of_both, "contour 1"), (of_both, "contour 2"), (of_bright, None), (of_bright, None)]


def test_a_body_isshown_at_where_its_bounding_sphere_is(monkeypatch: pytest.MonkeyPatch) -> None:
    places = list[Any]()
    monkeypatch.setattr(mesh_tracker, "make_view", lambda camera, *place: places.append(place) or "view")  # type: ignore[func-returns-value]
    monkeypatch.setattr(mesh_tracker, "soft_view", lambda frame, camera, view, config: (frame, view, config))
    texture: Any = SimpleNamespace(config="soft", shown=lambda view, image, pose: (view, image))
    pose, frame = pose_at(0.5), np.zeros((2, 2, 3), np.uint8)
    view, image = mesh_tracker.shown_at(frame, CAMERA, MESH, texture, pose, DEFAULTS)  # type: ignore[misc]
    assert view == "view"
    assert image[1:] == ("view", "soft")
    ((center, radius, size),) = places
    np.testing.assert_allclose(center, [0.5, 0.0])
    assert radius == pytest.approx(np.arcsin(MESH.radius_m / np.hypot(0.5, 1.0)))
    assert size == 96


def test_a_frame_that_agrees_with_those_beside_it_is_not_fitted_from_others() -> None:
    """Of a body that is thrown, frames further away predict another place."""
    world = World(np.array([0.0, 0.0, 0.01, 0.01, 0.5]))
    found = world.tracker()._between([fit_at(x) for x in (0.0, 0.004, 0.008, 0.012, 0.5)])
    assert xs(found[2]) == [0.008]
    assert world.calls[:1] == [("fitted", 3, 0.254)], "the fourth frame jumps"
