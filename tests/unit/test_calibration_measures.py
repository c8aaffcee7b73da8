"""What calibrations measure on held-out clips and report, with a stand-in for the network and known errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.painted import CAMERA, POINTS, RADIUS_M, PaintedModel, make_scene, paint
from vid2phys.engine.pose_geometry import project_points
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.risp.renders.held_out import HeldOutClip
from vid2phys.tracking.contour_refinement import LEAST_PX
from vid2phys.tracking.detectors.network import Detections, detect, direction_and_size
from vid2phys.tracking.uncertainty import alignment_errors, calibrate, contour_errors
from vid2phys.tracking.uncertainty.alignment_errors import POSE_MODES, RefinementErrors, _correlation_s, robust_size
from vid2phys.tracking.uncertainty.calibrate import (
    HeldOutDetections,
    calibrate_aligning,
    calibrate_contour,
    cross_validated,
    detection_threshold,
    evidence_divisor,
    hypothesis_right_share,
    measure,
)
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.tracking.uncertainty.fit_errors import Residuals
from vid2phys.types import Array

FRAMES = 4
UNUSED: Any = None


class Painted(PaintedModel):
    """The stand-in, with what a calibration asks a model for."""

    radius_m = RADIUS_M
    shape = SimpleNamespace(kind="rigid")


def held_out(seed: int) -> HeldOutClip:
    """A clip of the body, and of its background alone."""
    t = np.arange(FRAMES) / 30.0
    way = np.stack([0.1 + 0.3 * t, 0.05 - 0.2 * t, 1.8 + 0.1 * t], axis=1)
    scene = make_scene(way, seed=seed)
    background = paint(np.random.default_rng(seed), None, way[0])
    frames, cameras = list(scene.clip.frames), [replace(CAMERA, camera_to_world=None)] * FRAMES
    return HeldOutClip(frames, cameras, scene.rotation, scene.translation, t, 60.0, background)


def clips_of(given: list[Any]) -> Any:
    """A stand-in for `make_clips` of two clips, which notes what it is given."""

    def make(renders: Any, radius_m: float, most: int, **options: Any) -> Iterator[tuple[int, HeldOutClip]]:
        given.append((radius_m, most, options))
        yield 3, held_out(0)
        yield 5, held_out(1)

    return make


@pytest.fixture(scope="module")
def measured() -> tuple[HeldOutDetections, list[Any], list[tuple[Array, Array]]]:
    given, places = list[Any](), list[tuple[Array, Array]]()

    def noted(model: Any, camera: Any, frames: Any, centers: Array, radii: Array, *more: Any) -> Detections:
        places.append((centers, radii))
        return detect(model, camera, frames, centers, radii, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate, "make_clips", clips_of(given))
        patch.setattr(calibrate, "detect", noted)
        model: Any = Painted()
        return measure(model, UNUSED, Calibration(), seed=1), given, places


def test_held_out_clips_are_detected_in_every_frame(measured: tuple[HeldOutDetections, list[Any], list[Any]]) -> None:
    found, given, _ = measured
    assert given == [(RADIUS_M, 120, {"seed": 1, "progress": None})]
    residuals = found.residuals
    assert residuals.sequence.tolist() == [3] * FRAMES + [5] * FRAMES
    assert residuals.error.shape == (2 * FRAMES, 8, 2)
    assert np.median(np.linalg.norm(residuals.error, axis=-1)[residuals.used]) < 0.5, "pixels of the view"
    np.testing.assert_array_equal(residuals.quality, found.quality)
    assert (found.quality > 0.3).all()
    np.testing.assert_array_equal(residuals.time_s[:FRAMES], held_out(0).clock_s)
    assert found.empty_quality.shape == (2,)
    assert (found.empty_quality < 0.1).all()
    assert found.evidence.shape == (2 * FRAMES, 4)
    assert hypothesis_right_share(found.evidence, residuals.sequence) == 1.0, "the true element comes first"
    assert (found.evidence[:, 0] > found.evidence[:, 1:].max(axis=1) + 1.0).mean() > 0.5, "of most frames by itself"


def test_virtual_cameras_err_as_in_a_second_pass(measured: tuple[HeldOutDetections, list[Any], list[Any]]) -> None:
    """Offsets are a few hundredths of the image, partly the same in a clip; those of empty images reach further."""
    places = [(centers[0], radii[0]) for centers, radii in measured[2] if len(radii) == 1][: 2 * FRAMES]
    off, sizes = list[Array](), list[float]()
    for n, (center, radius) in enumerate(places):
        clip = held_out(n // FRAMES)
        true, size = direction_and_size(clip.translation[n % FRAMES], RADIUS_M)
        off.append((center - true) / (3.0 * np.tan(size)))
        sizes.append(float(np.log(radius / size)))
    spread = np.sqrt(np.mean(np.square(off)))
    assert 0.3 * 0.02 < spread < 2.0 * 0.02
    assert 0.3 * 0.03 < np.sqrt(np.mean(np.square(sizes))) < 2.0 * 0.03
    empty = [(centers, radii) for centers, radii in measured[2] if len(radii) == DEFAULTS.empty_searches]
    assert len(empty) == 2
    for k, (centers, radii) in enumerate(empty):
        true, size = direction_and_size(held_out(k).translation[0], RADIUS_M)
        apart = (centers - true) / np.tan(size)
        assert np.abs(apart).max() <= 1.5
        assert np.abs(apart).max() > 0.7
        assert 0.05 < np.std(np.log(radii / size)) < 0.7


def test_a_search_in_an_empty_image_is_repeated_where_something_is_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best two places of six are detected again; the quality of an implausible one does not count."""
    asked, clip = list[int](), held_out(0)
    qualities = {6: [0.1, 0.6, 0.3, 0.9, 0.5, 0.2], 2: [0.35, 0.7]}
    plausible = {6: [True, True, True, False, True, True], 2: [True, False]}

    def seen(model: Any, camera: Any, images: Any, centers: Array, radii: Array, calibration: Any) -> Any:
        asked.append(len(images))
        assert all(image is clip.background for image in images)
        if len(images) == 2:  # places of the best two
            np.testing.assert_allclose(centers[:, 0], [0.01, 0.04])
        places = np.stack([0.01 * np.arange(len(images)), np.zeros(len(images)), np.ones(len(images))], axis=1)
        poses = SimpleNamespace(translation=places[:, None])
        return SimpleNamespace(quality=np.array(qualities[len(images)])[:, None], poses=poses)

    monkeypatch.setattr(calibrate, "detect", seen)
    monkeypatch.setattr(calibrate, "plausible", lambda found, radius_m: np.array(plausible[len(found.quality)]))
    given: Any = Painted(), clip, np.zeros(2), 0.03, Calibration(), np.random.default_rng(0), DEFAULTS
    assert calibrate._empty_quality(*given) == 0.35
    assert asked == [6, 2]
    plausible[6] = [False] * 6
    assert calibrate._empty_quality(*given) == 0.0
    assert asked == [6, 2, 6]


def test_halves_of_the_appearances_check_each_other() -> None:
    asked = list[tuple[list[int], list[int]]]()

    def judge(fitting: Any, checking: Any) -> dict[str, float]:
        asked.append((fitting.tolist(), checking.tolist()))
        return {"a": float(len(asked)), "b": 3.0}

    assert cross_validated(np.array([2, 4, 5, 7, 8]), judge) == {"a": pytest.approx(2.5**0.5, abs=1e-4), "b": 3.0}
    assert asked == [([2, 5, 8], [4, 7]), ([4, 7], [2, 5, 8])]


def test_numbers_of_a_calibration_are_shares_of_what_was_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40
    quality, empty = np.linspace(0.305, 0.695, count), np.linspace(0.0, 0.3, 11)
    per_frame = np.zeros((count, 1))
    data = Residuals(
        per_frame, per_frame, per_frame > 0.0, per_frame, np.full(count, 50.0), quality,
        np.repeat(np.arange(4), 10), np.tile(np.arange(10.0), 4),
    )  # fmt: skip
    evidence = np.zeros((count, 2))
    evidence[:30, 0], evidence[30:, 1] = 1.0, 1.0
    found = HeldOutDetections(data, quality, empty, evidence)
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: found)
    monkeypatch.setattr(calibrate, "detection_threshold", lambda *_: 0.4)
    fitted = list[tuple[int, Calibration]]()

    def fit(some: Residuals, start: Calibration, config: UncertaintyConfig) -> Calibration:
        fitted.append((len(some.quality), start))
        assert (some.quality >= 0.4).all()
        return replace(start, point_scale=0.5)

    monkeypatch.setattr(calibrate, "fit", fit)
    monkeypatch.setattr(calibrate, "normalised", lambda some, model, config: {"points": float(len(some.quality))})
    model = calibrate.calibrate(UNUSED, UNUSED)
    kept = int((quality >= 0.4).sum())
    assert fitted[0][0] == kept
    assert (model.point_scale, model.min_quality) == (0.5, 0.4)
    still = np.quantile(empty, 0.99) + 0.02
    assert still < 0.4, "so that it is that of any detection"
    assert model.still_quality == 0.4
    assert model.normalised["frames"] == kept
    assert model.normalised["sighted_share"] == kept / count
    assert model.normalised["still_sighted_share"] == kept / count
    assert model.normalised["false_still_share"] == 0.0
    assert model.normalised["branch_right_share"] == 0.75
    assert model.evidence_divisor == evidence_divisor(evidence, data.sequence)
    half = [int((data[quality >= 0.4].sequence % 2 == k).sum()) for k in (0, 1)]
    assert model.normalised["points"] == pytest.approx(np.sqrt(np.mean(np.square(half))), abs=1e-4)
    doubtful = replace(found, empty_quality=np.append(empty, [0.6] * 20))
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: doubtful)
    model = calibrate.calibrate(UNUSED, UNUSED)
    assert model.still_quality == pytest.approx(0.62)
    assert model.normalised["still_sighted_share"] == pytest.approx((quality >= 0.62).mean())
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: replace(found, empty_quality=np.full(9, 0.95)))
    assert calibrate.calibrate(UNUSED, UNUSED).still_quality == 0.9


def test_errors_of_refined_poses_join_the_error_model_under_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, true = np.random.default_rng(0), np.array([2.0, 1.0, 3.0, 1.5, 2.5, 0.1])
    number = np.repeat(np.arange(20), 20)
    std = np.full((len(number), 6), 0.01)
    errors = RefinementErrors(rng.normal(size=std.shape) * std * true, std, number, np.tile(np.arange(20) / 30.0, 20))
    monkeypatch.setattr(alignment_errors, "measure", lambda *_, **__: errors)
    monkeypatch.setattr(contour_errors, "measure", lambda *_, **__: errors)
    before = replace(Calibration(), normalised={"points": 0.9})
    aligned = calibrate_aligning(before, UNUSED, UNUSED)
    expected = np.maximum(true, 0.25)
    assert aligned.align_scale == pytest.approx(expected, rel=0.15)
    assert aligned.contour_scale == before.contour_scale
    contours = calibrate_contour(before, UNUSED, UNUSED, UNUSED)
    assert contours.contour_scale == aligned.align_scale
    assert contours.contour_correlation_s == aligned.align_correlation_s
    assert contours.align_scale == before.align_scale
    for model, prefix in ((aligned, "align"), (contours, "contour")):
        assert model.normalised["points"] == 0.9
        names = [*POSE_MODES, "outlier_share", "rotation_deg", "depth_percent"]
        assert set(model.normalised) == {"points", *(f"{prefix}_{name}" for name in names)}
        assert model.normalised[f"{prefix}_{POSE_MODES[0]}"] == pytest.approx(1.0, abs=0.15)


def test_a_threshold_is_the_middle_of_empty_and_true_detections() -> None:
    true, empty = np.full(100, 0.64), np.full(100, 0.04)
    assert detection_threshold(true, empty) == pytest.approx(0.16)  # geometric mean
    assert detection_threshold(true, np.zeros(100)) == pytest.approx(np.sqrt(1e-3 * 0.64))
    quality = np.linspace(0.0, 1.0, 101)
    assert detection_threshold(quality, np.full(9, 0.03)) == pytest.approx(0.03), (
        "it misses fewer than four in a hundred"
    )
    assert detection_threshold(quality, np.full(9, 0.5)) == pytest.approx(0.04)
    few = np.append(np.full(99, 0.64), 0.01)
    assert detection_threshold(few, empty) == pytest.approx(0.16), "one in fifty may be missed"
    assert detection_threshold(true, np.append(np.full(99, 0.04), 0.9)) == pytest.approx(0.16)


def test_evidence_is_divided_so_that_it_is_as_sure_as_it_is_right() -> None:
    """Two elements and clips whose evidence is 8 nats, three quarters right: odds of three need 8 / log 3."""
    right = np.arange(1000) % 4 > 0
    evidence = np.where(right[:, None], [8.0, 0.0], [0.0, 8.0])
    assert evidence_divisor(evidence, np.arange(1000)) == pytest.approx(8.0 / np.log(3.0), rel=0.03)
    assert evidence_divisor(np.tile([8.0, 0.0], (3000, 1)), np.arange(3000)) == pytest.approx(1.0, abs=0.05)
    few = np.tile([8.0, 2.0], (20, 1))  # all right, and one error of the same size that is added
    assert evidence_divisor(few, np.arange(20)) == pytest.approx(6.0 / np.log(20.0), rel=0.03)
    frames = np.repeat(0.25 * evidence, 4, axis=0)  # the same in four frames of each clip
    assert evidence_divisor(frames, np.repeat(np.arange(1000), 4)) == evidence_divisor(evidence, np.arange(1000))
    assert hypothesis_right_share(frames, np.repeat(np.arange(1000), 4)) == 0.75


def test_correlation_times_are_those_of_the_processes() -> None:
    rng, tau_s, rate = np.random.default_rng(2), 0.3, 30.0
    keep, values = np.exp(-1.0 / rate / tau_s), np.zeros((60, 80))
    values[:, 0] = rng.normal(size=60)
    for n in range(1, 80):
        values[:, n] = keep * values[:, n - 1] + np.sqrt(1.0 - keep**2) * rng.normal(size=60)
    number, time_s = np.repeat(np.arange(60), 80), np.tile(np.arange(80) / rate, 60)
    errors = RefinementErrors(values.reshape(-1, 1), np.ones((4800, 1)), number, time_s)
    kept = np.ones(4800, dtype=bool)
    assert _correlation_s(errors, values.ravel(), kept, DEFAULTS) == pytest.approx(tau_s, rel=0.12)
    fitted = alignment_errors.fit(replace(errors, error=4.0 * errors.error, std=2.0 * errors.std))
    assert [float(each[0]) for each in fitted] == pytest.approx([2.0, tau_s], rel=0.15)
    kept[1::2] = False  # lags twice as long
    assert _correlation_s(errors, values.ravel(), kept, DEFAULTS) == pytest.approx(tau_s, rel=0.2)
    white = rng.normal(size=4800)
    assert _correlation_s(errors, white, kept | True, DEFAULTS) < 0.02
    steady = replace(DEFAULTS, correlation_range_s=(0.01, 0.1))
    assert _correlation_s(errors, values.ravel(), kept | True, steady) == pytest.approx(0.1)


def test_outliers_do_not_widen_errors_unless_they_are_to_count() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(4000, 2)) * [1.0, 3.0]
    assert robust_size(values) == pytest.approx([1.0, 3.0], rel=0.05)
    values[::10] = 1e3
    errors = RefinementErrors(values, np.ones_like(values), np.arange(4000), np.zeros(4000))
    scale, _ = alignment_errors.fit(errors)
    assert scale == pytest.approx([1.0, 3.0], rel=0.1)
    wide, _ = alignment_errors.fit(errors, trimmed=False)
    most = 5.0 * robust_size(values)
    assert wide == pytest.approx(np.sqrt(0.9 * np.array([1.0, 9.0]) + 0.1 * most**2), rel=0.05)
    numbers = alignment_errors.normalised(errors, scale, ("a", "b"))
    assert numbers == pytest.approx({"a": 1.0, "b": 1.0, "outlier_share": 0.1}, rel=0.1)
    untrimmed = alignment_errors.normalised(errors, scale, ("a", "b"), trimmed=False)
    assert untrimmed["a"] == pytest.approx(np.sqrt(0.9 + 0.1 * 25.0), rel=0.05)
    tiny = RefinementErrors(1e-3 * values, np.ones_like(values), np.arange(4000), np.zeros(4000))
    assert alignment_errors.fit(tiny)[0].tolist() == [0.25, 0.25]
    assert errors.of_appearances(np.array([1, 3])).error.tolist() == values[[1, 3]].tolist()


def test_alignment_errors_are_those_of_the_aligned_poses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alignment that ends 1 % too far away: that is the error, without a frame that shows nothing or is not usable."""
    given, starts = list[Any](), list[Array]()
    renders: Any = SimpleNamespace(settings=SimpleNamespace(radius_m=RADIUS_M))

    class Stage:
        def __init__(self, mesh: Any, camera: Any, behind: Any) -> None:
            assert behind.known.all()

        def frame_at(self, frame: Array, pose: Pose) -> Any:
            starts.append(pose.translation)
            return None if len(starts) % FRAMES == 2 else SimpleNamespace(pose=pose)

    def align(patches: list[Any]) -> Any:
        true = held_out(len(starts) // FRAMES - 1)
        rows = [0, 2, 3]
        far = 0.01 * np.eye(6)[5]
        steps = np.stack([
            patch.pose.step_to(Pose(true.rotation[i], true.translation[i]).retract(far))
            for i, patch in zip(rows, patches, strict=True)
        ])  # fmt: skip
        covariance = np.tile(np.diag(np.arange(1.0, 7.0) ** 2), (3, 1, 1))
        return SimpleNamespace(steps=steps, covariance=covariance, usable=np.array([True, True, False]))

    monkeypatch.setattr(alignment_errors, "make_clips", clips_of(given))
    monkeypatch.setattr(alignment_errors, "Stage", Stage)
    monkeypatch.setattr(alignment_errors, "align", align)
    found = alignment_errors.measure(UNUSED, renders, seed=2)
    assert given == [(RADIUS_M, 60, {"seed": 2, "progress": None})]
    np.testing.assert_allclose(found.error, np.tile(0.01 * np.eye(6)[5], (4, 1)), atol=1e-9)
    np.testing.assert_array_equal(found.std, np.tile(np.arange(1.0, 7.0), (4, 1)))
    assert found.appearance.tolist() == [3, 3, 5, 5]
    np.testing.assert_array_equal(found.time_s[:2], held_out(0).clock_s[[0, 2]])
    first = held_out(0)
    steps = np.stack([
        Pose(first.rotation[i], first.translation[i]).step_to(Pose(first.rotation[i], starts[i])) for i in range(FRAMES)
    ])  # fmt: skip
    np.testing.assert_allclose(steps[:, 3:], np.tile(steps[0, 3:], (FRAMES, 1)), atol=1e-9)
    assert 0.0 < np.abs(steps[0, 5]) < 3.0 * 0.5 * 0.04, "half of the prior's deviations"


def test_contours_are_fitted_from_poses_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the labels of the truth, and with the covariance that the error model states."""
    given, priors = list[Any](), list[Array]()
    model: Any = Painted()
    calibration = Calibration(point_scale=0.3, point_floor_px=0.4, min_quality=0.2)
    clip = held_out(0)
    seen = list(contour_errors.detect_clip(model, calibration, clip, np.random.default_rng(0), range(FRAMES)))
    assert [pose.frame for pose in seen] == list(range(FRAMES))
    for pose in seen:
        true = Pose(clip.rotation[pose.frame], clip.translation[pose.frame])
        off = true.step_to(Pose(pose.rotation, pose.translation))
        assert np.linalg.norm(off[:3]) < 0.4, "less than half of the symmetry's quarter"
        assert abs(off[5]) < 0.1
        own = np.linalg.norm(
            project_points(true, POINTS) - project_points(Pose(pose.rotation, pose.translation), POINTS), axis=1
        )
        assert own.max() * 900.0 < 5.0
        assert (np.linalg.eigvalsh(pose.covariance) > 0.0).all()
    strict = replace(calibration, min_quality=2.0)
    assert not list(contour_errors.detect_clip(model, strict, clip, np.random.default_rng(0), range(FRAMES)))

    def fit_contour(frame: Any, camera: Any, solid: Any, pose: Pose, prior: Array) -> Any:
        priors.append(prior)
        i = next(i for i in range(FRAMES) if frame is clip.frames[i])
        if i == 1:
            return None
        true = Pose(clip.rotation[i], clip.translation[i])
        return SimpleNamespace(
            pose=true.retract(0.01 * (i + 1) * np.eye(6)[0]), covariance=np.diag(np.arange(1.0, 7.0) ** 2)
        )

    monkeypatch.setattr(contour_errors, "make_clips", lambda *a, **o: given.append((a[1:], o)) or iter([(7, clip)]))  # type: ignore[func-returns-value]
    monkeypatch.setattr(contour_errors, "fit_contour", fit_contour)
    monkeypatch.setattr(contour_errors.Solid, "of", lambda mesh: mesh)
    found = contour_errors.measure(UNUSED, model, calibration, UNUSED, seed=4)
    assert given == [((RADIUS_M, 60), {"seed": 4, "in_frame_px": (LEAST_PX, 200.0), "progress": None})]
    np.testing.assert_allclose(found.error[:, 0], [0.01, 0.03, 0.04], atol=1e-9)
    np.testing.assert_array_equal(found.std, np.tile(np.arange(1.0, 7.0), (3, 1)))
    assert found.appearance.tolist() == [7] * 3
    np.testing.assert_array_equal(found.time_s, clip.clock_s[[0, 2, 3]])
    assert len(priors) == FRAMES
    monkeypatch.setattr(contour_errors, "fit_contour", lambda *_, **__: None)
    none = contour_errors.measure(UNUSED, model, calibration, UNUSED)
    assert none.error.shape == none.std.shape == (0, 6)
