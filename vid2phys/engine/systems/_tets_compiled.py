"""Rollouts of elastic bodies by the compiled loops of `kernels/fem_cpu.py`, one row of a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, Literal, Protocol

import numpy as np

from vid2phys.engine.system import Integrator, Precision
from vid2phys.engine.systems._particles import Indices
from vid2phys.types import Array

_TETS_A_CHUNK, _MOST_CHUNKS = 400, 8  # smaller shares of the tets are not worth a thread
_FADING = 0.98  # of what is known of the slower way, an interval: now and then it is tried again
_TETS_A_ROW = 20_000  # tet steps of a row from which rows are worth a thread of their own


class Tets(Protocol):
    """What the loops ask of a body of V vertices and P integration points; `TetBody` has it, and says what it means."""

    rest_m: Array
    free: Array
    quadratic: bool
    tet_nodes: Indices
    point_nodes: Indices
    gradients: Array
    volumes: Array
    central: Array
    nodal_volumes: Array
    load_shares: Array
    muscles: Indices
    ground: bool
    per_vertex_mass: bool

    @property
    def moduli(self) -> str:
        """Return which moduli the parameters are: "young" or "lame"."""
        ...

    @property
    def locking(self) -> str:
        """Return how pressure is averaged: "none" or "nodal"."""
        ...

    def positions(self, states: Array) -> Array:
        """Return the vertices' positions [..., V, 3] m."""
        ...

    def velocities(self, states: Array) -> Array:
        """Return the vertices' velocities [..., V, 3] m/s."""
        ...

    def lame(self, parameters: Array) -> tuple[float, float]:
        """Return Lame's moduli [Pa] for one vector of parameters."""
        ...

    def energy_moduli(self, parameters: Array) -> tuple[float, float, float]:
        """Return mu and lambda of the energy, and the part of lambda that is shared."""
        ...

    def masses(self, parameters: Array) -> Array:
        """Return the mass of every vertex [V] kg for one vector of parameters."""
        ...

    def layout(self) -> dict[str, int]:
        """Return where groups of parameters begin."""
        ...


class _Pace:
    """Calls one of two equal functions, the one that was faster of late.

    Threads that wait for each other at every step lose everything when other programs keep the cores busy.
    """

    def __init__(self, in_turn: Callable[..., None], on_threads: Callable[..., None]) -> None:
        self._functions = in_turn, on_threads
        self._seconds = [0.0, 0.0]
        self._calls = 0

    def __call__(self, steps: int, *arguments: Any) -> None:
        choice = int(self._seconds[1] <= self._seconds[0])
        start = perf_counter()
        self._functions[choice](steps, *arguments)
        self._seconds[choice] = (perf_counter() - start) / steps
        self._seconds[1 - choice] *= _FADING
        self._calls += 1
        if self._calls == 2:  # both were compiled, or loaded: what they took says nothing
            self._seconds = [0.0, 0.0]


class TetIntervals:
    """`CompiledIntervals` of a `TetBody` of linear tets. Reverse mode keeps the states of one interval's substeps."""

    integrators: tuple[Integrator, ...] = ("semi_implicit_euler",)

    def __init__(self, body: Tets) -> None:
        self._body = body
        self._meshes: dict[Precision, Any] = {}
        self._loops: dict[tuple[str, Precision], _Pace] = {}
        self._chunks = max(1, min(_MOST_CHUNKS, len(body.point_nodes) // _TETS_A_CHUNK))

    def forward(
        self, states: Array, controls: Array, parameters: Array, dt_s: Array, *, substeps: int, precision: Precision
    ) -> None:
        """See `CompiledIntervals.forward`."""
        mesh, step_on = self.mesh(precision), self._loop("forward", precision, states.shape[1])
        real, size = mesh.volumes.dtype, self._body.rest_m.size

        def run(row: int) -> None:
            x, v = (part.astype(real) for part in (states[0, row, :size], states[0, row, size:]))
            for step in range(controls.shape[1]):
                h = _of(dt_s, row)[step] / substeps
                scene = self.scene(_of(parameters, row), controls[row, step], h, real)
                step_on(substeps, self._chunks, x, v, np.empty((0, 0), real), mesh, scene, real.type(h))
                states[step + 1, row, :size], states[step + 1, row, size:] = x, v

        self._each_row(run, states.shape[1], controls.shape[1] * substeps)

    def backward(
        self,
        states: Array,
        cotangents: Array,
        controls: Array,
        parameters: Array,
        dt_s: Array,
        *,
        substeps: int,
        precision: Precision,
    ) -> tuple[Array, Array, Array]:
        """See `CompiledIntervals.backward`."""
        mesh, step_on = self.mesh(precision), self._loop("forward", precision, states.shape[1])
        step_back = self._loop("backward", precision, states.shape[1])
        real, size = mesh.volumes.dtype, self._body.rest_m.size
        by_initial, by_controls = np.empty_like(states[0]), np.zeros_like(controls)
        by_parameters = np.zeros((states.shape[1], parameters.shape[1]))

        def run(row: int) -> None:
            x_bar, v_bar = np.zeros(size, real), np.zeros(size, real)
            path = np.empty((substeps + 1, 2 * size), real)
            for step in reversed(range(controls.shape[1])):
                x_bar += cotangents[step + 1, row, :size].astype(real)
                v_bar += cotangents[step + 1, row, size:].astype(real)
                h, values = _of(dt_s, row)[step] / substeps, _of(parameters, row)
                scene = self.scene(values, controls[row, step], h, real)
                x, v = (part.astype(real) for part in (states[step, row, :size], states[step, row, size:]))
                if substeps == 1:
                    path[0], path[1] = states[step, row], states[step + 1, row]
                else:
                    step_on(substeps, self._chunks, x, v, path[:-1], mesh, scene, real.type(h))
                    path[-1, :size], path[-1, size:] = x, v
                extra_bar, by_dof = np.zeros_like(scene.extra), np.zeros((3, size), real)
                sums = np.zeros(8)
                step_back(
                    *(substeps, self._chunks, x_bar, v_bar, path, mesh, scene, real.type(h), extra_bar, by_dof, sums)
                )
                self._collect(
                    *(values, controls[row, step], h, extra_bar.astype(float), by_dof.astype(float), sums),
                    by_controls[row, step],
                    by_parameters[row],
                )
            by_initial[row, :size], by_initial[row, size:] = x_bar, v_bar

        self._each_row(run, states.shape[1], controls.shape[1] * substeps)
        by_initial += cotangents[0]
        if len(parameters) == 1:
            by_parameters = by_parameters.sum(axis=0, keepdims=True)
        return by_initial, by_controls, by_parameters

    def mesh(self, precision: Precision) -> Any:
        from vid2phys.engine.kernels import fem_cpu

        if precision not in self._meshes:
            body, real = self._body, np.float64 if precision == "double" else np.float32
            self._meshes[precision] = fem_cpu.Mesh(
                fem_cpu.in_blocks((3 * body.point_nodes).astype(np.uint32)),
                fem_cpu.in_blocks(body.gradients[:, 1:].reshape(-1, 9).astype(real)),
                fem_cpu.in_blocks(body.volumes[:, None].astype(real)),
                body.nodal_volumes.astype(real),
            )
        return self._meshes[precision]

    def scene(self, values: Array, control: Array, h: float, real: Any) -> Any:
        """Return the `fem_cpu.Scene` of one vector of parameters and of controls."""
        from vid2phys.engine.kernels import fem_cpu

        body = self._body
        mu, lam, shared = self._body.energy_moduli(values)
        number = real.type
        weights = body.free / body.masses(values)
        acceleration = (weights * body.load_shares)[:, None] * control[:3]
        acceleration[:, 2] -= body.free * values[3]
        law = values[4:8] if body.ground else np.zeros(4)
        extra = fem_cpu.in_blocks(((lam + shared) * self._activation(values, control))[:, None].astype(real))
        return fem_cpu.Scene(
            np.array([mu, lam, values[2]], real),
            number(shared),
            tuple(number(c) for c in law),
            extra,
            np.repeat(body.free, 3).astype(real),
            np.repeat(h * weights, 3).astype(real),
            (h * acceleration).ravel().astype(real),
            body.locking == "nodal",
            body.ground,
        )

    def _activation(self, values: Array, control: Array) -> Array:
        muscles, first = self._body.muscles, self._body.layout()["muscle"]
        active = np.append(control[3:] + values[first : first + len(control) - 3], 0.0)
        return np.asarray(active[muscles])

    def _collect(
        self,
        values: Array,
        control: Array,
        h: float,
        extra_bar: Array,
        by_dof: Array,
        sums: Array,
        by_control: Array,
        by_values: Array,
    ) -> None:
        """Add an interval's gradients by controls and parameters, from what `fem_cpu.backward` summed up."""
        from vid2phys.engine.kernels.fem_cpu import LANES

        # einsum, for the threads of a dot product of BLAS go on waiting where those of the loops are needed
        body, layout = self._body, self._body.layout()
        _, lam, shared = self._body.energy_moduli(values)
        by_extra = extra_bar.reshape(-1, LANES).ravel()[: len(body.point_nodes)]
        by_activation = np.bincount(body.muscles + 1, (lam + shared) * by_extra, len(control) - 2)[1:]
        first = layout["muscle"]
        by_values[first : first + len(by_activation)] += by_activation
        increments, forces, moments = by_dof.reshape(3, -1, 3)
        by_control[:3] += np.einsum("v,va->a", body.load_shares, forces)
        by_control[3:] += by_activation

        by_active_lam = np.einsum("t,t", self._activation(values, control), by_extra).item()
        by_mu = 4.0 / 3.0 * sums[0] + 5.0 / 6.0 * (sums[1] + by_active_lam)
        by_lam = (sums[3] if body.locking == "nodal" else sums[1]) + by_active_lam
        by_values[:2] += self._by_first_moduli(values, by_mu, by_lam)
        by_values[2] += sums[2]
        by_values[3] -= h * increments[:, 2].sum()
        if body.ground:
            by_values[4:8] += sums[4:]
        # the increment of velocity that forces make is h F / m = v' - v + h g e_z
        by_mass = -(moments.sum(axis=1) / h + values[3] * forces[:, 2])
        if body.per_vertex_mass:
            by_values[layout["mass"] :] += by_mass
        else:
            by_values[layout["mass"]] += np.einsum("v,v", body.nodal_volumes, by_mass)

    def _by_first_moduli(self, values: Array, by_mu: float, by_lam: float) -> Array:
        if self._body.moduli == "lame":
            return np.array([by_mu, by_lam])
        (mu, lam), (young, poisson) = self._body.lame(values), values[:2]
        slope = young * (1.0 + 2.0 * poisson**2) / ((1.0 + poisson) * (1.0 - 2.0 * poisson)) ** 2
        return np.array([(mu * by_mu + lam * by_lam) / young, slope * by_lam - mu / (1.0 + poisson) * by_mu])

    def _loop(self, name: Literal["forward", "backward"], precision: Precision, rows: int) -> Callable[..., None]:
        """Return a loop of `fem_cpu`: chunks in turn if small or if rows have the threads, else as `_Pace` says."""
        import numba

        from vid2phys.engine.kernels.fem_cpu import LOOPS

        in_turn: Callable[..., None] = LOOPS[name, False]
        if rows > 1 or self._chunks == 1 or numba.get_num_threads() == 1:
            return in_turn
        if (name, precision) not in self._loops:
            self._loops[name, precision] = _Pace(in_turn, LOOPS[name, True])
        return self._loops[name, precision]

    def _each_row(self, run: Callable[[int], None], rows: int, steps: int) -> None:
        import numba

        if rows == 1 or steps * len(self._body.point_nodes) < _TETS_A_ROW:
            for row in range(rows):
                run(row)
            return
        with ThreadPoolExecutor(numba.get_num_threads()) as pool:
            list(pool.map(run, range(rows)))


def _of(rows: Array, row: int) -> Array:
    """Return this row, or the only one."""
    return np.asarray(rows[min(row, len(rows) - 1)])
