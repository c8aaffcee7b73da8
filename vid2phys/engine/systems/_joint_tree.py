"""What articulated bodies share: a tree of revolute and prismatic joints on a fixed or free base."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vid2phys import geometry
from vid2phys.engine.system import Capabilities, Integrator, System
from vid2phys.engine.systems._rigid import FRAMES
from vid2phys.errors import UsageError
from vid2phys.io.robot import Robot
from vid2phys.types import Array, Parameter, Parameters

_LIMIT_RATE = 300.0  # rad/s, the frequency of a joint against its stop
_WIDEST_SAMPLE = {"revolute": 0.5 * np.pi, "prismatic": 0.1}  # rad, m, for joints without limits
_FASTEST_SAMPLE = {"revolute": 4.0, "prismatic": 1.0}  # rad/s, m/s
_REMEMBERED = 4
PAYLOAD = "payload_mass"  # the mass of the part that carries no other, where a user calls it so
_EXCITED_BY = {
    "gravity": "swings of links whose stiffness is known",
    "stiffness": "swings of the joint, with known masses",
    "damping": "swings of the joint that die away",
    "friction": "slow motion of the joint, in which dry friction outweighs damping",
    "mass": "recorded torques, gravity against a known stiffness, or another link whose mass is given",
    "payload": "swings of a robot whose other masses are given, or recorded torques",
}
_FINER = 1e3  # trimesh takes distances as equal whose squares differ by less than 1e-8: that is 0.1 mm in metres
_BASE_STATES = (
    *("position_x_m", "position_y_m", "position_z_m"),
    *("orientation_quat_w", "orientation_quat_x", "orientation_quat_y", "orientation_quat_z"),
)
_BASE_TURNS = ("rotation_x_rad", "rotation_y_rad", "rotation_z_rad")
_BASE_RATES = (
    *("velocity_x_m_s", "velocity_y_m_s", "velocity_z_m_s"),
    *("angular_velocity_x_rad_s", "angular_velocity_y_rad_s", "angular_velocity_z_rad_s"),
)
_BASE_DISTURBANCES = (
    *("disturbance_force_x_N", "disturbance_force_y_N", "disturbance_force_z_N"),
    *("disturbance_torque_x_Nm", "disturbance_torque_y_Nm", "disturbance_torque_z_Nm"),
)


class JointTree(System):
    """Links on revolute and prismatic joints. See `articulated.Articulated` for the equations and layouts."""

    integrators = ("rk4", "semi_implicit_euler")

    def __init__(self, robot: Robot, groups: Sequence[Sequence[str]] | None = None) -> None:
        """`groups`: names of the joints that share stiffness, damping and friction; None: every joint has its own."""
        self.robot, self.surface = robot, robot.mesh if len(robot.mesh.faces) else None
        names, count = robot.joint_names, len(robot.joint_names)
        self.group_names = names if groups is None else tuple(str(g) for g in range(len(groups)))
        members = [[name] for name in names] if groups is None else groups
        self._group = np.array([next(g for g, member in enumerate(members) if name in member) for name in names])
        units = ["rad" if kind == "revolute" else "m" for kind in robot.joint_types]
        free = robot.free_base
        angles = tuple(f"{name}_{unit}" for name, unit in zip(names, units, strict=True))
        rates = tuple(f"{name}_{unit}_s" for name, unit in zip(names, units, strict=True))
        self.state_names = (*(_BASE_STATES if free else ()), *angles, *(_BASE_RATES if free else ()), *rates)
        self.state_frames = {**(FRAMES if free else {}), **dict.fromkeys(names, "the joint's axis")}
        base_tangent = (*_BASE_STATES[:3], *_BASE_TURNS) if free else ()
        self.tangent_names = (*base_tangent, *angles, *(_BASE_RATES if free else ()), *rates)
        self.action_names = tuple(
            f"torque_{n}" if u == "rad" else f"force_{n}" for n, u in zip(names, units, strict=True)
        )
        self.action_units = tuple("N m" if unit == "rad" else "N" for unit in units)
        disturbances = tuple(f"disturbance_{name}" for name in self.action_names)
        self.control_names = (*self.action_names, *disturbances, *(_BASE_DISTURBANCES if free else ()))
        self.control_inertia = ("",) * len(self.control_names)
        joint_groups = tuple("joint_torque" if unit == "rad" else "joint_force" for unit in units)
        base = (*("force",) * 3, *("torque",) * 3) if free else ()
        self.control_groups = (*joint_groups, *("torque",) * count, *base)
        self._base = 6 if free else 0
        self._configuration = count + (7 if free else 0)
        self._payload: str | None = None  # the part whose mass is `PAYLOAD`
        self._parts = [part for part in robot.parts if part.link > 0 or free]
        self._part_links = np.array([part.link for part in self._parts], dtype=np.int64)
        self._part_coms = np.array([part.com for part in self._parts]).reshape(-1, 3)
        self._matrix_per_mass = self._rest_matrices()
        effective = (
            1.0 / np.diag(np.linalg.inv(self._mass_matrix(np.array([part.mass for part in self._parts]))))[self._base :]
        )
        self._limit_stiffness = _LIMIT_RATE**2 * effective
        self._trees: dict[str, Any] = {}
        self._scratch: dict[str, Any] = {}
        self._carried: list[tuple[Array, NDArray[np.int64]]] = []

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`: joints are seen on a fixed base, of a body that has a mesh."""
        seen = self.surface is not None and not self.robot.free_base
        reason = "its base moves" if self.robot.free_base else "its file has no mesh"
        return Capabilities(
            purpose="links on joints, driven by torques",
            observed_as="joints" if seen else None,
            reason=f"{reason}: the tracker estimates the joints of a body with a mesh on a fixed base",
            inertial=("mass", "payload", "stiffness", "damping", "friction"),
            scene=("gravity",),
            excited_by=_EXCITED_BY,
            groups=self._groups(),
        )

    def _groups(self) -> dict[str, tuple[str, ...]]:
        """Return the names that stand for several parameters."""
        each = {f"joint_{what}": what for what in ("stiffness", "damping", "friction")}
        groups = {name: tuple(f"{what}_{group}" for group in self.group_names) for name, what in each.items()}
        return groups | {"payload": (PAYLOAD,)}

    def called_as(self, names: Collection[str]) -> Self:
        """Return the system, in which the mass of the end link is `payload_mass` where `names` has this.

        Raises UsageError for a robot with several ends, of which none is called `payload`.
        """
        if PAYLOAD not in names:
            return self
        ends = [part.name for part in self._parts if part.is_end]
        chosen = [name for name in ends if name == "payload"] or ends
        if len(chosen) != 1:
            got = f"{PAYLOAD} of '{self.robot.name}', which ends in {', '.join(ends)}"
            raise UsageError(got, "a robot with a single end", f"name the link: mass_{ends[0]}")
        named = copy(self)
        named._payload = chosen[0]
        return named

    def parameters(self) -> Parameters:
        """Return the gravity; stiffness, damping and dry friction of every joint or group of joints; the mass of every
        body of the file.

        Defaults are the robot's. A body's inertia scales with its mass.
        """
        robot = self.robot
        items = [Parameter("gravity", "m/s^2", robot.gravity, 0.0, 30.0)]
        first = [int(np.argmax(self._group == g)) for g in range(len(self.group_names))]
        columns = (
            ("stiffness", "/{}", robot.stiffness),
            ("damping", " s/{}", robot.damping),
            ("friction", "", robot.friction),
        )
        for what, per, values in columns:
            for name, joint in zip(self.group_names, first, strict=True):
                revolute = robot.joint_types[joint] == "revolute"
                unit = ("N m" if revolute else "N") + per.format("rad" if revolute else "m")
                items.append(Parameter(f"{what}_{name}", unit, float(values[joint]), 0.0, 1e6))
        for part in self._parts:
            name = PAYLOAD if part.name == self._payload else f"mass_{part.name}"
            items.append(Parameter(name, "kg", part.mass, 1e-3 * part.mass, 1e3 * part.mass, "log"))
        return Parameters(tuple(items))

    def retract(self, states: Array, tangent: Array) -> Array:
        """See `System.retract`; a free base's quaternion moves by right multiplication with exp(dtheta)."""
        s, t = np.asarray(states, dtype=float), np.asarray(tangent, dtype=float)
        if not self._base:
            return s + t
        rotation = geometry.quat_from_rotvec(t[..., 3:6])
        quat = geometry.quat_normalize(geometry.quat_multiply(s[..., 3:7], rotation))
        return np.concatenate([s[..., :3] + t[..., :3], quat, s[..., 7:] + t[..., 6:]], axis=-1)

    def local(self, a: Array, b: Array) -> Array:
        """See `System.local`; the shorter way round."""
        a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
        if not self._base:
            return b - a
        rotation = geometry.quat_multiply(geometry.quat_conjugate(a[..., 3:7]), b[..., 3:7])
        parts = [b[..., :3] - a[..., :3], geometry.rotvec_from_quat(rotation), b[..., 7:] - a[..., 7:]]
        return np.concatenate(parts, axis=-1)

    def tangent_basis(self, states: Array) -> Array:
        """See `System.tangent_basis`."""
        size = len(self.tangent_names)
        if not self._base:
            return np.broadcast_to(np.eye(size), (*np.shape(states)[:-1], size, size))
        basis = np.zeros((*np.shape(states)[:-1], size + 1, size))
        quat = np.asarray(states, dtype=float)[..., 3:7]
        columns = [geometry.quat_multiply(quat, np.eye(4)[i]) for i in (1, 2, 3)]
        basis[..., :3, :3] = np.eye(3)
        basis[..., 3:7, 3:6] = 0.5 * np.stack(columns, axis=-1)
        basis[..., 7:, 6:] = np.eye(size - 6)
        return basis

    def cotangent_basis(self, states: Array) -> Array:
        """See `System.cotangent_basis`: the transposed tangent basis but for a quaternion's factor of four."""
        basis = np.swapaxes(self.tangent_basis(states), -1, -2).copy()
        if self._base:
            basis[..., 3:6, 3:7] *= 4.0
        return basis

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
        """See `System.launch_step`; one launch, and one for its adjoint, which is recorded on the tape."""
        from vid2phys.engine.kernels import articulation_launch

        device = str(states.device)
        if device not in self._trees:
            self._trees[device] = articulation_launch.device_tree(self._constants(), device)
        tree = self._trees[device]
        scratch = self._scratch.get(device)
        if scratch is None or scratch.rows != states.shape[0]:
            scratch = self._scratch[device] = articulation_launch.Scratch(
                tree, states.shape[0], states.shape[1], device
            )
        inputs = states, controls, parameters, dt_s
        articulation_launch.launch(tree, scratch, *inputs, next_states, step, fraction, integrator)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`: springs and stops, damping and friction below its smoothing rate, at rest."""
        from vid2phys.engine.kernels.articulation import FRICTION_RATE

        values = np.asarray(parameters, dtype=float)
        count = len(self.group_names)
        stiffness, damping, friction = values[1 : 1 + 3 * count].reshape(3, count)[:, self._group]
        inverse = np.linalg.inv(self._mass_matrix(self._masses(values)))[self._base :, self._base :]
        limited = np.isfinite(self.robot.lower) | np.isfinite(self.robot.upper)
        stops = np.where(limited, self._limit_stiffness, 0.0)
        frequency = np.sqrt(_largest_eigenvalue(inverse, stiffness + stops))
        rate = _largest_eigenvalue(inverse, damping + friction / float(FRICTION_RATE))
        return float(2.0 / max(frequency, rate, 1e-300))

    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """See `System.body_pose`: the base."""
        states = np.asarray(states, dtype=float)
        if self._base:
            return states[..., :3], states[..., 3:7]
        quat = np.broadcast_to([1.0, 0.0, 0.0, 0.0], (*states.shape[:-1], 4))
        return np.zeros((*states.shape[:-1], 3)), quat

    def links_of(self, points_body: Array) -> NDArray[np.int64]:
        """Return the link [K] whose surface is nearest to each of the points [K, 3] m, given in the base's axes at
        rest.
        """
        from trimesh import Trimesh, proximity

        mesh = self.robot.mesh
        points = np.asarray(points_body, dtype=float)
        if not len(mesh.faces) or not len(points):
            return np.zeros(len(points), dtype=np.int64)
        surface = Trimesh(_FINER * mesh.vertices, mesh.faces, process=False)
        return np.asarray(mesh.part[proximity.closest_point(surface, _FINER * points)[2]], dtype=np.int64)

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`: points in the base's axes at rest, each carried by the link nearest to it."""
        return self.keypoints_on(states, points_body, self._remembered_links(points_body))

    def keypoints_on(self, states: Array, points_body: Array, links: NDArray[np.int64]) -> Array:
        """Return `keypoints` of points [K, 3] m in the base's axes at rest that are carried by the links [K]."""
        turned, placed = self.frames(states)
        return (
            np.einsum("...kij,kj->...ki", turned[..., links, :, :], self._in_links(points_body, links))
            + placed[..., links, :]
        )

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`."""
        states, links = np.asarray(states, dtype=float), self._remembered_links(points_body)
        turned, placed = self.frames(states)
        points = self.keypoints_on(states, points_body, links)
        jacobian = np.zeros((*points.shape, len(self.tangent_names)))
        if self._base:
            base = geometry.matrix_from_quat(states[..., 3:7])
            jacobian[..., :3] = np.eye(3)
            arms = np.einsum("...ji,...kj->...ki", base, points - states[..., None, :3])
            jacobian[..., 3:6] = -base[..., None, :, :] @ geometry.skew(arms)
        moves = self.ancestry()[links]
        for i in range(1, len(self.robot.parents)):
            axis = (turned[..., i, :, :] @ self.robot.axes[i])[..., None, :]
            arms = points - placed[..., i, None, :]
            column = np.cross(axis, arms) if self._revolute[i] else np.broadcast_to(axis, arms.shape)
            jacobian[..., self._base + i - 1] = moves[:, i, None] * column
        return jacobian

    def vertices(self, state: Array, mesh_vertices: Array) -> Array:
        """See `System.vertices`: each is carried by the link nearest to it at rest."""
        return self.keypoints_on(state, mesh_vertices, self._remembered_links(mesh_vertices))

    def rest_state(self) -> Array:
        """See `System.rest_state`: joints at zero, or at the limit nearest to it; a free base at the origin."""
        return self._standing(np.clip(0.0, self.robot.lower, self.robot.upper))

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: a base at the origin, joints in the middle half of their range.

        None is nearly at rest, where dry friction changes its sign.
        """
        robot = self.robot
        widest = np.array([_WIDEST_SAMPLE[kind] for kind in robot.joint_types])
        lower = np.where(np.isfinite(robot.lower), robot.lower, robot.reference - widest)
        upper = np.where(np.isfinite(robot.upper), robot.upper, np.maximum(lower, robot.reference) + widest)
        share = rng.uniform(0.25, 0.75, (n, len(widest)))
        fastest = np.array([_FASTEST_SAMPLE[kind] for kind in robot.joint_types])
        rates = fastest * rng.uniform(0.5, 1.0, share.shape) * rng.choice([-1.0, 1.0], share.shape)
        joints = lower + share * (upper - lower)
        if not self._base:
            return np.concatenate([joints, rates], axis=1)
        quat = geometry.quat_normalize(rng.normal(size=(n, 4)))
        return np.concatenate([np.zeros((n, 3)), quat, joints, rng.normal(0.0, 1.0, (n, 6)), rates], axis=1)

    def hover_controls(self, parameters: Array) -> Array:
        """See `System.hover_controls`: what holds the joints in the rest state on a fixed base; a free one falls."""
        controls = np.zeros(len(self.control_names))
        if self._base:
            return controls
        values, robot = np.asarray(parameters, dtype=float), self.robot
        count = len(robot.joint_names)
        rest = self.rest_state()
        turned, placed = self.frames(rest)
        coms = self._placed_coms(turned, placed)
        stiffness = values[1 : 1 + len(self.group_names)][self._group]
        controls[:count] = stiffness * (rest[:count] - robot.spring_reference)
        lift = values[0] * self._masses(values)[:, None] * np.array([0.0, 0.0, 1.0])
        moves = self.ancestry()[self._part_links]
        for i in range(1, count + 1):
            axis = turned[i] @ robot.axes[i]
            velocity = np.cross(axis, coms - placed[i]) if self._revolute[i] else np.broadcast_to(axis, coms.shape)
            controls[i - 1] += float((moves[:, i, None] * velocity * lift).sum())
        return controls

    @property
    def _revolute(self) -> NDArray[np.bool_]:
        """Return [L], whether a link's joint is revolute; False for the base."""
        return np.array([False, *(kind == "revolute" for kind in self.robot.joint_types)])

    def ancestry(self) -> NDArray[np.bool_]:
        """Return [L, L], whether joint of link j moves link i."""
        moves = np.eye(len(self.robot.parents), dtype=bool)
        for i in range(1, len(moves)):
            moves[i] |= moves[self.robot.parents[i]]
        moves[:, 0] = False
        return moves

    def _masses(self, parameters: Array) -> Array:
        """Return the mass of every part [B] for one vector of parameters."""
        return parameters[1 + 3 * len(self.group_names) :]

    def _placed_coms(self, turned: Array, placed: Array) -> Array:
        """Return the centre of mass of every part [B, 3] in the world, from the frames of the links."""
        return placed[self._part_links] + np.einsum("bij,bj->bi", turned[self._part_links], self._part_coms)

    def frames(self, states: Array) -> tuple[Array, Array]:
        """Return the rotation [..., L, 3, 3] and position [..., L, 3] of every link in the world."""
        states, robot = np.asarray(states, dtype=float), self.robot
        first = self._configuration - len(robot.joint_names)
        base, quat = self.body_pose(states)
        turned = np.empty((*states.shape[:-1], len(robot.parents), 3, 3))
        placed = np.empty((*states.shape[:-1], len(robot.parents), 3))
        turned[..., 0, :, :], placed[..., 0, :] = geometry.matrix_from_quat(quat), base
        for i in range(1, len(robot.parents)):
            up, q = int(robot.parents[i]), states[..., first + i - 1] - robot.reference[i - 1]
            rotation = turned[..., up, :, :] @ robot.rotations[i]
            position = placed[..., up, :] + turned[..., up, :, :] @ robot.offsets[i]
            along = q[..., None] * robot.axes[i]
            if self._revolute[i]:
                rotation = rotation @ geometry.matrix_from_rotvec(along)
            else:
                position = position + np.einsum("...ij,...j->...i", rotation, along)
            turned[..., i, :, :], placed[..., i, :] = rotation, position
        return turned, placed

    def drawn_state(self) -> Array:
        """Return the state in which the file draws the robot."""
        return self._standing(self.robot.reference)

    def _standing(self, joints: Array) -> Array:
        """Return the state with these joint coordinates, a free base at the origin and nothing that moves."""
        base = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0] if self._base else []
        return np.concatenate([base, joints, np.zeros(self._base + len(joints))])

    def _in_links(self, points_body: Array, links: NDArray[np.int64]) -> Array:
        """Return the points at rest, base's axes, in the axes of the links that carry them."""
        turned, placed = self.frames(self.drawn_state())
        return np.einsum("kji,kj->ki", turned[links], np.asarray(points_body, dtype=float) - placed[links])

    def _remembered_links(self, points: Array) -> NDArray[np.int64]:
        """Return `links_of`, remembered for the few sets of points that were asked for last."""
        points = np.asarray(points, dtype=float)
        for known, links in self._carried:
            if np.array_equal(known, points):
                return links
        links = self.links_of(points)
        self._carried = [(points.copy(), links), *self._carried][:_REMEMBERED]
        return links

    def _mass_matrix(self, masses: Array) -> Array:
        """Return the mass matrix [V, V] at rest for masses [B] of the parts."""
        armature = np.concatenate([np.zeros(self._base), self.robot.armature])
        return np.tensordot(masses, self._matrix_per_mass, 1) + np.diag(armature)

    def _rest_matrices(self) -> Array:
        """Return the mass matrix at rest that each part gives per kilogram, [B, V, V]."""
        robot = self.robot
        turned, placed = self.frames(self.drawn_state())
        coms, axes = self._placed_coms(turned, placed), turned[self._part_links]
        inertias = axes @ self._inertia_per_mass() @ np.swapaxes(axes, 1, 2)
        moves, size = self.ancestry()[self._part_links], self._base + len(robot.joint_names)
        linear, angular = np.zeros((len(coms), 3, size)), np.zeros((len(coms), 3, size))
        if self._base:
            linear[:, :, :3], linear[:, :, 3:6], angular[:, :, 3:6] = np.eye(3), -geometry.skew(coms), np.eye(3)
        for i in range(1, len(robot.parents)):
            axis, column = turned[i] @ robot.axes[i], self._base + i - 1
            if self._revolute[i]:
                angular[moves[:, i], :, column] = axis
                linear[moves[:, i], :, column] = np.cross(axis, coms[moves[:, i]] - placed[i])
            else:
                linear[moves[:, i], :, column] = axis
        turning = np.einsum("lia,lij,ljb->lab", angular, inertias, angular)
        return np.asarray(np.einsum("lia,lib->lab", linear, linear) + turning)

    def _inertia_per_mass(self) -> Array:
        """Return [B, 3, 3] m^2."""
        return np.array([part.inertia / part.mass for part in self._parts]).reshape(-1, 3, 3)

    def _constants(self) -> dict[str, Any]:
        """Return the fields of the kernels' `Tree`, in NumPy."""
        robot, count, base = self.robot, len(self.robot.joint_names), self._base
        per_joint = {
            "group": self._group,
            "reference": robot.reference,
            "spring_reference": robot.spring_reference,
            "armature": robot.armature,
            "lower": robot.lower,
            "upper": robot.upper,
            "limit_stiffness": self._limit_stiffness,
        }
        dof_parent = [*range(-1, base - 1), *(base + int(p) - 1 for p in robot.parents[1:])]
        depth: list[int] = []
        for parent in dof_parent:
            depth.append(0 if parent < 0 else depth[parent] + 1)
        return {
            "links": count + 1,
            "parts": len(self._parts),
            "base": base,
            "configuration": self._configuration,
            "groups": len(self.group_names),
            "parent": robot.parents,
            "revolute": self._revolute.astype(int),
            "part_link": self._part_links,
            "mass_column": 1 + 3 * len(self.group_names) + np.arange(len(self._parts)),
            "offset": robot.offsets,
            "turned": robot.rotations,
            "axis": robot.axes,
            "com": self._part_coms,
            "inertia": self._inertia_per_mass(),
            **{name: np.concatenate([[0], values]) for name, values in per_joint.items()},
            "dof_parent": np.array(dof_parent),
            "dof_depth": np.array(depth),
            "row_start": np.cumsum([0, *(d + 1 for d in depth)]),
        }


def _largest_eigenvalue(inverse: NDArray[Any], diagonal: Array) -> float:
    """Return the largest eigenvalue of M^-1 diag(d), by the symmetric matrix it is similar to; d >= 0."""
    root = np.sqrt(np.maximum(diagonal, 0.0))
    return float(np.linalg.eigvalsh(root[:, None] * inverse * root).max())
