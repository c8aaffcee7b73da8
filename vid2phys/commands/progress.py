"""How a task says what it is doing: a callable that a task calls and a caller may leave out.

    progress("reading frames", 12, 144)

The text names the stage, then what is done and how much there is (0: unknown). Everything goes to stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Called by tasks as `progress(stage, done, total)`; total is 0 when it is not known."""

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Say that `done` of `total` steps of a stage are over."""


def silent(stage: str, done: int = 0, total: int = 0) -> None:
    """Say nothing."""


def of_clip(clip: int, clips: int, progress: Progress) -> Progress:
    """Return progress that names the clip (from 0) before the stage; as it is for a single clip."""
    if clips == 1:
        return progress

    def named(stage: str, done: int = 0, total: int = 0) -> None:
        progress(f"clip {clip + 1} of {clips}: {stage}", done, total)

    return named


class _Lines:
    """One line a stage, for logs and pipes: no spinner, no colour.

    The first stage is said when the second begins, so that bad input ends in its one line and nothing else.
    """

    def __init__(self) -> None:
        self._stage, self._waiting = "", ""
        self._start = time.monotonic()

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        if stage == self._stage:
            return
        line = f"[{time.monotonic() - self._start:5.1f} s] {stage}\n"
        if not self._stage:
            self._waiting = line
        else:
            sys.stderr.write(self._waiting + line)
            sys.stderr.flush()
            self._waiting = ""
        self._stage = stage


@contextmanager
def show_progress(quiet: bool = False) -> Iterator[Progress]:
    """A progress display on stderr: a bar on a terminal, one line a stage elsewhere, nothing when quiet."""
    if quiet:
        yield silent
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=None)

        def report(stage: str, done: int = 0, total: int = 0) -> None:
            bars.update(task, description=stage, completed=done, total=total or None)

        yield report
