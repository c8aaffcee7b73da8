"""Are a fit's residuals white? A portmanteau test for vectors, and its answer in plain words.

Method: Ljung and Box, "On a measure of lack of fit in time series models" (Biometrika 1978), for the autocorrelation of
all channels together. Points of one frame err together, so that channels do not count as independent. With C the
channels' covariance, the mean lagged product of white vectors has the variance tr(C^2) / n.

Limits: ten frames or more, at about equal times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from vid2phys.types import Array

SURE = 1e-3  # probability of such a statistic for white residuals
LASTING = 2.0  # correlation time in frames from which intervals that take frames for independent are far too narrow
MOST_LAGS = 20
UNFIT = "the model does not fit"  # how the warning begins
_LEAST_FRAMES = 10


@dataclass(frozen=True)
class Whiteness:
    """Q over `lags` lags, its probability under white residuals, and how long residuals last.

    correlation: [lags] of residuals so many frames apart. frames: so many residuals count as one, at least 1. This is
    the integrated correlation time: one and twice the sum of the first correlations, as far as they are beyond chance.
    """

    statistic: float
    lags: int
    p_value: float
    correlation: Array
    frames: float

    @property
    def white(self) -> bool:
        """Return False where the model does not explain the measurements: sure, and enough of it to matter."""
        return self.p_value > SURE or self.frames < LASTING

    def warning(self) -> str | None:
        """Return what a user has to know, None for white residuals."""
        if self.white:
            return None
        return (
            f"{UNFIT}: what it leaves unexplained is not noise (a residual is {self.correlation[0]:.2f} "
            f"correlated with the next and lasts some {self.frames:.0f} frames; white ones would look so with "
            f"probability {self.p_value:.0e}). Intervals that count each frame are about {np.sqrt(self.frames):.1f} "
            "times too narrow, and a value may be off by more: is something missing in the model, or in --actions?"
        )


def whiteness(residuals: Array, lags: int | None = None) -> Whiteness | None:
    """Test residuals [T, C] over time, NaN where nothing was seen; None for fewer than ten frames.

    residuals: weighted, so that all are of one size. lags: tested (default: a fifth of the frames, at most 20). The
    mean is not taken out: a bias is no noise.
    """
    residuals = np.asarray(residuals, dtype=float).reshape(len(residuals), -1)
    residuals = residuals[:, np.isfinite(residuals).any(axis=0)]
    seen = np.isfinite(residuals)
    frames = int(seen.any(axis=1).sum())
    values = np.where(seen, residuals, 0.0)
    if frames < _LEAST_FRAMES or not values.any():
        return None
    lags = lags or max(1, min(MOST_LAGS, frames // 5))
    pairs = seen.T.astype(float) @ seen
    covariance = values.T @ values / np.maximum(pairs, 1.0)
    power = np.diagonal(covariance)
    found, chance, statistic = np.zeros(lags), np.zeros(lags), 0.0
    for lag in range(1, lags + 1):
        products = float((values[lag:] * values[:-lag]).sum())
        both = (seen[lag:] & seen[:-lag]).astype(float)
        expected = float((both.sum(axis=0) * power).sum())
        variance = float(((both.T @ both) * covariance**2).sum())
        if expected > 0.0:
            found[lag - 1], chance[lag - 1] = products / expected, np.sqrt(variance) / expected
        # n (n + 2) / (n - lag) of Ljung and Box is (n + 2) / n beyond the variance of the pairs that there are
        statistic += (frames + 2.0) / frames * products**2 / variance if variance > 0.0 else 0.0
    sure = int(np.argmin(np.append(found > 2.0 * chance, False)))
    lasting = 1.0 + 2.0 * float(found[:sure].sum())
    return Whiteness(statistic, lags, float(chi2.sf(statistic, lags)), found, lasting)
