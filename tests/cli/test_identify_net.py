"""`vid2phys identify` of a drawn net of springs: its parameters, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests import hanging_net
from tests.hanging_net import CLAMP, MASS_KG, TRUTH
from vid2phys import cli


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short clip, its camera and its net."""
    folder = tmp_path_factory.mktemp("filmed")
    hanging_net.write(folder, 10)
    return folder


def run_cli(monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str, clamp: str = CLAMP) -> int:
    given = ["identify", str(folder / "images"), "--fps", "60", "--system", "mass_spring", "--clamp", clamp]
    given += ["--body", str(folder / "net.obj"), "--camera", str(folder / "cam.yaml"), "--out", str(folder / "run")]
    monkeypatch.setattr("sys.argv", ["vid2phys", *given, *more])
    return cli._run()


def error(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[")]
    assert len(lines) == 1
    return lines[0]


def estimates(folder: Path, names: tuple[str, ...], shares: dict[str, float]) -> dict[str, object]:
    """Return the result, after its values were compared with the truth. shares: largest relative error of each."""
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["status"] == "converged", result["message"]
    for name in names:
        found = result["parameters"][name]
        low, high = found["ci95"]
        assert low < TRUTH[name] < high, (name, low, high)
        if name in shares:
            assert high - low < TRUTH[name]
            assert found["value"] == pytest.approx(TRUTH[name], rel=shares[name])
    return result


@pytest.mark.slow
def test_stiffness_damping_drag_and_velocity_of_a_net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging_net.write(tmp_path, 30)
    assert run_cli(monkeypatch, tmp_path, "--set", f"mass={MASS_KG}", "--set", "stiffness=20",
                   "--fit", "stiffness,damping,drag,start_velocity") == 0  # fmt: skip
    shares = {"stiffness": 0.02, "damping": 0.15, "drag": 0.15, "start_velocity_y": 0.03}
    estimates(tmp_path, tuple(TRUTH), shares)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"overlay.mp4", "report.html", "trajectory.csv"} <= files
    header, *rows = (tmp_path / "run" / "trajectory.csv").read_text().splitlines()
    assert "position_x_m of point 24" in header
    assert len([row for row in rows if row[0].isdigit()]) == 30


@pytest.mark.slow
def test_without_a_mass_ratios_show_and_the_result_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the mass, half the stiffness and half the damping move alike."""
    hanging_net.write(tmp_path, 20)
    start = [text for name in ("start_velocity_x", "start_velocity_y") for text in ("--set", f"{name}={TRUTH[name]}")]
    known = ["--set", f"drag={0.05 * TRUTH['drag'] / MASS_KG}", "--fit", "stiffness,damping", "--no-overlay"]
    assert run_cli(monkeypatch, tmp_path, *start, *known) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    taken = result["parameters"]["mass"]["value"]
    assert taken == 0.05
    assert any(
        "no mass of each point is given: 0.05 kg is taken" in str(note) for note in result["diagnostics"]["notes"]
    )
    ratio = result["parameters"]["stiffness"]["value"] / taken
    assert ratio == pytest.approx(TRUTH["stiffness"] / MASS_KG, rel=0.05)


@pytest.mark.slow
def test_of_mass_and_springs_only_ratios_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging_net.write(tmp_path, 12)
    given = {"mass": 0.003, "stiffness": 12.0, "drag": 0.002, "start_velocity_x": 0.1, "start_velocity_y": 0.7}
    values = [text for name, value in given.items() for text in ("--set", f"{name}={value}")]
    assert run_cli(monkeypatch, tmp_path, *values, "--fit", "stiffness,damping,drag,mass", "--no-overlay") == 4
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["status"] == "not_identifiable"
    assert "only the ratios of stiffness, damping, mass and drag are determined" in result["message"]


@pytest.mark.parametrize(
    ("more", "clamp", "code", "message"),
    [
        ((), "z>0.5", 3, "holds no vertices"),
        (("--fit", "bending_stiffness"), CLAMP, 2, "unknown parameter 'bending_stiffness'"),
        (("--actions", "a.csv"), CLAMP, 2, "gravity and air alone"),
        (("--load", "0.1@z<0.1"), CLAMP, 2, "a net without a load"),
        (("--set", "stiffness=1e8"), CLAMP, 3, "steps between two frames"),
        (("--base", "shift:0.25:0:0"), CLAMP, 3, "the net is not where"),
    ],
)
def test_options_that_do_not_serve_are_one_line(
    filmed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: tuple[str, ...],
    clamp: str, code: int, message: str,
) -> None:  # fmt: skip
    assert run_cli(monkeypatch, filmed, *more, clamp=clamp) == code
    assert message in error(capsys)
    assert not (filmed / "run").exists()


def test_files_that_do_not_serve_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging_net.write(tmp_path, 8, moving=False)
    texts = {
        "nothing moves": hanging_net.obj(),
        "has no faces": hanging_net.obj(with_faces=False),
        "has no springs": hanging_net.obj(with_faces=False, with_lines=False),
        "a line that uses vertex 26": hanging_net.obj() + "l 1 26\n",
        "no spring holds vertex 26": hanging_net.obj() + "v 0 0 0.3\n",
    }
    for message, text in texts.items():
        (tmp_path / "net.obj").write_text(text)
        assert run_cli(monkeypatch, tmp_path) == 3
        assert message in error(capsys)


def test_a_simulated_net_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point on one spring: it swings about its sag by m g / k, with the period 2 pi sqrt(m / k)."""
    (tmp_path / "net.obj").write_text("v 0 0 0.5\nv 0 0 0.2\nl 1 2\n")
    period, sag = 2.0 * np.pi * np.sqrt(0.1 / 40.0), 0.1 * 9.81 / 40.0
    given = ["simulate", "mass_spring", "--body", str(tmp_path / "net.obj"), "--clamp", "z>0.4", "--out"]
    given += [str(tmp_path / "run"), "--seconds", f"{period:.6f}", "--rate", f"{8 / period:.6f}"]
    values = [text for pair in ("mass=0.1", "stiffness=40", "damping=0") for text in ("--set", pair)]
    monkeypatch.setattr("sys.argv", ["vid2phys", *given, *values])
    assert cli._run() == 0
    lines = [row for row in (tmp_path / "run" / "trajectory.csv").read_text().splitlines() if not row.startswith("#")]
    column = lines[0].split(",").index("position_z_m of point 1")
    heights = np.array([float(row.split(",")[column]) for row in lines[1:]])
    expected = 0.2 - sag * (1.0 - np.cos(2.0 * np.pi * np.arange(len(heights)) / 8))
    np.testing.assert_allclose(heights, expected, atol=2e-3 * sag)
