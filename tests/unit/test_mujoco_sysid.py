"""The benchmark beside MuJoCo's system identification: known motions, head-on drops, cells and what is missing."""

from __future__ import annotations

import importlib.util
import sys

import mujoco
import numpy as np
import pytest

from benchmarks.recorded import mujoco_sysid, sysid_bodies, sysid_fit
from benchmarks.recorded.sysid_fit import Motion
from vid2phys.types import Array, Estimate

GRAVITY, LENGTH, MASS, INERTIA, DAMPING = 9.81, 0.2, 0.3, 0.002, 0.004
needs_sysid = pytest.mark.skipif(bool(sysid_fit.missing()), reason="needs what mujoco.sysid needs")


def small_swing(times_s: Array, first: float = 1e-3) -> Motion:
    """Return the closed form of a pendulum that is let go from a small angle."""
    about_pivot = INERTIA + MASS * LENGTH**2
    decay = DAMPING / (2.0 * about_pivot)
    rate = np.sqrt(MASS * GRAVITY * LENGTH / about_pivot - decay**2)
    fading = first * np.exp(-decay * times_s)
    angles = fading * (np.cos(rate * times_s) + decay / rate * np.sin(rate * times_s))
    rates = -fading * (rate + decay**2 / rate) * np.sin(rate * times_s)
    return Motion(times_s, angles[:, None], rates[:, None])


@needs_sysid
def test_length_and_damping_of_the_closed_form() -> None:
    spec, unknowns = sysid_bodies.hinge(MASS, np.full(3, INERTIA), 0.3)
    found = sysid_fit.fit(spec, unknowns, small_swing(np.arange(300) * 0.005), longest_step_s=0.005)
    assert found.value("length") == pytest.approx(LENGTH, rel=1e-4)
    assert found.value("damping") == pytest.approx(DAMPING, rel=1e-3)
    low, high = found.interval("length")
    assert low < found.value("length") < high < 1.001 * LENGTH


@needs_sysid
def test_friction_of_a_sliding_box_in_pieces() -> None:
    half = np.array([0.05, 0.04, 0.02])
    spec, unknowns = sysid_bodies.thrown("box", half, 0.2, np.full(3, 2e-4))
    times_s = np.arange(26) * 0.004
    speed = 2.0 - 0.3 * GRAVITY * times_s
    coordinates, velocities = np.zeros((26, 7)), np.zeros((26, 6))
    coordinates[:, 0] = 2.0 * times_s - 0.15 * GRAVITY * times_s**2
    coordinates[:, 2], coordinates[:, 3], velocities[:, 0] = half[2], 1.0, speed
    slides = Motion(times_s, coordinates, velocities)
    found = sysid_fit.fit(spec, unknowns, slides, longest_step_s=1e-3, piece_s=0.05, starts=2)
    assert found.value("mu") == pytest.approx(0.3, rel=0.1)
    drawn = found.drawn(5)
    assert drawn.shape == (5, 3)
    assert (drawn[:, 0] <= np.log(2.0)).all()


@pytest.mark.parametrize(("shape", "size"), [("box", "0.06 0.04 0.025"), ("sphere", "0.03")])
def test_restitution_of_a_head_on_drop_falls_with_the_damping_ratio(shape: str, size: str) -> None:
    found = []
    for ratio in (0.05, 0.4, 1.5):
        scene = f"""<mujoco><option timestep="2e-4"/><worldbody>
          <geom name="ground" type="plane" size="5 5 1" solref="0.003 {ratio}"/>
          <body><freejoint/><inertial pos="0 0 0" mass="0.2" diaginertia="2e-4 3e-4 4e-4"/>
          <geom name="body" type="{shape}" size="{size}" solref="0.003 {ratio}"/></body></worldbody></mujoco>"""
        found.append(sysid_bodies.restitution(mujoco.MjModel.from_xml_string(scene)))
    assert 1.0 > found[0] > 0.7 > found[1] > 0.1 > found[2] >= 0.0


def test_cells_of_a_row() -> None:
    theirs = Estimate("mu", "1", 0.3012, (0.29, 0.31), True)
    row = mujoco_sysid.Row("a", "0.3", theirs, 2.04, Estimate("mu", "1", 0.1, (-np.inf, np.inf), False), 60.0)
    assert row.cells == ["a", "`mu`", "0.3", "0.3012 (0.29 to 0.31)", "2.0", "not identifiable", "60.0"]
    lines = list(mujoco_sysid.lines(iter([row]), in_markdown=True))
    assert [line.count("|") for line in lines] == [8, 8, 8]


def test_what_is_missing_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "absl" else there(name))
    monkeypatch.setattr(sys, "argv", ["mujoco_sysid"])
    with pytest.raises(SystemExit, match=r"mujoco\.sysid needs absl-py.*: pip install absl-py"):
        mujoco_sysid.main()
