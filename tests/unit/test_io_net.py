"""Nets of springs from OBJ files: lines, or edges of triangles; what is no net is one line."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tests import hanging_net
from vid2phys.engine import systems
from vid2phys.engine.systems.mass_spring import MassSpring
from vid2phys.errors import InputError, UsageError
from vid2phys.io.net import Net, load_net

SQUARE = "v 0 0 0\nv 0.1 0 0\nv 0.1 0.1 0\nv 0 0.1 0\n"
FACES = "f 1 2 3\nf 1 3 4\n"


def net_of(folder: Path, text: str, units: str = "m") -> Net:
    (folder / "net.obj").write_text(text)
    return load_net(folder / "net.obj", units, units_flag="--body-units")


def test_lines_are_springs_pair_by_pair(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = net_of(tmp_path, SQUARE + FACES + "l 1 2 3 4\nl -1 1\n")
    np.testing.assert_array_equal(net.springs, [[0, 1], [1, 2], [2, 3], [3, 0]])
    np.testing.assert_array_equal(net.faces, [[0, 1, 2], [0, 2, 3]])
    np.testing.assert_allclose(net.points[2], [0.1, 0.1, 0.0])
    np.testing.assert_allclose(net_of(tmp_path, SQUARE.replace("0.1", "100") + "l 1 2 3 4", "mm").points, net.points)


def test_edges_of_triangles_are_springs_where_there_are_no_lines(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="has no lines .*: the 5 edges of its triangles are the springs"):
        net = net_of(tmp_path, SQUARE + FACES)
    np.testing.assert_array_equal(net.springs, [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]])
    with pytest.warns(UserWarning, match="edges of its triangles"):
        split = net_of(tmp_path, SQUARE + "v 0 0 0\nv 0.1 0.1 0\nf 1 2 3\nf 4 5 6\n")  # corners given twice
    np.testing.assert_array_equal(split.springs, net.springs)
    np.testing.assert_allclose(split.points, net.points)


def test_points_beside_the_faces_hold_springs_and_faces_agree(tmp_path: Path) -> None:
    net = net_of(tmp_path, SQUARE + "v 0 0.3 0\nf 1 2 3\nf 1 4 3\nl 1 2 3 4 1\nl 5 4\n")
    assert len(net.points) == 5
    assert net.springs[-1].tolist() == [4, 3]
    normals = [np.cross(*np.diff(net.points[face], axis=0))[2] for face in net.faces]
    assert normals[0] * normals[1] > 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SQUARE, "has no springs: neither lines nor faces"),
        (SQUARE + FACES + "l 1 2 3\n", "no spring holds vertex 4 of .*net.obj' \\(1 in all\\)"),
        (SQUARE + "v 9 9 9\n" + FACES, "no spring holds vertex 5"),
        (SQUARE + FACES + "l 1 2 7\n", "4 vertices and a line that uses vertex 7"),
        (SQUARE + FACES + "l 1 x\n", "line 7 of .* is 'l 1 x'; expected a vertex, a face or a line"),
        (SQUARE + FACES + "l 2\n", "line 7 of .* is 'l 2'"),
        (SQUARE.replace("0.1", "300") + FACES, "if it is in millimetres give --body-units mm"),
        (SQUARE.replace("v 0 0 0", "v 0 nan 0") + FACES, "vertex 1 of .* is not finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*edges of its triangles")
def test_what_is_no_net_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        net_of(tmp_path, text)
    with pytest.raises(UsageError, match="unknown mesh unit 'miles'"):
        net_of(tmp_path, text, "miles")


def test_a_system_is_made_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "net.obj").write_text(hanging_net.obj())
    body = systems.from_file("mass_spring", tmp_path / "net.obj")
    assert isinstance(body, MassSpring)
    np.testing.assert_array_equal(body.springs, hanging_net.springs())
    assert body.surface is not None
    np.testing.assert_array_equal(np.sort(body.surface.faces), np.sort(hanging_net.FACES))
    held = body.clamped(np.array([20, 24])).placed(np.eye(3)[[1, 2, 0]], np.array([0.0, 0.0, 1.0]))
    np.testing.assert_array_equal(held.pinned, [20, 24])
    np.testing.assert_allclose(held.rest_m, hanging_net.POINTS[:, [1, 2, 0]] + [0.0, 0.0, 1.0], atol=1e-9)
    assert held.refined() is None
    (tmp_path / "threads.obj").write_text(hanging_net.obj(with_faces=False))
    assert systems.from_file("mass_spring", tmp_path / "threads.obj").surface is None
    with pytest.warns(UserWarning, match="edges of its triangles"):
        assert isinstance(systems.from_file("mass_spring", "box:100x80x50mm"), MassSpring)
