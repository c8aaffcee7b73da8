"""Measured configurations in a fit: their derivatives, their information, and what they are equal to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.flight import POINTS, camera_poses, fly, watch
from vid2phys.engine.pose_geometry import project_points
from vid2phys.geometry import Pose
from vid2phys.solvers import configurations, cramer_rao, losses, measurements, shooting, smoothing_model
from vid2phys.solvers.camera_parameters import observation_as_fitted, with_camera_parameters
from vid2phys.solvers.clip_residuals import ClipResiduals
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.smoothing import initial_unknowns
from vid2phys.tracking.hypotheses import relabelled
from vid2phys.tracking.measured import keypoint_information, with_poses
from vid2phys.types import Array, Observation

STD = np.array([0.01, 0.01, 0.01, 2e-4, 2e-4, 0.004])
FLIGHT = fly()
FRAMES = 12


def poses() -> Pose:
    return Pose(*camera_poses(FLIGHT))[:FRAMES]


def keypoints() -> Observation:
    """Keypoints at the poses, with the errors of `watch`."""
    seen = watch(FLIGHT)[:FRAMES]
    return replace(seen, bearings=project_points(poses(), POINTS))


def measured(step: Array | float = 0.0) -> Observation:
    """The poses, moved by a step, as measurements with the information of the keypoints."""
    seen = keypoints()
    moved = poses().retract(np.broadcast_to(step, (FRAMES, 6)))
    basis = np.tile(np.diag(STD), (FRAMES, 1, 1))
    return with_poses(seen, np.arange(FRAMES), moved, basis, seen.correlation_time_s, "contour")


def problem(seen: Observation, *free: str, **values: float) -> Problem:
    parameters = with_camera_parameters(FLIGHT.parameters, free).with_values(values).with_free(free)
    return Problem(FLIGHT.system, parameters, seen, FLIGHT.camera_to_world, actions=FLIGHT.actions)


def states() -> Array:
    return FLIGHT.states[:FRAMES]


def test_residuals_are_steps_from_what_was_measured() -> None:
    step = np.array([0.02, -0.01, 0.03, 1e-3, -2e-3, 0.02])
    off = configurations.residual(problem(measured(step)), FLIGHT.parameters, states())
    np.testing.assert_allclose(off, np.tile(-step, (FRAMES, 1)), atol=2e-3)
    exact = configurations.residual(problem(measured()), FLIGHT.parameters, states())
    np.testing.assert_allclose(exact, 0.0, atol=1e-7)


@pytest.mark.parametrize(("scale", "focal"), [(1.0, 1.0), (1.3, 0.9)])
def test_derivatives_agree_with_differences(scale: float, focal: float) -> None:
    free = ("scale", "focal", "camera_turn_x", "camera_move_z")
    case = problem(measured(0.005), *free, scale=scale, focal=focal)
    _, by_state, by_camera = configurations.linear(case, case.parameters, states())
    size, step = by_state.shape[-1], 1e-6
    for j, unit in enumerate(np.eye(size)):
        ahead, behind = (
            configurations.residual(case, case.parameters, case.system.retract(states(), sign * step * unit))
            for sign in (1.0, -1.0)
        )
        np.testing.assert_allclose(by_state[..., j], (ahead - behind) / (2.0 * step), atol=1e-4)
    start = case.parameters.free_vector()
    for j, unit in enumerate(np.eye(len(free))):
        ahead, behind = (
            configurations.residual(case, case.parameters.with_free_vector(start + sign * step * unit), states())
            for sign in (1.0, -1.0)
        )
        np.testing.assert_allclose(by_camera[..., j], (ahead - behind) / (2.0 * step), atol=1e-5)


def test_a_pose_that_looks_the_same_has_nearly_the_same_image() -> None:
    """Under another scale and focal length: to second order in the body's size over its distance."""
    pose, scale, focal = poses(), 1.2, 1.1
    same = configurations.apparent(pose, scale, focal)
    image = focal * project_points(pose, scale * POINTS)
    assert np.abs(project_points(same, POINTS) - image).max() < 0.05 * np.abs(np.ptp(image, axis=1)).max()
    values = {p.name: p.value for p in problem(measured(), "scale", scale=scale, focal=focal).parameters}
    fitted = observation_as_fitted(replace(measured(), configuration=_with_pose(same)), values).configuration
    assert fitted is not None
    np.testing.assert_allclose(fitted.pose.translation, pose.translation, atol=1e-12)
    np.testing.assert_allclose(fitted.pose.rotation, pose.rotation, atol=1e-12)


def _with_pose(pose: Pose):  # type: ignore[no-untyped-def]
    configuration = measured().configuration
    assert configuration is not None
    return replace(configuration, configuration=pose)


def test_a_pose_counts_as_much_as_the_keypoints_that_it_replaces() -> None:
    """Normal equations of both kinds agree at the pose, for state, error processes and their gradient."""
    found = []
    hyper = smoothing_model.Hyperparameters({"force": 0.2, "torque": 10.0}, {"force": 3.0, "torque": 10.0})
    for seen in (keypoints(), measured()):
        layout = smoothing_model.Layout.of(problem(seen, "mass"))
        moved = layout.problem.system.retract(states(), np.full((FRAMES, 12), 1e-5))
        start = initial_unknowns(layout, moved, None)
        found.append(smoothing_model.linearized(layout, start, hyper))
    one, other = found
    size = np.abs(one.measurements.matrix.diagonal).max(axis=(0, 2)) ** 0.5
    scale = np.maximum(size[:, None] * size, 1e-12)
    assert (np.abs(one.measurements.matrix.diagonal - other.measurements.matrix.diagonal) / scale).max() < 2e-3
    rows = size > 0.0
    off = (one.measurements.gradient - other.measurements.gradient)[:, rows] / size[rows]
    assert np.abs(off).max() < 0.02 * np.abs(one.measurements.gradient[:, rows] / size[rows]).max()
    assert one.measurements.cost == pytest.approx(other.measurements.cost, rel=0.02)


def test_single_frames_have_the_information_of_their_keypoints() -> None:
    information = []
    for seen in (keypoints(), measured()):
        case = problem(seen)
        _, by_state, _ = measurements.linear_residuals(case, case.parameters, states())
        white = (shooting.whitening(case) @ by_state)[..., :6]
        information.append(np.swapaxes(white, 1, 2) @ white)
    size = np.sqrt(np.einsum("fii->fi", information[0]))
    relative = (information[0] - information[1]) / (size[:, :, None] * size[:, None, :])
    assert np.abs(relative).max() < 5e-3


def test_the_loss_has_the_residuals_of_shooting_and_their_gradient() -> None:
    case = problem(measured(0.003))
    loss = losses.get("keypoint", case)
    at = torch.from_numpy(states().copy()).requires_grad_(True)
    value = loss.residuals(at).square().sum()
    (gradient,) = torch.autograd.grad(value, at)
    step = torch.zeros_like(at)
    step[4, 1] = 1e-6
    with torch.no_grad():
        ahead, behind = (loss.residuals(at + sign * step).square().sum() for sign in (1.0, -1.0))
    assert float(gradient[4, 1]) == pytest.approx(float(ahead - behind) / 2e-6, rel=1e-4)
    white = np.einsum("fij,fj->fi", shooting.whitening(case), measurements.residuals(case, case.parameters, states()))
    share = (white**2).sum(axis=1) / 6.0
    assert float(value.detach()) == pytest.approx(_robust_sum(share), rel=1e-3)


def _robust_sum(share: Array) -> float:
    from vid2phys.solvers.losses._loss import robust

    white = torch.from_numpy(np.sqrt(6.0 * share))[None, :, None]
    return float(robust(white, torch.full((len(share),), 6.0)).square().sum())


def test_drawn_errors_are_those_that_are_stated() -> None:
    case = problem(measured())
    drawn = []
    for seed in range(300):
        again = cramer_rao.noisy(case, states(), np.random.default_rng(seed))
        drawn.append(measurements.residuals(again, again.parameters, states())[:, -6:])
        if seed == 0:
            whole = ClipResiduals.about(again, states())
            white = whole.batched_residuals(torch.from_numpy(states()[None])).numpy()
            assert white.shape == (1, 6 * FRAMES)
            assert np.square(white).mean() == pytest.approx(1.0, abs=0.6)
    errors = measurements.Errors.of(case.observation)
    total = (errors.covariance + errors.basis @ np.swapaxes(errors.basis, 1, 2))[:, -6:, -6:]
    std = np.sqrt(np.einsum("fii->fi", total))
    np.testing.assert_allclose(np.std(np.array(drawn), axis=0) / std, 1.0, atol=0.2)


def test_coordinates_do_not_count_where_the_camera_is_fitted() -> None:
    """They were measured with the camera that was given; poses count, since they are relative to the camera."""
    found = measured().configuration
    assert found is not None
    seen = replace(measured(), configuration=replace(found, configuration=np.zeros((FRAMES, 6))))
    assert problem(seen).observation.measured.all()
    assert not problem(seen, "focal").observation.measured.any()
    assert problem(measured(), "focal").observation.measured.all()


def test_keypoints_do_not_count_beside_a_measured_configuration() -> None:
    seen = keypoints()
    part = np.array([2, 5])
    seen = with_poses(seen, part, poses()[part], np.tile(np.diag(STD), (2, 1, 1)), np.full(6, 0.3), "contour")
    assert seen.measured.sum() == 2
    assert not seen.used[part].any()
    assert seen.used[0].all()
    np.testing.assert_allclose(seen.process_time_s, 0.3, err_msg="the longer of both")
    gone = seen.without(np.arange(FRAMES) == 2)
    assert not gone.seen[2]
    assert gone.frames_lost == 1
    both = with_poses(seen, np.array([3]), poses()[[3]], np.diag(STD)[None], np.full(6, 0.1), "texture").configuration
    assert both is not None
    assert both.source == "contour, texture"
    np.testing.assert_allclose(both.correlation_time_s, 0.3)
    information = keypoint_information(np.zeros((1, 8, 2, 6)), np.tile(np.eye(2), (1, 8, 1, 1)), np.ones((1, 8), bool))
    np.testing.assert_array_equal(information, 0.0)


def test_a_symmetry_element_about_another_centre_moves_measured_poses() -> None:
    center, rotation = np.array([0.02, -0.01, 0.03]), np.diag([-1.0, -1.0, 1.0])
    seen = measured()
    other = relabelled(seen, np.arange(len(POINTS)), rotation, center).configuration
    assert other is not None
    alike = (POINTS - center) @ rotation.T + center
    np.testing.assert_allclose(project_points(other.pose, alike), project_points(poses(), POINTS), atol=1e-12)
    errors = measurements.Errors.of(seen).basis[:, -6:]
    step = 1e-4 * (errors @ np.ones(6))
    moved = poses().retract(step)
    again = relabelled(
        replace(seen, configuration=_with_pose(moved)), np.arange(len(POINTS)), rotation, center
    ).configuration
    assert again is not None
    np.testing.assert_allclose(
        other.pose.step_to(again.pose), 1e-4 * (other.shared_basis @ np.ones(6)), rtol=1e-2, atol=1e-8
    )
