"""config.yaml of a run folder: every input resolved, so that `--config` repeats the run."""

from __future__ import annotations

from pathlib import Path

from vid2phys.errors import InputError
from vid2phys.io.files import write_text

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


def read_config(path: Path, command: str, allowed: set[str]) -> dict[str, object]:
    """The options in a config.yaml. Raises InputError when it is missing, broken or for another command."""
    import yaml

    if not path.is_file():
        raise InputError(f"no file {path}", "a config.yaml", "give the config.yaml of a run folder to --config")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML ({str(error).splitlines()[0]})", "a config.yaml") from error
    if not isinstance(data, dict):
        raise InputError(f"{path} holds no options", "lines of the form 'name: value'")
    written_by = data.pop("command", command)
    if written_by != command:
        raise InputError(f"{path} was written by '{written_by}'", f"a config of '{command}'")
    unknown = sorted(set(map(str, data)) - allowed)
    if unknown:
        raise InputError(f"{path} has the unknown option '{unknown[0]}'", f"some of {', '.join(sorted(allowed))}")
    return data


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
