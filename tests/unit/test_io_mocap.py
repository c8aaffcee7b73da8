"""Motion capture logs: Motive, TUM, EuRoC and plain CSV; gaps, units, axes and broken rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import matrix_from_quat, rotate
from vid2phys.io.mocap import formats, load_mocap

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
EXPORTS = SHARED / "data" / "mocap_exports"
needs_shared = pytest.mark.skipif(not EXPORTS.is_dir(), reason="../shared/data is not there")
S = np.sqrt(0.5)


def file(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def motive(rows: list[str], *, first_column: bool = True, units: str = "Meters", rotation: str = "Quaternion") -> str:
    """Two bodies, `quad` and `wand`, with a marker between them; layout 1.23, or 1.21 without its first column."""
    kinds = ["Rigid Body"] * 8 + ["Rigid Body Marker"] * 3 + ["Rigid Body"] * 7
    names = ["quad"] * 8 + ["quad:Marker1"] * 3 + ["wand"] * 7
    what = ["Rotation"] * 4 + ["Position"] * 3 + ["Mean Marker Error"] + ["Position"] * 3
    what += ["Rotation"] * 4 + ["Position"] * 3
    axes = ["X", "Y", "Z", "W", "X", "Y", "Z", "", "X", "Y", "Z", "X", "Y", "Z", "W", "X", "Y", "Z"]
    lead = [",Type", ",Name", ",ID", ","] if first_column else [","] * 4
    table = [kinds, names, ['"A"'] * len(kinds), what]
    lines = [f"Format Version,1.23,Take Name,t,Rotation Type,{rotation},Length Units,{units}", ""]
    lines += [",".join([start, *cells]) for start, cells in zip(lead, table, strict=True)]
    lines.append(",".join(["Frame", "Time (Seconds)" if first_column else "Time", *axes]))
    return "\n".join([*lines, *rows]) + "\n"


def row(index: int, time: str, quad: str = "0,0,0.70710678,0.70710678,1,2,3", wand: str = "0,0,0,1,4,5,6") -> str:
    return f"{index},{time},{quad},0.001,9,9,9,{wand}"


GOOD = [row(0, "0.0"), row(1, "0.01"), row(2, "0.02", quad=",,,,,,"), row(3, "0.03")]


@pytest.mark.parametrize("first_column", [True, False])
def test_motive_layouts_and_gaps(tmp_path: Path, first_column: bool) -> None:
    log = load_mocap(file(tmp_path, motive(GOOD, first_column=first_column)), body="quad")
    np.testing.assert_allclose(log.times_s, [0, 0.01, 0.02, 0.03])
    np.testing.assert_allclose(log.positions_m[[0, 1, 3]], [[1, 2, 3]] * 3)
    np.testing.assert_allclose(log.orientation_quat_wxyz[0], [S, 0, 0, S])
    assert np.isnan(log.positions_m[2]).all()
    assert np.isnan(log.orientation_quat_wxyz[2]).all()
    assert log.name == "quad"


def test_motive_bodies_are_listed(tmp_path: Path) -> None:
    path = file(tmp_path, motive(GOOD))
    np.testing.assert_allclose(load_mocap(path, "wand").positions_m[0], [4, 5, 6])
    for body in (None, "drone"):
        with pytest.raises(InputError, match="one of quad, wand"):
            load_mocap(path, body)


def test_motive_units(tmp_path: Path) -> None:
    path = file(tmp_path, motive(GOOD, units="Millimeters"))
    np.testing.assert_allclose(load_mocap(path, "quad").positions_m[0], [1e-3, 2e-3, 3e-3])
    with pytest.raises(InputError, match="says its lengths are in mm"):
        load_mocap(path, "quad", "m")
    with pytest.raises(InputError, match="does not say its length unit"):
        load_mocap(file(tmp_path, motive(GOOD, units="")), "quad")
    path = file(tmp_path, motive(GOOD, units=""))
    assert load_mocap(path, "quad", "cm").positions_m[0, 0] == 0.01
    with pytest.raises(UsageError, match="unknown length unit"):
        load_mocap(path, "quad", "parsec")


def test_axes_are_turned_only_when_asked(tmp_path: Path) -> None:
    path = file(tmp_path, motive(GOOD))
    as_is, turned = load_mocap(path, "quad"), load_mocap(path, "quad", up_axis="y")
    np.testing.assert_allclose(as_is.positions_m[0], [1, 2, 3])
    np.testing.assert_allclose(turned.positions_m[0], [1, -3, 2], atol=1e-12)
    point = np.array([0.1, 0.2, 0.3])  # a point of the body is turned like the body's origin
    seen, expected = (rotate(log.orientation_quat_wxyz[0], point) for log in (turned, as_is))
    np.testing.assert_allclose(seen, [expected[0], -expected[2], expected[1]], atol=1e-12)
    np.testing.assert_allclose(load_mocap(path, "quad", up_axis="x").positions_m[0], [-3, 2, 1], atol=1e-12)


TUM = "# comment\n1.0 1 2 3 0 0 0.70710678 0.70710678\n1.5 1 2 3 0 0 0 1\n"
PLAIN = "t,x,y,z,qx,qy,qz,qw\n1.0,1,2,3,0,0,0.70710678,0.70710678\n1.5,1,2,3,0,0,0,1\n"
EUROC = "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z [], v_x\n"
EUROC += "1000000000000,1,2,3,0.70710678,0,0,0.70710678,7\n1000500000000,1,2,3,1,0,0,0,7\n"
UNITS = "time_ms;pos_x_mm;pos_y_mm;pos_z_mm;quat_w;quat_x;quat_y;quat_z\n"
UNITS += "1000;1000;2000;3000;0.70710678;0;0;0.70710678\n1500;1000;2000;3000;1;0;0;0\n"


@pytest.mark.parametrize(("text", "start"), [(TUM, 1.0), (PLAIN, 1.0), (EUROC, 1000.0), (UNITS, 1.0)])
def test_other_formats(tmp_path: Path, text: str, start: float) -> None:
    log = load_mocap(file(tmp_path, text, "flight.csv"))
    np.testing.assert_allclose(log.times_s, [start, start + 0.5])
    np.testing.assert_allclose(log.positions_m, [[1, 2, 3]] * 2)
    np.testing.assert_allclose(log.orientation_quat_wxyz, [[S, 0, 0, S], [1, 0, 0, 0]], atol=1e-8)
    assert log.name == "flight"


def test_lengths_without_a_unit(tmp_path: Path) -> None:
    path = file(tmp_path, PLAIN.replace("1,2,3", "1000,2000,3000"))
    with pytest.raises(InputError, match=r"positions up to 3000 m.*--mocap-units mm"):
        load_mocap(path)
    np.testing.assert_allclose(load_mocap(path, units="mm").positions_m[0], [1, 2, 3])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (motive([row(0, "0.0"), row(1, "0.02"), row(2, "0.01")]), "row 10 .* goes from time 0.02 to 0.01"),
        (motive([row(0, "0.0"), row(1, "nan")]), "row 9 .* has no finite time"),
        (motive([row(0, "0.0"), row(1, "")]), "row 9 .* has no finite time"),
        (motive([row(0, "0.0"), "1,0.01,0,0,0"]), "row 9 .* has 5 cells"),
        (motive([row(0, "0.0", quad="0,0,0,0,1,2,3")]), "has no pose at all"),
        (motive([row(0, "0.0", quad=",,,,,,")]), "no pose at all"),
        (motive([]), "has no rows"),
        (motive(GOOD).replace("Rigid Body," * 3, "Rigid Body,", 1), "rotation type"),
        (motive(GOOD, rotation="Odd").replace(",W,", ",Q,"), "rotation type Odd"),
        (motive(GOOD).replace("Rigid Body", "Bone"), "has no rigid body"),
        (TUM + "1.4 1 2 3 0 0 0 1\n", "row 4 .* goes from time 1.5 to 1.4"),
        (TUM + "1.6 1 2 3\n", "row 4 .* has 4 cells"),
        (PLAIN + "1.5,1,2,3,0,0,0,1\n", "row 4 .* goes from time 1.5 to 1.5"),
        (PLAIN + "1.6,1,2,x,0,0,0,1\n", "row 4 .* has 'x'"),
        ("t,x,y,z\n0,1,2,3\n", "has positions and no rotations"),
        ("a,b,c\n0,1,2\n", "none of the known formats"),
        ("", "is empty"),
    ],
)
def test_broken_logs_give_one_line_with_the_row(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        load_mocap(file(tmp_path, text), "quad" if text.startswith("Format") else None)
    assert "\n" not in str(caught.value)


def test_the_formats_are_the_files() -> None:
    assert set(formats()) >= {"motive", "plain", "tum"}


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "count", "first", "quat_w"),
    [
        ("motive_v1.21_rigidbody.csv", 250, [0.060002, 0.019150, 0.076611], -1.0),
        ("tum_freiburg1_xyz-groundtruth.txt", 3000, [1.3563, 0.6305, 1.6380], -0.3986),
        ("crazyflie_mocap_tquat.csv", 2577, [-0.21608886, 0.02770784, 0.79353881], 0.99874663),
        ("euroc_V102_groundtruth_head.csv", 1999, [0.515356, 1.996773, 0.971104], 0.161996),
    ],
)
def test_real_files(name: str, count: int, first: list[float], quat_w: float) -> None:
    log = load_mocap(EXPORTS / name)
    assert len(log.times_s) == count
    np.testing.assert_allclose(log.positions_m[0], first, atol=1e-8)
    assert log.orientation_quat_wxyz[0, 0] == pytest.approx(quat_w, abs=1e-4)


@needs_shared
@pytest.mark.shared
def test_clip_log_agrees_with_the_truth() -> None:
    import json

    folder = SHARED / "clips" / "quad_log203"
    truth = json.loads((folder / "truth.json").read_text())
    log = load_mocap(folder / "mocap.csv")
    at = int(np.argmin(np.abs(log.times_s - truth["time_offset_s"])))
    np.testing.assert_allclose(log.positions_m[at], truth["first_pose"]["position_m"], atol=2e-6)
    expected = np.array(truth["first_pose"]["T_world_body"])[:3, :3]
    np.testing.assert_allclose(matrix_from_quat(log.orientation_quat_wxyz[at]), expected, atol=1e-5)
