"""The harness of the papers' tables: frames, scores, sittings and files are what they say."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import available, bodies, reproduce, risp_fig6a, risp_table1
from experiments import methods as trained
from experiments.articulated import ArticulatedAdapter, hidden_joints
from experiments.bodies import entries
from experiments.body_adapter import BodyAdapter, Estimates, Frames
from experiments.image_alignment import FOCAL_PX, PIECE_PX, frame_matrix, piece
from experiments.methods import Learnt, Recipe, is_converged, is_flat, model_folder, training_seconds
from experiments.result_cache import Cell, missing_note
from experiments.rigid import HALF_RANGE, MIDDLE, RigidAdapter, at_plausible_place, estimate_pose, project
from experiments.state_vector import state_vector
from experiments.table import Setting, Table, markdown, row
from experiments.test_renderer import CONFIGURATIONS, PHOTOGRAPHS, photograph
from tests.unit.risp_synthetic import square_body
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.modes import Motions
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rod import Rod
from vid2phys.errors import UsageError
from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.io.photographs import photograph_names
from vid2phys.risp.networks import articulated_bodies as posed_bodies
from vid2phys.risp.shape.configuration_encoding import (
    ConfigurationEncoding,
    configuration_encoding,
    configuration_vectors,
)
from vid2phys.risp.shape.symmetry import find_symmetry
from vid2phys.types import Array, Camera, Mesh, Texture

needs_llvm = pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine")


def rigid(name: str) -> RigidAdapter:
    (entry,) = entries((name,))
    adapter = entry.make(Path())
    assert isinstance(adapter, RigidAdapter)
    return adapter


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> ArticulatedAdapter:
    return ArticulatedAdapter("hand", get("hand"), 0.1, "", tmp_path_factory.mktemp("hand"))


@pytest.fixture(scope="module")
def rod(tmp_path_factory: pytest.TempPathFactory) -> ArticulatedAdapter:
    """A coarse one that bends up and down and to the sides, in bows and waves."""
    folder, plain = tmp_path_factory.mktemp("rod"), Rod((4, 1, 1), elements="linear")
    along = np.pi * (plain.rest_m[:, 0] / plain.size_m[0] + 0.5)
    shapes = [np.outer(np.sin(waves * along), axis) for waves in (1, 2) for axis in np.eye(3)[1:]]
    swings = 0.02 * np.random.default_rng(0).normal(size=(3, 12, 4))
    Motions(plain.rest_m, plain.elements, np.stack(shapes), swings, 0.01, 0.0).save(folder / posed_bodies.MODES_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posed_bodies, "CELLS", (4, 1, 1))
        return ArticulatedAdapter("rod", get("rod"), 0.02, "", folder)


def frames_of(adapter: BodyAdapter, states: Array, seed: int = 0) -> Frames:
    pieces = np.zeros((len(states), PIECE_PX, PIECE_PX, 3), np.uint8)
    cameras = adapter.cameras(np.random.default_rng(seed), states)
    return Frames(pieces, cameras, states, np.arange(len(states)) % len(CONFIGURATIONS))


def setting(out: Path, *, quick: bool = False, **more: Any) -> Setting:
    return Setting(quick, out, out / "work", TrainingProgress(quiet=True), **more)


def test_the_looks_are_held_out_from_training() -> None:
    held_out = {name for names in PHOTOGRAPHS.values() for name in names}
    assert not held_out & set(photograph_names())
    for name in held_out:
        image = photograph(name)
        assert image.ndim == 3
        assert 0.0 <= image.min() < image.max() <= 1.0
    assert len({c.name for c in CONFIGURATIONS}) == 4
    painted = {"type": "bitmap"}
    for look in CONFIGURATIONS:
        assert look.materials([None] * 3) == look.materials([None] * 5)[:3]  # the same for every frame
        assert painted in look.materials([painted])[0].values()  # an image is the colour, whatever the look


def test_a_piece_has_the_frames_own_perspective() -> None:
    adapter = rigid("cube-plain")
    poses = adapter.sample(np.random.default_rng(0), 200)
    offset = (poses[:, :3, 3] - MIDDLE * adapter.radius_m) / (HALF_RANGE * adapter.radius_m)
    assert np.abs(offset).max() <= 1.0
    assert np.abs(offset).max(axis=0).min() > 0.95  # the range is used to its ends
    for pose, camera in zip(poses[:20], adapter.cameras(np.random.default_rng(0), poses), strict=False):
        assert camera.camera_to_world is not None
        turn = camera.camera_to_world[:3, :3].T
        place = camera.K @ turn @ pose[:3, 3]
        assert np.abs(place[:2] / place[2] - 0.5 * (PIECE_PX - 1)).max() <= 0.5
        shift = camera.K[:2, 2] - [319.5, 239.5]
        assert np.allclose(shift, np.round(shift))  # whole pixels: the frame's own grid
        assert np.allclose(turn @ [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0])
        assert np.allclose(turn @ [0.0, 0.0, 1.0], [0.0, -1.0, 0.0])


def test_the_painted_cube_looks_like_no_turn_of_itself() -> None:
    adapter = rigid("cube")
    assert find_symmetry(adapter.mesh).order == 1
    assert adapter.known.symmetry_transforms.shape == (1, 4, 4)
    assert adapter.shape.symmetry_transforms.shape == (24, 4, 4)  # of which its colours choose
    assert find_symmetry(rigid("cube-plain").mesh).order == 24


def test_cameras_before_a_base_show_all_of_the_workspace(hand: ArticulatedAdapter) -> None:
    rng = np.random.default_rng(0)
    states = hand.sample(rng, 40)
    sizes = []
    for state, camera in zip(states, hand.cameras(rng, states), strict=True):
        assert camera.camera_to_world is not None
        place = camera.camera_to_world[:3, 3]
        assert hand.body.cameras.contains(place - hand.body.center_m, margin=0.1)
        pixels = project(camera, hand.vertices(state))
        assert pixels.min() > 0.0
        assert pixels.max() < PIECE_PX - 1
        sizes.append(2.0 * FOCAL_PX * hand.radius_m / np.linalg.norm(place - hand.body.center_m))
        move = hand.stage_from_world(camera)
        assert np.allclose(move[:3, :3] @ [0.0, 0.0, 1.0], [0.0, 0.0, 1.0])  # gravity stays
        middle, stand = (move @ [*point, 1.0] / hand.radius_m for point in (hand.body.center_m, place))
        assert np.allclose(middle[:3], [14.0, 0.0, 0.0])
        assert stand[1] == pytest.approx(0.0, abs=1e-9)  # looks along x, at the wall
        assert stand[0] < 14.0
    assert min(sizes) < 70.0
    assert max(sizes) > 120.0


def test_configurations_are_counted_as_the_paper_does(hand: ArticulatedAdapter, rod: ArticulatedAdapter) -> None:
    """By the systems' own state vectors; and the numbers of a network give them back."""
    for adapter in (hand, rod):
        body, rng = adapter.body, np.random.default_rng(1)
        configurations = adapter.sample(rng, 5)
        vectors = configuration_vectors(body, configurations)
        states = body.states(configurations, np.zeros_like(configurations))
        assert vectors == pytest.approx(state_vector(body.system, states), abs=1e-9)
        codes = configuration_encoding(body)
        numbers = codes.encode(vectors)
        assert numbers.shape == (5, codes.size)
        assert codes.decode(numbers) == pytest.approx(vectors, abs=1e-12)
        assert ConfigurationEncoding.from_json(json.loads(json.dumps(codes.to_json()))) == codes
    hand_codes = configuration_encoding(hand.body)
    assert hand_codes.size == 26
    numbers = hand_codes.encode(np.full(13, 0.5))
    assert hand_codes.decode(0.7 * numbers) == pytest.approx(np.full(13, 0.5))  # a network's are shorter
    heights = rod.vectors(rod.body.motions.amplitudes)  # type: ignore[attr-defined]
    assert np.ptp(heights) == pytest.approx(2.0)  # half their range is one


def test_configurations_that_are_off_by_something_known(hand: ArticulatedAdapter, rod: ArticulatedAdapter) -> None:
    states = hand.sample(np.random.default_rng(2), 4)
    frames = frames_of(hand, states)
    exact = hand.scores(Estimates(hand.vectors(states)), frames)
    assert next(iter(exact)) == "state_error"
    assert all(np.nanmax(np.append(score.values, 0.0)) < 1e-9 for score in exact.values())
    off = hand.vectors(states)
    off[:, 3] += 0.13
    scores = hand.scores(Estimates(off), frames)
    assert scores["state_error"].values == pytest.approx(np.full(4, 0.01))
    assert scores["angle_deg"].values == pytest.approx(np.full(4, np.degrees(0.01)))
    assert np.all(scores["points_mm"].values > 0.01)
    assert np.all(scores["points_px"].values > 0.01)
    parts = [scores[f"state_error_{name}"].values for name in ("visible", "hidden")]
    assert np.nansum(parts, axis=0).min() == pytest.approx(0.01)  # of frames that hide no joint
    bent = rod.sample(np.random.default_rng(2), 3)
    lower = rod.vectors(bent) - 0.1
    scores = rod.scores(Estimates(lower), frames_of(rod, bent))
    assert scores["state_error"].values == pytest.approx(np.full(3, 0.1))
    assert scores["height_mm"].values == pytest.approx(np.full(3, 100.0 * rod.codes.scale[0]))
    assert np.all(scores["points_px"].values > 0.1)


def test_joints_behind_the_palm_are_hidden(hand: ArticulatedAdapter) -> None:
    """From above a flat hand hides nothing; along the fingers the tips hide what is behind them."""
    body = hand.body
    assert isinstance(body, JointBody)
    above = hidden_joints(body, body.rest, np.array([0.03, 0.0, 2.0]), 0.012)
    assert not above.any()
    below_palm = body.rest.copy()
    below_palm[0] = 0.7  # the thumb, bent under the palm's side
    seen = hidden_joints(body, below_palm, np.array([-0.4, -0.5, 0.35]), 0.012)
    assert seen[0]  # the palm lies between
    aside = hidden_joints(body, body.rest, np.array([0.07, -2.0, 0.0]), 0.012)
    fingers = [name.split("_")[0] for name in body.names]
    assert not any(aside[i] for i, finger in enumerate(fingers) if finger == "finger4")  # the nearest one
    assert any(aside[i] for i, finger in enumerate(fingers) if finger in ("finger1", "finger2", "finger3"))


def along_x() -> Array:
    """camera_to_world of a level camera at the origin that looks along x."""
    return make_transform(np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]), np.zeros(3))


def scored(adapter: BodyAdapter, states: Array, frames: Frames) -> dict[str, float]:
    scores = adapter.scores(Estimates(adapter.vectors(states), states), frames)
    return {name: float(np.median(s.values) if s.median else s.values.mean()) for name, s in scores.items()}


def test_truth_has_no_error_and_a_known_error_is_found() -> None:
    quad = rigid("quadrotor")
    poses = quad.sample(np.random.default_rng(1), 8)
    frames = frames_of(quad, poses)
    assert all(value < 1e-5 for value in scored(quad, poses, frames).values())
    moved = poses.copy()
    moved[:, 0, 3] += 0.1 * quad.half_range_m[0]
    shifted = scored(quad, moved, frames)
    assert shifted["state_error"] == pytest.approx(0.1 / 9, rel=1e-4)
    assert shifted["position_mm"] == pytest.approx(1e3 * 0.1 * quad.half_range_m[0], rel=1e-4)
    assert 0.0 < shifted["points_px"] < 5.0
    turned = poses.copy()
    turned[:, :3, :3] = poses[:, :3, :3] @ matrix_from_rotvec(np.array([0.0, 0.0, 0.5 * np.pi]))
    quarter = scored(quad, turned, frames)
    assert quarter["rotation_deg"] == pytest.approx(90.0)
    assert quarter["rotation_deg_up_to_symmetry"] < 1e-3
    assert quarter["state_error"] > 0.05
    assert quarter["state_error_up_to_symmetry"] < 1e-6


def test_a_plain_cube_is_scored_up_to_symmetry_alone() -> None:
    adapter = rigid("cube-plain")
    poses = adapter.sample(np.random.default_rng(1), 4)
    metrics = scored(adapter, poses, frames_of(adapter, poses))
    assert next(iter(metrics)) == "state_error_up_to_symmetry"
    assert "state_error" not in metrics
    assert "rotation_deg" not in metrics


def test_turns_about_a_point_aside_of_the_origin_are_no_error() -> None:
    """The body of a table may lie anywhere in its own axes: turning it about its middle moves its origin."""
    plain = rigid("cube-plain")
    mesh = replace(plain.mesh, vertices=plain.mesh.vertices + np.array([0.01, -0.004, 0.006]))
    adapter = RigidAdapter("cube", mesh, plain.system, 0.16, "", labelled=False)
    poses = adapter.sample(np.random.default_rng(1), 4)
    turned = poses @ adapter.known.symmetry_transforms[5]
    assert np.abs(turned[:, :3, 3] - poses[:, :3, 3]).max() > 1e-3
    metrics = scored(adapter, turned, frames_of(adapter, poses))
    assert metrics["state_error_up_to_symmetry"] < 1e-6
    assert metrics["points_px"] < 1e-6


def test_numbers_read_in_a_view_become_a_pose_before_the_camera() -> None:
    from vid2phys.engine.virtual_camera import make_view
    from vid2phys.risp import heads

    head: Any = heads.get("state@w8", square_body(), radius_m=0.1, view_size=48)
    camera = piece(frame_matrix(), along_x(), np.array([1.5, 0.2, -0.1]))
    pose = make_transform(matrix_from_rotvec(np.array([0.4, -0.3, 1.0])), np.array([-0.21, 0.08, 1.52]))
    center, radius = np.array([-0.14, 0.06]), 0.07
    view = make_view(camera, center, radius, 48)
    in_view = make_transform(view.rotation_view_from_camera, np.zeros(3)) @ pose
    numbers = head.codes.encode(torch.from_numpy(in_view)[None], torch.from_numpy(view.K)[None])

    class Knows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            assert images.shape == (1, 3, 48, 48)
            return numbers

    learnt = Learnt(Recipe("state@w8", "error-only", 0.0, 64, 1), head, Knows(), 48, [], 0.0, 0, "")
    image = np.zeros((PIECE_PX, PIECE_PX, 3), np.uint8)
    assert np.allclose(estimate_pose(learnt, camera, image, center, radius), pose, atol=1e-9)


def test_a_flat_curve_and_others() -> None:
    assert is_flat([1.0, 0.5, 0.3, 0.2, 0.2, 0.2, 0.199, 0.2])
    assert not is_flat([1.0, 0.5, 0.3, 0.2, 0.19, 0.18, 0.15, 0.12])
    assert not is_flat([0.2, 0.2, 0.2])  # a few epochs say nothing
    flat = [{"state_error": 0.2}] * 8
    assert is_converged(flat, 100_000)
    assert not is_converged(flat, 99_999)
    assert not is_converged([{"px": value} for value in (8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0)], 100_000)


def test_what_is_nowhere_is_put_where_it_was_looked_for() -> None:
    center, turn = np.array([0.1, -0.2]), matrix_from_rotvec(np.array([0.3, 0.2, 0.1]))
    looked = (center, np.arcsin(0.05), 0.1)  # 2 m away, in a view of 0.15 on either side
    near = make_transform(turn, np.array([0.2, -0.3, 2.2]))
    assert np.array_equal(at_plausible_place(near, *looked), near)
    far = at_plausible_place(make_transform(turn, np.array([2.0, -3.0, 22.0])), *looked)
    assert np.linalg.norm(far[:3, 3]) == pytest.approx(2.0)
    assert np.allclose(far[:2, 3] / far[2, 3], [2.0 / 22.0, -3.0 / 22.0])
    for place in ([0.7, 0.0, 2.0], [0.0, 0.0, -2.0], [np.nan, 0.0, 2.0], [np.inf, 0.0, np.inf]):
        lost = at_plausible_place(make_transform(turn, np.array(place)), *looked)
        assert np.linalg.norm(lost[:3, 3]) == pytest.approx(2.0)
        assert np.allclose(lost[:2, 3] / lost[2, 3], center)
        assert np.array_equal(lost[:3, :3], turn)


def test_quick_tables_lie_beside_full_ones(tmp_path: Path) -> None:
    rows = [
        row("quadrotor", "paper", "state_error", 0.123456, "1", paper=0.15, converged=False),
        row("quadrotor", "paper", "rotation_deg", 7.0, "deg"),
        row("quadrotor", "paper", "state_error", 9.0, "1", configuration="sun"),
        row("hand", "paper", "state_error", None, "1", reason="no model of the hand"),
    ]
    table = Table("risp-table1", "vid2phys reproduce risp-table1", rows, ["a note"])
    full = table.write(setting(tmp_path))
    assert [p.name for p in full] == ["risp-table1.json", "risp-table1.md"]
    quick = table.write(setting(tmp_path, quick=True))
    assert [p.name for p in quick] == ["risp-table1.quick.json", "risp-table1.quick.md"]
    document = json.loads(full[0].read_text())
    assert document["schema"] == "vid2phys.table/1"
    assert document["quick"] is False
    assert document["rows"][0] == {**rows[0], "value": 0.12346}
    text = full[1].read_text()
    assert "| quadrotor | paper (not converged) | 0.123 (paper 0.15) | 7 |" in text
    assert "| hand | paper | no model of the hand | |" in text
    assert "- a note" in text
    assert "quick run" not in text
    assert "A quick run" in markdown({**document, "quick": True})


def test_a_table_is_filled_in_several_sittings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was run before stays, what is missing is named with the command that fills it."""
    known = [replace(entry, make=_never) for entry in entries()]
    monkeypatch.setattr(bodies, "_ENTRIES", tuple(known))
    here = setting(tmp_path, bodies=("rod",), methods=("average",))
    cells = risp_table1._cells(here)
    assert {cell.entry.name for cell in cells} == {entry.name for entry in known}
    assert [cell.method for cell in cells if cell.entry.name == "rod"] == list(risp_table1.METHODS)
    assert [cell.name for cell in cells if cell.is_asked] == ["rod, average"]
    done = next(cell for cell in cells if cell.name == "hand, paper")
    done.keep([row("hand", "paper", "state_error", 0.05, "1", paper=0.1, converged=True, images_seen=204_416)])
    next(cell for cell in cells if cell.is_asked).keep([row("rod", "average", "state_error", 0.4, "1")])
    table = risp_table1.run(here)  # nothing is left to do, so that no body is made
    text = table.write(here)[1].read_text()
    assert "| hand | paper (not converged) | 0.05 (paper 0.1) |" in text  # its preset shows it more
    assert "| rod | average | 0.4 |" in text
    assert "| rod | paper | not run yet (about " in text
    (note,) = missing_note(cells, {"hand", "rod"})
    assert "rod, paper" in note
    assert "all of quadrotor" in note
    assert "| quadrotor |" not in text  # no sitting was for it
    assert "hand, paper;" not in note
    assert "--body BODY --method METHOD" in note
    assert note in table.notes
    other = [replace(cell, setting=replace(here, seed=1)) for cell in cells]
    assert all(cell.rows() is None for cell in other)  # another seed is another table
    shutil.rmtree(here.work)  # rows outlive it, in the table
    again = risp_table1.run(here).write(here)[1].read_text()
    assert again.splitlines()[4:] == text.splitlines()[4:]


def _never(_: Path) -> BodyAdapter:
    raise AssertionError("nothing should be made")


def test_a_model_counts_when_the_default_command_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = entries(("hand",))
    monkeypatch.setattr(trained, "MODEL_PLACES", (tmp_path / "models",))
    folder = tmp_path / "models" / "hand"
    folder.mkdir(parents=True)
    score = {"data": {}, "history": {}, "seconds": {}}
    for command, start, counts in (
        (entry.training_command, None, True),
        (entry.training_command, "crazyflie", False),
        (entry.training_command.replace("--epochs 12", "--epochs 8"), None, False),
    ):
        said = {**score, "command": command, "training": {"started_from": start}}
        (folder / "score.json").write_text(json.dumps(said))
        found = model_folder(entry.model, entry.training_command)
        assert (found is not None) == counts


def test_the_key_of_a_cell_does_not_depend_on_how_its_model_is_found(tmp_path: Path) -> None:
    (entry,) = entries(("quadrotor",))
    root = Path(trained.__file__).resolve().parents[1]
    places = [Path(os.path.relpath(root / "models")), root / "models", root / "experiments" / ".." / "models"]
    cells = [Cell("t", entry, "ours", None, setting(tmp_path), model=place / "quadrotor") for place in places]
    assert len({cell.key for cell in cells}) == 1
    other = replace(cells[0], model=tmp_path / "quadrotor")  # a model that is not shipped may be trained again
    assert other.key != cells[0].key


RESULTS = Path(trained.__file__).resolve().parents[1] / "docs" / "results"


@pytest.mark.parametrize(
    "name", ["risp-table1", "risp-table2", "risp-table3", "risp-table4", "risp-fig6b", "risp-coverage"]
)
def test_rows_of_the_results_still_belong_to_their_cells(name: str, tmp_path: Path) -> None:
    """The hash of a recipe must not change because something is renamed: hours of training hang on it."""
    module = importlib.import_module(f"experiments.{name.replace('-', '_')}")
    nobody = Setting(False, RESULTS, tmp_path, TrainingProgress(quiet=True), ("nobody",), ("nothing",))
    kept = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    assert [row.get("cell") for row in module.run(nobody).rows] == [row.get("cell") for row in kept]


def test_estimates_grow_with_what_is_trained(tmp_path: Path) -> None:
    cheap, dear = (Recipe("state@w32", "error-gradient", gamma, 12_000, 16, view_size=64) for gamma in (0.0, 1.0))
    assert 600.0 < training_seconds(cheap, 96) < training_seconds(dear, 96) < 3600.0
    known = replace(dear, learning_rate=1e-3)  # nothing is tried
    assert training_seconds(known, 96) < training_seconds(dear, 96)
    assert training_seconds(replace(known, epochs=32), 96) == pytest.approx(2.0 * training_seconds(known, 96))
    (entry,) = entries(("rod",))
    cell = Cell("risp-table1", entry, "paper", dear, setting(tmp_path))
    assert cell.seconds == training_seconds(dear, entry.view_size)
    assert replace(cell, recipe=None).seconds == 0.0


def test_single_images_read_another_way_are_other_cells_and_clips_stay(tmp_path: Path) -> None:
    (entry,) = entries(("rod",))
    another, on = replace(entry, single_image=entry.single_image + 1), setting(tmp_path)
    for method, reads, same in (("ours", "images", False), ("ours", "clips", True), ("paper", "images", True)):
        keys = {Cell("risp-table1", each, method, None, on, reads=reads).key for each in (entry, another)}
        assert (len(keys) == 1) is same


def test_the_curves_are_drawn(tmp_path: Path) -> None:
    rows = [
        row("quadrotor", method, "state_error", 0.3 / epoch, "1", looks=looks, epoch=epoch, images=1000 * epoch)
        for method in ("paper", "paper-no-grad", "ours", "ours-no-grad")
        for looks in risp_fig6a.APPEARANCES
        for epoch in (1, 2, 3)
    ]
    table = Table(
        "risp-fig6a", "vid2phys reproduce risp-fig6a", rows, [], draw=lambda path: risp_fig6a.draw(rows, path)
    )
    files = table.write(setting(tmp_path))
    assert [p.suffix for p in files] == [".json", ".md", ".png"]
    assert files[2].read_bytes().startswith(b"\x89PNG")


def test_unknown_names() -> None:
    assert {"risp-table1", "risp-fig6a"} <= set(available())
    with pytest.raises(UsageError, match=r"unknown table 'table9'; expected one of .*risp-table1"):
        reproduce("table9", quiet=True)
    with pytest.raises(UsageError, match="unknown body 'kite'; expected one of cube"):
        reproduce("risp-table1", bodies=("kite",), quiet=True)
    with pytest.raises(UsageError, match="unknown method 'theirs'; expected one of average"):
        reproduce("risp-table1", methods=("theirs",), quiet=True)


@pytest.mark.mitsuba
@needs_llvm
def test_path_traced_frames_are_where_opencv_has_them() -> None:
    """A black asymmetric body before a white sky: what is missing is the hull of its projected corners."""
    from scipy.spatial import ConvexHull

    from experiments.path_tracer import PathTracer

    corners = np.array([[0.0, 0.0, 0.0], [0.09, 0.01, 0.0], [0.02, 0.06, 0.01], [-0.01, 0.015, 0.05]])
    faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    mesh = Mesh(corners, faces, np.array([0, 0, 1, 1]))
    black = {"type": "diffuse", "reflectance": {"type": "rgb", "value": [0.0, 0.0, 0.0]}}
    white = {"type": "constant", "radiance": {"type": "rgb", "value": [1.0, 1.0, 1.0]}}
    K = np.array([[420.0, 0.0, 21.7], [0.0, 420.0, 40.2], [0.0, 0.0, 1.0]])
    camera = Camera(K, 64, 64, camera_to_world=along_x())
    pose = make_transform(matrix_from_rotvec(np.array([0.3, -0.5, 0.8])), np.array([0.7, -0.01, 0.02]))
    places = corners @ pose[:3, :3].T + pose[:3, 3]
    frame = PathTracer(mesh, [black, black], {"sky": white}, 0.1).frame(places, camera, spp=64, seed=1)
    hidden = 1.0 - frame.mean(axis=-1)
    points = places @ along_x()[:3, :3] @ camera.K.T
    hull = ConvexHull(points[:, :2] / points[:, 2:])
    fine = (np.arange(64 * 8) + 0.5) / 8.0 - 0.5
    u, v = np.meshgrid(fine, fine)
    inside = np.all([a * u + b * v + c <= 0 for a, b, c in hull.equations], axis=0).astype(float)
    assert inside.sum() / 64 > 150
    y, x = np.mgrid[:64, :64]
    for grid, exact in ((x, u), (y, v)):
        assert (hidden * grid).sum() / hidden.sum() == pytest.approx((inside * exact).sum() / inside.sum(), abs=0.03)
    assert hidden.sum() == pytest.approx(inside.sum() / 64, rel=0.01)


@pytest.mark.mitsuba
@needs_llvm
def test_a_path_traced_texture_is_where_its_corners_are() -> None:
    """A square before the camera with an image of its own: every quarter has its colour, none is mirrored or dark."""
    from experiments.path_tracer import PathTracer, surfaces

    # Seen along x, left is +y: the image's left and top corner is at +y, +z.
    corners = np.array([[1.0, 0.1, -0.1], [1.0, -0.1, -0.1], [1.0, -0.1, 0.1], [1.0, 0.1, 0.1]])
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    uv = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])[faces]
    bytes_ = np.array([[[250, 40, 40], [40, 250, 40]], [[40, 40, 250], [128, 128, 128]]], np.uint8)
    image = np.repeat(np.repeat(bytes_, 16, 0), 16, 1)
    texture = Texture((image,), np.zeros(2, np.int64), uv, np.ones((2, 3, 3)))
    mesh = Mesh(corners, faces, np.zeros(2, np.int64), texture=texture)
    (surface,) = surfaces(mesh)
    material = {"type": "diffuse", "reflectance": surface.color}
    sky = {"type": "constant", "radiance": {"type": "rgb", "value": [1.0, 1.0, 1.0]}}
    K = np.array([[320.0, 0.0, 31.5], [0.0, 320.0, 31.5], [0.0, 0.0, 1.0]])
    camera = Camera(K, 64, 64, camera_to_world=along_x())
    frame = PathTracer(mesh, [material], {"sky": sky}, 0.1).frame(corners, camera, spp=32, seed=1)
    linear = ((bytes_ / 255.0 + 0.055) / 1.055) ** 2.4  # sRGB, IEC 61966-2-1, above its linear piece
    for i in range(2):
        for j in range(2):
            seen = frame[32 * i + 8 : 32 * i + 24, 32 * j + 8 : 32 * j + 24].mean(axis=(0, 1))
            assert seen == pytest.approx(linear[i, j], rel=0.03)  # a white sky lights it as white does


@pytest.mark.slow
@pytest.mark.mitsuba
@needs_llvm
@pytest.mark.parametrize("name", ["cube-plain", "cube", "hand"])
def test_both_tables_are_made_and_go_on_from_what_is_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With far too little training; the second time everything is there already."""
    paper = Recipe("state@w8", "error-gradient", 1.0, 64, 1, view_size=48)
    tiny = {"paper": paper, "ours": Recipe("keypoint@w8", "error-gradient", 1.0, 64, 1)}
    monkeypatch.setattr(risp_table1, "recipes", lambda quick: tiny)
    monkeypatch.setattr(risp_fig6a, "recipes", lambda quick: {("paper", "1"): replace(paper, appearances=1)})
    monkeypatch.setattr("experiments.methods.QUICK_RENDERS", 64)
    options: dict[str, Any] = {"quick": True, "bodies": (name,), "work": tmp_path / "work", "quiet": True}
    first = reproduce("risp-table1", out=tmp_path / "a", **options)
    assert [path.suffix for path in first] == [".json", ".md", ".png"]
    rows = [r for r in json.loads(first[0].read_text())["rows"] if r["system"] == name]
    assert {r["method"] for r in rows} == {"average", "random", "paper", risp_table1.KNOWN_PLACE, "ours"}
    assert all(np.isfinite(r["value"]) for r in rows if r["n"] != 0)
    learnt = [r for r in rows if r["method"] == risp_table1.KNOWN_PLACE and "seconds" in r]
    assert all(r["images_seen"] > 0 and not r["converged"] for r in learnt)
    found = [r["found_share"] for r in rows if "found_share" in r]
    assert found
    assert min(found) > 0.5
    weights = {p: p.read_bytes() for p in (tmp_path / "work").rglob("*.checkpoint.safetensors")}
    again = json.loads(reproduce("risp-table1", out=tmp_path / "b", **options)[0].read_text())["rows"]
    assert [r for r in again if r["system"] == name] == rows
    assert weights == {p: p.read_bytes() for p in (tmp_path / "work").rglob("*.checkpoint.safetensors")}
    figure = json.loads(reproduce("risp-fig6a", out=tmp_path / "a", **options)[0].read_text())["rows"]
    curve = [r for r in figure if r["system"] == name and "epoch" in r]
    assert [(r["epoch"], r["looks"]) for r in curve] == [(1, "1")]
    assert 0.0 < curve[0]["value"] < 10.0
