"""Random appearances of training images: materials of each part, lights, environment, and the parameters psi.

psi are the rendering parameters to which the loss of RISP (Ma, Du et al. 2022, eq. 12) makes the network invariant.
They change the appearance smoothly, in units of their prior standard deviations. `render_appearance` defines how, and
`directions` differentiates it for the renderer's forward mode.

Limits: materials per face and the environment's image are not part of psi.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.mitsuba import LIGHTS, Appearance
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.risp.appearance import environments
from vid2phys.risp.appearance.materials import MeshParts, random_surface, recolored
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.types import Array

PSI_NAMES = (
    "light_intensity",
    "light_azimuth",
    "light_elevation",
    "light_warmth",
    "environment_scale",
    "base_brightness",
    "base_warmth",
    "roughness",
    "specular",
)
# Prior standard deviations: log, rad, rad, log, log, log, log, logit, absolute.
PSI_STD = np.array([0.5, 0.5, 0.3, 0.25, 0.5, 0.35, 0.2, 0.6, 0.15])
_WARM = np.array([1.0, 0.0, -1.0])
_BRIGHTNESS_OF_GREY = 0.5  # radiance of a surface of albedo 0.5, before psi
_STEP = 1e-4


@dataclass(frozen=True)
class RandomAppearance:
    """An appearance in world axes (z up), the same for all frames of a sequence.

    Attributes:
        face_color: [F, 3] linear RGB.
        face_roughness: [F].
        face_metallic: [F].
        specular: 0 to 1.
        light_azimuth_rad: [3] directions of the lights from the body's first position.
        light_elevation_rad: [3] directions of the lights from the body's first position.
        light_distance: [3] in body radii.
        light_irradiance: [3, 3] RGB that a light gives to a surface facing it. psi changes the first light.
        environment: [32, 64, 3] radiance.
        environment_yaw_rad: Rotation of the environment about the vertical.
        environment_level: Mean radiance of the environment.
        psi: [P] in standard deviations, in the order of `PSI_NAMES`.
        texture_share: [F], as in `Appearance`.
        texture_brightness: [3], as in `Appearance`.
    """

    face_color: Array
    face_roughness: Array
    face_metallic: Array
    specular: float
    light_azimuth_rad: Array
    light_elevation_rad: Array
    light_distance: Array
    light_irradiance: Array
    environment: Array
    environment_yaw_rad: float
    environment_level: float
    psi: Array
    texture_share: Array
    texture_brightness: Array


def sample_appearance(rng: np.random.Generator, parts: MeshParts, varied: Randomisation = ALL) -> RandomAppearance:
    """Draw a random appearance for the mesh that `parts` describes. varied: what is randomised."""
    surface = random_surface(rng, parts, varied)
    metal = parts.mean(surface.metallic)
    environment = environments.random_environment(rng, structured=metal > 0.3)
    if not varied.environments:
        environment = environments.uniform_like(environment)
    count = rng.integers(1, LIGHTS + 1)
    share = rng.uniform(0.15, 0.9) if metal < 0.3 else rng.uniform(0.5, 0.95)  # of the light from the environment
    strength = np.zeros(LIGHTS)
    strength[:count] = rng.dirichlet(np.full(count, 2.0))
    colored = 0.5 if rng.random() < 0.25 else 0.15
    # Reflected radiance of albedo a: a * environment + a / pi * (mean cosine over the sphere, 1/4) * irradiance.
    exposure = 2.0 * _BRIGHTNESS_OF_GREY * (0.5 / max(surface.albedo(parts), 0.02)) ** 0.35
    colors = np.array([environments.tint(rng, colored) for _ in range(LIGHTS)])
    return RandomAppearance(
        face_color=surface.color,
        face_roughness=surface.roughness,
        face_metallic=surface.metallic,
        specular=float(rng.uniform(0.3, 0.7)),
        light_azimuth_rad=rng.uniform(-np.pi, np.pi, LIGHTS),
        light_elevation_rad=_elevations(rng),
        light_distance=np.exp(rng.uniform(np.log(6.0), np.log(80.0), LIGHTS)),
        light_irradiance=4.0 * np.pi * exposure * (1.0 - share) * strength[:, None] * colors,
        environment=environment,
        environment_yaw_rad=float(rng.uniform(-np.pi, np.pi)),
        environment_level=exposure * share,
        psi=np.clip(rng.normal(0.0, 1.0, len(PSI_NAMES)), -2.0, 2.0),
        texture_share=surface.texture_share,
        texture_brightness=surface.texture_brightness,
    )


def render_appearance(
    drawn: RandomAppearance, rotation_body_from_world: Array, moved_m: Array, radius_m: float, psi: Array | None = None
) -> Appearance:
    """Return the appearance in body axes. Lights and environment are static in the world.

    Args:
        drawn: The appearance in world axes.
        rotation_body_from_world: [3, 3].
        moved_m: [3] motion of the body in the world since the first frame, m.
        radius_m: Radius of the body, m.
        psi: [P] in place of the appearance's own.
    """
    move = dict(zip(PSI_NAMES, PSI_STD * (drawn.psi if psi is None else psi), strict=True))
    irradiance = drawn.light_irradiance.copy()
    irradiance[0] = irradiance[0] * np.exp(move["light_intensity"] + move["light_warmth"] * _WARM)
    azimuth, elevation = drawn.light_azimuth_rad.copy(), drawn.light_elevation_rad.copy()
    azimuth[0] += move["light_azimuth"]
    elevation[0] += move["light_elevation"]
    scale = drawn.environment_level * np.exp(move["environment_scale"])
    distance = drawn.light_distance * radius_m
    positions = distance[:, None] * _directions(azimuth, elevation) - moved_m
    yaw = matrix_from_rotvec(np.array([0.0, 0.0, drawn.environment_yaw_rad]))
    ambient = scale * environments.mean_color(drawn.environment) + irradiance.sum(axis=0) / (4.0 * np.pi)
    brighter = move["base_brightness"] + move["base_warmth"] * _WARM
    return Appearance(
        face_color=recolored(drawn.face_color, brighter),
        face_roughness=_sigmoid(_logit(drawn.face_roughness) + move["roughness"]),
        face_metallic=drawn.face_metallic,
        specular=_soft_clip(drawn.specular + move["specular"]),
        light_positions=positions @ rotation_body_from_world.T,
        light_intensities=irradiance * distance[:, None] ** 2,
        environment=drawn.environment,
        environment_from_body=environments.IMAGE_FROM_WORLD @ yaw @ rotation_body_from_world.T,
        environment_scale=scale,
        ambient=0.7 * ambient,
        texture_share=drawn.texture_share,
        texture_brightness=drawn.texture_brightness + brighter,
    )


def directions(
    drawn: RandomAppearance, rotation_body_from_world: Array, moved_m: Array, radius_m: float
) -> list[Appearance]:
    """Return d appearance / d psi for one standard deviation of each psi.

    The image and the axes of the environment do not depend on psi.
    """
    result = []
    for step in _STEP * np.eye(len(PSI_NAMES)):
        plus, minus = (
            render_appearance(drawn, rotation_body_from_world, moved_m, radius_m, drawn.psi + s) for s in (step, -step)
        )
        moved = {f.name: (np.asarray(getattr(plus, f.name)) - getattr(minus, f.name)) / (2.0 * _STEP) for f in _SMOOTH}
        result.append(Appearance(**moved, **{f.name: getattr(plus, f.name) * 0.0 for f in _FIXED}))  # type: ignore[arg-type]
    return result


_UNMOVED = ("face_metallic", "environment", "environment_from_body", "texture_share")
_FIXED = [f for f in fields(Appearance) if f.name in _UNMOVED]
_SMOOTH = [f for f in fields(Appearance) if f not in _FIXED]


def _elevations(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw elevations of lights: most above the horizontal, a few below."""
    above = np.arcsin(rng.uniform(0.05, 1.0, LIGHTS))
    return np.where(rng.random(LIGHTS) < 0.12, -0.6 * above, above)


def _directions(azimuth: Array, elevation: Array) -> Array:
    """Return unit vectors [..., 3]."""
    flat = np.cos(elevation)
    return np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)], axis=-1)


def _logit(x: Array) -> Array:
    return np.log(x) - np.log1p(-x)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _soft_clip(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-4.0 * (x - 0.5))))
