"""gradSim's tables: truths and starts are what they say, cells fill tables, images of landscapes are described."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import available, gradsim_table1, gradsim_table2, reproduce
from experiments.gradsim.filmed import by_states, in_parts
from experiments.gradsim.pushed import DENSITIES, mass_of, name_of, pushed, volume_of
from experiments.gradsim.result_cache import rng_of
from experiments.gradsim.sliding import RANGES, sliding
from experiments.gradsim.smoothing import roughness
from experiments.gradsim.soft import SPREAD, cloth, varying
from experiments.gradsim_landscapes import described
from experiments.table import Setting
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.errors import UsageError


def test_experiments_are_found_by_their_files() -> None:
    wanted = {f"gradsim-{name}" for name in ("table1", "table2", "table3", "landscapes", "timing", "shading")}
    assert wanted <= set(available())


def test_pushed_bodies(tmp_path: Path) -> None:
    setting = Setting(True, tmp_path, tmp_path, TrainingProgress(quiet=True))
    body = pushed(rng_of(setting, 1, 5), name_of(5), size_px=16)
    assert mass_of(rng_of(setting, 1, 5), name_of(5)) == pytest.approx(body.truth[0] * volume_of(name_of(5)))
    assert DENSITIES[0] <= body.truth[0] <= DENSITIES[1]
    controls = body.inputs(torch.from_numpy(body.truth))[1]
    assert float(controls[3:].abs().max()) == 0.0
    impulse = controls[:, :3].sum(0).numpy() / 60.0
    states = body.shot.states(*body.inputs(torch.from_numpy(body.truth))).numpy()
    mass = body.truth[0] * volume_of(name_of(5))
    np.testing.assert_allclose(states[-1, 7:10], impulse / mass, rtol=1e-9)  # nothing else acts
    heavier = body.roll(np.array([body.true_free, body.true_free + np.log(2.0)]))
    off = heavier[:, -1, :3] - states[0, :3]
    np.testing.assert_allclose(off[1], 0.5 * off[0], rtol=1e-9)
    assert body.errors(2.0 * body.truth) == {"density": 1.0}


def test_sliding_bodies_bounce_and_slow_down() -> None:
    body = sliding(np.random.default_rng(0))
    assert body.unknown.names == tuple(RANGES)
    ratio = np.array([p.value for p in body.unknown]) / body.truth
    assert (np.abs(np.log(ratio)) <= np.log(1.5)).all()
    states = body.shot.states(*body.inputs(torch.from_numpy(body.truth))).numpy()
    assert states[:, 9].max() > 0.05  # up again
    assert states[:, 7].max() > 0.3
    assert abs(states[-1, 7]) < 0.6 * states[:, 7].max()


def test_particles_are_judged_together() -> None:
    sheet = cloth(np.random.default_rng(0), cells=2, frames=2, size_px=16)
    assert sheet.errors(1.5 * sheet.truth) == {"velocity": pytest.approx(0.5)}
    factors = varying(np.random.default_rng(1), np.random.default_rng(2).uniform(size=(50, 3)))
    assert np.abs(factors - 1.0).max() <= SPREAD
    assert np.ptp(factors) > 0.3 * SPREAD


def test_smooth_steps_find_what_every_particle_has() -> None:
    sheet = cloth(np.random.default_rng(5), cells=3, frames=5, size_px=16)
    how: dict[str, Any] = {"rate": 0.1, "iterations": 30, "optimizer": "lbfgs"}
    smooth, rough = (by_states(each, **how).values for each in (sheet, replace(sheet, smoothing=None)))
    assert sheet.errors(smooth)["velocity"] < 0.1
    assert sheet.errors(rough)["velocity"] > 0.2


def test_first_frames_lead_on_to_all() -> None:
    sheet = cloth(np.random.default_rng(5), cells=3, frames=5, size_px=16)
    truth = torch.from_numpy(sheet.true_free)
    first = sheet.shortened(3)
    assert torch.equal(first.images(truth), sheet.images(truth)[:3])
    assert len(first.target.images) == 3
    how: dict[str, Any] = {"rate": 0.1, "iterations": 12, "optimizer": "lbfgs"}
    at_once, led = (in_parts(by_states, sheet, parts, **how) for parts in ((), ((3, 20),)))
    assert led.losses[0] < 0.1 * at_once.losses[0]  # it begins where the first frames led
    assert led.loss <= led.losses[0]
    assert sheet.errors(led.values)["velocity"] < sheet.errors(at_once.values)["velocity"]


def test_smoothing_leaves_what_is_even_and_calms_what_is_not() -> None:
    points, cells = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]), np.array([[0, 1, 2], [0, 2, 3]])
    rough = roughness(points, cells, 0.5)
    np.testing.assert_allclose(rough @ np.ones(4), 1.0)
    np.testing.assert_allclose(rough, rough.T)
    across = np.array([1.0, -1.0, 1.0, -1.0])  # its four sides have a difference of 2 each, its diagonal none
    np.testing.assert_allclose(rough @ across, (1.0 + 0.25 * 4.0) * across)


@pytest.mark.parametrize("module", [gradsim_table1, gradsim_table2])
def test_a_table_says_what_is_not_run(module: object, tmp_path: Path) -> None:
    name = module.NAME  # type: ignore[attr-defined]
    files = reproduce(name, quick=True, methods=("random",), out=tmp_path, work=tmp_path / "work", quiet=True)
    assert [path.suffix for path in files] == [".json", ".md", ".png"]
    table = json.loads(files[0].read_text())
    assert table["quick"]
    by_method = {row["method"]: row for row in table["rows"] if row["metric"] == "mass_error"}
    assert by_method["random"]["value"] > 0.0
    assert by_method["pixel"]["value"] is None
    assert by_method["pixel"]["paper"] in (9.0e-5, 2.9e-4)
    assert any("contact, pixel" in note or "rigid, pixel" in note for note in table["notes"])
    assert "fewer" not in files[1].read_text().split("\n")[2]
    assert "objects instead of 200" in files[1].read_text()
    with pytest.raises(UsageError, match="unknown body 'quadrotor'"):
        reproduce(name, bodies=("quadrotor",), out=tmp_path, work=tmp_path, quiet=True)


def test_landscapes_are_described() -> None:
    line = np.array([4.0, 2.0, 3.0, 1.0, 0.0, 1.0, 2.0, 1.9, 4.0])
    assert described({"losses": line.tolist()}) == {"minima": 3.0, "basin": pytest.approx(5 / 9)}
    x, y = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 5), indexing="ij")
    valley = described({"losses": (x**2 + 0.04 * y**2).tolist()})
    assert valley["minima"] == 1.0
    assert valley["basin"] == 1.0
    assert valley["flatness"] == pytest.approx(0.04 / 1.04)
