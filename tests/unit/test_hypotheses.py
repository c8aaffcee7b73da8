"""Continuity joins random labels, evidence chooses the branch of the clip, and neither can do the work of the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.painted import POINTS, ROTATIONS
from vid2phys.engine.pnp import PoseEstimate, known_pose
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import bearings_to_view, make_view
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.shape.rotation_groups import composition, octahedral
from vid2phys.tracking.hypotheses import ChosenHypotheses, choose_hypotheses, front_evidence
from vid2phys.types import Array, Camera

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
