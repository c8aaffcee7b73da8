"""Passes of the tracker of articulated bodies with stand-ins: batches, the second fit, lost frames, what is stated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.io.array_clip import array_clip
from vid2phys.tracking.articulated import tracker
from vid2phys.tracking.articulated.config import ArticulatedConfig
from vid2phys.tracking.articulated.contour_refinement import RefinedConfigurations
from vid2phys.tracking.articulated.kinematic_fit import Configurations
from vid2phys.tracking.articulated.tracker import ConfigurationTrack, FrameFits, track_configurations
from vid2phys.types import Array

FRAMES, SIZE, POINTS = 5, 2, 8
TIMES_S = np.arange(FRAMES) / 30.0
CLIP = array_clip(np.zeros((FRAMES, 8, 8, 3), np.uint8), TIMES_S, "arm")
BODY: Any = SimpleNamespace(
    system=SimpleNamespace(name="arm"), points_body=np.ones((POINTS, 3)), prior_std=np.array([0.5, 2.0])
)
WINDOW: Any = SimpleNamespace(diameter_px=80.0, camera_from_base=np.eye(4), notes=lambda body: ("a note",))
CALIBRATION = Calibration(
    min_quality=0.4, mode_std=(0.01,) * 4, mode_exponent=(0.5,) * 4, mode_doubt=(1.0,) * 4,
    correlation_time_s=(0.2,) * 4, contour_scale=(2.0, 3.0), contour_correlation_s=(0.1, 0.2), swing_scale=1.7,
)  # fmt: skip
UNUSED: Any = None


def configurations(values: Array, cost: Array) -> Configurations:
    """Hypotheses [..., D] at costs [...], with all points as inliers."""
    lead = cost.shape
    covariance = np.broadcast_to(np.eye(SIZE), (*lead, SIZE, SIZE)).copy()
    return Configurations(values, covariance, cost, np.zeros(lead), np.ones((*lead, POINTS), dtype=bool))


def detected(minima: Configurations) -> Any:
    """Detections of all frames, each with numbers of its own."""
    number = np.arange(FRAMES * POINTS, dtype=float).reshape(FRAMES, POINTS)
    return SimpleNamespace(
        minima=minima,
        bearings=np.stack([number, -number], axis=-1),
        covariance=(1.0 + number)[..., None, None] * np.eye(2),
        inside=number % 7 != 3,
        peak=0.1 + 0.01 * number,
    )


@pytest.mark.parametrize(("batch", "sizes"), [(2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_frames_are_detected_in_batches_that_report_their_share(
    batch: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares, seen = list[float](), list[Any]()
    monkeypatch.setattr(tracker, "detect", lambda model, body, window, images, *_: seen.extend(images) or len(images))  # type: ignore[func-returns-value]
    monkeypatch.setattr(tracker.ConfigurationDetections, "join", lambda parts: parts)
    frames: Any = list("abcde")
    config = ArticulatedConfig(batch=batch)
    found = tracker._detect_all(frames, UNUSED, BODY, WINDOW, CALIBRATION, shares.append, config)
    assert found == sizes
    assert "".join(seen) == "abcde"
    np.testing.assert_allclose(shares, np.cumsum(sizes) / FRAMES)


def test_a_second_fit_starts_from_the_frames_before_and_after_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minimum that only a start of the frame before or after leads to is taken, where it is better."""
    values = np.zeros((FRAMES, 2, SIZE))
    values[:, 0, 0], values[:, 1, 0] = 0.01 * np.arange(FRAMES), 5.0
    seen, starts = detected(configurations(values, np.tile([1.0, 2.0], (FRAMES, 1)))), list[Array]()
    seen.minima.cost[3] = [30.0, 30.0]

    def find(body: Any, pose: Any, bearings: Array, covariance: Array, **given: Any) -> Configurations:
        starts.append(given["starts"])
        np.testing.assert_array_equal(given["visible"], seen.inside)
        cost = np.full((FRAMES, 2), 20.0)
        cost[3, 1] = 0.5
        return configurations(given["starts"] + 0.001, cost)

    monkeypatch.setattr(tracker, "find_minima", find)
    found = tracker._choose_hypotheses(BODY, WINDOW, seen, TIMES_S, ArticulatedConfig())
    np.testing.assert_allclose(starts[0][:, 0, 0], 0.01 * np.array([0, 0, 1, 2, 3]))
    np.testing.assert_allclose(starts[0][:, 1, 0], 0.01 * np.array([1, 2, 3, 4, 4]))
    np.testing.assert_allclose(found.configuration[:, 0], [0.0, 0.01, 0.02, 0.041, 0.04])
    np.testing.assert_array_equal(found.cost, [1.0, 1.0, 1.0, 0.5, 1.0])


def test_the_path_measures_changes_by_the_spread_of_a_coordinate() -> None:
    """In a frame 1/30 s long a coordinate moves by half of its prior deviation: 14 of them a second."""
    jump = 0.47  # of a deviation: half a nat
    for coordinate, std in enumerate(BODY.prior_std):
        values = np.zeros((FRAMES, 2, SIZE))
        values[2, 1, coordinate] = jump * std
        for less, taken in ((0.8, 0), (1.2, 1)):  # twice, there and back
            cost = np.zeros((FRAMES, 2))
            cost[:, 1] = 99.0
            cost[2] = [less, 0.0]
            path = tracker._viterbi_path(BODY, configurations(values, cost), TIMES_S)
            assert path.tolist() == [0, 0, taken, 0, 0]
    values[2, 1] = 99.0
    for less, taken in ((23.0, 0), (25.0, 1)):  # a jump costs 12 nats at most
        cost[2] = [less, 0.0]
        assert tracker._viterbi_path(BODY, configurations(values, cost), TIMES_S)[2] == taken


def tracked(
    monkeypatch: pytest.MonkeyPatch, quality: list[float], inliers: list[int], moved: list[int]
) -> tuple[ConfigurationTrack, list[Any]]:
    """The track of a clip whose frames have this quality and so many inliers; edges move some of them."""
    chosen = configurations(np.arange(10.0).reshape(FRAMES, SIZE), np.zeros(FRAMES))
    for i, count in enumerate(inliers):
        chosen.inliers[i, count:] = False
    seen, given = detected(configurations(np.zeros((FRAMES, 1, SIZE)), np.zeros((FRAMES, 1)))), list[Any]()
    variances = np.tile(np.diag([4.0, 9.0]), (FRAMES, 1, 1))
    refined = RefinedConfigurations(100.0 + chosen.configuration, variances, np.array(moved, dtype=bool))

    def agreement(body: Any, window: Any, of: Any, bearings: Array, weight: Array, config: Any) -> Array:
        np.testing.assert_allclose(weight, seen.peak * seen.inside)
        return np.array(quality)

    def refine(frames: Any, body: Any, window: Any, of: Any, std: Array, which: Array, *rest: Any) -> Any:
        given.append(which.tolist())
        np.testing.assert_allclose(std, CALIBRATION.mode_scale(np.full(FRAMES, 80.0), np.array(quality)))
        return refined

    monkeypatch.setattr(tracker.Window, "of", lambda *_: WINDOW)
    monkeypatch.setattr(tracker, "_detect_all", lambda *_: seen)
    monkeypatch.setattr(tracker, "_choose_hypotheses", lambda *_: chosen)
    monkeypatch.setattr(tracker, "agreement", agreement)
    monkeypatch.setattr(tracker, "refine_contours", refine)
    monkeypatch.setattr(tracker, "_observe", lambda *each: given.append(each[3]) or "observed")  # type: ignore[func-returns-value]
    model: Any = SimpleNamespace(view_size=8, calibration=None)
    return track_configurations(CLIP, UNUSED, model, BODY, calibration=CALIBRATION), given


def test_frames_with_little_agreement_or_few_inliers_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    found, given = tracked(monkeypatch, [0.4, 0.39, 0.9, 0.9, 0.9], [8, 8, 5, 6, 8], [1, 1, 1, 1, 0])
    assert found.tracked.tolist() == [True, False, False, True, True]
    assert found.lost_frames.tolist() == [1, 2]
    assert given[0] == [0, 3, 4]
    rows = np.arange(10.0).reshape(FRAMES, SIZE)
    np.testing.assert_array_equal(found.configurations[[0, 3, 4]], 100.0 + rows[[0, 3, 4]])
    assert np.isnan(found.configurations[[1, 2]]).all()
    assert np.isnan(found.covariance[[1, 2]]).all()
    np.testing.assert_allclose(found.covariance[0], np.diag([4.0 * 2.0**2, 9.0 * 3.0**2]))
    np.testing.assert_allclose(found.covariance[4], np.diag([4.0, 9.0]), err_msg="as detected")
    assert found.notes == ("a note",)
    with pytest.raises(InputError, match="the arm was detected in none of the 5 frames of 'arm'"):
        tracked(monkeypatch, [0.1] * FRAMES, [8] * FRAMES, [0] * FRAMES)


@pytest.mark.parametrize("moved", [[0, 1, 1, 1, 0], [0, 0, 1, 0, 0]])
def test_an_observation_states_keypoints_of_tracked_frames_and_refined_configurations(
    moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third frame is lost, so that its edges do not count."""
    chosen = configurations(np.arange(10.0).reshape(FRAMES, SIZE), np.zeros(FRAMES))
    chosen.inliers[1, 4:] = False
    seen = detected(chosen)
    refined = RefinedConfigurations(
        chosen.configuration + 0.5, np.tile(np.eye(SIZE), (FRAMES, 1, 1)), np.array(moved) > 0
    )
    there, quality = np.array([1, 1, 0, 1, 1], dtype=bool), np.linspace(0.5, 0.9, FRAMES)
    modes, given = np.random.default_rng(0).normal(size=(FRAMES, POINTS, 2, SIZE + 2)), list[Any]()
    monkeypatch.setattr(tracker, "configuration_modes", lambda body, window, of: modes)

    def add(seen: Any, body: Any, window: Any, found: Any, shift_std: Array, calibration: Any) -> Any:
        given.append((found, shift_std))
        return seen

    monkeypatch.setattr(tracker, "with_configurations", add)
    found = tracker._observe(TIMES_S, BODY, WINDOW, FrameFits(seen, chosen, refined, quality, there), CALIBRATION)
    std = CALIBRATION.mode_scale(np.full(FRAMES, 80.0), quality)
    np.testing.assert_array_equal(found.bearings[there], seen.bearings[there])
    np.testing.assert_array_equal(found.bearings[2], 0.0)
    np.testing.assert_array_equal(found.covariance[there], seen.covariance[there])
    np.testing.assert_array_equal(found.covariance[2], np.tile(np.eye(2), (POINTS, 1, 1)))
    np.testing.assert_allclose(found.shared_basis[there], (modes * std[:, None, None])[there])
    np.testing.assert_array_equal(found.shared_basis[2], 0.0)
    np.testing.assert_array_equal(found.visible, there[:, None] & chosen.inliers & seen.inside)
    assert found.process_time_s.tolist() == [0.2] * 4
    if not any(m and t for m, t in zip(moved, there, strict=True)):
        assert float(found.swing_scale) == 1.0
        assert given == []
        return
    assert float(found.swing_scale) == 1.7
    (((frames, at, columns), shift_std),) = given
    assert frames.tolist() == [1, 3]
    np.testing.assert_array_equal(at, refined.configuration[[1, 3]])
    np.testing.assert_allclose(columns, np.tile(np.diag([2.0, 3.0]), (2, 1, 1)))
    np.testing.assert_allclose(shift_std, std[[1, 3], 2:])
