"""The pose of a mesh by its outline in one frame: edges on lines across the outline, Newton steps on the pose.

After region-based tracking on correspondence lines (Stoiber et al., SRT3D, IJCV 2021; Tjaden et al., TPAMI 2018). The
energy is a robust sum over lines of (n . (x(pose) - x) - mean)^2 / variance, with the mean and the variance of the
edge's place on the line (`edge_lines`), plus the prior of the pose that it starts from. Needs no learnt appearance and
no other frame, and leaves a pose alone where nothing stands out from what is behind it.

Limits: errors of a quarter of the body's size and gross ones (a pose's mirror twin) are beyond its reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import project
from vid2phys.risp.pixels.align import MODES, PRIOR_STD, moved
from vid2phys.risp.pixels.edge_lines import find_edges
from vid2phys.risp.pixels.outline import Outline, outline_of
from vid2phys.types import Array, Camera, Mesh

# Where edges may be, standard deviations as shares of the body's size, a round; never less than _LEAST_WITHIN_PX. The
# last is repeated until the outline moves by less than a share of it.
_WITHIN = (0.04, 0.015, 0.01)
_MOST_ROUNDS = 5
_STILL = 0.2
_DRAWN_AFTER = 1  # this round the outline is drawn anew, at a pose that is nearly right
_LEAST_WITHIN_PX = 0.6
_SLACK = 0.2  # by which edges that far away may differ from what a line can tell, of where they may be
_STEPS = 3  # a round
# On held-out looks edges are off together by more than neighbours show: variances are larger by this. How much the
# pose is off in the end is calibrated (`contour_errors`).
_OVERCONFIDENT = 9.0
_ROBUST_SIGMA = 3.0  # lines beyond count less (Cauchy)
_CHI2_MEDIAN = 0.455  # of one degree of freedom
_LEAST_LINES = 12
_LEAST_LEVEL = 0.02
_DOUBTFUL = 0.7  # level from which on other starts are tried,
_ASIDE_SIGMA = 1.5  # so far away
_MOST_ALIKE = 30  # lines in a row


@dataclass(frozen=True)
class Contour:
    """rotation [3, 3], translation [3] m: camera_from_body. information: [6, 6] of the edges alone, as their scatter
    says, in the modes of `align.moved` about this pose (many times too much on real looks). prior: [6, 6]
    what was known before. lines: that say something. level: mean square of what edges are off over what they state.
    nats: what edges and prior have against it, to compare fits of one frame by."""

    rotation: Array
    translation: Array
    information: Array
    prior: Array
    lines: int
    level: float
    nats: float

    @property
    def covariance(self) -> Array:
        """Of edges and prior together, [6, 6], before it is scaled to what held-out looks showed."""
        return np.asarray(np.linalg.inv(self.information / _OVERCONFIDENT + self.prior))


@dataclass(frozen=True)
class Energy:
    """Of poses near (rotation, translation), at which the outline was drawn, given edges on N lines.

    mean, variance: [N] px. level: by which variances are too small. alike: lines that count as one.
    """

    camera: Camera
    outline: Outline
    rotation: Array
    translation: Array
    mean: Array
    variance: Array
    level: float = 1.0
    alike: float = 1.0

    def residual(self, step: Array) -> Array:
        """Distances [N] px of the outline from the edges, along the normals, of the pose moved by a step [6]."""
        pixels = project(self.camera, self._points(step)[0])
        return np.asarray(((pixels - self.outline.pixels) * self.outline.normals).sum(-1) - self.mean)

    def jacobian(self) -> Array:
        """d residual / d step at none, [N, 6]."""
        points, t = self.outline.points, self.translation
        along = (self.outline.normals[:, None] @ self.outline.to_pixels)[:, 0] / points[:, 2:]
        by_depth = -(along * points[:, :2]).sum(axis=-1) / points[:, 2]
        gradient = np.column_stack([along, by_depth])  # by the point in camera axes, px / m
        (x, y, z), (u, v, w) = (points - t).T, gradient.T
        by_turn = [y * w - z * v, z * u - x * w, x * v - y * u]
        return np.column_stack([*by_turn, gradient[:, :2] * np.linalg.norm(t), gradient @ t])

    def _points(self, step: Array) -> tuple[Array, Array]:
        local = (self.outline.points - self.translation) @ self.rotation
        rotation, translation = moved(self.rotation, self.translation, step)
        return local @ rotation.T + translation, translation

    def levelled(self, residual: Array) -> Energy:
        """With variances scaled to residuals [N]: half of the lines lie within 0.67 sigma, and
        neighbours that err alike count as fewer."""
        from vid2phys.risp.pixels.edge_likelihood import alike

        normal = residual / np.sqrt(self.variance)
        level = max(float(np.median(normal**2)) / _CHI2_MEDIAN, _LEAST_LEVEL)
        return replace(self, level=level, alike=alike(normal / np.sqrt(level), _MOST_ALIKE))

    def value(self, step: Array) -> float:
        """Nats."""
        square = self.residual(step) ** 2 / (self.variance * self.level)
        return float(0.5 / self.alike * (_ROBUST_SIGMA**2 * np.log1p(square / _ROBUST_SIGMA**2)).sum())

    def normal(self, residual: Array, jacobian: Array) -> tuple[Array, Array]:
        """Gradient [6], and the Hessian [6, 6] without second derivatives of the projection and the robust cost."""
        variance = self.variance * self.level
        weight = 1.0 / (self.alike * (variance + residual**2 / _ROBUST_SIGMA**2))
        return jacobian.T @ (weight * residual), (jacobian.T * weight) @ jacobian


def fit_contour(
    frame: NDArray[np.uint8],
    camera: Camera,
    mesh: Mesh,
    rotation: Array,
    translation: Array,
    *,
    prior: Array | None = None,
) -> Contour | None:
    """Fit a pose camera_from_body to the outline in a frame [H, W, 3].

    prior: [6, 6] information about the given pose in its modes; weak unless given. None where too few lines say where
    the edge is. Edges of a box are as parallel after a small turn as before: where they do not lie where a fit has
    them, others begin aside of the pose, in the directions in which it is least known.
    """
    prior = np.diag(PRIOR_STD**-2.0) if prior is None else prior
    best = _fit(frame, camera, mesh, rotation, translation, prior, np.zeros(MODES))
    if best is None or best.level < _DOUBTFUL:
        return best
    for start in _aside(prior):
        other = _fit(frame, camera, mesh, rotation, translation, prior, start)
        if other is not None and other.nats < best.nats:
            best = other
    return best


def _aside(prior: Array) -> Array:
    """Steps [4, 6] from a pose with information `prior` to either side along the two axes of its largest errors."""
    scaled = np.linalg.inv(prior) / np.outer(PRIOR_STD, PRIOR_STD)
    values, axes = np.linalg.eigh(scaled)
    steps = PRIOR_STD * (_ASIDE_SIGMA * np.sqrt(values[-2:]) * axes[:, -2:]).T
    return np.concatenate([steps, -steps])


def _fit(
    frame: NDArray[np.uint8],
    camera: Camera,
    mesh: Mesh,
    rotation: Array,
    translation: Array,
    prior: Array,
    start: Array,
) -> Contour | None:
    """`fit_contour` from a pose moved by a step [6]."""
    rotation, translation = moved(rotation, translation, start)
    most = 2.0 * PRIOR_STD  # a step
    total, step, energy = start, np.zeros(MODES), None
    here, jacobian = np.zeros(0), np.zeros((0, MODES))
    outline = outline_of(mesh, camera, rotation, translation)
    for k in range(_MOST_ROUNDS):
        if outline is None:
            return None
        within = max(_LEAST_WITHIN_PX, _WITHIN[min(k, len(_WITHIN) - 1)] * outline.size_px)
        energy = _edges(frame, camera, outline, rotation, translation, within)
        if energy is None:
            return None
        step, here, jacobian = np.zeros(MODES), -energy.mean, energy.jacobian()
        for at in range(_STEPS):  # the edges are looked for anew before the outline's motion bends
            residual = here + jacobian @ step
            energy = energy.levelled(residual) if at else energy  # residuals of a wrong pose say nothing about edges
            gradient, hessian = (part / _OVERCONFIDENT for part in energy.normal(residual, jacobian))
            newton = np.linalg.solve(hessian + prior, -gradient - prior @ (total + step))
            step = step + np.clip(newton, -most, most)
        before = rotation, translation
        rotation, translation = moved(rotation, translation, step)
        total = total + step
        if k >= len(_WITHIN) - 1 and ((jacobian @ step) ** 2).mean() < (_STILL * within) ** 2:
            break
        if k == _DRAWN_AFTER:
            outline = outline_of(mesh, camera, rotation, translation)
        else:
            outline = outline.moved(rotation @ before[0].T, before[1], translation)
    assert energy is not None
    residual = here + jacobian @ step
    energy = energy.levelled(residual)
    information = energy.normal(residual, jacobian)[1]
    nats = 0.5 * len(energy.mean) / energy.alike * np.log(energy.level) + 0.5 * float(total @ prior @ total)
    return Contour(rotation, translation, information, prior, len(energy.mean), energy.level, nats)


def _edges(
    frame: NDArray[np.uint8], camera: Camera, outline: Outline, rotation: Array, translation: Array, within: float
) -> Energy | None:
    """The energy near a pose with edges looked for within so many pixels."""
    edges = find_edges(frame, outline, within)
    used = np.isfinite(edges.variance)
    if used.sum() < _LEAST_LINES:
        return None
    variance = edges.variance[used] + (_SLACK * within) ** 2
    return Energy(camera, outline.select(used), rotation, translation, edges.mean[used], variance)
