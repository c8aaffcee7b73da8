"""Rolling a system out in time, and its derivatives.

`simulate` is the plain rollout in NumPy; `rollout` the same in PyTorch with reverse-mode gradients; `linearize` gives
the exact Jacobians of single intervals, all intervals in one batched set of launches (sensitivities of a rollout follow
by a linear recursion).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.engine.checks import check_inputs, require_finite_states
from vid2phys.engine.replay import replay_of
from vid2phys.engine.stepping import fill_states, run_interval
from vid2phys.engine.system import Integrator, Precision, System, check_scheme, compiled_intervals
from vid2phys.types import Array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Linearization:
    """x_{k+1} and its derivatives, one row an interval.

    next_states: [T, N]. A: [T, D, D] d x_{k+1} / d x_k in tangent coordinates of each. B: [T, D, M] with respect to the
    controls. C: [T, D, P] with respect to the parameters in SI.
    """

    next_states: Array
    A: Array
    B: Array
    C: Array


def simulate(
    system: System,
    initial_states: Array,
    controls: Array,
    parameters: Array,
    dt_s: float | Array,
    *,
    integrator: Integrator | None = None,
    substeps: int = 1,
    device: str = "cpu",
    precision: Precision = "double",
) -> Array:
    """Return the states at the ends of all intervals, controls held over each.

    initial_states: [B, N]. controls: [B, S, M]. parameters: [P] or [B, P] in SI. dt_s: length of an interval [s], or
    one for each, [S] or [B, S]. Every interval is integrated in `substeps` equal steps by `integrator` (None: the
    system's default). precision: what is computed in; single for systems with compiled loops only. Returns
    [B, S + 1, N], the first state being the one given. Raises as `check_inputs` does, UsageError for an integrator or a
    precision that the system has not, SimulationError for states that do not stay finite.
    """
    from vid2phys.engine.kernels.runtime import wp

    initial_states, controls, parameters = (np.asarray(a, dtype=float) for a in (initial_states, controls, parameters))
    parameters = np.atleast_2d(parameters)
    dt_s = np.asarray(dt_s, dtype=float)
    intervals = np.broadcast_to(dt_s, controls.shape[:2] if dt_s.ndim == 2 else (1, *controls.shape[1:2]))
    scheme = check_scheme(system, integrator, substeps)
    check_inputs(system, initial_states, controls, parameters, intervals, integrator=scheme, substeps=substeps)
    states = np.empty((controls.shape[1] + 1, *initial_states.shape))
    states[0] = initial_states
    shapes = tuple(a.shape for a in (initial_states, controls, parameters, intervals))
    compiled = compiled_intervals(system, scheme, device, precision) or replay_of(
        system, shapes, integrator=scheme, substeps=substeps, device=device, gradient=False
    )
    if compiled is not None:
        compiled.forward(states, controls, parameters, intervals, substeps=substeps, precision=precision)
    else:
        arrays: list[Any] = [wp.array(a, dtype=wp.float64, device=device) for a in (controls, parameters, intervals)]
        buffer: Any = wp.array(states, dtype=wp.float64, device=device)
        fill_states(system, buffer, *arrays, integrator=scheme, substeps=substeps)
        states = buffer.numpy()
    require_finite_states(system, states, intervals)
    return np.ascontiguousarray(np.swapaxes(states, 0, 1))


def rollout(
    system: System,
    initial_states: torch.Tensor,
    controls: torch.Tensor,
    parameters: torch.Tensor,
    dt_s: float | Array,
    *,
    integrator: Integrator | None = None,
    substeps: int = 1,
    device: str = "cpu",
    precision: Precision = "double",
) -> torch.Tensor:
    """Simulate as `simulate` does, on tensors, with gradients for initial states, controls and parameters (reverse
    mode, first order).

    Up to 64 MB of substeps are kept for the backward pass; beyond that the states returned are its checkpoints, and it
    makes the substeps of one interval at a time again. Computes in `precision` on `device` and returns float64 there.
    Raises as `simulate` does.
    """
    from vid2phys.engine.autograd import differentiable_rollout

    intervals = np.broadcast_to(np.asarray(dt_s, dtype=float), controls.shape[1:2])
    scheme = check_scheme(system, integrator, substeps)
    initial, given, values = (t.detach().cpu().double().numpy() for t in (initial_states, controls, parameters))
    check_inputs(system, initial, given, np.atleast_2d(values), intervals, integrator=scheme, substeps=substeps)
    tensors = initial_states, controls, parameters
    compiled_intervals(system, scheme, device, precision)
    return differentiable_rollout(
        system, tensors, intervals, integrator=scheme, substeps=substeps, device=device, precision=precision
    )


def linearize(
    system: System,
    states: Array,
    controls: Array,
    parameters: Array,
    dt_s: Array,
    *,
    integrator: Integrator | None = None,
    substeps: int = 4,
    device: str = "cpu",
) -> Linearization:
    """Return the exact derivatives of one interval from each of T states.

    states: [T, N]. controls: [T, M]. parameters: [P]. dt_s: [T]. Each state is repeated D times and row i of its copies
    is seeded with output i, so that all rows of all Jacobians come out of one backward pass: for states of at most some
    hundred numbers. Raises as `simulate`.
    """
    from vid2phys.engine.kernels.runtime import wp

    states, controls, parameters = (np.asarray(a, dtype=float) for a in (states, controls, parameters))
    scheme = check_scheme(system, integrator, substeps)
    lengths = np.broadcast_to(np.asarray(dt_s, dtype=float), len(states))[:, None]
    check_inputs(system, states, controls[:, None], parameters[None], lengths, integrator=scheme, substeps=substeps)
    size = len(system.tangent_names)

    def tiled(array: Array, *, gradient: bool = True) -> Any:
        copies = np.repeat(array, size, axis=0)
        return wp.array(copies, dtype=wp.float64, device=device, requires_grad=gradient)

    inputs = tiled(states), tiled(controls[:, None]), tiled(np.broadcast_to(parameters, (len(states), parameters.size)))
    intervals = tiled(lengths, gradient=False)
    with wp.Tape() as tape:
        out = run_interval(system, *inputs, intervals, step=0, integrator=scheme, substeps=substeps)
    next_states = out.numpy()[::size].copy()
    seeds = system.cotangent_basis(next_states).reshape(-1, next_states.shape[1])
    tape.backward(grads={out: wp.array(seeds, dtype=wp.float64, device=device)})
    by_state, by_control, by_parameter = (a.grad.numpy().reshape(len(states), size, -1) for a in inputs)
    return Linearization(next_states, by_state @ system.tangent_basis(states), by_control.copy(), by_parameter.copy())
