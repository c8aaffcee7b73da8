"""The command line of a command, built from its options: names, help, defaults, and texts turned into values."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from vid2phys.commands.options import Options, built, docs, flags, kinds, required
from vid2phys.errors import UsageError

C = TypeVar("C", bound=Options)
Needs = Callable[[dict[str, Any]], tuple[str, ...]]
_REPEAT = Annotated[Path | None, typer.Option("--config", help="Repeat the run of this config.yaml.")]
_FILE = "config_file"


def asking(
    options: type[C], *, repeats: bool = False, needs: Needs | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let typer ask for `options`, which become the first argument of a command.

    repeats: whether `--config` repeats a run. needs: returns the fields that have to be given, from the values of all
    (default: those without a default).
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        asked = [_parameter(options, field) for field in fields(options) if _is_asked(field)]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        repeat = inspect.Parameter(_FILE, inspect.Parameter.KEYWORD_ONLY, annotation=_REPEAT, default=None)
        rest = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

        def run(*, context: typer.Context, **given: Any) -> None:
            of_function = {p.name: given.pop(p.name) for p in own}
            path = given.pop(_FILE, None)
            values = {field.name: _value(options, field, given) for field in fields(options) if _is_asked(field)}
            if path is not None:
                values = _repeated(context, options, values, path)
            for name in required(options) if needs is None else needs(values):
                _require(options, name, values)
            function(built(options, values), **of_function)

        signature = inspect.Signature([context, *asked, *([repeat] if repeats else []), *rest])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        return run

    return decorate


def assignments(flag: str, example: str, items: list[str] | None) -> dict[str, float]:
    """Return `name=value` texts as a dictionary. Raises UsageError for what is not of that form."""
    values: dict[str, float] = {}
    for item in items or []:
        name, equals, text = item.partition("=")
        try:
            values[name.strip()] = float(text)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise UsageError(f"{flag} {item}", "name=value with a number in SI units", f"for example {flag} {example}")
    return values


def pairs(flag: str, between: str, example: str, items: list[str] | None) -> dict[str, tuple[float, float]]:
    """Return `name=A<between>B` texts as a dictionary.

    Raises UsageError for what is not of that form, or given twice.
    """
    values: dict[str, tuple[float, float]] = {}
    for item in items or []:
        name, _, text = item.replace("\u00b1", "+-").partition("=")
        first, _, second = text.partition(between)
        name = name.strip()
        try:
            pair = float(first), float(second)
        except ValueError:
            form = f"name=NUMBER{between}NUMBER in SI units"
            raise UsageError(f"{flag} {item}", form, f"for example {flag} {example}") from None
        if name in values or not name:
            raise UsageError(f"{flag} {item}" + (" beside another one" if name else ""), "one for each name")
        values[name] = pair
    return values


def _is_asked(field: Field[Any]) -> bool:
    return bool(field.metadata.get("argument") or flags(field))


def _parameter(options: type[Options], field: Field[Any]) -> inspect.Parameter:
    """Return the parameter of the command line for a field."""
    text, kind = docs(options)[field.name], kinds(options)[field.name]
    complete = None
    if field.name == "system":
        complete = _all_systems if field.metadata.get("argument") else _filmed_systems
    info: Any
    if field.metadata.get("argument"):
        info = typer.Argument(help=text, show_default=False, autocompletion=complete)
    else:
        info = typer.Option(*flags(field), help=text, autocompletion=complete)
    asked: Any
    default: Any
    if kind == tuple[str, ...]:
        asked, default = str, ""
    elif get_origin(kind) is dict:
        asked, default = list[str] | None, None
    elif _of_each(kind) is not None:
        asked, default = types.GenericAlias(list, (_of_each(kind),)) | None, None
    elif field.default is MISSING:
        asked, default = kind | None, None
    else:
        asked, default = kind, field.default
    annotation = Annotated[asked, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _of_each(kind: Any) -> type | None:
    """Return the type of one value, for a field that takes several."""
    parts = (kind, *get_args(kind))
    return next((get_args(part)[0] for part in parts if get_origin(part) is tuple), None)


def _value(options: type[Options], field: Field[Any], given: dict[str, Any]) -> Any:
    """Return the value of a field from the text of its flag."""
    kind, value = kinds(options)[field.name], given[field.name]
    if kind == tuple[str, ...]:
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if get_origin(kind) is dict:
        flag, example = flags(field)[0], field.metadata["example"]
        if "pair" in field.metadata:
            return pairs(flag, field.metadata["pair"], example, value)
        return assignments(flag, example, value)
    if _of_each(kind) is None or value is None:
        return value
    several = tuple(value)
    return several[0] if len(several) == 1 and get_origin(kind) is not tuple else several or None


def _repeated(context: typer.Context, options: type[Options], values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the options of a config file, with those given on the command line over them.

    A repeated run gets a folder of its own.
    """
    from vid2phys.commands.config import read_config

    def is_given(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    replaced = {f.metadata["replaces"] for f in fields(options) if "replaces" in f.metadata and is_given(f.name)}
    kept = {
        name: value
        for name, value in read_config(path, options).items()
        if name != "out" and name not in replaced and not is_given(name)
    }
    return values | kept


def _require(options: type[Options], name: str, values: dict[str, Any]) -> None:
    """Raise UsageError for a value that is missing."""
    if values.get(name) is not None:
        return
    field = options.__dataclass_fields__[name]
    expected = f"a {name.upper()}" if field.metadata.get("argument") else flags(field)[0]
    raise UsageError(f"no {name} given", expected, f"see `vid2phys {options.command} --help`")


def _all_systems(incomplete: str) -> list[str]:
    """Return names of systems, for the shell to complete."""
    from vid2phys.commands.describe import systems_like

    return systems_like(incomplete)


def _filmed_systems(incomplete: str) -> list[str]:
    """Return names of systems that a camera follows, for the shell to complete."""
    from vid2phys.commands.system_choice import filmed

    return [name for name in filmed() if name.startswith(incomplete)]
