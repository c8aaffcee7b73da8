"""What systems of free rigid bodies share: the layout of states, their manifold, and points fixed to a body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vid2phys import geometry
from vid2phys.engine.system import BODY, TO_WORLD, WORLD, Capabilities, System
from vid2phys.types import Array

if TYPE_CHECKING:
    from torch import Tensor

_STATE = (
    *(("position_x", "m"), ("position_y", "m"), ("position_z", "m")),
    *((f"orientation_quat_{axis}", "") for axis in "wxyz"),
    *((f"velocity_{axis}", "m_s") for axis in "xyz"),
    *((f"angular_velocity_{axis}", "rad_s") for axis in "xyz"),
)
FRAMES = {"position": WORLD, "orientation_quat": TO_WORLD, "velocity": WORLD, "angular_velocity": BODY}
_ROTATION = tuple((f"rotation_{axis}", "rad") for axis in "xyz")


class RigidBodies(System):
    """One or several free rigid bodies.

    State [13 a body]: position (world, m), orientation quaternion wxyz (body to world), velocity (world, m/s), angular
    velocity (body, rad/s). Tangent [12 a body]: dp (world), dtheta (body, q * exp(dtheta)), dv (world), domega (body).
    Named points and the mesh that the camera sees belong to the first body; they are given in axes of their own, in
    which the body's origin is at `origin` and its axes are the columns of `axes` (by default the same axes).
    """

    state_frames = FRAMES
    count: int  # number of bodies
    origin: Array = np.zeros(3)
    axes: Array = np.eye(3)

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`: one body is seen as a rigid body."""
        if self.count == 1:
            return Capabilities(observed_as="rigid")
        return Capabilities(reason="the tracker follows one body, and this system has several")

    def retract(self, states: Array, tangent: Array) -> Array:
        """See `System.retract`; quaternions move by right multiplication with exp(dtheta)."""
        s, t = self.split(states), _split(tangent, 12)
        quat = geometry.quat_multiply(s[..., 3:7], geometry.quat_from_rotvec(t[..., 3:6]))
        parts = [s[..., :3] + t[..., :3], geometry.quat_normalize(quat), s[..., 7:] + t[..., 6:]]
        return _join(np.concatenate(parts, axis=-1))

    def local(self, a: Array, b: Array) -> Array:
        """See `System.local`; the shorter way round."""
        a, b = np.broadcast_arrays(self.split(a), self.split(b))
        dtheta = geometry.rotvec_from_quat(geometry.quat_multiply(geometry.quat_conjugate(a[..., 3:7]), b[..., 3:7]))
        return _join(np.concatenate([b[..., :3] - a[..., :3], dtheta, b[..., 7:] - a[..., 7:]], axis=-1))

    def tangent_basis(self, states: Array) -> Array:
        """See `System.tangent_basis`."""
        bodies = self.split(states)
        basis = np.zeros((*bodies.shape[:-2], 13 * self.count, 12 * self.count))
        for i in range(self.count):
            s, t = 13 * i, 12 * i
            turned = [geometry.quat_multiply(bodies[..., i, 3:7], 0.5 * np.eye(4)[k]) for k in (1, 2, 3)]
            basis[..., s : s + 3, t : t + 3] = np.eye(3)
            basis[..., s + 3 : s + 7, t + 3 : t + 6] = np.stack(turned, axis=-1)
            basis[..., s + 7 : s + 13, t + 6 : t + 12] = np.eye(6)
        return basis

    def cotangent_basis(self, states: Array) -> Array:
        """See `System.cotangent_basis`: the transposed tangent basis but for the quaternions' factor of four."""
        basis = np.swapaxes(self.tangent_basis(states), -1, -2).copy()
        for i in range(self.count):
            basis[..., 12 * i + 3 : 12 * i + 6, :] *= 4.0
        return basis

    def split(self, states: Array) -> Array:
        """Return one row a body, [..., N] -> [..., number of bodies, 13]."""
        return _split(states, 13)

    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """See `System.body_pose`: the first body."""
        first = self.split(states)[..., 0, :]
        return first[..., :3], first[..., 3:7]

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`."""
        positions, quats = self.body_pose(states)
        turned = self.in_body(points_body) @ np.swapaxes(geometry.matrix_from_quat(quats), -1, -2)
        return positions[..., None, :] + turned

    def tensor_points(self, states: Tensor, points_body: Array, body: int = 0) -> Tensor:
        """See `System.tensor_points`; rotates by quaternions wxyz of any length."""
        import torch

        inside = self.in_body(points_body) if body == 0 else np.asarray(points_body, dtype=float)
        poses, points = states[:, 13 * body : 13 * body + 7], torch.from_numpy(inside).to(states)
        quat = poses[:, 3:] / poses[:, 3:].norm(dim=1, keepdim=True)
        real, axis = quat[:, None, :1], quat[:, None, 1:].expand(-1, len(points), -1)
        across = torch.linalg.cross(axis, points.expand_as(axis))
        return poses[:, None, :3] + points + 2.0 * (real * across + torch.linalg.cross(axis, across))

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`: d(p + R exp(dtheta) x) = dp - R [x] dtheta."""
        rotation = geometry.matrix_from_quat(self.body_pose(states)[1])
        jacobian = np.zeros((*np.shape(states)[:-1], len(points_body), 3, 12 * self.count))
        jacobian[..., :3] = np.eye(3)
        jacobian[..., 3:6] = -rotation[..., None, :, :] @ geometry.skew(self.in_body(points_body))
        return jacobian

    def vertices(self, state: Array, mesh_vertices: Array) -> Array:
        """See `System.vertices`."""
        return self.keypoints(state, mesh_vertices)

    def in_body(self, points: Array) -> Array:
        """Return the points [K, 3] m given in axes of their own, in the first body's."""
        return (np.asarray(points, dtype=float) - self.origin) @ self.axes


def state_names(count: int) -> tuple[str, ...]:
    """Return the names of the states; those of several bodies have the body's number before the unit."""
    return _numbered(_STATE, count)


def tangent_names(count: int) -> tuple[str, ...]:
    """Return the names of the tangents, as `state_names`."""
    return _numbered((*_STATE[:3], *_ROTATION, *_STATE[7:]), count)


def suffixes(count: int) -> tuple[str, ...]:
    """Return what a name ends with for each body: nothing for a single one, else its number."""
    return ("",) if count == 1 else tuple(f"_{i}" for i in range(count))


def _numbered(names: tuple[tuple[str, str], ...], count: int) -> tuple[str, ...]:
    return tuple(f"{name}{suffix}" + (f"_{unit}" if unit else "") for suffix in suffixes(count) for name, unit in names)


def _split(rows: Array, size: int) -> Array:
    rows = np.asarray(rows, dtype=float)
    return rows.reshape(*rows.shape[:-1], rows.shape[-1] // size, size)


def _join(bodies: Array) -> Array:
    return bodies.reshape(*bodies.shape[:-2], bodies.shape[-2] * bodies.shape[-1])
