"""Find free flights in the places of a body, and the acceleration that all of them share.

Purpose: a body that touches nothing falls. What it does between impacts tells of gravity; impacts, rest and hands do
not, and must not count as falling.

Method: dynamic programming over the frames (Bellman, "On the approximation of curves by line segments using dynamic
programming", 1961). Every stretch of frames costs its squared residuals about the best parabola and a price for its
parameters; a frame outside all stretches costs a fixed price. The programme runs twice. At first each stretch has an
acceleration of its own; the acceleration that most frames agree on is kept, as in RANSAC (Fischler and Bolles, 1981).
Then stretches have this acceleration, so that short flights are found, too. At last one robust least-squares fit
has a common acceleration, a place and a velocity for each flight, and a time for each impact.

Limits: no drag of the air. A flight shows only if it sags by several standard deviations. Axes and unit are those of
the places: they need not be metric along the camera's axis, since all is linear.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.solvers.least_squares import student_weights
from vid2phys.types import Array

_LONGEST_S = 2.0  # of a flight: a longer one counts as several
_LEAST_FRAMES, _LEAST_WITH_ACCELERATION = 5, 4
_PRICE, _OUTSIDE = 16.0, 16.0  # squared standard deviations: of a flight beyond its parameters; of a frame outside
_SAG = 8.0  # standard deviations by which a flight bends at least
_AGREE = 16.0  # squared standard deviations between accelerations that agree
_FALLING = (3.0, 30.0)  # m/s^2: accelerations that may be gravity, before the focal length is known
_GAP = 6.5  # frame intervals between two flights with an impact between them
_LEAST_KICK = 0.3  # m/s that an impact changes the velocity by
_PASSES, _ITERATIONS = 3, 12
_LEAST_SCALE = 0.7  # of the errors that the tracker states
_CONTINUOUS_M, _CONTACT_S = 2e-3, 1e-3  # how far flights may miss each other at an impact: constant, and per speed


@dataclass(frozen=True)
class Places:
    """Where a body was in T frames: times_s [T], points [T, 3] m in camera axes, covariance [T, 3, 3]."""

    times_s: Array
    points: Array
    covariance: Array

    def __getitem__(self, frames: NDArray[np.int64]) -> Places:
        """Return the places in some of the frames."""
        return Places(self.times_s[frames], self.points[frames], self.covariance[frames])

    @property
    def axes(self) -> Array:
        """Return two axes across the sight line and the sight line as rows, [T, 3, 3]."""
        along = self.points / np.linalg.norm(self.points, axis=1, keepdims=True)
        right = np.cross([0.0, 1.0, 0.0], along)
        right /= np.linalg.norm(right, axis=1, keepdims=True)
        return np.stack([right, np.cross(along, right), along], axis=1)

    def scaled(self, across: float, along: float) -> Places:
        """Return the places with other standard deviations across and along the sight line."""
        axes = self.axes
        factors = np.swapaxes(axes, 1, 2) @ (np.array([across, across, along])[:, None] * axes)
        return replace(self, covariance=factors @ self.covariance @ factors)


@dataclass(frozen=True)
class Impact:
    """What is between two flights that follow each other.

    before, after: indices of the flights. time_s: of the impact. kick: [3] m/s, the change of velocity.
    """

    before: int
    after: int
    time_s: float
    kick: Array


@dataclass(frozen=True)
class Flights:
    """The free flights of a track and what they share.

    frames: indices of the frames of each flight. acceleration: [3] m/s^2. contacts: [K, 3] m, places at the impacts.
    covariance: [3 + 3 K, 3 + 3 K] of both. impacts: K. misfit: root mean square of the residuals, about 1.
    """

    frames: tuple[NDArray[np.int64], ...]
    acceleration: Array
    contacts: Array
    covariance: Array
    impacts: tuple[Impact, ...]
    misfit: float

    @property
    def count(self) -> int:
        """Return the number of frames in free flight."""
        return sum(len(frames) for frames in self.frames)


def find_flights(places: Places) -> Flights | None:
    """Return the free flights; None where the body is never seen to fall.

    Errors are rescaled by what the flights leave over, with the correlation of adjacent frames.
    """
    if len(places.times_s) < 2 * _LEAST_FRAMES:
        return None
    stated, scales = places, np.array(_white_scales(places))
    places = stated.scaled(*scales)
    acceleration, frames = _shared_acceleration(places), list[NDArray[np.int64]]()
    for _ in range(_PASSES):
        if acceleration is None:
            return None
        frames = _merged(places, _stretches(places, acceleration), acceleration)
        frames = _that_fall(places, frames, acceleration)
        if not frames:
            return None
        fit = _fit(places, frames)
        scales = np.maximum(scales * _left_over(places, frames, fit), _LEAST_SCALE)
        acceleration, places = fit.values[:3], stated.scaled(*scales)
    return _conclude(places, frames)


def flight_residuals(places: Places, flights: Flights) -> Array:
    """Return residuals [T + K, 3] of places that are fitted to T frames' K + 1 flights which are known.

    They are in standard deviations, those of frames first, zero outside of the flights. The last K are by how much two
    flights miss each other at an impact.
    """
    frames, pairs = list(flights.frames), tuple((impact.before, impact.after) for impact in flights.impacts)
    start = np.concatenate([_fit(places, frames).values, [impact.time_s for impact in flights.impacts]])
    fit, out = _fit(places, frames, pairs, start), np.zeros((len(places.times_s) + len(pairs), 3))
    for part, left in zip(frames, fit.residuals, strict=True):
        out[part] = left
    for k, (before, after) in enumerate(pairs):
        _, miss, spread = _meeting(fit, k, before, after)
        out[len(places.times_s) + k] = miss / spread
    return out


def _white_scales(places: Places) -> tuple[float, float]:
    """Return how many times larger errors across and along the sight line are than stated.

    Third differences vanish on parabolas; their median ignores impacts.
    """
    times, axes = places.times_s, places.axes
    count = len(times) - 3
    stencil = np.arange(count)[:, None] + np.arange(4)
    at = times[stencil]
    apart = at[:, :, None] - at[:, None, :] + np.eye(4)
    weights = 1.0 / np.prod(apart, axis=2)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    rows = axes[stencil[:, 1]]
    difference = np.einsum("nij,nkj,nk->ni", rows, places.points[stencil], weights)
    spread = np.einsum("nij,nkjl,nil,nk->ni", rows, places.covariance[stencil], rows, weights**2)
    relative = np.abs(difference) / np.sqrt(spread)
    across, along = (1.4826 * float(np.median(part)) for part in (relative[:, :2], relative[:, 2]))
    return max(across, _LEAST_SCALE), max(along, _LEAST_SCALE)


def _normal_sums(places: Places, start: int, stop: int, acceleration: Array | None) -> tuple[Array, Array, Array]:
    """Return cumulated normal equations of the stretches from `start`: [L, D, D], [L, D], [L]."""
    frames = np.arange(start, stop)
    time = places.times_s[frames] - places.times_s[start]
    wanted = places.points[frames] - places.points[start]
    powers = [np.ones_like(time), time]
    if acceleration is None:
        powers.append(0.5 * time**2)
    else:
        wanted = wanted - 0.5 * time[:, None] ** 2 * acceleration
    basis, information = np.stack(powers, axis=1), np.linalg.inv(places.covariance[frames])
    size = 3 * basis.shape[1]
    matrix = np.einsum("na,nb,nij->naibj", basis, basis, information).reshape(-1, size, size)
    pulled = np.einsum("nij,nj->ni", information, wanted)
    vector = np.einsum("na,ni->nai", basis, pulled).reshape(-1, size)
    square = np.einsum("ni,ni->n", wanted, pulled)
    return np.cumsum(matrix, axis=0), np.cumsum(vector, axis=0), np.cumsum(square)


def _stretches(places: Places, acceleration: Array | None) -> list[NDArray[np.int64]]:
    """Return the frames of each stretch of the cheapest division."""
    times, count = places.times_s, len(places.times_s)
    least = _LEAST_FRAMES if acceleration is None else _LEAST_WITH_ACCELERATION
    parameters = 9 if acceleration is None else 6
    best, came = np.full(count + 1, np.inf), np.full(count + 1, -1)
    best[0] = 0.0
    for start in range(count):
        if best[start] + _OUTSIDE < best[start + 1]:
            best[start + 1], came[start + 1] = best[start] + _OUTSIDE, -1
        stop = int(np.searchsorted(times, times[start] + _LONGEST_S, side="right"))
        if stop - start < least:
            continue
        matrix, vector, square = (part[least - 1 :] for part in _normal_sums(places, start, stop, acceleration))
        solved = np.linalg.solve(matrix, vector[..., None])[..., 0]
        cost = best[start] + square - (vector * solved).sum(axis=1) + parameters + _PRICE
        ends = np.arange(start + least, stop + 1)
        better = cost < best[ends]
        best[ends[better]], came[ends[better]] = cost[better], start
    found, end = [], count
    while end > 0:
        start = int(came[end])
        if start >= 0:
            found.append(np.arange(start, end))
        end = end - 1 if start < 0 else start
    return found[::-1]


def _shared_acceleration(places: Places) -> Array | None:
    """Return the acceleration [3] that most frames in stretches of their own agree on; None where none is a fall."""
    means, spreads, weights = [], [], []
    for frames in _stretches(places, None):
        matrix, vector, _ = (part[-1] for part in _normal_sums(places, int(frames[0]), int(frames[-1]) + 1, None))
        covariance = np.linalg.inv(matrix)
        means.append((covariance @ vector)[6:])
        spreads.append(covariance[6:, 6:])
        weights.append(len(frames))
    best: tuple[float, Array | None] = (0.0, None)
    for mean, spread in zip(means, spreads, strict=True):
        size = float(np.linalg.norm(mean))
        sure = size > 4.0 * np.sqrt(mean @ spread @ mean) / max(size, 1e-9)
        if not (sure and _FALLING[0] < size < _FALLING[1]):
            continue
        agree = [_distance(mean - other, spread + own) < _AGREE for other, own in zip(means, spreads, strict=True)]
        support = float(np.sum(np.array(weights)[agree])) - 1e-3 * float(np.trace(spread))
        if support > best[0]:
            information = [np.linalg.inv(own) for own, together in zip(spreads, agree, strict=True) if together]
            pulled = [i @ m for i, m in zip(information, np.array(means)[agree], strict=True)]
            best = support, np.linalg.solve(np.sum(information, axis=0), np.sum(pulled, axis=0))
    return best[1]


def _distance(difference: Array, covariance: Array) -> float:
    return float(difference @ np.linalg.solve(covariance, difference))


def _line_cost(places: Places, frames: NDArray[np.int64], acceleration: Array) -> float:
    """Return the squared residuals of a flight with a known acceleration."""
    matrix, vector, square = (part[-1] for part in _normal_sums(places[frames], 0, len(frames), acceleration))
    return float(square - vector @ np.linalg.solve(matrix, vector))


def _merged(places: Places, frames: list[NDArray[np.int64]], acceleration: Array) -> list[NDArray[np.int64]]:
    """Return the flights, those as one that an outlier had parted."""
    merged = frames[:1]
    for after in frames[1:]:
        both = np.concatenate([merged[-1], after])
        apart = sum(_line_cost(places, part, acceleration) for part in (merged[-1], after))
        if _line_cost(places, both, acceleration) < apart + 6 + _PRICE:
            merged[-1] = both
        else:
            merged.append(after)
    return merged


def _that_fall(places: Places, frames: list[NDArray[np.int64]], acceleration: Array) -> list[NDArray[np.int64]]:
    """Return the flights that bend enough to be told from bodies at rest, and that bend by this acceleration."""
    kept = []
    for part in frames:
        seconds = places.times_s[part[-1]] - places.times_s[part[0]]
        across = acceleration / np.linalg.norm(acceleration)
        spread = float(np.median(np.sqrt(np.einsum("i,nij,j->n", across, places.covariance[part], across))))
        left = _line_cost(places, part, acceleration) / (3 * len(part))
        if np.linalg.norm(acceleration) * seconds**2 / 8.0 > _SAG * spread / np.sqrt(len(part)) and left < 4.0:
            kept.append(part)
    return kept


@dataclass(frozen=True)
class _Fit:
    """A joint fit. values: acceleration, then place and velocity of each flight, then the time of each impact."""

    values: Array
    covariance: Array
    pairs: tuple[tuple[int, int], ...]
    middle_s: Array
    residuals: tuple[Array, ...]  # of each flight, [n, 3], across and along the sight line, in standard deviations

    def rows(self, flight: int, time_s: float) -> Array:
        """Return the derivatives [3, U] of a flight's place at a time by all unknowns."""
        after = time_s - self.middle_s[flight]
        rows = np.zeros((3, len(self.values)))
        rows[:, :3] = 0.5 * after**2 * np.eye(3)
        at = 3 + 6 * flight
        rows[:, at : at + 3], rows[:, at + 3 : at + 6] = np.eye(3), after * np.eye(3)
        return rows

    def velocity(self, flight: int, time_s: float) -> Array:
        """Return the velocity [3] of a flight at a time."""
        at = 6 + 6 * flight
        return self.values[at : at + 3] + (time_s - self.middle_s[flight]) * self.values[:3]

    def time(self, pair: int) -> float:
        """Return the time of an impact, s."""
        return float(self.values[3 + 6 * len(self.middle_s) + pair])


def _fit(
    places: Places, frames: list[NDArray[np.int64]], pairs: tuple[tuple[int, int], ...] = (), start: Array | None = None
) -> _Fit:
    """Fit all flights with a common acceleration, robustly; flights of a pair meet. start: first unknowns [U]."""
    middle = np.array([places.times_s[part].mean() for part in frames])
    values = np.zeros(3 + 6 * len(frames)) if start is None else start
    fit = _Fit(values, np.eye(len(values)), pairs, middle, ())
    lower = np.linalg.inv(np.linalg.cholesky(_in_axes(places)))
    whiten = lower @ places.axes
    weights = np.ones(len(places.times_s))
    for iteration in range(_ITERATIONS):
        matrix, vector, residuals = np.zeros((len(values), len(values))), np.zeros(len(values)), []
        for flight, part in enumerate(frames):
            design = np.stack([fit.rows(flight, time) for time in places.times_s[part]])
            left = whiten[part] @ (places.points[part] - design @ fit.values)[..., None]
            slopes, root = whiten[part] @ design, weights[part]
            matrix += np.einsum("n,nij,nik->jk", root, slopes, slopes)
            vector += np.einsum("n,nij,ni->j", root, slopes, left[..., 0])
            residuals.append(left[..., 0])
        for k, (before, after) in enumerate(pairs):
            rows, miss, spread = _meeting(fit, k, before, after)
            matrix += rows.T @ rows / spread**2
            vector += rows.T @ miss / spread**2
        step = np.linalg.solve(matrix, vector)
        fit = replace(
            fit,
            values=fit.values + step,
            covariance=np.asarray(np.linalg.inv(matrix), dtype=float),
            residuals=tuple(residuals),
        )
        for part, left in zip(frames, residuals, strict=True):
            weights[part] = student_weights((left**2).mean(axis=1)) if iteration else 1.0
    return fit


def _meeting(fit: _Fit, k: int, before: int, after: int) -> tuple[Array, Array, float]:
    """Return slopes [3, U] and miss [3] of two flights that meet at the time of impact k, and its spread, m."""
    time = fit.time(k)
    rows = fit.rows(before, time) - fit.rows(after, time)
    kick = fit.velocity(before, time) - fit.velocity(after, time)
    miss = -rows @ fit.values
    rows[:, 3 + 6 * len(fit.middle_s) + k] = kick
    return rows, miss, _CONTINUOUS_M + _CONTACT_S * float(np.linalg.norm(kick))


def _in_axes(places: Places) -> Array:
    """Return the covariances across and along the sight lines, [T, 3, 3]."""
    axes = places.axes
    return axes @ places.covariance @ np.swapaxes(axes, 1, 2)


def _left_over(places: Places, frames: list[NDArray[np.int64]], fit: _Fit) -> tuple[float, float]:
    """Return factors of the errors across and along: from the residuals and from how adjacent frames agree."""
    factors = []
    for columns in (slice(0, 2), slice(2, 3)):
        parts = [left[:, columns] for left in fit.residuals]
        total = sum(part.size for part in parts)
        unknowns = (3 + 6 * len(frames)) * parts[0].shape[1] / 3.0
        square = sum(float((np.minimum(np.abs(part), 3.0) ** 2).sum()) for part in parts)
        alike = sum(float((part[1:] * part[:-1]).sum()) for part in parts) / max(square, 1e-12)
        alike = float(np.clip(alike, 0.0, 0.9))
        mean = square / max(total - unknowns, 1.0)
        factors.append(float(np.sqrt(max(mean, 0.25) * (1.0 + alike) / (1.0 - alike))))
    return factors[0], factors[1]


def _conclude(places: Places, frames: list[NDArray[np.int64]]) -> Flights:
    """Return the flights with their impacts, from a fit in which flights meet."""
    fit = _fit(places, frames)
    pairs, times = _impacts(places, frames, fit)
    fit = _fit(places, frames, pairs, np.concatenate([fit.values, times]))
    rows = np.zeros((3 + 3 * len(pairs), len(fit.values)))
    rows[:3, :3] = np.eye(3)
    impacts, contacts = [], np.zeros((len(pairs), 3))
    for k, (before, after) in enumerate(pairs):
        time = fit.time(k)
        own = fit.rows(before, time)
        contacts[k] = own @ fit.values
        own[:, 3 + 6 * len(frames) + k] = fit.velocity(before, time)
        rows[3 + 3 * k : 6 + 3 * k] = own
        impacts.append(Impact(before, after, time, fit.velocity(after, time) - fit.velocity(before, time)))
    misfit = float(np.sqrt(np.mean(np.concatenate(fit.residuals) ** 2)))
    covariance = rows @ fit.covariance @ rows.T
    return Flights(tuple(frames), fit.values[:3].copy(), contacts, covariance, tuple(impacts), misfit)


def _impacts(places: Places, frames: list[NDArray[np.int64]], fit: _Fit) -> tuple[tuple[tuple[int, int], ...], Array]:
    """Return the pairs of flights that an impact parts, and its times [K] s."""
    step = float(np.median(np.diff(places.times_s)))
    pairs, times = [], []
    for before, (a, b) in enumerate(itertools.pairwise(frames)):
        start, end = places.times_s[a[-1]], places.times_s[b[0]]
        middle = 0.5 * (start + end)
        kick = fit.velocity(before + 1, middle) - fit.velocity(before, middle)
        apart = (fit.rows(before, middle) - fit.rows(before + 1, middle)) @ fit.values
        if end - start > _GAP * step or np.linalg.norm(kick) < _LEAST_KICK:
            continue
        time = middle + float(apart @ kick) / float(kick @ kick)
        if start - step < time < end + step:
            pairs.append((before, before + 1))
            times.append(time)
    return tuple(pairs), np.array(times)
