"""Read YAML as plain data of a bounded size, whatever the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vid2phys.errors import InputError
from vid2phys.io.files import read_text

LARGEST_YAML = 1 << 19  # characters; reading takes some seconds then
_MOST_VALUES = 1_000_000  # with aliases written out: a few lines of them can stand for more than any memory holds


def read_yaml(path: str | Path, what: str) -> Any:
    """Return the data of a YAML file. Raises InputError, naming `what` as expected, if missing, broken or too large."""
    import yaml

    text = read_text(path, what)
    if len(text) > LARGEST_YAML:
        raise InputError(f"'{path}' has {len(text)} characters", f"at most {LARGEST_YAML}: {what}", "check the path")
    try:
        data = yaml.safe_load(text)
        _count(data, {})
        return data
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # of dates and numbers, of its depth
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"'{path}' is not YAML ({reason})", what, "correct it") from error


def _count(value: Any, counted: dict[int, int]) -> int:
    """Return how many values there are, aliases written out. Raises ValueError for too many, and for recursive data."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counted:
        counted[id(value)] = _MOST_VALUES  # during the count: recursive data has no end
        inside = value.values() if isinstance(value, dict) else value
        counted[id(value)] = 1 + sum(_count(item, counted) for item in inside)
    if counted[id(value)] > _MOST_VALUES:
        raise ValueError("aliases that stand for too much")
    return counted[id(value)]
