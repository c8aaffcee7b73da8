"""The one contract of bodies whose mesh follows from a configuration q: rigid, articulated and modal ones.

A configuration has D degrees of freedom. Optimisers change it by a step dq [D] through `retract`, which stays on the
manifold of configurations and within its limits (Absil, Mahony and Sepulchre, "Optimization algorithms on matrix
manifolds", 2008, section 4.1). `jacobian` is the derivative by that step at dq = 0.

Limits: keypoints, states of a system and priors belong to the classes, not to this contract.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vid2phys.types import Array, Mesh


@runtime_checkable
class Movable(Protocol):
    """A body whose vertices follow from a configuration.

    Attributes:
        mesh: The mesh at rest, with V vertices.
    """

    mesh: Mesh

    @property
    def limits(self) -> tuple[Array, Array]:
        """Return the lowest and the highest value [D] of each degree of freedom; infinite without a limit."""

    def vertices(self, configuration: Array) -> Array:
        """Return the vertices [V, 3] of the mesh in a configuration, m."""

    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """Return the derivatives [N, 3, D] of the vertices with the indices `vertices` [N] by a step."""

    def retract(self, configuration: Array, step: Array) -> Array:
        """Return the configuration that a step [D] leads to, within the limits."""
