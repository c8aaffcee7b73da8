"""Rigid bodies that touch planes and each other: compliant contact with relaxed Coulomb friction.

`ThrownBody` is what `identify` fits to a clip: rigid contact with a plane, by restitution and friction, or by springs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys import geometry
from vid2phys.engine.constants import RISP_CUBE
from vid2phys.engine.system import Capabilities, InputKind, Integrator
from vid2phys.engine.systems._rigid import RigidBodies, state_names, suffixes, tangent_names
from vid2phys.engine.systems._shapes import Box as Box
from vid2phys.engine.systems._shapes import Points as Points
from vid2phys.engine.systems._shapes import Shape
from vid2phys.engine.systems._shapes import Sphere as Sphere
from vid2phys.errors import UsageError
from vid2phys.types import Array, Mesh, Parameter, Parameters

_CUBE = Box((0.5 * RISP_CUBE.side_m,) * 3)
_GROUND = (0.0, 0.0, 1.0, 0.0)
_AXES = ("x", "y", "z")
_PLANE, _SPHERE, _BOX = 0, 1, 2  # kinds of surfaces, as in the kernels
_WORLD = -1  # the body that a plane belongs to
_CONTACT = ("k_e", "k_d", "k_f", "mu")
_CONTACT_NEEDS = "in recorded states of a body on the ground (fit-recording): `identify` fits contacts as forces"
_EXCITED_BY = {
    "mass": "a recorded force on the body",
    "inertia": "a recorded torque on the body",
    "k_e": f"an impact that lasts several samples, {_CONTACT_NEEDS}",
    "k_d": f"the rebound of an impact, {_CONTACT_NEEDS}",
    "k_f": f"the onset of sliding, {_CONTACT_NEEDS}",
    "mu": f"sliding or an oblique impact, {_CONTACT_NEEDS}",
    "gravity": "free flight at a known size",
}
_MOST_POINTS = 256  # of a body from a file
_PILE = 8.0  # how much stiffer than on a plane a body may sit among others, see `longest_step_s`
OF_GROUND = ("ground_height", "ground_tilt_x", "ground_tilt_y")
OF_CONTACT = ("mu", "restitution", "rolling_friction", *OF_GROUND)
GROUPS = {"ground": OF_GROUND}
OF_SPRINGS = ("k_e", "k_d", "k_f")
WITH_SPRINGS = (*OF_SPRINGS, "mu")  # what may be fitted together
GRAVITY_M_S2 = 9.81
_CLIP_EXCITED_BY = {
    "mass": "a recorded force on the body: a throw looks the same with any mass",
    "inertia": "a recorded torque on the body",
    "mu": "sliding, or an oblique impact that does not end in rolling",
    "restitution": "an impact",
    "rolling_friction": "a ball that rolls until it slows down",
    "ground": "impacts, or a body that comes to rest",
    "gravity": "free flight at a known size",
    **dict.fromkeys(OF_SPRINGS, "a contact that lasts about a frame or longer"),
}


class RigidContact(RigidBodies):
    """Rigid bodies in compliant contact with planes at rest and with each other. The default is RISP's cube.

    State, tangent: `RigidBodies`. Controls [12 a body]: force (world, N) and torque (body, N m) on each body as
    actions, then the same for each as disturbances; `has_actions=False` leaves the actions out (a body that is thrown).

        p' = v,  q' = q * (0, omega) / 2,  m v' = f + sum f_c - m g e_z,
        J omega' = tau + R^T sum (x_c - p) x f_c - omega x J omega

    A contact is a point of a body (a mesh's vertex, a box's corner, the lowest point of a ball) that is a depth d > 0
    inside a surface of outward normal n and moves against it at v_c:

        f_c = f_n n - min(k_f |v_t|, mu f_n) v_t / |v_t|,  f_n = max(k_e d - k_d n . v_c, 0),  v_t = v_c - (n . v_c) n

    (gradSim's appendix, Jatavallabhula et al., ICLR 2021; RISP, Ma et al., ICLR 2022), never adhesive. k_e, k_d, k_f
    are of one point: a box flat on the ground has four of each. Restitution is not a parameter but follows from them:
    `restitution`. Balls touch balls and boxes, boxes touch boxes (the corners of each against the other's signed
    distance), meshes touch balls and boxes by their vertices, and all touch the planes.

    Parameters: mass, inertia_xx, inertia_yy, inertia_zz of each body (`mass_0`, ... if there are several), then those
    of contact and gravity, which all bodies share.

    In the step in which a point touches down, its dashpot acts for the share of it that the point was inside (-v_n is
    at most d / step). So forces are continuous, and derivatives across contact events, which are those of the steps as
    they were taken, tend to those of the motion as steps get shorter: of first order in the step. With a jump to
    k_d v_n they would miss what touching later changes, k_d / m of velocity for a metre of height.

    Limits: forces are springs, so a body at rest sinks in by m g / (k_e * points), and what grips creeps at f_t / k_f;
    contacts share one set of parameters and have no rolling resistance and no stiction above mu; edges that cross
    while no point is inside the other box, and what passes through a thin body within a step, are missed, and a corner
    nearer to a side face than it is deep is pushed sideways (see `Box`); two meshes do not feel each other (refused);
    a body's origin is its centre of mass, its axes are principal axes (`Points.of_mesh` finds those of a mesh, whose
    points and vertices stay in its own axes); no drag of the air.
    """

    name = "rigid_contact"
    integrators = ("semi_implicit_euler", "rk4")

    def __init__(
        self,
        bodies: Sequence[Shape] = (_CUBE,),
        planes: Sequence[Sequence[float]] = (_GROUND,),
        *,
        has_actions: bool = True,
        values: dict[str, float] | None = None,
    ) -> None:
        """bodies: `Sphere`, `Box` or `Points` each. planes: (n_x, n_y, n_z, c) each, free where n . x >= c [m].

        values: defaults of the parameters, by name.

        Raises UsageError for no body, two meshes, and planes without a normal.
        """
        if not bodies:
            raise UsageError("no bodies", "one or more", "give bodies=(Box((0.05, 0.05, 0.05)),)")
        self.bodies, self.count, self._values = tuple(bodies), len(bodies), values or {}
        self.origin, self.axes, self.surface = bodies[0].origin, bodies[0].axes, bodies[0].mesh
        self.planes = _unit_planes(planes)
        self.state_names, self.tangent_names = state_names(self.count), tangent_names(self.count)
        ends = suffixes(self.count)
        wrench = [(f"{kind}_{axis}", unit) for kind, unit in (("force", "N"), ("torque", "N m")) for axis in _AXES]
        actions = [(f"{name}{end}", unit) for end in ends for name, unit in wrench] if has_actions else []
        self.action_names, self.action_units = tuple(a for a, _ in actions), tuple(u for _, u in actions)
        disturbances = [f"disturbance_{name}{end}_{unit.replace(' ', '')}" for end in ends for name, unit in wrench]
        self.control_names = (*self.action_names, *disturbances)
        inertia = [f"{name}{end}" for end in ends for name in (*["mass"] * 3, *(f"inertia_{2 * a}" for a in _AXES))]
        self.control_inertia = (*(inertia if has_actions else ()), *inertia)
        self.input: InputKind = "push" if has_actions and self.count == 1 else "other"
        kinds = (*["force"] * 3, *["torque"] * 3) * self.count
        self.control_groups = (*(tuple(f"action_{k}" for k in kinds) if has_actions else ()), *kinds)
        self._contacts = _contact_table(self.bodies, self.planes)
        self._on_device: dict[str, Any] = {}
        self._faces = [_face_matrices(shape) for shape in self.bodies]

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`: one body is seen as a rigid body. In free space it touches nothing."""
        free_body = self.count == 1 and not len(self.planes)
        return replace(
            super().capabilities,
            purpose="rigid bodies that fly, hit, slide and rest: a tossed object, a pile of boxes",
            inertial=("mass", "inertia"),
            scene=(*_CONTACT, "gravity"),
            excited_by=_EXCITED_BY,
            without_effect=_CONTACT if free_body else (),
            inputs=("push",) if self.input == "push" else (),
        )

    def for_clip(self, mesh: Mesh) -> RigidContact:
        """See `System.for_clip`: contact with a plane, by the law of impact or by springs.

        Its inertia is set from the mesh, whose axes and origin are those of the state.
        """
        return ThrownBody(mesh)

    def parameters(self) -> Parameters:
        """Return defaults: contact and density of RISP's cube (`constants.RISP_CUBE`); inertia of uniform density."""
        items = []
        for shape, end in zip(self.bodies, suffixes(self.count), strict=True):
            mass = RISP_CUBE.density_kg_m3 * shape.volume
            items.append(Parameter(f"mass{end}", "kg", mass, 1e-6, 1e6, "log"))
            for axis, moment in zip(_AXES, mass * shape.inertia_per_mass, strict=True):
                items.append(Parameter(f"inertia_{2 * axis}{end}", "kg m^2", float(moment), 1e-12, 1e6, "log"))
        defaults = Parameters(
            (
                *items,
                Parameter("k_e", "N/m", RISP_CUBE.k_e, 1e-2, 1e9, "log"),
                Parameter("k_d", "N s/m", RISP_CUBE.k_d, 0.0, 1e6),
                Parameter("k_f", "N s/m", RISP_CUBE.k_f, 0.0, 1e6),
                Parameter("mu", "1", RISP_CUBE.mu, 0.0, 10.0),
                Parameter("gravity", "m/s^2", RISP_CUBE.gravity_m_s2, 0.0, 30.0),
            )
        )
        return defaults.with_values(self._values, source="default")

    def restitution(self, parameters: Array, *, points: int = 1, body: int = 0) -> float:
        """Return the rebound over approach speed of a central impact on a plane with `points` points at once, gravity
        neglected.

        With m x'' = -k x - c x', zeta = c / (2 sqrt(k m)) and contact until the force is zero (before the spring is
        at rest: nothing pulls), e = exp(-2 zeta acos(zeta) / sqrt(1 - zeta^2)) (Schwager and Poeschel, Granular Matter
        2007). `points` points make k = points k_e, c = points k_d.
        """
        p = self._named(parameters)
        stiffness, damping, mass = points * p["k_e"], points * p["k_d"], p[f"mass{suffixes(self.count)[body]}"]
        zeta = damping / (2.0 * np.sqrt(stiffness * mass))
        off = np.sqrt(abs(1.0 - zeta**2))
        if off < 1e-6:
            return float(np.exp(-2.0))
        return float(np.exp(-2.0 * zeta * (np.arccos(zeta) if zeta < 1.0 else np.arccosh(zeta)) / off))

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
        """See `System.launch_step`; two launches, or thirteen with rk4: its stages need those of all bodies."""
        from vid2phys.engine.kernels import rigid_contact as kernels

        wp, contacts, has_actions = kernels.wp, self._table_on(states.device), float(bool(self.action_names))
        each_body = states.shape[0], self.count

        def launch(kernel: Any, dim: tuple[int, ...], inputs: list[Any], out: Any) -> Any:
            wp.launch(kernel, dim, inputs=inputs, outputs=[out], device=states.device)
            return out

        def fresh(columns: int = states.shape[1]) -> Any:
            shape, gradient = (states.shape[0], columns), states.requires_grad
            return wp.empty(shape, dtype=wp.float64, device=states.device, requires_grad=gradient)

        def wrenches_at(now: Any) -> Any:
            inputs = [now, parameters, dt_s, step, fraction, contacts]
            return launch(kernels.contact_wrenches, each_body, inputs, fresh(6 * self.count))

        def slope_at(now: Any) -> Any:
            inputs = [now, wrenches_at(now), controls, parameters, step, has_actions]
            return launch(kernels.slope_at, each_body, inputs, fresh())

        def ahead(slope: Any, share: float) -> Any:
            return launch(kernels.advance, states.shape, [states, slope, dt_s, step, share * fraction], fresh())

        if integrator == "semi_implicit_euler":
            inputs = [states, wrenches_at(states), controls, parameters, dt_s, step, fraction, has_actions]
            launch(kernels.step_semi_implicit_euler, each_body, inputs, next_states)
            return
        slopes = [slope_at(states)]
        for share in (0.5, 0.5, 1.0):
            slopes.append(slope_at(ahead(slopes[-1], share)))
        mean = launch(kernels.mean_slope_rk4, states.shape, slopes, fresh())
        launch(kernels.normalized, each_body, [ahead(mean, 1.0)], next_states)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`: the stiffest face that a body can lie on, all its points gripping.

        For x'' = -w^2 x - c x' the step of semi-implicit Euler is stable below (sqrt(c^2 + 4 w^2) - c) / w^2. Among
        several bodies there may be a face below and one above, with points of both partners, each of which moves: 2 * 2
        * 2 times as stiff.
        """
        if self.count == 1 and not len(self.planes):
            return float("inf")
        p = self._named(parameters)
        steps = []
        for end, (normal, sliding) in zip(suffixes(self.count), self._faces, strict=True):
            mobility = np.array([*[p[f"mass{end}"]] * 3, *(p[f"inertia_{2 * axis}{end}"] for axis in _AXES)]) ** -0.5
            scale = mobility[:, None] * mobility * (_PILE if self.count > 1 else 1.0)
            squares = np.linalg.eigvalsh(p["k_e"] * scale * normal)[:, -1]
            rates = np.linalg.eigvalsh(scale * (p["k_d"] * normal + p["k_f"] * sliding))[:, -1]
            steps.append(((np.sqrt(rates**2 + 4.0 * squares) - rates) / squares).min())
        return float(min(steps))

    def rest_state(self) -> Array:
        """See `System.rest_state`: side by side along x, turned as their meshes are, moved until no plane holds any."""
        states, before = np.zeros((self.count, 13)), 0.0
        for state, shape in zip(states, self.bodies, strict=True):
            before += shape.reach if before else 0.0
            state[0], before = before, before + shape.reach
            state[3:7] = geometry.quat_from_matrix(shape.axes)
            for plane in self.planes:
                depth = plane[3] - ((state[:3] + shape.points @ shape.axes.T) @ plane[:3]).min() + shape.radius
                state[:3] += max(float(depth), 0.0) * plane[:3]
        return states.ravel()

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: in free flight, turned any way, side by side, clear of all planes."""
        reach = max(shape.reach for shape in self.bodies)
        states = np.zeros((n, self.count, 13))
        states[..., 0] = 4.0 * reach * np.arange(self.count)
        states[..., :3] += rng.uniform(-0.5, 0.5, (n, self.count, 3)) * reach
        for plane in self.planes:
            clear = reach * rng.uniform(2.0, 4.0, (n, self.count))
            lift = np.maximum(clear - (states[..., :3] @ plane[:3] - plane[3]), 0.0)
            states[..., :3] += lift[..., None] * plane[:3]
        states[..., 3:7] = geometry.quat_normalize(rng.normal(size=(n, self.count, 4)))
        states[..., 7:10] = rng.normal(0.0, 0.5, (n, self.count, 3))
        states[..., 10:] = rng.normal(0.0, 3.0, (n, self.count, 3))
        return states.reshape(n, -1)

    def hover_controls(self, parameters: Array) -> Array:
        """See `System.hover_controls`: nothing has to hold a body that lies."""
        return np.zeros(len(self.control_names))

    def _named(self, parameters: Array) -> dict[str, float]:
        return dict(zip(self.parameters().names, np.asarray(parameters, dtype=float), strict=True))

    def _table_on(self, device: Any) -> Any:
        """Return the table of contacts as Warp arrays, kept for each device."""
        from vid2phys.engine.kernels import rigid_contact as kernels

        if str(device) not in self._on_device:
            contacts, wp = kernels.Contacts(), kernels.wp
            kinds, shapes, first = self._contacts
            contacts.kinds = wp.array(kinds, dtype=wp.int32, device=device)
            contacts.shapes = wp.array(shapes, dtype=wp.float64, device=device)
            contacts.first = wp.array(first, dtype=wp.int32, device=device)
            self._on_device[str(device)] = contacts
        return self._on_device[str(device)]


def from_file(path: str | Path, units: str = "m") -> RigidContact:
    """Return a body of uniform density by a mesh of its surface (OBJ, STL, PLY ...) or a primitive, on the ground.

    Its state is that of its centre of mass and principal axes; it starts as its file has it, lifted onto the ground.
    It touches with the corners of its convex hull, 256 of them at most (`Points.of_mesh`); a ball touches as a
    `Sphere`. Mass and contact are those of RISP's cube at the body's size: its density, and forces that, time being
    measured in units of sqrt(size), move the body as the cube. A mesh that is not closed has the mass properties of its
    convex hull, with a warning.
    """
    from vid2phys.io.primitives import load_surface

    mesh = load_surface(path, units, units_flag="--body-units")
    shape = Sphere.of_mesh(mesh) or Points.of_mesh(mesh, most=_MOST_POINTS)
    volumes = shape.volume / RISP_CUBE.side_m**3
    stiffer, more_damped = volumes ** (2.0 / 3.0), volumes ** (5.0 / 6.0)
    contact = {"k_e": stiffer * RISP_CUBE.k_e, "k_d": more_damped * RISP_CUBE.k_d, "k_f": more_damped * RISP_CUBE.k_f}
    return RigidContact((shape,), values=contact)


def _unit_planes(planes: Sequence[Sequence[float]]) -> Array:
    """Return the planes [number, 4] with normals of unit length."""
    rows = np.array([np.asarray(plane, dtype=float) for plane in planes]) if len(planes) else np.zeros((0, 4))
    lengths = np.linalg.norm(rows[:, :3], axis=1, keepdims=True)
    if rows.shape[1] != 4 or not np.isfinite(rows).all() or (lengths == 0.0).any():
        raise UsageError(f"planes {rows.tolist()}", "(n_x, n_y, n_z, offset in m) each", "for example (0, 0, 1, 0)")
    return rows / lengths


def _contact_table(bodies: tuple[Shape, ...], planes: Array) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return `kinds`, `shapes` and `first` of `kernels/rigid_contact.py`."""
    contacts = []
    for a, shape in enumerate(bodies):
        for plane in planes:
            contacts += [(_PLANE, a, _WORLD, point, shape.radius, plane) for point in shape.points]
        for b in range(a):
            contacts += _between(bodies, a, b)
    kinds, shapes, first = [], [], [0]
    for body in range(len(bodies)):
        for kind, a, b, point, radius, surface in contacts:
            if body in (a, b):
                kinds.append([kind, a, b, 1 if body == a else -1])
                shapes.append([*point, radius, *surface])
        first.append(len(kinds))
    return np.array(kinds, dtype=np.int32).reshape(-1, 4), np.array(shapes, float).reshape(-1, 8), np.array(first)


def _between(bodies: tuple[Shape, ...], a: int, b: int) -> list[tuple[int, int, int, Array, float, Array]]:
    """Return the contacts of two bodies: (kind, whose point, whose surface, point, radius, surface)."""
    pairs = [(mover, other) for mover, other in ((a, b), (b, a)) if _surface(bodies[other]) is not None]
    if not pairs:
        raise UsageError(f"bodies {b} and {a} are both meshes", "balls and boxes but for one", "replace one by a Box")
    balls = [pair for pair in pairs if isinstance(bodies[pair[0]], Sphere)]
    found = []
    for mover, other in balls[:1] or pairs:  # a ball's one point tells all
        shape, surface = bodies[mover], _surface(bodies[other])
        assert surface is not None
        found += [(surface[0], mover, other, point, shape.radius, surface[1]) for point in shape.points]
    return found


def _surface(shape: Shape) -> tuple[int, Array] | None:
    """Return the kind and numbers of a shape with a signed distance."""
    if isinstance(shape, Sphere):
        return _SPHERE, np.array([shape.radius, 0.0, 0.0, 0.0])
    if isinstance(shape, Box):
        return _BOX, np.array([*shape.half_extents, 0.0])
    return None


def _face_matrices(shape: Shape) -> tuple[Array, Array]:
    """Return the sums of J^T J over the points of each face, along its normal and across it, [F, 6, 6]; J [3, 6] of a
    point.
    """
    along, across = [], []
    for normal, points in shape.faces():
        jacobian = np.concatenate([np.broadcast_to(np.eye(3), (len(points), 3, 3)), -geometry.skew(points)], axis=-1)
        by_normal = np.einsum("i,kij->kj", normal, jacobian)
        along.append(by_normal.T @ by_normal)
        across.append(np.einsum("kij,kil->jl", jacobian, jacobian) - along[-1])
    return np.array(along), np.array(across)


@dataclass(frozen=True)
class Contacts:
    """What happens in the frame intervals of a rollout, all [..., F - 1].

    normal_impulse, friction_impulse: m/s (impulse per kilogram). time_s: of the first impact since the start of the
    interval, NaN without one. approach_m_s: of the fastest impact. impacts: number. sliding_s: how long the body
    slides.
    """

    normal_impulse: Array
    friction_impulse: Array
    time_s: Array
    approach_m_s: Array
    impacts: Array
    sliding_s: Array

    def joined(self, sizes: NDArray[np.int64]) -> Contacts:
        """Return the contacts [1, sum of sizes] of rollouts that follow each other; the first `sizes` [B] of each."""
        given = {
            field.name: np.concatenate([getattr(self, field.name)[i, :n] for i, n in enumerate(sizes)])[None]
            for field in fields(self)
        }
        return Contacts(**given)


class ThrownBody(RigidContact):
    """One rigid body over a plane, with Newton's law of impact and Coulomb's law of friction.

    State, tangent and controls: those of `RigidContact`, in the axes of the mesh. Its steps are those of a body in free
    space with a force and a torque, by which a clip is smoothed; `rollouts` has contact.

    Parameters beside those of `RigidContact`: `restitution` e (normal speed after over normal speed before an impact,
    at each touching point), `mu` (friction, static and kinetic), `rolling_friction` (of a ball, torque over normal
    force and radius), and the plane: `ground_height` (m) above the world's origin, `ground_tilt_x`, `ground_tilt_y`
    (rad, rotations about the world's x and y). k_e, k_d, k_f are those of the same body `on_springs`, and have no
    effect here.

    The points that touch are the corners of the mesh's convex hull, or a ball. Source of the laws: Moreau (1988), see
    `kernels.impacts_cpu`.

    Limits: one plane. Hollows of a mesh do not touch. A body whose principal axes are not those of its mesh has the
    inertia of its mesh at uniform density, whatever is given.
    """

    def __init__(self, mesh: Mesh) -> None:
        """Raises UsageError for a mesh that spans no volume."""
        super().__init__((Sphere(float(np.linalg.norm(mesh.vertices, axis=1).max())),), planes=())
        self.shape: Shape = Sphere.of_mesh(mesh) or Points.of_mesh(mesh, most=_MOST_POINTS)
        self._principal = geometry.quat_from_matrix(self.shape.axes)

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        return replace(
            super().capabilities,
            scene=(*OF_CONTACT, "gravity"),
            excited_by=_CLIP_EXCITED_BY,
            without_effect=(),
            of_impacts=(*OF_CONTACT, *OF_SPRINGS),
            groups=GROUPS,
        )

    def parameters(self) -> Parameters:
        """Return those of `RigidContact`, with those of impacts and of the plane before gravity."""
        changed = {
            "mu": {"lower": 1e-3, "upper": 5.0, "value": 0.4, "transform": "log"},
            "gravity": {"value": GRAVITY_M_S2},
        }
        before = [replace(p, **changed.get(p.name, {})) for p in super().parameters()]  # type: ignore[arg-type]
        gravity = before.pop()  # the kernels take the last one for gravity
        return Parameters(
            (
                *before,
                Parameter("restitution", "1", 0.4, 0.0, 1.0),
                Parameter("rolling_friction", "1", 0.0, 0.0, 1.0),
                Parameter("ground_height", "m", 0.0, -100.0, 100.0),
                Parameter("ground_tilt_x", "rad", 0.0, -0.5, 0.5),
                Parameter("ground_tilt_y", "rad", 0.0, -0.5, 0.5),
                gravity,
            )
        )

    def rollouts(self, starts: Array, lengths_s: Array, parameters: Array, slack: Array) -> tuple[Array, Contacts]:
        """Return states [B, F, 13] of B rollouts, and the contacts between them.

        A start that reaches into the plane is lifted out of it.

        Args:
            starts: states [B, 13].
            lengths_s: [B, F - 1] of the intervals.
            parameters: [B, P], in the order of `parameters`.
            slack: [B, F - 1, 4], by how much contact departs from the law. Three are of the impulses of impacts, as
                shares of the normal impulse: along the normal and along two tangents of the plane. One is the torque
                about the normal of a body that slides, over its friction times its reach.
        """
        from vid2phys.engine.kernels import impacts_cpu as kernel

        count, intervals = lengths_s.shape
        states, events = np.empty((count, intervals + 1, 13)), np.zeros((count, intervals, kernel.EVENTS))
        inputs = self.to_principal(starts), lengths_s, self.shape.points
        given = self._columns(parameters), np.ascontiguousarray(slack, dtype=float)
        begin, lengths, points = map(np.ascontiguousarray, inputs)
        kernel.rollouts(begin, lengths, points, self.shape.radius, *given, states, events)  # type: ignore[call-arg]
        hit = events[..., kernel.IMPACTS] > 0.0
        contacts = Contacts(
            events[..., kernel.NORMAL_IMPULSE],
            events[..., kernel.FRICTION_IMPULSE],
            np.where(hit, events[..., kernel.TIME], np.nan),
            events[..., kernel.APPROACH],
            events[..., kernel.IMPACTS],
            events[..., kernel.SLIDING],
        )
        return self.from_principal(states), contacts

    def carrying_controls(self, parameters: Array) -> Array:
        """See `System.carrying_controls`: the first three controls are a force in world axes."""
        named, controls = self._named(parameters), np.zeros(len(self.control_names))
        controls[2] = named["mass"] * named["gravity"]
        return controls

    def on_springs(self, parameters: Array, *, has_actions: bool = False) -> RigidContact:
        """Return the body with springs of contact in place of the law of impact, over the plane of parameters [P].

        Its states are those of the centre of mass and the principal axes (`to_principal`).
        """
        normal, offset = plane(self._named(parameters))
        return RigidContact((self.shape,), ((*normal, float(offset)),), has_actions=has_actions)

    def clearance_m(self, states: Array, parameters: Array) -> Array:
        """Return the height [...] of the lowest point of the body above the plane, of states [..., 13]."""
        principal = self.to_principal(states)
        normal, offset = plane(dict(zip(self.parameters().names, parameters, strict=True)))
        points = self.shape.points @ np.swapaxes(geometry.matrix_from_quat(principal[..., 3:7]), -1, -2)
        return np.asarray((points @ normal).min(axis=-1) + principal[..., :3] @ normal - offset - self.shape.radius)

    def _columns(self, parameters: Array) -> Array:
        """Return parameters [B, P] as the kernel takes them."""
        from vid2phys.engine.kernels import impacts_cpu as kernel

        p = dict(zip(self.parameters().names, np.asarray(parameters, float).T, strict=True))
        columns = np.zeros((len(parameters), kernel.COLUMNS))
        columns[:, kernel.MU], columns[:, kernel.RESTITUTION] = p["mu"], p["restitution"]
        columns[:, kernel.ROLLING], columns[:, kernel.GRAVITY] = p["rolling_friction"], p["gravity"]
        columns[:, kernel.DOWN] = (0.0, 0.0, -1.0)
        columns[:, kernel.NORMAL], columns[:, kernel.OFFSET] = plane(p)
        own = np.stack([p["inertia_xx"], p["inertia_yy"], p["inertia_zz"]], axis=-1) / p["mass"][:, None]
        columns[:, kernel.INERTIA] = own if np.array_equal(self.shape.axes, np.eye(3)) else self.shape.inertia_per_mass
        return columns

    def to_principal(self, states: Array) -> Array:
        """Return states [..., 13] of the mesh's origin and axes as those of the centre of mass and principal axes."""
        origin, axes, out = self.shape.origin, self.shape.axes, np.array(states, dtype=float)
        out[..., :3] += geometry.rotate(states[..., 3:7], np.broadcast_to(origin, out[..., :3].shape))
        out[..., 7:10] += geometry.rotate(states[..., 3:7], np.cross(states[..., 10:13], origin))
        out[..., 3:7] = geometry.quat_multiply(states[..., 3:7], self._principal)
        out[..., 10:13] = states[..., 10:13] @ axes
        return np.ascontiguousarray(out)

    def from_principal(self, states: Array) -> Array:
        """Return the states that `to_principal` was given."""
        origin, axes, out = self.shape.origin, self.shape.axes, np.array(states, dtype=float)
        out[..., 3:7] = geometry.quat_multiply(states[..., 3:7], geometry.quat_conjugate(self._principal))
        out[..., 10:13] = states[..., 10:13] @ axes.T
        out[..., :3] -= geometry.rotate(out[..., 3:7], np.broadcast_to(origin, out[..., :3].shape))
        out[..., 7:10] -= geometry.rotate(out[..., 3:7], np.cross(out[..., 10:13], origin))
        return out


def plane(p: Mapping[str, Array | float]) -> tuple[Array, Array]:
    """Return normals [..., 3] and offsets [...] (m) of planes n . x = c by their parameters [...]."""
    tilts = np.stack(np.broadcast_arrays(p["ground_tilt_x"], p["ground_tilt_y"], 0.0), axis=-1)
    normals = geometry.matrix_from_rotvec(tilts)[..., :, 2]
    return normals, np.asarray(p["ground_height"] * normals[..., 2])
