"""How many threads networks run on while a clip is tracked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks on one thread: ones as small as ours, on as few pictures as tracking reads at once, are slower on two.

    As a decorator, too. On two cores the sample is tracked at 26 instead of 15 frames a second.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
