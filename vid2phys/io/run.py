"""Make run folders, where a command leaves its files, and write and read the JSON with its results."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError, Vid2PhysError
from vid2phys.io.files import disk_errors, exclusive_lock, read_text, sha256, write_text
from vid2phys.io.recordings import load_observation as load_observation
from vid2phys.io.recordings import load_trajectory as load_trajectory
from vid2phys.io.recordings import save_observation as save_observation
from vid2phys.io.recordings import save_trajectory as save_trajectory
from vid2phys.types import Actions, Array, Estimate, Observation, Posterior, Result, Status, Trajectory

RUNS = Path("runs")
_LOCK = ".lock"  # in a folder that a run is filling, or did not fill to its end
_PREVIEWS = "preview*.jpg"
_STAMP = re.compile(r"(\d{4}-\d{2}-\d{2}_\d{2}-\d{2}-\d{2})(?:-(\d+))?$")
_VERSIONS_OF = ("vid2phys", "numpy", "scipy", "torch", "warp-lang", "av", "opencv-python-headless")


def create_run(command: str, out: str | Path | None = None, *, root: Path = RUNS) -> Path:
    """Return a new empty folder: `out`, or runs/<command>/<time stamp>/.

    What a killed run left half-written may be overwritten. Raises InputError for a folder with other files in it.
    """
    if out is None:
        return _stamped(root / command)
    out = Path(out)
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not _was_killed(out))):
        raise InputError(f"'{out}' exists and is not an empty folder", "a new folder", "give another --out")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    return out


@contextmanager
def new_run(command: str, out: str | Path | None = None, *, root: Path = RUNS) -> Iterator[Path]:
    """Yield the folder of `create_run`; an error or Ctrl-C inside the block leaves no half-written folder.

    After an error that a user can mend, the previews stay: they show what went wrong. The next run may take the folder.
    Raises InputError while another run fills the folder.
    """
    folder = create_run(command, out, root=root)
    with exclusive_lock(folder / _LOCK, "run"):
        try:
            _clear(folder)
            yield folder
        except BaseException as error:
            if isinstance(error, Vid2PhysError) and any(folder.glob(_PREVIEWS)):
                _clear(folder, _PREVIEWS)
            else:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _LOCK).unlink()


def _clear(folder: Path, kept: str = _LOCK) -> None:
    """Remove all files from a folder but its lock and those of a pattern."""
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left.name != _LOCK and not left.match(kept):
            left.unlink()


def _was_killed(folder: Path) -> bool:
    """Return whether a run did not come to its end in this folder, or is still at work."""
    return (folder / _LOCK).is_file() and not (folder / "result.json").exists()


def newest_run(command: str = "identify", *, root: Path = RUNS) -> Path:
    """Return the newest run of a command that left a result.json. Raises InputError when there is none."""
    found = [folder for folder in (root / command).glob("*") if (folder / "result.json").is_file()]
    stamped = [(match, folder) for folder in found if (match := _STAMP.match(folder.name))]
    if not stamped:
        remedy = f"run `vid2phys {command}` first, or name the run's folder"
        raise InputError(f"no run of '{command}' in '{root / command}'", "a folder with result.json", remedy)
    return max(stamped, key=lambda item: (item[0][1], int(item[0][2] or 1)))[1]


def to_json(value: Any) -> Any:
    """Return plain JSON values: arrays as lists, paths and enums as text, what is not finite as null."""
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON under a temporary name, then rename it. Infinite and undefined numbers become null."""
    write_text(path, json.dumps(to_json(value), indent=2, allow_nan=False) + "\n")


def read_json(path: str | Path, what: str = "a JSON file") -> dict[str, Any]:
    """Return a JSON object. Raises InputError when the file is missing, cut short or not an object."""
    try:
        data = json.loads(read_text(path, what))
    except (ValueError, RecursionError) as error:  # of its syntax; of numbers too long and lists too deep
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"'{path}' is not valid JSON ({where})", what, "run the command again") from None
    if not isinstance(data, dict):
        raise InputError(f"'{path}' holds no JSON object", what, "check the path")
    return data


def result_to_json(
    result: Result, inputs: dict[str, Any], fit: dict[str, Any], files: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Return the content of result.json, schema vid2phys.result/1. Infinite ends of intervals become null.

    Args:
        result: of the fit.
        inputs: paths by name (each is hashed; None is left out), or other values, kept.
        fit: loss, rms_px, iterations, seconds, frames_used, frames_lost.
        files: names of the run's files.
        seed: of the fit.
    """
    return to_json(
        {
            "schema": "vid2phys.result/1",
            "status": result.status.key,
            "message": result.message,
            "system": result.system,
            "parameters": {estimate.name: _parameter(estimate) for estimate in result.parameters},
            **({"derived": {each.name: _parameter(each) for each in result.derived}} if result.derived else {}),
            "diagnostics": result.diagnostics,
            **({} if result.posterior is None else {"posterior": result.posterior}),
            "fit": fit,
            "files": files,
            "inputs": {name: _input(value) for name, value in inputs.items() if value is not None},
            "versions": versions(),
            "seed": seed,
        }
    )


def read_result(folder: str | Path) -> dict[str, Any]:
    """Return the result.json of an identify run. Raises InputError when it is missing, broken or of another schema."""
    path = Path(folder) / "result.json"
    data = read_json(path, "the result.json of a run of identify")
    try:
        validate_result(data)
    except ValueError as error:
        raise InputError(f"'{path}' cannot be read ({error})", "one of this version of vid2phys") from None
    return data


def result_of_json(
    data: dict[str, Any],
    trajectory: Trajectory,
    actions: Actions | None,
    actions_std: Array | None,
    observation: Observation,
) -> Result:
    """Return the result of what `read_result` returned and of the arrays beside it."""
    return Result(
        Status[data["status"].upper()],
        data["message"],
        data["system"],
        _estimates(data["parameters"]),
        trajectory,
        actions,
        actions_std,
        observation,
        data["diagnostics"],
        _posterior(data.get("posterior")),
        derived=_estimates(data.get("derived", {})),
    )


def _estimates(data: dict[str, Any]) -> tuple[Estimate, ...]:
    """Return the estimates of what `_parameter` wrote, by name."""
    estimates = []
    for name, value in data.items():
        prior = (value["prior"]["mean"], value["prior"]["std"]) if "prior" in value else None
        read = {"value": _number(value["value"]), "ci95": _interval(value["ci95"]), "prior": prior}
        read["parts"] = value.get("interval_parts", {})
        read["bootstrap"] = _interval(value["bootstrap_ci95"]) if "bootstrap_ci95" in value else None
        kept = {key: item for key, item in value.items() if key not in ("interval_parts", "bootstrap_ci95")}
        estimates.append(Estimate(name, **(kept | read)))
    return tuple(estimates)


def _interval(ends: list[float | None]) -> tuple[float, float]:
    low, high = ends
    return -math.inf if low is None else low, math.inf if high is None else high


def _posterior(data: dict[str, Any] | None) -> Posterior | None:
    if data is None:
        return None
    names, units, logarithmic = (tuple(data[key]) for key in ("names", "units", "logarithmic"))
    return Posterior(names, units, logarithmic, np.array(data["mean"]), np.array(data["covariance"]))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def validate_result(data: dict[str, Any]) -> None:
    """Raise ValueError when `data` does not follow vid2phys.result/1."""
    _validate(data, "result")


def validate_metrics(data: dict[str, Any]) -> None:
    """Raise ValueError when `data` does not follow vid2phys.metrics/1."""
    _validate(data, "metrics")


def versions() -> dict[str, str]:
    """Return the installed versions of this package and of what its numbers depend on, and Python's."""
    import platform

    found = {"python": platform.python_version()}
    for name in _VERSIONS_OF:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema `result` or `metrics`."""
    file = resources.files("vid2phys.io") / "schemas" / f"{name}.schema.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _validate(data: dict[str, Any], name: str) -> None:
    import jsonschema

    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema(name)).iter_errors(data))
    if error is not None:
        where = "/".join(str(step) for step in error.absolute_path) or "the top"
        raise ValueError(f"{name}.json at {where}: {error.message}")


def _parameter(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": estimate.value,
        "unit": estimate.unit,
        "ci95": list(estimate.ci95),
        "identifiable": estimate.identifiable,
        "at_bound": estimate.at_bound,
        "source": estimate.source,
        **({"prior": {"mean": estimate.prior[0], "std": estimate.prior[1]}} if estimate.prior else {}),
        **({"interval_parts": estimate.parts} if estimate.parts else {}),
        **({"bootstrap_ci95": list(estimate.bootstrap)} if estimate.bootstrap else {}),
    }


def _input(value: Any) -> Any:
    if isinstance(value, Path):
        return {"path": str(value), "sha256": sha256(value)}
    return value


def _stamped(folder: Path) -> Path:
    """Return a new folder named by the time; a second one in the same second gets -2."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for count in range(1, 1000):
            path = folder / (stamp if count == 1 else f"{stamp}-{count}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise InputError(f"'{folder}' has a thousand runs of this second", "fewer", "give --out")
