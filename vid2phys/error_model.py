"""The error model of a trained network: what its readings are worth, calibrated on looks held out from training.

A reading's error has two parts: one of each point by itself, and one that all points of a frame share because the
network sees the whole pose a little wrong. The shared part has six modes (`geometry.pose_modes`), each a first-order
Gauss-Markov process in time. Both are known in view pixels and grow as the object gets smaller in the frame.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from vid2phys.types import Array

REFERENCE_PX = 40.0  # in-frame diameter of the bounding sphere at which the standard deviations are stated
REFERENCE_QUALITY = 0.8
MOST_PX = 100.0  # larger bodies are read no better: views have as many pixels as before, and none was calibrated on
CLIP_FRAMES = 16
_MOST_RAD = 1.0  # a rotation that is less certain than this is not known at all
MODE_NAMES = ("rotation_x", "rotation_y", "rotation_z", "sideways_x", "sideways_y", "log_depth")


@dataclass(frozen=True)
class Calibration:
    """How to turn what the network says into covariances.

    A point's covariance is (point_scale^2 * raw + point_floor_px^2) * (REFERENCE_PX / diameter)^(2 point_exponent), in
    view px^2, raw being the heat map's spread and diameter the in-frame diameter of the bounding sphere [px].
    mode_std: [6] standard deviations at REFERENCE_PX and REFERENCE_QUALITY, by default as found for three bodies:
    rotations [rad], sideways [fraction of the sphere's radius], log depth; times
    (REFERENCE_PX / diameter)^mode_exponent[i] and, for a reading of another quality,
    exp(mode_doubt[i] (REFERENCE_QUALITY - quality)). correlation_time_s: [6], by a
    `error_clock`, as all correlation times. min_quality: a reading below it is
    not the object (`sight.Detections.quality`), still_quality: nor one below this where the image does not differ from
    the clip's median. evidence_divisor: frames of a clip that count as one when front-map
    evidence is added up. align_scale: [6] errors of poses aligned to pixels (`align`) over what that says, a mode, and
    align_correlation_s: [6] their correlation times; contour_scale, contour_correlation_s: the same for poses fitted
    to outlines (`contour`), by default as found for three bodies; of bodies on a known base one number a coordinate of
    the configuration (`tracking.articulated`), and swing_scale: by how much a clip's motion is misread over
    what errors of its frames amount to (`tracking.uncertainty`). normalised: residuals on
    looks not used for the fit over what the model expects; 1 is honest.
    """

    point_scale: float = 0.5
    point_floor_px: float = 0.7
    point_exponent: float = 0.0
    mode_std: tuple[float, ...] = (0.09, 0.15, 0.04, 0.025, 0.025, 0.04)
    mode_exponent: tuple[float, ...] = (0.5,) * 6
    mode_doubt: tuple[float, ...] = (4.0,) * 6
    correlation_time_s: tuple[float, ...] = (0.2,) * 6
    min_quality: float = 0.15
    still_quality: float = 0.75
    evidence_divisor: float = 5.0
    align_scale: tuple[float, ...] = (1.0,) * 6
    align_correlation_s: tuple[float, ...] = (0.5,) * 6
    contour_scale: tuple[float, ...] = (1.7, 1.4, 1.2, 1.5, 1.6, 1.6)
    contour_correlation_s: tuple[float, ...] = (0.1,) * 6
    swing_scale: float = 1.0
    normalised: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def from_dict(data: dict[str, Any] | None) -> Calibration:
        """From the `calibration` entry of a model's config.json; None gives the uncalibrated default.

        Raises TypeError or ValueError for what are no such numbers.
        """
        if not data:
            return Calibration()
        if not isinstance(data, dict) or not isinstance(data.get("normalised", {}), dict):
            raise TypeError("the calibration is no set of numbers by name")
        values: dict[str, Any] = {}
        for name in Calibration.__dataclass_fields__.keys() & data.keys():
            if name == "normalised":
                values[name] = {key: float(value) for key, value in data[name].items()}
            elif isinstance(getattr(Calibration, name), tuple):
                values[name] = tuple(float(value) for value in data[name])
            else:
                values[name] = float(data[name])
        found = Calibration(**values)
        modes = (found.mode_std, found.mode_exponent, found.mode_doubt, found.correlation_time_s)
        if len({len(each) for each in modes}) > 1:
            raise ValueError("the calibration has not the same number of modes everywhere")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def clip_divisor(self, frames: int) -> float:
        """Frames of a clip of so many that count as one: `evidence_divisor` was found on clips of CLIP_FRAMES.

        A longer clip shows more of the body, but the same look: its evidence grows with the root of its length.
        """
        return self.evidence_divisor * float(np.sqrt(max(1.0, frames / CLIP_FRAMES)))

    def point_covariance(self, raw_px: Array, diameter_px: Array) -> Array:
        """Covariance of points [..., K, 2, 2] px^2 in the view, from the network's own; diameter_px: [...]."""
        growth = self._growth(np.asarray(diameter_px, dtype=float), self.point_exponent)
        covariance = self.point_scale**2 * raw_px + self.point_floor_px**2 * np.eye(2)
        return np.asarray(covariance * growth[..., None, None, None] ** 2)

    def mode_scale(self, diameter_px: Array, quality: Array) -> Array:
        """Standard deviations [..., 6]: rotations [rad], sideways [fraction of the sphere's radius], log depth."""
        diameter_px, quality = np.asarray(diameter_px, dtype=float), np.asarray(quality, dtype=float)
        growth = self._growth(diameter_px[..., None], np.array(self.mode_exponent))
        doubt = np.exp(np.array(self.mode_doubt) * (REFERENCE_QUALITY - quality[..., None]))
        std = np.array(self.mode_std) * growth * doubt
        std[..., :3] = np.minimum(std[..., :3], _MOST_RAD)
        return np.asarray(std)

    @staticmethod
    def _growth(diameter_px: Array, exponent: Array | float) -> Array:
        return (REFERENCE_PX / np.clip(diameter_px, 8.0, MOST_PX)) ** exponent
