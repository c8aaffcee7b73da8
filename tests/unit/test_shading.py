"""How light falls on a body that bends: its slopes, and a rod's bending along the sight, which edges hardly show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vid2phys.engine.render.rasterizer import face_normals, rasterize_camera
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rod import Rod
from vid2phys.risp.networks.model import Model
from vid2phys.risp.pixels.creases import Solid
from vid2phys.risp.pixels.shading import Shading, Turned, shading_information
from vid2phys.risp.posed.bodies import body_of_model
from vid2phys.risp.posed.body import PosedBody
from vid2phys.risp.posed.modes import CELLS
from vid2phys.risp.posed.shaded import fit_shading
from vid2phys.risp.posed.sight import Window
from vid2phys.rotations import invert_transform, look_at
from vid2phys.types import Array, Camera

RADIANCE, TOWARDS = 0.5, np.array([0.6, -0.7, 0.4])  # of a distant light beside an even one
MODEL = Path(__file__).resolve().parents[2] / "models" / "rod"


def rod() -> PosedBody:
    named = get("rod")
    assert isinstance(named, Rod)
    return body_of_model(Model.load(MODEL), Rod(CELLS, size_m=named.size_m))


def turned(body: PosedBody, solid: Solid, posture: Array, some: Array) -> Turned:
    corners = body.mesh.faces[some]
    slopes = body.vertex_slopes(posture, corners.ravel()).reshape(*corners.shape, 3, -1)
    return Turned.of(body.vertices(posture)[corners], slopes, solid.smooth_parts[some], body.radius_m)


def test_a_rod_has_six_smooth_sides() -> None:
    body = rod()
    parts, normals = Solid.of(body.mesh).smooth_parts, face_normals(body.mesh.vertices, body.mesh.faces)
    assert len(np.unique(parts)) == 6
    for part in np.unique(parts):
        assert np.ptp(normals[parts == part], axis=0).max() < 1e-9


def test_normals_and_places_turn_as_their_slopes_say() -> None:
    body = rod()
    solid, some = Solid.of(body.mesh), np.arange(0, len(body.mesh.faces), 5)
    posture = body.sample(np.random.default_rng(1))
    slopes, step = turned(body, solid, posture, some), 1e-6
    for coordinate in range(len(posture)):
        aside = step * np.eye(len(posture))[coordinate]
        after, before = (turned(body, solid, posture + sign * aside, some) for sign in (1.0, -1.0))
        for name in ("normals", "places"):
            difference = (getattr(after, name) - getattr(before, name)) / (2.0 * step)
            exact = getattr(slopes, name[:-1] + "_slopes")[..., coordinate]
            np.testing.assert_allclose(difference, exact, atol=1e-6 * max(1.0, np.abs(exact).max()))


def test_light_that_the_posture_explains_pulls_nowhere() -> None:
    body = rod()
    faces = turned(body, Solid.of(body.mesh), body.sample(np.random.default_rng(1)), np.arange(len(body.mesh.faces)))
    light = np.tile((0.3 * faces.normals[:, 2] - 1.0)[:, None], (1, 3))
    seen = Shading(np.arange(len(light)), light, np.full(len(light), 1e-4))
    gradient, information = shading_information(seen, faces)
    pulled = np.linalg.solve(information + np.diag(body.spread**-2.0), -gradient)
    assert np.abs(pulled / body.spread).max() < 0.1
    assert np.linalg.eigvalsh(information).min() > -1e-9 * np.linalg.eigvalsh(information).max()


def test_shading_shows_what_bends_along_the_sight() -> None:
    body = rod()
    solid = Solid.of(body.mesh)
    towards = np.array([0.0, -1.0, 0.15])
    pose = look_at(body.center_m + 6.0 * body.radius_m * towards / np.linalg.norm(towards), body.center_m)
    camera = Camera(np.array([[500.0, 0, 159.3], [0, 500.0, 121.6], [0, 0, 1.0]]), 320, 240, camera_to_world=pose)
    sight = pose[:3, 2]
    lie = [np.abs((body.vertices(one) - body.vertices(body.rest)) @ sight).mean() for one in np.diag(body.spread)]
    along = int(np.argmax(lie))  # the mode that bends along the sight
    truth = 0.7 * body.spread * np.eye(len(body.spread))[along]
    to_camera = invert_transform(pose)
    posed = body.vertices(truth) @ to_camera[:3, :3].T + to_camera[:3, 3]
    raster = rasterize_camera(posed, body.mesh.faces, camera)
    toward = TOWARDS / np.linalg.norm(TOWARDS)
    shade = 0.2 + RADIANCE * np.clip(face_normals(body.vertices(truth), body.mesh.faces) @ toward, 0.0, None)
    light = np.where(raster.mask, shade[raster.face_id], 0.5)
    noise = np.random.default_rng(0).normal(0.0, 2.0, (*light.shape, 3))
    picture = np.clip(np.round(255.0 * light[..., None] ** (1.0 / 2.2) + noise), 0, 255).astype(np.uint8)
    std = 0.02 * body.spread
    std[along] = body.spread[along]  # edges tell all but this
    begin = truth * (np.arange(len(truth)) != along)
    found, covariance = fit_shading(picture, Window.of(camera, body, 128), body, solid, begin, np.diag(std**2))
    assert abs(found - truth)[along] < 0.7 * abs(begin - truth)[along]
    assert covariance[along, along] < 0.9 * std[along] ** 2
    dark = np.zeros_like(picture)
    same, _ = fit_shading(dark, Window.of(camera, body, 128), body, solid, begin, np.diag(std**2))
    assert np.abs((same - begin) / std).max() < 0.2
