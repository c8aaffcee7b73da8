"""Shade a drawn mesh under a random appearance: three lights and an environment, without a ray tracer.

The environment's diffuse light is its irradiance in nine spherical harmonics (Ramamoorthi and Hanrahan, 2001);
highlights of the lights follow GGX (Walter et al., EGSR 2007), reflections of the environment are read from it.

Limits: no shadows of the body on itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.general_network.zbuffer import FaceMap
from vid2phys.engine.render.appearance import Appearance
from vid2phys.types import Array, Mesh

Float = NDArray[np.float32]
_SMOOTH_COSINE = 0.75  # of the angle between faces that share a smooth edge
_BAND = np.array([np.pi] + 3 * [2.0 * np.pi / 3.0] + 5 * [np.pi / 4.0])  # the cosine lobe in spherical harmonics


@dataclass(frozen=True)
class Surface:
    """The points of a body that an image shows, N pixels.

    Attributes:
        face: [N] index of the face.
        points: [N, 3] m, body axes.
        normals: [N, 3] towards the camera, body axes.
        to_camera: [N, 3] unit vectors, body axes.
    """

    face: NDArray[np.int64]
    points: Float
    normals: Float
    to_camera: Float


def corner_normals(mesh: Mesh) -> Float:
    """Return the normals [F, 3, 3] of the corners of each face, smooth where faces meet at a small angle."""
    corners = mesh.vertices[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(normals, axis=1, keepdims=True)
    unit = normals / np.maximum(area, 1e-20)
    order = np.argsort(mesh.faces.ravel(), kind="stable")
    vertex, face = mesh.faces.ravel()[order], order // 3
    begin = np.searchsorted(vertex, np.arange(len(mesh.vertices) + 1))
    out = np.zeros((len(mesh.faces) * 3, 3))
    for v in range(len(mesh.vertices)):
        own = slice(begin[v], begin[v + 1])
        around = face[own]
        smooth = unit[around] @ unit[around].T > _SMOOTH_COSINE
        out[order[own]] = smooth @ normals[around]
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-20)
    return out.reshape(-1, 3, 3).astype(np.float32)


def shown_surface(mesh: Mesh, normals: Float, drawn: FaceMap, K: Array, rotation: Array, translation: Array) -> Surface:
    """Return the surface that a drawing of the mesh at a pose camera_from_body shows.

    normals: [F, 3, 3] of the corners of the faces.
    """
    face = drawn.face[drawn.covered].astype(np.int64)
    in_camera = drawn.points(K)
    points = (in_camera - translation.astype(np.float32)) @ rotation.astype(np.float32)
    a, b, c = (mesh.vertices[mesh.faces[face, k]].astype(np.float32) for k in range(3))
    u, v, p = b - a, c - a, points - a
    uu, uv, vv = (u * u).sum(1), (u * v).sum(1), (v * v).sum(1)
    pu, pv = (p * u).sum(1), (p * v).sum(1)
    size = np.maximum(uu * vv - uv * uv, 1e-20)
    s, t = np.clip((pu * vv - pv * uv) / size, 0.0, 1.0), np.clip((pv * uu - pu * uv) / size, 0.0, 1.0)
    own = normals[face]
    smooth = own[:, 0] * (1.0 - s - t)[:, None] + own[:, 1] * s[:, None] + own[:, 2] * t[:, None]
    camera = -(translation @ rotation).astype(np.float32)
    to_camera = _unit(camera - points)
    smooth = _unit(smooth)
    facing = np.where((smooth * to_camera).sum(1, keepdims=True) < 0.0, -1.0, 1.0).astype(np.float32)
    return Surface(face, points, smooth * facing, to_camera)


def shade(surface: Surface, appearance: Appearance, pattern: Float | None = None) -> Float:
    """Return the light [N, 3] that the surface sends to the camera, linear RGB.

    pattern: [N, 3] factors of the faces' colours.
    """
    color = appearance.face_color[surface.face].astype(np.float32)
    color = color if pattern is None else np.minimum(color * pattern, np.float32(0.97))
    rough = np.maximum(appearance.face_roughness[surface.face], 0.08).astype(np.float32)
    metal = appearance.face_metallic[surface.face].astype(np.float32)[:, None]
    at_normal = np.float32(0.08 * appearance.specular) * (1.0 - metal) + color * metal
    diffuse = color * (1.0 - metal)
    cosine = np.clip((surface.normals * surface.to_camera).sum(1), 0.0, 1.0)
    alpha = rough**2
    total = np.zeros_like(color)
    for position, intensity in zip(appearance.light_positions, appearance.light_intensities, strict=True):
        if not np.any(intensity):
            continue
        towards = position.astype(np.float32) - surface.points
        square = (towards**2).sum(1)
        towards = towards / np.sqrt(square)[:, None]
        facing = np.clip((surface.normals * towards).sum(1), 0.0, None)
        half = _unit(towards + surface.to_camera)
        above = np.clip((surface.normals * half).sum(1), 0.0, 1.0)
        lobe = alpha**2 / (np.pi * ((above**2) * (alpha**2 - 1.0) + 1.0) ** 2)
        k = 0.5 * alpha
        shadowing = 1.0 / ((facing * (1.0 - k) + k) * (cosine * (1.0 - k) + k) * 4.0 + 1e-3)
        schlick = at_normal + (1.0 - at_normal) * (1.0 - (half * towards).sum(1)[:, None]) ** 5
        reflected = diffuse * (1.0 - schlick) / np.float32(np.pi) + schlick * (lobe * shadowing)[:, None]
        total += reflected * (facing / square)[:, None] * intensity.astype(np.float32)
    around = _to_environment(surface.normals, appearance)
    irradiance = np.clip(_harmonics(around) @ _coefficients(appearance.environment), 0.0, None)
    mirror = 2.0 * cosine[:, None] * surface.normals - surface.to_camera
    seen = _looked_up(appearance.environment, _to_environment(mirror, appearance))
    grazing = at_normal + np.maximum(1.0 - rough[:, None] - at_normal, 0.0) * (1.0 - cosine[:, None]) ** 5
    blurred = irradiance / np.float32(np.pi)
    seen = seen + (blurred - seen) * np.sqrt(rough)[:, None]
    scale = np.float32(appearance.environment_scale)
    total += scale * (diffuse * (1.0 - grazing) * blurred + grazing * seen)
    return np.asarray(np.clip(total, 0.0, 100.0), dtype=np.float32)


def random_pattern(rng: np.random.Generator, points: Float) -> Float | None:
    """Draw a pattern of colours at points [N, 3] of a body of radius 1: checks, stripes, dots, spots; None for half."""
    if rng.random() < 0.5:
        return None
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0].astype(np.float32)
    x = points @ axes.T * np.float32(np.exp(rng.uniform(np.log(1.5), np.log(9.0)))) + rng.uniform(0, 9, 3)
    kind = int(rng.integers(4))
    if kind == 0:
        mix = np.floor(x).sum(axis=1) % 2.0
    elif kind == 1:
        mix = (np.floor(x[:, 0]) % 2.0).astype(np.float32)
    elif kind == 2:
        mix = (((x - np.floor(x) - 0.5) ** 2).sum(axis=1) < rng.uniform(0.03, 0.2)).astype(np.float32)
    else:
        waves = rng.normal(size=(8, 3)).astype(np.float32)
        mix = np.sin(x @ waves.T + rng.uniform(0.0, 2.0 * np.pi, 8)).sum(axis=1) / 3.0
        mix = np.clip(0.5 + mix * rng.uniform(0.3, 3.0), 0.0, 1.0)
    one, other = np.exp(rng.normal(0.0, 0.5, (2, 3)) + rng.normal(0.0, 0.6, (2, 1)))
    return np.asarray(one + (other - one) * mix[:, None], dtype=np.float32)


def _unit(vectors: Float) -> Float:
    return np.asarray(vectors / np.maximum(np.sqrt((vectors**2).sum(-1, keepdims=True)), 1e-12), dtype=np.float32)


def _to_environment(directions: Float, appearance: Appearance) -> Float:
    return np.asarray(directions @ appearance.environment_from_body.T.astype(np.float32), dtype=np.float32)


def _harmonics(d: Float) -> Float:
    """Return the first nine real spherical harmonics [N, 9] at directions [N, 3]."""
    x, y, z = d[:, 0], d[:, 1], d[:, 2]
    one = np.full_like(x, 0.282095)
    first = [0.488603 * y, 0.488603 * z, 0.488603 * x]
    second = [1.092548 * x * y, 1.092548 * y * z, 0.315392 * (3 * z * z - 1), 1.092548 * x * z]
    return np.stack([one, *first, *second, 0.546274 * (x * x - y * y)], axis=1).astype(np.float32)


def _coefficients(environment: Array) -> Float:
    """Return the irradiance [9, 3] of a latitude-longitude image, in spherical harmonics."""
    rows, columns, _ = environment.shape
    polar = (np.arange(rows) + 0.5) * np.pi / rows
    azimuth = (np.arange(columns) + 0.5) * 2.0 * np.pi / columns
    flat = np.sin(polar)[:, None]
    directions = np.stack(
        np.broadcast_arrays(flat * np.sin(azimuth), np.cos(polar)[:, None] + 0.0 * azimuth, -flat * np.cos(azimuth)), -1
    )
    solid = (np.pi / rows) * (2.0 * np.pi / columns) * np.broadcast_to(flat, (rows, columns))
    each = _harmonics(directions.reshape(-1, 3).astype(np.float32))
    light = (environment * solid[..., None]).reshape(-1, 3)
    return np.asarray(_BAND[:, None] * (each.T @ light), dtype=np.float32)


def _looked_up(environment: Array, directions: Float) -> Float:
    """Return the radiance [N, 3] of a latitude-longitude image in directions [N, 3] of its own axes."""
    rows, columns, _ = environment.shape
    row = np.arccos(np.clip(directions[:, 1], -1.0, 1.0)) / np.pi * rows
    column = np.arctan2(directions[:, 0], -directions[:, 2]) / (2.0 * np.pi) * columns
    at = np.clip(row.astype(int), 0, rows - 1), np.floor(column).astype(int) % columns
    return np.asarray(environment[at], dtype=np.float32)
