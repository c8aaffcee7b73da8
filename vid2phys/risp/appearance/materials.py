"""Random materials for the parts of a mesh: base colours, roughness and metallic share.

Limits: a face has one material; patterns come from the mesh's own texture only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.io.faces import face_areas
from vid2phys.io.texture import mean_face_colors
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.types import Array, Mesh

_METALS = np.array(
    [
        [0.91, 0.92, 0.92],  # aluminium
        [0.56, 0.57, 0.58],  # steel
        [0.55, 0.52, 0.48],  # titanium
        [1.00, 0.78, 0.34],  # gold
        [0.95, 0.64, 0.54],  # copper
        [0.75, 0.62, 0.32],  # brass
        [0.25, 0.25, 0.27],  # gun metal
    ]
)
_SINGLE_THREAD_SIZE = 10_000  # BLAS uses one thread for shorter vectors


@dataclass(frozen=True)
class MeshParts:
    """The parts of a mesh with F faces.

    Attributes:
        group: [F] group of the file.
        component: [F] connected component.
        face_area: [F], m^2.
        face_center: [F, 3] in body radii.
        texture_color: [F, 3] mean colours in the mesh's texture, linear RGB; None without a texture.
    """

    group: NDArray[np.int64]
    component: NDArray[np.int64]
    face_area: Array
    face_center: Array
    texture_color: Array | None = None

    def mean(self, values: Array) -> float:
        """Return the mean over the surface of values [F] of its faces."""
        # BLAS runs long dot products in threads, which then spin for tens of milliseconds beside the renderer.
        total = (
            values @ self.face_area if len(values) < _SINGLE_THREAD_SIZE else np.einsum("f,f->", values, self.face_area)
        )
        return float(total / self.face_area.sum())


@dataclass(frozen=True)
class Surface:
    """Materials of F faces.

    Attributes:
        color: [F, 3] linear RGB.
        roughness: [F].
        metallic: [F].
        texture_share: [F] share of the mesh's texture, as in `render.appearance.Appearance`.
        texture_brightness: [3] logarithm of the texture's gain, as there.
    """

    color: Array
    roughness: Array
    metallic: Array
    texture_share: Array = field(default_factory=lambda: np.zeros(0))
    texture_brightness: Array = field(default_factory=lambda: np.zeros(3))

    def albedo(self, parts: MeshParts) -> float:
        """Return the mean of the base colour over the surface."""
        color = self.color
        if parts.texture_color is not None and self.texture_share.size:
            share = self.texture_share[:, None]
            color = (1.0 - share) * color + share * recolored(parts.texture_color, self.texture_brightness)
        return parts.mean(color.mean(axis=1))


@dataclass(frozen=True)
class Material:
    """One material: colour [3] in linear RGB, roughness, and metallic share."""

    color: Array
    roughness: float
    metallic: float


def mesh_parts(mesh: Mesh) -> MeshParts:
    """Return the groups of the file and the connected components (faces that share a vertex of the welded mesh)."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    faces, count = mesh.faces, len(mesh.vertices)
    rows, columns = faces[:, [0, 1]].ravel(), faces[:, [1, 2]].ravel()
    graph = coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(count, count))
    _, label = connected_components(graph, directed=False)
    radius = mesh.radius_m
    return MeshParts(
        group=_compact(mesh.part),
        component=_compact(label[faces[:, 0]].astype(np.int64)),
        face_area=face_areas(mesh.vertices, faces),
        face_center=mesh.vertices[faces].mean(axis=1) / radius,
        texture_color=None if mesh.texture is None else mean_face_colors(mesh),
    )


def random_surface(rng: np.random.Generator, parts: MeshParts, varied: Randomisation = ALL) -> Surface:
    """Draw materials for all faces; half of the textured bodies show their texture, a quarter mix it with others."""
    surface = _random_materials(rng, parts)
    if not varied.metals:
        surface = replace(surface, metallic=np.zeros(len(surface.metallic)))
    return surface if parts.texture_color is None or not varied.textures else _textured(rng, surface)


def recolored(color: Array, log_factor: Array) -> Array:
    """Return colours that are brighter by a factor where they are dark, and smoothly bounded by 1."""
    return np.asarray(1.0 - (1.0 - color) ** np.exp(log_factor))


def _textured(rng: np.random.Generator, surface: Surface) -> Surface:
    """Blend the mesh's texture over random materials: fully, partly, or not at all, with gain, tint and gloss."""
    style = rng.choice(["texture", "mixed", "materials"], p=[0.5, 0.25, 0.25])
    share = {"texture": 1.0, "mixed": float(rng.uniform(0.2, 0.9)), "materials": 0.0}[str(style)]
    gain, warm, green = rng.normal(0.0, 0.35), rng.normal(0.0, 0.15), rng.normal(0.0, 0.05)
    brightness = np.array([gain + warm, gain + green, gain - warm])
    roughness = float(rng.uniform(0.15, 0.95))  # paper, print and lacquer; never metal
    return replace(
        surface,
        roughness=surface.roughness if style == "materials" else np.full(len(surface.roughness), roughness),
        metallic=surface.metallic if style == "materials" else np.zeros(len(surface.metallic)),
        texture_share=np.full(len(surface.roughness), share),
        texture_brightness=brightness,
    )


def _random_materials(rng: np.random.Generator, parts: MeshParts) -> Surface:
    """Draw one material for all faces, one per group, one per connected component, or a base with accents."""
    metal_share = 0.85 if rng.random() < 0.25 else rng.choice([0.0, 0.1])
    style = rng.choice(["single", "groups", "components", "accents"], p=[0.12, 0.36, 0.2, 0.32])
    label = parts.component if style == "components" else parts.group
    count = int(label.max()) + 1
    materials = [random_material(rng, metal_share) for _ in range(count)]
    if style == "single":
        materials = materials[:1] * count
    elif style == "accents":
        base, keep = random_material(rng, metal_share), rng.random(count) < 0.35
        materials = [material if accent else base for material, accent in zip(materials, keep, strict=True)]
    color = np.array([m.color for m in materials])[label]
    return Surface(
        color=np.clip(color * _variation(rng, parts)[:, None], 0.004, 0.97),
        roughness=np.array([m.roughness for m in materials])[label],
        metallic=np.array([m.metallic for m in materials])[label],
    )


def random_material(rng: np.random.Generator, metal_share: float) -> Material:
    """Draw bare metal with probability `metal_share`; else saturated, grey, black or white plastic."""
    if rng.random() < metal_share:
        color = _METALS[rng.integers(len(_METALS))] * rng.uniform(0.75, 1.0)
        if rng.random() < 0.15:  # anodised
            color = _saturated(rng)
        return Material(color, float(rng.uniform(0.12, 0.6)), 1.0)
    kind = rng.choice(["saturated", "grey", "black", "white"], p=[0.38, 0.2, 0.27, 0.15])
    color = {
        "saturated": _saturated,
        "grey": lambda r: _near_grey(r, 0.05, 0.5),
        "black": lambda r: _near_grey(r, 0.008, 0.05),
        "white": lambda r: _near_grey(r, 0.6, 0.9),
    }[str(kind)](rng)
    return Material(color, float(rng.uniform(0.2, 0.95)), 0.0)


def _saturated(rng: np.random.Generator) -> Array:
    import colorsys

    rgb = colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.5, 1.0), rng.uniform(0.25, 1.0))
    return np.asarray(np.array(rgb) ** 2.2)


def _near_grey(rng: np.random.Generator, low: float, high: float) -> Array:
    level = np.exp(rng.uniform(np.log(low), np.log(high)))
    return np.asarray(np.clip(level * np.exp(rng.normal(0.0, 0.08, 3)), 0.004, 0.95))


def _variation(rng: np.random.Generator, parts: MeshParts) -> Array:
    """Draw a brightness factor of each face: mostly 1, sometimes worn, or fading along the body."""
    factor = np.ones(len(parts.group))
    if rng.random() < 0.2:
        factor = factor * np.exp(rng.normal(0.0, rng.uniform(0.05, 0.25), len(factor)))
    if rng.random() < 0.15:
        axis = rng.normal(size=3)
        along = parts.face_center @ (axis / np.linalg.norm(axis))
        factor = factor * np.exp(rng.uniform(0.3, 1.2) * along)
    return np.asarray(factor)


def _compact(label: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(label, return_inverse=True)[1].astype(np.int64).ravel()
