"""What `fit-recording` reads: turns, units, axes and columns that are not meant as they are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vid2phys import geometry
from vid2phys.commands.recording_inputs import read_recording
from vid2phys.engine import systems
from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array

DEGREES = 180.0 / np.pi
T = np.arange(120) / 60.0


def table(folder: Path, columns: dict[str, Array], times_s: Array = T) -> Path:
    rows = zip(times_s, *columns.values(), strict=True)
    lines = [",".join("" if np.isnan(value) else f"{value:.9g}" for value in row) for row in rows]
    path = folder / "log.csv"
    path.write_text("\n".join([",".join(["time_s", *columns]), *lines]) + "\n")
    return path


def tumbling(frame: str = "body", scale: float = 1.0) -> dict[str, Array]:
    """A turn about a fixed axis after a first orientation, with the angular velocity in these axes."""
    axis, rate = np.array([0.48, 0.6, 0.64]), 3.0
    first = geometry.quat_from_rotvec(np.array([1.2, -0.5, 0.3]))
    quats = geometry.quat_multiply(first, geometry.quat_from_rotvec(rate * T[:, None] * axis))
    omega = rate * axis if frame == "body" else geometry.rotate(first, rate * axis)
    names = [f"orientation_quat_{axis}" for axis in "wxyz"]
    return {
        **dict(zip(names, quats.T, strict=True)),
        **{f"angular_velocity_{axis}_rad_s": np.full(len(T), scale * omega["xyz".index(axis)]) for axis in "xyz"},
    }


@pytest.mark.parametrize("rate", [5.0, -30.0, 150.0])
@pytest.mark.parametrize("least", [-np.pi, 0.0])
def test_turns_are_made_continuous(tmp_path: Path, rate: float, least: float) -> None:
    angle = 0.3 + rate * T + 0.1 * np.sin(7.0 * T)
    wrapped = (angle - least) % (2.0 * np.pi) + least
    wrapped[20:22] = np.nan
    found, notes = read_recording(systems.get("pendulum"), table(tmp_path, {"angle_rad": wrapped}), {})
    off = (found.seen[:, 0] - angle)[np.isfinite(wrapped)]
    np.testing.assert_allclose(off, off[0], atol=1e-6)
    assert any("made continuous" in note for note in notes)


def test_only_joints_that_turn_are_made_continuous(tmp_path: Path) -> None:
    """A slide in metres that jumps, and an angle of several turns that is none that starts again."""
    slide, elbow = np.where(T > 1.0, 5.0, 0.0), np.where(T > 1.0, 20.0, 0.0)
    path = table(tmp_path, {"slide_m": slide, "elbow_rad": elbow})
    system = systems.get("articulated")
    found, notes = read_recording(system, path, {})
    np.testing.assert_allclose(found.seen[:, system.state_names.index("slide_m")], slide)
    np.testing.assert_allclose(found.seen[:, system.state_names.index("elbow_rad")], elbow)
    assert notes == []


@pytest.mark.parametrize(
    ("scales", "wrong"),
    [((DEGREES, 1.0), "'angle_rad' looks like degrees"),
     ((1.0, DEGREES), "'angular_velocity_rad_s' looks like degrees")],
)  # fmt: skip
def test_degrees_beside_radians_are_refused(tmp_path: Path, scales: tuple[float, float], wrong: str) -> None:
    angle, rate = scales[0] * np.sin(5.0 * T), scales[1] * 5.0 * np.cos(5.0 * T)
    path = table(tmp_path, {"angle_rad": angle, "angular_velocity_rad_s": rate})
    with pytest.raises(InputError, match=wrong):
        read_recording(systems.get("pendulum"), path, {})


def test_degrees_of_a_joint_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, {"elbow_rad": 30.0 * np.sin(4.0 * T), "elbow_rad_s": 120.0 / DEGREES * np.cos(4.0 * T)})
    with pytest.raises(InputError, match="'elbow_rad' looks like degrees"):
        read_recording(systems.get("articulated"), path, {})


@pytest.mark.parametrize("least", [-180.0, 0.0])
def test_degrees_that_start_again_are_refused(tmp_path: Path, least: float) -> None:
    path = table(tmp_path, {"angle_rad": (500.0 * T - least) % 360.0 + least})
    with pytest.raises(InputError, match="looks like degrees"):
        read_recording(systems.get("pendulum"), path, {})


def test_angular_velocities_of_bodies(tmp_path: Path) -> None:
    system = systems.get("rigid_contact")
    assert read_recording(system, table(tmp_path, tumbling()), {})[1] == []
    _, notes = read_recording(system, table(tmp_path, tumbling("world")), {})
    assert any("in the axes of the world, not of the body" in note for note in notes)
    with pytest.raises(InputError, match="looks like degrees"):
        read_recording(system, table(tmp_path, tumbling(scale=DEGREES)), {})


@pytest.mark.parametrize("factor", [-1.0, 1000.0])
def test_other_factors_are_noted(tmp_path: Path, factor: float) -> None:
    columns = {"position_z_m": np.sin(3.0 * T), "velocity_z_m_s": factor * 3.0 * np.cos(3.0 * T)}
    _, notes = read_recording(systems.get("rigid_contact"), table(tmp_path, columns), {})
    assert any("check its unit and sign" in note for note in notes)


def test_columns_and_rows_that_are_not_used_are_named(tmp_path: Path) -> None:
    columns = tumbling() | {"theta": T, "control_0": T}
    for name in list(columns)[:4]:
        columns[name] = np.where(T < 0.1, 0.0, columns[name])
    found, notes = read_recording(systems.get("rigid_contact"), table(tmp_path, columns), {})
    assert any("theta, control_..." in note for note in notes)
    assert any("6 rows" in note for note in notes)
    assert np.isnan(found.seen[:6, 3:7]).all()
    assert np.isfinite(found.start).all()  # type: ignore[arg-type]


def parted(columns: dict[str, Array]) -> dict[str, Array]:
    return {name: values for name, values in columns.items() if name != "orientation_quat_y"}


def zeros(columns: dict[str, Array]) -> dict[str, Array]:
    return {name: np.zeros(len(T)) for name in columns}


@pytest.mark.parametrize(("change", "wrong"), [(parted, "orientation_quat_y"), (zeros, "no quaternion of length 1")])
def test_quaternions_that_are_none(tmp_path: Path, change: Callable[..., dict[str, Array]], wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        read_recording(systems.get("rigid_contact"), table(tmp_path, change(tumbling())), {})


def test_columns_without_a_number_were_not_recorded(tmp_path: Path) -> None:
    blank = np.full(len(T), np.nan)
    columns = {"angle_rad": np.sin(T), "angular_velocity_rad_s": blank}
    found, _ = read_recording(systems.get("pendulum"), table(tmp_path, columns), {})
    assert found.start is not None
    assert found.start[1] == pytest.approx(1.0, abs=0.01)  # the slope of the angle
    with pytest.raises(InputError, match="all cells of a column are blank"):
        read_recording(systems.get("pendulum"), table(tmp_path, dict.fromkeys(columns, blank)), {})


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path, {"angle_rad": np.sin(T), "x": 2.0 * np.sin(T)})
    path.write_text(path.read_text().replace(",x\n", ",angle_rad\n"))
    with pytest.raises(InputError, match="the column 'angle_rad' twice"):
        read_recording(systems.get("pendulum"), path, {})


def test_unknown_standard_deviation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="angle_deg"):
        read_recording(systems.get("pendulum"), table(tmp_path, {"angle_rad": T}), {"angle_deg": 1.0})


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_impossible_standard_deviations(tmp_path: Path, value: float) -> None:
    with pytest.raises(UsageError, match="a positive, finite number"):
        read_recording(systems.get("pendulum"), table(tmp_path, {"angle_rad": T}), {"angle_rad": value})


def test_infinite_values_are_not_used(tmp_path: Path) -> None:
    found, notes = read_recording(
        systems.get("pendulum"), table(tmp_path, {"angle_rad": np.where(np.arange(len(T)) == 7, np.inf, np.sin(T))}), {}
    )
    assert np.flatnonzero(np.isnan(found.seen[:, 0])).tolist() == [7]
    assert any("1 rows have infinite values" in note for note in notes)
