"""Render a dataset on a Ray cluster (Moritz et al., OSDI 2018): the same bytes as on one machine.

Limits: all machines must see the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.cluster import connected
from vid2phys.errors import InputError, Vid2PhysError
from vid2phys.risp.renders.dataset import Settings
from vid2phys.risp.renders.workers import RenderError, count_done, render_shards, viewpoints

if TYPE_CHECKING:
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.engine.system import System
    from vid2phys.types import Mesh

_SHARDS_PER_TASK = 8
_RETRIES = 3  # of a task whose process or machine was lost


def render_on_ray(
    mesh: Mesh,
    source: System | ArticulatedBody,
    folder: Path,
    settings: Settings,
    missing: list[int],
    address: str,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Render the `missing` shards as tasks of one core, each in its own process.

    Args:
        mesh: The body's mesh.
        source: The system or the body that gives poses or configurations.
        folder: The dataset.
        settings: Its settings.
        missing: Numbers of the shards.
        address: Address of the cluster.
        progress: Is called with (samples done, samples).

    Raises:
        InputError: An input of the user is at fault.
        RenderError: The cluster lost a process repeatedly.
    """
    from vid2phys.engine.movable.body import ArticulatedBody

    body = source if isinstance(source, ArticulatedBody) else mesh
    with connected(address) as ray:
        task = ray.remote(num_cpus=1, max_calls=1, max_retries=_RETRIES)(render_shards)
        shared = ray.put(body)
        waiting = [
            task.remote(
                shared,
                str(folder.resolve()),
                settings,
                {shard: viewpoints(source, settings, shard) for shard in missing[first : first + _SHARDS_PER_TASK]},
            )
            for first in range(0, len(missing), _SHARDS_PER_TASK)
        ]
        while waiting:
            (ready,), waiting = ray.wait(waiting)
            try:
                ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, Vid2PhysError):
                    raise InputError(str(error.cause)) from None
                raise
            except ray.exceptions.RayError as error:
                got = f"the cluster lost a rendering process ({str(error).splitlines()[0]})"
                raise RenderError(got, "images", "repeat the command: it goes on where it stopped") from None
            if progress is not None:
                progress(count_done(folder, settings), settings.samples)
