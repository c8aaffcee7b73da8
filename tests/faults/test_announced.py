"""Headers that announce more than their file holds are refused before memory is taken for it, and quickly."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.flight import fly, watch
from vid2phys.errors import InputError
from vid2phys.io.recordings import load_observation, save_observation
from vid2phys.io.robot import parse_robot

CLIP = Path(__file__).resolve().parents[2] / "samples" / "quadrotor" / "clip.mp4"
HUGE = 1_000_000_000
FEW_BYTES = 5 << 29  # 2.5 GB of addresses, which code and libraries take a part of
VERTICES = f"element vertex {HUGE}\nproperty float x\nproperty float y\nproperty float z\n"
FACES = f"element face {HUGE}\nproperty list uchar int vertex_indices\nend_header\n"


def ply(form: str) -> bytes:
    return f"ply\nformat {form} 1.0\n{VERTICES}{FACES}".encode() + b"0 0 0\n" * 8


def glb() -> bytes:
    scene = {
        "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": HUGE, "type": "VEC3"},
            {"bufferView": 0, "componentType": 5125, "count": HUGE, "type": "SCALAR"},
        ],
        "bufferViews": [{"buffer": 0, "byteLength": 12}], "buffers": [{"byteLength": 12}],
    }  # fmt: skip
    text = json.dumps(scene).encode()
    text += b" " * (-len(text) % 4)
    parts = struct.pack("<II", len(text), 0x4E4F534A) + text + struct.pack("<II", 12, 0x004E4942) + bytes(12)
    return struct.pack("<III", 0x46546C67, 2, 12 + len(parts)) + parts


def npz() -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10 * HUGE,)})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("times_s", "bearings", "covariance", "shared_basis", "correlation_time_s", "visible"):
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(64))
    return out.getvalue()


def mp4(*patches: tuple[bytes, int, int]) -> bytes:
    """The sample with numbers in boxes of its index set to others."""
    data = bytearray(CLIP.read_bytes())
    for box, offset, value in patches:
        struct.pack_into(">I", data, data.index(box) + offset, value)
    return bytes(data)


FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "binary.ply": ("mesh.load_mesh", lambda: ply("binary_little_endian")),
    "text.ply": ("mesh.load_mesh", lambda: ply("ascii")),
    "a.stl": ("mesh.load_mesh", lambda: bytes(80) + struct.pack("<I", HUGE) + bytes(100)),
    "a.off": ("mesh.load_mesh", lambda: f"OFF\n{HUGE} {HUGE} 0\n0 0 0\n".encode()),
    "a.obj": ("mesh.load_mesh", lambda: f"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 {HUGE}\n".encode()),
    "a.glb": ("mesh.load_mesh", glb),
    "a.msh": (
        "volume.load_volume",
        lambda: f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n{HUGE}\n1 0 0 0\n".encode(),
    ),
    "a.vtk": (
        "volume.load_volume",
        lambda: f"# vtk DataFile Version 3.0\nx\nBINARY\nDATASET UNSTRUCTURED_GRID\nPOINTS {HUGE} double\n".encode(),
    ),
    "cameras.bin": ("camera.load_camera", lambda: struct.pack("<Q", HUGE) + bytes(64)),
    "a.npz": ("recordings.load_observation", npz),
    "sizes.mp4": ("video.read_clip", lambda: mp4((b"stsz", 12, HUGE))),
    "frames.mp4": ("video.read_clip", lambda: mp4((b"stsz", 8, 100), (b"stsz", 12, HUGE), (b"stts", 12, HUGE))),
    "times.mp4": ("video.read_clip", lambda: mp4((b"stts", 8, HUGE))),
}


def test_what_a_header_announces_is_not_believed(tmp_path: Path) -> None:
    """All files in one process that may take little memory."""
    for name, (_, data) in FILES.items():
        (tmp_path / name).write_bytes(data())
    code = (
        "import importlib, resource, warnings\nfrom vid2phys.errors import InputError\n"
        "import trimesh, meshio, scipy.sparse.csgraph, vid2phys.io.video, vid2phys.io.camera\n"
        "warnings.simplefilter('ignore')\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({FEW_BYTES}, {FEW_BYTES}))\n"
        f"for name, place in {[(name, place) for name, (place, _) in FILES.items()]}:\n"
        "    module, function = place.split('.')\n"
        "    try:\n        getattr(importlib.import_module('vid2phys.io.' + module), function)(name)\n"
        "        print(name, 'accepted')\n"
        "    except InputError:\n        print(name, 'refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found == dict.fromkeys(FILES, "refused")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bearings", lambda a: a[:-1], "'bearings' of"),
        ("covariance", lambda a: a[..., 0], "'covariance' of"),
        ("visible", lambda a: a.astype(float), "'visible' of"),
        ("points_body", lambda a: np.full_like(a, np.nan), "not finite"),
        ("times_s", lambda a: a[::-1], "do not increase"),
        ("swing_scale", lambda a: np.ones(2), "'swing_scale' of"),
    ],
)
def test_an_observation_that_does_not_fit_together_is_refused(
    tmp_path: Path, name: str, change: Callable, message: str
) -> None:
    seen = watch(fly(0.5))
    save_observation(seen, tmp_path / "o.npz")
    assert load_observation(tmp_path / "o.npz").bearings.shape == seen.bearings.shape
    with np.load(tmp_path / "o.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "o.npz", **arrays | {name: change(arrays[name])})
    with pytest.raises(InputError, match=message):
        load_observation(tmp_path / "o.npz")


def test_entities_of_a_robot_are_refused() -> None:
    grow = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "lol"}">' for i in range(10))
    text = f'<?xml version="1.0"?><!DOCTYPE robot [{grow}]><robot name="&e9;"/>'
    with pytest.raises(InputError, match="document type of its own"):
        parse_robot(text, Path("bomb.urdf"))
