"""Restitution from recorded poses of a ball that bounces: the truth is Newton's law between exact parabolas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vid2phys.commands.fit_recording import fit_recording
from vid2phys.errors import InputError

RADIUS_M, RESTITUTION, GRAVITY = 0.03, 0.7, 9.81


def bounces(times: np.ndarray, drop_m: float) -> np.ndarray:
    """Return the heights of a ball's centre, dropped at time 0 from `drop_m` above the ground."""
    begin, speed = np.sqrt(2.0 * drop_m / GRAVITY), np.sqrt(2.0 * drop_m * GRAVITY)
    heights = drop_m - 0.5 * GRAVITY * times**2
    while begin < times[-1]:
        speed *= RESTITUTION
        after = times - begin
        heights = np.where(after > 0.0, speed * after - 0.5 * GRAVITY * after**2, heights)
        begin += 2.0 * speed / GRAVITY
    return heights + RADIUS_M


def recording(folder: Path, count: int = 70, drop_m: float = 0.4) -> Path:
    times = np.arange(count) / 70.0
    rows = [f"{t:.6f},0,0,{z:.6f},1,0,0,0" for t, z in zip(times, bounces(times, drop_m), strict=True)]
    path = folder / f"{drop_m}.csv"
    path.write_text("time_s,x,y,z,qw,qx,qy,qz\n" + "\n".join(rows) + "\n")
    return path


def test_restitution_of_a_ball_from_its_poses(tmp_path: Path) -> None:
    found, folder = fit_recording(
        *("rigid_contact", [recording(tmp_path)]),
        fit=("restitution",),
        body=Path("ball:d=60mm"),
        set_values={"mu": 0.5},
        out=tmp_path / "run",
    )
    assert found.status == "converged"
    assert found.fit["restitution"].value == pytest.approx(RESTITUTION, abs=0.01)
    low, high = found.fit["restitution"].ci95
    assert low < RESTITUTION < high
    assert (folder / "fitted_0.csv").exists()


def test_recordings_share_the_restitution(tmp_path: Path) -> None:
    paths = [recording(tmp_path, drop_m=drop_m) for drop_m in (0.4, 0.25)]
    given: dict[str, Any] = {"fit": ("restitution",), "body": Path("ball:d=60mm"), "set_values": {"mu": 0.5}}
    both, folder = fit_recording("rigid_contact", paths, out=tmp_path / "both", **given)
    low, high = both.fit["restitution"].ci95
    assert low < RESTITUTION < high
    assert both.fit["restitution"].value == pytest.approx(RESTITUTION, abs=0.01)
    assert {path.name for path in folder.glob("fitted_*.csv")} == {"fitted_0.csv", "fitted_1.csv"}


def test_bad_input_of_recorded_impacts_is_one_line(tmp_path: Path) -> None:
    path, ball = recording(tmp_path, 4), Path("ball:d=60mm")
    with pytest.raises(InputError, match="4 poses"):
        fit_recording("rigid_contact", [path], fit=("restitution",), body=ball, out=tmp_path / "a")
