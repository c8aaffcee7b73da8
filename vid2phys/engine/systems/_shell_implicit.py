"""What an implicit step of cloth solves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.engine.implicit import Evaluate, Pattern, pattern_of_blocks
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.engine.systems.cloth import Cloth

_NONE = np.zeros(0)


class ClothStepEquations:
    """`implicit.StepEquations` of a `Cloth`; velocities are its only unknowns."""

    def __init__(self, cloth: Cloth) -> None:
        self._cloth = cloth
        triangles, hinges, points = cloth.elements, cloth.hinges.vertices, np.arange(len(cloth.rest_m))[:, None]
        # blocks of one size: triangles and vertices name their first vertex more than once
        blocks = [np.hstack([v, np.repeat(v[:, :1], 4 - v.shape[1], axis=1)]) for v in (triangles, hinges, points)]
        dofs = (3 * np.concatenate(blocks)[:, :, None] + np.arange(3)).reshape(-1, 12)
        self.pattern: Pattern
        self.pattern, places = pattern_of_blocks(dofs, cloth.rest_m.size)
        ends = np.cumsum([len(triangles), len(hinges)])
        self._of_triangles, self._of_hinges, self._own = (p.copy() for p in np.split(places, ends))
        self._diagonal = np.diagonal(self._own[:, :3, :3], axis1=1, axis2=2).ravel()
        kept = np.repeat(cloth.free, 3)
        self._kept = kept[self.pattern.indices] * np.repeat(kept, np.diff(self.pattern.starts))

    def others(self, state: Array, parameters: Array) -> Array:
        """See `implicit.StepEquations.others`: none."""
        return _NONE

    def evaluate(self, controls: Array, parameters: Array, step_s: float) -> Evaluate:
        """See `implicit.StepEquations.evaluate`: the explicit kernels, on the CPU."""
        from vid2phys.engine.kernels.runtime import wp

        cloth, size = self._cloth, self._cloth.rest_m.size

        def on_cpu(array: Array) -> Any:
            return wp.array(np.ascontiguousarray(array), dtype=wp.float64, device="cpu")

        inputs: list[Any] = [on_cpu(a) for a in (controls[None, None], parameters[None], np.array([[step_s]]))]
        end = wp.empty((1, 2 * size), dtype=wp.float64, device="cpu")
        inputs.append(end)

        def explicit_step(state: Array, others: Array) -> tuple[Array, Array]:
            start = on_cpu(state[None])
            cloth.launch_step(start, *inputs, step=0, fraction=1.0, integrator="semi_implicit_euler")
            return end.numpy()[0, size:].copy(), _NONE

        return explicit_step

    def entries(self, state: Array, others: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """See `implicit.StepEquations.entries`."""
        return self._assembled(state, controls, parameters, step_s)

    def symmetric_entries(self, state: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """See `implicit.DescentEquations.symmetric_entries`."""
        return self._assembled(state, controls, parameters, step_s, asymmetric=False)

    def definite_entries(self, state: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """See `implicit.DescentEquations.definite_entries`."""
        return self._assembled(state, controls, parameters, step_s, elastic=False, asymmetric=False)

    def _assembled(
        self,
        state: Array,
        controls: Array,
        parameters: Array,
        step_s: float,
        *,
        elastic: bool = True,
        asymmetric: bool = True,
    ) -> Array:
        """Assemble the matrices. elastic, asymmetric: whether exact, see `kernels/shell_matrix.py`."""
        from vid2phys.engine.kernels.fem_matrix import add_contact
        from vid2phys.engine.kernels.shell_matrix import add_hinges, add_triangles

        cloth, entries = self._cloth, np.zeros(len(self.pattern.indices))
        x, v = cloth.positions(state), cloth.velocities(state)
        membrane, hinges = cloth.triangles, cloth.hinges
        wind, values, exact = np.ascontiguousarray(controls[:3]), parameters[:7].tolist(), (elastic, asymmetric)
        inputs = [membrane.corners, membrane.inverse_edges, membrane.areas, wind, *values[:5], step_s, *exact]
        add_triangles(entries, self._of_triangles, x, v, *inputs)
        inputs = [hinges.vertices, hinges.shape, cloth.rest_angles(parameters), *values[5:], step_s, *exact]
        add_hinges(entries, self._of_hinges, x, v, *inputs)
        law = cloth.contact_law(parameters)
        if law is not None:
            if not asymmetric:
                law[3] = np.inf  # what does not slide is symmetric
            add_contact(entries, self._own, x, v, law, step_s)
        entries *= self._kept
        entries[self._diagonal] += np.repeat(cloth.masses(parameters), 3)
        return entries
