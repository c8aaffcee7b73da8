"""Continuity joins random labels, evidence chooses the branch of the clip, and neither can do the work of the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.painted import PERMUTATION, POINTS, ROTATIONS
from vid2phys.engine.pnp import PoseEstimate, known_pose
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import bearings_to_view, make_view
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.shape.rotation_groups import composition, octahedral
from vid2phys.tracking.hypotheses import (
    DEFAULTS,
    ChosenHypotheses,
    _mixture_weights,
    choose_hypotheses,
    front_evidence,
    named,
    relabelled,
    tilt_evidence,
)
from vid2phys.tracking.measured import with_poses
from vid2phys.types import Array, Camera, Observation

CAMERA = Camera(np.array([[900.0, 0.0, 320.0], [0.0, 900.0, 240.0], [0.0, 0.0, 1.0]]), 640, 480)
DIVISOR = 5.0


def _truth(times: Array) -> Array:
    return np.stack(
        [matrix_from_rotvec(np.array([2.2, 0.0, 0.0])) @ matrix_from_rotvec(np.array([0, 0, 1.5 * t])) for t in times]
    )


def _read(rotation: Array, rng: np.random.Generator) -> tuple[PoseEstimate, np.ndarray]:
    """Poses as read under random labels g, R_read = R @ rotations[g], with a little noise; second hypothesis a flip."""
    element = rng.integers(4, size=len(rotation))
    noise = np.stack([matrix_from_rotvec(rng.normal(0.0, 0.05, 3)) for _ in rotation])
    read = noise @ rotation @ ROTATIONS[element]
    flip = np.diag([1.0, 1.0, -1.0]) @ read @ np.diag([1.0, 1.0, -1.0])
    poses = known_pose(Pose(np.stack([read, flip], axis=1), np.tile([0.0, 0.0, 2.0], (len(rotation), 2, 1))))
    return poses, element


def _join(poses: PoseEstimate, times: Array, evidence: Array) -> ChosenHypotheses:
    return choose_hypotheses(poses, times, ROTATIONS, evidence / DIVISOR)


def _evidence(element: np.ndarray, strength: float, rng: np.random.Generator) -> Array:
    """Log-probabilities [N, 2, 4] that favour the element that was read, by `strength` nats a frame on average."""
    evidence = rng.normal(0.0, 2.0, (len(element), 2, 4))
    evidence[np.arange(len(element)), :, element] += strength
    return evidence


def test_composition_is_the_group_table() -> None:
    table = composition(ROTATIONS)
    np.testing.assert_array_equal(table, (np.arange(4)[:, None] + np.arange(4)) % 4)


def test_labels_are_joined_and_the_branch_is_right() -> None:
    rng, times = np.random.default_rng(0), np.arange(60) / 30.0
    poses, element = _read(_truth(times), rng)
    found = _join(poses, times, _evidence(element, 1.5, rng))
    np.testing.assert_array_equal(found.element, element)
    assert np.argmax(found.log_likelihood) == 0
    assert found.log_likelihood[0] - found.log_likelihood[1:].max() > 3.0


def test_one_sure_frame_does_not_break_the_path() -> None:
    rng, times = np.random.default_rng(1), np.arange(40) / 30.0
    poses, element = _read(_truth(times), rng)
    evidence = _evidence(element, 1.0, rng)
    evidence[20, :, (element[20] + 1) % 4] += 30.0
    np.testing.assert_array_equal(_join(poses, times, evidence).element, element)


def test_after_a_long_gap_evidence_joins_the_pieces() -> None:
    rng = np.random.default_rng(2)
    times = np.concatenate([np.arange(30) / 30.0, 4.0 + np.arange(30) / 30.0])
    poses, element = _read(_truth(times), rng)
    found = _join(poses, times, _evidence(element, 3.0, rng))
    np.testing.assert_array_equal(found.element, element)


def test_without_evidence_the_path_is_continuous_and_undecided() -> None:
    rng, times = np.random.default_rng(3), np.arange(40) / 30.0
    rotation = _truth(times)
    poses, element = _read(rotation, rng)
    found = _join(poses, times, np.zeros((40, 2, 4)))
    assert len(set((found.element - element) % 4)) == 1
    assert found.log_likelihood[0] - found.log_likelihood[1:].max() == pytest.approx(0.0)


def test_the_cheaper_flip_is_overruled_by_continuity() -> None:
    rng, times = np.random.default_rng(4), np.arange(30) / 30.0
    poses, element = _read(_truth(times), rng)
    cost = np.tile([1.0, 4.0], (30, 1))
    cost[[7, 8, 19]] = [3.0, 1.0]
    poses = replace(poses, cost=cost)
    found = _join(poses, times, _evidence(element, 1.5, rng))
    assert (found.hypothesis == 0).all()


def test_front_evidence_reads_the_map_at_each_elements_place() -> None:
    rotation, translation = _truth(np.array([0.3])), np.array([[0.05, -0.02, 2.0]])
    view = make_view(CAMERA, translation[0, :2] / 2.0, 0.03, 96)
    log = np.full((1, 24, 24), -10.0)
    place = bearings_to_view(view, project_points(Pose(rotation[0], translation[0]), POINTS[:1]))[0]
    column, row = np.round((place - 1.5) / 4.0).astype(int)
    log[0, row, column] = 0.0
    read = known_pose(Pose((rotation @ ROTATIONS[3])[:, None], translation[:, None]))
    evidence = front_evidence(log, [view], read, ROTATIONS, POINTS[0])
    assert evidence.shape == (1, 1, 4)
    assert np.argmax(evidence[0, 0]) == 3


CUBE = octahedral()


def _tumble(times: Array, rate: Array) -> Array:
    """Orientations of a body that spins freely and is hit halfway, [N, 3, 3] camera_from_body."""
    half = times[len(times) // 2]
    first = matrix_from_rotvec(np.minimum(times, half)[:, None] * rate)
    return matrix_from_rotvec(np.maximum(times - half, 0.0)[:, None] * np.roll(-0.6 * rate, 1)) @ first


@pytest.mark.parametrize(("fps", "speed"), [(148.0, 10.0), (148.0, 45.0), (60.0, 20.0)])
def test_a_tumbling_cube_keeps_one_label(fps: float, speed: float) -> None:
    """Random labels out of 24, frames lost, wrong readings: the path differs from the truth by one element."""
    rng, times = np.random.default_rng(int(fps + speed)), np.sort(np.arange(90) / fps)
    times = np.delete(times, [30, 31, 32, 70])
    axis = rng.normal(size=3)
    rotation = _tumble(times, speed * axis / np.linalg.norm(axis))
    label = rng.integers(24, size=len(times))
    noise = matrix_from_rotvec(rng.normal(0.0, np.radians(2.0), (len(times), 3)))
    read = noise @ rotation @ CUBE[label]
    wrong = rng.random(len(times)) < 0.05
    read[wrong] = read[wrong] @ matrix_from_rotvec(np.array([0.5, -0.4, 0.6]))
    poses = known_pose(Pose(read[:, None], np.tile([0.0, 0.0, 2.0], (len(times), 1, 1))))
    found = choose_hypotheses(poses, times, CUBE, np.zeros((len(times), 1, 24)))
    assert found.element[0] == 0  # any branch is right: the first frame's is kept
    oriented = read @ np.swapaxes(CUBE[found.element], -1, -2)
    apart = np.swapaxes(rotation, -1, -2) @ oriented
    angle = np.arccos(np.clip(0.5 * (np.einsum("nij,ij->n", apart, CUBE[label[0]]) - 1.0), -1.0, 1.0))
    assert np.degrees(angle[~wrong]).max() < 10.0


def test_a_body_is_tilted_by_the_angle_between_its_axis_and_up() -> None:
    """Up is the world's z; a camera that moves has another rotation in each frame."""
    std = np.radians(20.0)
    rotation = matrix_from_rotvec(np.array([[0.3, 0.0, 0.0], [0.0, 0.5, 0.0], [3.1, 0.0, 0.0]]))
    poses = known_pose(Pose(rotation[:, None], np.tile([0.0, 0.0, 2.0], (3, 1, 1))))
    half = np.stack([np.eye(3), np.diag([1.0, -1.0, -1.0])])
    upright = np.eye(4)
    expected = -0.5 * (np.array([[0.3, np.pi - 0.3], [0.5, np.pi - 0.5], [3.1, np.pi - 3.1]]) / std) ** 2
    expected = np.maximum(expected, -DEFAULTS.max_tilt_nats)
    found = tilt_evidence(poses, half, replace(CAMERA, camera_to_world=upright), std)
    np.testing.assert_allclose(found[:, 0], expected)
    assert (expected[:, 0] > -DEFAULTS.max_tilt_nats).tolist() == [True, True, False]
    moving = np.tile(upright, (3, 1, 1))
    moving[1, :3, :3] = matrix_from_rotvec(np.array([[0.0, -0.4, 0.0]]))[0]
    followed = tilt_evidence(poses, half, replace(CAMERA, camera_to_world=moving), std)
    np.testing.assert_allclose(followed[1, 0, 0], -0.5 * (0.1 / std) ** 2)
    np.testing.assert_allclose(followed[[0, 2]], found[[0, 2]])
    for camera, known in ((CAMERA, std), (replace(CAMERA, camera_to_world=upright), None)):
        np.testing.assert_array_equal(tilt_evidence(poses, half, camera, known), np.zeros((3, 1, 2)))


def test_the_weight_of_a_blob_is_its_share_of_the_map_however_wide_it_is() -> None:
    v, u = np.mgrid[:24, :20]
    place = np.array([[[5.0, 7.0], [14.0, 15.0], [np.nan, 3.0]]])
    for width in (1.1, 0.7):
        blobs = [np.exp(-0.5 * ((u - x) ** 2 + (v - y) ** 2) / width**2) for x, y in place[0, :2]]
        shown = sum(share * blob / blob.sum() for share, blob in zip((0.7, 0.3), blobs, strict=True))
        found = _mixture_weights(shown, place, DEFAULTS)
        np.testing.assert_allclose(found, [[0.98 * 0.7 + 0.02 / 3, 0.98 * 0.3 + 0.02 / 3, 0.02 / 3]], atol=0.02)
    even = _mixture_weights(np.full((24, 20), 1.0 / 480.0), place, DEFAULTS)
    assert even[0, 0] == pytest.approx(even[0, 1], abs=0.02)


def observed(pose: Pose) -> Observation:
    """Keypoints and a measured pose of two frames."""
    rng, count = np.random.default_rng(4), len(POINTS)
    covariance = np.tile(np.eye(2), (2, count, 1, 1)) * np.arange(1.0, count + 1)[:, None, None]
    seen = Observation(
        np.arange(2.0), project_points(pose, POINTS), covariance,
        rng.normal(size=(2, count, 2, 6)), np.full(6, 0.2), rng.random((2, count)) < 0.7, POINTS,
    )  # fmt: skip
    basis = rng.uniform(0.01, 0.02, (2, 6))[..., None] * np.eye(6)
    return with_poses(seen, np.arange(2), pose, basis, np.full(6, 0.2), "contour", basis**2)


def test_under_another_element_points_and_poses_look_the_same() -> None:
    pose = Pose(
        matrix_from_rotvec(np.array([[0.4, 0.2, -0.3], [1.0, -0.5, 0.2]])), np.array([[0.1, 0.0, 2.0], [0.0, 0.2, 1.5]])
    )
    before, center = observed(pose), np.array([0.0, 0.0, 0.004])
    assert before.configuration is not None
    found = relabelled(before, PERMUTATION[1], ROTATIONS[1], center)
    after = found.configuration
    assert after is not None
    np.testing.assert_allclose(found.bearings, project_points(after.pose, POINTS), atol=1e-9)
    for name in ("covariance", "shared_basis", "visible"):
        np.testing.assert_array_equal(getattr(found, name)[:, PERMUTATION[1]], getattr(before, name))
    step = 1e-5 * np.array([1.0, -2.0, 0.5, 1.0, 2.0, -1.0])  # a step of the body, in both local coordinates
    moved = before.configuration.pose.retract(step)
    other = after.pose.step_to(relabelled(observed(moved), PERMUTATION[1], ROTATIONS[1], center).configuration.pose)  # type: ignore[union-attr]
    information = [np.linalg.inv(each.covariance) for each in (before.configuration, after)]
    squares = [
        np.einsum("ti,tij,tj->t", np.broadcast_to(s, (2, 6)), i, np.broadcast_to(s, (2, 6)))
        for s, i in zip((step, other), information, strict=True)
    ]
    np.testing.assert_allclose(squares[1], squares[0], rtol=1e-3)
    back = relabelled(found, PERMUTATION[3], ROTATIONS[3], center)
    np.testing.assert_allclose(back.bearings, before.bearings, atol=1e-12)
    np.testing.assert_allclose(back.configuration.pose.rotation, pose.rotation, atol=1e-9)  # type: ignore[union-attr]
    names = np.stack([np.argsort(PERMUTATION[1]), np.arange(len(POINTS))])
    one = named(before, names, np.stack([ROTATIONS[1], np.eye(3)]), center)
    np.testing.assert_array_equal(one.bearings[0], found.bearings[0])
    np.testing.assert_array_equal(one.bearings[1], before.bearings[1])
    np.testing.assert_allclose(one.configuration.pose.translation, [after.pose.translation[0], pose.translation[1]])  # type: ignore[union-attr]
