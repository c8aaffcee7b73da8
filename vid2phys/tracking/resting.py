"""A body at rest on a known ground lies on a face of its convex hull, so that few rotations are possible.

Purpose: a flat or a tall body has two poses with nearly the same silhouette, mirrored along the line of sight. At rest
only one of them lies on a face.

Method: in one frame of each rest, the fit is turned onto each face on which the body is stable, and about the vertical.
From there the silhouette fits it again, and the best of these poses move along the ground. The best one replaces the
fits of the rest that are not near it. It replaces those of the frames beside the rest that are far from it, as long as
it explains the images nearly as well.

Limits: a body that leans against something stays as it was found. So does one that lies on a curved side, whose faces
are too narrow to be stable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from vid2phys.geometry import Pose, matrix_from_rotvec, shortest_rotation
from vid2phys.risp.networks.model import Shape
from vid2phys.risp.shape.rotation_groups import nearest_element, under_element
from vid2phys.tracking.ground import Ground
from vid2phys.tracking.silhouette_fit import Fit, FrameForeground
from vid2phys.types import Array, Mesh

_STABLE = 0.02  # least probability of a face on which a thrown body ends
_QUARTERS, _ROUNDS = 4, 3  # about the vertical, and rounds in which silhouette and ground take turns
_SEARCHED, _TRIED = 6, 60  # best poses on faces that are moved along the ground, and poses that are tried for each
_MOVED = 0.1  # first step of such a search, rad, and as a share of the body's radius
_ENOUGH = 0.9  # share of a fit's evidence that a pose on a face has to reach
_NEAR, _APART = np.radians(3.0), np.radians(10.0)  # from which on a fit is another pose, at rest and beside it


def laid(
    fits: Mapping[int, Fit],
    still: Collection[int],
    ground: Ground,
    mesh: Mesh,
    shape: Shape,
    seen: Callable[[int], FrameForeground],
) -> dict[int, Fit]:
    """Return fits by frame. At rest, the best pose on a face replaces fits that are far from it.

    still: frames in which the body rests. seen: returns a frame with its foreground.
    """
    found = dict(fits)
    if not still:
        return found
    rows, normals = np.array(sorted(still), dtype=np.int64), stable_normals(mesh)
    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        middle = int(run[len(run) // 2])
        best = _best_on_faces(seen(middle), found[middle].pose, ground, mesh, normals)
        if best is None:
            continue
        before = found[max((i for i in found if i < run[0]), default=middle)].pose
        pose = _nearest(best.pose, before, shape)
        for i in run.tolist():
            found[i] = _near(seen, i, found[i], pose, shape, _NEAR) or found[i]
        for step, i in ((-1, int(run[0]) - 1), (1, int(run[-1]) + 1)):
            while i in found and (fit := _near(seen, i, found[i], pose, shape, _APART)) is not None:
                found[i], i = fit, i + step
    return found


def stable_normals(mesh: Mesh) -> Array:
    """Return the directions [N, 3], in the body's axes, that point up where the body lies on a stable face.

    Source: Goldberg et al., "Part pose statistics: estimators and experiments", IEEE Transactions on Robotics and
    Automation 1999, as trimesh has it.
    """
    import trimesh

    hull = trimesh.convex.convex_hull(mesh.vertices)
    placed, _ = trimesh.poses.compute_stable_poses(hull, sigma=0.0, n_samples=1, threshold=_STABLE)
    return np.array([each[2, :3] for each in placed]).reshape(-1, 3)


def _best_on_faces(seen: FrameForeground, pose: Pose, ground: Ground, mesh: Mesh, normals: Array) -> Fit | None:
    """Return the best fit on a face, searched from a pose; None where the pose explains the image much better."""
    found = list[Fit]()
    for normal in normals:
        for quarter in range(_QUARTERS):
            about = matrix_from_rotvec(2.0 * np.pi * quarter / _QUARTERS * ground.normal)
            placed = _on_face(_turned(pose, about @ pose.rotation, mesh), normal, ground, mesh)
            tried = list[Fit]()
            for _ in range(_ROUNDS):
                tried.append(seen.judged(placed, None))
                again = seen.fitted_from(placed)
                if again is None:
                    break
                placed = _on_face(again.pose, normal, ground, mesh)
            found.append(max(tried, key=lambda fit: fit.nats))
    ranked = sorted(found, key=lambda fit: -fit.nats)[:_SEARCHED]
    best = max((_moved_along(seen, fit, ground, mesh) for fit in ranked), key=lambda fit: fit.nats, default=None)
    return best if best is not None and best.nats > _ENOUGH * seen.judged(pose, None).nats else None


def _moved_along(seen: FrameForeground, fit: Fit, ground: Ground, mesh: Mesh) -> Fit:
    """Return the best fit near one, moved along the ground and turned about the vertical (Nelder and Mead, 1965)."""
    from scipy.optimize import minimize

    basis = _upright(ground.normal)[:, :2] * (_MOVED * mesh.radius_m)

    def at(step: Array) -> Fit:
        turned = _turned(fit.pose, matrix_from_rotvec(_MOVED * step[2] * ground.normal) @ fit.pose.rotation, mesh)
        return seen.judged(replace(turned, translation=turned.translation + basis @ step[:2]), None)

    simplex = np.vstack([np.zeros(3), np.eye(3)])
    options = {"initial_simplex": simplex, "maxfev": _TRIED, "xatol": 0.02, "fatol": 0.1}
    best = at(minimize(lambda step: -at(step).nats, np.zeros(3), method="Nelder-Mead", options=options).x)
    return best if best.nats > fit.nats else fit


def _near(
    seen: Callable[[int], FrameForeground], i: int, fit: Fit, pose: Pose, shape: Shape, apart: float
) -> Fit | None:
    """Return a fit of frame i within an angle of a pose; None where its fit is, or explains the image much better."""
    if _angle(pose, fit.pose, shape) < apart:
        return None
    frame = seen(i)
    again = frame.fitted_from(pose)
    if again is None or _angle(pose, again.pose, shape) > apart:
        again = frame.judged(pose, None)
    return again if again.nats > _ENOUGH * frame.judged(fit.pose, None).nats else None


def _on_face(pose: Pose, normal: Array, ground: Ground, mesh: Mesh) -> Pose:
    """Return a pose turned until `normal` [3] of the body points up, then moved along the line of sight to touch."""
    up = pose.rotation @ normal
    basis = _upright(up)
    turned = _turned(pose, basis @ _upright(basis.T @ ground.normal) @ basis.T @ pose.rotation, mesh)
    share = ground.share_to_touch(turned, mesh)
    return Pose(turned.rotation, share * turned.translation) if 0.5 < share < 2.0 else turned


def _upright(direction: Array) -> Array:
    """Return a rotation [3, 3] that takes z to `direction` [3], half a turn about x where it points along -z."""
    return shortest_rotation(direction) if direction[2] > -1.0 + 1e-9 else np.diag([1.0, -1.0, -1.0])


def _turned(pose: Pose, rotation: Array, mesh: Mesh) -> Pose:
    """Return a pose with another rotation [3, 3] and the same place of the middle of the mesh."""
    middle = mesh.vertices.mean(axis=0)
    return Pose(rotation, pose.translation + (pose.rotation - rotation) @ middle)


def _nearest(pose: Pose, other: Pose, shape: Shape) -> Pose:
    """Return the pose that looks like `pose` and has the rotation nearest to the other one's."""
    return under_element(pose, shape.rotations[nearest_element(pose, other, shape.rotations)], shape.center)


def _angle(a: Pose, b: Pose, shape: Shape) -> float:
    """Return the least angle from one pose to another, under the symmetry of the body."""
    trace = float((a.rotation * _nearest(b, a, shape).rotation).sum())
    return float(np.arccos(np.clip(0.5 * (trace - 1.0), -1.0, 1.0)))
