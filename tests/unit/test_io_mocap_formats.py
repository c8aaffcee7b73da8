"""Vicon, C3D, Motive's other exports, several bodies in one file: poses of an asymmetric motion, written here by hand.

The writers below follow the formats' public descriptions and share nothing with the readers.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from tests.mocap_files import RATE, c3d
from vid2phys.errors import InputError, UsageError, Vid2PhysError
from vid2phys.io.mocap import load_mocap
from vid2phys.types import PoseLog

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
EXPORTS = SHARED / "data" / "mocap_exports"
BEAM = SHARED / "data" / "real_beam"
needs_shared = pytest.mark.skipif(not EXPORTS.is_dir(), reason="../shared/data is not there")
T = 12
TURNS = Rotation.from_rotvec(np.linspace(0.0, 1.0, T)[:, None] * [0.9, -0.5, 1.7])  # the first is none
PLACES = np.stack([np.linspace(1, 2, T), np.linspace(-0.5, 0.7, T) ** 2, np.linspace(0.3, 1.9, T)], axis=1)
MARKERS = np.array([[0.05, 0.0, 0.01], [-0.02, 0.06, 0.0], [-0.03, -0.02, 0.03], [0.0, -0.04, -0.04]])  # mean zero


def file(folder: Path, content: str | bytes, name: str = "log.csv") -> Path:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def expect(log: PoseLog, *, gaps: tuple[int, ...] = (), start_s: float | None = None, atol: float = 1e-6) -> None:
    """The log is the motion above, except for the gaps."""
    seen = np.setdiff1d(np.arange(T), gaps)
    np.testing.assert_allclose(log.positions_m[seen], PLACES[seen], atol=atol)
    found = Rotation.from_quat(np.roll(log.orientation_quat_wxyz[seen], -1, axis=1))
    assert (found.inv() * TURNS[seen]).magnitude().max() < 30 * atol
    assert np.isnan(log.positions_m[list(gaps)]).all()
    assert np.isnan(log.orientation_quat_wxyz[list(gaps)]).all()
    np.testing.assert_allclose(np.diff(log.times_s), 1 / RATE, atol=1e-6)
    if start_s is not None:
        assert log.times_s[0] == pytest.approx(start_s)


def vicon(turns: np.ndarray, titles: str, unit: str, *, mark: str = ",", gaps: tuple[int, ...] = ()) -> str:
    """Tracker's `Objects`: `other` first, then `quad`; frames begin at 31; a second section follows."""
    width = turns.shape[1] + 3
    lines = ["Objects", f"{RATE:g}", f",,lab:other{',' * width}lab:quad{',' * (width - 1)}"]
    lines += [f"Frame,Sub Frame,{titles},TX,TY,TZ,{titles},TX,TY,TZ"]
    units = ",".join([unit] * turns.shape[1] + ["mm"] * 3)
    lines += [f",,{units},{units}"]
    for i in range(T):
        pose = [f"{x:.9g}" for x in (*turns[i], *(1000 * PLACES[i]))] if i not in gaps else [""] * width
        lines.append(",".join([str(31 + i), "0", *["7"] * width, *pose]))
    lines += [
        "",
        "Devices",
        "1200",
        ",,Plate - Force,,",
        "Frame,Sub Frame,Fx,Fy,Fz",
        ",,N,N,N",
        "31,0,1,2,3",
        "31,1,1,2,3",
    ]
    return "\r\n".join(lines).replace(",", mark) + "\r\n"


@pytest.mark.parametrize("order", ["XYZ", "ZYX", "YXZ", "xyz", "zyx"])
@pytest.mark.parametrize(("unit", "degrees"), [("deg", True), ("rad", False)])
@pytest.mark.parametrize("mark", [",", ";"])
def test_vicon_euler(tmp_path: Path, order: str, unit: str, degrees: bool, mark: str) -> None:
    angles = TURNS.as_euler(order, degrees=degrees)[:, [order.lower().index(axis) for axis in "xyz"]]
    path = file(tmp_path, vicon(angles, "RX,RY,RZ", unit, mark=mark, gaps=(4, 5)))
    with pytest.raises(InputError, match=r"not their order; expected one of XYZ.*--euler"):
        load_mocap(path, "lab:quad")
    expect(load_mocap(path, "lab:quad", euler=order), gaps=(4, 5), start_s=31 / RATE)
    with pytest.raises(InputError, match="has 2 bodies; expected one of lab:other, lab:quad"):
        load_mocap(path, euler=order)
    with pytest.raises(UsageError, match="unknown order of Euler angles 'XYX'"):
        load_mocap(path, "lab:quad", euler="XYX")


def test_vicon_rotation_vectors_and_quaternions(tmp_path: Path) -> None:
    path = file(tmp_path, vicon(np.rad2deg(TURNS.as_rotvec()), "RX,RY,RZ", "deg"))
    expect(load_mocap(path, "lab:quad", euler="rotvec"))
    path = file(tmp_path, vicon(TURNS.as_quat(), "RX,RY,RZ,RW", ""))
    expect(load_mocap(path, "lab:quad"))


def test_vicon_says_no_unit_of_angles(tmp_path: Path) -> None:
    path = file(tmp_path, vicon(TURNS.as_rotvec(), "RX,RY,RZ", ""))
    with pytest.raises(InputError, match="unit of its angles; expected deg or rad; give it with --euler-units"):
        load_mocap(path, "lab:quad", euler="rotvec")
    expect(load_mocap(path, "lab:quad", euler="rotvec", angle_units="rad"))


def seen_markers(*, noise: float = 0.0) -> np.ndarray:
    """[T, 4, 3] m."""
    points = np.stack([turn.apply(MARKERS) + place for turn, place in zip(TURNS, PLACES, strict=True)])
    return points + noise * np.random.default_rng(0).normal(size=points.shape)


@pytest.mark.parametrize("mark", [",", ";"])
def test_vicon_trajectories(tmp_path: Path, mark: str) -> None:
    points = seen_markers() * 1000
    lines = ["Trajectories", "120", ",,quad:A,,,quad:B,,,*3,,,quad:C,,,quad:D,,", "Frame,Sub Frame" + ",X,Y,Z" * 5]
    lines += [",," + ",".join(["mm"] * 15)]
    for i in range(T):
        a, b, c, d = (",".join(f"{x:.6f}" for x in point) for point in points[i])
        b = ",," if i in (3, 4) else b
        c = ",," if i == 4 else c
        lines.append(f"{i + 1},0,{a},{b},9,9,9,{c},{d}")
    path = file(tmp_path, "\n".join(lines).replace(",", mark))
    expect(load_mocap(path), gaps=(4,))  # two markers are not enough, three are
    with pytest.raises(InputError, match="three or more of quad:A, quad:B"):
        load_mocap(path, "quad:A,quad:E,quad:B")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("120", "0", "has the rate '0'"),
        ("Frame,Sub", "Time,Sub", "section 'Objects' in row 1 .* has no header"),
        ("mm", "furlong", "length units furlong"),
        ("TX,TY,TZ", "TA,TB,TC", "has Objects, Devices and no body"),
        ("\r\n33,", "\r\n12,", "goes from time"),
    ],
)
def test_broken_vicon(tmp_path: Path, old: str, new: str, expected: str) -> None:
    text = vicon(TURNS.as_quat(), "RX,RY,RZ,RW", "")
    with pytest.raises(InputError, match=expected):
        load_mocap(file(tmp_path, text.replace(old, new)), "lab:quad")


def test_a_vicon_title_with_another_separator(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no section"):
        load_mocap(file(tmp_path, "Objects;\n120;\n,,quad,,,\nFrame,Sub Frame,RX,RY,RZ\n"))


LABELS = ["quad1", "quad2", "quad3", "quad4", "ball"]


def beside(points: np.ndarray) -> np.ndarray:
    """A fifth marker that lies still."""
    return np.concatenate([points, np.full((len(points), 1, 3), 0.25)], axis=1)


@pytest.mark.parametrize("kind", ["intel", "dec", "sgi"])
@pytest.mark.parametrize("floats", [True, False])
@pytest.mark.parametrize("units", ["mm", "m"])
def test_c3d(tmp_path: Path, kind: str, floats: bool, units: str) -> None:
    points = beside(seen_markers())
    points[6, :2] = np.nan  # two markers left: a gap
    points[8, 1] = np.nan  # three left: none
    path = file(tmp_path, c3d(points, LABELS, kind=kind, floats=floats, units=units), "take.c3d")
    expect(load_mocap(path), gaps=(6,), start_s=4 / RATE, atol=2e-6 if floats else 1e-4)


def test_c3d_markers_by_name_and_axes(tmp_path: Path) -> None:
    path = file(tmp_path, c3d(beside(seen_markers()), LABELS), "take.c3d")
    log = load_mocap(path, "quad1,quad2,quad4")
    np.testing.assert_allclose(log.positions_m[0], PLACES[0] + MARKERS[[0, 1, 3]].mean(axis=0), atol=1e-6)
    turned = load_mocap(path, up_axis="y")
    np.testing.assert_allclose(turned.positions_m, PLACES[:, [0, 2, 1]] * [1, -1, 1], atol=1e-5)
    with pytest.raises(InputError, match=r"move by .* mm against each other; expected markers on one rigid body"):
        load_mocap(path, "quad1,quad2,ball")
    with pytest.raises(InputError, match="has no body 'drone'; expected one of quad"):
        load_mocap(path, "drone")


@pytest.mark.parametrize("unseen", [0, 7])
def test_swapped_and_late_markers(tmp_path: Path, unseen: int) -> None:
    """A marker that the first frames lack joins in; swapped labels are left out or make a gap; noise is averaged."""
    points = seen_markers(noise=1e-4)
    points[:unseen, 3] = np.nan
    points[9, [0, 2]] = points[9, [2, 0]]
    points[10, 1] += [0.0, 0.03, 0.0]
    log = load_mocap(file(tmp_path, c3d(points, LABELS[:4]), "take.c3d"))
    assert np.isnan(log.positions_m[9]).all()
    if unseen == 0:
        seen = np.array([i for i in range(T) if i != 9])
        np.testing.assert_allclose(log.positions_m[seen], PLACES[seen], atol=4e-4)
    else:  # axes are the world's in frame 7, the first to show all four
        found = Rotation.from_quat(np.roll(log.orientation_quat_wxyz[[0, 7, 11]], -1, axis=1))
        expected = TURNS[[0, 7, 11]] * TURNS[7].inv()
        assert np.rad2deg((found.inv() * expected).magnitude()).max() < 0.5


def test_a_mirrored_fit_is_never_taken(tmp_path: Path) -> None:
    """Three markers, whose plane alone is known: the rotation is proper all the same."""
    points = seen_markers()[:, :3]
    log = load_mocap(file(tmp_path, c3d(points, LABELS[:3]), "take.c3d"))
    found = Rotation.from_quat(np.roll(log.orientation_quat_wxyz, -1, axis=1))
    assert (found.inv() * TURNS).magnitude().max() < 1e-4


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda data: data[:-200], "announces 12 frames and holds"),
        (lambda data: data[:600], "none of the known formats|no parameter section|announces"),
        (lambda data: data[:515] + b"\x07" + data[516:], "has no parameter section"),
        (lambda data: data[:2] + b"\xff\x7f" + data[4:], "announces 12 frames and holds 0"),
        (lambda data: data[:2] + b"\0\0" + data[4:], "has 0 points"),
        (lambda data: data[:6] + b"\1\0\xfe\xff" + data[10:], "announces 65534 frames"),
        (lambda data: data.replace(b"LABELS", b"LABOLS"), "has 0 labelled markers"),
        (lambda data: data.replace(b"UNITS", b"UNOTS"), "does not say its length unit"),
    ],
)
def test_broken_c3d(tmp_path: Path, spoil, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        load_mocap(file(tmp_path, spoil(c3d(seen_markers(), LABELS[:4])), "take.c3d"))


def test_markers_on_a_line_have_no_pose(tmp_path: Path) -> None:
    points = np.stack([[place + np.array([0.1, 0, 0]) * k for k in range(3)] for place in PLACES])
    with pytest.raises(InputError, match="are on a line"):
        load_mocap(file(tmp_path, c3d(points, LABELS[:3]), "take.c3d"))


def motive(kind: str, names: list[str], what: list[str], axes: list[str], rows: np.ndarray, rotation: str) -> str:
    """Motive's layout in millimetres, of one kind of thing."""
    lines = [f"Format Version,1.23,Take Name,t,Rotation Type,{rotation},Length Units,Millimeters", ""]
    lines += [",Type" + f",{kind}" * len(axes), ",Name," + ",".join(names), ",ID" + ',"1A"' * len(axes)]
    lines += [",," + ",".join(what), "Frame,Time (Seconds)," + ",".join(axes)]
    lines += [",".join([str(i), f"{i / RATE:.6f}", *(f"{x:.9g}" for x in row)]) for i, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def motive_euler(rotation: str) -> str:
    rows = np.hstack([TURNS.as_euler("XYZ", degrees=True), 1000 * PLACES])
    return motive("Rigid Body", ["quad"] * 6, ["Rotation"] * 3 + ["Position"] * 3, list("XYZXYZ"), rows, rotation)


def test_motive_euler_is_read_from_the_header(tmp_path: Path) -> None:
    expect(load_mocap(file(tmp_path, motive_euler("XYZ"))))
    with pytest.raises(InputError, match="has rotation type Helical"):
        load_mocap(file(tmp_path, motive_euler("Helical")))


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    text = motive_euler("XYZ").replace(",", ";").replace(".", ",")
    assert "1,23;Take" in text
    expect(load_mocap(file(tmp_path, text)))


def motive_markers(labels: list[str]) -> str:
    names = [name for name in labels for _ in range(3)]
    rows = 1000 * seen_markers().reshape(T, -1)
    return motive("Marker", names, ["Position"] * 12, list("XYZ") * 4, rows, "Quaternion")


def test_motive_markers_alone(tmp_path: Path) -> None:
    expect(load_mocap(file(tmp_path, motive_markers([f"quad:Marker{i}" for i in range(4)]))))
    with pytest.raises(InputError, match="has 0 labelled markers"):
        load_mocap(file(tmp_path, motive_markers([f"Unlabeled {1036 + i}" for i in range(4)])))


def test_motive_without_any_column(tmp_path: Path) -> None:
    text = "Format Version,1.23,Rotation Type,Quaternion,Length Units,Millimeters\n\n,Type\n,Name\n,ID\n,\n"
    text += "Frame,Time (Seconds)\n"
    with pytest.raises(InputError, match="has no rigid body"):
        load_mocap(file(tmp_path, text + "0,0.000000\n1,0.003000\n"))


def table(header: str, columns: list[np.ndarray], *, mark: str = ",") -> str:
    rows = np.column_stack([np.arange(T) / RATE, *columns])
    return "\n".join([header, *(mark.join(f"{x:.9g}" for x in row) for row in rows)]) + "\n"


ROLL = np.deg2rad([30.0, -20.0, 50.0])


def test_roll_pitch_yaw_by_hand() -> None:
    """`xyz` and `ZYX` are one and the same: yaw about z, then pitch about the new y, then roll about the new x."""
    from vid2phys.io.mocap._poses import Asked, euler_quats

    (a, b, c), asked = ROLL, Asked()
    x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    for order, truth in (
        ("xyz", z @ y @ x),
        ("ZYX", z @ y @ x),
        ("XYZ", x @ y @ z),
        ("zyx", x @ y @ z),
        ("YXZ", y @ x @ z),
    ):
        quat = euler_quats("log.csv", ROLL[None], "rad", asked, order)[0]
        np.testing.assert_allclose(Rotation.from_quat(np.roll(quat, -1)).as_matrix(), truth, atol=1e-12)


def test_plain_angles(tmp_path: Path) -> None:
    angles = TURNS.as_euler("ZYX")[:, ::-1]
    path = file(tmp_path, table("time,x,y,z,roll_rad,pitch_rad,yaw_rad", [PLACES, angles]))
    with pytest.raises(InputError, match="not their order"):
        load_mocap(path)
    expect(load_mocap(path, euler="xyz"))
    path = file(tmp_path, table("time,x,y,z,roll,pitch,yaw", [PLACES, angles]))
    with pytest.raises(InputError, match="unit of its angles"):
        load_mocap(path, euler="xyz")
    expect(load_mocap(path, euler="xyz", angle_units="rad"))


def test_several_bodies_side_by_side(tmp_path: Path) -> None:
    quats = TURNS.as_quat()
    header = "time,Quad.x,Quad.y,Quad.z,Quad.qx,Quad.qy,Quad.qz,Quad.qw," + ",".join(
        f"Wand.{c}" for c in ("x", "y", "z", "qx", "qy", "qz", "qw")
    )
    path = file(tmp_path, table(header, [PLACES, quats, -PLACES, quats]))
    expect(load_mocap(path, "Quad"))
    np.testing.assert_allclose(load_mocap(path, "Wand").positions_m, -PLACES, atol=1e-6)
    with pytest.raises(InputError, match="has 2 bodies; expected one of Quad, Wand"):
        load_mocap(path)


def test_several_bodies_one_below_the_other(tmp_path: Path) -> None:
    lines = ["time;name;x;y;z;qw;qx;qy;qz"]
    for i in range(T):
        quat = np.roll(TURNS[i].as_quat(), 1)
        for name, place in (("wand", -PLACES[i]), ("quad", PLACES[i])):
            lines.append(";".join([f"{i / RATE:.9g}", name, *(f"{x:.9g}" for x in (*place, *quat))]).replace(".", ","))
    path = file(tmp_path, "\n".join(lines))
    expect(load_mocap(path, "quad"))
    with pytest.raises(InputError, match="one of wand, quad"):
        load_mocap(path)


def test_ros_export_and_zeros_as_gaps(tmp_path: Path) -> None:
    pose = "pose.pose.position.x,pose.pose.position.y,pose.pose.position.z"
    quat = ",".join(f"pose.pose.orientation.{axis}" for axis in "xyzw")
    header = f"%time,header.seq,{pose},{quat},twist.linear.x,twist.linear.y,twist.linear.z"
    places, quats = PLACES.copy(), TURNS.as_quat()
    places[5], quats[5] = 0.0, 0.0  # what some systems write for a body that was not seen
    path = file(tmp_path, table(header, [np.zeros(T), places, quats, PLACES]))
    expect(load_mocap(path), gaps=(5,))


def test_plain_markers(tmp_path: Path) -> None:
    header = "t," + ",".join(f"quad-{i}_{axis}_mm" for i in range(4) for axis in "xyz")
    path = file(tmp_path, table(header, [1000 * seen_markers().reshape(T, -1)]))
    expect(load_mocap(path))


def valid_files() -> dict[str, bytes]:
    return {
        "vicon.csv": vicon(TURNS.as_quat(), "RX,RY,RZ,RW", "").encode(),
        "take.c3d": c3d(beside(seen_markers()), LABELS),
        "motive.csv": motive_euler("XYZ").encode(),
        "markers.csv": motive_markers([f"quad:Marker{i}" for i in range(4)]).encode(),
        "plain.csv": table("time,x,y,z,qx,qy,qz,qw", [PLACES, TURNS.as_quat()]).encode(),
        "tum.txt": table("# time x y z qx qy qz qw", [PLACES, TURNS.as_quat()], mark=" ").encode(),
    }


@pytest.mark.parametrize("name", list(valid_files()))
def test_spoiled_files_end_in_one_line(tmp_path: Path, name: str) -> None:
    """Cut, bytes changed, rows doubled, NaN and huge numbers put in: a log, or one line."""
    data, chance = valid_files()[name], random.Random(1)
    for trial in range(120):
        spoiled = bytearray(data)
        how = trial % 5
        if how == 0:
            spoiled = spoiled[: chance.randrange(len(data))]
        elif how == 1:
            for _ in range(chance.randrange(1, 12)):
                spoiled[chance.randrange(min(len(data), 1600))] = chance.randrange(256)
        elif how == 2:
            for word in (b"nan", b"1e308", b"-inf", b"", b"999999999999999999999")[trial // 5 % 5 :][:1]:
                spoiled = bytearray(data.replace(str(chance.randrange(10)).encode(), word, chance.randrange(1, 40)))
        elif how == 3:
            at = chance.randrange(len(data))
            spoiled = spoiled[:at] + spoiled[at // 2 : at] + spoiled[at:]
        else:
            at = chance.randrange(len(data))
            spoiled = spoiled[:at] + bytes(chance.randrange(256) for _ in range(40)) + spoiled[at:]
        said = outcome(file(tmp_path, bytes(spoiled), name), "lab:quad" if name == "vicon.csv" else None)
        assert "\n" not in said
        assert len(said) < 1500


def outcome(path: Path, body: str | None) -> str:
    """What the user reads; anything but a Vid2PhysError goes through."""
    try:
        return "" if np.isfinite(load_mocap(path, body).times_s).all() else "times are not finite\n"
    except Vid2PhysError as error:
        return str(error)


@needs_shared
@pytest.mark.shared
def test_real_c3d_against_the_same_data_as_csv() -> None:
    rows = np.genfromtxt(BEAM / "beam_gravity_V2_a.csv", delimiter=",", names=True)
    log = load_mocap(EXPORTS / "qualisys_beam.c3d", "Base")
    beam = load_mocap(BEAM / "beam_gravity_V2_a.c3d", "Base")
    mean = np.stack([np.mean([rows[f"Base{i}_{axis}"] for i in (1, 2, 3)], axis=0) for axis in "xyz"], axis=1)
    assert len(log.times_s) == len(rows) == 500
    np.testing.assert_allclose(beam.positions_m, mean, atol=2e-4)  # origin: the mean of the shape, not of the frame
    np.testing.assert_allclose(np.diff(log.times_s), 0.01)
    np.testing.assert_allclose(
        load_mocap(BEAM / "beam_gravity_V2_a.csv", "Base").positions_m, beam.positions_m, atol=1e-5
    )


@needs_shared
@pytest.mark.shared
def test_real_vicon() -> None:
    path = EXPORTS / "vicon_nexus_model_outputs_head.csv"
    with pytest.raises(InputError, match="has 19 bodies; expected one of Test:HED, Test:LCL"):
        load_mocap(path)
    log = load_mocap(path, "Test:HED", euler="rotvec")
    np.testing.assert_allclose(log.positions_m[0], [1.03922, 0.233719, 2.2746])
    np.testing.assert_allclose(log.times_s[[0, -1]], [695 / 120, 1017 / 120])
    turn = np.deg2rad([-30.8385, 13.8661, 178.072])
    first = Rotation.from_quat(np.roll(log.orientation_quat_wxyz[0], -1))
    assert (first.inv() * Rotation.from_rotvec(turn)).magnitude() < 1e-9
