"""The ablation of the randomisation: what its networks are trained on, and how they are compared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments import risp_ablation
from experiments.body_adapter import Score
from experiments.methods import RENDERS, Recipe, render_plan
from experiments.risp_ablation import METHODS, recipe
from experiments.table import Setting, row
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.risp.appearance.randomisation import Randomisation


@dataclass(frozen=True)
class Trained:
    without: tuple[str, ...]
    history: list[dict[str, float]]


def setting(folder: Path, **more: Any) -> Setting:
    return Setting(False, folder / "out", folder / "work", TrainingProgress(quiet=True), **more)


def test_every_switch_has_its_training() -> None:
    assert len(METHODS) == 1 + len(fields(Randomisation))
    assert len({recipe(method, quick=False).digest for method in METHODS}) == len(METHODS)
    assert Randomisation.without(recipe("without shadows", quick=False).without).off == ("shadows",)


def test_weights_without_an_ablation_keep_their_names() -> None:
    plain = Recipe("keypoint", "error-gradient", 1.0, 12_000, 12)
    newer = {"without", "appearances"}
    older = {name: value for name, value in asdict(plain).items() if name not in newer}
    older |= {"looks": plain.appearances, "optimizer": "muon"}
    assert plain.digest == hashlib.sha256(json.dumps(older, sort_keys=True).encode()).hexdigest()[:12]


def test_renders_are_made_again_only_for_what_shows_in_them(tmp_path: Path) -> None:
    adapter: Any = SimpleNamespace(name="cube")
    here = setting(tmp_path)
    shadows, sky = (recipe(f"without {name}", quick=False) for name in ("shadows", "environments"))
    assert render_plan(adapter, here, shadows).data == here.work / "cube" / "data-3000-0-0"
    assert render_plan(adapter, here, sky).data == here.work / "cube" / "data-3000-0-0-environments"
    (here.work / "cube" / f"data-{RENDERS}-0-0").mkdir(parents=True)  # of table 1: its first renders are the same
    plan = render_plan(adapter, here, shadows)
    assert (plan.made, plan.samples, plan.data.name) == (RENDERS, 3_000, f"data-{RENDERS}-0-0")
    assert render_plan(adapter, here, sky).made == 3_000


def test_change_is_that_of_the_same_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = {(): np.array([0.1, 0.2, 0.6]), ("noise",): np.array([0.2, 0.4, 0.6])}
    monkeypatch.setattr(risp_ablation, "train", lambda adapter, how, setting: Trained(how.without, [{"px": 2.5}]))
    monkeypatch.setattr(risp_ablation, "effort", lambda adapter, trained: {"images_seen": 7})

    class Fake:
        name = "cube"

        def model(self, trained: Trained) -> tuple[str, ...]:
            return trained.without

        def estimate_by_keypoints(self, model: Any, frames: Any, seed: int, *, edges: bool) -> Any:
            assert not edges
            return model

        def scores(self, estimates: Any, frames: Any) -> dict[str, Score]:
            return {"state_error": Score(errors[estimates], "1")}

    fake: Any = Fake()
    rows = risp_ablation._JudgedBody(fake, fake, setting(tmp_path)).rows("without noise")
    found = {row["metric"]: row for row in rows}
    assert found["held_out_px"]["value"] == 2.5
    assert found["held_out_px"]["images_seen"] == 7
    assert found["change"]["value"] == pytest.approx(0.1)
    assert found["change"]["std"] == pytest.approx(np.std([0.1, 0.2, 0.0]) / 3**0.5, abs=1e-6)
    assert "change" not in {
        row["metric"] for row in risp_ablation._JudgedBody(fake, fake, setting(tmp_path)).rows("all")
    }


def test_a_image_of_no_rows_and_of_some(tmp_path: Path) -> None:
    for count, rows in enumerate(([], [row("cube", "without noise", "change", 0.1, "1", std=0.02)])):
        risp_ablation.draw(rows, tmp_path / f"{count}.png")
        assert (tmp_path / f"{count}.png").read_bytes().startswith(b"\x89PNG")
