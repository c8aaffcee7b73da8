"""Calibrate a model: its error model, the quality of a detection, the temperature of the evidence for a hypothesis.

Errors are measured on held-out appearances, through the camera pipeline and the code that tracks. Two-fold
cross-validation over appearances checks the error model: normalised residuals near 1 are honest. The result is fitted
to all appearances.

Limits: rendered appearances stand for real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.pnp import known_pose
from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.engine.virtual_camera import bearings_to_view, in_frame, view_to_bearings
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.held_out import HeldOutClip, make_clips
from vid2phys.tracking.detectors.network import Detections, detect, direction_and_size
from vid2phys.tracking.detectors.search import plausible
from vid2phys.tracking.hypotheses import front_evidence
from vid2phys.tracking.uncertainty import alignment_errors, contour_errors
from vid2phys.tracking.uncertainty.alignment_errors import POSE_MODES, RefinementErrors, pose_sizes
from vid2phys.tracking.uncertainty.config import DEFAULTS, UncertaintyConfig
from vid2phys.tracking.uncertainty.fit_errors import Residuals, fit, normalised
from vid2phys.types import Array, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model


@dataclass(frozen=True)
class HeldOutDetections:
    """Detections in N held-out frames.

    Attributes:
        residuals: Errors of the keypoints, labelled as the truth.
        quality: [N] of the detections.
        empty_quality: [M] best quality in M images without the body.
        evidence: [N, G] log-probability of the front map for each symmetry element, the true one first.
    """

    residuals: Residuals
    quality: Array
    empty_quality: Array
    evidence: Array


def calibrate(
    model: Model,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> Calibration:
    """Calibrate a trained model's detections.

    Args:
        model: The trained model.
        renders: Sequences with held-out appearances.
        seed: Seed of all random numbers.
        progress: Is called with the share of clips done.
        config: Settings.
    """
    start = Calibration()
    measured = measure(model, renders, start, seed=seed, progress=progress, config=config)
    quality = detection_threshold(measured.quality, measured.empty_quality, config)
    still = max(quality, min(0.9, float(np.quantile(measured.empty_quality, 1.0 - config.false_share)) + 0.02))
    seen = replace(measured, residuals=measured.residuals[measured.quality >= quality])
    start = replace(start, min_quality=quality, still_quality=still)
    calibration = fit(seen.residuals, start, config)
    divisor = evidence_divisor(measured.evidence, measured.residuals.sequence)
    numbers = cross_validated(
        np.unique(measured.residuals.sequence),
        lambda fitting, checking: normalised(
            seen.residuals.of_sequences(checking),
            fit(seen.residuals.of_sequences(fitting), start, config),
            config=config,
        ),
    )
    numbers["frames"] = float((measured.quality >= quality).sum())
    numbers["sighted_share"] = round(float((measured.quality >= quality).mean()), 4)
    numbers["still_sighted_share"] = round(float((measured.quality >= still).mean()), 4)
    numbers["false_still_share"] = round(float((measured.empty_quality >= still).mean()), 4)
    numbers["branch_right_share"] = hypothesis_right_share(measured.evidence, measured.residuals.sequence)
    return replace(calibration, evidence_divisor=divisor, normalised=numbers)


def calibrate_aligning(
    calibration: Calibration,
    mesh: Mesh,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> Calibration:
    """Add the measured errors of poses that are aligned to pixels to an error model. Arguments: see `calibrate`."""
    errors = alignment_errors.measure(mesh, renders, seed=seed, progress=progress, config=config)
    scale, correlation_s, numbers = _fitted(errors, "align", POSE_MODES, pose_sizes, config=config)
    numbers = calibration.normalised | numbers
    return replace(calibration, align_scale=scale, align_correlation_s=correlation_s, normalised=numbers)


def calibrate_contour(
    calibration: Calibration,
    mesh: Mesh,
    model: Model,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> Calibration:
    """Add the measured errors of contour fits to an error model; return it unchanged where too few clips have any.

    Arguments: see `calibrate`.
    """
    errors = contour_errors.measure(mesh, model, calibration, renders, seed=seed, progress=progress, config=config)
    return with_contour(calibration, errors, POSE_MODES, pose_sizes, config=config)


def with_contour(
    calibration: Calibration,
    errors: RefinementErrors,
    names: Sequence[str],
    sizes: Callable[[RefinementErrors], dict[str, float]] | None = None,
    *,
    trimmed: bool = True,
    config: UncertaintyConfig = DEFAULTS,
) -> Calibration:
    """Add the errors of contour fits to an error model; return it unchanged for too few appearances.

    Args:
        calibration: The error model.
        errors: Measured errors.
        names: Names of the modes.
        sizes: Further numbers of the errors to report.
        trimmed: See `alignment_errors.fit`.
        config: Settings.
    """
    if len(np.unique(errors.appearance)) < config.min_appearances:
        return calibration
    scale, correlation_s, numbers = _fitted(errors, "contour", names, sizes, trimmed, config=config)
    numbers = calibration.normalised | numbers
    return replace(calibration, contour_scale=scale, contour_correlation_s=correlation_s, normalised=numbers)


def _fitted(
    errors: RefinementErrors,
    prefix: str,
    names: Sequence[str],
    sizes: Callable[[RefinementErrors], dict[str, float]] | None,
    trimmed: bool = True,
    *,
    config: UncertaintyConfig,
) -> tuple[tuple[float, ...], tuple[float, ...], dict[str, float]]:
    """Return factors and correlation times [s] of refined poses, one per mode, and the cross-validated numbers.

    These are the numbers of `normalised` and `sizes`, under names with the prefix.
    """

    def judge(fitting: NDArray[np.int64], checking: NDArray[np.int64]) -> dict[str, float]:
        checked = errors.of_appearances(checking)
        scale, _ = alignment_errors.fit(errors.of_appearances(fitting), trimmed=trimmed, config=config)
        found = alignment_errors.normalised(checked, scale, names, trimmed=trimmed, config=config)
        found |= sizes(checked) if sizes is not None else {}
        return {f"{prefix}_{name}": value for name, value in found.items()}

    scale, correlation_s = alignment_errors.fit(errors, trimmed=trimmed, config=config)
    return tuple(scale.tolist()), tuple(correlation_s.tolist()), cross_validated(np.unique(errors.appearance), judge)


def cross_validated(
    appearances: NDArray[np.int64],
    judge: Callable[[NDArray[np.int64], NDArray[np.int64]], dict[str, float]],
) -> dict[str, float]:
    """Return the root mean squares of judge(fitting, checking) over both halves of the appearances."""
    halves = appearances[0::2], appearances[1::2]
    found = judge(*halves), judge(*halves[::-1])
    return {name: round(float(np.sqrt(np.mean([f[name] ** 2 for f in found]))), 4) for name in found[0]}


def measure(
    model: Model,
    renders: RenderSet,
    calibration: Calibration,
    *,
    seed: int,
    progress: Callable[[float], None] | None = None,
    config: UncertaintyConfig = DEFAULTS,
) -> HeldOutDetections:
    """Detect the body in the clips of all appearances as the second pass of the tracker does."""
    parts = []
    for sequence, clip in make_clips(renders, model.radius_m, config.max_appearances, seed=seed, progress=progress):
        rng = np.random.default_rng([seed, sequence, 5])
        parts.append(_measure_clip(model, clip, sequence, calibration, rng, config))
    residuals = Residuals(
        **{f.name: np.concatenate([getattr(p.residuals, f.name) for p in parts]) for f in fields(Residuals)}
    )
    names = ("quality", "empty_quality", "evidence")
    return HeldOutDetections(residuals, *(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def _measure_clip(
    model: Model,
    clip: HeldOutClip,
    sequence: int,
    calibration: Calibration,
    rng: np.random.Generator,
    config: UncertaintyConfig,
) -> HeldOutDetections:
    """Detect the body in every frame of a clip, and in its empty background."""
    center, radius = direction_and_size(clip.translation, model.radius_m)
    steady = rng.normal(0.0, 0.5, 3)
    seen = []
    for i, (frame, camera) in enumerate(zip(clip.frames, clip.cameras, strict=True)):
        error = steady + rng.normal(0.0, 0.8, 3)
        aside = center[i] + error[:2] * config.view_offset * 3.0 * np.tan(radius[i])
        size = radius[i] * np.exp(error[2] * config.view_size_offset)
        seen.append(detect(model, camera, [frame], aside[None], size[None], calibration))
    empty = _empty_quality(model, clip, center[0], float(radius[0]), calibration, rng, config)
    detections = Detections.join(seen)
    residuals = _residuals(model, clip, detections, sequence)
    truth = known_pose(Pose(clip.rotation, clip.translation))[:, None]
    body_front = None if model.front is None else model.points_body[model.front]
    evidence = front_evidence(
        detections.front_logprob, detections.views, truth, model.rotations, body_front, model.center
    )[:, 0]
    return HeldOutDetections(residuals, detections.quality[:, 0], np.array([empty]), evidence)


def _empty_quality(
    model: Model,
    clip: HeldOutClip,
    center: Array,
    radius: float,
    calibration: Calibration,
    rng: np.random.Generator,
    config: UncertaintyConfig,
) -> float:
    """Return the best quality that a search for the body finds in an image without it."""
    count = config.empty_searches
    camera, image = clip.cameras[0], clip.background
    centers = center + rng.uniform(-1.5, 1.5, (count, 2)) * np.tan(radius)
    radii = radius * np.exp(rng.normal(0.0, 0.3, count))
    first = detect(model, camera, [image] * count, centers, radii, calibration)
    score = first.quality[:, 0] * plausible(first, model.radius_m)
    best = np.argsort(-score)[:2]
    best = best[score[best] > 0.0]
    if not len(best):
        return 0.0
    places = direction_and_size(first.poses.translation[best, 0], model.radius_m)
    again = detect(model, camera, [image] * len(best), *places, calibration)
    return float((again.quality[:, 0] * plausible(again, model.radius_m)).max())


def _residuals(model: Model, clip: HeldOutClip, seen: Detections, sequence: int) -> Residuals:
    """Return detected minus true keypoints in view pixels, under the symmetry element that fits best."""
    truth = project_points(Pose(clip.rotation, clip.translation), model.points_body)
    modes = pose_modes(Pose(clip.rotation, clip.translation), model.points_body)
    count, points = truth.shape[:2]
    error, jacobian = np.zeros((count, points, 2)), np.zeros((count, points, 2, 2))
    raw, used = np.zeros_like(jacobian), np.zeros((count, points), dtype=bool)
    for n, view in enumerate(seen.views):
        place, detected = bearings_to_view(view, truth[n]), bearings_to_view(view, seen.bearings[n])
        jacobian[n] = np.linalg.inv(view_to_bearings(view, place)[1])
        candidates = place[model.permutation]  # [G, K, 2]: places of the points under each labelling
        distance = np.minimum(np.linalg.norm(detected - candidates, axis=-1), 0.1 * view.size)
        order = model.permutation[int(np.argmin(distance.sum(axis=-1)))]
        inverse = np.argsort(order)
        error[n], raw[n] = detected[inverse] - place, seen.raw_px[n][inverse]
        used[n] = in_frame(clip.cameras[n], truth[n]) & seen.inside[n][inverse]
    scaled = jacobian @ modes
    scaled[..., 3:5] *= seen.angular_radius[:, None, None, None]
    index = np.full(count, sequence, dtype=np.int64)
    return Residuals(error, raw, used, scaled, seen.diameter_px, seen.quality[:, 0], index, clip.clock_s)


def detection_threshold(quality: Array, empty_quality: Array, config: UncertaintyConfig = DEFAULTS) -> float:
    """Return the least quality of a detection: above nearly all empty images, below nearly all true detections.

    It lies between the two where they are apart. Otherwise it is the highest one that misses at most twice the allowed
    share of the true detections.
    """
    low, high = float(np.quantile(empty_quality, 0.98)), float(np.quantile(quality, config.missed_share))
    middle = np.sqrt(max(low, 1e-3) * max(high, 1e-3))
    return float(middle if low < high else min(low, float(np.quantile(quality, 2.0 * config.missed_share))))


def _sums(evidence: Array, sequence: NDArray[np.int64]) -> Array:
    """Return the evidence summed over the frames of each clip."""
    return np.stack([evidence[sequence == s].sum(axis=0) for s in np.unique(sequence)])


def evidence_divisor(evidence: Array, sequence: NDArray[np.int64]) -> float:
    """Return the temperature of greatest likelihood of a clip's summed front-map evidence.

    One confident error is added to the data. Otherwise the temperature would be zero where no clip is wrong.
    """
    totals = _sums(evidence, sequence)
    if totals.shape[1] < 2:
        return 1.0
    rival = np.sort(totals, axis=1)[:, ::-1]
    wrong = np.median(rival[:, 0] - rival[:, 1])  # a confident mistake of ordinary size
    temperatures = np.exp(np.linspace(0.0, np.log(200.0), 200))
    cost = [
        np.sum(_log_sum_exp(totals / t) - totals[:, 0] / t) + wrong / t + _log_sum_exp(np.array([[0.0, -wrong / t]]))[0]
        for t in temperatures
    ]
    return float(temperatures[int(np.argmin(cost))])


def _log_sum_exp(values: Array) -> Array:
    top = values.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0])


def hypothesis_right_share(evidence: Array, sequence: NDArray[np.int64]) -> float:
    """Return the share of clips in which the summed evidence is highest for the true symmetry element."""
    return round(float((np.argmax(_sums(evidence, sequence), axis=1) == 0).mean()), 4)
