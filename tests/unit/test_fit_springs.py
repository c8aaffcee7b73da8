"""Springs of contact from a clip: what a cube that bounces on springs shows of them, from a start that is not given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import trimesh

from benchmarks.coverage import pushes
from benchmarks.coverage.springs import rolled
from vid2phys.commands.identify import fit_springs as springs
from vid2phys.commands.identify.config import FitOptions, IdentifyConfig
from vid2phys.commands.identify.fit_springs import fit_springs, fits_springs
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.errors import UsageError
from vid2phys.geometry import looking, make_transform, quat_from_rotvec
from vid2phys.solvers.prediction import bearings
from vid2phys.solvers.problem import Problem
from vid2phys.types import Actions, Array, Mesh, Observation, Parameters, Status

SIDE_M, MASS_KG, STIFFNESS = 0.05, 0.0375, 1000.0
SIGMA, STEPS = 1e-3, 100  # error of bearings; steps of the truth between two frames
TIMES_S = np.arange(11) / 60.0
PARAMETERS = ("k_e",)


def cube(aside_m: float = 0.0) -> Mesh:
    """The mesh of a cube; `aside_m`: of its origin from its middle."""
    made = trimesh.creation.box((SIDE_M,) * 3)
    vertices, faces = made.vertices + np.array([aside_m, 0.0, 0.0]), np.asarray(made.faces)
    return Mesh(vertices, faces, np.zeros(len(faces), dtype=np.int64), name="cube")


def known_of(system: ThrownBody, stiffness: float) -> Parameters:
    inertia = dict.fromkeys(("inertia_xx", "inertia_yy", "inertia_zz"), MASS_KG * SIDE_M**2 / 6.0)
    given = {"mass": MASS_KG, "mu": 0.5, "k_e": stiffness, "gravity": 9.81, **inertia}
    return system.parameters().with_values(given).with_free(PARAMETERS)


def thrown(system: ThrownBody) -> Array:
    """States [T, 13] of the mesh of a cube that falls on a corner."""
    known = known_of(system, STIFFNESS)
    begin = system.rest_state()
    begin[:3], begin[3:7] = [0.0, 0.06, 0.06], quat_from_rotvec(np.array([0.3, 0.2, 0.35]))
    begin[7:] = [0.0, -0.35, -0.5, 5.0, 1.5, 2.0]
    return rolled(system, known, begin, TIMES_S, STEPS)


def seen(system: ThrownBody, mesh: Mesh, states: Array, stiffness: float) -> Problem:
    """The problem of the smoothing, from corners with noise before a camera at 0.5 m, at a stiffness to begin with."""
    shape = (len(TIMES_S), len(mesh.vertices))
    observation = Observation(
        *(TIMES_S, np.zeros((*shape, 2)), np.broadcast_to(SIGMA**2 * np.eye(2), (*shape, 2, 2))),
        *(np.zeros((*shape, 2, 1)), np.ones(1), np.ones(shape, dtype=bool), np.asarray(mesh.vertices)),
    )
    camera = make_transform(looking(np.array([1.0, 0.0, 0.0])), np.array([-0.5, 0.0, 0.05]))
    problem = Problem(system, known_of(system, stiffness), observation, camera)
    exact = bearings(problem, problem.parameters, states)
    noise = np.random.default_rng(0).normal(scale=SIGMA, size=exact.shape)
    return replace(problem, observation=replace(observation, bearings=exact + noise))


def fitted(aside_m: float, stiffness: float) -> tuple[Any, Array, ThrownBody]:
    mesh = cube(aside_m)
    system = ThrownBody(mesh)
    truth = thrown(system)
    problem = seen(system, mesh, truth, stiffness)
    known = SimpleNamespace(parameters=problem.parameters, per_kilogram=False)
    begin = truth + np.array([*[1e-3] * 3, *[0.0] * 4, *[0.05] * 3, *[0.3] * 3])
    smoothed = SimpleNamespace(knot_states=begin)
    options = FitOptions(fit=PARAMETERS)
    found = fit_springs(SimpleNamespace(known=known), problem, smoothed, options)  # type: ignore[arg-type]
    assert all("k_d" in note for note in found.notes)  # k_d and k_f were not given
    assert found.least_friction is None
    return found.solution, truth, system


@pytest.mark.parametrize("aside_m", [0.0, 0.01])
def test_the_stiffness_of_a_contact_comes_out(aside_m: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within its interval, from a stiffness that is three times off and a first state that is not given."""
    monkeypatch.setattr(springs, "_STARTS", np.array([1.0, 3.0]))
    solution, truth, system = fitted(aside_m, 0.3 * STIFFNESS)
    std = float(np.sqrt(solution.theta_covariance[0, 0]))
    off = float(np.log(solution.parameters["k_e"].value / STIFFNESS))
    assert std < 0.1
    assert abs(off) < 3.0 * std
    assert np.abs(system.local(truth, solution.states)[:, :3]).max() < 2e-3  # in the axes of the mesh
    assert solution.covariance.shape == (len(TIMES_S), 12, 12)
    assert solution.controls.shape == (len(TIMES_S) - 1, len(system.control_names))


def test_the_first_frames_may_be_lost() -> None:
    """Shooting begins with a tenth of the clip, of which nothing may be measured."""
    mesh = cube()
    system = ThrownBody(mesh)
    states = thrown(system)
    problem = seen(system, mesh, states, STIFFNESS)
    visible = problem.observation.visible.copy()
    visible[:6] = False
    on_springs = system.on_springs(problem.parameters.vector)
    parameters = Parameters(tuple(problem.parameters[name] for name in on_springs.parameters().names))
    own = replace(problem, system=on_springs, parameters=parameters)
    own = replace(own, observation=replace(own.observation, visible=visible))
    found = springs._shot(own, system.to_principal(states), springs._SEARCH)
    assert found is not None
    std = float(np.sqrt(found.theta_covariance[0, 0]))
    assert abs(np.log(found.parameters["k_e"].value / STIFFNESS)) < 3.0 * std
    positions, quats = on_springs.body_pose(states[:0])
    assert (positions.shape, quats.shape) == ((0, 3), (0, 4))


def test_ends_that_fit_as_well_widen_the_interval() -> None:
    system = ThrownBody(cube())
    ends = [
        SimpleNamespace(parameters=known_of(system, stiffness), loss=loss)
        for stiffness, loss in ((1000.0, 5.0), (2000.0, 5.0), (9000.0, 500.0))
    ]
    spread = springs._spread(ends)  # type: ignore[arg-type]
    assert spread[0, 0] == pytest.approx(0.5 * np.log(2.0) ** 2)


def test_springs_are_fitted_where_one_is_asked_for() -> None:
    free, pushed = (cast(Inputs, SimpleNamespace(actions=actions)) for actions in (None, "push.csv"))
    assert fits_springs(free, FitOptions(fit=("k_e", "mu")))
    assert not fits_springs(free, FitOptions(fit=("mu", "restitution")))
    assert fits_springs(pushed, FitOptions(fit=("mass", "mu")))
    assert not fits_springs(pushed, FitOptions(fit=("mass",)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fit": ("k_e", "restitution")}, "--fit restitution with springs of contact"),
        ({"fit": ("k_e",), "method": "shooting"}, "--solver shooting with contact"),
        ({"fit": ("mu", "focal")}, "--fit focal with contact"),
        ({"fit": ("mu", "restitution"), "actions": Path("push.csv")}, "--fit restitution with --actions"),
        ({"fit": ("mu", "gravity"), "actions": Path("push.csv")}, "--fit gravity with springs of contact"),
        ({"fit": ("k_e",), "clip": (Path("a.mp4"), Path("b.mp4"))}, "--fit k_e of several clips"),
    ],
)
def test_what_is_not_fitted_with_contact_is_refused_before_anything_is_read(
    given: dict[str, Any], message: str
) -> None:
    of_clip: dict[str, Any] = {
        "clip": Path("clip.mp4"),
        "camera": Path("cam.yaml"),
        "body": "box:5x5x5cm",
        "system": "rigid_contact",
    }
    with pytest.raises(UsageError, match=message):
        IdentifyConfig(**(of_clip | given)).check()


def test_pushes_of_a_body_are_turned_to_its_principal_axes() -> None:
    made = trimesh.creation.box((0.1, 0.06, 0.04))
    made.apply_transform(trimesh.transformations.rotation_matrix(0.4, [0.0, 0.0, 1.0]))
    faces = np.asarray(made.faces)
    system = ThrownBody(Mesh(np.asarray(made.vertices), faces, np.zeros(len(faces), dtype=np.int64)))
    values = np.array([[1.0, 2.0, 3.0, 0.1, 0.2, 0.3]])
    pushes = Actions(np.zeros(1), values, "push", system.action_names, system.action_units)
    turned = springs._to_principal(system, pushes).values
    np.testing.assert_array_equal(turned[:, :3], values[:, :3])
    np.testing.assert_allclose(system.shape.axes @ turned[0, 3:], values[0, 3:])
    assert np.abs(turned - values).max() > 0.01
    known = system.parameters().with_values({"mass": 0.5})
    problem = springs._about_principal_axes(system, cast(Problem, _bare(system, known)))
    moments = [problem.parameters[name].value for name in ("inertia_xx", "inertia_yy", "inertia_zz")]
    sides = np.array([0.1, 0.06, 0.04]) ** 2
    assert sorted(moments) == pytest.approx(sorted(0.5 / 12.0 * (sides.sum() - sides)))
    assert problem.priors["inertia_xx"] == pytest.approx((np.log(moments[0]), 0.5))


def _bare(system: ThrownBody, known: Parameters) -> Problem:
    """Return a problem without measurements, whose inertia has a prior."""
    nothing = Observation(np.zeros(0), *[np.zeros(0)] * 4, np.zeros((0, 0), dtype=bool), np.zeros((0, 3)))
    return Problem(system, known, nothing, np.eye(4), priors={"inertia_xx": (0.0, 0.5)})


def test_a_pushed_box_shows_mass_and_friction(monkeypatch: pytest.MonkeyPatch) -> None:
    """All five are unknown, as in gradSim's table 2; the push is known. A few of the starts find it, too."""
    for name, starts in (("_STARTS", np.ones(1)), ("_SLIDE_M_S", (0.3,)), ("_FRICTIONS", (0.6,))):
        monkeypatch.setattr(springs, name, starts)
    found = pushes.case(2)
    assert found.status is Status.CONVERGED
    for name, within in (("mass", 0.05), ("k_f", 0.3), ("mu", 0.2)):
        assert found.found[name].value == pytest.approx(found.truth[name], rel=within)
        low, high = found.found[name].ci95
        assert 0.01 < 0.5 * (high - low) / found.truth[name] < 3.0 * within
