"""Warp, started quietly: the one place that imports it, so that nothing it says reaches a user's stdout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import warp as wp

__all__ = ["wp"]


@contextmanager
def _stderr_muted() -> Iterator[None]:
    """Return the mute the process's stderr: Warp's native start-up warns there of a missing CUDA driver whatever its
    log level.
    """
    saved, sink = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(sink)


def _start() -> None:
    vars(wp.config)["quiet"] = True  # what older versions of Warp read instead of log_level
    wp.config.log_level = getattr(wp, "LOG_WARNING", 30)
    with _stderr_muted():
        wp.init()


_start()
