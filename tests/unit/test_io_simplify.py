"""Meshes as they come: too many faces, too many parts, faces turned about, flat or torn; drawn all the same."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.painted_mesh import write_obj
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.render.rasterizer import rasterize, shade
from vid2phys.errors import InputError
from vid2phys.io import simplify
from vid2phys.io.geometry import SAME_GEOMETRY, geometry_signature, signature_distance
from vid2phys.io.mesh import MOST_PARTS, load_mesh, mass_properties
from vid2phys.io.orientation import inconsistent_faces
from vid2phys.io.simplify import simplified
from vid2phys.io.texture import surface_colors
from vid2phys.types import Mesh

trimesh = pytest.importorskip("trimesh")
SHARED = Path(__file__).resolve().parents[2].parent / "shared"
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def as_mesh(shape: object, name: str = "thing") -> Mesh:
    return Mesh(np.asarray(shape.vertices), np.asarray(shape.faces), np.zeros(len(shape.faces), np.int64), name=name)


def split(shape: object, times: int) -> Mesh:
    for _ in range(times):
        shape = shape.subdivide()
    return as_mesh(shape)


def test_small_meshes_are_left_alone() -> None:
    mesh = as_mesh(trimesh.creation.icosphere(subdivisions=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simplified(mesh) is mesh


def test_many_faces_become_few_and_it_is_said() -> None:
    """196,608 faces of a box: edges and corners stay where they are, to a hundredth of a cell."""
    mesh = split(trimesh.creation.box((0.1, 0.2, 0.3)), 7)
    assert len(mesh.faces) == 196_608
    with pytest.warns(UserWarning, match=r"'thing' has 196608 faces: it is drawn with \d+, without details below"):
        small = simplified(mesh)
    assert 0.5 * simplify.MOST_FACES < len(small.faces) <= simplify.MOST_FACES
    np.testing.assert_allclose(np.ptp(small.vertices, axis=0), [0.1, 0.2, 0.3], atol=1e-5)
    off = np.abs(np.abs(small.vertices / [0.05, 0.1, 0.15]).max(axis=1) - 1.0)
    assert off.max() < 1e-3
    assert signature_distance(geometry_signature(mesh), geometry_signature(small)) < 0.01 * SAME_GEOMETRY


def test_a_round_body_keeps_its_shape_parts_and_sides() -> None:
    ball = as_mesh(trimesh.creation.icosphere(subdivisions=6, radius=0.1))
    ball = replace(
        ball, part=(ball.vertices[ball.faces].mean(axis=1)[:, 2] > 0).astype(np.int64), part_names=("a", "b")
    )
    with pytest.warns(UserWarning, match="81920 faces"):
        small = simplified(ball, 3000)
    radius = np.linalg.norm(small.vertices, axis=1)
    np.testing.assert_allclose(radius, 0.1, rtol=0.01)
    assert small.part_names == ("a", "b")
    middle = small.vertices[small.faces].mean(axis=1)
    assert ((middle[:, 2] > 0) == (small.part == 1)).mean() > 0.97
    normals = np.cross(*(small.vertices[small.faces[:, i]] - small.vertices[small.faces[:, 0]] for i in (1, 2)))
    assert ((normals * middle).sum(axis=1) > 0).mean() > 0.99


def test_colours_survive(tmp_path: Path) -> None:
    """A ball painted by its height in vertex colours: simplified, the colours still tell the height."""
    ball = trimesh.creation.icosphere(subdivisions=5, radius=0.1)
    shade_of = np.round(255 * (0.5 + 5 * ball.vertices[:, 2])).astype(np.uint8)
    colors = np.stack([shade_of, 0 * shade_of, 255 - shade_of, np.full_like(shade_of, 255)], axis=-1)
    ball.visual.vertex_colors = colors
    ball.export(tmp_path / "ball.ply")
    with pytest.warns(UserWarning, match="20480 faces"):
        small = simplified(load_mesh(tmp_path / "ball.ply"), 2000)
    count = len(small.faces)
    found = surface_colors(small, np.arange(count), np.full((count, 3), 1 / 3))
    height = 0.5 + 5 * small.vertices[small.faces].mean(axis=1)[:, 2]
    assert np.abs(found[:, 0] - height**2.2).max() < 0.1


def test_faces_against_their_neighbours_are_turned(tmp_path: Path) -> None:
    """A third of a box's faces turned about: the volume is the box's again; a strip with a twist is left alone."""
    box = trimesh.creation.box((0.1, 0.2, 0.3)).subdivide()
    faces = box.faces.copy()
    flipped = np.random.default_rng(0).random(len(faces)) < 0.33
    faces[flipped] = faces[flipped][:, ::-1]
    trimesh.Trimesh(box.vertices, faces, process=False).export(tmp_path / "mixed.ply")
    with pytest.warns(UserWarning, match=rf"{flipped.sum()} faces of 'mixed.ply' pointed against their neighbours"):
        mesh = load_mesh(tmp_path / "mixed.ply")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mass_properties(mesh)
    assert found.watertight
    assert found.volume == pytest.approx(0.006)
    around = np.arange(8)
    after = (around + 1) % 8
    strip = [[2 * i, 2 * i + 1, 2 * j] for i, j in zip(around[:-1], after[:-1], strict=True)]
    strip += [[2 * i + 1, 2 * j + 1, 2 * j] for i, j in zip(around[:-1], after[:-1], strict=True)]
    twisted = np.array([*strip, [14, 15, 1], [15, 0, 1]])
    assert not inconsistent_faces(twisted).any()
    plain = np.array([*strip, [14, 15, 0], [15, 1, 0]])
    assert not inconsistent_faces(plain).any()
    plain[3] = plain[3][::-1]
    np.testing.assert_array_equal(np.flatnonzero(inconsistent_faces(plain)), [3])


def test_colours_stay_on_faces_that_are_turned(tmp_path: Path) -> None:
    square = "f 1/1 2/2 3/3\nf 1/1 4/4 3/3\n"  # the second faces away
    with pytest.warns(UserWarning, match="1 faces of 'square.obj'"):
        mesh = load_mesh(write_obj(tmp_path, faces=square))
    whole = load_mesh(write_obj(tmp_path))
    for place in whole.vertices[whole.faces[1]]:  # near each corner, wherever it now stands in its face
        found = []
        for m in (mesh, whole):
            corner = np.flatnonzero(np.all(np.isclose(m.vertices[m.faces[1]], place), axis=1))[0]
            weights = np.full((1, 3), 0.1)
            weights[0, corner] = 0.8
            found.append(surface_colors(m, np.array([1]), weights)[0])
        np.testing.assert_allclose(found[0], found[1], atol=1e-9)


@pytest.mark.parametrize("inward", [False, True])
def test_a_mesh_inside_out_is_lit_as_its_right_side(inward: bool) -> None:
    """An open bowl cannot be said to be inside out: it is drawn from both sides, with the same light."""
    bowl = trimesh.creation.icosphere(subdivisions=2, radius=0.1)
    open_ = np.asarray(bowl.faces)[bowl.triangles_center[:, 2] < 0.02]
    faces = open_[:, ::-1] if inward else open_
    mesh = Mesh(np.asarray(bowl.vertices), faces, np.zeros(len(faces), np.int64))
    at = mesh.vertices + np.array([0.0, 0.0, 0.5])
    raster = rasterize(at, mesh.faces, np.array([[100.0, 0, 31.5], [0, 100.0, 31.5], [0, 0, 1]]), 64, 64)
    image = shade(raster, mesh, np.ones((1, 3)), np.array([0.3, 0.1, 1.0]))
    assert image[image[..., 3] > 0.9][:, :3].min() > 0.3


@pytest.mark.mitsuba
@pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine")
def test_the_renderer_lights_both_sides() -> None:
    from tests.unit.test_render_mitsuba import plain_look
    from vid2phys.engine.render.mitsuba import Renderer

    box = trimesh.creation.box((0.1, 0.1, 0.1))
    view_from_body = np.eye(4)
    view_from_body[2, 3] = 0.4
    K = np.array([[80.0, 0, 15.5], [0, 80.0, 15.5], [0, 0, 1]])
    images = []
    for faces in (box.faces, box.faces[:, ::-1]):
        mesh = Mesh(np.asarray(box.vertices), np.ascontiguousarray(faces), np.zeros(12, np.int64))
        images.append(Renderer(mesh, 32, spp=4).render(view_from_body, K, plain_look(12), seed=1).radiance)
    assert images[0].max() > 0.4
    np.testing.assert_allclose(images[0].sum(), images[1].sum(), rtol=0.02)


def test_many_parts_are_joined(tmp_path: Path) -> None:
    lines = []
    for i in range(200):
        size = 0.001 * (1 + i)
        lines += [
            f"v {i} 0 0",
            f"v {i} {size} 0",
            f"v {i} 0 {size}",
            f"g part{i}",
            f"f {3 * i + 1} {3 * i + 2} {3 * i + 3}",
        ]
    (tmp_path / "many.obj").write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match=f"'many.obj' has 200 parts: the {MOST_PARTS - 1} largest keep a colour"):
        mesh = load_mesh(tmp_path / "many.obj", "cm")
    assert mesh.part_names == (*(f"part{i}" for i in range(201 - MOST_PARTS, 200)), "rest")
    assert (mesh.part == MOST_PARTS - 1).sum() == 201 - MOST_PARTS


def test_a_flat_mesh_weighs_as_a_plate(tmp_path: Path) -> None:
    """Closed form: a rectangle a x b about its middle has b^2 / 12, a^2 / 12 and their sum."""
    mesh = load_mesh(write_obj(tmp_path))
    with pytest.warns(UserWarning, match="is flat; its inertia is that of a thin plate"):
        found = mass_properties(mesh)
    np.testing.assert_allclose(found.center_of_mass, [0.2, 0.15, 0.0])
    np.testing.assert_allclose(found.inertia_per_mass, np.diag([0.3**2, 0.4**2, 0.5**2]) / 12, atol=1e-12)
    assert not found.watertight


def test_a_torn_mesh_is_drawn_and_weighs_as_its_hull(tmp_path: Path) -> None:
    """Three faces on one edge, a face twice, a face without area: drawn, with a note on the inertia."""
    text = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\nv 0.1 0.1 0.1\nv 0.05 0 0\n"
    (tmp_path / "torn.obj").write_text(text + "f 1 3 2\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\nf 1 2 5\nf 1 6 2\n")
    mesh = load_mesh(tmp_path / "torn.obj")
    with pytest.warns(UserWarning, match="not watertight.*convex hull"):
        assert mass_properties(mesh).volume > 1e-4
    at = mesh.vertices + np.array([0.0, 0.0, 0.5])
    assert rasterize(at, mesh.faces, np.diag([100.0, 100.0, 1.0]), 32, 32).mask.any()


def test_faces_without_area_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "line.obj").write_text("v 0 0 0\nv 0.1 0 0\nv 0.2 0 0\nv 0.3 1e-14 0\nf 1 2 3\nf 2 3 4\n")
    with pytest.raises(InputError, match=r"every face of .*line.obj' has zero area; expected a triangle mesh"):
        load_mesh(tmp_path / "line.obj")


def test_the_meshes_of_the_project_are_as_they_were() -> None:
    """No face of theirs is turned and no part joined: models and renders made of them stay valid."""
    paths = [SAMPLES / "quadrotor" / "quad.obj", *sorted(SHARED.glob("clips/*/mesh.obj"))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in paths:
            mesh = load_mesh(path)
            assert simplified(mesh) is mesh
            assert mesh.texture is None
