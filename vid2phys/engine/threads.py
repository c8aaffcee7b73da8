"""BLAS on one thread, for matrices too small for threads to pay."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def blas_on_one_thread() -> AbstractContextManager[Any]:
    """Run BLAS on one thread while the context lasts. On a busy machine waiting for threads costs ten times the work,
    and they spin when they wait.
    """
    return _thread_pools().limit(limits=1, user_api="blas")


@cache
def _thread_pools() -> Any:
    import scipy.linalg  # noqa: F401  whose libraries have to be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
