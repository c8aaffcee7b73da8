"""What training shows: a bar with the time left on a terminal, a line a minute elsewhere; each epoch's numbers stay."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LINE_EVERY_S = 60.0


class TrainingProgress:
    """Lines on stderr, or nothing when quiet; `_Bar` is the terminal's."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._stage, self._began, self._first, self._shown = "", 0.0, 0, 0.0

    def step(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` steps of a stage are over; the time left is counted from the first call of this stage."""
        now, kind = time.monotonic(), stage.split(",")[0]
        if kind != self._stage:
            self._stage, self._began, self._first, self._shown = kind, now, done, now - _LINE_EVERY_S + 5.0
        if now - self._shown >= _LINE_EVERY_S and done > self._first:
            self._shown = now
            left = (now - self._began) * (total - done) / (done - self._first)
            self.note(f"{stage}: {done} of {total}, {_duration(left)} left")

    def note(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class _Bar(TrainingProgress):
    def __init__(self, bars: Any) -> None:
        super().__init__()
        self._bars, self._task, self._kind = bars, None, ""

    def step(self, stage: str, done: int, total: int) -> None:
        if self._task is None or stage.split(",")[0] != self._kind:
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._kind, self._task = stage.split(",")[0], self._bars.add_task(stage, total=total, completed=done)
        self._bars.update(self._task, description=stage, completed=done, total=total)

    def note(self, text: str) -> None:
        self._bars.console.print(text, highlight=False)


@contextmanager
def show_training(quiet: bool = False) -> Iterator[TrainingProgress]:
    """A progress display on stderr for the length of a training."""
    if quiet or not sys.stderr.isatty():
        yield TrainingProgress(quiet)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield _Bar(bars)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
