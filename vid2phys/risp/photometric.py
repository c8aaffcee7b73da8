"""Which branch of a symmetric body explains the pixels best: evidence from the clip itself, without training.

Every part of the mesh has one colour, lit from above; the colours are fitted by least squares for each branch, and the
branch that leaves the smallest residual over the clip is the likeliest. Edges of the body against what is behind it
count too: the background is the clip's own (`backdrop`). Fitted poses are a little wrong, in each branch in its own
way, so every frame is first aligned to its pixels; otherwise the comparison would judge the alignment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.rasterizer import Raster, lambert, rasterize_camera
from vid2phys.rotations import matrix_from_rotvec
from vid2phys.types import Array, Camera, Clip, Mesh

FIRST_LOOKS, FINAL_LOOKS = 8, 16  # frames in which all branches are compared, and those that come out close
_CLOSE_NATS = 300.0
_SUPERSAMPLE = 3
_BACKDROP_FRAMES = 15
_MARGIN_PX = 3
_RIDGE = 0.05  # how firmly a frame's colours are held to those of the clip
_BLUR_PX = 1.5
_CORRELATED_PX = 28.0  # neighbouring pixels err together, after the blur: this many count as one
_NOISE = 0.005  # of a pixel, full scale 1
_ALIGN_STEPS = 3
# how wrong a fitted pose may be, and steps of differences: rotation [rad], sideways [fraction of the range], log depth
_POSE_STD = np.array([0.06, 0.06, 0.06, 2e-3, 2e-3, 0.04])
_DIFFERENCE = np.array([0.02, 0.02, 0.02, 3e-4, 3e-4, 8e-3])


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
    chosen = np.unique(np.linspace(0, len(at) - 1, FINAL_LOOKS).astype(int))
    frames = clip.frames.sample(at[chosen])
    masks = np.stack([grown(_draw(camera, mesh, rotation[i], translation[i]).mask, _MARGIN_PX) for i in chosen])
    shown = np.flatnonzero(masks.any(axis=(1, 2)))
    background, down = backdrop(frames, masks), -np.asarray(camera.camera_to_world)[2, :3]
    patches = [_patch(frames[n], background, masks[n]) for n in shown]

    def looks(branch: Array, stride: int) -> list[_Look]:
        pairs = zip(chosen[shown][::stride], patches[::stride], strict=True)
        return [_Look(mesh, camera, down, rotation[i] @ branch.T, translation[i], patch) for i, patch in pairs]

    stride = max(1, len(shown) // FIRST_LOOKS)
    total = _compare([looks(branch, stride) for branch in branches], len(at) / divisor, _ALIGN_STEPS - 1)
    close = np.flatnonzero(total > -_CLOSE_NATS)
    if len(close) > 1 and stride > 1:
        total[close] = _compare([looks(branches[g], 1) for g in close], len(at) / divisor, _ALIGN_STEPS)
    return total


def _compare(branches: list[list[_Look]], frames: float, iterations: int) -> Array:
    """Log-likelihoods of the branches, the best at zero, as of so many independent frames."""
    total = np.array([_aligned_log_likelihood(looks, iterations) for looks in branches])
    return (total - total.max()) * frames / max(len(branches[0]), 1)


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
    the parts have to add to the background's share.
    """

    weights: Array
    target: Array


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
    target = _blurred(patch.frame - (1.0 - placed[..., -1:]) * patch.background)
    placed = _blurred(placed)
    return _Piece(placed[..., :-1][patch.mask], target[patch.mask])


def _blurred(picture: Array) -> Array:
    """The picture [h, w, C] out of focus: small errors of a pose then change it smoothly."""
    from scipy.ndimage import gaussian_filter

    return np.asarray(gaussian_filter(picture, (_BLUR_PX, _BLUR_PX, 0.0), mode="nearest", truncate=2.5))


def _overlap(window: slice, box: slice) -> tuple[slice, slice]:
    """Where a window lies in a box, and which part of the window that is."""
    start, stop = max(window.start, box.start), max(min(window.stop, box.stop), max(window.start, box.start))
    return slice(start - box.start, stop - box.start), slice(start - window.start, stop - window.start)


@dataclass(frozen=True)
class _Look:
    """One frame of a branch at a pose that may be a little wrong."""

    mesh: Mesh
    camera: Camera
    down: Array
    rotation: Array
    translation: Array
    patch: _Patch

    def piece(self, step: Array) -> _Piece:
        """At the pose moved by [6]: rotation vector in camera axes, sideways as fractions of the range, log depth."""
        sideways = np.array([step[3], step[4], 0.0]) * self.translation[2]
        moved = (self.translation + sideways) * np.exp(step[5])
        raster = _draw(self.camera, self.mesh, matrix_from_rotvec(step[:3]) @ self.rotation, moved, _SUPERSAMPLE)
        return _piece(raster, self.mesh, self.down, self.patch)


def _aligned_log_likelihood(looks: list[_Look], iterations: int) -> float:
    """Profile likelihood of all frames over small errors of their poses, colours near those of the clip."""
    common = _common_colors([look.piece(np.zeros(6)) for look in looks])
    steps = [_align(look, common, iterations) for look in looks]
    pieces = [look.piece(step) for look, step in zip(looks, steps, strict=True)]
    common = _common_colors(pieces)
    total = 0.0
    for piece, step in zip(pieces, steps, strict=True):
        residual = _residual(piece, common)  # as many numbers in every branch
        total -= 0.5 * residual.size / _CORRELATED_PX * np.log(float((residual**2).mean()) + _NOISE**2)
        total -= 0.5 * float(((step / _POSE_STD) ** 2).sum())
    return total


def _align(look: _Look, common: Array, iterations: int) -> Array:
    """Most probable pose error [6] of a frame by Gauss-Newton with differences, colours solved for at every pose."""
    best, residual = np.zeros(6), _residual(look.piece(np.zeros(6)), common)
    for _ in range(iterations):
        level = (float((residual**2).mean()) + _NOISE**2) * _CORRELATED_PX
        moved = [_residual(look.piece(best + delta), common) for delta in np.diag(_DIFFERENCE)]
        jacobian = np.stack([(m - residual) / d for m, d in zip(moved, _DIFFERENCE, strict=True)], axis=1)
        normal = jacobian.T @ jacobian / level + np.diag(_POSE_STD**-2.0)
        step = np.linalg.solve(normal, -jacobian.T @ residual / level - best / _POSE_STD**2)
        candidate = best + step
        tried = _residual(look.piece(candidate), common)
        if _posterior(tried, candidate, level) >= _posterior(residual, best, level):
            candidate = best + 0.4 * step
            tried = _residual(look.piece(candidate), common)
            if _posterior(tried, candidate, level) >= _posterior(residual, best, level):
                break
        best, residual = candidate, tried
    return best


def _posterior(residual: Array, step: Array, level: float) -> float:
    return 0.5 * float((residual**2).sum()) / level + 0.5 * float(((step / _POSE_STD) ** 2).sum())


def _common_colors(pieces: list[_Piece]) -> Array:
    """Colours of the parts over all frames, [parts, 3]."""
    normal = np.sum([p.weights.T @ p.weights for p in pieces], axis=0)
    right = np.sum([p.weights.T @ p.target for p in pieces], axis=0)
    ridge = 1e-3 * np.trace(normal) / len(normal) * np.eye(len(normal))
    return np.asarray(np.linalg.solve(normal + ridge, right))


def _residual(piece: _Piece, common: Array) -> Array:
    """What a frame's own colours, held to the clip's, leave unexplained, [3 N]."""
    own = piece.weights.T @ piece.weights
    hold = (_RIDGE * np.trace(own) + 1e-9) * np.eye(len(own))
    colors = np.linalg.solve(own + hold, piece.weights.T @ piece.target + hold @ common)
    return np.asarray((piece.target - piece.weights @ colors).ravel())
