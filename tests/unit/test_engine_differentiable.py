"""The differentiable rasteriser against exact areas, many samples a pixel, and differences in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import trimesh

from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.points import world_points
from vid2phys.engine.render.differentiable import draw, normals_of
from vid2phys.engine.render.rasterizer import rasterize
from vid2phys.engine.systems import get

SIZE = (40, 32)  # width, height
K = np.array([[90.0, 0.0, 19.2], [0.0, 80.0, 15.1], [0.0, 0.0, 1.0]])


def screw() -> tuple[np.ndarray, np.ndarray]:
    """Two boxes, one before the other, without any symmetry; closed, 24 faces."""
    near, far = trimesh.creation.box((0.1, 0.16, 0.12)), trimesh.creation.box((0.3, 0.1, 0.08))
    near.apply_transform(trimesh.transformations.euler_matrix(0.4, -0.3, 0.2))
    far.apply_transform(trimesh.transformations.euler_matrix(-0.2, 0.5, 0.7))
    near.apply_translation((-0.03, 0.02, 0.9))
    far.apply_translation((0.04, -0.01, 1.2))
    return np.concatenate([near.vertices, far.vertices]), np.concatenate([near.faces, far.faces + 8])


def tensors(vertices: np.ndarray, colors: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.from_numpy(vertices)[None], torch.from_numpy(colors)[None], torch.from_numpy(K)[None]


def test_coverage_is_the_exact_area_of_a_triangle_in_each_pixel() -> None:
    vertices = np.array([[-0.11, -0.07, 1.0], [0.17, -0.02, 1.1], [0.02, 0.12, 0.95]])
    points, colors, camera = tensors(vertices, np.ones((1, 1)))
    _, coverage = draw(points, np.array([[0, 1, 2]]), colors, camera, *SIZE)
    pixels = (vertices @ K.T)[:, :2] / vertices[:, 2:]
    a, b = pixels[1] - pixels[0], pixels[2] - pixels[0]
    assert float(coverage.sum()) == pytest.approx(0.5 * abs(a[0] * b[1] - a[1] * b[0]), rel=1e-12)
    fine = rasterize(vertices, np.array([[0, 1, 2]]), K, *SIZE, supersample=64)
    np.testing.assert_allclose(coverage[0].numpy(), fine.coverage, atol=0.02)
    centred = float((coverage[0] * torch.arange(SIZE[0])).sum() / coverage.sum())
    assert centred == pytest.approx(pixels[:, 0].mean(), abs=0.02)


def test_images_are_those_of_many_samples_a_pixel() -> None:
    vertices, faces = screw()
    colors = np.random.default_rng(0).uniform(size=(len(faces), 3))
    points, shades, camera = tensors(vertices, colors)
    image, coverage = draw(points, faces, shades, camera, *SIZE, one_sided=one_sided(vertices, faces))
    fine = rasterize(vertices, faces, K, *SIZE, supersample=24)
    seen = np.where(fine.mask[..., None], colors[fine.face_id], 0.0)
    expected = seen.reshape(SIZE[1], 24, SIZE[0], 24, 3).mean(axis=(1, 3))
    off = np.abs(image[0].numpy() - expected).max(axis=-1)
    assert off.max() < 0.25
    assert np.sort(off.ravel())[-20] < 0.03
    spilt = np.abs(coverage[0].numpy() - fine.coverage)  # two outlines in a pixel: the nearer leaves its rest to both
    assert spilt.max() < 0.25
    assert np.sort(spilt.ravel())[-20] < 0.01


def test_gradients_are_those_of_differences() -> None:
    vertices, faces = screw()
    rng = np.random.default_rng(1)
    colors = rng.uniform(size=(2, len(faces), 3))
    points = torch.from_numpy(np.stack([vertices, vertices + np.array([0.01, 0.02, -0.05])])).requires_grad_()
    shades, camera = torch.from_numpy(colors).requires_grad_(), torch.from_numpy(np.stack([K, 1.1 * K]))
    weights, of_coverage = (torch.from_numpy(rng.normal(size=(2, SIZE[1], SIZE[0], *c))) for c in ((3,), ()))

    def value(points: torch.Tensor, shades: torch.Tensor) -> torch.Tensor:
        image, coverage = draw(points, faces, shades, camera, *SIZE, one_sided=one_sided(vertices, faces))
        return (weights * image).sum() + (of_coverage * coverage).sum()

    gradients = torch.autograd.grad(value(points, shades), (points, shades))
    for _ in range(4):
        steps = [torch.from_numpy(rng.normal(size=t.shape)) for t in (points, shades)]
        h = 1e-7
        ends = [value(points + sign * h * steps[0], shades + sign * h * steps[1]).detach() for sign in (1.0, -1.0)]
        along = sum((g * s).sum() for g, s in zip(gradients, steps, strict=True))
        assert float((ends[0] - ends[1]) / (2.0 * h)) == pytest.approx(float(along), rel=1e-5)


def test_faces_that_tile_leave_no_seam_and_hide_what_is_behind() -> None:
    sphere = trimesh.creation.icosphere(4, 0.1)  # 5,120 faces, most of them smaller than a pixel
    vertices, faces = np.asarray(sphere.vertices) + np.array([0.0, 0.0, 1.0]), np.asarray(sphere.faces)
    wall = np.array([[-1.0, -1.0, 2.0], [1.0, -1.0, 2.0], [1.0, 1.0, 2.0], [-1.0, 1.0, 2.0]])
    both = np.concatenate([vertices, wall])
    all_faces = np.concatenate([faces, len(vertices) + np.array([[0, 1, 2], [0, 2, 3]])])
    colors = np.concatenate([np.zeros((len(faces), 1)), np.ones((2, 1))])
    points, shades, camera = tensors(both, colors)
    sides = one_sided(both, all_faces)
    assert sides[: len(faces)].all()
    assert not sides[len(faces) :].any()
    image, coverage = draw(points, all_faces, shades, camera, *SIZE, one_sided=sides)
    np.testing.assert_allclose(coverage.numpy(), 1.0, atol=1e-9)
    silhouette, _ = draw(points, faces, 0.0 * shades[:, : len(faces)] + 1.0, camera, *SIZE, one_sided=sides[:5120])
    np.testing.assert_allclose(image[0, ..., 0].numpy(), 1.0 - silhouette[0, ..., 0].numpy(), atol=1e-9)
    radius = 0.1 / np.sqrt(1.0 - 0.01)  # of the sphere's outline, per focal length
    assert float(silhouette.sum()) == pytest.approx(np.pi * radius**2 * 90.0 * 80.0, rel=0.01)
    assert float(silhouette[0, 15, 19]) == pytest.approx(1.0, abs=1e-12)


def test_what_is_behind_or_out_of_the_image_draws_nothing() -> None:
    vertices, faces = screw()
    aside, nearer = np.array([5.0, 0.0, 0.0]), np.array([0.0, 0.0, -2.5])
    for moved in (vertices * [1.0, 1.0, -1.0], vertices + aside, vertices + nearer):
        points, shades, camera = tensors(moved, np.ones((len(faces), 1)))
        points.requires_grad_()
        image, coverage = draw(points, faces, shades, camera, *SIZE)
        assert float(coverage.detach().abs().sum()) == 0.0
        (slope,) = torch.autograd.grad(image.sum() + coverage.sum(), points)
        assert float(slope.abs().sum()) == 0.0


def test_normals() -> None:
    normals = normals_of(torch.tensor([[[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 3.0, 0.0]]]), np.array([[0, 1, 2]]))
    np.testing.assert_allclose(normals.numpy(), [[[0.0, 0.0, 1.0]]])


@pytest.mark.parametrize("name", ["pendulum", "quadrotor", "rigid_contact", "hand", "cloth"])
def test_world_points_carry_gradients(name: str) -> None:
    system = get(name)
    rng = np.random.default_rng(4)
    states, points = system.sample_state(rng, 3), rng.normal(0.0, 0.1, (5, 3))
    tensor, weights = torch.from_numpy(states).requires_grad_(), rng.normal(size=(3, 5, 3))
    placed = world_points(system, tensor, points)
    np.testing.assert_allclose(placed.detach().numpy(), system.keypoints(states, points))
    (gradient,) = torch.autograd.grad((placed * torch.from_numpy(weights)).sum(), tensor)
    along = rng.normal(size=(3, len(system.tangent_names)))
    ends = [(weights * system.keypoints(system.retract(states, h * along), points)).sum() for h in (1e-6, -1e-6)]
    tangent = (gradient.numpy()[:, None] @ system.tangent_basis(states))[:, 0]
    assert (tangent * along).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)
