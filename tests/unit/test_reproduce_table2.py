"""The protocol of RISP's table 2: units, motions, bounds, fits and videos are what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import reproduce, result_cache, risp_table2, weights
from experiments.bodies import entries
from experiments.experiments import Experiment, finger_of_joints, finger_torques, plan_of, unknown_of
from experiments.footage import film
from experiments.identification import Case, bound_of, by_newton, identify, labelled_by_motion, repeated, true_states
from experiments.rigid import project
from experiments.table import Setting
from experiments.unknowns import CONTACT, JOINTS, MASS, YOUNG, Unknown
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.constants import RISP_CUBE, RISP_ROD
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.systems import get
from vid2phys.engine.systems.hand import Hand
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.errors import SimulationError
from vid2phys.solvers import losses, rollout_fit
from vid2phys.solvers.clip_residuals import ClipResiduals
from vid2phys.solvers.cramer_rao import cramer_rao, noisy
from vid2phys.solvers.losses import Evidence
from vid2phys.solvers.measurements import Errors
from vid2phys.solvers.prediction import bearings
from vid2phys.solvers.problem import Problem
from vid2phys.types import Actions, Array, Observation

needs_llvm = pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine")
SYSTEMS = {MASS: "quadrotor", CONTACT: "rigid_contact", JOINTS: "hand", YOUNG: "rod"}
SIGMA, FROM_M = 1e-3, 2.0  # error of bearings; distance of the camera


def rising(seen: Observation, thrust_n: float = 12.0) -> Problem:
    """A quadrotor of 1 kg that rises before a camera which looks along x; its mass is not known."""
    system = Quadrotor()
    parameters = system.parameters().with_values({"mass": 1.0}).with_free(("mass",))
    camera = np.array([[0.0, 0.0, 1.0, -FROM_M], [-1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    actions = Actions(np.zeros(1), np.array([[thrust_n, 0.0, 0.0, 0.0]]), "wrench", system.action_names, ("N",) * 4)
    return Problem(system, parameters, seen, camera, actions)


def sight(times_s: Array, shared: float = 0.0, correlation_s: float = 0.2, points: Array | None = None) -> Observation:
    """Of points of a body, all in error alike along y by `shared`."""
    body = np.zeros((1, 3)) if points is None else points
    shape = (len(times_s), len(body))
    basis = np.zeros((*shape, 2, 1))
    basis[:, :, 1] = shared
    return Observation(
        *(times_s, np.zeros((*shape, 2)), np.broadcast_to(SIGMA**2 * np.eye(2), (*shape, 2, 2)), basis),
        *(np.array([correlation_s]), np.ones(shape, dtype=bool), body),
    )


def test_the_papers_units_are_those_of_the_systems() -> None:
    assert MASS.to_si(np.array([3.0])) == pytest.approx(3.0)
    assert CONTACT.to_si(np.array([6.0])) == pytest.approx(1e6 * 1e-5 / 1e-2)  # dyn/cm: 1e-5 N over 1e-2 m
    assert CONTACT.to_si(np.array([6.0])) == pytest.approx(RISP_CUBE.k_e)
    assert JOINTS.to_si(np.ones(1)) == pytest.approx(get("hand").parameters()["stiffness_3"].value)
    assert YOUNG.to_si(np.array([6.0])) == pytest.approx(RISP_ROD.values["young_modulus"])


@pytest.mark.parametrize(("unknown", "system"), SYSTEMS.items(), ids=SYSTEMS.values())
def test_a_unit_is_one_of_the_papers_in_solver_coordinates(unknown: Unknown, system: str) -> None:
    parameters = get(system).parameters()
    truth, step = np.full(len(unknown.names), unknown.truth), 1e-5
    assert unknown.from_si(unknown.to_si(truth)) == pytest.approx(truth)
    for index, name in enumerate(unknown.names):
        ends = [parameters[name].to_free(float(unknown.to_si(truth + sign * step)[index])) for sign in (1.0, -1.0)]
        slope = (ends[0] - ends[1]) / (2.0 * step)
        assert unknown.units(parameters)[index] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("name", ["quadrotor", "cube", "hand", "rod"])
def test_fits_may_go_far_beyond_where_searches_begin(name: str) -> None:
    plan = plan_of(name, np.full(1, 5.0), 2)
    unknown = plan.unknown
    problem = plan.problem(np.full(len(unknown.names), unknown.starts[1]), sight(plan.times_s), np.eye(4))
    low, high = unknown.to_si(np.array(unknown.starts))
    free = [p for p in problem.parameters if p.free]
    assert tuple(p.name for p in free) == unknown.names
    assert not problem.priors
    for item in free:
        assert item.upper - item.lower >= 10.0 * (high - low)
        assert item.upper >= 10.0 * high
        assert item.lower <= 0.1 * low
        assert item.value == pytest.approx(high)
    rng = np.random.default_rng(0)
    drawn = np.stack([unknown.draw(rng) for _ in range(300)])
    assert drawn.min() >= unknown.starts[0]
    assert drawn.max() <= unknown.starts[1]
    assert np.ptp(drawn) > 0.9 * np.ptp(unknown.starts)


def test_fingers_are_moved_as_the_paper_says() -> None:
    hand, rng = Hand(), np.random.default_rng(0)
    amplitude, delay = rng.uniform(0.0, 1.0, 5), rng.uniform(0.0, 40.0, 5)
    numbers = torch.from_numpy(np.stack([amplitude, delay]))
    torques = finger_torques(*numbers, 90, finger_of_joints(hand)).numpy()
    for t in (0, 3, 17, 45, 89):
        for j, name in enumerate(hand.action_names):
            finger = int(name.split("finger")[1][0])
            share = min(max((t - delay[finger]) / 40.0, 0.0), 1.0)
            assert torques[t, j] == pytest.approx(0.2 * amplitude[finger] * np.sin(2.0 * np.pi * share), abs=1e-12)


def test_the_bound_of_a_rising_quadrotor_is_known_in_closed_form() -> None:
    """z = (F/m - g) t^2 / 2, seen as -z / distance: its slope by log m is F/m t^2 / (2 distance)."""
    times = np.arange(9) * 0.05
    slope = 12.0 * times**2 / (2.0 * FROM_M)
    for shared, own in ((0.0, None), (4e-3, 1e9)):
        problem = rising(sight(times, shared, own or 0.2))
        found = cramer_rao(problem, rollout_fit.motions(problem, problem.system.rest_state()), np.zeros(1), np.ones(1))
        information = (slope @ slope) / SIGMA**2
        if own is not None:  # an error that all frames share (Sherman and Morrison)
            weight = shared**2 / (SIGMA**2 + len(times) * shared**2)
            information = (slope @ slope - weight * slope.sum() ** 2) / SIGMA**2
        assert found[0, 0] == pytest.approx(1.0 / information, rel=1e-4)


def test_what_is_not_seen_has_no_bound() -> None:
    problem = rising(sight(np.arange(5) * 0.05), thrust_n=0.0)  # free fall tells no mass
    found = cramer_rao(problem, rollout_fit.motions(problem, problem.system.rest_state()), np.zeros(1), np.ones(1))
    assert np.isinf(found).all()


def test_errors_are_drawn_from_the_covariance_that_bounds_are_computed_from() -> None:
    problem = rising(sight(np.array([0.0, 0.04, 0.2]), 2e-3, 0.1, np.eye(3)[:2] * 0.1))
    states = np.tile(problem.system.rest_state(), (3, 1))
    truth, rng = bearings(problem, problem.parameters, states), np.random.default_rng(0)
    drawn = np.stack([(noisy(problem, states, rng).observation.bearings - truth).ravel() for _ in range(4000)])
    stated = Errors.of(problem.observation).of_clip()
    assert np.abs(drawn.T @ drawn / len(drawn) - stated).max() < 0.07 * stated.max()
    assert stated[1, 3] == pytest.approx(4e-6)  # two points of a frame
    assert stated[1, 5] == pytest.approx(4e-6 * np.exp(-0.4))  # and the next one, along y


def test_newton_takes_the_best_start_and_finds_the_truth() -> None:
    times = np.arange(8) * 0.05
    problem = rising(sight(times))
    roll = rollout_fit.motions(problem, problem.system.rest_state())
    at_truth = bearings(problem, problem.parameters, roll(np.array([[np.log(1.3)]]))[0])
    seen = replace(problem, observation=replace(problem.observation, bearings=at_truth))
    tried: list[Array] = []

    def picky(values: Array) -> Array:
        if (values > 1.0).any():
            raise SimulationError("too heavy", "less")
        tried.append(values)
        return roll(values)

    found = rollout_fit.solve(picky, losses.get("keypoint", seen), np.array([[2.0], [-1.0], [0.2], [-0.4]]), np.ones(1))
    assert found.values == pytest.approx(np.log(1.3), abs=1e-6)
    assert found.converged
    assert tried[3][0, 0] == 0.2  # derivatives are taken at the best of the starts that can be rolled out
    with pytest.raises(SimulationError, match="none of 1 starts"):
        rollout_fit.solve(picky, losses.get("keypoint", seen), np.array([[2.0]]), np.ones(1))


def test_our_fit_reaches_the_bound() -> None:
    (entry,) = entries(("quadrotor",))
    experiment = Experiment.of(entry, Path(), np.array([3.0]), 9)
    corners = 0.15 * np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.1], [1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]])
    seen = sight(experiment.plan.times_s, 1e-3, 0.1, corners)
    bound = bound_of(experiment, seen)[0]
    errors = repeated(experiment, seen, 24, 0)[:, 0]
    assert 0.7 * bound < np.sqrt(np.mean(errors**2)) < 1.4 * bound


def test_the_papers_optimiser_steps_in_the_papers_units() -> None:
    """RMSProp's first step is its rate over the root of 0.01, whatever the gradient; of 3 kg it is that share."""
    (entry,) = entries(("quadrotor",))
    experiment = Experiment.of(entry, Path(), np.array([3.0]), 6)
    outcome = identify(Case(experiment, None, np.array([2.9]), 0, iterations=2), "oracle", None)
    assert outcome.failure is None
    assert outcome.values == pytest.approx(2.9 * np.exp(3e-3 / np.sqrt(0.01) / 3.0), rel=1e-5)


def test_the_papers_optimiser_begins_at_the_best_of_the_starts_of_our_fit() -> None:
    """One iteration returns its start: of 41 stiffnesses within one of the given one, the nearest to the truth."""
    (entry,) = entries(("cube-plain",))
    experiment = Experiment.of(entry, Path(), np.array([6.0]), 8)
    outcome = identify(Case(experiment, None, np.array([5.23]), 0, iterations=1), "oracle", None)
    assert outcome.values == pytest.approx(5.98, abs=1e-6)


@pytest.mark.parametrize("name", ["quadrotor", "cube-plain", "hand"])
def test_motions_stay_in_the_image(name: str, tmp_path: Path) -> None:
    (entry,) = entries((name,))
    unknown = unknown_of(name)
    experiment = Experiment.of(entry, tmp_path, np.full(len(unknown.names), unknown.truth))
    pixels = project(experiment.camera, experiment.vertices)
    assert pixels.min() > 0.0
    assert (pixels.max(axis=(0, 1)) < [experiment.camera.width - 1, experiment.camera.height - 1]).all()
    assert np.linalg.norm(pixels - pixels[:1], axis=-1).max() > 20.0  # it moves


@needs_llvm
def test_a_video_shows_the_body_where_it_is(tmp_path: Path) -> None:
    (entry,) = entries(("cube-plain",))
    experiment = Experiment.of(entry, tmp_path, np.array([6.0]), 2)
    shot = replace(experiment.shot(2, 4, 0), vertices=experiment.shot(2, 4, 0).vertices[[0, 2]])
    footage = film(shot, tmp_path, lambda done, total: None)
    assert footage.frames.shape == (2, experiment.camera.height, experiment.camera.width, 3)
    for frame, vertices in zip(footage.frames, experiment.vertices[[0, 2]], strict=True):
        low, high = (f(project(experiment.camera, vertices), axis=0) for f in (np.min, np.max))
        changed = np.abs(frame.astype(float) - footage.backdrop).mean(axis=-1)
        column, row = np.round(0.5 * (low + high)).astype(int)
        inside = changed[row - 8 : row + 9, column - 8 : column + 9]
        above = changed[: max(int(low[1]) - 2, 1)]
        assert np.median(inside) > 2.0 * np.median(above)


def test_cells_are_filled_resumed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"quick": True, "bodies": ("quadrotor",), "out": tmp_path, "work": tmp_path / "work", "quiet": True}
    methods = ("random", "oracle-newton")
    files = reproduce("risp-table2", methods=methods, **arguments)  # type: ignore[arg-type]
    text = files[0].read_text()
    monkeypatch.setattr(risp_table2, "identify", lambda *_: pytest.fail("it is there already"))
    again = reproduce("risp-table2", methods=methods, **arguments)  # type: ignore[arg-type]
    rows = json.loads(text)["rows"]
    assert json.loads(again[0].read_text())["rows"] == rows
    mine = {(row["method"], row["metric"]): row for row in rows if row["system"] == "quadrotor"}
    assert mine["oracle-newton", "mass_error"]["value"] < 1e-4
    assert mine["oracle-newton", "mass_error_random_truth"]["value"] < 1e-4
    assert mine["random", "mass_error"]["value"] == pytest.approx(0.1, abs=0.01)  # mean of |U(-0.2, 0.2)|
    assert mine["paper", "mass_error"]["value"] is None
    assert {row["paper"] for row in rows} == {None}
    assert files[2].stat().st_size > 5000
    assert "quadrotor, paper, random" in files[1].read_text()


def test_networks_are_those_of_table_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = entries(("quadrotor",))
    setting = Setting(False, tmp_path, tmp_path / "work", TrainingProgress(quiet=True))
    monkeypatch.setattr(result_cache, "MODEL_PLACES", ())
    for method, looks_with in (("paper", "paper"), ("perceptual", "ours"), ("ours", "ours")):
        source = weights.source_of(method, entry, setting)
        assert source.recipe == weights.recipes(False)[looks_with]
        assert source.training_s > 600.0
    assert weights.source_of("pixel", entry, setting).training_s == 0.0
    assert weights.source_of("paper", entry, replace(setting, quick=True)).training_s == 0.0  # seconds
    recipe = weights.recipes(False)["ours-no-grad"]
    folder = setting.work / "quadrotor" / recipe.digest
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text("{}")
    assert weights.source_of("ours-no-grad", entry, setting).training_s == 0.0


def test_oracles_see_no_velocities() -> None:
    (entry,) = entries(("quadrotor",))
    experiment = Experiment.of(entry, Path(), np.array([3.0]), 3)
    evidence = true_states(experiment)
    assert isinstance(evidence, Evidence)
    assert evidence.std is not None
    assert np.isfinite(evidence.std[0]).tolist() == [True] * 6 + [False] * 6


def test_a_clip_as_a_whole_is_weighed_by_its_covariance() -> None:
    """Against the quadratic form of that covariance's inverse; misread points count little."""
    problem = rising(sight(np.array([0.0, 0.04, 0.2]), 2e-3, 0.1, np.eye(3)[:2] * 0.1))
    states = np.tile(problem.system.rest_state(), (3, 1))
    off = np.random.default_rng(0).normal(scale=1e-3, size=(3, 2, 2))
    seen = replace(problem.observation, bearings=bearings(problem, problem.parameters, states) + off)
    read = replace(problem, observation=seen)
    whole = ClipResiduals(read, np.ones((3, 4)))
    inverse = np.linalg.inv(Errors.of(seen).of_clip())
    assert float(whole.value(torch.from_numpy(states))) == pytest.approx(0.5 * off.ravel() @ inverse @ off.ravel())
    wild = off.copy()
    wild[1, 0] += 0.3
    misread = replace(problem, observation=replace(seen, bearings=bearings(problem, problem.parameters, states) + wild))
    assert float(ClipResiduals.about(misread, states).value(torch.from_numpy(states))) < 20.0
    assert float(ClipResiduals(misread, np.ones((3, 4))).value(torch.from_numpy(states))) > 1e4


def test_many_motions_are_judged_at_once_as_one_by_one() -> None:
    problem = rising(sight(np.array([0.0, 0.04, 0.2]), 2e-3, 0.1, np.eye(3)[:2] * 0.1))
    rng = np.random.default_rng(1)
    motions = np.tile(problem.system.rest_state(), (4, 3, 1))
    motions[..., :7] += rng.normal(scale=0.02, size=(4, 3, 7))
    for judge in (losses.get("keypoint", problem), ClipResiduals(problem, np.ones((3, 4)))):
        many = torch.from_numpy(motions)
        np.testing.assert_allclose(judge.batched_residuals(many), torch.stack([judge.residuals(m) for m in many]))
        np.testing.assert_allclose(judge.values(many), torch.stack([judge.value(m) for m in many]), rtol=1e-12)
        assert judge.values(many).std() > 0.0


def test_frames_far_apart_are_named_as_the_motion_has_them(tmp_path: Path) -> None:
    """A cube may be read in any of its 24 orientations; what was seen says which motion it belongs to."""
    (entry,) = entries(("cube-plain",))
    experiment = Experiment.of(entry, tmp_path, np.array([6.0]))
    plan, pose = experiment.plan, np.asarray(experiment.camera.camera_to_world)
    corners = np.array(list(np.ndindex(2, 2, 2))) - 0.5
    points = np.ptp(experiment.mesh.vertices, axis=0) * corners + experiment.mesh.vertices.mean(axis=0)
    turned = np.einsum("gij,kj->gki", experiment.alike[:, :3, :3], points) + experiment.alike[:, None, :3, 3]
    order = np.linalg.norm(turned[:, :, None] - points, axis=-1).argmin(axis=-1)
    rotations = experiment.alike[:, :3, :3]
    nothing = sight(plan.times_s, points=points)
    shown = np.zeros(nothing.visible.shape, dtype=bool)
    shown[[0, 8, 18]] = True
    truth = plan.problem(experiment.truth, replace(nothing, visible=shown), pose)
    seen = bearings(truth, truth.parameters, experiment.states)
    mixed = np.stack([each[order[(5 * i + 3) % 24]] for i, each in enumerate(seen)])
    assert np.abs(mixed - seen)[shown].max() > 0.01
    start = plan.problem(np.array([5.7]), replace(truth.observation, bearings=mixed), pose)
    named = labelled_by_motion(experiment, start, order, rotations, np.zeros(3)).observation
    np.testing.assert_allclose(named.bearings[shown], seen[shown], atol=1e-12)
    np.testing.assert_array_equal(named.visible, shown)
    found = by_newton(experiment, replace(start, observation=named), "keypoint")
    assert found == pytest.approx([6.0], abs=1e-3)
    assert labelled_by_motion(experiment, start, order[:1], rotations[:1], np.zeros(3)) is start, (
        "no other orientation is like it"
    )
