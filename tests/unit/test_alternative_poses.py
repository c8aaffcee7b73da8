"""Which poses a pose may be taken for, what they lose by being unlikely, and which of them are fitted and taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.geometry import Pose
from vid2phys.tracking import ambiguous_poses
from vid2phys.tracking.ambiguous_poses import PoseScorer, alternatives, resolve
from vid2phys.types import Mesh

POSE = Pose(Rotation.from_euler("xyz", [0.5, 0.3, -0.2]).as_matrix(), np.array([0.2, -0.1, 1.0]))
ANY: Any = None
MESH = Mesh(np.array([[0.3, 0.0, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 0.5]]), np.array([[0, 1, 2]]), np.zeros(1, np.int64))


def test_a_pose_may_be_half_a_rotation_about_the_line_of_sight_or_tilted() -> None:
    line = POSE.translation / np.linalg.norm(POSE.translation)
    half, *tilted = list(alternatives(POSE))
    np.testing.assert_allclose(half.rotation, Rotation.from_rotvec(np.pi * line).as_matrix() @ POSE.rotation, atol=1e-9)
    rotvecs = [Rotation.from_matrix(each.rotation @ POSE.rotation.T).as_rotvec() for each in tilted]
    np.testing.assert_allclose(np.array(rotvecs) @ line, 0.0, atol=1e-9)
    angles = np.degrees(np.linalg.norm(rotvecs, axis=1))
    np.testing.assert_allclose(angles, np.repeat([12.0, 25.0, 45.0, 70.0], 8))
    first = np.array(rotvecs[:8]) / np.radians(12.0)
    np.testing.assert_allclose(np.sort(first @ first[0]), np.sort(np.cos(np.arange(8) * np.pi / 4.0)), atol=1e-9)
    np.testing.assert_allclose(first.sum(axis=0), 0.0, atol=1e-9)
    for each in (half, *tilted):
        np.testing.assert_array_equal(each.translation, POSE.translation)


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> PoseScorer:
    """A frame whose evidence is that of the first vertex; edges have a tenth of it, and colours a hundredth."""

    class Evidence:
        def __init__(self, *view: Any) -> None:
            self.view = view

        def nats(self, vertices: Any) -> float:
            return float(vertices[0, 0])

        def edge_nats(self, vertices: Any) -> float:
            return 0.1 * float(vertices[0, 0])

        def color_nats(self, vertices: Any) -> float:
            return 0.01 * float(vertices[0, 0])

    monkeypatch.setattr(ambiguous_poses, "Evidence", Evidence)
    solid: Any = SimpleNamespace(mesh=MESH)
    prior = np.diag([100.0, 90.0, 80.0, 1e4, 2e4, 400.0])
    prior[0, 1] = prior[1, 0] = 30.0
    return PoseScorer(ANY, ANY, solid, POSE, prior, use_region=False)


def test_a_pose_far_from_the_detected_one_loses_as_by_students_t(scorer: PoseScorer) -> None:
    """Six degrees of freedom in six dimensions: the logarithm of the density, up to a constant."""
    step = np.array([0.2, -0.1, 0.15, 0.003, -0.002, 0.05])
    pose = POSE.retract(step)
    seen = float(pose.apply(MESH.vertices)[0, 0])
    lost = 0.5 * (6.0 + 6.0) * np.log(1.0 + step @ scorer.prior @ step / 6.0)
    assert scorer.explained(pose) == pytest.approx(seen)
    assert scorer.nats(pose) == pytest.approx(seen - lost, rel=1e-6)
    assert scorer.edge_nats(pose) == pytest.approx(0.1 * seen - lost, rel=1e-6)
    assert scorer._color_nats(pose) == pytest.approx(0.01 * seen - lost, rel=1e-6)
    _, _, _, center, radius, region = scorer._evidence.view  # type: ignore[attr-defined]
    np.testing.assert_allclose(center, [0.2, -0.1])
    assert radius == pytest.approx(0.5 / np.linalg.norm(POSE.translation), rel=0.1)
    assert region is False


def test_the_best_four_poses_by_colour_are_fitted(scorer: PoseScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    nats = {k: float(value) for k, value in enumerate([3, 9, 1, 8, 7, 2, 6, 5])}
    asked = list[Any]()

    def fit(frame: Any, camera: Any, solid: Any, pose: Any, *, prior: Any) -> Any:
        asked.append(pose)
        np.testing.assert_allclose(prior, np.diag(np.array([0.3, 0.3, 0.3, 0.02, 0.02, 0.1]) ** -2.0))
        return None if pose == 3 else SimpleNamespace(pose=pose)

    monkeypatch.setattr(ambiguous_poses, "alternatives", lambda pose, config: list(nats))
    monkeypatch.setattr(ambiguous_poses, "fit_contour", fit)
    monkeypatch.setattr(PoseScorer, "_color_nats", lambda _, pose: nats[pose])
    monkeypatch.setattr(PoseScorer, "nats", lambda _, pose: 10.0 * pose)
    found = list(scorer.fitted_about(POSE))
    assert asked == [1, 3, 4, 6]
    assert [(value, fit.pose) for value, fit in found] == [(10.0, 1), (40.0, 4), (60.0, 6)]


@pytest.mark.parametrize(
    ("passes", "best", "around"),
    [
        ([[(4.0, "a"), (6.0, "b"), (5.5, "c")], [(6.0, "d"), (7.0, "e")]], "e", ["start", "b"]),
        ([[(4.0, "a"), (6.0, "b")], [(5.9, "d")]], "b", ["start", "b"]),
        ([[(4.9, "a"), (5.0, "b")], [(9.0, "d")]], "first", ["start"]),
        ([[(6.0, "a")], [(7.0, "b")], [(8.0, "c")]], "b", ["start", "a"]),
    ],
)
def test_the_pose_that_explains_most_is_taken_in_two_passes(
    passes: Any, best: str, around: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit of the given pose has 5 nats."""
    asked, left = list[str](), list(passes)

    def about(_: Any, pose: str) -> Any:
        asked.append(pose)
        return [(nats, SimpleNamespace(pose=name)) for nats, name in left.pop(0)]

    first: list[Any] = [SimpleNamespace(pose="first")]
    monkeypatch.setattr(ambiguous_poses, "fit_contour", lambda *_, prior: first[0])
    monkeypatch.setattr(PoseScorer, "fitted_about", about)
    monkeypatch.setattr(PoseScorer, "nats", lambda _, pose: 5.0)
    start: Any = "start"
    found = resolve(ANY, ANY, ANY, start, ANY)
    assert found is not None
    assert found.pose == best  # type: ignore[comparison-overlap]
    assert asked == around
    first[0] = None
    assert resolve(ANY, ANY, ANY, start, ANY) is None
