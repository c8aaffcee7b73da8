"""Notes to the reader of a result, each with its severity; the most serious one is printed first.

A `Note` is a string, so that it goes into files and messages as it is. A plain string counts as information.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Severity(IntEnum):
    """How serious a note is; lower values are more serious."""

    DOUBT = 0  # the result is probably not of the object: the run ends as `doubtful`
    WARNING = 1  # a value or an interval may be wrong
    INFORMATION = 2  # what was assumed or left out


class Note(str):
    """A sentence for the reader of a result, with its severity."""

    __slots__ = ("severity",)
    severity: Severity

    def __new__(cls, text: str, severity: Severity = Severity.INFORMATION) -> Note:
        """Return a note with this text."""
        note = super().__new__(cls, text)
        note.severity = severity
        return note


def doubt(text: str) -> Note:
    """Return a note that makes the whole result doubtful."""
    return Note(text, Severity.DOUBT)


def warning(text: str) -> Note:
    """Return a note that a value or an interval may be wrong."""
    return Note(text, Severity.WARNING)


def severity_of(note: str) -> Severity:
    """Return the severity of a note; a plain string is information."""
    return note.severity if isinstance(note, Note) else Severity.INFORMATION


def ordered(notes: Iterable[str]) -> list[str]:
    """Return the notes without repetitions, the most serious first, otherwise in the order given."""
    return sorted(dict.fromkeys(notes), key=severity_of)


def is_doubtful(notes: Iterable[str]) -> bool:
    """Return whether any note makes the result doubtful."""
    return any(severity_of(note) is Severity.DOUBT for note in notes)
