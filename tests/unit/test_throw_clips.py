"""The table of friction and restitution from clips: which clips count, and what their rows say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import throw_clips

FRICTION, RESTITUTION = {"mu": 0.35}, {"value": 0.4}


def clip_of(folder: Path, **facts: Any) -> Path:
    folder.mkdir()
    (folder / "truth.json").write_text(json.dumps(facts))
    return folder


def test_clips_without_both_values_do_not_count(tmp_path: Path) -> None:
    thrown = clip_of(tmp_path / "a", friction=FRICTION, restitution=RESTITUTION)
    assert throw_clips.truth(thrown) == {"friction": FRICTION, "restitution": RESTITUTION}
    for name, facts in {"b": {"friction": FRICTION}, "c": {"friction": None, "restitution": RESTITUTION}}.items():
        assert throw_clips.truth(clip_of(tmp_path / name, **facts)) is None
    (tmp_path / "d").mkdir()
    assert throw_clips.truth(tmp_path / "d") is None


def test_the_readout_of_the_truth_is_given_to_the_command(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"friction": FRICTION, "restitution": RESTITUTION}
    plain = throw_clips.configuration(tmp_path, facts | {"rolling_shutter": None}, tmp_path / "run")
    rolling = throw_clips.configuration(tmp_path, facts | {"rolling_shutter": {"readout_s": 0.015}}, tmp_path / "run")
    assert (plain.readout, rolling.readout) == (None, 0.015)
    assert plain.fit == ("mu", "restitution")
    assert plain.model == Path("none")


def test_a_row_says_what_a_kept_run_found(tmp_path: Path) -> None:
    folder = clip_of(tmp_path / "box", friction=FRICTION, restitution=RESTITUTION)
    found = {"value": 0.3412, "ci95": [0.3194, 0.3642], "identifiable": True}
    run = tmp_path / "run"
    run.mkdir()
    parameters = {"mu": found, "restitution": {"value": 0.0, "ci95": [None, None], "identifiable": False}}
    (run / "result.json").write_text(json.dumps({"parameters": parameters, "status": "converged"}))
    true = throw_clips.truth(folder)
    assert true is not None
    cells = throw_clips.row(folder, true, run)
    assert cells == ["box", "0.35", "0.341 (0.319 to 0.364)", "0.4", "not identifiable", "converged", ""]
    (run / "result.json").write_text(json.dumps({"parameters": {}, "status": "lost"}))
    assert throw_clips.row(folder, true, run)[2:] == ["", "0.4", "", "lost", ""]


def test_a_refused_clip_has_its_message(tmp_path: Path) -> None:
    folder = clip_of(tmp_path / "box", friction=FRICTION, restitution=RESTITUTION)
    cells = throw_clips.row(folder, {"friction": FRICTION, "restitution": RESTITUTION}, tmp_path / "run")
    assert cells[1:5] == ["", "", "", ""]
    assert str(tmp_path) in cells[5]
