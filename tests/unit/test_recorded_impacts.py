"""Restitution from recorded poses of a ball that bounces: the truth is Newton's law between exact parabolas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.commands.fit_recording import fit_recording
from vid2phys.errors import InputError, UsageError

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


def recording(folder: Path, count: int = 70) -> Path:
    times = np.arange(count) / 70.0
    rows = [f"{t:.6f},0,0,{z:.6f},1,0,0,0" for t, z in zip(times, bounces(times, 0.4), strict=True)]
    (folder / "poses.csv").write_text("time_s,x,y,z,qw,qx,qy,qz\n" + "\n".join(rows) + "\n")
    return folder / "poses.csv"


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


def test_bad_input_of_recorded_impacts_is_one_line(tmp_path: Path) -> None:
    path, ball = recording(tmp_path, 4), Path("ball:d=60mm")
    with pytest.raises(InputError, match="4 poses"):
        fit_recording("rigid_contact", [path], fit=("restitution",), body=ball, out=tmp_path / "a")
    path = recording(tmp_path)
    with pytest.raises(UsageError, match="2 recordings of impacts"):
        fit_recording("rigid_contact", [path, path], fit=("restitution",), body=ball, out=tmp_path / "b")
