"""Move a mesh to the edges of one frame: rounds of lines across contour and creases, with Newton steps.

The method is region-based tracking on correspondence lines (Stoiber et al., SRT3D, IJCV 2021; Tjaden et al., TPAMI
2018). The energy is a robust sum over lines of (n . (x(q) - x) - mean)^2 / variance, with the mean and the variance of
the edge's place on the line (`cues.edge_lines`), plus the prior of the start. The configuration q is whatever moves the
mesh: the pose of a rigid body (`cues.contour`), or joints and modes (`articulated.contour`).

Limits: a line finds an edge only within a few standard deviations of its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.cues.contour_config import DEFAULTS, ContourConfig
from vid2phys.tracking.cues.creases import CreaseLines, Solid, crease_lines
from vid2phys.tracking.cues.edge_lines import Edges, crease_reach_px, find_creases, find_edges
from vid2phys.tracking.cues.occluding_contour import OccludingContour, occluding_contour
from vid2phys.types import Array, Camera

_COMMON = 3  # ways in which edges err as a whole: a wider contour, a shift along x, one along y


class PlacedMesh(Protocol):
    """A mesh in a configuration of D coordinates before a camera; `engine.movable.Movable` has no camera."""

    def vertices(self) -> Array:
        """Return the vertices [V, 3] in camera axes, m."""
        ...

    def slopes(self, points: Array, along: Array) -> Array:
        """Return the derivative [N, D] of points [N, 3] along their normals, px; along: `OccludingContour.along`."""
        ...

    def moved(self, step: Array) -> tuple[Self, Array]:
        """Return the body after a step [D], and the step that was possible."""
        ...


M = TypeVar("M", bound=PlacedMesh)


@dataclass(frozen=True)
class Lines:
    """N lines that found their edge.

    Attributes:
        slopes: [N, D or more] derivative by the coordinates, and by the common errors if there are any, px.
        mean: [N] places of the edges, px.
        variance: [N], px^2.
        within_px: prior standard deviation of the edges' places, px.
    """

    slopes: Array
    mean: Array
    variance: Array
    within_px: float


def fit_edges(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    start: M,
    prior: Array,
    most: Array,
    common_px: float = 0.0,
    config: ContourConfig = DEFAULTS,
) -> tuple[M, Array] | None:
    """Move a mesh to the edges in a frame, as its prior allows.

    Args:
        frame: [H, W, 3].
        camera: of the frame.
        solid: mesh and creases.
        start: the mesh in its first configuration.
        prior: [D, D] information about the start.
        most: [D] largest step.
        common_px: standard deviation by which the contour may look wider, and all edges may be shifted, as a whole, px.
            Causes are glare, tone curves and errors of the camera. Zero where the configuration covers these.
        config: settings.

    Returns:
        The moved mesh and the information [D, D] of the edges alone; None where too few lines across the contour find
        the edge.
    """
    from vid2phys.tracking.cues.edge_steps import DescentSettings, descend

    settings = DescentSettings(
        config.steps_per_round,
        config.overconfidence,
        config.robust_sigma,
        config.min_level,
        config.max_correlated_lines,
    )
    size, more = len(prior), _COMMON if common_px > 0.0 else 0
    at, total, information = start, np.zeros(size), np.zeros((size + more, size + more))
    known, last = np.eye(size + more), len(config.within_shares) - 1
    known[:size, :size] = prior
    for k in range(config.max_rounds):
        lines = _lines(frame, camera, solid, at, config.within_shares[min(k, last)], common_px, config)
        if lines is None:
            return None
        before, bound = np.append(total, np.zeros(more)), np.append(most, np.full(more, np.inf))
        step, information = descend(lines.slopes, lines.mean, lines.variance, known, before, bound, settings)
        at, moved = at.moved(step[:size])
        total = total + moved
        still_px = config.still_share * lines.within_px
        if k >= last and ((lines.slopes[:, :size] @ moved) ** 2).mean() < still_px**2:
            break
    own, beside = information[:size, :size], information[:size, size:]
    common = information[size:, size:] + config.overconfidence * np.eye(more)
    return at, own - beside @ np.linalg.solve(common, beside.T)


def _lines(
    frame: NDArray[np.uint8],
    camera: Camera,
    solid: Solid,
    at: PlacedMesh,
    share: float,
    common_px: float,
    config: ContourConfig,
) -> Lines | None:
    """Return the lines of one round; None for too few. share: standard deviation of edges in sizes of the body."""
    vertices = at.vertices()
    drawing = solid.draw(vertices)
    contour = None if drawing is None else occluding_contour(drawing, camera, config)
    if drawing is None or contour is None:
        return None
    within = max(config.min_within_px, share * contour.size_px)
    found: list[tuple[OccludingContour | CreaseLines, Edges]] = [(contour, find_edges(frame, contour, within, config))]
    if np.isfinite(found[0][1].variance).sum() < config.min_lines:
        return None
    creases = crease_lines(solid, vertices, drawing, camera, crease_reach_px(within, config))
    if creases is not None:
        found.append((creases, find_creases(frame, creases, within, config)))
    points, along = (np.concatenate([getattr(lines, name) for lines, _ in found]) for name in ("points", "along"))
    mean, variance = (np.concatenate([getattr(edges, name) for _, edges in found]) for name in ("mean", "variance"))
    used = np.isfinite(variance)
    slopes = at.slopes(points[used], along[used])
    if common_px > 0.0:
        normals = np.concatenate([lines.normals for lines, _ in found])[used]
        wider = (np.arange(len(points)) < len(contour.points))[used, None]
        slopes = np.concatenate([slopes, common_px * wider, common_px * normals], axis=1)
    return Lines(slopes, mean[used], variance[used] + (config.slack_share * within) ** 2, within)
