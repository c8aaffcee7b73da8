"""The lens of a camera file: whatever key describes it is used, or refused by its name, in every format."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from vid2phys.commands.fit_parameters import listen
from vid2phys.engine.observe import project
from vid2phys.errors import InputError, UsageError
from vid2phys.io.camera import describe, load_camera, parse_size
from vid2phys.notes import Severity, severity_of
from vid2phys.types import Camera

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
needs_shared = pytest.mark.skipif(not CASES.is_dir(), reason="../shared/cases is not there")
K = [[600.0, 0.0, 320.5], [0.0, 610.0, 240.5], [0.0, 0.0, 1.0]]
SIZE = {"width": 640, "height": 480}
FIVE = [-0.35, 0.12, 0.001, -0.002, 0.03]
# The same numbers where each format looks for its intrinsics.
MATRIX = {"camera_matrix": K, **SIZE}
FLAT = {"fx": 600.0, "fy": 610.0, "cx": 320.5, "cy": 240.5, **SIZE}
CHAIN = {"camera_model": "pinhole", "intrinsics": [600.0, 610.0, 320.5, 240.5], "resolution": [640, 480]}
NERF = {"fl_x": 600.0, "fl_y": 610.0, "cx": 321.0, "cy": 241.0, "w": 640, "h": 480}


def written(folder: Path, data: dict[str, Any], name: str = "camera.yaml") -> Path:
    path = folder / name
    path.write_text(json.dumps(data) if name.endswith("json") else yaml.safe_dump(data))
    return path


def load_storage(folder: Path, data: dict[str, Any]) -> Camera:
    """The camera of an OpenCV FileStorage with these keys."""
    cv2 = pytest.importorskip("cv2")
    path = folder / "storage.yml"
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    for key, value in data.items():
        storage.write(key, np.array(value, dtype=float) if isinstance(value, list) else value)
    storage.release()
    return load_camera(path)


FORMATS = {
    "ros": lambda folder, lens: load_camera(written(folder, MATRIX | lens)),
    "flat": lambda folder, lens: load_camera(written(folder, FLAT | lens)),
    "json": lambda folder, lens: load_camera(written(folder, FLAT | lens, "camera.json")),
    "nested": lambda folder, lens: load_camera(written(folder, {"rig": {"left": {"info": 1, **MATRIX, **lens}}})),
    "beside": lambda folder, lens: load_camera(written(folder, {"calibration": {"intrinsics": FLAT, **lens}})),
    "kalibr": lambda folder, lens: load_camera(written(folder, {"cam0": CHAIN | lens})),
    "nerfstudio": lambda folder, lens: load_camera(written(folder, NERF | lens, "transforms.json")),
    "opencv": lambda folder, lens: load_storage(folder, MATRIX | lens),
}


@pytest.mark.parametrize(
    "key",
    [
        *("dist", "dist_coeff", "dist_coeffs", "distCoeffs", "distortion", "distortion_coeffs", "lens_distortion"),
        *("distortion_coefficients", "distortion_parameters", "camera_distortion", "Distortion-Coeffs", "kc"),
        *("coef", "coefs", "coeffs", "coefficient", "D_coeffs", "camera_lens_distortion"),
    ],
)
@pytest.mark.parametrize("form", ["ros", "flat", "nested", "beside", "kalibr", "opencv"])
def test_coefficients_under_any_key(tmp_path: Path, form: str, key: str) -> None:
    if form == "opencv" and "-" in key:
        pytest.skip("not a name of a FileStorage")
    for value in ([FIVE], FIVE) if form != "opencv" else ([FIVE],):
        camera = FORMATS[form](tmp_path, {key: value})
        assert camera.model == "plumb_bob"
        np.testing.assert_allclose(camera.distortion, FIVE)
        np.testing.assert_allclose(camera.K, K)


@pytest.mark.parametrize("form", list(FORMATS))
def test_coefficients_by_name(tmp_path: Path, form: str) -> None:
    camera = FORMATS[form](tmp_path, {"k1": -0.35, "k2": 0.12, "p1": 0.001, "p2": -0.002, "k3": 0.03})
    assert camera.model == "plumb_bob"
    np.testing.assert_allclose(camera.distortion, FIVE)


@pytest.mark.parametrize(
    ("lens", "model", "coefficients"),
    [
        ({"distortion": {"model": "radtan", "k1": -0.35, "k2": 0.12}}, "plumb_bob", [-0.35, 0.12, 0, 0, 0]),
        ({"distortion": {"name": "RADTAN", "coeffs": [-0.35, 0.12, 0, 0]}}, "plumb_bob", [-0.35, 0.12, 0, 0]),
        ({"radial_distortion": [-0.3, 0.1], "tangential_distortion": [0.1]}, "plumb_bob", [-0.3, 0.1, 0.1, 0, 0]),
        ({"coefficients": {"k1": -0.3, "k2": 0.1, "p1": 0.01, "p2": 0.02}}, "plumb_bob", [-0.3, 0.1, 0.01, 0.02, 0]),
        ({"k1": "1e-3"}, "plumb_bob", [1e-3, 0, 0, 0, 0]),
        ({"k1": [-0.3], "polygon": [1, 2, 3]}, "plumb_bob", [-0.3, 0, 0, 0, 0]),
        ({"lens_distortion_model": "fisheye", "D": [1, 2, 3, 4]}, "equidistant", [1, 2, 3, 4]),
        ({"dist": [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]}, "rational_polynomial", [1, 2, 3, 4, 5, 6, 7, 8]),
        ({f"k{i}": 0.1 * i for i in range(1, 7)}, "rational_polynomial", [0.1, 0.2, 0, 0, 0.3, 0.4, 0.5, 0.6]),
        ({"dist": [1, 2, 3, 4], "fisheye": True}, "equidistant", [1, 2, 3, 4]),
        ({"dist": [1, 2, 3, 4], "is_fisheye": 1}, "equidistant", [1, 2, 3, 4]),
        ({"fisheye_params": [1, 2, 3, 4]}, "equidistant", [1, 2, 3, 4]),
        ({"fisheye": [1, 2, 3, 4]}, "equidistant", [1, 2, 3, 4]),
        ({"fisheye": {"k1": 1.0, "k2": 2.0, "k3": 3.0, "k4": 4.0}}, "equidistant", [1, 2, 3, 4]),
        ({"camera_model": "OPENCV_FISHEYE", "k1": 1.0, "k4": 4.0}, "equidistant", [1, 0, 0, 4]),
        ({"model": "fisheye", "D": [1, 2, 3, 4]}, "equidistant", [1, 2, 3, 4]),
        ({"lens": "fisheye", "D": [1, 2, 3, 4]}, "equidistant", [1, 2, 3, 4]),
        ({"dist": [1, 2, 3, 4], "fisheye": False, "fisheye_params": [0, 0, 0, 0]}, "plumb_bob", [1, 2, 3, 4]),
        ({"xi": 1.5, "dist": [1, 2, 3, 4]}, "omni", [1.5, 1, 2, 3, 4]),
        ({"model": "distortion.brown_conrady", "coeffs": FIVE}, "plumb_bob", FIVE),
        ({"model": "distortion.inverse_brown_conrady", "coeffs": [0, 0, 0, 0, 0]}, "plumb_bob", []),
        ({"model": "Inverse Brown Conrady", "coeffs": [0, 0, 0, 0, 0]}, "plumb_bob", []),
        ({"model": "RS2_DISTORTION_MODIFIED_BROWN_CONRADY", "coeffs": [1, 2, 0, 0, 3]}, "plumb_bob", [1, 2, 0, 0, 3]),
        ({"model": "distortion.kannala_brandt4", "coeffs": [1, 2, 3, 4, 0]}, "equidistant", [1, 2, 3, 4]),
        ({"model": "distortion.none", "coeffs": [0, 0, 0, 0, 0]}, "plumb_bob", []),
        ({"dist": FIVE, "distortion_coefficients": [*FIVE, 0, 0, 0]}, "plumb_bob", FIVE),  # the same twice
        ({"dist": FIVE, "min_dist": 30, "distance_m": 2.0, "fisheye_mask": "", "k4": 0}, "plumb_bob", FIVE),
        ({"alpha_c": 0.0, "skew": 0, "distortion_model": None}, "plumb_bob", []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["ros", "json", "nested"])
def test_ways_to_describe_a_lens(tmp_path: Path, form: str, lens: dict, model: str, coefficients: list[float]) -> None:
    camera = FORMATS[form](tmp_path, lens)
    assert camera.model == model
    np.testing.assert_allclose(camera.distortion, coefficients)


@pytest.mark.parametrize(
    ("lens", "expected"),
    [
        ({"lens_correction": [0.1, 0.2]}, "unknown key '.*lens_correction'"),
        ({"distorsion": FIVE}, "unknown key '.*distorsion'"),
        ({"dist": FIVE, "radial": {"k0": 0.1}}, "unknown key '.*radial/k0'"),
        ({"k7": 0.1}, "unknown key '.*k7'"),
        ({"k1": 0.1, "p3": 0.2}, "unknown key '.*p3'"),
        ({"k1": 0.1, "p1": "0,001"}, "unknown key '.*p1'"),
        ({"camera_k1": "-0,35"}, "unknown key '.*camera_k1'"),
        ({"kappa1": -0.01}, "unknown key '.*kappa1'"),
        ({"xi": 0.2, "alpha": 0.6}, "unknown key '.*alpha'"),  # the double sphere model, not omni
        ({"alpha": 0.6, "beta": 1.1}, "unknown key '.*alpha'"),
        ({"omega": 0.9}, "unknown key '.*omega'"),
        ({"my_coefs": FIVE}, "unknown key '.*my_coefs'"),
        ({"model": "ds", "xi": 0.2, "alpha": 0.6}, "model 'ds'"),
        ({"distortion": True}, "unknown key '.*distortion'"),
        ({"s1": 0.01}, "unknown key '.*s1'"),
        ({"skew": 0.2}, "has skew"),
        ({"alpha_c": 1e-3}, "has skew"),
        ({"dist": [*FIVE, 0, 0, 0, 0.1, 0, 0, 0]}, "thin prism"),
        ({"dist": [0.1, 0.2, 0.3]}, "3 distortion coefficients"),
        ({"dist": FIVE, "kc": [0.1, 0, 0, 0, 0]}, "contradict each other"),
        ({"dist": FIVE, "k1": 0.2}, "contradict each other"),
        ({"k1": 0.2, "radial_distortion": [0.3]}, "two values of k1"),
        ({"dist": [0, 0, 0, 0, 0], "k1": 0.2}, "contradict each other"),
        ({"distortion_model": "plumb_bob", "fisheye": True, "dist": FIVE}, "contradict each other"),
        ({"distortion_model": "equidistant", "is_fisheye": False, "dist": [1, 2, 3, 4]}, "contradict each other"),
        ({"distortion_model": "none", "dist": FIVE}, "coefficients that are not zero"),
        ({"distortion_model": "plumb_bob", "camera_model": "rational", "dist": FIVE}, "contradict each other"),
        ({"model": "distortion.inverse_brown_conrady", "coeffs": FIVE}, "inverse_brown_conrady"),
        ({"model": "modified_brown_conrady", "coeffs": FIVE}, "modified_brown_conrady"),
        ({"model": "distortion.ftheta", "coeffs": [0, 0, 0, 0, 0]}, "model 'distortion.ftheta'"),
        ({"model": "kannalaBrandtDistortion", "dist_coeffs": FIVE}, "model 'kannalaBrandtDistortion'"),
        ({"camera_model": "eucm"}, "model 'eucm'"),
        ({"model": "Intel RealSense D435"}, "model 'Intel RealSense D435'"),
        ({"distortion": "division"}, "model 'division'"),
        ({"k1": 0.1, "k2": 0.2, "k3": 0.3, "k4": 0.4}, "leaves its model open"),
        ({"model": "fisheye", "k1": 0.1, "p1": 0.4}, "has p1, which equidistant does not have"),
        ({"fisheye_params": [0, 0, 0, 0]}, "whether the lens is a fisheye"),
        ({"xi": 1.5, "distortion_model": "equidistant", "D": [1, 2, 3, 4]}, "omni with equidistant"),
        ({"k1": float("nan")}, "is not finite"),
        ({"dist": ["a", "b", "c", "d"]}, "is not numeric"),
        ({"kdu": 0.1}, "kdu without kud"),
    ],
)
@pytest.mark.parametrize("form", ["ros", "flat", "nested"])
def test_what_is_refused_by_name(tmp_path: Path, form: str, lens: dict, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        FORMATS[form](tmp_path, lens)
    assert "\n" not in str(caught.value)


def test_realsense_fisheye_projects_as_its_own_formula(tmp_path: Path) -> None:
    camera = FORMATS["flat"](tmp_path, {"model": "kannala_brandt4", "coeffs": [0.1, -0.02, 0.003, -0.001, 0]})
    x, y = 0.4, -0.3
    theta = np.arctan(np.hypot(x, y))
    grown = theta * (1 + 0.1 * theta**2 - 0.02 * theta**4 + 0.003 * theta**6 - 0.001 * theta**8) / np.hypot(x, y)
    seen = project(camera, np.array([2 * x, 2 * y, 2.0]))
    np.testing.assert_allclose(seen, [320.5 + 600 * x * grown, 240.5 + 610 * y * grown])


def test_each_camera_has_its_own_lens(tmp_path: Path) -> None:
    """What stands beside another camera, or a mesh called `model`, is not the lens of this one."""
    data = {
        "model": "meshes/box.obj",
        "pid": {"p1": 0.1, "d": 3.0},
        "left": {**FLAT, "dist": FIVE},
        "rig": {"right": {**FLAT, "fx": 700.0, "distortion_model": "fisheye", "dist": [1, 2, 3, 4]}},
    }
    path = written(tmp_path, data)
    left, right = load_camera(path, camera_name="left"), load_camera(path, camera_name="right")
    assert (left.model, right.model, right.K[0, 0]) == ("plumb_bob", "equidistant", 700.0)
    np.testing.assert_allclose(left.distortion, FIVE)
    assert left.name == "left"
    assert right.name == "rig/right"


def test_intrinsics_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'camera_matrix' and 'fx, fy, cx, cy' in .* contradict"):
        load_camera(written(tmp_path, MATRIX | FLAT | {"fx": 601.0}))
    np.testing.assert_allclose(load_camera(written(tmp_path, MATRIX | FLAT)).K, K)
    with pytest.raises(InputError, match="column by column"):
        load_camera(written(tmp_path, MATRIX | {"camera_matrix": np.transpose(K).tolist()}))


def test_cameras_in_a_list(tmp_path: Path) -> None:
    """As CMU Panoptic and many scripts write them."""
    one, other = {"K": K, "distCoef": FIVE, "resolution": [640, 480]}, {"K": K, "k1": 0.2, **SIZE}
    path = written(tmp_path, {"cameras": [{"name": "a", **one}, {"name": "b", **other}]}, "camera.json")
    np.testing.assert_allclose(load_camera(path).distortion, FIVE)
    assert load_camera(path, camera_name="b").distortion[0] == 0.2
    path = written(tmp_path, {"cameras": [one, other]}, "camera.json")
    assert load_camera(path, camera_name="cameras/1").distortion[0] == 0.2
    path.write_text(json.dumps([one]))
    np.testing.assert_allclose(load_camera(path).distortion, FIVE)
    basalt = {"camera_type": "ds", "intrinsics": {**FLAT, "xi": 0.2, "alpha": 0.6}}
    with pytest.raises(InputError, match="uses the model 'ds'"):
        load_camera(written(tmp_path, {"value0": {"intrinsics": [basalt]}}))


@pytest.mark.parametrize(
    "data",
    [
        {"0": {"cam_K": np.ravel(K).tolist(), "depth_scale": 1.0, **SIZE}},  # BOP
        {"intrinsics": [600.0, 610.0, 320.5, 240.5], **SIZE},  # EuRoC
        {"K": K, "size": {"width": 640, "height": 480}},
        {"K": K, "resolution": "640x480"},
        {"K": K, "img_width": 640, "img_height": 480},
    ],
)
def test_other_ways_to_write_intrinsics_and_size(tmp_path: Path, data: dict) -> None:
    camera = load_camera(written(tmp_path, data))
    np.testing.assert_array_equal(camera.K, K)
    assert (camera.width, camera.height) == (640, 480)


def test_a_tuple_of_python_is_a_size(tmp_path: Path) -> None:
    path = tmp_path / "camera.yaml"
    path.write_text(yaml.dump({"K": K, "image_size": (640, 480), "dist": FIVE}))
    assert "python/tuple" in path.read_text()
    camera = load_camera(path)
    assert (camera.width, camera.height, camera.distortion[0]) == (640, 480, -0.35)


@pytest.mark.parametrize(
    "data", [{"cam0": {**CHAIN, "resolution": None}}, {key: NERF[key] for key in ("fl_x", "fl_y", "cx", "cy")}]
)
def test_the_clip_has_the_size_that_a_file_lacks(tmp_path: Path, data: dict) -> None:
    camera, notes = listen(lambda: load_camera(written(tmp_path, data), size=(640, 480)))
    np.testing.assert_array_equal(camera.K, K)
    assert (camera.width, len(notes)) == (640, 1)


def test_orb_slam_with_a_matrix_of_opencv_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    matrix = "Tbc: !!opencv-matrix\n   rows: 1\n   cols: 1\n   dt: f\n   data: [1.]\n"
    path.write_text(f"%YAML:1.0\nCamera.fx: 600\nCamera.fy: 600\n{matrix}")
    with pytest.raises(InputError, match="is an ORB-SLAM settings file"):
        load_camera(path)


TURN = [[0.999, 0.0447, 0], [-0.0447, 0.999, 0], [0, 0, 1]]
OTHER = [[580.0, 0, 318, 0], [0, 590, 238, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("keys", "fx", "count", "noted"),
    [
        ({"D": FIVE, "projection_matrix": OTHER}, 600, 5, False),  # as ROS writes it for one camera
        ({"D": FIVE, "projection_matrix": OTHER, "rectification_matrix": TURN}, 600, 5, True),
        ({"D": FIVE, "projection_matrix": OTHER, "rectification_matrix": TURN, "rectified": False}, 600, 5, False),
        ({"D": FIVE, "projection_matrix": OTHER, "rectification_matrix": TURN, "rectified": True}, 580, 0, False),
        ({"D": FIVE, "P": OTHER, "R": TURN, "is_rectified": "true"}, 580, 0, False),
        ({"rectified": True}, 600, 0, False),
        ({"projection_matrix": OTHER, "rectified": False}, 600, 0, False),
        ({"projection_matrix": [0] * 12, "rectification_matrix": [0] * 9}, 600, 0, False),  # not filled in
        ({"R": TURN, "t": [1, 2, 3]}, 600, 0, False),  # a pose of the other kind, not a rectification
    ],
)
def test_rectification_is_followed(tmp_path: Path, keys: dict, fx: float, count: int, noted: bool) -> None:
    camera, notes = listen(lambda: load_camera(written(tmp_path, MATRIX | keys)))
    assert (camera.K[0, 0], len(camera.distortion)) == (fx, count)
    assert any("rectification_matrix" in note for note in notes) == noted


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rectification_matrix": TURN}, "has a rectification_matrix"),
        ({"projection_matrix": OTHER}, "has a projection_matrix that differs"),
        ({"D": FIVE, "rectified": True}, "is marked as rectified"),
        ({"rectified": True, "undistorted": False}, "two keys for rectified images"),
        ({"rectified": "perhaps"}, "is 'perhaps'; expected true or false"),
        ({"info": {"rectified": True}}, "unknown key 'info/rectified'"),
        ({"rectified_baseline": 3.0}, "unknown key 'rectified_baseline'"),
    ],
)
def test_rectification_that_is_not_clear(tmp_path: Path, keys: dict, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        load_camera(written(tmp_path, MATRIX | keys))


def test_vins_has_no_second_lens(tmp_path: Path) -> None:
    pinhole = {"fx": 600.0, "fy": 610.0, "cx": 320.5, "cy": 240.5}
    four = {"k1": -0.35, "k2": 0.12, "p1": 0.0, "p2": 0.0}
    data = {"model_type": "PINHOLE", "image_width": 640, "image_height": 480, "fisheye": 1, "min_dist": 30}
    data |= {"projection_parameters": pinhole, "distortion_parameters": four}
    np.testing.assert_allclose(load_camera(written(tmp_path, data)).distortion, list(four.values()))
    with pytest.raises(InputError, match="beside those of PINHOLE"):
        load_camera(written(tmp_path, data | {"dist_coeffs": [0.1, 0.2, 0, 0]}))
    with pytest.raises(InputError, match="has k3, which PINHOLE does not have"):
        load_camera(written(tmp_path, data | {"distortion_parameters": four | {"k3": 0.1}}))


def test_nerfstudio_list_has_its_own_order(tmp_path: Path) -> None:
    listed = NERF | {"distortion_params": [0.1, 0.2, 0.3, 0.0, 0.01, 0.02]}
    np.testing.assert_allclose(load_camera(written(tmp_path, listed, "a.json")).distortion, [0.1, 0.2, 0.01, 0.02, 0.3])
    with pytest.raises(InputError, match=r"'distortion_params' in .* has 4 numbers"):
        load_camera(written(tmp_path, NERF | {"distortion_params": [0.1, 0.2, 0, 0]}, "a.json"))


def test_colmap_models_of_newer_versions_are_named(tmp_path: Path) -> None:
    (tmp_path / "cameras.txt").write_text(
        "1 RAD_TAN_THIN_PRISM_FISHEYE 640 480 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
    )
    with pytest.raises(InputError, match="uses the model 'RAD_TAN_THIN_PRISM_FISHEYE'"):
        load_camera(tmp_path)


def test_zivid_is_read_by_its_names(tmp_path: Path) -> None:
    lens = {"K1": -0.35, "K2": 0.12, "K3": 0.03, "P1": 0.001, "P2": -0.002}
    data = {"CameraIntrinsics": {"CameraMatrix": {"CX": 320.5, "CY": 240.5, "FX": 600, "FY": 610}, "Distortion": lens}}
    camera, notes = listen(lambda: load_camera(written(tmp_path, data), size=(640, 480)))
    np.testing.assert_allclose(camera.distortion, FIVE)
    assert "has no image size: 640x480 is taken" in notes[0]


ROWS = "319.58 0 417.12\n0 319.5 241.37\n0 0 1\n"
ARRAY = np.array([[319.58, 0, 417.12], [0, 319.5, 241.37], [0, 0, 1]])


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS.replace(" ", ", "),
        ROWS.replace(" ", "\t") + "\n\n",
        "# K of the colour camera\n" + ROWS,
        str(ARRAY),
        repr(ARRAY),
        "K = np." + repr(ARRAY),
        str(ARRAY.tolist()),
        repr(ARRAY.astype(np.float32)).replace("array", "K = array"),
        ROWS.replace("0 0 1", "0 0 1  # the last row"),
        ROWS.replace(" ", ";"),
        ROWS.replace("\n", " "),
        "K:\n" + str(ARRAY),
        "[319.58, 0, 417.12; 0, 319.5, 241.37; 0, 0, 1];",
        "3.1958e+02 0 4.1712e+02 0\n0 319.5 241.37 0\n0 0 1 0\n",
        "319.58 0 417.12 0\n0 319.5 241.37 0\n0 0 1 0\n0 0 0 1\n",
    ],
)
def test_a_plain_matrix(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cam_K.txt"
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        camera = load_camera(path, size=(848, 480))
    np.testing.assert_array_equal(camera.K, ARRAY)
    assert (camera.model, camera.distortion.any(), camera.camera_to_world) == ("plumb_bob", False, None)
    with pytest.raises(InputError, match=r"has no image size.*calibrate --from .* --size 640x480"):
        load_camera(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROWS.replace("319.58 0 ", "319.58 3 "), "has skew"),
        ("0.1 0.2 0.3 1\n0.4 0.5 0.6 2\n0.7 0.8 0.9 3\n0 0 0 1\n", "a projection with a translation, or a pose"),
        (ROWS.replace("319.5 ", "nan "), "is not finite"),
        ("600 600 320 240 0.1 0.2 0 0 0\n", "none of the known camera formats"),
        ("600 600 320 240\n", "none of the known camera formats"),
        ("1 2 3\n4 5\n6 7 8\n", "none of the known camera formats"),
    ],
)
def test_texts_that_are_no_camera_matrix(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "cam_K.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=expected):
        load_camera(path, size=(640, 480))


def test_a_size_from_the_images_is_said_and_judged(tmp_path: Path) -> None:
    path = tmp_path / "cam_K.txt"
    path.write_text(ROWS)
    _, notes = listen(lambda: load_camera(path, size=(848, 480)))
    assert [severity_of(note) for note in notes] == [Severity.INFORMATION]
    _, notes = listen(lambda: load_camera(path, size=(640, 480)))
    assert [severity_of(note) for note in notes] == [Severity.WARNING]
    assert "the principal point is 98 px off the middle" in notes[0]
    with pytest.raises(InputError, match=r"its principal point 417\.12, 241\.37 is outside"):
        load_camera(path, size=(320, 240))
    assert parse_size("640X480") == (640, 480)
    for text in ("640", "0x480", "axb"):
        with pytest.raises(UsageError, match="WIDTHxHEIGHT"):
            parse_size(text)


MBT = """<?xml version="1.0"?>
<conf>
  <camera>{size}<u0>320.5</u0><v0>240.5</v0><px>600.0</px><py>610.0</py></camera>
  <!-- <camera><u0>1</u0></camera> -->
  <face><angle_appear>70</angle_appear></face>
</conf>
"""


def test_visp_trackers(tmp_path: Path) -> None:
    """mbt.xml, rbt.json, and the JSON of a generic tracker and of vpCameraParameters."""
    path = tmp_path / "mbt.xml"
    path.write_text(MBT.format(size="<width>640</width><height>480</height>"))
    np.testing.assert_array_equal(load_camera(path).K, K)
    path.write_text(MBT.format(size=""))
    with pytest.raises(InputError, match="has no image size"):
        load_camera(path)
    four = {"model": "perspectiveWithoutDistortion", "px": 600.0, "py": 610.0, "u0": 320.5, "v0": 240.5}
    robot = {"camera": {"intrinsics": four, **SIZE}, "model": "path/to/model.obj", "vvs": {"gain": 1.0, "mu": 0.5}}
    generic = {"trackers": {"left": {"camera": four, "edge": {"range": 4}, "clipping": {"flags": ["none"]}}}}
    for data in (robot, generic, four):
        camera, _ = listen(lambda: load_camera(written(tmp_path, data, "rbt.json"), size=(640, 480)))  # noqa: B023
        np.testing.assert_array_equal(camera.K, K)
        assert not camera.distortion.any()
    path.write_text(MBT.format(size="").replace("<py>610.0</py>", ""))
    with pytest.raises(InputError, match="has no py; expected px, py, u0, v0"):
        load_camera(path)
    missing = {key: value for key, value in four.items() if key != "u0"}
    with pytest.raises(InputError, match="has no u0; expected px, py, u0, v0"):
        load_camera(written(tmp_path, {"camera": {"intrinsics": missing, **SIZE}}, "rbt.json"))
    with_lens = four | {"model": "perspectiveWithDistortion", "kud": -0.19, "kdu": 0.2}
    np.testing.assert_allclose(
        load_camera(written(tmp_path, with_lens | SIZE, "a.json")).distortion, [-0.19, 0, 0, 0, 0]
    )
    with pytest.raises(InputError, match="kannalaBrandtDistortion"):
        load_camera(written(tmp_path, four | {"model": "kannalaBrandtDistortion"} | SIZE, "a.json"))


def test_the_line_that_says_what_was_read(tmp_path: Path) -> None:
    said = describe(FORMATS["ros"](tmp_path, {"dist_coeff": [[-0.35, 0.12, 0, 0, 0]]}))
    assert said == "plumb_bob, fx 600, fy 610, cx 320.5, cy 240.5, k1 -0.35, k2 0.12, 640x480"
    assert describe(FORMATS["ros"](tmp_path, {})).endswith("cy 240.5, no distortion, 640x480")
    assert "equidistant, fx 600" in describe(FORMATS["ros"](tmp_path, {"fisheye": [1, 2, 3, 4]}))


@needs_shared
@pytest.mark.shared
def test_shared_cases() -> None:
    camera = load_camera(CASES / "dist_coeff_dropped" / "cam.yaml")
    np.testing.assert_allclose(camera.distortion, [-0.35, 0.12, 0, 0, 0])
    assert camera.camera_to_world is not None
    camera, _ = listen(lambda: load_camera(CASES / "plain_matrix" / "cam_K.txt", size=(848, 480)))
    assert (camera.K[0, 0], camera.K[0, 2], camera.K[1, 2]) == (319.58, 417.12, 241.37)
    for name in ("mbt.xml", "rbt.json"):
        camera, notes = listen(lambda: load_camera(CASES / "visp_formats" / name, size=(640, 480)))  # noqa: B023
        np.testing.assert_array_equal(camera.K, [[600, 0, 320.5], [0, 600, 240.5], [0, 0, 1]])
        assert len(notes) == (name == "mbt.xml")  # it has no size
