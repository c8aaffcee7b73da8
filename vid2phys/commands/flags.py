"""The command line of a command, built from its options: names, help, defaults, and texts turned into values."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from vid2phys.commands.options import Options, built, field_types, flag_names, help_texts, required
from vid2phys.errors import UsageError

C = TypeVar("C", bound=Options)
Needs = Callable[[dict[str, Any]], tuple[str, ...]]
_ConfigOption = Annotated[Path | None, typer.Option("--config", help="Repeat the run of this config.yaml.")]
_CONFIG = "config_file"


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
        repeat = inspect.Parameter(_CONFIG, inspect.Parameter.KEYWORD_ONLY, annotation=_ConfigOption, default=None)
        rest = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

        def run(*, context: typer.Context, **given: Any) -> None:
            of_function = {p.name: given.pop(p.name) for p in own}
            path = given.pop(_CONFIG, None)
            values = {field.name: _value(options, field, given) for field in fields(options) if _is_asked(field)}
            chosen = {name: value for name, value in values.items() if _is_given(context, name)}
            if path is not None:
                chosen = _of_file(options, path, chosen) | chosen
            for name in required(options) if needs is None else needs(values | chosen):
                _require(options, name, values | chosen)
            function(built(options, chosen), **of_function)

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
    return bool(field.metadata.get("argument") or flag_names(field))


def _parameter(options: type[Options], field: Field[Any]) -> inspect.Parameter:
    """Return the parameter of the command line for a field."""
    text, kind = help_texts(options)[field.name], field_types(options)[field.name]
    text += " (required)" if field.name in required(options) else ""
    complete = None
    if field.name == "system":
        complete = all_systems if field.metadata.get("argument") else _filmed_systems
    info: Any
    if field.metadata.get("argument"):
        info = typer.Argument(help=text, show_default=False, autocompletion=complete)
    else:
        info = typer.Option(*flag_names(field), help=text, autocompletion=complete)
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
    kind, value = field_types(options)[field.name], given[field.name]
    if kind == tuple[str, ...]:
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if get_origin(kind) is dict:
        flag, example = flag_names(field)[0], field.metadata["example"]
        if "pair" in field.metadata:
            return pairs(flag, field.metadata["pair"], example, value)
        return assignments(flag, example, value)
    if _of_each(kind) is None or value is None:
        return value
    several = tuple(value)
    return several[0] if len(several) == 1 and get_origin(kind) is not tuple else several or None


def _is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _of_file(options: type[Options], path: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a config file that those of the command line, `chosen`, do not replace.

    A repeated run gets a folder of its own.
    """
    from vid2phys.commands.config import read_config

    replaced = {f.metadata["replaces"] for f in fields(options) if "replaces" in f.metadata and f.name in chosen}
    return {name: value for name, value in read_config(path, options).items() if name != "out" and name not in replaced}


def _require(options: type[Options], name: str, values: dict[str, Any]) -> None:
    """Raise UsageError for a value that is missing."""
    if values.get(name) not in (None, (), ""):
        return
    field, several = options.__dataclass_fields__[name], get_origin(field_types(options)[name]) is tuple
    expected = flag_names(field)[0] if flag_names(field) else ""
    if field.metadata.get("argument"):
        expected = name.upper() if several else f"a {name.upper()}"
    remedy = "`vid2phys systems` lists them" if name == "system" else f"see `vid2phys {options.command} --help`"
    raise UsageError(f"no {name} given", expected, remedy)


def all_systems(incomplete: str) -> list[str]:
    """Return names of systems, for the shell to complete."""
    from vid2phys.commands.describe import systems_like

    return systems_like(incomplete)


def _filmed_systems(incomplete: str) -> list[str]:
    """Return names of systems that a camera follows, for the shell to complete."""
    from vid2phys.commands.system_choice import filmed

    return [name for name in filmed() if name.startswith(incomplete)]
