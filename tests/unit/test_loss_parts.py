"""Losses of images and states beside closed forms: blurs, display values, units of residuals, and what counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter1d

from tests.filmed import Filmed, film
from vid2phys.errors import InputError
from vid2phys.solvers import losses
from vid2phys.solvers.losses._loss import misfit, robust
from vid2phys.solvers.losses.keypoint import _rotation_vector
from vid2phys.solvers.losses.pixel import BLUR_PX, blurred
from vid2phys.solvers.rendering import Scene, decode_srgb, encode_srgb, fit_light
from vid2phys.types import Array


@pytest.fixture(scope="module")
def filmed() -> Filmed:
    return film("rigid_contact")


def scene_of(filmed: Filmed) -> Scene:
    assert filmed.evidence.scene is not None
    return filmed.evidence.scene


def test_display_values_are_those_of_srgb() -> None:
    """IEC 61966-2-1: linear up to 0.0031308, a power of 2.4 above; both ways, and cut to what a display shows."""
    light = torch.tensor([0.0, 0.001, 0.0031308, 0.01, 0.18, 0.5, 1.0], dtype=torch.float64)
    known = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1.0 / 2.4) - 0.055)
    np.testing.assert_allclose(encode_srgb(light), known, rtol=1e-12)
    np.testing.assert_allclose(decode_srgb(encode_srgb(light)), light, rtol=1e-4)
    assert float(encode_srgb(torch.tensor(0.2158605))) == pytest.approx(0.5019608, abs=1e-5), "display value 128"
    np.testing.assert_array_equal(encode_srgb(torch.tensor([-1.0, 3.0])), encode_srgb(torch.tensor([0.0, 1.0])))


def test_images_are_blurred_by_a_gaussian_that_repeats_the_border() -> None:
    images = np.random.default_rng(0).random((2, 9, 9, 3))
    expected = images
    for axis in (1, 2):
        expected = gaussian_filter1d(expected, BLUR_PX, axis, mode="nearest", radius=int(np.ceil(3.0 * BLUR_PX)))
    np.testing.assert_allclose(blurred(torch.from_numpy(images)), expected, atol=1e-9)


def test_pixels_that_err_alike_count_as_one(filmed: Filmed) -> None:
    """Normal residuals of a unit variance are those of 28 that are equal; those that show nothing do not count."""
    loss = losses.get("pixel", filmed.problem, filmed.evidence)
    normal = np.random.default_rng(1).normal(size=40_000)
    for size in (1.0, 2.0):
        found = loss.variance(size * normal / np.sqrt(28.0))
        assert found == pytest.approx(size**2, rel=0.05)
        padded = np.concatenate([size * normal / np.sqrt(28.0), np.zeros(100_000)])
        assert loss.variance(padded) == pytest.approx(found)
    assert loss.variance(0.1 * normal / np.sqrt(28.0)) == 1.0


def test_pixels_are_compared_where_the_backdrop_is_known(filmed: Filmed) -> None:
    """In units of the least noise of a pixel and of how many err alike."""
    scene = scene_of(filmed)
    known = scene.views.known.copy()
    known[:, :, 30:] = False
    half = replace(filmed.evidence, scene=replace(scene, views=replace(scene.views, known=known)))
    states = torch.from_numpy(filmed.problem.system.retract(filmed.states, 0.01 * np.ones(12)))
    loss = losses.get("pixel", filmed.problem, half)
    found = loss.residuals(states).numpy().reshape(3, 48, 48, 3)
    off = blurred(scene.images(states)) - blurred(torch.from_numpy(scene.views.images))
    expected = off.numpy() / (0.004 * np.sqrt(28.0))
    np.testing.assert_allclose(found[:, :, :30], expected[:, :, :30], atol=1e-9)
    assert not found[:, :, 30:].any()


def test_a_backdrop_that_is_known_nowhere_is_refused(filmed: Filmed) -> None:
    scene = scene_of(filmed)
    nowhere = replace(scene, views=replace(scene.views, known=np.zeros_like(scene.views.known)))
    loss = losses.get("pixel", filmed.problem, replace(filmed.evidence, scene=nowhere))
    with pytest.raises(InputError, match="behind the body is known nowhere"):
        loss.check(torch.from_numpy(filmed.states))


def test_known_states_count_in_their_deviations(filmed: Filmed) -> None:
    """What is not known is left out: numbers of infinite deviation, and states that are not finite."""
    states, std = filmed.states.copy(), 0.01 * (1.0 + np.arange(36.0).reshape(3, 12))
    std[0, 4] = np.inf
    states[1, 2] = np.nan
    loss = losses.get("state", filmed.problem, replace(filmed.evidence, states=states, std=std))
    tangent = np.random.default_rng(2).normal(size=(3, 12)) * 0.1
    found = loss.residuals(torch.from_numpy(filmed.problem.system.retract(filmed.states, tangent))).numpy()
    expected = (tangent / std)[[0, 2]].ravel()
    np.testing.assert_allclose(found, np.delete(expected, 4), atol=1e-9)
    nothing = replace(filmed.evidence, std=np.full((3, 12), np.inf))
    with pytest.raises(InputError, match="no known state"):
        losses.get("state", filmed.problem, nothing)


def test_residuals_widen_intervals_and_never_narrow_them() -> None:
    assert misfit(np.array([3.0, -1.0])) == 5.0
    assert misfit(np.full(9, 0.1)) == 1.0
    assert misfit(np.zeros(0)) == 1.0


def test_robust_residuals_make_students_cost() -> None:
    """Of each frame, by the mean of its squares; next to nothing, and an outlier."""
    rng = np.random.default_rng(3)
    white = rng.normal(size=(2, 4, 6)) * np.array([1e-6, 0.5, 3.0, 50.0])[:, None]
    white[:, 1, 4:] = 0.0
    count = np.array([6.0, 4.0, 6.0, 0.5])
    found = robust(torch.from_numpy(white), torch.from_numpy(count)).numpy()
    square = (white**2).sum(axis=-1)
    least = np.maximum(count, 1.0)
    expected = 3.0 * least * np.log1p(square / least / 5.0)
    np.testing.assert_allclose(0.5 * (found**2).sum(axis=-1), expected, rtol=1e-6)
    np.testing.assert_allclose(
        found / np.linalg.norm(found, axis=-1, keepdims=True), white / np.sqrt(square)[..., None]
    )


def test_rotation_vectors_are_logarithms() -> None:
    vectors = np.random.default_rng(4).normal(size=(5, 3))
    vectors[0] = [0.0, 0.0, 3.0]
    found = _rotation_vector(torch.matrix_exp(torch.from_numpy(_cross_matrix(vectors))))
    np.testing.assert_allclose(found, vectors, atol=1e-7)
    assert not _rotation_vector(torch.eye(3, dtype=torch.float64)).any()


def _cross_matrix(vectors: Array) -> Array:
    x, y, z = vectors.T
    zero = 0.0 * x
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(-1, 3, 3)


class _Numbers:
    """A network of two numbers of an image, its mean red and green, whose body looks the same with them exchanged."""

    view_size = 48
    orders = torch.tensor([[0, 1], [1, 0]])

    def output(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean(dim=(1, 2))[:, :2]

    def numbers(self, output: torch.Tensor) -> torch.Tensor:
        return output

    def std(self, output: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[0.01, 0.02]]).double().expand(len(output), 2)

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        return [images.permute(0, 3, 1, 2), 3.0 * images[..., :1].permute(0, 3, 1, 2)]


def test_outputs_of_a_network_are_compared_up_to_the_symmetry(filmed: Filmed) -> None:
    """Each frame by the labels that are nearest, in deviations of the clip's output."""
    reader: Any = _Numbers()
    loss = losses.get("risp_image", filmed.problem, replace(filmed.evidence, reader=reader))
    target = torch.from_numpy(scene_of(filmed).views.images).mean(dim=(1, 2))[:, :2].numpy()
    steps = np.array([[0.01, -0.01], [0.0, 0.03], [0.02, 0.0]])
    seen = target + steps
    seen[1] = target[1][::-1] + np.array([0.005, 0.0])
    images = torch.from_numpy(np.append(seen, np.zeros((3, 1)), axis=1))[:, None, None].expand(3, 48, 48, 3)
    loss._scene = SimpleNamespace(images=lambda _: images)  # type: ignore[attr-defined]
    found = loss.residuals(torch.from_numpy(filmed.states)).numpy().reshape(3, 2)
    std = np.array([0.01, 0.02])
    for frame in range(3):
        options = [(seen[frame] - target[frame][order]) / std[order] for order in ([0, 1], [1, 0])]
        white = min(options, key=lambda each: float((each**2).sum()))
        square = (white**2).mean()
        expected = white * np.sqrt(6.0 * np.log1p(square / 5.0) / square)
        np.testing.assert_allclose(found[frame], expected, rtol=1e-5, atol=1e-6)


def test_features_are_compared_at_unit_length(filmed: Filmed) -> None:
    """The sum over layers of the mean over places; the second layer has one channel, so that it is one everywhere."""
    reader: Any = _Numbers()
    loss = losses.get("perceptual", filmed.problem, replace(filmed.evidence, reader=reader))
    images = torch.full((3, 48, 48, 3), 0.3, dtype=torch.float64)
    images[..., 1] = 0.6
    loss._scene = SimpleNamespace(images=lambda _: images)  # type: ignore[attr-defined]
    shown = scene_of(filmed).views.images
    unit = shown / np.sqrt((shown**2).sum(axis=-1, keepdims=True) + 1e-6)
    grey = np.array([0.3, 0.6, 0.3]) / np.sqrt(0.54)
    expected = ((unit - grey) ** 2).sum(axis=-1).mean()
    assert float(loss.value(torch.from_numpy(filmed.states))) == pytest.approx(expected, rel=1e-4)


def test_light_is_fitted_where_the_body_is_seen(filmed: Filmed) -> None:
    """That of the scene, but for a little of grey; an image of the rest may show anything."""
    scene = scene_of(filmed)
    states = torch.from_numpy(filmed.states)
    found = fit_light(scene.system, scene.mesh, scene.views, states)
    assert np.abs(found.images(states).numpy() - scene.views.images).max() < 0.02
    spoilt, covered = scene.views.images.copy(), scene.coverage(states).numpy() > 0.0
    spoilt[~covered] = 1.0
    again = fit_light(scene.system, scene.mesh, replace(scene.views, images=spoilt), states)
    np.testing.assert_allclose(again.light, found.light, atol=1e-9)
    known = scene.views.known.copy()
    spoilt = scene.views.images.copy()
    known[0], spoilt[0] = False, 0.9
    hidden = fit_light(scene.system, scene.mesh, replace(scene.views, images=spoilt, known=known), states)
    assert np.abs(hidden.images(states).numpy() - scene.views.images).max() < 0.1
    flat = fit_light(scene.system, scene.mesh, scene.views, states, shading=False)
    np.testing.assert_allclose(flat.light[:, 1:], 0.0, atol=1e-12)
    assert flat.light[0, 0] == pytest.approx(_mean_light(scene, states), abs=0.03)


def _mean_light(scene: Scene, states: torch.Tensor) -> Array:
    """The mean of the linear light of pixels that the body covers wholly."""
    whole = scene.coverage(states).numpy() > 0.999
    return np.asarray(decode_srgb(torch.from_numpy(scene.views.images)).numpy()[whole].mean(axis=0))
