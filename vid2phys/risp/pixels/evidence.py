"""How well a drawn mesh explains the edges of a frame: what poses that look alike are told apart by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.pixels.creases import Solid, crease_lines
from vid2phys.risp.pixels.edge_lines import crease_evidence, outline_evidence
from vid2phys.risp.pixels.outline import outline_of
from vid2phys.risp.pixels.silhouette import draw
from vid2phys.types import Array, Camera

_REACH_PX = 5.0
_ALIKE_PX = 5.0  # of an edge's length that count as one piece of evidence


def edge_evidence(frame: NDArray[np.uint8], camera: Camera, solid: Solid, posed: Array) -> float:
    """How much outline and creases of a mesh stand out in a frame [H, W, 3], nats: above those of chance, over their
    lengths.

    posed: [V, 3] m, its vertices in camera axes. Minus infinity where it has no outline.
    """
    drawing = draw(posed, solid.mesh.faces)
    outline = None if drawing is None else outline_of(drawing, camera)
    if drawing is None or outline is None:
        return -np.inf
    creases = crease_lines(solid, posed, drawing, camera, _REACH_PX)
    inside = 0.0 if creases is None else crease_evidence(frame, creases)
    return (outline_evidence(frame, outline) + inside) / _ALIKE_PX
