"""Measure what a clip shows of a tracked body: its size in pixels, the blur of its motion, and what hides it.

Frames are compared with the clip's background. Edges across which a body moves are as wide as its path in one exposure.
A body that blends into its background, or that is partly hidden, leaves pixels of its silhouette unchanged.

Limits: a static camera, and poses that are about right: where these are wrong, the numbers describe how. Part of a body
that has the colour of its background counts as hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import one_thread
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.tracking.cues.occluding_contour import OccludingContour, occluding_contour
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.edge_widths import change_of, edge_widths
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.verifier import background_of
from vid2phys.types import Array, Camera, Mesh


@dataclass(frozen=True, kw_only=True)
class VisibilityConfig:
    """Settings of `visibility`."""

    frames: int = 24
    """Largest number of frames that are measured."""
    least_change: float = 14.0
    """Least change of a pixel that shows the body, grey levels."""
    least_noises: float = 5.0
    """The same in multiples of the noise."""
    patch_px: int = 3
    """Width of a patch whose mean colour shows the body or its background, so that noise counts less, px."""
    patch_noises: float = 2.5
    """Least change of a patch that shows the body, multiples of its noise."""
    along: float = 0.7
    """Least cosine of an edge's normal and the motion, for an edge across which the body moves."""
    sure_change: float = 2.0
    """Change inside of an edge, as a multiple of the least one, from which on its width is measured."""
    min_edges: int = 20
    """Least number of edges from which a blur is measured."""
    rests: float = 0.3
    """Share of frames that show the body at a pixel, from which on the background is not known there."""
    known: float = 0.5
    """Least share of a silhouette before a known background, for a frame to be measured."""
    min_frames: int = 4
    """Least number of such frames from which the hidden share is measured."""


DEFAULTS = VisibilityConfig()
_NOISE_OF_LARGEST = 1.26  # median of the largest of three normal numbers' magnitudes, standard deviations


@dataclass(frozen=True)
class Visibility:
    """What a clip shows of a body, medians over frames.

    Attributes:
        size_px: longer side of the silhouette's bounding box.
        blur_px: width of edges across which the body moves; NaN where there are too few.
        hidden: share of the silhouette that shows the background; NaN where the body hardly moves.
        path_px: path of the body from frame to frame.
        noise: standard deviation of a colour from frame to frame, grey levels.
    """

    size_px: float
    blur_px: float
    hidden: float
    path_px: float
    noise: float


@one_thread()
def visibility(
    poses: Pose,
    tracked: NDArray[np.bool_],
    frames: FrameStore,
    camera: Camera,
    mesh: Mesh,
    config: VisibilityConfig = DEFAULTS,
) -> Visibility | None:
    """Return what a clip shows of a tracked body; None where nothing can be measured.

    Args:
        poses: [T] camera_from_body of each frame.
        tracked: [T] whether the pose counts.
        frames: of the clip.
        camera: of the clip.
        mesh: of the body.
        config: settings.
    """
    rows = np.flatnonzero(tracked & poses.is_finite)
    if len(rows) < 3 or camera.moves:
        return None
    chosen = [int(k) for k in 1 + evenly(len(rows) - 2, config.frames)]
    drawn = {k: _Silhouette.of(poses[int(rows[k])], camera, mesh) for k in chosen}
    silhouettes = {k: silhouette for k, silhouette in drawn.items() if silhouette is not None}
    shape = frames[0].shape
    covered = np.zeros(shape[:2], np.float32)
    for silhouette in silhouettes.values():
        covered[silhouette.window] += silhouette.mask / len(silhouettes)
    behind = background_of(frames.background, shape)
    least = max(config.least_change, config.least_noises * frames.background.noise)
    of_patch = max(config.least_change, config.patch_noises * frames.background.noise / config.patch_px)
    sizes, widths, hidden, paths = list[float](), list[float](), list[float](), list[float]()
    for k, silhouette in silhouettes.items():
        before, i, after = (int(rows[k + d]) for d in (-1, 0, 1))
        path = (_center(poses[after], camera) - _center(poses[before], camera)) / (after - before)
        sizes.append(silhouette.contour.size_px)
        paths.append(float(np.linalg.norm(path)))
        known = silhouette.mask & (covered[silhouette.window] < config.rests)
        if known.sum() < config.known * silhouette.mask.sum():
            continue  # the body rests here, and is part of the background
        patches = _change_of_patches(frames[i], behind, silhouette.window, config.patch_px)
        hidden.append(float((patches[known] < of_patch).mean()))
        widths += _widths(
            change_of(frames[i], behind), silhouette.contour, path, config.sure_change * least, config
        ).tolist()
    if not sizes:
        return None
    blur = float(np.median(widths)) if len(widths) >= config.min_edges else float("nan")
    unchanged = float(np.median(hidden)) if len(hidden) >= config.min_frames else float("nan")
    noise = frames.background.noise / _NOISE_OF_LARGEST
    return Visibility(float(np.median(sizes)), blur, unchanged, float(np.median(paths)), noise)


@dataclass(frozen=True)
class _Silhouette:
    """A body in a frame: its contour, and the pixels of its silhouette in a window of the frame."""

    contour: OccludingContour
    window: tuple[slice, slice]
    mask: NDArray[np.bool_]

    @staticmethod
    def of(pose: Pose, camera: Camera, mesh: Mesh) -> _Silhouette | None:
        """Return a body at a pose; None where it is not in the frame."""
        drawing = draw(pose.apply(mesh.vertices), mesh.faces)
        contour = None if drawing is None else occluding_contour(drawing, camera)
        shown = None if drawing is None else drawing.in_frame(camera)
        if contour is None or shown is None or not shown[2].any():
            return None
        return _Silhouette(contour, shown[:2], shown[2])


def _change_of_patches(
    frame: NDArray[np.uint8], behind: NDArray[np.uint8], window: tuple[slice, slice], patch_px: int
) -> NDArray[np.float32]:
    """Return how far the mean colours of patches about the pixels of a window differ from the background, [h, w]."""
    import cv2

    rows, columns = window
    top, left = max(0, rows.start - patch_px), max(0, columns.start - patch_px)
    part = slice(top, rows.stop + patch_px), slice(left, columns.stop + patch_px)
    mean = cv2.blur(frame[part].astype(np.float32) - behind[part], (patch_px, patch_px))
    change = np.abs(mean).max(axis=-1)[rows.start - top :, columns.start - left :]
    return np.asarray(change[: rows.stop - rows.start, : columns.stop - columns.start], np.float32)


def _center(pose: Pose, camera: Camera) -> Array:
    """Return where the origin of a body is in the frame, [2] px."""
    from vid2phys.engine.observe import bearings_to_pixels

    return np.asarray(bearings_to_pixels(camera, pose.translation[:2] / pose.translation[2]))


def _widths(
    change: NDArray[np.uint8], contour: OccludingContour, path: Array, least: float, config: VisibilityConfig
) -> Array:
    """Return the widths [N] of the edges across which the body moves by `path` [2] px, px."""
    speed = float(np.linalg.norm(path))
    if speed < 1.0:
        return np.zeros(0)
    moves = np.abs(contour.normals @ path) > config.along * speed
    return edge_widths(change, contour.pixels[moves], contour.normals[moves], contour.size_px, least).width
