"""A mesh in other axes, at another origin or in another unit: the option that moves it, the message that names it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.obj_files import save_obj
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.io.geometry import geometry_signature
from vid2phys.io.mesh import load_mesh
from vid2phys.io.move import moved, parse_move
from vid2phys.risp.networks.model import SCHEMA
from vid2phys.risp.networks.model_lookup import find_model
from vid2phys.types import Array, Mesh

ROOT = Path(__file__).resolve().parents[2]
CASE = ROOT.parent / "shared" / "cases" / "blender_glb" / "blender_yup.glb"
TURN_X = matrix_from_rotvec(np.array([np.pi / 2, 0.0, 0.0]))
TURN_Z = matrix_from_rotvec(np.array([0.0, 0.0, np.pi / 2]))


def wedge(scale: float = 1.0) -> Mesh:
    """A body without any symmetry, 0.3 m long."""
    corners = np.array([[0.2, 0, 0], [-0.1, 0.08, -0.03], [-0.1, -0.05, -0.02], [-0.06, 0.01, 0.07]]) * scale
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    return Mesh(corners, faces, np.zeros(4, np.int64), name="wedge")


def known(folder: Path, mesh: Mesh, kind: str = "rigid") -> Path:
    """A model folder that says for which shape it is; nothing more of it is read before it fits."""
    folder.mkdir(parents=True)
    signature = geometry_signature(mesh).to_json()
    config = {"schema": SCHEMA, "kind": kind, "mesh": {"name": mesh.name, "signature": signature}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def message(mesh: Mesh, folder: Path, **read: str) -> str:
    with pytest.raises(InputError) as caught:
        find_model(mesh, folder, mesh_path="my.obj", **read)
    return str(caught.value)


def test_steps_are_done_in_their_order() -> None:
    points = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_allclose(moved(points, "x:90"), [[1.0, -3.0, 2.0]])
    np.testing.assert_allclose(moved(points, "x:90,shift:0:0:-2"), [[1.0, -3.0, 0.0]])
    np.testing.assert_allclose(moved(points, "shift:0:0:-2, x:90"), [[1.0, -1.0, 2.0]])
    np.testing.assert_allclose(moved(points, "z:45,z:-45"), points, atol=1e-12)
    assert moved(points, None) is points
    rotation, _ = parse_move("x:90")
    np.testing.assert_array_equal(rotation, [[1, 0, 0], [0, 0, -1], [0, 1, 0]])  # no rounding left of a right angle


@pytest.mark.parametrize("text", ["", "x", "x:up", "w:90", "x:1:2", "shift:1:2", "x:nan", "90"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="x:90"):
        parse_move(text)


def test_a_mesh_is_moved_when_it_is_read(tmp_path: Path) -> None:
    save_obj(wedge(1000.0), tmp_path / "wedge.obj")
    plain = load_mesh(tmp_path / "wedge.obj", "mm")
    other = load_mesh(tmp_path / "wedge.obj", "mm", move="x:90,shift:0:0:-0.02")
    np.testing.assert_allclose(other.vertices, plain.vertices @ TURN_X.T - [0, 0, 0.02], atol=1e-9)
    np.testing.assert_array_equal(other.faces, plain.faces)


@pytest.mark.parametrize(
    ("rotation", "shift", "size", "words", "remedy"),
    [
        (TURN_X.T, (0, 0, 0), 1.0, "rotated by 90 degrees about x", "add `--mesh-move x:90`"),
        (TURN_Z, (0, 0, 0), 1.0, "rotated by -90 degrees about z", "add `--mesh-move z:-90`"),
        (np.diag([-1.0, 1.0, -1.0]), (0, 0, 0), 2.0, "rotated by 180 degrees about y", "add `--mesh-move y:180`"),
        (np.eye(3), (0, 0, 0.05), 1.0, "shifted by 0, 0, -0.05 m", "add `--mesh-move shift:0:0:-0.05`"),
        (np.eye(3), (0, 0, 0), 100.0, "0.01 times as large", "add `--mesh-units cm`"),
        (np.eye(3), (0, 0, 0), 0.001, "1000 times as large", "scale the mesh by 1000"),
        (TURN_X.T, (0.02, 0, 0), 100.0, "rotated by 90 degrees about x", "`--mesh-units cm --mesh-move x:90,shift:"),
    ],
)
def test_the_message_names_what_brings_a_mesh_to_its_model(
    tmp_path: Path, rotation: Array, shift: tuple[float, ...], size: float, words: str, remedy: str
) -> None:
    body = wedge()
    folder = known(tmp_path / "model", body)
    other = replace(body, vertices=size * (body.vertices @ rotation.T + shift))
    said = message(other, folder)
    assert words in said
    assert remedy in said
    assert f"it has the shape of '{folder}'" in said


@pytest.mark.parametrize("seed", range(3))
def test_the_named_move_is_the_right_one(tmp_path: Path, seed: int) -> None:
    """Whatever the rotation by right angles and the shift, the option brings back the body's own axes and origin."""
    chance, body = np.random.default_rng(seed), wedge()
    folder = known(tmp_path / "model", body)
    steps = ",".join(f"{'xyz'[chance.integers(3)]}:{90 * chance.integers(1, 4)}" for _ in range(3))
    rotation, _ = parse_move(steps)
    other = replace(body, vertices=body.vertices @ rotation.T + chance.uniform(-0.3, 0.3, 3))
    option = re.search(r"--mesh-move ([^`]+)`", message(other, folder))
    assert option is not None
    np.testing.assert_allclose(moved(other.vertices, option[1]), body.vertices, atol=1e-4)


def test_a_move_is_added_to_the_one_that_was_given(tmp_path: Path) -> None:
    body = wedge()
    other = replace(body, vertices=body.vertices @ TURN_X)
    assert "add `--mesh-move z:180,x:90`" in message(other, known(tmp_path / "a", body), move="z:180")


def test_other_shapes_get_the_command_and_the_time_of_training(tmp_path: Path) -> None:
    body = wedge()
    folder = known(tmp_path / "model", body)
    mirrored = replace(body, vertices=body.vertices * [1, -1, 1], faces=body.faces[:, ::-1])
    longer = replace(body, vertices=body.vertices * [1.5, 1, 1])
    for other in (mirrored, longer):
        said = message(other, folder, units="mm", move="x:90")
        assert "--mesh my.obj --mesh-units mm --mesh-move x:90 --system quadrotor" in said
        assert "training takes about 35 minutes on 2 cores" in said
    turned = replace(body, vertices=body.vertices @ TURN_X)
    assert "train-risp" in message(turned, known(tmp_path / "rod", body, kind="shape"))  # not of a rigid body


def test_a_textured_mesh_keeps_its_texture(tmp_path: Path) -> None:
    (tmp_path / "a.mtl").write_text("newmtl red\nKd 0.8 0.1 0.1\n")
    save_obj(wedge(), tmp_path / "a.obj")
    text = (tmp_path / "a.obj").read_text()
    (tmp_path / "a.obj").write_text("mtllib a.mtl\n" + text.replace("f ", "usemtl red\nf ", 1))
    plain, turned = load_mesh(tmp_path / "a.obj"), load_mesh(tmp_path / "a.obj", move="y:90")
    assert plain.part_names == turned.part_names
    assert (plain.texture is None) == (turned.texture is None)


@pytest.mark.shared
@pytest.mark.skipif(not CASE.is_file(), reason="../shared/cases is not there")
def test_shared_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(
        InputError, match="rotated by 90 degrees about x, it has the shape of 'models/quadrotor'"
    ) as said:
        find_model(load_mesh(CASE))
    assert "--mesh-move x:90" in str(said.value)
    body = load_mesh(ROOT / "samples" / "quadrotor" / "quad.obj")
    np.testing.assert_allclose(np.ptp(load_mesh(CASE, move="x:90").vertices, axis=0), np.ptp(body.vertices, axis=0))
    find_model(load_mesh(CASE, move="x:90"))
