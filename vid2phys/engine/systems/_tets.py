"""What elastic bodies made of tets share: soft bodies, rods, gears."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from vid2phys.engine.implicit import launch_implicit_euler, launch_implicit_midpoint
from vid2phys.engine.system import Capabilities, Integrator, is_implicit
from vid2phys.engine.systems._particles import (
    CONTACT_NEEDS,
    CONTACT_PARAMETERS,
    NOT_SEEN,
    Indices,
    ParticleSystem,
    check_mesh,
    gravity_parameter,
    own_surface,
)
from vid2phys.engine.systems._tet_implicit import TetStepEquations
from vid2phys.engine.systems._tets_compiled import TetIntervals
from vid2phys.engine.tets import (
    EDGES,
    QUADRATIC_SHARES,
    boundary_faces,
    check_tets,
    check_volume,
    eighths,
    quadratic_gradients,
    quadratic_nodes,
    shape_gradients,
    tet_volumes,
)
from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array, Parameter, Parameters

Elements = Literal["linear", "quadratic"]
Moduli = Literal["young", "lame"]
Locking = Literal["none", "nodal"]
_EXCITED_BY = {
    "young_modulus": "bending or vibration under a known load, or with a known density",
    "poisson_ratio": "stretch that shows how much the body narrows",
    "lame_mu": "shear under a known load, or with a known density",
    "lame_lambda": "changes of volume under a known load, or with a known density",
    "damping": "vibration that dies away",
    "gravity": "free fall, or sag of a body of known stiffness and density",
    "density": "a known force on the body; without one stiffness over density shows alone",
    "mass": "a known force on the body; without one ratios of the masses show alone",
    "rest_activation": "a body that is not in its shape at rest while no muscle acts",
    **CONTACT_NEEDS,
}
_MARGIN = 0.8  # of the bound that holds near rest: room for compression, which shortens the tets' heights


class TetBody(ParticleSystem):
    """A `ParticleSystem` of stable neo-Hookean tets. `SoftBody` has the equations and says what the options mean.

    The energy is a sum over P integration points: `point_nodes` [P, N], `gradients` [P, N, 3] 1/m, `volumes` [P] m^3,
    `central` [P] 1.0 for points with `shared` of lambda alone, `muscles` [P]. Of linear tets the points are the tets.
    Of quadratic tets, four points and then the centre of each; `rest_m` has their middles of edges after the vertices,
    and `elements`, which carry points and surface, are the eight linear tets that nodes divide each of them into.
    """

    integrators: ClassVar[tuple[Integrator, ...]] = ("semi_implicit_euler", "implicit_euler", "implicit_midpoint")

    def __init__(
        self,
        vertices: Array,
        tets: Indices,
        *,
        pinned: Indices | tuple[int, ...],
        load_vertices: Indices | tuple[int, ...] | None,
        muscles: Indices | None,
        moduli: Moduli,
        locking: Locking,
        ground: bool,
        per_vertex_mass: bool,
        values: dict[str, float],
        elements: Elements = "linear",
        load_kg: float = 0.0,
    ) -> None:
        for option, value, known in (
            ("moduli", moduli, ("young", "lame")),
            ("locking", locking, ("none", "nodal")),
            ("elements", elements, ("linear", "quadratic")),
        ):
            if value not in known:
                raise UsageError(f"{option} '{value}' of '{self.name}'", " or ".join(known), "choose one of them")
        if (elements, locking) == ("quadratic", "nodal"):
            raise UsageError("locking 'nodal' of quadratic tets", "it with elements 'linear'", "leave one of them out")
        self.quadratic = elements == "quadratic"
        check_volume(np.asarray(tets))
        rest, tets = np.array(vertices, dtype=float), np.array(tets, dtype=np.int64)
        check_mesh(rest, tets)
        check_tets(rest, tets)
        nodes = tets
        if self.quadratic:
            rest, nodes = quadratic_nodes(rest, tets)
            pinned = _with_middles(pinned, nodes)
            load_vertices = None if load_vertices is None else _with_middles(load_vertices, nodes)
        super().__init__(rest, eighths(rest, nodes) if self.quadratic else tets, pinned=pinned)
        self.surface = own_surface(self.rest_m, boundary_faces(self.elements), self.name)
        self.moduli: Moduli = moduli
        self.locking: Locking = locking
        self.ground, self.per_vertex_mass = ground, per_vertex_mass
        self.load_shares = _shares(load_vertices, len(self.rest_m))
        self.added_kg: Array = load_kg * self.load_shares
        muscles = _muscles(muscles, len(tets))
        self._integrate(nodes, muscles)
        self._values = values
        activations = tuple(f"activation_{g}" for g in range(int(muscles.max()) + 1))
        self.action_names = ("force_x", "force_y", "force_z", *activations)
        self.action_units = ("N", "N", "N", *("1",) * len(activations))
        self.control_names = self.action_names
        inertia = "" if per_vertex_mass else "density"
        self.control_inertia = (inertia, inertia, inertia, *("",) * len(activations))
        self.control_groups = ("force", "force", "force", *("activation",) * len(activations))
        self._on_device: dict[str, tuple[Any, Any]] = {}
        self.compiled = None if self.quadratic else TetIntervals(self)

    def _integrate(self, nodes: Indices, muscles: Indices) -> None:
        """Set the integration points of tets with these nodes [T, 4 or 10] and muscles [T], and volumes of nodes."""
        volumes = tet_volumes(self.rest_m, nodes[:, :4])
        gradients = shape_gradients(self.rest_m, nodes[:, :4])[:, None]
        weights, shares = np.ones(1), np.full(4, 0.25)
        if self.quadratic:
            gradients, shares = quadratic_gradients(gradients[:, 0]), QUADRATIC_SHARES
            weights = np.array([0.25, 0.25, 0.25, 0.25, 1.0])
        each = len(weights)
        self.point_nodes: Indices = np.repeat(nodes, each, axis=0)
        self.gradients: Array = gradients.reshape(-1, nodes.shape[1], 3)
        self.volumes: Array = (volumes[:, None] * weights).ravel()
        self.central: Array = np.tile(np.eye(each)[-1] if self.quadratic else np.zeros(1), len(nodes))
        self.muscles: Indices = np.repeat(muscles, each)
        shared_out = (volumes[:, None] * shares).ravel()
        self.nodal_volumes: Array = np.bincount(nodes.ravel(), shared_out, len(self.rest_m)).astype(float)
        scaled = self.gradients / np.sqrt(shares)[:, None]
        self._all_squared = np.tile(weights, len(nodes)) * (scaled**2).sum(axis=(1, 2))
        self._largest_squared = np.tile(weights, len(nodes)) * np.linalg.norm(scaled, 2, axis=(1, 2)) ** 2
        self.tet_nodes: Indices = nodes

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        return Capabilities(
            purpose="an elastic body of tets",
            reason=NOT_SEEN,
            inertial=("young_modulus", "poisson_ratio", "lame", "damping", "density", "mass", "rest_activation"),
            scene=("gravity", *(CONTACT_PARAMETERS if self.ground else ())),
            excited_by=_EXCITED_BY,
        )

    def parameters(self) -> Parameters:
        """Return the defaults of a block of soft foam rubber, or the ones that the body was made with."""
        items = [
            Parameter("young_modulus", "Pa", 1e5, 1.0, 1e12, "log"),
            Parameter("poisson_ratio", "1", 0.3, 0.0, 0.4999),
        ]
        if self.moduli == "lame":
            items = [
                Parameter("lame_mu", "Pa", 4e4, 1.0, 1e12, "log"),
                Parameter("lame_lambda", "Pa", 6e4, 1e-3, 1e15, "log"),
            ]
        items += [Parameter("damping", "Pa s", 10.0, 0.0, 1e9), gravity_parameter()]
        if self.ground:
            items += [
                Parameter("k_e", "N/m", 1e3, 0.0, 1e9),
                Parameter("k_d", "N s/m", 1.0, 0.0, 1e6),
                Parameter("k_f", "N s/m", 1.0, 0.0, 1e6),
                Parameter("mu", "1", 0.5, 0.0, 10.0),
            ]
        items += [Parameter(f"rest_{name}", "1", 0.0, -2.0, 2.0) for name in self.action_names[3:]]
        density = self._values.get("density", 1000.0)
        if self.per_vertex_mass:
            masses = density * self.nodal_volumes
            items += [Parameter(f"mass_{i}", "kg", float(m), 1e-12, 1e6, "log") for i, m in enumerate(masses)]
        else:
            items += [Parameter("density", "kg/m^3", density, 1e-3, 1e6, "log")]
        given = {name: value for name, value in self._values.items() if name != "density"}
        return Parameters(tuple(items)).with_values(given, source="default")

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
        """See `System.launch_step`; explicit: four launches, six with averaged pressure."""
        if is_implicit(integrator):
            launch = launch_implicit_euler if integrator == "implicit_euler" else launch_implicit_midpoint
            launch(self, states, controls, parameters, dt_s, next_states, step=step, fraction=fraction)
            return
        from vid2phys.engine.kernels import fem

        wp, rows, device = fem.wp, states.shape[0], states.device
        layout, mesh = self._device_mesh(device)
        count, points = len(self.rest_m), len(self.point_nodes)

        def scratch(*shape: int, dtype: Any = wp.float64) -> Any:
            return wp.empty((rows, *shape), dtype=dtype, device=device, requires_grad=states.requires_grad)

        gradients, rates, stresses = (scratch(points, dtype=wp.mat33d) for _ in range(3))
        wp.launch(fem.deformations, (rows, points), [states, mesh], [gradients, rates], device=device)
        averaged = scratch(count if self.locking == "nodal" else 0)
        if self.locking == "nodal":
            ratios = scratch(points)
            wp.launch(fem.volume_ratios, (rows, points), [gradients], [ratios], device=device)
            wp.launch(fem.nodal_ratios, (rows, count), [ratios, mesh], [averaged], device=device)
        forces = scratch(count, dtype=wp.vec3d)
        inputs = [gradients, rates, controls, parameters, averaged, step, layout, mesh]
        wp.launch(fem.stresses, (rows, points), inputs, [stresses], device=device)
        wp.launch(fem.nodal_forces, (rows, count), [stresses, mesh], [forces], device=device)
        inputs = [states, controls, parameters, dt_s, forces, step, fraction, layout, mesh]
        wp.launch(fem.step_semi_implicit_euler, (rows, count), inputs, [next_states], device=device)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`.

        The fastest mode of the whole body is no faster than that of any of its elements alone (Irons & Treharne, 1971).
        Of a tet with Lame's moduli and lumped mass its square is at most (lambda sum |g_i|^2 + 2 mu s^2) / rho, a mean
        over its points. Here g_i are the gradients of its shape functions over the roots of the nodes' shares of its
        mass, and s is their largest singular value.
        """
        p = dict(zip(self.parameters().names, np.asarray(parameters, float), strict=True))
        mu, lam = self.lame(parameters)
        masses, local = self.masses(parameters), 1.0 - self.central
        shared = self.shared(mu, lam)
        lam_here = np.where(self.central > 0.0, shared, lam - shared) if self.quadratic else lam
        density = (masses / self.nodal_volumes)[self.tet_nodes].min(axis=1)

        def largest(of_points: Array) -> float:
            return float((of_points.reshape(len(density), -1).sum(axis=1) / density).max())

        stiffness = largest(lam_here * self._all_squared + 2.0 * mu * local * self._largest_squared)
        damping = largest(2.0 * p["damping"] * local * self._largest_squared)
        if self.ground:
            stiffness += p["k_e"] / float(masses.min())
            damping += max(p["k_d"], p["k_f"]) / float(masses.min())
        return _MARGIN * 4.0 / (damping + np.sqrt(damping**2 + 4.0 * stiffness))

    @cached_property
    def step_equations(self) -> TetStepEquations:
        """Return the equations that implicit steps solve."""
        return TetStepEquations(self)

    def lame(self, parameters: Array) -> tuple[float, float]:
        """Return Lame's moduli mu, lambda [Pa] of linear elasticity for one vector of parameters [P]."""
        first, second = (float(value) for value in np.asarray(parameters, dtype=float)[:2])
        if self.moduli == "lame":
            return first, second
        mu = first / (2.0 * (1.0 + second))
        return mu, 2.0 * mu * second / (1.0 - 2.0 * second)

    def ambiguity(self, names: tuple[str, ...]) -> str:
        """Return in words what a fit of these parameters together can hardly tell apart, "" where it can."""
        pair = self.parameters().names[:2]
        if not set(pair) <= set(names):
            return ""
        return (
            f"{pair[0]} and {pair[1]} are hardly told apart by bending, which shows Young's modulus: the interval of "
            f"{pair[1]} leaves out the mesh's error; give one of them with --set, or record stretch and narrowing"
        )

    def shared(self, mu: float, lam: float) -> float:
        """Return the part of Lame's lambda [Pa] that is averaged over nodes, or acts at the centres of quadratic tets.

        Quadratic tets with all of it at their four points are too stiff near a Poisson ratio of 0.5, with all of it at
        their centres too soft where few of them lie across a body. The four points get 1 / (1 / lambda + 1 / mu).
        """
        if self.quadratic:
            return lam * lam / (lam + mu)
        return lam if self.locking == "nodal" else 0.0

    def energy_moduli(self, parameters: Array) -> tuple[float, float, float]:
        """Return mu and lambda of the energy at each point, and the shared part of lambda (`fem.read_material`)."""
        mu, lam = self.lame(parameters)
        shared = self.shared(mu, lam)
        return 4.0 / 3.0 * mu, lam - shared + 5.0 / 6.0 * mu, shared

    def masses(self, parameters: Array) -> Array:
        """Return the mass of every vertex [V] kg for one vector of parameters [P]."""
        values = np.asarray(parameters, dtype=float)
        if self.per_vertex_mass:
            return values[-len(self.rest_m) :] + self.added_kg
        return np.asarray(values[-1] * self.nodal_volumes + self.added_kg)

    def layout(self) -> dict[str, int]:
        """Return where parameters begin and which options hold, as the kernels want it (`fem.Layout`)."""
        contact = 4 if self.ground else -1
        muscle = 8 if self.ground else 4
        groups = len(self.action_names) - 3
        return {
            "contact": contact,
            "muscle": muscle,
            "mass": muscle + groups,
            "mass_by_vertex": int(self.per_vertex_mass),
            "lame": int(self.moduli == "lame"),
            "nodal": int(self.locking == "nodal"),
            "quadratic": int(self.quadratic),
        }

    def _slots_of_vertices(self) -> tuple[Indices, Indices]:
        """Return starts [V + 1], slots [N P]: the places N point + node of vertex v are slots[starts[v] :
        starts[v + 1]].
        """
        flat = self.point_nodes.ravel()
        counts = np.bincount(flat, minlength=len(self.rest_m))
        return np.concatenate([[0], np.cumsum(counts)]), np.argsort(flat, kind="stable")

    def _device_mesh(self, device: Any) -> tuple[Any, Any]:
        from vid2phys.engine.kernels import fem

        wp, key = fem.wp, str(device)
        if key not in self._on_device:
            mesh, layout = fem.Mesh(), fem.Layout()
            starts, slots = self._slots_of_vertices()
            for name, array, dtype in (
                ("nodes", self.point_nodes, wp.int32),
                ("gradients", self.gradients, wp.vec3d),
                ("volumes", self.volumes, wp.float64),
                ("central", self.central, wp.float64),
                ("muscles", self.muscles, wp.int32),
                ("starts", starts, wp.int32),
                ("slots", slots, wp.int32),
                ("nodal_volumes", self.nodal_volumes, wp.float64),
                ("added_kg", self.added_kg, wp.float64),
                ("free", self.free, wp.float64),
                ("load_shares", self.load_shares, wp.float64),
            ):
                setattr(mesh, name, wp.array(array, dtype=dtype, device=device))
            for name, value in self.layout().items():
                setattr(layout, name, value)
            self._on_device[key] = layout, mesh
        return self._on_device[key]


def _with_middles(named: Indices | tuple[int, ...], nodes: Indices) -> Indices:
    """Return these nodes, and the middles of the edges of quadratic tets [T, 10] with both ends among them."""
    named = np.asarray(named, dtype=np.int64)
    ends = np.isin(nodes[:, EDGES], named).all(axis=2)
    return np.union1d(named, nodes[:, 4:][ends])


def _shares(load_vertices: Indices | tuple[int, ...] | None, count: int) -> Array:
    """Share of the external force that each vertex gets, [V]: equal ones, of all vertices if none are named."""
    shares = np.zeros(count)
    loaded = np.arange(count) if load_vertices is None else np.unique(np.asarray(load_vertices, dtype=np.int64))
    if not loaded.size or loaded[0] < 0 or loaded[-1] >= count:
        raise InputError(f"load vertices {loaded.tolist()[:5]}", f"one or more of 0 to {count - 1}", "correct them")
    shares[loaded] = 1.0 / len(loaded)
    return shares


def _muscles(muscles: Indices | None, count: int) -> Indices:
    """Return the muscle of each tet, [T], -1 for none."""
    if muscles is None:
        return np.full(count, -1, dtype=np.int64)
    groups = np.asarray(muscles, dtype=np.int64)
    if groups.shape != (count,) or groups.min() < -1 or set(range(int(groups.max()) + 1)) - set(groups.tolist()):
        raise InputError(
            f"muscles of shape {groups.shape}, {groups.min() if groups.size else 0} to {groups.max(initial=-1)}",
            f"a number for each of {count} tets: 0, 1, 2 ... without gaps, or -1 for none",
            "correct them",
        )
    return groups
