"""Tetrahedral meshes as files hold them: formats, units, handedness, surfaces, and what is refused."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import meshio
import numpy as np
import pytest
import trimesh

from vid2phys.engine.tets import box_tets, tet_volumes
from vid2phys.errors import InputError, UsageError
from vid2phys.io.volume import load_volume
from vid2phys.types import Array

VERTICES, TETS = box_tets((0.2, 0.1, 0.3), (2, 1, 2))


def write(folder: Path, name: str, points: Array, *cells: tuple[str, Any], **options: Any) -> Path:
    path = folder / name
    kind = {"file_format": "gmsh22"} if path.suffix == ".msh" else {}  # and not ANSYS, which ends alike
    meshio.Mesh(points, list(cells)).write(path, **kind, **options)
    return path


def box_stl(folder: Path) -> Path:
    trimesh.creation.box([0.1, 0.2, 0.3]).export(folder / "box.stl")
    return folder / "box.stl"


@pytest.mark.parametrize("name", ["b.msh", "b.vtk", "b.vtu", "b.mesh", "b.inp"])
def test_formats_give_the_same_body(tmp_path: Path, name: str) -> None:
    """In mm, with triangles of the surface among the cells, as mesh generators write them."""
    path = write(tmp_path, name, 1000.0 * VERTICES, ("triangle", TETS[:3, :3]), ("tetra", TETS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        volume = load_volume(path, "mm")
    np.testing.assert_allclose(volume.vertices, VERTICES, atol=1e-12)
    np.testing.assert_array_equal(volume.tets, TETS)
    assert volume.name == "b"


def test_vertices_of_no_tet_are_dropped(tmp_path: Path) -> None:
    points = np.insert(VERTICES, 2, [[9.0, 9.0, np.nan]], axis=0)
    path = write(tmp_path, "b.vtu", points, ("tetra", TETS + (TETS >= 2)))
    with pytest.warns(UserWarning, match="1 vertices of .* are dropped"):
        volume = load_volume(path)
    np.testing.assert_array_equal(volume.vertices[volume.tets], VERTICES[TETS])


def test_the_other_handedness_is_turned(tmp_path: Path) -> None:
    volume = load_volume(write(tmp_path, "b.vtk", VERTICES, ("tetra", TETS[:, [1, 0, 2, 3]])))
    np.testing.assert_allclose(tet_volumes(volume.vertices, volume.tets), tet_volumes(VERTICES, TETS))


def test_of_higher_order_the_corners_are_kept(tmp_path: Path) -> None:
    pairs = [(0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3)]
    middles = np.array([[VERTICES[tet[[a, b]]].mean(axis=0) for a, b in pairs] for tet in TETS]).reshape(-1, 3)
    ends = len(VERTICES) + np.arange(len(middles)).reshape(-1, 6)
    points, cells = np.concatenate([VERTICES, middles]), np.concatenate([TETS, ends], axis=1)
    with pytest.warns(UserWarning, match="144 vertices .* along edges"):
        volume = load_volume(write(tmp_path, "b.vtu", points, ("tetra10", cells)))
    np.testing.assert_allclose(volume.vertices, VERTICES)
    np.testing.assert_array_equal(volume.tets, TETS)


def test_pieces_that_share_nothing_are_noted(tmp_path: Path) -> None:
    both = np.concatenate([VERTICES, VERTICES + np.array([1.0, 0.0, 0.0])])
    path = write(tmp_path, "b.vtu", both, ("tetra", np.concatenate([TETS, TETS + len(VERTICES)])))
    with pytest.warns(UserWarning, match="2 pieces"):
        load_volume(path)


def one_broken(tet: list[int]) -> Any:
    return "tetra", np.concatenate([TETS[:4], [tet], TETS[5:]])


def nan_at(row: int) -> Array:
    return np.where(np.arange(len(VERTICES))[:, None] == row, np.nan, VERTICES)


ONE = TETS[4].tolist()
REFUSED: list[tuple[str, Array, Any, str]] = [
    ("b.vtu", VERTICES, one_broken([ONE[1], ONE[0], *ONE[2:]]), "tets 5 of 'PATH' are inverted (1 of 24)"),
    ("b.vtu", VERTICES, one_broken([ONE[0], ONE[0], *ONE[2:]]), "tet 5 of 'PATH' is flat (1 of 24)"),
    ("b.vtu", nan_at(3), ("tetra", TETS), "vertex 4 of 'PATH' is not finite"),
    ("b.vtk", VERTICES, ("hexahedron", np.arange(8)[None]), "has 1 cells of kind hexahedron; expected tets only"),
    ("b.vtk", VERTICES, ("line", np.arange(2)[None]), "'PATH' has no tets (its cells: line)"),
    ("b.vtk", 1000.0 * VERTICES, ("tetra", TETS), "extent of 300 m; expected at most 10 m; if it is in millimetres"),
    ("b.vtk", VERTICES, ("triangle", TETS[:, :3]), "'PATH' is an open surface (16 edges of one triangle alone)"),
]


@pytest.mark.parametrize(("name", "points", "cells", "text"), REFUSED, ids=[text for *_, text in REFUSED])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_no_volume_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, points: Array, cells: Any, text: str
) -> None:
    monkeypatch.setitem(sys.modules, "pytetwild", None)
    path = write(tmp_path, name, points, cells)
    with pytest.raises(InputError) as caught:
        load_volume(path)
    assert text.replace("PATH", str(path)) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("b.vtk", "", "is empty"),
        ("b.vtu", "<VTKFile>", "cannot be read"),
        ("b.msh", "$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Nodes\n1 8 1 8\n", "cannot be read"),
        ("b.cat", "meow", "of a kind that is not read; expected .msh, .*meshio convert b.cat b.vtu"),
    ],
)
def test_broken_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, text: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=text) as caught:
        load_volume(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr() == ("", "")


def test_units_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown mesh unit 'parsec'"):
        load_volume(box_stl(tmp_path), "parsec")


def test_a_surface_is_refused_saying_how_to_fill_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytetwild", None)
    with pytest.raises(InputError, match=r"is a surface \(12 triangles\).*pip install 'vid2phys\[volume\]'"):
        load_volume(box_stl(tmp_path))


def test_a_surface_is_filled_where_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pytetwild: its tets are left-handed, and it writes where it runs."""

    def tetrahedralize(vertices: Array, faces: Array, **options: Any) -> tuple[Array, Array]:
        Path("__tracked_surface.stl").write_text("")
        assert (vertices.shape, faces.dtype) == ((8, 3), np.int32)
        return VERTICES, TETS[:, [1, 0, 2, 3]].astype(np.int32)

    stand_in = ModuleType("pytetwild")
    stand_in.tetrahedralize = tetrahedralize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytetwild", stand_in)
    monkeypatch.chdir(tmp_path)
    volume = load_volume(box_stl(tmp_path))
    assert tet_volumes(volume.vertices, volume.tets).min() > 0.0
    assert [path.name for path in tmp_path.iterdir()] == ["box.stl"]


def test_pytetwild_fills_a_box(tmp_path: Path) -> None:
    pytest.importorskip("pytetwild", reason="pip install 'vid2phys[volume]'")
    volume = load_volume(box_stl(tmp_path))
    np.testing.assert_allclose(np.ptp(volume.vertices, axis=0), [0.1, 0.2, 0.3], rtol=2e-3)  # its envelope: 1e-3
    assert tet_volumes(volume.vertices, volume.tets).sum() == pytest.approx(6e-3, rel=5e-3)
