"""Solve one control task of RISP's table 4 by one method: actions that bring a body to where one image shows it.

The papers' methods move actions by RMSProp along a loss of the last frame. Our method detects the body in the image, as
`vid2phys control` does, and finds gentle actions to there (`solvers.optimal_control`). The few numbers of a hand are
fitted (`imitation`).

Limits: parameters, the first state and the camera are known.
"""

from __future__ import annotations

import numpy as np

from experiments.alike import alike_states
from experiments.control_by_command import control_by_command
from experiments.control_parametrisation import Parametrisation
from experiments.experiments import Experiment
from experiments.identification import COMMAND, LOSSES, Case, Network, Outcome, attempt
from experiments.imitation import imitate
from experiments.method_inputs import configuration_track, pose_track
from vid2phys.engine.systems.rod import Rod
from vid2phys.errors import InputError
from vid2phys.geometry import make_transform, matrix_from_quat
from vid2phys.risp.networks.model import Model
from vid2phys.solvers import optimal_control
from vid2phys.types import Array


def bring(case: Case, parametrisation: Parametrisation, method: str, network: Network) -> Outcome:
    """Return numbers [U] by which a method brings the body to the target; `case.start`: those that it begins with."""
    if method == COMMAND:
        assert network is None or isinstance(network, Model)
        return control_by_command(case, parametrisation, network)
    if method in LOSSES or parametrisation.channels is None:
        return imitate(case, parametrisation, method, network)
    return attempt(lambda: _aimed(case, parametrisation, network), case.start)


def _aimed(case: Case, parametrisation: Parametrisation, network: Network) -> Array:
    experiment, numbers = case.experiment, parametrisation.numbers
    points, goal = target_of(case, network) if isinstance(network, Model) else _true_target(experiment)
    hold, lower, upper = (parametrisation.actions(each) for each in (numbers.middle, numbers.lower, numbers.upper))
    plan = experiment.plan
    aim = optimal_control.Aim(
        plan.system,
        plan.parameters.vector,
        plan.initial,
        np.full(plan.steps, plan.step_s),
        hold=hold[0],
        lower=lower[0],
        upper=upper[0],
        points_body=points,
        goal=goal,
        size_m=experiment.radius_m,
        at_rest=False,
        max_step_s=0.5 * plan.max_step_s,  # as ends are judged: a bounce depends on it
    )
    return parametrisation.numbers_of(optimal_control.solve(aim).actions)


def target_of(case: Case, model: Model) -> tuple[Array, Array]:
    """Return the points of the body [K, 3] m, and where the last frame shows them in the world. Raises InputError where
    it does not show them.
    """
    experiment = case.experiment
    assert case.footage is not None
    body = experiment.articulated
    if body is not None:
        configurations = configuration_track(experiment, body, case.footage, model)
        _require(configurations.tracked[-1])
        return body.points_body, body.points(configurations.configurations[-1])
    poses = pose_track(experiment, case.footage, model.scaled(experiment.scale), case.seed)
    _require(poses.tracked[-1])
    in_camera = make_transform(poses.poses.rotation[-1], poses.poses.translation[-1])
    pose = nearest_alike(experiment, np.asarray(experiment.camera.camera_to_world) @ in_camera)
    points = poses.observation.points_body
    return points, points @ pose[:3, :3].T + pose[:3, 3]


def nearest_alike(experiment: Experiment, pose: Array) -> Array:
    """Return, of the poses [4, 4] that look like the given one, the one that is the least rotated from the start."""
    _, quat = experiment.plan.system.body_pose(experiment.plan.initial)
    poses = pose @ experiment.alike
    return np.asarray(poses[np.argmax(np.einsum("ij,gij->g", matrix_from_quat(quat), poses[:, :3, :3]))])


def _require(seen: bool) -> None:
    if not seen:
        raise InputError("the network does not read the body in the target", "an image that shows it", "train longer")


def _true_target(experiment: Experiment) -> tuple[Array, Array]:
    """Return the target of the vertices, thinned out."""
    kept = slice(None, None, max(1, len(experiment.mesh.vertices) // 24))
    if experiment.articulated is not None:
        points = experiment.articulated.points_body
        return points, np.asarray(experiment.plan.system.keypoints(experiment.states[-1:], points)[0])
    return experiment.mesh.vertices[kept], experiment.vertices[-1][kept]


def final_l1(experiment: Experiment, states: Array) -> float:
    """Sum of the absolute differences between desired and final state [F, N]: of positions in radii of the body and of
    angles in rad, of a rod those of its sensors' heights in radii of what it moves in. From the nearest of states that
    look alike."""
    system, radius = experiment.plan.system, experiment.radius_m
    wanted, found = experiment.states[-1], states[-1]
    if isinstance(system, Rod):
        heights = [system.keypoints(each[None], system.spine_m)[0, :, 2] for each in (wanted, found)]
        return float(np.abs(heights[1] - heights[0]).sum()) / radius
    off = np.abs(system.local(alike_states(experiment, wanted), found))
    names = [name.split(" of ")[0] for name in system.tangent_names]
    rates = np.array([name.endswith(("_m_s", "_rad_s")) for name in names])
    lengths = np.array([name.endswith("_m") for name in names])
    return float((off / np.where(lengths, radius, 1.0))[:, ~rates].sum(axis=-1).min())


def final_distance_mm(experiment: Experiment, states: Array) -> float:
    """Return the root mean square distance of the mesh's vertices from where the target shows them, or others that look
    alike.
    """
    system, vertices = experiment.plan.system, experiment.mesh.vertices
    found = system.vertices(states[-1], vertices)
    off = [system.vertices(state, vertices) - found for state in alike_states(experiment, experiment.states[-1])]
    return 1e3 * min(float(np.sqrt(np.square(each).sum(axis=-1).mean())) for each in off)
