"""A z-buffer rasteriser for overlays: depth, which face is seen, silhouettes, plain shading. No gradients.

Pixel centres are at integers (OpenCV). Work and memory grow with the rectangle that the mesh fills, not the image.
Limits: faces that reach behind the camera are dropped, not clipped; edges between vertices are straight in the image,
which a distorting lens makes approximate for large faces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.types import Array, Camera, Mesh

_NEAR_M = 1e-6
_AMBIENT = 0.35


@dataclass(frozen=True)
class Raster:
    """What each pixel sees, at `supersample` times the size of the image in each direction: h = supersample * H.

    Arrays are kept for the rectangle `window` alone (rows, columns; outside it nothing is seen); properties are whole.
    nearness: 1 / depth [1/m], zero where nothing is. faces_seen: index of the face, -1 where nothing is.
    corners: vertices in pixels (of the supersampled image) and depth, [V, 3]. faces: [F, 3]. normals: unit normals of
    the faces in camera axes, [F, 3]. shape: (h, w).
    """

    nearness: Array
    faces_seen: NDArray[np.int32]
    window: tuple[slice, slice]
    shape: tuple[int, int]
    corners: Array
    faces: NDArray[np.int64]
    normals: Array
    supersample: int = 1

    @property
    def depth(self) -> Array:
        """Return the depth along the optical axis [m], [h, w], infinite where nothing is."""
        with np.errstate(divide="ignore"):
            return self._whole(1.0 / self.nearness, np.inf)

    @property
    def face_id(self) -> NDArray[np.int32]:
        """Return the face seen, [h, w], -1 where nothing is."""
        return self._whole(self.faces_seen, -1)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Return where anything is seen, [h, w]."""
        return self._whole(self.faces_seen >= 0, False)

    @property
    def barycentric(self) -> Array:
        """Return the perspective-correct weights of the corners of the face at the point seen, [h, w, 3]; zero for
        none.
        """
        return self._whole(_barycentric(self), 0.0)

    @property
    def barycentric_seen(self) -> Array:
        """Return `barycentric` of the pixels of `window` alone."""
        return _barycentric(self)

    @property
    def coverage(self) -> Array:
        """Share of each pixel of the image that is covered, [H, W] in [0, 1]."""
        return self._image(np.zeros((*self.faces_seen.shape, 0)))[..., 0]

    def _whole(self, part: NDArray[Any], background: float) -> NDArray[Any]:
        whole = np.full((*self.shape, *part.shape[2:]), background, dtype=part.dtype)
        whole[self.window] = part
        return whole

    @property
    def image_window(self) -> tuple[slice, slice]:
        """Return the rows and columns of the image that `window` fills."""
        rows, columns = (slice(part.start // self.supersample, part.stop // self.supersample) for part in self.window)
        return rows, columns

    def averaged(self, values: Array) -> Array:
        """Return the means over the pixels of `image_window` of values [window, C], and the coverage: [h, w, C + 1].

        Values are averaged over what is covered and are zero where nothing is.
        """
        s, covered = self.supersample, self.faces_seen >= 0
        stacked = np.concatenate([values * covered[..., None], covered[..., None]], axis=-1)
        mean = np.sum([stacked[i::s, j::s] for i in range(s) for j in range(s)], axis=0) / s**2
        mean[..., :-1] /= np.maximum(mean[..., -1:], 1e-12)
        return mean

    def _image(self, values: Array) -> Array:
        """Return `averaged` in the whole image, [H, W, C + 1]."""
        mean, s = self.averaged(values), self.supersample
        image = np.zeros((self.shape[0] // s, self.shape[1] // s, mean.shape[-1]))
        image[self.image_window] = mean
        return image


def rasterize(
    vertices_camera: Array, faces: NDArray[np.int64], K: Array, width: int, height: int, supersample: int = 1
) -> Raster:
    """Draw triangles [F, 3] of vertices [V, 3] in camera axes [m] through a pinhole camera K [3, 3]."""
    camera = Camera(np.asarray(K, dtype=float), width, height)
    return rasterize_camera(vertices_camera, faces, camera, supersample)


def rasterize_camera(vertices_camera: Array, faces: NDArray[np.int64], camera: Camera, supersample: int = 1) -> Raster:
    """Rasterise as `rasterize` does for a calibrated camera: vertices go through its distortion, into an image of its
    size.
    """
    vertices, faces = np.asarray(vertices_camera, dtype=float), np.asarray(faces, dtype=np.int64).reshape(-1, 3)
    # pixel u of the image is covered by supersample pixels whose centres lie symmetrically about it
    pixels = supersample * project(camera, vertices) + 0.5 * (supersample - 1)
    corners = np.concatenate([pixels, vertices[:, 2:]], axis=-1)
    corners[np.isnan(corners).any(axis=-1)] = [0.0, 0.0, -1.0]
    shape = (camera.height * supersample, camera.width * supersample)
    window = _window(corners, faces, shape, supersample)
    nearness, faces_seen = _draw(corners, faces, window)
    return Raster(nearness, faces_seen, window, shape, corners, faces, face_normals(vertices, faces), supersample)


def shade(raster: Raster, mesh: Mesh, part_colors: Array, light_dir: Array) -> NDArray[np.float32]:
    """Return the image [H, W, 4]: linear RGB, not multiplied by the coverage that is its fourth channel.

    mesh: the one whose faces were drawn. part_colors: [number of parts, 3] in [0, 1]. light_dir: direction in camera
    axes in which the light travels. Lambert with an ambient share, faces lit from whichever side is seen.
    """
    colors = np.asarray(part_colors, dtype=float)[mesh.part] * lambert(raster, light_dir)[:, None]
    return raster._image(colors[raster.faces_seen]).astype(np.float32)


def lambert(raster: Raster, light_dir: Array) -> Array:
    """Return the brightness of the faces [F] under light travelling along light_dir [3], camera axes, with an ambient
    share.
    """
    light = np.asarray(light_dir, dtype=float) / np.linalg.norm(light_dir)
    return _AMBIENT + (1.0 - _AMBIENT) * np.abs(raster.normals @ light)


def _window(corners: Array, faces: NDArray[np.int64], shape: tuple[int, int], supersample: int) -> tuple[slice, slice]:
    """Return the rows and columns that hold all faces before the camera, in whole pixels of the image; maybe empty."""
    drawn = faces[(corners[faces, 2] > _NEAR_M).all(axis=1)]
    if not len(drawn):
        return slice(0, 0), slice(0, 0)
    used = np.zeros(len(corners), dtype=bool)
    used[drawn] = True
    points = corners[used, :2]
    sizes = np.array(shape[::-1])
    low = np.clip(np.floor(points.min(axis=0) / supersample) * supersample, 0, sizes).astype(int)
    high = np.clip(np.floor(points.max(axis=0) / supersample + 1) * supersample, low, sizes).astype(int)
    return slice(int(low[1]), int(high[1])), slice(int(low[0]), int(high[0]))


def _draw(corners: Array, faces: NDArray[np.int64], window: tuple[slice, slice]) -> tuple[Array, NDArray[np.int32]]:
    """Draw 1 / z and the face seen (-1: none) of the pixels in a window."""
    rows, columns = window
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    if 0 in shape:
        return np.zeros(shape), np.full(shape, -1, dtype=np.int32)
    from vid2phys.engine.kernels.raster import draw, wp

    points: Any = wp.array(corners - [columns.start, rows.start, 0.0], dtype=wp.vec3d, device="cpu")
    triangles: Any = wp.array(faces.astype(np.int32), dtype=wp.vec3i, device="cpu")
    nearness = wp.zeros(shape, dtype=wp.float64, device="cpu")
    face_id = wp.full(shape, len(faces), dtype=wp.int32, device="cpu")
    for second_pass in (0, 1):
        inputs = [points, triangles, _NEAR_M, second_pass]
        wp.launch(draw, dim=len(faces), inputs=inputs, outputs=[nearness, face_id], device="cpu")
    index = face_id.numpy()
    return nearness.numpy(), np.where(index == len(faces), -1, index).astype(np.int32)


def _barycentric(raster: Raster) -> Array:
    """Return the perspective-correct weights [window, 3]."""
    rows, columns = np.nonzero(raster.faces_seen >= 0)
    a, b, c = np.moveaxis(raster.corners[raster.faces[raster.faces_seen[rows, columns]]], 1, 0)
    offset = np.array([raster.window[1].start, raster.window[0].start], dtype=float)
    point = np.stack([columns, rows], axis=-1) + offset

    def area(p: Array, q: Array, r: Array) -> Array:
        return np.asarray((q[:, 0] - p[:, 0]) * (r[:, 1] - p[:, 1]) - (q[:, 1] - p[:, 1]) * (r[:, 0] - p[:, 0]))

    flat = np.stack([area(b, c, point), area(c, a, point), area(a, b, point)], axis=-1)
    scaled = flat / area(a, b, c)[:, None] / np.stack([a[:, 2], b[:, 2], c[:, 2]], axis=-1)
    weights = np.zeros((*raster.faces_seen.shape, 3))
    weights[rows, columns] = scaled / scaled.sum(axis=-1, keepdims=True)
    return weights


def face_normals(vertices: Array, faces: NDArray[np.int64]) -> Array:
    """Return the unit normals of triangles, vertices [V, 3] and faces [F, 3] -> [F, 3]; zero of those without area."""
    a, b, c = vertices[faces[:, 0]], vertices[faces[:, 1]], vertices[faces[:, 2]]
    normals = np.cross(b - a, c - a)
    return np.asarray(normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-30))
