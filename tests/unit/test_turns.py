"""Orientations in which a body looks nearly the same are told apart by what its silhouette and edges show."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_ambiguous_poses import CAMERA, SOLID, TRUTH, photograph
from vid2phys.engine.pnp import known_pose
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.networks.model import Shape
from vid2phys.risp.shape.rotation_groups import cyclic
from vid2phys.tracking import symmetry_evidence as evidence
from vid2phys.tracking.cues import ALL_CUES
from vid2phys.tracking.detectors.network import Detections
from vid2phys.tracking.hypotheses import scored
from vid2phys.tracking.symmetry_evidence import symmetry_evidence
from vid2phys.types import Array

POINTS = SOLID.mesh.vertices
SHAPE = Shape("rigid", None, POINTS, cyclic(4), np.zeros((4, 8), dtype=np.int64), 0)  # type: ignore[arg-type]


def seen_as(rotation: Array, count: int = 1, diameter_px: float = 100.0) -> Detections:
    """Readings of `count` frames with two hypotheses each, the first of which is looked at."""
    other = matrix_from_rotvec(np.array([1.0, 0.0, 0.0])) @ rotation
    poses = known_pose(
        Pose(np.broadcast_to(np.stack([rotation, other]), (count, 2, 3, 3)), np.broadcast_to(TRUTH[1], (count, 2, 3)))
    )
    blank = np.zeros(count)
    arrays = [blank] * 8
    return Detections([], blank, np.full(count, diameter_px), *arrays[:6], poses, np.ones((count, 2)))  # type: ignore[arg-type]


def test_a_box_read_a_quarter_turn_off_is_told() -> None:
    for element, turn in enumerate(cyclic(4)):
        nats = scored(symmetry_evidence([photograph()], [0], seen_as(TRUTH[0] @ turn), CAMERA, SOLID, SHAPE))
        right = [element, (element + 2) % 4]  # the box looks the same after half a turn
        wrong = [(element + 1) % 4, (element + 3) % 4]
        assert nats[0, 0, right].min() > 0.5
        assert nats[0, 0, wrong].max() < -1.0
        np.testing.assert_allclose(np.exp(nats[0, 0]).mean(), 1.0)
        np.testing.assert_array_equal(nats[0, 1], 0.0)


def test_some_frames_of_a_long_clip_are_looked_at() -> None:
    nats = scored(symmetry_evidence([photograph()] * 40, list(range(40)), seen_as(TRUTH[0], 40), CAMERA, SOLID, SHAPE))
    assert 8 <= np.any(nats[:, 0] != 0.0, axis=-1).sum() <= 12


def test_exact_symmetries_and_small_bodies_are_not_looked_at() -> None:
    exact = replace(SHAPE, front=None)
    for shape, diameter_px in ((exact, 100.0), (SHAPE, 30.0)):
        seen = seen_as(TRUTH[0], diameter_px=diameter_px)
        assert not scored(symmetry_evidence([photograph()], [0], seen, CAMERA, SOLID, shape)).any()


def test_elements_are_rotations_about_the_centre_of_the_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that a symmetry element rotated first is where it was, at the pose that the element leads to."""
    starts: list[Pose] = []

    def fitted(*given: Any, prior: Array) -> Any:
        starts.append(given[3])
        return SimpleNamespace(pose=given[3])

    monkeypatch.setattr(evidence, "fit_contour", fitted)
    monkeypatch.setattr(evidence.PoseScorer, "explained", lambda *_: 0.0)
    center, points = np.array([0.1, -0.05, 0.02]), np.random.default_rng(0).normal(size=(5, 3))
    pose = Pose(TRUTH[0], TRUTH[1])
    shape: Any = SimpleNamespace(rotations=SHAPE.rotations, center=center)
    evidence._edge_nats(photograph(), CAMERA, SOLID, pose, shape, ALL_CUES)
    assert len(starts) == len(shape.rotations)
    for start, element in zip(starts, shape.rotations, strict=True):
        rotated = (points - center) @ element.T + center
        np.testing.assert_allclose(start.apply(rotated), pose.apply(points), atol=1e-12)
