"""What frames state together about a robot's base: joined normal equations, given bases, votes and tests of chance.

Stand-ins take the place of images. Each of their frames states a known place with a known information.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.tracking.articulated import base_pose
from vid2phys.tracking.articulated.base_pose import (
    BaseEstimate,
    BasePoseConfig,
    _given_base,
    _joined,
    fitted_base,
    searched_shift,
)
from vid2phys.tracking.articulated.silhouette_fit import Fit
from vid2phys.types import Array

CONFIG = BasePoseConfig()
PRIOR_STD = np.repeat([CONFIG.shift_std_m, CONFIG.rotation_std_rad], 3)
WEAK = np.diag(PRIOR_STD**-2.0)
PIVOT = np.array([0.1, -0.3, 0.6])


def information_of(seed: int, size: int, scale: float = 1e4) -> Array:
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return np.asarray(scale * root @ root.T)


def estimate(moved: Array, covariance: Array | None = None) -> BaseEstimate:
    return BaseEstimate(
        moved, np.linalg.inv(information_of(0, 6)) if covariance is None else covariance, PRIOR_STD, PIVOT
    )


def test_a_base_rotates_about_its_pivot_and_is_shifted_with_it() -> None:
    moved = np.array([0.1, -0.2, 0.05, 0.3, -0.4, 0.2])
    base, place = estimate(moved), np.array([0.7, 0.2, -0.5])
    expected = PIVOT + moved[:3] + Rotation.from_rotvec(moved[3:]).apply(place - PIVOT)
    np.testing.assert_allclose(base.rotation @ place + base.shift, expected, atol=1e-12)


@pytest.mark.parametrize(("square", "contradicts"), [(16.7, False), (16.9, True)])
def test_a_base_contradicts_what_was_given_beyond_one_chance_in_a_hundred(square: float, contradicts: bool) -> None:
    """Of six numbers, the sum of squares in standard deviations is above 16.81 by one chance in a hundred."""
    root = np.linalg.cholesky(np.linalg.inv(information_of(1, 6)))
    way = np.random.default_rng(2).normal(size=6)
    base = estimate(root @ way * np.sqrt(square) / np.linalg.norm(way), root @ root.T)
    assert base.contradicts is contradicts
    np.testing.assert_allclose(base.std, np.linalg.norm(root, axis=1))


@pytest.mark.parametrize(("square", "is_rotated"), [(7.7, False), (7.9, True)])
def test_a_base_is_rotated_beyond_one_chance_in_twenty(square: float, is_rotated: bool) -> None:
    """Of three numbers, the sum of squares is above 7.81 by one chance in twenty; the shift does not count."""
    covariance = np.linalg.inv(information_of(1, 6))
    root, way = np.linalg.cholesky(covariance[3:, 3:]), np.array([0.6, 0.0, -0.8])
    base = estimate(np.concatenate([[9.0, -9.0, 9.0], root @ way * np.sqrt(square)]), covariance)
    assert base.is_rotated is is_rotated


def test_a_base_that_is_not_rotated_has_the_shift_that_goes_with_it() -> None:
    """The shift of a normal distribution at rotation zero, by its information."""
    precise = information_of(3, 6)
    moved = np.array([0.1, -0.2, 0.05, 0.03, -0.04, 0.02])
    base = estimate(moved, np.linalg.inv(precise)).unrotated()
    expected = moved[:3] + np.linalg.solve(precise[:3, :3], precise[:3, 3:] @ moved[3:])
    np.testing.assert_allclose(base.moved, np.concatenate([expected, np.zeros(3)]), atol=1e-12)
    np.testing.assert_allclose(base.covariance[:3, :3], np.linalg.inv(precise[:3, :3]), rtol=1e-9)
    np.testing.assert_allclose(base.covariance[3:, 3:], np.diag(PRIOR_STD[3:] ** 2))
    assert not base.covariance[:3, 3:].any()
    assert not base.covariance[3:, :3].any()
    np.testing.assert_array_equal(base.pivot, PIVOT)


def fit_of(stated: Array, information: Array, start: Array, prior: Array) -> tuple[Array, Array]:
    """Return the fit [D] of a frame that states a place with an information, from a start with a prior."""
    both = information + prior
    return np.linalg.solve(both, information @ stated + prior @ start), np.linalg.inv(both)


def test_frames_state_the_base_with_their_mean_information() -> None:
    """However many frames there are, they state what the mean frame does, with half of its stated error."""
    rng, start = np.random.default_rng(4), np.array([0.05, 0.0, -0.1, 0.02, 0.0, 0.01])
    stated = [0.02 * rng.normal(size=6) for _ in range(3)]
    known = [information_of(10 + n, 6) for n in range(3)]
    found = [(*fit_of(at, each, start, WEAK), n) for n, (at, each) in enumerate(zip(stated, known, strict=True))]
    pull = sum(each @ at for each, at in zip(known, stated, strict=True))
    information = WEAK + 4.0 * sum(known) / 3.0
    for repeated in (1, 4):
        base, covariance = _joined(found * repeated, start, PRIOR_STD, CONFIG)
        np.testing.assert_allclose(base, np.linalg.solve(information, 4.0 * pull / 3.0), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(covariance, np.linalg.inv(information), rtol=1e-6, atol=1e-12)


def test_joints_follow_a_base_that_is_given() -> None:
    precise, at = information_of(5, 8), np.linspace(-0.3, 0.4, 8)
    base = at[:6] + np.array([0.02, -0.01, 0.03, 0.01, 0.0, -0.02])
    expected = at[6:] - np.linalg.solve(precise[6:, 6:], precise[6:, :6] @ (base - at[:6]))
    np.testing.assert_allclose(_given_base(at, np.linalg.inv(precise), base), expected, atol=1e-9)


def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FrameStore", "Window", "Solid", "_BaseSearch"):
        each: Any = SimpleNamespace(of=lambda *_: range(99)) if name != "_BaseSearch" else lambda *_: None
        monkeypatch.setattr(base_pose, name, each)
    monkeypatch.setattr(base_pose, "MovedBase", lambda body, pivot, *most: SimpleNamespace(pivot=pivot, most=most))
    monkeypatch.setattr(base_pose, "_pivot", lambda _: PIVOT)
    monkeypatch.setattr(base_pose, "in_processes", lambda function, items: [function(each) for each in items])


CAMERA: Any = SimpleNamespace(camera_to_world=np.array(np.vstack([np.eye(4)[:3] * [1, 1, 1, 0], np.eye(4)[3:]])))
CAMERA.camera_to_world[:3, 3] = PIVOT - [0.0, 0.0, 2.0]


def shifted(x: float, nats: float, along: float = 0.0) -> Fit:
    return Fit(np.array([x, 0.02, along, 0.5]), nats, 0.9, None)


def test_the_shift_on_which_most_frames_agree_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three frames agree on 0.1 m, one of them with another fit of more evidence; the surest frame is alone."""
    fits = {
        3: [shifted(0.1, 50.0), shifted(-0.2, 90.0)],
        5: [shifted(0.105, 60.0, along=0.06), shifted(0.142, 61.0)],
        8: [shifted(0.09, 55.0, along=-0.04)],
        9: [],
        11: [shifted(-0.1, 120.0)],
        12: [shifted(0.14, 1.0)],
    }
    stand_ins(monkeypatch)
    asked = list[int]()
    tracker: Any = SimpleNamespace(searched_anchors=lambda count: asked.append(count) or fits)
    monkeypatch.setattr(base_pose, "SilhouetteTracker", lambda *_: tracker)
    given: Any = SimpleNamespace(times_s=np.zeros(1))
    shift = searched_shift(given, CAMERA, given)
    np.testing.assert_allclose(shift, [0.1, 0.02, 0.0], err_msg="the median of those that agree")  # type: ignore[arg-type]
    assert asked == [8]
    fits.clear()
    assert searched_shift(given, CAMERA, given) is None


class Frames:
    """Frames that state the same base and joints of their own, with informations of their own; some show nothing."""

    def __init__(self, count: int, blank: tuple[int, ...]) -> None:
        rng = np.random.default_rng(6)
        self.base = np.array([0.03, -0.02, 0.01, 0.02, -0.03, 0.01])
        self.joints = rng.normal(size=(count, 2))
        self.known = [information_of(20 + n, 8) for n in range(count)]
        self.blank, self.starts, self.priors = blank, list[tuple[int, Array]](), list[Array]()

    def refined(self, frame: int, window: Any, body: Any, solid: Any, start: Array, prior: Array) -> Any:
        self.starts.append((frame, start))
        self.priors.append(prior)
        np.testing.assert_allclose(body.most, 3.0 * PRIOR_STD[[0, 3]], err_msg="three deviations")
        stated = np.concatenate([self.base, self.joints[frame]])
        return None if frame in self.blank else fit_of(stated, self.known[frame], start, prior)

    def fitted(self, monkeypatch: pytest.MonkeyPatch, shift: Array | None = None) -> BaseEstimate | None:
        stand_ins(monkeypatch)
        monkeypatch.setattr(base_pose, "refine_from", self.refined)
        body: Any = SimpleNamespace(is_angle=np.array([True, False]), radius_m=0.4, mesh=None)
        tracked = np.ones(len(self.joints), bool)
        tracked[1] = False
        track: Any = SimpleNamespace(tracked=tracked, configurations=self.joints + 0.01)
        clip: Any = None
        return fitted_base(clip, CAMERA, body, track, shift)


def test_the_base_and_the_joints_of_tracked_frames_are_fitted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    frames, shift = Frames(7, blank=(4,)), np.array([0.05, 0.0, -0.02])
    found = frames.fitted(monkeypatch, shift)
    assert found is not None
    np.testing.assert_allclose(found.moved, frames.base, atol=1e-4)
    assert [frame for frame, _ in frames.starts] == [0, 2, 3, 4, 5, 6] + 2 * [0, 2, 3, 5, 6]
    for (frame, start), n in zip(frames.starts, range(6), strict=False):
        np.testing.assert_allclose(
            start, np.concatenate([shift, np.zeros(3), frames.joints[frame] + 0.01]), err_msg=str(n)
        )
    for frame, start in frames.starts[11:]:
        np.testing.assert_allclose(start, np.concatenate([frames.base, frames.joints[frame]]), atol=1e-3)
    std = np.concatenate([PRIOR_STD, [0.15, 0.15 * 0.4]])  # of a joint: rad, or a share of the workspace's radius
    for prior in frames.priors:
        np.testing.assert_allclose(prior, np.diag(1.0 / std**2))
    np.testing.assert_array_equal(found.prior_std, PRIOR_STD)
    np.testing.assert_array_equal(found.pivot, PIVOT)


def test_no_number_of_frames_makes_an_error_of_the_base_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two metres along the line of sight, z: an error of 0.6 % of it, 3 mm to all sides, and 0.014 rad."""
    frames = Frames(5, blank=())
    for each in frames.known:
        each *= 1e6
    found = frames.fitted(monkeypatch)
    assert found is not None
    expected = np.diag(np.repeat([0.003, 0.014], 3) ** 2)
    expected[2, 2] += (0.006 * 2.0) ** 2
    np.testing.assert_allclose(found.covariance, expected, atol=1e-8)


def test_few_frames_with_edges_state_no_base(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Frames(6, blank=(0, 2, 3)).fitted(monkeypatch) is None
    assert Frames(6, blank=(0, 2)).fitted(monkeypatch) is not None
