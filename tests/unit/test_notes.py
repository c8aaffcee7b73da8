"""Notes: severity, order, and what the terminal shows of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.flight import fly
from tests.synthetic import noisy_result
from vid2phys.notes import Note, Severity, doubt, is_doubtful, ordered, severity_of, warning
from vid2phys.tasks.show import print_result


def test_the_most_serious_note_comes_first_and_nothing_is_repeated() -> None:
    notes = ordered(["assumed", warning("wide"), doubt("lost"), "assumed", warning("late")])
    assert notes == ["lost", "wide", "late", "assumed"]


def test_a_plain_string_is_information_and_a_note_is_written_as_its_text() -> None:
    assert severity_of("plain") is Severity.INFORMATION
    assert json.dumps([doubt("lost"), Note("said")]) == '["lost", "said"]'


def test_only_a_doubt_makes_a_result_doubtful() -> None:
    assert is_doubtful(["plain", doubt("lost")])
    assert not is_doubtful(["plain", warning("wide")])


def test_the_terminal_shows_the_notes_the_most_serious_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = ordered(["the mass is not known", warning("the model does not fit"), doubt("probably not seen")])
    result = noisy_result(fly())
    print_result(replace(result, diagnostics=result.diagnostics | {"notes": notes}), tmp_path)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("doubt", "warning", "note"))]
    assert lines == ["doubt: probably not seen", "warning: the model does not fit", "note: the mass is not known"]
