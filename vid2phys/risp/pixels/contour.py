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

from vid2phys.engine.observe import bearing_jacobian_to_pixels, project, to_bearings
from vid2phys.risp.pixels.align import MODES, PRIOR_STD, moved
from vid2phys.risp.pixels.edge_lines import find_edges, linear_light
from vid2phys.risp.pixels.outline import Outline, outline_of
from vid2phys.risp.tracking.geometry import modes_of_points
from vid2phys.types import Array, Camera, Mesh

# Where edges may be, standard deviations as shares of the body's size, a round; never less than _LEAST_WITHIN_PX.
_WITHIN = (0.04, 0.02, 0.01, 0.01)
_LEAST_WITHIN_PX = 0.6
_SLACK = 0.2  # by which edges that far away may differ from what a line can tell, of where they may be
_STEPS = 3  # a round
# On held-out looks edges are off together by more than neighbours show: variances are larger by this.
_OVERCONFIDENT = 9.0
_STATED = 20.0  # the same for the covariance that is stated, which has to hold for wrong edges as well
_ROBUST_SIGMA = 3.0  # lines beyond count less (Cauchy)
_CHI2_MEDIAN = 0.455  # of one degree of freedom
_LEAST_LINES = 12
_LEAST_LEVEL = 0.02
_MOST_ALIKE = 30  # lines in a row
_MARGIN_PX = 20.0


@dataclass(frozen=True)
class Contour:
    """rotation [3, 3], translation [3] m: camera_from_body. information: [6, 6] of the edges alone, as their scatter
    says, in the modes of `align.moved` about this pose (some 20 times too much on real looks). prior: [6, 6]
    what was known before. lines: that say something. level: mean square of what edges are off over what they state."""

    rotation: Array
    translation: Array
    information: Array
    prior: Array
    lines: int
    level: float

    @property
    def covariance(self) -> Array:
        """Of edges and prior together, [6, 6]."""
        return np.asarray(np.linalg.inv(self.information / _STATED + self.prior))


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

    def jacobian(self, step: Array) -> Array:
        """d residual / d a further step, [N, 6]."""
        points, translation = self._points(step)
        to_pixels = bearing_jacobian_to_pixels(self.camera, to_bearings(points))
        along = self.outline.normals[:, None] @ to_pixels
        return np.asarray((along @ modes_of_points(points, translation))[:, 0])

    def _points(self, step: Array) -> tuple[Array, Array]:
        local = (self.outline.points - self.translation) @ self.rotation
        rotation, translation = moved(self.rotation, self.translation, step)
        return local @ rotation.T + translation, translation

    def levelled(self, residual: Array) -> Energy:
        """With variances scaled to residuals [N]: half of the lines lie within 0.67 sigma, and
        neighbours that err alike count as fewer."""
        normal = residual / np.sqrt(self.variance)
        level = max(float(np.median(normal**2)) / _CHI2_MEDIAN, _LEAST_LEVEL)
        return replace(self, level=level, alike=_alike(normal / np.sqrt(level)))

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
    the edge is.
    """
    prior = np.diag(PRIOR_STD**-2.0) if prior is None else prior
    most = 2.0 * PRIOR_STD  # a step
    total, step, energy = np.zeros(MODES), np.zeros(MODES), None
    here, jacobian = np.zeros(0), np.zeros((0, MODES))
    for share in _WITHIN:
        energy = _edges(frame, camera, mesh, rotation, translation, share)
        if energy is None:
            return None
        step = np.zeros(MODES)
        here, jacobian = energy.residual(step), energy.jacobian(step)
        for k in range(_STEPS):  # the edges are looked for anew before the outline's motion bends
            residual = here + jacobian @ step
            energy = energy.levelled(residual) if k else energy  # residuals of a wrong pose say nothing about edges
            gradient, hessian = (part / _OVERCONFIDENT for part in energy.normal(residual, jacobian))
            newton = np.linalg.solve(hessian + prior, -gradient - prior @ (total + step))
            step = step + np.clip(newton, -most, most)
        rotation, translation = moved(rotation, translation, step)
        total = total + step
    assert energy is not None
    residual = here + jacobian @ step
    energy = energy.levelled(residual)
    information = energy.normal(residual, jacobian)[1]
    return Contour(rotation, translation, information, prior, len(energy.mean), energy.level)


def _edges(
    frame: NDArray[np.uint8], camera: Camera, mesh: Mesh, rotation: Array, translation: Array, share: float
) -> Energy | None:
    """The energy near a pose with edges looked for within a share of the body's size."""
    outline = outline_of(mesh, camera, rotation, translation)
    if outline is None:
        return None
    within = max(_LEAST_WITHIN_PX, share * float(np.ptp(outline.pixels, axis=0).max()))
    light, origin = _patch(frame, outline, _MARGIN_PX + 10.0 * within)
    if min(light.shape) == 0:
        return None
    edges = find_edges(light, origin, outline, within)
    used = np.isfinite(edges.variance)
    if used.sum() < _LEAST_LINES:
        return None
    variance = edges.variance[used] + (_SLACK * within) ** 2
    return Energy(camera, outline.select(used), rotation, translation, edges.mean[used], variance)


def _patch(frame: NDArray[np.uint8], outline: Outline, margin: float) -> tuple[NDArray[np.float32], Array]:
    """The light around an outline, [h, w, 3], and its first pixel (x, y)."""
    low = np.maximum(np.floor(outline.pixels.min(axis=0) - margin), 0).astype(int)
    high = np.maximum(np.minimum(np.ceil(outline.pixels.max(axis=0) + margin) + 1, frame.shape[1::-1]).astype(int), low)
    return linear_light(frame[low[1] : high[1], low[0] : high[0]]), low.astype(float)


def _alike(normal: Array) -> float:
    """How many lines in a row count as one: the sum of residuals' [N] autocorrelation while above chance."""
    z = np.clip(normal, -3.0, 3.0)
    z = z - z.mean()
    power = float(z @ z) + 1e-12
    total = 1.0
    for lag in range(1, min(_MOST_ALIKE, len(z) // 2)):
        along = float(z[lag:] @ z[:-lag]) / power
        if along <= 2.0 * len(z) ** -0.5:  # no more than chance
            break
        total += 2.0 * along
    return total
