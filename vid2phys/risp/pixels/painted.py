"""A painted body's poses through a clip, by its colours: every frame from its own reading and from its neighbours'.

What a network is unsure of in one frame, its paint shows, given a pose that is nearly right: the frame's own, or that
of the frame before or after. The fit that explains most of the picture is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from vid2phys.risp.calibration.error_model import Calibration
from vid2phys.risp.pixels.paint import Paint
from vid2phys.risp.pixels.paint_fit import PaintFit, fit_paint, mirrored
from vid2phys.risp.tracking.geometry import pose_modes, project_points
from vid2phys.risp.tracking.motion import Indexed
from vid2phys.risp.tracking.pose import Pose
from vid2phys.risp.tracking.tracked import Track
from vid2phys.risp.tracking.view import in_frame
from vid2phys.types import Camera

_LEAST_SCORE = 0.25  # of a fit that is believed,
_LEAST_SHARE = 0.6  # and of the clip's median
_BETTER = 0.03  # by which a neighbour's score has to be, to be worth a second fit
_ASKED = 5  # frames
_NEXT_S = 1.0  # frames further apart are no neighbours
_OVERCONFIDENT = 100.0  # the covariance that pixels state is smaller by this
_STD_FLOOR = np.array([0.03, 0.03, 0.03, 1e-3, 1e-3, 6e-3])  # in modes


def painted(
    frames: Indexed,
    camera: Camera,
    paint: Paint,
    track: Track,
    calibration: Calibration,
    progress: Callable[[float], None] | None = None,
) -> Track:
    """The track with poses and readings of all frames moved to where their colours say the body is.

    Frames that were lost are found where a neighbour's pose explains them; those whose colours nothing explains are
    lost, whatever was read there.
    """
    count = len(track.tracked)
    fits: list[PaintFit | None] = [None] * count
    for way, order in enumerate((range(count), range(count - 1, -1, -1))):
        told = None if progress is None else _half(progress, way)
        _pass(frames, camera, paint, track, fits, order, told)
    scores = np.array([-np.inf if fit is None else fit.score for fit in fits])
    sure = np.isfinite(scores)
    least = max(_LEAST_SCORE, _LEAST_SHARE * float(np.median(scores[sure]))) if sure.any() else np.inf
    return _moved(track, camera, {i: fit for i, fit in enumerate(fits) if fit and fit.score >= least}, calibration)


def _half(progress: Callable[[float], None], way: int) -> Callable[[float], None]:
    return lambda share: progress(0.5 * (way + share))


def _pass(
    frames: Indexed,
    camera: Camera,
    paint: Paint,
    track: Track,
    fits: list[PaintFit | None],
    order: Iterable[int],
    progress: Callable[[float], None] | None,
) -> None:
    """Fits all frames in an order, each from the best of: its fit so far, its reading, the fit of the frame before.

    While the body goes on as before, as well explained, its own reading is asked now and then only.
    """
    times, last = track.observation.times_s, -1
    for done, i in enumerate(order):
        now, before = fits[i], fits[last] if last >= 0 and abs(times[i] - times[last]) < _NEXT_S else None
        if progress is not None:
            progress(done / len(fits))
        if now is not None and (before is None or before.score < now.score + _BETTER):
            last = i if now.score >= _LEAST_SCORE else last
            continue
        if now is None and before is None and not track.tracked[i]:
            continue
        frame = frames[i]
        best = (
            now
            if before is None
            else _better(now, fit_paint(frame, camera, paint, before.rotation, before.translation))
        )
        steady = before is not None and best is not None and best.score > before.score - _BETTER and i % _ASKED != 0
        if now is None and track.tracked[i] and not steady:
            own = track.poses.rotation[i], track.poses.translation[i]
            best = _better(best, fit_paint(frame, camera, paint, *own))
            if best is not None:
                best = _better(best, fit_paint(frame, camera, paint, *mirrored(paint, best.rotation, best.translation)))
        fits[i] = best
        if best is not None and best.score >= _LEAST_SCORE:
            last = i


def _better(one: PaintFit | None, other: PaintFit | None) -> PaintFit | None:
    return max((fit for fit in (one, other) if fit is not None), key=lambda fit: fit.score, default=None)


def _moved(track: Track, camera: Camera, fits: dict[int, PaintFit], calibration: Calibration) -> Track:
    seen, poses = track.observation, track.poses
    bearings, basis, visible = seen.bearings.copy(), seen.shared_basis.copy(), seen.visible.copy()
    covariance, tracked, quality = np.array(seen.covariance), track.tracked.copy(), track.quality.copy()
    fields = {name: getattr(poses, name).copy() for name in ("rotation", "translation", "covariance", "inliers")}
    ordinary = np.median(covariance[track.tracked], axis=0)  # [K, 2, 2]
    unexplained = np.setdiff1d(np.flatnonzero(tracked), list(fits))
    tracked[unexplained], quality[unexplained], visible[unexplained] = False, 0.0, False
    for name in ("rotation", "translation", "covariance"):
        fields[name][unexplained] = np.nan
    for i, fit in fits.items():
        modes = pose_modes(fit.rotation, fit.translation, seen.points_body)
        bearings[i] = project_points(fit.rotation, fit.translation, seen.points_body)  # readings may be far from it
        visible[i] = in_frame(camera, bearings[i])
        if not tracked[i]:
            covariance[i] = ordinary
            fields["inliers"][i], quality[i], tracked[i] = True, fit.score, True
        of_colours = np.linalg.inv(fit.information / _OVERCONFIDENT + np.diag((30.0 * _STD_FLOOR) ** -2.0))
        basis[i] = modes * np.sqrt(np.diag(of_colours) + _STD_FLOOR**2)
        fields["rotation"][i], fields["translation"][i] = fit.rotation, fit.translation
        fields["covariance"][i] = 0.0  # all of it is shared by the points
    correlation_s = np.maximum(seen.correlation_time_s, calibration.align_correlation_s)
    observation = replace(
        seen,
        bearings=bearings,
        covariance=covariance,
        shared_basis=basis,
        visible=visible,
        correlation_time_s=correlation_s,
    )
    return replace(
        track, observation=observation, poses=Pose(**{**vars(poses), **fields}), tracked=tracked, quality=quality
    )
