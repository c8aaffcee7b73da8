"""A random sample of small faults (mutants) in the package, and the share of them that a test notices.

`make mutate SEED=1 COUNT=60` draws lines of the four packages at random, and on each line one mutant of cosmic-ray. It
makes one mutant at a time in a copy of the project, and runs the tests that run the line (`line_record.py`), the quick
ones first. It prints the mutants that no test noticed, and the share that was noticed with its 95 % interval.

An operator becomes the nearest other (`+` and `-`, `*` and `/`, `<` and `<=`, `and` and `or`), a condition or a sign is
negated, a number is changed by one, a loop does nothing, an exception is not caught. Left out is what cannot matter:

- annotations, and guards against slips of a programmer: asserts, `strict=` of `zip`, options of `dataclass`;
- exceptions with a dot in their name, which cosmic-ray cannot change;
- texts of errors and notes: what stands in a `raise`, a call of an error, `doubt`, `warning` or `Note`;
- numbers below 1e-6, which guard divisions and logarithms;
- changes by one that are 5 % of a number or less, and 20 % or less of a tuning value. Tuning values are the constants
  of modules, the defaults of fields, and the defaults and bounds of parameters.

A mutant counts as noticed if a test fails. A run that ends otherwise, as by its time limit or an import that fails,
counts only if the project without the mutant passes the same tests in the same time. At the end all tests that failed
run again without a mutant; `make mutate` ends with an error if one of them fails.

Numba keeps compiled functions by the file that they are in, and does not see a change of what they call. So a mutant's
file and all that import it are compiled anew. Warp hashes all that a kernel calls.

With `--only` mutants are drawn from some modules, and only test files that name one of these modules are recorded.

Limits: the budget of seconds leaves out slow tests, so the share is a lower bound of what the whole suite notices.
With `--only`, tests that run a module without its name do not count, either.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from scipy.stats import binomtest

from tests.faults.deliberate import ROOT, copy_project, environment
from tests.faults.line_record import Record

PACKAGES = ("solvers", "tracking", "engine", "io")
WANTED = 0.85
_OPERATORS = (
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Mod_Mul", "Pow_Mul", "BitOr_BitAnd", "BitAnd_BitOr")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Eq_NotEq", "NotEq_Eq")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_GtE", "GtE_Lt", "Gt_LtE", "LtE_Gt", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceUnaryOperator_Delete_{name}" for name in ("USub", "Not", "Invert")),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
    "ExceptionReplacer",
)
_GUARD, _SMALL_CHANGE, _SMALL_TUNING = 1e-6, 0.05, 0.2
_NOT_JUDGED = re.compile(r"(\w*Error|doubt|warning|Note|dataclass)$")
_START_S, _SLOWER = 120.0, 3.0
_MEMORY = 12 << 30

Position = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """A change of one file: what cosmic-ray's operator does at its place `occurrence`."""

    path: str
    line: int
    operator: str
    occurrence: int

    @property
    def package(self) -> str:
        """The package of `PACKAGES` that the file is in."""
        return self.path.split("/")[1]

    def code(self, text: str) -> str:
        """Return the changed text of the file."""
        return str(mutate_code(text, _operator(self.operator), self.occurrence))


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant. test: the first test that failed, or how else the run ended."""

    mutant: Mutant
    noticed: bool
    test: str
    change: str


@cache
def _operator(name: str) -> Operator:
    return get_operator(f"core/{name}")()


def mutants(path: str, text: str) -> dict[int, list[Mutant]]:
    """Return the mutants of a file that may matter, by line."""
    left_out, found = _left_out(ast.parse(text)), {}
    counts = dict.fromkeys(_OPERATORS, 0)
    for node in ast_nodes(get_ast(text)):
        is_mark = node.parent is not None and node.parent.type == "parameters"  # `*` and `/` of a signature
        for name in _OPERATORS:
            for start, _ in _operator(name).mutation_positions(node):
                mutant = Mutant(path, start[0], name, counts[name])
                counts[name] += 1
                if not is_mark and not any(first <= start < last for first, last in left_out):
                    found.setdefault(start[0], []).append(mutant)
    return found


def _left_out(tree: ast.Module) -> list[tuple[Position, Position]]:
    """Return where no mutant can matter, from and to, each as line and column."""
    return [_span(part) for node in ast.walk(tree) for part in _parts_left_out(node)]


def _parts_left_out(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Assert() | ast.Raise() | ast.keyword(arg="strict"):
            yield node
        case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
            yield node
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if _NOT_JUDGED.match(name):
            yield node
        case ast.ExceptHandler(type=ast.expr() as caught) if any(
            isinstance(n, ast.Attribute) for n in ast.walk(caught)
        ):
            yield caught
        case (
            ast.arg(annotation=ast.expr() as note)
            | ast.AnnAssign(annotation=note)
            | ast.FunctionDef(returns=ast.expr() as note)
        ):
            yield note
        case ast.Constant():
            yield from _hardly_changed(node, _SMALL_CHANGE)
    for number in (part for setting in _tuning(node) for part in ast.walk(setting)):
        yield from _hardly_changed(number, _SMALL_TUNING)


def _tuning(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.Module(body=body) | ast.ClassDef(body=body):
            return [each for each in body if isinstance(each, ast.Assign | ast.AnnAssign)]
        case ast.Call(func=ast.Name(id="Parameter")):
            return [node]
    return []


def _hardly_changed(node: ast.AST, share: float) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        size = abs(node.value)
        if 0.0 < size < _GUARD or size * share >= 1.0:
            yield node


def _span(node: ast.AST) -> tuple[Position, Position]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def draw(root: Path, seed: int, count: int, only: Sequence[str] = ()) -> list[Mutant]:
    """Return `count` mutants on random lines, in random order; each package has its share by lines.

    only: the modules that are drawn from, as "solvers/gradient"; all if empty.
    """
    lines = {name: _lines(root, name, only) for name in PACKAGES}
    total = sum(map(len, lines.values()))
    drawn: list[Mutant] = []
    for name in PACKAGES:
        chance = random.Random(f"{seed} {name}")
        shuffled = chance.sample(lines[name], len(lines[name]))
        usable = (mutant for place in shuffled if (mutant := _on_line(root, *place, chance)))
        drawn += itertools.islice(usable, round(count * len(lines[name]) / total))
    random.Random(seed).shuffle(drawn)
    return drawn


def _lines(root: Path, package: str, only: Sequence[str]) -> list[tuple[str, int]]:
    top = root / "vid2phys"
    files = [p for p in sorted((top / package).rglob("*.py")) if not only or _module(p.relative_to(top)) in only]
    return [(p.relative_to(root).as_posix(), n + 1) for p in files for n in range(p.read_text().count("\n"))]


def _module(path: Path) -> str:
    return path.with_suffix("").as_posix()


@cache
def _of_file(root: Path, path: str) -> dict[int, list[Mutant]]:
    return mutants(path, (root / path).read_text())


def _on_line(root: Path, path: str, line: int, chance: random.Random) -> Mutant | None:
    text, on_line = (root / path).read_text(), _of_file(root, path).get(line, [])
    shuffled = chance.sample(on_line, len(on_line))
    return next((mutant for mutant in shuffled if _differs(text, mutant.code(text))), None)


def _differs(before: str, after: str) -> bool:
    try:
        return ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))
    except SyntaxError:
        return False


class Bench:
    """A copy of the project in which mutants are made, with a record of its tests and compiled kernels of its own."""

    def __init__(self, folder: Path, budget_s: float) -> None:
        self._budget_s = budget_s
        self.folder, self.root = folder, folder / "project"
        self._numba, self._warp = folder / "numba", folder / "warp"
        shutil.rmtree(self.root, ignore_errors=True)
        copy_project(self.root)
        compileall.compile_dir(self.root / "vid2phys", quiet=2)
        self.record = Record(self.root, folder)

    def update(self, only: Sequence[str] = ()) -> None:
        """Bring the record up to date, in a process that has imported nothing of the package yet.

        only: the modules whose tests are recorded; all if empty.
        """
        command = [sys.executable, "-m", "tests.faults.line_record", str(self.root), str(self.folder), *only]
        subprocess.run(command, cwd=self.root, env=self._environment(self._numba), check=True)
        self.record = Record(self.root, self.folder)

    def judge(self, mutant: Mutant) -> Outcome:
        """Make a mutant, run its tests, and mend the copy."""
        path = self.root / mutant.path
        before = path.read_text()
        after = mutant.code(before)
        change = _change(before, after)
        tests = self.record.choose(mutant.path, mutant.line, self._budget_s)
        if not tests:
            return Outcome(mutant, False, "no test", change)
        kept = shutil.copy2(path, self.folder / "kept.py")
        try:
            path.write_text(after)
            code, failed = self.run(tests, mutant.path)
        finally:
            shutil.copy2(kept, path)  # with its date, which tells whether its compiled code is up to date
        if code not in (0, 1):
            shutil.rmtree(self._warp, ignore_errors=True)  # the mutant, too, was compiled anew
            return Outcome(mutant, self.run(tests, mutant.path)[0] == 0, f"pytest ended with {code}", change)
        return Outcome(mutant, code == 1, failed, change)

    def run(self, tests: list[str], changed: str = "") -> tuple[int, str]:
        """Return how pytest ends, and the test that fails. changed: the file whose compiled users are compiled anew."""
        kernels = self.folder / "numba of the mutant"
        shutil.rmtree(kernels, ignore_errors=True)
        users = [f"{Path(name).stem}.*" for name in self.users(changed)]
        if self._numba.exists():
            shutil.copytree(self._numba, kernels, ignore=shutil.ignore_patterns(*users))
        limit = _START_S + _SLOWER * sum(self.record.seconds[test] for test in tests)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no"]
        options = [f"--basetemp={self.folder / 'tmp'}", *self._by_file(tests)]
        with subprocess.Popen(
            [*command, *options], cwd=self.root, env=self._environment(kernels), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True, preexec_fn=_limit_memory,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return 124, ""
        lines = re.findall(r"^(?:FAILED|ERROR) (.+)", said, re.MULTILINE)
        return process.returncode, max((test for test in tests for line in lines if line.startswith(test)), default="")

    def _by_file(self, tests: list[str]) -> list[str]:
        """Return the tests file by file, since those of a file share fixtures; the quick files first."""
        files: dict[str, list[str]] = {}
        for test in tests:
            files.setdefault(test.partition("::")[0], []).append(test)
        quick = sorted(files.values(), key=lambda some: sum(self.record.seconds[test] for test in some))
        return list(itertools.chain.from_iterable(quick))

    def users(self, changed: str) -> set[str]:
        """Return a file and all that import it, also through others."""
        users, found = {changed}, {changed}
        while users:
            users = {user for user, used in self.record.imports.items() if used & users} - found
            found |= users
        return found

    def _environment(self, numba: Path) -> dict[str, str]:
        return environment(self.root) | {"NUMBA_CACHE_DIR": str(numba), "WARP_CACHE_PATH": str(self._warp)}


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))


def _change(before: str, after: str) -> str:
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return next(f"{old.strip()}  ->  {new.strip()}" for old, new in pairs if old != new)


def table(outcomes: list[Outcome]) -> str:
    """Return how many mutants of each package were noticed, with exact binomial intervals."""
    rows = [("package", "noticed", "mutants", "share", "95 % interval")]
    for name in (*PACKAGES, "all"):
        of_package = [outcome.noticed for outcome in outcomes if name in (outcome.mutant.package, "all")]
        if of_package:
            low, high = binomtest(sum(of_package), len(of_package)).proportion_ci(method="exact")
            share = f"{sum(of_package) / len(of_package):.0%}"
            rows.append((name, str(sum(of_package)), str(len(of_package)), share, f"{low:.0%} to {high:.0%}"))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> int:
    """Draw mutants, judge each, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other mutants")
    parser.add_argument("--count", type=int, default=60, help="how many mutants")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for a mutant")
    parser.add_argument(
        "--only", action="append", default=[], help="a module to draw from, as solvers/gradient; may be repeated"
    )
    chosen = parser.parse_args()
    folder = ROOT / "build" / "mutation"
    bench = Bench(folder, chosen.budget)
    bench.update(chosen.only)
    outcomes: list[Outcome] = []
    with (folder / f"seed-{chosen.seed}.jsonl").open("w") as kept:
        for mutant in draw(bench.root, chosen.seed, chosen.count, chosen.only):
            outcome = bench.judge(mutant)
            outcomes.append(outcome)
            word = "noticed" if outcome.noticed else "MISSED "
            print(f"{word}  {mutant.path}:{mutant.line}  {outcome.change}  [{outcome.test}]", flush=True)
            row = vars(mutant) | {"noticed": outcome.noticed, "test": outcome.test, "change": outcome.change}
            print(json.dumps(row), file=kept, flush=True)
    failed = sorted({o.test for o in outcomes if o.noticed and "::" in o.test})
    if failed and bench.run(failed)[0] != 0:
        print("a test that noticed a mutant fails without it, too: nothing of this counts")
        return 1
    print(table(outcomes))
    return int(sum(o.noticed for o in outcomes) < WANTED * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
