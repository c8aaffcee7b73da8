"""Which tests run which lines of the package, and how long each test takes, as `make mutate` needs it.

`Record.update` runs the tests under `coverage`, each in a context of its own, and keeps what it finds. A later update
runs only test files that have changed, and those that run lines of a module that has changed.

Limits: lines of compiled functions are not seen, nor what other processes run. A fixture or a cache that serves several
tests counts for the first of them; `Record.choose` therefore adds the other tests of the same files.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import coverage
import pytest

TEST_FOLDERS = ("unit", "contract", "recovery", "cli")
_PACKAGE = "vid2phys"


class Record:
    """Seconds of each test and the lines that it runs; `folder` keeps them for the copy of the project in `root`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self._data_file, self._times_file = root, folder / "coverage", folder / "times.json"
        kept = json.loads(self._times_file.read_text()) if self._times_file.exists() else {"tests": {}, "sources": {}}
        changed = [path for path, of_file in kept["sources"].items() if of_file != self._hash(path)]
        old = {test.partition("::")[0] for path in changed for test in self._contexts(path)}
        self._kept: dict[str, dict[str, Any]] = {
            file: of_file
            for file, of_file in kept["tests"].items()
            if file not in old and of_file["hash"] == self._hash(file)
        }

    def update(self, only: Sequence[str] = ()) -> None:
        """Run the test files that are new or old. An update that was stopped goes on where it was.

        only: modules, as "solvers/gradient"; the test files that import one of them. All test files if empty.
        """
        files = [path for folder in TEST_FOLDERS for path in sorted((self.root / "tests" / folder).glob("test_*.py"))]
        files = [path for path in files if not only or _names(path.read_text(), only)]
        missing = [name for path in files if (name := path.relative_to(self.root).as_posix()) not in self._kept]
        self._write()
        if not missing:
            return
        measured = coverage.Coverage(data_file=self._data_file, source_pkgs=[_PACKAGE], messages=False)
        if self._data_file.exists():
            measured.load()
        measured.start()
        try:
            pytest.main(["-q", "-p", "no:cacheprovider", *missing], plugins=[_Recorder(self, measured)])
        finally:
            measured.stop()
            measured.save()

    def keep(self, file: str, times: dict[str, float]) -> None:
        """Keep the seconds of the tests of a file that passed."""
        self._kept[file] = {"hash": self._hash(file), "seconds": times}
        self._write()

    def _write(self) -> None:
        sources = {path: self._hash(path) for path in self.imports}
        self._times_file.write_text(json.dumps({"sources": sources, "tests": self._kept}, indent=1))

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Seconds of each test that passed."""
        return {test: seconds for kept in self._kept.values() for test, seconds in kept["seconds"].items()}

    def choose(self, path: str, line: int, budget_s: float) -> list[str]:
        """Return the tests for a line, the quick ones first, until `budget_s` is spent.

        They are the tests that run the statement or the function. If there are none, as for what is compiled or runs
        on import, they are those of lines that use the assigned name, of the module, or of what is imported from it.
        """
        tests = next((found for found in self._candidates(path, line) if found), set())
        of_files = {test.partition("::")[0] for test in tests}
        others = {test for test in self.seconds if test.partition("::")[0] in of_files} - tests
        chosen: list[str] = []
        for test in [*sorted(tests, key=self._order), *sorted(others, key=self._order)]:
            budget_s -= self.seconds[test]
            if budget_s < 0.0 and chosen:
                break
            chosen.append(test)
        return chosen

    def _order(self, test: str) -> tuple[float, str]:
        return self.seconds[test], test

    def _candidates(self, path: str, line: int) -> Iterator[set[str]]:
        lines = self._tests_of_lines(path)
        tree = ast.parse((self.root / path).read_text())
        for first, last in _spans(tree, line):
            yield set().union(*(lines.get(number, set()) for number in range(first, last + 1)))
        names = _assigned(tree, line)
        users = {user for user, used in self.imports.items() if path in used}
        yield set().union(*(self._tests_of_names(each, names) for each in {path} | users))
        yield set().union(*lines.values())
        modules, seen = {path}, {path}
        while modules:
            users = {user for user, used in self.imports.items() if used & modules} - seen
            yield set().union(*(self._tests_of_uses(user, modules) for user in users))
            modules, seen = users, seen | users

    def _tests_of_uses(self, user: str, modules: set[str]) -> set[str]:
        """Return the tests that run lines of a module in which names stand that it imports from others."""
        tree = ast.parse((self.root / user).read_text())
        names = {name for node in ast.walk(tree) for name, files in _imports(node) if files & modules}
        return self._tests_of_names(user, names)

    def _tests_of_names(self, path: str, names: set[str]) -> set[str]:
        """Return the tests that run lines of a module in which some of the names stand, also as attributes."""
        tree, lines = ast.parse((self.root / path).read_text()), self._tests_of_lines(path)
        at = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names}
        at |= {node.end_lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in names}
        return set().union(*(lines.get(number, set()) for number in at))

    def _contexts(self, path: str) -> set[str]:
        return set().union(*self._data.contexts_by_lineno(str(self.root / path)).values())

    def _tests_of_lines(self, path: str) -> dict[int, set[str]]:
        """Return the tests that run each line inside a function; others run on import, for no test's sake."""
        contexts = self._data.contexts_by_lineno(str(self.root / path))
        functions = [n for n in ast.walk(ast.parse((self.root / path).read_text())) if isinstance(n, ast.FunctionDef)]
        inside = {k for n in functions for k in range(n.body[0].lineno, (n.end_lineno or n.lineno) + 1)}
        return {line: set(contexts[line]) & self.seconds.keys() for line in inside & contexts.keys()}

    @cached_property
    def _data(self) -> coverage.CoverageData:
        data = coverage.CoverageData(str(self._data_file))
        data.read()
        return data

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The files of the package that each file imports."""
        files = {p.relative_to(self.root).as_posix(): p for p in sorted((self.root / _PACKAGE).rglob("*.py"))}
        trees = {name: ast.parse(path.read_text()) for name, path in files.items()}
        return {
            name: {file for node in ast.walk(tree) for _, found in _imports(node) for file in found} & set(files)
            for name, tree in trees.items()
        }

    def _hash(self, file: str) -> str:
        path = self.root / file
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.exists() else ""


class _Recorder:
    """A pytest plugin: gives each test a context and takes its time."""

    def __init__(self, record: Record, measured: coverage.Coverage) -> None:
        self._record, self._measured = record, measured
        self._times: dict[str, float] = {}
        self._passed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        started, self._passed = time.monotonic(), False
        try:
            return (yield)
        finally:
            if self._passed:
                self._times[item.nodeid] = round(time.monotonic() - started, 3)
            self._measured.switch_context("")
            file = item.nodeid.partition("::")[0]
            if nextitem is None or not nextitem.nodeid.startswith(f"{file}::"):
                self._measured.save()
                self._record.keep(file, self._times)
                self._times = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._passed = report.passed


def _spans(tree: ast.Module, line: int) -> list[tuple[int, int]]:
    """Return the first and last lines of the statement and of the functions around it; none outside of functions."""
    around = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)]
    if not any(isinstance(node, ast.FunctionDef) for node in around):
        return []
    spans = ((n.lineno, n.end_lineno or n.lineno) for n in around if not isinstance(n, ast.ClassDef))
    return sorted(spans, key=lambda span: span[1] - span[0])


def _assigned(tree: ast.Module, line: int) -> set[str]:
    """Return the names that the statement of a line gives values to."""
    around = [n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AnnAssign)]
    around = [node for node in around if node.lineno <= line <= (node.end_lineno or node.lineno)]
    stored = [part for node in around for part in ast.walk(node) if isinstance(part, ast.Name)]
    return {name.id for name in stored if isinstance(name.ctx, ast.Store)}


def _names(text: str, modules: Sequence[str]) -> bool:
    """Return whether a text imports one of some modules, as "solvers/gradient"."""
    files = set().union(*(found for node in ast.walk(ast.parse(text)) for _, found in _imports(node)))
    return bool(files & {f"{_PACKAGE}/{module}.py" for module in modules})


def _imports(node: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Yield the names that a statement imports, and the files that each may come from."""
    match node:
        case ast.Import():
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], _files(alias.name)
        case ast.ImportFrom(module=str() as module):
            for alias in node.names:
                yield alias.asname or alias.name, _files(module) | _files(f"{module}.{alias.name}")


def _files(module: str) -> set[str]:
    path = module.replace(".", "/")
    return {f"{path}.py", f"{path}/__init__.py"}


if __name__ == "__main__":
    Record(Path(sys.argv[1]), Path(sys.argv[2])).update(sys.argv[3:])
