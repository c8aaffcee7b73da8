"""How well a drawn mesh explains a frame, by its edges and by its silhouette: what poses that look alike are told apart
by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.tracking.cues.creases import Solid, crease_lines
from vid2phys.tracking.cues.edge_lines import crease_evidence, outline_evidence
from vid2phys.tracking.cues.occluding_contour import outline_of
from vid2phys.tracking.cues.region import Region
from vid2phys.tracking.cues.silhouette import Drawing, draw
from vid2phys.types import Array, Camera

_REACH_PX = 5.0
_ALIKE_PX = 5.0  # of an edge's length that count as one piece of evidence


@dataclass(frozen=True)
class Evidence:
    """What a frame shows of a mesh.

    Attributes:
        frame: image [H, W, 3].
        camera: of the image.
        solid: mesh and creases.
        center: bearings [2] of the bounding sphere.
        radius: angular radius of the bounding sphere [rad].
        use_region: whether the colours of both sides of the silhouette count.
    """

    frame: NDArray[np.uint8]
    camera: Camera
    solid: Solid
    center: Array
    radius: float
    use_region: bool = True

    @cached_property
    def region(self) -> Region:
        """The colours about the body."""
        return Region.of(self.frame, self.camera, self.center, self.radius)

    def nats(self, posed: Array) -> float:
        """How much outline and creases stand out, and colours inside differ from those outside, above chance.

        posed: [V, 3] m, the mesh's vertices in camera axes. Minus infinity where it has no outline.
        """
        drawing = draw(posed, self.solid.mesh.faces)
        return -np.inf if drawing is None else self._edges(posed, drawing) + self._colors(drawing)

    def edge_nats(self, posed: Array) -> float:
        """The share of outline and creases in `nats`."""
        drawing = draw(posed, self.solid.mesh.faces)
        return -np.inf if drawing is None else self._edges(posed, drawing)

    def color_nats(self, posed: Array) -> float:
        """The share of colours in `nats`, in a fraction of the time."""
        drawing = draw(posed, self.solid.mesh.faces)
        return -np.inf if drawing is None else self._colors(drawing)

    def _colors(self, drawing: Drawing) -> float:
        return self.region.evidence(drawing) if self.use_region else 0.0

    def _edges(self, posed: Array, drawing: Drawing) -> float:
        outline = outline_of(drawing, self.camera)
        if outline is None:
            return -np.inf
        creases = crease_lines(self.solid, posed, drawing, self.camera, _REACH_PX)
        inside = 0.0 if creases is None else crease_evidence(self.frame, creases)
        return (outline_evidence(self.frame, outline) + inside) / _ALIKE_PX
