"""Residuals of articulated bodies beside differences, and numbers of a validation beside plain sums."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vid2phys.engine.virtual_camera import bearings_to_view, make_view
from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.uncertainty import articulated, articulated_contour_errors, articulated_validation
from vid2phys.tracking.uncertainty.articulated_clips import ArticulatedClip
from vid2phys.tracking.uncertainty.articulated_validation import ConfigurationValidation
from vid2phys.tracking.uncertainty.fit_errors import Residuals
from vid2phys.types import Array, Camera

UNUSED: Any = None


class Slider:
    """A body of two points that slide along x and y by its two coordinates."""

    rest = np.array([0.02, -0.01])
    names = ("a", "b")
    center_m = np.array([0.1, 0.05, 0.02])

    def points(self, configurations: Array) -> Array:
        first = configurations[..., :1] * np.array([1.0, 0.0, 0.0])
        second = configurations[..., 1:] * np.array([0.0, 2.0, 0.0]) + np.array([0.0, 0.0, 0.3])
        return np.stack([first, second], axis=-2)

    def points_jacobian(self, configurations: Array) -> Array:
        slope = np.zeros((*configurations.shape[:-1], 2, 3, 2))
        slope[..., 0, 0, 0], slope[..., 1, 1, 1] = 1.0, 2.0
        return slope


CAMERA = Camera(np.array([[300.0, 0.0, 80.0], [0.0, 310.0, 60.0], [0.0, 0.0, 1.0]]), 160, 120)
BASE = make_transform(matrix_from_rotvec(np.array([0.2, -0.3, 0.4])), np.array([0.05, -0.1, 1.7]))


def bearings_of(points: Array) -> Array:
    """Return bearings [..., 2] of points [..., 3] in the axes of the camera."""
    return points[..., :2] / points[..., 2:]


def test_residuals_and_their_modes_are_those_of_the_view() -> None:
    """Signed, by differences of each coordinate and of shifts by shares of the depth of the middle of the body."""
    body: Any = Slider()
    view = make_view(CAMERA, np.array([0.1, -0.02]), 0.15, 96)
    here = Window(CAMERA, BASE, view, 77.0)
    rng = np.random.default_rng(2)
    configurations = np.array([[0.2, -0.1], [0.1, 0.15], [0.9, 0.2], [0.3, -0.6]])
    placed = body.points(configurations) @ BASE[:3, :3].T + BASE[:3, 3]
    true = bearings_of(placed)
    off, inside = 2e-3 * rng.normal(size=true.shape), np.array([[True, True], [False, True], [True, True], [True] * 2])
    seen: Any = SimpleNamespace(
        bearings=true + off, raw_px=rng.random((4, 2, 2, 2)), inside=inside, quality=np.array([0.3, 0.5, 0.9, 0.4])
    )
    clip: Any = SimpleNamespace(times_s=np.array([0.0, 0.1, 0.4, 0.5]))
    found = articulated._residuals(body, ArticulatedClip(8, clip, here, configurations), seen)
    place = bearings_to_view(view, true)
    np.testing.assert_allclose(found.error, bearings_to_view(view, true + off) - place, atol=1e-9)
    np.testing.assert_array_equal(found.raw, seen.raw_px)
    step, depth = 1e-6, (BASE[:3, :3] @ body.center_m + BASE[:3, 3])[2]
    for d in range(4):
        if d < 2:
            moves = [s * step * np.eye(2)[d] for s in (1.0, -1.0)]
            ends = [body.points(configurations + move) @ BASE[:3, :3].T + BASE[:3, 3] for move in moves]
        else:
            ends = [placed + s * step * depth * np.eye(3)[d - 2] for s in (1.0, -1.0)]
        ahead, behind = (bearings_to_view(view, bearings_of(each)) for each in ends)
        np.testing.assert_allclose(found.modes[..., d], (ahead - behind) / (2.0 * step), atol=0.01, err_msg=str(d))
    pixels = true @ CAMERA.K[:2, :2].T + CAMERA.K[:2, 2]
    within = ((pixels > 0.0) & (pixels < [159.0, 119.0])).all(axis=-1)
    assert within.tolist() == [[True, True], [True, True], [False, True], [True, False]]
    np.testing.assert_array_equal(found.used, within & inside)
    np.testing.assert_array_equal(found.sequence, [8] * 4)
    np.testing.assert_array_equal(found.quality, [0.3, 0.5, 0.9, 0.4])
    np.testing.assert_array_equal(found.diameter_px, [77.0] * 4)
    np.testing.assert_array_equal(found.time_s, [0.0, 0.1, 0.4, 0.5])


def validation(monkeypatch: pytest.MonkeyPatch) -> tuple[ConfigurationValidation, Any]:
    """Three images with known detections, one point of which is not visible; and what the kinematic fit is given."""
    truth = np.array([[0.1, 0.2], [-0.3, 0.4], [0.5, -0.1]])
    K = np.stack([np.array([[50.0 + 4.0 * n, 1.0, 20.0], [0.0, 60.0, 22.0 - n], [0.0, 0.0, 1.0]]) for n in range(3)])
    true_px = torch.tensor([[[10.0, 12.0], [20.0, 9.0]], [[30.0, 31.0], [8.0, 7.0]], [[15.0, 16.0], [17.0, 18.0]]])
    off = torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[60.0, 80.0], [0.0, -2.0]], [[1.0, 0.0], [-6.0, 8.0]]])
    visible = torch.tensor([[True, True], [False, True], [True, True]])
    case: Any = SimpleNamespace(truth=truth, K=K, true_px=true_px, off=off, visible=visible, given=[])
    case.raw = np.eye(2) * np.linspace(0.5, 3.0, 6).reshape(3, 2, 1, 1) + np.array([[0.0, 0.2], [0.2, 0.0]])
    case.found = truth + np.array([[0.05, -0.02], [0.3, 0.1], [-0.04, 0.2]])
    case.std = np.array([[0.03, 0.0099], [0.16, 0.06], [0.019, 0.09]])  # below two, above, below, below, above, above
    output = torch.arange(3.0 * 3 * 4).reshape(3, 3, 2, 2)
    case.network, case.poses = SimpleNamespace(), np.stack([(1.0 + n) * np.eye(4) for n in range(3)])
    images = np.zeros((3, 8, 8, 3), np.uint8)

    def predict(network: Any, shown: Any) -> torch.Tensor:
        assert network is case.network
        assert shown is images
        return output

    def decode(maps: torch.Tensor) -> Any:
        assert torch.equal(maps, output[:, :2])
        return true_px + off, torch.full((3, 2, 2, 2), 7.0), torch.full((3, 2), 0.5)

    def excess(moment: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
        assert (moment.dtype, mass.dtype) == (torch.float64, torch.float64)
        assert (float(moment.mean()), float(mass.mean())) == (7.0, 0.5)
        return torch.from_numpy(case.raw)

    def fit(body: Any, base: Array, bearings: Array, covariance: Array, *, visible: Array) -> Any:
        case.given.append((base, bearings, covariance, visible))
        both = case.std[..., None] * np.eye(2) ** 2 * case.std[:, None, :] + 1e-5 * (1.0 - np.eye(2))
        return SimpleNamespace(configuration=case.found, covariance=both)

    def cross_entropy(log_prob: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        assert torch.equal(points, true_px)
        assert torch.equal(log_prob, -output[:, :2])
        own = torch.tensor([[1.0, 2.0], [100.0, 4.0], [5.0, 7.0]])
        return torch.diag_embed(own) + 50.0 * (1.0 - torch.eye(2))

    monkeypatch.setattr(articulated_validation, "predict", predict)
    monkeypatch.setattr(articulated_validation.heatmaps, "decode", decode)
    monkeypatch.setattr(articulated_validation.heatmaps, "log_probabilities", lambda maps: -maps)
    monkeypatch.setattr(articulated_validation.heatmaps, "cross_entropy", cross_entropy)
    monkeypatch.setattr(articulated_validation, "excess_covariance", excess)
    monkeypatch.setattr(articulated_validation, "fit_configurations", fit)
    body: Any = Slider()
    return ConfigurationValidation(images, true_px, visible, K, case.poses, truth, body), case


def test_numbers_of_a_validation_are_those_of_visible_points(monkeypatch: pytest.MonkeyPatch) -> None:
    task, case = validation(monkeypatch)
    numbers = task(case.network)
    errors = np.array([0.05, 0.02, 0.3, 0.1, 0.04, 0.2])
    assert numbers["val_ce"] == pytest.approx((1.0 + 2.0 + 4.0 + 5.0 + 7.0) / 5.0)
    assert numbers["px"] == 2.0  # of 5, 1, 2, 1, 10
    assert numbers["px_p90"] == pytest.approx(5.0 + 0.6 * 5.0)
    assert numbers["posture"] == pytest.approx(errors.mean())
    assert numbers["posture_p90"] == pytest.approx(0.5 * (0.2 + 0.3))
    assert numbers["within_2_sigma"] == pytest.approx(3.0 / 6.0)
    moved = [0.05, 2.0 * 0.02, 0.3, 2.0 * 0.1, 0.04, 2.0 * 0.2]
    assert numbers["points_mm"] == pytest.approx(1e3 * np.mean(moved))
    rest = np.abs(case.truth - [0.02, -0.01])
    assert numbers["rest"] == pytest.approx(rest.mean())
    assert numbers["rest_mm"] == pytest.approx(1e3 * (rest * [1.0, 2.0]).mean())
    assert set(numbers) == {
        "val_ce", "px", "px_p90", "posture", "posture_p90", "points_mm", "within_2_sigma", "rest_mm", "rest"
    }  # fmt: skip


def test_configurations_of_a_validation_are_fitted_to_bearings(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an uncalibrated error model: a floor of a pixel, for a body of 80 px, which changes nothing."""
    task, case = validation(monkeypatch)
    np.testing.assert_array_equal(task.predict_configurations(case.network), case.found)
    ((base, bearings, covariance, visible),) = case.given
    np.testing.assert_array_equal(base, case.poses)
    np.testing.assert_array_equal(visible, case.visible.numpy())
    for n in range(3):
        inverse = np.linalg.inv(case.K[n])
        for k in range(2):
            ray = inverse @ [*(case.true_px + case.off).numpy()[n, k], 1.0]
            np.testing.assert_allclose(bearings[n, k], ray[:2] / ray[2], rtol=1e-6)
            own = case.raw[n, k] + np.eye(2)
            np.testing.assert_allclose(covariance[n, k], inverse[:2, :2] @ own @ inverse[:2, :2].T)


def test_swings_are_scaled_with_the_found_error_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are passed on, and errors beyond the limit count."""
    log, body = list[Any](), SimpleNamespace(names=("p", "q"))
    after: Any = articulated.Calibration(point_scale=0.1)

    def join(calibration: Any, errors: Any, names: Any, *, trimmed: bool, config: Any) -> Any:
        log.append((errors, names, trimmed, config))
        return after

    def measured(*given: Any, **more: Any) -> str:
        log.append((given, more))
        return "residuals"

    monkeypatch.setattr(articulated_contour_errors, "measure", measured)
    monkeypatch.setattr(articulated_contour_errors, "of_frames", lambda residuals: f"frames of {residuals}")
    monkeypatch.setattr(articulated_contour_errors, "swing_scale", lambda *given: log.append(given) or 1.7)  # type: ignore[func-returns-value]
    monkeypatch.setattr(articulated, "with_contour", join)
    before = articulated.Calibration()
    model, shape, renders = list[Any](["model", body, "renders"])
    config, progress = articulated.UncertaintyConfig(rounds=9), lambda share: None
    found = articulated.calibrate_edges(before, model, shape, renders, 5, progress, config)
    assert found == replace(after, swing_scale=1.7)
    assert log == [
        (("model", body, before, "renders"), {"seed": 5, "progress": progress, "config": config}),
        ("frames of residuals", ("p", "q"), False, config),
        ("residuals", after, config),
    ]
    after = before
    assert articulated.calibrate_edges(before, model, shape, renders, 5, progress, config) is before
    assert len(log) == 5


def test_shares_of_a_calibration_have_four_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven frames in three clips, each of which has one image without the body."""
    quality = {0: np.array([0.3, 0.5, 0.7]), 1: np.array([0.2, 0.9]), 2: np.array([0.1, 0.8])}
    known = list[ArticulatedClip]()
    for name, each in quality.items():
        clip: Any = SimpleNamespace(frames=[name] * len(each), background=0.1 + name / 5.0)
        known.append(ArticulatedClip(name, clip, UNUSED, np.full((len(each), 2), 0.5)))

    def detect(model: Any, body: Any, here: Any, frames: list[Any], start: Any) -> Any:
        if len(frames) == 1:
            return SimpleNamespace(quality=np.array(frames))
        off = np.array([0.123456, -0.1]) * (1.0 + frames[0])
        return SimpleNamespace(quality=quality[frames[0]], configurations=SimpleNamespace(configuration=0.5 + off))

    def residuals(body: Any, known: Any, seen: Any) -> Residuals:
        each = seen.quality
        nothing = np.zeros((len(each), 1))
        return Residuals(nothing, nothing, nothing > 0.0, nothing, each, each, np.full(len(each), known.sequence), each)

    monkeypatch.setattr(articulated, "articulated_clips", lambda *_: known)
    monkeypatch.setattr(articulated, "detect", detect)
    monkeypatch.setattr(articulated, "_residuals", residuals)
    monkeypatch.setattr(articulated, "detection_threshold", lambda *_: 0.5)
    monkeypatch.setattr(articulated, "fit", lambda some, start, config: start)
    monkeypatch.setattr(articulated, "normalised", lambda some, model, names, config: {})
    body: Any = SimpleNamespace(names=("a", "b"), prior_std=np.array([0.4, 0.8]))
    model: Any = SimpleNamespace(view_size=64)
    found = articulated.calibrate_configurations(model, body, UNUSED)
    sizes = [0.123456 * (1 + n) for n in (0, 0, 0, 1, 1, 2, 2)] + [0.1 * (1 + n) for n in (0, 0, 0, 1, 1, 2, 2)]
    assert found.normalised == {
        "frames": 4.0, "sighted_share": 0.5714, "false_share": 0.3333, "posture_error": round(sum(sizes) / 14.0, 5)
    }  # fmt: skip
    assert (found.min_quality, found.still_quality, found.evidence_divisor) == (0.5, 0.5, 1.0)
    np.testing.assert_allclose(found.mode_std, [0.02, 0.04, 0.003, 0.003])
    assert found.mode_doubt == (4.0,) * 4
    assert found.mode_exponent == (0.5,) * 4
    assert found.correlation_time_s == (0.2,) * 4
    assert found.contour_correlation_s == (0.2, 0.2)


def test_cameras_of_a_validation_are_those_of_the_smaller_images() -> None:
    """Renders of 60 px shown with 24 px: the corner of a pixel stays the same share of the image."""
    K = np.array([[70.0, 1.0, 28.0], [0.0, 75.0, 31.0], [0.0, 0.0, 1.0]])
    item = {"image": torch.zeros(24, 24, 3), "points_px": torch.ones(2, 2), "visible": torch.tensor([True, False])}

    class Stream:
        settings = SimpleNamespace(view_size=24)

        def __getitem__(self, key: Any) -> Any:
            return item

        def primal(self, index: int) -> Any:
            return SimpleNamespace(radiance=np.zeros((60, 50, 4)), K=K, view_from_body=(1.0 + index) * np.eye(4))

    stream: Any = Stream()
    configurations = np.arange(12.0).reshape(6, 2)
    body: Any = Slider()
    found = ConfigurationValidation.prepare(stream, np.array([4, 1]), body, configurations)
    np.testing.assert_array_equal(found.configurations, configurations[[4, 1]])
    np.testing.assert_array_equal(found.view_from_body, [5.0 * np.eye(4), 2.0 * np.eye(4)])
    for point in ([0.1, -0.2, 1.5], [-0.3, 0.1, 0.8]):
        large, small = K @ point, found.K[1] @ point
        assert small[2] == pytest.approx(point[2])
        shares = (large[:2] / large[2] + 0.5) / 60.0
        np.testing.assert_allclose((small[:2] / small[2] + 0.5) / 24.0, shares)
    assert found.points_px.shape == (2, 2, 2)
    assert found.visible.tolist() == [[True, False]] * 2
