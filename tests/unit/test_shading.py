"""How light falls on a body that bends: its slopes, and a rod's bending along the sight, which edges hardly show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.unit.test_articulated_contour import moved_along_sight, window
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.movable.modes import CELLS
from vid2phys.engine.render.rasterizer import face_normals, rasterize_camera
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rod import Rod
from vid2phys.geometry import look_at
from vid2phys.risp.networks.articulated_bodies import body_of_model
from vid2phys.risp.networks.model import Model
from vid2phys.tracking.articulated.shading import fit_shading
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.shading import FaceMotion, Shading, shading_information
from vid2phys.types import Array, Camera

RADIANCE, TOWARDS = 0.5, np.array([0.6, -0.7, 0.4])  # of a distant light beside an even one
MODEL = Path(__file__).resolve().parents[2] / "models" / "rod"


def rod() -> ArticulatedBody:
    named = get("rod")
    assert isinstance(named, Rod)
    return body_of_model(Model.load(MODEL), Rod(CELLS, elements="linear", size_m=named.size_m))


def turned(body: ArticulatedBody, solid: Solid, configuration: Array, some: Array) -> FaceMotion:
    corners = body.mesh.faces[some]
    slopes = body.jacobian(configuration, corners.ravel()).reshape(*corners.shape, 3, -1)
    return FaceMotion.of(body.vertices(configuration)[corners], slopes, solid.smooth_parts[some], body.radius_m)


def test_a_rod_has_six_smooth_sides() -> None:
    body = rod()
    parts, normals = Solid.of(body.mesh).smooth_parts, face_normals(body.mesh.vertices, body.mesh.faces)
    assert len(np.unique(parts)) == 6
    for part in np.unique(parts):
        assert np.ptp(normals[parts == part], axis=0).max() < 1e-9


def test_normals_and_places_turn_as_their_slopes_say() -> None:
    body = rod()
    solid, some = Solid.of(body.mesh), np.arange(0, len(body.mesh.faces), 5)
    configuration = body.sample(np.random.default_rng(1))
    slopes, step = turned(body, solid, configuration, some), 1e-6
    for coordinate in range(len(configuration)):
        aside = step * np.eye(len(configuration))[coordinate]
        after, before = (turned(body, solid, configuration + sign * aside, some) for sign in (1.0, -1.0))
        for name in ("normals", "places"):
            difference = (getattr(after, name) - getattr(before, name)) / (2.0 * step)
            exact = getattr(slopes, name[:-1] + "_slopes")[..., coordinate]
            np.testing.assert_allclose(difference, exact, atol=1e-6 * max(1.0, np.abs(exact).max()))


def explained(body: ArticulatedBody, seed: int) -> tuple[Shading, FaceMotion]:
    """A frame that light without gloss explains."""
    faces = turned(body, Solid.of(body.mesh), body.sample(np.random.default_rng(seed)), np.arange(len(body.mesh.faces)))
    light = np.tile((0.3 * faces.normals[:, 2] - 1.0)[:, None], (1, 3))
    return Shading(np.arange(len(light)), light, np.full(light.shape, 1e-4)), faces


def test_light_that_the_configurations_explain_pulls_nowhere() -> None:
    body = rod()
    frames = [explained(body, seed) for seed in (1, 2, 3)]
    told = shading_information([seen for seen, _ in frames], [faces for _, faces in frames])
    frames_count, size = told.gradient.shape
    whole = np.zeros((frames_count * size,) * 2)
    for t in range(frames_count):
        whole[t * size : (t + 1) * size, t * size : (t + 1) * size] = told.apart[t]
    shared = np.concatenate(list(told.shared), axis=1)
    information = whole - shared.T @ shared
    assert np.linalg.eigvalsh(information).min() > -1e-9 * np.linalg.eigvalsh(information).max()
    weak = np.diag(np.tile(body.prior_std**-2.0, frames_count))
    pulled = np.linalg.solve(information + weak, -told.gradient.ravel()).reshape(told.gradient.shape)
    assert np.abs(pulled / body.prior_std).max() < 0.1


def test_faces_that_are_white_tell_nothing() -> None:
    body = rod()
    seen, faces = explained(body, 1)
    white = np.arange(len(seen.light)) % 3 == 0
    variance = np.where(white[:, None], 1e4, seen.variance)
    told, same = (
        shading_information([Shading(seen.faces, seen.light + off * white[:, None], variance)], [faces])
        for off in (0.0, 2.0)
    )
    np.testing.assert_allclose(
        told.gradient, same.gradient, atol=1e-3 * np.abs(told.apart).max() * body.prior_std.max()
    )


def test_shading_shows_what_bends_along_the_sight() -> None:
    body, camera = rod(), side_on(rod())
    along = int(np.argmax(moved_along_sight(body, camera)))  # the mode that bends along the sight
    truth = 0.7 * body.prior_std * np.eye(len(body.prior_std))[along]
    std = 0.02 * body.prior_std
    std[along] = body.prior_std[along]  # edges tell all but this
    begin = truth * (np.arange(len(truth)) != along)
    image = shaded(body, camera, truth)
    found, covariance = fitted(body, camera, [image], begin[None], std)
    assert abs(found[0] - truth)[along] < 0.7 * abs(begin - truth)[along]
    assert covariance[0, along, along] < 0.9 * std[along] ** 2
    same, _ = fitted(body, camera, [np.zeros_like(image)], begin[None], std)
    assert np.abs((same[0] - begin) / std).max() < 0.2


def test_frames_of_one_light_tell_more_together() -> None:
    body, camera = rod(), side_on(rod())
    lie = moved_along_sight(body, camera)
    along, across = int(np.argmax(lie)), int(np.argmin(lie[:2]))
    truths = np.zeros((6, len(body.prior_std)))
    truths[:, along] = body.prior_std[along] * np.array([0.7, 0.35, -0.5, -0.7, 0.2, 0.6])
    truths[:, across] = body.prior_std[across] * np.array([0.5, -0.6, 0.6, -0.4, 0.7, -0.7])
    std = 0.02 * body.prior_std
    std[along] = body.prior_std[along]
    begin = truths * (np.arange(truths.shape[1]) != along)
    images = [shaded(body, camera, truth) for truth in truths]
    together, _ = fitted(body, camera, images, begin, std)
    alone = [fitted(body, camera, [image], at[None], std)[0][0] for image, at in zip(images, begin, strict=True)]
    off = [np.abs(found - truths)[:, along].mean() / body.prior_std[along] for found in (together, np.stack(alone))]
    assert off[0] < 0.8 * off[1]


def side_on(body: ArticulatedBody) -> Camera:
    """A camera that looks at the rod from its side."""
    towards = np.array([0.0, -1.0, 0.15])
    pose = look_at(body.center_m + 6.0 * body.radius_m * towards / np.linalg.norm(towards), body.center_m)
    K = np.array([[500.0, 0, 159.3], [0, 500.0, 121.6], [0, 0, 1.0]])
    return Camera(K, 320, 240, camera_to_world=pose)


def shaded(body: ArticulatedBody, camera: Camera, configuration: Array) -> NDArray[np.uint8]:
    """An image by a distant light beside an even one."""
    vertices = body.vertices(configuration)
    raster = rasterize_camera(window(camera, body).in_camera(vertices), body.mesh.faces, camera)
    toward = TOWARDS / np.linalg.norm(TOWARDS)
    shade = 0.2 + RADIANCE * np.clip(face_normals(vertices, body.mesh.faces) @ toward, 0.0, None)
    light = np.where(raster.mask, shade[raster.face_id], 0.5)
    noise = np.random.default_rng(0).normal(0.0, 2.0, (*light.shape, 3))
    return np.clip(np.round(255.0 * light[..., None] ** (1.0 / 2.2) + noise), 0, 255).astype(np.uint8)


def fitted(
    body: ArticulatedBody, camera: Camera, images: list[NDArray[np.uint8]], begin: Array, std: Array
) -> tuple[Array, Array]:
    known = np.tile(np.diag(std**2), (len(images), 1, 1))
    return fit_shading(images, range(len(images)), window(camera, body), body, Solid.of(body.mesh), begin, known)
