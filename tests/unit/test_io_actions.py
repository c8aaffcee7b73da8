"""Actions CSV: layouts, units, per-kilogram actions, and errors by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.errors import InputError
from vid2phys.io.actions import load_actions, require_cover, save_actions
from vid2phys.types import Actions, Clip

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
needs_clips = pytest.mark.skipif(not (SHARED / "clips").is_dir(), reason="../shared/clips is not there")
WRENCH = "time_s,thrust_N,torque_x_Nm,torque_y_Nm,torque_z_Nm\n"
ROTORS = "time_s,rotor_0_N,rotor_1_N,rotor_2_N,rotor_3_N\n"


def file(folder: Path, text: str) -> Path:
    path = folder / "actions.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (WRENCH + "0,1,2,3,4\n0.5,1,2,3,4\n", [1, 2, 3, 4]),
        ("# log 7\nvoltage_V,time_ms,torque_z_uNm,torque_x_mNm,torque_y_N_m,thrust_g\n3,0,1,1,1,1\n3,500,1,1,1,1\n",
         [9.80665e-3, 1e-3, 1, 1e-6]),
        ("time_s;thrust [mN];torque_x (Nmm);torque_y [Ncm];torque_z_Nm\n0;1;1;1;1\n0.5;1;1;1;1\n",
         [1e-3, 1e-3, 1e-2, 1]),
    ],
)  # fmt: skip
def test_wrench_and_units(tmp_path: Path, text: str, values: list[float]) -> None:
    actions = load_actions(file(tmp_path, text))
    np.testing.assert_allclose(actions.times_s, [0, 0.5])
    np.testing.assert_allclose(actions.values, [values] * 2)
    assert (actions.kind, actions.units, actions.per_kilogram) == ("wrench", ("N", "Nm", "Nm", "Nm"), False)
    assert actions.names == ("thrust", "torque_x", "torque_y", "torque_z")


def test_rotors(tmp_path: Path) -> None:
    actions = load_actions(file(tmp_path, ROTORS.replace("_N", "_gf") + "0,1,2,3,4\n"))
    np.testing.assert_allclose(actions.values, [np.array([1, 2, 3, 4]) * 9.80665e-3])
    assert (actions.kind, actions.units) == ("rotors", ("N",) * 4)


def test_forces_on_any_body_need_no_torques(tmp_path: Path) -> None:
    actions = load_actions(file(tmp_path, "time_ms,force_z_mN,force_x_N,force_y_kN\n0,1,2,3\n50,4,5,6\n"))
    np.testing.assert_allclose(actions.times_s, [0.0, 0.05])
    np.testing.assert_allclose(actions.values, [[2.0, 3e3, 1e-3, 0.0, 0.0, 0.0], [5.0, 6e3, 4e-3, 0.0, 0.0, 0.0]])
    assert (actions.kind, actions.units) == ("push", ("N", "N", "N", "Nm", "Nm", "Nm"))
    some = load_actions(file(tmp_path, "time_s,torque_y_mNm,force_x_N,force_y_N,force_z_N\n0,7,1,2,3\n"))
    np.testing.assert_allclose(some.values, [[1.0, 2.0, 3.0, 0.0, 7e-3, 0.0]])
    with pytest.raises(InputError, match="columns of wrench and push"):
        load_actions(file(tmp_path, WRENCH.strip() + ",force_x_N,force_y_N,force_z_N\n0,1,1,1,1,1,1,1\n"))
    with pytest.raises(InputError, match="has the columns time_s, force_x_N, force_y_N"):
        load_actions(file(tmp_path, "time_s,force_x_N,force_y_N\n0,1,2\n"))


@pytest.mark.parametrize("per_kilogram", [False, True])
@pytest.mark.parametrize("kind", ["wrench", "rotors"])
def test_round_trip_with_deviations(tmp_path: Path, kind: str, per_kilogram: bool) -> None:
    rng = np.random.default_rng(0)
    names = (
        ("thrust", "torque_x", "torque_y", "torque_z") if kind == "wrench" else tuple(f"rotor_{i}" for i in range(4))
    )
    units = ("N", "N m", "N m", "N m") if kind == "wrench" else ("N",) * 4
    actions = Actions(np.arange(5) / 30, rng.normal(size=(5, 4)), kind, names, units, per_kilogram)  # type: ignore[arg-type]
    save_actions(actions, tmp_path / "a.csv", std=np.full((5, 4), 0.1))
    again = load_actions(tmp_path / "a.csv")
    np.testing.assert_allclose(again.times_s, actions.times_s, rtol=1e-9)
    np.testing.assert_allclose(again.values, actions.values, rtol=1e-9)
    assert (again.kind, again.names, again.per_kilogram) == (kind, names, per_kilogram)
    assert "_std_N" in (tmp_path / "a.csv").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("# nothing\n", "has no header"),
        (WRENCH, "a header and no rows"),
        (WRENCH.replace("time_s", "stamp"), "no time column"),
        (WRENCH.replace(",torque_z_Nm", "") + "0,1,1,1\n", "expected time_s,thrust_N"),
        (WRENCH.replace("thrust_N", "thrust_pwm") + "0,1,1,1,1\n", "has the unit 'pwm'; expected one of N, mN"),
        (WRENCH.replace("thrust_N", "thrust") + "0,1,1,1,1\n", "names no unit"),
        (WRENCH.replace("thrust_N", "thrust_N_per_kg") + "0,1,1,1,1\n", "some columns per kilogram"),
        (WRENCH.strip() + "," + ROTORS + "0,1,1,1,1,0,1,1,1,1\n", "columns of wrench and rotors"),
        (WRENCH + "0,1,1,1,1\n0.1,1,nan,1,1\n", "row 3 .* no finite value of 'torque_x_Nm'"),
        (WRENCH + "0,1,1,1,1\n0.1,1,,1,1\n", "row 3 .* no finite value of 'torque_x_Nm'"),
        (WRENCH + "0,1,1,1,1\n0.1,1,inf,1,1\n", "row 3 .* no finite value"),
        (WRENCH + "0,1,1,1,1\nnan,1,1,1,1\n", "row 3 .* no finite time"),
        (WRENCH + "0,1,1,1,1\n\n0.2,1,1,1,1\n0.1,1,1,1,1\n", "row 5 .* goes from time 0.2 to 0.1"),
        (WRENCH + "0,1,1,1,1\n0,1,1,1,1\n", "row 3 .* goes from time 0 to 0"),
        (WRENCH + "0,1,1,1,1\n0.1,1,1\n", "row 3 .* has 3 cells"),
        (WRENCH + "0,1,1,one,1\n", "row 2 .* has 'one'"),
    ],
)
def test_broken_actions_give_one_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        load_actions(file(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_actions_must_cover_the_clip() -> None:
    clip = Clip([], np.arange(31) / 30, 8, 8, "flight")  # type: ignore[arg-type]

    def actions(start: float, count: int) -> Actions:
        times = start + np.arange(count) / 30
        return Actions(times, np.zeros((count, 4)), "rotors", ("a", "b", "c", "d"), ("N",) * 4)

    require_cover(actions(0.0, 30), clip, "a.csv")  # N frames have N - 1 intervals
    require_cover(actions(-1.0, 100), clip, "a.csv")
    for start, count in ((0.0, 20), (0.5, 60), (5.0, 30)):
        with pytest.raises(InputError, match=r"clip 'flight' lasts from 0\.000 to 1\.000 s"):
            require_cover(actions(start, count), clip, "a.csv")


@needs_clips
@pytest.mark.shared
def test_recorded_actions() -> None:
    from vid2phys.io.video import read_clip

    folder = SHARED / "clips" / "quad_log203"
    actions = load_actions(folder / "actions.csv")
    assert actions.values.shape == (561, 4)
    np.testing.assert_allclose(actions.values[0], [0.43331, 7.23e-5, 5.818e-4, -1.164e-4])
    require_cover(actions, read_clip(folder / "clip.mp4"), folder / "actions.csv")
