"""Smooth parts of a surface, each of one colour, before a known background: a model of all pixels around a body.

Purpose: the contour cue takes the strongest step of colour for the contour. Where a narrow side of a body is nearly as
bright as the background, the strongest step is the crease beside the contour. Here each part has its own colour, and
sides without contrast say nothing.

Method: a pixel is the mean of the colours in it, weighted by their areas, which a supersampled drawing gives. Light
adds up, so colours are linear light and not display values. Colours of a frame enter linearly, and are eliminated
(variable projection; Kaufman, BIT 1975). What stays is a quadratic model of the pose (Gauss-Newton).

A texture has colours of its own: the ratio of small faces to their part's colour, learned from several frames
(`Textured`). It takes part where it explains pixels that plain parts do not.

Limits: a static camera whose background is known beside the body.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import face_normals
from vid2phys.geometry import Pose
from vid2phys.io.faces import face_areas
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.light import linear
from vid2phys.tracking.cues.silhouette import columns_within, edges_by_row
from vid2phys.types import Array, Camera, Mesh


@dataclass(frozen=True, kw_only=True)
class SurfacesConfig:
    """Settings of the cue. Colours are linear light, 0 to 1."""

    supersample: int = 3
    """Drawn pixels along each side of a pixel."""
    blur_px: float = 0.5
    """Standard deviation of the blur of lens and codec, px."""
    margin_px: int = 4
    """Width of the background around the body that counts, px."""
    step_px: float = 1.0
    """Largest motion of a vertex in the differences that give derivatives, px."""
    color_std: float = 0.25
    """Standard deviation of a part's colour about that of the body."""
    large_px: float = 300.0
    """Area from which on a part's colour has a slope along both axes of the image, px."""
    least_px: float = 40.0
    """Least area of the body."""
    noise: float = 0.004
    """Least standard deviation of a pixel."""
    usual: float = 0.03
    """Usual difference of pixels and model, with which poses are compared."""
    robust_sigma: float = 2.0
    """Standard deviations beyond which a pixel counts less."""
    same_px: float = 6.0
    """Number of pixels that err alike."""
    texture_px: float = 4.0
    """Largest edge of a small face of a texture, px."""
    most_faces: int = 3000
    """Largest number of small faces where faces are compact; long and thin ones become several times as many."""
    plain_frames: float = 2.0
    """Number of frames as which the prior counts that a small face has its part's colour."""


DEFAULTS = SurfacesConfig()
_FLAT = 0.97  # length of the sum of a flat part's normals over the sum of their lengths
_BESIDE_PX = 4  # width of what is drawn beside the background that counts
_LEAST_SEEN = 2  # frames in which the background has to be seen


@dataclass(frozen=True)
class Backdrop:
    """The background of a static camera, in linear light: image [H, W, 3] and which pixels are known [H, W]."""

    image: NDArray[np.float32]
    known: NDArray[np.bool_]

    @staticmethod
    def of(
        frames: Sequence[NDArray[np.uint8]],
        unlike: Sequence[NDArray[np.bool_]],
        camera: Camera,
        mesh: Mesh,
        poses: Pose,
        margin_px: int,
    ) -> Backdrop:
        """Return the median of what frames [H, W, 3] show beside a body at poses [T], by `margin_px` at least.

        unlike: pixels [H, W] of each frame that do not have the body's colours. They show the background even where the
        poses, which may be off, have the body.
        """
        shown = np.stack([linear(frame) for frame in frames])
        whole, size = (0, 0, camera.width, camera.height), len(mesh.faces)
        faces = mesh.faces, np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
        for k, image in enumerate(shown):
            body = _shares(poses[k].apply(mesh.vertices), faces, camera, whole, 1)[0] > 0.0
            image[_grown(body, margin_px) & _grown(~unlike[k], 1)] = np.nan
        count = np.isfinite(shown[..., 0]).sum(axis=0)
        known = count >= _LEAST_SEEN
        image = np.zeros(shown.shape[1:], dtype=np.float32)
        image[known] = _median(shown[:, known], count[known])
        return Backdrop(image, known)


@dataclass(frozen=True)
class Textured:
    """A body in small faces, and its texture.

    Attributes:
        vertices: [V, 3] m.
        faces: [F, 3].
        part: [F] smooth part of each face, 0 to P - 1.
        one_sided: [F] faces that are never seen from behind.
        tint: [F, 3] colour over that of the part; None for a plain body.
    """

    vertices: Array
    faces: NDArray[np.int64]
    part: NDArray[np.int64]
    one_sided: NDArray[np.bool_]
    tint: Array | None = None

    @property
    def is_flat(self) -> bool:
        """Return whether each smooth part is nearly flat, so that all of it has one shade."""
        area = face_areas(self.vertices, self.faces)
        normals = area[:, None] * face_normals(self.vertices, self.faces)
        total = np.zeros((int(self.part.max()) + 1, 3))
        np.add.at(total, self.part, normals)
        return bool((np.linalg.norm(total, axis=1) > _FLAT * np.bincount(self.part, area)).all())

    @staticmethod
    def of(solid: Solid) -> Textured:
        """Return a plain body."""
        part = np.unique(solid.smooth_parts, return_inverse=True)[1]
        return Textured(solid.mesh.vertices, solid.mesh.faces, part, solid.one_sided)

    def textured(
        self, frames: Sequence[NDArray[np.uint8]], camera: Camera, poses: Pose, config: SurfacesConfig = DEFAULTS
    ) -> Textured:
        """Return the body with the texture that frames [H, W, 3] show with it at poses [T]."""
        import trimesh

        nearest = float(np.median(poses.translation[:, 2]))
        area = float(face_areas(self.vertices, self.faces).sum())
        edge = max(config.texture_px * nearest / float(camera.K[0, 0]), math.sqrt(4.0 * area / config.most_faces))
        vertices, faces, index = trimesh.remesh.subdivide_to_size(
            self.vertices, self.faces, edge, max_iter=20, return_index=True
        )
        of_face = self.part[index], self.one_sided[index]
        small = Textured(np.asarray(vertices), np.asarray(faces, np.int64), *of_face)
        tint = np.ones((len(faces), 3))
        shown = [small._inside(frame, camera, poses[k], config) for k, frame in enumerate(frames)]
        for _ in range(3):
            total, count = np.zeros_like(tint), np.zeros(len(tint))
            for colors, face in shown:
                part = small.part[face]
                usual = _by_part(part, colors, tint[face])
                np.add.at(total, face, colors / np.maximum(usual[part], 1e-3))
                np.add.at(count, face, 1.0)
            weight = count[:, None] + config.plain_frames
            tint = np.clip((total + config.plain_frames) / weight, 0.0, 8.0)
        return replace(small, tint=tint)

    def _inside(
        self, frame: NDArray[np.uint8], camera: Camera, pose: Pose, config: SurfacesConfig
    ) -> tuple[Array, NDArray[np.int64]]:
        """Return colours [N, 3] and faces [N] of pixels inside the body."""
        import cv2

        placed = pose.apply(self.vertices)
        box = box_around(placed, camera, config.margin_px + _BESIDE_PX)
        if box is None:
            return np.zeros((0, 3)), np.zeros(0, np.int64)
        label = face_labels(
            project(camera, placed) - np.array(box[:2]), 1.0 / placed[:, 2], self.faces, box[2], box[3], 1
        )
        inside = cv2.erode((label >= 0).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        rows, columns = slice(box[1], box[1] + box[3]), slice(box[0], box[0] + box[2])
        return linear(frame[rows, columns][inside]).astype(float), label[inside].astype(np.int64)


def _by_part(part: NDArray[np.int64], colors: Array, tint: Array) -> Array:
    """Return the colour [P, 3] that, times the tint [N, 3], explains colours [N, 3] of pixels of parts [N]."""
    count = int(part.max(initial=-1)) + 1
    found = np.zeros((count, 3))
    for c in range(3):
        above = np.bincount(part, colors[:, c] * tint[:, c], count)
        found[:, c] = above / np.maximum(np.bincount(part, tint[:, c] ** 2, count), 1e-9)
    return found


@dataclass(frozen=True)
class PoseModel:
    """A quadratic model of the pose of a body in a frame, in local coordinates.

    Attributes:
        information: [6, 6] about the pose.
        pull: [6] information times the step to the best pose.
        gain: log-likelihood ratio of the body at the pose and of nothing but the background, nats.
        cost: what the body and the background leave unexplained, nats.
    """

    information: Array
    pull: Array
    gain: float
    cost: float = 0.0


def pose_model(
    frame: NDArray[np.uint8],
    backdrop: Backdrop,
    camera: Camera,
    textured: Textured,
    pose: Pose,
    config: SurfacesConfig = DEFAULTS,
    *,
    gain_only: bool = False,
) -> PoseModel | None:
    """Return what a frame states about a pose; None where the body is too small or beside the frame.

    Args:
        frame: [H, W, 3].
        backdrop: the background.
        camera: of the frame.
        textured: the body.
        pose: camera_from_body.
        config: settings.
        gain_only: leave out information and pull, which cost most of the time; they are empty then.
    """
    vertices = pose.apply(textured.vertices)
    box = box_around(vertices, camera, config.margin_px + _BESIDE_PX)
    if box is None:
        return None
    parts = int(textured.part.max()) + 1
    faces = textured.faces, textured.part, textured.one_sided
    whole = _shares(vertices, faces, camera, box, parts, config, textured.tint)
    areas = whole[:parts].sum(axis=(1, 2))
    seen_parts = np.flatnonzero(areas > 1.0)
    share, areas = whole[seen_parts], areas[seen_parts]
    rows, columns = slice(box[1], box[1] + box[3]), slice(box[0], box[0] + box[2])
    near = _grown(share.sum(axis=0) > 0.02, config.margin_px) & backdrop.known[rows, columns]
    if not len(seen_parts) or min(areas.sum(), near.sum()) < config.least_px:
        return None
    seen = linear(frame[rows, columns][near]).astype(float)
    behind = backdrop.image[rows, columns][near].astype(float)
    pixels = np.flatnonzero(near)
    at = _taken(share, range(len(share)), pixels).astype(float)
    basis = _basis(at, areas, near, config)
    inside = at.sum(axis=0)
    pure = inside > 0.9
    middle = np.median(seen[pure], axis=0) if pure.any() else seen.mean(axis=0)
    target = seen - inside[:, None] * middle - (1.0 - inside)[:, None] * behind
    shown, tint = [*seen_parts], None
    if textured.tint is not None:
        usual = np.zeros((parts, 3))
        most, single = at.argmax(axis=0), at.max(axis=0) > 0.9
        own = _by_part(seen_parts[most[single]], seen[single], whole[parts:, near].T[single].astype(float))
        usual[: len(own)] = own
        tint = (textured.tint - 1.0) * usual[textured.part]
        tinted = range(parts, parts + 3)
        shown += tinted
        drawn = _shares(vertices, faces, camera, box, parts, config, tint)
        target = target - _taken(drawn, tinted, pixels).T
    steps = np.zeros((0, 6)) if gain_only else _steps(pose, vertices, camera, config)
    slopes = np.empty((len(steps), len(shown), len(seen)))
    for k, step in enumerate(steps):
        ahead, back = (
            _shares(pose.retract(s * step).apply(textured.vertices), faces, camera, box, parts, config, tint)
            for s in (1.0, -1.0)
        )
        slopes[k] = _taken(ahead, shown, pixels) - _taken(back, shown, pixels)
        slopes[k] /= 2.0 * float(np.abs(step).max())
    return _solved(target, basis, slopes, (middle, behind, seen - behind), len(seen_parts), config)


def _solved(
    target: Array, basis: Array, slopes: Array, colors: tuple[Array, Array, Array], count: int, config: SurfacesConfig
) -> PoseModel:
    """Return the model of a pose, from what colours have to explain.

    target: [N, 3] pixels less the body's usual colour, its texture and the background. basis: [M, N] of the colours.
    slopes: [6, P, N] of the shares of parts, then of the texture's three colours where it has some. colors: usual
    colour [3], background [N, 3], pixels less the background [N, 3]. count: number of parts.
    """
    middle, behind, changed = colors
    weight, noise = np.ones(len(target)), config.noise
    for _ in range(3):
        used = weight
        gram, load = _weighted_sums(basis, used, target)
        inverse = np.linalg.inv(gram + (noise / config.color_std) ** 2 * np.eye(len(basis)))
        color = inverse @ load
        off = target - basis.T @ color
        size = _mean_square(off)
        noise = max(config.noise, float(np.sqrt(np.median(size) / 0.79)))
        weight = 1.0 / (1.0 + size / (noise * config.robust_sigma) ** 2)
    cost = _cost(off, config) / config.same_px
    gain = _cost(changed, config) / config.same_px - cost
    if not len(slopes):
        return PoseModel(np.zeros((0, 0)), np.zeros(0), gain, cost)
    own = middle + color[:count]  # [P, 3] colours of the parts in their middle
    jacobian = np.swapaxes(slopes[:, :count], 1, 2) @ own - slopes[:, :count].sum(axis=1)[..., None] * behind
    if slopes.shape[1] > count:
        jacobian += np.swapaxes(slopes[:, count:], 1, 2)
    left = (basis * used) @ jacobian  # [6, M, 3]
    free = weight[:, None] * (jacobian - basis.T @ (inverse @ left))
    scale = 1.0 / (noise**2 * config.same_px)
    free = free.reshape(len(slopes), off.size)
    information = scale * free @ jacobian.reshape(len(slopes), off.size).T
    pull = scale * free @ off.ravel()
    return PoseModel(0.5 * (information + information.T), pull, gain, cost)


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _weighted_sums(basis: Array, weight: Array, target: Array) -> tuple[Array, Array]:
    """Return the sums [M, M] and [M, 3] of basis [M, N] times weight [N] times basis and target [N, 3].

    A pixel has few parts, so that most of its basis is zero.
    """
    size = len(basis)
    gram, load, used = np.zeros((size, size)), np.zeros((size, 3)), np.empty(size, np.int64)
    for n in range(len(weight)):
        count = 0
        for i in range(size):
            if basis[i, n] != 0.0:
                used[count] = i
                count += 1
        for a in range(count):
            i = used[a]
            value = weight[n] * basis[i, n]
            for c in range(3):
                load[i, c] += value * target[n, c]
            for b in range(a + 1):
                gram[i, used[b]] += value * basis[used[b], n]
    return gram + np.tril(gram, -1).T, load


def _taken(drawn: NDArray[np.float32], rows: Sequence[int], pixels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return what some images of `drawn` [P, h, w] have at pixels [N] of the flat image, [rows, N]."""
    out = np.empty((len(rows), len(pixels)), np.float32)
    for k, row in enumerate(rows):
        np.take(drawn[row].ravel(), pixels, out=out[k])
    return out


def _cost(off: Array, config: SurfacesConfig) -> float:
    """Return the robust cost of residuals [N, 3], nats."""
    return float(np.log1p(_mean_square(off) / config.usual**2).sum())


def _mean_square(off: Array) -> Array:
    """Return the mean square [N] over the colours of residuals [N, 3]."""
    return np.asarray(np.einsum("nc,nc->n", off, off) / off.shape[1])


def _basis(share: Array, areas: Array, near: NDArray[np.bool_], config: SurfacesConfig) -> Array:
    """Return what the colours multiply, [M, N]: shares of parts, then slopes of the large ones."""
    rows, columns = np.nonzero(near)
    size = max(float(np.ptp(rows)), float(np.ptp(columns)), 1.0)
    u, v = (rows - rows.mean()) / size, (columns - columns.mean()) / size
    large = share[areas > config.large_px]
    return np.concatenate([share, large * u, large * v])


def box_around(vertices: Array, camera: Camera, more_px: int) -> tuple[int, int, int, int] | None:
    """Return left, top, width and height of the rectangle around a body, px; None beside the frame or behind it.

    vertices: [V, 3] in camera axes, m. more_px: width of what the rectangle holds beside the body.
    """
    if not vertices[:, 2].min() > 0.0:
        return None
    pixels = project(camera, vertices)
    left, top = np.maximum(np.floor(pixels.min(axis=0)).astype(int) - more_px, 0).tolist()
    right, bottom = np.minimum(
        np.ceil(pixels.max(axis=0)).astype(int) + more_px, [camera.width, camera.height]
    ).tolist()
    return (left, top, right - left, bottom - top) if min(right - left, bottom - top) > 2 else None


def _shares(
    vertices: Array,
    faces: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]],
    camera: Camera,
    box: tuple[int, int, int, int],
    count: int,
    config: SurfacesConfig = DEFAULTS,
    tint: Array | None = None,
) -> NDArray[np.float32]:
    """Return the share of each part in the pixels of a rectangle, [P, h, w], through the lens.

    faces: [F, 3] of vertices [V, 3], their parts [F], and which of them are never seen from behind [F]. tint: [F, 3] of
        the faces; its three means over the pixels follow, [P + 3, h, w].
    """
    import cv2

    pixels = project(camera, vertices) - np.array(box[:2])
    size, colors = (count, box[3], box[2]), np.zeros((0, 3)) if tint is None else tint
    drawn = _averaged(pixels, 1.0 / vertices[:, 2], *faces, colors, size, config.supersample)
    for k in range(len(drawn)):
        if drawn[k].any():
            drawn[k] = cv2.GaussianBlur(drawn[k], (0, 0), config.blur_px)
    return drawn


@numba.njit(cache=True, error_model="numpy", nogil=True)
def face_labels(
    pixels: Array, nearness: Array, faces: NDArray[np.int64], width: int, height: int, supersample: int
) -> NDArray[np.int32]:
    """Return the face in each finer pixel, by a z-buffer; -1 for none.

    Args:
        pixels: [V, 2] vertices, px.
        nearness: [V] 1 / depth, 1/m.
        faces: [F, 3] indices of vertices.
        width: of the image.
        height: of the image.
        supersample: finer pixels along each side of a pixel.
    """
    near = np.zeros((height * supersample, width * supersample), np.float32)
    label = np.full(near.shape, -1, np.int32)
    for f in range(len(faces)):
        _fill(pixels, nearness, faces, f, supersample, 0, near, label)
    return label


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _fill(
    pixels: Array,
    nearness: Array,
    faces: NDArray[np.int64],
    f: int,
    supersample: int,
    first: int,
    near: NDArray[np.float32],
    label: NDArray[np.int32],
) -> tuple[int, int]:
    """Draw a face into a z-buffer whose first row is that of finer pixels `first`.

    Returns the least and the largest column of finer pixels that the face may cover.
    """
    rows, columns = label.shape
    half = 0.5 * (supersample - 1)
    least, most = columns, -1
    a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
    xa, ya = supersample * pixels[a, 0] + half, supersample * pixels[a, 1] + half - first
    ux, uy = supersample * pixels[b, 0] + half - xa, supersample * pixels[b, 1] + half - first - ya
    vx, vy = supersample * pixels[c, 0] + half - xa, supersample * pixels[c, 1] + half - first - ya
    area = ux * vy - uy * vx
    if area == 0.0:
        return least, most
    base, du, dv = nearness[a], nearness[b] - nearness[a], nearness[c] - nearness[a]
    by_x, by_y = (du * vy - dv * uy) / area, (dv * ux - du * vx) / area
    top, bottom = max(0, math.ceil(ya + min(0.0, uy, vy))), min(rows - 1, math.floor(ya + max(0.0, uy, vy)))
    base -= by_x * xa + by_y * ya
    edges = edges_by_row(xa, ya, xa + ux, ya + uy, xa + vx, ya + vy)
    for row in range(top, bottom + 1):
        left, right = columns_within(edges, row)
        begin, end = max(0, left), min(columns - 1, right)
        least, most = min(least, begin), max(most, end)
        start = base + by_y * row
        for column in range(begin, end + 1):
            value = np.float32(start + by_x * column)
            if value > near[row, column]:
                near[row, column], label[row, column] = value, f
    return least, most


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _averaged(
    pixels: Array,
    nearness: Array,
    faces: NDArray[np.int64],
    part: NDArray[np.int64],
    one_sided: NDArray[np.bool_],
    tint: Array,
    size: tuple[int, int, int],
    supersample: int,
) -> NDArray[np.float32]:
    """Return the share of each part in each pixel, then the mean tint where faces have one, [P (+ 3), h, w].

    A row of pixels at a time is drawn in finer ones, so that few of these are kept and most are never touched.

    Args:
        pixels: [V, 2] vertices, px.
        nearness: [V] 1 / depth, 1/m.
        faces: [F, 3] indices of vertices.
        part: [F] of the faces.
        one_sided: [F] faces that are never seen from behind.
        tint: [F, 3], or [0, 3].
        size: number of parts P, height and width.
        supersample: finer pixels along each side of a pixel.
    """
    count, height, width = size
    one, textured = np.float32(1.0 / supersample**2), len(tint) > 0
    out = np.zeros((count + 3 * textured, height, width), np.float32)
    near = np.zeros((supersample, width * supersample), np.float32)
    label = np.full(near.shape, -1, np.int32)
    order, last, begins = _by_row(pixels, faces, one_sided, height)
    active, used = np.empty(len(faces), np.int64), 0
    for y in range(height):
        kept = 0
        for k in range(used):
            if last[active[k]] >= y:
                active[kept] = active[k]
                kept += 1
        used = kept
        for k in range(begins[y], begins[y + 1]):
            active[used] = order[k]
            used += 1
        least, most = label.shape[1], -1
        for k in range(used):
            begin, end = _fill(pixels, nearness, faces, active[k], supersample, y * supersample, near, label)
            least, most = min(least, begin), max(most, end)
        if most < 0:
            continue
        for x in range(least // supersample, most // supersample + 1):
            for row in range(supersample):
                for column in range(x * supersample, (x + 1) * supersample):
                    f = label[row, column]
                    if f < 0:
                        continue
                    near[row, column], label[row, column] = 0.0, -1
                    out[part[f], y, x] += one
                    if textured:
                        for c in range(3):
                            out[count + c, y, x] += one * np.float32(tint[f, c])
    return out


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _by_row(
    pixels: Array, faces: NDArray[np.int64], one_sided: NDArray[np.bool_], height: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return faces by their first row of pixels, the last row [F] of each, and where each row begins, [h + 1].

    Faces that are seen from behind and never seen so are left out.
    """
    first, last = np.empty(len(faces), np.int64), np.empty(len(faces), np.int64)
    begins = np.zeros(height + 1, np.int64)
    for f in range(len(faces)):
        a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
        ys = pixels[a, 1], pixels[b, 1], pixels[c, 1]
        across = (pixels[b, 0] - pixels[a, 0]) * (ys[2] - ys[0]) - (ys[1] - ys[0]) * (pixels[c, 0] - pixels[a, 0])
        if across > 0.0 and one_sided[f]:
            first[f] = -1
            continue
        first[f] = min(max(math.floor(min(ys)), 0), height - 1)
        last[f] = min(math.ceil(max(ys)), height)
        begins[first[f] + 1] += 1
    begins = np.cumsum(begins)
    order, filled = np.empty(len(faces), np.int64), begins.copy()
    for f in range(len(faces)):
        if first[f] >= 0:
            order[filled[first[f]]] = f
            filled[first[f]] += 1
    return order, last, begins


def _steps(pose: Pose, placed: Array, camera: Camera, config: SurfacesConfig) -> Array:
    """Return a step [6, 6] along each coordinate that moves vertices, [V, 3] at the pose, by `step_px` at most."""
    at, small, vertices = project(camera, placed), 1e-4, pose.inverse().apply(placed)
    steps = []
    for unit in np.eye(6):
        moved = project(camera, pose.retract(small * unit).apply(vertices)) - at
        most = float(np.nanmax(np.linalg.norm(moved, axis=-1))) / small
        steps.append(config.step_px / max(most, 1e-6) * unit)
    return np.array(steps)


def _median(values: NDArray[np.float32], count: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the median [P, 3] of values [T, P, 3] of which `count` [P] are numbers, and the others NaN."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    low, high = (np.take_along_axis(ordered, k[None, :, None], axis=0)[0] for k in ((count - 1) // 2, count // 2))
    return np.asarray(0.5 * (low + high), dtype=np.float32)


def _grown(mask: NDArray[np.bool_], margin_px: int) -> NDArray[np.bool_]:
    import cv2

    size = 2 * margin_px + 1
    return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((size, size), np.uint8)) > 0)
