"""`vid2phys batch clips.yaml`: identify many clips, each in a process of its own; what is done already is kept.

    defaults:                      # options of identify, for all clips
      mesh: quad.obj
      camera: cam.yaml
      fit: [mass]
      actions: logs/{stem}.csv     # {stem}: the clip's name without folder and ending
    clips:
      - videos/*.mp4               # all with the defaults
      - clip: heavy.mp4            # or options of its own
        name: heavy_quad
        set: {drag: 0.1}

Paths are relative to the file. Each clip is identified by the command line itself, so that its results are those of a
single run, memory goes back after each, and what kills one clip's process leaves the others alone.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vid2phys.commands.batch_workers import Ended, Job, on_ray, on_this_machine
from vid2phys.commands.config import as_yaml, checked, is_word, shortened
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.options import field_types, is_path
from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import InputError, UsageError, Vid2PhysError
from vid2phys.io.files import exclusive_lock, is_pattern, read_text, write_text
from vid2phys.io.run import read_result, write_json
from vid2phys.io.yaml_files import read_yaml

_WHAT = "a YAML file with `clips`, and `defaults` for all of them"
_OUR_OWN = ("jobs", "summary.json", "summary.csv")
_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True)
class Outcome:
    """How one clip ended. status: of the fit (`converged` ...), or `failed` where there is none, and message says why.

    parameters: those that were fitted, name -> (value, low, high), SI; infinite ends are None. seconds: None for a clip
    that an earlier batch had done.
    """

    name: str
    status: str
    message: str
    folder: Path
    seconds: float | None = None
    frames: int = 0
    frames_lost: int = 0
    parameters: dict[str, tuple[float | None, float | None, float | None]] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether the fit succeeded."""
        return self.status == "converged"


def batch(
    clips: str | Path,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    progress: Progress = silent,
) -> tuple[tuple[Outcome, ...], Path]:
    """Identify all clips of a file; what an earlier run with the same options has done is kept.

    out: folder of the runs, one a clip (default: runs/batch/NAME of the file). workers: processes at once (default: one
    a core). ray: address of a Ray cluster whose machines see the same files, `local` to start one here. Writes
    summary.json and summary.csv, renewed after every clip, and returns the outcomes in the order of the file, and the
    folder. A clip that fails is an outcome, not an error. Raises Vid2PhysError for a file that cannot be read, and for
    clips that were run with other options before.
    """
    clips = Path(clips)
    folder = Path("runs") / "batch" / clips.stem if out is None else Path(out)
    jobs = read_jobs(clips, folder)
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers}", "1 or more", "leave it out for one a core")
    with exclusive_lock(folder / ".lock", "batch") as lock:
        left = [job for job in jobs if not _is_done(job)]
        done = {job.name: _outcome(job) for job in jobs if job not in left}
        progress("identifying clips", len(done), len(jobs))
        for job in left:
            write_text(job.config, job.text)
        with closing(on_this_machine(left, workers, lock.fileno()) if ray is None else on_ray(left, ray)) as ended:
            for job, end in ended:
                done[job.name] = _outcome(job, end)
                _write_summary(folder, jobs, done)
                progress("identifying clips", len(done), len(jobs))
        _write_summary(folder, jobs, done)
    return tuple(done[job.name] for job in jobs), folder


def read_jobs(path: Path, out: Path) -> list[Job]:
    """The clips of a file with all their options. Raises InputError naming the clip and option at fault."""
    data = read_yaml(path, _WHAT)
    if not isinstance(data, dict) or not set(data) <= {"defaults", "clips"} or not data.get("clips"):
        raise InputError(f"'{path}' has no list of clips", _WHAT, "see `vid2phys batch --help`")
    defaults = _options(path, "defaults", data.get("defaults") or {})
    entries = data["clips"] if isinstance(data["clips"], list) else [data["clips"]]
    jobs: list[Job] = []
    for number, entry in enumerate(entries, start=1):
        for clip in _expanded(path, number, entry):
            options = defaults | _options(path, f"clip {number}", clip, "name")
            jobs.append(_job(path, number, options, out))
    names = [job.name for job in jobs]
    again = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if again is not None:
        raise InputError(f"'{path}' has two clips named '{again}'", "a name for each", "add a `name`")
    return jobs


def _expanded(path: Path, number: int, entry: object) -> list[dict[str, object]]:
    """The clips of one entry: a table of options, a path, or a pattern of paths."""
    if isinstance(entry, dict):
        return [entry]
    if not isinstance(entry, str):
        got = f"clip {number} of '{path}' is {shortened(entry)}"
        raise InputError(got, "a path, a pattern, or options with `clip`")
    if not any(mark in entry for mark in "*?["):
        return [{"clip": entry}]
    pattern = Path(entry)
    root = Path(pattern.anchor) if pattern.is_absolute() else path.parent
    found = sorted(root.glob(str(pattern.relative_to(pattern.anchor))))
    if not found:
        raise InputError(f"no file is named like '{entry}' of '{path}'", "clips", "patterns are relative to that file")
    return [{"clip": str(clip.absolute())} for clip in found]


def _options(path: Path, where: str, given: object, *extra: str) -> dict[str, Any]:
    """Return options of identify; the folders of the runs are the batch's own."""
    if not isinstance(given, dict):
        raise InputError(f"{where} of '{path}' is {shortened(given)}", "options by name")
    where = f"{where} of '{path}'"
    if "out" in given:
        raise InputError(f"{where} has the unknown option 'out'", "no folder of a clip: --out is of the batch")
    return checked(where, given, IdentifyConfig, extra=extra, without=("out",))


def _job(path: Path, number: int, options: dict[str, Any], out: Path) -> Job:
    clip = options.get("clip")
    if not isinstance(clip, Path) or not clip.name:
        raise InputError(f"clip {number} of '{path}' names no `clip`", "the path of a video", "add it")
    stem = clip.parent.name if is_pattern(path.parent / clip) else clip.stem
    name = str(options.pop("name", stem))
    if not _NAME.fullmatch(name) or name in _OUR_OWN:
        raise InputError(f"clip {number} of '{path}' has the name '{name}'", "letters, digits, dots and dashes",
                         "give it a `name` that can be a folder's")  # fmt: skip
    for key in field_types(IdentifyConfig):
        if is_path(IdentifyConfig, key) and isinstance(options.get(key), Path) and not is_word(options[key]):
            relative = Path(str(options[key]).replace("{stem}", stem))
            options[key] = (path.parent / relative.expanduser()).absolute()
    return Job(name, as_yaml(IdentifyConfig, options), out / "jobs" / f"{name}.yaml", out / name)


def _is_done(job: Job) -> bool:
    """Whether an earlier batch finished this clip; what it left half-written is removed. Raises InputError for options
    that have changed since."""
    if not job.folder.exists():
        return False
    before = read_text(job.config, "the options of a clip") if job.config.is_file() else None
    if before != job.text:
        got = f"'{job.folder}' was run with other options" if before is not None else f"'{job.folder}' is in the way"
        raise InputError(got, "the same options", "give another --out, or remove that folder to run the clip again")
    job.clear_half_written()
    return job.is_done()


def _outcome(job: Job, end: Ended | None = None) -> Outcome:
    seconds = None if end is None else end.seconds
    try:
        data = read_result(job.folder)
    except Vid2PhysError as error:
        message = end.message if end is not None and end.message else str(error)
        return Outcome(job.name, "failed", message, job.folder, seconds)
    fitted = {
        name: (value["value"], *value["ci95"])
        for name, value in data["parameters"].items()
        if value["source"] == "fitted"
    }
    fit = data["fit"]
    frames = fit["frames_used"] + fit["frames_lost"]
    return Outcome(job.name, data["status"], data["message"], job.folder, seconds, frames, fit["frames_lost"], fitted)


def _write_summary(folder: Path, jobs: list[Job], done: dict[str, Outcome]) -> None:
    """summary.json and summary.csv of the clips that are done."""
    import csv
    import io

    outcomes = [done[job.name] for job in jobs if job.name in done]
    write_json(folder / "summary.json", {"schema": "vid2phys.batch/1", "clips": outcomes, "of": len(jobs)})
    names = sorted({name for outcome in outcomes for name in outcome.parameters})
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    columns = [title for name in names for title in (name, f"{name}_low", f"{name}_high")]
    rows.writerow(["clip", "status", "frames", "frames_lost", "seconds", *columns, "message"])
    for outcome in outcomes:
        values = [number for name in names for number in outcome.parameters.get(name, (None, None, None))]
        seconds = None if outcome.seconds is None else round(outcome.seconds, 1)
        rows.writerow(
            [outcome.name, outcome.status, outcome.frames, outcome.frames_lost, seconds, *values, outcome.message]
        )
    write_text(folder / "summary.csv", text.getvalue())
