"""Configurations moved to the edges of an image: a rod and a hand, whose images are drawn in two shades."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.render.rasterizer import face_normals, rasterize_camera
from vid2phys.engine.systems import get
from vid2phys.geometry import invert_transform, look_at
from vid2phys.risp.networks.articulated_bodies import body_of_model
from vid2phys.risp.networks.model import Model
from vid2phys.tracking.articulated.contour import PlacedBody, fit_configuration
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.kinematic_fit import Configurations
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.refine import fit_edges
from vid2phys.types import Array, Camera

MODELS = Path(__file__).resolve().parents[2] / "models"
FOCAL_PX = 500.0


def body_and_camera(name: str) -> tuple[ArticulatedBody, Camera]:
    body = body_of_model(Model.load(MODELS / name), get(name))
    towards = np.array([0.35, -0.85, 0.4]) if name == "rod" else np.array([0.8, -0.3, 0.5])
    towards /= np.linalg.norm(towards)
    pose = look_at(body.center_m + 6.0 * body.radius_m * towards, body.center_m)
    return body, Camera(
        np.array([[FOCAL_PX, 0, 159.3], [0, FOCAL_PX, 121.6], [0, 0, 1.0]]), 320, 240, camera_to_world=pose
    )


def photograph(body: ArticulatedBody, camera: Camera, configuration: Array) -> np.ndarray:
    assert camera.camera_to_world is not None
    to_camera = invert_transform(camera.camera_to_world)
    posed = body.vertices(configuration) @ to_camera[:3, :3].T + to_camera[:3, 3]
    raster = rasterize_camera(posed, body.mesh.faces, camera)
    shade = 0.15 + 0.35 * np.abs(face_normals(posed, body.mesh.faces) @ np.array([0.2, 0.9, 0.4]))
    light = np.where(raster.mask, shade[raster.face_id], 0.7)
    display = 255.0 * cv2.GaussianBlur(light, (0, 0), 0.7) ** (1.0 / 2.2)
    noise = np.random.default_rng(0).normal(0.0, 2.0, (*light.shape, 3))
    return np.clip(np.round(display[..., None] + noise), 0, 255).astype(np.uint8)


def window(camera: Camera, body: ArticulatedBody) -> Window:
    return Window.of(camera, body, 128)


def moved_along_sight(body: ArticulatedBody, camera: Camera) -> Array:
    """How far each coordinate [D] moves the body along the camera's sight, in the mean."""
    sight = np.asarray(camera.camera_to_world)[:3, 2]
    at_rest = body.vertices(body.rest)
    return np.array([np.abs((body.vertices(one) - at_rest) @ sight).mean() for one in np.diag(body.prior_std)])


def minima(*configurations: Array, std: Array) -> Configurations:
    """As read, equally likely, with standard deviations [D] of the points and of the prior together."""
    count, size = len(configurations), len(std)
    covariance = np.tile(np.diag(std**2), (count, 1, 1))
    return Configurations(
        np.stack(configurations), covariance, np.zeros(count), np.zeros(count), np.ones((count, size), bool)
    )


@pytest.mark.parametrize("name", ["rod", "hand"])
def test_a_configuration_is_moved_to_the_edges(name: str) -> None:
    body, camera = body_and_camera(name)
    rng = np.random.default_rng(3)
    truth = body.sample(rng)
    image = photograph(body, camera, truth)
    off = 0.15 * body.prior_std * rng.normal(size=len(truth))
    start = np.clip(truth + off, body.lower, body.upper)
    found = fit_configuration(
        image, window(camera, body), body, Solid.of(body.mesh), minima(start, std=0.04 * body.prior_std)
    )

    def apart(configuration: Array) -> float:
        return float(np.linalg.norm(body.vertices(configuration) - body.vertices(truth), axis=-1).mean())

    assert apart(found) < 0.6 * apart(start)
    assert (found >= body.lower).all()
    assert (found <= body.upper).all()


def test_an_outline_that_is_seen_wider_does_not_bring_a_rod_nearer() -> None:
    """What glare does to a bright body before something dark, at both sides alike; clamped ends show by how much."""
    body, camera = body_and_camera("rod")
    solid, here = Solid.of(body.mesh), window(camera, body)
    along = int(np.argmax(moved_along_sight(body, camera)))
    truth = 0.3 * body.prior_std * np.eye(len(body.prior_std))[along]
    posed = here.in_camera(body.vertices(truth))
    fine = Camera(
        np.diag([8.0, 8.0, 1.0]) @ camera.K + np.array([[0, 0, 3.5], [0, 0, 3.5], [0, 0, 0]]), 8 * 320, 8 * 240
    )
    mask = rasterize_camera(posed, body.mesh.faces, fine).mask.astype(np.float32)
    wider = cv2.dilate(mask, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9)))  # by half a pixel
    light = 0.05 + 0.5 * cv2.resize(cv2.GaussianBlur(wider, (0, 0), 4.0), (320, 240), interpolation=cv2.INTER_AREA)
    image = np.repeat(np.round(255.0 * light[..., None] ** (1.0 / 2.2)), 3, axis=2).astype(np.uint8)
    prior = np.diag(body.prior_std**-2.0)

    def off_along(aside_px: float) -> float:
        start = PlacedBody(body, here.camera_from_base, truth)
        found = fit_edges(image, here.camera, solid, start, prior, 0.5 * body.prior_std, aside_px)
        assert found is not None
        return float(np.abs((found[0].vertices() - start.vertices())[:, 2]).mean())

    assert off_along(0.3) < 0.5 * off_along(0.0)


def test_of_several_readings_the_one_counts_that_explains_the_edges() -> None:
    body, camera = body_and_camera("hand")
    truth = body.sample(np.random.default_rng(4))
    image, other = photograph(body, camera, truth), np.clip(truth + 1.2 * body.prior_std, body.lower, body.upper)
    for order in ((other, truth), (truth, other)):
        read = minima(*order, std=0.05 * body.prior_std)
        found = fit_configuration(image, window(camera, body), body, Solid.of(body.mesh), read)
        assert np.abs(found - truth).mean() < 0.1 * np.abs(other - truth).mean()


def test_without_edges_points_and_prior_say_where_it_is() -> None:
    """150 times less sure of a rod's points, it lies where both pull alike: the rest is what the points moved it by."""
    body, camera = body_and_camera("rod")
    flat = np.full((240, 320, 3), 90, np.uint8)
    std = body.prior_std / np.sqrt(151.0)  # points know 150 times more than the prior
    seen = body.prior_mean + 0.2 * body.prior_std
    found = fit_configuration(flat, window(camera, body), body, Solid.of(body.mesh), minima(seen, std=std))
    np.testing.assert_allclose(found - body.prior_mean, (151.0 / 300.0) * (seen - body.prior_mean), rtol=1e-6)
