"""A clamped soft body as the few amplitudes of its lowest modes.

Purpose: fits of a body of thousands of vertices to a clip, in which it moves in a few ways.

Method: Lagrange's equations on the shapes of `engine.bent_shapes`. The elastic energy is the quadratic form of the
modes at rest, since rotations and strains of these shapes are linear in the amplitudes. For a slender bar this is
Galerkin's method for the elastica.

Limits: strains are small, rotations are not; what the left-out modes do is left out. `solvers.full_model` compares
with all vertices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vid2phys.engine.bent_shapes import BentShapes, rotated_shapes
from vid2phys.engine.system import Capabilities, Integrator, Precision
from vid2phys.engine.systems._flat import FlatSystem
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.vibration import Vibration
from vid2phys.errors import UsageError
from vid2phys.types import Array, Parameters

_LEFT_OUT = 1e-4  # largest share of the moved masses' spread that is left out
_MARGIN = 0.8  # of the bound of stability at rest
_LEAST_DAMPING = 1e-6  # Pa s
_RANGE = 2.0  # times the limits, beyond which polynomials mean nothing


@dataclass(frozen=True)
class MeshError:
    """Stiffness and viscosity of a body over those of its mesh; std: of both, what finer meshes may still change."""

    stiffness: float
    viscosity: float
    std: float


EXACT = MeshError(1.0, 1.0, 0.0)


class ReducedBody(FlatSystem):
    """A clamped `SoftBody` by D mode amplitudes.

    State [2 D]: amplitudes [m], each the displacement of the vertex that its mode moves most, as far as the body bends
    little; then their rates [m/s]. Parameters are those of the soft body, without controls. `full` is that body.
    """

    name = "soft_body"
    integrators = ("rk4",)
    action_names: tuple[str, ...] = ()
    action_units: tuple[str, ...] = ()
    control_names: tuple[str, ...] = ()
    control_inertia: tuple[str, ...] = ()
    control_groups: tuple[str, ...] = ()

    def __init__(self, full: SoftBody, vibration: Vibration, shapes: BentShapes, mesh: MeshError = EXACT) -> None:
        """full: with its modes and shapes. mesh: its errors, which `vibration` has no more."""
        self.full, self.vibration, self.shapes, self.mesh = full, vibration, shapes, mesh
        self.surface = full.surface
        size = shapes.powers.shape[1]
        amplitudes = tuple(f"mode_{i + 1}_m" for i in range(size))
        self.state_names = (*amplitudes, *(f"{name}_s" for name in amplitudes))
        self.tangent_names = self.state_names
        self.compiled = _Rollouts(self)

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`: those of the soft body; nothing drives it."""
        return self.full.capabilities

    def parameters(self) -> Parameters:
        """See `System.parameters`; damping is positive here, so that its logarithm is fitted."""
        own = self.full.parameters()
        positive = [replace(p, lower=_LEAST_DAMPING, transform="log") if p.name == "damping" else p for p in own]
        return Parameters(tuple(positive))

    @cached_property
    def loops(self) -> tuple[Array, ...]:
        """What `kernels.reduced_cpu` takes of the body: terms, their basis, masses, weights, stiffness, viscosity."""
        shapes, body = self.shapes, self.full
        flat = shapes.coefficients.reshape(len(shapes.powers), -1)
        size = np.prod(np.maximum(shapes.limits, 1e-12)[None] ** shapes.powers, axis=1)
        volumes, loads = np.repeat(body.nodal_volumes, 3), np.repeat(body.added_kg, 3)
        density = float(body.parameters()["density"].value)
        root = np.sqrt(density * volumes + loads)
        rows, spread, columns = np.linalg.svd(size[:, None] * flat * root, full_matrices=False)
        rank = int((spread > _LEFT_OUT * spread[0]).sum())
        basis = rows[:, :rank] * spread[:rank] / size[:, None]
        places = columns[:rank] / root
        down = np.tile([0.0, 0.0, 1.0], len(body.rest_m))
        return (
            *(np.ascontiguousarray(shapes.powers), np.ascontiguousarray(basis)),
            *(np.ascontiguousarray((places * each) @ places.T) for each in (volumes, loads)),
            *(places @ (each * down) for each in (volumes, loads)),
            *(np.ascontiguousarray(each) for each in (self.vibration.stiffness, self.vibration.viscosity)),
        )

    def launch_step(
        self,
        states: Any,
        controls: Any,
        parameters: Any,
        dt_s: Any,
        next_states: Any,
        *,
        step: int,
        fraction: float,
        integrator: Integrator,
    ) -> None:
        """Raise UsageError: rollouts are those of compiled loops on the CPU."""
        raise UsageError("launches of a reduced body", "its compiled loops", "use device cpu")

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`."""
        young, eta = (float(value) for value in np.asarray(parameters, dtype=float)[[0, 2]])
        flat = self.vibration.modes.reshape(len(self.vibration.modes), -1)
        mass = (flat * np.repeat(self.vibration.masses_kg, 3)) @ flat.T
        square = young * float(np.linalg.eigvals(np.linalg.solve(mass, self.vibration.stiffness)).real.max())
        damping = eta * float(np.linalg.eigvals(np.linalg.solve(mass, self.vibration.viscosity)).real.max())
        return _MARGIN * 4.0 / (damping + np.sqrt(damping**2 + 4.0 * square))

    def positions(self, states: Array) -> Array:
        """Return all vertices [..., V, 3] m."""
        return self.shapes.vertices(np.asarray(states, dtype=float)[..., : len(self.state_names) // 2])

    def full_parameters(self, parameters: Array) -> Array:
        """Return parameters [P] with which `full`, on its mesh, is as stiff as this body with those given."""
        scale = {"young_modulus": self.mesh.stiffness, "damping": self.mesh.viscosity}
        return np.asarray(np.array([scale.get(name, 1.0) for name in self.parameters().names]) * parameters)

    def full_motion(self, state: Array) -> tuple[Array, Array]:
        """Return positions [V, 3] m and velocities [V, 3] m/s of all vertices for one state [2 D], without polynomials'
        errors, which strain elements."""
        amplitudes, rates = np.split(np.asarray(state, dtype=float), 2)
        return self._exact(amplitudes), self.shapes.jacobian(amplitudes) @ rates

    @cached_property
    def _exact(self) -> Callable[[Array], Array]:
        return rotated_shapes(self.full, self.vibration.modes)

    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """See `System.body_pose`: the mean of the vertices, and no rotation."""
        centre = self.positions(states).mean(axis=-2)
        return centre, np.broadcast_to(np.array([1.0, 0.0, 0.0, 0.0]), (*centre.shape[:-1], 4))

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`; points in the shape at rest."""
        corners, weights = self.full.place(points_body)
        return np.einsum("kc,...kcx->...kx", weights, self.positions(states)[..., corners, :])

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`."""
        corners, weights = self.full.place(points_body)
        size = len(self.state_names) // 2
        slopes = self.shapes.jacobian(np.asarray(states, dtype=float)[..., :size])[..., corners, :, :]
        moved = np.einsum("kc,...kcxd->...kxd", weights, slopes)
        return np.concatenate([moved, np.zeros_like(moved)], axis=-1)

    def vertices(self, state: Array, mesh_vertices: Array) -> Array:
        """See `System.vertices`."""
        if mesh_vertices.shape == self.full.rest_m.shape:
            return self.positions(state)
        return self.keypoints(state, mesh_vertices)

    def rest_state(self) -> Array:
        """See `System.rest_state`."""
        return np.zeros(len(self.state_names))

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: amplitudes within half of the limits, and rates of as much in a tenth second."""
        spread = np.concatenate([0.5 * self.shapes.limits, 5.0 * self.shapes.limits])
        return np.asarray(spread * rng.uniform(-1.0, 1.0, (n, len(spread))))

    def hover_controls(self, parameters: Array) -> Array:
        """See `System.hover_controls`: none."""
        return np.zeros(0)


class _Rollouts:
    """See `System.compiled`."""

    integrators: tuple[Integrator, ...] = ("rk4",)

    def __init__(self, body: ReducedBody) -> None:
        self._body = body

    def forward(
        self, states: Array, controls: Array, parameters: Array, dt_s: Array, *, substeps: int, precision: Precision
    ) -> None:
        """See `CompiledIntervals.forward`; states far beyond the limits become NaN."""
        from vid2phys.engine.kernels.reduced_cpu import roll_out

        batch = states.shape[1]
        rows = np.ascontiguousarray(np.broadcast_to(parameters, (batch, parameters.shape[1])))
        lengths = np.ascontiguousarray(np.broadcast_to(dt_s, (batch, dt_s.shape[1])))
        roll_out(states, rows, lengths, substeps, self._body.loops)
        limits = _RANGE * self._body.shapes.limits
        with np.errstate(invalid="ignore"):
            beyond = ~(np.abs(states[..., : len(limits)]) <= limits).all(axis=-1)
        states[beyond] = np.nan

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
        """Raise UsageError: fits of reduced bodies take differences."""
        raise UsageError("gradients of a reduced body", "differences of rollouts", "use shooting")
