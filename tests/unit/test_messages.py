"""Messages, help texts and pages name only options that the command line has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from vid2phys.cli import app

ROOT = Path(__file__).resolve().parents[2]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OTHER_TOOLS = re.compile(r"(pip install|python -m|torchrun|make) [^`\n]*")
OURS = re.compile(r"vid2phys ([a-z][a-z-]*)")
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OPTIONS = {
    name: {"--help", *(flag for option in command.params for flag in (*option.opts, *option.secondary_opts))}
    for name, command in COMMANDS.items()
}
ALL = {"--version", "--install-completion"}.union(*OPTIONS.values())
SOURCES = sorted((ROOT / "vid2phys").rglob("*.py"))


def flags(text: str) -> set[str]:
    """The options that a text names, without those of other tools."""
    return set(FLAG.findall(OTHER_TOOLS.sub("", text)))


def texts(path: Path) -> Iterator[str]:
    """All strings of a Python file, also the parts of those that are formatted."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown(path: Path) -> list[str]:
    """Strings of a Python file that name no option there is; those of a command's own file, none of that command or
    of one that they name."""
    command = {"commands": path.stem.replace("_", "-"), "identify": "identify"}.get(path.parent.name, "")
    found = []
    for text in texts(path):
        known = (
            OPTIONS[command].union(*(OPTIONS.get(name, set()) for name in OURS.findall(text)))
            if command in OPTIONS
            else ALL
        )
        found += [text] if not flags(text) <= known else []
    return found


def test_messages_name_options_that_exist() -> None:
    assert {str(path.relative_to(ROOT)): wrong for path in SOURCES if (wrong := unknown(path))} == {}


def test_help_names_options_of_its_command() -> None:
    wrong = {
        (name, option.name)
        for name, command in COMMANDS.items()
        for option in command.params
        if not flags(getattr(option, "help", None) or "") <= OPTIONS[name]
    }
    assert wrong == set()


@pytest.mark.parametrize("page", [*sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")), "README.md"])
def test_pages_name_options_that_exist(page: str) -> None:
    text = OTHER_TOOLS.sub("", (ROOT / page).read_text(encoding="utf-8"))
    quoted = "\n".join(re.findall(r"`[^`\n]+`", text))
    assert flags(quoted) <= ALL


def test_an_option_that_does_not_exist_is_found(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()
    file = tmp_path / "commands" / "simulate.py"
    file.write_text('x = 1\nraise ValueError(f"{x} steps: raise --iterations", "give --fit", "lower --rate")\n')
    assert sorted(unknown(file)) == [" steps: raise --iterations", "give --fit"]
