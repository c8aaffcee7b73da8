"""Give freed memory back to the system."""

from __future__ import annotations

import ctypes
from functools import cache

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of mallopt(3)
_LARGE_BYTES = 4 << 20


@cache
def return_large_blocks() -> None:
    """Make the C library give back blocks of 4 MB and more as soon as they are freed, in this process from now on.

    glibc raises that size to 32 MB by itself. Then it keeps images of 4K and the blocks of long fits among live blocks:
    a process of 1 GB grows to more than 2. Limit: elsewhere than on Linux with glibc the function does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_TRIM_THRESHOLD, _LARGE_BYTES)
