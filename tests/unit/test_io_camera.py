"""Cameras: every format family, poses, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform, make_transform, matrix_from_rotvec
from vid2phys.io.camera import formats, load_camera, require_pose, require_resolution, save_camera
from vid2phys.types import Camera, Clip

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
CALIBRATIONS = SHARED / "data" / "camera_calibrations"
needs_shared = pytest.mark.skipif(not CALIBRATIONS.is_dir(), reason="../shared/data is not there")
K = np.array([[500.0, 0.0, 319.5], [0.0, 510.0, 239.5], [0.0, 0.0, 1.0]])
POSE = make_transform(matrix_from_rotvec(np.array([0.3, -1.2, 0.7])), np.array([1.0, -2.0, 0.5]))
ROS = """\
image_width: 640
image_height: 480
camera_name: front
camera_matrix: {rows: 3, cols: 3, data: [500, 0, 319.5, 0, 510, 239.5, 0, 0, 1]}
"""


def yaml_of(pose: np.ndarray) -> str:
    return "[" + ", ".join("[" + ", ".join(repr(float(x)) for x in row) + "]" for row in pose) + "]"


def file(folder: Path, text: str, name: str = "camera.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("model", "count"),
    [("plumb_bob", 5), ("plumb_bob", 4), ("rational_polynomial", 8), ("equidistant", 4), ("omni", 5)],
)
@pytest.mark.parametrize("pose", [None, POSE])
def test_native_round_trip(tmp_path: Path, model: str, count: int, pose: np.ndarray | None) -> None:
    camera = Camera(K, 640, 480, np.linspace(0.3, -0.1, count), model, pose, "front")
    save_camera(camera, tmp_path / "camera.yaml")
    again = load_camera(tmp_path / "camera.yaml")
    np.testing.assert_array_equal(again.K, K)
    np.testing.assert_array_equal(again.distortion, camera.distortion)
    assert (again.model, again.width, again.height, again.name) == (model, 640, 480, "front")
    if pose is None:
        assert again.camera_to_world is None
    else:
        np.testing.assert_allclose(require_pose(again, "camera.yaml"), pose, atol=1e-12)


def test_the_formats_are_the_files() -> None:
    assert set(formats()) >= {"colmap", "kalibr", "nerfstudio", "opencv", "plain", "ros", "visp"}


@pytest.mark.parametrize(
    ("lines", "model", "count"),
    [
        ("", "plumb_bob", 0),
        ("distortion_model: ''\nD: [0.1, 0.2, 0, 0, 0]\n", "plumb_bob", 5),
        ("distortion_coefficients: {rows: 1, cols: 8, data: [1, 2, 3, 4, 5, 6, 7, 8]}\n", "rational_polynomial", 8),
        ("distortion_model: fisheye\nd: [0.1, 0.2, 0, 0]\n", "equidistant", 4),
    ],
)
def test_ros_models(tmp_path: Path, lines: str, model: str, count: int) -> None:
    camera = load_camera(file(tmp_path, ROS + lines))
    assert (camera.model, len(camera.distortion)) == (model, count)


def test_ros_message_as_printed(tmp_path: Path) -> None:
    text = "header: {seq: 0}\nheight: 480\nwidth: 640\ndistortion_model: plumb_bob\nD: [0, 0, 0, 0, 0]\n"
    text += "K: [500.0, 0.0, 319.5, 0.0, 510.0, 239.5, 0.0, 0.0, 1.0]\nbinning_x: 0\nroi: {x_offset: 0}\n"
    np.testing.assert_array_equal(load_camera(file(tmp_path, text)).K, K)
    with pytest.raises(InputError, match="binning"):
        load_camera(file(tmp_path, text.replace("binning_x: 0", "binning_x: 2")))


@pytest.mark.parametrize(
    "lines",
    [
        f"camera_to_world: {yaml_of(POSE)}\n",
        f"camera_to_world: {{rows: 4, cols: 4, data: {POSE.ravel().tolist()}}}\n",
        f"camera_to_world: {POSE[:3].ravel().tolist()}\n",
        f"world_to_camera: {yaml_of(invert_transform(POSE))}\n",
    ],
)
def test_ways_to_write_a_pose(tmp_path: Path, lines: str) -> None:
    np.testing.assert_allclose(load_camera(file(tmp_path, ROS + lines)).camera_to_world, POSE, atol=1e-12)
    extrinsics = file(tmp_path, lines, "extrinsics.yaml")
    np.testing.assert_allclose(load_camera(file(tmp_path, ROS), extrinsics).camera_to_world, POSE, atol=1e-12)


def test_missing_pose_names_the_key(tmp_path: Path) -> None:
    path = file(tmp_path, ROS + f"T_cam_imu: {yaml_of(POSE)}\n")
    with pytest.raises(InputError, match="the key camera_to_world is missing") as caught:
        require_pose(load_camera(path), path)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no key camera_to_world"):
        load_camera(path, file(tmp_path, f"T_imu_cam: {yaml_of(POSE)}\n", "extrinsics.yaml"))


MIRROR = np.diag([1.0, 1.0, -1.0, 1.0])


@pytest.mark.parametrize("pose", [MIRROR, np.diag([2.0, 2.0, 2.0, 1.0]), POSE.T])
def test_what_is_no_pose_is_refused(tmp_path: Path, pose: np.ndarray) -> None:
    with pytest.raises(InputError, match="not a rigid transform"):
        load_camera(file(tmp_path, ROS + f"camera_to_world: {yaml_of(pose)}\n"))


T_10 = make_transform(matrix_from_rotvec(np.array([0.0, 0.1, 0.0])), np.array([-0.1, 0.0, 0.0]))
T_21 = make_transform(matrix_from_rotvec(np.array([0.2, 0.0, 0.0])), np.array([-0.2, 0.0, 0.1]))


def kalibr(extra: tuple[str, str, str] = ("", "", "")) -> str:
    links = ("", f"  T_cn_cnm1: {yaml_of(T_10)}\n", f"  T_cn_cnm1: {yaml_of(T_21)}\n")
    body = (
        "  camera_model: pinhole\n  intrinsics: [{f}, 510, 319.5, 239.5]\n  resolution: [640, 480]\n"
        "  distortion_model: {model}\n  distortion_coeffs: [0.1, 0.2, 0.0, 0.0]\n  T_cam_imu: " + yaml_of(POSE) + "\n"
    )
    models = ("radtan", "equidistant", "radtan")
    return "%YAML:1.0\n" + "".join(
        f"cam{i}:\n" + body.format(f=500 + i, model=models[i]) + links[i] + extra[i] for i in range(3)
    )


def test_kalibr_cameras_are_chosen_by_name_and_imu_is_no_world(tmp_path: Path) -> None:
    path = file(tmp_path, kalibr())
    first, second = load_camera(path), load_camera(path, camera_name="cam1")
    assert (first.name, first.K[0, 0], first.model) == ("cam0", 500.0, "plumb_bob")
    assert (second.name, second.K[0, 0], second.model) == ("cam1", 501.0, "equidistant")
    assert first.camera_to_world is None
    assert second.camera_to_world is None
    with pytest.raises(InputError, match="one of cam0, cam1, cam2; name one"):
        load_camera(path, camera_name="cam3")


@pytest.mark.parametrize("known", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
@pytest.mark.parametrize("where", ["in the file", "beside it"])
def test_kalibr_chain_carries_the_pose(tmp_path: Path, known: int, wanted: int, where: str) -> None:
    world = [POSE, POSE @ invert_transform(T_10), POSE @ invert_transform(T_10) @ invert_transform(T_21)]
    key = f"  camera_to_world: {yaml_of(world[known])}\n"
    if where == "in the file":
        path, extrinsics = file(tmp_path, kalibr(tuple(key if i == known else "" for i in range(3)))), None
    else:
        path, extrinsics = file(tmp_path, kalibr()), file(tmp_path, f"cam{known}:\n{key}", "extrinsics.yaml")
    camera = load_camera(path, extrinsics, camera_name=f"cam{wanted}")
    np.testing.assert_allclose(camera.camera_to_world, world[wanted], atol=1e-12)


@pytest.mark.parametrize(("old", "new"), [("pinhole", "eucm"), ("radtan", "fov"), ("pinhole", "ds")])
def test_kalibr_models_refused_by_name(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(InputError, match=f"uses the model '{new}'"):
        load_camera(file(tmp_path, kalibr().replace(old, new, 1)))


@pytest.mark.parametrize("suffix", ["yml", "xml", "json"])
@pytest.mark.parametrize("count", [4, 5, 8, 14])
def test_opencv_storage(tmp_path: Path, suffix: str, count: int) -> None:
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / f"camera.{suffix}"
    coefficients = np.zeros(count)
    coefficients[:4] = [-0.3, 0.1, 0.001, 0.002]
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    storage.write("image_width", 640)
    storage.write("image_height", 480)
    storage.write("camera_matrix", K)
    storage.write("distortion_coefficients", coefficients)
    storage.write("camera_to_world", POSE)
    storage.release()
    camera = load_camera(path)
    np.testing.assert_allclose(camera.K, K)
    assert camera.model == ("rational_polynomial" if count > 5 else "plumb_bob")
    np.testing.assert_allclose(camera.distortion, coefficients[:8])
    np.testing.assert_allclose(camera.camera_to_world, POSE, atol=1e-12)


VINS = """\
%YAML:1.0
model_type: {model}
camera_name: left
image_width: 640
image_height: 480
distortion_parameters: {{k1: 0.1, k2: 0.2, p1: 0.3, p2: 0.4}}
projection_parameters: {{{projection}}}
extrinsicRotation: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [1., 0., 0., 0., 1., 0., 0., 0., 1.]
"""


def test_vins_pinhole_kannala_brandt_and_mei(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    plain = "fx: 500., fy: 510., cx: 319.5, cy: 239.5"
    camera = load_camera(file(tmp_path, VINS.format(model="PINHOLE", projection=plain)))
    np.testing.assert_array_equal(camera.K, K)
    np.testing.assert_array_equal(camera.distortion, [0.1, 0.2, 0.3, 0.4])
    assert (camera.name, camera.camera_to_world) == ("left", None)
    fisheye = "k2: 1., k3: 2., k4: 3., k5: 4., mu: 500., mv: 510., u0: 319.5, v0: 239.5"
    with pytest.raises(InputError, match="has k1, which KANNALA_BRANDT does not have"):
        load_camera(file(tmp_path, VINS.format(model="KANNALA_BRANDT", projection=fisheye)))
    no_more = VINS.replace("distortion_parameters: {{k1: 0.1, k2: 0.2, p1: 0.3, p2: 0.4}}\n", "")
    camera = load_camera(file(tmp_path, no_more.format(model="KANNALA_BRANDT", projection=fisheye)))
    assert camera.model == "equidistant"
    np.testing.assert_array_equal(camera.distortion, [1, 2, 3, 4])
    mirror = "gamma1: 500., gamma2: 510., u0: 319.5, v0: 239.5"
    omni = VINS.format(model="MEI", projection=mirror)
    camera = load_camera(file(tmp_path, omni + "mirror_parameters: {xi: 2.057}\n"))
    assert camera.model == "omni"
    np.testing.assert_array_equal(camera.K, K)
    np.testing.assert_array_equal(camera.distortion, [2.057, 0.1, 0.2, 0.3, 0.4])
    with pytest.raises(InputError, match=r"'mirror_parameters' in .* has no xi"):
        load_camera(file(tmp_path, omni))
    with pytest.raises(InputError, match="uses the model 'SCARAMUZZA'"):
        load_camera(file(tmp_path, VINS.format(model="SCARAMUZZA", projection=plain)))
    with pytest.raises(InputError, match="has no fx"):
        load_camera(file(tmp_path, VINS.format(model="PINHOLE", projection=fisheye)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("hello: world\n", "none of the known camera formats"),
        ("a: [1, 2", "none of the known camera formats"),
        ("%YAML:1.0\nK: !!opencv-matrix\n  rows: [", "cannot be read"),
        ("%YAML:1.0\nK: !!opencv-matrix\n  rows: 3\n  cols: 3\n  dt: d\n  data: [1., 2.]\n", "cannot be read"),
        ("cam0:\n  intrinsics: [1, 1, 1, 1]\n  resolution: 5\n", "has no image size"),
        ("cam0:\n  intrinsics: [1, 1, 1, 1]\n", "has no image size"),
        ("cam0:\n  intrinsics: {a: 1}\n", "none of the known camera formats"),
        (ROS + "roi: 3\nbinning_x: many\n", "binning"),
        (ROS.replace("image_width: 640\n", ""), "image_width and image_height"),
        (ROS.replace("data: [500,", "data: [0,"), "not calibrated"),
        (ROS.replace("data: [500, 0", "data: [500, 3"), "skew"),
        (ROS.replace(", 1]}", "]}"), "has 8 numbers; expected 3x3"),
        (ROS.replace("[500", "[.nan"), "is not finite"),
        (ROS + "distortion_model: mei\nD: [0, 0, 0, 0]\n", "4 distortion coefficients for omni; expected 5"),
        (ROS + "distortion_model: mei\nD: [-1, 0, 0, 0, 0]\n", "has xi = -1"),
        (ROS + "distortion_model: eucm\nD: [0, 0, 0, 0]\n", "uses the model 'eucm'"),
        (ROS.replace("640", "1000000000"), "up to 65536 px a side"),
        (ROS.replace("640", ".inf"), "image_width and image_height"),
        ("a: &a [1, 1]\nb: [*a, *a]\n", "none of the known camera formats"),
        ("[" * 100_000, "none of the known camera formats"),
        ('{"a": ' * 50_000, "none of the known camera formats"),
        ("<root><camera><model>", "has no whole camera"),
        (ROS + "distortion_model: plumb_bob\nD: [0, 0, 0]\n", "3 distortion coefficients for plumb_bob"),
    ],
)
def test_broken_cameras_give_one_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        load_camera(file(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_another_resolution_than_the_clip() -> None:
    clip = Clip([], np.zeros(0), 1280, 720, "flight")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is for 640x480, clip 'flight' is 1280x720"):
        require_resolution(Camera(K, 640, 480), clip, "camera.yaml")
    require_resolution(Camera(K, 1280, 720), clip, "camera.yaml")


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "fx", "model", "count", "size"),
    [
        ("kalibr_camchain_euroc_mav.yaml", 458.654, "plumb_bob", 4, (752, 480)),
        ("kalibr_camchain_tum_vi.yaml", 190.97847715128717, "equidistant", 4, (512, 512)),
        ("opencv_filestorage_vins_euroc_config.yaml", 461.6, "plumb_bob", 4, (752, 480)),
        ("opencv_samples_left_intrinsics.yml", 535.91573396163199, "plumb_bob", 5, (640, 480)),
        ("ros_camera_info_camerav2_1280x960.yaml", 999.461170663331, "plumb_bob", 5, (1280, 960)),
        ("ros_camera_info_usb_cam.yaml", 438.783367, "plumb_bob", 5, (640, 480)),
    ],
)
def test_real_files(name: str, fx: float, model: str, count: int, size: tuple[int, int]) -> None:
    camera = load_camera(CALIBRATIONS / name)
    assert (camera.K[0, 0], camera.model, len(camera.distortion)) == (fx, model, count)
    assert (camera.width, camera.height) == size
    assert camera.camera_to_world is None


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "baseline_m"), [("kalibr_camchain_euroc_mav.yaml", 0.110), ("kalibr_camchain_tum_vi.yaml", 0.101)]
)
def test_real_chains_are_joined_by_their_imu(tmp_path: Path, name: str, baseline_m: float) -> None:
    """One has T_imu_cam, the other T_cam_imu; the published baselines come out only if each is read its own way."""
    extrinsics = file(tmp_path, f"cam0:\n  camera_to_world: {yaml_of(POSE)}\n", "extrinsics.yaml")
    other = load_camera(CALIBRATIONS / name, extrinsics, camera_name="cam1").camera_to_world
    place = invert_transform(POSE) @ other
    assert np.linalg.norm(place[:3, 3]) == pytest.approx(baseline_m, abs=1e-3)
    assert place[0, 3] == pytest.approx(baseline_m, abs=2e-3)  # the second camera is to the right
    assert np.trace(place[:3, :3]) > 2.99


@needs_shared
@pytest.mark.shared
def test_clip_camera() -> None:
    pose = require_pose(load_camera(SHARED / "clips" / "quad_log203" / "camera.yaml"), "camera.yaml")
    np.testing.assert_allclose(pose[:3, 3], [-2.85, -1.1, 2.3])
