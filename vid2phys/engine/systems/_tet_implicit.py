"""What an implicit step of a body of tets solves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.engine.implicit import Pattern, pattern_of_blocks
from vid2phys.engine.systems._tets_compiled import TetIntervals
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.engine.systems._tets import TetBody


class TetStepEquations:
    """`implicit.StepEquations` of a `TetBody`; with averaged pressure it has one more unknown a vertex."""

    def __init__(self, body: TetBody) -> None:
        self._body, self._loops = body, TetIntervals(body)
        count, nodal = len(body.rest_m), body.locking == "nodal"
        axes = np.arange(3)
        dofs = (3 * body.elements[:, :, None] + axes).reshape(-1, 12)
        if nodal:
            dofs = np.hstack([dofs, 3 * count + body.elements])
        size = (4 if nodal else 3) * count
        self.pattern: Pattern
        self.pattern, self._places = pattern_of_blocks(dofs, size)
        columns = np.repeat(np.arange(size), np.diff(self.pattern.starts))
        keys = columns * size + self.pattern.indices
        vertices = 3 * np.arange(count)[:, None, None]
        self._own = np.searchsorted(keys, (vertices + axes) * size + vertices + axes[:, None])
        self._diagonal = np.searchsorted(keys, np.arange(size) * (size + 1))
        kept = np.ones(size)
        kept[: 3 * count] = np.repeat(body.free, 3)
        self._kept = kept[columns] * kept[self.pattern.indices]

    def explicit_step(self, controls: Array, parameters: Array, step_s: float) -> Callable[[Array], Array]:
        """See `implicit.StepEquations.explicit_step`."""
        from vid2phys.engine.kernels.fem_cpu import LOOPS

        step_on, size, untracked = LOOPS["forward", False], self._body.rest_m.size, np.empty((0, 0))
        mesh, scene = self._loops.mesh("double"), self._loops.scene(parameters, controls, step_s, np.dtype(float))

        def velocities_after(state: Array) -> Array:
            x, v = state[:size].copy(), state[size:].copy()
            step_on(1, 1, x, v, untracked, mesh, scene, step_s)
            return v

        return velocities_after

    def entries(self, state: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """See `implicit.StepEquations.entries`."""
        from vid2phys.engine.kernels import fem_matrix

        body, layout = self._body, self._body.layout()
        x, v = body.positions(state), body.velocities(state)
        mu, lam = body.lame(parameters)
        shared = lam if layout["nodal"] else 0.0  # as `fem.read_material`
        mu, lam, eta = 4.0 / 3.0 * mu, lam - shared + 5.0 / 6.0 * mu, float(parameters[2])
        muscles = np.append(controls[3:] + parameters[layout["muscle"] : layout["mass"]], 0.0)  # the last: -1, none
        pressures = (lam + shared) * muscles[body.muscles]
        if layout["nodal"]:
            ratios = fem_matrix.volume_ratios(x, body.elements, body.gradients)
            sums = np.bincount(body.elements.ravel(), np.repeat(0.25 * body.volumes * ratios, 4), len(x))
            pressures += 0.25 * shared * (sums / body.nodal_volumes)[body.elements].sum(axis=1)
        entries = np.zeros(len(self.pattern.indices))
        mesh = body.elements, body.gradients, body.volumes
        fem_matrix.add_tets(entries, self._places, x, v, *mesh, pressures, mu, lam, shared, eta, step_s)
        if body.ground:
            law = parameters[layout["contact"] : layout["contact"] + 4]
            fem_matrix.add_contact(entries, self._own, x, v, law, step_s)
        entries *= self._kept
        entries[self._diagonal[: x.size]] += np.repeat(body.masses(parameters), 3)
        entries[self._diagonal[x.size :]] -= body.nodal_volumes if layout["nodal"] else 0.0
        return entries
