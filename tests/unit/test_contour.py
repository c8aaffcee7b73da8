"""Fitting contours: derivatives, recovered poses of a body of odd shape, honest covariances; the compiled loop."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.contour import fit_contour
from vid2phys.tracking.cues.contour_config import DEFAULTS
from vid2phys.tracking.cues.creases import Solid, crease_lines
from vid2phys.tracking.cues.edge_likelihood import correlated_count, line_likelihood
from vid2phys.tracking.cues.edge_lines import linear_light
from vid2phys.tracking.cues.edge_steps import DescentSettings, descend, normal_equations, slopes
from vid2phys.tracking.cues.occluding_contour import OccludingContour, occluding_contour
from vid2phys.tracking.cues.photometric import PRIOR_STD
from vid2phys.tracking.cues.silhouette import draw, draw_nearness
from vid2phys.types import Array, Camera, Mesh

CAMERA = Camera(np.array([[600.0, 0.0, 297.3], [0.0, 610.0, 251.6], [0.0, 0.0, 1.0]]), 640, 480)
ROTATION, TRANSLATION = matrix_from_rotvec(np.array([0.5, 0.4, 0.3])), np.array([-0.12, 0.09, 1.1])


def box(low: tuple[float, float, float], high: tuple[float, float, float]) -> tuple[Array, Array]:
    corners = np.array([[(low, high)[(i >> k) & 1][k] for k in range(3)] for i in range(8)])
    quads = [(0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5)]
    faces = np.array([tri for a, b, c, d in quads for tri in ((a, b, c), (a, c, d))])
    return corners, faces


def odd_mesh() -> Mesh:
    """An F with a post towards one side: neither convex nor symmetric."""
    boxes = [
        box((-0.07, -0.09, -0.01), (-0.04, 0.09, 0.01)),
        box((-0.04, 0.06, -0.01), (0.08, 0.09, 0.01)),
        box((-0.04, -0.01, -0.01), (0.04, 0.02, 0.01)),
        box((-0.07, -0.09, 0.01), (-0.04, -0.06, 0.07)),
    ]
    vertices = np.concatenate([b[0] for b in boxes])
    faces = np.concatenate([b[1] + 8 * i for i, b in enumerate(boxes)])
    return Mesh(vertices, faces, np.zeros(len(faces), dtype=np.int64))


MESH = odd_mesh()
SOLID = Solid.of(MESH)
BOX = Mesh(*box((-0.05, -0.06, -0.04), (0.05, 0.06, 0.04)), np.zeros(12, dtype=np.int64))


def contour_at(camera: Camera, rotation: Array, translation: Array) -> OccludingContour:
    drawing = draw(MESH.vertices @ rotation.T + translation, MESH.faces)
    assert drawing is not None
    contour = occluding_contour(drawing, camera)
    assert contour is not None
    return contour


DARK, BRIGHT = np.array([0.05, 0.1, 0.35]), np.array([0.45, 0.4, 0.3])


def photograph(
    rotation: Array,
    translation: Array,
    *,
    noise: float,
    seed: int = 0,
    colors: tuple[Array, Array] = (DARK, BRIGHT),
    lens_px: float = 0.5,
    codec_px: float = 0.5,
) -> np.ndarray:
    """Colours of body and background, mixed in linear light, out of focus; a codec blurs display values, with noise.

    A blur of 0.01 px is none.
    """
    cover = rasterize_camera(MESH.vertices @ rotation.T + translation, MESH.faces, CAMERA, 5).coverage[..., None]
    light = cover * colors[0] + (1.0 - cover) * colors[1]
    display = cv2.GaussianBlur(255.0 * cv2.GaussianBlur(light, (0, 0), lens_px) ** (1.0 / 2.2), (0, 0), codec_px)
    return np.clip(np.round(display + np.random.default_rng(seed).normal(0.0, noise, light.shape)), 0, 255).astype(
        np.uint8
    )


def starts(count: int) -> list[Array]:
    """Steps 5 degrees and 5 % off."""
    rng = np.random.default_rng(1)
    steps = []
    for i in range(count):
        turn = rng.normal(size=3)
        turn *= np.radians(5.0) / np.linalg.norm(turn)
        steps.append(np.array([*turn, *rng.normal(0.0, 3e-3, 2), 0.05 * (-1.0) ** i]))
    return steps


def test_contour_lies_on_the_edge_of_the_image() -> None:
    contour = contour_at(CAMERA, ROTATION, TRANSLATION)
    cover = rasterize_camera(MESH.vertices @ ROTATION.T + TRANSLATION, MESH.faces, CAMERA, 9).coverage
    soft = cv2.GaussianBlur(cover, (0, 0), 1.0)
    for off, low, high in ((0.0, 0.45, 0.55), (1.0, 0.1, 0.22), (-1.0, 0.78, 0.9)):
        x, y = (contour.pixels + off * contour.normals).astype(np.float32).T
        assert low < np.median(cv2.remap(soft, x, y, cv2.INTER_LINEAR)) < high, "half-pixel conventions, and outward"
    pixels = contour.points[:, :2] / contour.points[:, 2:] @ CAMERA.K[:2, :2].T + CAMERA.K[:2, 2]
    np.testing.assert_allclose(pixels, contour.pixels, atol=1e-9)
    local = (contour.points - TRANSLATION) @ ROTATION
    assert (np.abs(local) < np.abs(MESH.vertices).max(axis=0) + 2e-3).all(), "on the body"


def test_derivatives_of_contour_and_energy() -> None:
    contour = contour_at(CAMERA, ROTATION, TRANSLATION)
    jacobian = slopes(contour.points, contour.along, TRANSLATION)
    local = (contour.points - TRANSLATION) @ ROTATION

    def off(step: np.ndarray) -> np.ndarray:  # of the points from where they were drawn, along normals
        pose = Pose(ROTATION, TRANSLATION).retract(step)
        return ((project(CAMERA, pose.apply(local)) - contour.pixels) * contour.normals).sum(axis=-1)

    h = 1e-6
    numeric = np.stack([(off(h * e) - off(-h * e)) / (2.0 * h) for e in np.eye(6)], axis=-1)
    np.testing.assert_allclose(jacobian, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())

    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0.0, 1.0, len(jacobian)), rng.uniform(0.1, 0.5, len(jacobian))

    def nats(step: np.ndarray) -> float:  # Cauchy of three sigma
        return float(4.5 * np.log1p((jacobian @ step - mean) ** 2 / (9.0 * variance)).sum())

    gradient, hessian = normal_equations(-mean, jacobian, variance, 3.0)
    numeric = np.array([(nats(h * e) - nats(-h * e)) / (2.0 * h) for e in np.eye(6)])
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())
    np.testing.assert_allclose(hessian, hessian.T)
    assert np.linalg.eigvalsh(hessian)[0] > 0.0


def test_steps_end_where_edges_and_prior_balance() -> None:
    """Without outliers, beside a prior that holds: the least squares of both, at the level of the scatter."""
    rng, count = np.random.default_rng(0), 400
    jacobian = rng.normal(size=(count, 6))
    truth, before, prior = rng.normal(0.0, 0.3, 6), rng.normal(0.0, 0.1, 6), np.diag([50.0, 1.0, 1.0, 90.0, 1.0, 9.0])
    mean = jacobian @ truth + rng.uniform(-0.2, 0.2, count)
    settings = DescentSettings(20, 4.0, 3.0, 0.02, 30)
    step, information = descend(jacobian, mean, np.full(count, 0.01), prior, before, np.ones(6), settings)
    residual = jacobian @ step - mean
    level = np.median(residual**2 / 0.01) / 0.455
    weight = 1.0 / (0.01 * level + residual**2 / 9.0)
    balance = jacobian.T @ (weight * residual) / 4.0 + prior @ (before + step)
    assert np.abs(balance).max() < 1e-6 * np.abs(prior @ (before + step)).max()
    np.testing.assert_allclose(information, (jacobian.T * weight) @ jacobian, rtol=1e-9)


def test_a_dark_body_in_a_coded_render_is_as_wide_as_a_bright_one() -> None:
    """A renderer has no lens, and its codec mixes display values: in linear light edges lie beside the contour."""
    black, white = np.full(3, 0.1), np.full(3, 0.5)
    for colors in ((black, white), (white, black)):
        image = photograph(ROTATION, TRANSLATION, noise=1.0, colors=colors, lens_px=0.01, codec_px=0.8)
        found = fit_contour(image, CAMERA, SOLID, Pose(ROTATION, TRANSLATION))
        assert found is not None
        assert abs(Pose(ROTATION, TRANSLATION).step_to(found.pose)[5]) < 0.0015


@pytest.mark.parametrize("hidden", [False, True])
def test_pose_is_recovered_from_five_degrees_and_five_percent(hidden: bool) -> None:
    """From two degrees and two percent where half of it is hidden: the edge of what hides it attracts as well."""
    image = photograph(ROTATION, TRANSLATION, noise=3.0)
    if hidden:  # half of the silhouette, by something of a third colour
        middle = round(float(CAMERA.K[0, 0] * TRANSLATION[0] / TRANSLATION[2] + CAMERA.K[0, 2]))
        image[:, :middle] = (30, 150, 60)
    for step in starts(6):
        step = 0.4 * step if hidden else step
        found = fit_contour(image, CAMERA, SOLID, Pose(ROTATION, TRANSLATION).retract(step))
        assert found is not None
        error = Pose(ROTATION, TRANSLATION).step_to(found.pose)
        assert np.degrees(np.linalg.norm(error[:3])) < (2.0 if hidden else 0.6)
        assert np.abs(error[5]) < (0.015 if hidden else 0.003)
        assert np.linalg.norm(error[3:5]) * CAMERA.K[0, 0] < (0.5 if hidden else 0.15), "pixels"


def test_covariance_agrees_with_the_scatter_over_noise() -> None:
    errors, stated = [], []
    for seed in range(30):
        image = photograph(ROTATION, TRANSLATION, noise=12.0, seed=seed)
        found = fit_contour(image, CAMERA, SOLID, Pose(ROTATION, TRANSLATION))
        assert found is not None
        errors.append(Pose(ROTATION, TRANSLATION).step_to(found.pose))
        stated.append(np.diag(np.linalg.inv(found.information)))
    ratio = np.std(errors, axis=0) / np.sqrt(np.mean(stated, axis=0))
    assert (ratio < 1.5).all(), ratio
    assert (ratio > 0.45).all(), ratio


def test_a_step_of_a_pose_is_at_most_two_deviations_of_the_alignment() -> None:
    image, true = photograph(ROTATION, TRANSLATION, noise=1.0), Pose(ROTATION, TRANSLATION)
    once = replace(DEFAULTS, max_rounds=1, steps_per_round=1)
    for k, step in enumerate(np.diag([0.0, 0.0, 0.0, 9e-3, -9e-3, 0.0])[3:5]):
        found = fit_contour(image, CAMERA, SOLID, true.retract(step), config=once)
        assert found is not None
        moved = true.retract(step).step_to(found.pose)
        assert (np.abs(moved) <= 2.0 * PRIOR_STD * (1.0 + 1e-6)).all()
        assert abs(moved[3 + k]) == pytest.approx(6e-3, rel=0.01), "as far as a step goes"
        near = fit_contour(image, CAMERA, SOLID, true.retract(0.1 * step), config=once)
        assert near is not None
        assert abs(true.retract(0.1 * step).step_to(near.pose)[3 + k]) < 2e-3


def test_a_image_without_edges_leaves_the_pose_alone() -> None:
    flat = np.full((480, 640, 3), 90, np.uint8)
    found = fit_contour(flat, CAMERA, SOLID, Pose(ROTATION, TRANSLATION))
    assert found is None or np.abs(Pose(ROTATION, TRANSLATION).step_to(found.pose)).max() < 1e-3


def test_out_of_the_image_is_none() -> None:
    image = photograph(ROTATION, TRANSLATION, noise=1.0)
    assert fit_contour(image, CAMERA, SOLID, Pose(ROTATION, np.array([3.0, 0.0, 1.0]))) is None
    assert fit_contour(image, CAMERA, SOLID, Pose(ROTATION, np.array([0.0, 0.0, -1.0]))) is None


def test_line_likelihood_is_that_of_the_normal_distribution() -> None:
    rng, parts, length, places = np.random.default_rng(0), 2, 7, 5
    cover = rng.uniform(0.0, 1.0, (3, places + parts * (length - 1)))
    seen, mean = rng.uniform(0.0, 1.0, (3, length, 3)), rng.uniform(0.0, 1.0, (2, 3))
    spread, texture, floor = np.array([0.02, 0.05]), rng.uniform(0.01, 0.03, (3, 2)), rng.uniform(1e-3, 2e-3, 3)
    found = line_likelihood(seen, cover, parts, mean, spread, texture, floor)
    assert found.shape == (3, places)
    for i in range(3):
        expected = []
        for d in range(places):
            a = cover[i, places - 1 - d :: parts][:length]
            sides = np.stack([a, 1.0 - a], axis=1)
            matrix = sides @ np.diag(spread) @ sides.T + np.diag(sides**2 @ texture[i] + floor[i])
            rest = seen[i] - sides @ mean
            nats = -0.5 * np.einsum("rc,rs,sc->", rest, np.linalg.inv(matrix), rest)
            expected.append(nats - 1.5 * np.linalg.slogdet(matrix)[1])
        np.testing.assert_allclose(found[i] - found[i, 0], np.array(expected) - expected[0], atol=1e-9)


def test_light_is_linear() -> None:
    np.testing.assert_allclose(linear_light(np.array([0, 255], np.uint8)), [0.0, 1.0])


def test_a_drawing_covers_what_the_rasteriser_draws_and_is_as_near() -> None:
    posed = MESH.vertices @ ROTATION.T + TRANSLATION
    pixels = posed[:, :2] / posed[:, 2:] @ CAMERA.K[:2, :2].T + CAMERA.K[:2, 2]
    faces = MESH.faces, np.zeros(len(MESH.faces), dtype=bool)
    near = draw_nearness(*pixels.T.copy(), posed[:, 2].copy(), *faces, CAMERA.width, CAMERA.height)
    expected = rasterize_camera(posed, MESH.faces, CAMERA)
    np.testing.assert_array_equal(near > 0.0, expected.mask)
    np.testing.assert_allclose(near[near > 0.0], 1.0 / expected.depth[expected.mask], rtol=1e-5)
    behind = draw_nearness(*pixels.T.copy(), -posed[:, 2], *faces, CAMERA.width, CAMERA.height)
    assert not behind.any()


@pytest.mark.parametrize("distortion", [np.zeros(0), np.array([-0.3, 0.1, 1e-3, -2e-3, 0.0])])
def test_contour_and_drawing_agree_through_a_lens(distortion: np.ndarray) -> None:
    camera = replace(CAMERA, distortion=distortion)
    pose = Pose(ROTATION, TRANSLATION).retract(np.array([0.02, -0.02, 0.2, 0.01, -0.01, 0.03]))
    contour = contour_at(camera, pose.rotation, pose.translation)
    cover = rasterize_camera(pose.apply(MESH.vertices), MESH.faces, camera, 5).coverage
    soft = cv2.GaussianBlur(cover, (0, 0), 1.0)
    for off, low, high in ((0.0, 0.4, 0.6), (1.5, 0.0, 0.2), (-1.5, 0.8, 1.0)):
        x, y = (contour.pixels + off * contour.normals).astype(np.float32).T
        assert low < np.median(cv2.remap(soft, x, y, cv2.INTER_LINEAR)) < high
    drawn = contour.drawn + 2.0 * contour.across
    u, v = drawn.astype(np.float32).T
    assert np.median(cv2.remap(contour.coverage, u, v, cv2.INTER_LINEAR)) < 0.05, "across leads outward"


def test_neighbours_that_err_alike_count_as_one() -> None:
    rng = np.random.default_rng(0)
    alone = rng.normal(size=400)
    assert correlated_count(alone, 30) < 1.5
    assert 3.0 < correlated_count(np.repeat(alone[:100], 4), 30) < 5.5


def test_creases_are_edges_at_which_faces_meet_at_an_angle() -> None:
    solid = Solid.of(BOX)
    assert len(solid.edges) == 12
    sides = solid.sides // 2  # two triangles a side
    assert (sides[:, 0] != sides[:, 1]).all()
    along = BOX.vertices[solid.edges[:, 1]] - BOX.vertices[solid.edges[:, 0]]
    assert ((np.abs(along) > 1e-9).sum(axis=1) == 1).all(), "no diagonals of faces"


def test_lines_across_creases_show_two_faces() -> None:
    """Three creases of a box face the camera; lines that would leave their faces are dropped, and hidden ones."""
    solid = Solid.of(BOX)
    posed = BOX.vertices @ ROTATION.T + TRANSLATION
    drawing = draw(posed, BOX.faces)
    assert drawing is not None
    lines = crease_lines(solid, posed, drawing, CAMERA, 5.0)
    assert lines is not None
    assert len(lines.points) > 30
    local = (lines.points - TRANSLATION) @ ROTATION
    half = np.abs(BOX.vertices).max(axis=0)
    assert ((np.abs(np.abs(local) - half) < 1e-9).sum(axis=1) == 2).all(), "on an edge of the box"
    np.testing.assert_allclose(project(CAMERA, lines.points), lines.pixels, atol=1e-9)
    raster = rasterize_camera(BOX.vertices @ ROTATION.T + TRANSLATION, BOX.faces, CAMERA)
    column, row = np.round(lines.pixels + 4.0 * lines.normals).astype(int).T
    other_column, other_row = np.round(lines.pixels - 4.0 * lines.normals).astype(int).T
    one, other = raster.face_id[row, column] // 2, raster.face_id[other_row, other_column] // 2
    assert (raster.mask[row, column] & raster.mask[other_row, other_column] & (one != other)).all()
    jacobian = slopes(lines.points, lines.along, TRANSLATION)
    h, step = 1e-6, np.array([0.3, -0.2, 0.4, 0.1, 0.2, -0.3])
    ends = [project(CAMERA, Pose(ROTATION, TRANSLATION).retract(s * h * step).apply(local)) for s in (1, -1)]
    np.testing.assert_allclose(
        jacobian @ step, ((ends[0] - ends[1]) / (2.0 * h) * lines.normals).sum(axis=-1), rtol=1e-5, atol=1e-3
    )


def test_creases_turn_a_box_whose_contour_hardly_shows() -> None:
    """Before a background in its own colours, two of its faces tell apart what its contour does not."""
    rotation, translation = matrix_from_rotvec(np.array([0.15, 0.6, 0.1])), np.array([0.02, -0.03, 0.8])
    raster = rasterize_camera(BOX.vertices @ rotation.T + translation, BOX.faces, CAMERA)
    rng, shades = np.random.default_rng(0), np.linspace(0.1, 0.5, 6)[:, None] * np.array([1.0, 0.8, 0.7])
    behind = cv2.resize(rng.choice(shades, (48, 64)), (640, 480), interpolation=cv2.INTER_NEAREST)
    light = np.where(raster.mask[..., None], shades[raster.face_id // 2], behind)
    display = 255.0 * cv2.GaussianBlur(light, (0, 0), 0.7) ** (1.0 / 2.2)
    image = np.clip(np.round(display + rng.normal(0.0, 4.0, light.shape)), 0, 255).astype(np.uint8)
    solid = Solid.of(BOX)
    smooth = replace(solid, edges=solid.edges[:0], sides=solid.sides[:0])
    turns = []
    for each in (solid, smooth):
        found = [
            fit_contour(image, CAMERA, each, Pose(rotation, translation).retract(0.8 * step)) for step in starts(6)
        ]
        off = [Pose(rotation, translation).step_to(f.pose) for f in found if f is not None]
        assert len(off) == 6
        turns.append(np.degrees(np.linalg.norm(np.array(off)[:, :3], axis=1)).mean())
    assert turns[0] < 1.5, turns
    assert turns[0] < 0.7 * turns[1], turns
