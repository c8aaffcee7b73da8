"""Motions of the bodies: thrown, sliding, swinging, flying, and released by a hand.

Each motion of the table has `solve`, which returns the pose over time and the facts for `truth.json`. A thrown body is
a rigid body over the plane z = 0: time steps of 0.1 ms (Moreau), Newton's restitution at each point of contact, and
Coulomb friction with one coefficient, solved by projected Gauss-Seidel. References: Moreau, "Unilateral contact and dry
friction in finite freedom dynamics", 1988; Jean, "The non-smooth contact dynamics method", 1999. A body on a string is
a double pendulum, solved by MuJoCo.

Limits: no air drag, no rolling friction, no contact with other objects. A corner may enter the floor by one step, some
0.3 mm at 3 m/s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from benchmarks.clips.appearance import Point
from benchmarks.clips.bodies import Solid

Array = NDArray[np.float64]
GRAVITY = np.array([0.0, 0.0, -9.81])
STEP_S = 1e-4
_NO_BOUNCE_M_S = 0.02  # below this approach speed, contact is inelastic
_MOST_CONTACTS = 8
_SWEEPS = 40


@dataclass(frozen=True)
class Motion:
    """Poses at rising times. times_s: [T]. position: [T, 3] m. orientation: [T, 4], quaternions wxyz."""

    times_s: NDArray[Any]
    position: Array
    orientation: Array
    facts: dict[str, Any] = field(default_factory=dict)

    def at(self, times_s: Array) -> tuple[Array, Array]:
        """Return positions [N, 3] m and quaternions wxyz [N, 4], linear between steps, continued at both ends."""
        t = np.atleast_1d(times_s)
        i = np.clip(np.searchsorted(self.times_s, t, side="right") - 1, 0, len(self.times_s) - 2)
        share = ((t - self.times_s[i]) / (self.times_s[i + 1] - self.times_s[i]))[:, None]
        position = self.position[i] + share * (self.position[i + 1] - self.position[i])
        first, second = (Rotation.from_quat(self.orientation[j], scalar_first=True) for j in (i, i + 1))
        rotation = first * Rotation.from_rotvec(share * (first.inv() * second).as_rotvec())
        return position, continuous(rotation.as_quat(scalar_first=True))


class Moves(Protocol):
    """A row of the table that can be solved."""

    def solve(self, solid: Solid, duration_s: float) -> Motion:
        """Return the motion from time 0 on."""


def continuous(quats: Array) -> Array:
    """Return quaternions [N, 4] with signs such that consecutive ones lie in one hemisphere."""
    dots = (quats[1:] * quats[:-1]).sum(axis=1)
    signs = np.cumprod(np.concatenate([[1.0], np.where(dots < 0.0, -1.0, 1.0)]))
    return np.asarray(quats * signs[:, None])


@dataclass(frozen=True)
class Throw:
    """A free body over the floor. position_m, rotvec_rad, velocity_m_s, spin_rad_s (world axes): at time 0.

    gravity: m/s^2. air_drag_1_m: deceleration by the air over the square of the speed, 1/m.
    """

    position_m: Point
    velocity_m_s: Point
    rotvec_rad: Point = (0.0, 0.0, 0.0)
    spin_rad_s: Point = (0.0, 0.0, 0.0)
    friction: float = 0.35
    restitution: float = 0.4
    gravity: float = -float(GRAVITY[2])
    air_drag_1_m: float = 0.0

    def solve(self, solid: Solid, duration_s: float) -> Motion:
        """See `Moves.solve`."""
        steps = int(np.ceil(duration_s / STEP_S)) + 1
        body = _FreeBody(solid, self)
        position, rotation = np.empty((steps, 3)), np.empty((steps, 3, 3))
        for i in range(steps):
            position[i], rotation[i] = body.position, body.rotation
            body.step(i * STEP_S)
        quats = continuous(Rotation.from_matrix(rotation).as_quat(scalar_first=True))
        impacts = body.impacts
        facts = {
            "friction": {"mu": self.friction, "how": "set"},
            "restitution": {"value": self.restitution, "how": "set: Newton's restitution of each point of contact"},
            "initial_state_at_frame_0": {
                "position_m": list(self.position_m),
                "quaternion_wxyz": [round(float(q), 7) for q in quats[0]],
                "velocity_m_s": list(self.velocity_m_s),
                "angular_velocity_world_rad_s": list(self.spin_rad_s),
            },
            "first_contact_s": round(impacts[0]["t"], 4) if impacts else None,
            "impacts_over_0p25_m_s": impacts,
            "simulation": "own time stepping of 0.1 ms: Newton's restitution, Coulomb friction, "
            + (f"air drag of {self.air_drag_1_m:.3g} 1/m" if self.air_drag_1_m else "no air drag"),
        }
        return Motion(np.arange(steps) * STEP_S, position, quats, facts)


class _FreeBody:
    """State of a free body over the plane z = 0, and its time step."""

    def __init__(self, solid: Solid, throw: Throw) -> None:
        self.solid, self.throw = solid, throw
        self.position = np.array(throw.position_m, float)
        self.rotation = Rotation.from_rotvec(throw.rotvec_rad).as_matrix()
        self.velocity = np.array(throw.velocity_m_s, float)
        self.inverse = np.linalg.inv(solid.inertia)
        spin = np.array(throw.spin_rad_s, float)
        self.momentum = self.rotation @ solid.inertia @ self.rotation.T @ spin
        self.impacts: list[dict[str, float]] = []

    def step(self, time_s: float) -> None:
        """Advance by one step."""
        before = self.velocity
        air = self.throw.air_drag_1_m * float(np.linalg.norm(before)) * before
        self.velocity = before - STEP_S * (air + np.array([0.0, 0.0, self.throw.gravity]))
        contacts = self._contacts()
        mean = 0.5 * (before + self.velocity)
        if len(contacts):
            self._collide(contacts, time_s)
            mean = self.velocity
        self.position = self.position + STEP_S * mean
        half = self._turned(self.rotation, 0.5 * STEP_S)
        spin = half @ self.inverse @ half.T @ self.momentum
        self.rotation = _rotation(STEP_S * spin) @ self.rotation

    def _turned(self, rotation: Array, step_s: float) -> Array:
        return np.asarray(_rotation(step_s * (rotation @ self.inverse @ rotation.T @ self.momentum)) @ rotation)

    def _contacts(self) -> Array:
        """Return the points [C, 3] m, from the centre, that touch the floor: at most eight, far from one another."""
        if self.solid.radius_m:
            low = np.array([[0.0, 0.0, -self.solid.radius_m]])
            return low[low[:, 2] + self.position[2] <= 0.0]
        heights = self.solid.hull @ self.rotation[2]
        points = self.solid.hull[heights + self.position[2] <= 0.0] @ self.rotation.T
        if len(points) <= _MOST_CONTACTS:
            return points
        angle = np.arange(_MOST_CONTACTS) * 2.0 * np.pi / _MOST_CONTACTS
        far = (points[:, :2] @ np.stack([np.cos(angle), np.sin(angle)])).argmax(axis=0)
        return np.asarray(points[np.unique(far)])

    def _collide(self, points: Array, time_s: float) -> None:
        """Change velocity and momentum by the impulses at the points."""
        inverse = self.rotation @ self.inverse @ self.rotation.T
        count = len(points)
        cross = np.stack([_skew(p) for p in points])
        mobility = np.eye(3) / self.solid.mass_kg - np.einsum("cij,jk,dkl->cdil", cross, inverse, cross)
        spin = inverse @ self.momentum
        free = self.velocity + np.cross(spin, points)  # [C, 3] velocities without impulses
        wanted = np.where(free[:, 2] < -_NO_BOUNCE_M_S, -self.throw.restitution * free[:, 2], 0.0)
        stiffest = [np.linalg.eigvalsh(mobility[c, c, :2, :2])[1] for c in range(count)]
        impulse = np.zeros((count, 3))
        speed = free.copy()
        for _ in range(_SWEEPS):
            most = 0.0
            for c in range(count):
                old = impulse[c].copy()
                own = mobility[c, c]
                impulse[c, 2] = max(0.0, old[2] - (speed[c, 2] - wanted[c]) / own[2, 2])
                speed += mobility[:, c] @ (impulse[c] - old)
                middle = impulse[c].copy()
                slide = middle[:2] - speed[c, :2] / stiffest[c]  # one scalar, so that friction opposes the slip
                size, bound = float(np.hypot(*slide)), self.throw.friction * impulse[c, 2]
                impulse[c, :2] = slide if size <= bound else slide * (bound / size)
                speed += mobility[:, c] @ (impulse[c] - middle)
                most = max(most, float(np.abs(impulse[c] - old).max()))
            if most < 1e-7 * self.solid.mass_kg:
                break
        self.velocity = self.velocity + impulse.sum(axis=0) / self.solid.mass_kg
        self.momentum = self.momentum + np.cross(points, impulse).sum(axis=0)
        hardest = int(free[:, 2].argmin())
        if free[hardest, 2] < -0.25:
            after = {"normal_speed_before": -free[hardest, 2], "normal_speed_after": speed[hardest, 2]}
            self.impacts.append({"t": round(time_s, 4)} | {k: round(float(v), 4) for k, v in after.items()})


def _skew(v: Array) -> Array:
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def _rotation(rotvec: Array) -> Array:
    """Return the rotation matrix of a small rotation vector [3] (Rodrigues)."""
    angle = float(np.sqrt(rotvec @ rotvec))
    if angle < 1e-12:
        return np.eye(3)
    k = _skew(rotvec / angle)
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1.0 - np.cos(angle)) * (k @ k))


@dataclass(frozen=True)
class Pendulum:
    """A body on a fixed pin along the world's y axis. pin_body_m: the pin in the body frame. angle_deg: from hanging.

    damping: N m s/rad. spin_rad_s: at time 0.
    """

    pin_m: Point
    pin_body_m: Point
    angle_deg: float
    damping: float = 0.001
    spin_rad_s: float = 0.0

    def solve(self, solid: Solid, duration_s: float) -> Motion:
        """See `Moves.solve`."""
        arm = -np.array(self.pin_body_m)
        length = float(np.hypot(arm[0], arm[2]))
        inertia = float(solid.inertia[1, 1] + solid.mass_kg * length**2)
        ratio = solid.mass_kg * 9.81 * length / inertia

        def rate(_: float, state: Array) -> list[float]:
            return [state[1], -ratio * np.sin(state[0]) - self.damping / inertia * state[1]]

        times = np.arange(0.0, duration_s + 1e-3, 1e-3)
        start = [np.radians(self.angle_deg), self.spin_rad_s]
        angle = solve_ivp(rate, (0.0, times[-1]), start, t_eval=times, rtol=1e-10, atol=1e-12).y[0]
        hanging = np.arctan2(arm[0], -arm[2])  # body angle from the downward direction when unrotated
        rotation = Rotation.from_rotvec((angle + hanging)[:, None] * [0.0, 1.0, 0.0])
        position = np.array(self.pin_m) + rotation.apply(arm)
        facts = {
            "hinge": {
                "point_world_m": list(self.pin_m),
                "axis_world": [0.0, 1.0, 0.0],
                "point_body_m": list(self.pin_body_m),
                "axis_body": [0.0, 1.0, 0.0],
                "length_hinge_to_com_m": length,
                "inertia_about_hinge_kgm2": inertia,
                "damping_Nms_per_rad": self.damping,
                "small_angle_period_s": round(float(2.0 * np.pi / np.sqrt(ratio)), 5),
                "start_angle_deg": self.angle_deg,
            },
            "simulation": "Runge-Kutta (scipy, relative tolerance 1e-10) of one hinge with viscous damping",
        }
        return Motion(times, position, continuous(rotation.as_quat(scalar_first=True)), facts)


@dataclass(frozen=True)
class Swing:
    """A body on a light stiff string. tip_body_m: where the string ends in the body frame. angle_deg: about x and y."""

    pivot_m: Point
    length_m: float
    tip_body_m: Point
    angle_deg: tuple[float, float]
    spin_rad_s: Point = (0.0, 0.0, 0.0)

    def solve(self, solid: Solid, duration_s: float) -> Motion:
        """See `Moves.solve`. The facts hold `tip_world_m` of each millisecond for those who draw the string."""
        import mujoco

        tip = -np.array(self.tip_body_m)
        inertia = solid.inertia
        full = " ".join(f"{inertia[i, j]:.9g}" for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))
        vector = "{0:.9g} {1:.9g} {2:.9g}".format
        model = mujoco.MjModel.from_xml_string(f"""
        <mujoco><option timestep="0.0002" integrator="RK4" gravity="0 0 -9.81"/><worldbody>
        <body pos="{vector(*self.pivot_m)}"><joint type="ball" damping="1e-6"/>
        <inertial pos="0 0 {-0.5 * self.length_m:.6g}" mass="0.001" diaginertia="2e-6 2e-6 1e-6"/>
        <body pos="0 0 {-self.length_m:.6g}"><joint type="ball" damping="2e-5"/>
        <inertial pos="{vector(*tip)}" mass="{solid.mass_kg}" fullinertia="{full}"/>
        </body></body></worldbody></mujoco>""")
        data = mujoco.MjData(model)
        first = Rotation.from_euler("xy", self.angle_deg, degrees=True)
        data.qpos[:4] = first.as_quat(scalar_first=True)
        data.qvel[3:6] = self.spin_rad_s
        steps = int(np.ceil(duration_s / 1e-3)) + 1
        position, quats, tips = np.empty((steps, 3)), np.empty((steps, 4)), np.empty((steps, 3))
        for i in range(steps):
            mujoco.mj_kinematics(model, data)
            tips[i], quats[i] = data.xpos[2], data.xquat[2]
            position[i] = tips[i] + Rotation.from_quat(quats[i], scalar_first=True).apply(tip)
            for _ in range(5):
                mujoco.mj_step(model, data)
        facts = {
            "string": {
                "pivot_world_m": list(self.pivot_m),
                "length_m": self.length_m,
                "end_body_m": list(self.tip_body_m),
                "mass_kg": 0.001,
            },
            "tip_world_m": tips,
            "simulation": f"MuJoCo {mujoco.__version__}, RK4, 0.2 ms, two ball joints",
        }
        return Motion(np.arange(steps) * 1e-3, position, continuous(quats), facts)


@dataclass(frozen=True)
class Flight:
    """A smooth flight. The thrust of the quadrotor points along body z; so its tilt follows from the acceleration.

    Each axis moves as centre + amplitude * sin(2 pi (frequency t + phase)).
    """

    center_m: Point
    amplitude_m: Point
    frequency_hz: Point
    phase: Point = (0.0, 0.0, 0.0)
    yaw_rate_rad_s: float = 0.0
    yaw_rad: float = 0.0

    def solve(self, solid: Solid, duration_s: float) -> Motion:
        """See `Moves.solve`."""
        times = np.arange(0.0, duration_s + 1e-3, 1e-3)
        omega = 2.0 * np.pi * np.array(self.frequency_hz)
        angle = times[:, None] * omega + 2.0 * np.pi * np.array(self.phase)
        position = np.array(self.center_m) + np.array(self.amplitude_m) * np.sin(angle)
        thrust = -np.array(self.amplitude_m) * omega**2 * np.sin(angle) - GRAVITY
        up = thrust / np.linalg.norm(thrust, axis=1, keepdims=True)
        yaw = self.yaw_rad + self.yaw_rate_rad_s * times
        heading = np.stack([np.cos(yaw), np.sin(yaw), 0.0 * yaw], axis=1)
        left = np.cross(up, heading)
        left /= np.linalg.norm(left, axis=1, keepdims=True)
        rotation = Rotation.from_matrix(np.stack([np.cross(left, up), left, up], axis=2))
        quats = continuous(rotation.as_quat(scalar_first=True))
        return Motion(times, position, quats, {"simulation": "smooth path; tilt from the acceleration"})


@dataclass(frozen=True)
class Release:
    """A hand moves the body from rest at `from_m`, and releases it at `hold_s` in the state of `throw`."""

    from_m: Point
    hold_s: float
    throw: Throw

    def solve(self, solid: Solid, duration_s: float) -> Motion:
        """See `Moves.solve`. The facts say what `throw` says, with times of the whole clip."""
        free = self.throw.solve(solid, max(duration_s - self.hold_s, 2.0 * STEP_S))
        times = np.arange(0.0, self.hold_s, STEP_S)
        s = (times / self.hold_s)[:, None]
        start, end = np.array(self.from_m), np.array(self.throw.position_m)
        # quintic with no speed at the start, and no acceleration at both ends
        smooth, ramp = 10 * s**3 - 15 * s**4 + 6 * s**5, -4 * s**3 + 7 * s**4 - 3 * s**5
        position = start + (end - start) * smooth + np.array(self.throw.velocity_m_s) * self.hold_s * ramp
        turn = np.array(self.throw.spin_rad_s) * self.hold_s * ramp
        rotation = Rotation.from_rotvec(turn) * Rotation.from_rotvec(self.throw.rotvec_rad)
        quats = np.concatenate([rotation.as_quat(scalar_first=True), free.orientation])
        later = [impact | {"t": round(impact["t"] + self.hold_s, 4)} for impact in free.facts["impacts_over_0p25_m_s"]]
        facts = {name: value for name, value in free.facts.items() if name != "initial_state_at_frame_0"} | {
            "released_s": self.hold_s,
            "state_at_release": free.facts["initial_state_at_frame_0"],
            "first_contact_s": later[0]["t"] if later else None,
            "impacts_over_0p25_m_s": later,
        }
        return Motion(
            np.concatenate([times, free.times_s + self.hold_s]),
            np.concatenate([position, free.position]),
            continuous(quats),
            facts,
        )
