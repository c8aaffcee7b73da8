"""A clip that does not show the body of the mesh must not end as a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vid2phys.cli import app

CLIP = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "real_cube_video"
pytestmark = pytest.mark.skipif(not CLIP.is_dir(), reason="../shared/data is not there")


def plain_cube(folder: Path) -> Path:
    """Write the textured cube's mesh without its texture, so that the model of the plain cube fits it."""
    lines = (CLIP / "models" / "cube" / "cube.obj").read_text().splitlines()
    shape = [line for line in lines if line.startswith(("v ", "f "))]
    corners = [" ".join(word.split("/")[0] for word in line.split()) for line in shape]
    path = folder / "cube.obj"
    path.write_text("\n".join(corners) + "\n")
    return path


def camera_of(folder: Path) -> Path:
    lens = json.loads((CLIP / "megapose_cube.json").read_text())["camera"]
    path = folder / "camera.yaml"
    path.write_text(
        f"image_width: 640\nimage_height: 480\nfx: {lens['px']}\nfy: {lens['py']}\ncx: {lens['u0']}\ncy: {lens['v0']}\n"
        "camera_to_world: [[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 1], [0, 0, 0, 1]]\n"
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("part", [("2", "6"), ("20", "24")])
def test_a_hand_and_a_printed_cube_do_not_count_as_the_plain_cube(tmp_path: Path, part: tuple[str, str]) -> None:
    mesh, camera = str(plain_cube(tmp_path)), str(camera_of(tmp_path))
    options = f"--system rigid_contact --mesh-units m --from {part[0]} --to {part[1]} --no-overlay".split()
    clip, out = str(CLIP / "cube_video.mp4"), str(tmp_path / "run")
    ran = CliRunner().invoke(app, ["identify", clip, "--mesh", mesh, "--camera", camera, *options, "--out", out])
    assert ran.exit_code == 4, ran.output
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] in ("lost", "doubtful")
    notes = " ".join(result["diagnostics"]["notes"])
    assert "does not support" in notes or "one of the two is another thing" in notes
