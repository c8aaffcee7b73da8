"""What an evaluation of single images measures: labels, hidden points, contrast, and errors of configurations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.test_articulated_contour import body_and_camera, window
from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.tracking.uncertainty import articulated_validation
from vid2phys.tracking.uncertainty.articulated_validation import ConfigurationValidation
from vid2phys.tracking.uncertainty.single_images import (
    EvaluatedModel,
    _behind,
    _contrast,
    _depth,
    _labelled_as,
    _median,
    _surface,
    projected,
)
from vid2phys.types import Array, Mesh

K = np.array([[100.0, 0.0, 31.5], [0.0, 100.0, 31.5], [0.0, 0.0, 1.0]])
SQUARE = Mesh(
    np.array([[-0.1, -0.1, 0.0], [0.1, -0.1, 0.0], [0.1, 0.1, 0.0], [-0.1, 0.1, 0.0]]),
    np.array([[0, 2, 1], [0, 3, 2]]), np.zeros(2, np.int64),
)  # fmt: skip
POSE = make_transform(np.eye(3), np.array([0.05, 0.0, 1.0]))


def rigid() -> EvaluatedModel:
    model: Any = SimpleNamespace(view_size=64, radius_m=0.15, points_body=SQUARE.vertices[:3])
    return EvaluatedModel(model, SQUARE)


def test_a_rigid_model_has_points_and_vertices_of_its_own() -> None:
    one = rigid()
    assert (one.across, one.main_error, one.radius_m) == ("body", "rotation_deg", 0.15)
    np.testing.assert_array_equal(one.vertices(None), SQUARE.vertices)
    assert one.points(None, 4).shape == (4, 3, 3)
    assert one.fill < 1.0
    body, _ = body_and_camera("hand")
    posable = EvaluatedModel(one.model, body.mesh, body)
    assert (posable.across, posable.main_error, posable.fill) == ("workspace", "points_mm", 1.0)
    assert posable.radius_m == body.radius_m
    configuration = body.sample(np.random.default_rng(0))
    np.testing.assert_allclose(posable.vertices(configuration), body.vertices(configuration))
    np.testing.assert_allclose(posable.points(configuration[None], 1)[0], body.points(configuration))


def test_points_are_labelled_as_the_truth_that_fits_best() -> None:
    truth = np.array([[[0.0, 0.0], [10.0, 0.0], [10.0, 10.0], [0.0, 10.0]]] * 2)
    permutation = np.array([[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]])
    found = truth[:, permutation[1]] + 0.3
    found[1] = truth[1]
    found[1, 0] = 500.0  # far off, which counts as `far_px`
    labelled = _labelled_as(truth, found, permutation, 6.0)
    np.testing.assert_allclose(labelled[0], truth[0] + 0.3)
    np.testing.assert_allclose(labelled[1, 1:], truth[1, 1:])


def test_points_behind_the_visible_surface_are_hidden() -> None:
    surface = _surface(rigid(), None, POSE, K)
    assert np.isinf(surface[5, 5])
    np.testing.assert_allclose(surface[31, 36], 1.0)
    u, v = np.meshgrid(np.arange(64), np.arange(64))
    inside = (np.abs(u - 36.5) < 9.5) & (np.abs(v - 31.5) < 9.5)
    np.testing.assert_array_equal(np.isfinite(surface)[inside], True)
    assert np.isfinite(surface).sum() == pytest.approx(20 * 20, abs=45)
    points = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.02], [0.0, 0.0, 0.2], [0.3, 0.0, 0.2]])
    pixels, depth = projected(rigid(), POSE, None, K)
    np.testing.assert_allclose(pixels, 100.0 * (SQUARE.vertices[:, :2] + [0.05, 0.0]) + 31.5)
    np.testing.assert_allclose(depth, 1.0)
    tilted = make_transform(matrix_from_rotvec(np.array([[0.0, 0.5, 0.0]]))[0], np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(_depth(points, tilted), 1.0 - np.sin(0.5) * points[:, 0] + np.cos(0.5) * points[:, 2])
    hidden = _behind(
        surface, np.array([[36.4, 31.0], [36.4, 31.0], [36.4, 31.0], [63.9, 80.0]]), 1.0 + points[:, 2], 0.05
    )
    assert hidden.tolist() == [False, False, True, False]


def test_contrast_is_the_difference_of_colours_from_a_ring() -> None:
    image, body = np.full((50, 50, 3), (100, 100, 100), np.uint8), np.zeros((50, 50), dtype=bool)
    body[20:30, 20:30] = True
    image[body] = (130, 100, 60)
    image[:10], image[40:] = 255, 255
    assert _contrast(image, body, 0.06) == pytest.approx(np.sqrt((30.0**2 + 40.0**2) / 3.0)), "three pixels around"
    assert _contrast(image, body, 0.3) > 50.0, "a wide ring reaches the bright parts"
    assert _contrast(image, ~body & body, 0.06) == 0.0
    assert _contrast(image, body | True, 0.06) == 0.0
    assert _median(np.array([3.0, 1.0, 2.0])) == 2.0
    assert np.isnan(_median(np.zeros(0)))


def test_errors_of_configurations_are_those_of_what_the_network_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keypoints are where another configuration has them; the fit finds it, and its errors are known."""
    body, camera = body_and_camera("hand")
    here, rng, count = window(camera, body), np.random.default_rng(0), 4
    truth = np.stack([0.4 * body.sample(rng) for _ in range(count)])
    other = np.clip(truth + 0.05 * rng.normal(size=truth.shape), body.lower, body.upper)
    zoom = np.array([[120.0, 0.0, 63.5], [0.0, 120.0, 63.5], [0.0, 0.0, 1.0]])

    def pixels(configurations: Array) -> torch.Tensor:
        return torch.from_numpy(120.0 * here.project(body.points(configurations)) + 63.5)

    points, visible = pixels(other), torch.ones(count, len(body.points_body), dtype=torch.bool)
    moment = torch.eye(2).expand(count, points.shape[1], 2, 2) * 1e-3
    monkeypatch.setattr(articulated_validation, "predict", lambda network, images: torch.zeros(count, 3, 4, 4))
    monkeypatch.setattr(articulated_validation.heatmaps, "log_probabilities", lambda output: output)
    own = torch.diag_embed(torch.arange(1.0, points.shape[1] + 1)).expand(count, -1, -1)
    monkeypatch.setattr(articulated_validation.heatmaps, "cross_entropy", lambda *_: own)
    monkeypatch.setattr(
        articulated_validation.heatmaps, "decode", lambda output: (points, moment, torch.ones(points.shape[:2]))
    )
    monkeypatch.setattr(articulated_validation, "excess_covariance", lambda moment, mass: moment)
    poses = np.tile(here.camera_from_base, (count, 1, 1))
    task = ConfigurationValidation(
        np.zeros((count, 8, 8, 3), np.uint8), pixels(truth), visible, np.tile(zoom, (count, 1, 1)), poses, truth, body
    )
    unused: Any = None
    found = task.predict_configurations(unused)
    np.testing.assert_allclose(here.project(body.points(found)), here.project(body.points(other)), atol=4e-3)
    numbers = task(unused)
    distance = np.linalg.norm((points - pixels(truth)).numpy(), axis=-1)
    error = np.abs(found - truth)
    assert numbers["px"] == pytest.approx(np.sort(distance.ravel())[(distance.size - 1) // 2], rel=1e-6)
    assert numbers["px_p90"] == pytest.approx(np.quantile(distance, 0.9), rel=1e-4)
    assert numbers["val_ce"] == pytest.approx(np.arange(1.0, points.shape[1] + 1).mean())
    assert numbers["posture"] == pytest.approx(error.mean())
    assert numbers["posture_p90"] == pytest.approx(np.quantile(error, 0.9))
    away = np.linalg.norm(body.points(found) - body.points(truth), axis=-1)
    assert numbers["points_mm"] == pytest.approx(1e3 * away.mean())
    assert numbers["rest"] == pytest.approx(np.abs(truth - body.rest).mean())
    at_rest = np.linalg.norm(body.points(truth) - body.points(body.rest), axis=-1)
    assert numbers["rest_mm"] == pytest.approx(1e3 * at_rest.mean())
    assert 0.0 <= numbers["within_2_sigma"] <= 1.0


def test_images_of_a_validation_have_the_cameras_of_their_renders() -> None:
    """Renders of 100 px are shown with 50 px: a pixel's centre is at 0.5 px of the larger one."""
    body, _ = body_and_camera("hand")
    item = {
        "image": torch.zeros(50, 50, 3, dtype=torch.uint8),
        "points_px": torch.zeros(3, 2),
        "visible": torch.ones(3, dtype=torch.bool),
    }
    asked = list[Any]()

    class Stream:
        settings = SimpleNamespace(view_size=50)

        def __getitem__(self, key: Any) -> Any:
            asked.append(key)
            return item

        def primal(self, i: int) -> Any:
            return SimpleNamespace(radiance=np.zeros((100, 100, 4)), K=K, view_from_body=(1.0 + i) * np.eye(4))

    stream: Any = Stream()
    configurations = np.arange(8.0)[:, None] * np.ones(13)
    found = ConfigurationValidation.prepare(stream, np.array([5, 2]), body, configurations)
    pixel = found.K[0] @ [0.1, -0.2, 1.0]
    large = K @ [0.1, -0.2, 1.0]
    np.testing.assert_allclose(pixel[:2], (large[:2] + 0.5) * 0.5 - 0.5)
    np.testing.assert_array_equal(found.configurations[:, 0], [5.0, 2.0])
    np.testing.assert_array_equal(found.view_from_body[:, 0, 0], [6.0, 3.0])
    assert found.images.shape == (2, 50, 50, 3)
    assert [(key.index, key.kind) for key in asked] == [(5, "plain"), (2, "plain")]
