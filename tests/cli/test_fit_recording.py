"""`vid2phys fit-recording`: what `simulate` wrote is fitted again, and mistakes end in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vid2phys.errors import InputError, UsageError
from vid2phys.tasks.fit_recording import fit_recording
from vid2phys.tasks.show import print_recorded
from vid2phys.tasks.simulate import simulate


@pytest.fixture(scope="module")
def swing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A swing's angles with noise and a blank, the rate left out, as a laboratory would write it."""
    folder = tmp_path_factory.mktemp("swing")
    values = {"length": 0.6, "damping": 0.05}
    simulate("pendulum", set_values=values, initial={"angle_rad": 1.0}, seconds=4.0, rate=50.0, out=folder / "run")
    table = np.genfromtxt(folder / "run" / "trajectory.csv", delimiter=",", names=True)
    angle = table["angle_rad"] + np.random.default_rng(0).normal(0.0, 0.005, len(table)) + 0.02
    lines = [f"{t:.3f},{a:.5f}" for t, a in zip(table["time_s"], angle, strict=True)]
    lines[40] = lines[40].split(",")[0] + ","
    (folder / "swing.csv").write_text("\n".join(["time_s,angle_rad", *lines]) + "\n")
    return folder


def test_a_swing_is_fitted(swing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, folder = fit_recording(
        "pendulum", [swing / "swing.csv"], fit=("length", "damping"), offsets=("angle_rad",), out=swing / "fit"
    )
    result = json.loads((folder / "result.json").read_text())
    for name, truth in (("length", 0.6), ("damping", 0.05), ("angle_rad", 0.02)):
        low, high = result["parameters"][name]["ci95"]
        assert low < truth < high
        assert high - low < 0.2 * truth
    assert result["schema"] == "vid2phys.recorded/1"
    assert result["status"] == "converged"
    assert result["misfit"] == pytest.approx(1.0, abs=0.5)
    fitted = np.genfromtxt(folder / "fitted_0.csv", delimiter=",", names=True)
    assert fitted["angle_rad"][0] == pytest.approx(1.0, abs=0.01)
    assert (folder / "config.yaml").is_file()
    print_recorded(found, folder)
    printed = capsys.readouterr().out
    assert "length" in printed
    assert "95 % interval" in printed


def test_mistakes_are_named(swing: Path) -> None:
    with pytest.raises(UsageError, match="nothing to fit"):
        fit_recording("pendulum", [swing / "swing.csv"], fit=())
    with pytest.raises(UsageError, match="lenght"):
        fit_recording("pendulum", [swing / "swing.csv"], fit=("lenght",))
    with pytest.raises(UsageError, match="angle"):
        fit_recording("pendulum", [swing / "swing.csv"], fit=("length",), std={"angle": 0.1})
    with pytest.raises(InputError, match="none of the states of 'double_pendulum'"):
        fit_recording("double_pendulum", [swing / "swing.csv"], fit=("length_1",))
    with pytest.raises(InputError, match="nowhere"):
        fit_recording("pendulum", [swing / "nowhere.csv"], fit=("length",))
