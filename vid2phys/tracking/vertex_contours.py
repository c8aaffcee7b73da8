"""Lines across the contours of a simulated body whose state is its vertices: how far the frames' edges are from it.

Method: the body is drawn in every frame where a rollout has it, and lines across its occluding contour are compared
with the clip's foreground (`foreground`, `cues.foreground_edges`). A contour point belongs to the triangle that holds
it, so that other rollouts nearby move it, too: the distances are least-squares residuals of the whole motion.

Limits: a static camera; contours that slide over the body are followed by new lines alone; the log-likelihood ratios
of all frames are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.contour_lines import ContourLines
from vid2phys.engine.systems._particles import embed
from vid2phys.geometry import invert_transform, transform_points
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR
from vid2phys.tracking.cues.foreground_edges import edge_places
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import draw, silhouette_of
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.types import Array, Camera, Clip

_CONTOUR = replace(CONTOUR, max_contour_points=80)  # a line every few pixels
_STEPS = 10  # of a line to each side
_CORRELATED_PX = 4.0  # pixels in a row that count as one
_LEAST_REACH_PX = 3.0
_CHANGED, _LEAST_CHANGED = 4.0, 12  # standard deviations of a pixel, and pixels, of what moves
_SURE_NATS = 2.0  # log-likelihood ratio from which on a pixel is foreground as a whole


class VertexFrames:
    """The frames of a clip of a body with faces [T, 3] that a static camera with a pose filmed."""

    def __init__(self, clip: Clip, camera: Camera, camera_to_world: Array, faces: NDArray[np.int64], free: Array):
        """free: [V], 0 for vertices that never move: contours there, where something holds the body, do not count."""
        self.frames, self.camera, self.faces, self._free = FrameStore.of(clip), camera, faces, free
        self.to_camera: Array = invert_transform(camera_to_world)
        self.foreground = Foreground.of(self.frames, including=(0,))
        self._ratios = dict[int, NDArray[np.float16]]()

    def learn(self, positions: Array, rows: Iterable[int]) -> None:
        """Learn the colours of body and scene from the body's places [F, V, 3] m in some frames."""
        masks = {i: self._mask(positions[i]) for i in rows}
        shown = {i: mask for i, mask in masks.items() if mask is not None and mask[2].any()}
        self.foreground, self._ratios = self.foreground.learned(shown), {}

    def overlaps(self, positions: Array) -> Array:
        """Return the overlap of silhouette and foreground [F], intersection over union, of places [F, V, 3] m."""
        found = np.zeros(len(positions))
        for i, vertices in enumerate(positions):
            mask = self._mask(vertices)
            if mask is None:
                continue
            rows, columns, inside = mask
            sure = np.clip(self.log_ratio(i) / _SURE_NATS, 0.0, 1.0)
            both = float(sure[rows, columns][inside].sum())
            found[i] = both / max(float(sure.sum()) + float(inside.sum()) - both, 1e-9)
        return found

    def lines(self, positions: Array, reach_share: float) -> ContourLines | None:
        """Return lines across the contours of the body at places [F, V, 3] m; None where it has none in any frame.

        reach_share: reach of the lines, as a share of the body's size in the frame.
        """
        parts = [part for i, at in enumerate(positions) if (part := self._lines_of(i, at, reach_share)) is not None]
        if not parts:
            return None
        frame, corners, weights, along, edge, std, normal = map(np.concatenate, zip(*parts, strict=True))
        return ContourLines(frame, corners, weights, along, edge, std, normal, self.to_camera)

    def moves(self) -> bool:
        """Return whether anything in the clip leaves the background before colours are known."""
        background, noise = self.foreground.background.astype(np.float32), self.foreground.noise
        apart = [np.abs(sample - background).max(axis=-1) > _CHANGED * noise for sample in self.foreground.samples]
        opened = (cv2.morphologyEx(each.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3))) for each in apart)
        return max(int(each.sum()) for each in opened) >= _LEAST_CHANGED

    def log_ratio(self, i: int) -> NDArray[np.float32]:
        """Return the log-likelihood ratio [H, W] of body and scene in a frame, nats."""
        if i not in self._ratios:
            self._ratios[i] = self.foreground.log_ratio(self.frames[i]).astype(np.float16)
        return self._ratios[i].astype(np.float32)

    def _lines_of(self, i: int, vertices: Array, reach_share: float) -> tuple[Array, ...] | None:
        """Return the fields of `ContourLines` of a frame, but `to_camera`."""
        placed = transform_points(self.to_camera, vertices)
        drawing = draw(placed, self.faces)
        contour = None if drawing is None else occluding_contour(drawing, self.camera, _CONTOUR)
        if contour is None:
            return None
        corners, weights = embed(contour.points, placed, self.faces)
        kept = (weights * self._free[corners]).sum(axis=1) > 0.5
        if not kept.any():
            return None
        reach_px = max(_LEAST_REACH_PX, reach_share * contour.size_px)
        ratio, pixels, normals = self.log_ratio(i), contour.pixels[kept], contour.normals[kept]
        mean, variance = edge_places(ratio, pixels, normals, reach_px, _STEPS, _CORRELATED_PX)
        corners, weights, along = corners[kept], weights[kept], contour.along[kept]
        points = np.einsum("lc,lcx->lx", weights, placed[corners])
        edge = (along * points[:, :2] / points[:, 2:]).sum(axis=1) + mean
        return np.full(len(mean), i), corners, weights, along, edge, np.sqrt(variance), normals

    def _mask(self, vertices: Array) -> tuple[slice, slice, NDArray[np.bool_]] | None:
        """Return the silhouette in a frame; None where the body is not in view."""
        return silhouette_of(transform_points(self.to_camera, vertices), self.faces, self.camera)
