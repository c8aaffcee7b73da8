"""The throw's files agree with each other, and the clip gives the true friction and restitution."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sample_clip import body_colors
from vid2phys.commands.fit_recording import fit_recording
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.io.primitives import load_body
from vid2phys.types import Result

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "throw"
BLOCK = "box:100x70x45mm"
FIT = ("mu", "restitution")


@pytest.fixture(scope="module")
def truth() -> dict[str, float]:
    return dict(json.loads((SAMPLE / "truth.json").read_text())["parameters"])


def test_the_clip_shows_the_block_where_its_motion_places_it() -> None:
    for red, _, blue in body_colors(SAMPLE, load_body(None, BLOCK), (0, 16, 30, -1)):
        assert red > 1.5 * blue  # the block is ochre, table and wall are not


@pytest.mark.slow
def test_the_true_poses_give_the_true_parameters(truth: dict[str, float], tmp_path: Path) -> None:
    fitted, _ = fit_recording(
        *("rigid_contact", [SAMPLE / "states.csv"]), body=Path(BLOCK), fit=FIT, out=tmp_path / "run"
    )
    for name in FIT:
        found = fitted.fit[name]
        assert found.ci95[0] < truth[name] < found.ci95[1]
        assert found.value == pytest.approx(truth[name], abs=0.03)


def identified(out: Path, clips: int) -> Result:
    config = IdentifyConfig(
        clip=(SAMPLE / "clip.mp4",) * clips if clips > 1 else SAMPLE / "clip.mp4",
        body=BLOCK,
        camera=SAMPLE / "camera.yaml",
        fit=FIT,
        overlay=False,
        out=out,
    )
    return identify(config)[0]


@pytest.mark.slow
def test_the_clip_gives_the_true_parameters(truth: dict[str, float], tmp_path: Path) -> None:
    result = identified(tmp_path / "run", 1)
    assert result.status.key == "converged"
    found = {each.name: each for each in result.parameters}
    for name in FIT:
        assert found[name].ci95[0] < truth[name] < found[name].ci95[1]
        assert found[name].value == pytest.approx(truth[name], abs=0.05)


@pytest.mark.slow
def test_the_same_clip_twice_gives_the_same_values_by_narrower_intervals(tmp_path: Path) -> None:
    one, two = (identified(tmp_path / str(clips), clips) for clips in (1, 2))
    single, joint = ({each.name: each for each in result.parameters} for result in (one, two))
    for name in FIT:
        assert joint[name].value == pytest.approx(single[name].value, rel=1e-3)
        widths = [each[name].ci95[1] - each[name].ci95[0] for each in (joint, single)]
        assert widths[0] / widths[1] == pytest.approx(0.5**0.5, rel=0.02)
    assert len(two.clips) == 2
