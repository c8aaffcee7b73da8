"""Derivatives by differences of fourth order, all points in one batch: of any function, and of a rollout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import Integrator, System
from vid2phys.types import Array, Parameter

_SHARE = 3e-3  # of a parameter's value that it is varied by
_AT_ZERO = 1e-3  # what that share is taken of when the value is zero, in SI
_CENTRAL = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([1.0, -8.0, 8.0, -1.0]) / 12.0
_FORWARD = np.array([1.0, 2.0, 3.0, 4.0]), np.array([48.0, -36.0, 16.0, -3.0]) / 12.0


def finite_differences(
    function: Callable[[Array], Array], point: Array, steps: Array, columns: Array | slice = slice(None)
) -> Array:
    """Central differences of fourth order, [..., outputs, columns], of a function of points [K, inputs] in one call."""
    moves, steps = np.diag(steps)[columns], steps[columns]
    points = point + np.concatenate([moves, -moves, 2 * moves, -2 * moves])
    near, behind, far, far_behind = np.split(function(points), 4)
    slopes = 8.0 * (near - behind) - (far - far_behind)
    return np.moveaxis(slopes, 0, -1) / (12.0 * steps)


def like(batch: Array, value: Array) -> Array:
    """A value [N] for each row of a batch [K, ...], [K, N]."""
    return np.tile(value, (len(batch), 1))


def parameter_differences(
    system: System,
    initial_state: Array,
    controls: Array,
    parameters: Array,
    dt_s: float | Array,
    names: Sequence[str],
    *,
    integrator: Integrator | None = None,
    substeps: int = 1,
    device: str = "cpu",
) -> tuple[Array, Array]:
    """States of one rollout and their derivatives with respect to some of the parameters.

    initial_state: [N]. controls: [S, M]. parameters: [P] in SI. names: K of them. Returns states [S + 1, N] and
    derivatives [S + 1, D, K] in tangent coordinates of each state: differences of fourth order, central, or one-sided
    where a bound is near; 4 K + 1 rollouts. Errors are about 1e-8 of the largest effect of a parameter, more across a
    contact event: there it is the mean slope over +-0.6 % of the value. Raises KeyError for a name that is not there,
    otherwise as `simulate`.
    """
    known = system.parameters()
    columns = [known.names.index(known[name].name) for name in names]
    rules = [_rule(known.items[i], float(parameters[i])) for i in columns]
    rows = np.repeat(np.asarray(parameters, dtype=float)[None], 1 + 4 * len(columns), axis=0)
    for k, (column, (step, (offsets, _))) in enumerate(zip(columns, rules, strict=True)):
        rows[1 + 4 * k : 5 + 4 * k, column] += step * offsets
    starts, held = (np.broadcast_to(a, (len(rows), *np.shape(a))) for a in (initial_state, controls))
    states = simulate(system, starts, held, rows, dt_s, integrator=integrator, substeps=substeps, device=device)
    moved = system.local(states[:1], states[1:])
    derivatives = [
        np.tensordot(weights, moved[4 * k : 4 * k + 4], axes=1) / step for k, (step, (_, weights)) in enumerate(rules)
    ]
    return states[0], np.stack(derivatives, axis=-1)


def _rule(parameter: Parameter, value: float) -> tuple[float, tuple[Array, Array]]:
    """Step in SI, then offsets and weights, such that all values lie within the parameter's domain."""
    step = _SHARE * (abs(value) or _AT_ZERO)
    if value - 2.0 * step < parameter.lower:
        return step, _FORWARD
    if value + 2.0 * step > parameter.upper:
        return -step, _FORWARD
    return step, _CENTRAL
