"""Optimal control: actions, held over intervals, that bring a body to where its points should be.

Method: least squares (`least_squares`) on what is left at the end: points off their goal, and speeds, where the body is
to come to rest. A little effort is added, so that gentle actions are chosen among those that reach the goal.
Derivatives of the end by all actions go through the engine: a linear recursion of the intervals' Jacobians, backwards
from the end. For bodies of many vertices they are differences of rollouts in one batch. Limits hold by projection
(Bertsekas, "Projected Newton methods", 1982).

Limits: where the nearest optimum is not the goal, other starts are tried. A body that first has to let go of something
may not find its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.rollout import linearize, simulate
from vid2phys.engine.system import System, check_scheme, is_implicit
from vid2phys.errors import SimulationError, UsageError
from vid2phys.solvers import least_squares
from vid2phys.solvers.least_squares import Minimum, NormalEquations, Settings, minimize, movable
from vid2phys.solvers.shooting import FINE_STEP_S
from vid2phys.types import Array

REACHED, _OF_THE_WAY = 0.05, 0.1  # largest miss at the goal, over the body's size, and over the way
_TOLERANCE = 0.01  # miss over the body's size for a residual of 1
_EFFORTS = 3.0, 0.3, 0.03, 0.003  # residuals of an action that alone moves the body by its size
_NEARER = 0.5  # largest rest of less gentle actions, over that of gentler ones
_SETTLING = 0.2  # share of the time that a speed is multiplied by, for its residual
_MOST_STATES = 60  # largest state with exact Jacobians
_STEP = 1e-4  # of differences, in units of the actions
_STABLE_SHARE = 0.4  # of the longest stable step
_OTHER_STARTS = 6  # tried where the nearest optimum is not the goal
_LEAPS, _PROMISE = 3, 0.1  # most of them, and least gain of one, as a share of the cost
_SETTINGS = Settings(tolerance=1e-3, cost_range=(0.01, np.inf), damping=1e-2)  # a cost of 0.01 is as good as none


@dataclass(frozen=True)
class Aim:
    """What is to be reached, from where, with what.

    parameters: [P] SI. start: [N]. step_s: [S] of the intervals. hold: [A] actions that hold the body at rest. lower,
    upper: [A] limits of the actions. points_body [K, 3] m and goal [K, 3] m, where they should be at the end. size_m:
    of the body. at_rest: whether it is to have come to rest there. max_step_s: longest step of explicit integrators,
    which contacts want shorter.
    """

    system: System
    parameters: Array
    start: Array
    step_s: Array
    hold: Array
    lower: Array
    upper: Array
    points_body: Array
    goal: Array
    size_m: float
    at_rest: bool = True
    max_step_s: float = 5e-3

    @property
    def rates(self) -> NDArray[np.int64]:
        """Return which of the states are speeds."""
        return np.flatnonzero([name.split(" of ")[0].endswith(("_m_s", "_rad_s")) for name in self.system.state_names])


@dataclass(frozen=True)
class Reached:
    """The result. actions: [S, A]. states: [S + 1, N] under them. miss_m: root mean square distance of the points
    from their goal at the end; before_m: at the start. at_limit: share of the actions that are at a limit."""

    actions: Array
    states: Array
    miss_m: float
    before_m: float
    speed: float
    at_limit: float
    iterations: int
    converged: bool
    size_m: float

    def at_goal(self, known_m: float = 0.0) -> bool:
        """Return whether the goal is reached, for the body's size and the way. known_m: error of the goal's points."""
        near = max(_OF_THE_WAY * self.before_m, 2.0 * known_m, _TOLERANCE * self.size_m)
        return self.miss_m <= min(near, REACHED * self.size_m)


def solve(aim: Aim, *, iterations: int = 100) -> Reached:
    """Find the actions.

    Raises UsageError for a system without actions and for limits that contradict each other. Raises SimulationError
    when the motion is not finite even without effort.
    """
    if not len(aim.hold):
        raise UsageError(f"the system '{aim.system.name}', which has no actions", "one with actions")
    if not (aim.lower < aim.upper).all():
        raise UsageError("limits of an action whose lower end is not below the upper", "LOW..HIGH")
    hold = np.clip(aim.hold, aim.lower, aim.upper)
    actions = np.tile(hold, (len(aim.step_s), 1))
    substeps = _substeps(aim)
    states = _rollout(aim, actions[None], substeps)[0]
    unit = _units(aim, states, actions, substeps)
    best = _bring(aim, _Point(actions, states), unit, iterations)
    rng = np.random.default_rng(0)
    for _ in range(_OTHER_STARTS):
        if best.at_goal():
            break
        push = rng.uniform(-1.0, 1.0, len(hold)) * unit  # all the time, so that a body comes off a contact
        pushed = _tried(aim, np.clip(actions + push, aim.lower, aim.upper), substeps)
        if pushed.states is not None:
            best = min(best, _bring(aim, pushed, unit, iterations), key=lambda found: found.miss_m)
    return best


def _bring(aim: Aim, start: _Point, unit: Array, iterations: int) -> Reached:
    """Return gentle actions, or less gentle ones that come much nearer or without which the goal is not reached."""
    used, left = 0, np.inf
    best: Reached | None = None
    for effort in _EFFORTS:
        found = _descend(aim, start, unit / effort, iterations)
        start, used = found.point, used + found.iterations
        actions, states = start.actions, start.states
        assert states is not None
        nearer = float(np.linalg.norm(_residuals(aim, states[-1:])))
        if best is not None and best.at_goal() and nearer > _NEARER * left:
            break
        at_limit = float(((actions <= aim.lower) | (actions >= aim.upper)).mean())
        speed = float(np.abs(states[-1][aim.rates]).max(initial=0.0))
        before, miss, left = _distance(aim, states[0]), _distance(aim, states[-1]), nearer
        best = Reached(actions, states, miss, before, speed, at_limit, used, found.converged, aim.size_m)
    assert best is not None
    return best


@dataclass(frozen=True)
class _Point:
    """Actions [S, A] and the states [S + 1, N] that they lead through, None where these cannot be computed."""

    actions: Array
    states: Array | None


def _descend(aim: Aim, start: _Point, unit: Array, iterations: int) -> Minimum[_Point]:
    """Return the nearest optimum. unit: [A], actions that have an effort of one.

    Bounces end a descent where slopes still promise much. From there the descent leaps by the whole undamped step, and
    the lowest of its ends counts.
    """
    problem = _Control(aim, np.clip(aim.hold, aim.lower, aim.upper), unit, _substeps(aim))
    ends: list[Minimum[_Point]] = []
    used = 0
    for leaps in range(_LEAPS + 1):
        found = minimize(problem, start, replace(_SETTINGS, iterations=iterations - used))
        used += found.iterations
        ends.append(found)
        if leaps == _LEAPS or not found.converged or used >= iterations:
            break
        ahead, promised = problem.model.ahead(0.0)
        if promised < max(_PROMISE * found.cost, _SETTINGS.least_gain(found.cost)):
            break
        start = _tried(aim, ahead, problem.substeps)
        if start.states is None:
            break
    return replace(min(ends, key=lambda end: end.cost), iterations=used, status=ends[-1].status)


@dataclass
class _Control(least_squares.Problem[_Point]):
    """What is left at the end, and the effort. hold, unit: [A]. model: the latest linear model."""

    aim: Aim
    hold: Array
    unit: Array
    substeps: int
    model: _Linear = field(init=False)

    def cost(self, point: _Point) -> float:
        """See `least_squares.Problem.cost`."""
        if point.states is None:
            return np.inf
        left, effort = _residuals(self.aim, point.states[-1:])[0], self.effort(point)
        return 0.5 * float((left**2).sum() + (effort**2).sum())

    def effort(self, point: _Point) -> Array:
        """Return the residuals of the actions, [S A]."""
        return np.asarray(((point.actions - self.hold) / self.unit).ravel(), dtype=float)

    def linearize(self, point: _Point) -> _Linear:
        """See `least_squares.Problem.linearize`."""
        assert point.states is not None
        size, cost = point.actions.size, self.cost(point)
        try:
            slopes = _slopes(self.aim, point.states, point.actions, self.substeps, self.unit).reshape(-1, size)
        except (SimulationError, UsageError):  # even small changes lead to what cannot be computed
            slopes, cost = np.zeros((0, size)), np.inf
        left = _residuals(self.aim, point.states[-1:])[0][: len(slopes)]
        normal = NormalEquations(slopes.T @ left + self.effort(point), slopes.T @ slopes + np.eye(size))
        self.model = _Linear(self, point, cost, normal)
        return self.model


@dataclass
class _Linear(least_squares.Model[_Point]):
    """The end made linear about actions, in their units."""

    problem: _Control
    point: _Point
    cost: float
    normal: NormalEquations

    def step(self, damping: float) -> tuple[_Point, float]:
        """See `least_squares.Model.step`."""
        actions, predicted = self.ahead(damping)
        return _tried(self.problem.aim, actions, self.problem.substeps), predicted

    def ahead(self, damping: float) -> tuple[Array, float]:
        """Return the actions [S, A] after a damped step and the gain that it promises.

        The damping is that of the effort: Marquardt's scale would leave actions free that hardly matter. Actions at a
        limit that the descent pushes against stay there.
        """
        aim, actions, unit = self.problem.aim, self.point.actions, self.problem.unit
        ends = (np.broadcast_to(end, actions.shape).ravel() for end in (aim.lower, aim.upper))
        free = movable(actions.ravel(), self.normal.gradient, *ends)
        step = self.normal.step(damping, free, by_information=False).reshape(actions.shape)
        moved = np.clip(actions + step * unit, aim.lower, aim.upper)
        return moved, self.normal.gain(((moved - actions) / unit).ravel())


def refined(aim: Aim, actions: Array, times: int = 2) -> Array:
    """Return states [S + 1, N] under the actions, integrated in `times` as many steps, which should not matter."""
    return _rollout(aim, actions[None], times * _substeps(aim))[0]


def _substeps(aim: Aim) -> int:
    longest = FINE_STEP_S
    if not is_implicit(check_scheme(aim.system, None, 1)):
        longest = min(aim.max_step_s, _STABLE_SHARE * aim.system.longest_step_s(aim.parameters))
    return max(1, int(np.ceil(float(aim.step_s.max()) / longest - 1e-6)))


def _rollout(aim: Aim, actions: Array, substeps: int) -> Array:
    """Return states [B, S + 1, N] under actions [B, S, A]."""
    controls = np.zeros((*actions.shape[:2], len(aim.system.control_names)))
    controls[..., : actions.shape[2]] = actions
    starts = np.broadcast_to(aim.start, (len(actions), len(aim.start)))
    return simulate(aim.system, starts, controls, aim.parameters, aim.step_s, substeps=substeps)


def _tried(aim: Aim, actions: Array, substeps: int) -> _Point:
    """Return the actions with the states that they lead through."""
    try:
        return _Point(actions, _rollout(aim, actions[None], substeps)[0])
    except (SimulationError, UsageError):
        return _Point(actions, None)


def _distance(aim: Aim, state: Array) -> float:
    off = aim.system.keypoints(state[None], aim.points_body)[0] - aim.goal
    return float(np.sqrt((off**2).sum(axis=-1).mean()))


def _residuals(aim: Aim, states: Array) -> Array:
    """Return what is left at final states [B, N], [B, R]: about 1 where it is as small as the tolerance."""
    tolerance = _TOLERANCE * aim.size_m
    off = aim.system.keypoints(states, aim.points_body) - aim.goal
    points = off.reshape(len(states), -1) / (tolerance * np.sqrt(len(aim.goal)))
    return np.concatenate([points, _rate_weights(aim) * states[:, aim.rates]], axis=1)


def _rate_weights(aim: Aim) -> Array:
    """Return the weights of the speeds [Q] in the residuals, zero for a body that may pass its goal."""
    if not aim.at_rest:
        return np.zeros(len(aim.rates))
    settling_s = _SETTLING * float(aim.step_s.sum())
    angular = [aim.system.state_names[i].split(" of ")[0].endswith("_rad_s") for i in aim.rates]
    weights = np.where(angular, aim.size_m, 1.0) * settling_s / (_TOLERANCE * aim.size_m)
    return np.asarray(weights / np.sqrt(max(1.0, len(weights) / 6.0)), dtype=float)


def _slopes(aim: Aim, states: Array, actions: Array, substeps: int, unit: Array) -> Array:
    """Return derivatives of the residuals by the actions in their units, [R, S, A]."""
    if len(aim.system.tangent_names) > _MOST_STATES:
        return _by_differences(aim, actions, substeps, unit)
    controls = np.zeros((len(actions), len(aim.system.control_names)))
    controls[:, : actions.shape[1]] = actions
    steps = linearize(aim.system, states[:-1], controls, aim.parameters, aim.step_s, substeps=substeps)
    seed = _by_final_state(aim, states[-1])
    out = np.empty((len(seed), *actions.shape))
    for k in range(len(actions) - 1, -1, -1):
        out[:, k] = seed @ steps.B[k][:, : actions.shape[1]]
        seed = seed @ steps.A[k]
    return out * unit


def _by_final_state(aim: Aim, state: Array) -> Array:
    """Return derivatives of the residuals by the tangent of the final state, [R, D], by central differences."""
    count = len(aim.system.tangent_names)
    steps = 1e-6 * np.eye(count)
    ahead, behind = (_residuals(aim, aim.system.retract(np.tile(state, (count, 1)), sign * steps)) for sign in (1, -1))
    return np.asarray((ahead - behind).T / 2e-6, dtype=float)


def _by_differences(aim: Aim, actions: Array, substeps: int, unit: Array) -> Array:
    """Return derivatives as `_slopes` does, by one batch of rollouts."""
    count = actions.size
    moves = (_STEP * np.eye(count)).reshape(count, *actions.shape) * unit
    ends = _rollout(aim, np.concatenate([actions + moves, actions - moves]), substeps)[:, -1]
    left = _residuals(aim, ends)
    return np.asarray(((left[:count] - left[count:]) / (2.0 * _STEP)).T.reshape(-1, *actions.shape), dtype=float)


def _units(aim: Aim, states: Array, actions: Array, substeps: int) -> Array:
    """Return how much of each action [A], held all the time, moves the body's points by its size."""
    guess = np.maximum(np.abs(aim.hold), 1e-3)
    slope = _slopes(replace(aim, at_rest=False), states, actions, substeps, guess)
    moved = np.sqrt((slope.sum(axis=1) ** 2).sum(axis=0)) * _TOLERANCE  # of the size, for a guess
    return np.asarray(guess / np.maximum(moved, 1e-6 * max(float(moved.max()), 1e-12)), dtype=float)
