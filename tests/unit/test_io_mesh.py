"""Meshes: units, parts, welding, inertia, and matching by geometry."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.obj_files import save_obj
from vid2phys.errors import InputError, UsageError
from vid2phys.io.geometry import SAME_GEOMETRY, GeometrySignature
from vid2phys.io.mesh import geometry_signature, load_mesh, mass_properties, signature_distance
from vid2phys.types import Mesh

trimesh = pytest.importorskip("trimesh")
SHARED = Path(__file__).resolve().parents[2].parent / "shared"
needs_shared = pytest.mark.skipif(not (SHARED / "clips").is_dir(), reason="../shared/clips is not there")
TETRAHEDRON = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def obj(folder: Path, text: str, name: str = "mesh.obj") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def as_mesh(shape: object) -> Mesh:
    return Mesh(np.asarray(shape.vertices), np.asarray(shape.faces), np.zeros(len(shape.faces), dtype=np.int64))


def test_units_scale_the_vertices(tmp_path: Path) -> None:
    path = obj(tmp_path, TETRAHEDRON.replace("0.1", "100"))
    assert np.ptp(load_mesh(path, "mm").vertices) == pytest.approx(0.1)
    with pytest.raises(InputError, match=r"extent of 100 m.*if it is in millimetres give --mesh-units mm"):
        load_mesh(path)
    with pytest.raises(InputError, match=r"at least 0\.001 m"):
        load_mesh(obj(tmp_path, TETRAHEDRON, "m.obj"), "mm")
    with pytest.raises(UsageError, match="cm, ft, in, m, mm"):
        load_mesh(path, "furlong")


def test_groups_are_parts_and_survive_a_round_trip(tmp_path: Path) -> None:
    second = "g arm\nv 1 0 0\nv 1.1 0 0\nv 1 0.1 0\nv 1 0 0.1\nf 5 7 6\nf 5 6 8\nf 5 8 7\nf 6 7 8\n"
    mesh = load_mesh(obj(tmp_path, "g hull of it\n" + TETRAHEDRON + second))
    assert mesh.part_names == ("hull_of_it", "arm")
    np.testing.assert_array_equal(mesh.part, [0] * 4 + [1] * 4)
    save_obj(mesh, tmp_path / "again.obj")
    again = load_mesh(tmp_path / "again.obj")
    np.testing.assert_allclose(again.vertices, mesh.vertices, atol=1e-9)
    np.testing.assert_array_equal(again.faces, mesh.faces)
    assert again.part_names == mesh.part_names
    assert again.name == "again"


def test_materials_then_connected_pieces(tmp_path: Path) -> None:
    materials = TETRAHEDRON.replace("f 1 3 2", "usemtl red\nf 1 3 2").replace("f 1 4 3", "usemtl blue\nf 1 4 3")
    assert load_mesh(obj(tmp_path, materials)).part_names == ("red", "blue")
    two = TETRAHEDRON + "v 1 0 0\nv 1.1 0 0\nv 1 0.1 0\nf 5 6 7\n"
    assert load_mesh(obj(tmp_path, two)).part_names == ("part_0", "part_1")
    assert load_mesh(obj(tmp_path, TETRAHEDRON)).part_names == ("body",)


def test_obj_polygons_negative_indices_and_slashes(tmp_path: Path) -> None:
    text = "v 0 0 0 1 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvn 0 0 1\nf 1/1/1 2/1/1 3//1 4\nf -4 -1 -2\n"
    mesh = load_mesh(obj(tmp_path, text))
    np.testing.assert_array_equal(mesh.faces, [[0, 1, 2], [0, 2, 3], [0, 3, 2]])


def test_split_vertices_are_welded_and_flat_faces_dropped(tmp_path: Path) -> None:
    box = trimesh.creation.box(extents=(0.1, 0.2, 0.3))
    corners = box.vertices[box.faces].reshape(-1, 3)
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [f"f {3 * i + 1} {3 * i + 2} {3 * i + 3}" for i in range(12)]
    mesh = load_mesh(obj(tmp_path, "\n".join([*lines, "f 1 1 2"])))
    assert mesh.vertices.shape == (8, 3)
    assert mesh.faces.shape == (12, 3)


@pytest.mark.parametrize("inside_out", [False, True])
@pytest.mark.parametrize("suffix", ["obj", "stl", "ply", "glb"])
def test_box_inertia(tmp_path: Path, suffix: str, inside_out: bool) -> None:
    a, b, c = 0.1, 0.2, 0.3
    box = trimesh.creation.box(extents=(a, b, c))
    box.apply_translation([0.4, 0, 0])
    if inside_out:
        box.invert()
    box.export(tmp_path / f"box.{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mass_properties(load_mesh(tmp_path / f"box.{suffix}"))
    assert found.watertight
    assert found.volume == pytest.approx(a * b * c)
    np.testing.assert_allclose(found.center_of_mass, [0.4, 0, 0], atol=1e-8)
    expected = np.diag([b * b + c * c, a * a + c * c, a * a + b * b]) / 12
    np.testing.assert_allclose(found.inertia_per_mass, expected, atol=1e-8)


def test_open_mesh_uses_the_hull_and_warns(tmp_path: Path) -> None:
    text = "\n".join(line for line in TETRAHEDRON.splitlines() if line != "f 2 3 4")
    with pytest.warns(UserWarning, match="not watertight.*convex hull"):
        found = mass_properties(load_mesh(obj(tmp_path, text)))
    assert not found.watertight
    assert found.volume == pytest.approx(1e-3 / 6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v 0 0 0\nv 1 0 0\n", "has no faces"),
        ("v 0 0 0\nv 1 0\nf 1 2 3\n", r"line 2 of .* is 'v 1 0'"),
        (TETRAHEDRON + "f 1 2 9\n", "4 vertices and a face that uses vertex 9"),
        (TETRAHEDRON + f"f 1 2 {2**70}\n", "line .* is 'f 1 2 11805"),
        ("v nan 0 0\n" + TETRAHEDRON, "vertex 1 .* is not finite"),
        ("v 0 0 0\nv 1 0 0\nf 1 2 2\n", "zero area"),
        ("", "is empty"),
    ],
)
def test_broken_obj(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        load_mesh(obj(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_other_broken_meshes(tmp_path: Path) -> None:
    for name, content in (("a.stl", b"solid nothing"), ("b.xyzzy", b"abc"), ("c.ply", b"ply\nformat ascii 1.0\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError) as caught:
            load_mesh(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_signature_knows_a_shape_whatever_its_triangles() -> None:
    box = trimesh.creation.box(extents=(0.1, 0.2, 0.3))
    fine = box.subdivide().subdivide()
    order = np.random.default_rng(0).permutation(len(fine.vertices))
    shuffled = trimesh.Trimesh(fine.vertices[np.argsort(order)], order[fine.faces], process=False)
    assert signature_distance(geometry_signature(as_mesh(box)), geometry_signature(as_mesh(shuffled))) < 1e-9


def test_signature_tells_shapes_sizes_and_axes_apart() -> None:
    box = as_mesh(trimesh.creation.box(extents=(0.1, 0.2, 0.3)))
    here = geometry_signature(box)
    others = [
        dataclasses.replace(box, vertices=box.vertices * 1.1),
        dataclasses.replace(box, vertices=box.vertices[:, [1, 2, 0]]),
        dataclasses.replace(box, vertices=box.vertices + np.array([0.02, 0, 0])),
        as_mesh(trimesh.creation.icosphere(radius=0.15)),
    ]
    assert all(signature_distance(here, geometry_signature(other)) > SAME_GEOMETRY for other in others)
    simpler = [as_mesh(trimesh.creation.icosphere(subdivisions=n, radius=0.1)) for n in (3, 4)]
    assert signature_distance(*map(geometry_signature, simpler)) < SAME_GEOMETRY


def test_signature_through_json() -> None:
    import json

    here = geometry_signature(as_mesh(trimesh.creation.icosphere(radius=0.1)))
    again = GeometrySignature.from_json(json.loads(json.dumps(here.to_json())))
    assert signature_distance(here, again) < 1e-6


@needs_shared
@pytest.mark.shared
def test_recorded_meshes() -> None:
    cube = load_mesh(SHARED / "clips" / "cube_toss0" / "mesh.obj")
    np.testing.assert_allclose(np.diag(mass_properties(cube).inertia_per_mass), 0.1048**2 / 6, rtol=1e-6)
    quadrotor = load_mesh(SHARED / "clips" / "quad_log203" / "mesh.obj")
    assert len(quadrotor.part_names) == 7
    assert signature_distance(geometry_signature(cube), geometry_signature(quadrotor)) > 0.3
    with pytest.raises(InputError, match="--mesh-units mm"):
        load_mesh(SHARED / "data" / "real_beam" / "beam.stl")
    beam = mass_properties(load_mesh(SHARED / "data" / "real_beam" / "beam.stl", "mm"))
    assert beam.volume == pytest.approx(0.03 * 0.03 * 0.1)
