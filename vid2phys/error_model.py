"""The error model of a trained network's detections, calibrated on held-out appearances.

The error of a keypoint has two parts: its own, and one that all keypoints of a frame share, because the network errs in
the whole pose. The shared part has six modes (`pose_geometry.pose_modes`), each a first-order Gauss-Markov process in
time. Both are in pixels of the virtual camera, and grow as the body gets smaller in the frame.

Limits: gross errors, such as a wrong symmetry element, are not part of the model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from vid2phys.types import Array

REFERENCE_PX = 40.0  # diameter of the bounding sphere in the frame at which standard deviations are stated
REFERENCE_QUALITY = 0.8
# Larger bodies have no smaller errors: the virtual camera has no more pixels, and calibration has no such body.
MOST_PX = 100.0
CLIP_FRAMES = 16
_MOST_RAD = 1.0  # a rotation with a larger standard deviation is unknown
MODE_NAMES = ("rotation_x", "rotation_y", "rotation_z", "sideways_x", "sideways_y", "log_depth")


@dataclass(frozen=True)
class Calibration:
    """Numbers of an error model.

    A point's covariance is (point_scale^2 * raw + point_floor_px^2) * (REFERENCE_PX / d)^(2 point_exponent), in px^2 of
    the virtual camera. Here raw is the spread of the heat map, and d the diameter of the bounding sphere in the frame.
    The standard deviation of mode i is mode_std[i] * (REFERENCE_PX / d)^mode_exponent[i] for the quality
    REFERENCE_QUALITY, times exp(mode_doubt[i] (REFERENCE_QUALITY - quality)). Correlation times are by the clock of
    errors (`error_clock`). Articulated and modal bodies have one number per coordinate and two shifts in place of six
    modes. The defaults are those of three bodies.

    Attributes:
        point_scale: Factor of the heat map's spread.
        point_floor_px: Least standard deviation of a point, px.
        point_exponent: Growth of a point's standard deviation with smallness.
        mode_std: [6] rotations [rad], sideways [fraction of the sphere's radius], log depth.
        mode_exponent: [6] growth of the modes with smallness.
        mode_doubt: [6] growth of the modes with lack of quality.
        correlation_time_s: [6] correlation times, s.
        min_quality: Least quality of a detection.
        still_quality: Least quality of a detection where the image does not differ from the clip's median.
        evidence_divisor: Number of frames of a clip that count as one when front-map evidence is summed.
        align_scale: [6] ratio of measured to stated errors of aligned poses.
        align_correlation_s: [6] their correlation times, s.
        contour_scale: [6] ratio of measured to stated errors of contour fits.
        contour_correlation_s: [6] their correlation times, s.
        swing_scale: Ratio of measured to stated errors of a clip's motion (articulated and modal bodies).
        normalised: Normalised residuals on appearances that the fit did not use; 1 is honest.
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
    align_scale: tuple[float, ...] = (1.5, 1.4, 1.2, 2.3, 2.9, 2.0)  # mean of the three calibrated rigid models
    align_correlation_s: tuple[float, ...] = (0.09, 0.09, 0.07, 0.2, 0.3, 0.2)  # the same
    contour_scale: tuple[float, ...] = (1.7, 1.4, 1.2, 1.5, 1.6, 1.6)
    contour_correlation_s: tuple[float, ...] = (0.1,) * 6
    swing_scale: float = 1.0
    normalised: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def from_dict(data: dict[str, Any] | None) -> Calibration:
        """Return the error model of the `calibration` entry of a model's config.json; None gives the default.

        Raises TypeError or ValueError for other data.
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
        """Return plain numbers and lists, for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def clip_divisor(self, frames: int) -> float:
        """Return how many frames of a clip count as one, for a clip of `frames` frames.

        `evidence_divisor` was measured on clips of CLIP_FRAMES. A longer clip shows more of the body in the same
        appearance: its evidence grows with the root of its length.
        """
        return self.evidence_divisor * float(np.sqrt(max(1.0, frames / CLIP_FRAMES)))

    def point_covariance(self, raw_px: Array, diameter_px: Array) -> Array:
        """Return the covariances [..., K, 2, 2] of points, px^2 of the virtual camera, from the network's own.

        diameter_px: [...] diameter of the bounding sphere in the frame.
        """
        growth = self._growth(np.asarray(diameter_px, dtype=float), self.point_exponent)
        covariance = self.point_scale**2 * raw_px + self.point_floor_px**2 * np.eye(2)
        return np.asarray(covariance * growth[..., None, None, None] ** 2)

    def mode_scale(self, diameter_px: Array, quality: Array) -> Array:
        """Return standard deviations [..., 6]: rotations [rad], sideways [fraction of the radius], log depth.

        diameter_px: [...] diameter in the frame. quality: [...] of the detections.
        """
        diameter_px, quality = np.asarray(diameter_px, dtype=float), np.asarray(quality, dtype=float)
        growth = self._growth(diameter_px[..., None], np.array(self.mode_exponent))
        doubt = np.exp(np.array(self.mode_doubt) * (REFERENCE_QUALITY - quality[..., None]))
        std = np.array(self.mode_std) * growth * doubt
        std[..., :3] = np.minimum(std[..., :3], _MOST_RAD)
        return np.asarray(std)

    @staticmethod
    def _growth(diameter_px: Array, exponent: Array | float) -> Array:
        """Return the factor by which errors of a body of this diameter grow."""
        return (REFERENCE_PX / np.clip(diameter_px, 8.0, MOST_PX)) ** exponent
