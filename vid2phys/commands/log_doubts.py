"""Does a motion capture log show the motion of the run? If not, which option of `vid2phys evaluate` mends it?

Other options are tried, one after another. Two numbers judge a log that was read with them: how far its path is from
the run's, and how far its orientations are, each as a share of what the run's own vary by. The log's clock, its origin,
its heading and the pose of the marker on the body are free. The vertical axis is not: it has to be the run's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vid2phys.commands.configs import EvaluateConfig
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import angle_between, matrix_from_quat, quat_conjugate, quat_from_rotvec, quat_multiply
from vid2phys.io.mocap import ANGLE_UNITS, EULER_ORDERS, LENGTH_UNITS
from vid2phys.notes import warning
from vid2phys.report.alignment import find_time_offset, interpolate
from vid2phys.types import Array, PoseLog

_SUSPECT = 0.3  # share of the run's motion that the log misses
_EXPLAINED = 0.3  # of that share: what another option leaves
_UNLIKE = 0.6  # share from which on the log shows another motion
_LEAST_PATH_M = 0.03  # spread of a path that has a shape
_LEAST_TURN_RAD = 0.05  # spread of orientations that vary
_SAME_SIZE = 1.3  # times: paths whose sizes differ by less are in the same unit
_MARKER_M, _PATH_M = 0.1, 0.02  # usual lever arm of a marker, and error of a path
_ROUNDS = 3  # of heading and marker, each with the other held
_MIRROR, _MIRROR_TURN = np.array([1.0, -1.0, 1.0]), np.array([1.0, -1.0, 1.0, -1.0])  # quaternions wxyz
_CLOCKS = {"milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
_FLAGS = {"units": "--mocap-units", "up_axis": "--up-axis", "euler": "--euler", "angle_units": "--euler-units"}
Read = Callable[[EvaluateConfig], PoseLog]


@dataclass(frozen=True)
class Misfit:
    """How far a log is from a run: path and rotation as shares of the run's.

    size: of its path, over that of the run's.
    """

    path: float
    rotation: float
    size: float


def doubts_of_log(
    estimate: PoseLog, log: PoseLog, offset_s: float, read: Read, options: EvaluateConfig
) -> tuple[str, ...]:
    """Return notes on a log that does not show the motion of the run.

    offset_s: as the log's clock was aligned. read: reads the log with other options; options: those given.
    """
    first = misfit(estimate, log, offset_s)
    if max(first.path, first.rotation) < _SUSPECT:
        return ()
    first = _misfit(estimate, log)  # with the clock that fits best whatever the log's world
    if max(first.path, first.rotation) < _SUSPECT:
        return (warning("the log's world looks turned about the vertical: evaluate with --align world"),)
    if first.path > _SUSPECT:
        tried = [(_misfit(estimate, other).path, how) for how, other in _other_paths(log, first.size, read, options)]
        left, how = min(tried)
        if left < _EXPLAINED * first.path:
            return (warning(how),)
    if first.rotation > _SUSPECT:
        tried = [(_misfit(estimate, other).rotation, how) for how, other in _other_rotations(log, read, options)]
        left, how = min(tried)
        if left < _EXPLAINED * first.rotation:
            return (warning(how),)
        if first.path < _SUSPECT:
            return (warning("the log shows the path of the run, but other rotations: are these of this body?"),)
    if max(first.path, first.rotation) > _UNLIKE:
        return (
            warning(
                "the log does not show the motion of the run: is it a log of this clip and body, and is the run good?"
            ),
        )
    return ()


def misfit(estimate: PoseLog, log: PoseLog, offset_s: float) -> Misfit:
    """Return how far a log is from a run; shares are 0 where the run moves or turns too little to say."""
    places, quats, seen = interpolate(log, estimate.times_s + offset_s)
    if seen.sum() < 3:
        return Misfit(np.inf, np.inf, 1.0)
    run, ours, theirs = _centred(estimate.positions_m[seen]), estimate.orientation_quat_wxyz[seen], quats[seen]
    spread, size = _rms(run), _rms(_centred(places[seen]))
    off, heading = _off(run, places[seen], matrix_from_quat(theirs))
    moves = spread > _LEAST_PATH_M
    turned = quat_multiply(quat_from_rotvec(np.array([0.0, 0.0, heading if moves else 0.0])), theirs)
    varies = _varying(ours)
    return Misfit(
        _rms(off) / spread if moves else 0.0,
        _varying(quat_multiply(quat_conjugate(turned), ours)) / varies if varies > _LEAST_TURN_RAD else 0.0,
        size / spread if moves else 1.0,
    )


def _misfit(estimate: PoseLog, log: PoseLog) -> Misfit:
    """Return how far a log is from a run, whatever its clock."""
    try:
        return misfit(estimate, log, find_time_offset(estimate, log, world=True))
    except InputError:
        return Misfit(np.inf, np.inf, 1.0)


def _off(run: Array, places: Array, rotation: Array) -> tuple[Array, float]:
    """Return what the log's path [T, 3] leaves of the run's, [T, 3], in the best heading, and that heading.

    rotation: [T, 3, 3] of the log's body, whose marker is put where it fits best. The heading, in rad, turns the log's
    world about the vertical into the run's.
    """
    other, arms = _centred(places), rotation - rotation.mean(axis=0)
    marker, weight = np.zeros(3), (_PATH_M / _MARKER_M) ** 2 * np.eye(3)
    for _ in range(_ROUNDS):
        moved = other + arms @ marker
        heading = float(np.angle(((run[:, 0] + 1j * run[:, 1]) * (moved[:, 0] - 1j * moved[:, 1])).sum()))
        left = run @ matrix_from_quat(quat_from_rotvec(np.array([0.0, 0.0, heading]))) - other  # in the log's world
        marker = np.linalg.solve(np.einsum("tij,tik->jk", arms, arms) + weight, np.einsum("tij,ti->j", arms, left))
    return np.asarray(left - arms @ marker), heading


def _centred(path: Array) -> Array:
    return np.asarray(path - path.mean(axis=0))


def _rms(path: Array) -> float:
    return float(np.sqrt((path**2).sum(axis=1).mean()))


def _varying(quats: Array) -> float:
    """Return how far orientations [T, 4] are from their mean, rad: zero for a constant difference."""
    mean = np.linalg.eigh(quats.T @ quats)[1][:, -1]  # Markley et al. 2007
    return float(np.sqrt(np.mean(angle_between(quats, mean) ** 2)))


def _other_paths(log: PoseLog, size: float, read: Read, options: EvaluateConfig) -> Iterator[tuple[str, PoseLog]]:
    """Yield the log with other units, vertical axes and clocks, and mirrored, each with a note on what mends it."""
    unit = _unit(log, size, read, options)
    units: list[dict[str, Any]] = [{}] if unit is None else [{"units": unit}, {}]
    axes: list[dict[str, Any]] = [{}] + [{"up_axis": axis} for axis in "yzx" if axis != options.up_axis]
    for changed in [{**one, **other} for one in units for other in axes if one or other]:
        seems = [f"{changed['up_axis']}-up"] if "up_axis" in changed else []
        seems += [f"in {changed['units']}"] if "units" in changed else []
        yield from _loaded_again(f"the log looks {' and '.join(seems)}", changed, read, options)
    for unit_of_time, second in _CLOCKS.items():
        slower = replace(log, times_s=log.times_s * second)
        yield f"the log's times look like {unit_of_time}: export them in seconds", slower
    mirrored = replace(
        log, positions_m=log.positions_m * _MIRROR, orientation_quat_wxyz=log.orientation_quat_wxyz * _MIRROR_TURN
    )
    yield "the log looks left-handed: export it with right-handed axes", mirrored


def _other_rotations(log: PoseLog, read: Read, options: EvaluateConfig) -> Iterator[tuple[str, PoseLog]]:
    """Yield the log with other angles or quaternions, each with a note on what mends it."""
    if options.angle_units is not None:
        for unit in ANGLE_UNITS:
            yield from _loaded_again(f"the log's angles look like {unit}", {"angle_units": unit}, read, options)
    if options.euler is not None:
        for order in EULER_ORDERS:
            yield from _loaded_again(f"the log's angles look like {order}", {"euler": order}, read, options)
    for shift, order in ((-1, "w, x, y, z"), (1, "x, y, z, w")):
        other = replace(log, orientation_quat_wxyz=np.roll(log.orientation_quat_wxyz, shift, axis=1))
        yield f"the log's quaternions look like {order}: put its columns in the order of the format", other
    inverse = replace(log, orientation_quat_wxyz=quat_conjugate(log.orientation_quat_wxyz))
    yield "the log's rotations look like world to body: export them from body to world", inverse


def _loaded_again(
    what: str, changed: dict[str, Any], read: Read, options: EvaluateConfig
) -> Iterator[tuple[str, PoseLog]]:
    """Yield the log with changed options, if it can be read so, and a note that names them."""
    flags = " ".join(f"{_FLAGS[name]} {value}" for name, value in changed.items())
    try:
        yield f"{what}: evaluate with {flags}", read(replace(options, **changed))
    except (InputError, UsageError):
        return


def _unit(log: PoseLog, size: float, read: Read, options: EvaluateConfig) -> str | None:
    """Return the unit in which the log's path is as large as the run's; None for the unit that it was read in."""
    if 1.0 / _SAME_SIZE < size < _SAME_SIZE:
        return None
    before = _rms(_centred(log.positions_m[np.isfinite(log.positions_m).all(axis=1)]))
    if before == 0.0:
        return None
    for unit in LENGTH_UNITS:
        for _, other in _loaded_again("", {"units": unit}, read, options):
            after = _rms(_centred(other.positions_m[np.isfinite(other.positions_m).all(axis=1)]))
            if 1.0 / _SAME_SIZE < size * after / before < _SAME_SIZE:
                return unit
    return None
