"""The launches of a rollout: one interval after the other, each in equal substeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from vid2phys.engine.system import Integrator, System


def run_interval(
    system: System,
    states: Any,
    controls: Any,
    parameters: Any,
    dt_s: Any,
    *,
    step: int,
    integrator: Integrator,
    substeps: int,
    fresh: Iterator[Any] | None = None,
) -> Any:
    """Run one interval: Warp arrays in, the states after interval `step` out, a fresh array a substep: a tape may
    record it.

    fresh: where those arrays [B, N] come from, if not made here.
    """
    from vid2phys.engine.kernels.runtime import wp

    for _ in range(substeps):
        out = wp.empty_like(states, requires_grad=states.requires_grad) if fresh is None else next(fresh)
        system.launch_step(
            states, controls, parameters, dt_s, out, step=step, fraction=1.0 / substeps, integrator=integrator
        )
        states = out
    return states


def fill_states(
    system: System, buffer: Any, controls: Any, parameters: Any, dt_s: Any, *, integrator: Integrator, substeps: int
) -> None:
    """Fill buffer[1:] of the Warp array [S + 1, B, N] from buffer[0], without gradients."""
    from vid2phys.engine.kernels.runtime import wp

    scratch = [wp.empty_like(buffer[0]) for _ in range(min(substeps - 1, 2))]
    views = [buffer[k] for k in range(buffer.shape[0])]
    for step, (source, target) in enumerate(pairwise(views)):
        for substep in range(substeps):
            out = target if substep == substeps - 1 else scratch[substep % 2]
            system.launch_step(
                source, controls, parameters, dt_s, out, step=step, fraction=1.0 / substeps, integrator=integrator
            )
            source = out
