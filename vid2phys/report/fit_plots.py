"""Plots of a fit for reports and notebooks: trajectory, residuals, actions with their bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import observe
from vid2phys.engine.system import System
from vid2phys.engine.systems._joint_tree import JointTree
from vid2phys.report.figures import COLORS, figure
from vid2phys.rotations import Array, matrix_from_quat
from vid2phys.types import Actions, Camera, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = 7  # joints
_BAND = 1.96  # standard deviations of a 95 % interval


def trajectory_plot(result: Result, system: System) -> Figure:
    """Position and roll, pitch, yaw over time; positions with 95 % bands where the covariance is known.

    Of joints on a fixed base their coordinates, with bands.
    """
    times = result.trajectory.times_s
    if isinstance(system, JointTree) and not system.robot.free_base:
        return _joints_plot(result, system)
    positions, quats = system.body_pose(result.trajectory.states)
    fig, (place, turn) = figure(2, "time in the clip (s)")
    for axis, name in enumerate("xyz"):
        (line,) = place.plot(times, positions[:, axis], label=name)
        if result.trajectory.covariance is not None and "vertex" not in system.tangent_names[0]:
            half = _BAND * np.sqrt(result.trajectory.covariance[:, axis, axis])
            _band(place, times, positions[:, axis] - half, positions[:, axis] + half, line.get_color())
    for angle, name in zip(_roll_pitch_yaw(quats), ("roll", "pitch", "yaw"), strict=True):
        turn.plot(times, np.rad2deg(angle), label=name)
    place.set_ylabel("position (m)")
    turn.set_ylabel("rotation (deg)")
    _finish((place, turn), times, np.asarray(~result.observation.visible.any(axis=1)))
    return fig


def _joints_plot(result: Result, system: JointTree) -> Figure:
    """One curve a joint, a few in a panel."""
    times, names = result.trajectory.times_s, system.robot.joint_names
    fig, panels = figure(-(-len(names) // _PANEL), "time in the clip (s)")
    for joint, name in enumerate(names):
        axes, values = panels[joint // _PANEL], result.trajectory.states[:, joint]
        (line,) = axes.plot(times, values, label=name)
        if result.trajectory.covariance is not None:
            half = _BAND * np.sqrt(result.trajectory.covariance[:, joint, joint])
            _band(axes, times, values - half, values + half, line.get_color())
        axes.set_ylabel("joints (rad or m)")
    _finish(tuple(panels), times, np.asarray(~result.observation.visible.any(axis=1)))
    return fig


def residual_plot(result: Result, system: System, camera: Camera) -> Figure:
    """Distance between keypoints seen and fitted, frame by frame: median and largest."""
    residual = residuals_px(result, system, camera)
    fig, (axes,) = figure(1, "time in the clip (s)")
    seen = np.asarray(np.isfinite(residual).any(axis=1))
    times = result.trajectory.times_s
    axes.plot(times[seen], np.nanmedian(residual[seen], axis=1), label="median keypoint")
    axes.plot(times[seen], np.nanmax(residual[seen], axis=1), lw=0.8, alpha=0.6, label="worst keypoint")
    axes.set_ylabel("residual (px)")
    axes.set_ylim(bottom=0.0)
    _finish((axes,), times, ~seen)
    return fig


def actions_plot(actions: Actions, std: Array | None) -> Figure:
    """Actions as the steps they are, with 95 % bands where their errors are known."""
    fig, axes = figure(actions.values.shape[1], "time in the clip (s)", height_in=1.5)
    times = _interval_ends(actions.times_s)
    for index, (ax, name, unit) in enumerate(zip(axes, actions.names, actions.units, strict=True)):
        values = actions.values[:, index]
        ax.stairs(values, times, baseline=None, color=COLORS[index % len(COLORS)])
        if std is not None:
            half = _BAND * std[:, index]
            low, high = (np.append(end, end[-1]) for end in (values - half, values + half))
            ax.fill_between(times, low, high, step="post", alpha=0.2, color=COLORS[index % len(COLORS)], lw=0)
        ax.set_ylabel(f"{name}\n({unit}{' per kg' if actions.per_kilogram else ''})", fontsize=9)
    return fig


def residuals_px(result: Result, system: System, camera: Camera) -> Array:
    """Distance between keypoints seen and fitted, [T, K] px at the picture's centre scale; NaN where not seen."""
    assert camera.camera_to_world is not None
    seen = result.observation
    fitted, _, _ = observe(system, result.trajectory.states, seen.points_body, camera.camera_to_world)
    focal_px = np.sqrt(camera.K[0, 0] * camera.K[1, 1])
    distance = focal_px * np.linalg.norm(seen.bearings - fitted, axis=-1)
    return np.where(seen.visible, distance, np.nan)


def _roll_pitch_yaw(quats_wxyz: Array) -> tuple[Array, Array, Array]:
    """Angles [T] rad of the z-y-x order, without jumps of a full turn."""
    r = matrix_from_quat(quats_wxyz)
    roll = np.arctan2(r[:, 2, 1], r[:, 2, 2])
    pitch = -np.arcsin(np.clip(r[:, 2, 0], -1.0, 1.0))
    yaw = np.arctan2(r[:, 1, 0], r[:, 0, 0])
    return np.unwrap(roll), pitch, np.unwrap(yaw)


def _interval_ends(starts: Array) -> Array:
    """Starts and the end of the last interval, as long as the one before it."""
    last = starts[-1] - starts[-2] if len(starts) > 1 else 1.0
    return np.append(starts, starts[-1] + last)


def _band(axes: Any, times: Array, low: Array, high: Array, color: str) -> None:
    axes.fill_between(times, low, high, color=color, alpha=0.2, lw=0)


def _finish(axes: tuple[Any, ...], times: Array, lost: NDArray[np.bool_]) -> None:
    """Legend, and grey where the object was not seen."""
    half = 0.5 * float(np.median(np.diff(times))) if len(times) > 1 else 0.5
    for ax in axes:
        for time_s in times[lost]:
            ax.axvspan(time_s - half, time_s + half, color="0.85", lw=0)
        ax.legend(fontsize=8, loc="upper right", ncols=3)
