"""Candidates of frames are joined under symmetry elements; the nearest choice to a pose is found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.geometry import Pose
from vid2phys.risp.shape.rotation_groups import cyclic
from vid2phys.tracking.candidate_paths import Candidates

CENTER = np.array([0.01, 0.0, 0.02])


def pose(rotvec: tuple[float, float, float], x_m: float = 0.0) -> Pose:
    return Pose(Rotation.from_rotvec(rotvec).as_matrix(), np.array([x_m, 0.0, 1.0]))


def candidates(poses: dict[int, list[Pose]], nats: dict[int, list[float]]) -> Candidates:
    each = {i: np.array(of_frame)[:, None] * np.ones(4) for i, of_frame in nats.items()}
    return Candidates(poses, each, cyclic(4), CENTER, np.arange(6) / 60.0)


def test_the_nearest_choice_has_the_rotation_of_the_pose() -> None:
    """Of a group whose elements are not their own inverses, and of two candidates."""
    own = [pose((0.0, 0.0, 0.1)), pose((0.9, 0.3, 0.2))]
    given = candidates({2: own}, {2: [0.0, 0.0]})
    for h, each in enumerate(own):
        for g, element in enumerate(cyclic(4)):
            turned = Pose(each.rotation @ element.T @ Rotation.from_rotvec([0.1, 0.0, 0.05]).as_matrix(), np.zeros(3))
            assert given.nearest(2, turned) == (h, g)


def test_a_choice_is_a_pose_in_which_the_body_looks_the_same() -> None:
    given = candidates({0: [pose((0.4, 0.2, 0.1), 0.05)]}, {0: [0.0]})
    for g, element in enumerate(cyclic(4)):
        chosen = given.pose(0, (0, g))
        np.testing.assert_allclose(chosen.rotation, given.rotation(0, (0, g)))
        points = np.random.default_rng(0).normal(size=(5, 3))
        moved = (points - CENTER) @ element.T + CENTER
        np.testing.assert_allclose(chosen.apply(moved), given.poses[0][0].apply(points), atol=1e-12)


def test_a_path_follows_evidence_and_steadiness() -> None:
    """The last frame has a wrong pose with a little more evidence; more from elsewhere turns the path there."""
    right = {i: pose((0.0, 0.0, 0.02 * i), 0.01 * i) for i in range(5)}
    poses = {i: [each] for i, each in right.items()} | {4: [pose((1.2, 0.5, 0.0), 0.04), right[4]]}
    nats = {i: [0.0] * len(each) for i, each in poses.items()} | {4: [1.0, 0.0]}
    given = candidates(poses, nats)
    path = given.path()
    assert [h for h, _ in path.values()] == [0, 0, 0, 0, 1]
    assert len({g for _, g in path.values()}) == 1
    more = {i: np.zeros((len(each), 4)) for i, each in poses.items()}
    more[4] = more[4] + np.array([[100.0], [0.0]])
    other = given.path(more)
    assert other[4][0] == 0
    assert given.mean_nats(path, more) == pytest.approx(0.0)
    assert given.mean_nats(other, more) == pytest.approx(101.0 / 5.0)


def test_frames_without_candidates_have_no_choice() -> None:
    assert candidates({}, {}).path() == {}
    given = candidates({1: [pose((0.0, 0.0, 0.0))], 4: [pose((0.0, 0.0, 0.1))]}, {1: [0.0], 4: [0.0]})
    assert list(given.path()) == [1, 4]
