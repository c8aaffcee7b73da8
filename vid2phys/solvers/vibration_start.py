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

from vid2phys.types import Array

_MODULI, _REFINED = 160, 40
_RATIOS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3)  # of the lowest mode's critical damping
_LEAST_FRAMES = 3.0  # of a period
_LONGEST = 6.0  # periods, in units of the clip
_SAG_STD = 0.3  # of the sag by small rotations, as a share
_SMALLEST = 1e-3  # of a mode's amplitude, as a share of the largest: standard deviation of its constant


@dataclass(frozen=True)
class VibrationStart:
    """young_modulus [Pa], damping [Pa s], states: [2 D], amplitudes and rates at the first frame. cost: of the fit.

    still: the cost of a body that does not move.
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
    squares: Array,
    decays: Array,
    sag: Array,
    young: float | None,
    damping: float | None,
) -> VibrationStart:
    """Return the free vibration nearest to amplitudes [T, D] with variances [T, D]; NaN where nothing was measured.

    squares: [D] of angular frequencies for 1 Pa. decays: [D] rate of a mode's decay, 1/s for 1 Pa s. sag: [D] static
    amplitudes for 1 Pa. young, damping: where they are known.
    """
    usual_s, whole_s = float(np.median(np.diff(times_s))), float(np.ptp(times_s))
    rates = np.geomspace(2.0 * np.pi / (_LONGEST * whole_s), 2.0 * np.pi / (_LEAST_FRAMES * usual_s), _MODULI)
    moduli = rates**2 / squares[0] if young is None else np.array([young])

    def cost(e: float, eta: float) -> float:
        return sum(_fit(times_s, amplitudes, variances, squares, decays, sag, e, eta, d)[0] for d in range(len(sag)))

    def best(candidates: Array, ratios: tuple[float, ...]) -> tuple[float, float, float]:
        tried = [
            (cost(e, eta), e, eta)
            for e in candidates
            for eta in ([damping] if damping is not None else [r * np.sqrt(e * squares[0]) / decays[0] for r in ratios])
        ]
        return min(tried)

    _, e, eta = best(moduli, _RATIOS)
    if young is None:
        ratio = eta * decays[0] / np.sqrt(e * squares[0])
        near = e * np.geomspace(0.9, 1.1, _REFINED)
        _, e, eta = best(near, tuple(sorted({ratio, 0.7 * ratio, 1.4 * ratio, 0.005})))
    fits = [_fit(times_s, amplitudes, variances, squares, decays, sag, e, eta, d) for d in range(len(sag))]
    state = np.concatenate([[fit[1] for fit in fits], [fit[2] for fit in fits]])
    return VibrationStart(float(e), float(eta), state, sum(fit[0] for fit in fits), sum(fit[3] for fit in fits))


def _fit(
    times_s: Array,
    amplitudes: Array,
    variances: Array,
    squares: Array,
    decays: Array,
    sag: Array,
    young: float,
    eta: float,
    d: int,
) -> tuple[float, float, float, float]:
    """Return cost, first amplitude and first rate of one mode's vibration, and the cost of a constant."""
    seen = np.isfinite(amplitudes[:, d])
    t, y, weight = times_s[seen] - times_s[0], amplitudes[seen, d], variances[seen, d] ** -0.5
    square, decay = young * squares[d], eta * decays[d]
    rate = np.sqrt(max(square - decay**2, 0.05 * square))
    fade = np.exp(-decay * t)
    rest = sag[d] / young
    std = _SAG_STD * abs(rest) + _SMALLEST * float(np.abs(amplitudes[seen]).max())
    design = np.stack([np.ones(len(t)), fade * np.cos(rate * t), fade * np.sin(rate * t)], axis=1) * weight[:, None]
    design = np.concatenate([design, [[1.0 / std, 0.0, 0.0]], 1e-6 * np.eye(3)[1:]])
    right = np.concatenate([weight * y, [rest / std], np.zeros(2)])
    found = np.linalg.lstsq(design, right, rcond=None)[0]
    cost = 0.5 * float(((design @ found - right) ** 2).sum())
    mean = (weight**2 * y).sum() / (weight**2).sum()
    still = 0.5 * float(((weight * (y - mean)) ** 2).sum())
    return cost, float(found[0] + found[1]), float(rate * found[2] - decay * found[1]), still
