"""Bodies on a base whose pose in the world is known: articulated ones (`joints`) and modal ones (`modes`).

Such a body's configuration is D numbers: joint angles [rad] and displacements [m], or amplitudes of the modes of an
elastic body. All points are in the axes of the base, which are those of the world. The system defines where its base
is.

Limits: the pose of the base is given, not estimated. A rigid body without a base is `rigid.RigidBody`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.system import System
from vid2phys.types import Array, Mesh

FILL = 1.0  # share of the virtual camera's image that the diameter of the workspace takes


@dataclass(frozen=True)
class CameraRange:
    """Where the body is filmed from.

    Attributes:
        azimuth: Middle and half width of the direction from the workspace to the camera, deg, from +x towards +y.
        elevation: Lowest and highest angle above the horizontal, deg.
        distance: Nearest and farthest distance, in radii of the workspace.
    """

    azimuth: tuple[float, float]
    elevation: tuple[float, float]
    distance: tuple[float, float] = (3.5, 16.0)

    def contains(self, towards_camera: Array, *, margin: float = 8.0) -> bool:
        """Return whether the direction [3] from the workspace to a camera is in the range, up to `margin` degrees."""
        x, y, z = np.asarray(towards_camera, dtype=float) / np.linalg.norm(towards_camera)
        aside = abs((np.degrees(np.arctan2(y, x)) - self.azimuth[0] + 180.0) % 360.0 - 180.0)
        above = np.degrees(np.arcsin(z))
        low, high = self.elevation
        return bool(aside <= self.azimuth[1] + margin and low - margin <= above <= high + margin)

    def to_json(self) -> dict[str, Any]:
        """Return the range as plain lists."""
        return {name: list(value) for name, value in asdict(self).items()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> CameraRange:
        """Return the range of `to_json`. Raises KeyError, TypeError, ValueError."""
        return CameraRange(*((float(a), float(b)) for a, b in (data["azimuth"], data["elevation"], data["distance"])))


class ArticulatedBody(ABC):
    """An articulated or modal body on a known base. It satisfies `movable.Movable`.

    Attributes:
        system: The system whose body it is.
        mesh: The mesh at rest, V vertices.
        points_body: [K, 3] keypoints at rest, m.
        names: Names of the D coordinates of a configuration.
        rest: [D] configuration at rest.
        lower: [D] lower limits.
        upper: [D] upper limits.
        prior_mean: [D] mean of a weak prior.
        prior_std: [D] standard deviations of the weak prior.
        center_m: [3] centre of the workspace, a sphere that contains the body in every configuration.
        radius_m: Radius of the workspace.
        cameras: Where the body is filmed from.
        half_turn: [K] keypoint whose place each keypoint takes when the body is rotated by 180 degrees about the
            vertical; None for a body that looks different from behind.
        bends: Whether smooth parts of the surface bend, so that shading shows the configuration.
    """

    system: System
    mesh: Mesh
    points_body: Array
    names: tuple[str, ...]
    rest: Array
    lower: Array
    upper: Array
    prior_mean: Array
    prior_std: Array
    center_m: Array
    radius_m: float
    cameras: CameraRange
    half_turn: NDArray[np.int64] | None = None
    bends: bool = False

    @property
    def reach_m(self) -> float:
        """Return the largest distance of the body from the origin of the base, m."""
        return float(np.linalg.norm(self.center_m)) + self.radius_m

    @property
    def limits(self) -> tuple[Array, Array]:
        """See `Movable.limits`."""
        return self.lower, self.upper

    def retract(self, configuration: Array, step: Array) -> Array:
        """See `Movable.retract`; arguments may have leading axes [..., D]."""
        return np.asarray(np.clip(configuration + step, self.lower, self.upper))

    @property
    def is_angle(self) -> NDArray[np.bool_]:
        """Return whether a coordinate [D] is an angle, rad."""
        return np.zeros(len(self.names), dtype=bool)

    @property
    def periods(self) -> Array:
        """Return the period [D] of each coordinate, after which the body is as before; zero without one."""
        return np.where(self.is_angle & np.isinf(self.upper - self.lower), 2.0 * np.pi, 0.0)

    def difference(self, a: Array, b: Array) -> Array:
        """Return the step [..., D] from one configuration to another, the shorter way round."""
        periods = self.periods
        step, whole = np.asarray(b) - np.asarray(a), np.where(periods > 0.0, periods, 1.0)
        return np.asarray(step - np.where(periods > 0.0, whole * np.round(step / whole), 0.0))

    def all_vertices(self, configurations: Array) -> Array:
        """Return the vertices [N, V, 3] in configurations [N, D], m."""
        return np.stack([self.vertices(each) for each in configurations])

    def surface(self, configuration: Array) -> Array:
        """Return places [M, 3] all over the surface in a configuration, m: the vertices, and more where they are
        sparse."""
        return self.vertices(configuration)

    def surface_jacobian(self, configuration: Array, places: NDArray[np.int64]) -> Array:
        """Return the derivatives [N, 3, D] of the places of `surface` with the indices `places` [N] by a step."""
        return self.jacobian(configuration, places)

    @property
    @abstractmethod
    def recipe(self) -> str:
        """Return a text that identifies what configurations and images depend on besides the mesh."""

    @abstractmethod
    def vertices(self, configuration: Array) -> Array:
        """See `Movable.vertices`; a configuration is [D]."""

    @abstractmethod
    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """See `Movable.jacobian`; a configuration is [D]."""

    @abstractmethod
    def points(self, configurations: Array) -> Array:
        """Return the keypoints in configurations, [..., D] -> [..., K, 3] m."""

    @abstractmethod
    def points_jacobian(self, configurations: Array) -> Array:
        """Return the derivatives of the keypoints by the configurations, [..., D] -> [..., K, 3, D]."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Array:
        """Draw a random configuration [D]."""

    @abstractmethod
    def sample_motion(self, rng: np.random.Generator, times_s: Array) -> Array:
        """Draw the configurations [T, D] of a smooth motion at times [T]."""

    @abstractmethod
    def states(self, configurations: Array, rates: Array) -> Array:
        """Return states [..., N] of the system in configurations [..., D] that change at rates [..., D] per second."""

    @abstractmethod
    def configurations(self, states: Array) -> Array:
        """Return the configurations [..., D] that are nearest to states [..., N]."""


def bounding_sphere(points: Array) -> tuple[Array, float]:
    """Return the centre [3] of the box around points [..., 3], and the distance of the farthest point from it."""
    flat = points.reshape(-1, 3)
    center = 0.5 * (flat.min(axis=0) + flat.max(axis=0))
    return center, float(np.linalg.norm(flat - center, axis=1).max())
