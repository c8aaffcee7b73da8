"""The recipes of CONTRIBUTING.md: each block, written to a folder of its own, is picked up by the tool."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from vid2phys.io.keypoints import load_keypoints
from vid2phys.io.points import load_body_points

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = {
    name: text
    for name, text in re.findall(r"<!-- recipe: (\S+) -->\n```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
}


def python(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with this checkout's packages."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def placed(recipe: str, folder: Path) -> str:
    """Write a recipe's block into a folder; return the code that puts the folder on the path of its package."""
    path = Path(recipe)
    (folder / path.name).write_text(BLOCKS[recipe])
    package = ".".join(path.parent.parts)
    return f"import importlib; importlib.import_module({package!r}).__path__.append({str(folder)!r})\n"


def contract(file: str, name: str, before: str) -> str:
    """Return a program that runs the tests of a contract whose names hold `name`."""
    arguments = [
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(ROOT),
        str(ROOT / "tests" / "contract" / file),
        "-k",
        name,
    ]
    return f"{before}import sys, pytest\nsys.exit(pytest.main({arguments!r}))"


def test_every_recipe_is_run_here() -> None:
    assert set(BLOCKS) == {
        "vid2phys/solvers/losses/points.py",
        "vid2phys/io/camera/six_numbers.py",
        "vid2phys/tracking/cues/brightness.py",
        "vid2phys/tracking/detectors/grid.py",
        "experiments/gradsim_swing.py",
        "detect.py",
    }


def test_files_that_a_recipe_names_exist() -> None:
    recipes = TEXT.split("## Recipes")[1]
    named = re.findall(r"`((?:vid2phys|tracking|experiments|tests|docs)/[\w/.-]+)`", recipes)
    named = [name if not name.startswith("tracking") else f"vid2phys/{name}" for name in named]
    assert named
    assert [name for name in named if not (ROOT / name).exists() and name not in BLOCKS] == []


def test_a_system_keeps_its_contract(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "your-system.md").read_text(encoding="utf-8")
    (tmp_path / "slider.py").write_text(page.split("```python\n")[1].split("```")[0])
    done = python(contract("test_systems.py", "slider", ""), tmp_path, VID2PHYS_SYSTEMS=str(tmp_path))
    assert re.search(r"\d\d+ passed", done.stdout), done.stdout[-500:]


def test_a_system_is_listed_from_a_folder_of_the_user(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "your-system.md").read_text(encoding="utf-8")
    (tmp_path / "slider.py").write_text(page.split("```python\n")[1].split("```")[0])
    code = "from vid2phys.engine import systems; print(systems.get('slider').name, 'slider' in systems.available())"
    assert python(code, tmp_path, VID2PHYS_SYSTEMS=str(tmp_path)).stdout.split() == ["slider", "True"]


def test_a_loss_keeps_its_contract(tmp_path: Path) -> None:
    before = placed("vid2phys/solvers/losses/points.py", tmp_path)
    done = python(contract("test_losses.py", "points", before), tmp_path)
    assert re.search(r"\d\d+ passed", done.stdout), done.stdout[-500:]


def test_a_camera_format_is_found(tmp_path: Path) -> None:
    before = placed("vid2phys/io/camera/six_numbers.py", tmp_path)
    (tmp_path / "lab.txt").write_text("815 816 322.7 236.4 640 480\n")
    code = "from vid2phys.io.camera import describe, format_of, load_camera\n"
    code += "print(format_of('lab.txt'), describe(load_camera('lab.txt')), sep='\\n')"
    found = python(before + code, tmp_path).stdout.splitlines()
    assert found == ["six_numbers", "plumb_bob, fx 815, fy 816, cx 322.7, cy 236.4, no distortion, 640x480"]


def test_an_experiment_is_listed_and_run(tmp_path: Path) -> None:
    before = placed("experiments/gradsim_swing.py", tmp_path)
    code = "from pathlib import Path\nimport experiments\nassert 'gradsim-swing' in experiments.available()\n"
    code += "experiments.reproduce('gradsim-swing', out=Path('out'), work=Path('work'), quiet=True)"
    python(before + code, tmp_path)
    table = (tmp_path / "out" / "gradsim-swing.md").read_text()
    error = float(table.split("| pendulum | ours | ")[1].split(" |")[0])
    assert 0.0 <= error < 1e-6


def test_a_cue_is_found_used_and_switched_off(tmp_path: Path) -> None:
    before = placed("vid2phys/tracking/cues/brightness.py", tmp_path)
    code = """
from dataclasses import replace
from pathlib import Path
import numpy as np
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.video import read_clip
from vid2phys.risp.networks.model import Model
from vid2phys.tracking.cues import available, brightness
from vid2phys.tracking.tracker import track

assert "brightness" in available()
sample, asked = Path(ROOT) / "samples" / "quadrotor", []
own = brightness.log_likelihood
brightness.log_likelihood = lambda *given: asked.append(own(*given)) or asked[-1]
clip, model = read_clip(sample / "clip.mp4"), Model.load(str(Path(ROOT) / "models" / "quadrotor"), "cpu")
clip = replace(clip, frames=ArrayFrames(np.stack(list(clip.frames.at(range(2))))), times_s=clip.times_s[:2])
given = clip, load_camera(sample / "camera.yaml", None), model, model.radius_m
for without in (), ("brightness",):
    assert track(*given, mesh=load_mesh(sample / "quad.obj", "m"), without=without).tracked.all()
    print(len(asked), all(np.isfinite(asked)))
"""
    first, second = python(f"ROOT = {str(ROOT)!r}\n{before}{code}", tmp_path).stdout.splitlines()
    assert first == second, "a cue that is off is not asked"
    assert int(first.split()[0]) > 0
    assert first.endswith("True")


def test_a_detector_is_asked_and_finds_the_body(tmp_path: Path) -> None:
    before = placed("vid2phys/tracking/detectors/grid.py", tmp_path)
    code = """
from pathlib import Path
import numpy as np
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.camera import load_camera
from vid2phys.io.video import read_clip
from vid2phys.error_model import Calibration
from vid2phys.risp.networks.model import Model
from vid2phys.tracking.detectors import Places, locator, motion
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.tracking.detectors.search import ObjectDetector
from vid2phys.tracking.frame_store import FrameStore

sample, model = Path(ROOT) / "samples" / "quadrotor", Model.load(str(Path(ROOT) / "models" / "quadrotor"), "cpu")
clip, camera = read_clip(sample / "clip.mp4"), load_camera(sample / "camera.yaml", None)
frames = FrameStore(ArrayFrames(np.stack(list(clip.frames.at(range(0, 40, 8))))), clip.width, clip.height)
calibration = Calibration.from_dict(model.calibration)
detector = ObjectDetector(model, camera, frames.background, model.radius_m, calibration)
usual = direction_and_size(detector.search(frames[0]).translation, model.radius_m)
locator.propose = motion.propose = lambda *_: Places(np.zeros((0, 2)), np.zeros(0))
found = direction_and_size(detector.search(frames[0]).translation, model.radius_m)
print(np.linalg.norm(found[0] - usual[0]) / np.tan(usual[1]))
"""
    found = python(f"ROOT = {str(ROOT)!r}\n{before}{code}", tmp_path).stdout
    assert float(found) < 0.25, "the grid alone leads to where the other detectors lead, in radii of the body"


def test_keypoints_of_a_detector_are_read(tmp_path: Path) -> None:
    python(BLOCKS["detect.py"], tmp_path)
    body = load_body_points(tmp_path / "body.csv")
    times_s = np.arange(30) / 30.0
    found = load_keypoints(tmp_path / "points.csv", tuple(body), times_s, (640, 480), tmp_path / "body.csv")
    assert found.pixels.shape == (30, 8, 2)
    assert found.visible.all()
