"""How the configuration of a body is judged by a foreground, aligned in rounds of lines, and chosen among fits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.tracking.articulated import silhouette_fit
from vid2phys.tracking.articulated.silhouette_fit import Fit, FrameFit
from vid2phys.tracking.articulated.silhouette_search import Grid
from vid2phys.types import Array

UNITS = np.array([1.0, 0.2])
GRID = Grid(np.array([8, 4]), np.array([40, 20]), 0.5)  # 20 x 10 pixels
AT = np.array([0.3, -0.1])


class Search:
    """A drawn body whose silhouette on the fine grid is given."""

    units, fine, coarse = UNITS, GRID, replace(GRID, scale=0.25)
    faces = "moving faces"
    body = SimpleNamespace(center_m=np.array([0.0, 0.0, 0.5]), radius_m=0.3)
    window = SimpleNamespace(
        camera="camera", camera_from_base="base", in_camera=lambda point: point + np.array([0.1, 0.0, 1.5])
    )

    def __init__(self, mask: Any = None, proposed: Any = ()) -> None:
        self.mask, self.proposed = mask, proposed

    def silhouette(self, configuration: Array, grid: Grid) -> Any:
        assert grid is GRID
        return self.mask

    def propose(self, ratio: Any) -> Any:
        assert ratio.shape == (30, 60)
        return self.proposed


class Placed:
    """A body whose vertices are its configuration; the limits are at 0.5."""

    def __init__(self, body: Any, base: str, configuration: Array) -> None:
        assert base == "base"
        self.configuration = configuration

    def vertices(self) -> Array:
        return self.configuration

    def slopes(self, points: Any, along: Any) -> Any:
        return "slopes", points, along

    def moved(self, step: Array) -> tuple[Placed, Array]:
        after = np.minimum(self.configuration + step, 0.5)
        return Placed(None, "base", after), after - self.configuration


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked = list[Any]()

    def evidence(*view: Any) -> Any:
        asked.append(view)
        return SimpleNamespace(edges=lambda vertices, drawing: 7.0 + float(vertices[0]))

    monkeypatch.setattr(silhouette_fit, "Evidence", evidence)
    monkeypatch.setattr(silhouette_fit, "PlacedBody", Placed)
    monkeypatch.setattr(
        silhouette_fit, "draw", lambda vertices, faces: None if vertices[0] < -1.0 else (vertices, faces)
    )
    return asked


def frame(search: Any, ratio: Any = None) -> FrameFit:
    solid: Any = SimpleNamespace(draw=lambda vertices: None if vertices[0] < -1.0 else (vertices, "faces"))
    given: Any = np.zeros((30, 60), np.float32) if ratio is None else ratio
    return FrameFit(np.zeros((30, 60, 3), np.uint8), given, search, solid)


def test_a_silhouette_is_judged_by_the_foreground_inside_and_around_it(stand_ins: list[Any]) -> None:
    """On the grid: 8 x 6 pixels of the body, of which 12 show the base; 24 are foreground for sure, 12 halfway.

    Beside the body eight more pixels are foreground for sure. A pixel of the grid stands for four of the frame.
    """
    mask = np.zeros((10, 20), dtype=bool)
    mask[2:8, 4:12] = True
    ratio = np.full((10, 20), -1.0, np.float32)
    ratio[2:8, 4:8], ratio[2:8, 8:10], ratio[2:8, 10:12], ratio[2:6, 14:16] = 5.0, 1.0, 0.0, 3.0
    whole = np.zeros((30, 60), np.float32)
    whole[4:24, 8:48] = np.repeat(np.repeat(ratio, 2, axis=0), 2, axis=1)
    seen = frame(Search(mask), whole)
    covariance = np.eye(2)
    found = seen.judged(AT, covariance)
    area, inside = 4.0 * 48.0, 4.0 * (24.0 * 5.0 + 12.0 * 1.0)
    assert found.nats == pytest.approx(inside / (0.75 * np.sqrt(area)) + 7.3)
    both = 24.0 + 0.5 * 12.0
    assert found.overlap == pytest.approx(both / (36.0 + 8.0), abs=1e-6), "pixels of the base do not count"
    assert found.configuration is AT
    assert found.covariance is covariance
    ((_, camera, solid, center, radius, region),) = stand_ins
    assert (camera, solid, region) == ("camera", seen.solid, False)
    np.testing.assert_allclose(center, [0.05, 0.0])
    assert radius == pytest.approx(0.3 / np.hypot(0.1, 2.0), rel=0.02)
    assert seen.coarse.shape == (5, 10)


def test_what_is_behind_the_camera_or_hidden_has_no_evidence(stand_ins: list[Any]) -> None:
    some = np.ones((10, 20), dtype=bool)
    for mask, at in ((None, AT), (some & False, AT), (some, np.array([-2.0, 0.0]))):
        found = frame(Search(mask)).judged(at)
        assert (found.nats, found.overlap, found.covariance) == (-np.inf, 0.0, None)
    assert np.isfinite(frame(Search(some)).judged(AT).nats)


class Lines:
    """Contours of 20 lines about a body of a size; a step is 0.15 of each coordinate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size_px: float, count: int = 20) -> None:
        self.size_px, self.count = size_px, count
        self.reaches, self.totals = list[float](), list[Array]()
        for name in ("occluding_contour", "edge_places", "descend"):
            monkeypatch.setattr(silhouette_fit, name, getattr(self, name))

    def occluding_contour(self, drawing: Any, camera: Any) -> Any:
        assert drawing[1] == "moving faces"
        pixels = np.zeros((self.count, 2))
        return SimpleNamespace(pixels=pixels, normals="normals", points="points", along="along", size_px=self.size_px)

    def edge_places(self, ratio: Any, pixels: Any, normals: Any, reach_px: float, steps: int, same_px: float) -> Any:
        assert (normals, steps, same_px) == ("normals", 10, 4.0)
        self.reaches.append(reach_px)
        return "mean", "variance"

    def descend(self, jacobian: Any, mean: Any, variance: Any, prior: Any, total: Any, most: Any, _: Any) -> Any:
        assert (jacobian, mean, variance) == (("slopes", "points", "along"), "mean", "variance")
        np.testing.assert_allclose(prior, np.diag(1.0 / (0.5 * UNITS) ** 2))
        np.testing.assert_allclose(most, 0.3 * UNITS)
        self.totals.append(total)
        return np.full(2, 0.15), None


def test_rounds_of_lines_reach_less_far_and_know_how_far_the_limits_let_them_go(
    stand_ins: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Lines(monkeypatch, 80.0)
    found = frame(Search()).aligned(AT)
    assert found is not None
    np.testing.assert_allclose(found, [0.5, 0.35])
    assert lines.reaches == pytest.approx([8.0, 4.8, 3.0]), "three pixels at least"
    np.testing.assert_allclose(lines.totals, [[0.0, 0.0], [0.15, 0.15], [0.2, 0.3]])
    assert frame(Search()).aligned(np.array([-2.0, 0.0])) is None


@pytest.mark.parametrize(("size_px", "count", "found"), [(8.1, 12, True), (7.9, 12, False), (8.1, 11, False)])
def test_a_contour_needs_eight_pixels_and_twelve_lines(
    size_px: float, count: int, found: bool, stand_ins: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Lines(monkeypatch, size_px, count)
    assert (frame(Search()).aligned(AT) is not None) is found


@pytest.mark.parametrize(("std", "used"), [(None, 0.15), (0.05, 0.05)])
@pytest.mark.parametrize("ahead", [-0.1, 0.1])
def test_edges_lead_on_where_that_explains_the_frame_better(
    ahead: float, std: float | None, used: float, stand_ins: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The larger the first coordinate, the more nats; both fits have the covariance of the edges."""
    covariance, result = np.diag([1e-4, 2e-4]), list[Any]()

    def refine(image: Any, window: Any, body: Any, solid: Any, start: Array, prior: Array) -> Any:
        assert start is AT
        np.testing.assert_allclose(prior, np.diag(1.0 / (used * UNITS) ** 2))
        return result[-1]

    monkeypatch.setattr(silhouette_fit, "refine_from", refine)
    seen = frame(Search(np.ones((10, 20), dtype=bool)))
    result.append((AT + ahead, covariance))
    found = seen.fitted(AT, std)
    assert found is not None
    np.testing.assert_array_equal(found.configuration, AT + max(ahead, 0.0))
    assert found.covariance is covariance
    result.append(None)
    alone = seen.fitted(AT, std)
    assert alone is not None
    assert (alone.configuration is AT, alone.covariance) == (True, None)
    assert frame(Search()).fitted(AT, std) is None


def test_the_best_proposals_are_fitted_as_they_are_or_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of twelve proposals are judged; aligned, each has half a nat more, and the third cannot be aligned."""
    fitted = list[float]()

    def fit(_: FrameFit, at: float) -> Fit | None:
        fitted.append(at)
        return None if at == 9.0 else Fit(np.array([at]), -abs(at - 8.0), 0.9, None)

    monkeypatch.setattr(FrameFit, "judged", lambda _, at: Fit(at, at, 0.9, None))
    monkeypatch.setattr(FrameFit, "aligned", lambda _, at: None if at == 3.0 else at + 0.5)
    monkeypatch.setattr(FrameFit, "fitted", fit)
    proposed = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 2.5, 99.0, 98.0]
    found = frame(Search(proposed=proposed)).detect()
    assert fitted == [9.5, 9.0, 8.5, 8.0, 7.5, 7.0]
    assert [float(each.configuration[0]) for each in found] == [8.0, 8.5, 7.5, 7.0]
    assert len(frame(Search(proposed=proposed)).detect(2)) == 2
    assert frame(Search(proposed=[])).detect() == []
