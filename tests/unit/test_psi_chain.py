"""dI/dpsi of training images, renderer and camera chain together, against central differences for every psi.

What the design calls constants of the derivative is held or left out: gain and exposure (found from the image's own
brightness), a background in the body's own colour, noise, codec and rounding to bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.unit.test_render_mitsuba import CORNERS
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.render.mitsuba import Renderer
from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.risp.appearance import camera_chain, develop
from vid2phys.risp.appearance.materials import MeshParts, mesh_parts
from vid2phys.risp.appearance.random_appearance import (
    PSI_NAMES,
    RandomAppearance,
    directions,
    render_appearance,
    sample_appearance,
)
from vid2phys.risp.appearance.randomisation import Randomisation
from vid2phys.types import Array, Mesh

pytestmark = [
    pytest.mark.mitsuba,
    pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine"),
]

SIZE, STEP = 64, 0.05
SMOOTH = Randomisation.without(("noise", "codec", "distractors"))  # look-alikes are copies of the body
BANK = np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3), dtype=np.uint8)


@dataclass(frozen=True)
class Rendered:
    """What `develop` needs of a render."""

    radiance: Array
    K: Array
    view_from_body: Array
    tangents: Array | None = None


@pytest.fixture(scope="module")
def tetrahedron() -> Mesh:
    """Convex, so that no shadow edge moves: those carry no derivative."""
    faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    return Mesh(CORNERS - CORNERS.mean(axis=0), faces, np.zeros(4, dtype=np.int64))


@pytest.fixture(scope="module")
def renderer(tetrahedron: Mesh) -> Renderer:
    return Renderer(tetrahedron, SIZE, spp=64)


def render(renderer: Renderer, parts: MeshParts, seed: int, psi: Array | None = None) -> Rendered:
    """RandomAppearance `seed` from a viewpoint of its own; with derivatives where no psi is given."""
    pose = make_transform(
        matrix_from_rotvec(np.random.default_rng(seed).normal(size=3)), np.array([0.003, -0.002, 0.6])
    )
    K = np.array([[320.0, 0.0, 31.5], [0.0, 320.0, 31.5], [0.0, 0.0, 1.0]])
    look: RandomAppearance = sample_appearance(np.random.default_rng([seed, 1]), parts)
    seen = (look, np.eye(3), np.zeros(3), renderer.radius_m)
    moves = directions(*seen) if psi is None else []
    image = renderer.render(pose, K, render_appearance(*seen, psi=look.psi if psi is None else look.psi + psi), seed=7,
                              directions=moves)  # fmt: skip
    tangents = np.pad(image.tangents, [(0, 0)] * 3 + [(0, 1)]) if moves else None  # coverage does not change
    return Rendered(image.radiance, K, pose, tangents)


def hold_constants(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Takes noise, codec and bytes out of the chain. Returns the list of mean brightnesses: what it holds is used again
    from its beginning in every later development; empty it to have them found anew."""
    held: list[Any] = []
    calls = [0]
    found = camera_chain.luminance

    def luminance(linear: Any) -> Any:
        place, calls[0] = calls[0], calls[0] + 1
        if place == len(held):
            held.append(found(linear))
        return held[place]

    def start_again(render: Any, points: Array, rng: Any, options: Any) -> Any:
        calls[0] = 0
        return original(render, points, rng, options)

    original = develop.develop
    monkeypatch.setattr(develop, "develop", start_again)
    monkeypatch.setattr(camera_chain, "luminance", luminance)
    monkeypatch.setattr(develop, "_bytes", lambda display: display)
    monkeypatch.setattr(develop, "_like_body", lambda rng, background, body: background)
    return held


def image(rendered: Rendered, seed: int) -> tuple[Array, Array | None]:
    options = develop.DevelopOptions(SIZE, BANK, varied=SMOOTH)
    shown = develop.develop(rendered, np.zeros((1, 3)), np.random.default_rng(seed), options)
    return np.asarray(shown.image, dtype=float), shown.tangents


def blocks(image: Array) -> Array:
    return np.asarray(image.reshape(8, SIZE // 8, 8, SIZE // 8, 3).mean(axis=(1, 3)))


@pytest.fixture(scope="module")
def pairs(renderer: Renderer, tetrahedron: Mesh) -> dict[str, list[tuple[Array, Array]]]:
    """For each psi the derivative and its central difference, of four looks each developed in its own way."""
    parts = mesh_parts(tetrahedron)
    found: dict[str, list[tuple[Array, Array]]] = {name: [] for name in PSI_NAMES}
    with pytest.MonkeyPatch.context() as monkeypatch:
        held = hold_constants(monkeypatch)
        for seed in range(4):
            held.clear()
            _, tangents = image(render(renderer, parts, seed), seed)
            assert tangents is not None
            for name, move, tangent in zip(PSI_NAMES, np.eye(len(PSI_NAMES)), tangents, strict=True):
                plus, minus = (image(render(renderer, parts, seed, s * STEP * move), seed)[0] for s in (1.0, -1.0))
                found[name].append((np.asarray(tangent, dtype=float), (plus - minus) / (2.0 * STEP)))
    return found


@pytest.mark.parametrize("name", PSI_NAMES)
def test_derivative_of_the_whole_chain(name: str, pairs: dict[str, list[tuple[Array, Array]]]) -> None:
    """Roughness also moves the samples of the environment, so that only the means over blocks of pixels agree."""
    ours, differences = (np.stack([pair[i] for pair in pairs[name]]) for i in (0, 1))
    assert np.abs(differences).mean() > 0.02, "this psi shows in no image"
    if name == "roughness":
        ours, differences = (np.stack([blocks(x) for x in values]) for values in (ours, differences))
    error = np.abs(ours - differences).mean() / np.abs(differences).mean()
    assert error < (0.06 if name == "roughness" else 3e-3)
