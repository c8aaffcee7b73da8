"""Connect to a Ray cluster; it is optional, and every command works without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vid2phys.errors import InputError, MissingDependencyError


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Yield the module `ray`, connected to the cluster at an address; `local` starts one on this machine.

    Raises MissingDependencyError without the package `ray`, InputError when there is no cluster.
    """
    try:
        import ray
    except ImportError:
        raise MissingDependencyError("--ray without the package ray", "", "pip install 'vid2phys[ray]'") from None
    try:
        ray.init(None if address == "local" else address, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        got = f"no Ray cluster at '{address}' ({str(error).splitlines()[0]})"
        raise InputError(got, "HOST:PORT of one, auto or local", "start one with `ray start --head`") from None
    try:
        yield ray
    finally:
        ray.shutdown()
