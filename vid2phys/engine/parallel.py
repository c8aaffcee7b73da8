"""Threads while a clip is tracked: networks on one each, frames that do not depend on each other side by side."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from vid2phys.engine.threads import blas_on_one_thread

_MOST_THREADS = 4  # Python itself runs in one at a time

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run networks and matrices on one thread: ones as small as ours, on as few images as tracking reads at once, are
    slower on two.

    As a decorator, too. On two cores the sample is tracked at 26 instead of 15 frames a second; threads of BLAS that
    wait for work took a fourth of a frame's time.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with blas_on_one_thread():
            yield
    finally:
        torch.set_num_threads(before)


def side_by_side(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield what a function makes of items, in their order, in threads; at most as many items as threads are taken
    ahead.

    For functions that spend their time in compiled loops, which other threads do not wait for; a network in them runs
    on one thread.
    """
    import torch

    count = min(_threads_allowed(), _MOST_THREADS)
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _threads_allowed() -> int:
    """Return OMP_NUM_THREADS where it is set, as a batch sets it for clips that share the cores; else one a core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else os.cpu_count() or 1
