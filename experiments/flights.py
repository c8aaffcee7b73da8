"""A recorded flight of a Crazyflie: poses at the frames of a clip, and the commands of its controller.

Logs are those of crazyswarm2's tools: places as motion capture sent them by radio, attitudes as the vehicle had them,
commanded thrust and torques, all on the vehicle's clock. Limits: logs lie beside the project's folder and are no part
of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline, make_lsq_spline
from scipy.spatial.transform import Rotation

from vid2phys.errors import InputError
from vid2phys.io.files import read_text
from vid2phys.io.table import Sheet, require_increasing
from vid2phys.solvers.problem import Knots, effective_actions
from vid2phys.types import Actions, Array

_WHAT = "a flight log of crazyswarm2's tools"
_COLUMNS = (
    *("t_s", "locSrv.x", "locSrv.y", "locSrv.z", "ctrlLee.rpyx", "ctrlLee.rpyy", "ctrlLee.rpyz"),
    *("ctrlLee.thrustSI", "ctrlLee.torquex", "ctrlLee.torquey", "ctrlLee.torquez"),
)
_COMMANDS = ("thrust", "torque_x", "torque_y", "torque_z"), ("N", "N m", "N m", "N m")
_GAP_S = 0.15  # of places: a longer one ends a stretch
_MARGIN_S = 0.05  # of a stretch, before the first frame: splines are worst at their ends
_PLACES_S, _ANGLES_S = 0.1, 0.05  # between the knots of splines
_DEGREE = 5
_RATE_STEP_S = 1e-3  # of the differences that rates are


@dataclass(frozen=True)
class Flight:
    """times_s: [F] of the frames, from 0. states: [F, 13] of a quadrotor, as recorded. commands: thrust [N] and torques
    [N m] at their own times, from the first frame on the same clock. mass_kg: by the controller's settings."""

    times_s: Array
    states: Array
    commands: Actions
    mass_kg: float

    @cached_property
    def asked_for(self) -> Array:
        """Return the mean commands over the frames' intervals, [F - 1, 4]."""
        return effective_actions(self.commands, Knots.of(self.times_s, np.inf), 0.0, 0.0)


def recorded(path: str) -> Path:
    """Return a file of the folder `shared` beside the project's. Raises InputError when it is not there."""
    places = [Path("..") / "shared" / path, Path(__file__).resolve().parents[2] / "shared" / path]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InputError(
            f"'../shared/{path}' is not here",
            "the recorded flights, which are no part of the project",
            "put the folder 'shared' beside the project's",
        )
    return found


def load_flight(log: Path, frames: int, rate_hz: float) -> Flight:
    """Return the first frames of the longest stretch of a log without a gap; the mass is in `info*.yaml` beside
    `log*.csv`.

    Places and angles are splines of fifth degree by least squares, as the places are rounded to millimetres and come
    80 times a second. Raises InputError for a file of another kind, and for a stretch that is too short.
    """
    columns = _columns(log)
    times, places, angles, commands = columns[0], columns[1:4].T, np.unwrap(columns[4:7]).T, columns[7:11].T
    received = _longest_stretch(times, np.concatenate([[True], np.abs(np.diff(places, axis=0)).sum(axis=1) > 0.0]))
    begin, end = times[received[0]], times[received[-1]]
    first = begin + _MARGIN_S
    at = first + np.arange(frames) / rate_hz
    if at[-1] > end:
        got = f"'{log}' goes on for {end - begin:.1f} s without a gap"
        raise InputError(got, f"{frames} frames at {rate_hz:g} Hz", "ask for fewer")
    there = (times >= begin) & (times <= end)
    path = _spline(times[received], places[received], _PLACES_S)
    attitude = _spline(times[there], angles[there], _ANGLES_S)
    states = np.concatenate([path(at), _quats(attitude(at)), path(at, 1), _rates(attitude, at)], axis=1)
    return Flight(at - first, states, Actions(times - first, commands, "wrench", *_COMMANDS), _mass(log))


def _columns(log: Path) -> Array:
    sheet = Sheet.read(log, _WHAT)
    missing = [name for name in _COLUMNS if name not in sheet.header]
    if missing:
        raise InputError(f"'{log}' has no {', '.join(missing)}", _WHAT, "take a log of this kind")
    found = sheet.numbers([sheet.header.index(name) for name in _COLUMNS])
    require_increasing(log, found[:, 0], sheet.row_of)
    return found.T


def _mass(log: Path) -> float:
    info = log.with_name(log.name.replace("log", "info", 1)).with_suffix(".yaml")
    lines = read_text(info, "the settings of a flight").splitlines()
    try:
        return float(dict(line.split(":", 1) for line in lines if ":" in line)["mass"])
    except (KeyError, ValueError):
        raise InputError(f"'{info}' names no mass", "a line 'mass: KILOGRAMS'", "take this log's own") from None


def _longest_stretch(times: Array, fresh: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the indices of the samples at which a place came, of the longest time between two gaps."""
    received = np.flatnonzero(fresh)
    pieces = np.split(received, np.flatnonzero(np.diff(times[received]) > _GAP_S) + 1)
    return max(pieces, key=lambda piece: times[piece[-1]] - times[piece[0]])


def _spline(times: Array, values: Array, every_s: float) -> BSpline:
    inner = np.arange(times[0] + every_s, times[-1] - every_s, every_s)
    ends = [times[0]] * (_DEGREE + 1), [times[-1]] * (_DEGREE + 1)
    return make_lsq_spline(times, values, np.concatenate([ends[0], inner, ends[1]]), _DEGREE)


def _quats(angles: Array) -> Array:
    """Return the quaternions wxyz [F, 4] of roll, pitch and yaw [F, 3] rad: about x, then y, then z of the world."""
    return Rotation.from_euler("xyz", angles).as_quat(scalar_first=True)


def _rates(attitude: BSpline, at: Array) -> Array:
    """Return the rates in body axes, [F, 3] rad/s."""
    before, after = (Rotation.from_euler("xyz", attitude(at + sign * _RATE_STEP_S)) for sign in (-0.5, 0.5))
    return np.asarray((before.inv() * after).as_rotvec() / _RATE_STEP_S)
