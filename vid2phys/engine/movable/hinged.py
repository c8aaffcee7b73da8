"""A rigid body on a hinge: the angle about a fixed axis is its only coordinate.

The axes of the swing have the pivot at their origin, y along the axis, and z as near to the vertical as the axis
allows. There a body hangs at angle zero with its centre of mass on -z, as planar pendulums have it.

Limits: the axis is fixed in the world and in the body, and is not vertical.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody, CameraRange, bounding_sphere
from vid2phys.engine.system import System
from vid2phys.geometry import Pose
from vid2phys.types import Array, Mesh

_ANGLES = 36  # of the workspace
_CAMERAS = CameraRange(azimuth=(0.0, 180.0), elevation=(-90.0, 90.0))


@runtime_checkable
class Swinging(Protocol):
    """A system whose state is the angle of one body about an axis and its rate, such as `PlanarPendulum`.

    It has the parameters `mass`, `length`, `inertia` (about the axis through the centre of mass), `gravity` and
    `axis_tilt`.
    """

    def placed(self, world_from_swing: Pose) -> Self:
        """Return the system with its axis where the axes of the swing are in the world."""
        ...

    def spreads(self, parameters: Array) -> dict[str, float]:
        """Return standard deviations of weak priors about zero, by name of the parameter."""
        ...


@dataclass(frozen=True)
class Hanging:
    """How a body hangs on a hinge.

    Attributes:
        world_from_swing: the axes of the swing.
        length: distance of the centre of mass from the axis, m.
        tilt: angle of the axis above the horizontal, rad.
        angle: of the body from where it hangs, rad.
    """

    world_from_swing: Pose
    length: float
    tilt: float
    angle: float

    @staticmethod
    def of(center_of_mass: Array, point: Array, axis: Array) -> Hanging:
        """Return how a body hangs whose centre of mass [3], point [3] on the axis and unit axis [3] are in the world.

        The pivot is the point of the axis that is nearest to the centre of mass. Raises ValueError for a vertical axis.
        """
        arm = center_of_mass - point
        pivot, arm = point + axis * (axis @ arm), arm - axis * (axis @ arm)
        up = np.array([0.0, 0.0, 1.0]) - axis * axis[2]
        size = float(np.linalg.norm(up))
        if not size > 1e-6:
            raise ValueError("the axis is vertical")
        z = up / size
        x = np.cross(axis, z)
        angle = float(np.arctan2(-(arm @ x), -(arm @ z)))
        place = Pose(np.stack([x, axis, z], axis=1), pivot)
        return Hanging(place, float(np.linalg.norm(arm)), float(np.arcsin(np.clip(axis[2], -1.0, 1.0))), angle)


class HingedBody(ArticulatedBody):
    """A rigid mesh on a hinge, with its vertices in the axes of the swing as it hangs. See `ArticulatedBody`."""

    def __init__(self, system: System, mesh: Mesh, points: Array) -> None:
        """Set up the body of a placed system. points: [K, 3] keypoints as it hangs, axes of the swing, m."""
        self.system, self.mesh, self.points_body, self.cameras = system, mesh, points, _CAMERAS
        self.names, self.rest = (system.state_names[0],), np.zeros(1)
        self.lower, self.upper = np.array([-np.inf]), np.array([np.inf])
        self.prior_mean, self.prior_std = np.zeros(1), np.array([np.pi])
        turned = np.linspace(-np.pi, np.pi, _ANGLES, endpoint=False)
        self.center_m, self.radius_m = bounding_sphere(self.all_vertices(turned[:, None]))

    @property
    def recipe(self) -> str:
        """See `ArticulatedBody.recipe`."""
        return f"hinged/1 {self.system.name}"

    @property
    def is_angle(self) -> NDArray[np.bool_]:
        """See `ArticulatedBody.is_angle`."""
        return np.array([True])

    @property
    def periods(self) -> Array:
        """See `ArticulatedBody.periods`; turns are counted."""
        return np.zeros(1)

    def all_vertices(self, configurations: Array) -> Array:
        """See `ArticulatedBody.all_vertices`."""
        return self.system.keypoints(self.states(configurations, np.zeros_like(configurations)), self.mesh.vertices)

    def vertices(self, configuration: Array) -> Array:
        """See `ArticulatedBody.vertices`."""
        return self.all_vertices(configuration)

    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """See `ArticulatedBody.jacobian`."""
        state = self.states(configuration, np.zeros(1))
        return self.system.keypoints_jacobian(state, self.mesh.vertices[vertices])[..., :1]

    def points(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points`."""
        return self.system.keypoints(self.states(configurations, np.zeros_like(configurations)), self.points_body)

    def points_jacobian(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points_jacobian`."""
        states = self.states(configurations, np.zeros_like(configurations))
        return self.system.keypoints_jacobian(states, self.points_body)[..., :1]

    def sample(self, rng: np.random.Generator) -> Array:
        """See `ArticulatedBody.sample`: any angle."""
        return rng.uniform(-np.pi, np.pi, 1)

    def sample_motion(self, rng: np.random.Generator, times_s: Array) -> Array:
        """See `ArticulatedBody.sample_motion`: a slow sine."""
        phase, rate = rng.uniform(-np.pi, np.pi), 2.0 * np.pi * rng.uniform(0.3, 1.5)
        return np.asarray(self.sample(rng) + rng.uniform(0.1, 1.5) * np.sin(rate * times_s + phase)[:, None])

    def states(self, configurations: Array, rates: Array) -> Array:
        """See `ArticulatedBody.states`."""
        return np.concatenate([configurations, rates], axis=-1)

    def configurations(self, states: Array) -> Array:
        """See `ArticulatedBody.configurations`."""
        return np.asarray(states[..., :1])


def hung(mesh: Mesh, world_from_body: Pose, hanging: Hanging) -> Mesh:
    """Return a mesh at a pose as it hangs, in the axes of the swing."""
    return replace(mesh, vertices=as_hung(mesh.vertices, world_from_body, hanging))


def as_hung(points: Array, world_from_body: Pose, hanging: Hanging) -> Array:
    """Return points [K, 3] of a body at a pose as it hangs, in the axes of the swing."""
    at = hanging.world_from_swing.inverse().compose(world_from_body).apply(points)
    cos, sin = np.cos(-hanging.angle), np.sin(-hanging.angle)
    x, y, z = at.T
    return np.stack([cos * x + sin * z, y, cos * z - sin * x], axis=1)


def hinge_of_poses(world_from_body: Pose) -> tuple[Array, Array, float]:
    """Return the axis [3] and a point [3] of it in the world, about which poses [T] turn, and how far they are off, m.

    All poses leave one direction and one point of the body where they are (linear least squares). The axis points along
    the world's axis that is nearest to it.
    """
    rotation, count = world_from_body.rotation, len(world_from_body)
    joint = np.concatenate([rotation, np.tile(-np.eye(3), (count, 1, 1))], axis=2).reshape(-1, 6)
    axis = np.linalg.svd(joint, full_matrices=False)[2][-1, 3:]
    axis = axis / np.linalg.norm(axis) * np.sign(axis[int(np.argmax(np.abs(axis)))])
    found = np.linalg.lstsq(joint, -world_from_body.translation.ravel(), rcond=1e-9)[0]
    off = joint @ found + world_from_body.translation.ravel()
    return axis, found[3:], float(np.sqrt((off**2).mean()))


def swing_angles(world_from_body: Pose, axis: Array, point: Array) -> tuple[Array, Hanging]:
    """Return the angles [T] of poses whose origin is the centre of mass, and how the body hangs on its hinge."""
    at = [Hanging.of(each, point, axis) for each in world_from_body.translation]
    return np.unwrap([each.angle for each in at]), at[0]
