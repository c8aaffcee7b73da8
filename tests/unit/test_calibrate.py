"""Held-out clips show the body where they say it is; thresholds and evidence are worth what they should be."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import bearings_to_view, make_view, view_to_bearings
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.renders.dataset import Render
from vid2phys.risp.renders.held_out import make_clip
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE
from vid2phys.tracking.uncertainty import alignment_errors
from vid2phys.tracking.uncertainty.alignment_errors import POSE_MODES, RefinementErrors, pose_sizes
from vid2phys.tracking.uncertainty.calibrate import (
    _residuals,
    calibrate_aligning,
    detection_threshold,
    evidence_divisor,
    hypothesis_right_share,
    with_contour,
)
from vid2phys.types import Array, Camera

RADIUS_M = 0.1


class OneSequence:
    """Renders of a bright ball half as wide as the bounding sphere, moving in front of the view camera."""

    def sample(self, index: int) -> Render:
        position = np.array([0.02 * np.sin(index), 0.003 * index, 2.0 + 0.02 * index])
        focal = 32.0 / np.tan(np.arcsin(RADIUS_M / 2.0))
        K = np.array([[focal, 0.0, 47.5], [0.0, focal, 47.5], [0.0, 0.0, 1.0]])
        place = K @ position / position[2]
        v, u = np.mgrid[:96, :96]
        radius = 0.5 * RADIUS_M / position[2] * focal
        cover = np.clip(radius + 0.5 - np.hypot(u - place[0], v - place[1]), 0.0, 1.0)
        pose = np.eye(4)
        pose[:3, 3] = position
        radiance = np.repeat(cover[..., None], 4, axis=-1).astype(np.float16)
        return Render(radiance, K, pose, None, 0, index / 30.0)


def _ball_center(frame: Array, background: Array) -> Array:
    weight = np.abs(frame.astype(float) - background).sum(-1)
    weight[weight < 60.0] = 0.0
    v, u = np.mgrid[: len(frame), : len(frame)]
    return np.array([(weight * u).sum(), (weight * v).sum()]) / weight.sum()


@pytest.mark.parametrize("seed", [0, 4, 6])
def test_the_body_is_where_the_camera_says(seed: int) -> None:
    bank = np.full((3, 256, 256, 3), 40, dtype=np.uint8)
    clip = make_clip(OneSequence(), 0, RADIUS_M, bank, seed=seed)
    assert len(clip.frames) == FRAMES_PER_SEQUENCE
    places = []
    for frame, camera, position in zip(clip.frames, clip.cameras, clip.translation, strict=True):
        place = camera.K @ position
        places.append(place[:2] / place[2])
        assert np.linalg.norm(_ball_center(frame, clip.background) - places[-1]) < 0.05 * clip.diameter_px + 0.5
        size = 2.0 * RADIUS_M / np.linalg.norm(position) * camera.K[0, 0]
        assert size == pytest.approx(clip.diameter_px * 2.0 / np.linalg.norm(position), rel=0.02)
    assert np.ptp(places, axis=0).max() > 2.0, "the body should move over the background"
    assert not np.array_equal(clip.frames[0], clip.frames[1])


def test_a_clip_depends_on_its_seed_alone() -> None:
    bank = np.full((3, 256, 256, 3), 40, dtype=np.uint8)
    first, second = (make_clip(OneSequence(), 0, RADIUS_M, bank, seed=1) for _ in range(2))
    for a, b in zip(first.frames, second.frames, strict=True):
        np.testing.assert_array_equal(a, b)


def test_threshold_lies_between_empty_and_true_detections() -> None:
    rng = np.random.default_rng(0)
    empty, true = rng.uniform(0.0, 0.1, 200), rng.uniform(0.4, 0.9, 200)
    assert 0.1 < detection_threshold(true, empty) < 0.4
    blurred = np.concatenate([true, rng.uniform(0.0, 0.3, 20)])
    assert (blurred >= detection_threshold(blurred, rng.uniform(0.0, 0.35, 200))).mean() > 0.94


def test_evidence_is_tempered_by_how_often_it_is_wrong() -> None:
    rng = np.random.default_rng(1)
    sequence = np.repeat(np.arange(200), 16)
    right = rng.random(200) < 0.8
    favoured = np.where(right, 0, rng.integers(1, 4, 200))
    evidence = rng.normal(0.0, 1.0, (3200, 4))
    evidence[np.arange(3200), favoured[sequence]] += 2.0  # every frame of a look makes the same mistake
    divisor = evidence_divisor(evidence, sequence)
    totals = np.stack([evidence[sequence == s].sum(axis=0) for s in range(200)]) / divisor
    sure = np.exp(totals.max(axis=1)) / np.exp(totals).sum(axis=1)
    assert hypothesis_right_share(evidence, sequence) == pytest.approx(right.mean(), abs=0.02)
    assert sure.mean() == pytest.approx(0.8, abs=0.06)


def test_a_body_without_symmetry_needs_no_evidence() -> None:
    assert evidence_divisor(np.zeros((32, 1)), np.repeat([0, 1], 16)) == 1.0


@pytest.mark.parametrize(("appearances", "known"), [(7, False), (40, True)])
def test_errors_of_contours_join_the_error_model_where_there_are_enough(appearances: int, known: bool) -> None:
    rng, true = np.random.default_rng(0), np.array([2.0, 1.0, 3.0, 1.5, 2.5, 1.2])
    number = np.repeat(np.arange(appearances), 20)
    std = np.full((len(number), 6), 0.01)
    time_s = np.tile(np.arange(20) / 30.0, appearances)
    errors = RefinementErrors(rng.normal(size=std.shape) * std * true, std, number, time_s)
    before = replace(Calibration(), normalised={"points": 0.9})
    after = with_contour(before, errors, POSE_MODES, lambda some: {"frames": float(len(some.time_s))})
    assert after.normalised["points"] == 0.9
    if not known:
        assert after is before
        return
    assert after.contour_scale == pytest.approx(true, rel=0.12)
    assert after.normalised["contour_frames"] == 400.0  # half of the appearances are checked at a time
    assert [after.normalised[f"contour_{name}"] for name in POSE_MODES] == pytest.approx([1.0] * 6, rel=0.12)


def test_residuals_are_those_of_the_labelling_that_fits_best() -> None:
    """Two frames of a body whose points change places in pairs; the second is detected with the other labels."""
    rng, points = (
        np.random.default_rng(1),
        np.array([[0.1, 0.0, 0.02], [-0.1, 0.0, 0.02], [0.0, 0.08, 0.0], [0.0, -0.08, 0.0]]),
    )
    model: Any = SimpleNamespace(points_body=points, permutation=np.array([[0, 1, 2, 3], [1, 0, 3, 2]]))
    camera = Camera(np.array([[300.0, 0.0, 160.0], [0.0, 300.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)
    pose = Pose(matrix_from_rotvec(rng.normal(0.0, 0.3, (2, 3))), np.array([[0.1, 0.0, 1.0], [-0.1, 0.05, 1.2]]))
    true = project_points(pose, points)
    views = [make_view(camera, each.mean(axis=0), 0.12, 96) for each in true]
    off, inside = rng.normal(0.0, 0.5, (2, 4, 2)), np.ones((2, 4), dtype=bool)
    places = [bearings_to_view(view, each) for view, each in zip(views, true, strict=True)]
    seen = np.stack([places[0] + off[0], places[1][[1, 0, 3, 2]] + off[1]])
    inside[1, 2] = False  # the label of the last point
    clip: Any = SimpleNamespace(
        rotation=pose.rotation, translation=pose.translation, cameras=[camera] * 2, clock_s=np.array([0.0, 0.1])
    )
    detections: Any = SimpleNamespace(
        views=views, bearings=np.stack([view_to_bearings(view, at)[0] for view, at in zip(views, seen, strict=True)]),
        raw_px=np.tile(np.arange(4.0)[:, None, None] * np.eye(2), (2, 1, 1, 1)), inside=inside,
        angular_radius=np.array([0.1, 0.2]), diameter_px=np.array([60.0, 50.0]), quality=np.full((2, 1), 0.9),
    )  # fmt: skip
    found = _residuals(model, clip, detections, 5)
    np.testing.assert_allclose(found.error, [off[0], off[1][[1, 0, 3, 2]]], atol=1e-9)
    np.testing.assert_allclose(found.raw[:, :, 0, 0], [[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 3.0, 2.0]])
    assert found.used.tolist() == [[True] * 4, [True, True, True, False]]
    assert found.sequence.tolist() == [5, 5]
    step = 1e-6  # of a mode: sideways by a share of the radius, then log depth
    moved = project_points(pose.retract(np.array([0.0, 0.0, 0.0, 0.0, 0.0, step])), points)
    slope = [(bearings_to_view(view, each) - at) / step for view, each, at in zip(views, moved, places, strict=True)]
    np.testing.assert_allclose(found.modes[..., 5], slope, rtol=1e-3, atol=1e-3)
    for axis in (0, 1):  # a step aside by a radius of the body, which is seen under 0.1 and 0.2 rad
        aside = step * np.array([0.1, 0.2]) * np.linalg.norm(pose.translation, axis=1)
        moved = project_points(Pose(pose.rotation, pose.translation + aside[:, None] * np.eye(3)[axis]), points)
        slope = [
            (bearings_to_view(view, each) - at) / step for view, each, at in zip(views, moved, places, strict=True)
        ]
        np.testing.assert_allclose(found.modes[..., 3 + axis], slope, rtol=0.02, atol=0.3)


def test_sizes_of_errors_are_medians() -> None:
    error = np.zeros((3, 6))
    error[:, 1], error[:, 5] = np.radians([-1.0, 2.0, 9.0]), [-0.03, 0.01, 0.02]
    error[:, 3:5] = 0.7
    found = pose_sizes(RefinementErrors(error, np.ones((3, 6)), np.arange(3), np.zeros(3)))
    assert found == pytest.approx({"rotation_deg": 2.0, "depth_percent": 2.0})


def test_outliers_widen_no_errors_unless_they_are_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """One frame of ten is far off, and counts as five deviations where it counts."""
    rng, count = np.random.default_rng(0), 4000
    error = rng.normal(size=(count, 6))
    error[::10] *= 1e3
    errors = RefinementErrors(
        error, np.ones((count, 6)), np.repeat(np.arange(20), count // 20), np.tile(np.arange(200) / 30.0, 20)
    )
    monkeypatch.setattr(alignment_errors, "measure", lambda *_, **__: errors)
    unused: Any = None
    aligned = calibrate_aligning(Calibration(), unused, unused)
    contours = with_contour(Calibration(), errors, POSE_MODES, pose_sizes)
    every = with_contour(Calibration(), errors, POSE_MODES, pose_sizes, trimmed=False)
    assert aligned.align_scale == pytest.approx([1.0] * 6, rel=0.05)
    assert contours.contour_scale == aligned.align_scale
    assert every.contour_scale == pytest.approx([np.sqrt(0.9 + 0.1 * 5.0**2)] * 6, rel=0.15)
    assert aligned.normalised[f"align_{POSE_MODES[0]}"] == pytest.approx(1.0, rel=0.05)
    rest = 0.9 / every.contour_scale[0] ** 2 + 0.1 * 5.0**2  # outliers count as five of the wider deviations
    assert every.normalised[f"contour_{POSE_MODES[0]}"] == pytest.approx(np.sqrt(rest), rel=0.05)
    assert aligned.normalised["align_outlier_share"] == pytest.approx(0.1, rel=0.05)
