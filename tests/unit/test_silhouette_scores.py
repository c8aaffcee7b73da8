"""Evidence of a foreground for a drawn body in closed form, rounds of lines, and which fits of a frame are chosen."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray
from scipy.special import expit

from vid2phys.geometry import Pose
from vid2phys.tracking import silhouette_fit
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.silhouette_fit import DEFAULTS, Fit, FrameForeground, contour_near, detect
from vid2phys.types import Array, Camera, Mesh

FX, FY = 300.0, 360.0
CAMERA = Camera(np.array([[FX, 0.0, 100.0], [0.0, FY, 75.0], [0.0, 0.0, 1.0]]), 200, 150)
MADE = trimesh.creation.box((0.2, 0.15, 1e-4))
MESH = Mesh(np.asarray(MADE.vertices), np.asarray(MADE.faces), np.zeros(len(MADE.faces), np.int64), name="plate")
SOLID = Solid.of(MESH)
WIDE, HIGH = 60.0, 54.0  # px of the plate at one metre


def at(x: float = 0.0, z: float = 1.0) -> Pose:
    return Pose(np.eye(3), np.array([x, 0.0, z]))


def foreground(wide: float = WIDE, aside_px: float = 0.0, inside: float = 3.0, beside: float = -3.0) -> Any:
    """Return log-likelihood ratios [H, W] with a rectangle about the middle of the frame, `aside_px` to the right."""
    v, u = np.mgrid[:150, :200]
    cover = np.clip(0.5 + 0.5 * wide - abs(u - 100.0 - aside_px), 0.0, 1.0)
    cover = cover * np.clip(0.5 + 0.5 * HIGH - abs(v - 75.0), 0.0, 1.0)
    return (beside + (inside - beside) * cover).astype(np.float32)


def frame(ratio: NDArray[np.float32], **settings: Any) -> FrameForeground:
    return FrameForeground(np.zeros((150, 200, 3), np.uint8), ratio, CAMERA, SOLID, **settings)


@pytest.fixture
def no_edges(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Edges state 7 nats; the list gets what they are asked with."""
    asked = list[Any]()

    def evidence(*view: Any) -> Any:
        asked.append(view)
        return SimpleNamespace(edges=lambda *_: 7.0)

    monkeypatch.setattr(silhouette_fit, "Evidence", evidence)
    return asked


@pytest.mark.parametrize(("aside_px", "inside"), [(0.0, 3.0), (6.0, 3.0), (-6.0, 2.5), (0.0, 1.0), (6.0, 0.5)])
def test_pixels_inside_a_silhouette_count_once_for_each_three_quarters_of_its_side(
    aside_px: float, inside: float, no_edges: list[Any]
) -> None:
    """A pixel is foreground as a whole from two nats on, and the overlap is the shared part of both."""
    found = frame(foreground(aside_px=aside_px, inside=inside)).judged(at(), None)
    shared, side = 1.0 - abs(aside_px) / WIDE, np.sqrt(WIDE * HIGH)
    expected = (shared * inside - 3.0 * (1.0 - shared)) * side / 0.75
    assert found.nats - 7.0 == pytest.approx(expected, rel=0.06, abs=6.0)
    sure = min(inside / 2.0, 1.0)
    both = shared * sure
    assert found.overlap == pytest.approx(both / (sure + 1.0 - both), abs=0.04)


@pytest.mark.parametrize(("excess", "wide"), [(0.5, 70.0), (-0.5, 50.0)])
def test_the_foreground_of_a_moving_body_is_longer_or_shorter_than_it(
    excess: float, wide: float, no_edges: list[Any]
) -> None:
    seen = frame(foreground(wide), path_px=(20.0, 0.0), excess=excess)
    assert seen.judged(at(), None).overlap > 0.95
    assert frame(foreground(wide)).judged(at(), None).overlap < 0.88
    sharp = seen.sharp > 0.0
    assert sharp.any(axis=0).sum() == pytest.approx(WIDE, abs=2.0), "without what the motion adds"
    np.testing.assert_array_equal(frame(foreground()).sharp, foreground())


def test_what_lies_beyond_the_frame_states_nothing(no_edges: list[Any]) -> None:
    """Half of the plate is to the right of the frame, where no pixel is foreground."""
    found = frame(foreground(aside_px=99.5)).judged(at(99.5 / FX), None)
    assert found.nats - 7.0 == pytest.approx(0.5 * 3.0 * np.sqrt(WIDE * HIGH) / 0.75, rel=0.08)
    assert found.overlap == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("edged", [False, True])
def test_edges_are_those_of_the_frame_and_of_the_foreground_where_asked(edged: bool, no_edges: list[Any]) -> None:
    ratio = foreground(inside=0.7, beside=-1.2)
    contour: Any = object()
    found = frame(ratio, foreground_edges=edged, path_px=(0.4, 0.3)).judged(at(0.02, 1.1), contour)
    assert found.contour is contour
    ((_, _, solid, center, radius, region, shown, config),) = no_edges
    assert solid is SOLID
    assert region is False
    np.testing.assert_allclose(center, [0.02 / 1.1, 0.0])
    assert radius == pytest.approx(MESH.radius_m / np.hypot(0.02, 1.1), rel=0.02)
    assert (config.path_px, config.max_rounds) == ((0.4, 0.3), 4)
    if edged:
        np.testing.assert_allclose(shown, np.repeat(255.0 * expit(ratio)[..., None], 3, axis=-1), atol=1.0)
    else:
        assert shown is None


def test_a_body_behind_the_camera_has_no_evidence(no_edges: list[Any]) -> None:
    found = frame(foreground()).judged(at(z=-1.0), None)
    assert (found.nats, found.overlap, no_edges) == (-np.inf, 0.0, [])
    assert frame(foreground()).aligned(at(z=-1.0)) is None


def test_lines_lead_to_a_foreground() -> None:
    """Nine pixels aside and five percent too far away."""
    found = frame(foreground()).aligned(at(0.03, 1.05))
    assert found is not None
    np.testing.assert_allclose(found.translation, [0.0, 0.0, 1.0], atol=0.01)


def test_lines_end_where_the_body_does_if_the_foreground_is_longer() -> None:
    v, u = np.mgrid[:150, :200]
    shown = np.where((abs(u - 100.0) < 0.5 * WIDE + 5.0) & (abs(v - 75.0) < 0.5 * HIGH), 3.0, -3.0).astype(np.float32)
    moving = frame(shown, path_px=(20.0, 0.0), excess=0.5).aligned(at())
    still = frame(shown).aligned(at())
    assert moving is not None
    assert still is not None
    assert abs(moving.translation[2] - 1.0) < 0.02
    assert still.translation[2] < 0.975


class Rounds:
    """Stand-ins for lines and steps, which note what they are asked; a step is the same in all coordinates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: float = 0.01) -> None:
        self.step, self.reaches, self.asked = step, list[float](), list[Any]()
        monkeypatch.setattr(silhouette_fit, "edge_places", self.places)
        monkeypatch.setattr(silhouette_fit, "descend", self.descend)

    def places(self, ratio: Any, middles: Array, normals: Any, reach_px: float, steps: int, same_px: float) -> Any:
        assert (steps, same_px) == (10, 4.0)
        self.reaches.append(reach_px)
        return np.zeros(len(middles)), np.ones(len(middles))

    def descend(self, jacobian: Any, mean: Any, variance: Any, prior: Any, total: Any, most: Any, _: Any) -> Any:
        self.asked.append((prior, total, most))
        return np.full(6, self.step), None


@pytest.mark.parametrize(
    ("z", "lines", "found"), [(9.0, 12, True), (11.0, 12, False), (1.0, 160, True), (1.0, 161, False)]
)
def test_a_contour_needs_six_pixels_and_enough_lines(
    z: float, lines: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 60 px at a metre. The contour has 160 lines across it."""
    Rounds(monkeypatch, 0.0)
    few = frame(foreground(), config=replace(DEFAULTS, min_lines=lines))
    assert (few.aligned(at(z=z)) is not None) is found


def test_rounds_of_lines_reach_less_far_and_remember_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(monkeypatch)
    found = frame(foreground()).aligned(at())
    assert found is not None
    expected = at()
    for _ in range(4):
        expected = expected.retract(np.full(6, 0.01))
    np.testing.assert_allclose(found.translation, expected.translation)
    np.testing.assert_allclose(found.rotation, expected.rotation)
    np.testing.assert_allclose(np.array(rounds.reaches) / rounds.reaches[0], np.array([20, 12, 7, 4]) / 20, rtol=0.05)
    assert 0.2 * 50.0 < rounds.reaches[0] < 0.2 * 90.0
    for k, (prior, total, most) in enumerate(rounds.asked):
        np.testing.assert_allclose(prior, np.diag(1.0 / np.array([0.5, 0.5, 0.5, 0.05, 0.05, 0.3]) ** 2))
        np.testing.assert_allclose(total, 0.01 * k)
        np.testing.assert_allclose(most, [0.4, 0.4, 0.4, 0.05, 0.05, 0.3])
    rounds.reaches.clear()
    frame(foreground()).aligned(at(), (0.2, 0.001))
    assert len(rounds.reaches) == 2
    assert rounds.reaches[1] == 2.0, "two pixels at least"


def fit(nats: float, name: Any = None) -> Fit:
    return Fit(at() if name is None else name, nats, 0.5, None)


@pytest.mark.parametrize("nats", [4.0, 6.0])
def test_the_better_of_start_and_contour_is_kept(nats: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, start, asked = frame(foreground(), path_px=(3.0, 1.0)), fit(5.0), list[Any]()
    contour: Any = SimpleNamespace(pose=at(0.1))
    near: list[Any] = [contour]
    monkeypatch.setattr(silhouette_fit, "contour_near", lambda *given: asked.append(given[3:]) or near[0])
    monkeypatch.setattr(FrameForeground, "judged", lambda _, pose, contour: Fit(pose, nats, 0.5, contour))
    found = seen.fitted(start)
    assert found is not None
    assert found.nats == max(nats, 5.0)
    assert found.pose is (contour.pose if nats > 5.0 else start.pose)
    assert found.contour is contour
    assert asked == [(start.pose, (3.0, 1.0), DEFAULTS)]
    near[0] = None
    assert seen.fitted(start) == start
    assert seen.fitted(fit(-np.inf)) is None
    again = seen.fitted_from(at(0.2))
    assert again is not None
    assert again.nats == nats


def test_the_contour_starts_near_its_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()
    monkeypatch.setattr(silhouette_fit, "fit_contour", lambda *_, **given: asked.append(given))
    contour_near(np.zeros((150, 200, 3), np.uint8), CAMERA, SOLID, at(), (2.0, 1.0))
    np.testing.assert_allclose(asked[0]["prior"], np.diag(np.array([0.15, 0.15, 0.15, 0.02, 0.02, 0.06]) ** -2.0))
    assert (asked[0]["config"].path_px, asked[0]["config"].max_rounds) == ((2.0, 1.0), 4)


def test_the_best_aligned_proposals_of_each_region_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two regions: of nine proposals one cannot be aligned and the last one is not fitted; of two none is lost."""
    regions = [[9, 3, 8, -1, 1, 7, 4, 6, 5], [20, 2]]
    fitted, reaches = list[float](), list[Any]()

    class Seen:
        config, camera, sharp = DEFAULTS, CAMERA, foreground()

        def aligned(self, pose: int, given: Any) -> Any:
            reaches.append(given)
            return None if pose < 0 else pose

        def judged(self, pose: Any, contour: None) -> Fit:
            return fit(float(pose), pose)

        def fitted(self, each: Fit) -> Fit | None:
            fitted.append(each.nats)
            return None if each.nats == 7.0 else replace(each, nats=each.nats + 0.5)

    seen: Any = Seen()
    monkeypatch.setattr(silhouette_fit, "propose_poses", lambda given, sharp, camera: regions)
    given: Any = None
    found = detect(given, seen)
    assert fitted == [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 20.0, 2.0]
    assert [each.nats for each in found] == [20.5, 9.5, 8.5, 6.5]
    assert [each.nats for each in detect(given, seen, 1)] == [20.5]
    assert set(reaches) == {(0.1, 0.06)}
