"""A planar pendulum: one rigid link about a fixed pivot, with viscous and dry friction, drag, a torque and gravity."""

from __future__ import annotations

from typing import Any

import numpy as np

from vid2phys.engine.system import Capabilities, Integrator
from vid2phys.engine.systems._planar import PlanarPendulum, turned_about_y, turning_velocity
from vid2phys.types import Array, Parameter, Parameters


class Pendulum(PlanarPendulum):
    """Planar pendulum about a fixed pivot.

    State [2]: angle q (rad, 0 = hanging down, never wrapped), angular velocity w (rad/s). Controls [2], N m: torque at
    the pivot, disturbance torque. It swings in the world's x-z plane; angle, rate and torques are right-handed about
    the world's +y, so a small positive angle takes the mass towards -x. The body's frame has its origin at the pivot
    and equals the world's when the pendulum hangs (z up, the mass at z = -length).

        q' = w,  (m l^2 + J) w' = tau + tau_d - b w - c tanh(w / w_c) - d |w| w - m g cos(a) l sin q

    `length` l is from the pivot to the centre of mass, `inertia` J is about the centre of mass and about y (0: a point
    mass), `damping` b is viscous, `friction` c the torque of dry (Coulomb) friction, smoothed over w_c = 0.05 rad/s
    (`FRICTION_RATE_RAD_S` of the kernels), `air_drag` d grows with the square of the rate. `axis_tilt` a is the angle
    of the axis above the horizontal: gravity along the axis has no effect.

    A swing without known torques determines m g l, b, c and d over the pivot's inertia m l^2 + J alone. Torques are
    `mass` times an unknown, a torque a kilogram (m^2/s^2, the angular acceleration times l^2 + J/m): the inertia about
    the pivot is no parameter, and the mass is what scales with every torque.

    A camera sees it as any rigid body on a hinge: `placed` then puts pivot and axis where they are in the world.

    Limits: the pivot is fixed and the link rigid; friction does not depend on the load of
    the bearing and has no stiction (below w_c it creeps); the air is at rest. Steps have to be shorter than about
    (m l^2 + J) / (b + c / w_c).
    """

    name = "pendulum"
    state_names = ("angle_rad", "angular_velocity_rad_s")
    tangent_names = state_names
    capabilities = Capabilities(
        purpose="one link that swings in a plane about a fixed pivot",
        observed_as="hinge",
        fitted=("length", "damping"),
        inertial=("length", "mass", "inertia"),
        scene=("damping", "friction", "air_drag", "gravity", "axis_tilt"),
        excited_by={
            "length": "swings under a known gravity",
            "mass": "a recorded torque at the pivot",
            "inertia": "swings of a link whose mass and length are known",
            "damping": "swings that die away, of a link whose inertia is known",
            "friction": "swings that come to rest, of a link whose inertia is known",
            "air_drag": "swings of more than one size, of a link whose inertia is known",
            "gravity": "swings of a pendulum whose length is known",
            "axis_tilt": "a camera that sees the axis",
        },
    )

    def __init__(self) -> None:
        self.action_names, self.action_units = ("torque",), ("N m",)
        self.control_names = ("torque", "disturbance_torque_Nm")
        self.control_inertia = ("mass", "mass")
        self.control_groups = ("pivot_torque", "torque")

    def parameters(self) -> Parameters:
        """Return the defaults of no particular pendulum: a frictionless point mass of 1 kg at 1 m."""
        return Parameters(
            (
                Parameter("length", "m", 1.0, 1e-3, 100.0, "log"),
                Parameter("mass", "kg", 1.0, 1e-4, 1000.0, "log"),
                Parameter("inertia", "kg m^2", 0.0, 0.0, 1000.0),
                Parameter("damping", "N m s/rad", 0.0, 0.0, 1000.0),
                Parameter("friction", "N m", 0.0, 0.0, 1000.0),
                Parameter("air_drag", "N m s^2/rad^2", 0.0, 0.0, 1000.0),
                Parameter("gravity", "m/s^2", 9.81, 0.0, 30.0),
                Parameter("axis_tilt", "rad", 0.0, -1.6, 1.6),
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
        from vid2phys.engine.kernels import pendulum

        kernel = pendulum.step_rk4 if integrator == "rk4" else pendulum.step_semi_implicit_euler
        inputs = [states, controls, parameters, dt_s, step, fraction]
        pendulum.wp.launch(kernel, dim=states.shape[0], inputs=inputs, outputs=[next_states], device=states.device)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`: friction below its smoothing rate, and the swing's frequency."""
        from vid2phys.engine.kernels.pendulum import FRICTION_RATE_RAD_S

        p = dict(zip(self.parameters().names, np.asarray(parameters, dtype=float), strict=True))
        inertia = p["mass"] * p["length"] ** 2 + p["inertia"]
        rate = (p["damping"] + p["friction"] / float(FRICTION_RATE_RAD_S)) / inertia
        frequency = np.sqrt(p["mass"] * p["gravity"] * np.cos(p["axis_tilt"]) * p["length"] / inertia)
        return float(2.0 / max(rate, frequency, 1e-300))

    def spreads(self, parameters: Array) -> dict[str, float]:
        """See `engine.movable.hinged.Swinging`: friction that stops a swing within a period."""
        p = dict(zip(self.parameters().names, np.asarray(parameters, dtype=float), strict=True))
        inertia = p["mass"] * p["length"] ** 2 + p["inertia"]
        weight_moment = p["mass"] * p["gravity"] * p["length"]
        return {"damping": float(np.sqrt(inertia * weight_moment)), "friction": weight_moment, "air_drag": inertia}

    def derived(self, parameters: Array) -> dict[str, tuple[float, str]]:
        """See `System.derived`: what a swing shows by itself."""
        p = dict(zip(self.parameters().names, np.asarray(parameters, dtype=float), strict=True))
        inertia = p["mass"] * p["length"] ** 2 + p["inertia"]
        weight_moment = p["mass"] * p["gravity"] * np.cos(p["axis_tilt"]) * p["length"]
        period = 2.0 * np.pi * np.sqrt(inertia / weight_moment) if weight_moment > 0.0 else np.inf
        return {
            "small_angle_period_s": (float(period), "s"),
            "damping_over_inertia_1_s": (float(p["damping"] / inertia), "1/s"),
        }

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`."""
        return self.in_world(turned_about_y(np.asarray(states, dtype=float)[..., 0], points_body))

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`."""
        arms = turned_about_y(np.asarray(states, dtype=float)[..., 0], points_body)
        velocity = self.velocity_in_world(turning_velocity(arms))
        return np.stack([velocity, np.zeros_like(velocity)], axis=-1)

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: any angle, rates of a few rad/s."""
        return np.stack([rng.uniform(-np.pi, np.pi, n), rng.normal(0.0, 3.0, n)], axis=-1)
