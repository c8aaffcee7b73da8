"""A finger that is misread through a whole clip: other motions are tried, and the images say which is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_articulated_contour import body_and_camera, photograph, window
from tests.unit.test_articulated_reinitialise import track_of
from vid2phys.commands.identify.reinitialise import Shown, reinitialise
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError
from vid2phys.geometry import invert_transform
from vid2phys.solvers import configuration_shooting
from vid2phys.solvers.configuration_scan import other_motion
from vid2phys.solvers.problem import Problem
from vid2phys.tracking.articulated.reinitialise import ClipEvidence
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.uncertainty.articulated import first_calibration
from vid2phys.types import Actions, Array

FRAMES, FPS, TRUE = 16, 60.0, 0.22
FINGER = [1, 2, 3]  # its joints


@dataclass(frozen=True)
class ContourResiduals:
    """A hand whose finger swings, and a track by which it hangs still. truth: [F, 13]."""

    body: ArticulatedBody
    problem: Problem
    truth: Array
    track: ConfigurationTrack
    shown: Shown


@pytest.fixture(scope="module")
def misread() -> ContourResiduals:
    body, camera = body_and_camera("hand")
    here, hand = window(camera, body), body.system
    times = np.arange(FRAMES) / FPS
    torques = np.zeros((FRAMES - 1, 13))
    torques[:, FINGER] = 0.12 * np.sin(2.0 * np.pi * times[:-1, None] / 0.25)
    actions = Actions(times[:-1], torques, "other", hand.action_names, hand.action_units)
    controls = np.zeros((1, FRAMES - 1, len(hand.control_names)))
    controls[0, :, :13] = torques
    parameters = hand.parameters().with_values({"stiffness_1": TRUE})
    start = body.states(np.zeros(13), np.zeros(13))
    states = simulate(hand, start[None], controls, parameters.vector, 1.0 / FPS, substeps=16)[0]
    truth = body.configurations(states)
    read = truth.copy()
    read[:, FINGER] = 0.0
    track = replace(track_of(body, here, read), configurations=read)
    track = replace(track, observation=replace(track.observation, times_s=times))
    pose = np.linalg.inv(invert_transform(np.asarray(camera.camera_to_world)))
    free = hand.parameters().with_free(("stiffness_1",))
    problem = Problem(hand, free, track.observation, pose, actions)
    frames = [photograph(body, camera, each) for each in truth]
    images = ClipEvidence.of(frames, body, here, np.arange(0, FRAMES, 3))
    return ContourResiduals(body, problem, truth, track, Shown(frames, here, first_calibration(body), images))


def fitted(clip: ContourResiduals) -> list[configuration_shooting.ConfigurationSolution]:
    return [configuration_shooting.solve(clip.problem, clip.body, np.zeros(13), np.zeros(13))]


def test_what_is_read_again_is_fitted_again(misread: ContourResiduals) -> None:
    first = fitted(misread)
    assert first[0].parameters["stiffness_1"].value > 2.0 * TRUE, "a finger that hardly moves is stiff"
    tracks, found = reinitialise([misread.shown], [misread.problem], [misread.track], first)
    value = found[0].parameters["stiffness_1"].value
    std = float(found[0].theta_covariance[0, 0]) ** 0.5
    assert value == pytest.approx(TRUE, rel=0.05)
    assert abs(value - TRUE) < 3.0 * std < 0.1 * TRUE
    off = np.abs(tracks[0].configurations - misread.truth)[:, FINGER]
    assert np.median(off) < 0.2 * np.abs(misread.truth[:, FINGER]).mean()
    assert found[0].iterations > 0
    assert found[0].converged


def test_a_motion_that_images_do_not_ask_for_is_not_taken(misread: ContourResiduals) -> None:
    theta = misread.problem.parameters.with_values({"stiffness_1": TRUE}).free_vector()
    starts = np.zeros((1, 26))
    asked: list[Array] = []

    def judge(clip: int, configurations: Array) -> float:
        assert clip == 0
        asked.append(configurations)
        return -1e3 * float(((configurations - misread.truth) ** 2).sum())

    def other(theta: Array, starts: Array) -> Any:
        return other_motion([misread.problem], misread.body, starts, theta, judge, 10.0)

    assert other(theta, starts) is None
    assert {each.shape for each in asked} == {misread.truth.shape}
    moved = starts.copy()
    moved[0, FINGER] = 0.5  # where it does not begin
    found = other(misread.problem.parameters.with_values({"stiffness_1": 5.0}).free_vector(), moved)
    assert found is not None
    stiffness = misread.problem.parameters.fitted_at(found.theta)["stiffness_1"].value
    assert 0.6 * TRUE < stiffness < 1.5 * TRUE
    np.testing.assert_array_equal(found.starts, starts, "what the parameter moves begins at rest")


def test_fits_stay_where_images_show_them_best(misread: ContourResiduals, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fitted(misread)

    def fails(*_: Any, **__: Any) -> list[configuration_shooting.ConfigurationSolution]:
        raise SimulationError("too stiff", "less")

    def worse(problems: Sequence[Problem], *_: Any, **__: Any) -> list[configuration_shooting.ConfigurationSolution]:
        return [replace(first[0], states=first[0].states + 0.5)]

    for solve in (fails, worse):
        monkeypatch.setattr(configuration_shooting, "solve_clips", solve)
        tracks, found = reinitialise([misread.shown], [misread.problem], [misread.track], first)
        assert found is first
        assert tracks == [misread.track]
