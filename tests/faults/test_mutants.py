"""`make mutate` draws mutants that may matter, and chooses the tests that run their lines."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")
import coverage

from tests.faults.line_record import Record, _names
from tests.faults.mutants import Bench, Mutant, Outcome, draw, mutants, table

SOURCE = '''\
"""Add 1 to 2."""
from dataclasses import dataclass
_ROUNDS, _GAIN = 6, 2.0
@dataclass(frozen=True)
class Config:
    share: float | None = 0.5
    steps: int = 9
def mean(values: list[float] | None, *, count: int = 1) -> float | None:
    assert values is not None
    if count < 1:
        raise ValueError(f"got {count - 1}")
    total = 0.0
    for value in values:
        total += value + 1e-9
    return total / count * 100
'''


def changes(line: int) -> set[str]:
    found = (mutant.code(SOURCE).splitlines()[line - 1].strip() for mutant in mutants("a.py", SOURCE).get(line, []))
    return {" ".join(text.split()) for text in found}


def test_only_what_may_matter_is_changed() -> None:
    expected = {
        3: {"_ROUNDS, _GAIN = 6, 3.0", "_ROUNDS, _GAIN = 6, 1.0"},
        6: {"share: float | None = 1.5", "share: float | None = -0.5"},
        8: {f"def mean(values: list[float] | None, *, count: int = {n}) -> float | None:" for n in (0, 2)},
        10: {"if count <= 1:", "if count >= 1:", "if not count < 1:", "if count < 0:", "if count < 2:"},
        12: {"total = 1.0", "total = -1.0"},
        13: {"for value in []:"},
        14: {"total += value - 1e-9"},
        15: {"return total * count * 100", "return total / count / 100"},
    }
    assert {line: changes(line) for line in range(1, 16) if changes(line)} == expected


def test_exceptions_of_a_module_stay_as_they_are() -> None:
    parts = ("try: f()", "except (ValueError, a.b.Error): pass", "except a.Error: pass", "except KeyError: pass")
    source = "\n".join(parts) + "\n"
    found = mutants("a.py", source)
    assert {line: [mutant.operator for mutant in some] for line, some in found.items()} == {4: ["ExceptionReplacer"]}
    assert "except CosmicRayTestingException" in found[4][0].code(source)


def test_a_seed_draws_the_same_mutants_in_proportion_to_the_lines(tmp_path: Path) -> None:
    for package, lines in (("solvers", 30), ("tracking", 20), ("engine", 10), ("io", 0)):
        path = tmp_path / "vid2phys" / package / "a.py"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"x{n} = {n} + y\n" for n in range(lines)))
    drawn = draw(tmp_path, 3, 12)
    assert Counter(mutant.package for mutant in drawn) == {"solvers": 6, "tracking": 4, "engine": 2}
    assert drawn == draw(tmp_path, 3, 12)
    assert drawn != draw(tmp_path, 4, 12)
    assert len({(mutant.path, mutant.line) for mutant in drawn}) == 12


def test_mutants_are_drawn_from_the_modules_that_are_named(tmp_path: Path) -> None:
    for name in ("solvers/a", "solvers/b", "tracking/deep/a"):
        path = tmp_path / f"vid2phys/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"x{n} = {n} + y\n" for n in range(20)))
    drawn = draw(tmp_path, 3, 8, ["solvers/b", "tracking/deep/a"])
    assert Counter(mutant.path for mutant in drawn) == {"vid2phys/solvers/b.py": 4, "vid2phys/tracking/deep/a.py": 4}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from vid2phys.solvers import gradient", True),
        ("from vid2phys.solvers.gradient import Start", True),
        ("from vid2phys.solvers import gradients, arrow", False),
        ("import gradient", False),
    ],
)
def test_tests_of_a_module_import_it(text: str, found: bool) -> None:
    assert _names(text, ["solvers/gradient", "tracking/tracker"]) is found


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Of a module with a function, a constant and a compiled function, and of one that calls the compiled one."""
    package, tests = tmp_path / "vid2phys", tmp_path / "tests/unit"
    package.mkdir()
    tests.mkdir(parents=True)
    (package / "kernel.py").write_text("LIMIT = 3\n\n\ndef compiled():\n    return LIMIT\n")
    (package / "user.py").write_text("from vid2phys.kernel import compiled\n\n\ndef use():\n    return compiled()\n")
    seconds = {"slow": 9.0, "quick": 1.0, "other": 2.0}
    (tests / "test_a.py").write_text("")
    data = coverage.CoverageData(str(tmp_path / "coverage"))
    for name in ("slow", "quick"):
        data.set_context(f"tests/unit/test_a.py::{name}")
        data.add_lines({str(package / "user.py"): [5]})
    data.write()
    made = Record(tmp_path, tmp_path)
    made.keep("tests/unit/test_a.py", {f"tests/unit/test_a.py::{name}": time for name, time in seconds.items()})
    assert json.loads((tmp_path / "times.json").read_text())
    return made


@pytest.mark.parametrize(("path", "line"), [("user.py", 5), ("user.py", 1), ("kernel.py", 5), ("kernel.py", 1)])
def test_tests_of_a_line_or_of_its_users_are_chosen_quick_ones_first(record: Record, path: str, line: int) -> None:
    names = [test.partition("::")[2] for test in record.choose(f"vid2phys/{path}", line, 100.0)]
    assert names == ["quick", "slow", "other"]
    assert len(record.choose(f"vid2phys/{path}", line, 5.0)) == 1


def test_tests_of_a_file_that_changed_are_not_chosen(record: Record) -> None:
    (record.root / "tests/unit/test_a.py").write_text("# changed")
    assert Record(record.root, record.root).choose("vid2phys/user.py", 5, 100.0) == []


def test_tests_that_run_lines_of_a_changed_module_are_old(record: Record) -> None:
    (record.root / "vid2phys/kernel.py").write_text("# changed")
    assert Record(record.root, record.root).seconds == record.seconds
    (record.root / "vid2phys/user.py").write_text("# changed")
    assert Record(record.root, record.root).seconds == {}


def test_what_calls_a_compiled_function_is_compiled_anew(record: Record) -> None:
    bench = object.__new__(Bench)
    bench.record = record
    assert bench.users("vid2phys/kernel.py") == {"vid2phys/kernel.py", "vid2phys/user.py"}
    assert bench.users("vid2phys/user.py") == {"vid2phys/user.py"}


def test_table_has_exact_intervals() -> None:
    chance = random.Random(0)
    outcomes = [Outcome(Mutant("vid2phys/io/a.py", n, "", 0), n < 9, "", "") for n in range(10)]
    chance.shuffle(outcomes)
    assert "| io | 9 | 10 | 90% | 55% to 100% |" in table(outcomes)  # Clopper and Pearson: 0.555, 0.9975
