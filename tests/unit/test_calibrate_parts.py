"""Windows of held-out clips with dice whose throws are known, thresholds and divisors beside plain sums, and limits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine.virtual_camera import make_view, view_to_bearings
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.uncertainty import alignment_errors, calibrate, contour_errors
from vid2phys.tracking.uncertainty.alignment_errors import RefinementErrors
from vid2phys.tracking.uncertainty.calibrate import (
    _log_sum_exp,
    _sums,
    cross_validated,
    detection_threshold,
    evidence_divisor,
    hypothesis_right_share,
    with_contour,
)
from vid2phys.tracking.uncertainty.config import UncertaintyConfig
from vid2phys.tracking.uncertainty.fit_errors import Residuals
from vid2phys.types import Array, Camera

RADIUS_M, FRAMES = 0.2, 3
PLACES = np.array([[0.1, -0.2, 1.5], [0.2, 0.0, 2.0], [-0.3, 0.1, 1.2]])
CONFIG = UncertaintyConfig(
    view_offset=0.04, view_size_offset=0.05, contour_view_offset=0.07, empty_searches=3, min_appearances=5
)
CLIP: Any = SimpleNamespace(
    frames=["first", "second", "third"], cameras=["a", "b", "c"], background="empty", clock_s=np.arange(3.0),
    rotation=matrix_from_rotvec(np.array([[0.1, 0.2, 0.3], [0.0, -0.4, 0.1], [0.5, 0.0, 0.2]])), translation=PLACES,
)  # fmt: skip


class Dice:
    """Throws a known sequence: the fractions of 17 in the order of 5 n."""

    def __init__(self) -> None:
        self.count = 0

    def _next(self, size: Any) -> Array:
        many = int(np.prod(size))
        throws = (5.0 * (self.count + np.arange(many)) % 17.0 + 1.0) / 17.0
        self.count += many
        return throws.reshape(size)

    def normal(self, mean: float, std: float, size: Any) -> Array:
        return mean + std * self._next(size)

    def uniform(self, low: float, high: float, size: Any) -> Array:
        return low + (high - low) * self._next(size)


def seen_from(place: Array) -> tuple[Array, float]:
    """Bearing of a sphere's centre, and the angle of its radius."""
    return place[:2] / place[2], float(np.arcsin(RADIUS_M / np.linalg.norm(place)))


def test_windows_of_a_clip_share_the_first_throw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it, and 0.8 of one of their own; sideways in shares of three radii, in size by a factor."""
    asked, dice = list[Any](), Dice()

    def detect(model: Any, camera: str, images: list[str], aside: Array, size: Array, calibration: Any) -> Any:
        asked.append((camera, images, aside, size))
        return len(asked)

    joined = SimpleNamespace(front_logprob="fronts", views="views", quality=np.array([[0.5, 0.1], [0.6, 0.2]]))
    evidence = np.arange(24.0).reshape(3, 2, 4)

    def front(front_logprob: Any, views: Any, truth: Any, rotations: Any, body_front: Any, center: Any) -> Array:
        assert (front_logprob, views, rotations, center) == ("fronts", "views", "rotations", "center")
        np.testing.assert_array_equal(truth.translation[:, 0], PLACES)
        np.testing.assert_array_equal(truth.rotation[:, 0], CLIP.rotation)
        asked.append(body_front)
        return evidence

    def empty(model: Any, clip: Any, center: Array, radius: float, *more: Any) -> float:
        place, size = seen_from(PLACES[0])
        np.testing.assert_allclose(center, place)
        assert radius == pytest.approx(size)
        assert more[1] is dice
        return 0.25

    monkeypatch.setattr(calibrate, "detect", detect)
    monkeypatch.setattr(calibrate.Detections, "join", lambda parts: parts == [1, 2, 3] and joined)
    monkeypatch.setattr(calibrate, "_residuals", lambda model, clip, seen, sequence: ("residuals", seen, sequence))
    monkeypatch.setattr(calibrate, "_empty_quality", empty)
    monkeypatch.setattr(calibrate, "front_evidence", front)
    points = np.arange(12.0).reshape(4, 3)
    model: Any = SimpleNamespace(radius_m=RADIUS_M, front=2, rotations="rotations", center="center", points_body=points)
    thrown: Any = dice
    found: Any = calibrate._measure_clip(model, CLIP, 6, Calibration(), thrown, CONFIG)
    throws = Dice()._next((1 + FRAMES, 3))
    for i, (camera, images, aside, size) in enumerate(asked[:FRAMES]):
        assert (camera, images) == (CLIP.cameras[i], [CLIP.frames[i]])
        center, radius = seen_from(PLACES[i])
        error = 0.5 * throws[0] + 0.8 * throws[1 + i]
        np.testing.assert_allclose(aside, [center + error[:2] * 0.04 * 3.0 * np.tan(radius)])
        np.testing.assert_allclose(size, [radius * np.exp(0.05 * error[2])])
    np.testing.assert_array_equal(asked[FRAMES], points[2])
    assert found.residuals == ("residuals", joined, 6)
    np.testing.assert_array_equal(found.quality, [0.5, 0.6])
    np.testing.assert_array_equal(found.empty_quality, [0.25])
    np.testing.assert_array_equal(found.evidence, evidence[:, 0])
    model.front = None
    asked.clear()
    calibrate._measure_clip(model, CLIP, 6, Calibration(), thrown, CONFIG)
    assert asked[FRAMES] is None


def test_empty_images_are_searched_about_the_first_place(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, dice = list[Any](), Dice()
    center, radius = np.array([0.1, -0.3]), 0.1
    places = np.array([[0.1, 0.2, 1.0], [0.3, 0.1, 2.0], [0.2, -0.1, 1.5]])
    first = SimpleNamespace(
        quality=np.array([[0.4, 0.9], [0.7, 0.0], [0.6, 0.1]]),
        poses=SimpleNamespace(translation=np.stack([places, 9.0 * places], axis=1)),
    )
    shares = {3: np.array([0.5, 0.1, 1.0]), 2: np.array([0.5, 0.25])}

    def detect(model: Any, camera: str, images: list[str], centers: Array, radii: Array, calibration: Any) -> Any:
        assert (camera, set(images)) == ("a", {"empty"})
        assert len(images) == len(centers) == len(radii)
        asked.append((centers, radii))
        return first if len(asked) == 1 else SimpleNamespace(quality=np.array([[0.8, 0.0], [0.9, 0.0]]))

    monkeypatch.setattr(calibrate, "detect", detect)
    monkeypatch.setattr(calibrate, "plausible", lambda found, radius_m: shares[len(found.quality)])
    model: Any = SimpleNamespace(radius_m=RADIUS_M)
    thrown: Any = dice
    best = calibrate._empty_quality(model, CLIP, center, radius, Calibration(), thrown, CONFIG)
    assert best == pytest.approx(0.4)
    throws = Dice()._next(9)
    np.testing.assert_allclose(asked[0][0], center + (3.0 * throws[:6].reshape(3, 2) - 1.5) * np.tan(radius))
    np.testing.assert_allclose(asked[0][1], radius * np.exp(0.3 * throws[6:]))
    expected = [seen_from(places[2]), seen_from(places[0])]  # 0.6 and 0.2, before 0.07
    np.testing.assert_allclose(asked[1][0], [each[0] for each in expected])
    np.testing.assert_allclose(asked[1][1], [each[1] for each in expected])


def test_windows_before_contours_have_offsets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sideways in shares of one radius. A detection counts from the least quality on."""
    asked = list[Any]()

    def detect(model: Any, camera: str, images: list[str], aside: Array, size: Array, calibration: Any) -> Any:
        asked.append((aside[0], size[0]))
        pose = SimpleNamespace(rotation=np.eye(3), translation=np.zeros(3), cost=1.0)
        quality = np.array([[0.4 if camera == "a" else 0.4 - 1e-9]])
        return SimpleNamespace(poses={(0, 0): pose}, quality=quality, pose_covariance=lambda given: np.eye(6)[None])

    monkeypatch.setattr(contour_errors, "detect", detect)
    model: Any = SimpleNamespace(radius_m=RADIUS_M, rotations=np.eye(3)[None])
    thrown: Any = Dice()
    calibration = replace(Calibration(), min_quality=0.4)
    found = list(contour_errors.detect_clip(model, calibration, CLIP, thrown, [0, 2], CONFIG))
    assert [each.frame for each in found] == [0]
    throws = Dice()._next((3, 3))
    for n, (i, (aside, size)) in enumerate(zip((0, 2), asked, strict=True)):
        center, radius = seen_from(PLACES[i])
        error = 0.5 * throws[0] + 0.8 * throws[1 + n]
        np.testing.assert_allclose(aside, center + error[:2] * 0.07 * np.tan(radius))
        assert size == pytest.approx(radius * np.exp(0.05 * error[2]))


def test_contours_are_fitted_with_the_prior_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its information; errors are the step from the truth to the fit."""
    calibration, steps = Calibration(), 0.01 * np.arange(1.0, 13.0).reshape(2, 6)
    covariance = np.diag([4.0, 1.0, 2.0, 0.5, 8.0, 0.1]) + 0.05
    rngs = list[float]()

    def detected(model: Any, given: Any, clip: Any, rng: Any, frames: Any, config: Any) -> Any:
        assert given is calibration
        assert list(frames) == [0, 1, 2]
        rngs.append(rng.random())
        for i in (0, 2):
            yield contour_errors.NetworkPose(i, CLIP.rotation[i], 1.1 * PLACES[i], covariance)

    def fitted(frame: str, camera: str, solid: str, pose: Pose, *, prior: Array) -> Any:
        i = CLIP.frames.index(frame)
        assert (camera, solid) == (CLIP.cameras[i], "solid")
        np.testing.assert_allclose(pose.translation, 1.1 * PLACES[i])
        np.testing.assert_allclose(prior @ covariance, np.eye(6), atol=1e-9)
        true = Pose(CLIP.rotation[i], PLACES[i])
        return SimpleNamespace(pose=true.retract(steps[i // 2]), covariance=np.diag(np.arange(1.0, 7.0) ** 2) + 0.3 * (
            np.ones((6, 6)) - np.eye(6)))  # fmt: skip

    monkeypatch.setattr(contour_errors, "detect_clip", detected)
    monkeypatch.setattr(contour_errors, "fit_contour", fitted)
    monkeypatch.setattr(contour_errors.Solid, "of", lambda mesh: "solid")
    monkeypatch.setattr(contour_errors, "make_clips", lambda *_, **__: iter([(4, CLIP), (9, CLIP)]))
    unused: Any = SimpleNamespace(radius_m=RADIUS_M)
    found = contour_errors.measure(unused, unused, calibration, unused, seed=2, config=CONFIG)
    np.testing.assert_allclose(found.error, np.tile(steps, (2, 1)), atol=1e-9)
    np.testing.assert_allclose(found.std, np.tile(np.arange(1.0, 7.0), (4, 1)))
    np.testing.assert_array_equal(found.appearance, [4, 4, 9, 9])
    np.testing.assert_array_equal(found.time_s, [0.0, 2.0, 0.0, 2.0])
    assert len(set(rngs)) == 2, "each clip has its own random numbers"
    again = list(rngs)
    contour_errors.measure(unused, unused, calibration, unused, seed=2, config=CONFIG)
    assert rngs[2:] == again
    contour_errors.measure(unused, unused, calibration, unused, seed=3, config=CONFIG)
    assert not set(rngs[4:]) & set(again)


def test_a_threshold_is_below_all_but_a_share_of_detections() -> None:
    """By ranks of a hundred and one qualities: the highest of 98 in 100 empty ones, the lowest of the true ones."""
    quality, empty = np.linspace(0.5, 0.9, 101), np.linspace(0.0, 0.2, 101)
    config = UncertaintyConfig(missed_share=0.05)
    assert detection_threshold(quality, empty, config) == pytest.approx(np.sqrt(empty[98] * quality[5]))
    assert detection_threshold(quality, empty + 0.6, config) == pytest.approx(quality[10])
    low = np.full(101, 0.53)  # above the lowest share, below twice the share
    assert detection_threshold(quality, low, config) == pytest.approx(0.53)
    assert detection_threshold(quality, np.full(101, quality[5]), config) == pytest.approx(quality[5])
    assert detection_threshold(np.full(9, 5e-4), np.full(9, 1e-4), config) == pytest.approx(1e-3)


def test_evidence_is_summed_over_the_frames_of_a_clip() -> None:
    evidence = np.array([[1.0, 2.0], [0.5, -4.0], [3.0, 3.5], [0.0, 0.25]])
    sequence = np.array([7, 2, 7, 2])
    np.testing.assert_array_equal(_sums(evidence, sequence), [[0.5, -3.75], [4.0, 5.5]])
    assert hypothesis_right_share(evidence, sequence) == 0.5
    assert hypothesis_right_share(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), np.arange(3)) == 0.3333
    values = np.array([[1000.0, 1001.0, 999.0], [-2000.0, -2000.0, -2000.0]])
    expected = [1001.0 + np.log(1.0 + np.exp(-1.0) + np.exp(-2.0)), -2000.0 + np.log(3.0)]
    np.testing.assert_allclose(_log_sum_exp(values), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_divisor_has_the_greatest_likelihood_of_all_that_are_tried(seed: int) -> None:
    """With one wrong clip more, of the median distance of the best from the second."""
    rng = np.random.default_rng(seed)
    totals = rng.normal(0.0, 6.0, (15, 3))
    totals[:, 0] += 10.0
    best = np.sort(totals, axis=1)
    wrong = np.median([row[2] - row[1] for row in best])

    def cost(t: float) -> float:
        total = np.log(1.0 + np.exp(-wrong / t)) + wrong / t
        for row in totals:
            total -= np.log(np.exp(row[0] / t) / sum(np.exp(each / t) for each in row))
        return float(total)

    tried = [200.0 ** (n / 199.0) for n in range(200)]
    assert evidence_divisor(totals, np.arange(15)) == pytest.approx(min(tried, key=cost))
    assert evidence_divisor(1e-3 * totals, np.arange(15)) == 1.0
    hopeless = np.tile([[0.0, 9e3]], (15, 1))
    assert evidence_divisor(hopeless, np.arange(15)) == pytest.approx(200.0)
    assert evidence_divisor(hopeless[:, :1], np.arange(15)) == 1.0


def test_shares_of_a_calibration_have_four_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven frames and of six searches; a quality at a threshold is above it."""
    quality, empty = np.array([0.1, 0.5, 0.6, 0.7, 0.73, 0.8, 0.9]), np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.71])
    nothing = np.zeros((7, 1))
    data = Residuals(
        nothing, nothing, nothing > 0.0, nothing, np.full(7, 50.0), quality, np.array([0, 0, 0, 1, 1, 2, 2]), quality
    )
    found = calibrate.HeldOutDetections(data, quality, empty, np.tile([1.0, 0.0], (7, 1)))
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: found)
    monkeypatch.setattr(calibrate, "detection_threshold", lambda *_: 0.5)
    monkeypatch.setattr(calibrate, "fit", lambda some, start, config: start)
    monkeypatch.setattr(calibrate, "normalised", lambda some, model, config: {})
    unused: Any = None
    model = calibrate.calibrate(unused, unused, config=UncertaintyConfig(false_share=0.2))
    assert model.min_quality == 0.5
    assert model.still_quality == 0.5, "0.42 is below that of any detection"
    shares = {"frames": 6.0, "sighted_share": 0.8571, "still_sighted_share": 0.8571, "false_still_share": 0.1667}
    assert model.normalised == shares | {"branch_right_share": 1.0}
    strict = calibrate.calibrate(unused, unused, config=UncertaintyConfig(false_share=0.0))
    assert strict.still_quality == pytest.approx(0.73)
    assert strict.normalised["false_still_share"] == 0.0
    assert strict.normalised["still_sighted_share"] == pytest.approx((quality >= strict.still_quality).mean(), abs=5e-5)


def test_halves_are_pooled_by_their_mean_squares() -> None:
    values = iter([{"a": 3.0, "b": -1.0}, {"a": 4.0, "b": 1.0}])
    found = cross_validated(np.array([1, 2, 3]), lambda fitting, checking: next(values))
    assert found == {"a": 3.5355, "b": 1.0}


@pytest.mark.parametrize("trimmed", [True, False])
def test_factors_are_judged_by_the_other_half(trimmed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the least number of appearances on."""
    log = list[Any]()

    def fit(errors: RefinementErrors, *, trimmed: bool, config: Any) -> tuple[Array, Array]:
        log.append(("fit", np.unique(errors.appearance).tolist(), trimmed, config))
        return np.array([2.0, float(len(log))]), np.array([0.1, 0.2])

    def normalised(errors: Any, scale: Array, names: Any, *, trimmed: bool, config: Any) -> dict[str, float]:
        log.append(("judge", np.unique(errors.appearance).tolist(), trimmed, scale[1], names))
        return {"x": 1.0}

    monkeypatch.setattr(alignment_errors, "fit", fit)
    monkeypatch.setattr(alignment_errors, "normalised", normalised)
    errors = RefinementErrors(np.zeros((10, 2)), np.ones((10, 2)), np.repeat(np.arange(5), 2), np.zeros(10))
    before = replace(Calibration(), normalised={"x": 7.0, "contour_x": 5.0})
    after = with_contour(before, errors, ("p", "q"), trimmed=trimmed, config=CONFIG)
    assert (after.contour_scale, after.contour_correlation_s) == ((2.0, 1.0), (0.1, 0.2))
    assert after.normalised == {"x": 7.0, "contour_x": 1.0}
    names = ("p", "q")
    assert log == [
        ("fit", [0, 1, 2, 3, 4], trimmed, CONFIG),
        ("fit", [0, 2, 4], trimmed, CONFIG), ("judge", [1, 3], trimmed, 2.0, names),
        ("fit", [1, 3], trimmed, CONFIG), ("judge", [0, 2, 4], trimmed, 4.0, names),
    ]  # fmt: skip
    few = errors.of_appearances(np.arange(4))
    assert with_contour(before, few, ("p", "q"), config=CONFIG) is before


@pytest.mark.parametrize(("size", "truth_wins"), [(0.9, True), (1.1, False)])
def test_points_far_off_count_as_a_tenth_of_the_view_for_the_labels(size: float, truth_wins: bool) -> None:
    """By the true labels two points are off by `size` of the limit together; by the others one more is far off."""
    camera = Camera(np.array([[300.0, 0.0, 160.0], [0.0, 300.0, 120.0], [0.0, 0.0, 1.0]]), 320, 240)
    view = make_view(camera, np.zeros(2), 0.2, 80)
    step = size * 0.1 * 80 / 4.0
    places = np.array([[20.0, 20.0], [60.0, 20.0], [40.0, 60.0], [40.0, 60.0 + 2.0 * step]])
    bearings = view_to_bearings(view, places)[0]
    points = np.column_stack([bearings, np.ones(4)])
    pair = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
    seen_px = places[[0, 1, 3, 2]]
    seen_px[0] = [0.0, 900.0]  # far under each label; the second is right by the truth and far by the pair
    model: Any = SimpleNamespace(points_body=points, permutation=pair)
    clip: Any = SimpleNamespace(
        rotation=np.eye(3)[None], translation=np.zeros((1, 3)), cameras=[camera], clock_s=np.zeros(1)
    )
    seen: Any = SimpleNamespace(
        views=[view], bearings=view_to_bearings(view, seen_px)[0][None], raw_px=np.tile(np.eye(2), (1, 4, 1, 1)),
        inside=np.ones((1, 4), dtype=bool), angular_radius=np.array([0.1]), diameter_px=np.array([60.0]),
        quality=np.ones((1, 1)),
    )  # fmt: skip
    found = calibrate._residuals(model, clip, seen, 1)
    labelled = seen_px if truth_wins else seen_px[[1, 0, 3, 2]]
    np.testing.assert_allclose(found.error[0], labelled - places, atol=1e-6)
