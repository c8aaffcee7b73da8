"""Frames side by side in threads: in order, few ahead, errors passed on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch

from vid2phys.engine.parallel import one_thread, side_by_side


def test_results_come_in_order_and_few_items_are_taken_ahead() -> None:
    taken: list[int] = []
    slow = threading.Event()

    def items() -> Iterator[int]:
        for i in range(40):
            taken.append(i)
            yield i

    def work(i: int) -> tuple[int, int]:
        if i == 0:
            slow.wait(5.0)  # the first is done last
        return i * i, torch.get_num_threads()

    found = side_by_side(work, items())
    threads = min(os.cpu_count() or 1, 4)
    timer = threading.Timer(0.2, slow.set)
    timer.start()
    assert next(found) == (0, 1), "networks on one thread"
    assert len(taken) <= threads + 2
    assert [square for square, _ in found] == [i * i for i in range(1, 40)]
    timer.join()


def test_an_error_reaches_the_caller() -> None:
    def work(i: int) -> int:
        if i == 3:
            raise ValueError("frame 3")
        return i

    with pytest.raises(ValueError, match="frame 3"):
        list(side_by_side(work, range(10)))


def test_the_number_of_threads_is_given_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_threads_are_as_many_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    taken: list[int] = []
    assert next(side_by_side(abs, (taken.append(i) or i for i in range(9)))) == 0  # type: ignore[func-returns-value]
    assert taken == [0, 1]
