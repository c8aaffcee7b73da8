"""Whether a fitted motion could be real: free fall at the rate of gravity, actions in the clip's clock.

A wrong frame rate scales every acceleration by the square of the ratio, a wrong scale by the ratio. A thrown body
shows it: the forces that the fit needs are a constant share of the weight for as long as nothing touches the body.
A fall that is off by the ratio of two units of length makes the result doubtful, as does a body next to the lens.
Limits: accelerations within a tenth of gravity pass, as scales are hardly known better; so 24 and 25 fps look alike.
A mesh in wrong units goes unnoticed where the body never flies. Slow motion by a factor of 3.2 looks like a mesh
that is ten times too small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.notes import doubt, warning

if TYPE_CHECKING:
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.solution import Solution
    from vid2phys.types import Array

_FORCES = ("force_x", "force_y", "force_z")
_LEAST_INTERVALS = 8  # of a flight
_CONSTANT = 0.05  # of an acceleration, that it may change by in free flight
_SURE = 8.0  # standard deviations of an acceleration, so that it is known to be constant
_NEAR = 0.1  # of gravity: accelerations closer than this pass as gravity
_UPRIGHT_DEG = 10.0  # off the vertical: a body that falls
_SAG, _SAG_M = 0.5, 0.03  # radii of the body and metres that a flight is bent by: hands swing in shorter arcs
_SURE_SAG = 4.0  # radii of a small body that a flight is bent by, whose metres may be too small
_ALIKE = 1.2  # largest over smallest rate of the falls in a clip
_RATES = (24, 25, 30, 48, 50, 60, 90, 100, 120, 200, 240, 480, 960)  # that cameras have
_AT_RATE = 0.03  # of those
_UNITS = (10.0, 12.0, 25.4, 30.48, 39.37, 100.0, 304.8, 1000.0)  # ratios of mm, cm, m, in and ft
_AT_UNIT = 0.05  # of those
_NEAREST_M, _FARTHEST_M = 0.03, 100.0  # from the camera: lenses focus no closer, and small bodies are not seen
_SLOW = 1.9  # from this ratio of frame rates on it may be slow motion
_LONGEST_DELAY_S = 0.06  # three standard deviations of what is expected of recorders
_WEIGHT_M_S2 = 9.81  # force of a mass on the Earth, over that mass
_UNKNOWN = 0.12  # of the weight: a flight with a load that was not modelled has half as much
_HARDLY_DRIVEN = 0.3  # of the weight: the actions are not those of this motion


@dataclass(frozen=True)
class Flight:
    """A stretch of constant acceleration [3], m/s^2 in world axes, of some seconds from `start_s` in the clip on."""

    acceleration: Array
    seconds: float
    start_s: float = 0.0

    @property
    def size(self) -> float:
        """The acceleration's magnitude, m/s^2."""
        return float(np.linalg.norm(self.acceleration))

    @property
    def tilt_deg(self) -> float:
        """The angle between the acceleration and straight down."""
        return float(np.degrees(np.arccos(np.clip(-self.acceleration[2] / self.size, -1.0, 1.0))))

    @property
    def words(self) -> str:
        """What was seen, as the beginning of a note."""
        return f"for {self.seconds:.2g} s, while nothing seems to touch it, the body falls at {self.size:.3g} m/s^2"


def plausibility_notes(problem: Problem, solution: Solution, radius_m: float) -> tuple[str, ...]:
    """Return warnings of what looks like a wrong frame rate, scale, vertical or clock of the actions.

    solution: of a fit by smoothing. radius_m: of the body.
    """
    from vid2phys.solvers.problem import DELAY

    values = {parameter.name: parameter.value for parameter in solution.parameters}
    if not values.get("mass") or not values.get("gravity"):
        return ()
    free = set(problem.parameters.free_names)
    touches = bool(free & set(problem.system.capabilities.of_impacts))
    if problem.actions is not None:  # to the smoothing, contact is an unknown force
        unknown_share = 0.0 if touches else solution.extra.get("force_std", 0.0) / values["gravity"]
        return action_notes(solution.extra.get(DELAY, 0.0), unknown_share)
    unknown = _unknown_acceleration(problem, solution)
    if unknown is None:
        return ()
    found = _flights(problem, solution, unknown, radius_m)
    if "gravity" in free and not touches:
        return gravity_notes(found, float(np.sqrt((unknown[0] ** 2).sum(axis=1).mean())))
    return fall_notes(found, values["gravity"], 1.0 / float(np.median(np.diff(problem.observation.times_s))))


def flights_of(problem: Problem, solution: Solution, radius_m: float) -> list[Flight]:
    """Return stretches of constant acceleration of a body that forces move, in a fit by smoothing."""
    unknown = _unknown_acceleration(problem, solution)
    return [] if unknown is None else _flights(problem, solution, unknown, radius_m)


def _flights(problem: Problem, solution: Solution, unknown: tuple[Array, Array], radius_m: float) -> list[Flight]:
    """Return the flights of a body with an acceleration by unknown forces, as of `_unknown_acceleration`."""
    acceleration = unknown[0] - np.array([0.0, 0.0, solution.parameters["gravity"].value])
    return flights(problem.observation.times_s, acceleration, unknown[1], radius_m)


def _unknown_acceleration(problem: Problem, solution: Solution) -> tuple[Array, Array] | None:
    """Return the acceleration by unknown forces and its standard deviation, [F - 1, 3] m/s^2; None without any."""
    from vid2phys.solvers.problem import flies_free

    names = problem.system.action_names
    if not flies_free(problem.system) or solution.action_std is None or not set(_FORCES) <= set(names):
        return None
    forces, mass = [names.index(name) for name in _FORCES], solution.parameters["mass"].value
    return solution.controls[:, forces] / mass, solution.action_std[:, forces] / mass


def gravity_notes(found: list[Flight], unknown: float) -> tuple[str, ...]:
    """Return a doubt where other forces than gravity move a body whose fall is to show gravity.

    unknown: root mean square of the acceleration by unknown forces, m/s^2.
    """
    if unknown < _UNKNOWN * _WEIGHT_M_S2:
        return ()
    longest = max(found, key=lambda flight: flight.seconds, default=None)
    where = "the flight"
    if longest is not None:
        ends = longest.start_s, longest.start_s + longest.seconds
        where += f", which seems to be from {ends[0]:.2f} to {ends[1]:.2f} s, at {longest.size:.3g} m/s^2"
    return (
        doubt(
            f"the motion needs unknown forces of {100 * unknown / _WEIGHT_M_S2:.0f} % of the usual weight, as from "
            "contact, so the value of gravity is not that of a free fall: fit contact, too (--fit "
            f"gravity,mu,restitution), or cut the clip (--from, --to) to {where}"
        ),
    )


def flights(times_s: Array, acceleration: Array, std: Array, radius_m: float) -> list[Flight]:
    """Find stretches of constant acceleration that are no rest, each beginning where the one before ends.

    times_s: [F]. acceleration, std: [F - 1, 3] m/s^2, of the intervals.
    """
    found, start = [], 0
    while start < len(acceleration):
        end = _constant_until(acceleration, std, start)
        mean, spread = acceleration[start:end].mean(axis=0), np.median(std[start:end], axis=0)
        seconds = float(times_s[end] - times_s[start])
        flight = Flight(mean, seconds, float(times_s[start]))
        bent = flight.size * seconds**2 / 8.0 > max(_SAG * radius_m, min(_SAG_M, _SURE_SAG * radius_m))
        if end - start >= _LEAST_INTERVALS and bent and flight.size > _SURE * np.linalg.norm(spread):
            found.append(flight)
            start = end
        else:
            start += 1
    return found


def _constant_until(acceleration: Array, std: Array, start: int) -> int:
    """Return the first interval after `start` whose acceleration differs from the mean since then."""
    total = np.zeros(3)
    for end in range(start, len(acceleration)):
        if end > start:
            mean = total / (end - start)
            allowed = _CONSTANT * np.linalg.norm(mean) + np.linalg.norm(std[end])
            if np.linalg.norm(acceleration[end] - mean) > allowed:
                return end
        total += acceleration[end]
    return len(acceleration)


def fall_notes(found: list[Flight], gravity: float, fps: float) -> tuple[str, ...]:
    """Return a warning where the stretches of constant acceleration are falls, but not at the rate of gravity.

    Bodies that slide or are moved by hand accelerate in other directions, or at a rate that changes from one stretch to
    the next: they give no warning.
    """
    if any(np.linalg.norm(flight.acceleration + np.array([0.0, 0.0, gravity])) < _NEAR * gravity for flight in found):
        return ()
    upright = [flight for flight in found if flight.tilt_deg < _UPRIGHT_DEG]
    at_rate = [flight for flight in found if abs(flight.size / gravity - 1.0) < _NEAR]
    sizes = [flight.size for flight in upright]
    if sizes and max(sizes) < _ALIKE * min(sizes):
        return (_rate_note(max(upright, key=lambda flight: flight.seconds), gravity, fps),)
    if at_rate and not upright:
        flight = max(at_rate, key=lambda flight: flight.seconds)
        return (warning(f"{flight.words}, {flight.tilt_deg:.0f} degrees off the vertical: check camera_to_world"),)
    return ()


def _rate_note(flight: Flight, gravity: float, fps: float) -> str:
    ratio = flight.size / gravity
    times = next((unit for unit in _UNITS if abs(max(ratio, 1.0 / ratio) / unit - 1.0) < _AT_UNIT), None)
    if times is not None:
        return _units_note(flight, times, too_large=ratio > 1.0)
    share, right = 1.0 - ratio, fps * float(np.sqrt(1.0 / ratio))
    right = next((rate for rate in _RATES if abs(right / rate - 1.0) < _AT_RATE), right)
    force = f"a constant {'upward' if share > 0 else 'downward'} force of {100 * abs(share):.0f} % of the weight"
    slow = ", slow motion" if right > _SLOW * fps else ""
    return warning(
        f"{flight.words}, {force}: this looks like a wrong frame rate, scale or vertical; at {right:.3g} fps{slow} "
        f"that is {gravity:.3g}, the clip has {fps:.3g}; give --fps, or check the mesh's units and camera_to_world"
    )


def _units_note(flight: Flight, times: float, *, too_large: bool) -> str:
    wrong, slow = ("large", "") if too_large else ("small", ", or --fps if the clip is slow motion")
    return doubt(
        f"{flight.words}: the mesh is {times:g} times too {wrong}, and so are all lengths of the result; "
        f"give --mesh-units (mm, cm, m, in or ft){slow}"
    )


def distance_notes(distance_m: float, radius_m: float) -> tuple[str, ...]:
    """Return a doubt where a body is so near to the camera, or so far away, that its mesh most likely has other units.

    distance_m: from the camera. radius_m: of the body.
    """
    if _NEAREST_M <= distance_m <= _FARTHEST_M:
        return ()
    wrong = "small" if distance_m < _NEAREST_M else "large"
    got = f"the body would be {distance_m:.2g} m from the camera and {2.0 * radius_m:.2g} m large"
    return (doubt(f"{got}: the mesh is probably too {wrong}; give --mesh-units (mm, cm, m, in or ft)"),)


def action_notes(delay_s: float, unknown: float) -> tuple[str, ...]:
    """Return what recorded actions leave open.

    delay_s: of the actions, as fitted. unknown: standard deviation of the unknown force beside them over the weight.
    """
    notes = []
    if unknown > _UNKNOWN:
        say = doubt if unknown > _HARDLY_DRIVEN else warning
        notes.append(
            say(
                f"beside the recorded actions the motion needs an unknown force of {100 * unknown:.0f} % of the "
                "weight: this looks like a wrong frame rate (--fps), or a wrong clock or units of the actions"
            )
        )
    if abs(delay_s) > _LONGEST_DELAY_S:
        when = "later" if delay_s > 0 else "earlier"
        notes.append(
            warning(
                f"the motion follows the recorded actions best when these act {abs(delay_s):.2g} s {when}, which is "
                "implausible: check the clock of the actions (0 at the first frame) and the frame rate (--fps)"
            )
        )
    return tuple(notes)
