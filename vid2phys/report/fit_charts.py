"""Make the charts of a fit: trajectory, residuals, actions, impacts, parameters, with their 95 % bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import observe
from vid2phys.engine.pose_geometry import image_points
from vid2phys.engine.system import System
from vid2phys.geometry import Array, Pose, matrix_from_quat
from vid2phys.report.charts import TIME, Chart, Curve, Panel, Style
from vid2phys.types import Actions, Camera, Posterior, Result

_PANEL = 7  # joints
BAND = 1.96  # standard deviations of a 95 % interval
_WIDE = 3.5  # standard deviations that densities are drawn over
_MOST_PARAMETERS = 4  # that are drawn against each other


def trajectory_chart(result: Result, system: System) -> Chart:
    """Return position and roll, pitch, yaw over time, with 95 % bands on positions where the covariance is known.

    Other systems have their coordinates instead: joints, the angle of a hinge, modes.
    """
    times = result.trajectory.times_s
    if _coordinates(result):
        panels = _joint_panels(result)
    else:
        positions, quats = system.body_pose(result.trajectory.states)
        stated = result.trajectory.covariance is not None and "vertex" not in system.tangent_names[0]
        place = [
            Curve(times, positions[:, axis], name, _band(result, positions[:, axis], axis) if stated else None)
            for axis, name in enumerate("xyz")
        ]
        rotation = [
            Curve(times, np.rad2deg(angle), name)
            for angle, name in zip(_roll_pitch_yaw(quats), ("roll", "pitch", "yaw"), strict=True)
        ]
        panels = [Panel(tuple(place), "position (m)"), Panel(tuple(rotation), "rotation (deg)")]
    return _over_time("Trajectory", panels, times, ~result.observation.seen)


def _coordinates(result: Result) -> list[str]:
    """Return the names of joints, the angle of a hinge or modes, which are the first half of a state.

    A state that begins with a position has none: that of a rigid body or of vertices.
    """
    names = result.trajectory.state_names
    if names[0].startswith("position_"):
        return []
    return [name.rpartition("_")[0] for name in names[: len(names) // 2]]


def _joint_panels(result: Result) -> list[Panel]:
    """Return panels with one curve a joint."""
    times, values = result.trajectory.times_s, result.trajectory.states
    stated = result.trajectory.covariance is not None
    curves = [
        Curve(times, values[:, joint], name, _band(result, values[:, joint], joint) if stated else None)
        for joint, name in enumerate(_coordinates(result))
    ]
    return _few_a_panel(curves, "joints (rad or m)")


def _few_a_panel(curves: list[Curve], label: str) -> list[Panel]:
    """Return panels with a few of the curves in each. label: of their axes."""
    return [Panel(tuple(curves[first : first + _PANEL]), label) for first in range(0, len(curves), _PANEL)]


def residual_chart(result: Result, system: System, camera: Camera) -> Chart | None:
    """Return what is left between measurement and fit, frame by frame; None where nothing was measured.

    Of points of the body these are the median and the largest distance. Of joints, the angle of a hinge and modes, it
    is the difference.
    """
    times, measured, names = result.trajectory.times_s, result.observation.configuration, _coordinates(result)
    if names and measured is not None and not isinstance(measured.configuration, Pose):
        seen = measured.measured
        left = (measured.configuration - result.trajectory.states[:, : len(names)])[seen]
        curves = [Curve(times[seen], each, name) for each, name in zip(left.T, names, strict=True)]
        panels = _few_a_panel(curves, "measured - fitted\n(rad or m)")
    else:
        residual = residuals_px(result, system, camera)
        seen = np.asarray(np.isfinite(residual).any(axis=1))
        curves = [Curve(times[seen], np.nanmedian(residual[seen], axis=1), "median point")]
        curves.append(Curve(times[seen], np.nanmax(residual[seen], axis=1), "worst point", style="thin"))
        panels = [Panel(tuple(curves), "residual (px)", from_zero=True)]
    return _over_time("Residuals", panels, times, ~seen) if seen.any() else None


def actions_chart(actions: Actions, std: Array | None) -> Chart:
    """Return the actions as steps, with 95 % bands where their errors are known."""
    times, per = _interval_ends(actions.times_s), " per kg" if actions.per_kilogram else ""
    panels = []
    for index, (name, unit) in enumerate(zip(actions.names, actions.units, strict=True)):
        values = np.append(actions.values[:, index], actions.values[-1, index])
        half = None if std is None else BAND * np.append(std[:, index], std[-1, index])
        curve = Curve(times, values, "", None if half is None else (values - half, values + half), "steps", index)
        panels.append(Panel((curve,), f"{name}\n({unit}{per})"))
    return _over_time("Actions", panels, times, np.zeros(len(times), bool), panel_height_in=1.5)


def impacts_chart(impacts: Sequence[Mapping[str, float]], times_s: Array) -> Chart:
    """Return the impulses of impacts per kilogram over time, with 95 % intervals.

    impacts: as `result.json` lists them. times_s: [F] of the frames.
    """
    time = np.array([each["time_s"] for each in impacts])
    panels = []
    for name, label in (("normal_impulse", "along the normal"), ("friction_impulse", "along the plane")):
        value, std = (np.array([each[f"{name}{end}"] for each in impacts]) for end in ("_m_s", "_std_m_s"))
        drawn = Curve(*_verticals(time, np.zeros_like(value), value), "impulse", hue=0)
        interval = Curve(*_verticals(time, value - BAND * std, value + BAND * std), "95 %", hue=1)
        panels.append(Panel((drawn, interval), f"{label}\n(m/s)"))
    span = Curve(times_s[[0, -1]], np.zeros(2), style="thin", hue=0)
    panels[0] = replace(panels[0], curves=(*panels[0].curves, span))
    return _over_time("Impacts", panels, times_s, np.zeros(len(times_s), bool), panel_height_in=1.5)


def _verticals(x: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return points [3 N] of N vertical lines, with a gap after each."""
    gap = np.full_like(x, np.nan)
    return np.stack([x, x, gap], axis=1).ravel(), np.stack([low, high, gap], axis=1).ravel()


def posterior_chart(posterior: Posterior, priors: dict[str, tuple[float, float]]) -> Chart:
    """Return the posterior of the fitted parameters: the density of each, and regions of pairs (68 and 95 %).

    priors: mean and standard deviation in the parameter's unit, drawn dashed. Densities are over solver coordinates,
    relative to their peak.
    """
    shown = range(min(len(posterior.names), _MOST_PARAMETERS))
    rows = tuple(
        tuple(
            _density(posterior, i, priors.get(posterior.names[i])) if i == j else _pair(posterior, j, i)
            for j in range(i + 1)
        )
        + (None,) * (len(shown) - 1 - i)
        for i in shown
    )
    return Chart("Posterior of the parameters", rows, over_time=False)


def residuals_px(result: Result, system: System, camera: Camera) -> Array:
    """Return the distance between measured and fitted keypoints, [T, K] px at the image's centre; NaN without any.

    Where a pose was measured, its keypoints count as measured.
    """
    assert camera.camera_to_world is not None
    seen = result.observation
    fitted, _, _ = observe(system, result.trajectory.states, seen.points_body, camera.camera_to_world)
    focal_px = np.sqrt(camera.K[0, 0] * camera.K[1, 1])
    measured, shown = image_points(seen)
    return np.where(shown, focal_px * np.linalg.norm(measured - fitted, axis=-1), np.nan)


def _density(posterior: Posterior, i: int, prior: tuple[float, float] | None) -> Panel:
    """Return the density of one parameter, with its 95 % interval filled."""
    away = np.linspace(-_WIDE, _WIDE, 141)
    inner = away[np.abs(away) < BAND]
    at = [_value(posterior, i, posterior.mean[i] + posterior.std[i] * part) for part in (away, inner)]
    curves = [
        Curve(at[1], _bell(inner), "95 %", style="filled", hue=0),
        Curve(at[0], _bell(away), posterior.names[i], hue=0),
    ]
    if prior is not None:
        curves.append(Curve(at[0], _bell((at[0] - prior[0]) / prior[1]), "prior", style="dashed", hue=1))
    return Panel(tuple(curves), "density", _axis(posterior, i), from_zero=True)


def _pair(posterior: Posterior, j: int, i: int) -> Panel:
    """Return the ellipses that hold 68 and 95 % of two parameters, j across and i up."""
    around = np.linspace(0.0, 2.0 * np.pi, 91)
    factor = np.linalg.cholesky(posterior.covariance[np.ix_([j, i], [j, i])] + 1e-300 * np.eye(2))
    circle = factor @ np.stack([np.cos(around), np.sin(around)])

    def contour(share: float, style: Style) -> Curve:
        offset = np.sqrt(-2.0 * np.log(1.0 - share)) * circle
        x, y = (_value(posterior, k, posterior.mean[k] + offset[n]) for n, k in enumerate((j, i)))
        return Curve(x, y, f"{share:.0%}", style=style, hue=0)

    label = f"{_axis(posterior, j)}\ncorrelation {posterior.correlation[j, i]:+.2f}"
    return Panel((contour(0.68, "line"), contour(0.95, "thin")), _axis(posterior, i), label)


def _value(posterior: Posterior, i: int, coordinate: Array) -> Array:
    """Return the parameter's values at solver coordinates."""
    return np.asarray(np.exp(coordinate) if posterior.logarithmic[i] else coordinate)


def _axis(posterior: Posterior, i: int) -> str:
    unit = posterior.units[i]
    return posterior.names[i] if unit == "1" else f"{posterior.names[i]} ({unit})"


def _bell(normal: Array) -> Array:
    return np.asarray(np.exp(-0.5 * normal**2))


def _band(result: Result, values: Array, index: int) -> tuple[Array, Array]:
    assert result.trajectory.covariance is not None
    half = BAND * np.sqrt(result.trajectory.covariance[:, index, index])
    return values - half, values + half


def _roll_pitch_yaw(quats_wxyz: Array) -> tuple[Array, Array, Array]:
    """Return the angles [T] rad of the z-y-x order, without jumps of a full rotation."""
    r = matrix_from_quat(quats_wxyz)
    roll = np.arctan2(r[:, 2, 1], r[:, 2, 2])
    pitch = -np.arcsin(np.clip(r[:, 2, 0], -1.0, 1.0))
    yaw = np.arctan2(r[:, 1, 0], r[:, 0, 0])
    return np.unwrap(roll), pitch, np.unwrap(yaw)


def _interval_ends(starts: Array) -> Array:
    """Return the starts and the end of the last interval, as long as the one before it."""
    last = starts[-1] - starts[-2] if len(starts) > 1 else 1.0
    return np.append(starts, starts[-1] + last)


def _over_time(
    title: str, panels: list[Panel], times: Array, lost: NDArray[np.bool_], *, panel_height_in: float = 2.2
) -> Chart:
    """Return a chart of panels below each other; spans in which the object was not detected are marked."""
    half = 0.5 * float(np.median(np.diff(times))) if len(times) > 1 else 0.5
    absent = [(float(time_s - half), float(time_s + half)) for time_s in times[lost]]
    rows = [(panel,) for panel in panels]
    rows[-1] = (replace(panels[-1], x_label=TIME),)
    return Chart(title, tuple(rows), absent=_joined(absent), panel_height_in=panel_height_in)


def _joined(spans: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the spans, with those that touch as one."""
    out: list[tuple[float, float]] = []
    for begin, end in spans:
        if out and begin <= out[-1][1] + 1e-6:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return tuple(out)
