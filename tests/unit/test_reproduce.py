"""The harness of the papers' tables: frames, scores and files are what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.risp_synthetic import square_body
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.errors import UsageError
from vid2phys.io.photographs import photograph_names
from vid2phys.reproduce import available, reproduce, risp_fig6a, risp_table1
from vid2phys.reproduce.bodies import Body, Missing, bodies
from vid2phys.reproduce.methods import Learnt, Recipe, _read_numbers, at_plausible_place, is_flat
from vid2phys.reproduce.stage import _PIECE_PX, Frames, _piece, half_range_m, middle_m, radius_m, sample_poses
from vid2phys.reproduce.table import Setting, Table, markdown, row
from vid2phys.reproduce.unseen import CONFIGURATIONS, PHOTOGRAPHS, photograph
from vid2phys.risp.shape.symmetry import find_symmetry
from vid2phys.risp.training.recipes import body_of
from vid2phys.rotations import make_transform, matrix_from_rotvec
from vid2phys.tasks.training_progress import TrainingProgress
from vid2phys.types import Array, Camera, Mesh


def cube() -> Body:
    body = bodies(("cube-plain",))[0]
    assert isinstance(body, Body)
    return body


def frames_of(body: Body, poses: Array) -> Frames:
    pieces = np.zeros((len(poses), _PIECE_PX, _PIECE_PX, 3), np.uint8)
    return Frames(pieces, [_piece(p) for p in poses], poses, np.arange(len(poses)) % len(CONFIGURATIONS))


def setting(out: Path, *, quick: bool = False) -> Setting:
    return Setting(quick, out, out / "work", TrainingProgress(quiet=True))


def test_the_looks_are_held_out_from_training() -> None:
    held_out = {name for names in PHOTOGRAPHS.values() for name in names}
    assert not held_out & set(photograph_names())
    for name in held_out:
        picture = photograph(name)
        assert picture.ndim == 3
        assert 0.0 <= picture.min() < picture.max() <= 1.0
    assert len({c.name for c in CONFIGURATIONS}) == 4
    for look in CONFIGURATIONS:
        assert look.materials(3) == look.materials(5)[:3]  # the same for every frame


def test_a_piece_has_the_frames_own_perspective() -> None:
    body = cube()
    poses = sample_poses(body, np.random.default_rng(0), 200)
    offset = (poses[:, :3, 3] - middle_m() * radius_m(body)) / half_range_m(body)
    assert np.abs(offset).max() <= 1.0
    assert np.abs(offset).max(axis=0).min() > 0.95  # the range is used to its ends
    for pose in poses[:20]:
        camera = _piece(pose)
        assert camera.camera_to_world is not None
        place = camera.K @ camera.camera_to_world[:3, :3].T @ pose[:3, 3]
        assert np.abs(place[:2] / place[2] - 0.5 * (_PIECE_PX - 1)).max() <= 0.5
        shift = camera.K[:2, 2] - [319.5, 239.5]
        assert np.allclose(shift, np.round(shift))  # whole pixels: the frame's own grid
        left, up = (
            camera.camera_to_world[:3, :3].T @ [0.0, 1.0, 0.0],
            camera.camera_to_world[:3, :3].T @ [0.0, 0.0, 1.0],
        )
        assert np.allclose(left, [-1.0, 0.0, 0.0])
        assert np.allclose(up, [0.0, -1.0, 0.0])


def values(rows: list[dict[str, Any]], metric: str) -> float:
    return float(next(r["value"] for r in rows if r["metric"] == metric and "configuration" not in r))


def test_truth_has_no_error_and_a_known_error_is_found() -> None:
    quad = bodies(("quadrotor",))[0]
    assert isinstance(quad, Body)
    poses = sample_poses(quad, np.random.default_rng(1), 8)
    frames = frames_of(quad, poses)
    exact = risp_table1._score(quad, "ours", risp_table1._vectors(quad, poses), frames, poses)
    assert all(r["value"] < 1e-5 for r in exact)
    moved = poses.copy()
    moved[:, 0, 3] += 0.1 * half_range_m(quad)[0]
    shifted = risp_table1._score(quad, "ours", risp_table1._vectors(quad, moved), frames, moved)
    assert values(shifted, "state_error") == pytest.approx(0.1 / 9, rel=1e-4)
    assert values(shifted, "position_mm") == pytest.approx(1e3 * 0.1 * half_range_m(quad)[0], rel=1e-4)
    assert 0.0 < values(shifted, "points_px") < 5.0
    turned = poses.copy()
    turned[:, :3, :3] = poses[:, :3, :3] @ matrix_from_rotvec(np.array([0.0, 0.0, 0.5 * np.pi]))
    quarter = risp_table1._score(quad, "ours", risp_table1._vectors(quad, turned), frames, turned)
    assert values(quarter, "rotation_deg") == pytest.approx(90.0)
    assert values(quarter, "rotation_deg_up_to_symmetry") < 1e-3
    assert values(quarter, "state_error") > 0.05
    assert values(quarter, "state_error_up_to_symmetry") < 1e-6


def test_a_plain_cube_is_scored_up_to_symmetry_alone() -> None:
    body = cube()
    poses = sample_poses(body, np.random.default_rng(1), 4)
    rows = risp_table1._score(body, "paper", risp_table1._vectors(body, poses), frames_of(body, poses), poses)
    metrics = {r["metric"] for r in rows}
    assert "state_error" not in metrics
    assert "rotation_deg" not in metrics
    assert next(r for r in rows if r["metric"] == "state_error_up_to_symmetry")["paper"] == 0.16


def test_turns_about_a_point_aside_of_the_origin_are_no_error() -> None:
    """The body of a table may lie anywhere in its own axes: turning it about its middle moves its origin."""
    plain = cube()
    mesh = replace(plain.mesh, vertices=plain.mesh.vertices + np.array([0.01, -0.004, 0.006]))
    body = replace(plain, mesh=mesh)
    known = body_of(mesh, find_symmetry(mesh))
    poses = sample_poses(body, np.random.default_rng(1), 4)
    turned = poses @ known.turns[5]
    assert np.abs(turned[:, :3, 3] - poses[:, :3, 3]).max() > 1e-3
    rows = risp_table1._score(body, "ours", risp_table1._vectors(body, turned), frames_of(body, poses), turned)
    assert values(rows, "state_error_up_to_symmetry") < 1e-6
    assert values(rows, "points_px") < 1e-6


def test_numbers_read_in_a_view_become_a_pose_before_the_camera() -> None:
    from vid2phys.risp import heads
    from vid2phys.risp.renders.stream import StreamSettings
    from vid2phys.risp.tracking.view import make_view
    from vid2phys.risp.training.recipes import TrainingData

    head: Any = heads.get("state@w8", square_body(), radius_m=0.1, view_size=48)
    pictures = StreamSettings(Path(), square_body().points, 0.1, view_size=48)
    data = TrainingData(pictures, square_body(), 0, np.zeros(0, np.int64), 0)
    camera = _piece(make_transform(np.eye(3), np.array([1.5, 0.2, -0.1])))
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

    learnt = Learnt(Recipe("state@w8", "error-only", 0.0, 64, 1), head, Knows(), data, [], 0.0, 0, "")
    piece = np.zeros((_PIECE_PX, _PIECE_PX, 3), np.uint8)
    assert np.allclose(_read_numbers(learnt, camera, piece, center, radius), pose, atol=1e-9)


def test_a_flat_curve_and_others() -> None:
    assert is_flat([1.0, 0.5, 0.3, 0.2, 0.2, 0.2, 0.199, 0.2])
    assert not is_flat([1.0, 0.5, 0.3, 0.2, 0.19, 0.18, 0.15, 0.12])
    assert not is_flat([0.2, 0.2, 0.2])  # a few epochs say nothing


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


def test_a_quick_table_never_replaces_a_full_one(tmp_path: Path) -> None:
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
    other = tmp_path / "other"
    assert table.write(setting(other, quick=True))[0].name == "risp-table1.json"
    assert table.write(setting(other))[0].name == "risp-table1.json"


def test_bodies_without_a_model_are_in_the_table(tmp_path: Path) -> None:
    (hand,) = bodies(("hand",))
    assert isinstance(hand, Missing)
    files = reproduce("risp-table1", quick=True, bodies=("hand",), out=tmp_path, work=tmp_path / "work", quiet=True)
    rows = json.loads(files[0].read_text())["rows"]
    assert [r["method"] for r in rows] == list(risp_table1.METHODS)
    assert all(r["value"] is None and "rigid bodies" in r["reason"] for r in rows)


def test_the_curves_are_drawn(tmp_path: Path) -> None:
    rows = [
        row("quadrotor", method, "state_error", 0.3 / epoch, "1", looks=looks, epoch=epoch)
        for method in ("paper", "paper-no-grad", "ours", "ours-no-grad")
        for looks in risp_fig6a.LOOKS
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
    with pytest.raises(UsageError, match="unknown table 'table9'; expected one of risp-fig6a, risp-table1"):
        reproduce("table9", quiet=True)
    with pytest.raises(UsageError, match="unknown body 'kite'; expected one of cube"):
        reproduce("risp-table1", bodies=("kite",), quiet=True)


@pytest.mark.mitsuba
@pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine")
def test_path_traced_frames_are_where_opencv_has_them() -> None:
    """A black asymmetric body before a white sky: what is missing is the hull of its projected corners."""
    from scipy.spatial import ConvexHull

    from vid2phys.engine.render.pathtraced import PathTracer

    corners = np.array([[0.0, 0.0, 0.0], [0.09, 0.01, 0.0], [0.02, 0.06, 0.01], [-0.01, 0.015, 0.05]])
    faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    mesh = Mesh(corners, faces, np.array([0, 0, 1, 1]))
    black = {"type": "diffuse", "reflectance": {"type": "rgb", "value": [0.0, 0.0, 0.0]}}
    white = {"type": "constant", "radiance": {"type": "rgb", "value": [1.0, 1.0, 1.0]}}
    stand = _piece(make_transform(np.eye(3), np.array([1.0, 0.0, 0.0]))).camera_to_world
    K = np.array([[420.0, 0.0, 21.7], [0.0, 420.0, 40.2], [0.0, 0.0, 1.0]])
    camera = Camera(K, 64, 64, camera_to_world=stand)
    pose = make_transform(matrix_from_rotvec(np.array([0.3, -0.5, 0.8])), np.array([0.7, -0.01, 0.02]))
    frame = PathTracer(mesh, [black, black], {"sky": white}).frame(pose, camera, spp=64, seed=1)
    hidden = 1.0 - frame.mean(axis=-1)
    assert camera.camera_to_world is not None
    points = (corners @ pose[:3, :3].T + pose[:3, 3]) @ camera.camera_to_world[:3, :3] @ camera.K.T
    hull = ConvexHull(points[:, :2] / points[:, 2:])
    fine = (np.arange(64 * 8) + 0.5) / 8.0 - 0.5
    u, v = np.meshgrid(fine, fine)
    inside = np.all([a * u + b * v + c <= 0 for a, b, c in hull.equations], axis=0).astype(float)
    assert inside.sum() / 64 > 150
    y, x = np.mgrid[:64, :64]
    for grid, exact in ((x, u), (y, v)):
        assert (hidden * grid).sum() / hidden.sum() == pytest.approx((inside * exact).sum() / inside.sum(), abs=0.03)
    assert hidden.sum() == pytest.approx(inside.sum() / 64, rel=0.01)


@pytest.mark.slow
@pytest.mark.mitsuba
@pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine")
def test_both_tables_are_made_and_go_on_from_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With far too little training; the second time everything is there already."""
    tiny = {
        "paper": Recipe("state@w8", "error-gradient", 1.0, 64, 1),
        "ours": Recipe("keypoint@w8", "error-gradient", 1.0, 64, 1),
    }
    monkeypatch.setattr(risp_table1, "recipes", lambda quick: tiny)
    options: dict[str, Any] = {"quick": True, "bodies": ("cube-plain",), "work": tmp_path / "work", "quiet": True}
    first = reproduce("risp-table1", out=tmp_path / "a", **options)
    rows = json.loads(first[0].read_text())["rows"]
    assert {r["method"] for r in rows} == {"average", "random", *tiny}
    assert all(np.isfinite(r["value"]) for r in rows)
    assert all(r["images_seen"] > 0 and not r["converged"] for r in rows if r["method"] == "ours" and "seconds" in r)
    weights = {p: p.read_bytes() for p in (tmp_path / "work").rglob("*.checkpoint.safetensors")}
    again = json.loads(reproduce("risp-table1", out=tmp_path / "b", **options)[0].read_text())["rows"]
    assert again == rows
    assert weights == {p: p.read_bytes() for p in (tmp_path / "work").rglob("*.checkpoint.safetensors")}
