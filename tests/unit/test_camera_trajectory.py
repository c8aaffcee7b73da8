"""The poses of a camera that moves: formats against poses computed by hand, times, and what does not cover a clip."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

from vid2phys.errors import InputError
from vid2phys.geometry import make_transform
from vid2phys.io.camera_trajectory import formats, load_camera_trajectory, tum
from vid2phys.io.image_sequence import ImageFrames
from vid2phys.io.selection import chosen
from vid2phys.types import Array, Clip

TIMES = np.arange(5) / 10.0
# A camera at height 1 m, 2 m before the origin, that looks along the world's y axis; it moves along x.
LEVEL = np.array([[1.0, 0, 0], [0, 0, 1.0], [0, -1.0, 0]])
PLACES = np.array([[0.1 * i, -2.0, 1.0] for i in range(5)])
POSES = make_transform(np.broadcast_to(LEVEL, (5, 3, 3)), PLACES)
HALF = np.sqrt(0.5)


def video(times_s: Array = TIMES) -> Clip:
    return Clip([None] * len(times_s), times_s, 64, 48)  # type: ignore[arg-type]


def images(*names: str) -> Clip:
    return Clip(ImageFrames(tuple(Path("frames") / name for name in names), (64, 48)), TIMES[: len(names)], 64, 48)


def poses_of(path: Path, clip: Clip) -> tuple[Array, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        poses = load_camera_trajectory(path, clip)
    assert poses is not None
    return poses, [str(item.message) for item in caught]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


def tum_lines(times_s: Array = TIMES) -> list[str]:
    # LEVEL is a quarter turn about x by -90 degrees: quaternion x = -sin 45, w = cos 45
    return [f"{t} {x} {y} {z} {-HALF} 0 0 {HALF}" for t, (x, y, z) in zip(times_s, PLACES, strict=True)]


def colmap_lines(names: list[str]) -> list[str]:
    # world to camera: R = LEVEL^T is a turn about x by +90 degrees, t = -R place
    lines = ["# id qw qx qy qz tx ty tz camera name"]
    for i, (name, (x, y, z)) in enumerate(zip(names, PLACES, strict=True)):
        lines += [f"{i + 1} {HALF} {HALF} 0 0 {-x} {z} {-y} 1 {name}", "10.0 10.0 -1"]
    return lines


def test_a_format_is_a_file() -> None:
    assert formats() == ("colmap", "nerfstudio", "phone", "tum")


def test_tum(tmp_path: Path) -> None:
    poses, notes = poses_of(write(tmp_path / "poses.txt", "# a comment", *tum_lines()), video())
    np.testing.assert_allclose(poses, POSES, atol=1e-12)
    assert notes == []


def test_tum_round_trip(tmp_path: Path) -> None:
    tum.save(tmp_path / "poses.txt", TIMES, POSES)
    np.testing.assert_allclose(poses_of(tmp_path / "poses.txt", video())[0], POSES, atol=1e-8)


@pytest.mark.parametrize("first", [0, 1])
def test_colmap_by_the_number_in_the_name(tmp_path: Path, first: int) -> None:
    path = write(tmp_path / "images.txt", *colmap_lines([f"a/frame_{i + first:04d}.png" for i in range(5)]))
    poses, notes = poses_of(path, video())
    np.testing.assert_allclose(poses, POSES, atol=1e-12)
    assert "is taken as metres and its z axis as up" in notes[0]
    assert f"from {first}" in notes[1]


def test_colmap_by_the_name_in_any_order_and_by_the_folder(tmp_path: Path) -> None:
    names = ["b.png", "d.png", "e.png", "g.png", "h.png"]
    (tmp_path / "sparse" / "0").mkdir(parents=True)
    write(tmp_path / "sparse" / "0" / "cameras.txt", "1 PINHOLE 64 48 50 50 32 24")
    lines = colmap_lines(names)
    write(tmp_path / "sparse" / "0" / "images.txt", lines[0], *lines[7:], *lines[1:7])
    poses, notes = poses_of(tmp_path, images(*names))
    np.testing.assert_allclose(poses, POSES, atol=1e-12)
    assert len(notes) == 1
    with pytest.raises(InputError, match=r"none of the images of 'clip'; expected images like x1.png"):
        poses_of(tmp_path, images("x1.png", "x2.png"))


def test_nerfstudio(tmp_path: Path) -> None:
    # OpenGL axes: x right, y up, z back
    frames = [
        {"file_path": f"images/{i}.png", "transform_matrix": [[1, 0, 0, x], [0, 0, -1, y], [0, 1, 0, z], [0, 0, 0, 1]]}
        for i, (x, y, z) in enumerate(PLACES)
    ]
    path = write(tmp_path / "transforms.json", json.dumps({"fl_x": 50, "frames": frames}))
    np.testing.assert_allclose(poses_of(path, video())[0], POSES, atol=1e-12)
    np.testing.assert_allclose(poses_of(path, images(*(f"{i}.jpg" for i in range(5))))[0], POSES, atol=1e-12)


# In the world of a phone (y up, a level camera that looks along -z) the camera of POSES is not rotated: its place
# (x, y, z) is (x, z, -y) there.
PHONE = [(x, z, -y) for x, y, z in PLACES]


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_phone_csv(tmp_path: Path, unit: str) -> None:
    start, scale = (0.0, 1.0) if unit == "s" else (1_700_000_000.0, 1e9)
    rows = [f"{round((start + t) * scale) if unit == 'ns' else t},{x},{y},{z},0,0,0,1"
            for t, (x, y, z) in zip(TIMES, PHONE, strict=True)]  # fmt: skip
    poses, notes = poses_of(write(tmp_path / "arkit.csv", "timestamp,tx,ty,tz,qx,qy,qz,qw", *rows), video())
    np.testing.assert_allclose(poses, POSES, atol=1e-6)  # a double holds 1e18 ns to 256 ns
    assert len(notes) == (0 if unit == "s" else 1)
    if notes:
        assert "its first pose, at 1700000000.000 s, is taken for that of the first frame" in notes[0]


@pytest.mark.parametrize("nested", [False, True])
def test_phone_json(tmp_path: Path, nested: bool) -> None:
    records = []
    for t, (x, y, z) in zip(TIMES, PHONE, strict=True):
        if nested:
            records.append({"timestamp": t, "pose": {"translation": [x, y, z], "rotation": [0, 0, 0, 1]}, "ok": True})
        else:
            records.append({"timestamp": t, "position": {"x": x, "y": y, "z": z}, "qx": 0, "qy": 0, "qz": 0, "qw": 1})
    data = {"device": "a phone", "frames": records} if nested else records
    np.testing.assert_allclose(poses_of(write(tmp_path / "log.json", json.dumps(data)), video())[0], POSES, atol=1e-12)


def test_other_times_are_interpolated(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rotations, places = Rotation.from_rotvec(rng.normal(0.0, 0.4, (4, 3))), rng.normal(size=(4, 3))
    logged = np.array([-0.05, 0.1, 0.24, 0.5])
    lines = [
        " ".join(f"{value:.12f}" for value in (t, *place, *quat))
        for t, place, quat in zip(logged, places, rotations.as_quat(), strict=True)
    ]
    poses, _ = poses_of(write(tmp_path / "poses.txt", *lines), video())
    np.testing.assert_allclose(poses[:, :3, :3], Slerp(logged, rotations)(TIMES).as_matrix(), atol=1e-9)
    between = np.stack([np.interp(TIMES, logged, axis) for axis in places.T], axis=1)
    np.testing.assert_allclose(poses[:, :3, 3], between, atol=1e-9)


def test_a_part_of_a_clip_keeps_its_frames(tmp_path: Path) -> None:
    path = write(tmp_path / "images.txt", *colmap_lines([f"{i}.png" for i in range(5)]))
    np.testing.assert_allclose(poses_of(path, chosen(video(), np.array([1, 3])))[0], POSES[[1, 3]], atol=1e-12)


def test_the_only_pose_of_a_file_is_of_a_static_camera(tmp_path: Path) -> None:
    poses, _ = poses_of(write(tmp_path / "images.txt", *colmap_lines(["0.png"] * 5)[:3]), video())
    np.testing.assert_allclose(poses, POSES[0], atol=1e-12)


def test_one_pose_under_a_key_is_no_trajectory(tmp_path: Path) -> None:
    path = write(tmp_path / "pose.yaml", "camera_to_world: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]")
    assert load_camera_trajectory(path, video()) is None


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        (slice(0, 3), "0.60 to 0.80 s"),
        (slice(2, 5), "0.00 to 0.20 s"),
        ([0, 4], "0.20 to 0.60 s"),
    ],
)
def test_a_log_that_does_not_cover_the_clip_is_refused(tmp_path: Path, rows: slice | list[int], missing: str) -> None:
    times = 2.0 * TIMES
    lines = np.array(tum_lines(times))[rows]
    with pytest.raises(InputError, match=rf"no pose of the camera for {missing} of 'clip'; expected poses of all"):
        poses_of(write(tmp_path / "poses.txt", *lines), video(times))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.png"] * 5, "a.png, without a number"),
        ([f"{i}.png" for i in (0, 1, 2, 3, 7)], "an image of frame 7, counted from 0; expected the 5 frames"),
        ([f"cam{i}/0.png" for i in range(5)], "one pose a frame, of one camera"),
    ],
)
def test_names_that_are_no_frames_are_refused(tmp_path: Path, names: list[str], message: str) -> None:
    lines = colmap_lines(names) if len(set(names)) > 1 else colmap_lines([f"{chr(97 + i)}.png" for i in range(5)])
    with pytest.raises(InputError, match=message):
        poses_of(write(tmp_path / "images.txt", *lines), video())


def test_a_csv_without_rotations_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "timestamp,latitude,longitude", "0,1,2")
    with pytest.raises(InputError, match=r"expected columns or keys timestamp, x, y, z, qx, qy, qz, qw"):
        poses_of(path, video())
