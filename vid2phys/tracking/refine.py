"""Moving a drawn mesh to the edges of one frame: rounds of lines across outline and creases, Newton steps on its pose.

After region-based tracking on correspondence lines (Stoiber et al., SRT3D, IJCV 2021; Tjaden et al., TPAMI 2018). The
energy is a robust sum over lines of (n . (x(pose) - x) - mean)^2 / variance, with the mean and the variance of the
edge's place on the line (`edge_lines`), plus the prior of the pose that it starts from. A pose is whatever moves the
mesh: six numbers of a rigid body (`cues.contour`), the configuration of one on a base (`articulated.contour`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.cues.creases import CreaseLines, Solid, crease_lines
from vid2phys.tracking.cues.edge_lines import Edges, crease_reach_px, find_creases, find_edges
from vid2phys.tracking.cues.occluding_contour import Outline, outline_of
from vid2phys.tracking.cues.silhouette import draw
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
# On held-out looks edges are off together by more than neighbours show: variances are larger by this. How much a pose
# is off in the end is calibrated (`contour_errors`).
OVERCONFIDENT = 9.0
_LEAST_LINES = 12
_ASIDE = 3  # ways in which edges may be off as a whole: the outline wider, all of them along x and y


class Movable(Protocol):
    """A mesh in a pose with D coordinates."""

    def vertices(self) -> Array:
        """[V, 3] m in camera axes."""
        ...

    def slopes(self, points: Array, along: Array) -> Array:
        """What the coordinates move points [N, 3] m by along their normals, [N, D] px; along: `Outline.along`."""
        ...

    def moved(self, step: Array) -> tuple[Self, Array]:
        """Moved by a step [D], and the step that was possible."""
        ...


M = TypeVar("M", bound=Movable)


@dataclass(frozen=True)
class Lines:
    """N lines that say where their edge is. slopes: [N, D] px, then by how edges are off as a whole, if they may be.
    mean, variance: [N] px. within_px: how far off edges may be."""

    slopes: Array
    mean: Array
    variance: Array
    within_px: float


def fit_edges(
    frame: NDArray[np.uint8], camera: Camera, solid: Solid, start: M, prior: Array, most: Array, aside_px: float = 0.0
) -> tuple[M, Array] | None:
    """The mesh where the edges in a frame [H, W, 3] and the prior say, and the information [D, D] of the edges alone.

    prior: [D, D] information about the start. most: [D] of one step. aside_px: by how much the outline may be seen
    wider, and all edges to a side, as a whole: glare, tone curves, a camera that is a little off. Zero where the pose
    says as much. None where too few lines of the outline say where the edge is.
    """
    from vid2phys.tracking.cues.edge_steps import descend

    size, more = len(prior), _ASIDE if aside_px > 0.0 else 0
    at, total, information = start, np.zeros(size), np.zeros((size + more, size + more))
    known = np.eye(size + more)
    known[:size, :size] = prior
    for k in range(_MOST_ROUNDS):
        lines = _lines(frame, camera, solid, at, _WITHIN[min(k, len(_WITHIN) - 1)], aside_px)
        if lines is None:
            return None
        begun, most_of_all = np.append(total, np.zeros(more)), np.append(most, np.full(more, np.inf))
        step, information = descend(
            *(lines.slopes, lines.mean, lines.variance, known, begun, most_of_all, _STEPS, OVERCONFIDENT)
        )
        at, moved = at.moved(step[:size])
        total = total + moved
        if k >= len(_WITHIN) - 1 and ((lines.slopes[:, :size] @ moved) ** 2).mean() < (_STILL * lines.within_px) ** 2:
            break
    alone, beside = information[:size, :size], information[:size, size:]
    return at, alone - beside @ np.linalg.solve(information[size:, size:] + OVERCONFIDENT * np.eye(more), beside.T)


def _lines(
    frame: NDArray[np.uint8], camera: Camera, solid: Solid, at: Movable, share: float, aside_px: float
) -> Lines | None:
    """None where there are too few. share: where edges may be, of the body's size. aside_px: see `fit_edges`."""
    posed = at.vertices()
    drawing = draw(posed, solid.mesh.faces)
    outline = None if drawing is None else outline_of(drawing, camera)
    if drawing is None or outline is None:
        return None
    within = max(_LEAST_WITHIN_PX, share * outline.size_px)
    found: list[tuple[Outline | CreaseLines, Edges]] = [(outline, find_edges(frame, outline, within))]
    if np.isfinite(found[0][1].variance).sum() < _LEAST_LINES:
        return None
    creases = crease_lines(solid, posed, drawing, camera, crease_reach_px(within))
    if creases is not None:
        found.append((creases, find_creases(frame, creases, within)))
    points, along = (np.concatenate([getattr(lines, name) for lines, _ in found]) for name in ("points", "along"))
    mean, variance = (np.concatenate([getattr(edges, name) for _, edges in found]) for name in ("mean", "variance"))
    used = np.isfinite(variance)
    slopes = at.slopes(points[used], along[used])
    if aside_px > 0.0:
        normals = np.concatenate([lines.normals for lines, _ in found])[used]
        wider = (np.arange(len(points)) < len(outline.points))[used, None]
        slopes = np.concatenate([slopes, aside_px * wider, aside_px * normals], axis=1)
    return Lines(slopes, mean[used], variance[used] + (_SLACK * within) ** 2, within)
