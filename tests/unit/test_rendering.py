"""Images of a simulated motion in the colours of its mesh, and what a loss of pixels refuses to start from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.filmed import Filmed, brick, film
from vid2phys.engine.points import manifold_gradient
from vid2phys.engine.render.surface_colors import textured
from vid2phys.errors import InputError
from vid2phys.solvers import losses
from vid2phys.solvers.rendering import Scene, Views, fit_light
from vid2phys.types import Mesh, Texture


def painted() -> Mesh:
    """The brick with an image round it, tinted from face to face."""
    rng, mesh = np.random.default_rng(0), brick()
    image = rng.integers(40, 255, (7, 5, 3), dtype=np.uint8)
    tint = np.repeat(rng.uniform(0.4, 1.0, (12, 1, 3)), 3, axis=1)
    return replace(mesh, texture=Texture((image,), np.zeros(12, dtype=np.int64), rng.uniform(size=(12, 3, 2)), tint))


def scene_of(filmed: Filmed) -> Scene:
    scene = filmed.evidence.scene
    assert scene is not None
    return scene


def seen(scene: Scene, states: np.ndarray) -> Scene:
    """The scene whose views show its own images."""
    images = scene.images(torch.from_numpy(states)).numpy()
    return replace(scene, views=replace(scene.views, images=images))


@pytest.fixture(scope="module")
def filmed() -> Filmed:
    """A painted brick that is thrown, in full colour."""
    mesh = painted()
    plain = film("rigid_contact", mesh=mesh)
    scene = replace(scene_of(plain), texture=textured(mesh), light=2.0 * scene_of(plain).light)
    return replace(plain, evidence=replace(plain.evidence, scene=seen(scene, plain.states)))


def test_colours_of_the_mesh_are_lit(filmed: Filmed) -> None:
    scene, states = scene_of(filmed), torch.from_numpy(filmed.states)
    off = {}
    for texture in (True, False):
        for shading in (True, False):
            found = fit_light(scene.system, scene.mesh, scene.views, states, texture=texture, shading=shading)
            off[texture, shading] = float(np.square(found.images(states).numpy() - scene.views.images).mean())
            assert (found.texture is not None) == texture
            assert bool((np.abs(found.light[:, 1:]) > 0.0).any()) == shading
    assert off[True, True] < 0.05 * off[False, True]
    assert off[True, True] < 0.7 * off[True, False]
    assert off[False, True] < off[False, False]


def test_light_is_found_again(filmed: Filmed) -> None:
    scene, states = scene_of(filmed), torch.from_numpy(filmed.states)
    found = replace(
        fit_light(scene.system, scene.mesh, scene.views, states), texture=scene.texture
    )  # texels as they were drawn
    assert np.abs(found.images(states).numpy() - scene.views.images).max() < 0.05


def test_the_gradient_through_colours_is_that_of_differences(filmed: Filmed) -> None:
    loss, system = losses.get("pixel", filmed.problem, filmed.evidence), filmed.problem.system
    rng = np.random.default_rng(1)
    states = system.retract(filmed.states, 0.02 * rng.normal(size=(len(filmed.states), 12)))
    tensor = torch.from_numpy(states).requires_grad_()
    (gradient,) = torch.autograd.grad(loss.value(tensor), tensor)
    tangent, along = manifold_gradient(system, states, gradient.numpy()), rng.normal(size=(len(states), 12))
    ends = [float(loss.value(torch.from_numpy(system.retract(states, s * 2e-8 * along)))) for s in (1.0, -1.0)]
    size = np.linalg.norm(tangent) * np.linalg.norm(along)
    assert abs((tangent * along).sum() - (ends[0] - ends[1]) / 4e-8) < 1e-4 * size


@pytest.mark.parametrize("name", ["quadrotor", "rigid_contact"])
def test_a_target_beside_the_simulated_body_is_named(name: str) -> None:
    """Both are in the views, some of their widths apart: no pixel's error says where to go."""
    filmed = film(name)
    scene = scene_of(filmed)
    K, size = scene.views.K * [[0.25], [0.25], [1.0]], scene.views.size
    K[:, :2, 2] = 0.5 * (size - 1)
    scene = seen(replace(scene, views=replace(scene.views, K=K)), filmed.states)
    loss = losses.get("pixel", filmed.problem, replace(filmed.evidence, scene=scene))
    loss.check(torch.from_numpy(filmed.states))
    away, to_view = filmed.states.copy(), scene.views.world_to_view[0]
    depth_m = float((to_view @ np.append(away[0, :3], 1.0))[2])
    away[:, :3] += 0.3 * size * depth_m / K[0, 0, 0] * to_view[0, :3]
    assert float(scene.coverage(torch.from_numpy(away)).sum()) > 1.0
    with pytest.raises(InputError, match=r"overlaps what the clip shows in none of 3 views.*or use --loss keypoint"):
        loss.check(torch.from_numpy(away))


@pytest.mark.parametrize("name", ["images", "backdrop", "known"])
def test_views_of_different_sizes_are_named(filmed: Filmed, name: str) -> None:
    views = vars(scene_of(filmed).views)
    expected = r"\[3, 48, 48\]" if name == "known" else r"\[3, 48, 48, 3\]"
    wrong = views[name][:, :, :40]
    text = {"images": "images", "backdrop": "backdrops", "known": "masks of what is known"}[name]
    with pytest.raises(
        InputError, match=rf"{text} of shape \[3, 48, 40.*expected {expected}.*square views of one size"
    ):
        Views(**{**views, name: wrong})
