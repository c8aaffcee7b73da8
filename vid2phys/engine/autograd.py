"""The rollout as a PyTorch autograd function.

Limits: reverse mode and first derivatives only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from vid2phys.engine.checks import require_finite_states
from vid2phys.engine.kernels.runtime import wp
from vid2phys.engine.replay import replay_of
from vid2phys.engine.stepping import fill_states, run_interval
from vid2phys.engine.system import CompiledIntervals, Integrator, Precision, System, compiled_intervals
from vid2phys.types import Array

_RECORDED_BYTES = 2**26  # of states and their gradients that a rollout may keep instead of making steps again


@dataclass(frozen=True)
class _Settings:
    system: System
    intervals_s: Array
    integrator: Integrator
    substeps: int
    compiled: CompiledIntervals | None
    precision: Precision


def differentiable_rollout(
    system: System,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    intervals_s: Array,
    *,
    integrator: Integrator,
    substeps: int,
    device: str,
    precision: Precision = "double",
) -> torch.Tensor:
    """See `rollout.rollout`. tensors: initial states [B, N], controls [B, S, M], parameters [P] or [B, P]."""
    initial, controls, parameters = (t.to(device=device, dtype=torch.float64) for t in tensors)
    parameters = parameters.reshape(-1, parameters.shape[-1])
    shapes = (*(tuple(t.shape) for t in (initial, controls, parameters)), (1, len(intervals_s)))
    gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    compiled = compiled_intervals(system, integrator, device, precision) or replay_of(
        system, shapes, integrator=integrator, substeps=substeps, device=device, gradient=gradient
    )
    settings = _Settings(system, intervals_s, integrator, substeps, compiled, precision)
    function = _Rollout if compiled is None else _CompiledRollout
    states: torch.Tensor = function.apply(initial, controls, parameters, settings)
    return states.transpose(0, 1)


class _Rollout(torch.autograd.Function):
    """Initial states [B, N], controls [B, S, M], parameters [1 or B, P] to states [S + 1, B, N]."""

    @staticmethod
    def forward(
        ctx: Any, initial: torch.Tensor, controls: torch.Tensor, parameters: torch.Tensor, settings: _Settings
    ) -> torch.Tensor:
        substeps_bytes = 2 * initial.numel() * initial.element_size() * controls.shape[1] * settings.substeps
        ctx.recorded = None
        with _same_stream(initial):
            if any(ctx.needs_input_grad) and substeps_bytes <= _RECORDED_BYTES:
                ctx.recorded = _Recorded(settings, initial, controls, parameters)
                states = ctx.recorded.states()
            else:
                states = initial.new_empty((controls.shape[1] + 1, *initial.shape))
                states[0] = initial
                fill_states(
                    settings.system,
                    _to_warp(states),
                    _to_warp(controls),
                    _to_warp(parameters),
                    _intervals(settings, initial.device),
                    integrator=settings.integrator,
                    substeps=settings.substeps,
                )
        require_finite_states(settings.system, states.cpu().numpy(), settings.intervals_s)
        ctx.save_for_backward(states, controls, parameters)
        ctx.settings = settings
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        states, controls, parameters = ctx.saved_tensors
        settings: _Settings = ctx.settings
        if ctx.recorded is not None:
            with _same_stream(states):
                return (*ctx.recorded.backward(grad_states), None)
        with _same_stream(states):
            u, p = _to_warp(controls, gradient=True), _to_warp(parameters, gradient=True)
            dt_s = _intervals(settings, states.device)
            adjoint = grad_states[-1].contiguous()
            for step in reversed(range(controls.shape[1])):
                x = _to_warp(states[step], gradient=True)
                with wp.Tape() as tape:
                    out = run_interval(
                        settings.system,
                        x,
                        u,
                        p,
                        dt_s,
                        step=step,
                        integrator=settings.integrator,
                        substeps=settings.substeps,
                    )
                tape.backward(grads={out: wp.from_torch(adjoint, dtype=wp.float64, requires_grad=False)})
                adjoint = grad_states[step] + wp.to_torch(x.grad)
            return adjoint, wp.to_torch(u.grad), wp.to_torch(p.grad), None


class _Recorded:
    """A rollout with all its substeps on one tape: no step has to be made again for the backward pass."""

    def __init__(
        self, settings: _Settings, initial: torch.Tensor, controls: torch.Tensor, parameters: torch.Tensor
    ) -> None:
        self.inputs = [_to_warp(t, gradient=True) for t in (initial, controls, parameters)]
        self.used = False
        state, u, p = self.inputs
        dt_s = _intervals(settings, initial.device)
        self.trajectory = [state]
        # one array for all substeps: allocating each costs as much as its launch
        shape = (controls.shape[1] * settings.substeps, *initial.shape)
        made = wp.empty(shape, dtype=wp.float64, device=state.device, requires_grad=True)
        fresh = iter([made[k] for k in range(shape[0])])
        with wp.Tape() as self.tape:
            for step in range(controls.shape[1]):
                state = run_interval(
                    settings.system,
                    state,
                    u,
                    p,
                    dt_s,
                    step=step,
                    integrator=settings.integrator,
                    substeps=settings.substeps,
                    fresh=fresh,
                )
                self.trajectory.append(state)

    def states(self) -> torch.Tensor:
        """Return the states [S + 1, B, N]."""
        return torch.stack([wp.to_torch(state, requires_grad=False) for state in self.trajectory])

    def backward(self, grad_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the gradients for initial states, controls and parameters."""
        if self.used:
            self.tape.zero()
        self.used = True
        given = [wp.from_torch(g, dtype=wp.float64, requires_grad=False) for g in grad_states.contiguous()]
        self.tape.backward(grads=dict(zip(self.trajectory, given, strict=True)))
        return tuple(wp.to_torch(a.grad, requires_grad=False).clone() for a in self.inputs)


class _CompiledRollout(torch.autograd.Function):
    """`_Rollout` by the system's compiled loops."""

    @staticmethod
    def forward(
        ctx: Any, initial: torch.Tensor, controls: torch.Tensor, parameters: torch.Tensor, settings: _Settings
    ) -> torch.Tensor:
        assert settings.compiled is not None
        states = initial.new_empty((controls.shape[1] + 1, *initial.shape))
        states[0] = initial
        filled, u, p = (t.detach().contiguous().numpy() for t in (states, controls, parameters))
        lengths = np.asarray(settings.intervals_s)[None]
        settings.compiled.forward(filled, u, p, lengths, substeps=settings.substeps, precision=settings.precision)
        require_finite_states(settings.system, filled, settings.intervals_s)
        ctx.save_for_backward(states, controls, parameters)
        ctx.settings = settings
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        settings: _Settings = ctx.settings
        assert settings.compiled is not None
        states, controls, parameters = (t.detach().contiguous().numpy() for t in ctx.saved_tensors)
        lengths, cotangents = np.asarray(settings.intervals_s)[None], grad_states.contiguous().numpy()
        gradients = settings.compiled.backward(
            *(states, cotangents, controls, parameters, lengths),
            substeps=settings.substeps,
            precision=settings.precision,
        )
        initial, by_controls, by_parameters = (torch.from_numpy(g) for g in gradients)
        return initial, by_controls, by_parameters, None


def _to_warp(tensor: torch.Tensor, *, gradient: bool = False) -> Any:
    """Return the tensor's memory as a Warp array, with a zeroed gradient of its own if asked for."""
    array = wp.from_torch(tensor.detach().contiguous(), dtype=wp.float64, requires_grad=False)
    array.requires_grad = gradient
    return array


def _intervals(settings: _Settings, device: torch.device) -> Any:
    """Return the lengths of the intervals as a Warp array [1, S]."""
    return wp.array(np.asarray(settings.intervals_s)[None], dtype=wp.float64, device=wp.device_from_torch(device))


def _same_stream(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """Run Warp on PyTorch's stream, so that neither reads what the other has yet to write."""
    return wp.ScopedStream(wp.stream_from_torch(tensor.device)) if tensor.is_cuda else nullcontext()
