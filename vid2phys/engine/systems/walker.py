"""A soft walker in two dimensions, driven by what its triangles want to measure."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from vid2phys.engine.constants import GRADSIM_WALKER
from vid2phys.engine.system import Capabilities, Integrator
from vid2phys.engine.systems._particles import CONTACT_PARAMETERS, NOT_SEEN, Indices
from vid2phys.engine.systems._shell import EXCITED_BY, Hinges, TriangleBody, launch_move, longest_step
from vid2phys.engine.systems.cloth import sheet
from vid2phys.errors import InputError, UsageError, unknown_name
from vid2phys.types import Array, Parameter

WalkerSize = Literal["coarse", "paper"]
_COARSE = (3, 2, 1, 1, 0.5)  # cells wide and tall, those of a leg, metres
_IN_PLANE = np.array([1.0, 0.0, 1.0])
_NO_HINGES = Hinges(np.zeros((0, 4), dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros((0, 4, 3)))


class Walker(TriangleBody):
    """Elastic body in the x-z plane whose triangles are muscles, on the ground z = 0, explicit in time.

    State [6 V]: positions (world, m), then velocities (m/s) of the V vertices. Nothing happens along y: vertices keep
    the y that they have, and lose their velocity along it. Controls [T + 2]: activation of each triangle, then a
    disturbance force (x and z, N), shared equally by `load_vertices` (all if none are named).

        m_i v_i' = - dE/dx_i + viscous - m_i g e_z + ground + share_i f,   x_i' = v_i,
        E = sum_triangles A (mu/2 (tr F^T F - 2 J) + K/2 (J - 1 + a)^2)

    the energy of gradSim's triangles (Jatavallabhula et al., ICLR 2021, appendix) in the plane: J, the ratio of areas,
    is negative when a triangle is inside out, and then drives it back. A triangle left alone with activation a shrinks
    to 1 - a of its area (a < 0: it swells). `shear_stiffness`, `area_stiffness`, `damping`: as `Cloth` has them. Every
    vertex presses on the ground with gradSim's contact law (`kernels/contact.py`; constants are those of one vertex).

    The default is a coarse walker of 12 vertices and 10 triangles, 1.5 m wide; `size="paper"` is one of 74 and 104, as
    many as gradSim's has, 0.45 m wide (`constants.GRADSIM_WALKER`); `vertices` and `triangles` make any other. `pinned`
    vertices never move. `per_vertex_mass=True` has `mass_i` of every vertex in place of `density`.

    Raises InputError for triangles without area or out of the x-z plane, and for those that go round the wrong way.

    Limits: two-dimensional, with masses by area; activations act at once and are not bounded; the body does not touch
    itself, and the ground only with its vertices; no bending, no air. `longest_step_s` holds near rest.
    """

    name = "walker"
    capabilities = Capabilities(
        purpose="a soft walker in two dimensions, moved by muscles (gradSim)",
        reason=NOT_SEEN,
        inertial=("shear_stiffness", "area_stiffness", "damping", "density", "mass"),
        scene=("gravity", *CONTACT_PARAMETERS),
        excited_by=EXCITED_BY,
    )

    def __init__(
        self,
        vertices: Array | None = None,
        triangles: Indices | None = None,
        *,
        size: WalkerSize = "coarse",
        pinned: Indices | tuple[int, ...] = (),
        load_vertices: Indices | tuple[int, ...] | None = None,
        per_vertex_mass: bool = False,
        values: dict[str, float] | None = None,
    ) -> None:
        """vertices [V, 3] m in the x-z plane and triangles [T, 3] of the shape at rest, counter-clockwise seen from -y.

        values: defaults of the parameters, by name.
        """
        if size not in ("coarse", "paper"):
            raise unknown_name("size of 'walker'", size, ("coarse", "paper"))
        if (vertices is None) != (triangles is None):
            raise UsageError("vertices or triangles without the other", "both or neither", "give both")
        w = GRADSIM_WALKER
        if vertices is None or triangles is None:
            cells = (w.cells_wide, w.cells_tall, w.leg_cells_wide, w.leg_cells_tall, w.cell_m)
            vertices, triangles = two_legged(*(cells if size == "paper" else _COARSE))
        super().__init__(
            vertices,
            triangles,
            pinned=pinned,
            load_vertices=load_vertices,
            ground=True,
            per_vertex_mass=per_vertex_mass,
        )
        _check_plane(self.rest_m, self.elements)
        count = len(self.elements)
        self.action_names = tuple(f"activation_{t}" for t in range(count))
        self.action_units = ("1",) * count
        self.control_names = (*self.action_names, "disturbance_force_x_N", "disturbance_force_z_N")
        self.control_inertia = ("",) * count + ("" if per_vertex_mass else "density",) * 2
        self.control_groups = ("activation",) * count + ("force",) * 2
        own = {"k_e": w.k_e, "k_d": w.k_d, "k_f": w.k_f, "mu": w.mu, "density": w.density_kg_m2}
        self._set_parameters(
            (
                Parameter("shear_stiffness", "N/m", w.shear_stiffness, 1e-6, 1e9, "log"),
                Parameter("area_stiffness", "N/m", w.area_stiffness, 1e-6, 1e9, "log"),
                Parameter("damping", "N s/m", w.damping, 0.0, 1e6),
            ),
            (),
            own | (values or {}),
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
        """See `System.launch_step`; three launches."""
        from vid2phys.engine.kernels import shell

        wp, rows, device, count = shell.wp, states.shape[0], states.device, len(self.elements)
        tables = self._tables(device, _NO_HINGES, _IN_PLANE, (count, -1, count + 1))
        forces = wp.empty((rows, 3 * count), dtype=wp.vec3d, device=device, requires_grad=states.requires_grad)
        inputs = [states, controls, parameters, step, tables["triangles"]]
        wp.launch(shell.planar_triangles, (rows, count), inputs, [forces], device=device)
        launch_move(tables, forces, states, controls, parameters, dt_s, next_states, step=step, fraction=fraction)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`; elastic and viscous forces, and the ground's."""
        return longest_step(*self._rates(parameters))

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: vertices off by less than a hundredth of an edge, some dm/s fast.

        The lowest vertices have sunk into the ground by about a tenth of the shortest edge, sink, and hold.
        """
        edges = self.rest_m[self.elements] - self.rest_m[np.roll(self.elements, 1, axis=1)]
        shortest = float(np.linalg.norm(edges, axis=-1).min())
        shape = (n, *self.rest_m.shape)
        x = self.rest_m + _IN_PLANE * rng.normal(0.0, 0.003 * shortest, shape)
        v = np.array([0.2, 0.0, -1.0]) + _IN_PLANE * rng.normal(0.0, 0.05, shape)
        x[..., 2] -= self.rest_m[:, 2].min() + 0.1 * shortest
        x[:, self.pinned], v[:, self.pinned] = self.rest_m[self.pinned], 0.0
        return self.state(x, v)


def two_legged(
    cells_wide: int, cells_tall: int, leg_cells_wide: int, leg_cells_tall: int, cell_m: float
) -> tuple[Array, Indices]:
    """Return the vertices [V, 3] m and triangles [T, 3] of a rectangle of square cells without what is between its two
    legs.

    In the x-z plane, on z = 0, the middle at x = 0.
    """
    vertices, triangles = sheet(cells_wide * cell_m, cells_tall * cell_m, cells_wide, cells_tall)
    column, row = np.meshgrid(np.arange(cells_wide), np.arange(cells_tall))
    beside = (column < leg_cells_wide) | (column >= cells_wide - leg_cells_wide)
    kept = triangles[np.repeat(((row >= leg_cells_tall) | beside).ravel(), 2)]
    used, renumbered = np.unique(kept, return_inverse=True)
    return vertices[used], renumbered.reshape(kept.shape)


def _check_plane(vertices: Array, triangles: Indices) -> None:
    """Raise InputError for vertices out of the x-z plane, and for a triangle that is clockwise seen from -y."""
    spread, size = np.ptp(vertices[:, 1]), np.ptp(vertices, axis=0).max()
    if spread > 1e-9 * size:
        raise InputError(f"vertices between which y differs by {spread:.3g} m", "one plane of x and z", "turn the mesh")
    edge_1, edge_2 = (vertices[triangles[:, i]] - vertices[triangles[:, 0]] for i in (1, 2))
    turned = np.cross(edge_1, edge_2)[:, 1] > 0.0
    if turned.any():
        row = int(np.argmax(turned))
        raise InputError(
            f"triangle {row} (vertices {triangles[row].tolist()}; {int(turned.sum())} in all) goes round clockwise",
            "counter-clockwise seen from -y (x to the right, z up)",
            "swap two of its corners",
        )
