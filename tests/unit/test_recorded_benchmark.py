"""The benchmark of recorded data: its readers, its rows, and a simulated log in a crazyflie's clothes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from benchmarks.recorded import beam, crazyflie
from benchmarks.recorded.__main__ import _write
from benchmarks.recorded.matlab import load_matlab
from benchmarks.recorded.rows import estimate, markdown, median
from vid2phys.errors import InputError
from vid2phys.io.run import read_json
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


def test_a_table_keeps_the_rows_of_other_kinds(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    for kind, value in (("tosses", 1.0), ("pendulum", np.float64(2.0)), ("tosses", 3.0)):
        _write(path, kind, [{"kind": kind, "value": value, "inside": np.bool_(True)}], 2.0, quick=False)
    table = read_json(path)
    assert [(row["kind"], row["value"]) for row in table["rows"]] == [("pendulum", 2.0), ("tosses", 3.0)]
    assert table["seconds"] == 4.0
    _write(path, "beam", [{"kind": "beam", "value": 4.0}], 1.0, quick=True)
    assert [row["kind"] for row in read_json(path)["rows"]] == ["beam"]


def test_a_ring_is_read_from_markers(tmp_path: Path) -> None:
    """A tip held for 0.7037 s, then let go: it settles 6 mm lower, at 7.3 Hz, and peaks shrink by exp(-2 t)."""
    t = np.arange(400) * 0.01
    since = np.maximum(t - 0.7037, 0.0)
    omega, decay = 2.0 * np.pi * 7.3, 2.0
    fall = 1.0 - np.exp(-decay * since) * (np.cos(omega * since) + decay / omega * np.sin(omega * since))
    markers = np.stack([t, 0.074 - 0.006 * fall, 0.063 - 0.006 * fall, 0.0 * t], axis=1)
    np.savetxt(tmp_path / "take.csv", markers, delimiter=",", header="t,Tip-1_x,Tip-2_x,Base-1_x", comments="")
    times, heights = beam.load(tmp_path / "take.csv")
    assert -times[0] == pytest.approx(0.7037, abs=0.003)
    assert heights[:60].max() == pytest.approx(0.0, abs=1e-9)
    ring = beam.ring_of(times, heights)
    assert ring.frequency == pytest.approx(7.3, rel=0.005)
    assert ring.decay == pytest.approx(decay, rel=0.15)
    assert ring.sag_m == pytest.approx(0.006, rel=0.01)
    assert abs(ring.creep_m) < 5e-5


def test_the_loaded_beam_hangs_lower_and_rings_slower() -> None:
    """By the load at its end: beam theory's 52 g weigh as much as 3/8 of a beam of 0.37 kg."""
    coarse = (4, 2, 2)
    plain, loaded = beam.sag(beam.beam(coarse), 1e6), beam.sag(beam.beam(coarse, load_kg=0.052), 1e6)
    own = 1070.0 * 0.1 * 0.03 * 0.03
    assert loaded / plain == pytest.approx(1.0 + 0.052 / (3.0 / 8.0 * own), rel=0.1)
    assert beam.sag(beam.beam(coarse, "none"), 1e6) < 0.6 * plain
