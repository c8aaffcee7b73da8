"""Path-traced frames of a body in a furnished scene, with Mitsuba's own integrator, materials and lights.

Nothing here is shared with the renderer of training images (`mitsuba.Renderer`) but the library: what networks are
judged by has another integrator (full light transport), other materials, area lights or a sun, shadows on a floor.

Limits: pinhole cameras with square pixels and without distortion; of a texture's colours at the corners of faces
(beside its images) only their mean over a surface counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.mitsuba import load_mitsuba
from vid2phys.io.texture import linear_images, texel_sizes
from vid2phys.types import Array, Camera, Mesh

_DEPTH = 6  # bounces


@dataclass(frozen=True)
class Surface:
    """A piece of a body that is made of one material. faces: their indices. uv: [F, 3, 2] of their corners, or None.

    color: Mitsuba's dictionary of the image that the mesh's file has for it, linear light; None: it has none.
    """

    faces: NDArray[np.int64]
    uv: Array | None = None
    color: dict[str, Any] | None = None


def surfaces(mesh: Mesh) -> list[Surface]:
    """Return the pieces of a mesh: one a part, and of a textured part one an image."""
    result = []
    texture = mesh.texture
    images = () if texture is None else linear_images(texture, texel_sizes(mesh), 0.0)
    for part in np.unique(mesh.part):
        faces = np.flatnonzero(mesh.part == part)
        if texture is None:
            result.append(Surface(faces))
            continue
        for index in np.unique(texture.image[faces]):
            shown = faces[texture.image[faces] == index]
            factor = texture.corner_color[shown].mean(axis=(0, 1))
            color = {"type": "bitmap", "bitmap": images[index] * factor.astype(np.float32), "raw": True}
            result.append(Surface(shown, texture.uv[shown], color))
    return result


class PathTracer:
    """Frames of a body of the topology of `mesh`, its surfaces in the materials given, among `surroundings`.

    surroundings, materials: Mitsuba's dictionaries (shapes and emitters by name; a BSDF for each of `surfaces(mesh)`),
    lengths in `radius_m` and the stage's axes, z up. NumPy arrays in them stand for bitmaps [H, W, 3], linear light, or
    transforms.
    """

    def __init__(
        self, mesh: Mesh, materials: Sequence[dict[str, Any]], surroundings: dict[str, Any], radius_m: float
    ) -> None:
        self._mi, _ = load_mitsuba()
        self._mesh, self._surfaces, self._radius_m = mesh, surfaces(mesh), radius_m
        self._materials = [self._load({"type": "twosided", "bsdf": material}) for material in materials]
        self._surroundings = {name: self._load(item) for name, item in surroundings.items()}

    def frame(self, vertices: Array | None, camera: Camera, *, spp: int, seed: int) -> NDArray[np.float32]:
        """Render the linear radiance [H, W, 3] of the body whose vertices [V, 3] m are there, seen by a camera with a
        pose.

        vertices: None for the surroundings alone. The same arguments give the same image. Cameras of one size do not
        compile anew.
        """
        scene = {
            "type": "scene",
            "integrator": {"type": "path", "max_depth": _DEPTH},
            "sensor": self._sensor(camera, spp),
            **self._surroundings,
            **({} if vertices is None else self._body(vertices / self._radius_m)),
        }
        image = self._mi.render(self._mi.load_dict(scene), seed=seed, spp=spp)
        return np.maximum(np.nan_to_num(image.numpy()[..., :3]), 0.0).astype(np.float32)

    def _body(self, vertices: Array) -> dict[str, Any]:
        shapes = {}
        for index, (surface, material) in enumerate(zip(self._surfaces, self._materials, strict=True)):
            used, faces = np.unique(self._mesh.faces[surface.faces], return_inverse=True)
            faces, place = faces.reshape(-1, 3), vertices[used]
            if surface.uv is not None:  # every corner has a place in the image of its own
                place, faces = place[faces.ravel()], np.arange(faces.size).reshape(-1, 3)
            shapes[f"surface{index}"] = self._shape(place, faces, surface.uv, material)
        return shapes

    def _load(self, item: dict[str, Any]) -> Any:
        return self._mi.load_dict(_resolved(self._mi, item))

    def _shape(self, vertices: Array, faces: NDArray[np.int64], uv: Array | None, material: Any) -> Any:
        mi = self._mi
        properties = mi.Properties()
        properties["mesh_bsdf"] = material
        properties["face_normals"] = True
        shape = mi.Mesh("part", len(vertices), len(faces), has_vertex_texcoords=uv is not None, props=properties)
        buffers = mi.traverse(shape)
        buffers["vertex_positions"] = np.ascontiguousarray(vertices, np.float32).ravel()
        buffers["faces"] = np.ascontiguousarray(faces, np.uint32).ravel()
        if uv is not None:  # v runs down a bitmap, and up in ours
            buffers["vertex_texcoords"] = np.ascontiguousarray([0.0, 1.0] + uv * [1.0, -1.0], np.float32).ravel()
        buffers.update()
        return shape

    def _sensor(self, camera: Camera, spp: int) -> dict[str, Any]:
        mi, K = self._mi, camera.K
        assert camera.camera_to_world is not None
        pose = np.array(camera.camera_to_world, dtype=float)
        pose[:3, 3] /= self._radius_m
        # OpenCV looks along z with y down and counts pixel centres, Mitsuba has x to the left and counts corners.
        return {
            "type": "perspective",
            "fov_axis": "x",
            "fov": float(np.degrees(2.0 * np.arctan(camera.width / (2.0 * K[0, 0])))),
            "principal_point_offset_x": float(-((K[0, 2] + 0.5) / camera.width - 0.5)),
            "principal_point_offset_y": float(-((K[1, 2] + 0.5) / camera.height - 0.5)),
            "near_clip": 0.1,
            "far_clip": 1e4,
            "to_world": mi.ScalarTransform4f((pose @ np.diag([-1.0, -1.0, 1.0, 1.0])).tolist()),
            "film": {
                "type": "hdrfilm",
                "width": camera.width,
                "height": camera.height,
                "rfilter": {"type": "box"},
                "pixel_format": "rgb",
            },
            "sampler": {"type": "independent", "sample_count": spp},
        }


def _resolved(mi: Any, value: Any) -> Any:
    """Return a dictionary with arrays made bitmaps (3 axes) or transforms (4 x 4)."""
    if isinstance(value, dict):
        return {key: _resolved(mi, each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        if value.shape == (4, 4):
            return mi.ScalarTransform4f(value.tolist())
        return mi.Bitmap(np.ascontiguousarray(value, np.float32))
    return value
