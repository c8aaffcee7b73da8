"""A planar double pendulum: two point masses on massless rods, joint damping, joint torques, gravity."""

from __future__ import annotations

from typing import Any

import numpy as np

from vid2phys.engine.system import Capabilities, Integrator
from vid2phys.engine.systems._planar import PlanarPendulum, turned_about_y, turning_velocity
from vid2phys.errors import UsageError
from vid2phys.types import Array, Parameter, Parameters

_NOT_SEEN = "no tracker follows two bodies on two hinges"
_INSTEAD = (
    "film one link by itself with --system pendulum, or give both as a robot on a fixed base, --body two_links.urdf, "
    "as docs/your-hinge.md shows; recorded angles go to `vid2phys fit-recording double_pendulum`"
)


class DoublePendulum(PlanarPendulum):
    """Two point masses on massless rods: rod 1 hangs from a fixed pivot, rod 2 from the mass of rod 1 (the elbow).

    State [4]: angles q1, q2 of the rods (rad, each from straight down, not from the other rod; never wrapped), rates
    w1, w2 (rad/s). Controls [4], N m: torques at pivot and elbow, disturbance torques at the same two. The elbow's
    torque turns rod 2 forward and rod 1 backward. Everything swings in the world's x-z plane; angles, rates and torques
    are right-handed about the world's +y, so a small positive angle takes a mass towards -x.

        (m1 + m2) l1^2 w1' + m2 l1 l2 (cos(q1 - q2) w2' + sin(q1 - q2) w2^2) + (m1 + m2) g l1 sin q1 = t1 - t2
        m2 l2^2 w2' + m2 l1 l2 (cos(q1 - q2) w1' - sin(q1 - q2) w1^2) + m2 g l2 sin q2 = t2
        t1 = tau1 - b1 w1,  t2 = tau2 - b2 (w2 - w1)

    Points of the body, and vertices of a mesh, are those of the pendulum hanging straight down, in a frame like the
    world's with its origin at the pivot: points above the elbow (z >= -elbow) move with rod 1, those below with rod 2.
    `elbow` is the length of rod 1 in that image (m), and the default of the parameter `length_1`. Raises UsageError
    when it is not positive.

    Without known torques the motion determines only the ratios of masses and damping.
    The torques of a joint are the mass at the
    end of its rod times an unknown, a torque a kilogram (m^2/s^2), so a fit is blind to the masses' common scale.

    Limits: no inertia of the rods, dry friction or joint stops; the pivot is fixed at the world's origin and level;
    parts that reach past the elbow go with the other rod; points follow `elbow` even where `length_1` is fitted. The
    motion is chaotic at large angles: errors of the start grow by orders of magnitude within seconds.
    """

    name = "double_pendulum"
    state_names = ("angle_1_rad", "angle_2_rad", "angular_velocity_1_rad_s", "angular_velocity_2_rad_s")
    tangent_names = state_names
    capabilities = Capabilities(
        purpose="two point masses on rods that swing in a plane, one below the other",
        reason=_NOT_SEEN,
        alternative=_INSTEAD,
        inertial=("length", "mass"),
        scene=("damping", "gravity"),
        excited_by={
            "length": "swings under a known gravity",
            "mass": "a recorded torque at a joint; without one the ratio of the masses shows alone",
            "damping": "swings that die away, with a known mass",
            "gravity": "swings of rods whose lengths are known",
        },
    )

    def __init__(self, elbow: float = 1.0) -> None:
        if not elbow > 0.0:
            raise UsageError(f"double_pendulum elbow {elbow} m", "a positive length", "give the length of rod 1")
        self.elbow = elbow
        self.action_names, self.action_units = ("torque_1", "torque_2"), ("N m", "N m")
        self.control_names = (*self.action_names, "disturbance_torque_1_Nm", "disturbance_torque_2_Nm")
        self.control_inertia = ("mass_1", "mass_2") * 2
        self.control_groups = ("pivot_torque", "elbow_torque", "torque", "torque")

    def parameters(self) -> Parameters:
        """Return the defaults of no particular pendulum: masses of 1 kg, rod 2 of 1 m, no damping."""
        return Parameters(
            (
                Parameter("length_1", "m", self.elbow, 1e-3, 100.0, "log"),
                Parameter("length_2", "m", 1.0, 1e-3, 100.0, "log"),
                Parameter("mass_1", "kg", 1.0, 1e-4, 1000.0, "log"),
                Parameter("mass_2", "kg", 1.0, 1e-4, 1000.0, "log"),
                Parameter("damping_1", "N m s/rad", 0.0, 0.0, 1000.0),
                Parameter("damping_2", "N m s/rad", 0.0, 0.0, 1000.0),
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
        from vid2phys.engine.kernels import double_pendulum

        kernel = double_pendulum.step_rk4 if integrator == "rk4" else double_pendulum.step_semi_implicit_euler
        inputs = [states, controls, parameters, dt_s, step, fraction]
        double_pendulum.wp.launch(
            kernel, dim=states.shape[0], inputs=inputs, outputs=[next_states], device=states.device
        )

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`: of the pendulum that hangs straight down."""
        p = dict(zip(self.parameters().names, np.asarray(parameters, dtype=float), strict=True))
        l1, l2, m1, m2, g = (p[name] for name in ("length_1", "length_2", "mass_1", "mass_2", "gravity"))
        inertia = np.array([[(m1 + m2) * l1**2, m2 * l1 * l2], [m2 * l1 * l2, m2 * l2**2]])
        damping = np.array([[p["damping_1"] + p["damping_2"], -p["damping_2"]], [-p["damping_2"], p["damping_2"]]])
        frequency = np.sqrt(
            np.linalg.eigvals(np.linalg.solve(inertia, np.diag([(m1 + m2) * g * l1, m2 * g * l2]))).real.max()
        )
        rate = np.linalg.eigvals(np.linalg.solve(inertia, damping)).real.max()
        return float(2.0 / max(rate, frequency, 1e-300))

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`; z decides which rod a point moves with."""
        first, second = self._arms(states, points_body)
        return self.in_world(first + second)

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`."""
        by_angle = [self.velocity_in_world(turning_velocity(arm)) for arm in self._arms(states, points_body)]
        zero = np.zeros_like(by_angle[0])
        return np.stack([*by_angle, zero, zero], axis=-1)

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: any angles, rates of a few rad/s."""
        return np.concatenate([rng.uniform(-np.pi, np.pi, (n, 2)), rng.normal(0.0, 3.0, (n, 2))], axis=-1)

    def _arms(self, states: Array, points_body: Array) -> tuple[Array, Array]:
        """Return what of each point rotates with rod 1 and with rod 2, both [..., K, 3] in the world; they add up to
        it.
        """
        states, points = np.asarray(states, dtype=float), np.asarray(points_body, dtype=float)
        elbow = np.array([0.0, 0.0, -self.elbow])
        below = (points[:, 2] < -self.elbow)[:, None]
        first = turned_about_y(states[..., 0], np.where(below, elbow, points))
        return first, turned_about_y(states[..., 1], np.where(below, points - elbow, 0.0))
