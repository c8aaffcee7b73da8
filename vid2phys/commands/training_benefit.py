"""Estimate before a training how much a trained model would help: how well the contour alone shows a rotation.

Without a model, a body is tracked by its silhouette (`tracking.mesh_tracker`). Silhouettes are drawn before and after
small rotations. What a shift or another distance could explain as well is left out (Schur complement), and the axis
that shows least counts. Of twelve meshes whose clips were tracked without a model, `LEAST_PX` divides eleven
(docs/decisions/047-short-training.md).

Limits: it knows the shape alone, neither the size in the frame nor blur, occlusion and colours. Edges inside the
contour are not counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.geometry import matrix_from_rotvec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vid2phys.types import Array, Mesh

LEAST_PX = 0.18
MOST_WRONG = 0.4  # packaged models are wrong by more than 20 deg in 14 to 29 % of the images
_ANGLE_RAD = np.deg2rad(5.0)
_SIZE_PX = 60.0  # diameter of the bounding sphere
_FINER = 4  # pixels of a drawing along one of the frame
_ORIENTATIONS, _FACES = 24, 1500
_DISTANCE_RADII = 10.0


def expected_benefit(mesh: Mesh) -> str:
    """Return in one line how well the body's contour shows its rotation, and whether a trained model would help."""
    moved = contour_motion(mesh)
    if moved is None:
        return "a plain ball shows its position alone, which needs no model"
    shows = f"a rotation by 5 deg moves the body's contour by {moved:.2f} px where the body is 60 px wide"
    if moved < LEAST_PX:
        return f"{shows}, which is little (a cube: 0.22): expect a model to help"
    return f"{shows}, which usually suffices without a model: one helps below 50 px, or before the colours of the body"


def doubt_of(validation: Mapping[str, float]) -> str | None:
    """Return what to say of a model that is too often wrong about held-out images to track with; None for a good one.

    validation: The last epoch's numbers of `networks.validate.KeypointValidation`.
    """
    wrong = validation["rotation_over_20deg"]
    if wrong <= MOST_WRONG:
        return None
    remedy = "train longer, or use `identify --model none`"
    return f"the model is wrong by more than 20 deg in {wrong:.0%} of held-out images: {remedy}"


def contour_motion(mesh: Mesh) -> float | None:
    """Return how far a rotation by 5 deg about the axis that shows least moves the contour, px; None for a ball.

    It is a mean along the contour and a median over orientations, for a body of 60 px. Rotations about an axis of
    revolution, which nothing shows, do not count.
    """
    from vid2phys.engine.pose_geometry import rotation_grid
    from vid2phys.io.simplify import simplified

    axes = _visible_axes(mesh)
    if not len(axes):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the caller has said so of its own simplification
        fewer = simplified(mesh, _FACES)
    vertices = fewer.vertices / np.linalg.norm(fewer.vertices, axis=1).max()
    grid = rotation_grid(4096)
    chosen = grid[np.linspace(0, len(grid) - 1, _ORIENTATIONS).astype(int)]
    return float(np.median([_motion(vertices, fewer.faces, rotation, axes) for rotation in chosen]))


def _visible_axes(mesh: Mesh) -> Array:
    """Return orthogonal axes [A, 3] in the body about which a rotation can show: three, two, or none of a ball."""
    from vid2phys.risp.shape.symmetry import axes_of_revolution

    hidden = np.asarray(axes_of_revolution(mesh)).reshape(-1, 3)
    if len(hidden) > 1:
        return np.zeros((0, 3))
    return np.linalg.svd(hidden, full_matrices=True)[2][len(hidden) :]


def _motion(vertices: Array, faces: NDArray[np.int64], rotation: Array, axes: Array) -> float:
    """Return the mean motion of the contour for the rotation about some axis that shows least, px of the frame."""
    import cv2

    step = matrix_from_rotvec(0.5 * _ANGLE_RAD * axes)
    ends = [(_mask(vertices, faces, rotation @ r), _mask(vertices, faces, rotation @ r.T)) for r in step]
    middle = _mask(vertices, faces, rotation)
    ends += [(np.roll(middle, _FINER // 2, axis=axis), np.roll(middle, -_FINER // 2, axis=axis)) for axis in (0, 1)]
    ends.append((_mask(vertices, faces, rotation, 1.01), _mask(vertices, faces, rotation, 0.99)))
    change = np.array([(after - before).ravel() for before, after in ends])
    gram, seen = change @ change.T, len(axes)
    explained = gram[:seen, seen:] @ np.linalg.pinv(gram[seen:, seen:]) @ gram[seen:, :seen]
    area = max(0.0, float(np.linalg.eigvalsh(gram[:seen, :seen] - explained)[0]))
    contours, _ = cv2.findContours(middle.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    length = sum(cv2.arcLength(contour, True) for contour in contours)
    return area / length / _FINER if length > 0.0 else 0.0  # a thin sheet vanishes from the side


def _mask(vertices: Array, faces: NDArray[np.int64], rotation: Array, grown: float = 1.0) -> NDArray[np.float64]:
    """Draw the silhouette of a body with radius 1; return 1 inside, 0 outside."""
    from vid2phys.tracking.cues.silhouette import draw_nearness

    side = int(1.2 * _SIZE_PX * _FINER)
    focal, middle = 0.5 * grown * _SIZE_PX * _FINER * _DISTANCE_RADII, 0.5 * (side - 1)
    placed = vertices @ rotation.T
    z = placed[:, 2] + _DISTANCE_RADII
    x, y = (focal * placed[:, k] / z + middle for k in (0, 1))
    return np.asarray(draw_nearness(x, y, z, faces, np.zeros(len(faces), bool), side, side) > 0.0, dtype=np.float64)
