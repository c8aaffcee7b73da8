"""Training images of the locator: small bodies, or none, anywhere in a cluttered piece of a frame.

Limits: bodies of 12 to 40 px; the locator's pyramid shrinks larger ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.appearance import camera_chain as chain
from vid2phys.risp.appearance.backgrounds import compose_background, draw_solid
from vid2phys.risp.appearance.codec import compress
from vid2phys.risp.appearance.develop import (
    RenderLike,
    apply_affine,
    body_in_frame,
    compose_affine,
    expose_light,
    project,
    similarity,
)
from vid2phys.risp.appearance.occluders import occlude
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.appearance.shadows import cast_shadow
from vid2phys.types import Array

DIAMETER_PX = (12.0, 40.0)  # diameter of the bounding sphere at the pyramid level that detects it
_ABSENT = 0.2  # share of images without the body
_SHADOW, _OCCLUDED = 0.3, 0.15  # shares of the images with the body
_LARGEST_STEP = 4.0  # largest factor by which the pyramid has shrunk the frame


@dataclass(frozen=True)
class Scene:
    """A piece of a frame.

    Attributes:
        image: [S, S, 3] uint8.
        center_px: [2] centre of the body's bounding sphere.
        diameter_px: Diameter of that sphere.
        present: Whether the image shows the body.
    """

    image: NDArray[np.uint8]
    center_px: Array
    diameter_px: float
    present: bool


def sphere_in_render(render: RenderLike, radius_m: float) -> tuple[Array, float]:
    """Return centre [2] and diameter of the sphere of `radius_m` around the body origin in the render, px."""
    center = project(render, np.zeros((1, 3)))[0]
    distance = float(np.linalg.norm(np.asarray(render.view_from_body, dtype=float)[:3, 3]))
    angle = np.arcsin(min(0.99, radius_m / distance))
    return center, float(2.0 * np.asarray(render.K)[0, 0] * np.tan(angle))


def develop_scene(
    render: RenderLike,
    radius_m: float,
    rng: np.random.Generator,
    *,
    size: int,
    bank: NDArray[np.uint8],
    varied: Randomisation = ALL,
) -> Scene:
    """Develop a scene: paste a render into a background, expose, compress, and shrink it as the pyramid does.

    There are no look-alikes, since the locator has to find everything that could be the body.

    Args:
        render: The render.
        radius_m: Radius of the body's bounding sphere, m.
        rng: Random numbers.
        size: Width and height of the scene, px.
        bank: Background images.
        varied: What is randomised.
    """
    present = bool(rng.random() >= _ABSENT)
    diameter = float(np.exp(rng.uniform(*np.log(DIAMETER_PX))))
    center = rng.uniform(-0.02 * size, 1.02 * size, 2)
    shrink = (
        float(np.exp(rng.uniform(0.0, np.log(min(_LARGEST_STEP, 110.0 / diameter))))) if rng.random() < 0.35 else 1.0
    )
    side = int(np.ceil(size * shrink)) if shrink < 2.0 else 2 * size
    scale = side / size  # shrinking removes codec and noise beyond twice the resolution
    light = compose_background(rng, bank, side)
    for _ in range(int(rng.integers(0, 4))):
        draw_solid(
            rng, light, center=rng.uniform(0, side, 2), radius=scale * float(np.exp(rng.uniform(np.log(4), np.log(40))))
        )
    if present:
        in_render, extent = sphere_in_render(render, radius_m)
        paste = similarity(diameter / extent, rng.normal(0, 0.1), in_render, center)
        grow = similarity(scale, 0.0, np.full(2, -0.5), np.full(2, -0.5))
        body, _ = body_in_frame(render, compose_affine(grow, paste), rng, side=side, varied=varied)
        chances, own = rng.random(2), np.random.default_rng(rng.integers(1 << 62))
        if chances[0] < _SHADOW and varied.shadows:
            light = cast_shadow(own, light, np.ascontiguousarray(body[..., 3]))
        light = body[..., :3] + (1.0 - body[..., 3:]) * light
        if chances[1] < _OCCLUDED and varied.occlusion:
            light, _ = occlude(own, light, body[..., 3], bank)
    display, _ = expose_light(rng, light, None, varied=varied)
    image = np.clip(np.round(display), 0, 255).astype(np.uint8)
    image = compress(rng, image) if varied.codec else image
    if side != size:
        down = similarity(size / side, 0.0, np.full(2, -0.5), np.full(2, -0.5))
        small = chain.area_filtered_warp(image.astype(np.float32), down, (size, size), replicate=True)
        image = np.clip(np.round(small), 0, 255).astype(np.uint8)
    inside = bool(((center > -0.5) & (center < size - 0.5)).all())
    return Scene(image, apply_affine(np.eye(2, 3), center), diameter, present and inside)
