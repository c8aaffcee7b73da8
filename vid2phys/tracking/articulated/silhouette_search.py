"""Draw an articulated or modal body in many configurations, and find those whose silhouettes explain a foreground.

Base and camera are known, so a configuration says which pixels the body covers. Quasi-random configurations within the
limits (Sobol, 1967) are drawn once, on a coarse grid of the frame. A frame compares all of them with its foreground by
one matrix product. The best ones are varied in rounds with less and less noise, as in annealed particle filters
(Deutscher, Blake and Reid, CVPR 2000).

Parts that no joint moves belong to the background. Where they cover a pixel, it counts as neither body nor scene.

Limits: with more than about six joints the first configurations are sparse, and the rounds may miss the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.cues.silhouette import draw_nearness
from vid2phys.types import Array, Mesh

_NEAREST_M = 1e-3


@dataclass(frozen=True, kw_only=True)
class SilhouetteSearchConfig:
    """Settings of `ConfigurationSearch`."""

    configurations: int = 4096
    """Number of drawn configurations."""
    coarse_px: int = 96
    """Longer side of the grid on which they are drawn, px."""
    fine_px: int = 320
    """Longer side of the grid on which a fit is judged, px."""
    kept: int = 40
    """Number of configurations that a round keeps."""
    children: int = 5
    """Number of variations of each of them in a round, for each coordinate."""
    noise: tuple[float, ...] = (0.3, 0.25, 0.18, 0.1, 0.06)
    """Standard deviations of the variations in each round, in units of the coordinates."""
    miss_shares: tuple[float, ...] = (0.3, 0.3, 0.3, 0.3, 0.6, 1.0)
    """Share of the evidence against the body that counts among the drawn configurations and in each round: else one
    that covers half of the body would be no better than one that hides behind the base."""
    chunk: int = 512
    """Number of silhouettes that are compared at once."""
    chunk_vertices: int = 200_000
    """Number of vertices that are placed at once."""
    static_m: float = 1e-4
    """Least motion of a part that counts as moved, m."""


DEFAULTS = SilhouetteSearchConfig()


@dataclass(frozen=True)
class Grid:
    """A rectangle of the frame, shrunk.

    Attributes:
        corner: [2] first column and row, px of the frame.
        size: [2] columns and rows, px of the frame.
        scale: pixels of the grid on one of the frame.
    """

    corner: NDArray[np.int64]
    size: NDArray[np.int64]
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns of the grid."""
        columns, rows = np.maximum(np.round(self.size * self.scale), 1).astype(int).tolist()
        return rows, columns

    def shrunk(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the means of values [H, W] of a frame at the grid's pixels."""
        import cv2

        (left, top), (width, height) = self.corner, self.size
        rows, columns = self.shape
        part = values[top : top + height, left : left + width]
        return np.asarray(cv2.resize(part, (columns, rows), interpolation=cv2.INTER_AREA), dtype=np.float32)

    def places(self, pixels: Array) -> Array:
        """Return where pixels [N, 2] of the frame lie in the grid."""
        rows, columns = self.shape
        return np.asarray((pixels + 0.5 - self.corner) * (np.array([columns, rows]) / self.size) - 0.5)


@dataclass(frozen=True)
class Part:
    """Some faces of a mesh.

    Attributes:
        vertices: [U] indices of their vertices in the mesh.
        faces: [F, 3] indices in `vertices`.
        one_sided: [F] faces that are never seen from behind.
    """

    vertices: NDArray[np.int64]
    faces: NDArray[np.int64]
    one_sided: NDArray[np.bool_]

    @staticmethod
    def of(mesh: Mesh, which: NDArray[np.bool_]) -> Part:
        """Return the part with some of the faces, which [F], of a mesh."""
        used, inside = np.unique(mesh.faces[which], return_inverse=True)
        faces = np.ascontiguousarray(inside.reshape(-1, 3), dtype=np.int64)
        return Part(used, faces, one_sided(mesh.vertices[used], faces))


def coordinate_units(body: ArticulatedBody) -> Array:
    """Return the unit [D] of each coordinate: 1 rad, or the length or amplitude that moves the body as far."""
    count = len(body.mesh.vertices)
    some = np.arange(0, count, max(1, count // 500))
    moved = np.abs(body.jacobian(body.rest, some)).max(axis=(0, 1))
    return np.asarray(np.where(body.is_angle, 1.0, body.radius_m / np.maximum(moved, 1e-9)))


@dataclass(frozen=True)
class ConfigurationSearch:
    """Silhouettes of a body on a known base before a camera.

    Attributes:
        body: the body.
        window: camera, and its pose.
        config: settings.
    """

    body: ArticulatedBody
    window: Window
    config: SilhouetteSearchConfig = DEFAULTS

    @cached_property
    def units(self) -> Array:
        """The unit [D] of each coordinate."""
        return coordinate_units(self.body)

    @cached_property
    def moving(self) -> NDArray[np.bool_]:
        """Whether a face [F] moves with any coordinate."""
        rest = self.body.vertices(self.body.rest)
        moved = np.zeros(len(rest))
        for vertices in self.body.all_vertices(self._sampled[:32]):
            moved = np.maximum(moved, np.linalg.norm(vertices - rest, axis=1))
        return np.asarray((moved[self.body.mesh.faces] > self.config.static_m).any(axis=1))

    @cached_property
    def faces(self) -> NDArray[np.int64]:
        """The faces [F, 3] that move."""
        return np.ascontiguousarray(self.body.mesh.faces[self.moving])

    @cached_property
    def _moving(self) -> Part:
        return Part.of(self.body.mesh, self.moving)

    @cached_property
    def static(self) -> NDArray[np.bool_]:
        """Whether a pixel of the frame [H, W] shows a part that never moves; pixels beside it, too."""
        import cv2

        camera = self.window.camera
        whole = Grid(np.zeros(2, np.int64), np.array([camera.width, camera.height]), 1.0)
        part = Part.of(self.body.mesh, ~self.moving)
        mask = next(self._masks(self.body.rest[None], whole, part)) if len(part.faces) else None
        if mask is None:
            return np.zeros((camera.height, camera.width), dtype=np.bool_)
        return np.asarray(cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0)

    @cached_property
    def sides(self) -> tuple[Array, Array]:
        """The lowest and the highest value [D] of each coordinate that the search tries."""
        half = np.sqrt(3.0) * self.body.prior_std
        low = np.maximum(self.body.lower, self.body.prior_mean - half)
        return low, np.minimum(self.body.upper, self.body.prior_mean + half)

    @cached_property
    def _sampled(self) -> Array:
        from scipy.stats import qmc

        count = int(np.ceil(np.log2(self.config.configurations)))
        low, high = self.sides
        return np.asarray(low + (high - low) * qmc.Sobol(len(low), seed=0).random_base2(count))

    def _grid(self, longest: int) -> Grid:
        """Return the part of the frame that the moving parts reach."""
        camera = self.window.camera
        seen = self._pixels(self._sampled[:200], self._moving.vertices)[0].reshape(-1, 2)
        seen = seen[np.isfinite(seen).all(axis=1)]
        most = np.array([camera.width, camera.height])
        low = np.clip(np.floor(seen.min(axis=0, initial=np.inf)) - 8, 0, most - 8)
        high = np.clip(np.ceil(seen.max(axis=0, initial=-np.inf)) + 9, low + 8, most)
        size = (high - low).astype(np.int64)
        return Grid(low.astype(np.int64), size, min(1.0, longest / float(size.max())))

    @cached_property
    def coarse(self) -> Grid:
        """The grid of the search."""
        return self._grid(self.config.coarse_px)

    @cached_property
    def fine(self) -> Grid:
        """The grid on which fits are judged."""
        return self._grid(self.config.fine_px)

    def _pixels(self, configurations: Array, used: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return the pixels [N, U, 2] and depths [N, U] m of some vertices [U]; NaN for those behind the camera."""
        points = self.window.in_camera(self.body.all_vertices(configurations)[:, used])
        z = np.where(points[..., 2] > _NEAREST_M, points[..., 2], np.nan)
        return bearings_to_pixels(self.window.camera, points[..., :2] / z[..., None]), z

    def _masks(self, configurations: Array, grid: Grid, part: Part) -> Iterator[NDArray[np.bool_] | None]:
        """Yield the pixels of a grid that a part covers in configurations [N, D]; None for those behind the camera."""
        rows, columns = grid.shape
        most = max(1, self.config.chunk_vertices // max(1, len(self.body.mesh.vertices)))
        for start in range(0, len(configurations), most):
            pixels, depths = self._pixels(configurations[start : start + most], part.vertices)
            places = np.ascontiguousarray(np.moveaxis(grid.places(pixels), -1, 1))
            for (x, y), z in zip(places, depths, strict=True):
                if np.isfinite(z).all():
                    yield np.asarray(draw_nearness(x, y, z, part.faces, part.one_sided, columns, rows) > 0.0)
                else:
                    yield None

    def silhouette(self, configuration: Array, grid: Grid) -> NDArray[np.bool_] | None:
        """Return the pixels of a grid that the moving parts cover; None where they reach behind the camera."""
        return next(self._masks(configuration[None], grid, self._moving))

    @cached_property
    def _drawn(self) -> tuple[Array, NDArray[np.uint8]]:
        """The drawn configurations [N, D] and their silhouettes, packed."""
        kept, masks = [], []
        every = self._masks(self._sampled, self.coarse, self._moving)
        for configuration, mask in zip(self._sampled, every, strict=True):
            if mask is not None and mask.any():
                kept.append(configuration)
                masks.append(np.packbits(mask.ravel()))
        shape = (0, -(-int(np.prod(self.coarse.shape)) // 8))
        return np.array(kept).reshape(-1, len(self.body.rest)), np.array(masks, np.uint8).reshape(-1, shape[1])

    def draw(self) -> None:
        """Draw what all frames share: the silhouettes of the search, and the parts that never move."""
        _ = self._drawn, self.fine, self.static

    def propose(self, log_ratio: NDArray[np.float32]) -> Array:
        """Return configurations [N, D] whose silhouettes explain a frame's foreground [H, W], the best first."""
        config, rng = self.config, np.random.default_rng(0)
        seen = self.coarse.shrunk(log_ratio)
        gentle = [np.where(seen < 0.0, np.float32(share) * seen, seen) for share in config.miss_shares]
        drawn, packed = self._drawn
        scores = np.empty(len(drawn))
        for start in range(0, len(drawn), config.chunk):
            part = np.unpackbits(packed[start : start + config.chunk], axis=1, count=seen.size)
            scores[start : start + config.chunk] = part.astype(np.float32) @ gentle[0].ravel()
        found = self._best(drawn, scores, config.noise[0])
        distances = (*config.noise[1:], 0.5 * config.noise[-1])
        for noise, apart, ratio in zip(config.noise, distances, gentle[1:], strict=True):
            more = [self.varied(each, noise, config.children * len(self.units), rng) for each in found]
            both = np.concatenate([found, *more])
            found = self._best(both, self.scores(both, ratio), apart)
        return found

    def varied(self, configuration: Array, noise: float, count: int, rng: np.random.Generator) -> Array:
        """Return variations [count, D] of a configuration by noise in units; half of them keep most coordinates."""
        steps = rng.normal(0.0, noise, (count, len(self.units)))
        steps[::2] *= rng.random(steps[::2].shape) < 1.5 / steps.shape[-1]
        return self.within(configuration + self.units * steps)

    def within(self, configurations: Array) -> Array:
        """Return configurations [..., D] within the limits."""
        return np.clip(configurations, self.body.lower, self.body.upper)

    def scores(self, configurations: Array, shrunk: NDArray[np.float32]) -> Array:
        """Return the sums [N] of a shrunk foreground (`Grid.shrunk` of `coarse`) inside the silhouettes."""
        masks = self._masks(configurations, self.coarse, self._moving)
        return np.array([-np.inf if mask is None else float(shrunk[mask].sum()) for mask in masks])

    def _best(self, configurations: Array, scores: Array, apart: float) -> Array:
        """Return the best configurations that differ by more than `apart` units."""
        order = np.argsort(-scores)
        left, chosen = configurations[order[np.isfinite(scores[order])]], list[Array]()
        while len(left) and len(chosen) < self.config.kept:
            chosen.append(left[0])
            left = left[self._distances(left[0], left) > apart]
        return np.array(chosen).reshape(-1, len(self.units))

    def distance(self, a: Array, b: Array) -> float:
        """Return the largest difference of two configurations [D], in units of the coordinates."""
        return float(self._distances(a, b[None])[0])

    def _distances(self, a: Array, others: Array) -> Array:
        return np.asarray(np.abs(self.body.difference(a, others) / self.units).max(axis=-1))
