"""Clips in which other things move besides the body: hands, mugs, similar objects and parts of the body.

`make_clip` draws one clip at random from a seed, with the true pose of the body in every frame. The body turns and
moves over a static background; in parts of a clip it is out of the frame or covered. Its appearance is plain, coloured
by part, or textured. All of it is drawn without a path tracer, some 10 ms a frame: these clips calibrate and judge what
counts as a tracked frame (`benchmarks.lost_frames`), not how exact a pose is.

Limits: no shadows, no reflections, no rolling shutter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from vid2phys.engine.render.rasterizer import Raster, lambert, rasterize_camera
from vid2phys.geometry import matrix_from_quat, quat_from_rotvec, quat_multiply
from vid2phys.io.array_clip import array_clip
from vid2phys.risp.appearance import camera_chain as chain
from vid2phys.risp.appearance import occluders
from vid2phys.risp.appearance.backgrounds import compose_background, random_color, to_linear
from vid2phys.risp.appearance.codec import jpeg
from vid2phys.types import Array, Camera, Clip, Mesh

FPS = 30.0
SIDE_PX = 448
FRAMES = 48
FOCAL_PX = 600.0
SIZE_PX = (34.0, 150.0)  # diameter of the body's bounding sphere in the frame
_KNOT_FRAMES = 10  # between two places that the path goes through
_MOST_TURN_RAD_S = 7.0
_SUPERSAMPLE = 2
_HAND_SHARE, _OTHER_SHARE, _ABSENT_SHARE, _TEXTURE_SHARE = 0.45, 0.6, 0.4, 0.4
Linear = NDArray[Any]  # float32 light


@dataclass(frozen=True)
class DistractorClip:
    """clip: T frames. camera: it stands still at the world's origin. mesh: of the body, without texture.

    rotation: [T, 3, 3] and translation: [T, 3] m, camera_from_body. shown: [T] share of the body's silhouette that is
    in the frame and not covered.
    """

    clip: Clip
    camera: Camera
    mesh: Mesh
    rotation: Array
    translation: Array
    shown: Array


@dataclass(frozen=True)
class _Appearance:
    """How a surface looks. colors: [P, 3] linear, one a part of the mesh. image: linear [s, s, 3] or None, laid on the
    surface along its axes, once a `period_m`. light: [2, 3] directions in which light travels, camera axes."""

    colors: Array
    image: Linear | None
    period_m: float
    light: Array
    ambient: float

    @staticmethod
    def draw(rng: np.random.Generator, mesh: Mesh, bank: NDArray[np.uint8], *, textured: bool) -> _Appearance:
        """Return a random appearance for a mesh."""
        parts = len(mesh.part_names)
        colors = np.stack([to_linear(np.asarray(255 * random_color(rng), np.uint8)) for _ in range(parts)])
        colors = np.clip(colors, 0.02, 0.7)
        if rng.random() < 0.4:
            colors[:] = colors[0]
        image = None
        if textured:
            image = to_linear(_patchwork(rng, bank) if rng.random() < 0.5 else bank[int(rng.integers(len(bank)))])
        size_m = float(np.ptp(mesh.vertices, axis=0).max())
        light = rng.normal(size=(2, 3)) + np.array([0.0, 0.8, 0.8])
        light /= np.linalg.norm(light, axis=-1, keepdims=True)
        return _Appearance(colors, image, size_m * float(rng.uniform(0.8, 2.5)), light, float(rng.uniform(0.15, 0.5)))

    def shade(self, raster: Raster, mesh: Mesh, rotation: Array, translation: Array) -> Array:
        """Return the linear colours of what is seen, [window, 3]."""
        base = self.colors[mesh.part][raster.faces_seen]
        if self.image is not None:
            base = self._image_at(raster, mesh, rotation, translation)
        lit = sum(lambert(raster, direction)[raster.faces_seen] for direction in self.light)
        return np.asarray(base * (self.ambient + 0.6 * lit)[..., None])

    def _image_at(self, raster: Raster, mesh: Mesh, rotation: Array, translation: Array) -> Array:
        assert self.image is not None
        faces = mesh.faces[raster.faces_seen]
        corners = mesh.vertices[faces]
        points = np.einsum("...k,...kc->...c", raster.barycentric_seen, corners)
        normal = np.cross(corners[..., 1, :] - corners[..., 0, :], corners[..., 2, :] - corners[..., 0, :])
        axis = np.abs(normal).argmax(axis=-1)
        side = np.take_along_axis(normal, axis[..., None], -1)[..., 0] > 0.0
        u = np.where(axis == 0, points[..., 1], points[..., 0]) / self.period_m + 0.37 * axis + 0.21 * side
        v = np.where(axis == 2, points[..., 1], points[..., 2]) / self.period_m + 0.53 * axis + 0.43 * side
        s = len(self.image)
        return np.asarray(self.image[(v * s).astype(int) % s, (u * s).astype(int) % s])


def _patchwork(rng: np.random.Generator, bank: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image [s, s, 3] of coloured rectangles, some with prints on them, as toys and boxes have."""
    side, tiles = bank.shape[1], int(rng.integers(2, 7))
    image = np.empty((side, side, 3), np.uint8)
    edges = np.linspace(0, side, tiles + 1).astype(int)
    for top, bottom in pairwise(edges):
        for left, right in pairwise(edges):
            tile = image[top:bottom, left:right]
            tile[:] = 255 * random_color(rng)
            if rng.random() < 0.4:
                print_ = bank[int(rng.integers(len(bank)))][: bottom - top, : right - left]
                tile[:] = np.where(print_.mean(axis=-1, keepdims=True) > 128, print_, tile)
    return image


@dataclass(frozen=True)
class _Mover:
    """A mesh that moves. rotation: [T, 3, 3], translation: [T, 3] m, camera_from_mesh."""

    mesh: Mesh
    appearance: _Appearance
    rotation: Array
    translation: Array

    def layer(self, index: int, camera: Camera) -> tuple[Linear, Linear]:
        """Return coverage [s, s] and light [s, s, 3] of a frame."""
        rotation, translation = self.rotation[index], self.translation[index]
        mask, light = np.zeros((SIDE_PX, SIDE_PX), np.float32), np.zeros((SIDE_PX, SIDE_PX, 3), np.float32)
        posed = self.mesh.vertices @ rotation.T + translation
        if posed[:, 2].min() <= 0.02:
            return mask, light
        raster = rasterize_camera(posed, self.mesh.faces, camera, _SUPERSAMPLE)
        if not (raster.faces_seen >= 0).any():
            return mask, light
        rgba = raster.averaged(self.appearance.shade(raster, self.mesh, rotation, translation))
        mask[raster.image_window], light[raster.image_window] = rgba[..., 3], rgba[..., :3]
        return mask, light


@dataclass(frozen=True)
class _Flat:
    """A hand, a mug or a pole: one of the occluders, the same in all frames, that moves along `center` [T, 2] px."""

    kind: int
    seed: int
    center: Array
    radius_px: Array
    bank: NDArray[np.uint8]

    def layer(self, index: int, light: Linear) -> tuple[Linear, Linear]:
        """Return coverage [s, s] and light [s, s, 3] of a frame."""
        draw = (occluders.hand, occluders.mug, occluders.pole)[self.kind]
        rng = np.random.default_rng(self.seed)
        return draw(rng, light, self.center[index], float(self.radius_px[index]), self.bank)


def make_clip(mesh: Mesh, bank: NDArray[np.uint8], seed: int, *, upright: bool = False) -> DistractorClip:
    """Return a random clip of a mesh.

    bank: images [N, s, s, 3] for backgrounds and textures. upright: the body's z axis stays within tens of degrees of
    up, as that of a quadrotor does.
    """
    rng = np.random.default_rng([seed, 77])
    mesh = Mesh(mesh.vertices, mesh.faces, mesh.part, mesh.part_names, mesh.name)
    K = np.array([[FOCAL_PX, 0.0, 0.5 * SIDE_PX - 3.0], [0.0, FOCAL_PX, 0.5 * SIDE_PX + 2.0], [0.0, 0.0, 1.0]])
    camera = Camera(K, SIDE_PX, SIDE_PX, camera_to_world=_looking_down(rng.normal(0.25, 0.3)))
    radius_m = mesh.radius_m
    size_px = float(np.exp(rng.uniform(*np.log(SIZE_PX))))
    background = compose_background(rng, bank, SIDE_PX)
    body = _body(rng, mesh, bank, radius_m, size_px)
    if upright:
        body = replace(body, rotation=_upright(rng, camera))
    fronts, behind = _distractors(rng, body, bank, radius_m, size_px, camera)
    exposure = chain.draw_exposure(rng, _over(background, *body.layer(FRAMES // 2, camera)))
    blur_px = abs(rng.normal(0.0, 0.5))
    noise_seed = int(rng.integers(1 << 31))
    frames, shown = [], []
    for index in range(FRAMES):
        light = background
        for other in behind:
            light = _over(light, *other.layer(index, camera))
        mask, own = body.layer(index, camera)
        light, visible = _over(light, mask, own), mask
        for front in fronts:
            cover, color = front.layer(index, light) if isinstance(front, _Flat) else front.layer(index, camera)
            light, visible = _over(light, cover, color), visible * (1.0 - cover)
        shown.append(float(visible.sum()) / _whole_area(body, index, camera))
        frames.append(_develop(light, exposure, blur_px, noise_seed, index))
    clip = array_clip(np.stack(frames), np.arange(FRAMES) / FPS, f"distractors-{seed}")
    return DistractorClip(clip, camera, mesh, body.rotation, body.translation, np.array(shown))


def _body(rng: np.random.Generator, mesh: Mesh, bank: NDArray[np.uint8], radius_m: float, size_px: float) -> _Mover:
    depth = 2.0 * radius_m * FOCAL_PX / size_px
    places = _path(rng, 0.5 * SIDE_PX - 0.5 * size_px, depth, 0.15)
    if rng.random() < _ABSENT_SHARE:  # it leaves the frame for a third of the clip
        start, away = int(rng.integers(0, FRAMES * 2 // 3)), rng.choice([-1.0, 1.0], 2) * [1.0, rng.integers(0, 2)]
        gone = np.clip(1.5 - np.abs(np.arange(FRAMES) - start - FRAMES / 6) / (FRAMES / 9), 0.0, 1.0)
        places = places + (gone * 1.3 * SIDE_PX / FOCAL_PX * depth)[:, None] * [*away, 0.0]
    appearance = _Appearance.draw(rng, mesh, bank, textured=bool(rng.random() < _TEXTURE_SHARE))
    return _Mover(mesh, appearance, _turning(rng), places)


def _distractors(
    rng: np.random.Generator, body: _Mover, bank: NDArray[np.uint8], radius_m: float, size_px: float, camera: Camera
) -> tuple[list[_Mover | _Flat], list[_Mover]]:
    fronts: list[_Mover | _Flat] = []
    behind: list[_Mover] = []
    at_px = (body.translation @ camera.K.T)[:, :2] / body.translation[:, 2:]
    if rng.random() < _HAND_SHARE:  # a hand that holds the body for some of the time
        offset = size_px * rng.uniform(0.0, 0.5) * _unit(rng)
        release = _released(rng)[:, None] * SIDE_PX * 0.5 * _unit(rng)
        place, size = at_px + offset + release, np.full(FRAMES, 0.6 * size_px)
        fronts.append(_Flat(0, int(rng.integers(1 << 31)), place, size, bank))
    while rng.random() < _OTHER_SHARE and len(fronts) + len(behind) < 3:
        if rng.random() < 0.4:
            path = (_path(rng, 0.5 * SIDE_PX, 1.0, 0.0)[:, :2]) * FOCAL_PX + 0.5 * SIDE_PX
            size = np.full(FRAMES, size_px * rng.uniform(0.4, 1.0))
            fronts.append(_Flat(int(rng.integers(0, 3)), int(rng.integers(1 << 31)), path, size, bank))
            continue
        other = _similar(rng, body.mesh)
        depth = 2.0 * radius_m * FOCAL_PX / size_px * float(rng.choice([0.8, 1.25]))
        mover = _Mover(
            other,
            _Appearance.draw(rng, other, bank, textured=bool(rng.random() < _TEXTURE_SHARE)),
            _turning(rng),
            _path(rng, 0.5 * SIDE_PX, depth, 0.1),
        )
        (fronts if depth < body.translation[0, 2] else behind).append(mover)
    return fronts, behind


def _similar(rng: np.random.Generator, mesh: Mesh) -> Mesh:
    """Return another shape: a copy stretched to 2.5 or 0.4 of a side, a part of the body, or a box that is no cube."""
    kind = rng.random()
    if kind < 0.3:
        stretch = np.array([1.0, rng.uniform(0.8, 1.2), rng.choice([0.4, 2.5])])
        scale = rng.uniform(0.6, 1.1) * rng.permutation(stretch)
        return Mesh(mesh.vertices * scale, mesh.faces, mesh.part, mesh.part_names)
    if kind < 0.6:
        points = trimesh.convex.convex_hull(mesh.vertices).subdivide().subdivide().vertices
        height = points @ _unit(rng, 3)
        part = trimesh.convex.convex_hull(points[height > np.quantile(height, rng.uniform(0.3, 0.6))])
        return Mesh(np.asarray(part.vertices), np.asarray(part.faces), np.zeros(len(part.faces), int))
    sides = rng.permutation([1.0, rng.uniform(0.4, 0.6), rng.uniform(0.2, 0.5)])
    box = trimesh.creation.box(np.ptp(mesh.vertices, axis=0).max() * rng.uniform(0.6, 1.2) * sides)
    return Mesh(np.asarray(box.vertices), np.asarray(box.faces), np.zeros(len(box.faces), int))


def _path(rng: np.random.Generator, reach_px: float, depth: float, depth_spread: float) -> Array:
    """Return a smooth path [T, 3] m about the optical axis, at rest for some of the time."""
    knots = np.arange(0, FRAMES + _KNOT_FRAMES, _KNOT_FRAMES)
    speed = rng.uniform(0.2, 1.0)
    places = np.cumsum(rng.normal(0.0, 0.35 * speed, (len(knots), 2)), axis=0) + rng.uniform(-0.4, 0.4, 2)
    places = np.abs((places + 1.0) % 4.0 - 2.0) - 1.0  # reflected at the border of the frame
    if rng.random() < 0.3:
        rest = int(rng.integers(0, len(knots) - 1))
        places[rest + 1 :] += places[rest] - places[rest + 1]
    z = depth * np.exp(depth_spread * np.clip(np.cumsum(rng.normal(0.0, 0.5, len(knots))), -2.0, 2.0))
    xy = CubicSpline(knots, places)(np.arange(FRAMES)) * max(reach_px, 1.0) / FOCAL_PX
    depths = CubicSpline(knots, z)(np.arange(FRAMES))
    return np.concatenate([xy * depths[:, None], depths[:, None]], axis=1)


def _turning(rng: np.random.Generator) -> Array:
    """Return rotations [T, 3, 3] of a body that tumbles, steadily or as it is moved by hand, or does not turn."""
    most = rng.choice([0.0, 1.5, _MOST_TURN_RAD_S], p=[0.15, 0.45, 0.4])
    steady = rng.normal(0.0, 0.6, 3) * most
    knots = np.arange(0, FRAMES + _KNOT_FRAMES, _KNOT_FRAMES)
    rate = CubicSpline(knots, rng.normal(0.0, 0.3, (len(knots), 3)) * most + steady)(np.arange(FRAMES))
    quat = rng.normal(size=4)
    quat /= np.linalg.norm(quat)
    quats = []
    for one in rate:
        quats.append(quat)
        quat = quat_multiply(quat_from_rotvec(one / FPS), quat)
    return np.asarray(matrix_from_quat(np.stack(quats)))


def _upright(rng: np.random.Generator, camera: Camera) -> Array:
    """Return rotations [T, 3, 3], camera_from_body, of a body that turns about the vertical and tilts a little."""
    assert camera.camera_to_world is not None
    knots = np.arange(0, FRAMES + _KNOT_FRAMES, _KNOT_FRAMES)
    tilt = CubicSpline(knots, rng.normal(0.0, 0.2, (len(knots), 3)) * [1.0, 1.0, 0.0])(np.arange(FRAMES))
    yaw = rng.uniform(0.0, 2.0 * np.pi) + np.cumsum(np.full(FRAMES, rng.normal(0.0, 1.0) / FPS))
    heading = quat_from_rotvec(yaw[:, None] * [0.0, 0.0, 1.0])
    world_from_body = matrix_from_quat(quat_multiply(quat_from_rotvec(tilt), heading))
    return np.asarray(camera.camera_to_world[:3, :3].T @ world_from_body)


def _looking_down(angle_rad: float) -> Array:
    """Return camera_to_world [4, 4] of a camera that looks along y, turned down by an angle."""
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    pose = np.eye(4)
    pose[:3, :3] = np.array([[1.0, 0.0, 0.0], [0.0, -s, c], [0.0, -c, -s]])
    return pose


def _released(rng: np.random.Generator) -> Array:
    """Return a number for each frame [T]: 0 while a hand holds the body, growing after it lets go, if it does."""
    start = rng.integers(0, 2 * FRAMES)
    return np.clip((np.arange(FRAMES) - start) / 12.0, 0.0, 2.0)


def _whole_area(body: _Mover, index: int, camera: Camera) -> float:
    """Return the area of the whole silhouette [px], as if the frame had no borders and nothing were before it."""
    centered = np.array([0.0, 0.0, np.linalg.norm(body.translation[index])])
    mask, _ = _Mover(body.mesh, body.appearance, body.rotation[[index]], centered[None]).layer(0, camera)
    return max(float(mask.sum()), 1.0)


def _over(light: Linear, mask: Linear, color: Linear) -> Linear:
    return np.asarray(light + mask[..., None] * (color - light), np.float32)


def _develop(light: Linear, exposure: chain.Exposure, blur_px: float, seed: int, index: int) -> NDArray[np.uint8]:
    display = exposure.apply(chain.gaussian_blur(light, blur_px))
    roll = np.random.default_rng([seed, 1, index]).integers(SIDE_PX, size=2)
    noisy = chain.sensor_noise(np.random.default_rng([seed, 2]), np.ascontiguousarray(np.roll(display, roll, (0, 1))))
    frame = np.clip(np.round(np.roll(noisy, -roll, axis=(0, 1))), 0, 255).astype(np.uint8)
    return jpeg(np.random.default_rng([seed, 3]), np.ascontiguousarray(frame))


def _unit(rng: np.random.Generator, size: int = 2) -> Array:
    vector = rng.normal(size=size)
    return np.asarray(vector / np.linalg.norm(vector))
