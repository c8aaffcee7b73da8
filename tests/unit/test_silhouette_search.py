"""The search for configurations by silhouettes, which have a closed form: grids, units, variations and rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vid2phys.tracking.articulated.silhouette_search import (
    ConfigurationSearch,
    Grid,
    Part,
    SilhouetteSearchConfig,
    coordinate_units,
)
from vid2phys.types import Array, Mesh

GRID = Grid(np.array([0, 0]), np.array([64, 48]), 1.0)


class Disc:
    """A body whose two coordinates are where a disc of 5 px lies in the image, -1 to 1; the second goes round."""

    rest, lower, upper = np.zeros(2), np.full(2, -1.0), np.array([1.0, np.inf])
    prior_mean, prior_std = np.array([0.1, 0.0]), np.array([0.8, 0.5])
    radius_m = 0.4
    is_angle = np.array([False, True])
    mesh = SimpleNamespace(vertices=np.zeros((4, 3)))

    def difference(self, a: Array, b: Array) -> Array:
        return np.asarray(np.asarray(b) - np.asarray(a))

    def jacobian(self, configuration: Array, which: Array) -> Array:
        """The first coordinate moves vertices by 0.2 m at most, the second by 7 m a radian."""
        out = np.zeros((len(which), 3, 2))
        out[0, 1, 0], out[-1, 2, 0], out[0, 0, 1] = 0.1, -0.2, 7.0
        return out


def covered(configuration: Array) -> NDArray[np.bool_]:
    v, u = np.mgrid[:48, :64]
    return np.asarray(np.hypot(u - 32 - 25 * configuration[0], v - 24 - 18 * configuration[1]) < 5.0)


class Search(ConfigurationSearch):
    """A search with silhouettes in closed form; configurations left of -0.9 reach behind the camera."""

    @property
    def coarse(self) -> Grid:  # type: ignore[override]
        return GRID

    @property
    def _moving(self) -> Part:  # type: ignore[override]
        return Part(np.zeros(0, np.int64), np.zeros((0, 3), np.int64), np.zeros(0, bool))

    def _masks(self, configurations: Array, grid: Grid, part: Part) -> Iterator[NDArray[np.bool_] | None]:
        for each in configurations:
            yield None if each[0] < -0.9 else covered(each)


def search(**config: Any) -> Search:
    body: Any = Disc()
    unused: Any = None
    return Search(body, unused, replace(SilhouetteSearchConfig(configurations=256), **config))


def test_a_coordinates_unit_moves_the_body_as_far_as_a_radian() -> None:
    np.testing.assert_allclose(coordinate_units(Disc()), [0.4 / 0.2, 1.0])  # type: ignore[arg-type]


def test_a_grid_shrinks_a_rectangle_of_the_frame() -> None:
    grid = Grid(np.array([10, 4]), np.array([8, 6]), 0.5)
    assert grid.shape == (3, 4)
    values = np.random.default_rng(0).random((20, 30)).astype(np.float32)
    means = values[4:10, 10:18].reshape(3, 2, 4, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(grid.shrunk(values), means, rtol=1e-5)
    np.testing.assert_allclose(grid.places(np.array([[10.5, 4.5], [16.5, 8.5]])), [[0.0, 0.0], [3.0, 2.0]])
    assert Grid(np.zeros(2, np.int64), np.array([100, 3]), 0.1).shape == (1, 10)


def test_a_part_has_its_own_vertices() -> None:
    faces, which = np.array([[7, 2, 9], [0, 1, 2], [9, 2, 4]]), np.array([True, False, True])
    part = Part.of(Mesh(np.eye(10, 3), faces, np.zeros(3, np.int64)), which)
    np.testing.assert_array_equal(part.vertices, [2, 4, 7, 9])
    assert not part.one_sided.any(), "an open surface"
    np.testing.assert_array_equal(part.vertices[part.faces], [[7, 2, 9], [9, 2, 4]])


def test_configurations_are_drawn_all_over_the_prior_within_the_limits() -> None:
    one = search()
    low, high = one.sides
    np.testing.assert_allclose(low, [-1.0, -0.5 * 3.0**0.5])
    np.testing.assert_allclose(high, [1.0, 0.5 * 3.0**0.5])
    drawn = one._sampled
    assert drawn.shape == (256, 2)
    assert search(configurations=200)._sampled.shape == (256, 2), "the next power of two"
    np.testing.assert_allclose(drawn.mean(axis=0), 0.5 * (low + high), atol=0.02)
    np.testing.assert_allclose(np.ptp(drawn, axis=0), high - low, rtol=0.02)


def test_the_best_configurations_differ() -> None:
    one = search(kept=3)
    some = np.array([[0.0, 0.0], [0.15, 0.0], [0.0, 0.12], [0.5, 0.0], [0.0, 0.5], [-0.5, 0.0]])
    scores = np.array([5.0, 9.0, 7.0, 6.0, -np.inf, 4.0])
    np.testing.assert_allclose(one._best(some, scores, 0.1), some[[1, 2, 3]])  # units of 2 and 1
    np.testing.assert_allclose(one._best(some, scores, 0.15), some[[1, 3, 5]])
    assert one._best(some[:0], scores[:0], 0.1).shape == (0, 2)
    assert one.distance(some[0], np.array([0.3, 0.1])) == pytest.approx(0.15)


def test_variations_have_the_noise_of_their_units_and_half_of_them_keep_most_coordinates() -> None:
    found = search().varied(np.array([0.2, 0.3]), 0.05, 4000, np.random.default_rng(0)) - [0.2, 0.3]
    np.testing.assert_allclose(found[1::2].std(axis=0), [0.1, 0.05], rtol=0.06)
    np.testing.assert_allclose((found[::2] == 0.0).mean(axis=0), 0.25, atol=0.04)  # 1.5 of two coordinates move
    assert (found[1::2] != 0.0).all()
    wide = search().varied(np.array([0.9, 0.3]), 0.5, 100, np.random.default_rng(0))
    assert wide[:, 0].max() == 1.0
    assert wide[:, 1].max() > 1.0


@pytest.mark.parametrize("truth", [(0.35, -0.2), (-0.6, 0.4)])
def test_the_configuration_behind_a_foreground_is_proposed(truth: tuple[float, float]) -> None:
    ratio = np.where(covered(np.array(truth)), 2.0, -1.0).astype(np.float32)
    found = search().propose(ratio)
    assert np.abs(found[0] - truth).max() < 0.03
    apart = np.abs(found[:, None] - found) / [2.0, 1.0]
    np.fill_diagonal(apart[..., 0], 9.0)
    assert apart.max(axis=-1).min() > 0.03, "half of the last noise"
    assert len(found) <= 40
    quick = search(noise=(0.3, 0.06), miss_shares=(0.3, 0.6, 1.0)).propose(ratio)
    assert np.abs(quick[0] - truth).max() < 0.1


def test_what_reaches_behind_the_camera_is_not_proposed() -> None:
    ratio = np.where(covered(np.array([-0.95, 0.0])), 2.0, -1.0).astype(np.float32)
    assert (search().propose(ratio)[:, 0] >= -0.9).all()
    one = search()
    np.testing.assert_array_equal(one.scores(np.array([[-0.95, 0.0]]), ratio), [-np.inf])
    np.testing.assert_allclose(one.scores(np.array([[0.0, 0.0]]), ratio), ratio[covered(np.zeros(2))].sum())
    assert one.silhouette(np.array([-0.95, 0.0]), GRID) is None


def test_evidence_against_the_body_counts_little_at_first() -> None:
    """Rounds weigh misses by their shares: 0.3 at first, 1 at the end."""
    asked, one = list[float](), search()
    ratio = np.where(covered(np.array([0.0, 0.0])), 2.0, -1.0).astype(np.float32)

    @dataclass(frozen=True)
    class Noted(Search):
        def scores(self, configurations: Array, shrunk: NDArray[np.float32]) -> Array:
            asked.append(float(shrunk.min()))
            assert shrunk.max() == 2.0
            return super().scores(configurations, shrunk)

    Noted(one.body, one.window, one.config).propose(ratio)
    np.testing.assert_allclose(asked, [-0.3, -0.3, -0.3, -0.6, -1.0])
