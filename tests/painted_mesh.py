"""A flat square with an asymmetric image, and its files; a cube with six images."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from vid2phys.types import Mesh, Texture

# As the image is seen: rows from the top. No turn and no mirror image of it is the same.
IMAGE = np.array(
    [
        [[255, 0, 0], [255, 0, 0], [255, 255, 255], [0, 255, 0]],
        [[255, 0, 0], [60, 60, 60], [60, 60, 60], [0, 255, 0]],
        [[0, 0, 255], [60, 60, 60], [0, 60, 60], [255, 255, 0]],
    ],
    np.uint8,
)
SIDE_M = (0.4, 0.3)  # its texels are squares of 0.1 m


def linear(color: object) -> np.ndarray:
    """IEC 61966-2-1, written a second time."""
    c = np.asarray(color, dtype=float) / 255.0
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def write_obj(folder: Path, *, image: str = "map.png", faces: str = "f 1/1 2/2 3/3 4/4\n") -> Path:
    """The square in the plane z = 0, x to the image's right and y up, facing +z."""
    Image.fromarray(IMAGE).save(folder / "map.png")
    (folder / "paint.mtl").write_text(f"newmtl print\nKd 0.1 0.2 0.3\nmap_Kd -s 1 1 1 {image}\n")
    x, y = SIDE_M
    text = (
        f"mtllib paint.mtl\nv 0 0 0\nv {x} 0 0\nv {x} {y} 0\nv 0 {y} 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\nusemtl print\n"
    )
    (folder / "square.obj").write_text(text + faces)
    return folder / "square.obj"


def write_gltf(folder: Path, image_file: str | None = None) -> Path:
    """The same square, by hand, image inside or a file: glTF counts v from the top (glTF 2.0, section 3.8.4)."""
    x, y = SIDE_M
    positions = np.array([[0, 0, 0], [x, 0, 0], [x, y, 0], [0, y, 0]], "<f4")
    uv = np.array([[0, 1], [1, 1], [1, 0], [0, 0]], "<f4")
    faces = np.array([0, 1, 2, 0, 2, 3], "<u2")
    blob = positions.tobytes() + uv.tobytes() + faces.tobytes()
    Image.fromarray(IMAGE).save(folder / "map.png")
    image = base64.b64encode((folder / "map.png").read_bytes()).decode()
    views = [(0, 48), (48, 32), (80, 12)]
    document = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [
            {"primitives": [{"attributes": {"POSITION": 0, "TEXCOORD_0": 1}, "indices": 2, "material": 0}]},
        ],
        "materials": [{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}],
        "textures": [{"source": 0}],
        "images": [{"uri": image_file or f"data:image/png;base64,{image}"}],
        "buffers": [{"byteLength": len(blob), "uri": f"data:;base64,{base64.b64encode(blob).decode()}"}],
        "bufferViews": [{"buffer": 0, "byteOffset": o, "byteLength": n} for o, n in views],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 4, "type": "VEC3", "min": [0, 0, 0], "max": [x, y, 0]},
            {"bufferView": 1, "componentType": 5126, "count": 4, "type": "VEC2"},
            {"bufferView": 2, "componentType": 5123, "count": 6, "type": "SCALAR"},
        ],
    }
    (folder / "square.gltf").write_text(json.dumps(document))
    return folder / "square.gltf"


def write_ply(folder: Path, image: str = "map.png", *, wedges: bool = False) -> Path:
    """The same square as an ASCII PLY, texture coordinates at its vertices, or at the corners of its faces."""
    Image.fromarray(IMAGE).save(folder / "map.png")
    x, y = SIDE_M
    places, uv = [(0, 0), (x, 0), (x, y), (0, y)], [(0, 0), (1, 0), (1, 1), (0, 1)]
    faces = [(0, 1, 2), (0, 2, 3)]
    corner = "property list uchar float texcoord\n" if wedges else ""
    header = (
        f"ply\nformat ascii 1.0\ncomment TextureFile {image}\nelement vertex 4\n"
        + "".join(f"property float {name}\n" for name in ("xyz" if wedges else "xyzst"))
        + f"element face 2\nproperty list uchar int vertex_indices\n{corner}end_header\n"
    )
    rows = [f"{a} {b} 0" + ("" if wedges else f" {u} {v}") for (a, b), (u, v) in zip(places, uv, strict=True)]
    for face in faces:
        wedge = " 6 " + " ".join(f"{uv[i][0]} {uv[i][1]}" for i in face) if wedges else ""
        rows.append("3 " + " ".join(map(str, face)) + wedge)
    (folder / "square.ply").write_text(header + "\n".join(rows) + "\n")
    return folder / "square.ply"


def texel_centers() -> tuple[np.ndarray, np.ndarray]:
    """Points [12, 3] m of the square under the centres of the texels, and their linear colours [12, 3]."""
    rows, columns = np.mgrid[:3, :4]
    x, y = (columns + 0.5) * 0.1, (2.5 - rows) * 0.1
    return np.stack([x, y, 0 * x], axis=-1).reshape(-1, 3), linear(IMAGE).reshape(-1, 3)


CUBE_SIDE_M = 0.1


def plain_cube() -> Mesh:
    """A cube about the origin."""
    import trimesh

    made = trimesh.creation.box(extents=(CUBE_SIDE_M,) * 3)
    return Mesh(np.asarray(made.vertices, float), np.asarray(made.faces, np.int64), np.zeros(12, np.int64))


def painted_cube(blocks: np.ndarray) -> Mesh:
    """A cube about the origin whose sides show blocks [6, B, B, 3] uint8, side 2 * axis + (1 at the positive end); on
    the side across axis a, u runs along axis a + 1 and v along a + 2."""
    mesh = plain_cube()
    images = tuple(np.kron(b, np.ones((16, 16, 1))).astype(np.uint8) for b in blocks)
    normal = np.cross(*(mesh.vertices[mesh.faces[:, k]] - mesh.vertices[mesh.faces[:, 0]] for k in (1, 2)))
    axis = np.abs(normal).argmax(axis=1)
    side = 2 * axis + (normal[np.arange(12), axis] > 0.0)
    corners = mesh.vertices[mesh.faces] / CUBE_SIDE_M + 0.5
    uv = np.stack([corners[np.arange(12), :, (axis + 1) % 3], corners[np.arange(12), :, (axis + 2) % 3]], axis=-1)
    return replace(mesh, texture=Texture(images, side.astype(np.int64), uv, np.ones((12, 3, 3))))
