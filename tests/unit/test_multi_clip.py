"""Where the parameters of several clips stand among those of all, beside sums over dense systems."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.errors import UsageError
from vid2phys.solvers.multi_clip import Dense, Join
from vid2phys.types import Array

CLIPS = (("mass", "drag", "delay"), ("mass", "drag"), ("mass", "drag", "delay", "lag"))
RNG_SEED = 4


@pytest.fixture
def join() -> Join:
    return Join.of(CLIPS, ("mass", "drag"))


def positive(size: int, rng: np.random.Generator) -> Array:
    root = rng.normal(size=(size, size + 2))
    return root @ root.T


def spread_out(part: Array, columns: Array, size: int) -> Array:
    """Return a clip's vector or matrix with zeros where the clip has no parameters."""
    onto = np.zeros((len(columns), size))
    onto[np.arange(len(columns)), columns] = 1.0
    return onto.T @ part if part.ndim == 1 else onto.T @ part @ onto


def test_each_clip_adds_its_nuisances_behind_what_all_share(join: Join) -> None:
    assert join.names == ("mass", "drag", "delay", "delay", "lag")
    assert [columns.tolist() for columns in join.columns] == [[0, 1, 2], [0, 1], [0, 1, 3, 4]]


def test_clips_with_other_parameters_are_refused() -> None:
    with pytest.raises(UsageError, match="clips with the parameters drag, mass"):
        Join.of([("mass", "drag"), ("drag", "mass")], ("mass", "drag"))


def test_vectors_and_matrices_of_clips_add_up(join: Join) -> None:
    rng = np.random.default_rng(RNG_SEED)
    vectors = [rng.normal(size=len(names)) for names in CLIPS]
    matrices = [positive(len(names), rng) for names in CLIPS]
    pairs = list(zip(vectors, matrices, join.columns, strict=True))
    np.testing.assert_allclose(join.vector(vectors), sum(spread_out(v, c, 5) for v, _, c in pairs))
    np.testing.assert_allclose(join.matrix(matrices), sum(spread_out(m, c, 5) for _, m, c in pairs))


@pytest.mark.parametrize("clip", [0, 1, 2])
def test_other_clips_tell_what_is_left_when_their_nuisances_are_eliminated(join: Join, clip: int) -> None:
    """With the clip's own system they give the minimum of all clips together."""
    rng = np.random.default_rng(RNG_SEED)
    vectors = [rng.normal(size=len(names)) for names in CLIPS]
    matrices = [positive(len(names), rng) for names in CLIPS]
    told = join.other_clips(clip, matrices, vectors)
    assert told is not None
    all_of_it = np.linalg.solve(join.matrix(matrices), join.vector(vectors))
    alone = np.linalg.solve(told.information + matrices[clip], told.gradient + vectors[clip])
    np.testing.assert_allclose(alone, all_of_it[join.columns[clip]], rtol=1e-9)
    nuisances = slice(2, len(CLIPS[clip]))
    assert not told.information[nuisances].any(), "of a clip's own nuisances the others tell nothing"


def test_one_clip_has_no_others() -> None:
    single = Join.of(CLIPS[:1], ("mass", "drag"))
    assert single.other_clips(0, [np.eye(3)], [np.ones(3)]) is None


def test_starts_of_clips_stand_before_what_they_share() -> None:
    rng = np.random.default_rng(RNG_SEED)
    gradients = [rng.normal(size=5), rng.normal(size=5)]
    matrices = [positive(5, rng), positive(5, rng)]
    dense = Dense.of(gradients, matrices, shared=2)
    assert dense.starts == 6
    places = [np.array([0, 1, 2, 6, 7]), np.array([3, 4, 5, 6, 7])]
    expected = sum(spread_out(m, c, 8) for m, c in zip(matrices, places, strict=True))
    np.testing.assert_allclose(dense.information, expected)
    np.testing.assert_allclose(dense.gradient, sum(spread_out(g, c, 8) for g, c in zip(gradients, places, strict=True)))
    assert not dense.information[:3, 3:6].any(), "starts of two clips know nothing of each other"
    np.testing.assert_array_equal(dense.normal.gradient, dense.gradient)
    np.testing.assert_array_equal(dense.normal.information, dense.information)
    for clip in (0, 1):
        np.testing.assert_array_equal(
            dense.block(clip, 3, dense.information), dense.information[np.ix_(places[clip], places[clip])]
        )
