"""Compute the pose of the rigid body that carries labelled markers.

The body's frame is as in Motive: its origin is the mean of its markers, its axes are the world's in the first frame
with most of them. `evaluate --align marker` finds where this frame lies on the mesh. Each frame's pose is the best
rigid motion from the markers' mean shape (Kabsch 1976, by singular values). The shape is refined over all frames
(Procrustes, by medians), so that it has markers which the first frame lacked.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.geometry import quat_from_matrix
from vid2phys.io.mocap._poses import choose_body
from vid2phys.types import Array

_ROUNDS = 10
_FLAT_CLOUD = 0.02  # a frame's markers count as on a line when their second extent is less of the first than this
_NOT_RIGID = 0.1  # of the body's radius: markers that move more than this against each other are not on one body
_OUTLIER = 5.0  # times the usual residual
_LEAST_OUTLIER = 0.02  # of the radius
_UNLABELLED = re.compile(r"(?:unlabell?ed|unnamed|uname)\W*\d*|\*\d*|u_?\d+|c_?\d{3,}|\d+|", re.IGNORECASE)


def choose_markers(path: str | Path, names: list[str], body: str | None) -> tuple[str, list[int]]:
    """Return the body's name and the indices of its markers.

    body: a group (`quad` for quad:1, quad:2 ... or quad1, quad2 ...) or marker names with commas between. Without it,
    the only group of at least three, or else all labelled markers. Raises InputError naming the markers.
    """
    labelled = [i for i, name in enumerate(names) if not _UNLABELLED.fullmatch(name.split(":")[-1].strip())]
    if body is not None and "," in body:
        wanted = [word.strip() for word in body.split(",")]
        missing = [word for word in wanted if word not in names]
        if missing or len(set(wanted)) < 3:
            got = f"'{path}' has no marker '{missing[0]}'" if missing else f"{len(set(wanted))} markers were named"
            there = ", ".join(names[i] for i in labelled[:24])
            raise InputError(got, f"three or more of {there}", "name the body's markers with --body A,B,C")
        return body, [names.index(word) for word in dict.fromkeys(wanted)]
    groups: dict[str, list[int]] = {}
    for i in labelled:
        groups.setdefault(_group(names[i]), []).append(i)
    groups = {name: members for name, members in groups.items() if len(members) >= 3}
    if groups:
        chosen = choose_body(path, list(groups), body, "groups of markers")
        return chosen, groups[chosen]
    if body is not None or len(labelled) < 3:
        got = f"'{path}' has {len(labelled)} labelled markers" + (f" and no body '{body}'" if body else "")
        there = ", ".join(names[i] for i in labelled[:24]) or "none"
        remedy = "label the body's markers and export again, or name them with --body A,B,C"
        raise InputError(got, f"three or more on one body; labelled are: {there}", remedy)
    return Path(path).stem, labelled


def poses_of_markers(path: str | Path, points: Array, names: list[str]) -> tuple[Array, Array]:
    """Return positions [T, 3] m and quaternions wxyz [T, 4] of a body, from its markers, [T, M, 3] m; gaps are NaN.

    A frame with fewer than three markers off one line is a gap. One in which a marker is far from where the others put
    it (swapped labels) is fitted without it, or is a gap. Raises InputError when the markers are not on one body.
    """
    seen = np.asarray(np.isfinite(points).all(axis=2))
    if seen.sum(axis=1).max(initial=0) < 3:
        raise InputError(f"no frame of '{path}' shows three of {', '.join(names)}", "three", "choose other markers")
    filled = np.where(seen[:, :, None], points, 0.0)
    first = int(np.argmax(seen.sum(axis=1)))
    shape, known = filled[first], seen[first]
    for _ in range(_ROUNDS):
        rotation, position, _, good = _fit(shape, filled, seen & known)
        if not good.any():
            raise InputError(f"the markers {', '.join(names)} of '{path}' are on a line", "three off one line", _CHOOSE)
        back = np.einsum("tji,tmj->tmi", rotation, filled - position[:, None])
        used = seen & good[:, None]
        shape, known = _middle(back, used), used.any(axis=0)
        shape = shape - shape[known].mean(axis=0)
        rotation, _, _, _ = _fit(shape, filled[first : first + 1], seen[first : first + 1] & known)
        shape = shape @ rotation[0].T  # axes as the world's in that frame
    radius = float(np.sqrt((shape[known] ** 2).sum(axis=1).mean()))
    rotation, position, residual, good = _without_outliers(shape, filled, seen & known, radius)
    typical = float(np.median(residual[good])) if good.any() else np.inf
    if typical > _NOT_RIGID * radius:
        got = f"the markers {', '.join(names)} of '{path}' move by {typical * 1e3:.3g} mm against each other"
        raise InputError(got, "markers on one rigid body", _CHOOSE)
    position[~good] = np.nan
    quats = np.full((len(points), 4), np.nan)
    quats[good] = quat_from_matrix(rotation[good])
    return position, quats


_CHOOSE = "name three or more markers of one body with --body A,B,C"


def _group(name: str) -> str:
    """Return what marker names of one body share: the part before the colon, or before the last number."""
    body, colon, _ = name.rpartition(":")
    return body if colon else re.sub(r"[\W_]*\d+$", "", name)


def _middle(points: Array, used: NDArray[np.bool_]) -> Array:
    """Return medians of each marker's positions, [M, 3], robust to a few swapped labels; zeros if unused."""
    masked = np.ma.array(points, mask=np.repeat(~used[:, :, None], 3, axis=2))
    return np.asarray(np.ma.median(masked, axis=0).filled(0.0))


def _fit(shape: Array, points: Array, seen: NDArray[np.bool_]) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Fit each frame by Kabsch's method.

    Return rotations [T, 3, 3], positions [T, 3], RMS residuals [T], and which frames are determined [T].
    """
    weight = seen / np.maximum(seen.sum(axis=1, keepdims=True), 1)
    middle = np.einsum("tm,tmi->ti", weight, points)
    shape_middle = weight @ shape
    off, shape_off = points - middle[:, None], shape[None] - shape_middle[:, None]
    u, _, vt = np.linalg.svd(np.einsum("tm,tmi,tmj->tij", weight, off, shape_off))
    mirror = np.sign(np.linalg.det(u @ vt))
    u[:, :, 2] *= np.where(mirror == 0.0, 1.0, mirror)[:, None]
    rotation = u @ vt
    position = middle - np.einsum("tij,tj->ti", rotation, shape_middle)
    miss = points - np.einsum("tij,mj->tmi", rotation, shape) - position[:, None]
    residual = np.sqrt(np.einsum("tm,tmi->t", weight, miss**2))
    extents = np.linalg.svd(shape_off * weight[:, :, None] ** 0.5, compute_uv=False)
    good = (seen.sum(axis=1) >= 3) & (extents[:, 1] > _FLAT_CLOUD * extents[:, 0])
    return rotation, position, residual, good


def _without_outliers(
    shape: Array, points: Array, seen: NDArray[np.bool_], radius: float
) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Fit each frame, and once more without the worst marker where the residual is far above the usual."""
    rotation, position, residual, good = _fit(shape, points, seen)
    if not good.any():
        return rotation, position, residual, good
    limit = max(_OUTLIER * float(np.median(residual[good])), _LEAST_OUTLIER * radius)
    for frame in np.flatnonzero(good & (residual > limit)):
        tries = np.array([seen[frame] & (np.arange(len(shape)) != m) for m in np.flatnonzero(seen[frame])])
        again = _fit(shape, np.repeat(points[frame : frame + 1], len(tries), axis=0), tries)
        best = int(np.argmin(np.where(again[3], again[2], np.inf)))
        rotation[frame], position[frame], residual[frame] = again[0][best], again[1][best], again[2][best]
        good[frame] = again[3][best] and residual[frame] <= limit
    return rotation, position, residual, good
