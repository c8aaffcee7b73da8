"""A rigid body that flies, hits a plane, slides and comes to rest: contact as `identify` fits it to a clip.

Contact is rigid: restitution and friction, as people measure them, in place of springs. `RigidContact` has the papers'
compliant contact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys import geometry
from vid2phys.engine.system import Capabilities
from vid2phys.engine.systems._shapes import Points, Shape, Sphere
from vid2phys.engine.systems.rigid_contact import RigidContact
from vid2phys.types import Array, Mesh, Parameter, Parameters

OF_GROUND = ("ground_height", "ground_tilt_x", "ground_tilt_y")
OF_CONTACT = ("mu", "restitution", "rolling_friction", *OF_GROUND)
_COMPLIANT = ("k_e", "k_d", "k_f")
_MOST_POINTS = 256
GRAVITY_M_S2 = 9.81
_EXCITED_BY = {
    "mass": "a recorded force on the body: a throw looks the same with any mass",
    "inertia": "a recorded torque on the body",
    "mu": "sliding, or an oblique impact that does not end in rolling",
    "restitution": "an impact",
    "rolling_friction": "a ball that rolls until it slows down",
    "ground": "impacts, or a body that comes to rest",
    "gravity": "free flight at a known size",
    **dict.fromkeys(_COMPLIANT, "a contact that lasts several frames, in recorded states (fit-recording)"),
}


@dataclass(frozen=True)
class Contacts:
    """What happens in the frame intervals of a rollout, all [..., F - 1].

    normal_impulse, friction_impulse: m/s (impulse per kilogram). time_s: of the first impact since the start of the
    rollout, NaN without one. approach_m_s: of the fastest impact. impacts: number. sliding_s: how long the body slides.
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
    (rad, rotations about the world's x and y). k_e, k_d, k_f have no effect.

    The points that touch are the corners of the mesh's convex hull, or a ball. Source of the laws: Moreau (1988), see
    `kernels.impacts_cpu`.

    Limits: one plane. Hollows of a mesh do not touch. A body whose principal axes are not those of its mesh has the
    inertia of its mesh at uniform density, whatever is given.
    """

    def __init__(self, mesh: Mesh) -> None:
        """Raises UsageError for a mesh that spans no volume."""
        super().__init__((Sphere(float(np.linalg.norm(mesh.vertices, axis=1).max())),), planes=())
        self.shape: Shape = Sphere.of_mesh(mesh) or Points.of_mesh(mesh, most=_MOST_POINTS)

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        return replace(
            super().capabilities,
            scene=(*OF_CONTACT, "gravity"),
            excited_by=_EXCITED_BY,
            without_effect=_COMPLIANT,
            of_impacts=OF_CONTACT,
        )

    def parameters(self) -> Parameters:
        """Return those of `RigidContact`, then those of impacts and of the plane."""
        changed = {
            "mu": {"lower": 1e-3, "upper": 5.0, "value": 0.4, "transform": "log"},
            "gravity": {"value": GRAVITY_M_S2},
        }
        before = [replace(p, **changed.get(p.name, {})) for p in super().parameters()]  # type: ignore[arg-type]
        return Parameters(
            (
                *before,
                Parameter("restitution", "1", 0.4, 0.0, 1.0),
                Parameter("rolling_friction", "1", 0.0, 0.0, 1.0),
                Parameter("ground_height", "m", 0.0, -100.0, 100.0),
                Parameter("ground_tilt_x", "rad", 0.0, -0.5, 0.5),
                Parameter("ground_tilt_y", "rad", 0.0, -0.5, 0.5),
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
        inputs = self._to_principal(starts), lengths_s, self.shape.points
        given = self._columns(parameters), np.ascontiguousarray(slack, dtype=float)
        begin, lengths, points = map(np.ascontiguousarray, inputs)
        kernel.rollouts(begin, lengths, points, self.shape.radius, *given, states, events)  # type: ignore[call-arg]
        hit, before = events[..., kernel.IMPACTS] > 0.0, np.cumsum(lengths_s, axis=1) - lengths_s
        contacts = Contacts(
            events[..., kernel.NORMAL_IMPULSE],
            events[..., kernel.FRICTION_IMPULSE],
            np.where(hit, before + events[..., kernel.TIME], np.nan),
            events[..., kernel.APPROACH],
            events[..., kernel.IMPACTS],
            events[..., kernel.SLIDING],
        )
        return self._from_principal(states), contacts

    def clearance_m(self, states: Array, parameters: Array) -> Array:
        """Return the height [...] of the lowest point of the body above the plane, of states [..., 13]."""
        principal = self._to_principal(states)
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

    def _to_principal(self, states: Array) -> Array:
        """Return states [..., 13] of the mesh's origin and axes as those of the centre of mass and principal axes."""
        origin, axes, out = self.shape.origin, self.shape.axes, np.array(states, dtype=float)
        out[..., :3] += geometry.rotate(states[..., 3:7], np.broadcast_to(origin, out[..., :3].shape))
        out[..., 7:10] += geometry.rotate(states[..., 3:7], np.cross(states[..., 10:13], origin))
        out[..., 3:7] = geometry.quat_multiply(states[..., 3:7], geometry.quat_from_matrix(axes))
        out[..., 10:13] = states[..., 10:13] @ axes
        return np.ascontiguousarray(out)

    def _from_principal(self, states: Array) -> Array:
        """Return what `_to_principal` was given."""
        origin, axes, out = self.shape.origin, self.shape.axes, np.array(states, dtype=float)
        out[..., 3:7] = geometry.quat_multiply(
            states[..., 3:7], geometry.quat_conjugate(geometry.quat_from_matrix(axes))
        )
        out[..., 10:13] = states[..., 10:13] @ axes.T
        out[..., :3] -= geometry.rotate(out[..., 3:7], np.broadcast_to(origin, out[..., :3].shape))
        out[..., 7:10] -= geometry.rotate(out[..., 3:7], np.cross(out[..., 10:13], origin))
        return out


def plane(p: Mapping[str, Array | float]) -> tuple[Array, Array]:
    """Return normals [..., 3] and offsets [...] (m) of planes n . x = c by their parameters [...]."""
    tilts = np.stack(np.broadcast_arrays(p["ground_tilt_x"], p["ground_tilt_y"], 0.0), axis=-1)
    normals = geometry.matrix_from_rotvec(tilts)[..., :, 2]
    return normals, np.asarray(p["ground_height"] * normals[..., 2])
