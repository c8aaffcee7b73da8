"""What an implicit step of a body of tets solves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.implicit import Evaluate, Pattern, pattern_of_blocks
from vid2phys.engine.systems._tets_compiled import TetIntervals, Tets
from vid2phys.types import Array


class TetStepEquations:
    """`implicit.StepEquations` of a `TetBody`; with averaged pressure it has one more unknown a vertex."""

    def __init__(self, body: Tets) -> None:
        self._body, self._loops = body, TetIntervals(body)
        count, self._nodal = len(body.rest_m), body.locking == "nodal"
        axes = np.arange(3)
        nodes = body.tet_nodes
        dofs = (3 * nodes[:, :, None] + axes).reshape(len(nodes), -1)
        if self._nodal:
            dofs = np.hstack([dofs, 3 * count + nodes])
        size = (4 if self._nodal else 3) * count
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

    def others(self, state: Array, parameters: Array) -> Array:
        """See `implicit.StepEquations.others`: nodes' pressures over their impedances, if pressure is averaged."""
        if not self._nodal:
            return np.zeros(0)
        shared = self._body.lame(parameters)[1]
        return shared / self._impedances(parameters) * self._averaged_ratios(self._body.positions(state))

    def evaluate(self, controls: Array, parameters: Array, step_s: float) -> Evaluate:
        """See `implicit.StepEquations.evaluate`."""
        from vid2phys.engine.kernels.fem_cpu import LOOPS, in_blocks

        body, step_on, size, untracked = self._body, LOOPS["forward", False], self._body.rest_m.size, np.empty((0, 0))
        mesh, scene = self._loops.mesh("double"), self._loops.scene(parameters, controls, step_s, np.dtype(float))
        if body.quadratic:
            return self._quadratic_step(controls, parameters, step_s, scene)
        masses, impedances = body.masses(parameters), self._impedances(parameters)

        def explicit_step(state: Array, others: Array) -> tuple[Array, Array]:
            x, v, given, right = state[:size].copy(), state[size:].copy(), scene, others
            if self._nodal:
                pressures = 0.25 * (impedances * others)[body.point_nodes].sum(axis=1)
                given = scene._replace(nodal=False, extra=scene.extra + in_blocks(pressures[:, None]))
                right = masses * (others - self.others(state, parameters))
            step_on(1, 1, x, v, untracked, mesh, given, step_s)
            return v, right

        return explicit_step

    def _quadratic_step(self, controls: Array, parameters: Array, step_s: float, scene: Any) -> Evaluate:
        from vid2phys.engine.kernels import fem_cpu, fem_matrix

        body, size = self._body, self._body.rest_m.size
        material = (self._pressures(controls, parameters), *body.energy_moduli(parameters), float(parameters[2]))

        def explicit_step(state: Array, others: Array) -> tuple[Array, Array]:
            x, v, forces = state[:size], state[size:], np.zeros(size)
            places = (forces.reshape(-1, 3), x.reshape(-1, 3), v.reshape(-1, 3))
            fem_matrix.add_forces(*(*places, self._points, *material))
            if body.ground:
                fem_cpu.add_contact(x, v, scene.law, step_s, forces)
            return scene.free * v + scene.over_mass * forces + scene.push, others

        return explicit_step

    def entries(self, state: Array, others: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """See `implicit.StepEquations.entries`."""
        from vid2phys.engine.kernels import fem_matrix

        body, layout = self._body, self._body.layout()
        x, v = body.positions(state), body.velocities(state)
        moduli, eta = body.energy_moduli(parameters), float(parameters[2])
        pressures, impedances = self._pressures(controls, parameters), self._impedances(parameters)
        if self._nodal:
            pressures += 0.25 * (impedances * others)[body.point_nodes].sum(axis=1)
        entries = np.zeros(len(self.pattern.indices))
        fem_matrix.add_points(*(entries, self._places, x, v, self._points, pressures, impedances, *moduli, eta, step_s))
        if body.ground:
            law = parameters[layout["contact"] : layout["contact"] + 4]
            fem_matrix.add_contact(entries, self._own, x, v, law, step_s)
        entries *= self._kept
        masses = body.masses(parameters)
        entries[self._diagonal[: x.size]] += np.repeat(masses, 3)
        if self._nodal:
            entries[self._diagonal[x.size :]] -= masses
        return entries

    @property
    def _points(self) -> tuple[NDArray[np.int64], Array, Array, Array]:
        body = self._body
        return body.point_nodes, body.gradients, body.volumes, body.central

    def _pressures(self, controls: Array, parameters: Array) -> Array:
        """Return the pressures [P] Pa that activations of muscles make."""
        body, layout = self._body, self._body.layout()
        _, lam, shared = body.energy_moduli(parameters)
        muscles = np.append(controls[3:] + parameters[layout["muscle"] : layout["mass"]], 0.0)  # the last: -1, none
        acts = np.where(body.central > 0.0, shared, lam + (shared if self._nodal else 0.0))
        return np.asarray(acts * muscles[body.muscles])

    def _impedances(self, parameters: Array) -> Array:
        """Return c of every vertex [Pa s/m], see `kernels/fem_matrix.py`."""
        density = self._body.masses(parameters) / self._body.nodal_volumes
        return np.sqrt(self._body.lame(parameters)[1] * density)

    def _averaged_ratios(self, x: Array) -> Array:
        """Return J - 1 averaged over the tets of every vertex, by volume."""
        from vid2phys.engine.kernels import fem_matrix

        body = self._body
        shares = 0.25 * body.volumes * fem_matrix.volume_ratios(x, body.point_nodes, body.gradients)
        return np.bincount(body.point_nodes.ravel(), np.repeat(shares, 4), len(x)) / body.nodal_volumes
