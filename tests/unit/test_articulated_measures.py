"""What calibrations of articulated bodies measure and report, with stand-ins for clips and the network."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_articulated_contour import body_and_camera, window
from vid2phys.engine.virtual_camera import bearings_to_view
from vid2phys.error_model import Calibration
from vid2phys.geometry import invert_transform
from vid2phys.risp.networks.model import KeypointPrediction
from vid2phys.risp.renders.articulated_viewpoints import VIEW_PX
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE
from vid2phys.tracking.articulated import detector as detection
from vid2phys.tracking.articulated.contour_refinement import RefinedConfigurations
from vid2phys.tracking.articulated.detector import configuration_modes
from vid2phys.tracking.uncertainty import articulated, articulated_clips, articulated_contour_errors
from vid2phys.tracking.uncertainty.alignment_errors import RefinementErrors
from vid2phys.tracking.uncertainty.articulated import first_calibration, mode_names
from vid2phys.tracking.uncertainty.articulated_clips import ArticulatedClip
from vid2phys.types import Array

UNUSED: Any = None


@pytest.mark.parametrize("name", ["hand", "rod"])
def test_the_first_error_model_has_a_process_for_each_coordinate_and_shift(name: str) -> None:
    body, _ = body_and_camera(name)
    size = len(body.names)
    first = first_calibration(body)
    assert mode_names(body) == (*body.names, "sideways_x", "sideways_y")
    np.testing.assert_allclose(first.mode_std, [*(0.05 * body.prior_std), 0.003, 0.003])
    assert first.mode_exponent == (0.5,) * (size + 2)
    assert first.mode_doubt == (4.0,) * (size + 2)
    assert first.correlation_time_s == (0.2,) * (size + 2)
    assert first.contour_scale == (2.0,) * size
    assert first.contour_correlation_s == (0.2,) * size


def known_clip(sequence: int, count: int, seed: int) -> ArticulatedClip:
    body, camera = body_and_camera("hand")
    rng = np.random.default_rng(seed)
    clip: Any = SimpleNamespace(
        frames=[f"{sequence}.{i}" for i in range(count)], background="empty", times_s=0.1 * np.arange(count)
    )
    return ArticulatedClip(sequence, clip, window(camera, body), np.stack([body.sample(rng) for _ in range(count)]))


class Detector:
    """Detects configurations that are 0.02 off in their first coordinate, and points that are 1e-3 off sideways."""

    def __init__(self, known: list[ArticulatedClip], quality: Array) -> None:
        self.known, self.quality, self.asked = {each.sequence: each for each in known}, quality, list[Any]()

    def __call__(self, model: Any, body: Any, here: Any, frames: list[str], start: Calibration) -> Any:
        self.asked.append((frames, start))
        if frames == ["empty"]:
            return SimpleNamespace(quality=np.array([0.05]))
        known = self.known[int(frames[0].split(".")[0])]
        count = len(frames)
        true = here.project(body.points(known.configurations))
        points = true.shape[1]
        inside = np.ones((count, points), dtype=bool)
        inside[0, 0] = False
        return SimpleNamespace(
            bearings=true + np.array([1e-3, 0.0]), raw_px=np.tile(np.eye(2), (count, points, 1, 1)), inside=inside,
            configurations=SimpleNamespace(configuration=known.configurations + 0.02 * np.eye(len(body.names))[0]),
            quality=self.quality[:count],
        )  # fmt: skip


def test_a_calibration_reports_what_was_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    body, _ = body_and_camera("hand")
    known = [known_clip(sequence, 5, sequence) for sequence in (0, 1, 2, 3)]
    detector, given = Detector(known, np.array([0.9, 0.8, 0.7, 0.6, 0.1])), list[Any]()
    model: Any = SimpleNamespace(view_size=96)
    monkeypatch.setattr(articulated, "articulated_clips", lambda *some: given.append(some[2:]) or known)  # type: ignore[func-returns-value]
    monkeypatch.setattr(articulated, "detect", detector)
    fitted = list[tuple[Any, ...]]()

    def fit(some: Any, start: Calibration, config: Any) -> Calibration:
        fitted.append((len(some.quality), np.unique(some.sequence).tolist(), start.min_quality))
        return replace(start, point_scale=0.5)

    def normalised(some: Any, fit: Calibration, names: Any, config: Any) -> dict[str, float]:
        assert names == mode_names(body)
        assert fit.point_scale == 0.5
        return {"points": float(np.unique(some.sequence).sum())}

    monkeypatch.setattr(articulated, "fit", fit)
    monkeypatch.setattr(articulated, "normalised", normalised)
    monkeypatch.setattr(articulated, "detection_threshold", lambda *_: 0.6)
    found = articulated.calibrate_configurations(model, body, UNUSED, 3)
    assert given == [(96, 120, 3, None)]
    assert (found.point_scale, found.min_quality, found.still_quality, found.evidence_divisor) == (0.5, 0.6, 0.6, 1.0)
    numbers = found.normalised
    assert numbers["frames"] == 16.0
    assert numbers["sighted_share"] == 0.8
    assert numbers["false_share"] == 0.0
    assert numbers["posture_error"] == pytest.approx(0.02 / len(body.names), abs=1e-5)
    assert numbers["points"] == pytest.approx(np.sqrt((4.0**2 + 2.0**2) / 2.0), abs=1e-4)
    assert fitted == [(8, [0, 2], 0.6), (8, [1, 3], 0.6), (16, [0, 1, 2, 3], 0.6)]
    monkeypatch.setattr(articulated, "detection_threshold", lambda *_: 0.05)
    assert articulated.calibrate_configurations(model, body, UNUSED).normalised["false_share"] == 1.0


def test_residuals_are_in_pixels_of_the_virtual_camera() -> None:
    body, _ = body_and_camera("hand")
    known = known_clip(4, 3, 0)
    detector = Detector([known], np.array([0.9, 0.8, 0.7]))
    here = known.window
    found = articulated._residuals(body, known, detector(UNUSED, body, here, known.clip.frames, Calibration()))
    focal = here.view.K[0, 0]
    np.testing.assert_allclose(np.linalg.norm(found.error, axis=-1), 1e-3 * focal, rtol=0.2)
    assert not found.used[0, 0]
    assert found.used[1:].mean() > 0.9
    modes = configuration_modes(body, here, known.configurations)
    np.testing.assert_allclose(
        np.linalg.norm(found.modes, axis=2), focal * np.linalg.norm(modes, axis=2), rtol=0.25, atol=1e-6 * focal
    )
    assert found.sequence.tolist() == [4] * 3
    np.testing.assert_array_equal(found.quality, [0.9, 0.8, 0.7])
    np.testing.assert_array_equal(found.diameter_px, np.full(3, here.diameter_px))
    np.testing.assert_array_equal(found.time_s, known.clip.times_s)


def test_clips_have_the_poses_and_configurations_of_their_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    body, camera = body_and_camera("hand")
    pose = invert_transform(np.asarray(camera.camera_to_world))
    clip: Any = SimpleNamespace(
        rotation=np.stack([pose[:3, :3], np.eye(3)]), translation=np.stack([pose[:3, 3], np.zeros(3)]),
        cameras=[replace(camera, camera_to_world=None), None],
    )  # fmt: skip
    given = list[Any]()
    monkeypatch.setattr(
        articulated_clips, "make_clips", lambda *a, **o: given.append((a[1:], o)) or iter([(0, clip), (2, clip)])
    )  # type: ignore[func-returns-value]
    truth = np.arange(3.0 * FRAMES_PER_SEQUENCE)[:, None] * np.ones(13)
    renders: Any = SimpleNamespace(configurations=lambda: truth)
    first, third = articulated_clips.articulated_clips(renders, body, 96, 7, 5)
    assert given == [
        ((body.radius_m, 7), {"seed": 5, "in_frame_px": (VIEW_PX[0], VIEW_PX[2]), "speed_px": 0.0, "progress": None})
    ]
    assert (first.sequence, third.sequence) == (0, 2)
    np.testing.assert_array_equal(first.configurations, truth[:FRAMES_PER_SEQUENCE])
    np.testing.assert_array_equal(third.configurations, truth[2 * FRAMES_PER_SEQUENCE :])
    np.testing.assert_allclose(first.window.camera_from_base, pose, atol=1e-12)
    assert first.window.view.size == 96


def test_edges_are_fitted_to_the_frames_in_which_the_network_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    body, _ = body_and_camera("hand")
    size, known = len(body.names), [known_clip(sequence, 4, sequence) for sequence in (0, 5)]
    detector, given = Detector(known, np.array([0.9, 0.2, 0.7, 0.3])), list[Any]()
    calibration = replace(first_calibration(body), min_quality=0.3)

    def refine(frames: Any, body: Any, here: Any, detected: Any, std: Array, which: Array, times_s: Array) -> Any:
        given.append((frames, which.tolist(), std.shape))
        expected = calibration.mode_scale(np.full(4, here.diameter_px), detector.quality)
        np.testing.assert_allclose(std, expected)
        covariance = np.tile(np.diag(np.arange(1.0, size + 1.0) ** 2), (4, 1, 1))
        return RefinedConfigurations(detected.configuration + 0.01, covariance, np.array([True, False, False, True]))

    monkeypatch.setattr(articulated_contour_errors, "articulated_clips", lambda *some: given.append(some[3:]) or known)  # type: ignore[func-returns-value]
    monkeypatch.setattr(articulated_contour_errors, "detect", detector)
    monkeypatch.setattr(articulated_contour_errors, "refine_contours", refine)
    model: Any = SimpleNamespace(view_size=96)
    found = articulated_contour_errors.measure(model, body, calibration, UNUSED, seed=6)
    assert given[0] == (60, 6, None)
    assert given[1:] == [(each.clip.frames, [0, 2, 3], (4, size + 2)) for each in known]
    for each, true in zip(found, known, strict=True):
        np.testing.assert_allclose(each.error, np.tile(0.01 + 0.02 * np.eye(size)[0], (2, 1)))
        np.testing.assert_array_equal(each.configurations, true.configurations[[0, 3]])
        np.testing.assert_allclose(each.times_s, [0.0, 0.3])
        np.testing.assert_allclose(each.columns, np.tile(np.diag(np.arange(1.0, size + 1.0)), (2, 1, 1)))
        assert each.sequence == true.sequence


@pytest.mark.parametrize("enough", [True, False])
def test_errors_of_edges_join_the_error_model_with_that_of_swings(
    enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, _ = body_and_camera("hand")
    size, count = len(body.names), 8 if enough else 7
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(count), 60)
    error = 3.0 * rng.normal(size=(len(number), size))
    errors = RefinementErrors(error, np.ones_like(error), number, np.tile(np.arange(60) / 30.0, count))
    monkeypatch.setattr(articulated_contour_errors, "measure", lambda *_, **__: "residuals")
    monkeypatch.setattr(articulated_contour_errors, "of_frames", lambda residuals: errors)
    monkeypatch.setattr(
        articulated_contour_errors, "swing_scale", lambda residuals, found, config: found.contour_scale[0]
    )
    before = first_calibration(body)
    after = articulated.calibrate_edges(before, UNUSED, body, UNUSED)
    if not enough:
        assert after is before
        return
    assert after.contour_scale == pytest.approx((3.0,) * size, rel=0.15)
    assert after.swing_scale == after.contour_scale[0]
    assert {f"contour_{name}" for name in body.names} < set(after.normalised)


def test_points_outside_of_the_frame_do_not_count_for_the_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    body, camera = body_and_camera("hand")
    here, configuration = window(camera, body), 0.3 * body.sample(np.random.default_rng(0))
    points = bearings_to_view(here.view, here.project(body.points(configuration)))[None]
    count = points.shape[1]
    seen = KeypointPrediction(
        points, np.tile(0.3 * np.eye(2), (1, count, 1, 1)), np.full((1, count), 0.9), np.zeros((1, 4, 4))
    )
    model: Any = SimpleNamespace(predict=lambda images: seen)
    frame = np.zeros((camera.height, camera.width, 3), np.uint8)
    whole = detection.detect(model, body, here, [frame], Calibration())
    assert whole.quality[0] == pytest.approx(0.9, abs=0.01)
    np.testing.assert_allclose(whole.configurations.configuration[0], configuration, atol=0.02)
    inside = np.arange(count) >= 4
    monkeypatch.setattr(detection, "in_frame", lambda camera, bearings: np.broadcast_to(inside, bearings.shape[:2]))
    part = detection.detect(model, body, here, [frame], Calibration())
    assert part.quality[0] == pytest.approx(0.9 * (count - 4) / count, abs=0.02)
    np.testing.assert_array_equal(part.inside, inside[None])
