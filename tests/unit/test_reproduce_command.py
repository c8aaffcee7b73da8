"""The user's command as a method of tables: what it is given, and how its results become rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import result_cache, weights
from experiments.bodies import entries
from experiments.by_identify import Clip
from experiments.experiments import Experiment, unknown_of
from experiments.filling import Form, fill
from experiments.footage import Footage
from experiments.identification import COMMAND, KNOWN_START, Case, Outcome, identify, versions
from experiments.risp_table2 import METHODS, Bench
from experiments.table import Setting, markdown, row
from experiments.weights import source_for
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.errors import InputError, SimulationError, UsageError
from vid2phys.types import Estimate, Result, Status


def setting(tmp_path: Path) -> Setting:
    return Setting(True, tmp_path / "out", tmp_path / "work", TrainingProgress(quiet=True), ("cube",), (COMMAND,))


def case(name: str, start: list[float], tmp_path: Path, frames: int = 10) -> Case:
    """A case with black frames."""
    (entry,) = entries((name,))
    truth = np.full(len(unknown_of(name).names), unknown_of(name).truth)
    experiment = Experiment.of(entry, tmp_path, truth, frames)
    camera = experiment.camera
    black = np.zeros((len(experiment.shown), camera.height, camera.width, 3), np.uint8)
    return Case(experiment, Footage(black, black[0]), np.array(start), 0)


def test_a_fit_begins_where_it_is_told_and_knows_the_rest(tmp_path: Path) -> None:
    told = case("cube-plain", [5.5], tmp_path)
    assert told.footage is not None
    clip = Clip.of(told.experiment, told.footage, None, told.start)
    parameters = clip.inputs.known.parameters
    assert clip.asked == parameters.free_names == ("k_e",)
    assert parameters["k_e"].value == pytest.approx(10.0**5.5 * 1e-3)
    assert clip.inputs.known.priors["k_e"][1] > 100.0  # of the logarithm: it says nothing
    truth = told.experiment.plan.parameters
    assert all(parameters[name].value == truth[name].value for name in ("mass", "k_d", "k_f", "mu", "gravity"))
    assert clip.inputs.untrained is not None  # no model: it is tracked by its silhouette
    assert Clip.of(told.experiment, told.footage, None).asked == ()
    hand = case("hand", [0.5] * 5, tmp_path)
    assert hand.footage is not None
    by_silhouette = Clip.of(hand.experiment, hand.footage, None, hand.start).inputs
    assert by_silhouette.model is None
    assert by_silhouette.body is not None


def test_too_few_frames_are_refused_as_by_the_command(tmp_path: Path) -> None:
    told = case("quadrotor", [2.9], tmp_path)
    told = replace(told, experiment=replace(told.experiment, only=(0, 10)))
    assert told.footage is not None
    footage = replace(told.footage, frames=told.footage.frames[:2])
    with pytest.raises(InputError, match="the clip has 2 frames; expected at least 8"):
        identify(replace(told, footage=footage), COMMAND, None)


def test_what_the_command_states_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = case("cube-plain", [5.5], tmp_path)
    estimate = Estimate("k_e", "N/m", 1e3, (1e2, 1e4), True)
    result = Result(Status.DOUBTFUL, "", "rigid_contact", (estimate,), None, None, None, None, {})  # type: ignore[arg-type]
    monkeypatch.setattr(Clip, "solved", lambda self: result)
    outcome = identify(told, COMMAND, None)
    assert outcome.values == pytest.approx([6.0])
    assert outcome.ends == pytest.approx(np.array([[5.0, 7.0]]))
    assert (outcome.status, outcome.failure) == ("doubtful", None)

    lost = replace(result, status=Status.LOST, message="tracked in 1 of 11 frames")
    monkeypatch.setattr(Clip, "solved", lambda self: lost)
    outcome = identify(told, COMMAND, None)
    assert (outcome.failure, outcome.values.tolist(), outcome.status) == (lost.message, [5.5], None)

    def fail(_: Clip) -> Result:
        raise SimulationError("it explodes")

    monkeypatch.setattr(Clip, "solved", fail)
    assert identify(told, COMMAND, None).failure == "it explodes"


def outcome(value: float, half: float, status: str = "converged") -> Outcome:
    return Outcome(np.array([value]), 2.0, None, np.array([[value - half, value + half]]), status)


def test_shares_and_half_widths_are_counted(tmp_path: Path) -> None:
    (entry,) = entries(("quadrotor",))
    bench = Bench(entry, "random", setting(tmp_path))
    found = [
        outcome(3.1, 0.2),
        outcome(3.1, 0.05, "doubtful"),
        outcome(2.9, np.inf),
        Outcome(np.array([2.8]), 1.0, "no"),
    ]
    rows = bench.scored(COMMAND, found, [np.array([3.0])] * 4)
    mine: dict[str, dict[str, Any]] = {each["metric"]: each for each in rows}
    error = mine["mass_error_random_truth"]
    assert error["value"] == pytest.approx(0.125)
    assert error["half_width"] == pytest.approx(0.125)
    assert (error["told_nothing"], error["failed"]) == (1, 1)
    assert mine["held_share_random_truth"]["value"] == pytest.approx(2.0 / 3.0, rel=1e-4)
    assert mine["held_share_random_truth"]["n"] == 3
    assert mine["converged_share_random_truth"]["value"] == pytest.approx(0.5)
    assert mine["converged_share_random_truth"]["statuses"] == ["converged", "doubtful", "converged", "failed"]
    others = bench.scored("oracle", [Outcome(np.array([3.0]), 1.0)] * 4, [np.array([3.0])] * 4)
    assert {each["metric"] for each in others} == {"mass_error_random_truth"}


def test_a_half_width_stands_beside_its_value() -> None:
    rows = [row("rod", COMMAND, "log10_E_error", 0.0123, "1", half_width=0.045)]
    document = {"name": "t", "quick": False, "command": "c", "seconds": 1.0, "machine": "m", "rows": rows, "notes": []}
    assert "| rod | ours | 0.0123 +- 0.045 |" in markdown(document)


def test_the_command_takes_a_shipped_model_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_cache, "MODEL_PLACES", (tmp_path / "models",))
    (entry,) = entries(("rod",))
    here = replace(setting(tmp_path), quick=False)
    assert source_for(COMMAND, entry, here) == weights.Source(None)
    assert weights.load(weights.Source(None), None, here) is None  # type: ignore[arg-type]
    folder = tmp_path / "models" / "rod"
    folder.mkdir(parents=True)
    (folder / "fine.safetensors").touch()
    assert source_for(COMMAND, entry, here).folder == folder
    known = source_for(KNOWN_START, entry, here)
    assert known.folder == folder
    assert known == source_for("perceptual", entry, here)
    assert METHODS.index(KNOWN_START) + 1 == METHODS.index(COMMAND)


def test_a_refusal_of_the_command_is_the_reason_of_an_empty_cell(tmp_path: Path) -> None:
    def refuse(*_: object) -> Any:
        raise UsageError("--fit k_e with something else")

    form = Form(
        *("risp-table2", (COMMAND,), ("paper",), versions(7, 1), [], refuse),
        metric=lambda cell: "log10_k_n_error",
        draw=lambda rows, path: None,
        label_key="truth",
        source=source_for,
    )
    (empty,) = fill(form, setting(tmp_path)).rows
    assert empty["value"] is None
    assert empty["reason"] == "--fit k_e with something else"
