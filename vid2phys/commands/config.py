"""config.yaml of a run folder: every input resolved, so that `--config` repeats the run."""

from __future__ import annotations

import reprlib
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from vid2phys import types
from vid2phys.errors import InputError
from vid2phys.io.files import write_text
from vid2phys.io.yaml_files import read_yaml

PATHS = (
    *("clip", "target", "body", "mesh", "camera", "camera_pose", "actions", "params", "model"),
    *("observation", "body_points"),
)


def write_config(path: Path, command: str, options: dict[str, object]) -> None:
    """Write the options of a command."""
    write_text(path, as_yaml(command, options))


def as_yaml(command: str, options: dict[str, object]) -> str:
    """The text of a config.yaml. Paths become absolute, so that the run repeats from any folder."""
    import yaml

    given = {name: value for name, value in options.items() if value is not None}
    plain = {name: _plain(_as_paths(value) if name in PATHS else value) for name, value in given.items()}
    return str(yaml.safe_dump({"command": command, **plain}, sort_keys=False))


def read_config(path: Path, command: str) -> dict[str, Any]:
    """The options in a config.yaml. Raises InputError when it is missing, broken or for another command, and for
    options that the command does not have, or not of that type."""
    if not path.is_file():
        raise InputError(f"no file {path}", "a config.yaml", "give the config.yaml of a run folder to --config")
    data = read_yaml(path, "a config.yaml")
    if not isinstance(data, dict):
        raise InputError(f"{path} holds no options", "lines of the form 'name: value'")
    written_by = data.pop("command", command)
    if written_by != command:
        raise InputError(f"{path} was written by '{written_by}'", f"a config of '{command}'")
    if command == "simulate" and "hold" not in data:  # from before this option: without actions, the system was held
        data["hold"] = "actions" not in data
    return checked(f"'{path}'", data, options_of(command))


def options_of(command: str) -> dict[str, Any]:
    """Names and types of a command's options: those of its function in `vid2phys.commands`."""
    function = getattr(import_module(f"vid2phys.commands.{command}"), command)
    hints = get_type_hints(function, localns=vars(types))
    return {name: hints[name] for name in signature(function).parameters if name != "progress"}


def checked(where: str, given: dict[Any, Any], allowed: dict[str, Any]) -> dict[str, Any]:
    """Options out of a file, of the types that their names ask for. Raises InputError naming the option at fault."""
    from pydantic import TypeAdapter, ValidationError

    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in allowed:
            got = f"{where} has the unknown option {shortened(name)}"
            raise InputError(got, f"some of {', '.join(sorted(allowed))}")
        try:
            found[name] = TypeAdapter(allowed[name]).validate_python(value)
        except ValidationError as error:
            expected = error.errors()[0]["msg"].removeprefix("Input should be ")
            raise InputError(f"'{name}' of {where} is {shortened(value)}", expected, "correct it") from None
    return found


def shortened(value: object) -> str:
    """What a file held, as far as one line can show it."""
    return reprlib.repr(value)


def _as_paths(value: object) -> object:
    """A path, or a list of them, given as text or not."""
    return [Path(str(one)) for one in value] if isinstance(value, list | tuple) else Path(str(value))


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value.resolve())
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) else str(value)
