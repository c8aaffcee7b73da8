"""Configurations of a tracked clip corrected by the body's edges (`edges`), as `pixels.outlined` corrects rigid ones.

What the points of a frame err by together, as changes of the configuration, is replaced by what points and edges say
together; what each errs by on its own, and the frame's shift, stay. Networks bend a body too little where they are not
sure, edges do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.parallel import side_by_side
from vid2phys.error_model import Calibration
from vid2phys.tracking.articulated.contour import downweighted, refine_from
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.kinematic_fit import Configurations
from vid2phys.tracking.articulated.shading import fit_shading
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.detectors.network import Image
from vid2phys.types import Array

_TOO_SURE = 20.0  # points of a body that bends state as many times too much, by clips in looks made up for this
_ONE_LIGHT = 100  # frames that are shaded by one light at a time, for memory's sake
_ALIKE_S = 0.2  # frames so near err alike: errors of the hand and the rod are correlated over 0.15 to 0.5 s


@dataclass(frozen=True)
class RefinedConfigurations:
    """Of N frames. configuration: [N, D]. covariance: [N, D, D], of edges and points together, as frames near it have
    it on average, before it is scaled to what held-out looks showed. moved: [N], whether edges were seen; what was read
    stays where they were not.
    """

    configuration: Array
    covariance: Array
    moved: NDArray[np.bool_]

    @property
    def columns(self) -> Array:
        """Independent errors of a frame as changes of the coordinates: lower triangles L [N, D, D], covariance L L'.

        A camera may tell little of two coordinates, but much of what they show together: errors of both hang together.
        """
        return np.asarray(np.linalg.cholesky(self.covariance), dtype=float)

    def errors(self, calibration: Calibration) -> Array:
        """The columns, those of edges scaled to what held-out looks showed, [N, D, D]."""
        scale = np.where(
            self.moved[:, None], per_coordinate(calibration.contour_scale, self.configuration.shape[1]), 1.0
        )
        return self.columns * scale[:, None]


def per_coordinate(values: tuple[float, ...], size: int) -> Array:
    """Numbers of a calibration, one a coordinate [size]; for models that were calibrated without edges the largest."""
    return np.array(values) if len(values) == size else np.full(size, max(values))


def refined_correlation_s(calibration: Calibration, size: int) -> Array:
    """Correlation times [size] of configurations fitted to edges, which mistake the same look for the same thing for
    longer than the network does.
    """
    read = np.array(calibration.correlation_time_s[:size])
    return np.maximum(read, per_coordinate(calibration.contour_correlation_s, size))


def refine_contours(
    frames: Indexed,
    body: ArticulatedBody,
    window: Window,
    read: Configurations,
    quality: Array,
    calibration: Calibration,
    which: NDArray[np.int64],
    times_s: Array,
) -> RefinedConfigurations:
    """Configurations at the edges of the frames `which` [M] of N, each from what was read in it.

    read: [N]. quality: [N] of the readings, which say by `calibration` how far they may be off together. times_s: [N].
    Points of a body that bends are believed less, as in a single image: along the sight, where they see next to
    nothing, networks say half of what is there. Its frames are of one light, which shades all of them.
    """
    solid, size = Solid.of(body.mesh), read.configuration.shape[-1]
    shared = calibration.mode_scale(np.full(len(quality), window.diameter_px), quality)[:, :size]
    known = read.covariance + shared[:, :, None] ** 2 * np.eye(size)
    configuration, covariance, moved = read.configuration.copy(), known.copy(), np.zeros(len(known), dtype=bool)

    def fit(shown: tuple[int, Image]) -> tuple[Array, Array] | None:
        i, image = shown
        told = np.linalg.inv(known[i])
        before = read.configuration[i], told
        if body.bends:
            before = downweighted(body, told @ read.configuration[i], told, _TOO_SURE)
        return refine_from(image, window, body, solid, *before)

    fits = side_by_side(fit, ((i, frames[i]) for i in which.tolist()))
    for i, fitted in zip(which.tolist(), fits, strict=True):
        if fitted is not None:
            configuration[i], covariance[i] = fitted
            moved[i] = True
    if body.bends:
        lit = np.flatnonzero(moved)
        for some in (lit[start : start + _ONE_LIGHT] for start in range(0, len(lit), _ONE_LIGHT)):
            known_of = configuration[some], covariance[some]
            configuration[some], covariance[some] = fit_shading(frames, some.tolist(), window, body, solid, *known_of)
    covariance[moved] = smoothed(covariance[moved], times_s[moved])
    return RefinedConfigurations(configuration, covariance, moved)


def smoothed(covariance: Array, times_s: Array) -> Array:
    """Means of covariances [M, D, D] over frames that err alike.

    Errors last longer than a frame. With columns that change from one frame to the next the same error would be many
    numbers that change: unlikely ones, so that a fit would be far too sure that there is none.
    """
    keep = np.exp(-np.diff(times_s) / _ALIKE_S)

    def summed(values: Array) -> Array:
        """Of all frames, each by exp(-|time between| / _ALIKE_S)."""
        before, after = values.copy(), values.copy()
        for m in range(1, len(values)):
            before[m] += keep[m - 1] * before[m - 1]
            after[-1 - m] += keep[-m] * after[-m]
        return np.asarray(before + after - values)

    return summed(covariance) / summed(np.ones((len(covariance), 1, 1)))
