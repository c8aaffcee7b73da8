"""Smoke in two dimensions: an incompressible flow on a periodic grid that carries a density."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from vid2phys.engine.system import WORLD, Capabilities, Integrator
from vid2phys.engine.systems._flat import FlatSystem
from vid2phys.errors import UsageError, unknown_name
from vid2phys.types import Array, Parameter, Parameters

Projection = Literal["exact", "jacobi"]
_PROJECTIONS = ("exact", "jacobi")
_FEWEST_CELLS = 4

# the grid and the pressure solver of gradSim's smoke example (Murthy et al., ICLR 2021; its released code)
GRADSIM: dict[str, Any] = {"cells": 110, "projection": "jacobi", "iterations": 6}


class Smoke(FlatSystem):
    """Smoke on a periodic grid of n x n cells in the world's x-z plane.

    State [3 n^2]: u, the velocity along x (m/s), v, that along z (up, m/s), and density (1), each [n, n] flattened,
    rows upwards. The grid is staggered and its lower left corner is the world's origin: with h the `cell_size`, entry
    [k, i] of u is at x = i h, z = (k + 1/2) h, that of v at x = (i + 1/2) h, z = k h, that of density in the middle of
    cell (k, i). Controls [2]: a uniform body acceleration (disturbance, m/s^2).

        w' + (w . grad) w = -grad p + viscosity laplacian(w) + buoyancy density e_z + a,  div w = 0,
        density' + w . grad density = -dissipation density

    `semi_implicit_euler` takes the parts of a step in turn (Stam, "Stable Fluids", SIGGRAPH 1999): viscosity and
    forces, the velocity carried along itself as it was, projection, then the density carried along the new velocity.
    To carry is semi-Lagrangian: what arrives at a point is looked up a step upstream, bilinearly. First order in time
    and space. Steps are stable at any length without viscosity; with it (explicit) up to h^2 / (4 viscosity).

    `projection="exact"` makes the velocity free of divergence to rounding, by FFT, on the CPU only; "jacobi" takes
    `iterations` Jacobi iterations of the pressure from zero and leaves some divergence (gradSim's smoke: `GRADSIM`).
    Both are linear and self-adjoint, so each is its own adjoint: -grad is the transpose of div, and what lies between
    them is a polynomial (or the inverse) of the symmetric laplacian.

    Limits: periodic, so no walls and no obstacles, and nothing outside the grid; two dimensions; numerical diffusion of
    about |w| h / 2 for steps shorter than a cell (it smooths, and the total density is kept only where the flow is
    uniform); the ambient density is zero, so buoyancy speeds up the whole grid by that of the mean density; Jacobi
    iterations never remove a checkerboard of an even grid. Derivatives are one-sided where what is looked up lies on a
    line of the grid, as it does in a fluid at rest. There is no body: points are fixed in the world.
    """

    name = "smoke"
    capabilities = Capabilities(
        purpose="a flow on a grid in two dimensions that carries a density",
        reason="a flow has no body whose pose the tracker could estimate",
        scene=("cell_size", "viscosity", "buoyancy", "dissipation"),
        excited_by={
            "cell_size": "a known speed of the flow",
            "viscosity": "a flow that slows down, with differences in speed over few cells",
            "buoyancy": "a density that rises",
            "dissipation": "a density that fades",
        },
    )
    state_frames: Mapping[str, str] = {"velocity": WORLD, "density": "cells at rest in the world"}
    integrators = ("semi_implicit_euler",)

    def __init__(self, cells: int = 6, projection: Projection = "exact", iterations: int = 6) -> None:
        """A grid of `cells` x `cells`. Raises UsageError for fewer than 4, no iterations or an unknown projection."""
        if cells < _FEWEST_CELLS:
            raise UsageError(f"a grid of {cells} cells a side", f"{_FEWEST_CELLS} or more", "raise cells")
        if projection not in _PROJECTIONS:
            raise unknown_name("projection", projection, _PROJECTIONS)
        if iterations < 1:
            raise UsageError(f"{iterations} Jacobi iterations", "1 or more", "raise iterations")
        self.cells, self.projection, self.iterations = cells, projection, iterations
        places = [f"_{k}_{i}" for k in range(cells) for i in range(cells)]
        fields = (("velocity_x", "_m_s"), ("velocity_z", "_m_s"), ("density", ""))
        self.state_names = tuple(name + place + unit for name, unit in fields for place in places)
        self.tangent_names = self.state_names
        self.action_names = self.action_units = ()
        self.control_names = ("disturbance_acceleration_x_m_s2", "disturbance_acceleration_z_m_s2")
        self.control_inertia = ("", "")
        self.control_groups = ("force", "force")
        self._image = np.flip(np.arange(2 * cells**2, 3 * cells**2).reshape(cells, cells), axis=0).copy()

    def parameters(self) -> Parameters:
        """Return the defaults of no particular smoke: cells of 10 cm, and nothing but what the grid itself smooths."""
        return Parameters(
            (
                Parameter("cell_size", "m", 0.1, 1e-6, 1e4, "log"),
                Parameter("viscosity", "m^2/s", 0.0, 0.0, 1e4),
                Parameter("buoyancy", "m/s^2", 0.0, -1e4, 1e4),
                Parameter("dissipation", "1/s", 0.0, 0.0, 1e4),
            )
        )

    def only_launches(self, integrator: Integrator) -> bool:
        """See `System.only_launches`: the exact projection is a transform of Fourier in NumPy."""
        return self.projection == "jacobi"

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
        """See `System.launch_step`; three launches and the projection. Raises UsageError for "exact" off the CPU."""
        from vid2phys.engine.kernels import smoke

        wp, n, device = smoke.wp, self.cells, states.device
        if self.projection == "exact" and not device.is_cpu:
            raise UsageError(f"projection 'exact' on {device}", "the CPU", "choose projection 'jacobi'")
        dim = (states.shape[0], n, n)
        forced, moved, projected = (
            wp.zeros((states.shape[0], 2 * n * n), dtype=wp.float64, device=device, requires_grad=states.requires_grad)
            for _ in range(3)
        )
        times = [parameters, dt_s, step, fraction, n]
        wp.launch(smoke.accelerate, dim, [states, controls, *times], [forced], device=device)
        wp.launch(smoke.advect_velocity, dim, [states, forced, *times], [moved], device=device)
        self._project(moved, projected)
        runtime: Any = wp._src.context.runtime
        if runtime.tape is not None and states.requires_grad:
            # nothing but the projection reads `moved`, so its gradient may be written over
            runtime.tape.record_func(lambda: self._project(projected.grad, moved.grad), [moved, projected])
        wp.launch(smoke.advect_density, dim, [states, projected, *times], [next_states], device=device)

    def _project(self, velocities: Any, out: Any) -> None:
        """Take the divergence out of Warp arrays [B, 2 n^2], unseen by tapes."""
        if self.projection == "exact":
            shape = (velocities.shape[0], 2, self.cells, self.cells)
            out.numpy()[:] = _divergence_free(velocities.numpy().reshape(shape)).reshape(
                out.shape
            )  # the array's memory
            return
        from vid2phys.engine.kernels import smoke

        wp, n, device = smoke.wp, self.cells, velocities.device
        dim = (velocities.shape[0], n, n)
        outflow, pressure, other = (
            wp.zeros((dim[0], n * n), dtype=wp.float64, device=device, requires_grad=False) for _ in range(3)
        )
        without_tape: dict[str, Any] = {"device": device, "record_tape": False}
        wp.launch(smoke.divergence, dim, [velocities, n], [outflow], **without_tape)
        for _ in range(self.iterations):
            wp.launch(smoke.relax, dim, [pressure, outflow, n], [other], **without_tape)
            pressure, other = other, pressure
        wp.launch(smoke.subtract_gradient, dim, [velocities, pressure, n], [out], **without_tape)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`: viscosity alone bounds it, h^2 / (4 viscosity)."""
        cell_size, viscosity = (float(value) for value in np.asarray(parameters, dtype=float)[:2])
        return cell_size**2 / (4.0 * viscosity) if viscosity > 0.0 else float("inf")

    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """See `System.body_pose`: no body, so the world's own axes."""
        batch = np.shape(states)[:-1]
        return np.zeros((*batch, 3)), np.broadcast_to([1.0, 0.0, 0.0, 0.0], (*batch, 4)).copy()

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`: points fixed in the world, as they are."""
        points = np.asarray(points_body, dtype=float)
        return np.broadcast_to(points, (*np.shape(states)[:-1], *points.shape)).copy()

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`: zero."""
        return np.zeros((*np.shape(states)[:-1], len(points_body), 3, len(self.tangent_names)))

    def vertices(self, state: Array, mesh_vertices: Array) -> Array:
        """See `System.vertices`: fixed in the world, as they are."""
        return np.array(mesh_vertices, dtype=float)

    def density_image(self, states: Any) -> Any:
        """Return the density as an image, highest row first, [..., N] -> [..., n, n]; of NumPy, or of PyTorch with
        gradients.
        """
        return states[..., self._image]

    def rest_state(self) -> Array:
        """See `System.rest_state`: still, and no smoke."""
        return np.zeros(len(self.state_names))

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: round puffs in a drift of about 1 m/s along each axis with gentle eddies.

        The drift is stronger than the eddies (as many sines as fit a stream function, 0.3 m/s together), so no velocity
        changes sign and steps of up to 0.04 s with the default cells look up between the same lines of the grid.
        """
        size = self.cells
        middles = (np.arange(size) + 0.5) / size
        z, x = np.meshgrid(middles, middles, indexing="ij")
        states = np.empty((n, 3, size, size))
        for state in states:
            phase, drift = rng.uniform(0.0, 2.0 * np.pi, 4), rng.uniform(0.8, 1.2, 2) * rng.choice([-1.0, 1.0], 2)
            # a stream function in the corners of the cells: its differences are free of divergence on the grid
            corners = 2.0 * np.pi * np.arange(size) / size
            stream = np.cos(corners + phase[0])[:, None] * np.cos(corners + phase[1])
            stream += 0.5 * np.cos(corners + phase[2])[:, None] * np.cos(2.0 * corners + phase[3])
            stream *= 0.03 * size
            state[0] = drift[0] + np.roll(stream, -1, axis=0) - stream
            state[1] = drift[1] - np.roll(stream, -1, axis=1) + stream
            centre = rng.uniform(0.0, 1.0, 2)
            away = [(a - c + 0.5) % 1.0 - 0.5 for a, c in zip((z, x), centre, strict=True)]
            state[2] = np.exp(-(away[0] ** 2 + away[1] ** 2) / (2.0 * 0.15**2))
        return states.reshape(n, -1)

    def hover_controls(self, parameters: Array) -> Array:
        """See `System.hover_controls`."""
        return np.zeros(2)


def _divergence_free(velocities: Array) -> Array:
    """Return nearest velocities [B, 2, n, n] without divergence: in Fourier space, what is along the gradient goes."""
    n = velocities.shape[-1]
    along_x = np.exp(2j * np.pi * np.fft.rfftfreq(n)) - 1.0
    along_z = np.exp(2j * np.pi * np.fft.fftfreq(n))[:, None] - 1.0
    squared = np.abs(along_x) ** 2 + np.abs(along_z) ** 2
    squared[0, 0] = 1.0  # the mean flow has no divergence
    u, v = np.moveaxis(np.fft.rfft2(velocities), 1, 0)
    pressure = (along_x * u + along_z * v) / squared
    projected = np.stack([u - along_x.conj() * pressure, v - along_z.conj() * pressure], axis=1)
    return np.fft.irfft2(projected, s=(n, n))
