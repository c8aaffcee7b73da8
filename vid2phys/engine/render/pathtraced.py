"""Path-traced frames of a body in a furnished scene, with Mitsuba's own integrator, materials and lights.

Nothing here is shared with the renderer of training pictures (`mitsuba.Renderer`) but the library: what networks are
judged by has another integrator (full light transport), other materials, area lights or a sun, shadows on a floor.

Limits: pinhole cameras with square pixels and without distortion; a body has one material a part and no texture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.mitsuba import load_mitsuba
from vid2phys.types import Array, Camera, Mesh

_DEPTH = 6  # bounces


class PathTracer:
    """Frames of `mesh`, its parts in the materials given, among `surroundings`.

    surroundings, materials: Mitsuba's dictionaries (shapes and emitters by name; one BSDF a part), lengths in body
    radii and the world's axes, z up. NumPy arrays in them stand for bitmaps [H, W, 3], linear light, or transforms.
    """

    def __init__(self, mesh: Mesh, materials: Sequence[dict[str, Any]], surroundings: dict[str, Any]) -> None:
        self._mi, _ = load_mitsuba()
        self._mesh = mesh
        self._materials = [self._load({"type": "twosided", "bsdf": material}) for material in materials]
        self._surroundings = {name: self._load(item) for name, item in surroundings.items()}
        self._radius_m = float(np.linalg.norm(mesh.vertices, axis=1).max())

    def frame(self, world_from_body: Array, camera: Camera, *, spp: int, seed: int) -> NDArray[np.float32]:
        """Linear radiance [H, W, 3] of the body at a pose [4, 4] m, seen by a camera with a pose.

        The same arguments give the same picture. Cameras of one size do not compile anew.
        """
        scene = {
            "type": "scene",
            "integrator": {"type": "path", "max_depth": _DEPTH},
            "sensor": self._sensor(camera, spp),
            **self._surroundings,
            **self._body(world_from_body),
        }
        picture = self._mi.render(self._mi.load_dict(scene), seed=seed, spp=spp)
        return np.maximum(np.nan_to_num(picture.numpy()[..., :3]), 0.0).astype(np.float32)

    def _body(self, world_from_body: Array) -> dict[str, Any]:
        place = self._mesh.vertices @ world_from_body[:3, :3].T + world_from_body[:3, 3]
        shapes = {}
        for index, part in enumerate(np.unique(self._mesh.part)):
            used, faces = np.unique(self._mesh.faces[self._mesh.part == part], return_inverse=True)
            shapes[f"part{index}"] = self._shape(
                place[used] / self._radius_m, faces.reshape(-1, 3), self._materials[index % len(self._materials)]
            )
        return shapes

    def _load(self, item: dict[str, Any]) -> Any:
        return self._mi.load_dict(_resolved(self._mi, item))

    def _shape(self, vertices: Array, faces: NDArray[np.int64], material: Any) -> Any:
        mi = self._mi
        properties = mi.Properties()
        properties["mesh_bsdf"] = material
        properties["face_normals"] = True
        shape = mi.Mesh("part", len(vertices), len(faces), props=properties)
        buffers = mi.traverse(shape)
        buffers["vertex_positions"] = np.ascontiguousarray(vertices, np.float32).ravel()
        buffers["faces"] = np.ascontiguousarray(faces, np.uint32).ravel()
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
    """A dictionary with arrays made bitmaps (3 axes) or transforms (4 x 4)."""
    if isinstance(value, dict):
        return {key: _resolved(mi, each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        if value.shape == (4, 4):
            return mi.ScalarTransform4f(value.tolist())
        return mi.Bitmap(np.ascontiguousarray(value, np.float32))
    return value
