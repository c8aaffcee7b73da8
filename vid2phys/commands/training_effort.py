"""How much a training does in a given time.

The costs are those of 2 cores that nothing else uses (docs/decisions/047-short-training.md). Time beyond the
calibration is shared between renders and passes as in the default training, both smaller by the same factor.

Limits: nothing is measured on the machine at hand, so that equal options give equal networks everywhere. More cores
need less time than asked for, busy ones more.
"""

from __future__ import annotations

from dataclasses import dataclass

from vid2phys.errors import UsageError

SAMPLES, EPOCHS, COARSE_EPOCHS, REFINED = 12_000, 12, 3, 60
FULL_MINUTES, LEAST_MINUTES = 34.0, 4.0
_RENDER_S, _FINE_S, _COARSE_S = 0.0095, 0.0099, 0.0050  # of a render, and of an image that a network learns from
_FIXED_S, _REFINED_S = 66.0, 4.7  # start and calibration; each appearance on which refined poses are calibrated
_TRAINED = 0.9  # share of the renders that are not held out
_FEWEST_REFINED = 16  # 8 is the least that a contour's error model is fitted to


@dataclass(frozen=True)
class Effort:
    """Attributes:
    samples: Number of renders.
    epochs: Number of passes of the fine network over them.
    coarse_epochs: The same of the coarse network.
    refined: Number of held-out appearances on which aligned poses and contour fits are calibrated.
    """

    samples: int = SAMPLES
    epochs: int = EPOCHS
    coarse_epochs: int = COARSE_EPOCHS
    refined: int = REFINED

    @property
    def seconds(self) -> float:
        """Return the expected time on 2 cores, s."""
        return _FIXED_S + self.refined * _REFINED_S + self.samples * _cost_of_render_s(self.epochs, self.coarse_epochs)


def effort_of(minutes: float) -> Effort:
    """Return what a training of some minutes does. Raises UsageError for less than `LEAST_MINUTES`."""
    if not LEAST_MINUTES <= minutes <= FULL_MINUTES:
        raise UsageError(
            f"--minutes {minutes:g}",
            f"{LEAST_MINUTES:g} to {FULL_MINUTES:g}",
            "for longer ones give --samples and --epochs",
        )
    share = minutes / FULL_MINUTES
    refined = max(_FEWEST_REFINED, round(REFINED * share))
    left_s = 60.0 * minutes - _FIXED_S - refined * _REFINED_S
    epochs = max(1, round(EPOCHS * (left_s / (SAMPLES * _cost_of_render_s(EPOCHS, COARSE_EPOCHS))) ** 0.5))
    coarse_epochs = max(1, round(COARSE_EPOCHS * epochs / EPOCHS))
    samples = int(left_s / _cost_of_render_s(epochs, coarse_epochs))
    return Effort(samples, epochs, coarse_epochs, refined)


def _cost_of_render_s(epochs: int, coarse_epochs: int) -> float:
    """Return the time of a render and of all images that are developed from it, s."""
    return _RENDER_S + _TRAINED * (epochs * _FINE_S + coarse_epochs * _COARSE_S)
