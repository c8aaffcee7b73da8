"""Processes that render a dataset, each single-threaded and for a few hundred images.

Processes are short-lived, because many Mitsuba renders in one process can hang or leak. A process that dies or stalls
is replaced, and its finished shards stay.

Limits: a shard whose renders kill three processes in a row is an error.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.render.llvm import find_llvm, lacks_atomic
from vid2phys.engine.system import System
from vid2phys.errors import InputError, Vid2PhysError
from vid2phys.io.files import write_bytes
from vid2phys.risp.renders.articulated_viewpoints import sample_articulated, sample_articulated_sequence
from vid2phys.risp.renders.dataset import Settings, shard_path
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE, Viewpoint, sample_sequence, sample_single
from vid2phys.types import Mesh

SHARDS_PER_PROCESS = 24
_STALL_S = 300.0
_ATTEMPTS = 3
_COMPLAINED = 3  # exit code of a process that sent the text of an input error
_ABANDONED_S = 3600.0
_APPEARANCE, _VIEW, _RENDER = range(3)  # streams of random numbers of one sample


class RenderError(Vid2PhysError):
    """The renderer died repeatedly on the same shards: a bug or a broken LLVM (exit 1)."""

    exit_code = 1


@dataclass
class _Job:
    """Shards for one process, and how often processes died on them."""

    shards: list[int]
    attempts: int = 0


@dataclass
class _Running:
    """A process at work, with the number of shards done and the time of its last progress."""

    process: Any
    job: _Job
    complaint: Any  # the receiving end of a pipe for the text of an input error
    done: int
    last_progress_s: float


def render_missing(
    mesh: Mesh,
    source: System | ArticulatedBody,
    folder: Path,
    settings: Settings,
    missing: list[int],
    *,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Render the `missing` shards into `folder`. Finished shards stay after Ctrl-C.

    Args:
        mesh: The body's mesh.
        source: The system or the body that gives poses or configurations.
        folder: The dataset.
        settings: Its settings.
        missing: Numbers of the shards.
        workers: Number of processes.
        progress: Is called with (samples done, samples).

    Raises:
        InputError: The disk is full, or may not be written.
        MissingDependencyError: LLVM is missing.
        RenderError: The renderer died repeatedly.
    """
    if not missing:
        return
    if find_llvm() is None or lacks_atomic():
        from vid2phys.engine.render.mitsuba import load_mitsuba

        load_mitsuba()  # raises, with the remedy
    _remove_abandoned(folder)
    share = min(SHARDS_PER_PROCESS, -(-len(missing) // max(1, workers)))
    jobs = deque(_Job(missing[i : i + share]) for i in range(0, len(missing), share))
    running: list[_Running] = []
    try:
        while jobs or running:
            while jobs and len(running) < max(1, workers):
                running.append(_start(jobs.popleft(), mesh, source, folder, settings))
            wait([r.process.sentinel for r in running], timeout=0.5)
            running = [r for r in running if not _finished(r, folder, jobs)]
            if progress is not None:
                progress(count_done(folder, settings), settings.samples)
    finally:
        for r in running:
            r.process.kill()
            r.process.join()


def _start(job: _Job, mesh: Mesh, source: System | ArticulatedBody, folder: Path, settings: Settings) -> _Running:
    """Start a process for a job."""
    views = {shard: viewpoints(source, settings, shard) for shard in job.shards}
    # A fresh interpreter: neither the parent's threads nor its copy of LLVM are inherited.
    context = multiprocessing.get_context("spawn")
    complaint, speak = context.Pipe(duplex=False)
    body = source if isinstance(source, ArticulatedBody) else mesh
    process = context.Process(target=_work, args=(body, str(folder), settings, views, speak), daemon=True)
    process.start()
    speak.close()
    return _Running(process, job, complaint, 0, time.monotonic())


def _finished(running: _Running, folder: Path, jobs: deque[_Job]) -> bool:
    """Return whether a process has ended; put its unfinished shards back into `jobs`."""
    left = [shard for shard in running.job.shards if not shard_path(folder, shard).exists()]
    done = len(running.job.shards) - len(left)
    if done > running.done:
        running.done, running.last_progress_s = done, time.monotonic()
    stalled = time.monotonic() - running.last_progress_s > _STALL_S
    if running.process.is_alive() and not stalled:
        return False
    running.process.kill()
    running.process.join()
    if running.process.exitcode == _COMPLAINED:
        raise InputError(running.complaint.recv())
    if left:
        attempts = 1 if running.done else running.job.attempts + 1
        if attempts >= _ATTEMPTS:
            code = running.process.exitcode
            state = "made no progress" if stalled else f"ended with {code}"
            if not stalled and code == -signal.SIGKILL:
                state = "was killed again and again, perhaps for want of memory"
            raise RenderError(f"a rendering process {state}", "images", "see the messages above; `vid2phys doctor`")
        jobs.append(_Job(left, attempts))
    return True


def _remove_abandoned(folder: Path) -> None:
    """Remove old temporary files of killed processes; young ones may belong to a running process."""
    for path in folder.glob(".shard_*"):
        if time.time() - path.stat().st_mtime > _ABANDONED_S:
            path.unlink(missing_ok=True)


def count_done(folder: Path, settings: Settings) -> int:
    """Return the number of finished samples."""
    return sum(len(settings.indices(s)) for s in range(settings.shards) if shard_path(folder, s).exists())


def viewpoints(source: System | ArticulatedBody, settings: Settings, shard: int) -> list[Viewpoint]:
    """Draw the viewpoints of a shard's samples. The main process does this, since workers may lack the system."""
    result = []
    for index in settings.indices(shard):
        if settings.sequences:
            group, frame = divmod(index, FRAMES_PER_SEQUENCE)
            rng = np.random.default_rng([settings.seed, group, _VIEW])
            result.append(_sequence(rng, source, settings)[frame])
        else:
            rng = np.random.default_rng([settings.seed, index, _VIEW])
            result.append(_single(rng, source, settings))
    return result


def _single(rng: np.random.Generator, source: System | ArticulatedBody, settings: Settings) -> Viewpoint:
    """Draw a single viewpoint."""
    if isinstance(source, ArticulatedBody):
        return sample_articulated(rng, source, settings.size)
    return sample_single(rng, source, settings.radius_m, settings.size)


def _sequence(rng: np.random.Generator, source: System | ArticulatedBody, settings: Settings) -> list[Viewpoint]:
    """Draw the viewpoints of a sequence."""
    if isinstance(source, ArticulatedBody):
        return sample_articulated_sequence(rng, source, settings.size)
    return sample_sequence(rng, source, settings.radius_m, settings.size)


def _work(
    body: Mesh | ArticulatedBody, folder: str, settings: Settings, views: dict[int, list[Viewpoint]], speak: Any
) -> None:
    """Render in a worker process; end early when the parent is dead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent cleans up
    parent = os.getppid()
    try:
        render_shards(body, folder, settings, views, going_on=lambda: os.getppid() == parent)
    except InputError as error:  # disk full, not permitted
        speak.send(str(error))
        sys.exit(_COMPLAINED)


def render_shards(
    body: Mesh | ArticulatedBody,
    folder: str,
    settings: Settings,
    views: dict[int, list[Viewpoint]],
    going_on: Callable[[], bool] = lambda: True,
) -> None:
    """Render shards from their samples' viewpoints and write them, while `going_on()`. Raises InputError."""
    from vid2phys.engine.render.mitsuba import Renderer
    from vid2phys.risp.appearance.materials import mesh_parts

    articulated = body if isinstance(body, ArticulatedBody) else None
    mesh = articulated.mesh if articulated is not None else body
    assert isinstance(mesh, Mesh)
    renderer = Renderer(mesh, settings.size, settings.spp)
    parts = mesh_parts(mesh)
    for shard, each in views.items():
        if not going_on():
            return
        arrays = _render_shard(renderer, parts, articulated, settings, shard, each)
        _write_shard(shard_path(Path(folder), shard), arrays)


def _render_shard(
    renderer: Any,
    parts: Any,
    articulated: ArticulatedBody | None,
    settings: Settings,
    shard: int,
    views: list[Viewpoint],
) -> dict[str, np.ndarray[Any, Any]]:
    """Render one shard; return its arrays by key."""
    from vid2phys.risp.appearance.random_appearance import directions, render_appearance, sample_appearance
    from vid2phys.risp.appearance.randomisation import Randomisation

    images, tangents, appearances, varied = [], [], [], Randomisation.without(settings.without)
    for index, view in zip(settings.indices(shard), views, strict=True):
        group = settings.appearance_of(index)
        drawn = sample_appearance(np.random.default_rng([settings.seed, group, _APPEARANCE]), parts, varied)
        seen = (drawn, view.body_from_world, view.moved_m, settings.radius_m)
        moves = directions(*seen) if settings.has_tangents(index) else []
        seed = int(np.random.default_rng([settings.seed, index, _RENDER]).integers(2**31))
        if articulated is not None and view.configuration is not None:
            renderer.pose(articulated.vertices(view.configuration))
        image = renderer.render(view.view_from_body, view.K, render_appearance(*seen), seed=seed, directions=moves)
        images.append(image.radiance.astype(np.float16))
        appearances.append(group)
        if moves:
            tangents.append(image.tangents.astype(np.float16))
    size = settings.size
    empty = np.zeros((0, len(settings.psi_names), size, size, 3), np.float16)
    configurations = [view.configuration for view in views if view.configuration is not None]
    return {
        **({"posture": np.stack(configurations)} if configurations else {}),
        "radiance": np.stack(images),
        "K": np.stack([view.K for view in views]),
        "view_from_body": np.stack([view.view_from_body for view in views]),
        "look_id": np.array(appearances, dtype=np.int64),
        "time_s": np.array([view.time_s for view in views]),
        "tangents": np.stack(tangents) if tangents else empty,
    }


def _write_shard(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    from safetensors.numpy import save

    write_bytes(path, save(arrays))
