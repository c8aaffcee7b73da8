"""How well a mesh at a pose explains a frame, by its edges and its silhouette; ambiguous poses are compared by it.

Limits: the evidence is a log odds against chance, not a likelihood; edges of the background count too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.cues.contour_config import DEFAULTS, ContourConfig
from vid2phys.tracking.cues.creases import Solid, crease_lines
from vid2phys.tracking.cues.edge_lines import (
    contour_evidence,
    crease_evidence,
    crease_evidence_reach_px,
    print_evidence,
)
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.region import Region
from vid2phys.tracking.cues.silhouette import Drawing
from vid2phys.types import Array, Camera


@dataclass(frozen=True)
class Evidence:
    """The evidence of a frame for poses of a mesh.

    Attributes:
        frame: image [H, W, 3].
        camera: of the image.
        solid: mesh and creases.
        center: bearings [2] of the bounding sphere.
        radius: angular radius of the bounding sphere [rad].
        use_region: whether the colours of both sides of the silhouette count.
        foreground: [H, W, 3] display values, with the body white and all else black; None where it is not known. A
            contour has to be an edge there, too. Edges of a print are not seen there, and motion does not blur it.
        config: settings of the edges.
    """

    frame: NDArray[np.uint8]
    camera: Camera
    solid: Solid
    center: Array
    radius: float
    use_region: bool = True
    foreground: NDArray[np.uint8] | None = None
    config: ContourConfig = DEFAULTS

    @cached_property
    def region(self) -> Region:
        """The colours around the body."""
        return Region.of(self.frame, self.camera, self.center, self.radius)

    def nats(self, vertices: Array) -> float:
        """Return by how much edges stand out, and colours inside differ from those outside, above chance, nats.

        vertices: [V, 3] of the mesh in camera axes, m. The value is minus infinity where the mesh has no contour.
        """
        drawing = self.solid.draw(vertices)
        return -np.inf if drawing is None else self.edges(vertices, drawing) + self._colors(drawing)

    def edge_nats(self, vertices: Array) -> float:
        """Return the share of contour and creases in `nats`."""
        drawing = self.solid.draw(vertices)
        return -np.inf if drawing is None else self.edges(vertices, drawing)

    def color_nats(self, vertices: Array) -> float:
        """Return the share of colours in `nats`, in a fraction of the time."""
        drawing = self.solid.draw(vertices)
        return -np.inf if drawing is None else self._colors(drawing)

    def _colors(self, drawing: Drawing) -> float:
        return self.region.evidence(drawing) if self.use_region else 0.0

    def edges(self, vertices: Array, drawing: Drawing) -> float:
        """Return `edge_nats` of vertices [V, 3] that are drawn already."""
        contour = occluding_contour(drawing, self.camera, self.config)
        if contour is None:
            return -np.inf
        nats = contour_evidence(self.frame, contour, self.config) + self._creases(vertices, drawing)
        if self.foreground is not None:
            nats += self.config.foreground_share * contour_evidence(self.foreground, contour.still(), self.config)
        return nats / self.config.evidence_length_px

    def _creases(self, vertices: Array, drawing: Drawing) -> float:
        """Return the evidence of creases, as far as a print does not account for it."""
        creases = crease_lines(self.solid, vertices, drawing, self.camera, crease_evidence_reach_px(self.config))
        nats = 0.0 if creases is None else crease_evidence(self.frame, creases, self.config)
        if creases is None or nats <= 0.0 or (place := drawing.in_frame(self.camera)) is None:
            return nats
        return nats - print_evidence(self.frame, creases, *place, self.config)
