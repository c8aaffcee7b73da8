"""The drawing of parts, their colours and their texture beside slow sums and the project's rasteriser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import trimesh

from tests.moving_box import CAMERA, box_mesh
from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.surfaces import (
    DEFAULTS,
    Textured,
    _averaged,
    _basis,
    _by_part,
    _cost,
    _median,
    _shares,
    _steps,
    box_around,
    face_labels,
)
from vid2phys.types import Array, Mesh

MESH = box_mesh()
MORE_PX = DEFAULTS.margin_px + 4
POSE = Pose(matrix_from_rotvec(np.array([[0.5, -0.4, 0.3]]))[0], np.array([0.05, -0.03, 1.0]))


def test_each_pixel_shows_the_nearest_face() -> None:
    """Two boxes, one before the other, in pixels and in finer ones, as another rasteriser draws them."""
    behind = POSE.apply(MESH.vertices) + np.array([0.04, 0.02, 0.3])
    vertices = np.concatenate([behind, POSE.apply(MESH.vertices)])
    faces = np.concatenate([MESH.faces, MESH.faces + len(MESH.vertices)])
    found = face_labels(project(CAMERA, vertices), 1.0 / vertices[:, 2], faces, CAMERA.width, CAMERA.height, 1)
    drawn = rasterize_camera(vertices, faces, CAMERA)
    assert (found >= 0).sum() > 2000
    assert ((found >= 0) != drawn.mask).sum() < 12, "pixels on an edge"
    assert (found[drawn.mask] != drawn.face_id[drawn.mask]).mean() < 0.01
    fine = face_labels(project(CAMERA, vertices), 1.0 / vertices[:, 2], faces, CAMERA.width, CAMERA.height, 3)
    np.testing.assert_array_equal(fine[1::3, 1::3], found)


@pytest.mark.parametrize("shift", [np.zeros(3), np.array([-0.12, 0.06, 0.0])], ids=["inside", "beside the frame"])
def test_shares_are_means_over_finer_pixels(shift: Array) -> None:
    """Two boxes, one before the other, row by row, as the whole image in finer pixels has them."""
    behind = POSE.apply(MESH.vertices) + np.array([0.04, 0.02, 0.3]) + shift
    vertices = np.concatenate([behind, POSE.apply(MESH.vertices) + shift])
    faces = np.concatenate([MESH.faces, MESH.faces + len(MESH.vertices)])
    part, tint = np.arange(len(faces)) % 3, np.random.default_rng(0).random((len(faces), 3))
    given = project(CAMERA, vertices), 1.0 / vertices[:, 2], faces
    width, height = CAMERA.width, CAMERA.height
    sides = one_sided(vertices, faces)
    assert sides.all(), "half of the faces are turned away"
    found = _averaged(*given, part, sides, tint, (3, height, width), 3)
    each = (
        face_labels(*given, width, height, 3)
        .reshape(height, 3, width, 3)
        .transpose(0, 2, 1, 3)
        .reshape(height, width, 9)
    )
    assert found.shape == (6, height, width)
    assert (each >= 0).sum() > 10_000
    for p in range(3):
        expected = ((each >= 0) & (part[each] == p)).mean(axis=-1)
        assert (np.abs(found[p] - expected) > 1e-5).mean() < 1e-3, "finer pixels on an edge"
    colors = np.where((each >= 0)[..., None], tint[each], 0.0).mean(axis=2)
    assert (np.abs(found[3:] - np.moveaxis(colors, -1, 0)) > 1e-5).mean() < 1e-3
    plain = _averaged(*given, part, ~sides, np.zeros((0, 3)), (3, height, width), 3)
    np.testing.assert_array_equal(plain, found[:3])


def test_shares_of_parts_sum_to_the_coverage() -> None:
    vertices = POSE.apply(MESH.vertices)
    part, box = np.repeat(np.arange(6), 2), box_around(vertices, CAMERA, MORE_PX)
    assert box is not None
    found = _shares(vertices, (MESH.faces, part, np.zeros(12, bool)), CAMERA, box, 6)
    left, top, width, height = box
    assert found.shape == (6, height, width)
    cover = rasterize_camera(vertices, MESH.faces, CAMERA, 5).coverage[top : top + height, left : left + width]
    assert np.abs(found.sum(axis=0) - cover).mean() < 0.02
    assert found.sum() == pytest.approx(cover.sum(), rel=0.01)
    assert (found.max(axis=(1, 2)) > 0.5).sum() == 3, "three sides face the camera"


def test_a_rectangle_holds_the_body_and_a_margin_in_the_frame() -> None:
    vertices = POSE.apply(MESH.vertices)
    pixels, box = project(CAMERA, vertices), box_around(vertices, CAMERA, MORE_PX)
    assert box is not None
    left, top, width, height = box
    np.testing.assert_allclose(pixels.min(axis=0) - [left, top], 8.5, atol=0.51)  # four of margin, four more
    np.testing.assert_allclose([left + width, top + height] - pixels.max(axis=0), 8.5, atol=0.51)
    aside = box_around(vertices + np.array([0.35, 0.0, 0.0]), CAMERA, MORE_PX)
    assert aside is not None
    assert aside[0] + aside[2] == CAMERA.width
    for gone in (
        np.array([5.0, 0.0, 0.0]),
        np.array([0.0, -5.0, 0.0]),
        np.array([0.0, 0.0, -0.97]),
        np.array([0.0, 0.0, -2.0]),
    ):
        assert box_around(vertices + gone, CAMERA, MORE_PX) is None


def test_a_colour_times_a_tint_explains_pixels_best() -> None:
    rng = np.random.default_rng(1)
    part, tint, own = rng.integers(0, 3, 60), rng.uniform(0.5, 1.5, (60, 3)), rng.random((3, 3))
    np.testing.assert_allclose(_by_part(part, own[part] * tint, tint), own)
    noisy = own[part] * tint + rng.normal(0.0, 0.1, (60, 3))
    found = _by_part(part, noisy, tint)
    for p in range(3):
        for c in range(3):
            rows = part == p
            expected = np.linalg.lstsq(tint[rows, c : c + 1], noisy[rows, c], rcond=None)[0]
            np.testing.assert_allclose(found[p, c], expected[0])
    assert _by_part(np.zeros(0, np.int64), np.zeros((0, 3)), np.zeros((0, 3))).shape == (0, 3)


def test_medians_leave_out_what_is_not_known() -> None:
    values = np.random.default_rng(2).random((6, 40, 3)).astype(np.float32)
    count = np.random.default_rng(3).integers(1, 7, 40)
    for k, n in enumerate(count):
        values[n:, k] = np.nan
    np.testing.assert_allclose(_median(values, count), np.nanmedian(values, axis=0), rtol=1e-6)


def test_steps_of_each_coordinate_move_a_vertex_by_a_pixel() -> None:
    vertices = POSE.apply(MESH.vertices)
    steps = _steps(POSE, vertices, CAMERA, DEFAULTS)
    for k, step in enumerate(steps):
        assert np.flatnonzero(step).tolist() == [k]
        moved = project(CAMERA, POSE.retract(step).apply(MESH.vertices)) - project(CAMERA, vertices)
        assert np.linalg.norm(moved, axis=1).max() == pytest.approx(1.0, rel=0.05)


def test_large_parts_have_colours_with_a_slope() -> None:
    near = np.zeros((10, 20), dtype=bool)
    near[2:8, 5:17] = True
    share, areas = np.random.default_rng(4).random((2, near.sum())), np.array([299.0, 301.0])
    found = _basis(share, areas, near, DEFAULTS)
    rows, columns = np.nonzero(near)
    np.testing.assert_array_equal(found[:2], share)
    np.testing.assert_allclose(found[3], share[1] * (columns - columns.mean()) / 11.0)
    np.testing.assert_allclose(found[2], share[1] * (rows - rows.mean()) / 11.0)
    assert len(_basis(share, areas - 10.0, near, DEFAULTS)) == 2


def test_the_cost_of_pixels_grows_slowly() -> None:
    off = np.array([[0.03, 0.03, 0.03], [0.0, 0.0, 0.0], [0.3, 0.0, 0.0]])
    assert _cost(off, DEFAULTS) == pytest.approx(np.log(2.0) + np.log(1.0 + 100.0 / 3.0))


def plate() -> Mesh:
    """A square of 0.2 m in the plane of the image, of eight triangles."""
    corners = np.array([[x, y, 0.0] for y in (-0.1, 0.0, 0.1) for x in (-0.1, 0.0, 0.1)])
    first = [r + c for r in (0, 3) for c in (0, 1)]
    faces = np.array([tri for k in first for tri in ((k, k + 3, k + 1), (k + 1, k + 3, k + 4))])
    return Mesh(corners, faces, np.zeros(8, np.int64))


def shown(pose: Pose, light: float) -> Array:
    """An image of the plate: its left half is half as bright as its right half."""
    v, u = np.mgrid[: CAMERA.height, : CAMERA.width]
    place = (np.stack([u, v], axis=-1) - CAMERA.K[:2, 2]) / CAMERA.K[0, 0] * pose.translation[2] - pose.translation[:2]
    inside = (np.abs(place) < 0.1).all(axis=-1)
    half = np.where(place[..., :1] < 0.0, 0.5, 1.0) * light * np.array([0.6, 0.4, 0.2])
    return np.asarray(np.rint(255.0 * np.where(inside[..., None], half, 0.8) ** (1.0 / 2.2)), dtype=np.uint8)


def test_a_texture_is_the_ratio_of_colours_whatever_the_light() -> None:
    body = Textured.of(Solid.of(plate()))
    assert body.is_flat
    assert set(body.part) == {0}
    poses = Pose.stack([Pose(np.eye(3), np.array([0.02 * k, 0.01 * k, 1.0])) for k in range(4)])
    frames = [shown(poses[k], light) for k, light in enumerate((1.0, 0.5, 0.8, 0.6))]
    found = body.textured(frames, CAMERA, poses)
    assert found.tint is not None
    middle = found.vertices[found.faces].mean(axis=1)
    left, right = (
        found.tint[(sign * middle[:, 0] > 0.01) & (np.abs(middle) < 0.08).all(axis=1)] for sign in (-1.0, 1.0)
    )
    np.testing.assert_allclose(np.median(right, axis=0) / np.median(left, axis=0), 2.0, rtol=0.12)
    edges = found.vertices[found.faces] - np.roll(found.vertices[found.faces], 1, axis=1)
    longest = np.linalg.norm(edges, axis=-1).max()
    assert longest < 0.012, "four pixels or a little more"
    assert (found.tint > 0.0).all()
    away = replace(poses, translation=poses.translation + np.array([9.0, 0.0, 0.0]))
    nothing = body.textured(frames, CAMERA, away)
    assert nothing.tint is not None
    np.testing.assert_array_equal(nothing.tint, 1.0)


def test_curved_parts_are_not_flat() -> None:
    for shape, flat in ((trimesh.creation.icosphere(3, 0.1), False), (trimesh.creation.box((0.1, 0.2, 0.3)), True)):
        mesh = Mesh(np.asarray(shape.vertices), np.asarray(shape.faces), np.zeros(len(shape.faces), np.int64))
        assert Textured.of(Solid.of(mesh)).is_flat is flat
