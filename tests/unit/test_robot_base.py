"""The base of a robot: derivatives against differences, a search and a fit against the pose from which it was drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.moving_arm import SWING, arm_clip, camera_of, swings, urdf
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.robot_base import as_option
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.moved_base import MovedBase
from vid2phys.engine.systems.articulated import Articulated
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.io.move import parse_move
from vid2phys.io.robot import Robot, parse_robot
from vid2phys.tracking.articulated import base_pose
from vid2phys.tracking.articulated.base_pose import BaseEstimate, BasePoseConfig, fitted_base, searched_shift
from vid2phys.tracking.articulated.silhouette_fit import Fit
from vid2phys.tracking.articulated.silhouette_search import SilhouetteSearchConfig
from vid2phys.tracking.articulated.silhouette_tracker import observation_of_nothing
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.types import Array, Camera, Clip

SHIFT = np.array([0.08, 0.0, -0.05])  # from where the robot is drawn to where it is given


def robot() -> Robot:
    return parse_robot(urdf(SWING), Path("arm.urdf"))


@pytest.fixture(scope="module")
def filmed() -> tuple[Clip, Camera, Array]:
    """Return a clip of the arm at the world's origin, the camera, and its joint angles [T, 2]."""
    camera, motion = camera_of((0.25, -1.1, 0.1), (0.0, 0.0, -0.05), 320, 400.0), swings(SWING, 24, seed=3)
    return arm_clip(SWING, camera, motion), camera, motion


def tracked(body: JointBody, times_s: Array, motion: Array) -> ConfigurationTrack:
    """Return a track of joint angles that are known."""
    count, size = motion.shape
    seen = observation_of_nothing(times_s, body, np.full(size, 0.3))
    covariance = np.tile(1e-5 * np.eye(size), (count, 1, 1))
    return ConfigurationTrack(seen, motion, covariance, np.ones(count, dtype=bool), np.ones(count), ())


def test_slopes_of_a_moved_base_are_those_of_differences() -> None:
    inner = JointBody(Articulated(robot()))
    body = MovedBase(inner, np.array([0.02, -0.01, 0.03]), 0.3, 0.2)
    at, some = np.array([0.1, -0.05, 0.02, 0.1, -0.08, 0.12, 0.4, -0.7]), np.arange(0, len(body.mesh.vertices), 3)
    steps = 1e-6 * np.eye(len(at))
    wanted = np.stack([(body.vertices(at + s) - body.vertices(at - s))[some] / 2e-6 for s in steps], axis=-1)
    np.testing.assert_allclose(body.jacobian(at, some), wanted, atol=2e-4)
    np.testing.assert_allclose(body.all_vertices(at[None])[0], body.vertices(at))
    rotation, shift = body.pose(at[:6])
    elsewhere = JointBody(Articulated(robot().moved(rotation, shift)))
    moving = np.isin(body.mesh.part[:, None].repeat(3, axis=1), (1, 2)).ravel()
    own = np.unique(body.mesh.faces.ravel()[moving])
    np.testing.assert_allclose(elsewhere.vertices(at[6:])[own], body.vertices(at)[own], atol=1e-9)


def test_a_search_finds_where_the_base_is(filmed: tuple[Clip, Camera, Array]) -> None:
    clip, camera, _ = filmed
    given = JointBody(Articulated(robot().moved(np.eye(3), SHIFT)))
    few = SilhouetteSearchConfig(configurations=2048)
    shift = searched_shift(clip, camera, given, BasePoseConfig(shift_m=0.15, searched=3), few)
    assert shift is not None
    np.testing.assert_allclose(shift[[0, 2]], -SHIFT[[0, 2]], atol=0.006)  # y is the line of sight
    assert abs(shift[1]) < 0.05


def test_edges_tell_a_wrong_base_from_the_right_one(filmed: tuple[Clip, Camera, Array]) -> None:
    clip, camera, motion = filmed
    right = JointBody(Articulated(robot()))
    estimate = fitted_base(clip, camera, right, tracked(right, clip.times_s, motion))
    assert estimate is not None
    assert not estimate.contradicts
    assert (np.abs(estimate.moved) < 3.0 * estimate.std).all()
    wrong = JointBody(Articulated(robot().moved(matrix_from_rotvec(np.array([0.0, 0.0, 0.08])), np.zeros(3))))
    estimate = fitted_base(clip, camera, wrong, tracked(wrong, clip.times_s, motion))
    assert estimate is not None
    assert estimate.contradicts
    assert estimate.moved[5] == pytest.approx(-0.08, abs=0.04)
    shifted = JointBody(Articulated(robot().moved(np.eye(3), SHIFT)))
    estimate = fitted_base(clip, camera, shifted, tracked(shifted, clip.times_s, motion), shift=-SHIFT)
    assert estimate is not None
    np.testing.assert_allclose(estimate.unrotated().moved[[0, 2]], -SHIFT[[0, 2]], atol=0.006)


@pytest.mark.parametrize(
    ("shift_m", "alike"),
    [
        ((0.0, 0.0, 0.0), 1.0),
        ((0.03, 0.0, 0.0), np.exp(-0.5)),
        ((0.0, 0.0, 0.12), np.exp(-0.5)),  # along the line of sight, where four times as much is one deviation
        ((0.03, -0.06, 0.12), np.exp(-3.0)),
    ],
)
def test_shifts_agree_within_three_centimetres(shift_m: tuple[float, ...], alike: float) -> None:
    place, way = np.array([0.4, -0.2, 0.9]), np.array([0.0, 0.0, 1.0])
    a, b = (Fit(np.append(at, 0.7), 10.0, 0.9, None) for at in (place, place + shift_m))
    config = BasePoseConfig()
    assert base_pose._alike(a, b, way, config) == pytest.approx(alike)
    assert base_pose._votes(a, [[b], [b, a]], way, config) == pytest.approx(10.0 * (alike + 1.0))


def test_the_option_moves_the_base_as_the_estimate() -> None:
    moved = np.array([0.1, -0.2, 0.05, 0.06, -0.04, 0.1])
    estimate = BaseEstimate(moved, 1e-6 * np.eye(6), np.ones(6), np.array([0.1, 0.2, 0.6]))
    rotation, shift = parse_move(as_option(estimate), "--base")
    np.testing.assert_allclose(rotation, matrix_from_rotvec(moved[3:]), atol=2e-5)
    np.testing.assert_allclose(shift, estimate.shift, atol=1e-4)
    pivot = rotation @ estimate.pivot + shift
    np.testing.assert_allclose(pivot, estimate.pivot + moved[:3], atol=1e-3)


def test_the_base_of_several_clips_is_refused() -> None:
    config = IdentifyConfig(clip=(Path("a"), Path("b")), camera=Path("c"), body="arm.urdf", fit=("base",))
    with pytest.raises(Exception, match="--fit base with 2 clips"):
        config.check()
