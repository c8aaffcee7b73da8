"""What sheets of triangles share: shape at rest, hinges, the table by which vertices find their forces, stability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vid2phys.engine.system import Integrator
from vid2phys.engine.systems._particles import CONTACT_NEEDS, Indices, ParticleSystem, gravity_parameter, own_surface
from vid2phys.errors import InputError, unknown_name
from vid2phys.types import Array, Parameter, Parameters

EXCITED_BY = {
    "shear_stiffness": "shear or sag under a known load, or with a known density",
    "area_stiffness": "changes of area under a known load, or with a known density",
    "damping": "stretch that dies away",
    "density": "a known force on the body; without one stiffness over density shows alone",
    "mass": "a known force on the body; without one ratios of the masses show alone",
    "gravity": "free fall, or sag of a body of known stiffness and density",
    **CONTACT_NEEDS,
}
_MARGIN = 0.8  # of the step that is stable at rest: stretched by a tenth a triangle is up to that much stiffer
_FLAT = 1e-6  # a triangle whose area is this small beside its longest edge squared has no shape


@dataclass(frozen=True)
class Triangles:
    """Triangles at rest.

    corners: [T, 3]. inverse_edges: [T, 2, 2], inverse of the matrix whose columns are the edges from the first corner
    in axes of the triangle's plane [1/m]. areas: [T] m^2.
    """

    corners: Indices
    inverse_edges: Array
    areas: Array

    def vertex_areas(self, count: int) -> Array:
        """Return a third of the area of every triangle of each of `count` vertices, [V] m^2."""
        return np.asarray(np.bincount(self.corners.ravel(), np.repeat(self.areas / 3.0, 3), count), dtype=float)


@dataclass(frozen=True)
class Hinges:
    """Edges between two triangles.

    vertices: [H, 4], the wing of each triangle, then the edge as the first triangle goes round it. shape: [H], edge
    squared by the area of both triangles at rest. angles: [H] rad at rest, 0 when flat, positive when the wings are
    folded away from the side from which the first triangle goes round counter-clockwise. gradients: [H, 4, 3] 1/m, of
    the angle at rest with respect to the vertices.
    """

    vertices: Indices
    shape: Array
    angles: Array
    gradients: Array


def triangles_at_rest(vertices: Array, corners: Indices) -> Triangles:
    """Return the shape at rest of triangles [T, 3]. Raises InputError for what is no triangle, and for one without
    area.
    """
    if corners.ndim != 2 or corners.shape[1] != 3:
        raise InputError(f"elements of shape {corners.shape}", "triangles [T, 3]", "give the faces of a surface mesh")
    edge_1, edge_2 = (
        vertices[corners[:, 1]] - vertices[corners[:, 0]],
        vertices[corners[:, 2]] - vertices[corners[:, 0]],
    )
    areas = 0.5 * np.linalg.norm(np.cross(edge_1, edge_2), axis=1)
    longest = np.max([(e**2).sum(axis=1) for e in (edge_1, edge_2, edge_2 - edge_1)], axis=0)
    flat = ~(areas > _FLAT * longest)
    if flat.any():
        row = int(np.argmax(flat))
        raise InputError(
            f"triangle {row} (vertices {corners[row].tolist()}; {int(flat.sum())} in all) has no area",
            "triangles with three distinct corners that do not lie on a line",
            "remove it, or merge its vertices",
        )
    length = np.linalg.norm(edge_1, axis=1)
    along = (edge_1 * edge_2).sum(axis=1) / length
    edges = np.stack([np.stack([length, along], -1), np.stack([0.0 * length, 2.0 * areas / length], -1)], axis=-2)
    return Triangles(corners, np.linalg.inv(edges), areas)


def hinges_at_rest(vertices: Array, triangles: Triangles) -> Hinges:
    """Return the edges of two triangles. Raises InputError for an edge of more."""
    corners = triangles.corners
    directed = np.concatenate([corners[:, [i, (i + 1) % 3]] for i in range(3)])
    wings = np.concatenate([corners[:, (i + 2) % 3] for i in range(3)])
    owners = np.tile(np.arange(len(corners)), 3)
    order = np.lexsort([owners, *np.sort(directed, axis=1).T])
    _, first, count = np.unique(np.sort(directed, axis=1)[order], axis=0, return_index=True, return_counts=True)
    if count.max() > 2:
        edge, many = np.sort(directed[order[first[count.argmax()]]]), count.max()
        raise InputError(
            f"{many} triangles share the edge between vertices {edge[0]} and {edge[1]}",
            "at most 2 triangles an edge",
            "split the mesh there, or remove triangles that lie on each other",
        )
    one, other = order[first[count == 2]], order[first[count == 2] + 1]
    hinges = np.column_stack([wings[one], wings[other], directed[one]]).astype(np.int64)
    angles, gradients = bend(vertices[hinges])
    length = np.linalg.norm(vertices[hinges[:, 3]] - vertices[hinges[:, 2]], axis=1)
    shape = length**2 / (triangles.areas[owners[one]] + triangles.areas[owners[other]])
    return Hinges(hinges, shape, angles, gradients)


def bend(corners: Array) -> tuple[Array, Array]:
    """Return the angles [H] rad of hinges [H, 4, 3] m and their gradients [H, 4, 3] 1/m, as the kernel `shell.hinges`
    has them.
    """
    x0, x1, x2, x3 = np.moveaxis(corners, 1, 0)
    edge = x3 - x2
    length = np.linalg.norm(edge, axis=1, keepdims=True)
    n1, n2 = np.cross(x0 - x2, x0 - x3), np.cross(x1 - x3, x1 - x2)
    sine = (np.cross(n1, n2) * edge).sum(axis=1) / length[:, 0]
    m1, m2 = -n1 / (n1**2).sum(axis=1, keepdims=True), -n2 / (n2**2).sum(axis=1, keepdims=True)
    at_2 = [((x - x3) * edge).sum(axis=1, keepdims=True) / length for x in (x0, x1)]
    gradients = [length * m1, length * m2, at_2[0] * m1 + at_2[1] * m2]
    gradients.append(-gradients[0] - gradients[1] - gradients[2])
    return np.arctan2(sine, (n1 * n2).sum(axis=1)), np.stack(gradients, axis=1)


def slots_by_vertex(corners: list[Indices], count: int) -> tuple[Indices, Indices]:
    """Return where each of `count` vertices finds its forces among those of elements [E, C] stored one after the other.

    Returns first [V + 1] and slots: those of vertex i are slots[first[i] : first[i + 1]].
    """
    owners = np.concatenate([c.ravel() for c in corners])
    first = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))])
    return first, np.argsort(owners, kind="stable")


def membrane_rates(triangles: Triangles, masses: Array, shear: float, stretch: float, viscosity: float) -> Array:
    """Return the bounds on frequency squared [1/s^2] and damping rate [1/s] of a membrane at rest.

    The largest eigenvalue of any triangle alone, its corners having their share of the masses [V] kg by area, bounds
    that of the assembly.
    """
    share = triangles.areas[:, None] / 3.0 * (masses / triangles.vertex_areas(len(masses)))[triangles.corners]
    slopes = np.stack([-triangles.inverse_edges.sum(axis=1), *np.swapaxes(triangles.inverse_edges, 0, 1)], axis=1)
    strain = np.zeros((len(share), 3, 3, 2))  # xx, yy and twice xy, by corner and axis
    strain[:, 0, :, 0] = strain[:, 2, :, 1] = slopes[..., 0]
    strain[:, 1, :, 1] = strain[:, 2, :, 0] = slopes[..., 1]
    scaled = (strain / np.sqrt(share)[:, None, :, None]).reshape(-1, 3, 6)
    sum_, difference = stretch + shear, stretch - shear
    moduli = np.array([[sum_, difference, 0.0], [difference, sum_, 0.0], [0.0, 0.0, shear]])
    viscous = viscosity * np.diag([1.0, 1.0, 0.5])
    bounds = []
    for matrix in (moduli, viscous):
        elements = triangles.areas[:, None, None] * (np.swapaxes(scaled, -1, -2) @ matrix @ scaled)
        bounds.append(np.linalg.eigvalsh(elements)[:, -1].max())
    return np.array(bounds)


def bending_rates(hinges: Hinges, masses: Array, stiffness: float, damping: float) -> Array:
    """Return the rates of the hinges as `membrane_rates` does, every vertex sharing its mass equally among them."""
    if not len(hinges.vertices):
        return np.zeros(2)
    share = (masses / np.maximum(np.bincount(hinges.vertices.ravel(), minlength=len(masses)), 1))[hinges.vertices]
    largest = (hinges.shape * ((hinges.gradients**2).sum(axis=-1) / share).sum(axis=1)).max()
    return largest * np.array([stiffness, damping])


def longest_step(frequency_squared: float, rate: float) -> float:
    """Return the longest step [s], with a margin, of semi-implicit Euler: h^2 frequency^2 + 2 h rate = 4, damping
    explicit.
    """
    root = np.sqrt(rate**2 + 4.0 * frequency_squared)
    return float(_MARGIN * 4.0 / (rate + root)) if root > 0.0 else float("inf")


class TriangleBody(ParticleSystem):
    """A `ParticleSystem` of triangles. `Cloth` and `Walker` have the equations and say what the options mean."""

    integrators: ClassVar[tuple[Integrator, ...]] = ("semi_implicit_euler",)

    def __init__(
        self,
        vertices: Array,
        triangles: Indices,
        *,
        pinned: Indices | tuple[int, ...],
        load_vertices: Indices | tuple[int, ...] | None,
        ground: bool,
        per_vertex_mass: bool,
    ) -> None:
        super().__init__(vertices, triangles, pinned=pinned)
        self.ground, self.per_vertex_mass = ground, per_vertex_mass
        self.triangles = triangles_at_rest(self.rest_m, self.elements)
        self.surface = own_surface(self.rest_m, self.elements, self.name)
        self.areas = self.triangles.vertex_areas(len(self.rest_m))
        self.load_shares = _shares(load_vertices, len(self.rest_m))
        self._on_device: dict[str, dict[str, Any]] = {}

    def parameters(self) -> Parameters:
        """Return the documented defaults, or the values that the body was made with."""
        return self._parameters

    def masses(self, parameters: Array) -> Array:
        """Return the mass of every vertex [V] kg for one vector of parameters [P]."""
        values, start = np.asarray(parameters, dtype=float), self._columns["mass"]
        if self.per_vertex_mass:
            return values[start : start + len(self.rest_m)]
        return np.asarray(values[start] * self.areas)

    def _set_parameters(
        self, first: tuple[Parameter, ...], last: tuple[Parameter, ...], values: dict[str, float]
    ) -> None:
        """Set parameters: kernels of the elements read `first`; gravity, contact and mass follow, then `last`."""
        items = [*first, gravity_parameter()]
        self._columns = {"gravity": len(first), "contact": len(items) if self.ground else -1}
        if self.ground:
            items += [
                Parameter("k_e", "N/m", 10.0, 0.0, 1e9),
                Parameter("k_d", "N s/m", 0.02, 0.0, 1e6),
                Parameter("k_f", "N s/m", 0.1, 0.0, 1e6),
                Parameter("mu", "1", 0.5, 0.0, 10.0),
            ]
        self._columns |= {"mass": len(items), "last": len(items) + 1}
        density = Parameter("density", "kg/m^2", 0.2, 1e-4, 1e4, "log")
        if self.per_vertex_mass:
            masses = values.get("density", density.value) * self.areas
            items += [Parameter(f"mass_{i}", "kg", float(m), 1e-12, 1e6, "log") for i, m in enumerate(masses)]
            self._columns["last"] = len(items)
            values = {name: value for name, value in values.items() if name != "density"}
        else:
            items.append(density)
        items += last
        for name in values:
            if name not in [p.name for p in items]:
                raise unknown_name(f"parameter of '{self.name}'", name, [p.name for p in items])
        self._parameters = Parameters(tuple(items)).with_values(values, source="default")

    def _values(self, parameters: Array) -> dict[str, float]:
        """Return the values by name, of one vector [P]."""
        return dict(zip(self._parameters.names, np.asarray(parameters, dtype=float).tolist(), strict=True))

    def _rates(self, parameters: Array) -> Array:
        """Return the bounds on frequency squared [1/s^2] and damping rate [1/s] of membrane and ground, for one vector
        [P].
        """
        p, masses = self._values(parameters), self.masses(parameters)
        rates = membrane_rates(self.triangles, masses, p["shear_stiffness"], p["area_stiffness"], p["damping"])
        if self.ground:
            rates += np.array([p["k_e"], max(p["k_d"], p["k_f"])]) / masses.min()
        return rates

    def _tables(
        self, device: Any, hinges: Hinges, axes: Array, load_columns: tuple[int, int, int], angle_column: int = -1
    ) -> dict[str, Any]:
        """Return Warp's tables of triangles, hinges and points (`kernels/shell.py`), made once a device.

        axes: [3], 1 for those along which free vertices move. load_columns: the controls that hold the force's
        components, -1 for none. angle_column: where the parameters hold the angles at rest, -1 for nowhere.
        """
        from vid2phys.engine.kernels import shell

        wp, key = shell.wp, str(device)
        if key not in self._on_device:
            first, slots = slots_by_vertex([self.elements, hinges.vertices], len(self.rest_m))
            triangles, edges, points = shell.Triangles(), shell.Hinges(), shell.Points()
            for table, name, array, dtype in (
                (triangles, "corners", self.elements, wp.vec3i),
                (triangles, "inverse_edges", self.triangles.inverse_edges, wp.mat22d),
                (triangles, "areas", self.triangles.areas, wp.float64),
                (edges, "vertices", hinges.vertices, wp.vec4i),
                (edges, "shape", hinges.shape, wp.float64),
                (edges, "angles", hinges.angles, wp.float64),
                (points, "first", first, wp.int32),
                (points, "slots", slots, wp.int32),
                (points, "areas", self.areas, wp.float64),
                (points, "free", self.free[:, None] * axes, wp.vec3d),
                (points, "load_shares", self.load_shares, wp.float64),
            ):
                setattr(table, name, wp.array(array, dtype=dtype, device=device))
            points.gravity_column, points.contact_column = self._columns["gravity"], self._columns["contact"]
            points.mass_column, points.mass_by_vertex = self._columns["mass"], int(self.per_vertex_mass)
            points.load_columns, edges.angle_column = wp.vec3i(*load_columns), angle_column
            self._on_device[key] = {"triangles": triangles, "hinges": edges, "points": points}
        return self._on_device[key]


def launch_move(
    tables: dict[str, Any],
    forces: Any,
    states: Any,
    controls: Any,
    parameters: Any,
    dt_s: Any,
    next_states: Any,
    *,
    step: int,
    fraction: float,
) -> None:
    """Launch what follows the forces of the elements: their sum at every vertex, and the move."""
    from vid2phys.engine.kernels import shell

    wp, device, points = shell.wp, states.device, tables["points"]
    by_vertex = states.shape[0], points.areas.shape[0]
    total = wp.empty(by_vertex, dtype=wp.vec3d, device=device, requires_grad=states.requires_grad)
    inputs = [states, controls, parameters, dt_s, step, fraction, points, forces]
    wp.launch(shell.total_forces, by_vertex, inputs, [total], device=device)
    inputs = [states, parameters, dt_s, step, fraction, points, total]
    wp.launch(shell.move_semi_implicit_euler, by_vertex, inputs, [next_states], device=device)


def _shares(load_vertices: Indices | tuple[int, ...] | None, count: int) -> Array:
    """Share of the external force that each vertex gets, [V]: equal ones, of all vertices if none are named."""
    loaded = np.arange(count) if load_vertices is None else np.unique(np.asarray(load_vertices, dtype=np.int64))
    if not loaded.size or loaded[0] < 0 or loaded[-1] >= count:
        raise InputError(f"load vertices {loaded.tolist()[:5]}", f"one or more of 0 to {count - 1}", "correct them")
    shares = np.zeros(count)
    shares[loaded] = 1.0 / len(loaded)
    return shares
