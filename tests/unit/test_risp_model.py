from __future__ import annotations

import copy
import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.painted_mesh import painted_cube
from tests.unit.risp_synthetic import square_body
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.io.mesh import geometry_signature
from vid2phys.risp.networks.locator import _distinct, _peaks, locate
from vid2phys.risp.networks.model import Model, Shape
from vid2phys.risp.networks.model_lookup import find_model, train_command
from vid2phys.risp.networks.network import KeypointNetwork, LocatorNetwork
from vid2phys.types import Mesh

SIZES = {"fine": {"width": 8, "features": 16, "depth": 3}, "coarse": {"width": 8, "features": 16, "depth": 3}}


def box(*extents: float, name: str = "box") -> Mesh:
    import trimesh

    shape = trimesh.creation.box(extents=extents)
    return Mesh(np.asarray(shape.vertices), np.asarray(shape.faces), np.zeros(len(shape.faces), np.int64), name=name)


def make_model(mesh: Mesh) -> Model:
    torch.manual_seed(0)
    body = square_body()
    shape = Shape(
        "quadrotor", geometry_signature(mesh), body.points, body.rotations, body.permutation, body.front, mesh.name
    )
    fine, coarse = KeypointNetwork(8, **SIZES["fine"]), LocatorNetwork(**SIZES["coarse"])
    return Model(shape, fine.eval(), coarse.eval(), 96, SIZES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_model(box(0.1, 0.1, 0.03)).save(tmp_path / "models" / "box", {"seed": 0})
    return tmp_path / "models" / "box"


def test_model_of_a_body_on_a_known_base_has_no_locator(tmp_path: Path) -> None:
    from vid2phys.engine.movable.joints import JointBody
    from vid2phys.engine.systems import get
    from vid2phys.risp.networks.articulated_bodies import body_of_model

    hand = JointBody(get("hand"))
    count = len(hand.points_body)
    alone = np.eye(3)[None], np.arange(count)[None]
    known = {"kind": "joints", "cameras": hand.cameras}
    torch.manual_seed(0)  # with other weights two peaks of a map may be equal in half precision
    shape = Shape("hand", geometry_signature(hand.mesh), hand.points_body, *alone, None, "hand", **known)
    model = Model(shape, KeypointNetwork(count, **SIZES["fine"]).eval(), None, 128, {"fine": SIZES["fine"]})
    model.save(tmp_path / "hand")
    assert not (tmp_path / "hand" / "coarse.safetensors").exists()
    again = Model.load(tmp_path / "hand")
    assert again.coarse is None
    assert again.fine.front is None  # it has no branches to tell apart: its map, which the file still has, is flat
    images = np.random.default_rng(0).integers(0, 255, (2, 128, 128, 3), dtype=np.uint8)
    np.testing.assert_allclose(again.predict(images).front_logprob, -2.0 * np.log(32.0), rtol=1e-6)
    same = again.predict(images).points_px, model.predict(images).points_px
    np.testing.assert_allclose(*same, atol=0.1)  # half precision
    assert again.shape.kind == "joints"
    assert again.shape.cameras == hand.cameras
    assert body_of_model(again, get("hand")).points_body == pytest.approx(hand.points_body)
    with pytest.raises(InputError, match=r"a model for 'hand' \(joints\); expected one for 'rod' \(modes\)"):
        body_of_model(again, get("rod"))
    assert train_command(hand.mesh, None, "hand") == "vid2phys train-risp --system hand --out models/hand"


def test_saved_model_reads_as_before(folder: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (3, 96, 96, 3), dtype=np.uint8)
    before, after = make_model(box(0.1, 0.1, 0.03)).predict(images), Model.load(folder).predict(images)
    assert before.points_px.shape == (3, 8, 2)
    assert before.covariance_px.shape == (3, 8, 2, 2)
    assert before.peak.shape == (3, 8)
    assert before.front_logprob.shape == (3, 24, 24)
    assert np.allclose(np.exp(before.front_logprob).sum((1, 2)), 1.0, atol=1e-5)
    assert (np.linalg.eigvalsh(before.covariance_px) > 0).all()
    assert np.median(np.abs(before.points_px - after.points_px)) < 0.05  # half precision on disk
    assert sorted(p.name for p in folder.iterdir()) == [
        "coarse.safetensors", "config.json", "fine.safetensors", "score.json",
    ]  # fmt: skip


def test_one_image_is_read_as_in_a_batch(folder: Path) -> None:
    model = Model.load(folder)
    images = np.random.default_rng(1).integers(0, 255, (5, 96, 96, 3), dtype=np.uint8)
    assert np.allclose(model.predict(images, batch=2).points_px[3], model.predict(images[3:4]).points_px[0], atol=1e-2)
    assert model.predict(images[:0]).points_px.shape == (0, 8, 2)


def test_wrong_view_size_is_a_bug_of_the_caller(folder: Path) -> None:
    with pytest.raises(ValueError, match="expected \\[B, 96, 96, 3\\]"):
        Model.load(folder).predict(np.zeros((1, 64, 64, 3), np.uint8))


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_broken_models_end_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a model; expected a folder with config.json"):
        Model.load(tmp_path)
    edit(folder, lambda c: c.update(schema="vid2phys.model/9"))
    with pytest.raises(InputError, match=r"has schema vid2phys.model/9; expected vid2phys.model/1"):
        Model.load(folder)
    edit(folder, lambda c: c.update(schema="vid2phys.model/1", networks={"fine": {"width": 16}, "coarse": {}}))
    with pytest.raises(InputError, match=r"'.*' in '.*fine.safetensors' is (missing|of shape .*); expected shape"):
        Model.load(folder)
    edit(folder, lambda c: c.pop("symmetry"))
    with pytest.raises(InputError, match="is incomplete"):
        Model.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        Model.load(folder)


def test_broken_weights_end_in_one_line(folder: Path) -> None:
    (folder / "coarse.safetensors").write_bytes(b"xyz")
    with pytest.raises(InputError, match="is not a safetensors file"):
        Model.load(folder)
    (folder / "coarse.safetensors").unlink()
    with pytest.raises(InputError, match="does not exist"):
        Model.load(folder)


def _places(value: object, path: tuple = ()) -> list[tuple]:
    """Where the values of a config are: every key, and the first entry of every list."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    return found + [place for key, child in items for place in _places(child, (*path, key))]


def test_no_damage_to_a_config_ends_otherwise_than_in_one_line(folder: Path) -> None:
    calibrated = Model.load(folder).with_calibration(Calibration().to_dict())
    calibrated.save(folder)
    config = json.loads((folder / "config.json").read_text())
    refused: list[str] = []
    for place in _places(config):
        for damage in ("gone", "x", -1, []):
            broken = copy.deepcopy(config)
            holder = broken
            for key in place[:-1]:
                holder = holder[key]
            if damage == "gone":
                del holder[place[-1]]
            else:
                holder[place[-1]] = damage
            (folder / "config.json").write_text(json.dumps(broken))
            try:
                Model.load(folder)
            except InputError as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert not [text for text in refused if "\n" in text]


def test_truncated_weights_and_those_of_another_shape_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "fine.safetensors"
    whole = path.read_bytes()
    for length in (0, 7, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="is not a safetensors file; expected the model's weights; train it again"):
            Model.load(folder)
    path.write_bytes(whole)
    tensors = load_file(path)
    tensors["head.bias"] = tensors["head.bias"][:-1]
    save_file(tensors, path)
    with pytest.raises(InputError, match=r"'head.bias' in '.*' is of shape \[7\]; expected shape \[8\]"):
        Model.load(folder)


def test_a_full_disk_leaves_the_model_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, before = Model.load(folder), {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"the disk is full: '.*fine.safetensors' could not be written; free some"):
        model.save(folder, {"seed": 1})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.undo()
    model.save(folder, {"seed": 1})
    assert json.loads((folder / "score.json").read_text()) == {"seed": 1}


def test_model_is_found_by_shape(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    same = box(0.1005, 0.1, 0.03, name="exported again")
    assert find_model(same).shape.mesh_name == "box"
    command = "vid2phys train-risp --mesh my/long.obj --system quadrotor --out models/long"
    with pytest.raises(InputError, match=f"no model for the mesh 'long' .*run `{command}`"):
        find_model(box(0.4, 0.1, 0.03, name="long"), mesh_path="my/long.obj")
    with pytest.raises(InputError, match="is for another shape than 'long'"):
        find_model(box(0.4, 0.1, 0.03, name="long"), folder)
    with pytest.raises(InputError, match="is not a model"):
        find_model(same, tmp_path / "nowhere")
    found = find_model(same, folder)
    assert found.calibration is None
    assert found.with_calibration({"point_scale": 1.0}).calibration == {"point_scale": 1.0}


@pytest.mark.parametrize("factor", [0.5, 1.048, 8.0])
def test_a_model_serves_its_shape_in_any_size(folder: Path, factor: float) -> None:
    own = Model.load(folder)
    found = find_model(box(0.1 * factor, 0.1 * factor, 0.03 * factor), folder)
    np.testing.assert_allclose(found.points_body, factor * own.points_body, rtol=1e-6)
    assert found.radius_m == pytest.approx(factor * own.radius_m)


def test_of_models_for_one_shape_the_painted_one_serves_painted_meshes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    plain = make_model(box(0.1, 0.1, 0.1))
    plain.save(tmp_path / "models" / "a")
    replace(plain, shape=replace(plain.shape, textured=True)).save(tmp_path / "models" / "b")
    assert not find_model(box(0.1, 0.1, 0.1)).shape.textured
    assert find_model(painted_cube(np.full((6, 2, 2, 3), 90))).shape.textured


def test_a_mesh_in_the_wrong_unit_is_not_the_shape(folder: Path) -> None:
    with pytest.raises(InputError, match=r"0\.001 times as large.*add `--mesh-units mm`"):
        find_model(box(100.0, 100.0, 30.0), folder)


def test_a_model_without_a_front_and_a_centre_is_kept(tmp_path: Path) -> None:
    model = make_model(box(0.1, 0.1, 0.03))
    shape = replace(model.shape, front=None, center=np.array([0.01, -0.02, 0.03]))
    replace(model, shape=shape).save(tmp_path)
    found = Model.load(tmp_path)
    assert found.shape.exact
    assert found.front is None
    np.testing.assert_array_equal(found.center, [0.01, -0.02, 0.03])


def test_peaks_are_placed_between_cells() -> None:
    output = torch.full((2, 12, 16), -9.0)
    output[0, 5, 7], output[0, 5, 8] = 2.0, 1.0
    output[1] = np.log(30.0 / LocatorNetwork.REFERENCE_PX)
    rows = _peaks(output, 48, 64)
    assert rows.shape == (1, 4)
    assert 4 * 7 + 1.5 < rows[0, 0] < 4 * 8 + 1.5
    assert np.isclose(rows[0, 1], 4 * 5 + 1.5, atol=0.05)
    assert np.isclose(rows[0, 2], 30.0)


def test_candidates_are_distinct_and_sorted() -> None:
    rows = np.array([[10, 10, 20, 0.3], [12, 11, 22, 0.9], [50, 50, 20, 0.5], [10, 10, 60, 0.2]])
    found = _distinct(rows, 8)
    assert found.score.tolist() == [0.9, 0.5, 0.2]


@pytest.mark.parametrize("shape", [(480, 640), (33, 700), (1100, 90), (20, 20)])
def test_locate_takes_any_frame(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 255, (*shape, 3), dtype=np.uint8)
    found = locate(make_model(box(1, 1, 1)).coarse, image)
    assert found.center_px.shape == (len(found.score), 2)
    assert (np.diff(found.score) <= 0).all()
