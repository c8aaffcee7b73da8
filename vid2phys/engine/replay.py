"""Rollouts that are recorded once and replayed: of short steps, Python's share of a launch is nearly all of its time.

Warp records what is launched, with the arrays it is launched on, and replays it without Python. A shape of rollout that
a system is asked for again and again (by a descent) is recorded on arrays of its own; the numbers that come out are
the same bit by bit.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

from vid2phys.engine.stepping import fill_states, run_interval
from vid2phys.engine.system import Integrator, Precision, System
from vid2phys.types import Array

_OFTEN = 2  # rollouts of one shape that are launched before one is recorded, which takes as long as several
_KEPT = 8  # shapes of a system
MOST_NUMBERS = 2**20  # of all states of a rollout; beyond, steps take longer than launches and arrays much memory

_Shape = tuple[int, ...]
_known: WeakKeyDictionary[System, OrderedDict[tuple[Any, ...], int | Replay]] = WeakKeyDictionary()


def replay_of(
    system: System, shapes: tuple[_Shape, ...], *, integrator: Integrator, substeps: int, device: str, gradient: bool
) -> Replay | None:
    """Return an object that replays rollouts of these shapes (see `Replay`), None where launching is the better way.

    gradient: whether derivatives are asked for. For one thread: what others launch meanwhile would be recorded, too.
    """
    (rows, size), (_, steps, _), *_ = shapes
    if not system.only_launches(integrator) or device != "cpu" or rows * size * steps * substeps > MOST_NUMBERS:
        return None
    known = _known.setdefault(system, OrderedDict())
    key = (*shapes, integrator, substeps, gradient)
    found = known.pop(key, 0)
    if isinstance(found, int):
        found += 1
        if found > _OFTEN:
            found = Replay(system, shapes, integrator=integrator, substeps=substeps, gradient=gradient)
    known[key] = found
    while len(known) > _KEPT:
        known.popitem(last=False)
    return None if isinstance(found, int) else found


class Replay:
    """Rollouts of one shape: `CompiledIntervals` whose substeps are given when they are recorded."""

    def __init__(
        self, system: System, shapes: tuple[_Shape, ...], *, integrator: Integrator, substeps: int, gradient: bool
    ) -> None:
        """shapes: of initial states [B, N], controls [B, S, M], parameters [1 or B, P] and intervals [1 or B, S]."""
        from vid2phys.engine.kernels.runtime import wp

        def array(*shape: int, differentiable: bool = gradient) -> Any:
            return wp.zeros(shape, dtype=wp.float64, device="cpu", requires_grad=differentiable)

        first, controls, parameters, intervals = shapes
        steps = controls[1]
        self.integrators = (integrator,)
        self._launch = wp.capture_launch
        self._inputs = [array(*controls), array(*parameters), array(*intervals, differentiable=False)]
        if not gradient:
            states = array(steps + 1, *first)
            self._states = states.numpy()
            with wp.ScopedCapture("cpu", force_module_load=False) as forward:
                fill_states(system, states, *self._inputs, integrator=integrator, substeps=substeps)
            self._forward = forward.graph
            return
        made, given = array(1 + steps * substeps, *first), array(steps + 1, *first, differentiable=False)
        self._states, self._cotangents = made.numpy()[::substeps], given.numpy()
        self._gradients = [made.grad.numpy()[0], *(each.grad.numpy() for each in self._inputs[:2])]
        begin, *others = (made[k] for k in range(made.shape[0]))
        fresh = iter(others)

        def ahead(state: Any, step: int) -> Any:
            inputs = state, *self._inputs
            return run_interval(system, *inputs, step=step, integrator=integrator, substeps=substeps, fresh=fresh)

        with wp.ScopedCapture("cpu", force_module_load=False) as forward, wp.Tape() as tape:
            ends = list(accumulate(range(steps), ahead, initial=begin))
        with wp.ScopedCapture("cpu", force_module_load=False) as backward:
            for each in (made, *self._inputs[:2]):
                each.grad.zero_()
            tape.backward(grads={state: given[k] for k, state in enumerate(ends)})
        self._forward, self._backward = forward.graph, backward.graph

    def forward(
        self, states: Array, controls: Array, parameters: Array, dt_s: Array, *, substeps: int, precision: Precision
    ) -> None:
        """See `CompiledIntervals`."""
        self._states[0] = states[0]
        for array, values in zip(self._inputs, (controls, parameters, dt_s), strict=True):
            array.numpy()[:] = values
        self._launch(self._forward)
        states[1:] = self._states[1:]

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
        """See `CompiledIntervals`; goes forward again: another rollout may have gone over the recorded arrays."""
        self.forward(states.copy(), controls, parameters, dt_s, substeps=substeps, precision=precision)
        self._cotangents[:] = cotangents
        self._launch(self._backward)
        initial, by_controls, by_parameters = (each.copy() for each in self._gradients)
        return initial, by_controls, by_parameters
