"""Define the errors a user can meet. Each message states what was got, what was expected and what to do next."""

from __future__ import annotations

from difflib import get_close_matches

_LONGEST = 1000  # characters of each part of a message


class Vid2PhysError(Exception):
    """Base of all errors that are not bugs. `exit_code` is the exit code of the command line."""

    exit_code = 3

    def __init__(self, got: str, expected: str = "", remedy: str = "") -> None:
        self.got, self.expected, self.remedy = got, expected, remedy
        parts = [got]
        if expected:
            parts.append(f"expected {expected}")
        if remedy:
            parts.append(remedy)
        super().__init__("; ".join(_readable(part) for part in parts))


def _readable(text: str) -> str:
    """Return `text` as one printable line, since messages quote files; a long text loses its middle."""
    shown = "".join(c if c.isprintable() else " " if c.isspace() else repr(c)[1:-1] for c in text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2]} ... {shown[-_LONGEST // 2 :]}"


class UsageError(Vid2PhysError):
    """Options that contradict each other or name something unknown (exit 2)."""

    exit_code = 2


class InputError(Vid2PhysError):
    """A file that is missing, broken or not what its option asks for (exit 3)."""


class SimulationError(Vid2PhysError):
    """A motion that the engine was asked for and cannot compute (exit 3)."""


class MissingDependencyError(Vid2PhysError):
    """A library of the machine that this command needs (exit 3)."""


def unknown_name(kind: str, name: str, available: list[str] | tuple[str, ...], remedy: str = "") -> UsageError:
    """Return the error for a name that is not in a list, naming the list and the name in it that is most alike.

    remedy: what else to do; to choose from the list, if neither this nor a name that is alike helps.
    """
    meant = [f"did you mean '{near}'?" for near in get_close_matches(name, available, n=1)]
    remedy = " ".join(filter(None, [*meant, remedy])) or f"choose a {kind} from the list"
    return UsageError(f"unknown {kind} '{name}'", f"one of {', '.join(sorted(available))}", remedy)
