"""Which branch of a symmetric body explains the pixels best: evidence from the clip itself, without training.

Every part of the mesh has one colour, lit from above; the colours are fitted by least squares for each branch, and the
branch that leaves the smallest residual over the clip is the likeliest. Edges of the body against what is behind it
count too: the background is the clip's own (`backdrop`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import Raster, lambert, rasterize_camera
from vid2phys.types import Array, Camera, Clip, Mesh

LOOKS = 80  # frames that are compared
_SUPERSAMPLE = 3
_BACKDROP_FRAMES = 15
_MARGIN_PX = 3
_RIDGE = 0.05  # how firmly a frame's colours are held to those of the clip
_CORRELATED_PX = 9.0  # neighbouring pixels err together: this many count as one


def backdrop(frames: NDArray[np.uint8], masks: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The scene without the object, uint8 [H, W, 3]: medians over frames [N, H, W, 3] outside masks [N, H, W].

    What was never free is filled in from around.
    """
    import cv2

    background = np.median(frames[:: max(1, len(frames) // _BACKDROP_FRAMES)], axis=0).astype(np.uint8)
    touched = np.flatnonzero(masks.any(axis=0).ravel())
    pixels = frames.reshape(len(frames), -1, 3)[:, touched].astype(np.float32)
    pixels[masks.reshape(len(frames), -1)[:, touched]] = np.nan
    never = np.isnan(pixels[..., 0]).all(axis=0)
    background.reshape(-1, 3)[touched[~never]] = np.nanmedian(pixels[:, ~never], axis=0).astype(np.uint8)
    hole = np.zeros(background.shape[:2], np.uint8)
    hole.ravel()[touched[never]] = 1
    return np.asarray(cv2.inpaint(background, hole, 5, cv2.INPAINT_TELEA), np.uint8) if hole.any() else background


def grown(mask: NDArray[np.bool_], pixels: int = 3) -> NDArray[np.bool_]:
    """The mask [H, W] with a margin."""
    import cv2

    size = 2 * pixels + 1
    return cv2.dilate(mask.astype(np.uint8), np.ones((size, size), np.uint8)).astype(bool)


def branch_evidence(
    clip: Clip,
    camera: Camera,
    mesh: Mesh,
    rotation: Array,
    translation: Array,
    at: NDArray[np.int64],
    branches: Array,
    *,
    divisor: float,
) -> Array:
    """Log-likelihood of each branch R @ branches[g]^T of the orientations R, [G] nats, the best at zero.

    rotation [N, 3, 3], translation [N, 3] m: camera_from_body of the frames at [N]. divisor: frames of a clip that
    count as one. Zeros for a camera without pose, whose light has no known direction.
    """
    if camera.camera_to_world is None or not len(at):
        return np.zeros(len(branches))
    chosen = np.unique(np.linspace(0, len(at) - 1, LOOKS).astype(int))
    frames = clip.frames.sample(at[chosen])
    down = -np.asarray(camera.camera_to_world)[2, :3]
    drawn = [_draw(camera, mesh, rotation[i], translation[i]) for i in chosen]
    masks = np.stack([grown(raster.mask, _MARGIN_PX) for raster in drawn])
    background = backdrop(frames, masks)
    patches = [_patch(frame, background, mask) for frame, mask in zip(frames, masks, strict=True) if mask.any()]
    chosen = chosen[masks.any(axis=(1, 2))]
    total = np.zeros(len(branches))
    for g, branch in enumerate(branches):
        pieces = [
            _piece(_draw(camera, mesh, rotation[i] @ branch.T, translation[i], _SUPERSAMPLE), mesh, down, p)
            for i, p in zip(chosen, patches, strict=True)
        ]
        total[g] = _log_likelihood(pieces)
    return (total - total.max()) / divisor * len(at) / max(len(chosen), 1)


@dataclass(frozen=True)
class _Patch:
    """The box of a frame around the object: rows, columns, and in it the frame, the background and the mask."""

    rows: slice
    columns: slice
    frame: Array
    background: Array
    mask: NDArray[np.bool_]


@dataclass(frozen=True)
class _Piece:
    """One frame of a branch. weights [N, parts]: share of a part in a pixel times its brightness. target [N, 3]: what
    the parts have to add to the background's share. pixels: how many the object covers.
    """

    weights: Array
    target: Array
    pixels: float


def _draw(camera: Camera, mesh: Mesh, rotation: Array, translation: Array, supersample: int = 1) -> Raster:
    return rasterize_camera(mesh.vertices @ rotation.T + translation, mesh.faces, camera, supersample)


def _patch(frame: NDArray[np.uint8], background: NDArray[np.uint8], mask: NDArray[np.bool_]) -> _Patch:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    return _Patch(*box, frame[box] / 255.0, background[box] / 255.0, mask[box])


def _piece(raster: Raster, mesh: Mesh, down: Array, patch: _Patch) -> _Piece:
    by_face = np.zeros((len(mesh.faces), len(mesh.part_names)))
    by_face[np.arange(len(mesh.faces)), mesh.part] = lambert(raster, down)
    average = raster.averaged(by_face[raster.faces_seen])
    average[..., :-1] *= average[..., -1:]
    placed = np.zeros((*patch.mask.shape, average.shape[-1]))
    rows, inner_rows = _overlap(raster.picture_window[0], patch.rows)
    columns, inner_columns = _overlap(raster.picture_window[1], patch.columns)
    placed[rows, columns] = average[inner_rows, inner_columns]
    cover = placed[..., -1:]
    target = patch.frame - (1.0 - cover) * patch.background
    return _Piece(placed[..., :-1][patch.mask], target[patch.mask], float(cover.sum()))


def _overlap(window: slice, box: slice) -> tuple[slice, slice]:
    """Where a window lies in a box, and which part of the window that is."""
    start, stop = max(window.start, box.start), max(min(window.stop, box.stop), max(window.start, box.start))
    return slice(start - box.start, stop - box.start), slice(start - window.start, stop - window.start)


def _log_likelihood(pieces: list[_Piece]) -> float:
    """Profile likelihood of all frames, each with its own noise level and colours near those of the clip."""
    normal = np.sum([p.weights.T @ p.weights for p in pieces], axis=0)
    right = np.sum([p.weights.T @ p.target for p in pieces], axis=0)
    ridge = 1e-3 * np.trace(normal) / len(normal) * np.eye(len(normal))
    common = np.linalg.solve(normal + ridge, right)
    total = 0.0
    for piece in pieces:
        own = piece.weights.T @ piece.weights
        hold = _RIDGE * np.trace(own) * np.eye(len(own)) + 1e-9 * np.eye(len(own))
        colors = np.linalg.solve(own + hold, piece.weights.T @ piece.target + hold @ common)
        mean_square = float(((piece.target - piece.weights @ colors) ** 2).mean())
        total -= 0.5 * 3.0 * piece.pixels / _CORRELATED_PX * np.log(mean_square + 1e-5)
    return total
