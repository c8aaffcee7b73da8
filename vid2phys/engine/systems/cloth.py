"""Cloth: a sheet of triangles that stretches, bends and feels the air."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vid2phys.engine.implicit import launch_implicit_euler
from vid2phys.engine.system import Capabilities, Integrator
from vid2phys.engine.systems._particles import CONTACT_PARAMETERS, START_VELOCITY, Indices, VertexBody
from vid2phys.engine.systems._shell import (
    EXCITED_BY,
    TriangleBody,
    bending_rates,
    hinges_at_rest,
    launch_move,
    longest_step,
)
from vid2phys.engine.systems._shell_implicit import ClothStepEquations
from vid2phys.errors import UsageError
from vid2phys.types import Array, Parameter

_EXCITED_BY = {
    **EXCITED_BY,
    "drag": "wind along the sheet, or motion through still air",
    "lift": "wind across the sheet, or motion through still air",
    "bending_stiffness": "folds under a known load, or with a known density",
    "bending_damping": "folds that die away",
    "rest_angle": "a sheet that hangs at rest",
}
_DISTURBANCES = ("disturbance_force_x_N", "disturbance_force_y_N", "disturbance_force_z_N")


class Cloth(TriangleBody, VertexBody):
    """Sheet of triangles of constant strain with hinges between them.

    State [6 V]: positions (world, m), then velocities (m/s) of the V vertices. Controls [6]: velocity of the wind
    (world, m/s), then a disturbance force (world, N), shared equally by `load_vertices` (all if none are named).

        m_i v_i' = - dE/dx_i + viscous + air - m_i g e_z + ground + share_i f,   x_i' = v_i,
        E = sum_triangles A (mu/2 (tr F^T F - 2 J) + K/2 (J - 1)^2) + sum_hinges 4 s B (1 - cos((phi - phi_0)/2))

    A, F, J: area at rest, deformation gradient in the plane of the triangle, ratio of areas. But for a constant this is
    gradSim's energy of triangles (Jatavallabhula et al., ICLR 2021, appendix: mu/2 tr F^T F + K/2 (J - alpha)^2 with
    alpha = 1 + mu/K); it is never negative, and zero in rigid motion only. `shear_stiffness` mu and `area_stiffness` K
    are shear modulus and modulus of area of linear elasticity in two dimensions, times thickness: a narrow strip has
    Young's modulus 4 K mu / (K + mu) [N/m] and Poisson's ratio (K - mu) / (K + mu).

    phi: angle between the normals of two triangles, positive where they are folded away from the side from which they
    go round counter-clockwise; phi_0 at rest. The moment of a hinge is gradSim's k_b sin(phi/2 + alpha) with
    k_b = 2 s B, alpha = -phi_0/2 and s = edge^2 / area of both triangles, so that `bending_stiffness` B is the flexural
    rigidity [N m] of a sheet of equilateral triangles rolled up in any direction (Seung & Nelson, 1988).

    `damping` eta [N s/m] is the membrane's viscosity, a stress eta F E' with Green's strain E; `bending_damping` b
    gives the moment -s b phi'. Neither feels a rigid motion. Air moves at u relative to a triangle's centre and pushes
    it by `drag` A' |n.u| u + `lift` A' |u| (n.u) n, with its unit normal n and its present area A'; gradSim has the
    angle pi/2 - acos(n.u / |u|) where this has its sine, which stays differentiable in wind straight onto the sheet.
    Both are densities of air times a number of order one; a plate across the wind has drag + lift = 1.17 rho / 2.

    `ground=True` lets vertices press on the plane z = 0, each with gradSim's contact law (`kernels/contact.py`;
    constants are those of one vertex), its dashpot acting from touch-down on. `pinned` vertices never move.
    `per_vertex_mass=True` has `mass_i` of every vertex in place of `density`, `per_edge_rest_angle=True` has
    `rest_angle_j` of every row of `hinges.vertices`, in place of the angles of the mesh.

    Raises InputError for triangles without area, edges of more than two triangles, loose vertices.

    Limits: the sheet touches neither itself nor anything but the ground, and that with its vertices only; the material
    is isotropic, thin and has neither yield nor friction between threads; a finite force resists the collapse of a
    triangle, and a hinge closed to pi snaps through; mass is lumped; the air does not feel the sheet; triangles that
    are not equilateral bend more easily in some directions than in others. `longest_step_s` holds near rest and in slow
    air: what is stretched by half, or light and fast (2 drag v / density beside 1 / step), needs shorter steps.
    Implicit steps are not bounded, damp what is faster than a few of them, and find one of the stable ways to buckle;
    sheets stretched to several times their length may need shorter ones.
    """

    name = "cloth"
    integrators: ClassVar[tuple[Integrator, ...]] = ("semi_implicit_euler", "implicit_euler")
    weight, weight_of = "density", "the sheet"
    step_share = 0.8  # stretch is faster than what a clip shows

    def __init__(
        self,
        vertices: Array | None = None,
        triangles: Indices | None = None,
        *,
        pinned: Indices | tuple[int, ...] | None = None,
        load_vertices: Indices | tuple[int, ...] | None = None,
        ground: bool = False,
        per_vertex_mass: bool = False,
        per_edge_rest_angle: bool = False,
        values: dict[str, float] | None = None,
    ) -> None:
        """vertices [V, 3] m and triangles [T, 3] of the shape at rest; `sheet()`, hung by two corners, without them.

        values: defaults of the parameters, by name; the built-in ones are those of a light fabric that stretches
        easily, in air of 1.2 kg/m^3.
        """
        if (vertices is None) != (triangles is None):
            raise UsageError("vertices or triangles without the other", "both or neither", "give both")
        if vertices is None or triangles is None:
            vertices, triangles = sheet()
            pinned = (6, 8) if pinned is None else pinned
        super().__init__(
            vertices,
            triangles,
            pinned=() if pinned is None else pinned,
            load_vertices=load_vertices,
            ground=ground,
            per_vertex_mass=per_vertex_mass,
        )
        self.hinges = hinges_at_rest(self.rest_m, self.triangles)
        self.per_edge_rest_angle = per_edge_rest_angle
        self.action_names, self.action_units = ("wind_x", "wind_y", "wind_z"), ("m/s",) * 3
        self.control_names = (*self.action_names, *_DISTURBANCES)
        self.control_inertia = ("",) * 3 + ("" if per_vertex_mass else "density",) * 3
        self.control_groups = ("wind",) * 3 + ("force",) * 3
        angles = enumerate(self.hinges.angles if per_edge_rest_angle else ())
        self._set_parameters(
            (
                Parameter("shear_stiffness", "N/m", 20.0, 1e-6, 1e9, "log"),
                Parameter("area_stiffness", "N/m", 30.0, 1e-6, 1e9, "log"),
                Parameter("damping", "N s/m", 0.02, 0.0, 1e6),
                Parameter("drag", "kg/m^3", 0.1, 0.0, 1e4),
                Parameter("lift", "kg/m^3", 0.6, 0.0, 1e4),
                Parameter("bending_stiffness", "N m", 1e-4, 0.0, 1e6),
                Parameter("bending_damping", "N m s", 1e-5, 0.0, 1e6),
            ),
            tuple(Parameter(f"rest_angle_{j}", "rad", float(a), -np.pi, np.pi) for j, a in angles),
            values or {},
        )

    def clamped(self, pinned: Indices) -> Cloth:
        """See `VertexBody.clamped`."""
        return Cloth(self.rest_m, self.elements, pinned=pinned, per_edge_rest_angle=self.per_edge_rest_angle)

    def placed(self, rotation: Array, shift: Array) -> Cloth:
        """See `VertexBody.placed`."""
        return Cloth(self.rest_m @ rotation.T + shift, self.elements, pinned=self.pinned)

    def refined(self) -> Cloth:
        """See `VertexBody.refined`: four triangles in place of each."""
        from trimesh.remesh import subdivide

        given = self.rest_m, self.elements
        vertices, triangles, attributes = subdivide(*given, vertex_attributes={"free": self.free[:, None]})
        return Cloth(vertices, triangles, pinned=np.flatnonzero(attributes["free"][:, 0] == 0.0))

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        return Capabilities(
            purpose="a sheet that stretches, bends and feels the wind",
            observed_as="vertices",
            fitted=("bending_stiffness", "drag"),
            called="sheet",
            groups=START_VELOCITY,
            inertial=("shear_stiffness", "area_stiffness", "damping", "bending", "rest_angle", "density", "mass"),
            scene=("drag", "lift", "gravity", *(CONTACT_PARAMETERS if self.ground else ())),
            excited_by=_EXCITED_BY,
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
        """See `System.launch_step`; explicit: four launches."""
        if integrator == "implicit_euler":
            inputs = [states, controls, parameters, dt_s, next_states]
            launch_implicit_euler(self, *inputs, step=step, fraction=fraction)
            return
        from vid2phys.engine.kernels import shell

        wp, rows, device = shell.wp, states.shape[0], states.device
        angle_column = self._columns["last"] if self.per_edge_rest_angle else -1
        tables = self._tables(device, self.hinges, np.ones(3), (3, 4, 5), angle_column)
        triangles, hinges = len(self.elements), len(self.hinges.vertices)
        slots = rows, 3 * triangles + 4 * hinges
        forces = wp.empty(slots, dtype=wp.vec3d, device=device, requires_grad=states.requires_grad)
        inputs = [states, controls, parameters, step, tables["triangles"]]
        wp.launch(shell.cloth_triangles, (rows, triangles), inputs, [forces], device=device)
        inputs = [states, parameters, tables["hinges"], 3 * triangles]
        wp.launch(shell.hinges, (rows, hinges), inputs, [forces], device=device)
        launch_move(tables, forces, states, controls, parameters, dt_s, next_states, step=step, fraction=fraction)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`; elastic and viscous forces, and the ground's, none of the air's."""
        p = self._values(parameters)
        bending = bending_rates(self.hinges, self.masses(parameters), p["bending_stiffness"], p["bending_damping"])
        return longest_step(*(self._rates(parameters) + bending))

    @cached_property
    def step_equations(self) -> ClothStepEquations:
        """Return the equations that implicit steps solve."""
        return ClothStepEquations(self)

    def rest_angles(self, parameters: Array) -> Array:
        """Return the angle of every hinge at rest [H] rad for one vector of parameters [P]."""
        if not self.per_edge_rest_angle:
            return self.hinges.angles
        return np.asarray(parameters[self._columns["last"] :], dtype=float)

    def contact_law(self, parameters: Array) -> Array | None:
        """Return k_e, k_d, k_f and mu of one vector of parameters [P], None without ground."""
        start = self._columns["contact"]
        return np.array(parameters[start : start + 4], dtype=float) if self.ground else None

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: vertices off by a hundredth of an edge, moving along y at about 1 m/s.

        With a ground the lowest vertices have sunk in by about a tenth of the shortest edge, and sink.
        """
        edges = self.rest_m[self.elements] - self.rest_m[np.roll(self.elements, 1, axis=1)]
        shortest = float(np.linalg.norm(edges, axis=-1).min())
        x = self.rest_m + rng.normal(0.0, 0.01 * shortest, (n, *self.rest_m.shape))
        v = np.array([0.0, 1.0, 0.0]) + rng.normal(0.0, 0.1, (n, *self.rest_m.shape))
        if self.ground:
            x[..., 2] -= self.rest_m[:, 2].min() + 0.1 * shortest
            v[..., 2] -= 1.0
        x[:, self.pinned], v[:, self.pinned] = self.rest_m[self.pinned], 0.0
        return self.state(x, v)


def from_file(path: str | Path, units: str = "m") -> Cloth:
    """Return a sheet by a triangle mesh (OBJ, STL, PLY ...), free to fall on the ground."""
    from vid2phys.io.primitives import load_surface

    mesh = load_surface(path, units, units_flag="--body-units")
    return Cloth(mesh.vertices, mesh.faces, ground=True)


def sheet(
    width_m: float = 1.0, height_m: float = 1.0, columns: int = 2, rows: int = 2, bottom_m: float = 0.0
) -> tuple[Array, Indices]:
    """Return the vertices [V, 3] m and triangles [T, 3] of a rectangle in the x-z plane, counter-clockwise seen from
    -y.

    A vertex more than `columns` and `rows` along x and z; rows of vertices from `bottom_m` upwards, middle at x = 0.
    The diagonals of neighbouring cells are turned against each other.
    """
    x, z = np.meshgrid(np.linspace(-0.5, 0.5, columns + 1) * width_m, np.linspace(0.0, height_m, rows + 1) + bottom_m)
    vertices = np.column_stack([x.ravel(), np.zeros(x.size), z.ravel()])
    triangles = []
    for j in range(rows):
        for i in range(columns):
            a = j * (columns + 1) + i
            b, c, d = a + 1, a + columns + 2, a + columns + 1
            triangles += [(a, b, c), (a, c, d)] if (i + j) % 2 == 0 else [(a, b, d), (b, c, d)]
    return vertices, np.array(triangles, dtype=np.int64)
