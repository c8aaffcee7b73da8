"""The clips and tables of the sweep, and the meshes that no tracker has met."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import identify, sweep
from benchmarks.clips import fields
from benchmarks.clips.bodies import build
from benchmarks.clips.new_meshes import NEW_MESHES
from benchmarks.identify import Row
from benchmarks.sweep_clips import BODIES, HEIGHT, WIDTH, Cell, make
from vid2phys.io.video import read_clip

_PLAIN = Cell(noise=0.0, patches=0, fps=30.0)
_BOX = BODIES["box"]


def _moving(folder: Path) -> np.ndarray:
    """Return where each frame differs from the median of all frames, [T, H, W]."""
    frames = np.stack(list(read_clip(folder / "clip.mp4").frames)).astype(float)
    return np.abs(frames - np.median(frames, axis=0)).max(axis=-1) > 20.0


def _longer_sides(moving: np.ndarray) -> np.ndarray:
    sides = []
    for mask in moving:
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        sides.append(max(np.ptp(rows), np.ptp(columns)) + 1)
    return np.array(sides)


@pytest.mark.parametrize(("body", "size_px"), [("box", 30.0), ("l_shape", 150.0)])
def test_a_body_has_the_size_that_its_cell_asks_for(body: str, size_px: float, tmp_path: Path) -> None:
    make(replace(_PLAIN, size_px=size_px), BODIES[body], tmp_path / "clip")
    assert _longer_sides(_moving(tmp_path / "clip")).mean() == pytest.approx(size_px, rel=0.03, abs=1.5)


@pytest.mark.slow
def test_blur_makes_the_body_longer_along_its_path(tmp_path: Path) -> None:
    make(_PLAIN, _BOX, tmp_path / "sharp")
    make(replace(_PLAIN, blur_px=16.0), _BOX, tmp_path / "blurred")
    sharp, blurred = (_moving(tmp_path / name).sum(axis=(1, 2)).mean() for name in ("sharp", "blurred"))
    assert 1.05 * sharp < blurred < 1.6 * sharp  # 16 px over a body of some 60 px


def test_more_blur_than_motion_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most the path in one frame"):
        make(replace(_PLAIN, blur_px=100.0), _BOX, tmp_path / "clip")


@pytest.mark.slow
def test_bars_cover_their_share(tmp_path: Path) -> None:
    make(_PLAIN, _BOX, tmp_path / "free")
    make(replace(_PLAIN, covered=0.5), _BOX, tmp_path / "covered")
    free, covered = (_moving(tmp_path / name).sum() for name in ("free", "covered"))
    assert covered / free == pytest.approx(0.5, abs=0.06)


def test_every_cell_of_the_sweep_can_be_made() -> None:
    for cells in sweep.AXES.values():
        for cell in cells.values():
            assert cell.size_px <= HEIGHT - 100 < WIDTH
            assert 0.0 <= cell.covered < 1.0


def test_the_table_marks_what_is_wrong_and_not_noticed() -> None:
    run = sweep.Run("size", "15 px", "box")
    rows = [Row(run.name, "within_5cm_5deg_fraction", 0.2, "1"), Row(run.name, "lateral_rmse_m", 0.004, "m")]
    wrong = sweep.markdown([*rows, Row(run.name, "status", None, "", "converged")], [run])
    assert wrong.splitlines()[-1] == "| size 15 px | 20% | 4.0 mm | converged (!) |"
    noticed = sweep.markdown([*rows, Row(run.name, "status", None, "", "doubtful")], [run])
    assert noticed.splitlines()[-1].endswith("| doubtful |")


def test_failures_are_the_cases_below_their_share() -> None:
    rows = [Row("a", "within_5cm_5deg_fraction", 0.96, "1"), Row("b", "within_5cm_5deg_fraction", 0.5, "1")]
    rows += [Row(name, "status", None, "", "converged") for name in "ab"]
    assert identify.failures(rows) == {"b": "b: 50% of the frames; converged"}
    table = identify.markdown(rows, identify.UNTRAINED)
    assert "| converged |" in table.splitlines()[-1]


@pytest.mark.parametrize("shape", [fields.gear, fields.bracket, fields.shoe, fields.knot, fields.figure])
def test_a_mesh_of_a_field_is_closed(shape) -> None:
    size = {"gear": (0.1, 0.03, 11.0), "knot": (0.15, 0.03)}.get(shape.__name__, (0.15,))
    mesh = shape(*size, 50.0)
    assert mesh.is_watertight
    assert mesh.volume > 0.0
    assert mesh.extents.max() == pytest.approx(size[0], rel=0.1)


def test_a_sphere_of_a_field_has_the_volume_of_a_sphere() -> None:
    mesh = fields.surface(lambda p: np.linalg.norm(p, axis=-1) - 0.05, -np.full(3, 0.05), np.full(3, 0.05), 60.0)
    assert mesh.volume == pytest.approx(4.0 / 3.0 * np.pi * 0.05**3, rel=0.01)


def test_ten_new_meshes_have_a_thousand_faces_or_more() -> None:
    quick = [build(spec.body) for spec in NEW_MESHES.values() if spec.body.shape not in ("figure", "knot")]
    assert len(NEW_MESHES) == 10
    assert min(len(solid.faces) for solid in quick) >= 1000
