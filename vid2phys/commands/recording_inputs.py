"""Recordings for `fit-recording`: CSVs of states, checked for what is not meant as it is written.

Angles that start again after a turn are made continuous. Rates are compared with how fast their coordinates change, so
that degrees in a column of radians, or rates in other axes, are named. Pauses are filled with blank rows.

Limits: degrees in all of a recording's columns agree with each other; only the fit shows them (`fit_recording`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vid2phys import geometry
from vid2phys.engine.layout import NO_RATE, angles, quaternions, rates, turning
from vid2phys.errors import InputError, UsageError, unknown_name
from vid2phys.notes import doubt, warning

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.solvers.recorded import Recording
    from vid2phys.types import Actions, Array, Trajectory

_QUANTITY = re.compile("_(position|velocity|angle|rate)_")  # words that columns of joints have, and states have not
_LEAST_NOISE = 1e-4  # of a coordinate's spread: recordings without noise are not taken for exact
_HALF_TURN = np.pi
_ROOM = 1.05  # by how much noise may widen a turn
_DEGREES = 180.0 / np.pi
_ALIKE, _FACTOR = 0.9, 1.25  # correlation of rates that belong together, and the factor their sizes may differ by
_LEAST_ROWS = 8  # to compare rates over, and to estimate noise from
_UNIT_LENGTH = 0.05  # by how much the length of a recorded quaternion may be off
_NAMED = 5  # columns that a note lists
_POSES = (
    ("x", "y", "z", "qw", "qx", "qy", "qz"),
    ("position_x_m", "position_y_m", "position_z_m", "orientation_quat_w", "orientation_quat_x", "orientation_quat_y",
     "orientation_quat_z"),
)  # fmt: skip
_TILTED, _LOOSE = np.radians(2.0), 0.02  # tilt of an axis, and distance from one hinge over the length, that are noted
_PAUSE, _MOST_FILLED = 2.0, 10_000  # usual intervals that are a pause from there on, and rows that fill all pauses


def read_recording(
    system: System, path: Path, std: dict[str, float], *, degrees: bool = False
) -> tuple[Recording, list[str]]:
    """Return the recording of a CSV, of which some states may be missing, and notes on it.

    std: standard deviations by tangent coordinate, in SI. degrees: take columns in rad and rad/s for degrees.
    Raises InputError for a file without states, a column that is there twice, part of a quaternion, and units that
    contradict each other. Raises UsageError for unknown names and impossible values in `std`.
    """
    from vid2phys.io.recordings import load_trajectory
    from vid2phys.solvers.recorded import Recording
    from vid2phys.solvers.recorded_start import first_state

    for name, value in std.items():
        if name not in system.tangent_names:
            raise unknown_name("state", name, system.tangent_names)
        if not 0.0 < value < np.inf:
            raise UsageError(f"--std {name}={value:g}", "a positive, finite number", "only their ratios matter")
    table = load_trajectory(path)
    table = replace(table, state_names=tuple(_state_name(name, system) for name in table.state_names))
    table, of_poses = _with_angle(system, table, path)
    seen, notes = _seen(system, table, path)
    notes += of_poses
    if degrees:
        seen[:, turning(system.state_names)] /= _DEGREES
    notes += _made_continuous(system, table.times_s, seen, path)
    notes += _compared_rates(system, table.times_s, seen, path)
    noise = np.array([std.get(name, float(j)) for name, j in zip(system.tangent_names, _jitter(system, seen),
                                                                  strict=True)])  # fmt: skip
    start = first_state(system, table.times_s, seen, noise, system.rest_state())
    return _filled(Recording(table.times_s, seen, noise, start, controls=_controls(system, table))), notes


def _state_name(name: str, system: System) -> str:
    """Return the name of a state for a column such as `elbow_position_rad`, `elbow_rate_rad_s` or `x` of a pose."""
    of_pose = dict(zip(*_POSES, strict=True)).get(name)
    if of_pose in system.state_names and name not in system.state_names:
        return str(of_pose)
    plain = _QUANTITY.sub("_", name, count=1)
    return plain if name not in system.state_names and plain in system.state_names else name


def _with_angle(system: System, table: Trajectory, path: Path) -> tuple[Trajectory, list[str]]:
    """Return a table of poses as one of angles, for a body on a hinge; other tables as they are. And notes on it."""
    from vid2phys.commands.system_choice import is_on_hinge
    from vid2phys.engine.movable.hinged import hinge_of_poses, swing_angles
    from vid2phys.geometry import Pose, matrix_from_quat
    from vid2phys.types import Trajectory

    names = table.state_names
    columns = next((pose for pose in _POSES if set(pose) <= set(names)), None)
    if not is_on_hinge(system) or columns is None or set(names) & set(system.state_names):
        return table, []
    values = table.states[:, [names.index(name) for name in columns]]
    known = np.isfinite(values).all(axis=1)
    if known.sum() < _LEAST_ROWS:
        raise InputError(f"'{path}' has {known.sum()} poses", f"at least {_LEAST_ROWS}", "record longer")
    poses = Pose(matrix_from_quat(values[known, 3:]), values[known, :3])
    axis, point, off_m = hinge_of_poses(poses)
    angles = np.full((len(values), 1), np.nan)
    angles[known, 0], hanging = swing_angles(poses, axis, point)
    at, length = ", ".join(f"{x:.4g}" for x in hanging.world_from_swing.translation), hanging.length
    along = ", ".join(f"{x:.4g}" for x in axis)
    notes = [
        f"'{path}': poses as the angle about a hinge at ({at}) m along ({along}); the body's origin, taken for its "
        f"centre of mass, is {length:.4g} m from it; two lengths have the same period, so begin near it with --set "
        f"length={length:.4g}"
    ]
    if abs(hanging.tilt) > _TILTED:
        notes.append(warning(f"the axis is not level: give --set axis_tilt={hanging.tilt:.4g}"))
    if off_m > _LOOSE * length:
        notes.append(doubt(f"the poses are {1e3 * off_m:.2g} mm off one hinge: is the joint a hinge?"))
    return Trajectory(table.times_s, angles, system.state_names[:1]), notes


def read_markers(system: System, path: Path, places: Path) -> Recording:
    """Return the recording of markers, columns `NAME_x_m` and so on, on a body that starts at rest in its shape.

    places: CSV of the markers' places on the body at rest (name, x_m, y_m, z_m), in the world's axes.
    Raises InputError for a recording without a coordinate of these markers.
    """
    from vid2phys.io.points import load_body_points
    from vid2phys.io.recordings import load_trajectory
    from vid2phys.solvers.recorded import Recording

    points, table = load_body_points(places), load_trajectory(path)
    columns = [f"{name}_{axis}_m" for name in points for axis in "xyz"]
    known = {name: i for i, name in enumerate(table.state_names)}
    if not set(columns) & set(known):
        got = f"'{path}' has no coordinate of the markers of '{places}'"
        raise InputError(got, f"time_s and some of {', '.join(columns[:6])}", "name the columns so")
    rows = len(table.times_s)
    seen = np.stack([table.states[:, known[c]] if c in known else np.full(rows, np.nan) for c in columns], axis=1)
    moves = [values[np.isfinite(values)] for values in seen.T]
    noise = [np.median(np.abs(np.diff(v, 3))) / (0.6745 * np.sqrt(20.0)) for v in moves if len(v) > _LEAST_ROWS]
    spread = max((float(np.ptp(v)) for v in moves if len(v)), default=0.0)
    std = np.array(max(float(np.max(noise, initial=0.0)), _LEAST_NOISE * spread, 1e-9))
    markers = np.array(list(points.values()))
    still = np.zeros(len(system.tangent_names))
    start = system.rest_state()
    return Recording(table.times_s, seen.reshape(rows, -1, 3), std, start, still, points_body=markers)


def with_actions(system: System, recording: Recording, actions: Actions) -> Recording:
    """Return the recording with recorded actions, their means over its intervals.

    Raises InputError for actions that do not last as long as the recording.
    """
    from vid2phys.solvers.problem import Knots, effective_actions

    _require_cover(actions, recording.times_s)
    controls = np.zeros((len(recording.times_s) - 1, len(system.control_names)))
    knots = Knots.of(recording.times_s, np.inf)
    controls[:, : len(system.action_names)] = effective_actions(actions, knots, 0.0, 0.0)
    return replace(recording, controls=controls)


def _require_cover(actions: Actions, times_s: Array) -> None:
    """Raises InputError for actions that begin after a recording or end before it.

    The last action lasts for one more interval, a single one for ever. Half an interval may be missing at both ends.
    """
    interval_s = float(np.median(np.diff(actions.times_s))) if len(actions.times_s) > 1 else np.inf
    begin, end = float(actions.times_s[0]), float(actions.times_s[-1]) + interval_s
    if begin > times_s[0] + 0.5 * interval_s or end < times_s[-1] - 0.5 * interval_s:
        expected = f"the recording's {times_s[0]:.4g} to {times_s[-1]:.4g} s"
        raise InputError(f"the actions cover {begin:.4g} to {end:.4g} s", expected, "cut the recording or shift time_s")


def _filled(recording: Recording) -> Recording:
    """Return the recording with blank rows in its pauses: intervals of integration are then about equally long."""
    intervals_s = np.diff(recording.times_s)
    usual_s = float(np.median(intervals_s)) if len(intervals_s) else 1.0
    parts = np.where(intervals_s > _PAUSE * usual_s, np.ceil(intervals_s / usual_s - 1e-6), 1.0)
    if parts.sum() - len(parts) > _MOST_FILLED or (parts == 1.0).all():
        return recording
    parts = parts.astype(np.int64)
    rows = np.concatenate([[0], np.cumsum(parts)])  # of what was recorded, in the longer recording
    seen = np.full((rows[-1] + 1, recording.seen.shape[1]), np.nan)
    seen[rows] = recording.seen
    times_s = np.interp(np.arange(rows[-1] + 1), rows, recording.times_s)
    controls = None if recording.controls is None else np.repeat(recording.controls, parts, axis=0)
    return replace(recording, times_s=times_s, seen=seen, controls=controls)


def _seen(system: System, table: Trajectory, path: Path) -> tuple[Array, list[str]]:
    """Return states [T, N], NaN where nothing was seen, and notes on columns and rows that are not used."""
    twice = [name for i, name in enumerate(table.state_names) if name in table.state_names[:i]]
    if twice:
        raise InputError(f"'{path}' has the column '{twice[0]}' twice", "each state once", "rename or cut one of them")
    empty = np.asarray((~np.isfinite(table.states)).all(axis=0))
    columns = [name for i, name in enumerate(table.state_names) if name in system.state_names and not empty[i]]
    if not columns:
        blank = ", where all cells of a column are blank" if empty.any() else ""
        got = f"'{path}' has none of the states of '{system.name}'{blank}"
        raise InputError(got, f"time_s and some of {', '.join(system.state_names[:13])}", "name the columns so")
    notes: list[str] = []
    unused = [name for name in table.state_names if name not in system.state_names]
    if table.controls is not None and _controls(system, table) is None:
        unused.append("control_...")
    if unused:
        listed = ", ".join(unused[:_NAMED]) + (f" and {len(unused) - _NAMED} more" if len(unused) > _NAMED else "")
        notes.append(warning(f"'{path}': {listed} belong to no state or control of '{system.name}' and are not used"))
    seen = np.full((len(table.times_s), len(system.state_names)), np.nan)
    for name in columns:
        seen[:, system.state_names.index(name)] = table.states[:, table.state_names.index(name)]
    infinite = np.isinf(seen).any(axis=1)
    if infinite.any():
        seen[np.isinf(seen)] = np.nan
        notes.append(warning(f"'{path}': {infinite.sum()} rows have infinite values, which are not used"))
    for quaternion in quaternions(system.state_names):
        given = [system.state_names[i] in columns for i in quaternion]
        if any(given) and not all(given):
            missing = ", ".join(system.state_names[i] for i, there in zip(quaternion, given, strict=True) if not there)
            raise InputError(f"'{path}' has part of a quaternion", f"also {missing}", "write all four, or none")
        if all(given):
            notes += _normalised(seen, quaternion, path)
    return seen, notes


def _normalised(seen: Array, quaternion: list[int], path: Path) -> list[str]:
    """Bring the quaternions of `seen` to unit length, blank those that are none, and return a note on these."""
    length = np.linalg.norm(seen[:, quaternion], axis=1)
    wrong = np.abs(length - 1.0) > _UNIT_LENGTH
    seen[:, quaternion] /= np.where(wrong, np.nan, length)[:, None]
    if not np.isfinite(seen[:, quaternion]).any():
        raise InputError(f"'{path}' has no quaternion of length 1", "wxyz, of unit length", "check its columns")
    if not wrong.any():
        return []
    return [warning(f"'{path}': {wrong.sum()} rows have quaternions that are not of length 1, which are not used")]


def _made_continuous(system: System, times_s: Array, seen: Array, path: Path) -> list[str]:
    """Take the jumps of whole turns out of the angles of `seen`, and return a note on them.

    An angle that stays within a turn and jumps by more than half of it starts again. Raises InputError for jumps of
    360, which are degrees.
    """
    continued = []
    for i in angles(system.state_names):
        name, finite = system.state_names[i], np.flatnonzero(np.isfinite(seen[:, i]))
        jump = float(np.abs(np.diff(seen[finite, i])).max(initial=0.0))
        span = float(np.ptp(seen[finite, i])) if len(finite) else 0.0
        if jump > _HALF_TURN and span < _ROOM * 2.0 * _HALF_TURN:
            seen[finite, i] = _unwrapped(times_s[finite], seen[finite, i])
            continued.append(name)
        elif jump > 180.0 and span < _ROOM * 360.0:
            got = f"'{name}' of '{path}' jumps by {jump:.0f}"
            raise InputError(got, "angles in rad", "it looks like degrees: multiply the column by pi / 180")
    if not continued:
        return []
    return [f"'{path}': {', '.join(continued)} started again after a turn and was made continuous"]


def _unwrapped(times_s: Array, values: Array) -> Array:
    """Return angles [T] rad without jumps of whole turns: each as near as can be to where the two before it lead."""
    found = values.copy()
    for k in range(1, len(found)):
        rate = (found[k - 1] - found[k - 2]) / (times_s[k - 1] - times_s[k - 2]) if k > 1 else 0.0
        ahead = found[k - 1] + rate * (times_s[k] - times_s[k - 1])
        found[k] += 2.0 * _HALF_TURN * np.round((ahead - found[k]) / (2.0 * _HALF_TURN))
    return found


def _compared_rates(system: System, times_s: Array, seen: Array, path: Path) -> list[str]:
    """Return notes on recorded rates that contradict how fast their coordinates change.

    Raises InputError where one of the two is in degrees.
    """
    names, notes, rate_of = system.tangent_names, list[str](), rates(system.tangent_names)
    change = np.asarray(system.local(seen[:-1], seen[1:]), dtype=float) / np.diff(times_s)[:, None]
    for group, quaternion in _compared_together(system):
        columns = seen[:, [system.state_names.index(names[i]) for i in rate_of[group]]]
        recorded = 0.5 * (columns[1:] + columns[:-1])
        factor = _factor(change[:, group], recorded)
        if factor is not None and 1.0 / _FACTOR < factor < _FACTOR:
            continue
        rate, coordinate = names[rate_of[group[0]]], names[group[0]]
        if quaternion and _factor(_in_world(seen[:-1, quaternion], change[:, group]), recorded) is not None:
            notes.append(warning(f"'{path}': '{rate}' ... are in the axes of the world, not of the body"))
        elif factor is not None:
            _require_radians(factor, rate, coordinate, path)
            notes.append(warning(f"'{path}': '{rate}' is {factor:.3g} times the rate of change of '{coordinate}': "
                                 "check its unit and sign"))  # fmt: skip
    return notes


def _compared_together(system: System) -> list[tuple[list[int], list[int]]]:
    """Return groups of tangent coordinates that have rates: the three turns of a free body, with its quaternion [4] in
    the state, and each other one by itself."""
    names, rate_of = system.tangent_names, rates(system.tangent_names)
    groups: list[tuple[list[int], list[int]]] = []
    for quaternion in quaternions(system.state_names):
        suffix = system.state_names[quaternion[0]].partition("quat_w")[2]
        groups.append(([names.index(f"rotation_{axis}{suffix}_rad") for axis in "xyz"], quaternion))
    with_rates = {d for group, _ in groups for d in group}
    return groups + [([d], []) for d in range(len(names)) if rate_of[d] != NO_RATE and d not in with_rates]


def _require_radians(factor: float, rate: str, coordinate: str, path: Path) -> None:
    """Raises InputError where the factor between a rate and a change is that between degrees and radians."""
    if "rad" not in rate.split(" of ")[0]:
        return
    for wrong, times in ((rate, factor / _DEGREES), (coordinate, 1.0 / (factor * _DEGREES))):
        if 1.0 / _FACTOR < times < _FACTOR:
            got = f"'{rate}' of '{path}' is {factor:.3g} times the rate of change of '{coordinate}'"
            raise InputError(got, "radians in both", f"'{wrong}' looks like degrees: multiply it by pi / 180")


def _in_world(quats: Array, vectors: Array) -> Array:
    """Return vectors [T, 3] of a body in the world's axes; NaN where the orientation was not seen."""
    known = np.isfinite(quats).all(axis=1)
    turned = np.full(vectors.shape, np.nan)
    turned[known] = geometry.rotate(quats[known], vectors[known])
    return turned


def _factor(change: Array, recorded: Array) -> float | None:
    """Return how many times the change [T, K] the recorded rate [T, K] is, None where the two are not alike."""
    both = np.isfinite(change) & np.isfinite(recorded)
    x, y = change[both], recorded[both]
    if len(x) < _LEAST_ROWS or not (x @ x) * (y @ y) > 0.0:
        return None
    alike = (x @ y) / np.sqrt((x @ x) * (y @ y))
    return float(np.sign(alike) * np.sqrt((y @ y) / (x @ x))) if abs(alike) > _ALIKE else None


def _jitter(system: System, seen: Array) -> Array:
    """Return how far each tangent coordinate is from being smooth, [D].

    Third differences of white noise have sqrt(20) times its standard deviation, and half of a normal distribution lies
    within 0.6745 standard deviations.
    """
    from vid2phys.solvers.recorded_start import reference_state

    moved = np.asarray(system.local(reference_state(seen, system.rest_state()), seen), dtype=float)
    size = moved.shape[1]
    found = np.ones(size)
    for d in range(size):
        values = moved[np.isfinite(moved[:, d]), d]
        if len(values) > _LEAST_ROWS:
            noise = float(np.median(np.abs(np.diff(values, 3)))) / (0.6745 * np.sqrt(20.0))
            found[d] = max(noise, _LEAST_NOISE * float(np.ptp(values)), 1e-12)
    return found


def _controls(system: System, table: Trajectory) -> Array | None:
    """Return the controls of a trajectory that `simulate` wrote, None for other tables."""
    if table.controls is None or table.controls.shape[1] != len(system.control_names):
        return None
    return table.controls
