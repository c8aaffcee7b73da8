"""A quadrotor: one rigid body, four rotors (or a wrench), linear drag, gravity, disturbances."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from vid2phys import geometry
from vid2phys.engine.system import Capabilities, InputKind, Integrator
from vid2phys.engine.systems._rigid import RigidBodies, state_names, tangent_names
from vid2phys.errors import UsageError
from vid2phys.types import Array, Parameter, Parameters

QuadrotorInput = Literal["wrench", "rotors"]
_INERTIA = ("inertia_xx", "inertia_yy", "inertia_zz")
_OF_ROTORS = ("arm_length", "torque_ratio")  # parameters that turn thrusts of rotors into torques
_EXCITED_BY = {
    "mass": "recorded actions (--actions)",
    "inertia": "turns under recorded actions (--actions)",
    "thrust_scale": "recorded actions (--actions) and a known mass",
    "drag": "fast flight with recorded actions (--actions)",
    "arm_length": "rolls and pitches under recorded thrusts of the four rotors (--actions)",
    "torque_ratio": "yaw under recorded thrusts of the four rotors (--actions)",
    "gravity": "recorded actions (--actions), a known mass and a known thrust_scale",
}
_DISTURBANCES = (
    "disturbance_force_x_N",
    "disturbance_force_y_N",
    "disturbance_force_z_N",
    "disturbance_torque_x_Nm",
    "disturbance_torque_y_Nm",
    "disturbance_torque_z_Nm",
)
_ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "wrench": (("thrust", "torque_x", "torque_y", "torque_z"), ("N", "N m", "N m", "N m")),
    "rotors": (("rotor_0", "rotor_1", "rotor_2", "rotor_3"), ("N", "N", "N", "N")),
}


class Quadrotor(RigidBodies):
    """Six-degree-of-freedom rigid body with rotors.

    State, tangent: `RigidBodies`. Controls [10]: four actuators, then a disturbance force (world, N) and a disturbance
    torque (body, N m). Actuators are collective thrust along body z (N) and body torques (N m) for `input="wrench"`, or
    four rotor thrusts (N) for `input="rotors"`. Body axes: x forward, y left, z up. Rotors in X layout, `arm_length`
    from the centre, in the Crazyflie's order: 0 front right, 1 back right, 2 back left, 3 front left; 0 and 2 turn
    counter-clockwise seen from above, so their drag torque on the body points along -z.

        p' = v,  q' = q * (0, omega) / 2,  m v' = R e_z scale F - drag v - m g e_z + f,
        J omega' = tau + tau_d - omega x J omega

    `thrust_scale` multiplies the thrust of every rotor (so roll, pitch and yaw torques too), or the collective thrust
    alone of a wrench.

    Limits: no motor lag, rotor gyroscopic moments, blade flapping, ground effect or contact; drag is linear, isotropic
    and acts at the centre of mass; body axes are principal axes of inertia and the body's origin is its centre of mass.
    """

    name = "quadrotor"
    integrators = ("rk4", "semi_implicit_euler")
    count = 1
    state_names, tangent_names = state_names(1), tangent_names(1)

    def __init__(self, input: QuadrotorInput = "wrench") -> None:
        if input not in _ACTIONS:
            raise UsageError(f"quadrotor input '{input}'", "wrench or rotors", "choose one of them")
        self.input: QuadrotorInput = input
        self.action_names, self.action_units = _ACTIONS[input]
        self.control_names = (*self.action_names, *_DISTURBANCES)
        actuators = ("mass", *_INERTIA) if input == "wrench" else ("mass",) * 4
        self.control_inertia = (*actuators, *("mass",) * 3, *_INERTIA)
        groups = ("thrust", "tilt_torque", "tilt_torque", "yaw_torque") if input == "wrench" else ("rotor",) * 4
        self.control_groups = (*groups, *("force",) * 3, *("torque",) * 3)

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`: seen as a rigid body, driven by recorded actions of both kinds."""
        return Capabilities(
            purpose="a quadrotor in flight: its mass, drag and actuators, and the actions that it was flown with",
            observed_as="rigid",
            inertial=("mass", "inertia", "thrust_scale", *_OF_ROTORS),
            scene=("drag", "gravity"),
            excited_by=_EXCITED_BY,
            without_effect=_OF_ROTORS if self.input == "wrench" else (),
            inputs=("wrench", "rotors"),
        )

    def with_input(self, kind: InputKind) -> Quadrotor:
        """See `System.with_input`."""
        return Quadrotor("rotors" if kind == "rotors" else "wrench")

    def parameters(self) -> Parameters:
        """Return the defaults of a Crazyflie 2.x.

        Mass, inertia and arm: `cf2x.urdf` of gym-pybullet-drones (Panerati et al., IROS 2021), after Foerster, "System
        identification of the Crazyflie 2.0" (ETH Zurich, 2015). Drag torque per thrust: Crazyflie firmware.
        """
        return Parameters(
            (
                Parameter("mass", "kg", 0.027, 1e-3, 100.0, "log"),
                Parameter("inertia_xx", "kg m^2", 1.4e-5, 1e-8, 100.0, "log"),
                Parameter("inertia_yy", "kg m^2", 1.4e-5, 1e-8, 100.0, "log"),
                Parameter("inertia_zz", "kg m^2", 2.17e-5, 1e-8, 100.0, "log"),
                Parameter("thrust_scale", "1", 1.0, 0.05, 20.0, "log"),
                Parameter("drag", "N s/m", 0.0, 0.0, 100.0),
                Parameter("arm_length", "m", 0.0397, 1e-3, 10.0, "log"),
                Parameter("torque_ratio", "m", 0.005964, 0.0, 1.0),
                Parameter("gravity", "m/s^2", 9.81, 0.0, 30.0),
            )
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
        """See `System.launch_step`; one launch."""
        from vid2phys.engine.kernels import multirotor

        kernel = multirotor.step_rk4 if integrator == "rk4" else multirotor.step_semi_implicit_euler
        inputs = [states, controls, parameters, dt_s, step, fraction, 1.0 if self.input == "rotors" else 0.0]
        multirotor.wp.launch(kernel, dim=states.shape[0], inputs=inputs, outputs=[next_states], device=states.device)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`; drag alone bounds it, 2 m / drag."""
        p = dict(zip(self.parameters().names, np.asarray(parameters, float), strict=True))
        return float(2.0 * p["mass"] / p["drag"]) if p["drag"] > 0.0 else float("inf")

    def rest_state(self) -> Array:
        """See `System.rest_state`: upright at the origin."""
        return np.eye(13)[3]

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: at the origin, any yaw, tilt mostly below 30 deg and at most about 60 deg."""
        yaw, towards = rng.uniform(-np.pi, np.pi, n), rng.uniform(-np.pi, np.pi, n)
        tilt = np.minimum(np.abs(rng.normal(0.0, np.deg2rad(20.0), n)), np.deg2rad(60.0))
        axis = np.stack([np.cos(towards), np.sin(towards), np.zeros(n)], axis=-1)
        heading = geometry.quat_from_rotvec(np.stack([np.zeros(n), np.zeros(n), yaw], axis=-1))
        states = np.zeros((n, 13))
        states[:, 3:7] = geometry.quat_multiply(geometry.quat_from_rotvec(tilt[:, None] * axis), heading)
        states[:, 7:10] = rng.normal(0.0, 1.0, (n, 3))
        states[:, 10:] = rng.normal(0.0, 1.0, (n, 3))
        return states

    def hover_controls(self, parameters: Array) -> Array:
        """See `System.hover_controls`."""
        p = dict(zip(self.parameters().names, np.asarray(parameters, float), strict=True))
        controls = np.zeros(10)
        weight = p["mass"] * p["gravity"] / p["thrust_scale"]
        controls[: 4 if self.input == "rotors" else 1] = weight / (4.0 if self.input == "rotors" else 1.0)
        return controls

    def allocation(self, parameters: Array) -> Array:
        """Return the matrix [4, 4] from actuators to collective thrust (N) and body torques (N m)."""
        p = dict(zip(self.parameters().names, np.asarray(parameters, float), strict=True))
        if self.input == "wrench":
            return np.diag([p["thrust_scale"], 1.0, 1.0, 1.0])
        lever, ratio = p["arm_length"] * np.sqrt(0.5), p["torque_ratio"]
        rows = [
            np.ones(4),
            lever * np.array([-1, -1, 1, 1]),
            lever * np.array([-1, 1, 1, -1]),
            ratio * np.array([-1, 1, -1, 1]),
        ]
        return p["thrust_scale"] * np.array(rows)
