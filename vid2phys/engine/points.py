"""Points of a body in the world as a PyTorch function of states: what joins rollouts to losses and renderers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vid2phys.engine.system import System
from vid2phys.engine.systems._particles import ParticleSystem
from vid2phys.engine.systems._rigid import RigidBodies
from vid2phys.types import Array


def world_points(system: System, states: Tensor, points_body: Array, body: int = 0) -> Tensor:
    """Where named points [K, 3] m are in the world, states [F, N] -> [F, K, 3] m float64, with gradients for states.

    body: whose points, of several free rigid bodies; points of all but the first are given about its centre, in its
    axes. The gradient is that along the manifold of states; what would leave it is zero.
    """
    if isinstance(system, ParticleSystem):
        corners, weights = system.place(points_body)
        positions = states[:, : system.rest_m.size].reshape(len(states), -1, 3)
        return torch.einsum("kc,fkcx->fkx", torch.from_numpy(weights).to(states), positions[:, corners])
    if isinstance(system, RigidBodies):
        inside = system.in_body(points_body) if body == 0 else np.asarray(points_body, dtype=float)
        return _carried(states[:, 13 * body : 13 * body + 7], torch.from_numpy(inside).to(states))
    points: Tensor = _Points.apply(states, system, points_body)
    return points


def _carried(poses: Tensor, points: Tensor) -> Tensor:
    """Points [K, 3] of a body by its poses [F, 7]: position, quaternion wxyz of any length."""
    quat = poses[:, 3:] / poses[:, 3:].norm(dim=1, keepdim=True)
    real, axis = quat[:, None, :1], quat[:, None, 1:].expand(-1, len(points), -1)
    across = torch.linalg.cross(axis, points.expand_as(axis))
    return poses[:, None, :3] + points + 2.0 * (real * across + torch.linalg.cross(axis, across))


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
    """Gradients by states [..., N] in the tangent space of each, [..., D]."""
    return (by_states[..., None, :] @ system.tangent_basis(states))[..., 0, :]
