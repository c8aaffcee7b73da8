"""Calibrating a model: its error model, what counts as a detection, what a clip's evidence for a branch is worth.

Everything is measured on looks held out from training, through the camera chain and the very code that tracks. Each
half of the looks is judged by numbers fitted to the other half: that says whether they are honest (normalised residuals
near 1). What is kept is fitted to all of them.
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
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.held_out import HeldOutClip, make_clips
from vid2phys.tracking.detectors.network import Detections, direction_and_size, look
from vid2phys.tracking.detectors.search import plausible
from vid2phys.tracking.hypotheses import front_evidence
from vid2phys.tracking.uncertainty import alignment_errors, contour_errors
from vid2phys.tracking.uncertainty.alignment_errors import POSE_MODES, RefinementErrors, pose_sizes
from vid2phys.tracking.uncertainty.fit_errors import Residuals, fit, normalised
from vid2phys.types import Array, Mesh

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model

_CENTER, _SIZE = 0.02, 0.03  # spread of where the second pass looks: share of the view, log size
_QUALITY_SHARE = 0.02  # of true detections may be missed
_STILL_SHARE = 0.01  # of searches of an empty image may end with a detection
_PLACES = 6
_MOST_LOOKS = 120
_LEAST_LOOKS = 8  # to say what outlines are worth


@dataclass(frozen=True)
class HeldOutDetections:
    """Readings of N held-out frames. residuals: labelled as truth is. quality: [N]; empty_quality: [M] of searches of
    images without the body. evidence: [N, G] log-probability of the front map at the places of the group's elements,
    the true
    one first."""

    residuals: Residuals
    quality: Array
    empty_quality: Array
    evidence: Array


def calibrate(
    model: Model, renders: RenderSet, seed: int = 0, progress: Callable[[float], None] | None = None
) -> Calibration:
    """The calibration of a trained model from a sequence dataset of looks that it was not trained on."""
    start = Calibration()
    measured = measure(model, renders, start, seed=seed, progress=progress)
    quality = detection_threshold(measured.quality, measured.empty_quality)
    still = float(np.clip(np.quantile(measured.empty_quality, 1.0 - _STILL_SHARE) + 0.02, quality, 0.9))
    seen = replace(measured, residuals=measured.residuals[measured.quality >= quality])
    start = replace(start, min_quality=quality, still_quality=still)
    calibration = fit(seen.residuals, start)
    divisor = evidence_divisor(measured.evidence, measured.residuals.sequence)
    numbers = cross_validated(
        np.unique(measured.residuals.sequence),
        lambda fitting, checking: normalised(
            seen.residuals.of_sequences(checking), fit(seen.residuals.of_sequences(fitting), start)
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
) -> Calibration:
    """The calibration with what poses aligned to pixels (`align`) are worth for this mesh."""
    errors = alignment_errors.measure(mesh, renders, seed=seed, progress=progress)
    scale, correlation_s, numbers = _worth(errors, "align", POSE_MODES, pose_sizes)
    numbers = calibration.normalised | numbers
    return replace(calibration, align_scale=scale, align_correlation_s=correlation_s, normalised=numbers)


def calibrate_contour(
    calibration: Calibration,
    mesh: Mesh,
    model: Model,
    renders: RenderSet,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Calibration:
    """The calibration with what poses fitted to outlines (`contour`) are worth; unchanged where no clip shows one."""
    errors = contour_errors.measure(mesh, model, calibration, renders, seed=seed, progress=progress)
    return with_contour(calibration, errors, POSE_MODES, pose_sizes)


def with_contour(
    calibration: Calibration,
    errors: RefinementErrors,
    names: Sequence[str],
    sizes: Callable[[RefinementErrors], dict[str, float]] | None = None,
    *,
    trimmed: bool = True,
) -> Calibration:
    """The calibration with what was found of fits to outlines; unchanged where too few looks show one.

    names: of the modes. sizes: what is said of the errors besides. trimmed: see `align_errors.fit`.
    """
    if len(np.unique(errors.look)) < _LEAST_LOOKS:
        return calibration
    scale, correlation_s, numbers = _worth(errors, "contour", names, sizes, trimmed)
    numbers = calibration.normalised | numbers
    return replace(calibration, contour_scale=scale, contour_correlation_s=correlation_s, normalised=numbers)


def _worth(
    errors: RefinementErrors,
    prefix: str,
    names: Sequence[str],
    sizes: Callable[[RefinementErrors], dict[str, float]] | None,
    trimmed: bool = True,
) -> tuple[tuple[float, ...], tuple[float, ...], dict[str, float]]:
    """Scale and correlation times [s] of what was fitted to pixels, one a mode, and by what they were judged: numbers
    of `normalised` and `sizes`, all with the prefix."""

    def judge(fitting: NDArray[np.int64], checking: NDArray[np.int64]) -> dict[str, float]:
        checked = errors.of_appearances(checking)
        scale, _ = alignment_errors.fit(errors.of_appearances(fitting), trimmed=trimmed)
        found = alignment_errors.normalised(checked, scale, names, trimmed=trimmed)
        found |= sizes(checked) if sizes is not None else {}
        return {f"{prefix}_{name}": value for name, value in found.items()}

    scale, correlation_s = alignment_errors.fit(errors, trimmed=trimmed)
    return tuple(scale.tolist()), tuple(correlation_s.tolist()), cross_validated(np.unique(errors.look), judge)


def cross_validated(
    looks: NDArray[np.int64],
    judge: Callable[[NDArray[np.int64], NDArray[np.int64]], dict[str, float]],
) -> dict[str, float]:
    """Root mean squares of judge(fitting, checking) over both halves of the looks."""
    halves = looks[0::2], looks[1::2]
    found = judge(*halves), judge(*halves[::-1])
    return {name: round(float(np.sqrt(np.mean([f[name] ** 2 for f in found]))), 4) for name in found[0]}


def measure(
    model: Model,
    renders: RenderSet,
    calibration: Calibration,
    *,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> HeldOutDetections:
    """Reads the clips of all looks (at most 120) as the tracker's second pass does."""
    parts = []
    for sequence, clip in make_clips(renders, model.radius_m, _MOST_LOOKS, seed=seed, progress=progress):
        parts.append(_measure_clip(model, clip, sequence, calibration, np.random.default_rng([seed, sequence, 5])))
    residuals = Residuals(
        **{f.name: np.concatenate([getattr(p.residuals, f.name) for p in parts]) for f in fields(Residuals)}
    )
    names = ("quality", "empty_quality", "evidence")
    return HeldOutDetections(residuals, *(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def _measure_clip(
    model: Model, clip: HeldOutClip, sequence: int, calibration: Calibration, rng: np.random.Generator
) -> HeldOutDetections:
    center, radius = direction_and_size(clip.translation, model.radius_m)
    steady = rng.normal(0.0, 0.5, 3)
    seen = []
    for i, (frame, camera) in enumerate(zip(clip.frames, clip.cameras, strict=True)):
        error = steady + rng.normal(0.0, 0.8, 3)
        aside = center[i] + error[:2] * _CENTER * 3.0 * np.tan(radius[i])
        size = radius[i] * np.exp(error[2] * _SIZE)
        seen.append(look(model, camera, [frame], aside[None], size[None], calibration))
    empty = _best_of_nothing(model, clip, center[0], float(radius[0]), calibration, rng)
    detections = Detections.join(seen)
    residuals = _residuals(model, clip, detections, sequence)
    truth = known_pose(clip.rotation, clip.translation)[:, None]
    body_front = None if model.front is None else model.points_body[model.front]
    evidence = front_evidence(
        detections.front_logprob, detections.views, truth, model.rotations, body_front, model.center
    )[:, 0]
    return HeldOutDetections(residuals, detections.quality[:, 0], np.array([empty]), evidence)


def _best_of_nothing(
    model: Model, clip: HeldOutClip, center: Array, radius: float, calibration: Calibration, rng: np.random.Generator
) -> float:
    """The best quality that a search for the body finds in an image without it."""
    camera, image = clip.cameras[0], clip.background
    centers = center + rng.uniform(-1.5, 1.5, (_PLACES, 2)) * np.tan(radius)
    radii = radius * np.exp(rng.normal(0.0, 0.3, _PLACES))
    first = look(model, camera, [image] * _PLACES, centers, radii, calibration)
    score = first.quality[:, 0] * plausible(first, model.radius_m)
    best = np.argsort(-score)[:2]
    best = best[score[best] > 0.0]
    if not len(best):
        return 0.0
    places = direction_and_size(first.poses.translation[best, 0], model.radius_m)
    again = look(model, camera, [image] * len(best), *places, calibration)
    return float((again.quality[:, 0] * plausible(again, model.radius_m)).max())


def _residuals(model: Model, clip: HeldOutClip, seen: Detections, sequence: int) -> Residuals:
    """Read minus true in view pixels, under the labelling that fits best."""
    truth = project_points(clip.rotation, clip.translation, model.points_body)
    modes = pose_modes(clip.rotation, clip.translation, model.points_body)
    count, points = truth.shape[:2]
    error, jacobian = np.zeros((count, points, 2)), np.zeros((count, points, 2, 2))
    raw, used = np.zeros_like(jacobian), np.zeros((count, points), dtype=bool)
    for n, view in enumerate(seen.views):
        place, read = bearings_to_view(view, truth[n]), bearings_to_view(view, seen.bearings[n])
        jacobian[n] = np.linalg.inv(view_to_bearings(view, place)[1])
        candidates = place[model.permutation]  # [G, K, 2]: where the points would be read under each labelling
        distance = np.minimum(np.linalg.norm(read - candidates, axis=-1), 0.1 * view.size)
        order = model.permutation[int(np.argmin(distance.sum(axis=-1)))]
        inverse = np.argsort(order)
        error[n], raw[n] = read[inverse] - place, seen.raw_px[n][inverse]
        used[n] = in_frame(clip.cameras[n], truth[n]) & seen.inside[n][inverse]
    scaled = jacobian @ modes
    scaled[..., 3:5] *= seen.angular_radius[:, None, None, None]
    index = np.full(count, sequence, dtype=np.int64)
    return Residuals(error, raw, used, scaled, seen.diameter_px, seen.quality[:, 0], index, clip.clock_s)


def detection_threshold(quality: Array, empty_quality: Array) -> float:
    """The least quality of a detection: above nearly all empty images, below nearly all true ones.

    Between the two where they are apart, else as high as can be without missing more than twice the share allowed.
    """
    low, high = float(np.quantile(empty_quality, 0.98)), float(np.quantile(quality, _QUALITY_SHARE))
    middle = np.sqrt(max(low, 1e-3) * max(high, 1e-3))
    return float(middle if low < high else min(low, float(np.quantile(quality, 2.0 * _QUALITY_SHARE))))


def _sums(evidence: Array, sequence: NDArray[np.int64]) -> Array:
    return np.stack([evidence[sequence == s].sum(axis=0) for s in np.unique(sequence)])


def evidence_divisor(evidence: Array, sequence: NDArray[np.int64]) -> float:
    """By how much a clip's summed front-map evidence overstates itself: the temperature of greatest likelihood.

    One error is added to what was seen, so that looks in which all were right do not make the model infinitely sure.
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
    """Share of clips in which the summed evidence is highest for the true branch."""
    return round(float((np.argmax(_sums(evidence, sequence), axis=1) == 0).mean()), 4)
