"""Read textures: of OBJ with MTL and images, and of whatever trimesh reads.

No mesh is refused for its texture: every fault ends in a warning that names the file and the remedy, and the texture is
left out. Limits: one base colour image a face; alpha, `map_Kd`'s options and all other maps are not used.
"""

from __future__ import annotations

import json
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.mtl import Material, locate, parse_mtl
from vid2phys.io.obj import ObjFile
from vid2phys.io.texture import WHITE, linear_of_srgb
from vid2phys.types import Array, Texture

LARGEST_PX = 4096  # longer sides are shrunk
_REMARKABLE_PX = 2 * LARGEST_PX  # and beyond this length a warning is given
_HEADER_BYTES = 1 << 16
MOST_PIXELS = 1 << 29  # larger images are not read: their bytes alone would be 1.6 GB


def obj_texture(path: Path, obj: ObjFile) -> Texture | None:
    """Return the texture of an OBJ file: its MTL's images, else colours of the vertices, else None."""
    count = len(obj.faces)
    colors = np.ones((count, 3, 3))
    if obj.vertex_color is not None:
        colors = _linear(255.0 * obj.vertex_color)[np.clip(obj.faces, 0, len(obj.vertex_color) - 1)]
    images, shown = [WHITE], np.zeros(count, np.int64)
    mapped = np.asarray(np.isfinite(obj.uv).all(axis=(1, 2)))
    if mapped.any() and obj.libraries:
        materials, material = _materials(path, obj.libraries), np.array(obj.material)
        for name in dict.fromkeys(obj.material):
            here = material == name
            known = materials.get(name, Material())
            image = _read_named(path, known.image) if known.image else None
            if image is not None:
                shown[here & mapped] = len(images)
                images.append(image)
            elif known.color is not None:
                colors[here] = known.color
    return _checked(Texture(tuple(images), shown, np.where(mapped[:, None, None], obj.uv, 0.0), colors))


def pieces_texture(path: Path, pieces: list[Any]) -> Texture | None:
    """Return the texture of trimesh's pieces, in their order."""
    images: list[NDArray[np.uint8]] = [WHITE]
    missing = [name for name in _named_images(path) if not _is_there(path.parent, name)]
    for name in missing:
        _without(f"texture '{name}' is not in '{path.parent}'", f"put it beside '{path.name}'")
    if missing and path.suffix.lower() == ".ply":
        return None  # trimesh colours it grey
    parts = [_piece(path, piece, images) for piece in pieces]
    shown, uv, colors = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return _checked(Texture(tuple(images), shown, uv, colors))


def _named_images(path: Path) -> list[str]:
    """Return the files of images that a PLY or glTF file names."""
    try:
        if path.suffix.lower() == ".ply":
            with path.open("rb") as file:
                header = file.read(_HEADER_BYTES).split(b"end_header")[0].decode("utf-8", "replace")
            lines = [line.split(None, 2) for line in header.splitlines()]
            return [words[2].strip() for words in lines if words[:2] == ["comment", "TextureFile"] and len(words) > 2]
        if path.suffix.lower() == ".gltf":
            named = [str(image.get("uri", "data:")) for image in json.loads(path.read_text("utf-8")).get("images", [])]
            return [unquote(name) for name in named if not name.startswith("data:")]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):  # its reader names the fault
        pass
    return []


def _is_there(folder: Path, name: str) -> bool:
    try:
        return locate(folder, name).is_file()
    except InputError:
        return False


def read_image(image: Any, name: str) -> NDArray[np.uint8] | None:
    """Return RGB uint8 [H, W, 3] of a PIL image, or of a path to one; None, with a warning, for one that is unusable.

    Sides longer than LARGEST_PX are shrunk, with a warning for images twice as long or more.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, on large images
            opened = _open(image) if isinstance(image, Path) else image
            width, height = opened.size
            pixels = _decode(opened) if width * height <= MOST_PIXELS else None
    except Exception as error:  # a decoder raises whatever it meets
        reason = " ".join(str(error).split()) or type(error).__name__
        if "cannot identify" in reason:  # Pillow names an object of its own
            reason = "no kind of image that is known"
        _without(f"texture '{name}' cannot be read ({reason})", "save it as PNG or JPEG")
        return None
    if pixels is None:
        _without(f"texture '{name}' has {width} x {height} pixels", "shrink it")
        return None
    if max(width, height) > _REMARKABLE_PX:
        _say(f"texture '{name}' has {width} x {height} pixels: it is shrunk below {LARGEST_PX}")
    return pixels


def _open(path: Path) -> Any:
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # the size was checked above
    try:
        return Image.open(BytesIO(path.read_bytes()))
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _decode(image: Any) -> NDArray[np.uint8]:
    """Return RGB bytes, averaged over whole numbers of pixels until no side is longer than LARGEST_PX."""
    image.draft("RGB", (LARGEST_PX, LARGEST_PX))  # JPEG is decoded small; the others take no notice
    if image.mode not in ("RGB", "L"):
        image = image.convert("L" if image.mode in ("1", "LA") else "RGB")
    factor = -(-max(image.size) // LARGEST_PX)
    return np.asarray((image.reduce(factor) if factor > 1 else image).convert("RGB"), dtype=np.uint8)


def _piece(path: Path, piece: Any, images: list[NDArray[np.uint8]]) -> tuple[NDArray[np.int64], Array, Array]:
    """Return image of each face, uv and corner colours of one of trimesh's meshes; add its image to `images`."""
    count, faces, visual = len(piece.faces), np.asarray(piece.faces), piece.visual
    shown, uv, colors = np.zeros(count, np.int64), np.zeros((count, 3, 2)), np.ones((count, 3, 3))
    gltf = path.suffix.lower() in (".glb", ".gltf")
    if visual.kind == "texture":
        material = visual.material
        image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
        factor = getattr(material, "baseColorFactor", None)
        coordinates = None if visual.uv is None else np.asarray(visual.uv, dtype=float)
        if image is not None and coordinates is not None and len(coordinates) == len(piece.vertices):
            pixels = read_image(image, f"of {path.name}")
            if pixels is not None:
                images.append(pixels)
                shown[:], uv = len(images) - 1, coordinates[faces][..., :2]
        if factor is not None:
            colors[:] = np.asarray(factor, dtype=float)[:3] / 255.0  # trimesh gives glTF's linear factors as bytes
        vertex = getattr(visual, "vertex_attributes", {}).get("color") if gltf else None
        if vertex is not None and len(vertex) == len(piece.vertices):
            colors = colors * _unit(np.asarray(vertex)[faces][..., :3])
    elif visual.kind in ("vertex", "face"):
        values = visual.vertex_colors[faces] if visual.kind == "vertex" else visual.face_colors[:, None].repeat(3, 1)
        values = np.asarray(values)[..., :3].astype(float)
        colors = values / 255.0 if gltf else _linear(values)
    return shown, np.where(np.isfinite(uv), uv, 0.0), colors


def _checked(texture: Texture) -> Texture | None:
    """Return the texture, or None when it has no image and one colour everywhere."""
    colors = texture.corner_color.reshape(-1, 3)
    plain = len(texture.images) == 1 and np.allclose(colors, colors[:1], atol=1e-6)
    return None if plain else texture


def _materials(path: Path, libraries: tuple[str, ...]) -> dict[str, Material]:
    found: dict[str, Material] = {}
    for library in libraries:
        try:
            found |= parse_mtl(locate(path.parent, library))
        except InputError as error:
            _without(f"material file {error.got}", f"put it beside '{path.name}'")
    return found


def _read_named(path: Path, name: str) -> NDArray[np.uint8] | None:
    try:
        return read_image(locate(path.parent, name), name)
    except InputError as error:
        _without(f"texture {error.got}", f"put it beside '{path.name}'")
        return None


def _unit(values: NDArray[Any]) -> Array:
    """Return colours in 0..1, whether they came as integers or not."""
    largest = np.iinfo(values.dtype).max if np.issubdtype(values.dtype, np.integer) else 1.0
    return np.clip(values.astype(float) / largest, 0.0, 1.0)


def _linear(values: Array) -> Array:
    return linear_of_srgb(np.clip(np.round(values), 0, 255).astype(np.uint8)).astype(float)


def _without(got: str, remedy: str) -> None:
    _say(f"{got}: the mesh is used without it; {remedy}")


def _say(text: str) -> None:
    warnings.warn(text, stacklevel=2)
