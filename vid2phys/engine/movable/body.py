"""Bodies on a base whose place in the world is known: their shape is what a frame tells.

A shape is D numbers, the *configuration*: angles and displacements of joints (`joints`), or amplitudes of a clamped
body's modes (`modes`). Everything is in the axes of the base, which are those of the world: the system says where
its base is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.system import System
from vid2phys.types import Array, Mesh

FILL = 1.0  # share of the view that the diameter of the workspace takes


@dataclass(frozen=True)
class CameraRange:
    """From where the body is filmed: directions [deg] from the workspace to the camera, distances in its radii.

    azimuth: middle and half width, from +x towards +y. elevation: lowest and highest, above the horizontal. distance:
    nearest and farthest.
    """

    azimuth: tuple[float, float]
    elevation: tuple[float, float]
    distance: tuple[float, float] = (3.5, 16.0)

    def holds(self, towards_camera: Array, *, margin: float = 8.0) -> bool:
        """Whether a camera in this direction [3] from the workspace is one of these, up to `margin` degrees."""
        x, y, z = np.asarray(towards_camera, dtype=float) / np.linalg.norm(towards_camera)
        aside = abs((np.degrees(np.arctan2(y, x)) - self.azimuth[0] + 180.0) % 360.0 - 180.0)
        above = np.degrees(np.arcsin(z))
        low, high = self.elevation
        return bool(aside <= self.azimuth[1] + margin and low - margin <= above <= high + margin)

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {name: list(value) for name, value in asdict(self).items()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> CameraRange:
        """Back from `to_json`. Raises KeyError, TypeError, ValueError."""
        return CameraRange(*((float(a), float(b)) for a, b in (data["azimuth"], data["elevation"], data["distance"])))


class ArticulatedBody(ABC):
    """What images of such a body are made from, and what they are read with.

    system: whose body it is. mesh: at rest. points_body: [K, 3] m, the keypoints at rest. names: of the configuration's
    coordinates [D]; rest, lower, upper: [D] values of them; spread: [D] standard deviations of a weak prior about
    `middle` [D]. center_m [3], radius_m: a sphere that holds the body whatever its configuration. cameras: where it is
    filmed from. half_turn: [K] the keypoint that each one comes to lie on when a body that looks the same from behind
    is turned about the vertical, else None. bends: whether smooth parts of its surface do, which light shows.
    """

    system: System
    mesh: Mesh
    points_body: Array
    names: tuple[str, ...]
    rest: Array
    lower: Array
    upper: Array
    middle: Array
    spread: Array
    center_m: Array
    radius_m: float
    cameras: CameraRange
    half_turn: NDArray[np.int64] | None = None
    bends: bool = False

    @property
    def reach_m(self) -> float:
        """How far from the base's origin the body can be."""
        return float(np.linalg.norm(self.center_m)) + self.radius_m

    @property
    @abstractmethod
    def recipe(self) -> str:
        """What the configurations and images follow from besides the mesh, as text: equal texts give equal images."""

    @abstractmethod
    def vertices(self, configuration: Array) -> Array:
        """The mesh's vertices [V, 3] m in a configuration [D]."""

    @abstractmethod
    def vertex_jacobian(self, configuration: Array, which: NDArray[np.int64]) -> Array:
        """d vertices / d configuration of the vertices `which` [N] in a configuration [D], [N, 3, D]."""

    @abstractmethod
    def points(self, configurations: Array) -> Array:
        """Where the keypoints are, [..., D] -> [..., K, 3] m."""

    @abstractmethod
    def jacobian(self, configurations: Array) -> Array:
        """d points / d configuration, [..., D] -> [..., K, 3, D]."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Array:
        """A random configuration [D]."""

    @abstractmethod
    def sample_motion(self, rng: np.random.Generator, times_s: Array) -> Array:
        """Configurations [T, D] of a smooth motion."""

    @abstractmethod
    def states(self, configurations: Array, rates: Array) -> Array:
        """States [..., N] of the system in configurations that change at `rates` per second, [..., D] each."""

    @abstractmethod
    def configurations(self, states: Array) -> Array:
        """The configurations [..., D] of states [..., N], as near as they come."""


def bounding_sphere(points: Array) -> tuple[Array, float]:
    """Middle [3] of the box about points [..., 3] and the distance of the farthest one from it."""
    flat = points.reshape(-1, 3)
    center = 0.5 * (flat.min(axis=0) + flat.max(axis=0))
    return center, float(np.linalg.norm(flat - center, axis=1).max())
