"""Draw evaluation.png: absolute error, drift over a second or half of a shorter clip, and rotation error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Array
from vid2phys.report.figures import figure, legend_above, save_figure
from vid2phys.report.metrics import pose_errors, relative_errors
from vid2phys.types import PoseLog

Truth = tuple[Array, Array, NDArray[np.bool_]]


def plot_evaluation(
    path: Path, estimate: PoseLog, truths: dict[str, Truth], asked: str, camera_position: Array | None
) -> None:
    """Write the image. truths: world positions [T, 3], quaternions [T, 4] and seen [T] by alignment name."""
    fig, (absolute, drift, rotation) = figure(3, "time in the clip (s)")
    period_s = min(1.0, 0.5 * float(np.ptp(estimate.times_s)))
    for name, (positions, quats, seen) in truths.items():
        times = estimate.times_s[seen]
        kept = PoseLog(times, estimate.positions_m[seen], estimate.orientation_quat_wxyz[seen])
        errors = pose_errors(kept, positions[seen], quats[seen], camera_position)
        style = {"lw": 1.8 if name == asked else 0.9, "alpha": 1.0 if name == asked else 0.6}
        absolute.plot(times, 1e3 * errors["position_m"], label=f"all, {name}", **style)
        if name == asked and camera_position is not None:
            absolute.plot(times, 1e3 * errors["lateral_m"], "k--", lw=0.9, label="sideways")
        starts, relative = relative_errors(kept, positions[seen], quats[seen], period_s)
        drift.plot(starts, 1e3 * relative, label=name, **style)
        rotation.plot(times, errors["rotation_deg"], label=name, **style)
    absolute.set_ylabel("position error (mm)")
    drift.set_ylabel(f"drift over {period_s:.2g} s (mm)")
    rotation.set_ylabel("rotation error (deg)")
    for axes in (absolute, drift, rotation):
        axes.set_ylim(bottom=0.0)
        legend_above(axes)
    save_figure(fig, path)
