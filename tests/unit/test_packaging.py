"""What is installed from a wheel: the models and data files come along and are found, the command starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt")
MODELS = sorted(path.parent.name for path in (ROOT / "models").glob("*/config.json"))


def build(source: Path, out: Path, what: str) -> Path:
    """Build `wheel` or `sdist` from a source folder by the project's own backend, without a network."""
    code = f"from setuptools.build_meta import build_{what} as build; print(build({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in ("vid2phys", "models"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    return build(source, tmp_path_factory.mktemp("dist"), "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the sdist alone, as an installer does."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["tar", "-xf", sdist, "-C", unpacked], check=True)
    return build(next(unpacked.iterdir()), tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import the wheel's package from."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(site: Path, cwd: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(cwd), **variables}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, env=environment)


def test_wheel_holds_models_and_data_files_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert MODELS
    for model in MODELS:
        shipped = {name.rpartition("/")[2] for name in names if name.startswith(f"vid2phys/models/{model}/")}
        assert shipped == {path.name for path in (ROOT / "models" / model).iterdir()}
    for data in ("py.typed", "io/schemas/result.schema.json", "report/templates/report.html.j2"):
        assert f"vid2phys/{data}" in names
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "vid2phys").rglob("*.py")}
    assert sources <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"vid2phys"}  # no experiments, no benchmarks
    assert wheel.stat().st_size < 30_000_000


def test_installed_package_finds_its_models_from_any_folder(installed: Path, tmp_path: Path) -> None:
    code = (
        "import vid2phys; from vid2phys.io.mesh import load_mesh\n"
        "from vid2phys.risp.networks.model_lookup import find_model\n"
        f"print(vid2phys.__file__); print(find_model(load_mesh({str(ROOT / 'samples/quadrotor/quad.obj')!r})).folder)"
    )
    done = run(installed, tmp_path, "-c", code, XDG_DATA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    package, folder = map(Path, done.stdout.split())
    assert package == installed / "vid2phys" / "__init__.py"
    assert folder == installed / "vid2phys" / "models" / "quadrotor"


def test_doctor_names_the_models_that_came_along(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "-m", "vid2phys", "doctor", XDG_DATA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    for model in MODELS:
        assert f"model {model} " in done.stdout


def test_installed_package_says_where_to_get_the_experiments(installed: Path, tmp_path: Path) -> None:
    for arguments in ((), ("risp-table1", "--quick")):
        done = run(installed, tmp_path, "-m", "vid2phys", "reproduce", *arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "the experiments are not part of an installed package" in done.stderr
        assert "clone the project's repository" in done.stderr


def test_checkout_finds_the_experiments_from_any_folder(tmp_path: Path) -> None:
    done = run(ROOT, tmp_path, "-m", "vid2phys", "reproduce")
    assert done.returncode == 0, done.stderr
    assert {"risp-table1", "gradsim-table3"} <= set(done.stdout.split())


@pytest.mark.parametrize(
    ("typed", "word", "offered"),
    [("vid2phys iden", 1, ["identify"]), ("vid2phys identify --system quad", 3, ["quadrotor"])],
)
def test_shell_completion(installed: Path, tmp_path: Path, typed: str, word: int, offered: list[str]) -> None:
    variables = {"_VID2PHYS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(word)}
    done = run(installed, tmp_path, "-m", "vid2phys", **variables)
    assert done.stdout.split() == offered, done.stderr


@pytest.mark.slow
def test_wheel_installs_into_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """As pipx does it; the requirements are those of this environment, read by a .pth file."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install"]
    subprocess.run([*install, "-q", "--no-deps", "--no-index", str(wheel)], check=True)
    site = next((venv / "lib").glob("python*/site-packages"))
    (site / "requirements.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    sample = ROOT / "samples/quadrotor"
    command = [str(venv / "bin/vid2phys"), "identify", str(sample / "clip.mp4"), "--mesh", str(sample / "quad.obj")]
    options = ["--camera", str(sample / "camera.yaml"), "--no-refine", "--no-overlay", "--out", "run"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert f"{site}/vid2phys/models/quadrotor" in (tmp_path / "run/result.json").read_text()
