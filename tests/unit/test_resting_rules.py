"""Which fits of a rest are replaced, from which faces a search starts, and what a pose on a face has to explain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose
from vid2phys.tracking import resting
from vid2phys.tracking.ground import Ground
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Array

ANY: Any = None


def fit(name: Any, nats: float = 1.0) -> Any:
    pose: Any = name
    return Fit(pose, nats, 0.9, None)


def laid(
    monkeypatch: pytest.MonkeyPatch, fits: list[int], still: set[int], far: set[int], stands: int | None = None
) -> Any:
    """Return what rests become and what was asked. A fit's pose is its frame; some are `far` from it."""
    asked = list[Any]()

    def near(seen: Any, i: int, old: Fit, pose: Any, shape: Any, apart: float) -> Fit | None:
        asked.append(("near", i, pose, round(float(np.degrees(apart)), 6)))
        return fit(("on", i)) if i in far else None

    def best(seen: Any, pose: Any, ground: Any, mesh: Any, normals: Any) -> Fit | None:
        asked.append(("best", seen, pose))
        return None if pose == stands else fit(f"face at {pose}")

    monkeypatch.setattr(resting, "stable_normals", lambda _: ANY)
    monkeypatch.setattr(resting, "_best_on_faces", best)
    monkeypatch.setattr(resting, "_near", near)
    monkeypatch.setattr(resting, "_nearest", lambda pose, before, shape: (pose, before))
    found = resting.laid({i: fit(i) for i in fits}, still, ANY, ANY, ANY, lambda i: i)  # type: ignore[arg-type,return-value]
    return {i: each.pose for i, each in found.items() if each.pose != i}, asked


def test_fits_of_a_rest_and_beside_it_give_way_to_its_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest from frame 5 to frame 7, after frame 3; frames 8 and 9 are wrong in the same way, and 11 is beyond 10."""
    found, asked = laid(monkeypatch, [2, 3, 5, 6, 7, 8, 9, 10, 11], {5, 6, 7}, {3, 5, 7, 8, 9, 11})
    assert found == {i: ("on", i) for i in (5, 7, 8, 9)}
    pose = ("face at 6", 3)
    assert asked[0] == ("best", 6, 6)
    assert asked[1:] == [
        *(("near", i, pose, 3.0) for i in (5, 6, 7)),
        *(("near", i, pose, 10.0) for i in (8, 9, 10)),
    ]
    found, asked = laid(monkeypatch, [1, 2, 3, 4, 5], {4, 5}, {2, 3})
    assert found == {2: ("on", 2), 3: ("on", 3)}
    assert [each[1] for each in asked] == [5, 4, 5, 3, 2, 1]


def test_each_rest_has_its_own_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = laid(monkeypatch, list(range(9)), {7, 0, 1, 2, 6}, set())
    assert [each[1] for each in asked if each[0] == "best"] == [1, 7]
    poses = {each[1]: each[2] for each in asked if each[0] == "near"}
    assert poses[0] == ("face at 1", 1), "without a frame before, that of its middle"
    assert poses[6] == ("face at 7", 5)
    found, _ = laid(monkeypatch, list(range(9)), {0, 1, 2, 6, 7}, {1, 6, 8}, stands=1)
    assert found == {6: ("on", 6), 8: ("on", 8)}, "a rest on no face says nothing of the next one"
    assert laid(monkeypatch, [0, 1], set(), {0, 1}) == ({}, [])


@pytest.mark.parametrize(
    ("old", "again", "nats", "expected"),
    [
        (0.9, 0.0, 9.1, None),  # the fit is near
        (1.1, 0.9, 9.1, "again"),
        (1.1, 0.9, 8.9, None),  # the old fit, of 10 nats, explains the image much better
        (1.1, 1.1, 9.1, "judged"),
        (1.1, None, 9.1, "judged"),
        (1.1, None, 8.9, None),
    ],
)
def test_a_pose_replaces_one_that_is_far_where_it_explains_nine_tenths(
    old: float, again: float | None, nats: float, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Poses are numbers, and angles are their differences."""
    monkeypatch.setattr(resting, "_angle", lambda a, b, shape: abs(a - b))
    frame = SimpleNamespace(
        fitted_from=lambda pose: None if again is None else Fit(again, nats, 0.5, None),  # type: ignore[arg-type]
        judged=lambda pose, _: Fit(pose, 10.0 if pose == old else nats, 0.6, None),
    )
    found = resting._near(lambda i: frame, 3, fit(old, 99.0), 0.0, ANY, 1.0)  # type: ignore[arg-type,return-value]
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.pose, found.nats) == (again if expected == "again" else 0.0, nats)


class Faces:
    """A frame in which a pose is a face, a quarter and a round; fits lead on by one round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nats: Any, last: int = 9) -> None:
        self.nats, self.last, self.judged_at, self.moved = nats, last, list[Any](), list[Any]()
        monkeypatch.setattr(resting, "_turned", lambda pose, rotation, mesh: (self.quarter(rotation), 0))
        monkeypatch.setattr(resting, "_on_face", lambda pose, normal, ground, mesh: (int(normal[0]), *pose[-2:]))
        monkeypatch.setattr(resting, "_moved_along", self.along)

    def quarter(self, rotation: Array) -> int:
        return round(np.degrees(np.arctan2(rotation[1, 0], rotation[0, 0])) / 90.0) % 4

    def judged(self, pose: Any, _: None) -> Any:
        self.judged_at.append(pose)
        return fit(pose, 100.0 if isinstance(pose, Pose) else self.nats(*pose))

    def fitted_from(self, pose: Any) -> Any:
        face, quarter, stage = pose
        return None if stage == self.last else fit((face, quarter, stage + 1))

    def along(self, seen: Any, each: Fit, ground: Any, mesh: Any) -> Any:
        self.moved.append(each.pose)
        return fit(("moved", each.pose), each.nats + 1.0)

    def best(self) -> Any:
        ground, start = Ground(np.array([0.0, 0.0, 1.0]), 0.0), Pose(np.eye(3), np.zeros(3))
        given: Any = self
        return resting._best_on_faces(given, start, ground, ANY, np.array([[5.0, 0, 0], [7.0, 0, 0]]))


def test_faces_are_tried_in_quarters_and_the_best_are_moved_along_the_ground(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each start the best of three rounds counts, which is the second one; of eight starts six are moved."""
    faces = Faces(monkeypatch, lambda face, quarter, stage: 10.0 * face + quarter + 20.0 - abs(stage - 1.0) / 2.0)
    best = faces.best()
    tried = [each for each in faces.judged_at if not isinstance(each, Pose)]
    assert sorted(tried) == [(face, quarter, k) for face in (5, 7) for quarter in range(4) for k in range(3)]
    assert faces.moved == [(7, 3, 1), (7, 2, 1), (7, 1, 1), (7, 0, 1), (5, 3, 1), (5, 2, 1)]
    assert best.pose == ("moved", (7, 3, 1))


@pytest.mark.parametrize(("nats", "found"), [(89.2, True), (88.8, False)])
def test_a_pose_on_a_face_has_to_explain_nine_tenths(nats: float, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved along the ground, it explains one nat more; the fit as it was has 100 nats."""
    faces = Faces(monkeypatch, lambda *_: nats, last=0)
    assert (faces.best() is not None) is found
    assert len([each for each in faces.judged_at if not isinstance(each, Pose)]) == 8, "without a fit, one round"
