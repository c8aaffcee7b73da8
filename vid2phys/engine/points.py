"""Points of a body in the world as a PyTorch function of states, which joins rollouts to losses and renderers.

Limits: systems without `tensor_points` go through NumPy, one Jacobian a frame.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vid2phys.engine.system import System
from vid2phys.types import Array


def world_points(system: System, states: Tensor, points_body: Array, body: int = 0) -> Tensor:
    """Return named points [K, 3] m of a body in the world, with gradients for states.

    Args:
        system: The system. Its `tensor_points` are used where it has them, else its `keypoints`.
        states: [F, N].
        points_body: [K, 3] m.
        body: Whose points, of several free rigid bodies. Points of all but the first are given about the body's
            centre, in the body's axes.

    Returns:
        [F, K, 3] m, float64. The gradient is that along the manifold of states; the part that leaves it is zero.
    """
    direct = system.tensor_points(states, points_body, body)
    if direct is not None:
        return direct
    points: Tensor = _Points.apply(states, system, points_body)
    return points


class _Points(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, system: System, points_body: Array) -> Tensor:
        values = states.detach().cpu().double().numpy()
        ctx.inputs = system, values, points_body
        return torch.from_numpy(system.keypoints(values, points_body)).to(states.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_points: Tensor) -> tuple[Tensor, None, None]:
        system, values, points_body = ctx.inputs
        gradient = torch.zeros(values.shape, dtype=torch.float64)
        given = by_points.cpu().double().numpy()
        for frame, (state, along) in enumerate(zip(values, given, strict=True)):  # a Jacobian of all would be large
            tangent = along.ravel() @ system.keypoints_jacobian(state, points_body).reshape(along.size, -1)
            gradient[frame] = torch.from_numpy(tangent @ system.cotangent_basis(state))
        return gradient.to(by_points.device), None, None


def manifold_gradient(system: System, states: Array, by_states: Array) -> Array:
    """Return gradients by states [..., N] in the tangent space of each, [..., D]."""
    return (by_states[..., None, :] @ system.tangent_basis(states))[..., 0, :]
