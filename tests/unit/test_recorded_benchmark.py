"""The benchmark of recorded data: its readers, its rows, and a simulated log in a crazyflie's clothes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from benchmarks.recorded import crazyflie
from benchmarks.recorded.rows import estimate, markdown, median
from vid2phys.errors import InputError
from vid2phys.io.matlab import load_matlab
from vid2phys.types import Estimate

MASS, COLUMNS = 0.035, ("t_s", "locSrv.x", "locSrv.y", "locSrv.z", "ctrlLee.rpyx", "ctrlLee.rpyy",
                        "ctrlLee.thrustSI", "acc.z")  # fmt: skip


def write_log(path: Path, mass: float = MASS) -> None:
    """Three seconds at 250 Hz: a flight up and down, tilted, its heights every third row and to a millimetre."""
    t = np.arange(750) * 0.004
    height = 1.0 + 0.2 * np.sin(2.0 * t)
    roll, pitch = 0.1 * np.sin(3.0 * t), 0.2 * np.cos(2.0 * t)
    force = (9.81 - 0.8 * np.sin(2.0 * t)) / (np.cos(roll) * np.cos(pitch))
    seen = np.round(height, 3)[np.arange(750) // 3 * 3]
    sideways = np.round(0.5 * t, 3)[np.arange(750) // 3 * 3]
    rows = np.stack([t, sideways, 0.0 * t, seen, roll, pitch, mass * force, force / 9.81], axis=1)
    np.savetxt(path, rows, delimiter=",", header=",".join(COLUMNS), comments="")


def test_the_mass_of_a_simulated_log_is_recovered(tmp_path: Path) -> None:
    write_log(tmp_path / "log1.csv")
    log = crazyflie.load(tmp_path / "log1.csv")
    assert log.fresh.sum() == pytest.approx(249, abs=2)
    found = crazyflie.mass_of(log, 0.0)
    assert len(found.states) == 2  # the third second ends before the log does
    assert found["mass"].value == pytest.approx(MASS, rel=0.003)
    assert found["mass"].ci95[0] < MASS < found["mass"].ci95[1]


def test_a_log_without_thrust_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("t_s,locSrv.x\n0,1\n")
    with pytest.raises(InputError, match=r"ctrlLee\.thrustSI"):
        crazyflie.load(tmp_path / "log.csv")


def test_matlab_cells_come_as_lists(tmp_path: Path) -> None:
    cells = np.empty((2, 1), dtype=object)
    cells[0, 0], cells[1, 0] = np.arange(3.0), np.arange(4.0)
    savemat(tmp_path / "a.mat", {"cells": cells, "number": 2.5})
    data = load_matlab(tmp_path / "a.mat")
    assert [len(cell.ravel()) for cell in data["cells"]] == [3, 4]
    assert data["number"].item() == 2.5
    (tmp_path / "b.mat").write_text("no matlab")
    with pytest.raises(InputError, match="cannot be read"):
        load_matlab(tmp_path / "b.mat")


def test_rows_say_whether_a_published_value_is_in_the_interval() -> None:
    found = Estimate("mu", "1", 0.17, (0.16, np.inf), True)
    row = estimate("tosses", "rigid_contact", "ours", found, 0.18)
    assert row["published_in_interval"]
    assert row["ci95"] == [0.16, None]
    far = median("tosses", "rigid_contact", "ours", "distance", np.array([0.01, 0.02, 0.3]), "m")
    assert far["value"] == 0.02
    assert far["ci95"][0] <= 0.02 <= far["ci95"][1]
    text = markdown([row, far])
    assert "| 0.16 to  | 0.18 |" in text
    assert text.count("\n") == 3
