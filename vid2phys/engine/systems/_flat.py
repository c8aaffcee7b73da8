"""What systems with a flat state space share: tangents are differences of states."""

from __future__ import annotations

import numpy as np

from vid2phys.engine.system import System
from vid2phys.types import Array


class FlatSystem(System):
    """A system whose states form a vector space: angles that are not wrapped, positions and velocities of points."""

    def retract(self, states: Array, tangent: Array) -> Array:
        """See `System.retract`."""
        return np.asarray(states, dtype=float) + np.asarray(tangent, dtype=float)

    def local(self, a: Array, b: Array) -> Array:
        """See `System.local`."""
        return np.asarray(b, dtype=float) - np.asarray(a, dtype=float)

    def tangent_basis(self, states: Array) -> Array:
        """See `System.tangent_basis`."""
        size = len(self.state_names)
        return np.broadcast_to(np.eye(size), (*np.shape(states)[:-1], size, size))

    def cotangent_basis(self, states: Array) -> Array:
        """See `System.cotangent_basis`."""
        return self.tangent_basis(states)
