"""The documentation: its commands run, its options exist, its links lead somewhere, its reference is complete.

Every `sh` block of a page runs in order, in one folder a page; what takes minutes is marked `<!-- slow -->` and runs
with `make test-all`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
import yaml

import vid2phys
from tests.unit.test_imports import BASE, MAY_IMPORT
from vid2phys.cli import app
from vid2phys.engine import systems
from vid2phys.io.recordings import load_trajectory

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("*.md"))
ALL_PAGES = sorted(
    {*PAGES, *(p.relative_to(DOCS).as_posix() for sub in ("decisions", "reference") for p in (DOCS / sub).glob("*.md"))}
)
CODE = ("vid2phys", "experiments", "benchmarks", "tests")
BLOCK = re.compile(r"(<!-- slow -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"vid2phys ([a-z][a-z-]*)((?:[^\n`|;]|\\\n)*)")


def blocks(page: str, language: str) -> list[tuple[bool, str]]:
    """Whether slow, and the text, of a page's fenced blocks."""
    found = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    return [(bool(slow), text) for slow, name, text in found if name == language]


def shell(page: str, folder: Path, *, slow: bool) -> subprocess.CompletedProcess[str]:
    """Run a page's blocks in a folder that has the samples, with `vid2phys` and `python` of these tests."""
    (folder / "bin").mkdir()
    for name, words in (("vid2phys", "-m vid2phys "), ("python", "")):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (folder / "bin" / name).chmod(0o755)
    (folder / "samples").symlink_to(ROOT / "samples")
    if page == "your-system.md":
        (folder / "my_systems").mkdir()
        (folder / "my_systems" / "slider.py").write_text(blocks(page, "python")[0][1])
    script = "\n".join(["set -euo pipefail", *(text for is_slow, text in blocks(page, "sh") if slow or not is_slow)])
    path = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, env={**os.environ, **path}
    )  # fmt: skip


@pytest.mark.parametrize("page", [page for page in PAGES if any(not slow for slow, _ in blocks(page, "sh"))])
def test_commands_run(page: str, tmp_path: Path) -> None:
    done = shell(page, tmp_path, slow=False)
    assert done.returncode == 0, done.stderr[-2000:]
    if page == "your-system.md":
        check_slider(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(slow for slow, _ in blocks(page, "sh"))])
def test_slow_commands_run(page: str, tmp_path: Path) -> None:
    done = shell(page, tmp_path, slow=True)
    assert done.returncode == 0, done.stderr[-2000:]
    if page == "first-clip.md":
        shown = float(re.findall(r"^mass +(\S+)", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)[0])
        (run,) = (tmp_path / "runs" / "identify").glob("*/result.json")
        assert json.loads(run.read_text())["parameters"]["mass"]["value"] == pytest.approx(shown, abs=5e-4)


def check_slider(folder: Path) -> None:
    """The page's own system moves as a damped oscillator does: m = 1, k = 10, c = 0.5."""
    found = load_trajectory(folder / "slide" / "trajectory.csv")
    decay = 0.25
    rate = np.sqrt(10.0 - decay**2)
    t = found.times_s
    expected = 0.1 * np.exp(-decay * t) * (np.cos(rate * t) + decay / rate * np.sin(rate * t))
    assert np.abs(found.states[:, 0] - expected).max() < 3e-3  # of first order in steps of 10 ms
    assert "stiffness" in (folder / "slide-fit" / "result.json").read_text()


@pytest.mark.parametrize("path", [*(f"docs/{page}" for page in PAGES), "README.md", "samples/quadrotor/README.md"])
def test_commands_and_options_exist(path: str) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, rest in COMMAND.findall((ROOT / path).read_text(encoding="utf-8")):
        if name == "COMMAND" or (name not in commands and not rest.strip().startswith(("-", "samples"))):
            continue  # prose
        assert name in commands, f"{path}: vid2phys {name}"
        known = {flag for option in commands[name].params for flag in (*option.opts, *option.secondary_opts)} | {
            "--help"
        }
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) <= known, f"{path}: vid2phys {name}{rest}"


def listed_in(nav: list[Any]) -> list[str]:
    """Return the pages of the site's navigation, those of its sections too."""
    targets = [target for entry in nav for target in entry.values()]
    return [page for target in targets for page in (listed_in(target) if isinstance(target, list) else [target])]


def test_the_site_has_every_page() -> None:
    listed = listed_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert len(set(listed)) == len(listed)
    assert all((DOCS / page).is_file() for page in listed)
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    decisions = {page for page in ALL_PAGES if re.match(r"decisions/\d", page)}
    assert {page for page in decisions if f"({Path(page).name})" not in index} == set()
    assert set(ALL_PAGES) - decisions <= set(listed)


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / page).read_text(encoding="utf-8")):
        assert target.startswith("https://") or (DOCS / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_project_page_lead_somewhere(path: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / path).read_text(encoding="utf-8")):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", *(f"docs/{page}" for page in ALL_PAGES)])
def test_paragraphs_are_short(path: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^([-*] |[|#<]|    |!\[)", r"\n\1", text, flags=re.MULTILINE)
    long = [part for part in prose.split("\n\n") if len(part.strip().splitlines()) > 8 or len(part.strip()) > 8 * 121]
    assert [part for part in long if not part.lstrip().startswith("|")] == []


@pytest.mark.parametrize("page", ["architecture.md", *(page for page in ALL_PAGES if page.startswith("decisions/"))])
def test_files_that_are_named_exist(page: str) -> None:
    named = set(re.findall(r"[\w/]+\.py\b", (DOCS / page).read_text(encoding="utf-8")))
    files = [path.relative_to(ROOT).as_posix() for top in CODE for path in (ROOT / top).rglob("*.py")]
    assert {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)} == set()


def test_the_architecture_has_the_import_table() -> None:
    """Rows of the page hold what the test of the imports holds, with `base` for the small files beside the packages."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    for package in ("io", "engine", "risp", "tracking", "solvers", "camera_calibration", "report"):
        (row,) = re.findall(rf"^\| `{package}` \|.*\| ([^|]*) \|$", text, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == MAY_IMPORT[package] - BASE, package


def test_the_reference_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+)", (DOCS / "python.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(vid2phys.__all__)
    for name in re.findall(r"run\.(\w+)", "".join(text for _, text in blocks("python.md", "python"))):
        assert name in dir(vid2phys.Run) or name in vid2phys.Run.__dataclass_fields__, name


def test_the_physics_names_every_system() -> None:
    text = (DOCS / "physics.md").read_text(encoding="utf-8")
    headings = ", ".join(re.findall(r"^## (.*)$", text, re.MULTILINE))
    assert {name for name in systems.available() if name not in headings} == set()
