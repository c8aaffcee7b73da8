"""Check who may import whom, and that the command line starts light.

The tests read the syntax trees. Imports inside functions count; those under `if TYPE_CHECKING` do not, except in the
table of packages. Limit: modules that `importlib` finds by name are not seen.
"""

from __future__ import annotations

import ast
import functools
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
# Inside a package: what each sub-package may import of the others, "" standing for the package's own modules.
MAY_IMPORT_INSIDE = {
    "io": {"": set(), "camera": {""}, "mocap": {""}, "camera_trajectory": {"", "camera", "mocap"}},
    "engine": {
        "kernels": set(),
        "": {"kernels"},
        "render": {"kernels", ""},
        "systems": {"kernels", ""},
        "movable": {"kernels", "", "systems"},
    },
    "risp": {
        "appearance": set(),
        "shape": set(),
        "renders": {"appearance"},
        "networks": {"shape", "renders"},
        "heads": {"shape", "renders", "networks"},
        "penalties": {"networks", "heads"},
        "training": {"appearance", "shape", "renders", "networks", "heads", "penalties"},
        "": {"appearance", "shape", "renders", "networks", "heads", "penalties", "training"},
    },
    "tracking": {
        "cues": set(),
        "detectors": {"cues"},
        "": {"cues", "detectors"},
        "articulated": {"cues", "detectors", ""},
        "uncertainty": {"cues", "detectors", "", "articulated"},
    },
    "solvers": {"": set(), "losses": {""}},
}
# Imports against that order that exist today. Remove an entry when its import is gone.
AGAINST_THE_ORDER = {
    ("tracking.cues.contour", "tracking.refine"),
    ("tracking.cues.texture_patches", "tracking.detectors.network"),
    ("solvers.gradient", "solvers.losses"),
    ("solvers.input_estimation", "solvers.losses"),
}
HEAVY = ("torch", "warp", "mitsuba", "drjit", "cv2", "trimesh", "av", "matplotlib", "scipy", "numpy", "yaml", "jinja2")
FILES = sorted(PACKAGE.rglob("*.py"))
OUTSIDE = sorted(path for folder in ("experiments", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def unit_of(path: Path) -> str:
    """Return the package (or top-level module) of vid2phys that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    """Return the dotted name of a module inside vid2phys; that of a package's `__init__` is the package's."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in FILES}


def running_imports(tree: ast.AST) -> set[str]:
    """Return the dotted names of everything that is imported at run time, functions included."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return found


@functools.cache
def import_graph() -> dict[str, set[str]]:
    """Return the modules of vid2phys that each of them imports at run time, the package's root left out."""
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        graph[name] = set()
        for imported in running_imports(ast.parse(path.read_text(encoding="utf-8"))):
            target = imported.removeprefix("vid2phys.") if imported.startswith("vid2phys.") else ""
            while target and target not in MODULES:  # `from module import thing`
                target = target.rpartition(".")[0]
            if target and target != name:
                graph[name].add(target)
    return graph


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return what `start` imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def place_inside(module: str) -> str:
    """Return the sub-package of a module within its package, "" for one of the package's own modules."""
    part = ".".join(module.split(".")[:2])
    return part.partition(".")[2] if (PACKAGE / part.replace(".", "/")).is_dir() else ""


def imports_of(tree: ast.AST, top_level_only: bool = False) -> set[str]:
    """Return the dotted names of everything imported; `from a import b` gives `a.b`."""
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


def test_order_inside_packages() -> None:
    against = set()
    for name, targets in import_graph().items():
        package = name.split(".")[0]
        if package not in MAY_IMPORT_INSIDE or name == package:
            continue
        own = place_inside(name)
        assert own in MAY_IMPORT_INSIDE[package], f"'{own}' is not in the table of {package}"
        inside = {target for target in targets if target.startswith(f"{package}.") and place_inside(target) != own}
        allowed = MAY_IMPORT_INSIDE[package][own]
        against |= {(name, target) for target in inside if place_inside(target) not in allowed}
    new, gone = against - AGAINST_THE_ORDER, AGAINST_THE_ORDER - against
    assert not new, f"imports against the order of sub-packages: {sorted(new)}"
    assert not gone, f"remove these from AGAINST_THE_ORDER: {sorted(gone)}"


def test_no_import_circles() -> None:
    graph = import_graph()
    reach = {name: reachable(graph, name) for name in graph}
    circles = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }
    assert not circles, f"import circles: {[sorted(circle) for circle in circles]}"


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
