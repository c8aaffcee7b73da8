"""What a rollout is checked for: shapes, values within their domain, steps that are stable, states that stay finite."""

from __future__ import annotations

import numpy as np

from vid2phys.engine.system import Integrator, System, is_implicit
from vid2phys.errors import SimulationError, UsageError
from vid2phys.types import Array

_ROUNDING = 1e-9  # values this near to a bound (as a share of it) are within it


def check_inputs(
    system: System,
    states: Array,
    controls: Array,
    parameters: Array,
    dt_s: Array,
    *,
    integrator: Integrator,
    substeps: int,
) -> None:
    """Check all that a rollout is given: states [B, N], controls [B, S, M], parameters [1 or B, P], dt_s [..., S].

    Raises ValueError for shapes that do not fit, SimulationError for values that are not finite, UsageError for a
    parameter outside its domain and for a step too long for an explicit integrator, naming one that is stable.
    """
    _check_shapes(system, states.shape, controls.shape, parameters.shape)
    _require_finite("the initial state", states, system.state_names)
    _require_finite("the controls", controls, system.control_names)
    _check_parameters(system, parameters)
    if not (np.isfinite(dt_s).all() and (dt_s > 0.0).all()):
        raise UsageError(f"a time step of {dt_s.min()} s", "positive, finite numbers", "check the times")
    if not is_implicit(integrator) and dt_s.size:
        longest, step = min(system.longest_step_s(row) for row in parameters), float(dt_s.max()) / substeps
        if step > longest:
            implicit = "implicit_euler" in system.integrators
            raise UsageError(
                f"a step of {step:.3g} s of '{system.name}'",
                f"at most {longest:.3g} s with {integrator}",
                f"use {int(np.ceil(float(dt_s.max()) / longest))} substeps or more"
                + (", or implicit_euler" if implicit else ""),
            )


def require_finite_states(system: System, states: Array, dt_s: Array) -> None:
    """Raise SimulationError when states [S + 1, B, N] of intervals [..., S] are not finite, naming the first."""
    if np.isfinite(states[-1]).all() and np.isfinite(states).all():
        return
    step, row, column = np.argwhere(~np.isfinite(states))[0]
    time_s = float(np.broadcast_to(dt_s, (states.shape[1], states.shape[0] - 1))[row, :step].sum())
    raise SimulationError(
        f"'{system.state_names[column]}' of '{system.name}' is not a finite number at {time_s:.4g} s",
        "a motion that stays finite",
        "take shorter steps, or check the initial state, the parameters and the controls",
    )


def _check_shapes(
    system: System, states: tuple[int, ...], controls: tuple[int, ...], parameters: tuple[int, ...]
) -> None:
    batch = states[0] if states else 0
    expected_states = (batch, len(system.state_names))
    expected_controls = (batch, controls[1] if len(controls) == 3 else 0, len(system.control_names))
    count = len(system.parameters().items)
    if states != expected_states:
        raise ValueError(f"states have shape {states}; expected [B, {len(system.state_names)}]")
    if controls != expected_controls:
        raise ValueError(f"controls have shape {controls}; expected [{batch}, S, {len(system.control_names)}]")
    if parameters not in ((1, count), (batch, count)):
        raise ValueError(f"parameters have shape {parameters}; expected [{count}] or [{batch}, {count}]")


def _check_parameters(system: System, parameters: Array) -> None:
    known = system.parameters().items
    lower, upper = np.array([p.lower for p in known]), np.array([p.upper for p in known])
    with np.errstate(invalid="ignore"):
        slack = _ROUNDING * np.array(
            [np.where(np.isfinite(lower), lower, 0.0), np.where(np.isfinite(upper), upper, 0.0)]
        )
        bad = ~((parameters >= lower - np.abs(slack[0])) & (parameters <= upper + np.abs(slack[1])))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        p = known[column]
        raise UsageError(
            p.with_unit(f"{p.name} = {parameters[row, column]:.6g}") + f" of '{system.name}'",
            p.with_unit(f"{p.lower:g} to {p.upper:g}"),
            f"choose a {p.name} within these limits",
        )


def _require_finite(what: str, values: Array, names: tuple[str, ...]) -> None:
    if np.isfinite(values).all():
        return
    place = np.argwhere(~np.isfinite(values))[0]
    raise SimulationError(f"{what} has {values[tuple(place)]} in '{names[place[-1]]}'", "finite numbers", "correct it")
