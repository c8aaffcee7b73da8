"""The ground as the tracker uses it: fits at rest touch it, fits below it in motion lose their errors."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import trimesh

from vid2phys.commands.identify.known_ground import known_ground
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.geometry import Pose, invert_transform, look_at, matrix_from_rotvec
from vid2phys.tracking.cues.contour import Contour
from vid2phys.tracking.ground import Ground
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Array, Camera, Mesh

SIDE_M, COUNT = 0.1, 21
TIMES_S = np.arange(COUNT) / 60.0
FOUND: Contour = object()  # type: ignore[assignment]
"""Stands for the contour of a fit, which is kept or dropped as a whole."""


@pytest.fixture(scope="module")
def box() -> Mesh:
    made = trimesh.creation.box((SIDE_M,) * 3)
    return Mesh(
        np.asarray(made.vertices), np.asarray(made.faces), np.zeros(len(made.faces), dtype=np.int64), name="box"
    )


@pytest.fixture(scope="module")
def camera() -> Camera:
    """A camera at 1.2 m that looks down by about 25 degrees."""
    pose = look_at(np.array([0.0, -1.1, 0.55]), np.zeros(3))
    return Camera(np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]), 640, 480, camera_to_world=pose)


def fit_at(camera: Camera, place_m: Array, share: float = 1.0) -> Fit:
    """The fit of a turned box at a place in the world, `share` times as far away as it is."""
    to_camera = invert_transform(np.asarray(camera.camera_to_world))
    turned = to_camera[:3, :3] @ matrix_from_rotvec(np.array([0.0, 0.0, 0.4]))
    return Fit(Pose(turned, share * (to_camera[:3, :3] @ place_m + to_camera[:3, 3])), 100.0, 0.9, FOUND)


def supported(
    camera: Camera, box: Mesh, places_m: Array, shares: Array, *, still: bool
) -> tuple[list[Fit], Array, list[Fit]]:
    """The fits, the clearances after they were supported, and these."""
    ground = Ground.of(np.array([0.0, 0.0, 1.0]), 0.0, np.asarray(camera.camera_to_world))
    fits = [fit_at(camera, place, float(share)) for place, share in zip(places_m, shares, strict=True)]
    moved = ground.supporting(dict(enumerate(fits)), range(len(fits)) if still else (), box)
    found = [moved[i] for i in range(len(fits))]
    return fits, np.array([ground.clearance_m(fit.pose, box) for fit in found]), found


def resting() -> Array:
    return np.tile([0.1, 0.0, 0.5 * SIDE_M], (COUNT, 1))


@pytest.mark.parametrize("share", [0.96, 1.06])
def test_a_body_at_rest_touches_the_ground(camera: Camera, box: Mesh, share: float) -> None:
    """A fit that is too near is above the ground, one that is too far below it; both end where the body is."""
    _, clearances, found = supported(camera, box, resting(), np.full(COUNT, share), still=True)
    truth = fit_at(camera, resting()[0])
    np.testing.assert_allclose(clearances, 0.0, atol=1e-9)
    for fit in found:
        np.testing.assert_allclose(fit.pose.translation, truth.pose.translation, atol=1e-9)
        np.testing.assert_array_equal(fit.pose.rotation, truth.pose.rotation)
        assert fit.contour is None  # its errors are those of a search


def test_a_fit_that_hardly_moves_keeps_its_errors(camera: Camera, box: Mesh) -> None:
    _, clearances, found = supported(camera, box, resting(), np.full(COUNT, 0.9912), still=True)
    np.testing.assert_allclose(clearances, 0.0, atol=1e-9)
    assert all(fit.contour is FOUND for fit in found)
    fits, _, found = supported(camera, box, resting(), np.full(COUNT, 0.995), still=True)
    assert all(one is other for one, other in zip(fits, found, strict=True))  # 3 mm: an error of any fit


def test_a_fit_in_motion_below_the_ground_loses_its_errors_only(camera: Camera, box: Mesh) -> None:
    """Its place is as wrong as its silhouette: other frames tell it better than the line of sight."""
    places = resting() + np.linspace(0.0, 0.3, COUNT)[:, None] * np.array([1.0, 0.0, 0.0])
    shares = np.where(np.arange(COUNT) % 2 == 0, 1.05, 0.99)
    fits, _, found = supported(camera, box, places, shares, still=False)
    assert all(found[i].pose is fits[i].pose for i in range(COUNT))
    assert all(found[i].contour is None for i in range(0, COUNT, 2))
    assert all(found[i] is fits[i] for i in range(1, COUNT, 2))  # a little above, and no rest


@pytest.mark.parametrize(("count", "lost"), [(6, [0, 1, 2, 3, 4, 5]), (7, [])])
def test_few_fits_far_below_the_ground_are_lost(camera: Camera, box: Mesh, count: int, lost: list[int]) -> None:
    """In motion, 15 % of the distance too far. Where more than three tenths are so, the ground may be wrong."""
    ground = Ground.of(np.array([0.0, 0.0, 1.0]), 0.0, np.asarray(camera.camera_to_world))
    places = resting() + np.linspace(0.0, 0.3, COUNT)[:, None] * np.array([1.0, 0.0, 0.0])
    shares = np.where(np.arange(COUNT) < count, 1.15, 1.05)
    fits = {i: fit_at(camera, place, float(share)) for i, (place, share) in enumerate(zip(places, shares, strict=True))}
    found = ground.supporting(fits, (), box)
    assert sorted(set(fits) - set(found)) == lost
    assert all(found[i].pose is fits[i].pose for i in found)


def test_a_ground_that_contradicts_the_fits_moves_nothing(camera: Camera, box: Mesh) -> None:
    """A floor half a metre below the ground that is known."""
    fits, _, found = supported(camera, box, resting() - np.array([0.0, 0.0, 0.5]), np.ones(COUNT), still=True)
    assert all(one is other for one, other in zip(fits, found, strict=True))


def test_a_tilted_ground_is_where_it_is_said_to_be(camera: Camera, box: Mesh) -> None:
    normal = matrix_from_rotvec(np.array([0.1, 0.0, 0.0]))[:, 2]
    ground = Ground.of(normal, 0.03, np.asarray(camera.camera_to_world))
    fit = fit_at(camera, np.array([0.1, 0.2, 0.4]))
    world = np.asarray(camera.camera_to_world)
    vertices = fit.pose.apply(box.vertices) @ world[:3, :3].T + world[:3, 3]
    assert ground.clearance_m(fit.pose, box) == pytest.approx(float((vertices @ normal).min()) - 0.03)
    share = ground.share_to_touch(fit.pose, box)
    touching = replace(fit.pose, translation=share * fit.pose.translation)
    assert ground.clearance_m(touching, box) == pytest.approx(0.0, abs=1e-12)


def test_a_ground_behind_the_camera_moves_nothing(camera: Camera, box: Mesh) -> None:
    """A plane above the camera, which the lines of sight meet behind it."""
    ground = Ground.of(np.array([0.0, 0.0, 1.0]), 1.1, np.asarray(camera.camera_to_world))
    fit = fit_at(camera, np.array([0.0, 0.0, 0.02]))
    assert ground.share_to_touch(fit.pose, box) < 0.0
    assert ground.supporting({0: fit}, [0], box)[0] is fit


def test_the_ground_of_a_clip_is_that_of_its_parameters(camera: Camera, box: Mesh) -> None:
    """Nobody knows it where it is fitted, before a camera that moves or has no pose, and of a body without contact."""
    body = ThrownBody(box)
    known = body.parameters().with_values({"ground_height": 0.02, "ground_tilt_x": 0.1})

    def found(**changed: Any) -> Ground | None:
        given = {"system": body, "camera": camera, "camera_to_world": camera.camera_to_world, "focal": None}
        given |= {"known": SimpleNamespace(parameters=known)} | changed
        return known_ground(cast("Any", SimpleNamespace(**given)))

    ground = found()
    assert ground is not None
    normal = matrix_from_rotvec(np.array([0.1, 0.0, 0.0]))[:, 2]
    expected = Ground.of(normal, 0.02 * normal[2], np.asarray(camera.camera_to_world))
    np.testing.assert_allclose(ground.normal, expected.normal)
    assert ground.offset_m == pytest.approx(expected.offset_m)
    assert found(known=SimpleNamespace(parameters=known.with_free(("ground_height",)))) is None
    assert found(camera=replace(camera, camera_to_world=None)) is None
    assert found(camera=SimpleNamespace(moves=True)) is None
    assert found(focal=object()) is None
    assert found(system=Quadrotor(), known=SimpleNamespace(parameters=Quadrotor().parameters())) is None
