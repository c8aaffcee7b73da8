"""COLMAP, nerfstudio, ViSP, plain dumps, Kalibr's omni and inverse transforms: hand-made truth with an asymmetric pose.

Each file is written here from the format's public description, by other formulas than the readers use.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.commands.fit_parameters import listen
from vid2phys.engine.observe import project
from vid2phys.errors import InputError, Vid2PhysError
from vid2phys.io.camera import format_of, load_camera
from vid2phys.types import Camera

R = Rotation.from_rotvec([0.3, -1.2, 0.7])  # camera to world, OpenCV axes
PLACE = np.array([1.0, -2.0, 0.5])
POSE = np.vstack([np.column_stack([R.as_matrix(), PLACE]), [0, 0, 0, 1]])
POINT_CAMERA = np.array([0.31, -0.22, 1.7])  # a point before the camera, to the right and above
POINT_WORLD = R.apply(POINT_CAMERA) + PLACE


def yaml_of(pose: np.ndarray) -> str:
    return "[" + ", ".join("[" + ", ".join(repr(float(x)) for x in row) + "]" for row in pose) + "]"


def see(camera: Camera) -> np.ndarray:
    """Pixels of the point of the world, through the camera as it was read."""
    assert camera.camera_to_world is not None
    inside = np.linalg.inv(camera.camera_to_world) @ [*POINT_WORLD, 1.0]
    return project(camera, inside[:3])


def colmap_model(folder: Path, *, binary: bool, model: str = "OPENCV", second: bool = True) -> Path:
    """Camera 3 with two images (or one); the first has a line of points, the second an empty one."""
    folder.mkdir(parents=True, exist_ok=True)
    values = [500.0, 510.0, 320.0, 240.0, 0.1, -0.05, 0.001, 0.002]
    inverse = R.inv()
    qx, qy, qz, qw = inverse.as_quat()
    t = -inverse.apply(PLACE)
    images = [(7, "frame one.png", (qw, qx, qy, qz), t), (9, "other/two.png", (1.0, 0.0, 0.0, 0.0), np.zeros(3))]
    images = images if second else images[:1]
    if binary:
        number = {"OPENCV": 4, "FOV": 7}[model]
        values = values if model == "OPENCV" else values[:5]
        data = (
            struct.pack("<Q", 1) + struct.pack("<iiQQ", 3, number, 640, 480) + struct.pack(f"<{len(values)}d", *values)
        )
        (folder / "cameras.bin").write_bytes(data)
        data = struct.pack("<Q", len(images))
        for index, name, quat, shift in images:
            data += struct.pack("<i7di", index, *quat, *shift, 3) + name.encode() + b"\0"
            data += struct.pack("<Q", 2) + struct.pack("<ddq", 1.0, 2.0, -1) * 2
        (folder / "images.bin").write_bytes(data)
        return folder / "cameras.bin"
    text = "# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
    text += f"3 {model} 640 480 {' '.join(map(repr, values))}\n"
    (folder / "cameras.txt").write_text(text)
    text = "# Image list with two lines of data per image:\n"
    for i, (index, name, quat, shift) in enumerate(images):
        text += f"{index} {' '.join(repr(float(x)) for x in (*quat, *shift))} 3 {name}\n"
        text += ("1.5 2.5 -1 " * 2000 if i == 0 else "") + "\n"
    (folder / "images.txt").write_text(text)
    return folder / "cameras.txt"


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", ["frame one.png", "frame one", "two.png", None])
def test_colmap(tmp_path: Path, binary: bool, name: str | None) -> None:
    path = colmap_model(tmp_path / "sparse" / "0", binary=binary)
    for where in (path, path.parent, tmp_path, path.with_stem("images")):
        camera = load_camera(where, camera_name=name)
        assert format_of(where) == "colmap"
        np.testing.assert_allclose(camera.K, [[500, 0, 319.5], [0, 510, 239.5], [0, 0, 1]])  # half a pixel less
        np.testing.assert_allclose(camera.distortion, [0.1, -0.05, 0.001, 0.002])
        assert (camera.width, camera.height, camera.model) == (640, 480, "plumb_bob")
        if name is None:
            assert camera.camera_to_world is None  # two images, none named
        elif "one" in name:
            np.testing.assert_allclose(camera.camera_to_world, POSE, atol=1e-12)
        else:
            np.testing.assert_allclose(camera.camera_to_world, np.eye(4), atol=1e-12)


def test_colmap_counts_pixels_from_the_corner(tmp_path: Path) -> None:
    """By its own manual: u = f x / z + c, with the middle of the first pixel at 0.5; ours lies half a pixel lower."""
    path = colmap_model(tmp_path, binary=False, second=False)
    text = path.read_text().replace("OPENCV", "PINHOLE").split(" 0.1")[0] + "\n"
    path.write_text(text)
    x, y, z = POINT_CAMERA
    theirs = np.array([500 * x / z + 320, 510 * y / z + 240])
    np.testing.assert_allclose(see(load_camera(path)), theirs - 0.5, atol=1e-9)


@pytest.mark.parametrize(
    ("line", "model", "distortion"),
    [
        ("SIMPLE_PINHOLE 640 480 500 320 240", "plumb_bob", []),
        ("SIMPLE_RADIAL 640 480 500 320 240 0.1", "plumb_bob", [0.1, 0, 0, 0]),
        ("RADIAL 640 480 500 320 240 0.1 0.2", "plumb_bob", [0.1, 0.2, 0, 0]),
        ("OPENCV_FISHEYE 640 480 500 500 320 240 0.1 0.2 0.3 0.4", "equidistant", [0.1, 0.2, 0.3, 0.4]),
        ("RADIAL_FISHEYE 640 480 500 320 240 0.1 0.2", "equidistant", [0.1, 0.2, 0, 0]),
        ("FULL_OPENCV 640 480 500 500 320 240 1 2 3 4 5 6 7 8", "rational_polynomial", [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_colmap_models(tmp_path: Path, line: str, model: str, distortion: list[float]) -> None:
    (tmp_path / "cameras.txt").write_text(f"1 {line}\n")
    camera = load_camera(tmp_path)
    assert camera.model == model
    np.testing.assert_array_equal(camera.distortion, distortion)
    assert camera.K[0, 0] == camera.K[1, 1] == 500.0
    assert camera.camera_to_world is None


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda data: data[:40], "ends at byte"),
        (lambda data: struct.pack("<Q", 2**60) + data[8:], "announces 1152921504606846976 items"),
        (lambda data: data[:12] + struct.pack("<i", 99) + data[16:], "COLMAP's number 99"),
        (lambda data: data[:12] + struct.pack("<i", 7) + data[16:], "uses the model 'FOV'"),
        (lambda data: data[:16] + struct.pack("<Q", 2**50) + data[24:], "up to 65536 px"),
        (lambda data: data[:32] + struct.pack("<d", np.nan) + data[40:], "parameters"),
    ],
)
def test_broken_binary_models(tmp_path: Path, spoil, expected: str) -> None:
    path = colmap_model(tmp_path, binary=True)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InputError, match=expected):
        load_camera(path)


def test_broken_images(tmp_path: Path) -> None:
    path = colmap_model(tmp_path, binary=True)
    data = (tmp_path / "images.bin").read_bytes()
    for cut in (4, 30, 70, len(data) - 1):
        (tmp_path / "images.bin").write_bytes(data[:cut])
        with pytest.raises(InputError, match=r"images\.bin"):
            load_camera(path)
    (tmp_path / "images.bin").unlink()
    (tmp_path / "images.txt").write_text("1 2 3\n")
    with pytest.raises(InputError, match="has the line '1 2 3'"):
        load_camera(path)


def transforms(**changes) -> dict:
    """nerfstudio's own: camera-to-world, x right, y up, z backward; corner-based pixels."""
    opengl = POSE.copy()
    opengl[:3, 1:3] *= -1.0
    data = {"camera_model": "OPENCV", "fl_x": 500.0, "fl_y": 510.0, "cx": 320.0, "cy": 240.0, "w": 640, "h": 480}
    data |= {"k1": 0.1, "k2": -0.05, "p1": 0.001, "p2": 0.002}
    frames = [{"file_path": "images/frame_00001.png", "transform_matrix": opengl.tolist()}]
    frames += [{"file_path": "images/frame_00002.png", "transform_matrix": np.eye(4).tolist(), "fl_x": 700.0}]
    return data | {"frames": frames} | changes


def write(folder: Path, data: dict, name: str = "transforms.json") -> Path:
    (folder / name).write_text(json.dumps(data))
    return folder / name


def test_nerfstudio(tmp_path: Path) -> None:
    path = write(tmp_path, transforms())
    assert load_camera(tmp_path).camera_to_world is None
    camera = load_camera(path, camera_name="frame_00001")
    np.testing.assert_allclose(camera.camera_to_world, POSE, atol=1e-12)
    np.testing.assert_allclose(camera.K, [[500, 0, 319.5], [0, 510, 239.5], [0, 0, 1]])
    np.testing.assert_allclose(camera.distortion, [0.1, -0.05, 0.001, 0.002, 0])
    second = load_camera(path, camera_name="images/frame_00002.png")
    assert second.K[0, 0] == 700.0
    np.testing.assert_allclose(second.camera_to_world, np.diag([1.0, -1, -1, 1]), atol=1e-12)
    with pytest.raises(InputError, match=r"one of images/frame_00001\.png, images/frame_00002\.png"):
        load_camera(path, camera_name="frame_3")


def test_nerfstudio_sees_a_point_where_opengl_does(tmp_path: Path) -> None:
    data = transforms(k1=0, k2=0, p1=0, p2=0)
    camera = load_camera(write(tmp_path, data), camera_name="frame_00001")
    x, y, z, _ = np.linalg.inv(np.array(data["frames"][0]["transform_matrix"])) @ [*POINT_WORLD, 1.0]
    corner_based = np.array([320 + 500 * x / -z, 240 - 510 * y / -z])
    np.testing.assert_allclose(see(camera), corner_based - 0.5, atol=1e-9)


def test_blender_and_fisheye(tmp_path: Path) -> None:
    frames = transforms()["frames"][:1]
    camera = load_camera(write(tmp_path, {"camera_angle_x": np.deg2rad(90.0), "w": 640, "h": 480, "frames": frames}))
    np.testing.assert_allclose(camera.K, [[320, 0, 319.5], [0, 320, 239.5], [0, 0, 1]])
    np.testing.assert_allclose(camera.camera_to_world, POSE, atol=1e-12)  # the only image
    fisheye = load_camera(write(tmp_path, transforms(camera_model="OPENCV_FISHEYE", k3=0.3, k4=0.4, p1=0, p2=0)))
    assert fisheye.model == "equidistant"
    np.testing.assert_allclose(fisheye.distortion, [0.1, -0.05, 0.3, 0.4])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"camera_model": "EQUIRECTANGULAR"}, "uses the model 'EQUIRECTANGULAR'"),
        ({"w": None}, "has no image size"),
        ({"fl_x": None}, "has no focal length"),
        ({"cx": "middle"}, "is not numeric"),
        ({"k4": 0.1}, "k4, which leaves its model open"),
        ({"k1": float("nan")}, "is not finite"),
        (
            {"frames": [{"file_path": "a", "transform_matrix": [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]}]},
            "not a rigid",
        ),
        ({"frames": [{"file_path": "a", "transform_matrix": []}]}, "has 0 numbers"),
    ],
)
def test_broken_transforms(tmp_path: Path, changes: dict, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        load_camera(write(tmp_path, transforms(**changes)))


VISP = """<?xml version="1.0"?>
<root>
  <!-- <camera><name>ghost</name></camera> -->
{cameras}</root>
"""
VISP_CAMERA = """  <camera>
    <!--Name of the camera-->
    <name>{name}</name>
    <image_width>640</image_width>
    <image_height>480</image_height>
    <model><type>perspectiveProjWithoutDistortion</type>
      <px>499</px><py>509</py><u0>319.5</u0><v0>239.5</v0></model>
    <model>
      <type>perspectiveProjWithDistortion</type>
      <px>{f}</px> <py>510</py> <u0>319.5</u0> <v0>239.5</v0> <kud>-0.19</kud> <kdu>0.2</kdu>
    </model>
  </camera>
"""


def test_visp(tmp_path: Path) -> None:
    path = tmp_path / "camera.xml"
    text = VISP.format(cameras=VISP_CAMERA.format(name="left", f=500) + VISP_CAMERA.format(name="right", f=600))
    path.write_text(text)
    left, right = load_camera(path), load_camera(path, camera_name="right")
    assert (left.name, left.K[0, 0], right.K[0, 0], left.width) == ("left", 500.0, 600.0, 640)
    x, y = POINT_CAMERA[:2] / POINT_CAMERA[2]
    grown = 1.0 - 0.19 * (x * x + y * y)  # ViSP: u = u0 + px x (1 + kud r^2)
    np.testing.assert_allclose(project(left, POINT_CAMERA), [319.5 + 500 * x * grown, 239.5 + 510 * y * grown])
    with pytest.raises(InputError, match="one of left, right"):
        load_camera(path, camera_name="ghost")
    path.write_text(text.replace("perspectiveProjWith", "ProjWithKannalaBrandt"))
    with pytest.raises(InputError, match="uses the model 'ProjWithKannalaBrandtoutDistortion"):
        load_camera(path)


@pytest.mark.parametrize(
    "data",
    [
        {"K-matrix": [[500, 0, 319.5], [0, 510, 239.5], [0, 0, 1]], "distCoeff": [0.1, 0.2, 0, 0, 0.3], "fps": 60,
         "resolution": [640, 480]},
        {"mtx": [[500, 0, 319.5], [0, 510, 239.5], [0, 0, 1]], "dist": [[0.1, 0.2, 0, 0, 0.3]], "width": 640,
         "height": 480},
        {"camera": {"model": "", "px": 500, "py": 510, "u0": 319.5, "v0": 239.5, "dist": [0.1, 0.2, 0, 0, 0.3]},
         "width": 640, "height": 480, "video-device": "0"},
        {"fx": 500, "fy": 510, "ppx": 319.5, "ppy": 239.5, "coeffs": [0.1, 0.2, 0, 0, 0.3], "width": 640,
         "height": 480},
    ],
)  # fmt: skip
def test_plain_dumps(tmp_path: Path, data: dict) -> None:
    camera = load_camera(write(tmp_path, data | {"camera_to_world": POSE.tolist()}, "camera.json"))
    np.testing.assert_allclose(camera.K, [[500, 0, 319.5], [0, 510, 239.5], [0, 0, 1]])
    np.testing.assert_allclose(camera.distortion, [0.1, 0.2, 0, 0, 0.3])
    np.testing.assert_allclose(camera.camera_to_world, POSE, atol=1e-12)


def test_a_size_that_may_be_height_first_is_asked_for(tmp_path: Path) -> None:
    data = {"mtx": np.diag([500.0, 500.0, 1.0]).tolist(), "image_size": [480, 640]}
    with pytest.raises(InputError, match="some write the height first"):
        load_camera(write(tmp_path, data))


OMNI = """cam0:
  camera_model: omni
  intrinsics: [1.8, 500, 510, 319.5, 239.5]
  distortion_model: radtan
  distortion_coeffs: [-0.1, 0.05, 0.001, 0.002]
  resolution: [640, 480]
"""


def test_kalibr_omni(tmp_path: Path) -> None:
    path = tmp_path / "camchain.yaml"
    path.write_text(OMNI)
    camera = load_camera(path)
    assert camera.model == "omni"
    np.testing.assert_allclose(camera.distortion, [1.8, -0.1, 0.05, 0.001, 0.002])
    x, y, z = POINT_CAMERA / np.linalg.norm(POINT_CAMERA)  # Mei: the sphere, seen from xi behind its centre
    x, y = x / (z + 1.8), y / (z + 1.8)
    square = x * x + y * y
    radial = 1 - 0.1 * square + 0.05 * square**2
    x_d = x * radial + 2 * 0.001 * x * y + 0.002 * (square + 2 * x * x)
    y_d = y * radial + 0.001 * (square + 2 * y * y) + 2 * 0.002 * x * y
    np.testing.assert_allclose(project(camera, POINT_CAMERA), [319.5 + 500 * x_d, 239.5 + 510 * y_d])
    path.write_text(OMNI.replace("radtan", "equidistant"))
    with pytest.raises(InputError, match="omni with equidistant"):
        load_camera(path)


def test_kalibr_cameras_are_joined_by_their_imu(tmp_path: Path) -> None:
    """A point seen from the IMU is at the same place, whichever camera's transform it goes through."""
    to_imu = Rotation.from_rotvec([0.1, 0.9, -0.4])
    imu_cam1 = np.vstack([np.column_stack([to_imu.as_matrix(), [0.2, 0.1, -0.3]]), [0, 0, 0, 1]])
    base = OMNI.replace("omni", "pinhole").replace("[1.8, ", "[")
    cam0 = base + f"  T_cam_imu: {yaml_of(np.eye(4))}\n  camera_to_world: {yaml_of(POSE)}\n"  # cam0 is the IMU
    path = tmp_path / "camchain.yaml"
    for key, value in (("T_imu_cam", imu_cam1), ("T_cam_imu", np.linalg.inv(imu_cam1))):
        path.write_text(cam0 + base.replace("cam0", "cam1") + f"  {key}: {yaml_of(value)}\n")
        np.testing.assert_allclose(load_camera(path, camera_name="cam1").camera_to_world, POSE @ imu_cam1, atol=1e-9)
    both = f"  T_imu_cam: {yaml_of(imu_cam1)}\n  T_cam_imu: {yaml_of(imu_cam1)}\n"
    path.write_text(cam0 + base.replace("cam0", "cam1") + both)
    with pytest.raises(InputError, match="contradict each other"):
        load_camera(path, camera_name="cam1")


FLAT = {"camera": {"fx": 600, "fy": 610, "cx": 320.5, "cy": 240.5, "width": 640, "height": 480}, "fisheye": False}
FLAT |= {"distortion": {"model": "radtan", "coeffs": [0.1, -0.02, 0.003, 0.004]}, "rectified": False}


def valid_files(folder: Path) -> dict[str, bytes]:
    """One file of each format."""
    cv2 = pytest.importorskip("cv2")
    storage = cv2.FileStorage(str(folder / "storage.yml"), cv2.FILE_STORAGE_WRITE)
    for key, value in (("image_width", 640), ("image_height", 480), ("camera_matrix", np.diag([500.0, 500.0, 1.0]))):
        storage.write(key, value)
    storage.release()
    colmap_model(folder, binary=True)
    colmap_model(folder / "text", binary=False)
    return {
        "cameras.bin": (folder / "cameras.bin").read_bytes(),
        "cameras.txt": (folder / "text" / "cameras.txt").read_bytes(),
        "storage.yml": (folder / "storage.yml").read_bytes(),
        "camchain.yaml": OMNI.encode(),
        "transforms.json": json.dumps(transforms()).encode(),
        "camera.xml": VISP.format(cameras=VISP_CAMERA.format(name="left", f=500)).encode(),
        "mbt.xml": b"<conf><camera><u0>320.5</u0><v0>240.5</v0><px>600</px><py>600</py></camera></conf>",
        "flat.json": json.dumps(FLAT).encode(),
        "cam_K.txt": b"600 0 320.5\n0 610 240.5\n0 0 1\n",
    }


def outcome(path: Path) -> str:
    """What the user reads; anything but a Vid2PhysError goes through."""
    try:
        camera, _ = listen(lambda: load_camera(path, size=(640, 480)))
    except Vid2PhysError as error:
        return str(error)
    finite = np.isfinite(camera.K).all() and np.isfinite(camera.distortion).all()
    return "" if finite else "numbers are not finite\n"


FILES = ["cameras.bin", "cameras.txt", "storage.yml", "camchain.yaml", "transforms.json", "camera.xml"]
FILES += ["mbt.xml", "flat.json", "cam_K.txt"]


@pytest.mark.parametrize("name", FILES)
def test_each_format_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / name).write_bytes(valid_files(tmp_path / "whole")[name])
    assert outcome(tmp_path / name) == ""


@pytest.mark.parametrize("name", FILES)
def test_spoiled_files_end_in_one_line(tmp_path: Path, name: str) -> None:
    """Cut, bytes changed, parts doubled, NaN and huge numbers put in: a camera, or one line."""
    (tmp_path / "whole").mkdir()
    data, chance = valid_files(tmp_path / "whole")[name], random.Random(1)
    words = (b"nan", b"1e308", b"-inf", b"", b"9" * 30, b"[" * 2000, b"null", b"{a: *b}")
    for trial in range(100):
        spoiled, at, how = bytearray(data), chance.randrange(len(data)), trial % 5
        if how == 0:
            spoiled = spoiled[:at]
        elif how == 1:
            for _ in range(chance.randrange(1, 12)):
                spoiled[chance.randrange(len(data))] = chance.randrange(256)
        elif how == 2:
            word, digit = words[trial // 5 % len(words)], str(chance.randrange(10)).encode()
            spoiled = bytearray(data.replace(digit, word, chance.randrange(1, 9)))
        elif how == 3:
            spoiled = spoiled[:at] + spoiled[at // 2 : at] + spoiled[at:]
        else:
            spoiled = spoiled[:at] + bytes(chance.randrange(256) for _ in range(40)) + spoiled[at:]
        (tmp_path / name).write_bytes(bytes(spoiled))
        said = outcome(tmp_path / name)
        assert "\n" not in said
        assert len(said) < 1500
