"""A clamped bar's modulus from markers: the truth is Timoshenko's frequency, or a bad input's one-line error."""

from __future__ import annotations

import importlib
from pathlib import Path

import meshio
import numpy as np
import pytest

from vid2phys.commands.clamps import clamped
from vid2phys.commands.fit_recording import FittedRecording, fit_recording
from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets
from vid2phys.errors import InputError, UsageError

fit_recording_module = importlib.import_module("vid2phys.commands.fit_recording")  # beside the function of that name

LENGTH, SIDE, YOUNG, DENSITY = 0.2, 0.02, 4e5, 1000.0


def bar_file(folder: Path, cells: tuple[int, int, int] = (6, 1, 1)) -> Path:
    vertices, tets = box_tets((LENGTH, SIDE, SIDE), cells)
    meshio.write(folder / "bar.msh", meshio.Mesh(vertices, [("tetra", tets)]), file_format="gmsh")
    return folder / "bar.msh"


def body(cells: tuple[int, int, int] = (4, 1, 1)) -> SoftBody:
    return SoftBody(*box_tets((LENGTH, SIDE, SIDE), cells))


def fit_of_a_falling_tip(folder: Path) -> tuple[FittedRecording, Path]:
    """Fit E to the tip of a beam let go straight, half a period of its first mode about where the tip hangs."""
    inertia, area, gravity = SIDE**4 / 12.0, SIDE**2, 0.1
    rate = 1.8751**2 / LENGTH**2 * np.sqrt(YOUNG * inertia / (DENSITY * area)) * (1.0 - 0.004)  # shear, rotary inertia
    hangs = DENSITY * area * gravity * LENGTH**4 / (8.0 * YOUNG * inertia)
    times = np.linspace(0.0, np.pi / rate, 9)
    heights = SIDE / 2.0 - hangs * (1.0 - np.cos(rate * times))
    rows = [f"{t:.6f},{z:.9f}" for t, z in zip(times, heights, strict=True)]
    (folder / "tip.csv").write_text("time_s,tip_z_m\n" + "\n".join(rows) + "\n")
    (folder / "points.csv").write_text(f"name,x_m,y_m,z_m\ntip,{LENGTH},{SIDE / 2},{SIDE / 2}\n")
    return fit_recording(
        *("soft_body", [folder / "tip.csv"]),
        fit=("young_modulus",),
        body=bar_file(folder, (4, 1, 1)),
        clamp=("x<0.001",),
        points=folder / "points.csv",
        set_values={"density": DENSITY, "gravity": gravity, "damping": 0.0, "young_modulus": 3.5e5},
        most_seconds=600.0,
        out=folder / "run",
    )


def test_modulus_of_a_bar_that_is_let_go_in_little_gravity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_recording_module, "_MOST_VERTICES", 0)  # no finer mesh
    found, _ = fit_of_a_falling_tip(tmp_path)
    assert found.fit["young_modulus"].value == pytest.approx(YOUNG, rel=0.05)
    assert len(found.refinement) == 1


@pytest.mark.slow
def test_modulus_of_a_bar_comes_nearer_on_a_finer_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_recording_module, "_MOST_VERTICES", 200)  # one finer mesh
    found, folder = fit_of_a_falling_tip(tmp_path)
    assert found.fit["young_modulus"].value == pytest.approx(YOUNG, rel=0.02)
    assert len(found.refinement) == 2
    assert '"refinement"' in (folder / "result.json").read_text()


def test_clamps_and_loads_hold_what_they_name() -> None:
    bar = clamped(body(), ("x<0.001",), "0.05@x>0.199")
    assert isinstance(bar, SoftBody)
    np.testing.assert_array_equal(np.sort(bar.pinned), np.flatnonzero(bar.rest_m[:, 0] == 0.0))
    parameters = bar.parameters().with_values({"density": DENSITY}).vector
    assert bar.masses(parameters).sum() == pytest.approx(0.05 + DENSITY * LENGTH * SIDE**2)
    assert not bar.ground
    finer = bar.refined()
    assert finer.masses(parameters).sum() == pytest.approx(0.05 + DENSITY * LENGTH * SIDE**2)
    np.testing.assert_array_equal(np.sort(finer.pinned), np.flatnonzero(finer.rest_m[:, 0] == 0.0))


def test_two_moduli_of_a_bending_bar_are_called_ambiguous() -> None:
    assert "hardly told apart" in body().ambiguity(("young_modulus", "poisson_ratio"))
    assert not body().ambiguity(("young_modulus", "damping"))


@pytest.mark.parametrize(
    ("clamps", "load", "words", "kind"),
    [
        (("x<-1",), None, "no vertices", InputError),
        (("x<9",), None, "whole body", InputError),
        (("x=0",), None, "an axis", UsageError),
        ((), "0.05@x>0.1", "without --clamp", UsageError),
        (("x<0.001",), "heavy", "kilograms", UsageError),
        (("x<0.001",), "0.05@x>1", "no vertices", InputError),
    ],
)
def test_clamps_that_hold_nothing_are_one_line(
    clamps: tuple[str, ...], load: str | None, words: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=words):
        clamped(body(), clamps, load)
    with pytest.raises(UsageError, match="body of tets"):
        clamped(Pendulum(), ("x<0",), None)
