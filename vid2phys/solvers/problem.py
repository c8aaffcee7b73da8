"""The problem of every solver: a system, its parameters, the observation and the recorded actions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.signal import lfilter

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.system import System, check_scheme, is_implicit
from vid2phys.errors import UsageError
from vid2phys.geometry import Pose
from vid2phys.solvers import camera_parameters
from vid2phys.types import Actions, Array, Observation, Parameter, Parameters

DELAY, LAG = "action_delay_s", "motor_lag_s"
TIME_BASE = (Parameter(DELAY, "s", 0.0, -10.0, 10.0), Parameter(LAG, "s", 0.02, 1e-6, 10.0, "log"))
"""Unknowns of recorded actions: how much later they act than their file states, and the time constant of motors."""
STABLE_SHARE = 0.8  # of the longest stable step
_FILTER_STEP_S = 1e-3


@dataclass(frozen=True)
class Problem:
    """One identification.

    parameters: those with `free=True` are unknown. priors: name -> (mean, standard deviation) in solver coordinates;
    every solver takes them from `prior`.
    actions: recorded ones, or None when they are unknown and fitted. nuisance: free parameters that were not asked for.
    camera_to_world: [4, 4], or [F, 4, 4] of a camera that moves, one pose a frame.
    max_step_s: frames further apart than this get knots between them. body: of an articulated or modal body, of which
    coordinates were measured; None for a rigid one. carried: whether a hand carries the body's weight all the time, so
    that unknown forces are deviations from that.

    Coordinates were measured with the camera that was given. With camera parameters the keypoints count instead: where
    these are in the image is what tells of the camera.
    """

    system: System
    parameters: Parameters
    observation: Observation
    camera_to_world: Array
    actions: Actions | None = None
    priors: dict[str, tuple[float, float]] = field(default_factory=dict)
    nuisance: tuple[str, ...] = ()
    max_step_s: float = 0.036
    body: ArticulatedBody | None = None
    carried: bool = False

    def __post_init__(self) -> None:
        measured = self.observation.configuration
        if measured is None or isinstance(measured.configuration, Pose):
            return
        if set(camera_parameters.NAMES) & set(self.parameters.names):
            object.__setattr__(self, "observation", replace(self.observation, configuration=None))

    def prior(self, names: Sequence[str], values: Array) -> tuple[Array, Array]:
        """Return how far unknowns are from their priors, in standard deviations [P], and the priors' precisions [P].

        values: [P], solver coordinates of the unknowns of those names. Both are zero where there is no prior.
        """
        means = np.array([self.priors.get(name, (0.0, np.inf))[0] for name in names]).reshape(len(names))
        precision = self.prior_precision(names)
        return (values - means) * np.sqrt(precision), precision

    def prior_precision(self, names: Sequence[str]) -> Array:
        """Return precisions [P] of the priors of the unknowns of those names, 0 where there is none."""
        stds = np.array([self.priors.get(name, (0.0, np.inf))[1] for name in names]).reshape(len(names))
        return np.asarray(stds**-2.0, dtype=float)


@dataclass(frozen=True)
class Knots:
    """The time grid of the unknown states: all frames, and knots between distant ones.

    times_s [T]; step_s [T - 1]; frame_knot [F], the knot of each frame.
    """

    times_s: Array
    step_s: Array
    frame_knot: np.ndarray

    @staticmethod
    def of(times_s: Array, max_step_s: float) -> Knots:
        """Return the grid through all frame times with steps of at most `max_step_s`."""
        pieces, index = [times_s[:1]], [0]
        for start, end in itertools.pairwise(times_s):
            count = max(1, int(np.ceil((end - start) / max_step_s - 1e-6)))
            pieces.append(np.linspace(start, end, count + 1)[1:])
            index.append(index[-1] + count)
        times = np.concatenate(pieces)
        return Knots(times, np.diff(times), np.array(index))

    def frame_means(self, values: Array) -> Array:
        """Return means over the frame intervals of piecewise constant values, [T - 1, M] -> [F - 1, M]."""
        integral = np.vstack([np.zeros(values.shape[1]), np.cumsum(values * self.step_s[:, None], axis=0)])
        return np.diff(integral[self.frame_knot], axis=0) / np.diff(self.times_s[self.frame_knot])[:, None]


@dataclass(frozen=True)
class Channel:
    """One unknown input: control `index` is `inertia` (a parameter of the system) times an unknown acceleration."""

    index: int
    inertia: str
    group: str


def input_channels(problem: Problem) -> tuple[Channel, ...]:
    """Return the unknown inputs: a disturbance wrench beside recorded actions, else the actions and a disturbance
    force.

    A body whose actions are a force and a torque on it, or which has none, gets no disturbance force beside a force.
    """
    system = problem.system
    groups = system.control_groups
    wanted = {"force", "torque"}
    if problem.actions is None and len(system.action_names):
        wanted = set(groups) - ({"torque", "force"} if flies_free(system) else {"torque"})
    return tuple(Channel(i, system.control_inertia[i], group) for i, group in enumerate(groups) if group in wanted)


def effective_actions(actions: Actions, knots: Knots, delay_s: float, lag_s: float) -> Array:
    """Return the mean over each interval of the recorded actions after a delay and a first-order lag, [T - 1, M].

    Without a lag the means are exact; with one they are those of a filter with steps of a millisecond.
    """
    if lag_s == 0.0:
        return np.diff(_hold_integral(actions, knots.times_s - delay_s), axis=0) / knots.step_s[:, None]
    start, end = knots.times_s[0], knots.times_s[-1]
    fine = np.arange(start - 0.2, end + _FILTER_STEP_S, _FILTER_STEP_S)
    integral = _hold_integral(actions, fine - delay_s)
    samples = np.diff(integral, axis=0) / _FILTER_STEP_S
    keep = np.exp(-_FILTER_STEP_S / max(lag_s, 1e-6))
    filtered, _ = lfilter([1.0 - keep], [1.0, -keep], samples, axis=0, zi=keep * samples[:1])
    integral = np.vstack([np.zeros(actions.values.shape[1]), np.cumsum(filtered, axis=0)]) * _FILTER_STEP_S
    at_knots = _interpolated(knots.times_s, fine, integral)
    return np.diff(at_knots, axis=0) / knots.step_s[:, None]


def mean_controls(problem: Problem, parameters: Array) -> Array:
    """Return the controls [M] about which unknown actions vary. parameters: [P] of the system."""
    system = problem.system
    return system.carrying_controls(parameters) if problem.carried else system.hover_controls(parameters)


def flies_free(system: System) -> bool:
    """Return whether a body's actions are a force and a torque on it, so that without any it is thrown."""
    return "action_force" in system.control_groups


def rollout_controls(problem: Problem, knots: Knots) -> Array:
    """Return the controls [T - 1, M] of a deterministic rollout: the recorded actions, and no disturbance.

    A body whose actions are a force and a torque on it flies free without any. Raises UsageError for another system
    that has actions and no recording of them.
    """
    controls = np.zeros((len(knots.step_s), len(problem.system.control_names)))
    if problem.actions is not None:
        recorded = effective_actions(problem.actions, knots, 0.0, 0.0)
        controls[:, : recorded.shape[1]] = recorded
    elif len(problem.system.action_names) and not flies_free(problem.system):
        raise UsageError("a rollout without --actions", "recorded actions", "use --solver smoothing")
    return controls


def stable_substeps(problem: Problem, knots: Knots, least: int = 2) -> int:
    """Return the steps of an interval that the system's own integrator needs at the problem's parameters."""
    if is_implicit(check_scheme(problem.system, None, 1)):
        return 1
    longest = STABLE_SHARE * problem.system.longest_step_s(camera_parameters.system_vector(problem.parameters))
    return max(least, int(np.ceil(knots.step_s.max() / longest)))


def _hold_integral(actions: Actions, times_s: Array) -> Array:
    """Return the integral of the zero-order hold up to each time, [N, M]; first and last values hold beyond the
    ends."""
    first, last = min(times_s[0], actions.times_s[0]) - 1.0, max(times_s[-1], actions.times_s[-1]) + 1.0
    ends = np.concatenate([[first], actions.times_s[1:], [last]])
    cumulative = np.vstack(
        [np.zeros(actions.values.shape[1]), np.cumsum(np.diff(ends)[:, None] * actions.values, axis=0)]
    )
    return _interpolated(times_s, ends, cumulative)


def _interpolated(times_s: Array, known_s: Array, values: Array) -> Array:
    """Return values [N, M] at known times at other times, [T, M]; M may be zero."""
    none = np.empty((len(times_s), 0))
    return np.column_stack([none, *(np.interp(times_s, known_s, column) for column in values.T)])
