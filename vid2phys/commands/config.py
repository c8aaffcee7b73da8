"""config.yaml of a run folder: every option resolved, so that `--config` repeats the run.

Options have the names of their fields, or of their flags. Those of earlier releases are read under their present names
(see `retired`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin

from vid2phys.commands.configs import is_auto, is_untrained
from vid2phys.commands.options import Options, by_flag, field_types, is_path
from vid2phys.commands.retired import renamed, upgraded
from vid2phys.errors import InputError
from vid2phys.io.files import write_text
from vid2phys.io.primitives import is_primitive
from vid2phys.io.yaml_files import read_yaml

_EXPECTED = {"path_type": "a path", "missing": "one number more"}  # in place of the library's words


def write_config(path: Path, options: Options) -> None:
    """Write the options of a command."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    write_text(path, as_yaml(type(options), given))


def as_yaml(kind: type[Options], given: Mapping[str, Any]) -> str:
    """Return the text of a config.yaml. Paths become absolute, so that the run repeats from any folder."""
    import yaml

    chosen = {name: value for name, value in given.items() if value is not None}
    plain = {name: _plain(_as_paths(value) if is_path(kind, name) else value) for name, value in chosen.items()}
    return str(yaml.safe_dump({"command": kind.command, **plain}, sort_keys=False))


def read_config(path: Path, kind: type[Options]) -> dict[str, Any]:
    """Return the options in a config.yaml by field; not all need be there.

    Raises InputError when the file is missing, broken or for another command, and for options that the command does not
    have, or not of that type.
    """
    if not path.is_file():
        raise InputError(f"no file {path}", "a config.yaml", "give the config.yaml of a run folder to --config")
    data = read_yaml(path, "a config.yaml")
    if not isinstance(data, dict):
        raise InputError(f"{path} holds no options", "lines of the form 'name: value'")
    written_by = data.pop("command", kind.command)
    if written_by != kind.command:
        raise InputError(f"{path} was written by '{written_by}'", f"a config of '{kind.command}'")
    if kind.command == "simulate" and "hold" not in data:  # an old file: the system hovered then
        data["hold"] = "actions" not in data
    return upgraded(kind.command, checked(f"'{path}'", data, kind))


def checked(
    where: str,
    given: Mapping[Any, Any],
    kind: type[Options],
    *,
    extra: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return options out of a file by field, of the types of the fields.

    extra: names of texts that the file may hold beside options. without: names of options that it may not hold.
    Raises InputError that names the option at fault.
    """
    from pydantic import TypeAdapter, ValidationError

    allowed, flagged = field_types(kind) | dict.fromkeys(extra, str), by_flag(kind)
    for name in without:
        allowed.pop(name)
    found: dict[str, Any] = {}
    for written, value in renamed(kind.command, {str(name): value for name, value in given.items()}).items():
        name = written if written in allowed else flagged.get(written.replace("-", "_"), written.replace("-", "_"))
        if name not in allowed:
            got = f"{where} has the unknown option {shortened(written)}"
            raise InputError(got, f"some of {', '.join(sorted(allowed))}")
        if value is None and get_origin(allowed[name]) in (dict, tuple):
            found[name] = {} if get_origin(allowed[name]) is dict else ()
            continue
        try:
            found[name] = TypeAdapter(allowed[name]).validate_python(_listed(value, allowed[name]))
        except ValidationError as error:
            first = error.errors()[0]
            expected = _EXPECTED.get(first["type"], first["msg"].removeprefix("Input should be "))
            raise InputError(f"'{name}' of {where} is {shortened(value)}", expected, "correct it") from None
    return found


def shortened(value: object) -> str:
    """Return what a file held, as far as one line can show it."""
    return reprlib.repr(value)


def _listed(value: object, kind: Any) -> object:
    """Return names with commas between them as a list, where the field holds names."""
    if kind == tuple[str, ...] and isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _as_paths(value: object) -> object:
    """Return a path, or a list of them, given as text or not."""
    return [Path(str(one)) for one in value] if isinstance(value, list | tuple) else Path(str(value))


def is_word(path: Path) -> bool:
    """Return whether a path is a word in place of a file: a primitive, `--camera auto` or `--model none`."""
    return is_primitive(path) or is_auto(path) or is_untrained(path)


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value if is_word(value) else value.resolve())
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) else str(value)
