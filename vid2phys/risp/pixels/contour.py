"""The pose of a mesh by its edges in one frame: lines across outline and creases, Newton steps on the pose.

After region-based tracking on correspondence lines (Stoiber et al., SRT3D, IJCV 2021; Tjaden et al., TPAMI 2018). The
energy is a robust sum over lines of (n . (x(pose) - x) - mean)^2 / variance, with the mean and the variance of the
edge's place on the line (`edge_lines`), plus the prior of the pose that it starts from. Needs no learnt appearance and
no other frame, and leaves a pose alone where nothing stands out from what is behind it.

Limits: errors of a quarter of the body's size and gross ones (a pose's mirror twin) are beyond its reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.pixels.align import MODES, PRIOR_STD, moved
from vid2phys.risp.pixels.creases import CreaseLines, Solid, crease_lines
from vid2phys.risp.pixels.edge_lines import Edges, crease_reach_px, find_creases, find_edges
from vid2phys.risp.pixels.outline import Outline, outline_of
from vid2phys.risp.pixels.silhouette import draw
from vid2phys.types import Array, Camera

# Where edges may be, standard deviations as shares of the body's size, a round; never less than _LEAST_WITHIN_PX. The
# last is repeated until the outline moves by less than a share of it. Each round draws the outline anew, since which
# parts of a body are seen against what is behind it changes with small turns: carried along instead, or stopped at
# twice the motion, thin bodies end a third further off in rotation (`benchmarks.contour`).
_WITHIN = (0.04, 0.015, 0.01)
_MOST_ROUNDS = 8
_STILL = 0.1
_LEAST_WITHIN_PX = 0.6
_SLACK = 0.2  # by which edges that far away may differ from what a line can tell, of where they may be
_STEPS = 3  # a round, before the outline's motion bends
_MOST_STEP = 2.0 * PRIOR_STD
# On held-out looks edges are off together by more than neighbours show: variances are larger by this. How much the
# pose is off in the end is calibrated (`contour_errors`).
_OVERCONFIDENT = 9.0
_LEAST_LINES = 12


@dataclass(frozen=True)
class Contour:
    """rotation [3, 3], translation [3] m: camera_from_body. information: [6, 6] of the edges alone, as their scatter
    says, in the modes of `align.moved` about this pose (many times too much on real looks). prior: [6, 6]
    what was known before."""

    rotation: Array
    translation: Array
    information: Array
    prior: Array

    @property
    def covariance(self) -> Array:
        """Of edges and prior together, [6, 6], before it is scaled to what held-out looks showed."""
        return np.asarray(np.linalg.inv(self.information / _OVERCONFIDENT + self.prior))


def fit_contour(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    rotation: Array,
    translation: Array,
    *,
    prior: Array | None = None,
) -> Contour | None:
    """Fit a pose camera_from_body to the outline and the creases in a frame [H, W, 3].

    prior: [6, 6] information about the given pose in its modes; weak unless given. None where too few lines of the
    outline say where the edge is.
    """
    from vid2phys.risp.pixels.edge_steps import descend

    prior = np.diag(PRIOR_STD**-2.0) if prior is None else np.ascontiguousarray(prior)
    total, fit = np.zeros(MODES), None
    for k in range(_MOST_ROUNDS):
        found = _lines(frame, camera, solid, rotation, translation, _WITHIN[min(k, len(_WITHIN) - 1)])
        if found is None:
            return None
        jacobian, mean, variance, within = found
        step, information = descend(jacobian, mean, variance, prior, total, _MOST_STEP, _STEPS, _OVERCONFIDENT)
        rotation, translation = moved(rotation, translation, step)
        total = total + step
        fit = Contour(rotation, translation, information, prior)
        if k >= len(_WITHIN) - 1 and ((jacobian @ step) ** 2).mean() < (_STILL * within) ** 2:
            break
    return fit


def _lines(
    frame: NDArray[np.uint8], camera: Camera, solid: Solid, rotation: Array, translation: Array, share: float
) -> tuple[Array, Array, Array, float] | None:
    """Of lines that say where their edge is: what they move by [N, 6], where the edge is [N], variance [N], and how
    far it may be, px; None where there are too few."""
    from vid2phys.risp.pixels.edge_steps import slopes

    drawing = draw(solid.mesh.vertices @ rotation.T + translation, solid.mesh.faces)
    outline = None if drawing is None else outline_of(drawing, camera)
    if drawing is None or outline is None:
        return None
    within = max(_LEAST_WITHIN_PX, share * outline.size_px)
    found: list[tuple[Outline | CreaseLines, Edges]] = [(outline, find_edges(frame, outline, within))]
    if np.isfinite(found[0][1].variance).sum() < _LEAST_LINES:
        return None
    creases = crease_lines(solid, drawing, camera, rotation, translation, crease_reach_px(within))
    if creases is not None:
        found.append((creases, find_creases(frame, creases, within)))
    points, along = (np.concatenate([getattr(lines, name) for lines, _ in found]) for name in ("points", "along"))
    mean, variance = (np.concatenate([getattr(edges, name) for _, edges in found]) for name in ("mean", "variance"))
    used = np.isfinite(variance)
    return slopes(points[used], along[used], translation), mean[used], variance[used] + (_SLACK * within) ** 2, within
