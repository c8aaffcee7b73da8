"""The parts of the shading cue beside slow sums: faces in a frame, harmonics, and what a shared light leaves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import block_diag

from tests.moving_box import CAMERA
from vid2phys.tracking.cues.shading import (
    DEFAULTS,
    FaceMotion,
    Shading,
    _basis,
    _slopes,
    measure_shading,
    shading_information,
)
from vid2phys.types import Array

SIDE, COUNT = 0.02, 8  # of the squares of a plate, m, and how many lie in a row
ASIDE = np.array([0.5, 0.3]) / 420.0  # of the plate's middle, so that no edge passes through pixels' middles


def plate(parts_differ: bool = True) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Vertices [V, 3] one metre away, faces and parts of a plate of two halves, left and right."""
    row = COUNT + 1
    grid = np.stack(np.meshgrid(np.arange(row), np.arange(row)), axis=-1).reshape(-1, 2)
    vertices = np.concatenate([SIDE * (grid - 0.5 * COUNT) + ASIDE, np.ones((row * row, 1))], axis=1)
    squares = [(r * row + c, c >= COUNT // 2) for r in range(COUNT) for c in range(COUNT)]
    faces = np.array([tri for k, _ in squares for tri in ((k, k + 1, k + row), (k + 1, k + row + 1, k + row))])
    return vertices, faces, np.array([5 * right * parts_differ for _, right in squares for _ in range(2)])


def test_the_light_of_a_face_is_the_mean_logarithm_of_its_pixels() -> None:
    vertices, faces, parts = plate()
    frame = np.random.default_rng(0).integers(40, 240, (CAMERA.height, CAMERA.width, 3)).astype(np.uint8)
    found = measure_shading(frame, CAMERA, vertices, faces, parts)
    assert found is not None
    assert len(found.faces) == len(faces)
    light = np.log((frame / 255.0) ** 2.2 + 0.02)
    v, u = np.mgrid[: CAMERA.height, : CAMERA.width]
    at = (np.stack([u, v], axis=-1) - CAMERA.K[:2, 2]) / CAMERA.K[0, 0]
    at = (at - ASIDE) / SIDE + 0.5 * COUNT
    square = np.floor(at).astype(int)
    within, upper = at - square, ((square >= 0) & (square < COUNT)).all(axis=-1)
    first = within.sum(axis=-1) < 1.0
    shown = []
    for r, c in ((3, 2), (5, 6), (1, 1)):
        for k, half in enumerate((first, ~first)):
            own = upper & (square[..., 1] == r) & (square[..., 0] == c) & half
            shown.append((2 * (r * COUNT + c) + k, light[own].mean(axis=0), own.sum(), light[own].var(axis=0)))
    for face, mean, _, _ in shown:
        np.testing.assert_allclose(found.light[found.faces == face][0], mean, atol=0.1)
    grain = np.mean([each for _, _, _, each in shown], axis=0)
    for face, _, count, _ in shown:
        np.testing.assert_allclose(
            found.variance[found.faces == face][0] - 0.02**2, grain / count, rtol=0.25
        )  # of one grain in all faces


def test_pixels_beside_another_part_or_the_background_do_not_count() -> None:
    vertices, faces, parts = plate()
    frame = np.full((CAMERA.height, CAMERA.width, 3), 120, np.uint8)
    frame[:, 157:159] = 20  # the pixels on either side of the border
    half = CAMERA.K[0, 0] * SIDE * COUNT / 2
    v, u = np.mgrid[: CAMERA.height, : CAMERA.width]
    inside = (np.abs(u - 157.5) < half - 1.0) & (np.abs(v - 121.3) < half - 1.0)
    frame[~inside] = 250
    light = np.log((120.0 / 255.0) ** 2.2 + 0.02)
    found = measure_shading(frame, CAMERA, vertices, faces, parts)
    assert found is not None
    np.testing.assert_allclose(found.light, light, rtol=1e-6)
    np.testing.assert_allclose(found.variance, 0.02**2, rtol=1e-6)
    one = measure_shading(frame, CAMERA, vertices, faces, parts * 0)
    assert one is not None
    assert (one.light < light - 0.1).any(), "in one part they count"
    away = vertices + np.array([9.0, 0.0, 0.0])
    assert measure_shading(frame, CAMERA, away, faces, parts) is None


@pytest.mark.parametrize(("share", "says"), [(0.25, True), (0.4, False)])
def test_faces_of_saturated_pixels_say_nothing(share: float, says: bool) -> None:
    vertices, faces, parts = plate()
    frame = np.full((CAMERA.height, CAMERA.width, 3), 249, np.uint8)
    frame.reshape(-1, 3)[np.random.default_rng(1).random(frame.shape[0] * frame.shape[1]) < share, 1] = 250
    found = measure_shading(frame, CAMERA, 1.0 * vertices, faces, parts)
    assert found is not None
    assert bool((found.variance[:, 1] < 1e4).mean() > 0.5) is says
    assert (found.variance[:, [0, 2]] < 0.01).all()
    assert found.variance.max() <= 1e4


def test_few_pixels_or_few_faces_say_nothing() -> None:
    vertices, faces, _ = plate()
    frame = np.full((CAMERA.height, CAMERA.width, 3), 90, np.uint8)
    one = np.zeros(len(faces), dtype=np.int64)
    for count, says in ((7, False), (8, True)):
        found = measure_shading(frame, CAMERA, vertices, faces[:count], one[:count])
        assert (found is not None) is says, count
    pixels = CAMERA.K[0, 0] * SIDE * COUNT
    for inner, says in ((6, False), (7, True)):  # 36 and 49 pixels
        shape = np.append(ASIDE, 0.0)
        far = (vertices - shape) * np.array([1.0, 1.0, pixels / (inner + 2.0)])
        far[:, :2] += far[:, 2:] * 0.5 * (inner % 2 == 1) / CAMERA.K[0, 0] + 0.2 * far[:, 2:] / CAMERA.K[0, 0]
        found = measure_shading(frame, CAMERA, far, faces, one)
        assert (found is not None) is says, inner


def motion(count: int, size: int, seed: int) -> FaceMotion:
    rng = np.random.default_rng(seed)
    corners, slopes = rng.normal(size=(count, 3, 3)), rng.normal(size=(count, 3, 3, size))
    return FaceMotion.of(corners, slopes, np.where(np.arange(count) % 3 == 0, 4, 1), 2.0)


def test_normals_and_middles_are_those_of_the_corners() -> None:
    corners = np.array([[[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 3.0, 0.0]]])
    slopes = np.zeros((1, 3, 3, 1))
    slopes[0, 2, 2, 0] = 1.0  # the last corner rises
    found = FaceMotion.of(corners, slopes, np.zeros(1, np.int64), 0.5)
    np.testing.assert_allclose(found.normals, [[0.0, 0.0, 1.0]])
    np.testing.assert_allclose(found.places, [[4.0 / 3.0, 2.0, 0.0]])
    np.testing.assert_allclose(found.normal_slopes[0, :, 0], [0.0, -1.0 / 3.0, 0.0])
    np.testing.assert_allclose(found.place_slopes[0, :, 0], [0.0, 0.0, 2.0 / 3.0])


def test_the_basis_is_harmonics_places_level_and_parts_in_standard_deviations() -> None:
    faces = motion(7, 2, 3)
    found = _basis(faces, np.array([1, 4]), DEFAULTS)
    x, y, z = faces.normals.T
    np.testing.assert_allclose(found[:, :3], 2.0 * faces.normals)
    second = [x * y, y * z, z * x, x**2 - y**2, (3.0 * z**2 - 1.0) / 2.0]
    np.testing.assert_allclose(found[:, 3:8], 0.3 * np.stack(second, axis=1))
    np.testing.assert_allclose(found[:, 8:11], 0.3 * faces.places)
    np.testing.assert_allclose(found[:, 11], 20.0)
    np.testing.assert_allclose(found[:, 12:], 0.3 * np.stack([faces.parts == 1, faces.parts == 4], axis=1))


def test_slopes_of_the_basis_are_its_differences() -> None:
    faces, small, parts = motion(9, 3, 4), 1e-6, np.array([1, 4])
    found = _slopes(faces, parts, DEFAULTS)
    for k in range(3):
        ahead, back = (
            FaceMotion(
                faces.normals + s * small * faces.normal_slopes[..., k],
                faces.places + s * small * faces.place_slopes[..., k],
                faces.normal_slopes,
                faces.place_slopes,
                faces.parts,
            )
            for s in (1.0, -1.0)
        )
        expected = (_basis(ahead, parts, DEFAULTS) - _basis(back, parts, DEFAULTS)) / (2.0 * small)
        np.testing.assert_allclose(found[..., k], expected, atol=1e-7)


def weighted(seen: list[Shading], faces: list[FaceMotion]) -> tuple[Array, Array, Array]:
    """Basis, variances [F, 3] by which faces count, and the light that explains them, of a slow sum."""
    basis = np.concatenate([_basis(each, np.array([1, 4]), DEFAULTS) for each in faces])
    light, stated = (np.concatenate([getattr(each, name) for each in seen]) for name in ("light", "variance"))

    def numbers(variance: Array) -> Array:
        rows = [np.vstack([basis / np.sqrt(variance[:, c : c + 1]), np.eye(basis.shape[1])]) for c in range(3)]
        right = [np.append(light[:, c] / np.sqrt(variance[:, c]), np.zeros(basis.shape[1])) for c in range(3)]
        return np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(rows, right, strict=True)], axis=1)

    variance, known = stated, (stated < 1e4).sum(axis=1)
    for _ in range(3):
        square = ((light - basis @ numbers(variance)) ** 2 / stated).sum(axis=1) / np.maximum(known, 1)
        misfit = max(float(np.median(square[known > 0])) / 0.8, 0.3)
        same = 40.0 * min(misfit, 1.0) + 200.0 * max(misfit - 1.0, 0.0)
        variance = stated * (same * (1.0 + square / (6.0 * misfit)))[:, None]
    return basis, variance, numbers(variance)


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
def test_information_is_what_stays_when_the_shared_light_is_free(noise: float) -> None:
    """All coordinates and the light in one linear system; the light is then eliminated by Schur's complement."""
    size, counts = 2, (40, 55)
    faces = [motion(count, size, seed) for seed, count in enumerate(counts)]
    rng = np.random.default_rng(9)
    seen = []
    for each, count in zip(faces, counts, strict=True):
        light = (each.normals @ rng.normal(size=(3, 3))) * 0.3 + noise * rng.normal(size=(count, 3))
        variance = np.full((count, 3), 0.1**2)
        variance[0], variance[1, 2] = 1e4, 1e4
        seen.append(Shading(np.arange(count), light, variance))
    told = shading_information(seen, faces)
    basis, variance, numbers = weighted(seen, faces)
    moved = [np.einsum("fmd,mc->fdc", _slopes(each, np.array([1, 4]), DEFAULTS), numbers) for each in faces]
    light = np.concatenate([each.light for each in seen])
    total, gradient = np.zeros((4, 4)), np.zeros(4)
    for c in range(3):
        jacobian = block_diag(*[each[..., c] for each in moved])
        weight = 1.0 / variance[:, c, None]
        whole = np.hstack([jacobian, basis])
        information = whole.T @ (weight * whole)
        information[4:, 4:] += np.eye(basis.shape[1])
        total += np.linalg.inv(np.linalg.inv(information)[:4, :4])
        gradient -= jacobian.T @ (weight[:, 0] * (light[:, c] - basis @ numbers[:, c]))
    shared = np.concatenate(list(told.shared), axis=1)
    found = block_diag(*told.apart) - shared.T @ shared
    np.testing.assert_allclose(found, total, rtol=1e-6, atol=1e-9 * np.abs(total).max())
    np.testing.assert_allclose(told.gradient.ravel(), gradient, rtol=1e-6, atol=1e-9 * np.abs(gradient).max())
