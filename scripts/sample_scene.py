"""The room of the sample clip, path-traced: materials, lights and an integrator that training never uses.

Training shades one mesh under point lights and a photograph, directly. Here are area lights, inter-reflection, measured
metals, plastics and a coated pod, in front of textured walls and clutter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.mitsuba import load_mitsuba
from vid2phys.geometry import Array
from vid2phys.types import Mesh

MAX_DEPTH = 6
PART_MATERIALS: dict[str, dict[str, Any]] = {
    "body": {"type": "roughconductor", "material": "Cr", "alpha": 0.25},
    "arms": {"type": "roughplastic", "diffuse_reflectance": (0.03, 0.03, 0.035), "alpha": 0.12},
    "motors": {"type": "roughconductor", "material": "Cu", "alpha": 0.18},
    "propellers": {"type": "plastic", "diffuse_reflectance": (0.75, 0.32, 0.06)},
    "battery": {"type": "roughplastic", "diffuse_reflectance": (0.08, 0.16, 0.42), "alpha": 0.2},
    "camera_pod": {"type": "plastic", "diffuse_reflectance": (0.55, 0.05, 0.07), "int_ior": 1.9},
    "skids": {"type": "roughplastic", "diffuse_reflectance": (0.45, 0.46, 0.44), "alpha": 0.3},
}


class Room:
    """The scene. `render` traces it through a pinhole camera, with the body's vertices somewhere."""

    def __init__(self, mesh: Mesh, camera_to_world: Array, seed: int) -> None:
        self.mi, self.dr = load_mitsuba()
        self.mesh, self.camera_to_world = mesh, camera_to_world
        self._scene = self.mi.load_dict(self._description(np.random.default_rng(seed)))
        self._params = self.mi.traverse(self._scene)
        self._integrator = self.mi.load_dict({"type": "path", "max_depth": MAX_DEPTH, "rr_depth": 16})
        self._sensors: dict[tuple[int, int], Any] = {}

    def place(self, vertices_world: Array) -> None:
        """Put the body's vertices [V, 3] m there."""
        for name, keep in self._parts():
            self._params[f"{name}.vertex_positions"] = self.mi.Float(
                np.ascontiguousarray(vertices_world[keep], dtype=np.float32).ravel()
            )
        self._params.update()

    def render(self, K: Array, width: int, height: int, *, spp: int, seed: int) -> NDArray[np.float32]:
        """Linear RGB [height, width, 3] through K [3, 3], square pixels whose centres are at integers.

        The same seed gives the same samples: pixels that no path to the body reaches do not change with its place.
        """
        sensor = self._sensors.get((width, height))
        if sensor is None:
            sensor = self._sensors[width, height] = self.mi.load_dict(self._sensor(K, width, height))
        params = self.mi.traverse(sensor)
        for axis, size, center in (("x", width, K[0, 2]), ("y", height, K[1, 2])):
            params[f"principal_point_offset_{axis}"] = self.mi.Float(-(center + 0.5 - 0.5 * size) / size)
        params.update()
        image = self.mi.render(self._scene, sensor=sensor, integrator=self._integrator, spp=spp, seed=seed)
        return np.array(image, dtype=np.float32)[..., :3]

    def _parts(self) -> list[tuple[str, NDArray[np.int64]]]:
        """Names of the body's parts in the scene, and the vertices of each."""
        faces = [(name, self.mesh.faces[self.mesh.part == i]) for i, name in enumerate(self.mesh.part_names)]
        return [(f"quad_{name}", np.unique(part)) for name, part in faces]

    def _description(self, rng: np.random.Generator) -> dict[str, Any]:
        scene: dict[str, Any] = {"type": "scene", **_room(self.mi, rng), **_clutter(self.mi)}
        for index, (name, keep) in enumerate(self._parts()):
            scene[name] = self._part(index, name, keep)
        return scene

    def _sensor(self, K: Array, width: int, height: int) -> dict[str, Any]:
        """The OpenCV camera in Mitsuba's terms: corner-based pixels, x and y reversed."""
        return {
            "type": "perspective",
            "fov_axis": "x",
            "fov": float(np.rad2deg(2.0 * np.arctan(0.5 * width / K[0, 0]))),
            "near_clip": 0.05,
            "to_world": self.mi.ScalarTransform4f(self.camera_to_world @ np.diag([-1.0, -1.0, 1.0, 1.0])),
            "film": {
                "type": "hdrfilm",
                "width": width,
                "height": height,
                "rfilter": {"type": "gaussian", "stddev": 0.45},
                "pixel_format": "rgb",
            },
            "sampler": {"type": "independent"},
        }

    def _part(self, index: int, name: str, keep: NDArray[np.int64]) -> Any:
        """One part of the body as a Mitsuba mesh with flat faces."""
        mi = self.mi
        faces = np.searchsorted(keep, self.mesh.faces[self.mesh.part == index])
        props = mi.Properties()
        props["bsdf"] = mi.load_dict(_two_sided(PART_MATERIALS[self.mesh.part_names[index]]))
        built = mi.Mesh(name, len(keep), len(faces), props=props, has_vertex_normals=False)
        params = mi.traverse(built)
        params["vertex_positions"] = np.ascontiguousarray(self.mesh.vertices[keep], dtype=np.float32).ravel()
        params["faces"] = np.ascontiguousarray(faces, dtype=np.uint32).ravel()
        params.update()
        return built


def _rgb(color: tuple[float, ...]) -> dict[str, Any]:
    return {"type": "rgb", "value": list(color)}


def _two_sided(material: dict[str, Any]) -> dict[str, Any]:
    plain = {key: _rgb(value) if isinstance(value, tuple) else value for key, value in material.items()}
    return {"type": "twosided", "material": plain}


def _texture(mi: Any, image: Array) -> dict[str, Any]:
    """A bitmap from linear RGB [H, W, 3]."""
    return {"type": "bitmap", "bitmap": mi.Bitmap(image.astype(np.float32)), "raw": True, "wrap_mode": "repeat"}


def _smooth_noise(rng: np.random.Generator, size: int, scales: tuple[float, ...]) -> Array:
    """Periodic noise [size, size] of unit variance, a sum over blur scales in pixels."""
    from scipy.ndimage import gaussian_filter

    total = np.zeros((size, size))
    for scale in scales:
        layer = gaussian_filter(rng.normal(size=(size, size)), scale, mode="wrap")
        total += layer / layer.std()
    return total / total.std()


def _terrazzo(rng: np.random.Generator, size: int = 768) -> Array:
    """Floor: light stone with coloured chips and dark joints, linear RGB."""
    image = np.array([0.40, 0.37, 0.33]) * (1.0 + 0.05 * _smooth_noise(rng, size, (1.0, 6.0, 40.0)))[..., None]
    chips = _smooth_noise(rng, size, (2.5,))
    palette = np.array([[0.16, 0.19, 0.17], [0.45, 0.24, 0.15], [0.62, 0.60, 0.52], [0.22, 0.28, 0.36]])
    kind = np.digitize(_smooth_noise(rng, size, (5.0,)), [-0.6, 0.0, 0.6])
    image[chips > 1.2] = palette[kind][chips > 1.2]
    tile = size // 4
    rows, columns = np.indices((size, size))
    joints = (rows % tile < 4) | (columns % tile < 4)
    image[joints] *= 0.35
    return np.clip(image, 0.01, 0.9)


def _wallpaper(rng: np.random.Generator, base: tuple[float, ...], size: int = 512) -> Array:
    """Wall: plaster with faint leaves in rows, linear RGB."""
    rows, columns = np.indices((size, size)) / size
    leaf = np.sin(2 * np.pi * 6 * columns + 2.2 * np.sin(2 * np.pi * 6 * rows)) * np.cos(2 * np.pi * 3 * rows)
    shade = 1.0 + 0.10 * np.tanh(4.0 * (leaf - 0.35)) + 0.04 * _smooth_noise(rng, size, (1.0, 3.0, 30.0))
    return np.clip(np.array(base) * shade[..., None], 0.02, 0.9)


def _plane(mi: Any, to_world: Any, bsdf: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "rectangle", "to_world": to_world, "bsdf": {"type": "twosided", "material": bsdf}, **more}


def _room(mi: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Floor, two walls behind the object, ceiling, and three area lights of different colours."""
    t = mi.ScalarTransform4f

    def tiled(image: Array, repeats: float) -> dict[str, Any]:
        return {**_texture(mi, image), "to_uv": t().scale([repeats, repeats, 1.0])}

    floor = {
        "type": "roughplastic",
        "diffuse_reflectance": tiled(_terrazzo(rng), 3.0),
        "alpha": 0.25,
        "nonlinear": True,
    }
    left = {"type": "diffuse", "reflectance": tiled(_wallpaper(rng, (0.36, 0.43, 0.40)), 2.0)}
    right = {"type": "diffuse", "reflectance": tiled(_wallpaper(rng, (0.52, 0.45, 0.34)), 2.0)}
    white = {"type": "diffuse", "reflectance": _rgb((0.7, 0.7, 0.68))}
    return {
        "floor": _plane(mi, t().scale([3.6, 3.6, 1.0]), floor),
        "wall_y": _plane(mi, t().translate([0, 2.4, 1.5]).rotate([1, 0, 0], 90).scale([3.6, 1.5, 1]), left),
        "wall_x": _plane(mi, t().translate([2.6, 0, 1.5]).rotate([0, 1, 0], -90).scale([1.5, 3.6, 1]), right),
        "ceiling": _plane(mi, t().translate([0, 0, 3.0]).rotate([1, 0, 0], 180).scale([3.6, 3.6, 1]), white),
        "lamp": _light(mi, (-0.4, -0.6, 2.95), (-0.4, -0.6, 0.0), (0.55, 0.35), (11.0, 10.2, 9.0)),
        "window": _light(mi, (-3.2, 1.4, 1.9), (0.0, 0.3, 0.9), (0.8, 0.9), (2.6, 3.3, 4.4)),
        "warm": _light(mi, (1.9, -2.6, 2.2), (0.3, 0.2, 0.8), (0.25, 0.25), (13.0, 8.0, 4.0)),
    }


def _light(
    mi: Any, origin: tuple[float, ...], target: tuple[float, ...], size: tuple[float, float], rgb: tuple[float, ...]
) -> dict[str, Any]:
    up = (0.0, 1.0, 0.0) if abs(origin[2] - target[2]) > 2.0 else (0.0, 0.0, 1.0)
    place = mi.ScalarTransform4f().look_at(origin=list(origin), target=list(target), up=list(up)).scale([*size, 1.0])
    return {"type": "rectangle", "to_world": place, "emitter": {"type": "area", "radiance": _rgb(rgb)}}


def _clutter(mi: Any) -> dict[str, Any]:
    """Things in the background that may look like a quadrotor to a careless eye: dark, shiny, thin."""
    t = mi.ScalarTransform4f

    def shape(kind: str, to_world: Any, **material: Any) -> dict[str, Any]:
        return {"type": kind, "to_world": to_world, "bsdf": _two_sided(material)}

    crate = t().translate([1.5, 1.3, 0.35]).rotate([0, 0, 1], 25).scale(0.35)
    books = t().translate([1.45, 1.25, 0.76]).rotate([0, 0, 1], 48).scale([0.22, 0.15, 0.06])
    shelf = t().translate([0.2, 2.25, 1.05]).scale([0.75, 0.15, 0.02])
    tripod = t().translate([2.0, -0.2, 0.0])
    legs = {
        f"leg_{i}": {
            **shape("cylinder", tripod, type="roughconductor", material="Al", alpha=0.2),
            "p0": [0.0, 0.0, 1.05], "p1": [0.32 * np.cos(a), 0.32 * np.sin(a), 0.0], "radius": 0.015,
        }
        for i, a in enumerate(np.deg2rad([20.0, 140.0, 260.0]))
    }  # fmt: skip
    return {
        "crate": shape("cube", crate, type="diffuse", reflectance=(0.40, 0.24, 0.11)),
        "books": shape("cube", books, type="roughplastic", diffuse_reflectance=(0.12, 0.28, 0.20), alpha=0.1),
        "shelf": shape("cube", shelf, type="roughplastic", diffuse_reflectance=(0.10, 0.07, 0.05), alpha=0.15),
        "vase": shape("sphere", t().translate([-0.25, 2.2, 1.19]).scale(0.12), type="conductor", material="Au"),
        "ball": shape(
            "sphere", t().translate([0.55, 2.2, 1.16]).scale(0.09), type="plastic", diffuse_reflectance=(0.7, 0.1, 0.1)
        ),
        "globe": shape(
            "sphere",
            t().translate([2.0, -0.2, 1.2]).scale(0.16),
            type="plastic",
            diffuse_reflectance=(0.04, 0.12, 0.30),
        ),
        "stool": shape(
            "cube",
            t().translate([-0.5, 1.6, 0.2]).rotate([0, 0, 1], 10).scale(0.2),
            type="roughconductor",
            material="Ag",
            alpha=0.35,
        ),
        **legs,
    }
