"""Recognise formats that are known but not supported: what a file is, and how to convert it.

A loader calls this where none of its own formats fits, so that nothing here blocks a supported file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vid2phys.errors import InputError

_HEAD_BYTES = 1 << 16  # of a file, in which the parts that mark a format are sought
_BY_NAME = "write fx, fy, cx, cy, width, height and OpenCV's k1, k2, p1, p2, k3 as YAML or JSON"
_AS_OBJ = "export the surface as OBJ or GLB"
_AS_LOG = "export the poses as CSV, TUM or C3D"
_AS_VIDEO = "export the colour images as MP4"


@dataclass(frozen=True)
class _Format:
    """A format that is not supported.

    name: as in "is ...". endings: of the file's name. begins, contains: in the first bytes of the file; any of
    `begins`, or all of `contains`.
    """

    name: str
    remedy: str
    endings: tuple[str, ...] = ()
    begins: tuple[bytes, ...] = ()
    contains: tuple[bytes, ...] = ()

    def matches(self, name: str, head: bytes) -> bool:
        """Return whether a file with this name and these first bytes is of this format."""
        if name.lower().endswith(self.endings) or head.lstrip(b"\xef\xbb\xbf \r\n").startswith(self.begins):
            return True
        return bool(self.contains) and all(part in head for part in self.contains)


_ANYTHING = (  # a file of another kind under any option
    _Format(
        "an image", "give the file that its option asks for", begins=(b"\x89PNG", b"\xff\xd8\xff", b"BM", b"II*\0")
    ),
    _Format("a PDF", "give the file that it was made from", begins=(b"%PDF",)),
    _Format("a spreadsheet", "save it as CSV", (".xlsx", ".xls", ".ods")),
    _Format(
        "an archive",
        "unpack it and give the file in it",
        (".zip", ".7z", ".gz"),
        (b"PK\x03\x04", b"7z\xbc", b"\x1f\x8b"),
    ),
)
_RECORDINGS = (
    ("a ROS bag", (".bag", ".db3", ".mcap"), (b"#ROSBAG", b"\x89MCAP0")),
    ("a Motive take", (".tak", ".ttp"), ()),
    ("a ZED recording", (".svo", ".svo2"), ()),
)
_ARRAYS = (
    ("a NumPy file", (".npy", ".npz"), (b"\x93NUMPY",)),
    ("a Python pickle", (".pkl", ".pickle"), (b"\x80\x03", b"\x80\x04", b"\x80\x05")),
    ("a MATLAB file", (".mat",), (b"MATLAB ",)),
    ("an HDF5 file", (".h5", ".hdf5"), (b"\x89HDF",)),
)
_FORMATS: dict[str, tuple[_Format, ...]] = {
    "camera": (
        _Format(
            "an Agisoft Metashape calibration",
            "save it as an OpenCV calibration in Metashape",
            contains=(b"<calibration", b"<projection>"),
        ),
        _Format(
            "an Agisoft Metashape project",
            "save the camera calibration as OpenCV in Metashape",
            (".psx", ".psz"),
            contains=(b"<document", b"<sensor"),
        ),
        _Format("a Bundler file", _BY_NAME, begins=(b"# Bundle file",)),
        _Format("a VisualSFM file", _BY_NAME, (".nvm",), (b"NVM_V3",)),
        _Format("an OpenMVG file", _BY_NAME, contains=(b'"sfm_data_version"',)),
        _Format("an AliceVision (Meshroom) file", _BY_NAME, contains=(b'"featuresFolders"', b'"intrinsics"')),
        _Format("an OpenSfM file", _BY_NAME, contains=(b'"projection_type"',)),
        _Format("an Azure Kinect calibration", _BY_NAME, contains=(b'"CalibrationInformation"',)),
        _Format("a Basalt calibration", _BY_NAME, contains=(b'"value0"', b'"intrinsics"')),
        _Format(
            "a preset of the RealSense viewer (settings, no calibration)",
            "write down the intrinsics that `rs-enumerate-devices -c` prints",
            contains=(b'"controls-', b"autoexposure"),
        ),
        _Format("an ORB-SLAM settings file", _BY_NAME, contains=(b"Camera", b".fx:")),
        _Format("a ZED calibration", _BY_NAME, contains=(b"[LEFT_CAM",)),
        _Format(
            "a ROS calibration in INI form",
            "convert it with `rosrun camera_calibration_parsers convert cam.ini cam.yaml`",
            contains=(b"[image]", b"camera matrix"),
        ),
        _Format("a KITTI calibration", _BY_NAME, begins=(b"P0: ", b"calib_time: ")),
        _Format("HALCON camera parameters", _BY_NAME, contains=(b"ParGroup", b"Focus")),
        *(_Format(name, _BY_NAME, endings, begins) for name, endings, begins in (*_ARRAYS, *_RECORDINGS)),
    ),
    "mesh": (
        _Format("a Blender file", "in Blender: File, Export, glTF or OBJ", (".blend",), (b"BLENDER",)),
        _Format("an FBX file", _AS_OBJ, (".fbx",), (b"Kaydara FBX", b"; FBX ")),
        _Format("a STEP file", f"in the CAD program, {_AS_OBJ}, or as STL", (".step", ".stp"), (b"ISO-10303-21",)),
        _Format("an IGES file", f"in the CAD program, {_AS_OBJ}, or as STL", (".iges", ".igs")),
        _Format("a USD file", _AS_OBJ, (".usd", ".usda", ".usdc", ".usdz"), (b"PXR-USDC", b"#usda")),
        _Format("an Alembic file", _AS_OBJ, (".abc",)),
        _Format("a COLLADA file", _AS_OBJ, (".dae",), contains=(b"<COLLADA",)),
        _Format("a 3MF file", _AS_OBJ, (".3mf",)),
        _Format("a 3D Studio file", _AS_OBJ, (".3ds", ".max")),
        _Format("an X3D or VRML file", _AS_OBJ, (".x3d", ".wrl", ".vrml")),
        _Format("a Maya file", _AS_OBJ, (".ma", ".mb")),
        _Format("a file of a 3D program", _AS_OBJ, (".c4d", ".skp", ".3dm", ".lwo", ".ztl", ".vrm")),
        _Format(
            "a CAD file",
            f"in the CAD program, {_AS_OBJ}, or as STL",
            (
                *(".sldprt", ".sldasm", ".ipt", ".iam", ".f3d", ".catpart"),
                *(".prt", ".fcstd", ".scad", ".dwg", ".x_t", ".ifc"),
            ),
        ),
        _Format(
            "a point cloud without faces", "make a surface of it and export that", (".pcd", ".las", ".laz", ".e57")
        ),
        _Format("a robot description", "give the mesh of one body", (".urdf", ".mjcf", ".sdf", ".xacro")),
    ),
    "mocap": (
        _Format(
            "an animation of a skeleton",
            _AS_LOG,
            (".bvh", ".fbx", ".asf", ".amc", ".htr"),
            (b"HIERARCHY", b"Kaydara FBX"),
        ),
        _Format("an OpenSim marker file", "export the markers as C3D or CSV", (".trc",), (b"PathFileType",)),
        _Format("an OpenSim motion file", _AS_LOG, (".mot", ".sto")),
        _Format("a Qualisys file", "export it from QTM as C3D", (".qtm",), (b"NO_OF_FRAMES",)),
        _Format("a Vicon Nexus file", "export it from Nexus as CSV or C3D", (".x1d", ".x2d", ".xcp", ".vsk", ".trial")),
        *(_Format(name, _AS_LOG, endings, begins) for name, endings, begins in (*_ARRAYS, *_RECORDINGS)),
    ),
    "video": (
        _Format("a raw recording of a cinema camera", _AS_VIDEO, (".braw", ".r3d", ".ari", ".crm")),
        _Format("a Phantom high-speed recording", _AS_VIDEO, (".cine",)),
        _Format("an event camera's recording", _AS_VIDEO, (".raw", ".aedat", ".aedat4")),
        *(_Format(name, _AS_VIDEO, endings, begins) for name, endings, begins in (*_ARRAYS, *_RECORDINGS)),
    ),
}


def refuse_known(kind: str, path: str | Path, expected: str) -> None:
    """Raise InputError where the file is of a format that is known but not supported; else do nothing.

    kind: camera, mesh, mocap or video. expected: what is supported.
    """
    path = Path(path)
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    for each in (*_FORMATS[kind], *_ANYTHING):
        if each.matches(path.name, head):
            raise InputError(f"'{path}' is {each.name}, which is not supported", expected, each.remedy)
