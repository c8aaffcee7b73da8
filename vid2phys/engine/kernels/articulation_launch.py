"""Launching the steps of `articulation.py` and recording their adjoint."""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from vid2phys.engine.kernels.articulation import Cotangent, Link, Tree, step_rk4, step_semi_implicit_euler
from vid2phys.engine.kernels.articulation_adjoint import adjoint_rk4, adjoint_semi_implicit_euler
from vid2phys.engine.kernels.runtime import wp

_STAGES = {"rk4": 4, "semi_implicit_euler": 1}


def device_tree(constants: dict[str, Any], device: str) -> Any:
    """Return the constants of an instance, as fields of `Tree`, on a device."""
    tree = Tree()
    for name, value in constants.items():
        if not isinstance(value, int):
            value = wp.array(value, dtype=Tree.vars[name].type.dtype, device=device)
        setattr(tree, name, value)
    return tree


class Scratch:
    """Arrays for a batch that live no longer than a launch; `memo` is for launches that no tape records."""

    def __init__(self, tree: Any, rows: int, size: int, device: str) -> None:
        dofs = tree.base + tree.links - 1
        self.rows, self.device = rows, device
        self.memo_shape = (rows, 4, size + 2 * dofs + sum(tree.dof_depth.numpy() + 1))
        self.links = wp.empty((rows, tree.links), dtype=Link, device=device)
        self.cotangents = wp.empty((rows, tree.links), dtype=Cotangent, device=device)
        self.work = wp.empty((rows, 3, size), dtype=wp.float64, device=device)
        self.memo = self.new_memo(4)

    def new_memo(self, stages: int) -> Any:
        """Return what an adjoint needs to know of its step: the stages' states, accelerations and factors."""
        return wp.empty((self.memo_shape[0], stages, self.memo_shape[2]), dtype=wp.float64, device=self.device)


def launch(
    tree: Any,
    scratch: Scratch,
    states: Any,
    controls: Any,
    parameters: Any,
    dt_s: Any,
    next_states: Any,
    step: int,
    fraction: float,
    integrator: str,
) -> None:
    """Launch one step; see `System.launch_step`."""
    tape = wp._src.context.runtime.tape
    recorded = tape is not None and next_states.requires_grad
    memo = scratch.new_memo(_STAGES[integrator]) if recorded else scratch.memo
    kernel, adjoint = (step_rk4, adjoint_rk4)
    if integrator == "semi_implicit_euler":
        kernel, adjoint = (step_semi_implicit_euler, adjoint_semi_implicit_euler)
    rows, device = states.shape[0], states.device
    inputs = [states, controls, parameters, dt_s, step, fraction, tree, scratch.links, memo]
    _launch(kernel, rows, inputs, [next_states], device)
    if not recorded:
        return
    if wp.config.verify_autograd_array_access:
        next_states.mark_write(arg_name="next_states", kernel_name=kernel.key, filename=__file__, lineno=0)
        for array in (states, controls, parameters):
            array.mark_read()

    def backward() -> None:
        given = [a.grad if a.grad is not None else wp.zeros_like(a) for a in (states, controls, parameters)]
        fixed = [parameters, dt_s, step, fraction, tree, scratch.links, scratch.cotangents, memo, scratch.work]
        inputs = [*fixed, next_states.grad]
        _launch(adjoint, rows, inputs, given, device)

    tape.record_func(backward, [a for a in (states, controls, parameters, next_states) if a.grad is not None])


def _launch(kernel: Any, rows: int, inputs: list[Any], outputs: list[Any], device: Any) -> None:
    """Launch what no tape differentiates; such kernels may overwrite arrays, so Warp is not to check that."""
    checked, wp.config.verify_autograd_array_access = wp.config.verify_autograd_array_access, False
    try:
        wp.launch(kernel, dim=rows, inputs=inputs, outputs=outputs, device=device, record_tape=False)
    finally:
        wp.config.verify_autograd_array_access = checked
