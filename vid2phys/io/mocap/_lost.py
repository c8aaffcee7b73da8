"""Find rows of a log in which the tracker had lost the body, though they hold numbers.

Trackers write such rows in several ways: zeros and the identity, a place far away (1e6, -9999), one constant pose, or
the last pose again and again. The body does not leave such a pose in a motion of its own: it jumps. So rows are lost
only where a jump shows. A static body, in a simulation or in a rounded log, starts from rest and is kept. So is a log
that repeats each pose a few times.

Limit: a pose that is repeated until the end of the log looks like rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import angle_between
from vid2phys.types import PoseLog

FAR_M = 100.0  # of a capture volume
_LEAST_HELD = 5  # rows with the same pose
_LONGER = 2.0  # times the rows that a pose lasts in this log
_JUMP = 4.0  # times the speed of the next steps
_STEPS = 5
_WINDOW = 500  # rows in which those steps are searched for
_RECURS = 3  # times that exactly the same pose comes back, if a tracker writes it for a lost body
_SAME_M = 1e-6  # rounding of the same pose
_LEAST_JUMP_M = 0.002
_ARM_M = 0.1  # a rotation counts as the motion of a point this far from its axis
Rows = NDArray[np.bool_]


def lost_rows(log: PoseLog) -> dict[str, Rows]:
    """Return which rows of a log without gaps are lost, each [T], by what they hold: words for a reader."""
    places = log.positions_m
    origin = (places == 0.0).all(axis=1)
    alike = (places == places[:, :1]).all(axis=1) & ~origin  # -1, -1, -1
    far = (np.abs(places).max(axis=1) > FAR_M) & ~alike
    suspects = {"at the origin": origin, "at three equal coordinates": alike, "far away": far}
    usual = ~(origin | alike | far)
    found = {what: _entered_by_a_jump(log, rows, usual) for what, rows in suspects.items()}
    found["at a pose that recurs"] = _constant(log, usual)
    found["with the last pose repeated"] = _repeated(log, np.flatnonzero(~np.any(list(found.values()), axis=0)))
    return {what: rows for what, rows in found.items() if rows.any()}


def _entered_by_a_jump(log: PoseLog, suspects: Rows, usual: Rows) -> Rows:
    """Return which of the suspect rows [T] are in a run that the body enters from, or leaves to, a usual row by a jump.

    usual: [T] rows to compare with.
    """
    lost, rows = np.zeros(len(suspects), dtype=bool), np.flatnonzero(usual)
    for start, end in _runs(suspects):
        before, after = np.split(rows, [np.searchsorted(rows, start)])  # no usual row is within the run
        lost[start:end] = _jumps(log, start, before[::-1]) or _jumps(log, end - 1, after)
    return lost


def _constant(log: PoseLog, usual: Rows) -> Rows:
    """Return which of the usual rows [T] hold the pose that recurs most, if a jump shows at each of its runs."""
    poses = np.column_stack([log.positions_m, log.orientation_quat_wxyz])
    number = np.unique(poses, axis=0, return_inverse=True)[1].reshape(-1)
    is_first = np.append(True, np.diff(number) != 0)  # of a run of the same pose
    runs = np.bincount(number[is_first & usual], minlength=1)
    suspects = usual & (number == np.argmax(runs))
    lost = _entered_by_a_jump(log, suspects, usual & ~suspects)
    return lost & bool(runs.max() >= _RECURS and (lost == suspects).all())


def _repeated(log: PoseLog, rows: NDArray[np.int64]) -> Rows:
    """Return which rows [T] repeat a pose that the body then jumps away from; `rows` are those to look at."""
    lost = np.zeros(len(log.times_s), dtype=bool)
    poses = np.column_stack([log.positions_m, log.orientation_quat_wxyz])[rows]
    same = np.append((poses[1:] == poses[:-1]).all(axis=1), False)
    usual = len(rows) / max(int((~same).sum()), 1)  # rows that a pose lasts: more than one in a slow tracker's log
    least = max(_LEAST_HELD, _LONGER * usual)
    for start, end in _runs(same):  # the poses from start to end, inclusive, are the same
        if start > 0 and end - start + 1 >= least and _jumps(log, int(rows[end]), rows[end + 1 :]):
            first = start if _jumps(log, int(rows[start]), rows[:start][::-1]) else start + 1  # else the body was there
            lost[rows[first : end + 1]] = True
    return lost


def _runs(rows: Rows) -> list[tuple[int, int]]:
    """Return where runs of True start and end (exclusive)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rows, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _jumps(log: PoseLog, row: int, beyond: NDArray[np.int64]) -> bool:
    """Return whether the step from a row to the first of the rows beyond is far faster than the steps that follow."""
    chain = np.concatenate([[row], beyond[:_WINDOW]])
    if len(chain) < 3:
        return False
    places, quats = log.positions_m[chain], log.orientation_quat_wxyz[chain]
    way = np.linalg.norm(np.diff(places, axis=0), axis=1) + _ARM_M * angle_between(quats[1:], quats[:-1])
    speed = way / np.abs(np.diff(log.times_s[chain]))
    following = speed[1:][way[1:] > _SAME_M][:_STEPS]
    return bool(way[0] > _LEAST_JUMP_M and speed[0] > _JUMP * following.max(initial=0.0))
