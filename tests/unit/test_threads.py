"""Frames side by side in threads and in processes: in order, errors passed on, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from vid2phys.engine.parallel import in_processes, one_thread, side_by_side
from vid2phys.errors import InputError
from vid2phys.io.video_frames import stored_clip

ROOT = Path(__file__).parents[2]


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


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


@pytest.mark.usefixtures("two_processes")
def test_processes_yield_in_order_and_are_copies_of_this_one() -> None:
    here, table = os.getpid(), {i: i * i for i in range(40)}

    def work(i: int) -> tuple[int, int, int]:
        table[i] += 1  # lost with the copy
        return table[i], os.getpid(), torch.get_num_threads()

    found = list(in_processes(work, range(40)))
    assert [square - 1 for square, _, _ in found] == [table[i] for i in range(40)]
    assert here not in {process for _, process, _ in found}
    assert {threads for _, _, threads in found} == {1}


@pytest.mark.usefixtures("two_processes")
def test_an_error_in_a_process_reaches_the_caller() -> None:
    def work(i: int) -> int:
        if i == 3:
            raise InputError("frame 3", "a body", "look")
        return i

    with pytest.raises(InputError, match="frame 3"):
        list(in_processes(work, range(10)))


@pytest.mark.usefixtures("two_processes")
def test_items_of_a_killed_process_are_done_here() -> None:
    here = os.getpid()

    def work(i: int) -> int:
        if os.getpid() != here and i % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    assert list(in_processes(work, range(9))) == list(range(9))


@pytest.mark.usefixtures("two_processes")
def test_a_process_makes_no_further_ones_and_one_item_makes_none() -> None:
    inner = list(in_processes(lambda i: set(in_processes(lambda k: os.getpid(), range(3))) == {os.getpid()}, range(4)))
    assert all(inner)
    assert list(in_processes(lambda i: os.getpid(), [0])) == [os.getpid()]


@pytest.mark.usefixtures("two_processes")
def test_opencv_works_in_processes_after_it_has_used_threads() -> None:
    before = cv2.getNumThreads()
    image = np.arange(480 * 640, dtype=np.float32).reshape(480, 640) % 251.0
    here = cv2.GaussianBlur(cv2.resize(image, (1280, 960)), (0, 0), 3.0)
    there = in_processes(lambda i: cv2.GaussianBlur(cv2.resize(image, (1280, 960)), (0, 0), 3.0), range(3))
    for each in there:
        np.testing.assert_array_equal(each, here)
    assert cv2.getNumThreads() == before


@pytest.mark.usefixtures("two_processes")
def test_processes_read_a_video_whose_decoder_is_open() -> None:
    frames = stored_clip(ROOT / "samples" / "quadrotor" / "clip.mp4").frames
    expected = [frame.mean() for frame in frames.at(range(12))]
    for first in frames.at([0]):
        assert first.mean() == expected[0]  # a decoder waits at the next frame
    found = list(in_processes(lambda i: next(iter(frames.at([i]))).mean(), range(1, 12)))
    assert found == expected[1:]
    assert [frame.mean() for frame in frames.at([1, 2])] == expected[1:3]


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize(("system", "on_gpu"), [("darwin", False), ("linux", True)])
def test_threads_take_the_place_of_processes_where_these_are_not_safe(
    system: str, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: on_gpu)
    assert set(in_processes(lambda i: os.getpid(), range(5))) == {os.getpid()}


_INTERRUPTED = """
import multiprocessing, os, pathlib, signal, sys, time
from vid2phys.engine.parallel import in_processes

signal.signal(signal.SIGINT, signal.default_int_handler)
here, ready = os.getpid(), pathlib.Path(sys.argv[1])

def work(i):
    os.kill(os.getpid(), signal.SIGINT)  # a terminal sends it to all processes
    while i == 3 and not ready.is_file():
        time.sleep(0.01)
    if i == 3:
        os.kill(here, signal.SIGINT)
        time.sleep(60.0)
    return i

def read():
    for _ in in_processes(work, range(9)):
        ready.touch()  # all processes run

try:
    read()
except KeyboardInterrupt:
    print("interrupted", len(multiprocessing.active_children()))
"""


@pytest.mark.usefixtures("two_processes")
def test_an_interruption_ends_all_processes_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INTERRUPTED, str(tmp_path / "ready")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50.0, check=True)
    assert ended.stdout.split() == ["interrupted", "0"]
    assert ended.stderr == ""
