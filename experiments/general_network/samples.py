"""Training samples of the general network: an image of a random body, and drawings of it at poses that are wrong.

An image is shaded under a random appearance, and developed as the images of `risp.appearance.develop` are. Several
hypotheses share it: each has a crop about the pose that it believes in, what the mesh looks like there (normals and
depth), and as targets the silhouette of the true pose, the step to it, and how well both drawings agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.general_network.bodies import random_body
from experiments.general_network.shading import Float, corner_normals, random_pattern, shade, shown_surface
from experiments.general_network.zbuffer import FaceMap, draw_faces
from vid2phys.geometry import Pose, matrix_from_quat, matrix_from_rotvec, shortest_rotation
from vid2phys.risp.appearance.develop import DevelopOptions, develop
from vid2phys.risp.appearance.materials import MeshParts, mesh_parts
from vid2phys.risp.appearance.random_appearance import PSI_NAMES, render_appearance, sample_appearance
from vid2phys.types import Array, Mesh

SIZE_PX = 64
"""Width and height of the network's images, px."""
FILL = 2.0 / 3.0
"""Share of that width that the bounding sphere of a hypothesis takes."""
MAX_ROTATION_RAD = 0.8
"""Largest rotation that the step of a sample teaches, rad."""
_RENDER_PX, _RENDER_FILL = 144, 0.5
_VIEW_PX = (40.0, 95.0, 220.0)  # least, most frequent and largest width of the render in frame pixels
_PSI_STEP = 0.05
_MAX_SLOPE = 500.0  # of a pixel by psi, display units
_AGREEMENT_RAD = 0.25


@dataclass(frozen=True)
class TrainingBody:
    """A random mesh with what its images need.

    Attributes:
        mesh: of radius 1 m.
        parts: its groups of faces.
        normals: [F, 3, 3] of the corners of faces.
        thin_axis: [3] direction in which the body is thinnest.
    """

    mesh: Mesh
    parts: MeshParts
    normals: Float
    thin_axis: Array

    @staticmethod
    def draw(seed: tuple[int, ...]) -> TrainingBody:
        """Return the body of a seed."""
        mesh = random_body(np.random.default_rng(seed))
        spread = np.linalg.svd(mesh.vertices - mesh.vertices.mean(axis=0), full_matrices=False)[2]
        return TrainingBody(mesh, mesh_parts(mesh), corner_normals(mesh), spread[2])


@dataclass(frozen=True)
class Hypotheses:
    """N hypotheses of one image.

    Attributes:
        image: [N, S, S, 3] uint8, the crop about each hypothesis.
        drawing: [N, S, S, 5] uint8 of `drawing_channels`.
        mask: [N, S, S] uint8, silhouette of the true pose: 255 inside.
        step: [N, 6] to the true pose: rotation [rad], sideways in radii of the body, change of log distance.
        agreement: [N] of both drawings, 0 to 1.
        tangent: [N, S, S, 3] float16, derivative of the image along a random direction of psi; None without.
    """

    image: NDArray[np.uint8]
    drawing: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    step: Float
    agreement: Float
    tangent: NDArray[np.float16] | None


@dataclass(frozen=True)
class _Render:
    radiance: Float
    K: Array
    view_from_body: Array
    tangents: Float | None


def crop_camera(angular_radius: float, size: int = SIZE_PX, fill: float = FILL) -> Array:
    """Return the matrix [3, 3] of a camera that is zoomed until a sphere takes a share `fill` of its image."""
    focal, middle = 0.5 * fill * size / np.tan(angular_radius), 0.5 * (size - 1)
    return np.array([[focal, 0.0, middle], [0.0, focal, middle], [0.0, 0.0, 1.0]])


def drawing_channels(drawn: FaceMap, normals: Float, distance: float, radius: float) -> NDArray[np.uint8]:
    """Return what the network is shown of a hypothesis: normals, silhouette and depth, [S, S, 5] uint8.

    Args:
        drawn: the mesh at the hypothesis.
        normals: [N, 3] of the covered pixels, in camera axes.
        distance: of the body's middle, m.
        radius: of its bounding sphere, m.
    """
    out = np.full((*drawn.face.shape, 5), 128, np.uint8)
    out[..., 3] = 0
    inside = drawn.covered
    depth = 1.0 / drawn.nearness[inside] - distance
    out[inside, :3] = np.clip(np.rint(128.0 + 127.0 * normals), 0, 255)
    out[inside, 3] = 255
    out[inside, 4] = np.clip(np.rint(128.0 + 120.0 * depth / radius), 0, 255)
    return out


def draw_sample(
    rng: np.random.Generator, body: TrainingBody, bank: NDArray[np.uint8], hypotheses: int, *, tangent: bool
) -> Hypotheses:
    """Draw an image of a body and hypotheses of its pose.

    Args:
        rng: random numbers.
        body: the body.
        bank: images for backgrounds.
        hypotheses: their number N.
        tangent: whether to differentiate the image along a random direction of psi.
    """
    distance = float(np.exp(rng.uniform(np.log(3.0), np.log(40.0))))
    rotation = _random_rotation(rng)
    K = crop_camera(float(np.arcsin(1.0 / distance)), _RENDER_PX, _RENDER_FILL)
    view = np.eye(4)
    view[:3, :3], view[:3, 3] = rotation, [0.0, 0.0, distance]
    render = _rendered(rng, body, view, K, tangent)
    options = DevelopOptions(_RENDER_PX, bank, view_px=_VIEW_PX)
    image = develop(render, np.zeros((1, 3)), rng, options)
    true = Pose(np.asarray(image.view_from_body[:3, :3], float), np.asarray(image.view_from_body[:3, 3], float))
    tangents = None if image.tangents is None else image.tangents[0]
    rows = [_hypothesis(rng, body, true, image.image, tangents, np.asarray(image.K, float)) for _ in range(hypotheses)]
    columns = list(zip(*rows, strict=True))
    return Hypotheses(
        np.stack(columns[0]),
        np.stack(columns[1]),
        np.stack(columns[2]),
        np.stack(columns[3]).astype(np.float32),
        np.array(columns[4], np.float32),
        None if tangents is None else np.clip(np.stack(columns[5]), -_MAX_SLOPE, _MAX_SLOPE).astype(np.float16),
    )


def _rendered(rng: np.random.Generator, body: TrainingBody, view: Array, K: Array, tangent: bool) -> _Render:
    """Return the light of the body before black, and its derivative along a random direction of psi."""
    mesh, (rotation, translation) = body.mesh, (view[:3, :3], view[:3, 3])
    drawn = draw_faces(mesh.vertices @ rotation.T + translation, mesh.faces, K, _RENDER_PX)
    appearance = sample_appearance(rng, body.parts)
    up = _world(rng)
    surface = shown_surface(mesh, body.normals, drawn, K, rotation, translation)
    pattern = random_pattern(rng, surface.points)
    direction = rng.normal(size=len(PSI_NAMES))

    def lit(psi: Array) -> Float:
        return shade(surface, render_appearance(appearance, rotation.T @ up, np.zeros(3), 1.0, psi), pattern)

    radiance = np.zeros((_RENDER_PX, _RENDER_PX, 4), np.float32)
    inside, psi = drawn.covered, np.asarray(appearance.psi)
    radiance[inside, :3], radiance[inside, 3] = lit(psi), 1.0
    if not tangent:
        return _Render(radiance, K, view, None)
    slope = np.zeros((1, _RENDER_PX, _RENDER_PX, 4), np.float32)
    step = _PSI_STEP * direction
    slope[0, inside, :3] = (lit(psi + step) - lit(psi - step)) / (2.0 * _PSI_STEP)
    return _Render(radiance, K, view, slope)


def _hypothesis(
    rng: np.random.Generator,
    body: TrainingBody,
    true: Pose,
    image: NDArray[np.uint8],
    tangent: Float | None,
    K: Array,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], Array, float, Float | None]:
    """Return image, drawing, silhouette, step, agreement and tangent of a random hypothesis."""
    believed = _moved(rng, true, body.thin_axis)
    distance = float(np.linalg.norm(believed.translation))
    crop = crop_camera(float(np.arcsin(1.0 / distance)))
    aim = shortest_rotation(believed.translation).T
    to_crop = crop @ aim @ np.linalg.inv(K)
    flags = cv2.INTER_LINEAR
    side = (SIZE_PX, SIZE_PX)
    cropped = np.asarray(
        cv2.warpPerspective(image, to_crop, side, flags=flags, borderMode=cv2.BORDER_REPLICATE), np.uint8
    )
    slope: Float | None = None
    if tangent is not None:
        moved = cv2.warpPerspective(tangent, to_crop, side, flags=flags, borderMode=cv2.BORDER_CONSTANT)
        slope = np.asarray(moved, np.float32)
    in_crop = [Pose(aim @ pose.rotation, aim @ pose.translation) for pose in (true, believed)]
    drawn = [draw_faces(pose.apply(body.mesh.vertices), body.mesh.faces, crop, SIZE_PX) for pose in in_crop]
    normals = [_normals(body, each, crop, pose) for each, pose in zip(drawn, in_crop, strict=True)]
    step = in_crop[1].step_to(in_crop[0])
    step[3:5] *= distance  # in radii of the body, which is 1 m
    mask = (255 * drawn[0].covered).astype(np.uint8)
    agreement = _agreement(drawn, normals)
    return cropped, drawing_channels(drawn[1], normals[1], distance, 1.0), mask, step, agreement, slope


def _moved(rng: np.random.Generator, true: Pose, thin_axis: Array) -> Pose:
    """Return a pose that is wrong: a little, much, anyhow, or the mirror image of a flat body."""
    kind = rng.random()
    if kind < 0.5:
        spread = np.radians(6.0) * np.exp(rng.normal(0.0, 0.6))
        step = np.concatenate([rng.normal(0.0, spread, 3), rng.normal(0.0, 0.05, 2), rng.normal(0.0, 0.03, 1)])
    else:
        step = np.concatenate([rng.normal(0.0, 0.35, 3), rng.normal(0.0, 0.12, 2), rng.normal(0.0, 0.1, 1)])
    distance = float(np.linalg.norm(true.translation))
    step[3:5] /= distance
    start = true
    if kind > 0.92:
        start = Pose(_random_rotation(rng) @ true.rotation, true.translation)
    elif kind > 0.8:
        half = matrix_from_rotvec(np.pi * np.array([0.0, 0.0, 1.0]))
        flip = matrix_from_rotvec(np.pi * thin_axis)
        start = Pose(half @ true.rotation @ flip, true.translation)
        step[:3] *= 0.3
    return start.retract(step)


def _normals(body: TrainingBody, drawn: FaceMap, K: Array, pose: Pose) -> Float:
    surface = shown_surface(body.mesh, body.normals, drawn, K, pose.rotation, pose.translation)
    return np.asarray(surface.normals @ pose.rotation.T.astype(np.float32))


def _agreement(drawn: list[FaceMap], normals: list[Float]) -> float:
    """Return the share of the pixels of either drawing in which both show a surface with the same normal."""
    maps = [np.zeros((SIZE_PX, SIZE_PX, 3), np.float32) for _ in drawn]
    for image, each, own in zip(maps, drawn, normals, strict=True):
        image[each.covered] = own
    both, either = drawn[0].covered & drawn[1].covered, drawn[0].covered | drawn[1].covered
    angle = np.arccos(np.clip((maps[0][both] * maps[1][both]).sum(axis=-1), -1.0, 1.0))
    return float(np.exp(-((angle / _AGREEMENT_RAD) ** 2)).sum() / max(int(either.sum()), 1))


def _random_rotation(rng: np.random.Generator) -> Array:
    """Draw a uniform random rotation [3, 3]."""
    return matrix_from_quat(rng.normal(size=4))


def _world(rng: np.random.Generator) -> Array:
    """Draw the rotation camera_from_world of a camera that looks a little downwards, y down."""
    pitch, yaw = rng.normal(0.3, 0.4), rng.uniform(-np.pi, np.pi)
    level = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    return np.asarray(
        matrix_from_rotvec(np.array([pitch, 0.0, 0.0])) @ level @ matrix_from_rotvec(np.array([0.0, 0.0, yaw]))
    )
