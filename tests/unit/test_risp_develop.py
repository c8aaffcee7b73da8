from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.risp_synthetic import dots, square_body, write_renders
from vid2phys.risp.appearance import camera_chain as chain
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.risp.appearance.develop import DevelopOptions, apply_affine, compose_affine, develop, project, similarity
from vid2phys.risp.renders.scenes import develop_scene, sphere_in_render
from vid2phys.risp.renders.stream import ImageStream, Key, Plan, Primal, StreamSettings
from vid2phys.types import Array

PHOTO = (np.random.default_rng(0).random((80, 90, 3)) * 255).astype(np.uint8)
BLACK = np.zeros((2, 64, 64, 3), np.uint8)


def centroid(image: Array) -> Array:
    weight = image.sum(-1) if image.ndim == 3 else image
    y, x = np.mgrid[0 : weight.shape[0], 0 : weight.shape[1]]
    return np.array([(weight * x).sum(), (weight * y).sum()]) / weight.sum()


@pytest.mark.parametrize("scale", [0.31, 0.77, 1.0, 1.6])
def test_warp_moves_light_where_the_map_says(scale: float) -> None:
    spot = dots(np.array([[40.3, 52.8]]), np.ones((1, 3)), 96, sigma=3.0).astype(np.float32)
    size = int(96 * scale)
    matrix = similarity(scale, 0.2, np.full(2, 47.5), np.full(2, (size - 1) / 2) + 0.3)
    warped = chain.area_filtered_warp(spot, matrix, (size, size), replicate=False)
    assert warped.shape == (size, size, 4)
    assert np.allclose(centroid(warped), apply_affine(matrix, np.array([40.3, 52.8])), atol=0.02)


def test_affine_maps_compose() -> None:
    rng = np.random.default_rng(1)
    a, b, points = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.normal(size=(5, 2))
    assert np.allclose(apply_affine(compose_affine(a, b), points), apply_affine(a, apply_affine(b, points)))


@pytest.mark.parametrize("shift", [(3.0, 0.0), (-1.3, 2.4), (0.1, 0.0)])
def test_motion_blur_keeps_the_middle_of_the_exposure(shift: tuple[float, float]) -> None:
    spot = dots(np.array([[20.0, 17.0]]), np.ones((1, 3)), 40).astype(np.float32)
    blurred = chain.motion_blur(spot, np.array(shift))
    assert np.allclose(centroid(blurred), [20.0, 17.0], atol=1e-3)
    assert np.isclose(blurred.sum(), spot.sum(), rtol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_exposure_derivative_agrees_with_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    light, move = rng.uniform(0.05, 0.9, (6, 7, 3)), rng.normal(size=(2, 6, 7, 3))
    drawn = chain.draw_exposure(rng, light)
    exposure = chain.Exposure(drawn.color.astype(float), drawn.shoulder, drawn.exponent, drawn.contrast)
    step = 1e-6
    for p in range(2):
        numeric = (exposure.apply(light + step * move[p]) - exposure.apply(light - step * move[p])) / (2 * step)
        analytic = exposure.apply_derivative(light, move)[p]
        shown = light @ exposure.color.T
        near_corner = (np.abs(shown - 1.0) < 1e-3) | (np.abs(shown - 1e-3) < 2e-3)
        assert np.allclose(np.where(near_corner, 0, numeric), np.where(near_corner, 0, analytic), rtol=2e-3, atol=0.05)


def test_points_are_where_the_image_shows_them() -> None:
    """On a dark background a single dot's centroid is its point, on average to a tenth of a pixel."""
    camera = np.array([[300.0, 0, 47.5], [0, 300.0, 47.5], [0, 0, 1]])
    pose = np.eye(4)
    pose[2, 3] = 1.0
    point = np.array([[0.013, -0.021, 0.0]])
    blank = Primal(np.zeros((96, 96, 4)), camera, pose)
    spot = dots(project(blank, point), np.ones((1, 3)), 96, sigma=3.0)
    errors = []
    for seed in range(60):
        shown = develop(Primal(spot, camera, pose), point, np.random.default_rng(seed), DevelopOptions(96, BLACK))
        u, v = np.round(shown.points_px[0]).astype(int)
        window = shown.image[v - 14 : v + 15, u - 14 : u + 15].astype(float)
        window = np.clip(window - np.median(window, axis=(0, 1)) - 20, 0, None)
        if shown.visible[0] and window.sum() > 2000:
            errors.append(centroid(window) + np.array([u - 14, v - 14]) - shown.points_px[0])
    assert len(errors) > 20
    assert np.abs(np.median(errors, axis=0)).max() < 0.12
    assert np.median(np.linalg.norm(errors, axis=1)) < 0.6


def test_body_may_be_absent() -> None:
    camera, pose = np.array([[300.0, 0, 47.5], [0, 300.0, 47.5], [0, 0, 1]]), np.eye(4)
    pose[2, 3] = 1.0
    render = Primal(dots(np.array([[47.5, 47.5]]), np.ones((1, 3)), 96, sigma=15.0), camera, pose)
    shown = develop(render, np.zeros((1, 3)), np.random.default_rng(0), DevelopOptions(96, BLACK, absent=True))
    assert not shown.visible.any()


def test_scene_says_where_the_body_is() -> None:
    camera = np.array([[300.0, 0, 47.5], [0, 300.0, 47.5], [0, 0, 1]])
    pose = np.eye(4)
    pose[:3, 3] = [0.02, -0.01, 1.0]
    render = Primal(dots(np.array([[53.5, 44.5]]), np.ones((1, 3)), 96, sigma=12.0), camera, pose)
    center, extent = sphere_in_render(render, 0.1)
    assert np.allclose(center, [53.5, 44.5])
    assert np.isclose(extent, 2 * 300 * np.tan(np.arcsin(0.1 / np.linalg.norm(pose[:3, 3]))))
    scenes = [develop_scene(render, 0.1, np.random.default_rng(s), size=64, bank=BLACK) for s in range(20)]
    assert all(scene.image.shape == (64, 64, 3) for scene in scenes)
    assert 2 <= sum(not scene.present for scene in scenes) <= 10


def test_bank_depends_on_the_seed_alone() -> None:
    first, again = (make_bank([PHOTO], count=8, seed=3, size=48) for _ in range(2))
    assert first.shape == (8, 48, 48, 3)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, make_bank([PHOTO], count=8, seed=4, size=48))


def test_stream_repeats_and_brings_derivatives(tmp_path: Path) -> None:
    body = square_body()
    folder = write_renders(tmp_path / "data", body, 32)
    stream = ImageStream(StreamSettings(folder, body.points, 0.1, bank_count=4))
    first, again = stream[Key(2, 7, "plain")], stream[Key(2, 7, "plain")]
    assert np.array_equal(first["image"], again["image"])
    assert not np.array_equal(first["image"], stream[Key(3, 7, "plain")]["image"])
    with_gradient = stream[Key(0, 3, "gradient")]
    assert tuple(with_gradient["tangents"].shape) == (2, 96, 96, 3)
    assert with_gradient["tangents"].abs().max() > 1.0


def test_plan_visits_every_render_once_an_epoch() -> None:
    plan = Plan(np.arange(70), np.arange(0, 70, 5), batch=16, gradient_batch=4, gradient_every=2, seed=1)
    batches = list(plan.epoch(3))
    plain = [key.index for batch in batches if batch[0].kind == "plain" for key in batch]
    assert len(plain) == len(set(plain)) == 64
    gradient = [batch for batch in batches if batch[0].kind == "gradient"]
    assert [len(batch) for batch in gradient] == [4, 4]
    assert all(key.index % 5 == 0 for batch in gradient for key in batch)
    assert batches == list(plan.epoch(3))
    assert batches != list(plan.epoch(4))
