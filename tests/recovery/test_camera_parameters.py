"""How large a body is, and where its camera stands: as far as the motion tells, and not further."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.recovery.test_posed_fit import problem_of, small_rod
from tests.recovery.test_toss import CAMERA_TO_WORLD
from vid2phys.engine.observe import observe
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.rigid_contact import RigidContact, Sphere
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.solvers import camera_parameters, configuration_shooting, intervals, prediction, shooting, smoothing
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.solution import Solution
from vid2phys.types import Array, Camera, Mesh, Observation

THROWN = RigidContact((Sphere(0.09),), planes=())
PARAMETERS = THROWN.parameters().with_values(
    {"inertia_xx": 2e-5, "inertia_yy": 3e-5, "inertia_zz": 4e-5, "gravity": 9.81}
)
POINTS = 0.05 * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
START = np.array([-0.3, 0.1, 0.5, 1, 0, 0, 0, 1.2, 0.3, 1.9, 4.0, -9.0, 12.0])
SCALE, FPS, FRAMES, NOISE = 1.15, 40.0, 16, 1.0 / 880.0


def toss(seed: int, *free: str, gravity: float = 9.81, known: dict[str, float] | None = None) -> tuple[Problem, Array]:
    """A body that is larger than its mesh says, thrown; and states as the mesh puts them, which are too near."""
    rng, controls = np.random.default_rng(seed), np.zeros((1, FRAMES - 1, 12))
    vector = PARAMETERS.with_values({"gravity": gravity}).vector
    states = simulate(THROWN, START[None], controls, vector, 1.0 / FPS, substeps=8)[0]
    bearings = observe(THROWN, states, SCALE * POINTS, CAMERA_TO_WORLD)[0]
    bearings += NOISE * rng.normal(size=bearings.shape)
    covariance = np.broadcast_to(NOISE**2 * np.eye(2), (*bearings.shape, 2)).copy()
    seen = Observation(
        np.arange(FRAMES) / FPS, bearings, covariance, np.zeros((*bearings.shape, 0)), np.zeros(0),
        np.ones(bearings.shape[:2], dtype=bool), POINTS,
    )  # fmt: skip
    parameters = camera_parameters.with_camera_parameters(PARAMETERS, ("scale",)).with_values(
        {"gravity": gravity} | (known or {})
    )
    near, centre = states.copy(), CAMERA_TO_WORLD[:3, 3]
    near[:, :3] = centre + (near[:, :3] - centre) / SCALE
    near[:, 7:10] /= SCALE
    return Problem(THROWN, parameters.with_free(free), seen, CAMERA_TO_WORLD), near


def sentences(solution: Solution, free: tuple[str, ...]) -> list[str]:
    covariance, null = solution.theta_covariance, solution.null_directions
    found = intervals.estimates(solution.parameters, free, covariance, null, 100.0)
    return intervals.identifiability(solution.theta_names, null, found, solution.parameters)


def error_over_std(seed: int) -> float:
    found = shooting.solve(*toss(seed, "scale"))
    assert found.converged
    return float(np.log(found.parameters["scale"].value / SCALE) / found.theta_covariance[0, 0] ** 0.5)


def test_free_fall_settles_how_large_a_body_is() -> None:
    """A bound of three standard deviations is passed once in 370 times."""
    errors = np.array([error_over_std(seed) for seed in range(4)])
    assert np.abs(errors).max() < 3.0
    assert np.abs(errors).max() > 0.3


@pytest.mark.slow
def test_the_interval_of_scale_holds_the_truth() -> None:
    """A binomial with p = 0.95 and n = 100 is below 88 once in 250 times."""
    errors = np.array([error_over_std(seed) for seed in range(100)])
    assert (np.abs(errors) < 1.96).sum() >= 88


def test_smoothing_finds_it_too_with_unknown_forces() -> None:
    found = smoothing.solve(*toss(0, "scale"), rounds=2)
    std = found.theta_covariance[0, 0] ** 0.5
    assert abs(np.log(found.parameters["scale"].value / SCALE)) < 3.0 * std
    assert std < 0.05


def test_without_gravity_scale_and_depth_show_only_as_a_ratio() -> None:
    found = shooting.solve(*toss(0, "scale", gravity=0.0))
    (line,) = sentences(found, ("scale",))
    assert line.startswith("scale is not determined by this clip. scale and depth show only as a ratio")
    assert "free flight under gravity" in line


def test_scale_and_gravity_only_as_a_ratio() -> None:
    found = shooting.solve(*toss(0, "scale", "gravity"))
    (line,) = sentences(found, ("scale", "gravity"))
    assert line.startswith("gravity and scale are determined only as a ratio")


def test_of_a_camera_beside_a_thrown_body_gravity_shows_the_tilt_alone() -> None:
    """The image of a whole world turned about the vertical, or moved, is the same."""
    turns, moves = (tuple(f"camera_{what}_{axis}" for axis in "xyz") for what in ("turn", "move"))
    problem, near = toss(0, *turns, *moves, known={"scale": SCALE})
    tilted = problem.camera_to_world.copy()
    tilted[:3, :3] = matrix_from_rotvec(np.array([0.06, -0.04, 0.0])).T @ tilted[:3, :3]
    found = shooting.solve(replace(problem, camera_to_world=tilted), near)
    assert len(found.null_directions) == 4
    values = {p.name: p.value for p in found.parameters}
    pose = camera_parameters.camera_pose(tilted, values)
    down = pose[:3, :3].T @ [0.0, 0.0, -1.0]
    true_down = CAMERA_TO_WORLD[:3, :3].T @ [0.0, 0.0, -1.0]
    assert np.arccos(down @ true_down) < 0.03
    (line,) = [line for line in sentences(found, (*turns, *moves)) if line.startswith("camera_move_x")]
    assert line.startswith("camera_move_x, camera_move_y and camera_move_z are not determined by this clip")


def test_a_body_on_a_known_base_shows_where_its_camera_stands() -> None:
    rod, body = small_rod()
    configuration, rates = np.array([0.0, 0.03, 0.0, 0.0]), np.array([0.3, 0.0, 0.0, 0.0])
    free = ("focal", *(f"camera_{what}_{axis}" for what in ("turn", "move") for axis in "xyz"))
    problem = problem_of(rod, body.points_body, rod.parameters(), body.states(configuration, rates), (), 2)
    off = {"focal": 1.03, "camera_turn_x": 0.02, "camera_turn_z": -0.03, "camera_move_y": 0.02, "camera_move_z": -0.01}
    names = {p.name: 0.0 for p in camera_parameters.CAMERA} | {"focal": 1.0, "scale": 1.0}
    wrong = camera_parameters.camera_pose(
        problem.camera_to_world, names | {k: -v for k, v in off.items() if k != "focal"}
    )
    seen = problem.observation
    seen = replace(seen, bearings=seen.bearings * off["focal"])
    parameters = camera_parameters.with_camera_parameters(problem.parameters, free).with_free(free)
    priors = {"focal": (0.0, 0.05)}
    problem = replace(problem, parameters=parameters, observation=seen, camera_to_world=wrong, priors=priors)
    found = configuration_shooting.solve(problem, body, 0.9 * configuration, rates)
    assert found.converged
    assert found.misfit < 1.2
    names = {p.name: p.value for p in found.parameters}
    truth = problem_of(
        rod, body.points_body, rod.parameters(), body.states(configuration, rates), (), 2
    ).camera_to_world
    pose = camera_parameters.camera_pose(wrong, names)
    assert len(found.null_directions) == 0
    assert names["focal"] == pytest.approx(1.03, abs=3.0 * found.theta_covariance[0, 0] ** 0.5)
    std = np.sqrt(np.diagonal(found.theta_covariance))
    assert np.linalg.norm(pose[:3, 3] - truth[:3, 3]) < 3.0 * np.linalg.norm(std[4:])
    assert np.linalg.norm(pose[:3, :3] - truth[:3, :3]) < 3.0 * 2**0.5 * np.linalg.norm(std[1:4])
    assert np.linalg.norm(std[4:]) < 0.05


def test_the_fitted_camera_and_mesh_draw_what_the_fit_sees() -> None:
    """Through the fitted camera a point of the fitted mesh lies where `observed` has it."""
    rng = np.random.default_rng(0)
    problem, near = toss(0, "scale")
    moved = {p.name: p.value + 0.05 * rng.normal() for p in (camera_parameters.SCALE, *camera_parameters.CAMERA)}
    parameters = problem.parameters.with_values(moved)
    K = np.array([[700.0, 0, 320], [0, 690.0, 240], [0, 0, 1]])
    camera = Camera(K, 640, 480, camera_to_world=CAMERA_TO_WORLD)
    mesh = Mesh(POINTS, np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64))
    fitted, larger = camera_parameters.as_fitted(camera, mesh, {p.name: p.value for p in parameters})
    assert fitted.camera_to_world is not None
    pixels = observe(THROWN, near, larger.vertices, fitted.camera_to_world)[0] @ fitted.K[:2, :2].T + K[:2, 2]
    expected = prediction.linear_bearings(problem, parameters, near)[0] @ K[:2, :2].T + K[:2, 2]
    np.testing.assert_allclose(pixels, expected, atol=1e-9)


def test_camera_stands_for_all_that_is_of_it() -> None:
    names = camera_parameters.expand_groups(("mass", "camera", "focal"))
    assert names[:2] == ("mass", "focal")
    assert len(names) == 8
    assert camera_parameters.with_camera_parameters(PARAMETERS, ("mass",)) is PARAMETERS
    assert camera_parameters.with_camera_parameters(PARAMETERS, names).names[-8:] == camera_parameters.NAMES
    np.testing.assert_array_equal(
        camera_parameters.system_vector(camera_parameters.with_camera_parameters(PARAMETERS, names)), PARAMETERS.vector
    )
