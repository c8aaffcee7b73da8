"""Use all cores while a clip is tracked: networks run on one thread each, independent frames in threads or processes.

Python runs in one thread at a time. So threads serve functions that spend their time in compiled loops, and processes
serve all others. A process is a copy of this one (`fork`), which has the frames of the clip in its memory already.
Limits: where a process cannot be copied safely (macOS, Windows, a network that uses a GPU), threads take the place of
processes.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from vid2phys.engine.threads import blas_on_one_thread

_MOST_THREADS = 4  # Python itself runs in one at a time
_MOST_PROCESSES = 8

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


def in_processes(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield what a function makes of items, in their order, from copies of this process, one a core.

    For functions that spend their time in Python. A copy sees what this process holds in memory. What it changes there
    is lost, so a function returns all that counts. It reads from no file that is open already, but frames of a clip
    may be read. Items that a copy has not done when it is killed are done here.
    """
    items = list(items)
    count = min(_threads_allowed(), _MOST_PROCESSES, len(items))
    if count < 2 or multiprocessing.current_process().daemon:
        yield from map(function, items)
    elif not _can_be_copied():
        yield from side_by_side(function, items)
    else:
        yield from _Copies(function, items).results(count)


def _can_be_copied() -> bool:
    """Return whether this process may be copied: CUDA does not work in a copy."""
    import torch

    return sys.platform == "linux" and not torch.cuda.is_initialized()


class _Copies(Generic[_Item, _Result]):
    """Copies of this process, which take the next of some items as soon as they are free."""

    def __init__(self, function: Callable[[_Item], _Result], items: list[_Item]) -> None:
        self._function, self._items = function, items
        self._context = multiprocessing.get_context("fork")
        self._next = self._context.Value("i", 0)

    def results(self, count: int) -> Iterator[_Result]:
        """Yield the results of all items, from `count` copies. Raises what the function raises."""
        done, given = dict[int, _Result](), 0
        copies: list[tuple[Any, Connection]] = []
        try:
            with one_thread(), _opencv_on_one_thread():
                for _ in range(count):
                    self._start(copies)
            waiting = [connection for _, connection in copies]
            while waiting:
                for connection in wait(waiting):
                    assert isinstance(connection, Connection)
                    try:
                        i, result, error = connection.recv()
                    except EOFError:
                        waiting.remove(connection)
                        continue
                    if error is not None:
                        raise error
                    done[i] = result
                while given in done:
                    yield done.pop(given)
                    given += 1
        finally:
            for process, connection in copies:
                if process.pid is not None:
                    process.terminate()
                    process.join()
                connection.close()
        for i in range(given, len(self._items)):
            yield done.pop(i) if i in done else self._function(self._items[i])

    def _start(self, copies: list[tuple[Any, Connection]]) -> None:
        """Start a copy of this process; append it, with the end of a pipe from which its results come."""
        ours, its = self._context.Pipe(duplex=False)
        process = self._context.Process(target=self._work, args=(its,), daemon=True)
        copies.append((process, ours))  # first: an interruption may come at any time
        process.start()
        its.close()

    def _work(self, to: Connection) -> None:
        """Send the results of items that no other copy has taken."""
        gc.freeze()  # what the other process left cannot be closed here
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends all copies
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while (i := self._take()) < len(self._items):
            try:
                to.send((i, self._function(self._items[i]), None))
            except Exception as error:
                to.send((i, None, error))
                break
        to.close()

    def _take(self) -> int:
        """Return the index of the next item that no copy has taken."""
        with self._next.get_lock():
            self._next.value += 1
            return int(self._next.value) - 1


@contextmanager
def _opencv_on_one_thread() -> Iterator[None]:
    """Let OpenCV work without threads of its own while the context lasts.

    A copy of a process has none of its threads, and OpenCV would wait for them forever.
    """
    import cv2

    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)


def _threads_allowed() -> int:
    """Return OMP_NUM_THREADS where it is set, as a batch sets it for clips that share the cores; else one a core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else os.cpu_count() or 1
