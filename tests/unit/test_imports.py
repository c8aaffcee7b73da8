"""Who may import whom, over the syntax trees; and that the command line starts light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "vid2phys"
BASE = {
    *("types", "errors", "notes", "geometry", "indices", "memory", "plugins", "cluster"),
    *("error_model", "error_clock"),
}
MAY_IMPORT = {
    **{name: {"types", "errors", "geometry"} for name in BASE},
    "io": BASE,
    "engine": BASE | {"io"},
    "risp": BASE | {"io", "engine"},
    "tracking": BASE | {"io", "engine", "risp"},
    "solvers": BASE | {"engine", "risp"},
    "report": BASE | {"io", "engine", "risp", "tracking"},
    "camera_calibration": BASE | {"io", "engine"},
    "commands": BASE | {"io", "engine", "risp", "tracking", "solvers", "report", "camera_calibration"},
    "cli": {"errors", "commands"},
    "__main__": {"cli"},
    "api": BASE | {"io", "engine", "report", "commands"},
    "__init__": {"api", "errors"},
}
HEAVY = ("torch", "warp", "mitsuba", "drjit", "cv2", "trimesh", "av", "matplotlib", "scipy", "numpy", "yaml", "jinja2")
FILES = sorted(PACKAGE.rglob("*.py"))
OUTSIDE = sorted(path for folder in ("experiments", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def unit_of(path: Path) -> str:
    """The package (or top-level module) of vid2phys that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST, top_level_only: bool = False) -> set[str]:
    """Dotted names of everything imported; `from a import b` gives `a.b`."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree) if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_import_table(path: Path) -> None:
    unit = unit_of(path)
    assert unit in MAY_IMPORT, f"{unit} is not in the import table of the design"
    for name in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
        parts = name.split(".")
        if parts[0] == "vid2phys" and len(parts) > 1 and parts[1] != unit:
            assert parts[1] in MAY_IMPORT[unit], f"{path.relative_to(PACKAGE)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_package_imports_no_experiment_and_no_benchmark(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports_of(ast.parse(path.read_text(encoding="utf-8")))}
    assert not roots & {"experiments", "benchmarks", "tests", "scripts"}


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_experiments_and_benchmarks_use_public_names(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = imports_of(tree)
    private = {name for name in names if name.startswith("vid2phys") and any(map(is_private, name.split(".")))}
    assert not private, f"private modules or names of vid2phys: {sorted(private)}"
    imported = {alias.asname or alias.name for node in ast.walk(tree) for alias in aliases_of_package(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) in imported:
            raise AssertionError(f"line {node.lineno}: {ast.unparse(node)} is private")


def is_private(name: str) -> bool:
    """Return whether a name begins with an underscore and is none of Python's own."""
    return name.startswith("_") and not name.startswith("__")


def aliases_of_package(node: ast.AST) -> list[ast.alias]:
    """Return what an import statement takes from vid2phys; nothing of other statements."""
    return node.names if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vid2phys") else []


def test_mitsuba_is_imported_in_one_place() -> None:
    users = [p for p in FILES if any(n.split(".")[0] == "mitsuba" for n in imports_of(ast.parse(p.read_text())))]
    assert {p.relative_to(PACKAGE).as_posix() for p in users} <= {"engine/render/mitsuba.py"}


FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "torch.load",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
}
FORBIDDEN_KEYWORDS = {"shell", "allow_pickle"}  # with True


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_runs_what_it_reads(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not FORBIDDEN_MODULES & {name.split(".")[0] for name in imports_of(tree)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        assert ast.unparse(call.func) not in FORBIDDEN_CALLS, f"line {call.lineno}"
        for keyword in call.keywords:
            forbidden = keyword.arg in FORBIDDEN_KEYWORDS and ast.unparse(keyword.value) != "False"
            assert not forbidden, f"line {call.lineno}"


@pytest.mark.parametrize("arguments", [["--help"], ["identify", "--help"], ["--version"]])
def test_command_line_starts_light(arguments: list[str]) -> None:
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print('HEAVY', [m for m in {HEAVY} if m in sys.modules]))\n"
        f"sys.argv = ['vid2phys', *{arguments}]\n"
        "from vid2phys.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("HEAVY []")
