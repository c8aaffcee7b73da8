"""The options of a command, as one frozen dataclass: flags, YAML files and keyword arguments are all built from it.

Each field is an option. The docstring under a field is the help of its flag. A field's metadata may hold:

- `flags`: the names on the command line, where they differ from the field's name; an empty text for none;
- `argument`: whether the command line takes the value without a flag;
- `pair`: for a pair of numbers by name, what is between the two, and an example.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache, wraps
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from vid2phys.commands.retired import renamed, upgraded
from vid2phys.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Options")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The base of all options. Texts become paths and lists become tuples, where a field asks for them."""

    command: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, kind in field_types(type(self)).items():
            object.__setattr__(self, name, _converted(name, getattr(self, name), kind))


def field_types(options: type[Options]) -> dict[str, Any]:
    """Return the types of the fields by name."""
    hints = get_type_hints(options)
    return {field.name: hints[field.name] for field in fields(options)}


def help_texts(options: type[Options]) -> dict[str, str]:
    """Return the docstrings under the fields by name, those of base classes too."""
    found: dict[str, str] = {}
    for base in reversed(options.__mro__):
        if issubclass(base, Options):
            found |= _help_texts_of_file(inspect.getfile(base)).get(base.__name__, {})
    return found


@cache
def _help_texts_of_file(path: str) -> dict[str, dict[str, str]]:
    """Return the docstrings under the fields of all classes in a Python file."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                field.target.id: inspect.cleandoc(doc.value.value).replace("\n", " ")
                for field, doc in zip(node.body, node.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
                and isinstance(doc.value.value, str)
            }  # fmt: skip
    return found


def flag_names(field: Field[Any]) -> tuple[str, ...]:
    """Return the names of an option on the command line; none for what only Python callers may ask for."""
    given = field.metadata.get("flags")
    if given is not None:
        return tuple(given.split())
    name = field.name.replace("_", "-")
    off = "no-" + name
    return (f"--{name}/--{off}",) if field.default is True else (f"--{name}",)


def by_flag(options: type[Options]) -> dict[str, str]:
    """Return the field's name by the name of its first flag: files may use both."""
    named = {}
    for field in fields(options):
        for flag in flag_names(field):
            named[flag.partition("/")[0].removeprefix("--").replace("-", "_")] = field.name
    return named


def required(options: type[Options]) -> tuple[str, ...]:
    """Return the names of the fields without a default."""
    return tuple(f.name for f in fields(options) if f.default is MISSING and f.default_factory is MISSING)


def mentions(kind: Any, what: type) -> bool:
    """Return whether a type is this one, or a union or tuple of it."""
    return kind is what or any(mentions(part, what) for part in get_args(kind))


def is_path(options: type[Options], name: str) -> bool:
    """Return whether a field holds paths."""
    return mentions(field_types(options).get(name), Path)


def built(options: type[C], given: Mapping[str, Any]) -> C:
    """Return the options with these values by field, those of earlier releases in their place."""
    return options(**upgraded(options.command, renamed(options.command, given)))


def taking(options: type[Options], *positional: str) -> Callable[[Callable[P, R]], Callable[..., R]]:
    """Let a function whose first argument is `options` take their fields too.

    positional: fields that may be given by position. The other arguments of the function are by keyword.
    """

    def decorate(function: Callable[P, R]) -> Callable[..., R]:
        own = inspect.signature(function)
        rest = [p.replace(kind=p.KEYWORD_ONLY) for p in list(own.parameters.values())[1:]]
        names = [*positional, *(field.name for field in fields(options) if field.name not in positional)]
        last = max((i for i, name in enumerate(positional) if name in required(options)), default=-1)
        asked = [
            _keyword_parameter(options, name, by_position=i < len(positional), must=i <= last)
            for i, name in enumerate(names)
        ]
        signature = own.replace(parameters=[*asked, *rest])

        @wraps(function)
        def call(*given: Any, **keywords: Any) -> R:
            of_function = {p.name: keywords.pop(p.name) for p in rest if p.name in keywords}
            config = given[0] if given else keywords.get("config")
            if isinstance(config, options) and len(given) + len(keywords) == 1:
                return function(config, **of_function)  # type: ignore[arg-type]
            try:
                bound = signature.bind(*given, **renamed(options.command, keywords)).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(built(options, bound), **of_function)  # type: ignore[arg-type]

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = f"{inspect.getdoc(function)}\n\nOptions:\n" + "\n".join(
            f"    {name}: {text}" for name in names for text in (help_texts(options)[name],)
        )
        return call

    return decorate


def _keyword_parameter(options: type[Options], name: str, *, by_position: bool, must: bool) -> inspect.Parameter:
    """Return the parameter of a function for a field. must: leave the default out: a required parameter follows."""
    field = options.__dataclass_fields__[name]
    default = field.default if field.default_factory is MISSING else field.default_factory()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if by_position else inspect.Parameter.KEYWORD_ONLY
    default = inspect.Parameter.empty if default is MISSING or must else default
    return inspect.Parameter(name, kind, default=default, annotation=field.type)


def _converted(name: str, value: Any, kind: Any) -> Any:
    """Return a value converted to the type of its field: text to a path, a list to a tuple, None to empty.

    Raises UsageError for other values than numbers by name, where the field holds these.
    """
    origin, optional = get_origin(kind), mentions(kind, type(None))
    of_paths = mentions(kind, Path) and not mentions(kind, str)
    if isinstance(value, str) and not value and optional:
        return None
    if value is None and not optional:
        return {} if origin is dict else () if origin is tuple else value
    if origin is dict:
        return _numbers_by_name(name, value, pairs=get_origin(get_args(kind)[1]) is tuple)
    if isinstance(value, list | tuple):
        return tuple(_converted(name, each, kind) if not of_paths else Path(each) for each in value)
    if of_paths and isinstance(value, str | Path):
        return (Path(value),) if origin is tuple else Path(value)
    return value


def _numbers_by_name(name: str, value: Any, *, pairs: bool) -> dict[str, Any]:
    """Return numbers, or pairs of numbers, by name. Raises UsageError for others."""
    found: dict[str, Any] = {}
    for key, given in value.items() if isinstance(value, Mapping) else [("", value)]:
        numbers = tuple(given) if pairs and isinstance(given, list | tuple) else (given,)
        real = all(isinstance(each, Real) and not isinstance(each, bool) for each in numbers)
        if not key or not real or len(numbers) != 1 + pairs:
            raise UsageError(f"{name} {value!r}"[:200], "pairs of numbers by name" if pairs else "numbers by name")
        found[str(key)] = numbers if pairs else given
    return found
