"""Known formats that are not supported are named, with what to do; whatever else is unknown stays unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vid2phys.errors import InputError
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.mocap import load_mocap
from vid2phys.io.video import read_clip

METASHAPE = b'<?xml version="1.0"?>\n<calibration>\n<projection>frame</projection><f>800</f></calibration>\n'
FILES: list[tuple[Callable[[Path], object], str, bytes, str]] = [
    (load_camera, "calibration.xml", METASHAPE, "an Agisoft Metashape calibration"),
    (load_camera, "bundle.out", b"# Bundle file v0.3\n1 1\n800 0 0\n", "a Bundler file"),
    (load_camera, "model.nvm", b"NVM_V3\n\n1\n", "a VisualSFM file"),
    (load_camera, "params.mat", b"MATLAB 5.0 MAT-file, Platform: GLNXA64\0\0", "a MATLAB file"),
    (load_camera, "K.npy", b"\x93NUMPY\x01\0v\0{'descr': '<f8'}", "a NumPy file"),
    (
        load_camera,
        "preset.json",
        b'{"parameters": {"controls-autoexposure-auto": "True"}}',
        "a preset of the RealSense",
    ),
    (load_camera, "orb.yaml", b"%YAML:1.0\nCamera.type: PinHole\nCamera.fx: 500.0\n", "an ORB-SLAM settings file"),
    (
        load_camera,
        "cam.ini",
        b"# oST version 5.0\n[image]\n\nwidth\n640\n\ncamera matrix\n1 0 0\n",
        "a ROS calibration in",
    ),
    (load_camera, "calib.txt", b"P0: 7.0e+02 0 6.0e+02 0 0 7e+02 1.8e+02 0 0 0 1 0\n", "a KITTI calibration"),
    (load_camera, "camera.png", b"\x89PNG\r\n\x1a\n\0\0", "an image"),
    (load_mesh, "body.blend", b"BLENDER-v300RENDH", "a Blender file"),
    (load_mesh, "body.fbx", b"Kaydara FBX Binary  \0\x1a\0", "an FBX file"),
    (load_mesh, "body.STEP", b"ISO-10303-21;\nHEADER;\n", "a STEP file"),
    (load_mesh, "body.usdz", b"PK\x03\x04\n\0", "a USD file"),
    (load_mesh, "part.sldprt", b"\xd0\xcf\x11\xe0", "a CAD file"),
    (load_mesh, "body.dae", b'<?xml version="1.0"?><COLLADA></COLLADA>', "a COLLADA file"),
    (load_mocap, "take.tak", b"\0\1\2\3", "a Motive take"),
    (load_mocap, "flight.bag", b"#ROSBAG V2.0\n\0", "a ROS bag"),
    (load_mocap, "walk.bvh", b"HIERARCHY\nROOT Hips\n", "an animation of a skeleton"),
    (load_mocap, "markers.trc", b"PathFileType\t4\t(X/Y/Z)\tmarkers.trc\n", "an OpenSim marker file"),
    (load_mocap, "poses.xlsx", b"PK\x03\x04\n\0", "a spreadsheet"),
    (read_clip, "camera.bag", b"#ROSBAG V2.0\n\0", "a ROS bag"),
    (read_clip, "zed.svo2", b"\x89MCAP0\r\n", "a ROS bag|a ZED recording"),
    (read_clip, "frames.npy", b"\x93NUMPY\x01\0v\0", "a NumPy file"),
]


@pytest.mark.parametrize(("load", "name", "content", "kind"), FILES, ids=[name for _, name, _, _ in FILES])
def test_a_known_format_is_named(
    tmp_path: Path, load: Callable[[Path], object], name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"is (?:{kind}).* not supported; expected a .*; ") as caught:
        load(tmp_path / name)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [load_camera, load_mesh, load_mocap, read_clip])
def test_an_unknown_file_is_not_taken_for_a_known_one(tmp_path: Path, load: Callable[[Path], object]) -> None:
    path = tmp_path / "notes.abcdef"
    path.write_text("nothing that anyone would know\n")
    with pytest.raises(InputError) as caught:
        load(path)
    assert "not supported" not in str(caught.value) or "file_type" in str(caught.value)  # the latter is trimesh's
    with pytest.raises(InputError, match="does not exist"):
        load(tmp_path / "missing.blend")
