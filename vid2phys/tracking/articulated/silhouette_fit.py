"""Fit the configuration of an articulated or modal body to the foreground and the edges of one frame.

As `tracking.silhouette_fit` for rigid bodies: the foreground inside the silhouette scores a configuration, lines across
the contour of the moving parts align it from far (`cues.foreground_edges`), and colours on both sides of contour and
creases finish it (`contour.refine_from`).

Limits: configurations with the same silhouette have the same score; edges inside the silhouette separate some of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.articulated.contour import PlacedBody, refine_from
from vid2phys.tracking.articulated.silhouette_search import ConfigurationSearch
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_steps import DescentSettings, descend
from vid2phys.tracking.cues.evidence import Evidence
from vid2phys.tracking.cues.foreground_edges import edge_places
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.detectors.network import Image, direction_and_size
from vid2phys.types import Array


@dataclass(frozen=True, kw_only=True)
class SilhouetteFitConfig:
    """Settings of `FrameFit`. Standard deviations and steps are in units of the coordinates (1 rad)."""

    reaches: tuple[float, ...] = (0.1, 0.06, 0.03)
    """Reach of the lines in each round, as a share of the body's size."""
    min_reach_px: float = 3.0
    """Least reach of a line, px."""
    steps: int = 10
    """Steps of a line to each side."""
    correlated_px: float = 4.0
    """Pixels in a row that count as one."""
    prior_std: float = 0.5
    """Standard deviation of a start."""
    contour_std: float = 0.15
    """The same for the start of the contour cue."""
    max_step: float = 0.3
    """Largest step of a round."""
    correlated_sides: float = 0.75
    """Number of pixels that count as one piece of evidence, in square roots of the silhouette's area."""
    sure_nats: float = 2.0
    """Log-likelihood ratio from which on a pixel is foreground as a whole, nats."""
    min_lines: int = 12
    """Least number of lines across a contour."""
    min_size_px: float = 8.0
    """Least size of the moving parts in the frame, px."""
    aligned: int = 10
    """Number of proposals that are aligned."""
    fitted: int = 6
    """Number of aligned proposals that are fitted to the edges."""


DEFAULTS = SilhouetteFitConfig()
_SETTINGS = DescentSettings(steps=2, overconfidence=20.0, robust_sigma=2.0, min_level=0.3, max_correlated=20)


@dataclass(frozen=True)
class Fit:
    """A configuration that was fitted to a frame.

    Attributes:
        configuration: [D].
        nats: how well it explains the frame: foreground, contour and creases.
        overlap: intersection over union of silhouette and foreground, 0..1.
        covariance: [D, D] of the edge fit, before the scale of the error model; None where it found too few edges.
    """

    configuration: Array
    nats: float
    overlap: float
    covariance: Array | None


@dataclass(frozen=True)
class FrameFit:
    """One frame, its foreground, and the body that is fitted to both.

    Attributes:
        frame: image [H, W, 3].
        log_ratio: [H, W] log-likelihood ratio of body and scene, nats; zero where static parts cover a pixel.
        search: the drawn body.
        solid: its mesh and creases.
        config: settings.
    """

    frame: Image
    log_ratio: NDArray[np.float32]
    search: ConfigurationSearch
    solid: Solid
    config: SilhouetteFitConfig = DEFAULTS

    @cached_property
    def coarse(self) -> NDArray[np.float32]:
        """The log-likelihood ratio on the grid of the search."""
        return self.search.coarse.shrunk(self.log_ratio)

    @cached_property
    def _fine(self) -> NDArray[np.float32]:
        return self.search.fine.shrunk(self.log_ratio)

    @cached_property
    def _evidence(self) -> Evidence:
        window, body = self.search.window, self.search.body
        center, radius = direction_and_size(window.in_camera(body.center_m), body.radius_m)
        return Evidence(self.frame, window.camera, self.solid, center, float(radius), False)

    def _placed(self, configuration: Array) -> PlacedBody:
        return PlacedBody(self.search.body, self.search.window.camera_from_base, configuration)

    def judged(self, configuration: Array, covariance: Array | None = None) -> Fit:
        """Return a configuration [D] with the evidence of the frame for it."""
        grid, seen = self.search.fine, self._fine
        mask = self.search.silhouette(configuration, grid)
        vertices = self._placed(configuration).vertices()
        drawing = self.solid.draw(vertices)
        if mask is None or drawing is None or not mask.any():
            return Fit(configuration, -np.inf, 0.0, covariance)
        area_px = 1.0 / grid.scale**2
        inside, sure = float(seen[mask].sum()), np.clip(seen / self.config.sure_nats, 0.0, 1.0)
        both, known = float(sure[mask].sum()), float((mask & (seen != 0.0)).sum())
        union = float(sure.sum()) + known - both
        side_px = np.sqrt(area_px * float(mask.sum()))
        nats = area_px * inside / (self.config.correlated_sides * side_px)
        return Fit(configuration, nats + self._evidence.edges(vertices, drawing), both / max(union, 1e-9), covariance)

    def aligned(self, configuration: Array) -> Array | None:
        """Return the configuration [D] after rounds of lines across its contour; None where it has none here."""
        config, search = self.config, self.search
        prior = np.diag((config.prior_std * search.units) ** -2.0)
        most, total = config.max_step * search.units, np.zeros(len(search.units))
        at = self._placed(configuration)
        for reach in config.reaches:
            drawing = draw(at.vertices(), search.faces)
            contour = None if drawing is None else occluding_contour(drawing, search.window.camera)
            if contour is None or len(contour.pixels) < config.min_lines or contour.size_px < config.min_size_px:
                return None
            reach_px = max(config.min_reach_px, reach * contour.size_px)
            mean, variance = edge_places(
                self.log_ratio, contour.pixels, contour.normals, reach_px, config.steps, config.correlated_px
            )
            jacobian = at.slopes(contour.points, contour.along)
            step, _ = descend(jacobian, mean, variance, prior, total, most, _SETTINGS)
            at, moved = at.moved(step)
            total = total + moved
        return at.configuration

    def fitted(self, configuration: Array, std: float | None = None) -> Fit | None:
        """Return the fit that the edges lead to from a configuration [D], or its start where that is better.

        std: standard deviation of the start, in units of the coordinates; None for `contour_std`.
        """
        prior = np.diag(((self.config.contour_std if std is None else std) * self.search.units) ** -2.0)
        found = refine_from(self.frame, self.search.window, self.search.body, self.solid, configuration, prior)
        fits = [self.judged(configuration, None if found is None else found[1])]
        if found is not None:
            fits.append(self.judged(*found))
        best = max(fits, key=lambda fit: fit.nats)
        return best if np.isfinite(best.nats) else None

    def detect(self, most: int = 4) -> list[Fit]:
        """Detect the body in the frame; return at most `most` fits, the best first."""
        judged = []
        for proposed in self.search.propose(self.log_ratio)[: self.config.aligned]:
            judged.append(self.judged(proposed))
            aligned = self.aligned(proposed)
            if aligned is not None:
                judged.append(self.judged(aligned))
        judged.sort(key=lambda fit: -fit.nats)
        fits = [fit for each in judged[: self.config.fitted] if (fit := self.fitted(each.configuration)) is not None]
        return sorted(fits, key=lambda fit: -fit.nats)[:most]
