"""Fit the readout of a rolling shutter to a clip, or see that a clip has one.

Method: for a readout, each pose is moved to the time of its row and fitted to the body as the frame shows it
(`tracking.rolling_shutter`). Two things tell how good a readout is: the edges of each frame, in which a body that moves
is stretched or sheared, and free flights, which are parabolas (`solvers.flights`). Both are linear in a change of the
readout, so that Gauss-Newton steps add them. The standard deviation is that of an M-estimator, with sums of adjacent
frames taken as dependent (Newey and West, "A simple, positive semi-definite, heteroskedasticity and autocorrelation
consistent covariance matrix", 1987), or the one that the information states, whichever is larger.

Limits: rigid bodies that move fast in the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vid2phys.tracking.rolling_shutter import ReadoutFits
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array, Camera, Clip, Mesh

_NORMAL = 1.96
_FIRST, _ROUNDS = 0.5, 4  # readout to start from, in frame intervals; number of Gauss-Newton steps
_PROBE_S = 1e-3  # change of the readout by which flights are differentiated
_MOST_LOOKED = 40  # frames in which a readout is looked for that nobody gave
_SURE, _SHORT = 5.0, 0.1  # standard deviations, and frame intervals, from which on it shows
_LONG = 1.2  # of a frame interval: no readout lasts longer than a frame, and other motions look like one
_TELLING = 0.1  # information of a frame that tells of the readout, as a share of that of the best frame
_MEDIAN_OF_ONE, _MEDIAN_OF_THREE = 0.455, 2.366  # medians of chi-square with so many degrees of freedom
_LAGS = 3  # frames over which errors last


@dataclass(frozen=True)
class ReadoutEstimate:
    """A fitted readout: value and standard deviation, s. The latter is infinite where the clip shows no readout."""

    readout_s: float
    std_s: float

    @property
    def ci95(self) -> tuple[float, float]:
        """Return the 95 % interval, s; no readout is negative."""
        return max(0.0, self.readout_s - _NORMAL * self.std_s), self.readout_s + _NORMAL * self.std_s


def fitted_readout(
    clip: Clip, camera: Camera, mesh: Mesh, track: Track, progress: Callable[[float], None] = lambda share: None
) -> ReadoutEstimate:
    """Fit the readout of a clip by the edges of its frames and by its free flights.

    Args:
        clip: frames and times.
        camera: of the clip; its readout, if it has one, is where the fit starts.
        mesh: of the body.
        track: as a tracker gives it.
        progress: receives the share of the work that is done.
    """
    from vid2phys.tracking import rolling_shutter
    from vid2phys.tracking.frame_store import FrameStore

    frames = FrameStore.of(clip)
    most_s = float(np.median(np.diff(clip.times_s)))
    readout_s, std_s, near = camera.readout_s or _FIRST * most_s, np.inf, None
    for done in range(_ROUNDS):
        at = replace(camera, readout_s=readout_s)
        moved = rolling_shutter.at_row_times(frames, at, mesh, track, clip.times_s, near)
        near = moved.poses.pose
        fits = rolling_shutter.fit_readouts(frames, at, mesh, moved, most_s)
        slope, bend = _edge_terms(fits)
        for more, part in zip(_flight_terms(clip, at, moved, fits), (slope, bend), strict=True):
            part += more
        change_s, std_s = m_estimate(slope, bend)
        readout_s = float(np.clip(readout_s + change_s, -0.5 * most_s, 1.5 * most_s))
        progress((done + 1) / _ROUNDS)
    return ReadoutEstimate(readout_s, std_s)


def apparent_readout(clip: Clip, camera: Camera, mesh: Mesh, track: Track) -> float | None:
    """Return the readout that the edges of the fastest frames show, negative from the bottom; None where none is sure.

    The track takes all rows as exposed at once.
    """
    from vid2phys.tracking.frame_store import FrameStore
    from vid2phys.tracking.rolling_shutter import fit_readouts

    interval_s = float(np.median(np.diff(clip.times_s)))
    fits = fit_readouts(FrameStore.of(clip), camera, mesh, track, interval_s, most=_MOST_LOOKED)
    change_s, std_s = m_estimate(*_edge_terms(fits))
    seen = max(_SURE * std_s, _SHORT * interval_s) <= abs(change_s) <= _LONG * interval_s
    return change_s if seen else None


def m_estimate(slope: Array, bend: Array) -> tuple[float, float]:
    """Return the minimum of a sum of parabolas and its standard deviation, which is infinite where all are flat.

    slope, bend: [T] first and second derivatives at zero, of half the squared residuals in standard deviations. The
    larger counts of the deviation that the bend states, and of the one by the scatter of the slopes.
    """
    if bend.sum() <= 0.0:
        return 0.0, np.inf
    change = -float(slope.sum() / bend.sum())
    score = slope + bend * change
    square = float(score @ score)
    for lag in range(1, _LAGS + 1):
        square += 2.0 * (1.0 - lag / (_LAGS + 1.0)) * float(score[lag:] @ score[:-lag])
    return change, float(np.sqrt(max(square, bend.sum())) / bend.sum())


def _edge_terms(fits: ReadoutFits) -> tuple[Array, Array]:
    """Return slope and bend [T] of the misfit of the edges by the readout."""
    from vid2phys.solvers.least_squares import student_weights

    square = fits.information * fits.change_s**2
    telling = fits.information > _TELLING * fits.information.max()
    if not telling.any() or not fits.information.max():
        return np.zeros_like(square), np.zeros_like(square)
    middle = float(np.average(fits.change_s, weights=fits.information))
    square = fits.information * (fits.change_s - middle) ** 2
    scale = max(float(np.median(square[telling])) / _MEDIAN_OF_ONE, 1.0)
    bend = fits.information / scale * student_weights(square / scale)
    return -bend * fits.change_s, bend


def _flight_terms(clip: Clip, camera: Camera, track: Track, fits: ReadoutFits) -> tuple[Array, Array]:
    """Return slope and bend [T] of the misfit of free flights by the readout; zeros where the body does not fall."""
    from vid2phys.commands.identify.places import places_of
    from vid2phys.solvers.flights import find_flights, flight_residuals
    from vid2phys.solvers.least_squares import student_weights
    from vid2phys.tracking.rolling_shutter import row_times

    slope, bend = np.zeros(len(track.tracked)), np.zeros(len(track.tracked))
    places = places_of(track)
    flights = find_flights(places)
    if flights is None:
        return slope, bend
    pose = track.poses.pose.retract(_PROBE_S * fits.response)
    later = replace(track, poses=replace(track.poses, pose=pose))
    times_s = row_times(replace(camera, readout_s=camera.readout_s + _PROBE_S), pose, clip.times_s)
    later = replace(later, observation=replace(track.observation, times_s=times_s))
    left = flight_residuals(places, flights)
    change = (flight_residuals(places_of(later), flights) - left) / _PROBE_S
    square, inside = (left**2).sum(axis=1), np.concatenate(flights.frames)
    scale = max(float(np.median(square[inside])) / _MEDIAN_OF_THREE, 1.0)
    weight = student_weights(square / (3.0 * scale)) / scale
    rows = np.flatnonzero(track.tracked & track.poses.pose.is_finite)
    rows = np.append(rows, [rows[flights.frames[impact.before][-1]] for impact in flights.impacts]).astype(np.int64)
    np.add.at(slope, rows, weight * (left * change).sum(axis=1))
    np.add.at(bend, rows, weight * (change**2).sum(axis=1))
    return slope, bend
