"""Implicit Euler for bodies made of vertices: steps as long as a frame, whatever the stiffness.

A step from positions x0 and velocities v0 over h solves, for the velocities w of the vertices that are not pinned,

    r(w) = v0 + h a(x0 + h w, w) - w = 0,    x1 = x0 + h w,  v1 = w,

where a = f / m is the body's own explicit acceleration. Newton's method takes the matrix A = M - h df/dv - h^2 df/dx
from the body and factorises it, in few digits. A factor serves, over steps of the same length, as long as each
correction, with Broyden's updates, is a fair part of the one before (Deuflhard, "Newton Methods for Nonlinear
Problems", 2004, section 3.2.3); the correction that the same factor would take next decides on damping, too (section
3.3). The first factor is the one at rest. What was solved before thus changes results, by less than the tolerance.

Thin bodies buckle: under compression A may be indefinite, and then Newton's corrections lead to equilibria that are not
stable, or nowhere. Equations that offer `DescentEquations` are solved with A only where what is symmetric of it is
positive definite, and with a definite matrix elsewhere, along directions in which forces do not turn against the
correction.

The adjoint solves with the transpose of the same matrix at the new state; derivatives of the forces by state, controls
and parameters come from the adjoint of the explicit kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.system import Integrator
from vid2phys.engine.threads import blas_on_one_thread
from vid2phys.errors import SimulationError
from vid2phys.types import Array

_CONTRACTION = 0.5  # a factor that shrinks corrections less than this is replaced
_CONTRACTION_OF_DESCENT = 0.1  # without Broyden's updates
_TOLERANCE = 1e-13  # of a last correction, as a share of velocities that matter; what is left is half of it or less
_SHORTEST = 2.0**-12  # of a Newton step
_OVERSHOOT = 0.5  # of the force along a correction, that may point backwards after it
_INACCURACY = 0.1  # of the solutions of a factor in single precision that Newton's method may use
_ASYMMETRY = 1e-2  # of a matrix's entries, that Newton's method may do without
_ITERATIONS = 200
_BAND_BYTES = 5e8  # wider bands are left to SuperLU, which is slower on what fits
_KEPT = 2  # factors, by length of step and parameters

Evaluate = Callable[[Array, Array], tuple[Array, Array]]
Solve = Callable[..., Array]  # right-hand sides [n] or [n, K], transposed: bool -> their solutions


class Body(Protocol):
    """What implicit Euler asks of a body with states [6 V]: positions, then velocities."""

    @property
    def name(self) -> str:
        """Return the system's name."""

    @property
    def free(self) -> Array:
        """Return [V], 0 for the vertices that are pinned and 1 for all others."""

    @property
    def rest_m(self) -> Array:
        """Return the vertices [V, 3] at rest."""

    @property
    def step_equations(self) -> StepEquations:
        """Return the equations that its steps solve."""

    def masses(self, parameters: Array) -> Array:
        """Return the masses [V] kg for one vector of parameters."""

    def launch_step(
        self,
        states: Any,
        controls: Any,
        parameters: Any,
        dt_s: Any,
        next_states: Any,
        *,
        step: int,
        fraction: float,
        integrator: Integrator,
    ) -> None:
        """See `System.launch_step`: here called for "semi_implicit_euler"."""


class StepEquations(Protocol):
    """a and A = M - h df/dv - h^2 df/dx of a body with V vertices, the rows and columns of pinned ones replaced by M's.

    `pattern` gives the places of A's entries. Unknowns after the first 3 V, in m/s, help to keep it sparse and Newton's
    method on its way (pressures): eliminating them must leave A.
    """

    pattern: Pattern

    def others(self, state: Array, parameters: Array) -> Array:
        """Return the other unknowns in a state [6 V]."""

    def evaluate(self, controls: Array, parameters: Array, step_s: float) -> Evaluate:
        """Return a function that takes a state [6 V] and the other unknowns to what an explicit step from there gives.

        That is velocities v + h a [3 V], zero for pinned vertices, and what the other equations want on the right-hand
        side.
        """

    def entries(self, state: Array, others: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """Return the entries' values for controls [M] and parameters [P]."""


@runtime_checkable
class DescentEquations(StepEquations, Protocol):
    """Equations of a body that may buckle; velocities are their only unknowns."""

    def symmetric_entries(self, state: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """Return A, symmetric: M + h^2 Hessian of the energies, and of the other forces what resists."""

    def definite_entries(self, state: Array, controls: Array, parameters: Array, step_s: float) -> Array:
        """Return a positive definite matrix near `entries`."""


@dataclass(frozen=True)
class Pattern:
    """Places of a square sparse matrix's entries, by column (CSC): rows `indices`, columns' ends `starts` [size + 1].

    Symmetric as a pattern.
    """

    indices: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return len(self.starts) - 1

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], int, NDArray[np.int64]]:
        """Return the reverse Cuthill-McKee order: the unknowns' new order, the half width of the band, the entries'
        places in it.
        """
        from scipy.sparse import csc_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        graph = csc_array((np.ones(len(self.indices)), self.indices, self.starts))
        order = reverse_cuthill_mckee(graph.tocsr(), symmetric_mode=True).astype(np.int64)
        rank = np.empty_like(order)
        rank[order] = np.arange(self.size)
        rows = rank[self.indices]
        columns = rank[np.repeat(np.arange(self.size), np.diff(self.starts))]
        half = int(np.abs(rows - columns).max())
        return order, half, columns * (3 * half + 1) + 2 * half + rows - columns

    def factorise(self, entries: Array) -> Solve:
        """Return a solver for these entries; of a singular matrix, its solutions are NaN."""
        order, half, places = self._order
        if (3 * half + 1) * self.size * 8 > _BAND_BYTES:
            return self._factorise_sparse(entries)
        from scipy.linalg.lapack import dgbtrf, dgbtrs

        band = np.zeros((3 * half + 1, self.size), order="F")
        band.ravel(order="K")[places] = entries
        factor, pivots, info = dgbtrf(band, half, half, overwrite_ab=1)
        if info != 0:
            return _no_solution

        def solve(right: Array, *, transposed: bool = False) -> Array:
            out = np.empty_like(right)
            out[order] = dgbtrs(factor, half, half, right[order], pivots, trans=int(transposed), overwrite_b=1)[0]
            return out

        return solve

    def is_definite(self, entries: Array) -> bool:
        """Return whether a symmetric matrix is positive definite."""
        half = self._order[1]
        if (3 * half + 1) * self.size * 8 > _BAND_BYTES:
            from scipy.sparse import csc_array
            from scipy.sparse.linalg import splu

            matrix = csc_array((entries, self.indices, self.starts))
            try:  # without pivoting
                factor = splu(matrix, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
            except RuntimeError:
                return False
            return bool((factor.U.diagonal() > 0.0).all())
        from scipy.linalg.lapack import dpbtrf

        _, lower, places = self._lower_half
        band = np.zeros((half + 1, self.size), order="F")
        band.ravel(order="K")[places] = entries[lower]
        return bool(dpbtrf(band, lower=1, overwrite_ab=1)[1] == 0)

    def factorise_nearly(self, entries: Array) -> Solve:
        """Return a solver that Newton's method may use, of few digits.

        Cholesky's in single precision where the matrix is as good as symmetric and definite.
        """
        order, half, _ = self._order
        mirror, lower, places = self._lower_half
        mirrored = entries[mirror]
        wide = (3 * half + 1) * self.size * 8 > _BAND_BYTES
        if wide or np.abs(entries - mirrored).sum() > _ASYMMETRY * np.abs(entries).sum():
            return self.factorise(entries)
        from scipy.linalg.lapack import spbtrf, spbtrs
        from scipy.sparse import csc_array

        band = np.zeros((half + 1, self.size), np.float32, order="F")
        band.ravel(order="K")[places] = 0.5 * (entries + mirrored)[lower]
        factor, info = spbtrf(band, lower=1, overwrite_ab=1)
        if info != 0:
            return self.factorise(entries)

        def solve(right: Array) -> Array:
            scale = float(np.abs(right).max()) or 1.0  # small ones would be lost, and slow
            out = np.empty_like(right)
            with np.errstate(invalid="ignore"):  # of a trial that went too far
                scaled = (right[order] / scale).astype(np.float32)
                out[order] = np.float64(scale) * spbtrs(factor, scaled, lower=1, overwrite_b=1)[0]
            return out

        ones = np.ones(self.size)
        if np.abs(solve(csc_array((entries, self.indices, self.starts)) @ ones) - ones).max() > _INACCURACY:
            return self.factorise(entries)
        return solve

    @cached_property
    def _lower_half(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the entries' mirror images, the entries on and below the diagonal in the new order, and the entries in
        the band.
        """
        from scipy.sparse import csc_array

        _, half, places = self._order
        column, row = np.divmod(places, 3 * half + 1)
        lower = np.flatnonzero(row >= 2 * half)
        numbers = csc_array((np.arange(len(self.indices)), self.indices, self.starts))
        mirror = numbers.T.tocsc().data
        return mirror, lower, column[lower] * (half + 1) + row[lower] - 2 * half

    def _factorise_sparse(self, entries: Array) -> Solve:
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        try:
            factor = splu(csc_array((entries, self.indices, self.starts)), permc_spec="MMD_AT_PLUS_A")
        except RuntimeError:  # exactly singular
            return _no_solution
        return lambda right, *, transposed=False: np.asarray(factor.solve(right, "T" if transposed else "N"))


def _no_solution(right: Array, *, transposed: bool = False) -> Array:
    return np.full_like(right, np.nan)


def pattern_of_blocks(dofs: NDArray[np.int64], size: int) -> tuple[Pattern, NDArray[np.int64]]:
    """Return pattern of a sum of dense blocks on the unknowns dofs [T, K], and where their entries go, [T, K, K]."""
    keys = dofs[:, None, :] * size + dofs[:, :, None]  # by column, then row
    unique, places = np.unique(keys, return_inverse=True)
    starts = np.searchsorted(unique, np.arange(size + 1) * size)
    return Pattern(unique % size, starts), places.reshape(keys.shape)


def launch_implicit_euler(
    body: Body,
    states: Any,
    controls: Any,
    parameters: Any,
    dt_s: Any,
    next_states: Any,
    *,
    step: int,
    fraction: float,
) -> None:
    """Launch a step of implicit Euler (`System.launch_step`); rows that are copies of each other are solved once.

    Records its adjoint on the active tape; the lengths of steps are not differentiated. Raises SimulationError when
    Newton's method does not converge.
    """
    from vid2phys.engine.kernels.runtime import wp

    runtime: Any = wp._src.context.runtime
    tape, runtime.tape = runtime.tape, None
    try:
        steps, copies = _distinct_steps(body, states, controls, parameters, dt_s, step, fraction)
        with blas_on_one_thread():
            velocities = np.stack([_solve(s) for s in steps])
        positions = np.stack([s.positions + s.step_s * w for s, w in zip(steps, velocities, strict=True)])
        ends = np.concatenate([positions, velocities], axis=1)
        next_states.assign(ends[copies])
    finally:
        runtime.tape = tape
    if tape is None or not next_states.requires_grad:
        return
    if wp.config.verify_autograd_array_access:
        next_states.mark_write(arg_name="next_states", kernel_name="implicit_euler", filename=__file__, lineno=0)
        for array in (states, controls, parameters):
            array.mark_read()

    def backward() -> None:
        seeds = next_states.grad.numpy().reshape(len(copies), 2, -1)
        by_rate = np.empty_like(seeds[:, 0])  # what the loss gains with v0 + h a
        with blas_on_one_thread():
            for k, (one, end) in enumerate(zip(steps, ends, strict=True)):
                rows = np.flatnonzero(copies == k)
                by_rate[rows] = one.adjoint(end, seeds[rows, 1] + one.step_s * seeds[rows, 0])
        at: Any = wp.array(ends[copies], dtype=wp.float64, device=states.device, requires_grad=True)
        out = wp.empty_like(at, requires_grad=True)
        with wp.Tape() as forces:
            body.launch_step(
                at, controls, parameters, dt_s, out, step=step, fraction=fraction, integrator="semi_implicit_euler"
            )
        seed = np.concatenate([np.zeros_like(by_rate), by_rate], axis=1)
        forces.backward(grads={out: wp.array(seed, dtype=wp.float64, device=states.device)})
        if states.requires_grad:
            through_forces = at.grad.numpy()[:, : by_rate.shape[1]]
            states.grad.assign(states.grad.numpy() + np.hstack([seeds[:, 0] + through_forces, by_rate]))

    tape.record_func(backward, [a for a in (states, controls, parameters, next_states) if a.requires_grad])


def launch_implicit_midpoint(
    body: Body,
    states: Any,
    controls: Any,
    parameters: Any,
    dt_s: Any,
    next_states: Any,
    *,
    step: int,
    fraction: float,
) -> None:
    """Launch a step of the implicit midpoint rule: half a step of implicit Euler, then as much again.

    Of second order, and it damps nothing (Hairer, Lubich and Wanner, "Geometric Numerical Integration", 2006).
    """
    from vid2phys.engine.kernels import fem

    middle = fem.wp.empty_like(states, requires_grad=states.requires_grad)
    launch_implicit_euler(body, states, controls, parameters, dt_s, middle, step=step, fraction=0.5 * fraction)
    fem.wp.launch(fem.mirror, states.shape, [states, middle], [next_states], device=states.device)


@dataclass(frozen=True)
class _Step:
    """One step of one row. positions, velocities: [3 V], those of pinned vertices zero. mass: [3 V]."""

    body: Body
    positions: Array
    velocities: Array
    controls: Array
    parameters: Array
    step_s: float

    @cached_property
    def mass(self) -> Array:
        return np.repeat(self.body.masses(self.parameters), 3)

    @cached_property
    def _evaluate(self) -> Evaluate:
        return self.body.step_equations.evaluate(self.controls, self.parameters, self.step_s)

    def state(self, w: Array) -> Array:
        """Return the state that velocities w lead to."""
        return np.concatenate([self.positions + self.step_s * w, w])

    def start(self) -> Array:
        """Return the unknowns to begin with: velocities as they are, and the others as they were."""
        others = self.body.step_equations.others(np.concatenate([self.positions, self.velocities]), self.parameters)
        return np.concatenate([self.velocities, others])

    def residual(self, z: Array) -> Array:
        """Return the right-hand side of A dz = M (v0 + h a - w) and of the other equations."""
        w, others = np.split(z, [self.mass.size])
        velocities, right = self._evaluate(self.state(w), others)
        return np.concatenate([self.mass * (self.velocities - w + (velocities - w)), right])

    def factorise(self, state: Array, others: Array) -> Solve:
        """Return a solver for A at this state."""
        equations = self.body.step_equations
        entries = equations.entries(state, others, self.controls, self.parameters, self.step_s)
        return equations.pattern.factorise(entries)

    def factorise_at(self, z: Array) -> Solve:
        """Return a solver for A where the unknowns z lead to."""
        w, others = np.split(z, [self.mass.size])
        return self.factorise(self.state(w), others)

    def factorise_for_descent(self, z: Array, residual: Array) -> tuple[Solve, bool]:
        """Return a solver whose correction at z leads downhill, and whether it is A's."""
        equations: Any = self.body.step_equations
        given = self.state(z), self.controls, self.parameters, self.step_s
        entries = equations.symmetric_entries(*given)
        if not equations.pattern.is_definite(entries):
            return equations.pattern.factorise(equations.definite_entries(*given)), False
        solve = self.factorise_at(z)
        if solve(residual) @ residual > 0.0:
            return solve, True
        return equations.pattern.factorise(entries), False

    def nearly_factorise_at(self, z: Array) -> Solve:
        """Factorise as `factorise_at` does, but for what makes A a little unsymmetric."""
        w, others = np.split(z, [self.mass.size])
        equations = self.body.step_equations
        entries = equations.entries(self.state(w), others, self.controls, self.parameters, self.step_s)
        return equations.pattern.factorise_nearly(entries)

    def adjoint(self, end: Array, gradients: Array) -> Array:
        """Return M A^-T g for gradients [K, 3 V] by the new velocities; zero for pinned vertices."""
        equations = self.body.step_equations
        solve = self.factorise(end, equations.others(end, self.parameters))
        right = np.zeros((equations.pattern.size, len(gradients)))
        count = gradients.shape[1]
        free = np.repeat(self.body.free, 3)
        right[:count] = (free * gradients).T
        return (self.mass * free) * solve(right, transposed=True)[:count].T


def _distinct_steps(
    body: Body, states: Any, controls: Any, parameters: Any, dt_s: Any, step: int, fraction: float
) -> tuple[list[_Step], NDArray[np.int64]]:
    """Return the steps that differ, and the one that each row takes."""
    x, p, dt = states.numpy(), parameters.numpy(), dt_s.numpy()[:, step : step + 1] * fraction
    rows = len(x)
    u = controls.numpy()[:, step]
    p, dt = (np.broadcast_to(a, (rows, a.shape[1])) for a in (p, dt))
    table = np.ascontiguousarray(np.hstack([x, u, p, dt]))
    _, first, copies = np.unique(table.view(f"V{table.shape[1] * 8}").ravel(), return_index=True, return_inverse=True)
    half, free = x.shape[1] // 2, np.repeat(body.free, 3)
    return [
        _Step(body, x[r, :half].copy(), free * x[r, half:], u[r].copy(), p[r], float(dt[r, 0])) for r in first
    ], copies.astype(np.int64)


def _solve(step: _Step) -> Array:
    """Return the velocities [3 V] at the end of a step."""
    if isinstance(step.body.step_equations, DescentEquations):
        return _descend(step)
    z, count = step.start(), step.mass.size
    scale = float(np.abs(z[:count]).max()) + float(np.ptp(step.body.rest_m, axis=0).max()) / step.step_s
    tolerance, rounding = _TOLERANCE * scale, 1e3 * _TOLERANCE * scale
    residual, damping = step.residual(z), 1.0
    solve, current = _last_factor(step), False  # current: the factor is that of z
    correction = solve(residual)
    past: list[Array] = []  # corrections since the factor is in use
    for _ in range(_ITERATIONS):
        size = float(np.abs(correction).max())
        if size <= tolerance:
            _keep_factor(step, solve)
            return (z + correction)[:count]
        trial = z + damping * correction
        trial_residual = step.residual(trial)
        following = solve(trial_residual)
        if damping == 1.0:
            following = _without_secants(following, [*past, correction], count)
        left = float(np.abs(following).max())
        if damping == 1.0 and left <= _CONTRACTION * size:
            past.append(correction)
            z, residual, current = trial, trial_residual, False
            correction = following / (1.0 - _share(following, past[-1], count))
            continue
        if current and max(size, left) <= rounding:
            return trial[:count]
        if not current:
            current = True
        elif left <= (1.0 - 0.25 * damping) * size:
            z, residual, damping = trial, trial_residual, min(1.0, 2.0 * damping)
        else:
            damping *= 0.5
            if damping < _SHORTEST:
                break
            continue
        solve, past = step.nearly_factorise_at(z), []
        correction = solve(residual)
    raise _failure(step, "does not converge")


def _without_secants(correction: Array, past: list[Array], count: int) -> Array:
    """Return what Broyden's updates of the factor by all corrections before the last one leave of a correction."""
    for one, following in pairwise(past):
        correction = correction + _share(correction, one, count) * following
    return correction


def _share(correction: Array, one: Array, count: int) -> float:
    """Return how much of a correction goes along another one, by the velocities."""
    return np.einsum("i,i", correction[:count], one[:count]).item() / np.einsum("i,i", one[:count], one[:count]).item()


def _descend(step: _Step) -> Array:
    """Solve as `_solve` does, for `DescentEquations`: what it finds is stable."""
    z = step.start()
    scale = float(np.abs(z).max()) + float(np.ptp(step.body.rest_m, axis=0).max()) / step.step_s
    tolerance, rounding = _TOLERANCE * scale, 1e3 * _TOLERANCE * scale
    residual, correction, exact = step.residual(z), None, False
    for _ in range(_ITERATIONS):
        if correction is None:
            solve, exact = step.factorise_for_descent(z, residual)
            correction = solve(residual)
        size = float(np.abs(correction).max())
        if exact and size <= tolerance:
            return z + correction
        damping, turned = 1.0, -_OVERSHOOT * float(correction @ residual)
        trial_residual = step.residual(z + correction)
        while not (size <= rounding or correction @ trial_residual >= turned):  # also if one is no number
            damping *= 0.5
            if damping < _SHORTEST:
                raise _failure(step, "does not converge")
            trial_residual = step.residual(z + damping * correction)
        z, residual = z + damping * correction, trial_residual
        following = solve(residual)
        left = float(np.abs(following).max())
        if exact and max(size, left) <= rounding:
            return z
        correction = following if damping == 1.0 and left <= _CONTRACTION_OF_DESCENT * size else None
    raise _failure(step, "does not converge")


def _last_factor(step: _Step) -> Solve:
    """Return the factor that the last step of this length ended with; at first that at rest under no control."""
    equations: Any = step.body.step_equations
    if (key := _key(step)) not in _kept_factors(step):
        rest = np.concatenate([step.body.rest_m.ravel(), np.zeros_like(step.velocities)])
        others, idle = equations.others(rest, step.parameters), np.zeros_like(step.controls)
        entries = equations.entries(rest, others, idle, step.parameters, step.step_s)
        _keep_factor(step, equations.pattern.factorise_nearly(entries))
    return _kept_factors(step)[key]


def _keep_factor(step: _Step, solve: Solve) -> None:
    kept = _kept_factors(step)
    kept.pop(_key(step), None)
    if len(kept) == _KEPT:
        kept.pop(next(iter(kept)))
    kept[_key(step)] = solve


def _kept_factors(step: _Step) -> dict[tuple[float, bytes], Solve]:
    kept: dict[tuple[float, bytes], Solve] = step.body.step_equations.__dict__.setdefault("_factors", {})
    return kept


def _key(step: _Step) -> tuple[float, bytes]:
    return step.step_s, step.parameters.tobytes()


def _failure(step: _Step, what: str) -> SimulationError:
    return SimulationError(
        f"an implicit step of {step.step_s:.3g} s of '{step.body.name}' {what}",
        "a motion that changes little from step to step",
        "take more substeps, or check the initial state and the controls",
    )
