"""Measure the proportions of a tracked body beside those of its mesh.

A mesh that is not the object is often found by its place and size, with poses that make the best of it. Its contours
then ask for another shape. In some frames the mesh is fitted to the edges with a linear deformation in addition to its
pose. All frames share the deformation, and each frame's pose is free. The size as a whole trades against the distance,
so that only ratios of lengths count.

Edges of a print, or of a crease beside a side without contrast, ask for other proportions, too. Where all sides are
flat, the pixels have to agree: in some frames a body of these proportions explains them better than the mesh.

Limits: poses that are about right, and a shape that differs by more than a hole or a handle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes, one_thread
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR
from vid2phys.tracking.cues.contour_config import ContourConfig
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_steps import point_slopes, slopes
from vid2phys.tracking.cues.exposure import STILL
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.motion_blur import MotionBlur
from vid2phys.tracking.refine import fit_edges
from vid2phys.tracking.surface_refinement import surface_evidence
from vid2phys.types import Array, Camera, Mesh

_PAIRS = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))  # entries of a symmetric deformation
_POSE = 6


@dataclass(frozen=True, kw_only=True)
class ProportionsConfig:
    """Settings of `proportions`."""

    frames: int = 24
    """Largest number of frames that are fitted."""
    least_frames: int = 4
    """Least number of frames with enough edges."""
    pose_std: tuple[float, ...] = (0.15, 0.15, 0.15, 0.02, 0.02, 0.06)
    """Standard deviations [6] of the tracked poses, in their local coordinates."""
    rounds: int = 8
    """Number of rounds in which frames that disagree with the others count less."""
    deformation_std: float = 0.2
    """Standard deviation of each entry of the deformation."""
    judged_ratio: float = 1.06
    """Ratio from which on the pixels are asked."""
    judged_frames: int = 8
    """Number of frames whose pixels are asked."""
    within_shares: tuple[float, ...] = (0.02,)
    """Standard deviations of the edges' places, as `ContourConfig` has them; wider ones meet other edges, of prints."""

    def contour(self, path_px: tuple[float, float]) -> ContourConfig:
        """Return the settings of an edge fit. path_px: path of the body in the exposure of the frame."""
        return replace(CONTOUR, within_shares=self.within_shares, path_px=path_px)


DEFAULTS = ProportionsConfig()


@dataclass(frozen=True)
class Proportions:
    """How the body differs from its mesh.

    Attributes:
        ratio: largest ratio of two lengths of the body over the same ratio of the mesh, 1 or more.
        std: standard deviation of the logarithm of the ratio, from the scatter between frames.
        off_px: how far the outermost point of the mesh is off in a frame for this reason, px.
        agreement: share of frames whose pixels a body of these proportions explains better than the mesh; None where
            the pixels were not asked.
    """

    ratio: float
    std: float
    off_px: float
    agreement: float | None = None


@one_thread()
def proportions(
    poses: Pose,
    tracked: NDArray[np.bool_],
    frames: FrameStore,
    camera: Camera,
    mesh: Mesh,
    blur: MotionBlur | None = None,
    config: ProportionsConfig = DEFAULTS,
) -> Proportions | None:
    """Return how the proportions of a tracked body differ from those of its mesh; None for too few edges.

    Args:
        poses: [T] camera_from_body of each frame.
        tracked: [T] whether the pose counts.
        frames: of the clip.
        camera: of the clip.
        mesh: of the body.
        blur: of the clip; None for little.
        config: settings.
    """
    rows = np.flatnonzero(tracked & poses.is_finite)
    rows = rows[evenly(len(rows), config.frames)]
    solid = Solid.of(mesh)
    each = in_processes(
        lambda i: _of_frame(frames[i], camera.at(i), solid, poses[i], config, STILL if blur is None else blur.path(i)),
        rows.tolist(),
    )
    known = [found for found in each if found is not None]
    if len(known) < config.least_frames:
        return None
    information, pull = (np.stack(parts) for parts in zip(*known, strict=True))
    mean, covariance, left = _joint(information, pull, config)
    values, axes = np.linalg.eigh(_symmetric(mean))
    slope = np.outer(axes[:, -1], axes[:, -1]) - np.outer(axes[:, 0], axes[:, 0])
    along = np.array([(1.0 + (a != b)) * slope[a, b] for a, b in _PAIRS])
    scatter = left @ (covariance @ along)
    off_m = np.linalg.norm((mesh.vertices - _middle(mesh)) @ axes * (values - values.mean()), axis=1).max()
    off_px = off_m * float(camera.K[0, 0]) / float(np.median(np.linalg.norm(poses.translation[rows], axis=1)))
    ratio = float(np.exp(values[-1] - values[0]))
    agreement = None
    if ratio > config.judged_ratio and not camera.moves:
        some = rows[evenly(len(rows), config.judged_frames)].tolist()
        agreement = _agreement(frames, camera, solid, _symmetric(mean), {i: poses[i] for i in some})
    return Proportions(ratio, float(np.sqrt((scatter**2).sum())), float(off_px), agreement)


def _agreement(
    frames: FrameStore, camera: Camera, solid: Solid, deformation: Array, tracked: dict[int, Pose]
) -> float | None:
    """Return the share of frames whose pixels a deformed mesh explains better; None for a body with curved sides."""
    middle = _middle(solid.mesh)
    vertices = (solid.mesh.vertices - middle) @ (np.eye(3) + deformation) + middle
    bodies, foreground = (solid, Solid.of(replace(solid.mesh, vertices=vertices))), Foreground.of(frames, list(tracked))
    found = [surface_evidence(frames, camera, body, foreground, tracked) for body in bodies]
    return None if found[0] is None or found[1] is None else float((found[1] > found[0]).mean())


def _joint(information: Array, pull: Array, config: ProportionsConfig) -> tuple[Array, Array, Array]:
    """Return the deformation [6] of all frames, its stated covariance [6, 6], and what each frame pulls, [n, 6].

    Some poses are wrong, as after a bounce. Frames that disagree count less (Cauchy).
    """
    weight = np.ones((len(pull), 1))
    weak = np.eye(len(_PAIRS)) / config.deformation_std**2
    for _ in range(config.rounds):
        covariance = np.linalg.inv((weight[..., None] * information).sum(axis=0) + weak)
        mean = covariance @ (weight * pull).sum(axis=0)
        left = pull - information @ mean
        squares = np.einsum("ni,ni->n", left, np.linalg.solve(information + weak, left[..., None])[..., 0])
        weight = 1.0 / (1.0 + squares / max(float(np.median(squares)), 1e-12))[:, None]
    return mean, covariance, weight * left


def _middle(mesh: Mesh) -> Array:
    """Return the middle [3] of the box around a mesh, m."""
    return np.asarray(0.5 * (mesh.vertices.min(axis=0) + mesh.vertices.max(axis=0)))


def _symmetric(entries: Array) -> Array:
    """Return the symmetric matrix [3, 3] of six entries."""
    matrix = np.zeros((3, 3))
    for (a, b), value in zip(_PAIRS, entries, strict=True):
        matrix[a, b] = matrix[b, a] = value
    return matrix


@dataclass(frozen=True)
class _Deformed:
    """A mesh that is deformed about its middle, at a pose (see `refine.PlacedMesh`)."""

    mesh: Mesh
    middle: Array
    pose: Pose
    deformation: Array

    def vertices(self) -> Array:
        return self.pose.apply((self.mesh.vertices - self.middle) @ self.deformation.T + self.middle)

    def slopes(self, points: Array, along: Array) -> Array:
        normal = point_slopes(points, along) @ self.pose.rotation
        place = (points - self.pose.translation) @ self.pose.rotation - self.middle
        entries = [
            normal[:, a] * place[:, b] + (a != b) * normal[:, b] * place[:, a]  # a symmetric step
            for a, b in _PAIRS
        ]
        return np.concatenate([slopes(points, along, self.pose.translation), np.stack(entries, axis=-1)], axis=1)

    def moved(self, step: Array) -> tuple[_Deformed, Array]:
        deformation = (np.eye(3) + _symmetric(step[_POSE:])) @ self.deformation
        return replace(self, pose=self.pose.retract(step[:_POSE]), deformation=deformation), step


def _of_frame(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    pose: Pose,
    config: ProportionsConfig,
    path_px: tuple[float, float] = STILL,
) -> tuple[Array, Array] | None:
    """Return what a frame states of the deformation: information [6, 6], and information times value [6]."""
    std = np.append(config.pose_std, np.full(len(_PAIRS), config.deformation_std))
    start = _Deformed(solid.mesh, _middle(solid.mesh), pose, np.eye(3))
    prior = np.diag(std**-2.0)
    contour = config.contour(path_px)
    fit = fit_edges(frame, camera, solid, start, prior, std, config=contour)
    if fit is None:
        return None
    moved, edges = fit[0], fit[1] / contour.overconfidence
    skewed = 0.5 * (moved.deformation + moved.deformation.T) - np.eye(3)
    value = np.append(pose.step_to(moved.pose), [skewed[a, b] for a, b in _PAIRS])
    pull = (edges + prior) @ value
    of_pose = edges[:_POSE, :_POSE] + prior[:_POSE, :_POSE]
    across = np.linalg.solve(of_pose, edges[:_POSE, _POSE:]).T
    return edges[_POSE:, _POSE:] - across @ edges[:_POSE, _POSE:], pull[_POSE:] - across @ pull[:_POSE]
