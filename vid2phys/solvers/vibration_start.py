"""A start of Young's modulus and damping by free vibration: one decaying oscillation for each mode.

Purpose: a rollout over many periods has many optima in the stiffness. The frequencies of modes have one.

Method: a scan of Young's moduli and dampings. For each of them the amplitudes are a constant, which the sag predicts,
and a decaying cosine and sine; these are linear, so that each candidate's cost is exact (variable projection, Golub and
Pereyra, 1973).

Limits: small rotations; modes that damping does not couple.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.engine.vibration import Vibration
from vid2phys.types import Array

_MODULI, _REFINED = 160, 40
_RATIOS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3)  # of the lowest mode's critical damping
_LEAST_FRAMES = 3.0  # of a period
_LONGEST = 6.0  # periods, in units of the clip
_SAG_STD = 0.3  # of the sag by small rotations, as a share
_LEAST_RATE = 0.05  # square of the slowest rate near critical damping, over that without damping
_SMALLEST = 1e-3  # of a mode's amplitude, as a share of the largest: standard deviation of its constant


@dataclass(frozen=True)
class Known:
    """Young's modulus [Pa] and damping [Pa s], where they are known."""

    young_modulus: float | None = None
    damping: float | None = None


NOTHING = Known()


@dataclass(frozen=True)
class VibrationStart:
    """A free vibration.

    young_modulus: Pa. damping: Pa s. state: [2 D], amplitudes and rates at the first frame. cost: half the squares of
    what it leaves, in standard deviations. still: the same of a body that does not move.
    """

    young_modulus: float
    damping: float
    state: Array
    cost: float
    still: float


def vibration_start(
    times_s: Array,
    amplitudes: Array,
    variances: Array,
    vibration: Vibration,
    gravity: float,
    known: Known = NOTHING,
) -> VibrationStart:
    """Return the free vibration nearest to amplitudes [T, D] with variances [T, D]; NaN where nothing was measured.

    vibration: of the body. gravity: m/s^2. known: what is not to be found.
    """
    modes = [
        _Mode(times_s, amplitudes[:, d], variances[:, d], square, decay, gravity * sag)
        for d, (square, decay, sag) in enumerate(zip(vibration.squares, vibration.decays, vibration.sag, strict=True))
    ]
    least = _SMALLEST * float(np.nanmax(np.abs(amplitudes)))
    square, decay = float(vibration.squares[0]), float(vibration.decays[0])
    usual_s, whole_s = float(np.median(np.diff(times_s))), float(np.ptp(times_s))
    rates = np.geomspace(2.0 * np.pi / (_LONGEST * whole_s), 2.0 * np.pi / (_LEAST_FRAMES * usual_s), _MODULI)
    moduli = rates**2 / square if known.young_modulus is None else np.array([known.young_modulus])

    def best(candidates: Array, ratios: tuple[float, ...]) -> tuple[float, float]:
        tried = [
            (sum(mode.fit(young, eta, least)[0] for mode in modes), young, eta)
            for young in candidates
            for eta in _dampings(known.damping, np.sqrt(young * square) / decay, ratios)
        ]
        return min(tried)[1:]

    young, eta = best(moduli, _RATIOS)
    if known.young_modulus is None:
        ratio = eta * decay / np.sqrt(young * square)
        near = young * np.geomspace(0.9, 1.1, _REFINED)
        young, eta = best(near, tuple(sorted({ratio, 0.7 * ratio, 1.4 * ratio, 0.005})))
    fits = [mode.fit(young, eta, least) for mode in modes]
    state = np.concatenate([[fit[1] for fit in fits], [fit[2] for fit in fits]])
    return VibrationStart(float(young), float(eta), state, sum(fit[0] for fit in fits), sum(m.still for m in modes))


def _dampings(known: float | None, critical: float, ratios: tuple[float, ...]) -> list[float]:
    return [known] if known is not None else [ratio * critical for ratio in ratios]


@dataclass(frozen=True)
class _Mode:
    """The amplitudes [T] of one mode, their variances, and its square, decay and sag for 1 Pa and 1 Pa s."""

    times_s: Array
    amplitudes: Array
    variances: Array
    square: float
    decay: float
    sag: float

    def fit(self, young: float, eta: float, least: float) -> tuple[float, float, float]:
        """Return the cost of a vibration, its first amplitude and its first rate. least: error of the sag, m."""
        t, y, weight = self._seen()
        square, decay = young * self.square, eta * self.decay
        rate = np.sqrt(max(square - decay**2, _LEAST_RATE * square))
        fade, rest = np.exp(-decay * t), self.sag / young
        std = _SAG_STD * abs(rest) + least
        design = np.stack([np.ones(len(t)), fade * np.cos(rate * t), fade * np.sin(rate * t)], axis=1)
        design = np.concatenate([design * weight[:, None], [[1.0 / std, 0.0, 0.0]], 1e-6 * np.eye(3)[1:]])
        right = np.concatenate([weight * y, [rest / std], np.zeros(2)])
        found = np.linalg.lstsq(design, right, rcond=None)[0]
        cost = 0.5 * float(((design @ found - right) ** 2).sum())
        return cost, float(found[0] + found[1]), float(rate * found[2] - decay * found[1])

    @property
    def still(self) -> float:
        """Return the cost of a constant."""
        _, y, weight = self._seen()
        mean = (weight**2 * y).sum() / (weight**2).sum()
        return 0.5 * float(((weight * (y - mean)) ** 2).sum())

    def _seen(self) -> tuple[Array, Array, Array]:
        seen = np.isfinite(self.amplitudes)
        return self.times_s[seen] - self.times_s[0], self.amplitudes[seen], self.variances[seen] ** -0.5
