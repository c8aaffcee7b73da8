"""`vid2phys fit-recording`: what `simulate` wrote is fitted again, and mistakes end in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vid2phys.cli import app
from vid2phys.commands.fit_recording import fit_recording
from vid2phys.commands.show import print_recorded
from vid2phys.commands.simulate import simulate
from vid2phys.engine import systems
from vid2phys.engine.rollout import simulate as integrate
from vid2phys.errors import InputError, UsageError


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


def angles(folder: Path, name: str, scale: float, start: float, rate: float, noise: float = 1e-4) -> Path:
    """The angle of a swing of 0.6 m, times `scale`."""
    system = systems.get("pendulum")
    values = system.parameters().with_values({"length": 0.6, "damping": 0.02}).vector
    states = integrate(system, np.array([[start, rate]]), np.zeros((1, 180, 2)), values, 1.0 / 60.0, substeps=10)[0]
    angle = scale * (states[:, 0] + np.random.default_rng(0).normal(0.0, noise, 181))
    rows = "".join(f"{t:.6f},{a:.8f}\n" for t, a in zip(np.arange(181) / 60.0, angle, strict=True))
    (folder / name).write_text(f"time_s,angle_rad\n{rows}")
    return folder / name


@pytest.mark.parametrize(("start", "rate"), [(0.5, 0.0), (0.0, 9.0), (0.0175, 0.0)])
def test_degrees_are_suspected(tmp_path: Path, start: float, rate: float) -> None:
    """Swings of 30 degrees, over the top and of 1 degree in a column that says rad."""
    path = angles(tmp_path, "swing.csv", 180.0 / np.pi, start, rate)
    found, _ = fit_recording("pendulum", [path], fit=("length", "damping"), most_seconds=60.0, out=tmp_path / "fit")
    assert found.status != "converged"
    assert any("angle_rad taken as degrees" in note for note in found.fit.notes)


@pytest.mark.parametrize(("start", "rate"), [(0.5, 0.0), (0.0, 9.0), (0.02, 0.0)])
def test_radians_are_not_suspected(tmp_path: Path, start: float, rate: float) -> None:
    path = angles(tmp_path, "swing.csv", 1.0, start, rate)
    found, _ = fit_recording("pendulum", [path], fit=("length", "damping"), out=tmp_path / "fit")
    assert found.status == "converged"
    assert found.fit["length"].ci95[0] < 0.6 < found.fit["length"].ci95[1]
    assert not any("degrees" in note for note in found.fit.notes)


def test_an_arm_hangs_or_is_held(tmp_path: Path) -> None:
    """Joint angles alone: a passive swing by default, one against the weight with `hold`."""
    for hold in (False, True):
        folder = tmp_path / f"{hold}"
        simulate("articulated", initial={"elbow_rad": 0.5}, seconds=0.6, rate=30.0, step=1e-3, hold=hold,
                 out=folder / "run")  # fmt: skip
        rows = [line.split(",")[:4] for line in (folder / "run" / "trajectory.csv").read_text().splitlines()]
        (folder / "angles.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
        found, _ = fit_recording("articulated", [folder / "angles.csv"], fit=("damping_elbow",), hold=hold,
                                 out=folder / "fit")  # fmt: skip
        assert found.fit["damping_elbow"].value == pytest.approx(0.02, rel=0.05)
        assert any("--hold" in note for note in found.fit.notes)
    with pytest.raises(UsageError, match="--hold beside --actions"):
        fit_recording("articulated", [folder / "angles.csv"], fit=("damping_elbow",), hold=True, actions="a.csv")


def test_a_hold_that_depends_on_what_is_fitted_is_refused(tmp_path: Path) -> None:
    """The fit would find the mass that it began with."""
    simulate("quadrotor", set_values={"mass": 1.5}, hold=True, seconds=0.5, out=tmp_path / "run")
    rows = [line.split(",")[:14] for line in (tmp_path / "run" / "trajectory.csv").read_text().splitlines()]
    (tmp_path / "poses.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    with pytest.raises(UsageError, match="--hold with --fit mass"):
        fit_recording("quadrotor", [tmp_path / "poses.csv"], fit=("mass",), hold=True)


def test_what_determines_nothing_does_not_converge(tmp_path: Path) -> None:
    rows = "".join(f"{0.01 * i:.2f},0\n" for i in range(200))
    (tmp_path / "still.csv").write_text(f"time_s,angle_rad\n{rows}")
    found, _ = fit_recording("pendulum", [tmp_path / "still.csv"], fit=("length", "damping"), out=tmp_path / "fit")
    assert found.status == "not_identifiable"
    assert any("not determined by this recording" in note for note in found.fit.notes)


def test_an_exact_recording_has_no_warning(tmp_path: Path) -> None:
    """What rounding leaves is not noise, and is not the model's fault."""
    values = {"length": 0.5, "damping": 0.02}
    simulate("pendulum", set_values=values, initial={"angle_rad": 1.0}, seconds=4.0, out=tmp_path / "run")
    table = tmp_path / "run" / "trajectory.csv"
    found, _ = fit_recording("pendulum", [table], fit=("length", "damping"), out=tmp_path / "fit")
    assert found.status == "converged"
    assert found.fit.notes == ()


def test_times_in_milliseconds_are_refused(swing: Path, tmp_path: Path) -> None:
    lines = (swing / "swing.csv").read_text().splitlines()
    rows = [f"{1e3 * float(line.split(',')[0]):.0f},{line.split(',')[1]}" for line in lines[1:]]
    (tmp_path / "ms.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    with pytest.raises(InputError, match="check that time_s is in seconds"):
        fit_recording("pendulum", [tmp_path / "ms.csv"], fit=("length",))


def test_a_pause_is_filled(tmp_path: Path) -> None:
    values = {"length": 0.5, "damping": 0.02}
    simulate("pendulum", set_values=values, initial={"angle_rad": 1.0}, seconds=8.0, rate=50.0, out=tmp_path / "run")
    lines = (tmp_path / "run" / "trajectory.csv").read_text().splitlines()
    rows = [",".join(line.split(",")[:2]) for line in lines]
    (tmp_path / "pause.csv").write_text("\n".join([*rows[:100], *rows[300:]]) + "\n")
    found, folder = fit_recording("pendulum", [tmp_path / "pause.csv"], fit=("length", "damping"), out=tmp_path / "fit")
    assert found.fit["length"].value == pytest.approx(0.5, rel=1e-4)
    assert found.fit["damping"].value == pytest.approx(0.02, rel=1e-2)
    assert len((folder / "fitted_0.csv").read_text().splitlines()) == len(lines)


def test_controls_of_a_recording_are_not_replaced_in_silence(tmp_path: Path) -> None:
    simulate("pendulum", initial={"angle_rad": 0.5}, seconds=1.0, out=tmp_path / "run")
    table = tmp_path / "run" / "trajectory.csv"
    with pytest.raises(UsageError, match="--hold beside control_ columns"):
        fit_recording("pendulum", [table], fit=("length",), hold=True)
    found, _ = fit_recording("pendulum", [table], fit=("length",), set_values={"mass": 1.0},
                             actions=tmp_path / "run" / "actions.csv", out=tmp_path / "fit")  # fmt: skip
    assert any("--actions take the place" in note for note in found.fit.notes)


def test_actions_that_end_early_are_refused(tmp_path: Path) -> None:
    simulate("pendulum", initial={"angle_rad": 0.5}, seconds=1.0, out=tmp_path / "run")
    (tmp_path / "short.csv").write_text("time_s,torque_Nm\n0,0\n0.1,0\n0.2,0\n")
    with pytest.raises(InputError, match=r"the actions cover 0 to 0\.3 s"):
        fit_recording("pendulum", [tmp_path / "run" / "trajectory.csv"], fit=("length",),
                      actions=tmp_path / "short.csv")  # fmt: skip


def test_a_fit_that_is_stopped_ends_with_4(swing: Path, tmp_path: Path) -> None:
    options = ["--fit", "length", "--out", str(tmp_path / "fit")]
    done = CliRunner().invoke(app, ["fit-recording", "pendulum", str(swing / "swing.csv"), *options, "--most-seconds",
                                    "1e-6"])  # fmt: skip
    assert done.exit_code == 4
    assert "not converged" in done.output
    assert "warning: the fit was stopped" in done.output
    assert json.loads((tmp_path / "fit" / "result.json").read_text())["status"] == "not_converged"
    with pytest.raises(UsageError, match="--most-seconds -1"):
        fit_recording("pendulum", [swing / "swing.csv"], fit=("length",), most_seconds=-1.0)


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
