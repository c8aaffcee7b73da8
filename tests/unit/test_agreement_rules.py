"""Colours that frames agree on, place by place; weights of frames, and which path they choose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.tracking import color_agreement
from vid2phys.tracking.color_agreement import DEFAULTS, SurfaceEvidence, _in_agreement, _mean, agreeing_path
from vid2phys.types import Array

UNDER = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
DEGREES = {2: 10.0, 3: 12.0, 5: 12.01, 8: 60.0}  # of the path's frames: steps of 2, 0.01 and 48 deg
PATH = {2: (0, 0), 3: (1, 1), 5: (0, 1), 8: (1, 0)}
WEIGHTS = {2: 1.0, 3: 2.0 / DEFAULTS.turn_deg, 5: DEFAULTS.least_weight, 8: 1.0}


def seen() -> SurfaceEvidence:
    """Two candidates in five frames, four places and two symmetry elements; some places are not seen."""
    rng = np.random.default_rng(0)
    colors = {i: rng.normal(0.0, 0.2, (2, 4, 3)) for i in (*PATH, 9)}
    colors[3][1, 2], colors[5][0, 0], colors[8][0, 1:], colors[9][1] = np.nan, np.nan, np.nan, np.nan

    def rotation(i: int, choice: tuple[int, int]) -> Array:
        assert choice == PATH[i]
        return np.asarray(Rotation.from_euler("z", DEGREES[i], degrees=True).as_matrix())

    candidates: Any = SimpleNamespace(rotation=rotation)
    return SurfaceEvidence(candidates, colors, UNDER)


def slow_nats(some: SurfaceEvidence, i: int) -> Array:
    """Return the evidence of a frame place by place; NaN where a candidate shows nothing."""
    found = np.full((2, 2), np.nan)
    for h in range(2):
        for g in range(2):
            each = []
            for n in range(4):
                color = some.colors[i][h, UNDER[g][n]]
                total, weight = np.zeros(3), DEFAULTS.plain_frames
                for j, (other, element) in PATH.items():
                    shown = some.colors[j][other, UNDER[element][n]]
                    if j != i and np.isfinite(shown).all():
                        total, weight = total + WEIGHTS[j] * shown, weight + WEIGHTS[j]
                if np.isfinite(color).all():
                    off = np.mean((color - total / weight) ** 2)
                    each.append(np.log1p(off / DEFAULTS.color_std**2))
            found[h, g] = -DEFAULTS.independent * np.mean(each) if each else np.nan
    return found


def test_a_frame_is_judged_by_what_the_others_show_at_each_place() -> None:
    some = seen()
    found = some.nats(PATH)
    assert set(found) == {2, 3, 5, 8, 9}, "frames beside the path, too"
    for i, nats in found.items():
        expected = slow_nats(some, i)
        expected = np.where(np.isnan(expected), np.nanmedian(expected), expected)
        np.testing.assert_allclose(nats, np.repeat(expected.max(axis=1, keepdims=True), 2, axis=1), err_msg=str(i))


def test_a_frame_counts_as_much_as_the_body_rotates() -> None:
    assert seen()._weights(PATH) == pytest.approx(WEIGHTS)


def test_means_are_those_of_what_is_known() -> None:
    nan = np.nan
    values = np.array([[1.0, 3.0, nan], [nan, nan, nan], [6.0, nan, nan], [9.0, 9.0, 12.0]])
    np.testing.assert_allclose(_mean(values), [2.0, 6.0, 6.0, 10.0])
    np.testing.assert_array_equal(_mean(values[1:2]), [0.0])


class Paths:
    """Candidates whose path under an evidence is the next one of a list; an evidence is the path that it is of."""

    config = DEFAULTS

    def __init__(self, *paths: Any) -> None:
        self.left, self.asked = list(paths), list[Any]()
        self.candidates = self

    def nats(self, path: Any) -> Any:
        return "nats", path

    def path(self, nats: Any = None) -> Any:
        self.asked.append(nats)
        return self.left.pop(0)


def test_path_and_colours_are_found_until_they_agree() -> None:
    given: Any = Paths("b", "c", "c", "never")
    assert _in_agreement(given, "a") == ("c", ("nats", "c"))  # type: ignore[arg-type,comparison-overlap]
    assert given.asked == [("nats", "a"), ("nats", "b"), ("nats", "c")]
    endless: Any = Paths(*"bcdefgh")
    assert _in_agreement(endless, "a") == ("f", ("nats", "f"))  # type: ignore[arg-type,comparison-overlap]


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_best_of_a_path_and_of_its_look_alikes_is_taken(best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pose is a number, and its look-alikes are ten and twenty more."""
    first = {4: (1, 0), 6: (0, 2)}
    candidates: Any = SimpleNamespace(
        path=lambda: first,
        pose=lambda i, choice: 100 * i + choice[0],
        nearest=lambda i, pose: (pose, i),
        mean_nats=lambda path, nats: nats,
    )
    starts, order = list[Any](), iter(np.roll([3.0, 1.0, 2.0], best))
    monkeypatch.setattr(
        color_agreement, "_in_agreement", lambda seen, start: starts.append(start) or (start, next(order))
    )
    given: Any = SimpleNamespace(candidates=candidates)
    look_alikes: Any = SimpleNamespace(maps=np.zeros((2, 3, 3)), of_pose=lambda pose: [pose + 10, pose + 20])
    found = agreeing_path(given, look_alikes)
    assert starts == [first, {4: (411, 4), 6: (610, 6)}, {4: (421, 4), 6: (620, 6)}]
    assert found == starts[best]
    first.clear()
    starts.clear()
    assert agreeing_path(given, look_alikes) == {}
    assert starts == []
