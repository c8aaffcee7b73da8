"""The test renderer: four rendering configurations of a renderer set-up that training never uses.

This is their one place; nothing in `risp` may import it. Other than in training there is full light transport, a floor
and a wall that shadows fall on, area lights and a sun instead of point lights, rough plastic, lacquer and rough
conductors of Mitsuba's own, and photographs that no training image holds. Limits: four configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array

PHOTOGRAPHS = {"skimage": ("coins.png", "page.png", "moon.png"), "matplotlib": ("grace_hopper.jpg",)}
_FOLDERS = {"skimage": "data", "matplotlib": "mpl-data/sample_data"}
FLOOR, WALL = -6.0, 34.0  # height of the floor and distance of the wall behind the body, in body radii
_WIDE, _FIELD = 60.0, 4000.0  # half sides of a room and of open ground
Scene = dict[str, Any]


@dataclass(frozen=True)
class Configuration:
    """One appearance.

    surroundings: makes floor, wall and lights. material: makes the BSDF of a surface from random numbers,
    with an image as its colour if there is one.

    exposure: share of white that the mean of a frame comes to. Colours are linear.
    """

    name: str
    surroundings: Callable[[], Scene]
    material: Callable[[np.random.Generator, Scene | None], Scene]
    exposure: float

    def materials(self, colors: Sequence[Scene | None], variant: int = 0) -> list[Scene]:
        """Return the materials, the same for every frame; one for each surface, whose image or None is given. Other
        variants, others.
        """
        seed = [*(ord(letter) for letter in self.name), *([variant] if variant else [])]
        return [self.material(np.random.default_rng([*seed, index]), color) for index, color in enumerate(colors)]


def photograph(name: str) -> NDArray[np.float32]:
    """Return a held-out photograph in linear light, [H, W, 3]."""
    from PIL import Image

    package = next(package for package, names in PHOTOGRAPHS.items() if name in names)
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(next(iter(spec.submodule_search_locations))) / _FOLDERS[package] / name
    return ((np.asarray(Image.open(path).convert("RGB"), dtype=np.float32) / 255.0) ** 2.2).astype(np.float32)


def _placed(position: tuple[float, float, float], normal: tuple[float, float, float], half: Array) -> Array:
    """Transform [4, 4] of a unit rectangle: half sides [2], its normal, its middle; its image's top is up."""
    z = np.asarray(normal, dtype=float) / np.linalg.norm(normal)
    x = np.cross([0.0, 0.0, 1.0] if abs(z[2]) < 0.9 else [0.0, 1.0, 0.0], z)
    x /= np.linalg.norm(x)
    result = np.eye(4)
    result[:3, :3] = np.stack([x * half[0], np.cross(z, x) * half[1], z], axis=1)
    result[:3, 3] = position
    return result


def _rectangle(
    position: tuple[float, float, float], normal: tuple[float, float, float], half: tuple[float, float], **more: Any
) -> Scene:
    return {"type": "rectangle", "to_world": _placed(position, normal, np.array(half)), **more}


def _lamp(
    position: tuple[float, float, float],
    normal: tuple[float, float, float],
    half: tuple[float, float],
    radiance: tuple[float, float, float],
) -> Scene:
    return _rectangle(position, normal, half, emitter={"type": "area", "radiance": _rgb(radiance)})


def _rgb(color: Any) -> Scene:
    return {"type": "rgb", "value": [float(value) for value in color]}


def _image(name: str, repeat: float = 1.0) -> Scene:
    scale = np.diag([repeat, -repeat, 1.0, 1.0])  # rows run downwards
    return {"type": "bitmap", "bitmap": photograph(name), "raw": True, "to_uv": scale}


def _checker(a: float, b: float, repeat: float) -> Scene:
    to_uv = np.diag([repeat, repeat, 1.0, 1.0])
    return {"type": "checkerboard", "color0": _rgb([a] * 3), "color1": _rgb([b] * 3), "to_uv": to_uv}


def _floor(reflectance: Scene, half: float = _WIDE) -> Scene:
    bsdf = {"type": "diffuse", "reflectance": reflectance}
    return _rectangle((0.0, 0.0, FLOOR), (0.0, 0.0, 1.0), (half, half), bsdf=bsdf)


def _wall(reflectance: Scene) -> Scene:
    bsdf = {"type": "diffuse", "reflectance": reflectance}
    return _rectangle((WALL, 0.0, FLOOR + 24.0), (-1.0, 0.0, 0.0), (_WIDE, 24.0), bsdf=bsdf)


def _color(rng: np.random.Generator, low: float, high: float) -> Scene:
    return _rgb(np.minimum(rng.uniform(low, high) * rng.dirichlet([1.5, 1.5, 1.5]) * 3.0, 0.9))


def _studio() -> Scene:
    return {
        "floor": _floor(_rgb([0.35, 0.33, 0.3])),
        "wall": _wall(_rgb([0.5, 0.52, 0.55])),
        "key": _lamp((2.0, -14.0, 12.0), (-0.1, 1.0, -0.9), (4.0, 4.0), (16.0, 15.0, 13.0)),
        "fill": _lamp((-6.0, 16.0, 6.0), (0.3, -1.0, -0.3), (7.0, 5.0), (2.0, 2.4, 3.0)),
    }


def _sun() -> Scene:
    """Return a low afternoon sun, Mitsuba's own model of sky and sun."""
    direction = [-0.55, 0.6, 0.58]
    to_world = np.eye(4)
    return {
        "floor": _floor(_checker(0.12, 0.3, 24.0 * _FIELD / _WIDE), _FIELD),
        "sky": {"type": "sunsky", "sun_direction": direction, "turbidity": 3.0, "to_world": to_world},
    }


def _workshop() -> Scene:
    return {
        "floor": _floor(_rgb([0.18, 0.13, 0.09])),
        "wall": _wall(_image("grace_hopper.jpg", 4.0)),
        "bulb": _lamp((-4.0, 3.0, 14.0), (0.2, -0.2, -1.0), (1.0, 1.0), (160.0, 120.0, 70.0)),
        "window": _lamp((6.0, -24.0, 4.0), (0.0, 1.0, 0.0), (6.0, 8.0), (3.0, 3.6, 4.6)),
    }


def _gallery() -> Scene:
    return {
        "floor": _floor(_image("coins.png", 3.0)),
        "wall": _wall(_image("page.png", 3.0)),
        "panel": _lamp((0.0, 0.0, 22.0), (0.0, 0.0, -1.0), (14.0, 3.0), (6.0, 6.0, 6.4)),
        "around": {"type": "envmap", "bitmap": np.tile(photograph("moon.png") + 0.05, (1, 2, 1)), "scale": 0.4},
    }


def _rough_plastic(rng: np.random.Generator, image: Scene | None) -> Scene:
    color = _color(rng, 0.05, 0.6)
    return {"type": "roughplastic", "diffuse_reflectance": image or color, "alpha": float(rng.uniform(0.05, 0.3))}


def _lacquer(rng: np.random.Generator, image: Scene | None) -> Scene:
    color = _color(rng, 0.03, 0.5)
    return {
        "type": "principled",
        "base_color": image or color,
        "roughness": float(rng.uniform(0.3, 0.7)),
        "clearcoat": 1.0,
        "clearcoat_gloss": 0.9,
    }


def _metal_or_plastic(rng: np.random.Generator, image: Scene | None) -> Scene:
    """Return plastic for what is printed on, else metal."""
    if rng.random() < 0.5 or image is not None:
        return _rough_plastic(rng, image)
    metal = str(rng.choice(["Al", "Cu", "Cr"]))
    return {"type": "roughconductor", "material": metal, "alpha": float(rng.uniform(0.1, 0.35))}


def _glossy(rng: np.random.Generator, image: Scene | None) -> Scene:
    """Return a glossy material, dark unless it is printed on."""
    return {"type": "plastic", "diffuse_reflectance": image or _color(rng, 0.01, 0.12)}


CONFIGURATIONS = (
    Configuration("studio", _studio, _rough_plastic, 0.25),
    Configuration("sun", _sun, _lacquer, 0.3),
    Configuration("workshop", _workshop, _metal_or_plastic, 0.2),
    Configuration("gallery", _gallery, _glossy, 0.28),
)
