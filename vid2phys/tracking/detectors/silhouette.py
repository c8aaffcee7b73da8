"""Detect a mesh by its silhouette, with nothing trained: compare the foreground of a frame with drawn silhouettes.

Silhouettes of the mesh in a few thousand orientations are drawn once, all with the same area. A region of the
foreground is brought to this area and compared with all of them by one matrix product. The best ones are proposed as
poses, which `silhouette_fit` aligns to the foreground and fits to the edges.

Limits: a region must show most of the body. Silhouettes are drawn from a typical distance, without the frame's own
perspective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.observe import bearing_jacobian_to_pixels, pixels_to_bearings
from vid2phys.engine.pose_geometry import rotation_grid
from vid2phys.geometry import Pose, shortest_rotation
from vid2phys.tracking.cues.silhouette import draw_nearness
from vid2phys.types import Array, Camera, Mesh


@dataclass(frozen=True, kw_only=True)
class SilhouetteConfig:
    """Settings of `Silhouettes` and `propose_poses`."""

    orientations: int = 4096
    """Number of drawn orientations, about 15 deg apart."""
    size: int = 40
    """Width and height of a drawn silhouette, px."""
    side: float = 13.0
    """Square root of the area of a drawn silhouette, px."""
    distance_radii: float = 10.0
    """Distance from which silhouettes are drawn, radii of the body."""
    max_faces: int = 1500
    """Number of faces beyond which a mesh is simplified for these drawings."""
    max_regions: int = 3
    """Largest number of regions of a frame that are tried."""
    likely_share: float = 0.4
    """Least evidence of a region, as a share of that of the most likely one."""
    min_area_px: float = 30.0
    """Least area of a region, px."""
    scales: tuple[float, ...] = (0.85, 1.0, 1.18)
    """Sizes of a region that are tried, as factors: shadows add to it, and unseen parts lack."""
    shifts: tuple[float, ...] = (-0.12, 0.0, 0.12)
    """Shifts of a region's middle that are tried, as shares of the square root of its area."""
    proposals: tuple[float, float] = (10.0, 1.0)
    """Number of poses that are proposed for a region: the first, plus the second times the root of all drawn ones."""
    apart_rad: float = 0.35
    """Least rotation between two poses of a region, rad."""


DEFAULTS = SilhouetteConfig()


@dataclass(frozen=True)
class Silhouettes:
    """Drawn silhouettes of a mesh in N orientations, all with the same area.

    Attributes:
        masks: [N, S * S] silhouettes, float32; each sums to the same.
        rotations: [N, 3, 3] orientations in the axes of a camera that looks at the body.
        side: [N] square root of the silhouette's area, bearings at the distance from which it was drawn.
        offset: [N, 2] middle of the silhouette, bearings.
        distance_m: distance from which silhouettes were drawn, m.
    """

    masks: NDArray[np.float32]
    rotations: Array
    side: Array
    offset: Array
    distance_m: float
    config: SilhouetteConfig = DEFAULTS

    @staticmethod
    def of(mesh: Mesh, symmetry: Array | None = None, config: SilhouetteConfig = DEFAULTS) -> Silhouettes:
        """Draw the silhouettes of a mesh.

        symmetry: [G, 3, 3] rotations under which the body looks the same, the identity first; one orientation of each G
            is drawn.
        """
        import cv2

        rotations = rotation_grid(config.orientations)
        if symmetry is not None:
            near = np.einsum("nij,gij->ng", rotations, symmetry)  # traces: how near each element is
            rotations = rotations[near.argmax(axis=1) == 0]
        distance = config.distance_radii * mesh.radius_m
        vertices, faces = _fewer_faces(mesh, config.max_faces)
        sides = one_sided(vertices, faces)
        fine = 3 * config.size
        masks = np.zeros((len(rotations), config.size, config.size), np.float32)
        side, offset = np.empty(len(rotations)), np.empty((len(rotations), 2))
        kept = np.zeros(len(rotations), dtype=bool)
        focal = 0.45 * fine * config.distance_radii
        middle = 0.5 * (fine - 1)
        for n, rotation in enumerate(rotations):
            placed = vertices @ rotation.T
            z = placed[:, 2] + distance
            x, y = (focal * placed[:, k] / z + middle for k in (0, 1))
            mask = (draw_nearness(x, y, z, faces, sides, fine, fine) > 0.0).astype(np.float32)
            moments = cv2.moments(mask)
            if moments["m00"] < 9.0:
                continue
            kept[n] = True
            center = np.array([moments["m10"], moments["m01"]]) / moments["m00"]
            side_px = np.sqrt(moments["m00"])
            side[n], offset[n] = side_px / focal, (center - middle) / focal
            scale = config.side / side_px
            to_small = np.array(
                [
                    [scale, 0.0, 0.5 * (config.size - 1) - scale * center[0]],
                    [0.0, scale, 0.5 * (config.size - 1) - scale * center[1]],
                ]
            )
            masks[n] = cv2.warpAffine(mask, to_small, (config.size, config.size), flags=cv2.INTER_AREA)
        masks *= config.side**2 / np.maximum(masks.sum(axis=(1, 2), keepdims=True), 1.0)
        flat = masks.reshape(len(masks), -1)
        return Silhouettes(flat[kept], rotations[kept], side[kept], offset[kept], distance, config)

    def pose(self, n: int, camera: Camera, middle_px: Array, side_px: float) -> Pose:
        """Return the pose of silhouette n with its middle at a pixel [2] and an area of side_px^2."""
        bearing = pixels_to_bearings(camera, middle_px)
        per_bearing = np.sqrt(abs(np.linalg.det(bearing_jacobian_to_pixels(camera, bearing))))
        # the area of a small patch grows by 1 / cos^3 away from the axis
        grown = (1.0 + bearing @ bearing) ** 0.75
        nearer = side_px / (per_bearing * grown) / self.side[n]
        towards = np.append(bearing, 1.0) / np.linalg.norm(np.append(bearing, 1.0))
        aim = shortest_rotation(towards)
        aside = np.append(-nearer * self.offset[n], 1.0)
        direction = aim @ (aside / np.linalg.norm(aside))
        return Pose(aim @ self.rotations[n], direction * self.distance_m / nearer)


def propose_poses(silhouettes: Silhouettes, log_ratio: NDArray[np.float32], camera: Camera) -> list[list[Pose]]:
    """Return for each region of a frame's foreground the poses whose silhouettes resemble it, the most likely first.

    log_ratio: [H, W] log-likelihood ratio of body and scene (`foreground`), nats.
    """
    found = regions(log_ratio, silhouettes.config)
    return [_of_region(silhouettes, log_ratio, camera, middle, side) for middle, side in found]


def regions(log_ratio: NDArray[np.float32], config: SilhouetteConfig = DEFAULTS) -> list[tuple[Array, float]]:
    """Return middles [2] and square roots of the areas of the foreground's regions, px, the most likely first."""
    import cv2

    mask = (log_ratio > 0.0).astype(np.uint8)
    found: list[tuple[float, Array, float]] = []
    for gap in (1, 7):
        closed = mask if gap == 1 else cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((gap, gap), np.uint8))
        _, labels, stats, _ = cv2.connectedComponentsWithStats(closed)
        order = 1 + np.argsort(-stats[1:, cv2.CC_STAT_AREA])[: config.max_regions + 3]
        for k in order.tolist():
            left, top, width, height, area = stats[k]
            if area < config.min_area_px:
                break
            part = slice(top, top + height), slice(left, left + width)
            own = (labels[part] == k) & (mask[part] > 0)
            evidence = float(log_ratio[part][own].sum())
            rows, columns = np.nonzero(own)
            middle = np.array([columns.mean() + left, rows.mean() + top])
            side = float(np.sqrt(len(rows)))
            if all(np.linalg.norm(middle - m) > 0.1 * side or abs(s / side - 1.0) > 0.1 for _, m, s in found):
                found.append((evidence, middle, side))
    found.sort(key=lambda region: -region[0])
    likely = [region for region in found if region[0] > config.likely_share * found[0][0]]
    return [(middle, side) for _, middle, side in likely[: config.max_regions]]


def _of_region(
    silhouettes: Silhouettes, log_ratio: NDArray[np.float32], camera: Camera, middle: Array, side: float
) -> list[Pose]:
    config = silhouettes.config
    crops, places = [], []
    for scale in config.scales:
        for dx in config.shifts:
            for dy in config.shifts:
                at, size = middle + side * np.array([dx, dy]), side * scale
                crops.append(_crop(log_ratio, at, size, config))
                places.append((at, size))
    # the sum over the region grows with its area: so does the evidence
    scores = silhouettes.masks @ np.stack(crops, axis=1)
    scores *= np.array([size**2 for _, size in places]) / config.side**2
    best = scores.argmax(axis=1)
    order = np.argsort(-scores[np.arange(len(scores)), best])
    chosen, (few, more) = list[int](), config.proposals
    flat, is_near = silhouettes.rotations.reshape(-1, 9), np.zeros(len(order), dtype=bool)
    for n in order[:1000].tolist():
        if not is_near[n]:
            chosen.append(n)
            is_near |= flat @ flat[n] >= 1.0 + 2.0 * np.cos(config.apart_rad)  # the traces of the rotations between
        if len(chosen) >= few + more * np.sqrt(len(order)):
            break
    return [silhouettes.pose(n, camera, *places[best[n]]) for n in chosen]


def _crop(log_ratio: NDArray[np.float32], middle: Array, side: float, config: SilhouetteConfig) -> NDArray[np.float32]:
    import cv2

    scale = config.side / side
    half = 0.5 * (config.size - 1)
    to_small = np.array([[scale, 0.0, half - scale * middle[0]], [0.0, scale, half - scale * middle[1]]])
    blur = int(1.0 / scale) | 1  # pixels are averaged before they are skipped
    even = cv2.blur(log_ratio, (blur, blur)) if blur > 1 else log_ratio
    small = cv2.warpAffine(even, to_small, (config.size, config.size), flags=cv2.INTER_LINEAR, borderValue=0.0)
    return np.asarray(small, dtype=np.float32).ravel()


def _fewer_faces(mesh: Mesh, most: int) -> tuple[Array, NDArray[np.int64]]:
    import warnings

    from vid2phys.io.simplify import simplified

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fewer = simplified(mesh, most)
    return fewer.vertices, fewer.faces
