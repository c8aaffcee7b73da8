"""Where the clips of a batch are identified: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

import os
import shutil
import subprocess  # nosec B404
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from vid2phys.cluster import connected

_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
_GRACE_S = 5.0  # for a process to end and to clear its run away


@dataclass(frozen=True)
class Job:
    """One clip: its name, the text of its config.yaml and where that lies, and the folder of its run."""

    name: str
    text: str
    config: Path
    folder: Path

    def is_done(self) -> bool:
        """Whether its run came to its end."""
        return (self.folder / "result.json").is_file()

    def clear_half_written(self) -> None:
        """Remove what a process that was killed has left of its run."""
        if not self.is_done():
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class Ended:
    """How a job's process ended: exit code, its last line on stderr, and how long it took."""

    code: int
    message: str
    seconds: float


def on_this_machine(jobs: list[Job], workers: int | None, lock: int) -> Generator[tuple[Job, Ended], None, None]:
    """Run jobs in `workers` processes (default: one a core), each as it ends; an interruption ends them all.

    lock: a file descriptor that the processes keep open for as long as they live.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(workers or cores, len(jobs)) or 1
    threads = {name: str(max(1, cores // workers)) for name in _THREADS}
    running = _Running()
    with ThreadPoolExecutor(workers) as pool:
        try:  # a job runs from its submission on, and the pool waits for it
            waiting = {pool.submit(run_job, job, threads, running, lock): job for job in jobs}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()
            raise


def on_ray(jobs: list[Job], address: str) -> Generator[tuple[Job, Ended], None, None]:
    """Run jobs as tasks of a Ray cluster, each as it ends. Its machines have to see the same files at the same paths.

    Raises as `cluster.connected`.
    """
    with connected(address) as ray:
        task = ray.remote(num_cpus=1)(run_job)
        waiting = {task.remote(job, dict.fromkeys(_THREADS, "1")): job for job in jobs}
        while waiting:
            (ready,), _ = ray.wait(list(waiting))
            job = waiting.pop(ready)
            try:
                yield job, ray.get(ready)
            except ray.exceptions.RayError as error:
                yield job, Ended(-1, f"the cluster lost it: {str(error).splitlines()[0]}", 0.0)


def run_job(job: Job, threads: dict[str, str], running: _Running | None = None, lock: int | None = None) -> Ended:
    """Identify one clip by the command line, in a process of its own. threads: of its libraries, unless set outside."""
    command = [sys.executable, "-m", "vid2phys", "identify", "--config", str(job.config), "--out", str(job.folder)]
    started = time.perf_counter()
    process = subprocess.Popen(  # nosec B603
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=threads | os.environ,
        pass_fds=() if lock is None else (lock,),
        start_new_session=True,  # Ctrl-C reaches the batch alone, which ends its processes itself
    )
    if running is not None:
        running.add(process)
    _, output = process.communicate()
    job.clear_half_written()
    return Ended(process.returncode, _last_line(output, process.returncode), time.perf_counter() - started)


def _last_line(output: str, code: int) -> str:
    lines = [line.removeprefix("vid2phys: ") for line in output.splitlines() if line.startswith("vid2phys: ")]
    if lines:
        return lines[-1]
    return f"killed by signal {-code}" if code < 0 else ""


class _Running:
    """The processes at work, to be ended together."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._guard = threading.Lock()
        self._stopped = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """Note a process; it is ended at once where all were ended before."""
        with self._guard:
            self._processes.append(process)
            if self._stopped:
                process.terminate()

    def stop(self) -> None:
        """End all: asked once, asked again where a library swallowed that as it was imported, killed at last."""
        with self._guard:
            self._stopped = True
            for process in self._processes:
                process.terminate()
        for process in self._processes:
            for next_means in (process.terminate, process.kill):
                try:
                    process.wait(_GRACE_S)
                    break
                except subprocess.TimeoutExpired:
                    next_means()
