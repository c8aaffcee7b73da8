"""The motion of a body on a known base of which nothing is asked, tracked with a model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.experiments import nothing_seen
from vid2phys.commands.identify.measured_motion import MEASURED, is_measured, measured_motion
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.systems.hand import Hand
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.types import Array, ConfigurationMeasurement, Status

TIMES_S, STD, LOST = np.arange(20) / 30.0, 0.01, 7


@pytest.fixture(scope="module")
def body() -> JointBody:
    return JointBody(Hand())


def inputs_of(body: JointBody, *free: str, actions: object = None) -> Any:
    known = SimpleNamespace(parameters=SimpleNamespace(free_names=free))
    return SimpleNamespace(
        body=body, system=body.system, known=known, actions=actions, notes=("a note",), model="a model"
    )


def tracked(body: JointBody) -> tuple[ConfigurationTrack, Array]:
    """A track of keypoints alone, one frame lost, and the true motion."""
    motion = 0.3 * np.sin(4.0 * TIMES_S[:, None] + np.arange(len(body.names)))
    measured = motion + np.random.default_rng(0).normal(scale=STD, size=motion.shape)
    covariance, shown = np.tile(STD**2 * np.eye(len(body.names)), (len(TIMES_S), 1, 1)), np.arange(len(TIMES_S)) != LOST
    measured[~shown], covariance[~shown] = np.nan, np.nan
    nothing = nothing_seen(TIMES_S, body.points_body[:1])
    return ConfigurationTrack(nothing, measured, covariance, shown, shown.astype(float), ()), motion


def test_a_motion_is_measured_where_nothing_is_asked(body: JointBody) -> None:
    assert is_measured([inputs_of(body)])
    assert not is_measured([inputs_of(body, "stiffness_0")])
    assert not is_measured([inputs_of(body), inputs_of(body, actions="recorded")])


def test_keypoints_alone_are_measured_too(body: JointBody) -> None:
    track, motion = tracked(body)
    result = measured_motion(inputs_of(body), track)
    assert result.status is Status.CONVERGED
    assert result.actions is None
    notes = result.diagnostics["notes"]
    assert isinstance(notes, list)
    assert MEASURED in notes
    off = result.trajectory.states[:, : len(body.names)] - motion
    assert np.sqrt((off**2).mean()) < STD
    assert result.trajectory.covariance is not None
    std = np.sqrt(np.einsum("tii->ti", result.trajectory.covariance))[:, : len(body.names)]
    assert (np.abs(off) <= 1.96 * std).mean() > 0.9
    assert (std[LOST] > std[LOST - 2]).all()


def test_errors_that_last_widen_what_is_stated(body: JointBody) -> None:
    track, _ = tracked(body)
    size, frames = len(body.names), len(TIMES_S)
    basis = np.tile(0.05 * np.eye(size), (frames, 1, 1))
    only = np.arange(frames) < 10
    found = ConfigurationMeasurement(
        track.configurations, track.covariance, basis, np.full(size, 0.2), only & track.tracked, "contour"
    )
    for scale in (1.0, 3.0):  # of amplitudes of whole clips
        seen = replace(track.observation, configuration=found, swing_scale=np.array(scale))
        stated = measured_motion(inputs_of(body), replace(track, observation=seen)).trajectory.covariance
        assert stated is not None
        std = np.sqrt(stated[:, 0, 0])
        assert std[3] == pytest.approx(0.05 * scale, rel=0.05)
        assert std[15] < STD
