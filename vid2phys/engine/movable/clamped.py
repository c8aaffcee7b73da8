"""A clamped soft body that is tracked without a model: the configuration is the amplitudes of its lowest modes.

The body of a user's mesh has no trained modes (`modes.ModalBody`). Its own vibration modes span what it does when it is
let go, and shapes that bend far follow from them (`engine.bent_shapes`).

Limits: a body with clamps; motion that its lowest modes span, sections that turn by up to about 70 degrees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.bent_shapes import bent_shapes
from vid2phys.engine.movable.body import ArticulatedBody, CameraRange, bounding_sphere
from vid2phys.engine.systems._reduced import EXACT, MeshError, ReducedBody
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.vibration import Vibration, largest_turns, vibration
from vid2phys.types import Array

_CAMERAS = CameraRange(azimuth=(0.0, 180.0), elevation=(-90.0, 90.0))
_LEAST_MODES, _MOST_MODES = 2, 4
_FASTEST = 7.0  # highest frequency of a mode, in units of the lowest; the second bending of a bar is at 6.3
_FAR_RAD = 1.25  # rotation at which amplitudes end
_SAMPLES = 200  # of shapes, for the workspace
_ROUNDS = 6  # of Gauss-Newton


def reduced_body(full: SoftBody, parameters: Array, mesh: MeshError = EXACT) -> ReducedBody:
    """Return a clamped body by its lowest modes, for parameters [P] of which E and damping do not matter.

    mesh: errors of the body's mesh. Raises InputError where clamps leave the body free to move.
    """
    found = vibration(full, parameters, _MOST_MODES)
    ratio = np.sqrt(found.squares / found.squares[0])
    kept = max(_LEAST_MODES, int((ratio < _FASTEST).sum()))
    found = found.lowest(min(kept, len(ratio)))
    shapes = bent_shapes(full, found.modes, amplitude_limits(full, found))
    return ReducedBody(full, found.scaled(mesh.stiffness, mesh.viscosity), shapes, mesh)


def amplitude_limits(full: SoftBody, found: Vibration) -> Array:
    """Return the largest amplitudes [D]: those that turn a section by 70 degrees, and of higher modes as much energy as
    the lowest mode has."""
    turned = _FAR_RAD / largest_turns(full, found.modes)
    return np.asarray(np.minimum(turned, turned[0] * np.sqrt(found.squares[0] / found.squares)))


class ClampedBody(ArticulatedBody):
    """A `ReducedBody` before a camera. See `ArticulatedBody`; the mesh is the system's surface."""

    bends = True

    def __init__(self, system: ReducedBody) -> None:
        self.system: ReducedBody = system
        assert system.surface is not None
        self.mesh, self.cameras = system.surface, _CAMERAS
        limits = system.shapes.limits
        self.names = system.state_names[: len(limits)]
        self.rest = self.prior_mean = np.zeros(len(limits))
        self.lower, self.upper, self.prior_std = -limits, limits, 0.5 * limits
        moved = np.linalg.norm(system.vibration.modes, axis=2)
        self._points = np.unique(moved.argmax(axis=1))
        self.points_body = self.mesh.vertices[self._points]
        rng = np.random.default_rng(0)
        shapes = self.all_vertices(np.stack([self.sample(rng) for _ in range(_SAMPLES)]))
        used = np.unique(self.mesh.faces)
        self.center_m, self.radius_m = bounding_sphere(shapes[:, used])

    @property
    def recipe(self) -> str:
        """See `ArticulatedBody.recipe`."""
        return f"clamped/1 {len(self.system.full.rest_m)} vertices {len(self.names)} modes"

    def all_vertices(self, configurations: Array) -> Array:
        """See `ArticulatedBody.all_vertices`."""
        return self.system.shapes.vertices(configurations)

    def vertices(self, configuration: Array) -> Array:
        """See `ArticulatedBody.vertices`."""
        return self.system.shapes.vertices(configuration)

    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """See `ArticulatedBody.jacobian`."""
        return self.system.shapes.jacobian(configuration, vertices)

    def points(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points`."""
        return self.system.shapes.vertices(configurations)[..., self._points, :]

    def points_jacobian(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points_jacobian`."""
        return self.system.shapes.jacobian(configurations, self._points)

    def sample(self, rng: np.random.Generator) -> Array:
        """See `ArticulatedBody.sample`: within the limits."""
        return np.asarray(rng.uniform(self.lower, self.upper))

    def sample_motion(self, rng: np.random.Generator, times_s: Array) -> Array:
        """See `ArticulatedBody.sample_motion`: vibrations of the modes."""
        rate = np.sqrt(self.system.vibration.squares / self.system.vibration.squares[0])
        phase = rng.uniform(0.0, 2.0 * np.pi, len(rate))
        return np.asarray(0.5 * self.sample(rng) * np.sin(2.0 * np.pi * times_s[:, None] * rate + phase))

    def states(self, configurations: Array, rates: Array) -> Array:
        """See `ArticulatedBody.states`."""
        return np.concatenate([configurations, rates], axis=-1)

    def configurations(self, states: Array) -> Array:
        """See `ArticulatedBody.configurations`."""
        return np.asarray(states[..., : len(self.names)])

    def nearest_states(self, full_states: Array, begin: Array) -> Array:
        """Return the states [T, 2 D] that are nearest to states [T, 6 V] of the full body, by mass.

        begin: [T, D] amplitudes near them.
        """
        system, full = self.system, self.system.full
        weight = np.sqrt(np.repeat(system.vibration.masses_kg, 3))[:, None]
        out = []
        for state, start in zip(full_states, begin, strict=True):
            at = np.asarray(start, dtype=float)
            position, velocity = full.positions(state), full.velocities(state)
            for _ in range(_ROUNDS):
                slope = weight * system.shapes.jacobian(at).reshape(-1, len(at))
                off = weight[:, 0] * (position - system.shapes.vertices(at)).ravel()
                step = np.linalg.lstsq(slope, off, rcond=None)[0]
                at = np.clip(at + step, self.lower, self.upper)
                if np.abs(step).max() < 1e-7:
                    break
            rate = np.linalg.lstsq(slope, weight[:, 0] * velocity.ravel(), rcond=None)[0]
            out.append(np.concatenate([at, rate]))
        return np.array(out)
